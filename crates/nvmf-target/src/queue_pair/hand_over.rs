//! A connection whose Connect says that another I/O thread is to serve it, as it carries another class (`classes.rs`).
//!
//! Nothing of it is a queue yet: Connect and what has come after it go along, and no answer is on its way.

use pilotlight_nvme::Sqe;
use pilotlight_nvme::fabrics::{ConnectData, nqn_from_field};

use super::connect::find_subsystem;
use super::refusal::hostnqn_from_field;
use super::{Cx, Phase, QueuePair, Transport};

/// A Connect that another I/O thread acts on.
#[derive(Debug)]
pub(super) struct HandOver {
    to: u16,
    sqe: Sqe,
    data: ConnectData,
}

impl<T: Transport> QueuePair<T> {
    /// Whether another I/O thread is to act on this Connect. One whose host has not read the last answer stays where it is.
    pub(super) fn hands_over(&mut self, sqe: &Sqe, data: &ConnectData, cx: &Cx) -> bool {
        let names = nqn_from_field(&data.subnqn).zip(hostnqn_from_field(&data.hostnqn));
        let Some((subnqn, hostnqn)) = names.filter(|_| self.transport.unsent_bytes() == 0) else { return false };
        let allowed = |at: &usize| cx.namespaces.directory().allows(*at, hostnqn);
        let Some(subsystem) = find_subsystem(subnqn, cx).filter(allowed) else { return false };
        let Some(to) = cx.shared.other_thread(hostnqn, subsystem, cx.me.thread) else { return false };
        self.phase = Phase::HandingOver(Box::new(HandOver { to, sqe: *sqe, data: *data }));
        true
    }

    /// The I/O thread that is to serve this connection from now on.
    #[must_use]
    pub fn handed_to(&self) -> Option<u16> {
        match &self.phase {
            Phase::HandingOver(hand_over) => Some(hand_over.to),
            _ => None,
        }
    }

    /// Acts on the Connect of a connection that this I/O thread has got.
    pub fn take_over(&mut self, cx: &mut Cx) {
        if let Phase::HandingOver(hand_over) = std::mem::replace(&mut self.phase, Phase::AwaitConnect) {
            self.act_on_connect(&hand_over.sqe, &hand_over.data, cx);
        }
    }
}
