//! A response's information about its command and its sampled receive: one word, to keep responses small.
//!
//! | bits | content |
//! |---|---|
//! | 0-31 | time from the socket to the poll, in nanoseconds |
//! | 32-42 | NSID, if the receive is sampled; 0 for none |
//! | 43-56 | index of the subsystem |
//! | 57 | whether the command is a write, not a read |
//! | 58-61 | binary logarithm of the weight |
//! | 62 | whether it has a timestamp |
//! | 63 | whether the receive is sampled |

use crate::subsystems::config::MAX_NSID;

const WAITED: u64 = u32::MAX as u64;
const NAMESPACE_AT: u32 = 32;
const NAMESPACES: u64 = (1 << 11) - 1;
const SUBSYSTEM_AT: u32 = 43;
/// Highest index; subsystems above are counted with this one.
const SUBSYSTEMS: u64 = (1 << 14) - 1;
const WRITE_AT: u32 = 57;
const WEIGHT_AT: u32 = 58;
const STAMPED: u64 = 1 << 62;
const SAMPLED: u64 = 1 << 63;

const _: () = assert!(MAX_NSID as u64 <= NAMESPACES);

/// A sample; see the module.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample(u64);

impl Sample {
    /// For unsampled receives, and commands other than reads and writes.
    pub const NONE: Self = Self(0);

    /// A sample with weight 2^`weight_log2` (at most 2^15) and the time from the socket to the poll (at most 4.3 s are
    /// counted), if known.
    #[inline]
    #[must_use]
    pub fn new(weight_log2: u32, waited_ns: Option<u64>) -> Self {
        let stamped = if waited_ns.is_some() { STAMPED } else { 0 };
        let weight = u64::from(weight_log2 & 0xf) << WEIGHT_AT;
        Self(SAMPLED | stamped | weight | waited_ns.unwrap_or(0).min(WAITED))
    }

    /// Whether the receive is sampled.
    #[inline]
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.0 & SAMPLED != 0
    }

    /// For reads or writes of a subsystem.
    #[must_use]
    pub fn of_subsystem(index: usize, is_write: bool) -> Self {
        Self((index as u64).min(SUBSYSTEMS) << SUBSYSTEM_AT | u64::from(is_write) << WRITE_AT)
    }

    /// This sample, combined with [`Sample::of_subsystem`].
    #[inline]
    #[must_use]
    pub fn of_command(self, command: Self) -> Self {
        Self(self.0 | command.0)
    }

    /// This sample for a command to this namespace.
    #[inline]
    #[must_use]
    pub fn of_namespace(self, nsid: u32) -> Self {
        Self(self.0 | u64::from(nsid).min(NAMESPACES) << NAMESPACE_AT)
    }

    /// NSID of the command, if known.
    #[must_use]
    pub fn namespace(self) -> Option<u32> {
        Some((self.0 >> NAMESPACE_AT & NAMESPACES) as u32).filter(|&nsid| nsid != 0)
    }

    /// Index of the subsystem of the command.
    #[inline]
    #[must_use]
    pub fn subsystem(self) -> usize {
        (self.0 >> SUBSYSTEM_AT & SUBSYSTEMS) as usize
    }

    /// Whether the command is a write, not a read.
    #[inline]
    #[must_use]
    pub fn is_write(self) -> bool {
        self.0 >> WRITE_AT & 1 == 1
    }

    /// Time from the socket to the poll, in nanoseconds.
    #[must_use]
    pub fn waited_ns(self) -> u64 {
        self.0 & WAITED
    }

    /// Number of receives represented.
    #[must_use]
    pub fn weight(self) -> u16 {
        1 << (self.0 >> WEIGHT_AT & 0xf)
    }

    /// Whether it has a timestamp.
    #[must_use]
    pub fn is_stamped(self) -> bool {
        self.0 & STAMPED != 0
    }
}

impl std::fmt::Debug for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sample")
            .field("waited_ns", &self.waited_ns())
            .field("subsystem", &self.subsystem())
            .field("namespace", &self.namespace())
            .field("is_write", &self.is_write())
            .field("is_sampled", &self.is_sampled())
            .field("weight", &self.weight())
            .field("is_stamped", &self.is_stamped())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fields_are_packed(
            weight_log2 in 0..16_u32,
            waited_ns in prop::option::of(0..1_u64 << 34),
            nsid in 1..=MAX_NSID,
            subsystem in prop_oneof![0..4_usize, Just(SUBSYSTEMS as usize), any::<usize>()],
            is_write: bool,
        ) {
            let received = Sample::new(weight_log2, waited_ns);
            prop_assert!(received.is_sampled() && received.namespace().is_none());
            let command = Sample::of_subsystem(subsystem, is_write);
            let sample = received.of_command(command).of_namespace(nsid);
            prop_assert!(sample.is_sampled() && !command.is_sampled());
            prop_assert_eq!(sample.namespace(), Some(nsid));
            prop_assert_eq!((sample.subsystem(), sample.is_write()), (subsystem.min(SUBSYSTEMS as usize), is_write));
            prop_assert_eq!(sample.weight(), 1_u16 << weight_log2);
            prop_assert_eq!(sample.is_stamped(), waited_ns.is_some());
            prop_assert_eq!(sample.waited_ns(), waited_ns.unwrap_or(0).min(WAITED));
        }
    }
}
