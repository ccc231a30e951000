//! The controller's side of DH-HMAC-CHAP (Base 8.3.5.5): data of Authentication Send in, data of Authentication Receive out.
//!
//! A host sends AUTH_Negotiate, receives a Challenge, sends a Reply, receives Success1 and, if it challenged the controller,
//! sends Success2. Each queue has its own responder. Properties:
//!
//! - A queue is authenticated only by a response to the challenge of the same transaction; each challenge is used once.
//! - Any other order, and any malformed message, fails the transaction for good: the host receives Failure1 with the explanation,
//!   and the connection must end. So a connection has one attempt, and costs two powers in a group at most.
//! - An authenticated queue may negotiate again; it stays authenticated until that fails. How often is for the caller to limit.
//! - No step computes digests or powers or draws random numbers: that is [`Work`], one at a time.

use std::sync::Arc;

use crate::config::{Concatenation, Config};
use crate::failure::Failure;
use crate::group::{Group, PrivateKey};
use crate::hash::{Digest, HashFunction};
use crate::message::{self, FailureReport, Message, Negotiate, Offer, Reply, Success1};
use crate::response::Challenge;
use crate::secret::Secret;
use crate::session::{Session, Status};
use crate::tls::TlsPsk;
use crate::work::{Done, Outcome, Task, Verify, Work};

/// The controller's side of the authentication of one queue.
pub struct Responder {
    /// Of the next transaction; a transaction in progress has its own.
    config: Arc<Config>,
    state: State,
    session: Option<Session>,
    /// With the host's secret in its exchange.
    key: Option<(TlsPsk, Secret)>,
}

/// What Authentication Receive gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// [`Work`] is in progress: hold the command, and ask again after [`Responder::on_done`].
    Pending,
    /// The message.
    Message(Vec<u8>),
    /// The host's buffer (AL) is shorter than the message of this many bytes: complete the command with Invalid Field in Command.
    /// The message remains to be received.
    TooShort(usize),
}

enum State {
    /// No transaction; the session says whether there was one.
    Idle,
    /// Work in progress: the challenge.
    Challenging(Transaction),
    /// Challenge to be received.
    Challenge { transaction: Transaction, c1: Challenge, private_key: PrivateKey, public_value: Vec<u8> },
    /// Reply to be sent.
    Reply { transaction: Transaction, c1: Challenge, private_key: PrivateKey },
    /// Work in progress: the response.
    Verifying(Transaction),
    /// Success1 to be received.
    Success1 { transaction: Transaction, response: Option<Digest> },
    /// Success2 to be sent.
    Success2(Transaction),
    /// Failure1 to be received.
    Failed { report: FailureReport, reported: bool },
}

struct Transaction {
    config: Arc<Config>,
    t_id: u16,
    hash: HashFunction,
    group: Group,
    concatenation: Concatenation,
    /// Generated, once the response is verified.
    key: Option<TlsPsk>,
}

impl Responder {
    /// A queue that has not authenticated.
    #[must_use]
    pub const fn new(config: Arc<Config>) -> Self {
        Self { config, state: State::Idle, session: None, key: None }
    }

    /// Replaces the configuration, from the next transaction on: an authenticated queue stays so.
    pub fn replace_config(&mut self, config: Arc<Config>) {
        self.config = config;
    }

    /// The key for TLS that the last exchange has generated, once, with the host's secret of that exchange: it may have been replaced since.
    pub fn take_key(&mut self) -> Option<(TlsPsk, Secret)> {
        self.key.take()
    }

    /// Where the authentication stands.
    #[must_use]
    pub fn status(&self) -> Status {
        match (&self.state, self.session) {
            (State::Failed { report, reported }, _) => {
                Status::Failed { failure: report.failure(), reported: *reported }
            }
            (_, Some(session)) => Status::Authenticated(session),
            (State::Idle, None) => Status::Idle,
            (_, None) => Status::InProgress,
        }
    }

    /// Whether the queue may serve other commands.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        matches!(self.status(), Status::Authenticated(_))
    }

    /// Whether a transaction is in progress, or has failed.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    /// Takes the data of an Authentication Send. The command completes with success in any case: a failure is what the next
    /// Authentication Receive gets.
    pub fn on_send(&mut self, data: &[u8]) -> Option<Work> {
        let t_id = self.state.t_id().unwrap_or(Message::transaction(data));
        let taken =
            Message::decode(data).map_err(message::DecodeError::failure).and_then(|message| self.take(&message));
        taken.unwrap_or_else(|failure| {
            self.fail(t_id, failure);
            None
        })
    }

    /// Takes the result of a [`Work`]. That of a transaction that has failed in the meantime is ignored.
    pub fn on_done(&mut self, done: Done) {
        let state = std::mem::replace(&mut self.state, State::Idle);
        self.state = match (state, done.outcome) {
            (State::Challenging(transaction), Ok(Outcome::Challenge { c1, private_key, public_value })) => {
                let c1 = Challenge { value: c1, seqnum: transaction.config.sequence.next().get() };
                State::Challenge { transaction, c1, private_key, public_value }
            }
            (State::Verifying(transaction), Ok(Outcome::Verified { response, key })) => {
                State::Success1 { transaction: Transaction { key, ..transaction }, response }
            }
            (State::Challenging(transaction) | State::Verifying(transaction), outcome) => {
                State::failed(transaction.t_id, outcome.err().unwrap_or(Failure::Failed))
            }
            (state, _) => state,
        };
    }

    /// What an Authentication Receive with a buffer of `allocation` bytes (AL) gets.
    pub fn receive(&mut self, allocation: usize) -> Received {
        if matches!(self.state, State::Idle | State::Reply { .. } | State::Success2(_)) {
            self.fail(self.state.t_id().unwrap_or(0), Failure::IncorrectMessage);
        }
        let Some(message) = self.state.message() else { return Received::Pending };
        if message.len() > allocation {
            return Received::TooShort(message.len());
        }
        self.advance();
        Received::Message(message)
    }

    /// The current message has been received.
    fn advance(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Challenge { transaction, c1, private_key, .. } => State::Reply { transaction, c1, private_key },
            State::Success1 { transaction, response: Some(_) } => State::Success2(transaction),
            State::Success1 { transaction, response: None } => {
                self.succeed(transaction, false);
                State::Idle
            }
            State::Failed { report, .. } => State::Failed { report, reported: true },
            state => state,
        };
    }

    fn take(&mut self, message: &Message<'_>) -> Result<Option<Work>, Failure> {
        if let Message::Negotiate(negotiate) = message {
            return self.negotiate(negotiate).map(Some);
        }
        if matches!(self.state, State::Failed { .. }) {
            return Ok(None); // its explanation remains
        }
        if self.state.t_id().is_some_and(|t_id| t_id != message.t_id()) {
            return Err(Failure::IncorrectPayload);
        }
        match (message, std::mem::replace(&mut self.state, State::Idle)) {
            (Message::Reply(reply), State::Reply { transaction, c1, private_key }) => {
                self.verify(reply, transaction, c1, private_key).map(Some)
            }
            (Message::Success2 { .. }, State::Success2(transaction)) => {
                self.succeed(transaction, true);
                Ok(None)
            }
            // At any time: after Success1 of one-way authentication the transaction is over here, but maybe not for the host.
            (Message::Failure2(report), _) => {
                self.fail(report.t_id, report.failure());
                self.advance();
                Ok(None)
            }
            _ => Err(Failure::IncorrectMessage),
        }
    }

    fn negotiate(&mut self, negotiate: &Negotiate<'_>) -> Result<Work, Failure> {
        if !matches!(self.state, State::Idle) {
            return Err(Failure::IncorrectMessage);
        }
        let requested = self.config.policy.concatenation.accept(negotiate.sc_c);
        let concatenation = requested.ok_or(Failure::ConcatenationMismatch)?;
        let offer = negotiate.offer.as_ref().ok_or(Failure::ProtocolNotUsable)?;
        let (hash, group) = select(offer, &self.config, concatenation)?;
        let (config, t_id) = (self.config.clone(), negotiate.t_id);
        self.state = State::Challenging(Transaction { config, t_id, hash, group, concatenation, key: None });
        Ok(work(Task::Challenge { hash, group }))
    }

    fn verify(
        &mut self,
        reply: &Reply<'_>,
        transaction: Transaction,
        c1: Challenge,
        private_key: PrivateKey,
    ) -> Result<Work, Failure> {
        let c2 = transaction.check(reply)?;
        let task = Verify {
            config: transaction.config.clone(),
            hash: transaction.hash,
            t_id: transaction.t_id,
            c1,
            private_key,
            peer_value: reply.public_value.to_vec(),
            response: Digest::from_slice(reply.response),
            c2,
            concatenation: transaction.concatenation,
            c2_field: Digest::from_slice(reply.c2),
        };
        self.state = State::Verifying(transaction);
        Ok(work(Task::Verify(Box::new(task))))
    }

    fn succeed(&mut self, transaction: Transaction, bidirectional: bool) {
        self.session = Some(transaction.session(bidirectional));
        self.key = transaction.key.map(|key| (key, transaction.config.host_secret.clone()));
    }

    /// Fails for good; the first failure remains.
    fn fail(&mut self, t_id: u16, failure: Failure) {
        if !matches!(self.state, State::Failed { .. }) {
            self.state = State::failed(t_id, failure);
        }
    }
}

/// A responder has one computation at a time, and none after a failure, so that their numbers do not matter.
const fn work(task: Task) -> Work {
    Work { number: 0, task }
}

/// The first hash function and the first group of the policy that the host offers.
fn select(offer: &Offer<'_>, config: &Config, concatenation: Concatenation) -> Result<(HashFunction, Group), Failure> {
    let policy = &config.policy;
    let is_hash = |hash: &&HashFunction| offer.hashes.contains(&(**hash as u8)) && concatenation.takes_hash(**hash);
    let is_group = |group: &&Group| offer.groups.contains(&(**group as u8)) && concatenation.takes_group(**group);
    let (hash, group) = (policy.hashes.iter().find(is_hash), policy.groups.iter().find(is_group));
    Ok((*hash.ok_or(Failure::HashNotUsable)?, *group.ok_or(Failure::GroupNotUsable)?))
}

impl State {
    const fn failed(t_id: u16, failure: Failure) -> Self {
        Self::Failed { report: FailureReport::new(t_id, failure), reported: false }
    }

    /// The transaction in progress.
    fn t_id(&self) -> Option<u16> {
        match self {
            Self::Idle => None,
            Self::Failed { report, .. } => Some(report.t_id),
            Self::Challenging(transaction)
            | Self::Verifying(transaction)
            | Self::Success2(transaction)
            | Self::Challenge { transaction, .. }
            | Self::Reply { transaction, .. }
            | Self::Success1 { transaction, .. } => Some(transaction.t_id),
        }
    }

    /// The message to be received; none while there is none.
    fn message(&self) -> Option<Vec<u8>> {
        let message = match self {
            Self::Challenge { transaction, c1, public_value, .. } => Message::Challenge(message::Challenge {
                t_id: transaction.t_id,
                hash_id: transaction.hash as u8,
                group_id: transaction.group as u8,
                seqnum: c1.seqnum,
                challenge: c1.value.as_slice(),
                public_value,
            }),
            Self::Success1 { transaction, response } => Message::Success1(Success1 {
                t_id: transaction.t_id,
                hl: transaction.hash.digest_len() as u8,
                response: response.as_ref().map(Digest::as_slice),
            }),
            Self::Failed { report, .. } => Message::Failure1(*report),
            _ => return None,
        };
        Some(message.encode())
    }
}

impl Transaction {
    const fn session(&self, bidirectional: bool) -> Session {
        Session { hash: self.hash, group: self.group, bidirectional }
    }

    /// Checks all of a Reply except the response; the host's challenge.
    fn check(&self, reply: &Reply<'_>) -> Result<Option<Challenge>, Failure> {
        if reply.response.len() != self.hash.digest_len() || !self.group.accepts(reply.public_value) {
            return Err(Failure::IncorrectPayload);
        }
        // S2 of 0 says that C2 is for a generated PSK only
        let is_for_psk = reply.is_challenge && reply.seqnum == 0;
        match reply.is_challenge && !is_for_psk {
            _ if is_for_psk && self.concatenation == Concatenation::None => Err(Failure::IncorrectPayload),
            true if self.config.controller_secret.is_none() => Err(Failure::Failed),
            true => Ok(Some(Challenge { value: Digest::from_slice(reply.c2), seqnum: reply.seqnum })),
            false if self.config.policy.require_bidirectional => Err(Failure::Failed),
            false => Ok(None),
        }
    }
}
