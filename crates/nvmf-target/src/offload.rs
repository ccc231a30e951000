//! A bounded queue of requests to an OS thread that does what a reactor must not do (`server/offload.rs`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::thread::Thread;

use crossbeam_queue::ArrayQueue;

/// Capacity.
const WAITING: usize = 1024;

/// The queue.
pub struct Requests<R> {
    waiting: ArrayQueue<R>,
    thread: OnceLock<Thread>,
    stop: AtomicBool,
}

impl<R> Default for Requests<R> {
    /// An empty queue without a thread.
    fn default() -> Self {
        Self { waiting: ArrayQueue::new(WAITING), thread: OnceLock::new(), stop: AtomicBool::new(false) }
    }
}

impl<R> Requests<R> {
    /// Submits a request; `false` if that is not possible now.
    #[must_use]
    pub fn submit(&self, request: R) -> bool {
        let Some(thread) = self.thread.get() else { return false };
        let accepted = self.waiting.push(request).is_ok();
        thread.unpark();
        accepted
    }

    /// Sets the thread, once.
    pub(crate) fn set_thread(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// Takes the oldest request.
    pub(crate) fn take(&self) -> Option<R> {
        self.waiting.pop()
    }

    /// Ends the thread; the caller wakes it.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Release);
    }

    /// Whether the thread must end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Acquire)
    }
}
