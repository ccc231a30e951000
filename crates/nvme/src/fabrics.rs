//! Fabrics commands: Connect, Disconnect, Property Get and Set (Base 6), and the controller properties (Base 3.1.3).

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::{Sgl, Sqe, opcode};

/// The well-known NQN of the discovery service (Base 3.1.2.3).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Longest NQN in bytes, without the terminating null (Base 4.5).
pub const MAX_NQN: usize = 223;

/// CNTLID of a host that requests any controller (Base 6.3).
pub const CNTLID_DYNAMIC: u16 = 0xffff;

/// Fabrics command types (FCTYPE).
pub mod fctype {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send.
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Disconnect.
    pub const DISCONNECT: u8 = 0x08;
}

/// Offsets of controller properties (Base 3.1.3).
pub mod property {
    /// Controller Capabilities, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Version, 4 bytes.
    pub const VS: u32 = 0x08;
    /// Controller Configuration, 4 bytes.
    pub const CC: u32 = 0x14;
    /// Controller Status, 4 bytes.
    pub const CSTS: u32 = 0x1c;
    /// NVM Subsystem Reset, 4 bytes.
    pub const NSSR: u32 = 0x20;
    /// Controller Ready Timeouts, 4 bytes; hosts read it where [`super::CAP_CRWMS`] is set.
    pub const CRTO: u32 = 0x68;
}

/// A Connect command, decoded (Base 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectCmd {
    /// Record format; 0.
    pub recfmt: u16,
    /// Queue identifier; 0 is the admin queue.
    pub qid: u16,
    /// SQSIZE: queue size less one.
    pub sqsize: u16,
    /// Connect attributes, see [`ConnectCmd::DISABLE_SQ_FLOW`].
    pub cattr: u8,
    /// Keep-alive timeout in milliseconds; 0 for none.
    pub kato_ms: u32,
}

impl ConnectCmd {
    /// CATTR bit 2: the host requests that SQ flow control is disabled.
    pub const DISABLE_SQ_FLOW: u8 = 1 << 2;

    /// Reads the fields out of a Fabrics Connect command.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        Self {
            recfmt: sqe.cdw10() as u16,
            qid: (sqe.cdw10() >> 16) as u16,
            sqsize: sqe.cdw11() as u16,
            cattr: (sqe.cdw11() >> 16) as u8,
            kato_ms: sqe.cdw12(),
        }
    }

    /// The command, with 1,024 bytes of [`ConnectData`] in the capsule.
    #[must_use]
    pub fn encode(&self) -> Sqe {
        let mut sqe = Sqe::new(opcode::FABRICS, u32::from(fctype::CONNECT))
            .with_cdw(10, u32::from(self.recfmt) | u32::from(self.qid) << 16)
            .with_cdw(11, u32::from(self.sqsize) | u32::from(self.cattr) << 16)
            .with_cdw(12, self.kato_ms);
        sqe.sgl = Sgl::in_capsule(size_of::<ConnectData>() as u32);
        sqe
    }
}

/// Data of a Connect command (Base 6.3): 1,024 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// Host identifier, a UUID.
    pub hostid: [u8; 16],
    /// Controller identifier, or [`CNTLID_DYNAMIC`].
    pub cntlid: U16,
    /// Reserved.
    pub reserved0: [u8; 238],
    /// Subsystem NQN, null-terminated.
    pub subnqn: [u8; 256],
    /// Host NQN, null-terminated.
    pub hostnqn: [u8; 256],
    /// Reserved.
    pub reserved1: [u8; 256],
}

const _: () = assert!(size_of::<ConnectData>() == 1024);

impl ConnectData {
    /// Data for a host that connects to `subnqn`; NQNs longer than [`MAX_NQN`] are truncated.
    #[must_use]
    pub fn new(hostid: [u8; 16], cntlid: u16, subnqn: &str, hostnqn: &str) -> Self {
        Self {
            hostid,
            cntlid: U16::new(cntlid),
            reserved0: [0; 238],
            subnqn: nqn_field(subnqn),
            hostnqn: nqn_field(hostnqn),
            reserved1: [0; 256],
        }
    }
}

/// An NQN as a null-terminated field of 256 bytes.
#[must_use]
pub fn nqn_field(nqn: &str) -> [u8; 256] {
    let mut field = [0; 256];
    let len = nqn.len().min(MAX_NQN);
    field[..len].copy_from_slice(&nqn.as_bytes()[..len]);
    field
}

/// Reads a null-terminated NQN field; `None` if it is empty, not terminated within [`MAX_NQN`] bytes, or not UTF-8.
#[must_use]
pub fn nqn_from_field(field: &[u8; 256]) -> Option<&str> {
    let len = field.iter().position(|&b| b == 0)?;
    if len == 0 || len > MAX_NQN {
        return None;
    }
    std::str::from_utf8(&field[..len]).ok()
}

/// A Property Get or Property Set command, decoded (Base 6.5, 6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyCmd {
    /// Whether the property is 8 bytes wide (ATTRIB.SIZE = 1) rather than 4; `None` for a reserved size.
    pub wide: Option<bool>,
    /// Offset of the property, see [`property`].
    pub offset: u32,
    /// Value to set (Property Set).
    pub value: u64,
}

impl PropertyCmd {
    /// Reads the fields out of a Property Get or Set command.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let wide = match sqe.cdw10() & 7 {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        Self { wide, offset: sqe.cdw11(), value: u64::from(sqe.cdw12()) | u64::from(sqe.cdw13()) << 32 }
    }

    /// A Property Get command.
    #[must_use]
    pub fn get(offset: u32, wide: bool) -> Sqe {
        Sqe::new(opcode::FABRICS, u32::from(fctype::PROPERTY_GET)).with_cdw(10, u32::from(wide)).with_cdw(11, offset)
    }

    /// A Property Set command of a 4-byte property.
    #[must_use]
    pub fn set(offset: u32, value: u32) -> Sqe {
        Sqe::new(opcode::FABRICS, u32::from(fctype::PROPERTY_SET)).with_cdw(11, offset).with_cdw(12, value)
    }
}

/// An Authentication Send or Authentication Receive command, decoded (Base 6.1, 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticationCmd {
    /// Security protocol (SECP), and its specific fields SPSP0 and SPSP1.
    pub protocol: [u8; 3],
    /// Bytes to transfer (TL), or the space for them (AL).
    pub len: u32,
}

impl AuthenticationCmd {
    /// The protocol of NVMe in-band authentication: SECP E9h, SPSP0 and SPSP1 01h (Base 8.3.4.2).
    pub const NVME: [u8; 3] = [0xe9, 1, 1];

    /// Reads the fields out of the command.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let [_, spsp0, spsp1, secp] = sqe.cdw10().to_le_bytes();
        Self { protocol: [secp, spsp0, spsp1], len: sqe.cdw11() }
    }

    /// A command of this type with NVMe's protocol, and `len` bytes of data.
    #[must_use]
    pub fn encode(fctype: u8, len: u32) -> Sqe {
        let [secp, spsp0, spsp1] = Self::NVME;
        let cdw10 = u32::from_le_bytes([0, spsp0, spsp1, secp]);
        Sqe::new(opcode::FABRICS, u32::from(fctype)).with_cdw(10, cdw10).with_cdw(11, len)
    }
}

/// Result of a successful Connect, above the controller identifier (Base 6.3, AUTHREQ).
pub mod authreq {
    /// Authentication Required (ATR): the queue serves nothing else before.
    pub const ATR: u32 = 1 << 17;
    /// Authentication and Secure Channel Required (ASCR): it is followed by a TLS connection with a generated key.
    pub const ASCR: u32 = 1 << 18;
}

/// Controller Configuration (Base 3.1.3.5).
pub mod cc {
    /// Enable.
    pub const EN: u32 = 1;
    /// Shutdown Notification: bits 15:14; 1 normal, 2 abrupt.
    #[must_use]
    pub const fn shn(cc: u32) -> u32 {
        cc >> 14 & 3
    }
    /// I/O Submission Queue Entry Size of 64 bytes and Completion Queue Entry Size of 16, as hosts set them.
    pub const IOSQES_IOCQES: u32 = 6 << 16 | 4 << 20;
}

/// Controller Status (Base 3.1.3.6).
pub mod csts {
    /// Ready.
    pub const RDY: u32 = 1;
    /// Controller Fatal Status.
    pub const CFS: u32 = 1 << 1;
    /// Shutdown Status: occurring.
    pub const SHST_OCCURRING: u32 = 1 << 2;
    /// Shutdown Status: complete.
    pub const SHST_COMPLETE: u32 = 2 << 2;
}

/// CAP.CRMS bit 0, Controller Ready With Media Support: required from version 2.0 on, with [`property::CRTO`]
/// (Base 3.1.3.1).
pub const CAP_CRWMS: u64 = 1 << 59;

/// Encodes the Controller Capabilities property (Base 3.1.3.1).
///
/// `mqes` is the largest queue in entries; `to_500ms` the longest transition of CSTS.RDY, in units of 500 ms.
#[must_use]
pub const fn cap(mqes: u16, to_500ms: u8) -> u64 {
    const CQR: u64 = 1 << 16; // queues are physically contiguous: required over fabrics
    const CSS_NVM: u64 = 1 << 37; // NVM command set
    (mqes - 1) as u64 | CQR | (to_500ms as u64) << 24 | CSS_NVM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authentication_commands_are_decoded() {
        let sqe = AuthenticationCmd::encode(fctype::AUTHENTICATION_SEND, 72);
        assert_eq!((sqe.opcode, sqe.fctype(), sqe.cdw10(), sqe.cdw11()), (0x7f, 0x05, 0xe901_0100, 72));
        assert_eq!(AuthenticationCmd::decode(&sqe), AuthenticationCmd { protocol: AuthenticationCmd::NVME, len: 72 });
        for other in [0xe801_0100, 0xe900_0100, 0xe901_0200, 0] {
            assert_ne!(
                AuthenticationCmd::decode(&sqe.with_cdw(10, other)).protocol,
                AuthenticationCmd::NVME,
                "{other:#x}"
            );
        }
    }
}
