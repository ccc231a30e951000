//! A drive and its background I/O.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use super::pace::SPACING;

/// A drive, with at most one background I/O at a time.
#[derive(Debug, Default)]
pub struct Drive {
    is_in_use: AtomicBool,
    /// Earliest time of the next I/O while hosts are present, in nanoseconds.
    earliest_ns: AtomicU64,
}

impl Drive {
    /// Takes the drive for one I/O. Returns whether it was free.
    pub fn take(&self) -> bool {
        !self.is_in_use.swap(true, SeqCst)
    }

    /// Ends the I/O.
    pub fn release(&self) {
        self.is_in_use.store(false, SeqCst);
    }

    /// Sets the earliest time of the next I/O after one that took `took_ns`, with its preparation.
    pub fn space(&self, began_ns: u64, took_ns: u64) {
        self.earliest_ns.fetch_max(began_ns.saturating_add(took_ns.saturating_mul(SPACING)), Relaxed);
    }

    /// Earliest time of the next I/O while hosts are present, in nanoseconds.
    #[must_use]
    pub fn earliest_ns(&self) -> u64 {
        self.earliest_ns.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ios_of_a_drive_are_spaced_by_their_duration() {
        let drive = Drive::default();
        assert!(drive.take() && !drive.take());
        drive.release();
        drive.space(1_000, 10);
        drive.space(900, 2);
        assert!(drive.take());
        assert_eq!(drive.earliest_ns(), 1_000 + 10 * SPACING, "the later time counts");
    }
}
