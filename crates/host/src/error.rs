//! Errors of a host and protocol violations of a target.

use std::io;

use crate::ledger::LedgerError;
use crate::load::SpecError;
use pilotlight_nvme::Status;
use pilotlight_nvme::pdu::FatalError;

/// A failed operation of the host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A system call failed.
    #[error("{what}: {cause}")]
    Io {
        /// The operation.
        what: String,
        /// The system's error.
        cause: io::Error,
    },
    /// The target closed the connection without a C2HTermReq.
    #[error("the target closed the connection while {0}; see its log")]
    Closed(&'static str),
    /// The target violated the protocol.
    #[error("the target violated the protocol: {0}")]
    Violation(Violation),
    /// The target ended the connection with a C2HTermReq (TCP 3.6.2.5).
    #[error("the target ended the connection: {} (FES {fes:#x}, FEI {fei:#x})", fatal_name(*fes))]
    Terminated {
        /// Fatal error status.
        fes: u16,
        /// Fatal error information.
        fei: u32,
    },
    /// A command failed.
    #[error("{what}: {status}")]
    Status {
        /// The command.
        what: &'static str,
        /// Its status.
        status: Status,
    },
    /// Data digest mismatch of a command's data.
    #[error("{0}: data digest mismatch")]
    DataDigest(&'static str),
    /// No response in time.
    #[error("no response to {what} within {after_ms} ms")]
    Timeout {
        /// The request.
        what: &'static str,
        /// The timeout in milliseconds.
        after_ms: u64,
    },
    /// Authentication has failed.
    #[error("{0}")]
    Authentication(pilotlight_auth::Failure),
    /// The target requires authentication.
    #[error("the target requires authentication: give the host its secret")]
    AuthenticationRequired,
    /// The TLS handshake has failed.
    #[error("TLS: {0}")]
    Tls(pilotlight_tls::Failure),
    /// The TLS session has failed.
    #[error("{0}")]
    TlsSession(pilotlight_tls::SessionError),
    /// Fatal status of the controller.
    #[error("fatal controller status (CSTS.CFS): reset the controller")]
    ControllerFatal,
    /// The ledger's file cannot be written.
    #[error("{0}: the run was stopped, because further writes could not be verified")]
    Ledger(LedgerError),
    /// The run's ledger cannot be created or read.
    #[error("{0}")]
    LedgerUnusable(LedgerError),
    /// The run is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Unsupported by the target or invalid; the text names a valid choice.
    #[error("{0}")]
    Unsupported(String),
}

impl From<Violation> for HostError {
    fn from(error: Violation) -> Self {
        Self::Violation(error)
    }
}

impl HostError {
    /// Whether the options are at fault, not the target or the network.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Unsupported(_) | Self::Spec(_) | Self::LedgerUnusable(_))
    }

    pub(crate) fn io(what: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self::Io { what: what.into(), cause: cause.into() }
    }
}

fn fatal_name(fes: u16) -> String {
    FatalError::from_u16(fes).map_or_else(|| "a reserved error status".into(), |e| e.to_string())
}

/// A protocol violation by the target, as reported in H2CTermReq (TCP 3.6.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} ({fes})")]
pub struct Violation {
    /// Fatal error status.
    pub fes: FatalError,
    /// Fatal error information: the byte offset of the field, or the digest received.
    pub fei: u32,
    /// Description.
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
