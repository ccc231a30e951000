//! What a server is to be: plain values, checked by whoever wrote them down.
//!
//! The program turns flags and files into these (`pilotlight`'s `config`), tests write them by hand. Nothing is parsed
//! here and nothing is looked up, so that a [`ServerConfig`] says all that decides how a server behaves: the same value
//! gives the same identifiers after every restart.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::backend::BackendSpec;
use crate::background::control::BackgroundConfig;

/// The highest NSID that a namespace may be given; tables are indexed by it.
pub const MAX_NSID: u32 = 1024;
/// The most I/O queues that a controller may be allowed.
pub const MAX_IO_QUEUES: u16 = 128;
/// The most entries that an I/O queue may be allowed.
pub const MAX_QUEUE_DEPTH: u16 = 1024;
/// Longest serial number in bytes (Base 5.1.13.2.1, Identify Controller, SN).
pub const MAX_SERIAL: usize = 20;
/// The port that IANA has assigned to NVMe over TCP.
pub const DEFAULT_PORT: u16 = 4420;
/// The port that IANA has assigned to the discovery service over TCP.
pub const DISCOVERY_PORT: u16 = 8009;

/// A server: where it listens, what it exports, which cores it runs on and how far it may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Addresses to accept connections on; port 0 takes any free port.
    pub listeners: Vec<SocketAddr>,
    /// Address (IP or name) and port that the discovery log gives instead of the one a host connected to: for servers
    /// behind address translation.
    pub advertise: Option<(String, u16)>,
    /// Other discovery services (address or name, and port) to which the discovery log refers hosts.
    pub referrals: Vec<(String, u16)>,
    /// What hosts can connect to.
    pub subsystems: Vec<SubsystemConfig>,
    /// CPUs to run on, one reactor pinned to each.
    pub cores: Vec<u32>,
    /// Which of `cores` is the main core: it accepts connections and takes decisions.
    pub main_core: u32,
    /// Number of I/O threads; they are spread over the cores.
    pub io_threads: u32,
    /// NQNs of hosts that are counted by themselves from the start on, beside those that may connect ([`crate::usage`]).
    pub named_hosts: Vec<String>,
    /// How far the server may go.
    pub limits: Limits,
    /// Background work.
    pub background: BackgroundConfig,
    /// Whether hosts are shown power states that they can set (three that work, two that rest). They save nothing: they are
    /// there for hosts and tools that set power states to have something to set.
    pub power_states: bool,
}

impl Default for ServerConfig {
    /// Listens on 127.0.0.1:4420, runs on core 0, exports nothing.
    fn default() -> Self {
        Self {
            listeners: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT))],
            advertise: None,
            referrals: Vec::new(),
            subsystems: Vec::new(),
            cores: vec![0],
            main_core: 0,
            io_threads: 1,
            named_hosts: Vec::new(),
            limits: Limits::default(),
            background: BackgroundConfig::default(),
            power_states: false,
        }
    }
}

/// A subsystem: a name that hosts connect to, and the namespaces behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemConfig {
    /// NVMe Qualified Name (Base 4.5), at most 223 bytes, unique in the server.
    pub nqn: String,
    /// Serial number, at most [`MAX_SERIAL`] printable ASCII characters; for `None` one that follows from the NQN.
    pub serial: Option<String>,
    /// NQNs of the hosts that may connect; empty admits any.
    pub allowed_hosts: Vec<String>,
    /// The identifiers that its controllers may have; `None`: any that no other subsystem has for itself.
    pub controller_ids: Option<ControllerIds>,
    /// What it exports; may be empty, namespaces can be added later.
    pub namespaces: Vec<NamespaceConfig>,
}

/// The highest identifier that a controller can have: those above are reserved (Base 6.3).
pub const MAX_CNTLID: u16 = 0xffef;

/// A range of controller identifiers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ControllerIds {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

impl ControllerIds {
    /// Every identifier that there is.
    pub const ALL: Self = Self { first: 1, last: MAX_CNTLID };

    /// Whether the range has this identifier.
    #[must_use]
    pub fn contains(self, id: u16) -> bool {
        (self.first..=self.last).contains(&id)
    }
}

/// Whether the list `allowed` lets in the host named `hostnqn`. An empty list lets in any host. A list lets in the hosts that
/// it names and never one without a name, whatever is on it.
#[must_use]
pub(crate) fn allows(allowed: &[String], hostnqn: &str) -> bool {
    allowed.is_empty() || !hostnqn.is_empty() && allowed.iter().any(|host| host == hostnqn)
}

/// A namespace: blocks with a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// Namespace identifier, 1 to [`MAX_NSID`], unique in the subsystem.
    pub nsid: u32,
    /// What holds the blocks.
    pub backend: BackendSpec,
    /// Logical block size in bytes: 512 or 4096.
    pub block_size: u32,
    /// UUID that hosts know the namespace by; for `None` one that follows from the NQN and the NSID.
    pub uuid: Option<[u8; 16]>,
    /// NQNs of the hosts to which it is attached; empty: every host that may connect.
    pub hosts: Vec<String>,
}

/// Bounds that keep one host, or many, from taking all there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory in bytes, all in all: buffers for data on the way, the state of queues, and blocks of namespaces in memory.
    /// What does not fit waits (a buffer), is refused (a queue) or fails (a block that cannot be stored).
    pub max_memory: u64,
    /// The part of `max_memory` in bytes that is set aside for data on the way, divided among the I/O threads.
    pub buffer_memory: u64,
    /// The part of `max_memory` in bytes that is kept for the state of queues: a Connect that finds it used up is answered
    /// with Controller Busy.
    pub queue_memory: u64,
    /// Connections at once, over all listeners; more are closed as soon as they come.
    pub max_connections: u32,
    /// Queues of one host of a subsystem at once, admin queues included; Connect of one more is answered with Controller
    /// Busy.
    pub max_host_queues: u32,
    /// I/O queues of one controller, 1 to [`MAX_IO_QUEUES`].
    pub max_io_queues: u16,
    /// Entries of one I/O queue, 2 to [`MAX_QUEUE_DEPTH`].
    pub max_queue_depth: u16,
    /// How long a new connection may take until its ICReq is there.
    pub icreq_timeout: Duration,
    /// How long requests in flight may take to finish when the server stops.
    pub drain_timeout: Duration,
}

impl Limits {
    /// Bytes of `max_memory` that are left for the blocks of namespaces in memory.
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
    fn a_list_never_lets_in_a_host_without_a_name() {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(allows(&[], "") && allows(&[], "nqn.2024-05.com.example:a"));
        assert!(allows(&list(&["", "a"]), "a") && !allows(&list(&["", "a"]), "b"));
        for names in [&["a"][..], &[""], &["", "a"]] {
            assert!(!allows(&list(names), ""), "{names:?}");
        }
    }
}
