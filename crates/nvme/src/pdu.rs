//! NVMe/TCP protocol data units (TCP 3.6.2) and the fatal errors that end a connection (TCP 3.5).
//!
//! A PDU is a header (`hlen` bytes), a header digest where negotiated, padding up to `pdo`, data, and a data digest
//! where negotiated; `plen` counts all of it. [`CommonHeader`] is the first eight bytes of each.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::{Cqe, Sqe};

/// PDU types (TCP 3.3, Figure 10). Bit 0 is the direction: 0 towards the controller, 1 towards the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PduType {
    /// Initialize Connection Request, host to controller.
    ICReq = 0x00,
    /// Initialize Connection Response.
    ICResp = 0x01,
    /// Terminate connection, host to controller.
    H2CTermReq = 0x02,
    /// Terminate connection, controller to host.
    C2HTermReq = 0x03,
    /// Command capsule, with or without in-capsule data.
    CapsuleCmd = 0x04,
    /// Response capsule.
    CapsuleResp = 0x05,
    /// Data, host to controller, requested by an R2T.
    H2CData = 0x06,
    /// Data, controller to host.
    C2HData = 0x07,
    /// Ready to transfer.
    R2T = 0x09,
}

impl PduType {
    /// Decodes the first byte of a PDU.
    #[must_use]
    pub const fn from_u8(byte: u8) -> Option<Self> {
        Some(match byte {
            0x00 => Self::ICReq,
            0x01 => Self::ICResp,
            0x02 => Self::H2CTermReq,
            0x03 => Self::C2HTermReq,
            0x04 => Self::CapsuleCmd,
            0x05 => Self::CapsuleResp,
            0x06 => Self::H2CData,
            0x07 => Self::C2HData,
            0x09 => Self::R2T,
            _ => return None,
        })
    }

    /// The required HLEN of this type, in bytes.
    #[must_use]
    pub const fn header_len(self) -> usize {
        match self {
            Self::ICReq | Self::ICResp => 128,
            Self::CapsuleCmd => 72,
            _ => 24,
        }
    }
}

bitflags::bitflags! {
    /// FLAGS of the common header (TCP 3.6.2). The defined bits depend on the type.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Flags: u8 {
        /// A header digest follows the header.
        const HDGST = 1 << 0;
        /// A data digest follows the data.
        const DDGST = 1 << 1;
        /// The last data PDU of its transfer (H2CData: of its R2T).
        const LAST_PDU = 1 << 2;
        /// C2HData: the command succeeded and no response capsule follows.
        const SUCCESS = 1 << 3;
    }
}

/// The first eight bytes of every PDU (TCP 3.6.2.1).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommonHeader {
    /// PDU type.
    pub pdu_type: u8,
    /// Flags, see [`Flags`].
    pub flags: u8,
    /// Header length in bytes, without digest.
    pub hlen: u8,
    /// PDU data offset in bytes from the start of the PDU; 0 without data.
    pub pdo: u8,
    /// Length of the whole PDU in bytes.
    pub plen: U32,
}

impl CommonHeader {
    /// Length in bytes.
    pub const LEN: usize = 8;

    /// A header of `pdu_type` whose PDU is `plen` bytes long.
    #[must_use]
    pub fn new(pdu_type: PduType, flags: Flags, pdo: u8, plen: u32) -> Self {
        Self {
            pdu_type: pdu_type as u8,
            flags: flags.bits(),
            hlen: pdu_type.header_len() as u8,
            pdo,
            plen: U32::new(plen),
        }
    }

    /// The flags; unknown bits are kept.
    #[must_use]
    pub const fn flags(&self) -> Flags {
        Flags::from_bits_retain(self.flags)
    }
}

/// Digests requested in ICReq or enabled in ICResp (DGST).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// HDGST_ENABLE, bit 0.
    pub header: bool,
    /// DDGST_ENABLE, bit 1.
    pub data: bool,
}

impl Digests {
    /// Decodes the DGST field; `None` if a reserved bit is set.
    #[must_use]
    pub const fn from_u8(byte: u8) -> Option<Self> {
        if byte & !3 != 0 {
            return None;
        }
        Some(Self { header: byte & 1 != 0, data: byte & 2 != 0 })
    }

    /// The DGST field.
    #[must_use]
    pub const fn to_u8(self) -> u8 {
        self.header as u8 | (self.data as u8) << 1
    }
}

/// Initialize Connection Request (TCP 3.6.2.2).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcReq {
    /// Common header.
    pub ch: CommonHeader,
    /// PDU format version; 0 is the only one.
    pub pfv: U16,
    /// Host PDU data alignment: data that the controller sends starts at a multiple of `(hpda + 1) * 4` bytes.
    pub hpda: u8,
    /// Requested digests, see [`Digests`].
    pub dgst: u8,
    /// Most R2Ts outstanding per command, less one.
    pub maxr2t: U32,
    /// Reserved.
    pub reserved: [u8; 112],
}

/// Initialize Connection Response (TCP 3.6.2.3).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcResp {
    /// Common header.
    pub ch: CommonHeader,
    /// PDU format version; 0.
    pub pfv: U16,
    /// Controller PDU data alignment: data that the host sends starts at a multiple of `(cpda + 1) * 4` bytes.
    pub cpda: u8,
    /// Digests in use, see [`Digests`].
    pub dgst: u8,
    /// MAXH2CDATA: most bytes of data in one H2CData PDU; at least 4096, a multiple of 4.
    pub maxh2cdata: U32,
    /// Reserved.
    pub reserved: [u8; 112],
}

/// Terminate connection request, both directions (TCP 3.6.2.4, 3.6.2.5); up to 128 bytes of the offending header
/// follow. It never has a digest.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TermReq {
    /// Common header.
    pub ch: CommonHeader,
    /// Fatal error status, see [`FatalError`].
    pub fes: U16,
    /// Fatal error information: for a header field, its byte offset in the PDU (the lowest
    /// where several are wrong); for a header digest, the one received; else reserved.
    pub fei: U32,
    /// Reserved.
    pub reserved: [u8; 10],
}

impl TermReq {
    /// Length of the fixed part in bytes.
    pub const LEN: usize = 24;
    /// Most bytes of the offending PDU's header that may follow.
    pub const MAX_DATA: usize = 128;
}

/// Command capsule header and command (TCP 3.6.2.6).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CapsuleCmd {
    /// Common header.
    pub ch: CommonHeader,
    /// The submission queue entry.
    pub sqe: Sqe,
}

/// Response capsule (TCP 3.6.2.7).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CapsuleResp {
    /// Common header.
    pub ch: CommonHeader,
    /// The completion queue entry.
    pub cqe: Cqe,
}

/// Host-to-controller data (TCP 3.6.2.8).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct H2CData {
    /// Common header.
    pub ch: CommonHeader,
    /// Identifier of the command that the data belongs to.
    pub cccid: U16,
    /// Transfer tag of the R2T.
    pub ttag: U16,
    /// Offset in bytes from the start of the command's data; a multiple of 4.
    pub datao: U32,
    /// Data bytes in this PDU; a multiple of 4.
    pub datal: U32,
    /// Reserved.
    pub reserved: U32,
}

/// Controller-to-host data (TCP 3.6.2.9).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct C2HData {
    /// Common header.
    pub ch: CommonHeader,
    /// Identifier of the command that the data belongs to.
    pub cccid: U16,
    /// Reserved.
    pub reserved0: U16,
    /// Offset in bytes from the start of the command's data; a multiple of 4.
    pub datao: U32,
    /// Data bytes in this PDU; a multiple of 4.
    pub datal: U32,
    /// Reserved.
    pub reserved1: U32,
}

/// Ready to transfer (TCP 3.6.2.10).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct R2T {
    /// Common header.
    pub ch: CommonHeader,
    /// Identifier of the command whose data is requested.
    pub cccid: U16,
    /// Transfer tag, returned by the host with the data.
    pub ttag: U16,
    /// Offset in bytes from the start of the command's data; a multiple of 4.
    pub r2to: U32,
    /// Requested bytes; a multiple of 4.
    pub r2tl: U32,
    /// Reserved.
    pub reserved: U32,
}

const _: () = {
    assert!(size_of::<CommonHeader>() == 8);
    assert!(size_of::<IcReq>() == 128);
    assert!(size_of::<IcResp>() == 128);
    assert!(size_of::<TermReq>() == 24);
    assert!(size_of::<CapsuleCmd>() == 72);
    assert!(size_of::<CapsuleResp>() == 24);
    assert!(size_of::<H2CData>() == 24);
    assert!(size_of::<C2HData>() == 24);
    assert!(size_of::<R2T>() == 24);
};

impl IcReq {
    /// A request of format version 0. `maxr2t` is the value of the field: R2Ts per command, less one.
    #[must_use]
    pub fn new(hpda: u8, digests: Digests, maxr2t: u32) -> Self {
        Self {
            ch: CommonHeader::new(PduType::ICReq, Flags::empty(), 0, size_of::<Self>() as u32),
            pfv: U16::ZERO,
            hpda,
            dgst: digests.to_u8(),
            maxr2t: U32::new(maxr2t),
            reserved: [0; 112],
        }
    }
}

impl IcResp {
    /// A response of format version 0.
    #[must_use]
    pub fn new(cpda: u8, digests: Digests, maxh2cdata: u32) -> Self {
        Self {
            ch: CommonHeader::new(PduType::ICResp, Flags::empty(), 0, size_of::<Self>() as u32),
            pfv: U16::ZERO,
            cpda,
            dgst: digests.to_u8(),
            maxh2cdata: U32::new(maxh2cdata),
            reserved: [0; 112],
        }
    }
}

impl TermReq {
    /// A request of type `pdu_type` (H2CTermReq or C2HTermReq), followed by `quoted` bytes of the offending header, at
    /// most [`TermReq::MAX_DATA`].
    #[must_use]
    pub fn new(pdu_type: PduType, error: FatalError, information: u32, quoted: usize) -> Self {
        debug_assert!(quoted <= Self::MAX_DATA);
        Self {
            ch: CommonHeader::new(pdu_type, Flags::empty(), 0, (Self::LEN + quoted) as u32),
            fes: U16::new(error as u16),
            fei: U32::new(information),
            reserved: [0; 10],
        }
    }
}

impl C2HData {
    /// A data PDU of `datal` bytes with `digests`, data at `pdo`.
    #[must_use]
    pub fn new(cccid: u16, datao: u32, datal: u32, pdo: u8, flags: Flags, digests: Digests) -> Self {
        let (flags, plen) = data_framing(pdo, datal, flags, digests);
        Self {
            ch: CommonHeader::new(PduType::C2HData, flags, pdo, plen),
            cccid: U16::new(cccid),
            reserved0: U16::ZERO,
            datao: U32::new(datao),
            datal: U32::new(datal),
            reserved1: U32::ZERO,
        }
    }
}

impl H2CData {
    /// A data PDU of `datal` bytes for the R2T `ttag`, data at `pdo`.
    #[must_use]
    pub fn new(cccid: u16, ttag: u16, datao: u32, datal: u32, pdo: u8, flags: Flags, digests: Digests) -> Self {
        let (flags, plen) = data_framing(pdo, datal, flags, digests);
        Self {
            ch: CommonHeader::new(PduType::H2CData, flags, pdo, plen),
            cccid: U16::new(cccid),
            ttag: U16::new(ttag),
            datao: U32::new(datao),
            datal: U32::new(datal),
            reserved: U32::ZERO,
        }
    }
}

impl R2T {
    /// A request for `r2tl` bytes at offset `r2to` of the data of command `cccid`.
    #[must_use]
    pub fn new(cccid: u16, ttag: u16, r2to: u32, r2tl: u32, digests: Digests) -> Self {
        let (flags, plen) = plain_framing(PduType::R2T, digests);
        Self {
            ch: CommonHeader::new(PduType::R2T, flags, 0, plen),
            cccid: U16::new(cccid),
            ttag: U16::new(ttag),
            r2to: U32::new(r2to),
            r2tl: U32::new(r2tl),
            reserved: U32::ZERO,
        }
    }
}

impl CapsuleResp {
    /// A response capsule around `cqe`.
    #[must_use]
    pub fn new(cqe: Cqe, digests: Digests) -> Self {
        let (flags, plen) = plain_framing(PduType::CapsuleResp, digests);
        Self { ch: CommonHeader::new(PduType::CapsuleResp, flags, 0, plen), cqe }
    }
}

impl CapsuleCmd {
    /// A command capsule with `in_capsule` bytes of data at `pdo` (both 0 without data).
    #[must_use]
    pub fn new(sqe: Sqe, in_capsule: u32, pdo: u8, digests: Digests) -> Self {
        let (flags, plen) = if in_capsule > 0 {
            data_framing(pdo, in_capsule, Flags::empty(), digests)
        } else {
            plain_framing(PduType::CapsuleCmd, digests)
        };
        Self { ch: CommonHeader::new(PduType::CapsuleCmd, flags, if in_capsule > 0 { pdo } else { 0 }, plen), sqe }
    }
}

/// Offset of data in a PDU of type `pdu_type`: the end of header and header digest, rounded up to the receiver's data
/// alignment `pda` (HPDA or CPDA, in dwords less one, at most [`MAX_PDA`]; TCP 3.3).
#[must_use]
pub const fn data_offset(pdu_type: PduType, digests: Digests, pda: u8) -> u8 {
    let start = pdu_type.header_len() + if digests.header { 4 } else { 0 };
    let align = (pda as usize + 1) * 4;
    start.next_multiple_of(align) as u8
}

fn data_framing(pdo: u8, datal: u32, mut flags: Flags, digests: Digests) -> (Flags, u32) {
    let mut plen = u32::from(pdo) + datal;
    flags.set(Flags::HDGST, digests.header);
    if digests.data {
        flags |= Flags::DDGST;
        plen += 4;
    }
    (flags, plen)
}

fn plain_framing(pdu_type: PduType, digests: Digests) -> (Flags, u32) {
    let len = pdu_type.header_len() as u32;
    if digests.header { (Flags::HDGST, len + 4) } else { (Flags::empty(), len) }
}

/// Largest HPDA and CPDA: 31, or 128 bytes (TCP 3.6.2.2).
pub const MAX_PDA: u8 = 31;

/// Fatal error status (FES) of a termination request (TCP 3.6.2.4, 3.6.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u16)]
pub enum FatalError {
    /// Invalid value of a header field; FEI is the field's byte offset.
    #[error("invalid PDU header field")]
    InvalidHeaderField = 0x01,
    /// Unexpected PDU.
    #[error("PDU sequence error")]
    Sequence = 0x02,
    /// The header digest does not match; FEI is the digest received.
    #[error("header digest error")]
    HeaderDigest = 0x03,
    /// Data outside of the requested range.
    #[error("data transfer out of range")]
    DataOutOfRange = 0x04,
    /// Limit exceeded: data in an H2CData PDU (reported to a host), or R2Ts (reported to a controller).
    #[error("data transfer or R2T limit exceeded")]
    LimitExceeded = 0x05,
    /// Unsupported parameter; FEI is the field's byte offset.
    #[error("unsupported parameter")]
    UnsupportedParameter = 0x06,
}

impl FatalError {
    /// Decodes FES; `None` for a reserved value.
    #[must_use]
    pub const fn from_u16(value: u16) -> Option<Self> {
        Some(match value {
            0x01 => Self::InvalidHeaderField,
            0x02 => Self::Sequence,
            0x03 => Self::HeaderDigest,
            0x04 => Self::DataOutOfRange,
            0x05 => Self::LimitExceeded,
            0x06 => Self::UnsupportedParameter,
            _ => return None,
        })
    }
}
