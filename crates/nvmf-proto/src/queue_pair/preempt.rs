//! Commands of a host whose access to a storage has been preempted (Base 8.19.7).
//!
//! Commands that are in no backend end with Command Aborted due to Preempt and Abort, a command of many steps after its current one. The host
//! that preempts waits for requests in the backends.

use pilotlight_nvme::Status;
use pilotlight_storage::lease::StorageId;

use super::io::Step;
use super::slots::State;
use super::{Cx, QueuePair, Transport};
use crate::command::Work;
use crate::services::{NamespaceTable, Services};

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Completes the command in `index` with Reservation Conflict, before its data is fetched.
    #[cold]
    pub(super) fn refuse_reserved(&mut self, index: u16, cx: &mut Cx<S>) -> Step {
        if let Some(queue) = &mut self.queue {
            queue.slots.get(index).fail(Status::RESERVATION_CONFLICT.dnr());
        }
        self.return_charge(index, cx);
        self.complete(index, 0, cx)
    }

    /// Aborts its commands to this storage. Returns slot and generation of those with a request in the backend.
    pub fn preempt(&mut self, storage: &StorageId, cx: &mut Cx<S>) -> Vec<(u16, u8)> {
        let Some(queue) = &mut self.queue else { return Vec::new() };
        let (mut in_backend, mut ended) = (Vec::new(), Vec::new());
        for (index, slot) in queue.slots.iter_mut().filter(|(_, slot)| refers_to(&slot.work, storage, cx.namespaces)) {
            match slot.state {
                State::Device => {
                    in_backend.push((index, slot.generation));
                    if matches!(slot.work, Work::Verify { .. } | Work::Zero { .. } | Work::Deallocate { .. }) {
                        slot.fail(Status::PREEMPTED);
                    }
                }
                State::Waiting | State::Throttled | State::Held | State::Receiving | State::Parked
                    if slot.work.target().is_some() =>
                {
                    slot.fail(Status::PREEMPTED);
                    ended.push(index);
                }
                _ => {}
            }
        }
        queue.ready.retain(|index| ended.binary_search(index).is_err());
        queue.waiting.retain(|index| ended.binary_search(index).is_err());
        for index in ended {
            self.return_charge(index, cx);
            self.complete(index, 0, cx);
        }
        in_backend
    }

    /// Whether one of these commands has a request to this storage in the backend.
    pub fn is_preempting(&mut self, commands: &[(u16, u8)], storage: &StorageId, namespaces: &S::Namespaces) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        commands.iter().any(|&(index, generation)| {
            let slot = queue.slots.get_if(index, generation).filter(|slot| slot.state == State::Device);
            slot.is_some_and(|slot| refers_to(&slot.work, storage, namespaces))
        })
    }
}

/// Whether the next or current request of a command is to this storage.
fn refers_to(work: &Work, storage: &StorageId, namespaces: &impl NamespaceTable) -> bool {
    let namespace = match work {
        Work::FlushAll { next, .. } => Some(*next),
        work => work.target().map(|(namespace, _)| namespace),
    };
    namespace.and_then(|at| namespaces.lease(at)).is_some_and(|lease| lease.is_of(storage))
}
