//! Submission and completion queue entries, SGL descriptors, opcodes (Base 3.3.3, 4.1.2; NVM 3).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::status::Status;

/// A submission queue entry: the 64 bytes of a command (Base 3.3.3.1).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Sqe {
    /// Opcode, see [`opcode`].
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// Namespace identifier. In Fabrics commands byte 4 is FCTYPE.
    pub nsid: U32,
    /// Command dword 2.
    pub cdw2: U32,
    /// Command dword 3.
    pub cdw3: U32,
    /// Metadata pointer.
    pub mptr: U64,
    /// Data pointer: over fabrics one SGL descriptor.
    pub sgl: Sgl,
    /// Command dwords 10 to 15.
    pub cdw: [U32; 6],
}

const _: () = assert!(size_of::<Sqe>() == 64);

impl Sqe {
    /// FUSE: 0 for a command of its own, otherwise one of [`fuse`] (Base 3.3.3.1).
    #[must_use]
    pub const fn fuse(&self) -> u8 {
        self.flags & fuse::MASK
    }

    /// PSDT: how the data pointer is used; 1 or 2 for an SGL (Base 3.3.3.1).
    #[must_use]
    pub const fn psdt(&self) -> u8 {
        self.flags >> 6
    }

    /// FCTYPE of a Fabrics command: byte 4.
    #[must_use]
    pub fn fctype(&self) -> u8 {
        self.nsid.get() as u8
    }

    /// Command dword 10.
    #[must_use]
    pub fn cdw10(&self) -> u32 {
        self.cdw[0].get()
    }
    /// Command dword 11.
    #[must_use]
    pub fn cdw11(&self) -> u32 {
        self.cdw[1].get()
    }
    /// Command dword 12.
    #[must_use]
    pub fn cdw12(&self) -> u32 {
        self.cdw[2].get()
    }
    /// Command dword 13.
    #[must_use]
    pub fn cdw13(&self) -> u32 {
        self.cdw[3].get()
    }
    /// Command dword 14.
    #[must_use]
    pub fn cdw14(&self) -> u32 {
        self.cdw[4].get()
    }
    /// Command dword 15.
    #[must_use]
    pub fn cdw15(&self) -> u32 {
        self.cdw[5].get()
    }
    /// Starting LBA of Read, Write, Compare, Verify and Write Zeroes: command dwords 10 and 11.
    #[must_use]
    pub fn slba(&self) -> u64 {
        u64::from(self.cdw10()) | u64::from(self.cdw11()) << 32
    }

    /// A command with the PSDT that fabrics commands carry (SGL) and everything else 0.
    #[must_use]
    pub fn new(opcode: u8, nsid: u32) -> Self {
        Self { opcode, flags: 1 << 6, nsid: U32::new(nsid), ..Self::default() }
    }

    /// Sets command dword 10 + `n`.
    #[must_use]
    pub fn with_cdw(mut self, n: usize, value: u32) -> Self {
        self.cdw[n - 10] = U32::new(value);
        self
    }

    /// A read, write, compare, verify or write-zeroes command over `blocks` blocks (1 to 65,536) from `slba`.
    #[must_use]
    pub fn block_io(opcode: u8, nsid: u32, slba: u64, blocks: u32) -> Self {
        Self::new(opcode, nsid)
            .with_cdw(10, slba as u32)
            .with_cdw(11, (slba >> 32) as u32)
            .with_cdw(12, (blocks - 1) & 0xffff)
    }
}

/// An SGL descriptor (Base 4.1.2): 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Sgl {
    /// Address; an offset for in-capsule data.
    pub address: U64,
    /// Length in bytes.
    pub length: U32,
    /// Reserved (keyed descriptors use it).
    pub reserved: [u8; 3],
    /// Descriptor type in bits 7:4, subtype in bits 3:0.
    pub identifier: u8,
}

const _: () = assert!(size_of::<Sgl>() == 16);

impl Sgl {
    /// Data Block descriptor, offset subtype: data in the capsule at `address` (Base 4.1.2, TCP 3.3.2).
    pub const IN_CAPSULE: u8 = 0x01;
    /// Transport SGL Data Block descriptor, transport specific subtype Ah: data moves in PDUs
    /// (TCP 3.3.2).
    pub const TRANSPORT: u8 = 0x5a;

    /// `length` bytes that follow the command in its capsule.
    #[must_use]
    pub fn in_capsule(length: u32) -> Self {
        Self { length: U32::new(length), identifier: Self::IN_CAPSULE, ..Self::default() }
    }

    /// `length` bytes that travel in data PDUs.
    #[must_use]
    pub fn transport(length: u32) -> Self {
        Self { length: U32::new(length), identifier: Self::TRANSPORT, ..Self::default() }
    }
}

/// A completion queue entry: 16 bytes (Base 3.3.3.2).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Cqe {
    /// Dwords 0 and 1: the command's result.
    pub result: U64,
    /// Submission queue head; FFFFh in a Connect response where flow control is disabled.
    pub sqhd: U16,
    /// Submission queue identifier; reserved over fabrics.
    pub sqid: U16,
    /// Command identifier.
    pub cid: U16,
    /// Phase tag in bit 0 (0 over fabrics), status in bits 15:1.
    pub status: U16,
}

const _: () = assert!(size_of::<Cqe>() == 16);

impl Cqe {
    /// The completion of command `cid`.
    #[must_use]
    pub fn new(cid: u16, status: Status, result: u64) -> Self {
        Self { result: U64::new(result), cid: U16::new(cid), status: U16::new(status.to_field()), ..Self::default() }
    }

    /// The status, phase tag removed.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::from_field(self.status.get())
    }
}

/// Opcodes. Admin and I/O commands share numbers.
pub mod opcode {
    /// Fabrics commands, on both kinds of queue (Base 6).
    pub const FABRICS: u8 = 0x7f;

    /// Admin commands (Base 5). Bits 1:0 of an opcode are the direction of data: 01b from the host, 10b to it.
    pub mod admin {
        /// Get Log Page.
        pub const GET_LOG_PAGE: u8 = 0x02;
        /// Identify.
        pub const IDENTIFY: u8 = 0x06;
        /// Abort.
        pub const ABORT: u8 = 0x08;
        /// Set Features.
        pub const SET_FEATURES: u8 = 0x09;
        /// Get Features.
        pub const GET_FEATURES: u8 = 0x0a;
        /// Asynchronous Event Request.
        pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
        /// Keep Alive.
        pub const KEEP_ALIVE: u8 = 0x18;
    }

    /// NVM command set I/O commands (NVM 3.2).
    pub mod io {
        /// Flush (Base 7.1).
        pub const FLUSH: u8 = 0x00;
        /// Write.
        pub const WRITE: u8 = 0x01;
        /// Read.
        pub const READ: u8 = 0x02;
        /// Compare.
        pub const COMPARE: u8 = 0x05;
        /// Write Zeroes.
        pub const WRITE_ZEROES: u8 = 0x08;
        /// Dataset Management.
        pub const DATASET_MANAGEMENT: u8 = 0x09;
        /// Verify.
        pub const VERIFY: u8 = 0x0c;
        /// Reservation Register (Base 7.3).
        pub const RESERVATION_REGISTER: u8 = 0x0d;
        /// Reservation Report (Base 7.5).
        pub const RESERVATION_REPORT: u8 = 0x0e;
        /// Reservation Acquire (Base 7.2).
        pub const RESERVATION_ACQUIRE: u8 = 0x11;
        /// Reservation Release (Base 7.4).
        pub const RESERVATION_RELEASE: u8 = 0x15;
    }
}

/// Values of [`Sqe::fuse`].
pub mod fuse {
    /// The bits of the field in [`Sqe::flags`].
    pub const MASK: u8 = 3;
    /// A command of its own.
    pub const NONE: u8 = 0;
    /// The first command of a fused operation.
    pub const FIRST: u8 = 1;
    /// The second command of a fused operation.
    pub const SECOND: u8 = 2;
}

/// Bits of command dword 12 of the I/O commands (NVM 3.2.1 to 3.2.8).
pub mod cdw12 {
    /// Deallocate (Write Zeroes alone).
    pub const DEAC: u32 = 1 << 25;
    /// Storage Tag Check.
    pub const STC: u32 = 1 << 24;
    /// Protection information check and action.
    pub const PRINFO: u32 = 0xf << 26;
    /// Force Unit Access.
    pub const FUA: u32 = 1 << 30;
    /// Limited Retry.
    pub const LR: u32 = 1 << 31;
}

/// Dataset Management: fields of the command (NVM 3.2.3).
pub mod dsm {
    /// Command dword 11: Attribute - Deallocate.
    pub const AD: u32 = 1 << 2;
    /// Command dword 11: Attribute - Integral Dataset for Write; a hint.
    pub const IDW: u32 = 1 << 1;
    /// Command dword 11: Attribute - Integral Dataset for Read; a hint.
    pub const IDR: u32 = 1;

    /// Ranges in the command's data, from command dword 10: 1 to 256. Hosts may send more data than these ranges need.
    #[must_use]
    pub const fn ranges(cdw10: u32) -> usize {
        (cdw10 & 0xff) as usize + 1
    }
}

/// One range of a Dataset Management command (NVM 3.2.3): 16 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DsmRange {
    /// Context attributes: hints.
    pub attributes: U32,
    /// Length in logical blocks, not less one.
    pub blocks: U32,
    /// Starting LBA.
    pub slba: U64,
}

const _: () = assert!(size_of::<DsmRange>() == 16);
