//! Configuration of subsystems and namespaces, as hosts see them. Plain values, checked by their creator.

use std::net::SocketAddr;

use pilotlight_storage::BackendSpec;

use super::paths::DEFAULT_GROUP;

/// The highest NSID; tables are indexed by it.
pub const MAX_NSID: u32 = 1024;
/// Longest serial number in bytes (Base 5.1.13.2.1, Identify Controller, SN).
pub const MAX_SERIAL: usize = 20;
/// How the connections of a listener are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// Not at all.
    Plain,
    /// With TLS, from the first byte on.
    Tls,
    /// Secure channel concatenation: a connection that begins with ICReq is for authentication alone, which generates a key; others have
    /// TLS.
    Concatenation,
}

/// Addresses (IP or name) and ports in the discovery log, instead of those that hosts connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertised {
    /// For connections without TLS.
    pub plain: Option<(String, u16)>,
    /// For connections with TLS.
    pub tls: Option<(String, u16)>,
}

/// A subsystem and its namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemConfig {
    /// NVMe Qualified Name (Base 4.5), at most 223 bytes, unique in the server.
    pub nqn: String,
    /// Serial number, at most [`MAX_SERIAL`] printable ASCII characters; `None` derives it from the NQN.
    pub serial: Option<String>,
    /// NQNs of the hosts that may connect; empty admits any.
    pub allowed_hosts: Vec<String>,
    /// The addresses of the server on which it is offered; empty: on all.
    pub listen: Vec<SocketAddr>,
    /// Range of its controller identifiers; `None`: any identifier not reserved by another subsystem.
    pub controller_ids: Option<ControllerIds>,
    /// Its namespaces; may be empty, namespaces can be added later.
    pub namespaces: Vec<NamespaceConfig>,
}

impl SubsystemConfig {
    /// With these namespaces, for any host, on all addresses.
    #[must_use]
    pub fn new(nqn: &str, namespaces: Vec<NamespaceConfig>) -> Self {
        Self {
            nqn: nqn.to_owned(),
            serial: None,
            allowed_hosts: Vec::new(),
            listen: Vec::new(),
            controller_ids: None,
            namespaces,
        }
    }
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// Namespace identifier, 1 to [`MAX_NSID`], unique in the subsystem.
    pub nsid: u32,
    /// Its backend.
    pub backend: BackendSpec,
    /// Logical block size in bytes: 512 or 4096.
    pub block_size: u32,
    /// UUID; `None` derives it from the NQN and the NSID.
    pub uuid: Option<[u8; 16]>,
    /// NQNs of the hosts it is attached to; empty: all allowed hosts.
    pub hosts: Vec<String>,
    /// Its ANA group, 1 to [`MAX_GROUP`](super::paths::MAX_GROUP).
    pub ana_group: u32,
}

impl NamespaceConfig {
    /// For all allowed hosts, with a derived UUID, in the default group.
    #[must_use]
    pub fn new(nsid: u32, backend: BackendSpec, block_size: u32) -> Self {
        Self { nsid, backend, block_size, uuid: None, hosts: Vec::new(), ana_group: DEFAULT_GROUP }
    }
}

/// The highest controller identifier: those above are reserved (Base 6.3).
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
    /// All identifiers.
    pub const ALL: Self = Self { first: 1, last: MAX_CNTLID };

    /// Whether the range contains this identifier.
    #[must_use]
    pub fn contains(self, id: u16) -> bool {
        (self.first..=self.last).contains(&id)
    }
}

/// Whether the list `allowed` admits the host `hostnqn`. An empty list admits any host; any other list never admits a host
/// without a name.
#[must_use]
pub fn allows(allowed: &[String], hostnqn: &str) -> bool {
    allowed.is_empty() || !hostnqn.is_empty() && allowed.iter().any(|host| host == hostnqn)
}
