//! Commands and their namespaces: what keeps a request from being submitted, and what keeps an index in use.
//!
//! A command that waits for earlier requests is in none of the lists of waiting commands, so that it delays no others for as long as a medium
//! is stuck. All such commands are looked at after [`DRAIN_POLL_NS`], and while none may continue in pauses up to [`LONGEST_PAUSE_NS`]: a look is
//! at every slot.

use super::connect::DRAIN_POLL_NS;
use super::io::{Step, needs_memory};
use super::slots::State;
use super::{Cx, QueuePair, Role, Transport};
use crate::association::Association;
use crate::reservation::access::Group;
use crate::services::{NamespaceTable, Services};

/// Longest pause between two looks at commands that wait for earlier requests.
const LONGEST_PAUSE_NS: u64 = 16 * DRAIN_POLL_NS;

/// Whether a request may be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Yes.
    None,
    /// No: the association has ended.
    Ended,
    /// No: the namespace has a reservation that excludes the host.
    Reserved,
    /// Not yet: its host's lost queues have unfinished requests to the same storage.
    Earlier,
}

impl Role {
    /// Whether a request of a command of this group may be submitted to the namespace at `index`.
    #[inline]
    pub(super) fn hold(&self, namespaces: &impl NamespaceTable, index: u32, group: Group) -> Hold {
        match self {
            Self::Io(association) if association.is_held() || namespaces.is_restricted(index, group) => {
                hold_of(association, namespaces, index, group)
            }
            _ => Hold::None,
        }
    }
}

#[cold]
fn hold_of(association: &Association, namespaces: &impl NamespaceTable, index: u32, group: Group) -> Hold {
    let is_excluded = || namespaces.reservation(index).is_some_and(|one| one.excludes(&association.host, group));
    match namespaces.lease(index) {
        _ if association.has_ended() => Hold::Ended,
        _ if is_excluded() => Hold::Reserved,
        Some(lease) if association.awaits(lease) => Hold::Earlier,
        _ => Hold::None,
    }
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Makes the command in `index` wait for earlier requests.
    #[cold]
    pub(super) fn hold_back(&mut self, index: u16) -> Step {
        if let Some(queue) = &mut self.queue {
            queue.slots.get(index).state = State::Held;
            self.held_until_ns.get_or_insert(0);
        }
        Step::Handled
    }

    /// Lets commands continue whose earlier requests are finished.
    #[cold]
    pub(super) fn release_held(&mut self, cx: &mut Cx<S>) {
        let Some(queue) = &mut self.queue else { return };
        let (mut any, mut pause_ns) = (false, (2 * self.held_pause_ns).clamp(DRAIN_POLL_NS, LONGEST_PAUSE_NS));
        for (index, slot) in queue.slots.iter_mut().filter(|(_, slot)| slot.state == State::Held) {
            let target = slot.work.target().zip(slot.work.group());
            let hold = target.map(|((namespace, _), group)| self.role.hold(cx.namespaces, namespace, group));
            if hold == Some(Hold::Earlier) {
                any = true;
                continue;
            }
            pause_ns = DRAIN_POLL_NS;
            slot.state = State::Waiting;
            let list = if needs_memory(slot) { &mut queue.waiting } else { &mut queue.ready };
            list.push_back(index);
        }
        self.held_until_ns = any.then_some(cx.now_ns + pause_ns);
        self.held_pause_ns = if any { pause_ns } else { 0 };
    }

    /// Notes which namespaces its commands refer to.
    pub fn note_references(&mut self, namespaces: &mut S::Namespaces) {
        let in_use = self.queue.iter_mut().filter(|queue| queue.slots.in_use() > 0);
        let slots = in_use.flat_map(|queue| queue.slots.iter_mut());
        let targets = slots.filter_map(|(_, slot)| slot.work.target());
        targets.for_each(|(namespace, _)| namespaces.note_reference(namespace));
    }
}
