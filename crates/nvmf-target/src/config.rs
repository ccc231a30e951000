//! Configuration of a server.
//!
//! Plain values, checked by their creator: the program derives them from flags and files (`pilotlight`'s `config`), tests
//! write them directly. A [`ServerConfig`] determines the server completely: the same value gives the same identifiers
//! after every restart.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

pub(crate) use pilotlight_nvmf_proto::subsystems::config::allows;
pub use pilotlight_nvmf_proto::subsystems::config::{
    Advertised, ControllerIds, MAX_CNTLID, MAX_NSID, MAX_SERIAL, NamespaceConfig, Security, SubsystemConfig,
};
pub use pilotlight_nvmf_proto::subsystems::paths::{DEFAULT_GROUP, MAX_GROUP, PathRule};
use pilotlight_storage::background::control::BackgroundConfig;

use crate::hosts::authentication::AuthenticationConfig;

/// Maximum I/O queues of a controller.
pub const MAX_IO_QUEUES: u16 = 128;
/// Maximum entries of an I/O queue.
pub const MAX_QUEUE_DEPTH: u16 = 1024;
/// The port that IANA has assigned to NVMe over TCP.
pub const DEFAULT_PORT: u16 = 4420;
/// The port that IANA has assigned to the discovery service over TCP.
pub const DISCOVERY_PORT: u16 = 8009;

/// Configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Addresses to accept connections without TLS on; port 0 takes any free port.
    pub listeners: Vec<SocketAddr>,
    /// Addresses to accept connections with TLS on.
    pub tls_listeners: Vec<SocketAddr>,
    /// Addresses for secure channel concatenation ([`Security::Concatenation`](Security)).
    pub concatenation_listeners: Vec<SocketAddr>,
    /// Address (IP or name) and port in the discovery log, instead of the one a host connected to: for servers behind NAT.
    pub advertise: Option<(String, u16)>,
    /// Ditto for connections with TLS.
    pub tls_advertise: Option<(String, u16)>,
    /// Another port for the discovery service, beside each address; [`DISCOVERY_PORT`] is the one that hosts ask by default.
    pub discovery_port: Option<u16>,
    /// Other discovery services (address or name, and port) that the discovery log refers to.
    pub referrals: Vec<(String, u16)>,
    /// The ANA states of paths by its addresses.
    pub paths: Vec<PathRule>,
    /// The subsystems.
    pub subsystems: Vec<SubsystemConfig>,
    /// CPUs to run on, one reactor pinned to each.
    pub cores: Vec<u32>,
    /// The main core, one of `cores`: it accepts connections and runs the policy.
    pub main_core: u32,
    /// Number of I/O threads; they are spread over the cores.
    pub io_threads: u32,
    /// What is bound to an I/O thread.
    pub placement: QueuePlacement,
    /// NQNs of hosts with their own counters from the start, in addition to the allowed ones ([`crate::hosts::usage`]).
    pub named_hosts: Vec<String>,
    /// Resource limits.
    pub limits: Limits,
    /// Background work.
    pub background: BackgroundConfig,
    /// Authentication of hosts.
    pub authentication: AuthenticationConfig,
    /// Whether the kernel encrypts after TLS handshakes, where it can.
    pub kernel_tls: bool,
    /// Whether controllers report power states (three operational, two not). They save no energy: they are for testing hosts
    /// and tools that set power states.
    pub power_states: bool,
}

impl ServerConfig {
    /// Configured addresses of all kinds.
    pub(crate) fn listeners_with_security(&self) -> impl Iterator<Item = (SocketAddr, Security)> {
        let kinds = [
            (&self.listeners, Security::Plain),
            (&self.tls_listeners, Security::Tls),
            (&self.concatenation_listeners, Security::Concatenation),
        ];
        kinds.into_iter().flat_map(|(addresses, security)| addresses.iter().map(move |address| (*address, security)))
    }

    /// Configured addresses, without those for `discovery_port`.
    #[must_use]
    pub fn own_addresses(&self) -> Vec<SocketAddr> {
        self.listeners_with_security().map(|(address, _)| address).collect()
    }

    /// An address for `discovery_port` beside each configured one, unless that port is served there already. Of an IP address with several kinds of
    /// connections the first is used, or that of a later address which includes it.
    pub(crate) fn discovery_listeners(&self) -> Vec<(SocketAddr, Security)> {
        let Some(port) = self.discovery_port else { return Vec::new() };
        let has_ipv4 = |port| self.listeners_with_security().any(|(other, _)| other.is_ipv4() && other.port() == port);
        // Whether `[::]` accepts IPv4 too: it does not beside an address with its port ([`ServerConfig::is_v6_only`]).
        let with_both = |(address, security): (SocketAddr, Security)| (address, security, !has_ipv4(address.port()));
        let configured: Vec<_> = self.listeners_with_security().map(with_both).collect();
        let covers = |(one, _, both): &(SocketAddr, Security, bool), other: &SocketAddr| {
            let is_of_family = one.is_ipv4() == other.is_ipv4() || one.is_ipv6() && *both;
            one == other || (one.ip().is_unspecified() && is_of_family && one.port() == other.port())
        };
        let mut added: Vec<(SocketAddr, Security, bool)> = Vec::new();
        for (mut address, security, both) in configured.iter().copied() {
            address.set_port(port);
            if !configured.iter().chain(&added).any(|other| covers(other, &address)) {
                let new = (address, security, both && !has_ipv4(port));
                added.retain(|(other, ..)| !covers(&new, other));
                added.push(new);
            }
        }
        added.into_iter().map(|(address, security, _)| (address, security)).collect()
    }

    /// Whether it has the same addresses as `other`.
    #[must_use]
    pub fn listens_as(&self, other: &Self) -> bool {
        let of = |config: &Self| (config.listeners_with_security().collect::<Vec<_>>(), config.discovery_port);
        of(self) == of(other)
    }

    /// Takes the addresses of `other`.
    pub fn copy_listeners(&mut self, other: &Self) {
        self.listeners.clone_from(&other.listeners);
        self.tls_listeners.clone_from(&other.tls_listeners);
        self.concatenation_listeners.clone_from(&other.concatenation_listeners);
        self.discovery_port = other.discovery_port;
    }

    /// All addresses that the server listens on.
    #[must_use]
    pub fn all_listeners(&self) -> Vec<SocketAddr> {
        self.listeners_with_security().chain(self.discovery_listeners()).map(|(address, _)| address).collect()
    }

    /// Whether `address` leaves connections over IPv4 to another listener with its port.
    #[must_use]
    pub fn is_v6_only(&self, address: SocketAddr) -> bool {
        let shares = |other: &SocketAddr| other.is_ipv4() && other.port() == address.port();
        address.is_ipv6()
            && address.ip().is_unspecified()
            && address.port() != 0
            && self.all_listeners().iter().any(shares)
    }

    /// The advertised addresses.
    #[must_use]
    pub fn advertised(&self) -> Advertised {
        Advertised { plain: self.advertise.clone(), tls: self.tls_advertise.clone() }
    }
}

impl Default for ServerConfig {
    /// Listens on 127.0.0.1:4420, runs on core 0, exports nothing.
    fn default() -> Self {
        Self {
            listeners: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT))],
            tls_listeners: Vec::new(),
            concatenation_listeners: Vec::new(),
            advertise: None,
            tls_advertise: None,
            discovery_port: None,
            referrals: Vec::new(),
            paths: Vec::new(),
            subsystems: Vec::new(),
            cores: vec![0],
            main_core: 0,
            io_threads: 1,
            placement: QueuePlacement::Queue,
            named_hosts: Vec::new(),
            limits: Limits::default(),
            background: BackgroundConfig::default(),
            authentication: AuthenticationConfig::default(),
            kernel_tls: false,
            power_states: false,
        }
    }
}

/// What is bound to an I/O thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuePlacement {
    /// Each I/O queue.
    #[default]
    Queue,
    /// Each host (its NQN), with all its I/O queues.
    Host,
}

/// Resource limits against excessive use by hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Total memory in bytes: data buffers, the state of queues, and namespaces in memory. Beyond it a command waits for a
    /// buffer, a queue is refused, and a write fails.
    pub max_memory: u64,
    /// Part of `max_memory` for data buffers in bytes, divided among the I/O threads.
    pub buffer_memory: u64,
    /// Part of `max_memory` for the state of queues in bytes. When it is exhausted, Connect returns Controller Busy.
    pub queue_memory: u64,
    /// Maximum connections over all listeners; more are closed at once.
    pub max_connections: u32,
    /// Maximum connections that are not admitted yet; more are closed at once. A part of `max_connections` is the upper bound
    /// ([`crate::hosts::addresses`]).
    pub max_pending: u32,
    /// Ditto of one address, however many are free.
    pub max_address_pending: u32,
    /// Maximum part of `queue_memory` of one host NQN in bytes. Beyond it Connect returns Controller Busy.
    pub max_host_memory: u64,
    /// Admin commands of one host NQN per second; more wait. 0 for any number.
    pub admin_rate: u32,
    /// Maximum queues per host and subsystem, including admin queues. Beyond it Connect returns Controller Busy.
    pub max_host_queues: u32,
    /// I/O queues of one controller, 1 to [`MAX_IO_QUEUES`].
    pub max_io_queues: u16,
    /// Entries of one I/O queue, 2 to [`MAX_QUEUE_DEPTH`].
    pub max_queue_depth: u16,
    /// Time limit of a new connection for its ICReq.
    pub icreq_timeout: Duration,
    /// Time limit of requests in flight when the server stops.
    pub drain_timeout: Duration,
}

impl Limits {
    /// Part of `max_memory` for namespaces in memory in bytes.
    #[must_use]
    pub fn namespace_memory(&self) -> u64 {
        self.max_memory.saturating_sub(self.buffer_memory).saturating_sub(self.queue_memory)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_memory: 2 << 30,
            buffer_memory: 64 << 20,
            queue_memory: 256 << 20,
            max_connections: 16_384,
            max_pending: 6144,
            max_address_pending: 1024,
            max_host_memory: u64::MAX,
            admin_rate: 1000,
            max_host_queues: 2048,
            max_io_queues: MAX_IO_QUEUES,
            max_queue_depth: MAX_QUEUE_DEPTH,
            icreq_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_does_not_admit_a_host_without_a_name() {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(allows(&[], "") && allows(&[], "nqn.2024-05.com.example:a"));
        assert!(allows(&list(&["", "a"]), "a") && !allows(&list(&["", "a"]), "b"));
        for names in [&["a"][..], &[""], &["", "a"]] {
            assert!(!allows(&list(names), ""), "{names:?}");
        }
    }

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn the_discovery_port_is_beside_each_address_once() {
        for (plain, tls, expected) in [
            (&["192.0.2.7:4420", "192.0.2.7:4421", "[::1]:4420"][..], &[][..], &["192.0.2.7:8009", "[::1]:8009"][..]),
            (&["192.0.2.7:4420"], &["192.0.2.7:4421", "192.0.2.8:4421"], &["192.0.2.7:8009", "192.0.2.8:8009"]),
            (&["192.0.2.7:8009", "192.0.2.8:4420"], &["192.0.2.7:4420"], &["192.0.2.8:8009"]),
            (&["192.0.2.7:4420", "0.0.0.0:4421", "192.0.2.8:4420"], &[], &["0.0.0.0:8009"]),
            (&["192.0.2.7:4420", "0.0.0.0:8009"], &[], &[]),
            (&["[::]:4420"], &["0.0.0.0:4420"], &["[::]:8009", "0.0.0.0:8009"]),
            (&["[::]:8009", "192.0.2.8:4421"], &[], &[]),
            (&["[::]:4420", "192.0.2.7:4421"], &[], &["[::]:8009"]),
            (&["192.0.2.7:4421", "[::]:4420"], &[], &["[::]:8009"]),
            (&["[::]:4420", "192.0.2.7:8009", "192.0.2.8:4421"], &[], &["[::]:8009", "192.0.2.8:8009"]),
        ] {
            let (listeners, tls_listeners) = (addresses(plain), addresses(tls));
            let discovery_port = Some(DISCOVERY_PORT);
            let config = ServerConfig { listeners, tls_listeners, discovery_port, ..ServerConfig::default() };
            let added: Vec<SocketAddr> = config.discovery_listeners().into_iter().map(|(address, _)| address).collect();
            assert_eq!(added, addresses(expected), "{plain:?} {tls:?}");
            let none = ServerConfig { discovery_port: None, ..config };
            assert_eq!(none.discovery_listeners(), []);
        }
    }

    #[test]
    fn a_wildcard_leaves_ipv4_to_an_address_with_its_port() {
        for (listeners, expected) in [
            (&["[::]:4420", "0.0.0.0:4420"][..], true),
            (&["[::]:4420", "192.0.2.7:4420"], true),
            (&["[::]:4420", "0.0.0.0:4421"], false),
            (&["[::]:4420", "[::1]:4421"], false),
            (&["[::]:0", "0.0.0.0:0"], false),
            (&["[::1]:4420", "0.0.0.0:4420"], false),
        ] {
            let config = ServerConfig { listeners: addresses(listeners), ..ServerConfig::default() };
            assert_eq!(config.is_v6_only(config.listeners[0]), expected, "{listeners:?}");
        }
    }
}
