//! Sizes of requests: exact for few distinct sizes, else with a resolution of 1/1,024.

use std::collections::BTreeMap;

use serde::Serialize;

/// Most distinct sizes that are exact.
const EXACT: usize = 1 << 16;
/// Leading bits that are kept otherwise.
const BITS: u32 = 11;

#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    counts: BTreeMap<u32, u64>,
    total: u64,
    rounded: bool,
    /// The last size and its count, not yet in `counts`: sizes come in runs.
    run: (u32, u64),
}

/// The sizes of one kind of request, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeSummary {
    /// Smallest.
    pub min_bytes: u32,
    /// First quartile.
    pub quartile1_bytes: u32,
    /// Median.
    pub median_bytes: u32,
    /// Third quartile.
    pub quartile3_bytes: u32,
    /// 99th percentile.
    pub p99_bytes: u32,
    /// Largest.
    pub max_bytes: u32,
    /// Whether these are exact; if not, they are up to 0.1 % too small.
    pub exact: bool,
}

impl Sizes {
    #[inline]
    pub(super) fn add(&mut self, bytes: u32) {
        self.total += 1;
        if self.run.0 == bytes {
            self.run.1 += 1;
            return;
        }
        self.end_run();
        self.run = (bytes, 1);
    }

    fn end_run(&mut self) {
        let (bytes, count) = std::mem::take(&mut self.run);
        if count == 0 {
            return;
        }
        *self.counts.entry(if self.rounded { rounded(bytes) } else { bytes }).or_default() += count;
        if self.counts.len() > EXACT {
            self.rounded = true;
            for (bytes, count) in std::mem::take(&mut self.counts) {
                *self.counts.entry(rounded(bytes)).or_default() += count;
            }
        }
    }

    pub(super) fn summary(&self) -> Option<SizeSummary> {
        let mut all = self.clone();
        all.end_run();
        let quantile = |fraction: f64| {
            let mut left = (fraction * all.total as f64).ceil().max(1.0) as u64;
            all.counts.iter().find_map(|(&bytes, &count)| {
                let reached = count >= left;
                left -= left.min(count);
                reached.then_some(bytes)
            })
        };
        Some(SizeSummary {
            min_bytes: *all.counts.first_key_value()?.0,
            quartile1_bytes: quantile(0.25)?,
            median_bytes: quantile(0.5)?,
            quartile3_bytes: quantile(0.75)?,
            p99_bytes: quantile(0.99)?,
            max_bytes: *all.counts.last_key_value()?.0,
            exact: !all.rounded,
        })
    }
}

/// Rounded down to the leading bits.
fn rounded(bytes: u32) -> u32 {
    let low = (32 - bytes.leading_zeros()).saturating_sub(BITS);
    bytes >> low << low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    fn summary(sizes: impl IntoIterator<Item = u32>) -> SizeSummary {
        let mut all = Sizes::default();
        sizes.into_iter().for_each(|bytes| all.add(bytes));
        all.summary().unwrap()
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_a_sorted_vector(mut sizes in proptest::collection::vec(1_u32..40, 1..200)) {
            let result = summary(sizes.iter().copied());
            sizes.sort_unstable();
            let at = |num: usize, den: usize| sizes[((sizes.len() * num).div_ceil(den)).max(1) - 1];
            prop_assert_eq!(
                (result.quartile1_bytes, result.median_bytes, result.quartile3_bytes, result.p99_bytes),
                (at(1, 4), at(1, 2), at(3, 4), at(99, 100))
            );
            prop_assert_eq!((result.min_bytes, result.max_bytes), (sizes[0], *sizes.last().unwrap()));
            prop_assert!(result.exact);
        }
    }

    #[test]
    fn many_distinct_sizes_are_rounded_by_less_than_one_in_a_thousand() {
        let result = summary((1..=400_000).map(|n| n * 7));
        assert!(!result.exact);
        for (found, true_value) in [(result.median_bytes, 1_400_000.0), (result.quartile3_bytes, 2_100_000.0)] {
            let error = 1.0 - f64::from(found) / true_value;
            assert!((0.0..0.001).contains(&error), "{found}: {error}");
        }
    }
}
