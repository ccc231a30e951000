//! Latency histogram with buckets no wider than 1/128 of their value.

use serde::{Deserialize, Serialize};

/// A histogram of nanoseconds; values above about 18 hours count as that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Stored", try_from = "Stored")]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

/// A histogram in a file: only buckets with values.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// Bucket and count.
    counts: Vec<(usize, u64)>,
    sum: u64,
    max: u64,
}

impl From<Histogram> for Stored {
    fn from(histogram: Histogram) -> Self {
        let counts = histogram.counts.into_iter().enumerate().filter(|(_, count)| *count > 0).collect();
        Self { counts, sum: histogram.sum, max: histogram.max }
    }
}

impl TryFrom<Stored> for Histogram {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        let mut histogram = Self { sum: stored.sum, max: stored.max, ..Self::default() };
        for (bucket, count) in stored.counts {
            *histogram.counts.get_mut(bucket).ok_or("a histogram has an invalid bucket")? += count;
            histogram.count += count;
        }
        Ok(histogram)
    }
}

/// Buckets per power of two, as a power of two.
const FINE: u32 = 7;
/// Each value below this has its own bucket.
const EXACT: u64 = 1 << (FINE + 1);
/// Beyond 2^46 ns.
const LAST: u64 = (1 << 46) - 1;

fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - FINE;
    ((u64::from(shift) << FINE) + (value >> shift)) as usize
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let shift = (bucket >> FINE) - 1;
    let high = bucket - (shift << FINE);
    ((high + 1) << shift) - 1
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; bucket(LAST) + 1], count: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Adds one value in nanoseconds.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.counts[bucket(value.min(LAST))] += 1;
        self.count += 1;
        self.sum += value;
        self.max = self.max.max(value);
    }

    /// Adds all values of another.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Adds all values of another, times `weight`. Counts are whole numbers: the remainder of a bucket is carried to the next, and the last
    /// one to the next call in `carry`.
    pub fn merge_weighted(&mut self, other: &Self, weight: f64, carry: &mut f64) {
        for (mine, &theirs) in self.counts.iter_mut().zip(&other.counts).filter(|&(_, &theirs)| theirs > 0) {
            let exact = theirs as f64 * weight + *carry;
            let whole = exact.floor().max(0.0);
            *carry = exact - whole;
            *mine += whole as u64;
            self.count += whole as u64;
        }
        self.sum += (other.sum as f64 * weight) as u64;
        self.max = self.max.max(other.max);
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean in nanoseconds; 0 without values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The sum in nanoseconds.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The maximum in nanoseconds.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The quantile `share` in nanoseconds, at most 1/128 too large; 0 without values.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((share * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper(bucket).min(self.max);
            }
        }
        0
    }

    /// `(largest value, count)` of every non-empty bucket, in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|&(_, &count)| count > 0).map(|(at, &count)| (upper(at), count))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn buckets_contain_their_values_and_are_narrow(value in 0..=LAST) {
            let upper = upper(bucket(value));
            prop_assert!(upper >= value);
            prop_assert!(upper - value <= value / 128);
        }

        #[test]
        fn a_whole_weight_equals_repeated_merging(values in prop::collection::vec(0..1_000_000_u64, 1..50), weight in 1..20_u64) {
            let (mut one, mut often, mut weighted) = (Histogram::default(), Histogram::default(), Histogram::default());
            values.iter().for_each(|&value| one.record(value));
            (0..weight).for_each(|_| often.merge(&one));
            weighted.merge_weighted(&one, weight as f64, &mut 0.0);
            prop_assert_eq!(&weighted, &often);
            let mut carry = 0.0;
            let mut thirds = Histogram::default();
            (0..3).for_each(|_| thirds.merge_weighted(&one, weight as f64 / 3.0, &mut carry));
            prop_assert!(thirds.count().abs_diff(often.count()) <= 1, "{} {}", thirds.count(), often.count());
        }

        #[test]
        fn quantiles_match_sorted_values(mut values in prop::collection::vec(0..1_000_000_u64, 1..200), share in 0.01..1.0_f64) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record(value));
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).max(1_usize);
            let exact = values[rank - 1];
            let ours = histogram.quantile(share);
            prop_assert!(ours >= exact && ours - exact <= exact / 128, "{ours} for {exact}");
        }
    }
}
