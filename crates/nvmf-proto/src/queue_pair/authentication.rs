//! In-band authentication of a queue (Base 8.3.4): Authentication Send and Receive, and what is refused before it has succeeded.
//!
//! The exchange is a state machine of `pilotlight_auth`. What takes long (Diffie-Hellman, checks of responses) is done by another thread
//! while the host's Authentication Send is parked; after failures from the host's address it stays parked longer:
//! the result states until when.

use pilotlight_auth::{Concatenation, Done, Failure};
use pilotlight_nvme::command::opcode;
use pilotlight_nvme::fabrics::{AuthenticationCmd, DISCOVERY_NQN, authreq, fctype};
use pilotlight_nvme::{Sqe, Status};

use super::exchange::{Exchange, Progress, Received};
use super::io::{Step, TX_BUDGET};
use super::slots::State;
use super::{Cx, Gate, InCapsule, LINGER_NS, Overrun, Phase, QueuePair, Role, Transport};
use crate::command::{Direction, Plan, Work};
use crate::ids::HostKey;
use crate::services::{AuthenticationRequest, NamespaceTable, Services};

/// Maximum bytes of a message, and space for one: the longest of DH-HMAC-CHAP, a Reply in the group FFDHE8192, has 1,168.
const MAX_MESSAGE: u32 = 4096;
/// The least time between two starts of re-authentication of a queue, in nanoseconds: each costs up to two powers in a group. Hosts do it
/// after a change of secrets, at most.
pub(super) const MIN_REAUTHENTICATION_NS: u64 = 10_000_000_000;

/// Authentication of a queue.
pub(super) struct Authentication {
    exchange: Exchange,
    /// The Authentication Send that waits for a time.
    delayed: Option<Delayed>,
    /// Time limit of the exchange in progress, or for receiving the reason of a failure, in nanoseconds; `u64::MAX` for none.
    deadline_ns: u64,
    /// When the host may start a re-authentication, in nanoseconds.
    next_start_ns: u64,
    has_failed: bool,
}

/// A checked message whose result takes effect later, so that polling does not reveal it earlier.
struct Delayed {
    slot: u16,
    generation: u8,
    at_ns: u64,
    checked: Done,
}

impl Authentication {
    pub(super) fn new(exchange: Exchange, deadline_ns: u64) -> Self {
        Self { exchange, delayed: None, deadline_ns, next_start_ns: 0, has_failed: false }
    }

    /// Whether the host may send a message at `now_ns`. Limits the duration of a re-authentication that begins.
    fn may_send(&mut self, now_ns: u64, timeout_ns: u64) -> bool {
        let is_limited = self.deadline_ns < u64::MAX; // not with a generated key, whose host is authenticated from the start
        if self.exchange.is_busy() || is_limited && self.exchange.progress() != Progress::Authenticated {
            return true;
        }
        if now_ns < self.next_start_ns {
            return false;
        }
        self.next_start_ns = now_ns + MIN_REAUTHENTICATION_NS;
        self.deadline_ns = now_ns + timeout_ns;
        true
    }
}

fn plan(sqe: &Sqe) -> Result<Plan, Status> {
    let command = AuthenticationCmd::decode(sqe);
    let is_valid = command.protocol == AuthenticationCmd::NVME && (1..=MAX_MESSAGE).contains(&command.len);
    // Transports move data in units of four bytes.
    if !is_valid || !command.len.is_multiple_of(4) {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let is_send = sqe.fctype() == fctype::AUTHENTICATION_SEND;
    let direction = if is_send { Direction::FromHost } else { Direction::ToHost };
    Ok(Plan { work: Work::Authenticate(*sqe), len: command.len, direction })
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Handles a command while the gate is not open.
    #[cold]
    pub(super) fn gated_command(&mut self, sqe: &Sqe, data: InCapsule, cx: &mut Cx<S>) -> Option<Result<(), Overrun>> {
        if let Gate::Pair(first) = self.gate {
            return self.after_first(first, sqe, data, cx);
        }
        let unsent = self.transport.unsent_responses();
        let Some(queue) = self.queue.as_mut().filter(|_| self.gate == Gate::Authenticate) else {
            return Some(Ok(())); // the server is stopping: the connection will be closed
        };
        if let Err(overrun) = queue.take_entry(unsent) {
            return Some(Err(overrun));
        }
        let fabrics = (sqe.opcode == opcode::FABRICS).then(|| sqe.fctype());
        match (fabrics, &self.role) {
            (Some(fctype::AUTHENTICATION_SEND | fctype::AUTHENTICATION_RECEIVE), _) => {
                self.authentication_command(sqe, data, cx);
            }
            (Some(fctype::DISCONNECT), Role::Io(_)) => self.fabrics_on_io_queue(sqe, data, cx),
            _ => self.refuse(sqe.cid.get(), Status::AUTHENTICATION_REQUIRED.dnr(), 0),
        }
        Some(Ok(()))
    }

    /// Accepts Authentication Send or Receive.
    #[cold]
    pub(super) fn authentication_command(&mut self, sqe: &Sqe, capsule: InCapsule, cx: &mut Cx<S>) {
        if self.authentication.is_none() {
            return self.refuse(sqe.cid.get(), Status::INVALID_FIELD.dnr(), 0); // the host has no secret
        }
        self.accept(sqe, plan(sqe), capsule, cx);
    }

    /// Executes the Authentication Send or Receive in `index`.
    pub(super) fn authentication_step(&mut self, index: u16, sqe: &Sqe, cx: &mut Cx<S>) -> Step {
        if sqe.fctype() == fctype::AUTHENTICATION_SEND {
            self.receive_message(index, cx)
        } else {
            self.send_message(index, cx)
        }
    }

    /// Requires authentication of a queue whose host has a secret, before its Connect is completed. Returns the bits of the result.
    pub(super) fn require_authentication(&mut self, qid: u16, host: &HostKey, cx: &Cx<S>) -> u32 {
        let concatenation = self.concatenation(qid);
        let subsystem = cx.namespaces.directory().subsystem(host.subsystem);
        let subnqn = subsystem.map_or(DISCOVERY_NQN, |subsystem| subsystem.nqn());
        let Some(mut exchange) = Exchange::new(host, subnqn, concatenation, cx.services) else { return 0 };
        if let Some(identity) = self.generated_key() {
            // authenticated by its key; on the admin queue it may generate another one
            exchange.set_key(identity);
            self.authentication = Some(Box::new(Authentication::new(exchange, u64::MAX)));
            return 0;
        }
        self.authentication = Some(Box::new(Authentication::new(exchange, self.login.deadline_ns)));
        if self.gate == Gate::Open {
            self.gate = Gate::Authenticate;
        }
        if concatenation == Concatenation::New { authreq::ATR | authreq::ASCR } else { authreq::ATR }
    }

    /// Takes the host's message.
    fn receive_message(&mut self, index: u16, cx: &mut Cx<S>) -> Step {
        let (Some(queue), Some(authentication)) = (&mut self.queue, &mut self.authentication) else {
            return Step::Handled;
        };
        let slot = queue.slots.get(index);
        let Some(message) = slot.buffer.take() else { return self.complete(index, 0, cx) };
        if !authentication.may_send(cx.now_ns, cx.services.limits().connect_timeout_ns) {
            slot.len = 0;
            slot.fail(Status::COMMAND_INTERRUPTED); // to be sent again later
            cx.memory.free(&mut queue.quota, message);
            return self.complete(index, 0, cx);
        }
        self.deadline_ns = self.deadline_ns.min(authentication.deadline_ns);
        let received = authentication.exchange.on_message(&message[..slot.len as usize], cx.services);
        slot.len = 0;
        let generation = slot.generation;
        cx.memory.free(&mut queue.quota, message);
        match received {
            Received::Complete => self.complete_send(index, cx),
            Received::Check(work) => {
                let peer = self.peer.ip();
                let request = AuthenticationRequest { work, peer, queue: cx.me, slot: (index, generation) };
                let slot = queue.slots.get(index);
                if !cx.services.request_check(request) {
                    slot.fail(Status::INTERNAL); // too many at once, of all hosts or of this address
                    let step = self.complete(index, 0, cx);
                    self.close_after_response(cx);
                    return step;
                }
                (slot.work, slot.state) = (Work::AwaitAuthentication, State::Parked);
                Step::Handled
            }
        }
    }

    /// Handles what another thread has computed for the Authentication Send in `slot`, to be answered at `at_ns` at the earliest.
    pub fn on_checked(&mut self, (slot, generation): (u16, u8), checked: Done, at_ns: u64, cx: &mut Cx<S>) {
        let Some(authentication) = self.authentication.as_mut().filter(|_| matches!(self.phase, Phase::Ready)) else {
            return;
        };
        authentication.delayed = Some(Delayed { slot, generation, at_ns, checked });
        self.resume_delayed(cx);
    }

    /// When the delayed Authentication Send is completed or the time for an exchange is over, in nanoseconds; `u64::MAX` for neither.
    pub(super) fn authentication_due_ns(&self) -> u64 {
        let Some(authentication) = &self.authentication else { return u64::MAX };
        let delayed_ns = authentication.delayed.as_ref().map_or(u64::MAX, |delayed| delayed.at_ns);
        authentication.deadline_ns.min(delayed_ns)
    }

    /// Completes the delayed Authentication Send if its time has come.
    pub(super) fn resume_delayed(&mut self, cx: &mut Cx<S>) {
        let Some(authentication) = &mut self.authentication else { return };
        let Some(at_ns) = authentication.delayed.as_ref().map(|delayed| delayed.at_ns) else { return };
        if at_ns > cx.now_ns {
            self.deadline_ns = self.deadline_ns.min(at_ns);
            return;
        }
        let Some(Delayed { slot, generation, checked, .. }) = authentication.delayed.take() else { return };
        authentication.exchange.on_checked(checked);
        let found = self.queue.as_mut().and_then(|queue| queue.slots.get_if(slot, generation));
        if found.is_some_and(|slot| matches!(slot.work, Work::AwaitAuthentication)) {
            self.complete_send(slot, cx);
        } else {
            self.note_progress(cx); // the host has aborted the command
        }
    }

    /// Completes an Authentication Send, and opens the queue if it was the last message.
    fn complete_send(&mut self, index: u16, cx: &mut Cx<S>) -> Step {
        let step = self.complete(index, 0, cx);
        self.note_progress(cx);
        step
    }

    /// Sends the next message to the host.
    fn send_message(&mut self, index: u16, cx: &mut Cx<S>) -> Step {
        let (Some(queue), Some(authentication)) = (&mut self.queue, &mut self.authentication) else {
            return Step::Handled;
        };
        let slot = queue.slots.get(index);
        let len = slot.len as usize;
        let has_room = self.transport.unsent_bytes() < TX_BUDGET;
        let buffer = if has_room { cx.memory.take(&mut queue.quota, len) } else { None };
        let Some(mut buffer) = buffer else { return Step::Blocked };
        buffer.fill(0);
        let taken = authentication.exchange.take_message(&mut buffer[..len]);
        slot.buffer = Some(buffer);
        if let Err(status) = taken {
            slot.fail(status);
        }
        let step = self.complete(index, 0, cx);
        self.note_progress(cx);
        step
    }

    /// Opens the queue once the host is authenticated, and ends the connection once that has failed.
    fn note_progress(&mut self, cx: &mut Cx<S>) {
        let Some(authentication) = &mut self.authentication else { return };
        match authentication.exchange.progress() {
            Progress::Running => {}
            Progress::Authenticated => {
                let has_ended = !authentication.exchange.is_busy()
                    && std::mem::replace(&mut authentication.deadline_ns, u64::MAX) < u64::MAX;
                authentication.exchange.keep_key(cx.services, cx.now_ns);
                if has_ended && self.gate == Gate::Open {
                    self.note_authenticated("host authenticated again");
                }
                self.open_gate(cx);
            }
            Progress::Failed { failure, is_reported } => {
                self.close_gate(failure, cx);
                if is_reported {
                    self.close_after_response(cx);
                }
            }
        }
    }

    fn open_gate(&mut self, cx: &mut Cx<S>) {
        if self.gate != Gate::Authenticate {
            return;
        }
        self.gate = Gate::Open;
        match &mut self.role {
            Role::Admin(admin) => admin.note_authentication(cx.now_ns),
            Role::Io(_) | Role::None => {}
        }
        self.note_authenticated("host authenticated");
        self.admit(cx);
        self.check_keep_alive(cx);
    }

    fn note_authenticated(&self, event: &str) {
        let host = self.host().map(|host| host.hostnqn.as_str());
        let qid = self.queue.as_ref().map(|queue| queue.qid);
        tracing::info!(host, peer = %self.peer, qid, "{event}");
    }

    /// Serves nothing more after a failure; the host may receive the reason.
    fn close_gate(&mut self, failure: Failure, cx: &Cx<S>) {
        if self.gate == Gate::Open {
            self.gate = Gate::Authenticate;
        }
        let host = self.host().map(|host| host.hostnqn.clone());
        let Some(authentication) = self.authentication.as_mut().filter(|one| !one.has_failed) else { return };
        tracing::warn!(host, peer = %self.peer, reason = %failure, "authentication failed");
        authentication.has_failed = true;
        authentication.deadline_ns = cx.now_ns + LINGER_NS;
        self.deadline_ns = self.deadline_ns.min(authentication.deadline_ns);
    }

    /// Handles the deadline of a queue that is not authenticated, or authenticates again; returns whether nothing else is due.
    pub(super) fn check_authentication(&mut self, cx: &mut Cx<S>) -> bool {
        self.resume_delayed(cx);
        let is_served = matches!(self.gate, Gate::Open | Gate::Authenticate);
        let Some(authentication) = self.authentication.as_ref().filter(|_| is_served) else { return false };
        if authentication.deadline_ns <= cx.now_ns {
            if !authentication.has_failed {
                let host = self.host().map(|host| host.hostnqn.as_str());
                tracing::warn!(host, peer = %self.peer, reason = "no authentication in time", "connection ended");
            }
            self.lost(cx);
            return true;
        }
        if self.gate == Gate::Open {
            return false;
        }
        self.deadline_ns = self.authentication_due_ns();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pilotlight_auth::tls::TlsPsk;
    use pilotlight_auth::{
        Config, Group, Initiator, Policy, Secret, SecretLen, SequenceNumbers, Session, Status as Standing, Step,
        kernel_random,
    };

    use super::*;
    use crate::services::Secrets;
    use crate::tls_peer::TlsPeer;

    /// The secret of one host.
    struct OneHost(Arc<Config>);

    impl Secrets for OneHost {
        fn requires_authentication(&self, _host: &HostKey) -> bool {
            true
        }

        fn requires_tls(&self, _host: &HostKey) -> bool {
            false
        }

        fn is_key_good(&self, _peer: &TlsPeer, _now_ns: u64) -> bool {
            false
        }

        fn exchange_config(
            &self,
            _host: &HostKey,
            _subnqn: &str,
            _concatenation: Concatenation,
        ) -> Option<Arc<Config>> {
            Some(Arc::clone(&self.0))
        }

        fn keep_key(&self, _key: (TlsPsk, Secret), _nqns: (&str, &str), _replaced: Option<&str>, _now_ns: u64) {}

        fn request_check(&self, _request: AuthenticationRequest) -> bool {
            false
        }
    }

    /// A queue that has authenticated, and the same host's side for the next time.
    fn authenticated() -> (Authentication, OneHost, Initiator) {
        let secret = Secret::generate(None, SecretLen::Bytes32, &mut kernel_random).unwrap();
        let host = HostKey { hostid: [1; 16], hostnqn: "nqn.2024-05.com.example:host".to_owned(), subsystem: 0 };
        let subnqn = "nqn.2024-05.com.example:disks";
        let config = Arc::new(Config {
            hostnqn: host.hostnqn.clone(),
            subnqn: subnqn.to_owned(),
            host_secret: secret,
            controller_secret: None,
            policy: Policy { groups: vec![Group::Null], ..Policy::default() },
            sequence: Arc::new(SequenceNumbers::new(1)),
        });
        let secrets = OneHost(Arc::clone(&config));
        let exchange = Exchange::new(&host, subnqn, Concatenation::None, &secrets).expect("a secret");
        let mut authentication = Authentication::new(exchange, 60);
        let mut initiator = Initiator::new(config.clone());
        let mut message = initiator.start(1);
        while !matches!(initiator.status(), Standing::Authenticated(Session { .. })) {
            if let Received::Check(work) = authentication.exchange.on_message(&message, &secrets) {
                authentication.exchange.on_checked(work.run(&mut kernel_random));
            }
            let mut answer = vec![0; 4096];
            authentication.exchange.take_message(&mut answer).unwrap();
            let mut step = initiator.on_receive(&answer);
            while let Step::Compute(work) = step {
                step = initiator.on_done(work.run(&mut kernel_random));
            }
            if let Step::Send(next) = step {
                message = next;
            }
        }
        (authentication, secrets, Initiator::new(config))
    }

    #[test]
    fn a_reauthentication_has_a_time_limit_and_a_least_interval() {
        let (mut authentication, secrets, mut initiator) = authenticated();
        assert!(authentication.may_send(1000, 60));
        assert_eq!(authentication.deadline_ns, 1060);
        authentication.exchange.on_message(&initiator.start(2), &secrets);
        assert!(authentication.exchange.is_busy());
        assert!(authentication.may_send(1050, 60), "the rest of the exchange");
        assert_eq!(authentication.deadline_ns, 1060, "does not extend the time");
        let (mut other, ..) = authenticated();
        assert!(other.may_send(1000, 60));
        assert!(!other.may_send(1000 + MIN_REAUTHENTICATION_NS - 1, 60));
        assert!(other.may_send(1000 + MIN_REAUTHENTICATION_NS, 60));
    }
}
