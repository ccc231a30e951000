//! Where a queue counts its commands: by its host, and by namespace and operation; and what its answers carry for that.

use super::slots::Slot;
use super::{Cx, QueuePair, Role, Transport};
use crate::association::HostKey;
use crate::latency::Sample;
use crate::usage::{Operation, Row};
use crate::views::ViewId;

/// See the head of the file.
pub(super) struct Counted {
    /// Without any namespace for an admin queue, which neither reads nor writes.
    pub(super) row: Row,
    /// What answers to reads and to writes carry.
    subsystem: [Sample; 2],
}

impl Counted {
    /// Counts the Read or Write in `slot`, which is answered; what the answer carries.
    #[inline]
    pub(super) fn count(&self, slot: &Slot, operation: Operation) -> Sample {
        self.row.count_data(slot.nsid, operation, u64::from(slot.len));
        let sample = slot.sample.of_command(self.subsystem[usize::from(operation == Operation::Write)]);
        if sample.is_sampled() { sample.of_namespace(slot.nsid) } else { sample }
    }
}

impl<T: Transport> QueuePair<T> {
    /// Where the commands of the queue are counted that has just connected for `host`.
    pub(super) fn counted(&self, host: &HostKey, cx: &mut Cx) -> Counted {
        let subsystem = [false, true].map(|is_write| Sample::of_subsystem(host.subsystem, is_write));
        let Role::Io(_) = &self.role else { return Counted { row: Row::default(), subsystem } };
        cx.departures.open(host.subsystem, cx.counters);
        let nsids = cx.namespaces.listed(ViewId::whole(host.subsystem)).iter().map(|(nsid, _)| *nsid);
        let number = cx.shared.listed_hosts.number_of(&host.hostnqn);
        Counted { row: Row::new(number, host.subsystem, nsids, &cx.counters.usage), subsystem }
    }

    /// Hosts are told of other namespaces.
    pub(crate) fn count_on_listed(&mut self, cx: &Cx) {
        let (Role::Io(association), Some(queue)) = (&self.role, &mut self.queue) else { return };
        let listed = cx.namespaces.listed(ViewId::whole(association.host.subsystem));
        if let Some((highest, _)) = listed.last() {
            queue.counted.row.prepare(*highest, &cx.counters.usage);
        }
    }

    /// There is another namespace.
    pub(crate) fn count_on(&mut self, subsystem: usize, nsid: u32, cx: &Cx) {
        let (Role::Io(association), Some(queue)) = (&self.role, &mut self.queue) else { return };
        if association.host.subsystem == subsystem {
            queue.counted.row.prepare(nsid, &cx.counters.usage);
        }
    }
}
