//! Encodes messages.

use zerocopy::IntoBytes;

use super::wire::{
    ChallengeHeader, Descriptor, FailureMessage, Header, NegotiateHeader, ReplyHeader, Success1Header, Success2Message,
};
use super::{Challenge, DH_HMAC_CHAP, FailureReport, Message, Negotiate, Reply, Success1};

impl Message<'_> {
    /// The bytes of the message. Lists of more than 30 entries are cut off, as are lengths that their fields cannot hold.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Negotiate(message) => message.encode(),
            Self::Challenge(message) => message.encode(),
            Self::Reply(message) => message.encode(),
            Self::Success1(message) => message.encode(),
            Self::Success2 { t_id } => {
                Success2Message { header: header(1, 4, *t_id), reserved: [0; 10] }.as_bytes().to_vec()
            }
            Self::Failure1(report) => report.encode(0xf1),
            Self::Failure2(report) => report.encode(0xf0),
        }
    }
}

impl Negotiate<'_> {
    fn encode(&self) -> Vec<u8> {
        let fixed = NegotiateHeader { header: header(0, 0, self.t_id), sc_c: self.sc_c, napd: 1 };
        // Without an offer it is a descriptor of no protocol, because there must be one.
        let (hashes, halen) = list(self.offer.as_ref().map_or(&[], |offer| offer.hashes));
        let (groups, dhlen) = list(self.offer.as_ref().map_or(&[], |offer| offer.groups));
        let auth_id = if self.offer.is_some() { DH_HMAC_CHAP } else { 0 };
        let descriptor = Descriptor { auth_id, reserved: 0, halen, dhlen, hashes, groups };
        [fixed.as_bytes(), descriptor.as_bytes()].concat()
    }
}

impl Challenge<'_> {
    fn encode(&self) -> Vec<u8> {
        let fixed = ChallengeHeader {
            header: header(1, 1, self.t_id),
            hl: self.challenge.len() as u8,
            reserved: 0,
            hash_id: self.hash_id,
            dhg_id: self.group_id,
            dhvlen: (self.public_value.len() as u16).into(),
            seqnum: self.seqnum.into(),
        };
        [fixed.as_bytes(), self.challenge, self.public_value].concat()
    }
}

impl Reply<'_> {
    fn encode(&self) -> Vec<u8> {
        let fixed = ReplyHeader {
            header: header(1, 2, self.t_id),
            hl: self.response.len() as u8,
            reserved: 0,
            cvalid: self.is_challenge.into(),
            reserved2: 0,
            dhvlen: (self.public_value.len() as u16).into(),
            seqnum: self.seqnum.into(),
        };
        [fixed.as_bytes(), self.response, self.c2, self.public_value].concat()
    }
}

impl Success1<'_> {
    fn encode(&self) -> Vec<u8> {
        let fixed = Success1Header {
            header: header(1, 3, self.t_id),
            hl: self.hl,
            reserved: 0,
            rvalid: self.response.is_some().into(),
            reserved2: [0; 7],
        };
        [fixed.as_bytes(), self.response.unwrap_or_default()].concat()
    }
}

impl FailureReport {
    fn encode(&self, auth_id: u8) -> Vec<u8> {
        let header = header(0, auth_id, self.t_id);
        FailureMessage { header, reason: self.reason, explanation: self.explanation }.as_bytes().to_vec()
    }
}

fn header(auth_type: u8, auth_id: u8, t_id: u16) -> Header {
    Header { auth_type, auth_id, reserved: 0.into(), t_id: t_id.into() }
}

/// A list of identifiers as it travels, and its length.
fn list(identifiers: &[u8]) -> ([u8; 30], u8) {
    let mut field = [0; 30];
    let len = identifiers.len().min(field.len());
    field[..len].copy_from_slice(&identifiers[..len]);
    (field, len as u8)
}
