//! A histogram of durations that one thread writes and anyone reads: fixed memory, no lock, no locked instruction.
//!
//! Buckets are log-linear: 32 to each power of two, so a value is known to about 3 %; below 32 ns exactly. A reader takes a
//! [`HistogramSnapshot`]; what happened between two moments is the difference of theirs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets to a power of two, as a power of two.
const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// Values from 2^40 ns (18 minutes) on share the last bucket.
const TOP_BITS: u32 = 40;
const BUCKETS: usize = (TOP_BITS - SUB_BITS + 1) as usize * SUB;

/// Counts of durations in nanoseconds.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    max_ns: AtomicU64,
}

/// The counts of a [`Histogram`] at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    buckets: Vec<u64>,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), max_ns: AtomicU64::new(0) }
    }
}

fn bucket(value: u64) -> usize {
    if value < SUB as u64 {
        return value as usize;
    }
    let exponent = value.ilog2();
    let within = (value >> (exponent - SUB_BITS)) as usize & (SUB - 1);
    ((exponent - SUB_BITS + 1) as usize * SUB + within).min(BUCKETS - 1)
}

/// The largest value that falls into a bucket.
fn highest(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let shift = (bucket / SUB - 1) as u32;
    (((SUB + bucket % SUB + 1) as u64) << shift) - 1
}

impl Histogram {
    /// Notes `times` durations of `value_ns`. For one writing thread at a time.
    pub fn record(&self, value_ns: u64, times: u64) {
        let slot = &self.buckets[bucket(value_ns)];
        slot.store(slot.load(Relaxed) + times, Relaxed);
        if value_ns > self.max_ns.load(Relaxed) {
            self.max_ns.store(value_ns, Relaxed);
        }
    }

    /// The counts as of now.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        let buckets = self.buckets.iter().map(|count| count.load(Relaxed)).collect();
        HistogramSnapshot { buckets, max_ns: self.max_ns.load(Relaxed) }
    }
}

impl HistogramSnapshot {
    /// Number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The largest duration ever noted, in nanoseconds; 0 if there is none.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The duration in nanoseconds that a share of `q` (0 to 1) does not exceed; 0 if there is none.
    #[must_use]
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let wanted = (q * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return highest(at).min(self.max_ns);
            }
        }
        0
    }

    /// What was noted since `earlier`. The largest duration stays that of all time.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |at: usize| earlier.buckets.get(at).copied().unwrap_or(0);
        let buckets = self.buckets.iter().enumerate().map(|(at, &count)| count.saturating_sub(before(at))).collect();
        Self { buckets, max_ns: self.max_ns }
    }

    /// Adds what another has noted.
    pub fn add(&mut self, other: &Self) {
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_within_three_percent() {
        let mut last = 0;
        for value in (0..2_000_000).step_by(7).chain((20..40).map(|bits| (1 << bits) + 12_345)) {
            let at = bucket(value);
            assert!(highest(at) >= value, "{value}");
            assert!(highest(at) - value <= value / 32 + 1, "{value} reads as {}", highest(at));
            assert!(at >= last, "{value}");
            last = at;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_agree_with_sorting() {
        let histogram = Histogram::default();
        let mut values: Vec<u64> = (0..10_000).map(|i: u64| i * i % 77_777).collect();
        values.iter().for_each(|&value| histogram.record(value, 1));
        values.sort_unstable();
        let snapshot = histogram.snapshot();
        for q in [0.0, 0.01, 0.5, 0.99, 0.999, 1.0] {
            let exact = values[((q * 10_000.0_f64).ceil().max(1.0) as usize) - 1];
            let read = snapshot.quantile_ns(q);
            assert!(read >= exact && read <= exact + exact / 32 + 1, "{q}: {exact} reads as {read}");
        }
        assert_eq!(snapshot.since(&snapshot).count(), 0);
    }
}
