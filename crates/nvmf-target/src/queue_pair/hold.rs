//! Commands and their namespaces: what keeps a request from being submitted, and what keeps an index in use.

use super::connect::DRAIN_POLL_NS;
use super::{QueuePair, Role, Transport};
use crate::association::Association;
use crate::namespaces::Namespaces;
use crate::wait::BUSY_RETRY_NS;

/// Whether a request may be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Yes.
    None,
    /// No: the association has ended.
    Ended,
    /// Not yet: its host's lost queues have unfinished requests to the same storage.
    Earlier,
}

impl Role {
    /// Whether a request may be submitted to the namespace at `index`.
    #[inline]
    pub(super) fn hold(&self, namespaces: &Namespaces, index: u32) -> Hold {
        match self {
            Self::Io(association) if association.is_held() => hold_of(association, namespaces, index),
            _ => Hold::None,
        }
    }
}

#[cold]
fn hold_of(association: &Association, namespaces: &Namespaces, index: u32) -> Hold {
    match namespaces.lease(index) {
        _ if association.has_ended() => Hold::Ended,
        Some(lease) if association.awaits(lease) => Hold::Earlier,
        _ => Hold::None,
    }
}

impl<T: Transport> QueuePair<T> {
    /// Retry interval of commands that were busy. Requests of lost queues may take long.
    pub(super) fn busy_retry_ns(&self) -> u64 {
        match &self.role {
            Role::Io(association) if association.is_held() => DRAIN_POLL_NS,
            _ => BUSY_RETRY_NS,
        }
    }

    /// Notes which namespaces its commands refer to.
    pub fn note_references(&mut self, namespaces: &mut Namespaces) {
        let slots = self.queue.iter_mut().flat_map(|queue| queue.slots.iter_mut());
        let targets = slots.filter_map(|(_, slot)| slot.work.target());
        targets.for_each(|(namespace, _)| namespaces.note_reference(namespace));
    }
}
