//! Wakes the OS thread that logs failed commands (`server/failure_log.rs`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::thread::Thread;
use std::time::{Duration, Instant};

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
    pub(crate) fn wait(&self) {
        while !self.rung.swap(false, AcqRel) && !self.stop.load(Acquire) {
            std::thread::park();
        }
    }

    /// Sleeps for [`INTERVAL`], or until the server stops.
    pub(crate) fn rest(&self) {
        let end = Instant::now() + INTERVAL;
        while !self.stop.load(Acquire) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::park_timeout(left);
        }
    }
    /// Sets the thread to wake.
    pub(crate) fn set_logger(&self, logger: Thread) {
        let _ = self.logger.set(logger);
    }

    /// The server stops. The thread must be woken then.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Release);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Acquire)
    }
}
