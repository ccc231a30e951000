//! Identify commands that wait for the allocated bytes of a namespace, read by an OS thread (`server/utilization.rs`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::thread::Thread;

use crossbeam_queue::ArrayQueue;

use crate::ids::ConnAddr;

/// Capacity of the queue. Further requests get the last value.
const WAITING: usize = 1024;

/// A waiting Identify command.
#[derive(Clone, Copy, Debug)]
pub struct UtilizationRequest {
    /// Index of the subsystem.
    pub subsystem: usize,
    /// The namespace.
    pub nsid: u32,
    /// The admin queue's connection.
    pub admin: ConnAddr,
    /// The command's slot.
    pub slot: u16,
    /// The slot's generation.
    pub generation: u8,
}

/// The queue of requests.
pub struct UtilizationRequests {
    waiting: ArrayQueue<UtilizationRequest>,
    reader: OnceLock<Thread>,
    stop: AtomicBool,
}

impl UtilizationRequests {
    /// An empty queue without a thread.
    pub(crate) fn new() -> Self {
        Self { waiting: ArrayQueue::new(WAITING), reader: OnceLock::new(), stop: AtomicBool::new(false) }
    }

    /// Submits a request, which [`Message::Utilization`](crate::message::Message::Utilization) completes. `false` if that is not possible now.
    #[must_use]
    pub fn submit(&self, request: UtilizationRequest) -> bool {
        let Some(reader) = self.reader.get() else { return false };
        let accepted = self.waiting.push(request).is_ok();
        reader.unpark();
        accepted
    }
    /// Sets the thread that serves requests.
    pub(crate) fn set_reader(&self, reader: Thread) {
        let _ = self.reader.set(reader);
    }

    /// The oldest request.
    pub(crate) fn take(&self) -> Option<UtilizationRequest> {
        self.waiting.pop()
    }

    /// The server stops. The thread must be woken then.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Release);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Acquire)
    }
}
