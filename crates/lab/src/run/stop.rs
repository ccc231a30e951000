//! Whether a person, or the system, wants the run to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Set by a signal handler: the signal's number, 0 as long as there is none.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicUsize>);

impl StopFlag {
    /// What a signal handler writes to.
    #[must_use]
    pub fn cell(&self) -> Arc<AtomicUsize> {
        self.0.clone()
    }

    /// The signal that came.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        i32::try_from(self.0.load(Ordering::Relaxed)).ok().filter(|signal| *signal != 0)
    }

    /// As if that signal had come.
    pub fn set(&self, signal: usize) {
        self.0.store(signal, Ordering::Relaxed);
    }
}
