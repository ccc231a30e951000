//! Acknowledgements: an ordinary OS thread sends a message to every I/O thread and waits until all have acted on it.
//!
//! An [`Ack`] travels with each message and is dropped by the I/O thread once it has acted. Dropping it takes no lock; the
//! last one wakes the waiting thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Time between two reports that acknowledgements are missing.
const REPORT: Duration = Duration::from_secs(10);

struct Shared {
    missing: AtomicUsize,
    waiter: Thread,
}

/// The waiting side. Belongs to the thread that made it.
pub struct Acks(Arc<Shared>);

/// One acknowledgement, given when it is dropped.
pub struct Ack(Arc<Shared>);

impl Acks {
    /// No acknowledgements are expected yet. Only the calling thread can wait for them.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Shared { missing: AtomicUsize::new(0), waiter: std::thread::current() }))
    }

    /// One more acknowledgement to wait for.
    #[must_use]
    pub fn expect(&self) -> Ack {
        self.0.missing.fetch_add(1, Relaxed);
        Ack(Arc::clone(&self.0))
    }

    /// Acknowledgements still missing.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.0.missing.load(Acquire)
    }

    /// Waits until none is missing. Calls `late` with their number every ten seconds.
    pub fn wait(self, mut late: impl FnMut(usize)) {
        let mut reported = Instant::now();
        while self.missing() > 0 {
            std::thread::park_timeout(REPORT);
            let missing = self.missing();
            if missing > 0 && reported.elapsed() >= REPORT {
                reported = Instant::now();
                late(missing);
            }
        }
    }
}

impl Default for Acks {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Ack {
    fn drop(&mut self) {
        if self.0.missing.fetch_sub(1, AcqRel) == 1 {
            self.0.waiter.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_with_the_last_acknowledgement_and_not_before() {
        let acks = Acks::new();
        let (first, last) = (acks.expect(), acks.expect());
        drop(first);
        assert_eq!(acks.missing(), 1);
        let dropper = std::thread::spawn(move || drop(last));
        acks.wait(|_| {});
        dropper.join().expect("no panic");
    }

    #[test]
    fn nothing_to_wait_for_is_no_wait() {
        Acks::new().wait(|_| unreachable!("nothing is late"));
    }
}
