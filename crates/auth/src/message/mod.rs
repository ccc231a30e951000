//! The messages of DH-HMAC-CHAP, which travel as data of Authentication Send and Receive (Base 8.3.5.5).
//!
//! Decoding accepts bytes after a message, because the buffers of Linux are longer than the messages, and ignores reserved fields.

mod decode;
mod encode;
pub mod wire;

pub use decode::DecodeError;

use crate::failure::Failure;

/// AUTHID of DH-HMAC-CHAP in AUTH_Negotiate.
pub const DH_HMAC_CHAP: u8 = 1;
/// Bytes of the longest message, a Reply with SHA-512 and FFDHE8192.
pub const MAX_MESSAGE: usize = 16 + 2 * 64 + 1024;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Host: start a transaction.
    Negotiate(Negotiate<'a>),
    /// Controller: respond to this.
    Challenge(Challenge<'a>),
    /// Host: the response.
    Reply(Reply<'a>),
    /// Controller: the host is authenticated.
    Success1(Success1<'a>),
    /// Host: the controller is authenticated.
    Success2 {
        /// The transaction.
        t_id: u16,
    },
    /// Controller: the transaction failed.
    Failure1(FailureReport),
    /// Host: the transaction failed.
    Failure2(FailureReport),
}

impl Message<'_> {
    /// The transaction of the message.
    #[must_use]
    pub const fn t_id(&self) -> u16 {
        match self {
            Self::Negotiate(message) => message.t_id,
            Self::Challenge(message) => message.t_id,
            Self::Reply(message) => message.t_id,
            Self::Success1(message) => message.t_id,
            Self::Success2 { t_id } => *t_id,
            Self::Failure1(report) | Self::Failure2(report) => report.t_id,
        }
    }
}

/// AUTH_Negotiate, with the first descriptor of DH-HMAC-CHAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiate<'a> {
    /// The transaction.
    pub t_id: u16,
    /// SC_C, secure channel concatenation: a [`Concatenation`](crate::Concatenation), or a reserved value.
    pub sc_c: u8,
    /// The lists of DH-HMAC-CHAP; none if the host does not offer it.
    pub offer: Option<Offer<'a>>,
}

/// What a host offers for DH-HMAC-CHAP, as identifiers, known or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    /// Hash functions.
    pub hashes: &'a [u8],
    /// Groups.
    pub groups: &'a [u8],
}

/// DH-HMAC-CHAP_Challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge<'a> {
    /// The transaction.
    pub t_id: u16,
    /// Identifier of the hash function.
    pub hash_id: u8,
    /// Identifier of the group.
    pub group_id: u8,
    /// S1.
    pub seqnum: u32,
    /// C1.
    pub challenge: &'a [u8],
    /// The controller's public value; empty without a group.
    pub public_value: &'a [u8],
}

/// DH-HMAC-CHAP_Reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The transaction.
    pub t_id: u16,
    /// S2.
    pub seqnum: u32,
    /// The host's response.
    pub response: &'a [u8],
    /// C2. As long as the response, also without a challenge.
    pub c2: &'a [u8],
    /// CVALID: whether C2 is a challenge for the controller.
    pub is_challenge: bool,
    /// The host's public value; empty without a group.
    pub public_value: &'a [u8],
}

/// DH-HMAC-CHAP_Success1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Success1<'a> {
    /// The transaction.
    pub t_id: u16,
    /// Length of a response in bytes, present or not.
    pub hl: u8,
    /// The controller's response; none if the host did not challenge it.
    pub response: Option<&'a [u8]>,
}

/// AUTH_Failure1 or AUTH_Failure2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureReport {
    /// The transaction.
    pub t_id: u16,
    /// Reason code; see [`crate::failure::REASON_AUTHENTICATION_FAILURE`].
    pub reason: u8,
    /// Reason code explanation; see [`FailureReport::failure`].
    pub explanation: u8,
}

impl FailureReport {
    /// A report of `failure`.
    #[must_use]
    pub const fn new(t_id: u16, failure: Failure) -> Self {
        Self { t_id, reason: crate::failure::REASON_AUTHENTICATION_FAILURE, explanation: failure as u8 }
    }

    /// The explanation; [`Failure::Failed`] for a reserved one.
    #[must_use]
    pub fn failure(&self) -> Failure {
        Failure::from_code(self.explanation).unwrap_or(Failure::Failed)
    }
}

#[cfg(test)]
mod tests;
