//! Context of a call: the parts of the I/O thread that a queue pair and its transport may use.

use std::sync::Arc;

use pilotlight_nvme::Status;

use crate::caps::ThreadCaps;
use crate::hosts::usage::Operation;
use crate::ids::ConnAddr;
use crate::latency::Sample;
use crate::memory::Memory;
use crate::queue_pair::latency_batch::LatencyBatch;
use crate::queue_pair::message::Outbox;
use crate::shared::Shared;
use crate::stats::Counters;
use crate::subsystems::namespaces::Namespaces;

/// Context of a call.
pub struct Cx<'a> {
    /// Monotonic time in nanoseconds.
    pub now_ns: u64,
    /// Time of the received bytes at the socket, if sampled.
    pub sample: Sample,
    /// The queue pair's own address.
    pub me: ConnAddr,
    /// The I/O thread's buffers and quotas.
    pub memory: &'a mut Memory,
    /// The I/O thread's namespaces.
    pub namespaces: &'a mut Namespaces,
    /// The I/O thread's state of bandwidth caps.
    pub caps: &'a mut ThreadCaps,
    /// Messages to other I/O threads.
    pub out: &'a mut dyn Outbox,
    /// The I/O thread's counters.
    pub counters: &'a Counters,
    /// Responses sent in this poll.
    pub latency_batch: &'a mut LatencyBatch,
    /// The state shared by all I/O threads.
    pub shared: &'a Arc<Shared>,
}

impl Cx<'_> {
    /// Counts a failed command of a namespace, at an LBA if it has one; `is_short`: it is beyond the end of the medium.
    pub(super) fn note_failure(
        &self,
        operation: Option<Operation>,
        (namespace, lba): (u32, Option<u64>),
        status: Status,
        is_short: bool,
    ) {
        let Some(failures) = self.namespaces.failures(namespace) else { return };
        if failures.note(operation, status, is_short, lba) {
            self.shared.failure_bell.ring();
        }
    }
}
