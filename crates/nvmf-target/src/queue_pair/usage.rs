//! Usage counters of a queue: commands by host, namespace and operation.

use super::slots::Slot;
use super::{Cx, QueuePair, Role, Transport};
use crate::hosts::usage::{Operation, Row};
use crate::ids::HostKey;
use crate::latency::Sample;

/// Usage counters of a queue.
pub(super) struct QueueUsage {
    /// Empty for an admin queue.
    pub(super) row: Row,
    /// The samples of reads and of writes.
    subsystem: [Sample; 2],
}

impl QueueUsage {
    /// Counts the completed Read or Write in `slot`; returns the sample for its response.
    #[inline]
    pub(super) fn count(&self, slot: &Slot, operation: Operation) -> Sample {
        self.row.count_data(slot.nsid, operation, u64::from(slot.len));
        let sample = slot.sample.of_command(self.subsystem[usize::from(operation == Operation::Write)]);
        if sample.is_sampled() { sample.of_namespace(slot.nsid) } else { sample }
    }
}

impl<T: Transport> QueuePair<T> {
    /// The counters of a new queue of `host`.
    pub(super) fn new_usage(&self, host: &HostKey, cx: &mut Cx) -> QueueUsage {
        let subsystem = [false, true].map(|is_write| Sample::of_subsystem(host.subsystem, is_write));
        let Role::Io(_) = &self.role else { return QueueUsage { row: Row::default(), subsystem } };
        cx.latency_batch.open(host.subsystem, cx.counters);
        let nsids = cx.namespaces.list().whole(host.subsystem).iter().map(|(nsid, _)| *nsid);
        let number = cx.shared.hosts.listed_hosts.number_of(&host.hostnqn);
        QueueUsage { row: Row::new(number, host.subsystem, nsids, &cx.counters.usage), subsystem }
    }

    /// Prepares the counters for the listed namespaces.
    pub(crate) fn count_on_listed(&mut self, cx: &Cx) {
        let (Role::Io(association), Some(queue)) = (&self.role, &mut self.queue) else { return };
        let listed = cx.namespaces.list().whole(association.host.subsystem);
        if let Some((highest, _)) = listed.last() {
            queue.usage.row.prepare(*highest, &cx.counters.usage);
        }
    }

    /// Prepares the counters for a new namespace.
    pub(crate) fn count_on(&mut self, subsystem: usize, nsid: u32, cx: &Cx) {
        let (Role::Io(association), Some(queue)) = (&self.role, &mut self.queue) else { return };
        if association.host.subsystem == subsystem {
            queue.usage.row.prepare(nsid, &cx.counters.usage);
        }
    }
}
