//! Latency histograms by subsystem and operation with few buckets, for alerts.
//!
//! A [`Histogram`](pilotlight_reactor::Histogram) takes 16 KiB per I/O thread, subsystem and operation, these take 112
//! bytes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pilotlight_nvmf_proto::operation::Operation;
use pilotlight_reactor::cells::add;

/// Upper bounds of all buckets but the last, in nanoseconds.
pub const BOUNDS_NS: [u64; 12] = [
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    50_000_000,
    200_000_000,
    1_000_000_000,
];

/// Bucket of 2^index nanoseconds.
static FIRST: [u8; 64] = {
    let mut first = [0; 64];
    let mut log = 0;
    while log < 64 {
        let mut bucket = 0;
        while bucket < BOUNDS_NS.len() && 1 << log > BOUNDS_NS[bucket] {
            bucket += 1;
        }
        first[log] = bucket as u8;
        log += 1;
    }
    first
};

/// The bucket of a duration.
fn bucket_of(ns: u64) -> usize {
    let mut bucket = usize::from(FIRST[(ns | 1).ilog2() as usize]);
    while BOUNDS_NS.get(bucket).is_some_and(|&bound| ns > bound) {
        bucket += 1;
    }
    bucket
}

/// A histogram with one writer.
#[derive(Debug, Default)]
pub struct Coarse {
    counts: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

impl Coarse {
    /// Adds `count` durations of `ns` nanoseconds.
    pub(crate) fn record(&self, ns: u64, count: u64) {
        add(&self.counts[bucket_of(ns)], count);
        add(&self.sum_ns, ns.saturating_mul(count));
    }

    fn snapshot(&self) -> CoarseSnapshot {
        CoarseSnapshot {
            counts: self.counts.each_ref().map(|count| count.load(Relaxed)),
            sum_ns: self.sum_ns.load(Relaxed),
        }
    }
}

/// A copy of a [`Coarse`], or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoarseSnapshot {
    /// Counts by bucket; the last is above [`BOUNDS_NS`].
    pub counts: [u64; BOUNDS_NS.len() + 1],
    /// Their sum in nanoseconds.
    pub sum_ns: u64,
}

impl std::ops::AddAssign for CoarseSnapshot {
    fn add_assign(&mut self, other: Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, count)| *sum += count);
        self.sum_ns += other.sum_ns;
    }
}

/// Reads and writes of a subsystem on one I/O thread.
pub type Pair = [Coarse; 2];

/// An I/O thread's histograms by subsystem. The lock is for Connect and readers.
#[derive(Debug, Default)]
pub struct BySubsystem(Mutex<Vec<(usize, Arc<Pair>)>>);

impl BySubsystem {
    /// The histograms of a subsystem, created if missing.
    pub(crate) fn open(&self, subsystem: usize) -> Arc<Pair> {
        let mut all = self.lock();
        if let Some((_, pair)) = all.iter().find(|(at, _)| *at == subsystem) {
            return Arc::clone(pair);
        }
        let pair = Arc::<Pair>::default();
        all.push((subsystem, Arc::clone(&pair)));
        pair
    }

    /// Drops the histograms of a subsystem without connections.
    pub(crate) fn forget(&self, subsystem: usize) {
        self.lock().retain(|(at, _)| *at != subsystem);
    }

    /// A copy of all histograms.
    pub(crate) fn snapshot(&self) -> Vec<(usize, Operation, CoarseSnapshot)> {
        let all = self.lock().clone();
        let of_pair = |(subsystem, pair): &(usize, Arc<Pair>)| {
            let one = |(operation, coarse): (Operation, &Coarse)| (*subsystem, operation, coarse.snapshot());
            Operation::ALL.into_iter().zip(pair.iter()).map(one).collect::<Vec<_>>()
        };
        all.iter().flat_map(of_pair).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(usize, Arc<Pair>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_duration_is_in_the_first_bucket_that_contains_it(bits in 0..64, ns: u64, at in 0..BOUNDS_NS.len(), off in -1..=1_i64) {
            for ns in [ns >> bits, BOUNDS_NS[at].saturating_add_signed(off)] {
                let expected = BOUNDS_NS.iter().position(|&bound| ns <= bound).unwrap_or(BOUNDS_NS.len());
                prop_assert_eq!(bucket_of(ns), expected, "{} ns", ns);
            }
        }
    }
}
