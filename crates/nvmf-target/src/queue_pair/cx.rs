//! What a queue pair and its transport work with: everything of their I/O thread that they may touch during one call.

use std::sync::Arc;

use pilotlight_nvme::Status;

use crate::caps::CapsHere;
use crate::departures::Departures;
use crate::latency::Sample;
use crate::memory::Memory;
use crate::message::{ConnAddr, Outbox};
use crate::namespaces::Namespaces;
use crate::server::Shared;
use crate::stats::Counters;
use crate::usage::Operation;

/// See the head of the file.
pub struct Cx<'a> {
    /// Monotonic time in nanoseconds.
    pub now_ns: u64,
    /// For how long the bytes that are acted on were at the socket, where their receive is sampled.
    pub sample: Sample,
    /// The queue pair's own address.
    pub me: ConnAddr,
    /// The I/O thread's buffers, and who holds how much of them.
    pub memory: &'a mut Memory,
    /// The I/O thread's namespaces.
    pub namespaces: &'a mut Namespaces,
    /// What the I/O thread holds of bandwidth caps.
    pub caps: &'a mut CapsHere,
    /// Messages to other I/O threads.
    pub out: &'a mut Outbox,
    /// What the I/O thread counts.
    pub counters: &'a Counters,
    /// Answers that have left in this poll.
    pub departures: &'a mut Departures,
    /// What all I/O threads share.
    pub shared: &'a Arc<Shared>,
}

impl Cx<'_> {
    /// Counts a failed command of the namespace at this index, at this LBA where it has one; `is_short`: its medium ends before it.
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
