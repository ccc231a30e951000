//! Usage counters of a queue: commands by host, namespace and operation.

use std::sync::Arc;

use super::slots::Slot;
use super::{Cx, QueuePair, Role, Transport};
use crate::association::Association;
use crate::ids::HostKey;
use crate::operation::Operation;
use crate::sample::Sample;
use crate::services::{Account, Accounting, NamespaceTable, Services};

/// Usage counters of a queue.
pub(super) struct QueueUsage<A> {
    /// Counts nothing for an admin queue.
    pub(super) account: A,
    /// The samples of reads and of writes.
    subsystem: [Sample; 2],
}

impl<A: Account> QueueUsage<A> {
    /// Counts the completed Read or Write in `slot`; returns the sample for its response.
    #[inline]
    pub(super) fn count(&self, slot: &Slot, operation: Operation) -> Sample {
        self.account.count_data(slot.nsid, operation, u64::from(slot.len));
        let sample = slot.sample.of_command(self.subsystem[usize::from(operation == Operation::Write)]);
        if sample.is_sampled() { sample.of_namespace(slot.nsid) } else { sample }
    }
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// The counters of a new queue of `host`.
    pub(super) fn new_usage(&self, host: &HostKey, cx: &mut Cx<S>) -> QueueUsage<S::Account> {
        let subsystem = [false, true].map(|is_write| Sample::of_subsystem(host.subsystem, is_write));
        let is_io = matches!(self.role, Role::Io(_));
        QueueUsage { account: cx.accounting.open(host, is_io, cx.namespaces, cx.services), subsystem }
    }

    /// Prepares the counters for the listed namespaces.
    pub fn count_on_listed(&mut self, cx: &Cx<S>) {
        let (Role::Io(association), Some(queue)) = (&self.role, &mut self.queue) else { return };
        let listed = cx.namespaces.list().whole(association.host.subsystem);
        if let Some((highest, _)) = listed.last() {
            cx.accounting.prepare(&mut queue.usage.account, *highest);
        }
    }

    /// Prepares the counters for a new namespace.
    pub fn count_on(&mut self, subsystem: usize, nsid: u32, cx: &Cx<S>) {
        let (Role::Io(association), Some(queue)) = (&self.role, &mut self.queue) else { return };
        if association.host.subsystem == subsystem {
            cx.accounting.prepare(&mut queue.usage.account, nsid);
        }
    }
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Commands in progress, if this is an I/O queue of one of these associations.
    pub fn commands_of(&self, associations: &[Arc<Association>]) -> usize {
        match (&self.role, &self.queue) {
            (Role::Io(own), Some(queue)) if associations.iter().any(|one| Arc::ptr_eq(one, own)) => {
                queue.slots.in_use()
            }
            _ => 0,
        }
    }
}
