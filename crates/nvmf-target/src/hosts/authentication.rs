//! Secrets of hosts, with which they authenticate their queues (DH-HMAC-CHAP, `pilotlight_auth`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use pilotlight_auth::tls::ConfiguredPsk;
use pilotlight_auth::{Concatenation, Config, Done, Policy, Secret, SequenceNumbers, kernel_random};
use pilotlight_nvmf_proto::ids::{DISCOVERY, HostKey};
use pilotlight_nvmf_proto::services::AuthenticationRequest;

use crate::hosts::authentication_queue::Waiting;

/// The result of a check by another thread.
pub type Checked = Box<Done>;

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
    pub(crate) fn exchange_config(
        &self,
        host: &HostKey,
        subnqn: &str,
        concatenation: Concatenation,
    ) -> Option<Arc<Config>> {
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
}

impl Waiting for AuthenticationRequest {
    fn address(&self) -> IpAddr {
        self.peer
    }

    fn is_reply(&self) -> bool {
        self.work.checks_response()
    }
}
