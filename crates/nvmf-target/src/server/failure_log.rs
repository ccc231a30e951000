//! Logs failed commands: an OS thread reads the counters, so that I/O threads only count.
//!
//! The first failure wakes the thread, which logs one line per namespace and status with the number of commands, and then
//! sleeps for [`INTERVAL`]. Without failures it sleeps in the kernel.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::Shared;
use crate::failures::FailureCount;

/// Minimum interval of log lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// Wakes the logging thread.
#[derive(Default)]
pub struct FailureBell {
    rung: AtomicBool,
    stop: AtomicBool,
    logger: OnceLock<Thread>,
}

impl FailureBell {
    /// Signals a failed command: a system call for the first one after the last log lines, none for others.
    pub fn ring(&self) {
        if !self.rung.swap(true, AcqRel)
            && let Some(logger) = self.logger.get()
        {
            logger.unpark();
        }
    }

    /// Sleeps until a failure, or the server stops.
    fn wait(&self) {
        while !self.rung.swap(false, AcqRel) && !self.stop.load(Acquire) {
            std::thread::park();
        }
    }

    /// Sleeps for [`INTERVAL`], or until the server stops.
    fn rest(&self) {
        let end = Instant::now() + INTERVAL;
        while !self.stop.load(Acquire) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::park_timeout(left);
        }
    }
}

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
        let _ = shared.failure_bell.logger.set(join.thread().clone());
        Ok(Self { shared: Arc::clone(shared), join: Some(join) })
    }
}

impl Drop for FailureLog {
    fn drop(&mut self) {
        self.shared.failure_bell.stop.store(true, Release);
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
        if bell.stop.load(Acquire) {
            return;
        }
        bell.rest();
    }
}
