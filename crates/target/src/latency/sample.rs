//! What an answer carries about a sampled receive: one word, so that answers to commands that are not sampled stay small.
//!
//! | bits | what |
//! |---|---|
//! | 0-31 | time from the socket to the poll, in nanoseconds |
//! | 32-57 | 1 + index of the namespace; 0 for none |
//! | 58-61 | binary logarithm of the number of receives that it stands for |
//! | 62 | whether the kernel has stamped it |
//! | 63 | set |

const WAITED: u64 = u32::MAX as u64;
const NAMESPACE_AT: u32 = 32;
/// Namespaces of a higher index have no latency of their own.
const NAMESPACES: u32 = (1 << 26) - 1;
const WEIGHT_AT: u32 = 58;
const STAMPED: u64 = 1 << 62;
const SAMPLED: u64 = 1 << 63;

/// A sampled receive.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample(u64);

impl Sample {
    /// Of a receive that is not sampled.
    pub const NONE: Self = Self(0);

    /// One that stands for 2^`weight_log2` receives (at most 2^15). `waited_ns`: for how long its bytes were at the socket before the poll (4.3 s
    /// at most are counted), if the kernel says so.
    #[must_use]
    pub fn new(weight_log2: u32, waited_ns: Option<u64>) -> Self {
        let stamped = if waited_ns.is_some() { STAMPED } else { 0 };
        let weight = u64::from(weight_log2 & 0xf) << WEIGHT_AT;
        Self(SAMPLED | stamped | weight | waited_ns.unwrap_or(0).min(WAITED))
    }

    /// Whether there is one.
    #[inline]
    #[must_use]
    pub fn is_some(self) -> bool {
        self.0 != 0
    }

    /// The same for a command to the namespace at this index.
    #[must_use]
    pub fn of_namespace(self, index: u32) -> Self {
        let number = if index < NAMESPACES { u64::from(index + 1) } else { 0 };
        Self(self.0 & !(u64::from(NAMESPACES) << NAMESPACE_AT) | number << NAMESPACE_AT)
    }

    /// Index of the namespace of the command.
    #[must_use]
    pub fn namespace(self) -> Option<u32> {
        ((self.0 >> NAMESPACE_AT) as u32 & NAMESPACES).checked_sub(1)
    }

    /// Time from the socket to the poll, in nanoseconds.
    #[must_use]
    pub fn waited_ns(self) -> u64 {
        self.0 & WAITED
    }

    /// How many receives it stands for.
    #[must_use]
    pub fn weight(self) -> u16 {
        1 << (self.0 >> WEIGHT_AT & 0xf)
    }

    /// Whether the time is the kernel's, not that of the poll.
    #[must_use]
    pub fn is_stamped(self) -> bool {
        self.0 & STAMPED != 0
    }
}

impl std::fmt::Debug for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.is_some() {
            return f.write_str("Sample::NONE");
        }
        f.debug_struct("Sample")
            .field("waited_ns", &self.waited_ns())
            .field("namespace", &self.namespace())
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
        fn what_is_put_in_comes_out(
            weight_log2 in 0..16_u32,
            waited_ns in prop::option::of(0..1_u64 << 34),
            index in prop_oneof![0..4_u32, Just(NAMESPACES - 1), Just(NAMESPACES), any::<u32>()],
        ) {
            let sample = Sample::new(weight_log2, waited_ns).of_namespace(7).of_namespace(index);
            prop_assert!(sample.is_some() && Sample::new(weight_log2, waited_ns).namespace().is_none());
            prop_assert_eq!(sample.namespace(), Some(index).filter(|&index| index < NAMESPACES));
            prop_assert_eq!(sample.weight(), 1_u16 << weight_log2);
            prop_assert_eq!(sample.is_stamped(), waited_ns.is_some());
            prop_assert_eq!(sample.waited_ns(), waited_ns.unwrap_or(0).min(WAITED));
        }
    }
}
