//! Power states (Base 8.15): descriptors in Identify Controller, the features Power Management (02h) and Autonomous Power State
//! Transition (0Ch).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most power states that a controller can have.
pub const MAX_STATES: usize = 32;
/// Bytes of the table of autonomous transitions: eight for each state.
pub const TABLE_LEN: usize = 8 * MAX_STATES;
/// APSTE, in command dword 11 and in the result: autonomous transitions are enabled.
pub const TRANSITIONS_ON: u32 = 1;

/// A power state descriptor (Base 5.17.2.1): 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PowerStateDescriptor {
    /// Maximum power, in 0.01 W or, with [`PowerStateDescriptor::SMALL_UNIT`], in 0.0001 W.
    pub mp: U16,
    /// Reserved.
    pub reserved2: u8,
    /// [`PowerStateDescriptor::SMALL_UNIT`] and [`PowerStateDescriptor::NON_OPERATIONAL`].
    pub flags: u8,
    /// Entry latency in microseconds.
    pub enlat: U32,
    /// Exit latency in microseconds.
    pub exlat: U32,
    /// Relative read throughput: 0 is the best, as for the next three.
    pub rrt: u8,
    /// Relative read latency.
    pub rrl: u8,
    /// Relative write throughput.
    pub rwt: u8,
    /// Relative write latency.
    pub rwl: u8,
    /// Idle and active power.
    pub reserved16: [u8; 16],
}

const _: () = assert!(size_of::<PowerStateDescriptor>() == 32);

impl PowerStateDescriptor {
    /// MXPS: the unit of the maximum power is 0.0001 W.
    pub const SMALL_UNIT: u8 = 1;
    /// NOPS: no I/O is processed in this state.
    pub const NON_OPERATIONAL: u8 = 1 << 1;

    /// Maximum power in microwatts.
    #[must_use]
    pub fn max_uw(&self) -> u32 {
        u32::from(self.mp.get()) * if self.flags & Self::SMALL_UNIT == 0 { 10_000 } else { 100 }
    }

    /// Whether I/O is processed in this state.
    #[must_use]
    pub fn is_operational(&self) -> bool {
        self.flags & Self::NON_OPERATIONAL == 0
    }
}

/// The value of Power Management (Base 5.27.1.2): command dword 11 of Set Features, dword 0 of the result of Get Features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerManagement {
    /// Power state, 0 to 31.
    pub state: u8,
    /// Workload hint, 0 to 7; 3 to 7 are reserved.
    pub hint: u8,
}

impl PowerManagement {
    /// From the 32 bits; reserved bits are ignored.
    #[must_use]
    pub const fn decode(value: u32) -> Self {
        Self { state: (value & 0x1f) as u8, hint: (value >> 5 & 7) as u8 }
    }

    /// The 32 bits.
    #[must_use]
    pub const fn encode(self) -> u32 {
        self.state as u32 | (self.hint as u32) << 5
    }
}

/// An entry of the table of autonomous transitions, for one state (Base 5.27.1.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transition {
    /// The non-operational state to enter.
    pub to: u8,
    /// Time without I/O before that, in milliseconds; 0 for never.
    pub idle_ms: u32,
}

impl Transition {
    /// From the eight bytes of an entry; reserved bits are ignored.
    #[must_use]
    pub const fn decode(entry: [u8; 8]) -> Self {
        let bits = u64::from_le_bytes(entry);
        Self { to: (bits >> 3 & 0x1f) as u8, idle_ms: (bits >> 8 & 0xff_ffff) as u32 }
    }

    /// The eight bytes of an entry.
    #[must_use]
    pub const fn encode(self) -> [u8; 8] {
        ((self.to as u64) << 3 | (self.idle_ms as u64 & 0xff_ffff) << 8).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn descriptor_fields_have_the_specified_offsets() {
        assert_eq!(offset_of!(PowerStateDescriptor, flags), 3);
        assert_eq!(offset_of!(PowerStateDescriptor, enlat), 4);
        assert_eq!(offset_of!(PowerStateDescriptor, exlat), 8);
        assert_eq!(offset_of!(PowerStateDescriptor, rrt), 12);
        assert_eq!(offset_of!(PowerStateDescriptor, rwl), 15);
    }

    #[test]
    fn maximum_power_has_two_units() {
        let state = |mp: u16, flags| PowerStateDescriptor { mp: U16::new(mp), flags, ..Default::default() };
        assert_eq!((state(849, 0).max_uw(), state(849, 0).is_operational()), (8_490_000, true));
        assert_eq!((state(50, 3).max_uw(), state(50, 3).is_operational()), (5_000, false));
    }

    #[test]
    fn values_round_trip() {
        assert_eq!(PowerManagement::decode(0x43), PowerManagement { state: 3, hint: 2 });
        for value in 0..256 {
            assert_eq!(PowerManagement::decode(value).encode(), value);
        }
        assert_eq!(PowerManagement::decode(0xffff_ff00), PowerManagement::default());
        // As Linux 6.12 sends it: to state 3 after 100 ms.
        assert_eq!(Transition::decode([0x18, 0x64, 0, 0, 0, 0, 0, 0]), Transition { to: 3, idle_ms: 100 });
        for entry in
            [Transition { to: 31, idle_ms: 0xff_ffff }, Transition { to: 0, idle_ms: 1 }, Transition::default()]
        {
            assert_eq!(Transition::decode(entry.encode()), entry);
        }
        assert_eq!(Transition::decode([0x07, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]), Transition::default());
    }
}
