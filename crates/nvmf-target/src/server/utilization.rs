//! How many bytes of a namespace hold data, asked of the media by an ordinary OS thread.
//!
//! A medium may take its time to answer (`fstat` and `lseek` take locks of the file system), and a reactor must not wait
//! for it. So an Identify command that reports the number is set aside, this thread asks the medium, and the I/O thread
//! goes on with the command when it hears of the answer. The thread sleeps in the kernel while nobody asks.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use pilotlight_reactor::Sender;

use super::Shared;
use crate::message::{ConnAddr, Message};

/// Requests that may wait. One more is answered with the number of the last look.
const WAITING: usize = 1024;

/// An Identify command that waits for a number.
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

/// Requests on their way to the thread.
pub struct UtilizationRequests {
    waiting: ArrayQueue<UtilizationRequest>,
    reader: OnceLock<Thread>,
    stop: AtomicBool,
}

impl UtilizationRequests {
    /// No requests, and no thread yet.
    pub(super) fn new() -> Self {
        Self { waiting: ArrayQueue::new(WAITING), reader: OnceLock::new(), stop: AtomicBool::new(false) }
    }

    /// Asks for a number; [`Message::Utilization`] follows. `false` if nobody can be asked now.
    #[must_use]
    pub fn ask(&self, request: UtilizationRequest) -> bool {
        let Some(reader) = self.reader.get() else { return false };
        let accepted = self.waiting.push(request).is_ok();
        reader.unpark();
        accepted
    }
}

/// The running thread; dropped, it ends.
pub(super) struct UtilizationReader {
    shared: Arc<Shared>,
    join: Option<JoinHandle<()>>,
}

impl UtilizationReader {
    /// Starts the thread; its answers go to `threads`.
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
        shared.look_at_utilization(request.subsystem, request.nsid);
        let UtilizationRequest { admin, slot, generation, .. } = request;
        let mut message = Message::Utilization { admin, slot, generation };
        while let Err(back) = threads[usize::from(admin.thread)].send(message) {
            if requests.stop.load(Acquire) {
                return;
            }
            message = back;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
