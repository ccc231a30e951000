//! Identify data structures (Base 5.17, NVM 4.1.5): images of the 4,096 bytes that Identify returns.
//!
//! Fields named `reserved…` are reserved or unused here, and zero.

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::power::{MAX_STATES, PowerStateDescriptor};

/// Length of every Identify data structure in bytes.
pub const IDENTIFY_LEN: usize = 4096;

/// Controller or Namespace Structure: the structure that Identify returns (Base 5.17, Figure 273).
pub mod cns {
    /// Identify Namespace.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active Namespace ID list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptor list.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// I/O Command Set specific Identify Namespace.
    pub const NAMESPACE_IOCS: u8 = 0x05;
    /// I/O Command Set specific Identify Controller.
    pub const CONTROLLER_IOCS: u8 = 0x06;
    /// I/O Command Set Independent Identify Namespace.
    pub const NAMESPACE_INDEPENDENT: u8 = 0x08;
}

/// Identify Controller (CNS 01h; Base 5.17.2.1).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI vendor identifier; 0 over fabrics.
    pub vid: U16,
    /// PCI subsystem vendor identifier.
    pub ssvid: U16,
    /// Serial number, ASCII, padded with spaces.
    pub sn: [u8; 20],
    /// Model number, ASCII, padded with spaces.
    pub mn: [u8; 40],
    /// Firmware revision, ASCII, padded with spaces.
    pub fr: [u8; 8],
    /// Recommended arbitration burst.
    pub rab: u8,
    /// IEEE OUI.
    pub ieee: [u8; 3],
    /// Multi-path I/O and namespace sharing capabilities.
    pub cmic: u8,
    /// Maximum data transfer size: a power of two of memory pages; 0 for no limit.
    pub mdts: u8,
    /// Controller identifier.
    pub cntlid: U16,
    /// Version of the specification.
    pub ver: U32,
    /// RTD3 resume latency in microseconds.
    pub rtd3r: U32,
    /// RTD3 entry latency in microseconds.
    pub rtd3e: U32,
    /// Optional asynchronous events supported.
    pub oaes: U32,
    /// Controller attributes.
    pub ctratt: U32,
    /// Read recovery levels.
    pub rrls: U16,
    /// Reserved.
    pub reserved102: [u8; 9],
    /// Controller type: 1 for I/O, 2 for discovery.
    pub cntrltype: u8,
    /// FRU GUID.
    pub fguid: [u8; 16],
    /// Command retry delay times, reserved, and NVM subsystem report.
    pub reserved128: [u8; 128],
    /// Optional admin commands.
    pub oacs: U16,
    /// Abort command limit, less one.
    pub acl: u8,
    /// Asynchronous event request limit, less one.
    pub aerl: u8,
    /// Firmware updates.
    pub frmw: u8,
    /// Log page attributes.
    pub lpa: u8,
    /// Error log page entries, less one.
    pub elpe: u8,
    /// Number of power states, less one.
    pub npss: u8,
    /// Vendor specific command configuration.
    pub avscc: u8,
    /// Autonomous power state transition attributes.
    pub apsta: u8,
    /// Warning composite temperature threshold in kelvins.
    pub wctemp: U16,
    /// Critical composite temperature threshold in kelvins.
    pub cctemp: U16,
    /// Firmware activation, host memory buffer, capacities, replay protection, self-test.
    pub reserved270: [u8; 50],
    /// Keep-alive support: granularity of the timeout in units of 100 ms.
    pub kas: U16,
    /// Thermal management, sanitize, sets.
    pub reserved322: [u8; 20],
    /// Longest change of an ANA state, in seconds.
    pub anatt: u8,
    /// ANA capabilities ([`crate::ana::ANACAP`]).
    pub anacap: u8,
    /// The highest ANA group.
    pub anagrpmax: U32,
    /// Number of ANA groups.
    pub nanagrpid: U32,
    /// Persistent event log, and reserved.
    pub reserved352: [u8; 160],
    /// Submission queue entry sizes: required in bits 3:0, largest in 7:4, as powers of two.
    pub sqes: u8,
    /// Completion queue entry sizes.
    pub cqes: u8,
    /// Maximum outstanding commands of a queue.
    pub maxcmd: U16,
    /// Largest namespace identifier.
    pub nn: U32,
    /// Optional NVM commands, see [`oncs`].
    pub oncs: U16,
    /// Fused operations.
    pub fuses: U16,
    /// Format NVM attributes.
    pub fna: u8,
    /// Volatile write cache: present in bit 0, flush behaviour in bits 2:1.
    pub vwc: u8,
    /// Atomic write unit normal, in blocks less one.
    pub awun: U16,
    /// Atomic write unit power fail, in blocks less one.
    pub awupf: U16,
    /// I/O command set vendor specific command configuration.
    pub icsvscc: u8,
    /// Namespace write protection capabilities.
    pub nwpc: u8,
    /// Atomic compare and write unit.
    pub acwu: U16,
    /// Copy descriptor formats.
    pub cdfs: U16,
    /// SGL support.
    pub sgls: U32,
    /// Maximum number of allowed namespaces.
    pub mnan: U32,
    /// Reserved.
    pub reserved544: [u8; 224],
    /// NQN of the subsystem, null-terminated.
    pub subnqn: [u8; 256],
    /// Reserved.
    pub reserved1024: [u8; 768],
    /// I/O queue command capsule supported size in 16-byte units.
    pub ioccsz: U32,
    /// I/O queue response capsule supported size in 16-byte units.
    pub iorcsz: U32,
    /// In-capsule data offset in 16-byte units.
    pub icdoff: U16,
    /// Fabrics controller attributes: bit 0 set for the static controller model.
    pub fcatt: u8,
    /// Maximum SGL data block descriptors.
    pub msdbd: u8,
    /// Optional fabrics commands: bit 0 for Disconnect.
    pub ofcs: U16,
    /// Reserved.
    pub reserved1806: [u8; 242],
    /// Power state descriptors.
    pub psd: [PowerStateDescriptor; MAX_STATES],
    /// Vendor specific.
    pub vendor: [u8; 1024],
}

/// Bits of [`IdentifyController::fuses`].
pub mod fuses {
    /// Compare and Write.
    pub const COMPARE_AND_WRITE: u16 = 1 << 0;
}

/// Bits of ONCS (Base 5.17.2.1).
pub mod oncs {
    /// Compare.
    pub const COMPARE: u16 = 1 << 0;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Save field of Set Features and Select field of Get Features other than 0.
    pub const SAVE_SELECT: u16 = 1 << 4;
    /// Timestamp feature.
    pub const TIMESTAMP: u16 = 1 << 6;
    /// Reservations.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// Verify.
    pub const VERIFY: u16 = 1 << 7;
}

/// Identify Namespace (CNS 00h; NVM 4.1.5.1).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Size in blocks.
    pub nsze: U64,
    /// Capacity in blocks.
    pub ncap: U64,
    /// Utilization in blocks.
    pub nuse: U64,
    /// Features: bit 0 thin provisioning, bit 2 deallocated or unwritten block error, bit 4 optimal I/O fields.
    pub nsfeat: u8,
    /// Number of LBA formats, less one.
    pub nlbaf: u8,
    /// Formatted LBA size: index of the format in use.
    pub flbas: u8,
    /// Metadata capabilities, protection capabilities and settings.
    pub reserved27: [u8; 3],
    /// Multi-path I/O and sharing: bit 0 if more than one controller may use it.
    pub nmic: u8,
    /// Reservation capabilities, see [`crate::reservation::rescap`].
    pub rescap: u8,
    /// Format progress.
    pub fpi: u8,
    /// Deallocate features: 1 in bits 2:0 if deallocated blocks read as zeroes, bit 3 for DEAC of Write Zeroes.
    pub dlfeat: u8,
    /// Atomicity and boundaries.
    pub reserved34: [u8; 14],
    /// NVM capacity in bytes.
    pub nvmcap: U128,
    /// Preferred write granularity, in blocks less one.
    pub npwg: U16,
    /// Preferred write alignment, in blocks less one.
    pub npwa: U16,
    /// Preferred deallocate granularity, in blocks less one.
    pub npdg: U16,
    /// Preferred deallocate alignment, in blocks less one.
    pub npda: U16,
    /// Optimal write size, in blocks less one.
    pub nows: U16,
    /// Copy limits, and reserved.
    pub reserved74: [u8; 18],
    /// ANA group.
    pub anagrpid: U32,
    /// Reserved.
    pub reserved96: [u8; 3],
    /// Attributes: bit 0 if it is write protected.
    pub nsattr: u8,
    /// Set and endurance group.
    pub reserved100: [u8; 4],
    /// Namespace globally unique identifier.
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier; 0 for none.
    pub eui64: [u8; 8],
    /// LBA formats: metadata size (2 bytes), block size as a power of two, relative performance.
    pub lbaf: [[u8; 4]; 64],
    /// Vendor specific.
    pub vendor: [u8; 3712],
}

/// I/O Command Set specific Identify Namespace for the NVM command set (CNS 05h; NVM 4.1.5.3): protection
/// information.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespaceNvm {
    /// Logical block storage tag mask.
    pub lbstm: U64,
    /// Protection information capabilities.
    pub pic: u8,
    /// Reserved.
    pub reserved9: [u8; 3],
    /// Extended LBA formats: storage tag size in bits 6:0, protection information format in bits 8:7.
    pub elbaf: [U32; 64],
    /// Reserved.
    pub reserved268: [u8; 3828],
}

/// I/O Command Set specific Identify Controller for the NVM command set (CNS 06h; NVM 4.1.5.4). Limits of 0 mean none.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyControllerNvm {
    /// Verify size limit: a power of two of memory pages.
    pub vsl: u8,
    /// Write Zeroes size limit.
    pub wzsl: u8,
    /// Write Uncorrectable size limit.
    pub wusl: u8,
    /// Dataset Management ranges limit.
    pub dmrl: u8,
    /// Dataset Management range size limit in blocks.
    pub dmrsl: U32,
    /// Dataset Management size limit in blocks.
    pub dmsl: U64,
    /// Reserved.
    pub reserved: [u8; 4080],
}

/// I/O Command Set Independent Identify Namespace (CNS 08h; Base 5.17.2.8).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespaceIndependent {
    /// Features.
    pub nsfeat: u8,
    /// Multi-path I/O and sharing.
    pub nmic: u8,
    /// Reservation capabilities, as [`IdentifyNamespace::rescap`].
    pub rescap: u8,
    /// Format progress.
    pub fpi: u8,
    /// ANA group.
    pub anagrpid: U32,
    /// Attributes, as [`IdentifyNamespace::nsattr`].
    pub nsattr: u8,
    /// Reserved.
    pub reserved9: u8,
    /// NVM set.
    pub nvmsetid: U16,
    /// Endurance group.
    pub endgid: U16,
    /// Status: bit 0 if ready.
    pub nstat: u8,
    /// Reserved.
    pub reserved15: [u8; 4081],
}

const _: () = {
    assert!(size_of::<IdentifyController>() == IDENTIFY_LEN);
    assert!(size_of::<IdentifyNamespace>() == IDENTIFY_LEN);
    assert!(size_of::<IdentifyNamespaceNvm>() == IDENTIFY_LEN);
    assert!(size_of::<IdentifyControllerNvm>() == IDENTIFY_LEN);
    assert!(size_of::<IdentifyNamespaceIndependent>() == IDENTIFY_LEN);
};

impl Default for IdentifyController {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Default for IdentifyNamespace {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Default for IdentifyNamespaceNvm {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Default for IdentifyControllerNvm {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Default for IdentifyNamespaceIndependent {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Types of namespace identification descriptors (CNS 03h; Base 5.17.2.3).
pub mod nidt {
    /// IEEE extended unique identifier, 8 bytes.
    pub const EUI64: u8 = 1;
    /// Namespace globally unique identifier, 16 bytes.
    pub const NGUID: u8 = 2;
    /// Namespace UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// Command set identifier, 1 byte.
    pub const CSI: u8 = 4;
}

/// Writes a namespace identification descriptor at offset `at` of the list in `out`; returns the offset of the next one.
pub fn put_descriptor(out: &mut [u8], at: usize, nidt: u8, id: &[u8]) -> usize {
    let end = at + 4 + id.len();
    out[at] = nidt;
    out[at + 1] = id.len() as u8;
    out[at + 4..end].copy_from_slice(id);
    end
}

/// `text` as an ASCII field of `N` bytes, padded with spaces.
#[must_use]
pub fn ascii_field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn controller_fields_have_the_specified_offsets() {
        let expected = [
            (offset_of!(IdentifyController, mdts), 77),
            (offset_of!(IdentifyController, cntlid), 78),
            (offset_of!(IdentifyController, oaes), 92),
            (offset_of!(IdentifyController, ctratt), 96),
            (offset_of!(IdentifyController, cntrltype), 111),
            (offset_of!(IdentifyController, oacs), 256),
            (offset_of!(IdentifyController, lpa), 261),
            (offset_of!(IdentifyController, npss), 263),
            (offset_of!(IdentifyController, apsta), 265),
            (offset_of!(IdentifyController, wctemp), 266),
            (offset_of!(IdentifyController, kas), 320),
            (offset_of!(IdentifyController, sqes), 512),
            (offset_of!(IdentifyController, nn), 516),
            (offset_of!(IdentifyController, oncs), 520),
            (offset_of!(IdentifyController, vwc), 525),
            (offset_of!(IdentifyController, sgls), 536),
            (offset_of!(IdentifyController, subnqn), 768),
            (offset_of!(IdentifyController, ioccsz), 1792),
            (offset_of!(IdentifyController, ofcs), 1804),
            (offset_of!(IdentifyController, rtd3e), 88),
            (offset_of!(IdentifyController, aerl), 259),
            (offset_of!(IdentifyController, elpe), 262),
            (offset_of!(IdentifyController, maxcmd), 514),
            (offset_of!(IdentifyController, awun), 526),
            (offset_of!(IdentifyController, mnan), 540),
            (offset_of!(IdentifyController, iorcsz), 1796),
            (offset_of!(IdentifyController, icdoff), 1800),
            (offset_of!(IdentifyController, msdbd), 1803),
            (offset_of!(IdentifyController, psd), 2048),
        ];
        for (actual, specified) in expected {
            assert_eq!(actual, specified);
        }
    }

    #[test]
    fn namespace_fields_have_the_specified_offsets() {
        assert_eq!(offset_of!(IdentifyNamespace, nsfeat), 24);
        assert_eq!(offset_of!(IdentifyNamespace, nmic), 30);
        assert_eq!(offset_of!(IdentifyNamespace, rescap), 31);
        assert_eq!(offset_of!(IdentifyNamespaceIndependent, rescap), 2);
        assert_eq!(offset_of!(IdentifyNamespace, dlfeat), 33);
        assert_eq!(offset_of!(IdentifyNamespace, nvmcap), 48);
        assert_eq!(offset_of!(IdentifyNamespace, npwg), 64);
        assert_eq!(offset_of!(IdentifyNamespace, nows), 72);
        assert_eq!(offset_of!(IdentifyNamespace, anagrpid), 92);
        assert_eq!(offset_of!(IdentifyNamespace, nguid), 104);
        assert_eq!(offset_of!(IdentifyController, anatt), 342);
        assert_eq!(offset_of!(IdentifyController, anagrpmax), 344);
        assert_eq!(offset_of!(IdentifyNamespace, lbaf), 128);
        assert_eq!(offset_of!(IdentifyNamespaceNvm, elbaf), 12);
        assert_eq!(offset_of!(IdentifyNamespaceIndependent, nvmsetid), 10);
        assert_eq!(offset_of!(IdentifyNamespaceIndependent, nstat), 14);
    }

    #[test]
    fn limits_of_the_nvm_command_set_have_the_specified_offsets() {
        assert_eq!(offset_of!(IdentifyControllerNvm, wzsl), 1);
        assert_eq!(offset_of!(IdentifyControllerNvm, dmrl), 3);
        assert_eq!(offset_of!(IdentifyControllerNvm, dmrsl), 4);
        assert_eq!(offset_of!(IdentifyControllerNvm, dmsl), 8);
    }
}
