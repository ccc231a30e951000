//! Checks messages of authentication: Diffie-Hellman and responses take milliseconds.

use std::sync::Mutex;

use pilotlight_auth::kernel_random;
use pilotlight_nvmf_proto::services::AuthenticationRequest;
use pilotlight_reactor::clock::now_ns;

use super::Shared;
use super::offload::Offload;
use crate::hosts::authentication_queue::Turns;
use crate::offload::Requests;
use crate::thread::message::Message;

impl Offload for AuthenticationRequest {
    const NAME: &'static str = "authentication";

    type Queue = Mutex<Turns<Self>>;

    fn queue(shared: &Shared) -> &Requests<Self::Queue> {
        &shared.authentication
    }

    fn run(self, shared: &Shared) -> (u16, Message) {
        let Self { work, peer, queue, slot } = self;
        let is_guess = work.checks_response();
        let checked = work.run(&mut kernel_random);
        let at_ns = if is_guess { shared.hosts.penalties.note(peer, checked.has_failed(), now_ns()) } else { 0 };
        (queue.thread, Message::AuthenticationChecked { queue, slot, checked: Box::new(checked), at_ns })
    }
}
