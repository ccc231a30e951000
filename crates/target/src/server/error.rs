//! What can go wrong with a server: its start, changes while it runs, its end.

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
        source: io::Error,
    },
    /// A namespace cannot be opened.
    #[error("cannot open namespace {nsid} of {nqn}: {source}")]
    Namespace {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
        /// Why.
        source: OpenError,
    },
    /// A reactor did not start.
    #[error(transparent)]
    Reactor(#[from] pilotlight_reactor::StartError),
    /// The system refused memory, a thread or a descriptor.
    #[error("the system refused what an I/O thread needs: {0}")]
    Resources(#[from] io::Error),
}

/// Why a change to a running server was refused.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No such subsystem.
    #[error("there is no subsystem {0}")]
    NoSubsystem(String),
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
    /// The backend refused.
    #[error("the backend refused: {0}")]
    Backend(#[from] io::Error),
}

/// Why a server did not stop in time.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// Requests were still in progress.
    #[error("requests were still in progress after {0:?}; their connections were cut")]
    Timeout(Duration),
    /// A namespace could not be flushed.
    #[error("namespace {nsid} of {nqn} could not be flushed: {reason}")]
    Flush {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
        /// Why.
        reason: String,
    },
}
