//! Histograms of durations in fixed memory: log-linear buckets with one writer and any number of readers.
//!
//! Below 128 ns each value has its own bucket; above, each power of two is divided into 64. So a bucket is at most 1/64 (1.6 %)
//! of its values wide, up to 137 s; longer durations count as that.
//!
//! The writer adds with plain loads and stores. A reader copies the buckets one after the other ([`HistogramSnapshot`]). A
//! concurrent record may be in the copy or not, but buckets never decrease, so the difference of two copies is the records
//! between them, except for concurrent ones.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::counter::add;

/// Buckets for each power of two, as a power of two.
const SUB_BITS: u32 = 6;
/// Values are less than two to the power of this.
const BITS: u32 = 37;
const LONGEST_NS: u64 = (1 << BITS) - 1;
const BUCKETS: usize = ((BITS - SUB_BITS + 1) as usize) << SUB_BITS;

/// The bucket of a value of at most [`LONGEST_NS`].
const fn bucket_of(ns: u64) -> usize {
    let shift = (ns | 1 << SUB_BITS).ilog2() - SUB_BITS;
    ((shift as usize) << SUB_BITS) + (ns >> shift) as usize
}

/// The longest duration in a bucket, in nanoseconds.
const fn longest_in(bucket: usize) -> u64 {
    let shift = (bucket >> SUB_BITS).saturating_sub(1);
    (((bucket - (shift << SUB_BITS)) as u64 + 1) << shift) - 1
}

const _: () = assert!(bucket_of(LONGEST_NS) == BUCKETS - 1 && longest_in(BUCKETS - 1) == LONGEST_NS);

/// Durations as they are counted; written by one thread, or by all with [`Histogram::record_shared`].
pub struct Histogram {
    counts: Box<[AtomicU64]>,
    sum_ns: AtomicU64,
}

impl Histogram {
    /// Counts `count` times a duration of `ns` nanoseconds.
    pub fn record(&self, ns: u64, count: u64) {
        let ns = ns.min(LONGEST_NS);
        add(&self.counts[bucket_of(ns)], count);
        add(&self.sum_ns, ns * count);
    }

    /// As [`Histogram::record`], where several threads write.
    pub fn record_shared(&self, ns: u64, count: u64) {
        let ns = ns.min(LONGEST_NS);
        self.counts[bucket_of(ns)].fetch_add(count, Relaxed);
        self.sum_ns.fetch_add(ns * count, Relaxed);
    }

    /// A copy as of now.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            counts: self.counts.iter().map(|count| count.load(Relaxed)).collect(),
            sum_ns: self.sum_ns.load(Relaxed),
        }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), sum_ns: AtomicU64::new(0) }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// A copy of a [`Histogram`], the difference of two, or the sum of several.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Empty if nothing was counted.
    counts: Box<[u64]>,
    sum_ns: u64,
}

impl HistogramSnapshot {
    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their mean in nanoseconds; 0 if there are none.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count()).unwrap_or(0)
    }

    /// Their sum in nanoseconds.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// How many of them were in buckets that end at `ns` nanoseconds or before: those up to `ns`, but for those within 1.6 % of it.
    #[must_use]
    pub fn count_up_to(&self, ns: u64) -> u64 {
        let wholly = |(bucket, _): &(usize, &u64)| longest_in(*bucket) <= ns;
        self.counts.iter().enumerate().take_while(wholly).map(|(_, count)| count).sum()
    }

    /// The duration in nanoseconds that at least `share` of all (0 to 1) do not exceed, up to 1.6 % too long; 0 if there are
    /// none.
    #[must_use]
    pub fn percentile_ns(&self, share: f64) -> u64 {
        let count = self.count();
        let wanted = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let reaches = |&count: &u64| {
            seen += count;
            seen >= wanted
        };
        self.counts.iter().position(reaches).map_or(0, longest_in)
    }

    /// The longest in nanoseconds, up to 1.6 % too long; 0 if there are none.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.percentile_ns(1.0)
    }

    /// What was counted since the snapshot `earlier` of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        Self {
            counts: self.counts.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect(),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
        }
    }
}

impl std::ops::AddAssign<&Self> for HistogramSnapshot {
    fn add_assign(&mut self, other: &Self) {
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
        } else {
            self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        }
        self.sum_ns += other.sum_ns;
    }
}

impl std::fmt::Debug for HistogramSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (p50, p99, max) = (self.percentile_ns(0.5), self.percentile_ns(0.99), self.max_ns());
        write!(f, "{} durations, p50 {p50} ns, p99 {p99} ns, max {max} ns", self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let longest = longest_in(bucket);
            assert_eq!((bucket_of(next), bucket_of(longest)), (bucket, bucket));
            let width = longest - next + 1;
            assert!(width == 1 || width * 64 <= next, "bucket {bucket} of {next} ns is {width} ns wide");
            next = longest + 1;
        }
        assert_eq!(next, LONGEST_NS + 1);
    }

    #[test]
    fn nothing_has_no_percentiles() {
        for empty in [HistogramSnapshot::default(), Histogram::default().snapshot()] {
            assert_eq!((empty.count(), empty.mean_ns(), empty.percentile_ns(0.5), empty.max_ns()), (0, 0, 0, 0));
        }
    }

    #[test]
    fn what_is_too_long_counts_as_the_longest() {
        let histogram = Histogram::default();
        histogram.record(u64::MAX, 1);
        assert_eq!(histogram.snapshot().max_ns(), LONGEST_NS);
    }

    fn duration() -> impl Strategy<Value = u64> {
        (0..BITS, any::<u64>()).prop_map(|(bits, ns)| ns & ((1 << bits) - 1))
    }

    proptest! {
        /// Against the sorted list: percentiles are those of the list or up to 1/64 more, differences are exact.
        #[test]
        fn agrees_with_a_sorted_list(first in prop::collection::vec(duration(), 0..50), mut second in prop::collection::vec(duration(), 1..200)) {
            let histogram = Histogram::default();
            first.iter().for_each(|&ns| histogram.record(ns, 1));
            let before = histogram.snapshot();
            second.iter().for_each(|&ns| histogram.record(ns, 3));
            let all = histogram.snapshot();
            let snapshot = all.since(&before);
            second.sort_unstable();
            prop_assert_eq!(snapshot.count(), 3 * second.len() as u64);
            prop_assert_eq!(snapshot.mean_ns(), second.iter().sum::<u64>() / second.len() as u64);
            for share in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let rank = ((second.len() as f64 * 3.0 * share).ceil() as usize).max(1).div_ceil(3);
                let exact = second[rank - 1];
                let got = snapshot.percentile_ns(share);
                prop_assert!(got >= exact && got - exact <= exact / 64, "{}: {} instead of {}", share, got, exact);
            }
            let mut sum = before;
            sum += &snapshot;
            prop_assert_eq!(sum, all);
        }
    }
}
