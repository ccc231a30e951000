//! Logs failed commands: a task of housekeeping reads the counters, so that I/O threads only count.
//!
//! The first failure wakes the task, which logs one line per namespace and status with the number of commands, and then
//! rests for ten seconds.

use std::sync::Arc;

use pilotlight_nvmf_proto::subsystems::failures::FailureCount;
use pilotlight_reactor::Housekeeping;
use pilotlight_reactor::housekeeping::{Next, Task};

use super::Shared;

/// Minimum interval of log lines, in nanoseconds.
const INTERVAL_NS: u64 = 10_000_000_000;

/// Adds the task. A stopping server logs the remaining failures itself, while it still has its namespaces.
pub(super) fn start(shared: &Arc<Shared>, housekeeping: &Housekeeping) -> Task {
    let theirs = Arc::clone(shared);
    housekeeping.add("failures", &shared.failed, move |now_ns| {
        log(&theirs);
        Next::NotBefore(now_ns + INTERVAL_NS)
    })
}

/// Logs the failures since the last call.
pub(super) fn log(shared: &Shared) {
    for (nqn, nsid, failures) in shared.failures() {
        for new in failures.take_new() {
            let FailureCount { status, cause, commands } = new.count;
            let (cause, first_lba) = (Some(cause).filter(|cause| !cause.is_empty()), new.first_lba);
            tracing::warn!(nqn, nsid, status, cause, commands, first_lba, "commands failed");
        }
    }
}
