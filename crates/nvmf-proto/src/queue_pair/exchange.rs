//! The exchange that authenticates a queue (DH-HMAC-CHAP, `pilotlight_auth`), and the key that it may generate.

use pilotlight_auth::{Concatenation, Done, Failure, Responder, Status, Work};

use crate::ids::HostKey;
use crate::services::Secrets;

/// Memory of an exchange in bytes, charged with the queue: the state machine, a key pair of the largest group and the peer's value.
pub(super) const EXCHANGE_BYTES: usize = 16 * 1024;

/// The authentication of one queue.
pub(super) struct Exchange {
    responder: Responder,
    host: HostKey,
    subnqn: String,
    concatenation: Concatenation,
    /// Identity of the key that the connection has generated last, or uses.
    key: Option<Box<str>>,
}

/// How to complete an Authentication Send.
pub(super) enum Received {
    /// At once.
    Complete,
    /// After this work.
    Check(Work),
}

/// State of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The host is not authenticated yet.
    Running,
    /// It is authenticated.
    Authenticated,
    /// It is not. Once the reason is reported, the connection ends.
    Failed {
        /// The reason.
        failure: Failure,
        /// Whether the host has received it.
        is_reported: bool,
    },
}

impl Exchange {
    /// A first exchange of a queue of this host; `None` if it does not have to authenticate.
    pub(super) fn new(
        host: &HostKey,
        subnqn: &str,
        concatenation: Concatenation,
        secrets: &impl Secrets,
    ) -> Option<Self> {
        let responder = Responder::new(secrets.exchange_config(host, subnqn, concatenation)?);
        Some(Self { responder, host: host.clone(), subnqn: subnqn.to_owned(), concatenation, key: None })
    }

    /// Whether messages of an exchange are outstanding.
    pub(super) const fn is_busy(&self) -> bool {
        self.responder.is_busy()
    }

    /// Takes a message of the host.
    pub(super) fn on_message(&mut self, message: &[u8], secrets: &impl Secrets) -> Received {
        if let Some(config) = secrets.exchange_config(&self.host, &self.subnqn, self.concatenation) {
            self.responder.replace_config(config);
        }
        match self.responder.on_send(message) {
            Some(work) => Received::Check(work),
            None => Received::Complete,
        }
    }

    /// Takes the result of the work.
    pub(super) fn on_checked(&mut self, done: Done) {
        self.responder.on_done(done);
    }

    /// The connection uses the generated key with this identity, which the next one replaces.
    pub(super) fn set_key(&mut self, identity: &str) {
        self.key = Some(identity.into());
    }

    /// Keeps the key for TLS that the exchange has generated, if it has.
    pub(super) fn keep_key(&mut self, secrets: &impl Secrets, now_ns: u64) {
        let Some((psk, secret)) = self.responder.take_key() else { return };
        let replaced = self.key.replace(psk.identity().into());
        let nqns = (&*self.host.hostnqn, &*self.subnqn);
        secrets.keep_key((psk, secret), nqns, replaced.as_deref(), now_ns);
        tracing::info!(host = nqns.0, "TLS key generated");
    }

    /// Writes the next message for the host.
    ///
    /// # Errors
    /// The status for the command: there is no message now, or it is longer than the buffer.
    pub(super) fn take_message(&mut self, buffer: &mut [u8]) -> Result<(), pilotlight_nvme::Status> {
        use pilotlight_auth::Received::{Message, Pending, TooShort};
        match self.responder.receive(buffer.len()) {
            Message(message) => {
                buffer[..message.len()].copy_from_slice(&message);
                Ok(())
            }
            Pending => Err(pilotlight_nvme::Status::COMMAND_SEQUENCE.dnr()),
            TooShort(_) => Err(pilotlight_nvme::Status::INVALID_FIELD.dnr()),
        }
    }

    /// Its state.
    pub(super) fn progress(&self) -> Progress {
        match self.responder.status() {
            Status::Idle | Status::InProgress => Progress::Running,
            Status::Authenticated(_) => Progress::Authenticated,
            Status::Failed { failure, reported } => Progress::Failed { failure, is_reported: reported },
        }
    }
}
