//! Acknowledgements: an ordinary OS thread sends a message to every I/O thread and waits until all have processed it.
//!
//! An [`Ack`] travels with each message and is dropped by the I/O thread after processing. Dropping it takes no lock; the
//! last one wakes the waiting thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Interval between reports of outstanding acknowledgements.
const REPORT: Duration = Duration::from_secs(10);

struct Shared {
    missing: AtomicUsize,
    waiter: Thread,
}

/// The waiting side. Only the thread that created it can wait.
pub(crate) struct Acks(Arc<Shared>);

/// One pending acknowledgement. Dropping it acknowledges.
pub struct Ack(Arc<Shared>);

impl Acks {
    /// No acknowledgements are expected yet. Only the calling thread can wait for them.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared { missing: AtomicUsize::new(0), waiter: std::thread::current() }))
    }

    /// Adds an acknowledgement to wait for.
    #[must_use]
    pub(crate) fn expect(&self) -> Ack {
        self.0.missing.fetch_add(1, Relaxed);
        Ack(Arc::clone(&self.0))
    }

    /// Number of outstanding acknowledgements.
    #[must_use]
    pub(crate) fn missing(&self) -> usize {
        self.0.missing.load(Acquire)
    }

    /// Waits until none is outstanding. Calls `late` with their number every ten seconds.
    pub(crate) fn wait(self, mut late: impl FnMut(usize)) {
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
    fn wait_returns_after_the_last_acknowledgement() {
        let acks = Acks::new();
        let (first, last) = (acks.expect(), acks.expect());
        drop(first);
        assert_eq!(acks.missing(), 1);
        let dropper = std::thread::spawn(move || drop(last));
        acks.wait(|_| {});
        dropper.join().expect("no panic");
    }

    #[test]
    fn wait_without_acknowledgements_returns_at_once() {
        Acks::new().wait(|_| unreachable!("nothing is late"));
    }
}
