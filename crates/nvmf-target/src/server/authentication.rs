//! Checks messages of authentication: Diffie-Hellman and responses take milliseconds.

use std::sync::Mutex;

use pilotlight_auth::kernel_random;
use pilotlight_nvmf_proto::services::AuthenticationRequest;
use pilotlight_reactor::Sender;
use pilotlight_reactor::clock::now_ns;

use super::Shared;
use super::offload::{Offload, serve_each};
use crate::hosts::authentication_queue::Turns;
use crate::offload::Requests;
use crate::thread::message::Message;

impl Offload for AuthenticationRequest {
    const NAME: &'static str = "authentication";

    type Queue = Mutex<Turns<Self>>;

    fn queue(shared: &Shared) -> &Requests<Self::Queue> {
        &shared.authentication
    }

    fn serve(shared: &Shared, threads: &[Sender<Message>]) {
        serve_each(shared, threads, run);
    }
}

fn run(request: AuthenticationRequest, shared: &Shared) -> (u16, Message) {
    let AuthenticationRequest { work, peer, queue, slot } = request;
    let is_guess = work.checks_response();
    let checked = work.run(&mut kernel_random);
    let at_ns = if is_guess { shared.hosts.penalties.note(peer, checked.has_failed(), now_ns()) } else { 0 };
    (queue.thread, Message::AuthenticationChecked { queue, slot, checked: Box::new(checked), at_ns })
}
