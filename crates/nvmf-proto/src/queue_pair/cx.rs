//! Context of a call: the parts of the I/O thread that a queue pair and its transport may use.

use pilotlight_nvme::Status;

use crate::ids::ConnAddr;
use crate::memory::Memory;
use crate::operation::Operation;
use crate::queue_pair::message::Outbox;
use crate::sample::Sample;
use crate::services::{NamespaceTable, Services};

/// Context of a call.
pub struct Cx<'a, S: Services> {
    /// Monotonic time in nanoseconds.
    pub now_ns: u64,
    /// Time of the received bytes at the socket, if sampled.
    pub sample: Sample,
    /// The queue pair's own address.
    pub me: ConnAddr,
    /// The I/O thread's buffers and quotas.
    pub memory: &'a mut Memory,
    /// The I/O thread's namespaces.
    pub namespaces: &'a mut S::Namespaces,
    /// The I/O thread's counters, latencies and caps.
    pub accounting: &'a mut S::Accounting,
    /// Messages to other I/O threads.
    pub out: &'a mut dyn Outbox,
    /// The server.
    pub services: &'a S,
}

impl<S: Services> Cx<'_, S> {
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
            self.services.note_failure();
        }
    }
}
