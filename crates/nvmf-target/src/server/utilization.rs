//! Reads the allocated bytes of namespaces from their media on an OS thread.
//!
//! Reading may block (`fstat` and `lseek` take locks of the file system), and a reactor must not block. So an Identify
//! command that reports the number is parked until this thread has read it. The thread sleeps in the kernel without
//! requests.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use pilotlight_reactor::Sender;

use super::Shared;
use crate::ids::ConnAddr;
use crate::message::Message;

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
    pub(super) fn new() -> Self {
        Self { waiting: ArrayQueue::new(WAITING), reader: OnceLock::new(), stop: AtomicBool::new(false) }
    }

    /// Submits a request, which [`Message::Utilization`] completes. `false` if that is not possible now.
    #[must_use]
    pub fn submit(&self, request: UtilizationRequest) -> bool {
        let Some(reader) = self.reader.get() else { return false };
        let accepted = self.waiting.push(request).is_ok();
        reader.unpark();
        accepted
    }
}

/// The running thread. Ends when dropped.
pub(super) struct UtilizationReader {
    shared: Arc<Shared>,
    join: Option<JoinHandle<()>>,
}

impl UtilizationReader {
    /// Starts the thread; its messages go to `threads`.
    pub(super) fn start(shared: &Arc<Shared>, threads: Arc<[Sender<Message>]>) -> io::Result<Self> {
        let theirs = Arc::clone(shared);
        let join = std::thread::Builder::new().name("utilization".into()).spawn(move || run(&theirs, &threads))?;
        let _ = shared.utilization.reader.set(join.thread().clone());
        Ok(Self { shared: Arc::clone(shared), join: Some(join) })
    }
}

impl Drop for UtilizationReader {
    fn drop(&mut self) {
        self.shared.utilization.stop.store(true, Release);
        if let Some(join) = self.join.take() {
            join.thread().unpark();
            let _ = join.join();
        }
    }
}

fn run(shared: &Shared, threads: &[Sender<Message>]) {
    let requests = &shared.utilization;
    while !requests.stop.load(Acquire) {
        let Some(request) = requests.waiting.pop() else {
            std::thread::park();
            continue;
        };
        shared.read_utilization(request.subsystem, request.nsid);
        let UtilizationRequest { admin, slot, generation, .. } = request;
        let mut message = Message::Utilization { admin, slot, generation };
        while let Err(returned) = threads[usize::from(admin.thread)].send(message) {
            if requests.stop.load(Acquire) {
                return;
            }
            message = returned;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
