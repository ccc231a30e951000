//! Logs failed commands: an ordinary OS thread turns counters into lines, so that an I/O thread that meets a failure only counts it.
//!
//! The first failure wakes the thread, which then writes one line for each namespace and status, with the number of commands, and
//! rests for [`BETWEEN`] before the next lines. While nothing fails it sleeps in the kernel.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::Shared;
use crate::failures::FailureCount;

/// Time between two sets of lines.
const BETWEEN: Duration = Duration::from_secs(10);

/// Where I/O threads say that there is something to log.
#[derive(Default)]
pub struct FailureBell {
    rung: AtomicBool,
    stop: AtomicBool,
    logger: OnceLock<Thread>,
}

impl FailureBell {
    /// Says that a command has failed: a system call for the first one after a set of lines, and none for others.
    pub fn ring(&self) {
        if !self.rung.swap(true, AcqRel)
            && let Some(logger) = self.logger.get()
        {
            logger.unpark();
        }
    }

    /// Sleeps until it rings, or the server stops.
    fn wait(&self) {
        while !self.rung.swap(false, AcqRel) && !self.stop.load(Acquire) {
            std::thread::park();
        }
    }

    /// Sleeps for [`BETWEEN`], or until the server stops.
    fn rest(&self) {
        let end = Instant::now() + BETWEEN;
        while !self.stop.load(Acquire) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::park_timeout(left);
        }
    }
}

/// The running thread; dropped, it logs what is left, and ends.
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
