//! Counters of 32 bits in the kernel (milliseconds in `/proc/diskstats`, interrupts of a CPU), widened: a decrease by more than half the
//! range is a wraparound; a smaller one is kept, as of a reconnected device.
//!
//! Sums of such counters wrap by one or several ranges. Read them before they have grown by half the range (2^31).

/// The range.
const ROUND: i64 = 1 << 32;

/// A counter of 32 bits, or a sum of some.
#[derive(Clone, Debug, Default)]
pub struct Wide {
    last: i64,
    rounds: i64,
}

impl Wide {
    /// The value as of a 64-bit counter.
    pub fn take(&mut self, value_read: i64) -> i64 {
        let fall = self.last - value_read;
        if fall > 0 {
            self.rounds += (fall + ROUND / 2) / ROUND;
        }
        self.last = value_read;
        value_read.saturating_add(self.rounds * ROUND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_what_64_bits_would_have_shown(
            start in prop::collection::vec(0..1_i64 << 33, 1..4), steps in prop::collection::vec(0..1_i64 << 29, 1..60)
        ) {
            // Several counters that wrap independently, and their sum.
            let mut truth = start;
            let value_read = |truth: &[i64]| truth.iter().map(|value| value % ROUND).sum::<i64>();
            let mut wide = Wide::default();
            let offset = truth.iter().sum::<i64>() - wide.take(value_read(&truth));
            for step in steps {
                truth.iter_mut().for_each(|value| *value += step);
                prop_assert_eq!(wide.take(value_read(&truth)) + offset, truth.iter().sum::<i64>());
            }
        }
    }

    #[test]
    fn a_device_that_came_anew_is_no_round() {
        let mut wide = Wide::default();
        assert_eq!([wide.take(1_000_000), wide.take(40), wide.take(50)], [1_000_000, 40, 50]);
    }
}
