//! Decodes messages; any bytes give a message or an error that names the field.

use thiserror::Error;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::wire::{
    ChallengeHeader, Descriptor, FailureMessage, Header, NegotiateHeader, ReplyHeader, Success1Header, Success2Message,
};
use super::{Challenge, DH_HMAC_CHAP, FailureReport, Message, Negotiate, Offer, Reply, Success1};
use crate::failure::Failure;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Fewer bytes than a field needs.
    #[error("{0} ends within its {1}")]
    Truncated(&'static str, &'static str),
    /// A field has a value that is not allowed.
    #[error("{0}: {1} is {2}")]
    Field(&'static str, &'static str, u32),
    /// No message has this type and identifier.
    #[error("no message has AUTH_TYPE {0:#04x} and AUTH_ID {1:#04x}")]
    Unknown(u8, u8),
}

impl DecodeError {
    /// The explanation with which the receiver of such a message fails.
    #[must_use]
    pub const fn failure(self) -> Failure {
        match self {
            Self::Truncated(..) | Self::Field(..) => Failure::IncorrectPayload,
            Self::Unknown(..) => Failure::IncorrectMessage,
        }
    }
}

impl<'a> Message<'a> {
    /// Decodes the message at the start of `bytes`.
    ///
    /// # Errors
    /// The bytes are no message.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, _) = take::<Header>(bytes, "a message", "header")?;
        let t_id = header.t_id.get();
        match (header.auth_type, header.auth_id) {
            (0x00, 0x00) => Negotiate::decode(bytes).map(Self::Negotiate),
            (0x01, 0x01) => Challenge::decode(bytes).map(Self::Challenge),
            (0x01, 0x02) => Reply::decode(bytes).map(Self::Reply),
            (0x01, 0x03) => Success1::decode(bytes).map(Self::Success1),
            (0x01, 0x04) => take::<Success2Message>(bytes, "Success2", "fields").map(|_| Self::Success2 { t_id }),
            (0x00, 0xf0) => FailureReport::decode(bytes, "Failure2").map(Self::Failure2),
            (0x00, 0xf1) => FailureReport::decode(bytes, "Failure1").map(Self::Failure1),
            (auth_type, auth_id) => Err(DecodeError::Unknown(auth_type, auth_id)),
        }
    }

    /// The transaction of the message in `bytes`, even of a malformed one; 0 if there is none.
    #[must_use]
    pub fn transaction(bytes: &[u8]) -> u16 {
        Header::read_from_prefix(bytes).map_or(0, |(header, _)| header.t_id.get())
    }
}

impl<'a> Negotiate<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        const MESSAGE: &str = "Negotiate";
        let (fixed, mut rest) = take::<NegotiateHeader>(bytes, MESSAGE, "fields")?;
        if fixed.napd == 0 {
            return Err(DecodeError::Field(MESSAGE, "NAPD", 0));
        }
        let mut offer = None;
        for _ in 0..fixed.napd {
            let (descriptor, after) = take::<Descriptor>(rest, MESSAGE, "protocol descriptors")?;
            rest = after;
            if offer.is_none() && descriptor.auth_id == DH_HMAC_CHAP {
                offer = Some(Offer::of(descriptor)?);
            }
        }
        Ok(Self { t_id: fixed.header.t_id.get(), sc_c: fixed.sc_c, offer })
    }
}

impl<'a> Offer<'a> {
    fn of(descriptor: &'a Descriptor) -> Result<Self, DecodeError> {
        let list = |list: &'a [u8], len: u8, name| {
            list.get(..usize::from(len)).ok_or(DecodeError::Field("Negotiate", name, u32::from(len)))
        };
        Ok(Self {
            hashes: list(&descriptor.hashes, descriptor.halen, "HALEN")?,
            groups: list(&descriptor.groups, descriptor.dhlen, "DHLEN")?,
        })
    }
}

impl<'a> Challenge<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        const MESSAGE: &str = "Challenge";
        let (fixed, rest) = take::<ChallengeHeader>(bytes, MESSAGE, "fields")?;
        let (challenge, rest) = split(rest, fixed.hl.into(), MESSAGE, "challenge")?;
        let (public_value, _) = split(rest, fixed.dhvlen.get().into(), MESSAGE, "DH value")?;
        Ok(Self {
            t_id: fixed.header.t_id.get(),
            hash_id: fixed.hash_id,
            group_id: fixed.dhg_id,
            seqnum: fixed.seqnum.get(),
            challenge,
            public_value,
        })
    }
}

impl<'a> Reply<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        const MESSAGE: &str = "Reply";
        let (fixed, rest) = take::<ReplyHeader>(bytes, MESSAGE, "fields")?;
        let is_challenge = flag(fixed.cvalid, MESSAGE, "CVALID")?;
        let (response, rest) = split(rest, fixed.hl.into(), MESSAGE, "response")?;
        // It takes its place even if it is not valid.
        let (c2, rest) = split(rest, fixed.hl.into(), MESSAGE, "challenge")?;
        let (public_value, _) = split(rest, fixed.dhvlen.get().into(), MESSAGE, "DH value")?;
        Ok(Self { t_id: fixed.header.t_id.get(), seqnum: fixed.seqnum.get(), response, c2, is_challenge, public_value })
    }
}

impl<'a> Success1<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        const MESSAGE: &str = "Success1";
        let (fixed, rest) = take::<Success1Header>(bytes, MESSAGE, "fields")?;
        let response = match flag(fixed.rvalid, MESSAGE, "RVALID")? {
            true => Some(split(rest, fixed.hl.into(), MESSAGE, "response")?.0),
            false => None,
        };
        Ok(Self { t_id: fixed.header.t_id.get(), hl: fixed.hl, response })
    }
}

impl FailureReport {
    fn decode(bytes: &[u8], message: &'static str) -> Result<Self, DecodeError> {
        let (fixed, _) = take::<FailureMessage>(bytes, message, "fields")?;
        Ok(Self { t_id: fixed.header.t_id.get(), reason: fixed.reason, explanation: fixed.explanation })
    }
}

/// The structure at the start of `bytes`, and the bytes after it.
fn take<'a, T>(bytes: &'a [u8], message: &'static str, field: &'static str) -> Result<(&'a T, &'a [u8]), DecodeError>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    T::ref_from_prefix(bytes).map_err(|_| DecodeError::Truncated(message, field))
}

/// The first `len` bytes, and the bytes after them.
fn split<'a>(
    bytes: &'a [u8],
    len: usize,
    message: &'static str,
    field: &'static str,
) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
    bytes.split_at_checked(len).ok_or(DecodeError::Truncated(message, field))
}

fn flag(value: u8, message: &'static str, field: &'static str) -> Result<bool, DecodeError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(DecodeError::Field(message, field, other.into())),
    }
}
