//! What can go wrong between a host and its target, and which side is to blame.

use std::io;

use crate::ledger::LedgerError;
use pilotlight_nvme::Status;
use pilotlight_nvme::pdu::FatalError;

/// A failed operation of the host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The system refused something.
    #[error("{what}: {cause}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's answer.
        cause: io::Error,
    },
    /// The target closed the connection without saying why.
    #[error("the target closed the connection while {0}; its log says why")]
    Closed(&'static str),
    /// The target sent something that the specification forbids.
    #[error("the target broke the protocol: {0}")]
    Violation(Violation),
    /// The target ended the connection with a C2HTermReq (TCP 3.6.2.5).
    #[error("the target ended the connection: {} (FES {fes:#x}, FEI {fei:#x})", fatal_name(*fes))]
    Terminated {
        /// Fatal error status.
        fes: u16,
        /// Fatal error information.
        fei: u32,
    },
    /// A command was answered with an error.
    #[error("{what}: {status}")]
    Status {
        /// The command.
        what: &'static str,
        /// The target's answer.
        status: Status,
    },
    /// A command's data arrived with a bad data digest.
    #[error("{0}: data digest mismatch")]
    DataDigest(&'static str),
    /// Nothing came back in time.
    #[error("no answer to {what} within {after_ms} ms")]
    Timeout {
        /// What was awaited.
        what: &'static str,
        /// How long, in milliseconds.
        after_ms: u64,
    },
    /// The controller has given up.
    #[error("the controller reports a fatal status (CSTS.CFS); it needs a reset")]
    ControllerFatal,
    /// The ledger's file cannot be written.
    #[error("{0}: the run ends, for what it would write could not be checked")]
    Ledger(LedgerError),
    /// The target or the request cannot do what was asked for; the text says what would be possible.
    #[error("{0}")]
    Unsupported(String),
}

impl From<Violation> for HostError {
    fn from(error: Violation) -> Self {
        Self::Violation(error)
    }
}

impl HostError {
    pub(crate) fn io(what: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self::Io { what: what.into(), cause: cause.into() }
    }
}

fn fatal_name(fes: u16) -> String {
    FatalError::from_u16(fes).map_or_else(|| "an error that the specification does not name".into(), |e| e.to_string())
}

/// A breach of the protocol by the target, and how a host names it in its H2CTermReq (TCP 3.6.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} ({fes})")]
pub struct Violation {
    /// Fatal error status.
    pub fes: FatalError,
    /// Fatal error information: the byte offset of the field, or the digest received.
    pub fei: u32,
    /// The breach in words.
    pub what: &'static str,
}

impl Violation {
    pub(crate) const fn field(offset: u32, what: &'static str) -> Self {
        Self { fes: FatalError::InvalidHeaderField, fei: offset, what }
    }
    pub(crate) const fn sequence(what: &'static str) -> Self {
        Self { fes: FatalError::Sequence, fei: 0, what }
    }
    pub(crate) const fn range(what: &'static str) -> Self {
        Self { fes: FatalError::DataOutOfRange, fei: 0, what }
    }
}
