//! Errors of a server: start, changes, stop.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use pilotlight_storage::OpenError;

use super::listener::Address;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        r#source: io::Error,
    },
    /// An address for the port of the discovery service cannot be listened on.
    #[error("cannot listen on {address} for discovery: {source}; change or remove `port` in [discovery]")]
    ListenForDiscovery {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        r#source: io::Error,
    },
    /// A namespace cannot be opened.
    #[error("cannot open namespace {nsid} of {nqn}: {source}")]
    Namespace {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
        /// The reason.
        r#source: OpenError,
    },
    /// A reactor did not start.
    #[error(transparent)]
    Reactor(#[from] pilotlight_reactor::StartError),
    /// The system refused memory, a thread or a descriptor.
    #[error("cannot allocate memory, a thread or a descriptor: {0}")]
    Resources(io::Error),
}

impl StartError {
    /// This address cannot be listened on.
    pub(crate) fn listen(Address { address, is_for_discovery, .. }: Address, source: io::Error) -> Self {
        if is_for_discovery { Self::ListenForDiscovery { address, source } } else { Self::Listen { address, source } }
    }
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Resources(error)
    }
}

/// Why a change to a running server was refused.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address cannot be listened on. The addresses are as before.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        r#source: io::Error,
    },
    /// No such subsystem.
    #[error("no subsystem {0}")]
    NoSubsystem(String),
    /// The subsystem exists.
    #[error("subsystem {0} already exists")]
    SubsystemExists(String),
    /// Too many subsystems.
    #[error("the limit of {0} subsystem names since the start is reached: restart the server")]
    TooManySubsystems(usize),
    /// No such namespace.
    #[error("subsystem {nqn} has no namespace {nsid}")]
    NoNamespace {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
    },
    /// The NSID is in use.
    #[error("subsystem {nqn} already has namespace {nsid}: remove it first or use another NSID")]
    Exists {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
    },
    /// The block size of a moved namespace cannot change.
    #[error(
        "namespace {nsid} of {nqn} has a block size of {actual} bytes, which a move cannot change to {requested}: remove the namespace first, or restart the server"
    )]
    OtherBlockSize {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
        /// Its logical block size in bytes.
        actual: u32,
        /// The requested block size in bytes.
        requested: u32,
    },
    /// The backend cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The backend cannot be opened while the storage of a removed namespace is open.
    #[error(
        "{0}; the storage of a removed namespace is still open because of requests in flight: retry when they have completed"
    )]
    Closing(OpenError),
    /// The backend refused.
    #[error("backend error: {0}")]
    Backend(io::Error),
}

impl From<io::Error> for ServerError {
    fn from(error: io::Error) -> Self {
        Self::Backend(error)
    }
}

/// Unfinished work of a stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainError {
    /// Time limit of the stop.
    pub timeout: Duration,
    /// At least one.
    pub leftovers: Vec<Leftover>,
}

/// A piece of unfinished work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Leftover {
    /// A namespace's backend did not return requests.
    #[error("namespace {nsid} of {nqn} did not return {requests} request(s)")]
    Requests {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
        /// The number of requests.
        requests: usize,
    },
    /// Connections had commands in progress, or unsent responses.
    #[error("{0} connection(s) with commands in progress were closed")]
    Connections(usize),
    /// A reactor is in a call that does not return, probably of a namespace with a late flush.
    #[error("reactor {0} did not respond")]
    Reactor(u16),
    /// A namespace's flush did not finish.
    #[error("namespace {nsid} of {nqn} did not finish its flush")]
    FlushLate {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
    },
    /// A namespace could not be flushed.
    #[error("namespace {nsid} of {nqn} could not be flushed: {reason}")]
    FlushFailed {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
        /// The reason.
        reason: String,
    },
}

impl Leftover {
    /// The namespace, if any.
    #[must_use]
    pub fn nsid(&self) -> Option<u32> {
        match self {
            Self::Requests { nsid, .. } | Self::FlushLate { nsid, .. } | Self::FlushFailed { nsid, .. } => Some(*nsid),
            Self::Connections(_) | Self::Reactor(_) => None,
        }
    }
}

impl DrainError {
    /// Whether a flush failed: data may be lost.
    #[must_use]
    pub fn flush_failed(&self) -> bool {
        self.leftovers.iter().any(|leftover| matches!(leftover, Leftover::FlushFailed { .. }))
    }
}

impl fmt::Display for DrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, leftover) in self.leftovers.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{leftover}")?;
        }
        Ok(())
    }
}

impl std::error::Error for DrainError {}
