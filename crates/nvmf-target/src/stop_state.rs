//! State of a stop: whether its time for requests has expired, and the unfinished work of I/O threads.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// State shared with ending I/O threads.
#[derive(Default)]
pub(crate) struct StopState {
    expired: AtomicBool,
    unfinished: Mutex<Unfinished>,
}

/// Work that ended I/O threads have not finished.
#[derive(Default)]
pub(crate) struct Unfinished {
    /// Closed connections with commands in progress.
    pub(crate) closed: usize,
    /// Subsystem, NSID and number of requests.
    pub(crate) abandoned: Vec<(usize, u32, usize)>,
}

impl StopState {
    /// Ends all waits for backends.
    pub(crate) fn expire(&self) {
        self.expired.store(true, SeqCst);
    }

    pub(crate) fn has_expired(&self) -> bool {
        self.expired.load(SeqCst)
    }

    /// Records the unfinished work of an I/O thread.
    pub(crate) fn note(&self, closed: usize, abandoned: &[(usize, u32, usize)]) {
        let mut unfinished = self.unfinished();
        unfinished.closed += closed;
        for &(subsystem, nsid, requests) in abandoned {
            match unfinished.abandoned.iter_mut().find(|one| (one.0, one.1) == (subsystem, nsid)) {
                Some(one) => one.2 += requests,
                None => unfinished.abandoned.push((subsystem, nsid, requests)),
            }
        }
    }
    /// The unfinished work until now.
    pub(crate) fn unfinished(&self) -> MutexGuard<'_, Unfinished> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
