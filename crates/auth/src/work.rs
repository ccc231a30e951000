//! The expensive steps of an exchange, apart from the state machines: owned values for another thread.
//!
//! A state machine returns [`Work`]; any thread [runs](Work::run) it and sends [`Done`] back to the same state machine. A result
//! of a transaction that has ended in the meantime is ignored.

use std::sync::Arc;

use crate::config::Config;
use crate::failure::Failure;
use crate::group::{Group, PrivateKey};
use crate::hash::{Digest, HashFunction};
use crate::message::{Message, Reply};
use crate::random::{Random, RandomUnavailable};
use crate::response::{Challenge, Exchange, is_equal};

/// A step that takes milliseconds: powers in a group, digests, random numbers.
#[must_use = "the exchange waits for the result"]
pub struct Work {
    pub(crate) number: u64,
    pub(crate) task: Task,
}

/// The result of [`Work`].
#[must_use = "the exchange waits for the result"]
pub struct Done {
    pub(crate) number: u64,
    pub(crate) outcome: Result<Outcome, Failure>,
}

pub(crate) enum Task {
    /// Controller: draw C1 and a key pair.
    Challenge { hash: HashFunction, group: Group },
    /// Controller: check the host's response, respond to its challenge.
    Verify(Box<Verify>),
    /// Host: respond to the controller's challenge, challenge it.
    Respond(Box<Respond>),
}

pub(crate) struct Verify {
    pub(crate) config: Arc<Config>,
    pub(crate) hash: HashFunction,
    pub(crate) t_id: u16,
    pub(crate) c1: Challenge,
    pub(crate) private_key: PrivateKey,
    pub(crate) peer_value: Vec<u8>,
    pub(crate) response: Digest,
    pub(crate) c2: Option<Challenge>,
}

pub(crate) struct Respond {
    pub(crate) config: Arc<Config>,
    pub(crate) hash: HashFunction,
    pub(crate) group: Group,
    pub(crate) t_id: u16,
    pub(crate) c1: Challenge,
    pub(crate) peer_value: Vec<u8>,
    /// S2; none if the host has no secret of the controller.
    pub(crate) seqnum: Option<u32>,
}

pub(crate) enum Outcome {
    Challenge {
        c1: Digest,
        private_key: PrivateKey,
        public_value: Vec<u8>,
    },
    /// R2, if the host challenged the controller.
    Verified(Option<Digest>),
    /// The Reply message, and the response that the controller must give.
    Respond {
        message: Vec<u8>,
        expected: Option<Digest>,
    },
}

impl Work {
    /// Whether it checks a response, which a peer may have guessed.
    #[must_use]
    pub const fn checks_response(&self) -> bool {
        matches!(self.task, Task::Verify(_))
    }

    /// Runs the step. `random` is a source of cryptographically secure random bytes.
    pub fn run(self, random: &mut Random<'_>) -> Done {
        let outcome = match self.task {
            Task::Challenge { hash, group } => challenge(hash, group, random),
            Task::Verify(task) => task.run(),
            Task::Respond(task) => task.run(random),
        };
        Done { number: self.number, outcome }
    }
}

impl Done {
    /// Whether the step has failed: a wrong response, or no random numbers.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.outcome.is_err()
    }
}

impl From<RandomUnavailable> for Failure {
    fn from(_: RandomUnavailable) -> Self {
        Self::Failed
    }
}

fn challenge(hash: HashFunction, group: Group, random: &mut Random<'_>) -> Result<Outcome, Failure> {
    let c1 = draw(hash, random)?;
    let private_key = PrivateKey::draw(group, random)?;
    let public_value = private_key.public_value();
    Ok(Outcome::Challenge { c1, private_key, public_value })
}

fn draw(hash: HashFunction, random: &mut Random<'_>) -> Result<Digest, RandomUnavailable> {
    let mut challenge = Digest::zero(hash.digest_len());
    random(challenge.as_mut_slice())?;
    Ok(challenge)
}

impl Verify {
    fn run(&self) -> Result<Outcome, Failure> {
        let shared = self.private_key.shared_value(&self.peer_value);
        let session_key = shared.map(|shared| Exchange::session_key(self.hash, &shared));
        let exchange = Exchange { config: &self.config, hash: self.hash, t_id: self.t_id, session_key };
        if !is_equal(&exchange.host_response(&self.c1), self.response.as_slice()) {
            return Err(Failure::Failed);
        }
        match &self.c2 {
            None => Ok(Outcome::Verified(None)),
            Some(c2) => exchange.controller_response(c2).map(|r2| Outcome::Verified(Some(r2))).ok_or(Failure::Failed),
        }
    }
}

impl Respond {
    fn run(&self, random: &mut Random<'_>) -> Result<Outcome, Failure> {
        let private_key = PrivateKey::draw(self.group, random)?;
        let shared = private_key.shared_value(&self.peer_value);
        let session_key = shared.map(|shared| Exchange::session_key(self.hash, &shared));
        let exchange = Exchange { config: &self.config, hash: self.hash, t_id: self.t_id, session_key };
        let c2 = match self.seqnum {
            Some(seqnum) => Some(Challenge { value: draw(self.hash, random)?, seqnum }),
            None => None,
        };
        let message = Message::Reply(Reply {
            t_id: self.t_id,
            seqnum: self.seqnum.unwrap_or(0),
            response: exchange.host_response(&self.c1).as_slice(),
            challenge: c2.as_ref().map(|c2| c2.value.as_slice()),
            public_value: &private_key.public_value(),
        })
        .encode();
        let expected = c2.as_ref().and_then(|c2| exchange.controller_response(c2));
        Ok(Outcome::Respond { message, expected })
    }
}
