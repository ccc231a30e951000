//! A bounded queue of requests to an OS thread that does what a reactor must not do (`server/offload.rs`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::thread::Thread;

use crossbeam_queue::ArrayQueue;

/// Capacity of a queue.
pub(crate) const WAITING: usize = 1024;

/// Requests that wait for the thread, in the order of their execution.
pub trait Queue {
    /// The requests.
    type Request;

    /// Adds a request; `false` if too many wait.
    fn push(&self, request: Self::Request) -> bool;

    /// Takes the next request.
    fn pop(&self) -> Option<Self::Request>;
}

/// First come, first served.
impl<R> Queue for ArrayQueue<R> {
    type Request = R;

    fn push(&self, request: R) -> bool {
        Self::push(self, request).is_ok()
    }

    fn pop(&self) -> Option<R> {
        Self::pop(self)
    }
}

/// The queue and its thread.
pub struct Requests<Q> {
    waiting: Q,
    thread: OnceLock<Thread>,
    stop: AtomicBool,
}

impl<R> Default for Requests<ArrayQueue<R>> {
    fn default() -> Self {
        Self::new(ArrayQueue::new(WAITING))
    }
}

impl<Q: Queue> Requests<Q> {
    /// An empty queue without a thread.
    pub(crate) fn new(waiting: Q) -> Self {
        Self { waiting, thread: OnceLock::new(), stop: AtomicBool::new(false) }
    }

    /// Submits a request; `false` if that is not possible now.
    #[must_use]
    pub fn submit(&self, request: Q::Request) -> bool {
        let Some(thread) = self.thread.get() else { return false };
        let accepted = self.waiting.push(request);
        thread.unpark();
        accepted
    }

    /// Sets the thread, once.
    pub(crate) fn set_thread(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// Takes the next request.
    pub(crate) fn take(&self) -> Option<Q::Request> {
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
