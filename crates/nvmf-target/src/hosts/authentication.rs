//! Secrets of hosts, and the exchange that authenticates one of their queues (DH-HMAC-CHAP, `pilotlight_auth`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use pilotlight_auth::tls::ConfiguredPsk;
use pilotlight_auth::{
    Concatenation, Config, Done, Failure, Policy, Responder, Secret, SequenceNumbers, Status, Work, kernel_random,
};

use crate::hosts::authentication_queue::Waiting;
use crate::hosts::generated::GeneratedKeys;
use crate::ids::{ConnAddr, DISCOVERY, HostKey};

/// The result of a check by another thread.
pub type Checked = Box<Done>;

/// Memory of an exchange in bytes, charged with the queue: the state machine, a key pair of the largest group and the peer's value.
pub(crate) const EXCHANGE_BYTES: usize = 16 * 1024;

/// The secrets of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSecrets {
    /// With which the host authenticates itself.
    pub host: Secret,
    /// With which its controllers authenticate themselves, if the host requests that.
    pub controller: Option<Secret>,
}

/// The hosts that authenticate themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationConfig {
    /// Secrets by host NQN. A host without one is not authenticated.
    pub hosts: BTreeMap<String, HostSecrets>,
    /// Allowed hash functions and groups, and whether hosts must authenticate controllers.
    pub policy: Policy,
    /// Whether these hosts also authenticate themselves to the discovery service.
    pub for_discovery: bool,
    /// Pre-shared keys of TLS by host NQN: only these hosts can connect with TLS.
    pub tls_keys: BTreeMap<String, ConfiguredPsk>,
    /// Whether a host with a key of TLS is also admitted without TLS.
    pub allows_plain: bool,
    /// Whether keys are accepted as libnvme before 1.16 derives them.
    pub accepts_old_libnvme: bool,
}

impl AuthenticationConfig {
    /// Whether any host has a secret or a key.
    fn is_used(&self) -> bool {
        !self.hosts.is_empty() || !self.tls_keys.is_empty()
    }

    /// Whether a queue of this host has to authenticate.
    fn requires(&self, host: &HostKey) -> bool {
        self.hosts.contains_key(&host.hostnqn) && (host.subsystem != DISCOVERY || self.for_discovery)
    }

    /// Whether this host is refused without TLS.
    fn requires_tls(&self, host: &HostKey) -> bool {
        !self.allows_plain
            && self.tls_keys.contains_key(&host.hostnqn)
            && (host.subsystem != DISCOVERY || self.for_discovery)
    }

    /// What this and `later` require together: secrets of both, those of `later` where both have one.
    #[must_use]
    pub fn with(&self, later: &Self) -> Self {
        let mut strict = later.clone();
        for (host, secrets) in &self.hosts {
            strict.hosts.entry(host.clone()).or_insert_with(|| secrets.clone());
        }
        strict.policy.require_bidirectional |= self.policy.require_bidirectional;
        strict.for_discovery |= self.for_discovery;
        for (host, key) in &self.tls_keys {
            strict.tls_keys.entry(host.clone()).or_insert_with(|| key.clone());
        }
        strict.allows_plain &= self.allows_plain;
        strict.accepts_old_libnvme &= self.accepts_old_libnvme;
        strict
    }
}

/// The configuration in force, for I/O threads.
pub struct Authenticator {
    config: RwLock<Arc<AuthenticationConfig>>,
    sequence: Arc<SequenceNumbers>,
}

impl Authenticator {
    /// With this configuration.
    pub(crate) fn new(config: AuthenticationConfig) -> Self {
        let mut start = [0; 4];
        let _ = kernel_random(&mut start); // if it fails, so does every challenge
        let sequence = Arc::new(SequenceNumbers::new(u32::from_le_bytes(start)));
        Self { config: RwLock::new(Arc::new(config)), sequence }
    }

    /// Sets the configuration for queues that connect from now on, and for exchanges that begin.
    pub(crate) fn set(&self, config: AuthenticationConfig) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    pub(crate) fn config(&self) -> Arc<AuthenticationConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether any host can prove who it is.
    pub(crate) fn is_used(&self) -> bool {
        self.config().is_used()
    }

    /// Whether this host is refused without TLS.
    pub(crate) fn requires_tls(&self, host: &HostKey) -> bool {
        self.config().requires_tls(host)
    }

    /// Whether a queue of this host has to authenticate.
    #[must_use]
    pub fn is_required(&self, host: &HostKey) -> bool {
        self.config().requires(host)
    }

    /// What an exchange with this host needs; `None` if it does not have to authenticate.
    fn of(&self, host: &HostKey, subnqn: &str, concatenation: Concatenation) -> Option<Arc<Config>> {
        let config = self.config();
        let secrets = config.hosts.get(&host.hostnqn).filter(|_| config.requires(host))?;
        Some(Arc::new(Config {
            hostnqn: host.hostnqn.clone(),
            subnqn: subnqn.to_owned(),
            host_secret: secrets.host.clone(),
            controller_secret: secrets.controller.clone(),
            policy: Policy { concatenation, ..config.policy.clone() },
            sequence: Arc::clone(&self.sequence),
        }))
    }

    /// The configuration of the host's side, and the exchange of a queue.
    #[cfg(test)]
    pub(crate) fn both_sides(&self, host: &HostKey, subnqn: &str) -> (Arc<Config>, Exchange) {
        let concatenation = Concatenation::None;
        let ours = self.exchange(host, subnqn, concatenation).expect("a secret");
        (self.of(host, subnqn, concatenation).expect("a secret"), ours)
    }

    /// A first exchange with this host; `None` if it has no secret.
    pub(crate) fn exchange(&self, host: &HostKey, subnqn: &str, concatenation: Concatenation) -> Option<Exchange> {
        let config = self.of(host, subnqn, concatenation)?;
        let (host, subnqn) = (host.clone(), subnqn.to_owned());
        Some(Exchange { responder: Responder::new(config), host, subnqn, concatenation, key: None })
    }
}

/// The authentication of one queue.
pub(crate) struct Exchange {
    responder: Responder,
    host: HostKey,
    subnqn: String,
    concatenation: Concatenation,
    /// Identity of the key that the connection has generated last, or uses.
    key: Option<Box<str>>,
}

/// How to complete an Authentication Send.
pub(crate) enum Received {
    /// At once.
    Complete,
    /// After this work.
    Check(Work),
}

/// State of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
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
    /// Whether messages of an exchange are outstanding.
    pub(crate) const fn is_busy(&self) -> bool {
        self.responder.is_busy()
    }

    /// Takes a message of the host.
    pub(crate) fn on_message(&mut self, message: &[u8], authenticator: &Authenticator) -> Received {
        if let Some(config) = authenticator.of(&self.host, &self.subnqn, self.concatenation) {
            self.responder.replace_config(config);
        }
        match self.responder.on_send(message) {
            Some(work) => Received::Check(work),
            None => Received::Complete,
        }
    }

    /// Takes the result of the work.
    pub(crate) fn on_checked(&mut self, done: Done) {
        self.responder.on_done(done);
    }

    /// The connection uses the generated key with this identity, which the next one replaces.
    pub(crate) fn set_key(&mut self, identity: &str) {
        self.key = Some(identity.into());
    }

    /// Keeps the key for TLS that the exchange has generated, if it has.
    pub(crate) fn keep_key(&mut self, generated: &GeneratedKeys, now_ns: u64) {
        let Some((psk, secret)) = self.responder.take_key() else { return };
        let replaced = self.key.replace(psk.identity().into());
        let nqns = (&*self.host.hostnqn, &*self.subnqn);
        generated.keep((psk, secret), nqns, replaced.as_deref(), now_ns);
        tracing::info!(host = nqns.0, "TLS key generated");
    }

    /// Writes the next message for the host.
    ///
    /// # Errors
    /// The status for the command: there is no message now, or it is longer than the buffer.
    pub(crate) fn take_message(&mut self, buffer: &mut [u8]) -> Result<(), pilotlight_nvme::Status> {
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
    pub(crate) fn progress(&self) -> Progress {
        match self.responder.status() {
            Status::Idle | Status::InProgress => Progress::Running,
            Status::Authenticated(_) => Progress::Authenticated,
            Status::Failed { failure, reported } => Progress::Failed { failure, is_reported: reported },
        }
    }
}

/// A message to check.
pub struct AuthenticationRequest {
    pub(crate) work: Work,
    /// The host's address.
    pub(crate) peer: IpAddr,
    /// The queue's connection.
    pub(crate) queue: ConnAddr,
    /// Slot of the command, and its generation.
    pub(crate) slot: (u16, u8),
}

impl Waiting for AuthenticationRequest {
    fn address(&self) -> IpAddr {
        self.peer
    }

    fn is_reply(&self) -> bool {
        self.work.checks_response()
    }
}
