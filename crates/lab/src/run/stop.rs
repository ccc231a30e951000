//! Termination by a signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Set by a signal handler to the number of the signal; initially 0.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicUsize>);

impl StopFlag {
    /// The cell that a signal handler writes.
    #[must_use]
    pub fn cell(&self) -> Arc<AtomicUsize> {
        self.0.clone()
    }

    /// The received signal.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        i32::try_from(self.0.load(Ordering::Relaxed)).ok().filter(|signal| *signal != 0)
    }

    /// Sets the signal, as a handler does.
    pub fn set(&self, signal: usize) {
        self.0.store(signal, Ordering::Relaxed);
    }
}
