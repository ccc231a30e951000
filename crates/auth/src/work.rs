//! The expensive steps of an exchange, apart from the state machines: owned values for another thread.
//!
//! A state machine returns [`Work`]; any thread [runs](Work::run) it and sends [`Done`] back to the same state machine. A result
//! of a transaction that has ended in the meantime is ignored.

use std::sync::Arc;

use crate::config::{Concatenation, Config};
use crate::failure::Failure;
use crate::group::{Group, PrivateKey};
use crate::hash::{Digest, HashFunction};
use crate::message::{Message, Reply};
use crate::random::{Random, RandomUnavailable};
use crate::response::{Challenge, Exchange, is_equal};
use crate::tls::{Derivation, IdentityVersion, RetainedPsk, TlsPsk};

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
    pub(crate) concatenation: Concatenation,
    /// C2 as sent, also if it is no challenge.
    pub(crate) c2_field: Digest,
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
    pub(crate) concatenation: Concatenation,
}

pub(crate) enum Outcome {
    Challenge {
        c1: Digest,
        private_key: PrivateKey,
        public_value: Vec<u8>,
    },
    /// R2, if the host challenged the controller, and a generated key.
    Verified {
        response: Option<Digest>,
        key: Option<TlsPsk>,
    },
    /// The Reply message, the response that the controller must give, and a generated PSK.
    Respond {
        message: Vec<u8>,
        expected: Option<Digest>,
        psk: Option<RetainedPsk>,
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
        let (hash, t_id, concatenation) = (self.hash, self.t_id, self.concatenation);
        let exchange = Exchange { config: &self.config, hash, t_id, concatenation, session_key };
        if !is_equal(&exchange.host_response(&self.c1), self.response.as_slice()) {
            return Err(Failure::Failed);
        }
        let response = match &self.c2 {
            None => None,
            Some(c2) => Some(exchange.controller_response(c2).ok_or(Failure::Failed)?),
        };
        let (hostnqn, subnqn) = (&self.config.hostnqn, &self.config.subnqn);
        let psk = exchange.psk(&self.c1.value, &self.c2_field);
        let tls = |psk: RetainedPsk| psk.tls_psk(IdentityVersion::V1, hostnqn, subnqn, Derivation::Specification);
        let key = psk.and_then(|psk| tls(psk).ok()); // in version 1 no NQN is too long
        Ok(Outcome::Verified { response, key })
    }
}

impl Respond {
    fn run(&self, random: &mut Random<'_>) -> Result<Outcome, Failure> {
        let private_key = PrivateKey::draw(self.group, random)?;
        let shared = private_key.shared_value(&self.peer_value);
        let session_key = shared.map(|shared| Exchange::session_key(self.hash, &shared));
        let (hash, t_id, concatenation) = (self.hash, self.t_id, self.concatenation);
        let exchange = Exchange { config: &self.config, hash, t_id, concatenation, session_key };
        let is_drawn = self.seqnum.is_some() || concatenation != Concatenation::None;
        let c2 = if is_drawn { draw(hash, random)? } else { Digest::zero(hash.digest_len()) };
        let challenge = self.seqnum.map(|seqnum| Challenge { value: c2.clone(), seqnum });
        let message = Message::Reply(Reply {
            t_id,
            seqnum: self.seqnum.unwrap_or(0),
            response: exchange.host_response(&self.c1).as_slice(),
            c2: c2.as_slice(),
            is_challenge: is_drawn,
            public_value: &private_key.public_value(),
        })
        .encode();
        let expected = challenge.and_then(|c2| exchange.controller_response(&c2));
        Ok(Outcome::Respond { message, expected, psk: exchange.psk(&self.c1.value, &c2) })
    }
}
