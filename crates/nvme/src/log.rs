//! Log pages (Base 5.16).

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Log page identifiers.
pub mod lid {
    /// Supported Log Pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Error Information.
    pub const ERROR: u8 = 0x01;
    /// SMART / Health Information.
    pub const SMART: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE_SLOT: u8 = 0x03;
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const COMMAND_EFFECTS: u8 = 0x05;
    /// Asymmetric Namespace Access.
    pub const ANA: u8 = 0x0c;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
    /// Reservation Notification.
    pub const RESERVATION: u8 = 0x80;
}

/// The fields of a Get Log Page command (Base 5.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// Log page identifier.
    pub lid: u8,
    /// Retain Asynchronous Event: reading does not clear the event.
    pub retain_event: bool,
    /// Log specific parameter.
    pub lsp: u8,
    /// Bytes to transfer.
    pub len: u64,
    /// Offset in bytes, or in entries if [`GetLogPage::index_offset`].
    pub offset: u64,
    /// Offset Type: the offset counts entries, for log pages that support it.
    pub index_offset: bool,
    /// Command set identifier, for log pages that depend on it.
    pub csi: u8,
}

impl GetLogPage {
    /// Reads the fields out of a Get Log Page command.
    #[must_use]
    pub fn decode(sqe: &crate::Sqe) -> Self {
        let dwords = u64::from(sqe.cdw10() >> 16) | u64::from(sqe.cdw11() & 0xffff) << 16;
        Self {
            lid: sqe.cdw10() as u8,
            retain_event: sqe.cdw10() & 1 << 15 != 0,
            lsp: (sqe.cdw10() >> 8) as u8 & 0x7f,
            len: (dwords + 1) * 4,
            offset: u64::from(sqe.cdw12()) | u64::from(sqe.cdw13()) << 32,
            index_offset: sqe.cdw14() & 1 << 23 != 0,
            csi: (sqe.cdw14() >> 24) as u8,
        }
    }
}

/// An entry of the error information log (Base 5.16.1.2).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ErrorEntry {
    /// Number of the error, from 1; 0 marks an unused entry.
    pub error_count: U64,
    /// Submission queue.
    pub sqid: U16,
    /// Command.
    pub cid: U16,
    /// Status field of the completion, phase tag 0.
    pub status: U16,
    /// Location of the error in the command: byte in bits 7:0, bit in bits 10:8; FFFFh if it is not in the command.
    pub location: U16,
    /// First block concerned.
    pub lba: U64,
    /// Namespace.
    pub nsid: U32,
    /// Vendor specific log page, transport type, and reserved.
    pub reserved: [u8; 36],
}

/// SMART / health information (Base 5.16.1.3).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SmartLog {
    /// Critical warnings.
    pub critical_warning: u8,
    /// Composite temperature in kelvins.
    pub temperature: U16,
    /// Available spare in percent.
    pub available_spare: u8,
    /// Threshold of the available spare in percent.
    pub available_spare_threshold: u8,
    /// Percentage of life used.
    pub percentage_used: u8,
    /// Reserved.
    pub reserved6: [u8; 26],
    /// Thousands of 512-byte units read.
    pub data_units_read: U128,
    /// Thousands of 512-byte units written.
    pub data_units_written: U128,
    /// Read commands.
    pub host_reads: U128,
    /// Write commands.
    pub host_writes: U128,
    /// Minutes busy.
    pub busy_minutes: U128,
    /// Power cycles.
    pub power_cycles: U128,
    /// Hours powered on.
    pub power_on_hours: U128,
    /// Unsafe shutdowns.
    pub unsafe_shutdowns: U128,
    /// Media errors.
    pub media_errors: U128,
    /// Entries of the error log over the controller's life.
    pub error_entries: U128,
    /// Temperature times and sensors, and reserved.
    pub reserved192: [u8; 320],
}

/// Firmware slot information (Base 5.16.1.4).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FirmwareSlotLog {
    /// Active slot in bits 2:0, slot after the next reset in bits 6:4 (0 for no change).
    pub active: u8,
    /// Reserved.
    pub reserved1: [u8; 7],
    /// Firmware revisions of slots 1 to 7, ASCII, padded with spaces.
    pub revisions: [[u8; 8]; 7],
    /// Reserved.
    pub reserved64: [u8; 448],
}

/// Header of the discovery log page (Base 5.16.1.23): 1,024 bytes.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// Generation counter: differs when the log has changed.
    pub genctr: U64,
    /// Number of records.
    pub numrec: U64,
    /// Record format; 0.
    pub recfmt: U16,
    /// Reserved.
    pub reserved: [u8; 1006],
}

/// A record of the discovery log page: 1,024 bytes.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// Transport type: 3 for TCP.
    pub trtype: u8,
    /// Address family: 1 for IPv4, 2 for IPv6.
    pub adrfam: u8,
    /// Subsystem type: 1 for a referral to another discovery service, 2 for an NVM subsystem, 3 for this discovery subsystem.
    pub subtype: u8,
    /// Transport requirements: 0 for "secure channel not specified".
    pub treq: u8,
    /// Port.
    pub portid: U16,
    /// Controller identifier: FFFFh for the dynamic model.
    pub cntlid: U16,
    /// Largest admin queue in entries.
    pub asqsz: U16,
    /// Entry flags.
    pub eflags: U16,
    /// Reserved.
    pub reserved12: [u8; 20],
    /// Transport service identifier: the port number in ASCII, padded with nulls.
    pub trsvcid: [u8; 32],
    /// Reserved.
    pub reserved64: [u8; 192],
    /// NQN of the subsystem.
    pub subnqn: [u8; 256],
    /// Transport address in ASCII.
    pub traddr: [u8; 256],
    /// Transport specific address subtype: for TCP the security type in byte 0, 0 for none.
    pub tsas: [u8; 256],
}

/// Reservation notification log page (Base 5.16.1.24): the oldest unread notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReservationLog {
    /// Number of this notification, from 1; 0 on an empty page.
    pub count: U64,
    /// See [`crate::reservation::Notification`]; 0 on an empty page.
    pub kind: u8,
    /// Unread pages after this one, at most 255.
    pub available: u8,
    /// Reserved.
    pub reserved10: [u8; 2],
    /// Namespace.
    pub nsid: U32,
    /// Reserved.
    pub reserved16: [[u8; 16]; 3],
}

const _: () = {
    assert!(size_of::<ErrorEntry>() == 64);
    assert!(size_of::<ReservationLog>() == 64);
    assert!(size_of::<SmartLog>() == 512);
    assert!(size_of::<FirmwareSlotLog>() == 512);
    assert!(size_of::<DiscoveryHeader>() == 1024);
    assert!(size_of::<DiscoveryEntry>() == 1024);
};

impl Default for SmartLog {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Default for FirmwareSlotLog {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Default for DiscoveryHeader {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Default for DiscoveryEntry {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Length of the changed namespace list in bytes: 1,024 identifiers.
pub const CHANGED_NAMESPACES_LEN: usize = 4096;

/// Bits of a dword of the commands supported and effects log (Base 5.16.1.6).
pub mod effects {
    /// Command supported.
    pub const CSUPP: u32 = 1;
    /// Logical block content change.
    pub const LBCC: u32 = 1 << 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn fields_have_the_specified_offsets() {
        assert_eq!(offset_of!(ErrorEntry, nsid), 24);
        assert_eq!(offset_of!(SmartLog, temperature), 1);
        assert_eq!(offset_of!(SmartLog, data_units_read), 32);
        assert_eq!(offset_of!(SmartLog, power_on_hours), 128);
        assert_eq!(offset_of!(SmartLog, error_entries), 176);
        assert_eq!(offset_of!(FirmwareSlotLog, revisions), 8);
        assert_eq!(offset_of!(DiscoveryHeader, recfmt), 16);
        assert_eq!(offset_of!(DiscoveryEntry, trsvcid), 32);
        assert_eq!(offset_of!(DiscoveryEntry, subnqn), 256);
        assert_eq!(offset_of!(DiscoveryEntry, traddr), 512);
        assert_eq!(offset_of!(ReservationLog, kind), 8);
        assert_eq!(offset_of!(ReservationLog, available), 9);
        assert_eq!(offset_of!(ReservationLog, nsid), 12);
    }

    #[test]
    fn get_log_page_counts_dwords_from_zero() {
        let sqe = crate::Sqe::new(crate::command::opcode::admin::GET_LOG_PAGE, 0)
            .with_cdw(10, 0x03ff_8570)
            .with_cdw(11, 1)
            .with_cdw(12, 0x400)
            .with_cdw(13, 2)
            .with_cdw(14, 0x0280_0000);
        let expected = GetLogPage {
            lid: 0x70,
            retain_event: true,
            lsp: 5,
            len: (0x1_03ff + 1) * 4,
            offset: 0x2_0000_0400,
            index_offset: true,
            csi: 2,
        };
        assert_eq!(GetLogPage::decode(&sqe), expected);
    }
}
