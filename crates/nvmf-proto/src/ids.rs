//! Identities of connections and hosts.

/// Index of the discovery service in place of a subsystem.
pub const DISCOVERY: usize = usize::MAX;

/// Identity of a listening address: the NVM subsystem port (Base 3.1.1). No other listener of this server gets it soon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// Address of a connection. The serial number distinguishes it from a later one at the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnAddr {
    /// The I/O thread.
    pub thread: u16,
    /// Index in that thread's table.
    pub index: u32,
    /// Serial number within that thread.
    pub serial: u32,
}

/// Identity of a host within a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostKey {
    /// Index of the subsystem; [`DISCOVERY`] for the discovery service.
    pub subsystem: usize,
    /// Host identifier.
    pub hostid: [u8; 16],
    /// Host NQN.
    pub hostnqn: String,
}
