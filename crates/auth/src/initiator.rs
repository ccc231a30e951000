//! The host's side of DH-HMAC-CHAP (Base 8.3.5.5): data of Authentication Receive in, data of Authentication Send out.
//!
//! The host sends what [`Initiator::start`] returns, then receives, computes and sends as [`Step`] says until its
//! [status](Initiator::status) is final. It authenticates the controller whenever it has the controller's secret.

use std::sync::Arc;

use crate::config::Config;
use crate::failure::Failure;
use crate::group::Group;
use crate::hash::{Digest, HashFunction};
use crate::message::{self, FailureReport, Message, Negotiate, Offer, Success1};
use crate::response::{Challenge, is_equal};
use crate::session::{Session, Status};
use crate::tls::RetainedPsk;
use crate::work::{Done, Outcome, Respond, Task, Work};

/// The host's side of the authentication of one queue.
pub struct Initiator {
    config: Arc<Config>,
    t_id: u16,
    state: State,
    session: Option<Session>,
    psk: Option<RetainedPsk>,
    /// Number of the last [`Work`]; results of earlier ones are ignored, because a transaction can start while one is out.
    work: u64,
}

/// What the host does next.
#[must_use = "the exchange continues with it"]
pub enum Step {
    /// Run this and pass the result to [`Initiator::on_done`].
    Compute(Work),
    /// Send this with Authentication Send. Then receive again, unless the status is final.
    Send(Vec<u8>),
    /// Nothing: the status is final.
    End,
}

enum State {
    Idle,
    /// Challenge to be received.
    Challenge,
    /// Work in progress: the response.
    Responding(HashFunction, Group),
    /// Success1 to be received, with this response, after which there is a generated PSK.
    Success1(HashFunction, Group, Option<Digest>, Option<RetainedPsk>),
    Failed {
        failure: Failure,
    },
}

impl Initiator {
    /// A queue that has not authenticated.
    #[must_use]
    pub const fn new(config: Arc<Config>) -> Self {
        Self { config, t_id: 0, state: State::Idle, session: None, psk: None, work: 0 }
    }

    /// Where the authentication stands.
    #[must_use]
    pub const fn status(&self) -> Status {
        match (&self.state, self.session) {
            (State::Failed { failure }, _) => Status::Failed { failure: *failure, reported: true },
            (State::Idle, Some(session)) => Status::Authenticated(session),
            (State::Idle, None) => Status::Idle,
            _ => Status::InProgress,
        }
    }

    /// Starts a transaction, the first or another: the AUTH_Negotiate message to send. `t_id` is unique among the transactions
    /// in progress of this host and controller.
    pub fn start(&mut self, t_id: u16) -> Vec<u8> {
        self.t_id = t_id;
        self.state = State::Challenge;
        self.session = None;
        self.psk = None;
        self.work += 1;
        let policy = &self.config.policy;
        let concatenation = policy.concatenation;
        let hashes = policy.hashes.iter().filter(|hash| concatenation.takes_hash(**hash));
        let groups = policy.groups.iter().filter(|group| concatenation.takes_group(**group));
        let (hashes, groups): (Vec<u8>, Vec<u8>) =
            (hashes.map(|one| *one as u8).collect(), groups.map(|one| *one as u8).collect());
        let offer = Some(Offer { hashes: &hashes, groups: &groups });
        Message::Negotiate(Negotiate { t_id, sc_c: concatenation as u8, offer }).encode()
    }

    /// The PSK that the last exchange has generated, once.
    pub fn take_psk(&mut self) -> Option<RetainedPsk> {
        self.psk.take()
    }

    /// Takes the data of an Authentication Receive.
    pub fn on_receive(&mut self, data: &[u8]) -> Step {
        let taken =
            Message::decode(data).map_err(message::DecodeError::failure).and_then(|message| self.take(&message));
        taken.unwrap_or_else(|failure| self.fail(failure))
    }

    /// Takes the result of a [`Work`].
    pub fn on_done(&mut self, done: Done) -> Step {
        if done.number != self.work {
            return Step::End;
        }
        match (&self.state, done.outcome) {
            (State::Responding(hash, group), Ok(Outcome::Respond { message, expected, psk })) => {
                self.state = State::Success1(*hash, *group, expected, psk);
                Step::Send(message)
            }
            (_, outcome) => self.fail(outcome.err().unwrap_or(Failure::Failed)),
        }
    }

    fn take(&mut self, message: &Message<'_>) -> Result<Step, Failure> {
        if let Message::Failure1(report) = message {
            self.end(report.failure());
            return Ok(Step::End);
        }
        if message.t_id() != self.t_id {
            return Err(Failure::IncorrectPayload);
        }
        match (message, &mut self.state) {
            (Message::Challenge(challenge), State::Challenge) => self.respond(challenge),
            (Message::Success1(success), State::Success1(hash, group, expected, psk)) => {
                check(success, *hash, expected.as_ref())?;
                let bidirectional = expected.is_some();
                self.session = Some(Session { hash: *hash, group: *group, bidirectional });
                self.psk = psk.take();
                self.state = State::Idle;
                let success2 = Message::Success2 { t_id: self.t_id };
                Ok(if bidirectional { Step::Send(success2.encode()) } else { Step::End })
            }
            _ => Err(Failure::IncorrectMessage),
        }
    }

    fn respond(&mut self, challenge: &message::Challenge<'_>) -> Result<Step, Failure> {
        let policy = &self.config.policy;
        let concatenation = policy.concatenation;
        let allows_hash = |hash: &HashFunction| policy.hashes.contains(hash) && concatenation.takes_hash(*hash);
        let allows_group = |group: &Group| policy.groups.contains(group) && concatenation.takes_group(*group);
        let hash = HashFunction::from_id(challenge.hash_id).filter(allows_hash);
        let group = Group::from_id(challenge.group_id).filter(allows_group);
        let (hash, group) = (hash.ok_or(Failure::HashNotUsable)?, group.ok_or(Failure::GroupNotUsable)?);
        let is_complete = challenge.challenge.len() == hash.digest_len() && challenge.seqnum != 0;
        if !is_complete || !group.accepts(challenge.public_value) {
            return Err(Failure::IncorrectPayload);
        }
        let task = Respond {
            config: self.config.clone(),
            hash,
            group,
            t_id: self.t_id,
            c1: Challenge { value: Digest::from_slice(challenge.challenge), seqnum: challenge.seqnum },
            peer_value: challenge.public_value.to_vec(),
            seqnum: self.config.controller_secret.as_ref().map(|_| self.config.sequence.next().get()),
            concatenation,
        };
        self.state = State::Responding(hash, group);
        self.work += 1;
        Ok(Step::Compute(Work { number: self.work, task: Task::Respond(Box::new(task)) }))
    }

    /// Fails and reports it, once.
    fn fail(&mut self, failure: Failure) -> Step {
        if matches!(self.state, State::Idle | State::Failed { .. }) {
            return Step::End;
        }
        self.end(failure);
        Step::Send(Message::Failure2(FailureReport::new(self.t_id, failure)).encode())
    }

    fn end(&mut self, failure: Failure) {
        self.state = State::Failed { failure };
        self.session = None;
        self.psk = None;
        self.work += 1; // a result that arrives later is ignored
    }
}

/// Checks the controller's response, which must be there if and only if the host asked for it.
fn check(success: &Success1<'_>, hash: HashFunction, expected: Option<&Digest>) -> Result<(), Failure> {
    if usize::from(success.hl) != hash.digest_len() {
        return Err(Failure::IncorrectPayload);
    }
    match (expected, success.response) {
        (None, None) => Ok(()),
        (Some(expected), Some(response)) if is_equal(expected, response) => Ok(()),
        (Some(_), _) => Err(Failure::Failed),
        (None, Some(_)) => Err(Failure::IncorrectPayload),
    }
}
