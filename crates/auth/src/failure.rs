//! Why an authentication fails: the reason code explanations of Failure1 and Failure2 (Base 8.3.5.5.6).

use thiserror::Error;

/// REASON CODE: the only one that the specification defines, authentication failure.
pub const REASON_AUTHENTICATION_FAILURE: u8 = 1;

/// A reason code explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[repr(u8)]
pub enum Failure {
    /// The response is wrong, or the policy refuses the peer.
    #[error("authentication failed: the secrets of host and controller differ, or one of them has none")]
    Failed = 1,
    /// The host offers no protocol that the controller has.
    #[error("authentication protocol not usable: the peer does not offer DH-HMAC-CHAP")]
    ProtocolNotUsable = 2,
    /// Secure channel concatenation is offered and refused, or required and not offered.
    #[error("secure channel concatenation mismatch: connect without --concat")]
    ConcatenationMismatch = 3,
    /// No hash function that both allow.
    #[error("hash function not usable: host and controller allow none in common")]
    HashNotUsable = 4,
    /// No Diffie-Hellman group that both allow.
    #[error("Diffie-Hellman group not usable: host and controller allow none in common")]
    GroupNotUsable = 5,
    /// A field of a message has a value that is not allowed.
    #[error("incorrect payload: the peer sent a malformed message")]
    IncorrectPayload = 6,
    /// A message that is not expected now.
    #[error("incorrect protocol message: the peer sent a message out of sequence")]
    IncorrectMessage = 7,
}

impl Failure {
    /// The explanation with this code; other codes are reserved.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Failed,
            2 => Self::ProtocolNotUsable,
            3 => Self::ConcatenationMismatch,
            4 => Self::HashNotUsable,
            5 => Self::GroupNotUsable,
            6 => Self::IncorrectPayload,
            7 => Self::IncorrectMessage,
            _ => return None,
        })
    }
}
