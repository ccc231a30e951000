//! Passes a connection to another I/O thread at Connect, because of its class or because it has fewer I/O queues ([`Services::place`]).
//!
//! There is no queue yet: Connect and later bytes are passed along, and no response is outstanding.

use pilotlight_nvme::Sqe;
use pilotlight_nvme::fabrics::{ConnectCmd, ConnectData, nqn_from_field};

use super::connect::find_subsystem;
use super::refusal::hostnqn_from_field;
use super::{Cx, Phase, QueuePair, Transport};
use crate::services::{NamespaceTable, Services};

/// A Connect for another I/O thread.
#[derive(Debug)]
pub(super) struct HandOver {
    to: u16,
    sqe: Sqe,
    data: ConnectData,
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Whether another I/O thread must handle this Connect. A connection with unsent bytes is not passed.
    pub(super) fn hands_over(&mut self, sqe: &Sqe, data: &ConnectData, cx: &Cx<S>) -> bool {
        let names = nqn_from_field(&data.subnqn).zip(hostnqn_from_field(&data.hostnqn));
        let Some((subnqn, hostnqn)) = names else { return false };
        let directory = cx.namespaces.directory();
        let allowed = |at: &usize| directory.allows(*at, hostnqn) && directory.is_offered(*at, self.login.port);
        let Some(subsystem) = find_subsystem(subnqn, cx).filter(allowed) else { return false };
        let is_io = ConnectCmd::decode(sqe).qid != 0;
        let here = cx.me.thread;
        if self.transport.unsent_bytes() > 0 {
            self.count = is_io.then(|| cx.services.count_queue(here));
            return false;
        }
        let Some((to, count)) = cx.services.place(hostnqn, subsystem, is_io, here) else { return false };
        self.count = count;
        if to == here {
            return false;
        }
        self.phase = Phase::HandingOver(Box::new(HandOver { to, sqe: *sqe, data: *data }));
        true
    }

    /// The I/O thread to pass this connection to.
    #[must_use]
    pub fn handed_to(&self) -> Option<u16> {
        match &self.phase {
            Phase::HandingOver(hand_over) => Some(hand_over.to),
            _ => None,
        }
    }

    /// Handles the Connect of a connection passed to this I/O thread.
    pub fn take_over(&mut self, cx: &mut Cx<S>) {
        if let Phase::HandingOver(hand_over) = std::mem::replace(&mut self.phase, Phase::AwaitConnect) {
            self.handle_connect(&hand_over.sqe, &hand_over.data, cx);
        }
    }
}
