//! The fixed parts of the messages, byte for byte (Base 8.3.5.5.1 to 8.3.5.5.6).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first six bytes of each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// AUTH_TYPE: 0 for messages of all protocols, 1 for those of DH-HMAC-CHAP.
    pub auth_type: u8,
    /// AUTH_ID: the message.
    pub auth_id: u8,
    /// Reserved.
    pub reserved: U16,
    /// T_ID: the transaction, chosen by the host.
    pub t_id: U16,
}

/// AUTH_Negotiate, without its protocol descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NegotiateHeader {
    /// Common fields.
    pub header: Header,
    /// SC_C: secure channel concatenation.
    pub sc_c: u8,
    /// NAPD: number of protocol descriptors that follow.
    pub napd: u8,
}

/// A protocol descriptor of AUTH_Negotiate, for DH-HMAC-CHAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Descriptor {
    /// AUTHID: the protocol; 1 for DH-HMAC-CHAP.
    pub auth_id: u8,
    /// Reserved.
    pub reserved: u8,
    /// HALEN: entries of the list of hash functions.
    pub halen: u8,
    /// DHLEN: entries of the list of groups.
    pub dhlen: u8,
    /// Identifiers of hash functions.
    pub hashes: [u8; 30],
    /// Identifiers of groups.
    pub groups: [u8; 30],
}

/// DH-HMAC-CHAP_Challenge; the challenge (HL bytes) and the public value (DHVLEN bytes) follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChallengeHeader {
    /// Common fields.
    pub header: Header,
    /// HL: length of the challenge in bytes.
    pub hl: u8,
    /// Reserved.
    pub reserved: u8,
    /// HashID: the selected hash function.
    pub hash_id: u8,
    /// DHgID: the selected group.
    pub dhg_id: u8,
    /// DHVLEN: length of the public value in bytes.
    pub dhvlen: U16,
    /// SEQNUM: S1.
    pub seqnum: U32,
}

/// DH-HMAC-CHAP_Reply; the response (HL bytes), the host's challenge (HL bytes) and the public value (DHVLEN bytes) follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReplyHeader {
    /// Common fields.
    pub header: Header,
    /// HL: length of response and challenge in bytes.
    pub hl: u8,
    /// Reserved.
    pub reserved: u8,
    /// CVALID: 1 if the host challenges the controller.
    pub cvalid: u8,
    /// Reserved.
    pub reserved2: u8,
    /// DHVLEN: length of the public value in bytes.
    pub dhvlen: U16,
    /// SEQNUM: S2.
    pub seqnum: U32,
}

/// DH-HMAC-CHAP_Success1; the controller's response (HL bytes) follows if RVALID is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Success1Header {
    /// Common fields.
    pub header: Header,
    /// HL: length of the response in bytes.
    pub hl: u8,
    /// Reserved.
    pub reserved: u8,
    /// RVALID: 1 if the controller responds to a challenge.
    pub rvalid: u8,
    /// Reserved.
    pub reserved2: [u8; 7],
}

/// DH-HMAC-CHAP_Success2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Success2Message {
    /// Common fields.
    pub header: Header,
    /// Reserved.
    pub reserved: [u8; 10],
}

/// AUTH_Failure1 and AUTH_Failure2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FailureMessage {
    /// Common fields.
    pub header: Header,
    /// Reason code.
    pub reason: u8,
    /// Reason code explanation.
    pub explanation: u8,
}

const _: () = {
    assert!(size_of::<Header>() == 6);
    assert!(size_of::<NegotiateHeader>() == 8);
    assert!(size_of::<Descriptor>() == 64);
    assert!(size_of::<ChallengeHeader>() == 16);
    assert!(size_of::<ReplyHeader>() == 16);
    assert!(size_of::<Success1Header>() == 16);
    assert!(size_of::<Success2Message>() == 16);
    assert!(size_of::<FailureMessage>() == 8);
};
