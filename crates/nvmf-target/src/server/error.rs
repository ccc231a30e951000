//! What can go wrong with a server: its start, changes while it runs, its end.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::backend::OpenError;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        r#source: io::Error,
    },
    /// A namespace cannot be opened.
    #[error("cannot open namespace {nsid} of {nqn}: {source}")]
    Namespace {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
        /// Why.
        r#source: OpenError,
    },
    /// A reactor did not start.
    #[error(transparent)]
    Reactor(#[from] pilotlight_reactor::StartError),
    /// The system refused memory, a thread or a descriptor.
    #[error("the system refused what an I/O thread needs: {0}")]
    Resources(io::Error),
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Resources(error)
    }
}

/// Why a change to a running server was refused.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No such subsystem.
    #[error("there is no subsystem {0}")]
    NoSubsystem(String),
    /// There is one of this name.
    #[error("there is a subsystem {0} already")]
    SubsystemExists(String),
    /// Too many names of subsystems.
    #[error("the server has had {0} subsystems of different names, the most that it can have: restart it")]
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
    #[error("subsystem {nqn} has a namespace {nsid} already; remove it first or choose another NSID")]
    Exists {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
    },
    /// A namespace cannot get another number and another block size at once.
    #[error(
        "namespace {nsid} of {nqn} has blocks of {has} bytes, and {asked} are asked for under its new number; its storage is open with {has}: remove it first, or restart"
    )]
    OtherBlockSize {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
        /// Its logical block size in bytes.
        has: u32,
        /// What was asked for.
        asked: u32,
    },
    /// The backend cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Likewise, and a namespace that was removed still has its storage open.
    #[error(
        "{0}; a namespace that was removed before has its storage still open, as requests to it have not come back: try again when they have"
    )]
    Closing(OpenError),
    /// The backend refused.
    #[error("the backend refused: {0}")]
    Backend(io::Error),
}

impl From<io::Error> for ServerError {
    fn from(error: io::Error) -> Self {
        Self::Backend(error)
    }
}

/// What was left undone when a server stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainError {
    /// How long the stop was allowed to take.
    pub within: Duration,
    /// At least one.
    pub leftovers: Vec<Leftover>,
}

/// Something that was left undone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Leftover {
    /// A namespace's backend did not return requests.
    #[error("namespace {nsid} of {nqn} did not return {requests} request(s)")]
    Requests {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
        /// How many.
        requests: usize,
    },
    /// Connections had commands in progress, or answers that their hosts did not take.
    #[error("{0} connection(s) had commands in progress and were cut")]
    Connections(usize),
    /// A reactor is in a call that does not return: most likely of a namespace whose flush is late as well.
    #[error("reactor {0} did not respond")]
    Reactor(u16),
    /// A namespace's flush was not over.
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
        /// Why.
        reason: String,
    },
}

impl Leftover {
    /// The namespace at fault, if it is one.
    #[must_use]
    pub fn nsid(&self) -> Option<u32> {
        match self {
            Self::Requests { nsid, .. } | Self::FlushLate { nsid, .. } | Self::FlushFailed { nsid, .. } => Some(*nsid),
            Self::Connections(_) | Self::Reactor(_) => None,
        }
    }
}

impl DrainError {
    /// Whether a flush failed, which is worse than being late: data may be lost although their medium answers.
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
