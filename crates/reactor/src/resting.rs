//! Which cores wait in the kernel although they may get requests.
//!
//! *Problem.* The main core is the last to sleep: it waits only while every worker does, and its policy must receive every request. So a
//! worker that a request has woken must wake the main core. But that must cost nothing for each request, and a main core that is about
//! to wait must not miss the request.
//!
//! *Algorithm.* Each side writes its own word, passes a full fence and reads the other's:
//!
//! ```text
//! main:   rests = true;  fence;  does every worker rest, and is every request reported? if so: wait;  rests = false
//! worker: wait;  rests = false;  with its first request since: count it;  fence;  does the main core rest? if so: wake it
//! ```
//!
//! *Properties.*
//! - One of the two fences is first. If the main core's, the worker reads that it rests; if the worker's, the main core reads that the
//!   worker is awake. If the worker rests again by then, its count of requests came before.
//! - The worker needs a fence for the first request after a wait only: the main core does not begin to sleep as the last one while a worker is
//!   awake.

use crate::sync::{AtomicU64, Ordering, Step, fence, leaves_out};

/// Whether a core rests; written by the core alone, around waits. Others read it often, so it has a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Resting(AtomicU64);

impl Default for Resting {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Resting {
    /// Before the last check and the wait; what was written before is visible to those who see it.
    pub(crate) fn begin(&self) {
        self.0.store(1, Ordering::Release);
        if !leaves_out(Step::RestFence) {
            fence(Ordering::SeqCst);
        }
    }

    /// After the wait.
    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Whether it rests.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Whether it rests, for a worker that has ended its own rest and counted a request.
    pub(crate) fn is_set_after_request(&self) -> bool {
        if !leaves_out(Step::RequestFence) {
            fence(Ordering::SeqCst);
        }
        self.is_set()
    }
}
