//! Reads the allocated bytes of namespaces from their media on an OS thread.
//!
//! Reading may block (`fstat` and `lseek` take locks of the file system), and a reactor must not block. So an Identify
//! command that reports the number is parked until this thread has read it. The thread sleeps in the kernel without
//! requests.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pilotlight_reactor::Sender;

use super::Shared;
use crate::message::Message;
use crate::utilization::UtilizationRequest;

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
        shared.utilization.set_reader(join.thread().clone());
        Ok(Self { shared: Arc::clone(shared), join: Some(join) })
    }
}

impl Drop for UtilizationReader {
    fn drop(&mut self) {
        self.shared.utilization.stop();
        if let Some(join) = self.join.take() {
            join.thread().unpark();
            let _ = join.join();
        }
    }
}

fn run(shared: &Shared, threads: &[Sender<Message>]) {
    let requests = &shared.utilization;
    while !requests.is_stopped() {
        let Some(request) = requests.take() else {
            std::thread::park();
            continue;
        };
        shared.read_utilization(request.subsystem, request.nsid);
        let UtilizationRequest { admin, slot, generation, .. } = request;
        let mut message = Message::Utilization { admin, slot, generation };
        while let Err(returned) = threads[usize::from(admin.thread)].send(message) {
            if requests.is_stopped() {
                return;
            }
            message = returned;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
