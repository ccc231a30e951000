//! Reservation commands and their data (Base 7.2 to 7.5, 8.19).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Sqe;

/// Bits of RESCAP of a namespace (Base 5.17.2.8).
pub mod rescap {
    /// Persist Through Power Loss.
    pub const PTPL: u8 = 1;
    /// All six types: bits 1 to 6 in the order of their numbers.
    pub const ALL_TYPES: u8 = 0x7e;
    /// IEKEY has the meaning of revision 1.3 and later.
    pub const IEKEY: u8 = 1 << 7;
}

/// Bits of the Reservation Notification Mask (Base 5.27.1.25): a kind with its bit set is not reported.
pub mod mask {
    /// All kinds: bits 1 to 3, in the order of [`Notification`](super::Notification).
    pub const ALL: u32 = 0xe;
}

/// Type of a reservation (RTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Write Exclusive.
    WriteExclusive = 1,
    /// Exclusive Access.
    ExclusiveAccess = 2,
    /// Write Exclusive - Registrants Only.
    WriteExclusiveRegistrants = 3,
    /// Exclusive Access - Registrants Only.
    ExclusiveAccessRegistrants = 4,
    /// Write Exclusive - All Registrants.
    WriteExclusiveAll = 5,
    /// Exclusive Access - All Registrants.
    ExclusiveAccessAll = 6,
}

impl Type {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrants,
        Self::ExclusiveAccessRegistrants,
        Self::WriteExclusiveAll,
        Self::ExclusiveAccessAll,
    ];

    /// By its number; `None` for a reserved one.
    #[must_use]
    pub fn decode(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Whether every registrant is a holder.
    #[must_use]
    pub const fn is_of_all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// Whether registrants that are not the holder have access.
    #[must_use]
    pub const fn admits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Whether hosts without access may not read either.
    #[must_use]
    pub const fn excludes_reads(self) -> bool {
        matches!(self, Self::ExclusiveAccess | Self::ExclusiveAccessRegistrants | Self::ExclusiveAccessAll)
    }
}

/// Kind of a notification (Base 5.16.1.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notification {
    /// Registration Preempted.
    RegistrationPreempted = 1,
    /// Reservation Released.
    ReservationReleased = 2,
    /// Reservation Preempted.
    ReservationPreempted = 3,
}

/// RREGA: action of Reservation Register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAction {
    /// Register a key.
    Register,
    /// Unregister.
    Unregister,
    /// Replace the key.
    Replace,
}

/// RACQA: action of Reservation Acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireAction {
    /// Acquire.
    Acquire,
    /// Preempt.
    Preempt,
    /// Preempt and abort.
    PreemptAndAbort,
}

/// RRELA: action of Reservation Release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseAction {
    /// Release.
    Release,
    /// Clear.
    Clear,
}

/// Reservation Register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its action.
    pub action: RegisterAction,
    /// IEKEY: the current key is not checked.
    pub ignore_key: bool,
    /// CPTPL: the new Persist Through Power Loss state; `None` for no change.
    pub persist: Option<bool>,
    /// CRKEY.
    pub key: u64,
    /// NRKEY.
    pub new_key: u64,
}

/// Reservation Acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// Its action.
    pub action: AcquireAction,
    /// RTYPE.
    pub kind: Type,
    /// CRKEY.
    pub key: u64,
    /// PRKEY.
    pub preempted: u64,
}

/// Reservation Release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Its action.
    pub action: ReleaseAction,
    /// RTYPE; `None` for a reserved one, which a Clear may have.
    pub kind: Option<Type>,
    /// CRKEY.
    pub key: u64,
}

/// IEKEY, in command dword 10.
const IEKEY: u32 = 1 << 3;

/// The number at `at` of the data.
fn key(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..at + 8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

impl Register {
    /// Bytes of the data.
    pub const LEN: u32 = 16;

    /// Decodes command dword 10 and the data; `None` for a reserved value.
    #[must_use]
    pub fn decode(sqe: &Sqe, data: &[u8]) -> Option<Self> {
        let cdw10 = sqe.cdw10();
        let action = match cdw10 & 7 {
            0 => RegisterAction::Register,
            1 => RegisterAction::Unregister,
            2 => RegisterAction::Replace,
            _ => return None,
        };
        let persist = match cdw10 >> 30 {
            0 => None,
            2 => Some(false),
            3 => Some(true),
            _ => return None,
        };
        Some(Self { action, ignore_key: cdw10 & IEKEY != 0, persist, key: key(data, 0)?, new_key: key(data, 8)? })
    }
}

impl Acquire {
    /// Bytes of the data.
    pub const LEN: u32 = 16;

    /// Decodes command dword 10 and the data; `None` for a reserved value, and for IEKEY, which must be 0.
    #[must_use]
    pub fn decode(sqe: &Sqe, data: &[u8]) -> Option<Self> {
        let cdw10 = sqe.cdw10();
        let action = match cdw10 & (7 | IEKEY) {
            0 => AcquireAction::Acquire,
            1 => AcquireAction::Preempt,
            2 => AcquireAction::PreemptAndAbort,
            _ => return None,
        };
        let kind = Type::decode((cdw10 >> 8) as u8)?;
        Some(Self { action, kind, key: key(data, 0)?, preempted: key(data, 8)? })
    }
}

impl Release {
    /// Bytes of the data.
    pub const LEN: u32 = 8;

    /// Decodes command dword 10 and the data; `None` for a reserved value, and for IEKEY, which must be 0.
    #[must_use]
    pub fn decode(sqe: &Sqe, data: &[u8]) -> Option<Self> {
        let cdw10 = sqe.cdw10();
        let action = match cdw10 & (7 | IEKEY) {
            0 => ReleaseAction::Release,
            1 => ReleaseAction::Clear,
            _ => return None,
        };
        let kind = Type::decode((cdw10 >> 8) as u8);
        if action == ReleaseAction::Release && kind.is_none() {
            return None;
        }
        Some(Self { action, kind, key: key(data, 0)? })
    }
}

/// Reservation Report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Bytes to transfer (NUMD).
    pub len: u64,
    /// EDS: with host identifiers of 128 bits.
    pub extended: bool,
}

impl Report {
    /// Decodes command dwords 10 and 11.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        Self { len: (u64::from(sqe.cdw10()) + 1) * 4, extended: sqe.cdw11() & 1 != 0 }
    }
}

/// Header of the extended reservation status (Base 7.5.1): 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReportHeader {
    /// Generation.
    pub generation: U32,
    /// Type; 0 without a reservation.
    pub kind: u8,
    /// Number of entries.
    pub entries: U16,
    /// Reserved.
    pub reserved7: [u8; 2],
    /// Persist Through Power Loss state.
    pub persists: u8,
    /// Reserved.
    pub reserved10: [u8; 14],
    /// Reserved.
    pub reserved24: [[u8; 20]; 2],
}

/// A controller of a registrant in the extended reservation status: 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReportEntry {
    /// Controller; FFFFh for a host without one.
    pub cntlid: U16,
    /// Bit 0: the host holds the reservation.
    pub status: u8,
    /// Reserved.
    pub reserved3: [u8; 5],
    /// Its key.
    pub key: U64,
    /// Host identifier.
    pub hostid: [u8; 16],
    /// Reserved.
    pub reserved32: [u8; 32],
}

const _: () = {
    assert!(size_of::<ReportHeader>() == 64);
    assert!(size_of::<ReportEntry>() == 64);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::opcode::io;
    use std::mem::offset_of;

    /// Keys 0807060504030201h and 100f0e0d0c0b0a09h.
    const DATA: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

    fn sqe(opcode: u8, cdw10: u32) -> Sqe {
        Sqe::new(opcode, 1).with_cdw(10, cdw10)
    }

    #[test]
    fn register_has_the_specified_fields() {
        let decode = |cdw10| Register::decode(&sqe(io::RESERVATION_REGISTER, cdw10), &DATA);
        let expected = Register {
            action: RegisterAction::Replace,
            ignore_key: true,
            persist: Some(true),
            key: 0x0807_0605_0403_0201,
            new_key: 0x100f_0e0d_0c0b_0a09,
        };
        assert_eq!(decode(0xc000_000a), Some(expected));
        let expected = Register { action: RegisterAction::Unregister, persist: Some(false), ..expected };
        assert_eq!(decode(0x8000_0009), Some(expected));
        let expected = Register { action: RegisterAction::Register, ignore_key: false, persist: None, ..expected };
        assert_eq!(decode(0x3fff_fff0), Some(expected), "reserved bits");
        for reserved in [3, 7, 0x4000_0000] {
            assert_eq!(decode(reserved), None, "{reserved:#x}");
        }
        assert_eq!(Register::decode(&sqe(io::RESERVATION_REGISTER, 0), &DATA[..15]), None);
    }

    #[test]
    fn acquire_has_the_specified_fields() {
        let decode = |cdw10| Acquire::decode(&sqe(io::RESERVATION_ACQUIRE, cdw10), &DATA);
        let actions = [AcquireAction::Acquire, AcquireAction::Preempt, AcquireAction::PreemptAndAbort];
        for (cdw10, action) in (0..).zip(actions) {
            let expected = Acquire {
                action,
                kind: Type::ExclusiveAccessRegistrants,
                key: 0x0807_0605_0403_0201,
                preempted: 0x100f_0e0d_0c0b_0a09,
            };
            assert_eq!(decode(0xffff_0400 | cdw10), Some(expected));
        }
        for reserved in [0x103, 0x107, 0, 0x700, 0xff00, 0x108] {
            assert_eq!(decode(reserved), None, "{reserved:#x}");
        }
    }

    #[test]
    fn release_has_the_specified_fields() {
        let decode = |cdw10| Release::decode(&sqe(io::RESERVATION_RELEASE, cdw10), &DATA[..8]);
        let key = 0x0807_0605_0403_0201;
        let release = Release { action: ReleaseAction::Release, kind: Some(Type::ExclusiveAccessAll), key };
        assert_eq!(decode(0x600), Some(release));
        assert_eq!(decode(1), Some(Release { action: ReleaseAction::Clear, kind: None, key }));
        for reserved in [0x602, 0x607, 0, 0x700, 0x608, 0x9] {
            assert_eq!(decode(reserved), None, "{reserved:#x}");
        }
    }

    #[test]
    fn report_counts_dwords_from_zero() {
        let sqe = sqe(io::RESERVATION_REPORT, u32::MAX).with_cdw(11, 1);
        assert_eq!(Report::decode(&sqe), Report { len: 0x4_0000_0000, extended: true });
        assert!(!Report::decode(&sqe.with_cdw(11, 2)).extended);
    }

    #[test]
    fn the_status_has_the_specified_offsets() {
        assert_eq!(offset_of!(ReportHeader, kind), 4);
        assert_eq!(offset_of!(ReportHeader, entries), 5);
        assert_eq!(offset_of!(ReportHeader, persists), 9);
        assert_eq!(offset_of!(ReportEntry, status), 2);
        assert_eq!(offset_of!(ReportEntry, key), 8);
        assert_eq!(offset_of!(ReportEntry, hostid), 16);
    }
}
