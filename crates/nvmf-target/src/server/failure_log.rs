//! Logs failed commands: an OS thread reads the counters, so that I/O threads only count.
//!
//! The first failure wakes the thread, which logs one line per namespace and status with the number of commands, and then
//! sleeps for ten seconds. Without failures it sleeps in the kernel.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use pilotlight_nvmf_proto::subsystems::failures::FailureCount;

use super::Shared;

/// The running thread. Dropping it logs the remaining failures and ends it.
pub(super) struct FailureLog {
    shared: Arc<Shared>,
    join: Option<JoinHandle<()>>,
}

impl FailureLog {
    /// Starts the thread.
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let theirs = Arc::clone(shared);
        let join = std::thread::Builder::new().name("failures".into()).spawn(move || run(&theirs))?;
        shared.failure_bell.set_logger(join.thread().clone());
        Ok(Self { shared: Arc::clone(shared), join: Some(join) })
    }
}

impl Drop for FailureLog {
    fn drop(&mut self) {
        self.shared.failure_bell.stop();
        if let Some(join) = self.join.take() {
            join.thread().unpark();
            let _ = join.join();
        }
    }
}

fn run(shared: &Shared) {
    let bell = &shared.failure_bell;
    loop {
        bell.wait();
        for (nqn, nsid, failures) in shared.failures() {
            for new in failures.take_new() {
                let FailureCount { status, cause, commands } = new.count;
                let (cause, first_lba) = (Some(cause).filter(|cause| !cause.is_empty()), new.first_lba);
                tracing::warn!(nqn, nsid, status, cause, commands, first_lba, "commands failed");
            }
        }
        if bell.is_stopped() {
            return;
        }
        bell.rest();
    }
}
