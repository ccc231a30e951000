//! Why a handshake or a session ended.

use std::fmt;
use std::io::ErrorKind;

use s2n_tls::error::{Error, ErrorType};

use crate::wire::Wire;

/// First byte of a TLS handshake record.
const HANDSHAKE_RECORD: u8 = 22;
/// First byte of a TLS alert record.
const ALERT_RECORD: u8 = 21;
/// First byte of an NVMe/TCP connection without TLS: the type of an ICReq PDU.
const IC_REQ: u8 = 0;
/// Bytes of an identity that a message shows.
const SHOWN: usize = 320;

/// Why a handshake failed. The message says what to check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer sends something other than TLS.
    #[error("the peer does not speak TLS (first byte {first:#04x}){}", hint(*first))]
    NotTls {
        /// The first byte that it sent.
        first: u8,
    },
    /// The client offers only older versions.
    #[error("the client does not offer TLS 1.3: enable it there")]
    NoTls13,
    /// The client offers no PSK.
    #[error("the client offers no pre-shared key: configure one there (certificates are not supported)")]
    NoPsk,
    /// The client offers PSKs only without a Diffie-Hellman exchange.
    #[error("the client offers pre-shared keys without (EC)DHE only: enable the mode psk_dhe_ke there")]
    NoDhe,
    /// None of the offered identities is configured.
    #[error("no pre-shared key is configured for identity \"{identity}\"{}: compare the NQNs, the hash and the key's digest in it", others(*offered))]
    UnknownIdentity {
        /// The first one, printable and shortened.
        identity: String,
        /// Number of offered identities that were looked up.
        offered: usize,
    },
    /// The identity is configured, but the peer has another key for it (the binder does not match).
    #[error("the client has another key for its identity: configure the same pre-shared key on both sides")]
    WrongKey,
    /// The client has computed the binder of the key with another hash than the key's.
    #[error(
        "the client's TLS library uses another hash for this pre-shared key than the key's, as GnuTLS before 3.8.11 does with SHA-384: \
         update it there, or use a key of SHA-256 (`gen-tls-key --hmac=1`)"
    )]
    BinderHash,
    /// The peer does not offer the cipher suite that belongs to the hash of the PSK.
    #[error("no common cipher suite: {needed} is needed for the hash of this pre-shared key")]
    NoCommonCipher {
        /// The suite.
        needed: &'static str,
    },
    /// The server refused, or the client sent an alert.
    #[error("the peer refused the handshake: {0}")]
    Alert(Alert),
    /// The peer closed the connection.
    #[error("the peer closed the connection during the handshake")]
    Closed,
    /// The socket failed.
    #[error("the connection failed during the handshake: {0}")]
    Io(ErrorKind),
    /// A message that the protocol does not allow, or an error of the library.
    #[error("the handshake failed: {message} ({name})")]
    Protocol {
        /// Name of the error in s2n-tls.
        name: &'static str,
        /// Its description there.
        message: &'static str,
    },
}

fn hint(first: u8) -> &'static str {
    if first == IC_REQ {
        ": it connects with plain NVMe/TCP; enable TLS there, or use a listener without TLS"
    } else {
        ""
    }
}

fn others(offered: usize) -> String {
    if offered > 1 { format!(" or {} more", offered - 1) } else { String::new() }
}

impl Failure {
    /// The failure of a handshake on `wire`.
    #[cold]
    pub(crate) fn new(error: Error, wire: &Wire) -> Self {
        if let Some(failure) = error.application_error().and_then(|error| error.downcast_ref::<Self>()) {
            return failure.clone();
        }
        match (error.kind(), Self::not_tls(wire)) {
            (ErrorType::IOError, _) => Self::Io(std::io::Error::from(error).kind()),
            (ErrorType::Alert, _) => Self::Alert(Alert(wire.conn_ref().alert().unwrap_or_default())),
            (_, Some(failure)) => failure,
            (ErrorType::ConnectionClosed, _) => Self::Closed,
            _ if error.name() == "S2N_ERR_BAD_PSK_BINDER" => Self::WrongKey,
            _ => Self::library(&error),
        }
    }

    /// That the first byte is of something else. (s2n-tls finds out only when it has a record of the length that it reads there, which
    /// an ICReq does not fill.)
    pub(crate) fn not_tls(wire: &Wire) -> Option<Self> {
        let first = wire.first().filter(|first| ![HANDSHAKE_RECORD, ALERT_RECORD].contains(first))?;
        Some(Self::NotTls { first })
    }

    /// An error of s2n-tls without a variant of its own.
    pub(crate) fn library(error: &Error) -> Self {
        Self::Protocol { name: error.name(), message: error.message() }
    }

    /// The identity as printable text.
    pub(crate) fn unknown_identity(identity: &[u8], offered: usize) -> Self {
        let shown = &identity[..identity.len().min(SHOWN)];
        Self::UnknownIdentity { identity: shown.escape_ascii().to_string(), offered }
    }

    /// The alert that the server sends, in plain text, as none of these happens after its ServerHello. An unknown identity and a wrong
    /// key are answered alike, so that the existing identities cannot be found out (RFC 8446, appendix E.6).
    pub(crate) fn alert(&self) -> Option<Alert> {
        match self {
            Self::UnknownIdentity { .. } | Self::WrongKey | Self::BinderHash => Some(Alert::DECRYPT_ERROR),
            Self::NoTls13 => Some(Alert::PROTOCOL_VERSION),
            Self::NoPsk | Self::NoDhe | Self::NoCommonCipher { .. } => Some(Alert::HANDSHAKE_FAILURE),
            _ => None,
        }
    }
}

/// Why a call of a session did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The socket would block: poll it, for reading after a read, for writing after a write.
    #[error("the socket would block")]
    WouldBlock,
    /// The connection ended without the announcement of TLS (close_notify): bytes may be missing.
    #[error("the peer closed the connection without close_notify")]
    Truncated,
    /// This side has sent close_notify, or the session has failed before.
    #[error("the session is closed")]
    Closed,
    /// The peer ended the session with an alert.
    #[error("the peer ended the TLS session: {0}")]
    Alert(Alert),
    /// The keys must change, which a session in the kernel cannot do.
    #[error(
        "the keys of kernel TLS must change (KeyUpdate), which is not possible here: close the connection, and connect again"
    )]
    KeyUpdate,
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(ErrorKind),
    /// A record that could not be decrypted, or a message that the protocol does not allow.
    #[error("the TLS session failed: {message} ({name})")]
    Protocol {
        /// Name of the error in s2n-tls or in the kernel.
        name: &'static str,
        /// Its description.
        message: &'static str,
    },
}

/// Why a session is not in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no kernel TLS ({option}: {error}){}", if *.kind == ErrorKind::NotFound { ": load the modules `tls` and `gcm`" } else { "" })]
pub struct KernelRefusal {
    option: &'static str,
    error: String,
    kind: ErrorKind,
}

impl KernelRefusal {
    pub(crate) fn new(option: &'static str, error: &std::io::Error) -> Self {
        Self { option, error: error.to_string(), kind: error.kind() }
    }

    /// s2n-tls has not given the secrets.
    pub(crate) fn secrets() -> Self {
        Self::new("secrets", &ErrorKind::Unsupported.into())
    }
}

impl SessionError {
    /// The failure of a session on `wire`.
    #[cold]
    pub(crate) fn new(error: Error, wire: &Wire) -> Self {
        match error.kind() {
            ErrorType::IOError => Self::Io(std::io::Error::from(error).kind()),
            ErrorType::ConnectionClosed => Self::Truncated,
            ErrorType::Alert => Self::Alert(Alert(wire.conn_ref().alert().unwrap_or_default())),
            _ => Self::Protocol { name: error.name(), message: error.message() },
        }
    }
}

/// A TLS alert (RFC 8446, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert(pub u8);

impl Alert {
    pub(crate) const CLOSE_NOTIFY: Self = Self(0);
    pub(crate) const HANDSHAKE_FAILURE: Self = Self(40);
    pub(crate) const DECRYPT_ERROR: Self = Self(51);
    pub(crate) const PROTOCOL_VERSION: Self = Self(70);

    /// Its record in plain text: alert, TLS 1.2 as the legacy version, 2 bytes, fatal.
    pub(crate) fn record(self) -> [u8; 7] {
        [ALERT_RECORD, 3, 3, 0, 2, 2, self.0]
    }

    /// Its name in the RFC.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "close_notify",
            10 => "unexpected_message",
            20 => "bad_record_mac",
            22 => "record_overflow",
            40 => "handshake_failure",
            47 => "illegal_parameter",
            50 => "decode_error",
            51 => "decrypt_error",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            90 => "user_canceled",
            109 => "missing_extension",
            110 => "unsupported_extension",
            115 => "unknown_psk_identity",
            116 => "certificate_required",
            _ => "another alert",
        }
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "alert {} ({})", self.0, self.name())
    }
}
