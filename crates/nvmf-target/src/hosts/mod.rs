//! What the server knows and counts of hosts: associations, memory, addresses, secrets, refusals.
//!
//! | file | content |
//! |---|---|
//! | [`associations`] | every association, and what of its storage may still be written |
//! | [`admission`], [`accounts`] | a host's queues and memory, its rate of admin commands |
//! | [`addresses`], [`networks`], [`penalties`] | hosts that are not proved, by address |
//! | [`authentication`], [`authentication_queue`], [`generated`] | secrets, and keys of TLS |
//! | [`usage`], [`refusals`] | counters |

pub mod accounts;
pub mod addresses;
pub mod admission;
pub mod associations;
pub mod authentication;
pub mod authentication_queue;
mod generated;
mod networks;
pub mod penalties;
pub mod refusals;
pub mod usage;

use std::sync::Arc;

use pilotlight_auth::tls::TlsPsk;
use pilotlight_nvmf_proto::services::{Full, Standing};
use pilotlight_nvmf_proto::tls_peer::TlsPeer;
use pilotlight_storage::MemoryBudget;

use self::accounts::Accounts;
use self::addresses::Addresses;
use self::associations::Associations;
use self::authentication::Authenticator;
use self::generated::GeneratedKeys;
use self::penalties::Penalties;
use self::refusals::Refusals;
use self::usage::ListedHosts;
use crate::config::ServerConfig;

/// The state of all hosts.
pub struct Hosts {
    /// Every association.
    pub associations: Associations,
    /// Secrets of hosts.
    pub authenticator: Authenticator,
    /// Keys of secure channel concatenation.
    pub(crate) generated: GeneratedKeys,
    /// Connections whose host has not proved who it is.
    pub(crate) addresses: Arc<Addresses>,
    /// What each host takes.
    pub(crate) accounts: Accounts,
    /// Failed authentications by address.
    pub(crate) penalties: Penalties,
    /// Memory for the state of queues.
    pub queue_memory: MemoryBudget,
    /// Refused connections and Connect commands.
    pub refusals: Refusals,
    /// The hosts with their own counters.
    pub listed_hosts: ListedHosts,
    /// Maximum queues of a host.
    max_host_queues: u32,
}

impl Hosts {
    /// Without hosts.
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let limits = &config.limits;
        let hosts = Self {
            associations: Associations::default(),
            generated: GeneratedKeys::default(),
            authenticator: Authenticator::new(config.authentication.clone()),
            addresses: Arc::new(Addresses::new(limits)),
            accounts: Accounts::new(limits.max_host_memory, limits.admin_rate),
            penalties: Penalties::default(),
            refusals: Refusals::default(),
            listed_hosts: ListedHosts::default(),
            queue_memory: MemoryBudget::new(limits.queue_memory),
            max_host_queues: limits.max_host_queues,
        };
        let listed = config.subsystems.iter().flat_map(|subsystem| &subsystem.allowed_hosts);
        listed.chain(&config.named_hosts).for_each(|host| hosts.listed_hosts.add(host));
        hosts
    }

    /// Counts a queue of `bytes` for its address if its host is not proved.
    pub(crate) fn take_address(&self, standing: Standing, bytes: u64) -> Result<(), Full> {
        self.addresses.take(standing, bytes, self.authenticator.is_used())
    }

    /// The generated key of a TLS connection, if it is good at `now_ns`: it is known, and its host still has its secret.
    pub(crate) fn generated_key(&self, peer: &TlsPeer, now_ns: u64) -> Option<TlsPsk> {
        let identity = peer.generated.as_deref()?;
        let config = self.authenticator.config();
        let secret = &config.hosts.get(&*peer.hostnqn)?.host;
        self.generated.find(identity, (&peer.hostnqn, &peer.subnqn), secret, now_ns)
    }
}
