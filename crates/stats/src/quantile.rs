//! Quantiles with distribution-free intervals.
//!
//! The number of observations below the true p-quantile is binomial with (n, p), whatever the distribution. So two order statistics
//! enclose the quantile with a known probability. If n is too small for such a rank, that end is unbounded. This requires independent
//! observations. Latencies in one queue depend on each other; for them use the quantile of each replication and the interval over
//! replications ([`over_replications`]).

use crate::Estimate;
use crate::binomial::below;
use crate::mean::mean;

/// Ranks, from 1, of the order statistics that are the p-quantile of `n` observations and the ends of its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// The quantile: the least rank with a fraction p at or below it.
    pub value: u64,
    /// Lower end; `None` if unbounded.
    pub low: Option<u64>,
    /// Upper end; `None` if unbounded.
    pub high: Option<u64>,
}

/// The ranks for a quantile `p` of `n` observations; `None` if n is 0 or p not between 0 and 1.
#[must_use]
pub fn ranks(n: u64, p: f64, confidence: f64) -> Option<Ranks> {
    if n == 0 || !(p > 0.0 && p < 1.0) {
        return None;
    }
    let tail = (1.0 - confidence) / 2.0;
    // Probability of fewer than `rank` observations below the quantile; grows with the rank.
    let fewer = |rank: u64| below(n, p, rank);
    let low = last(n, |rank| fewer(rank) <= tail);
    let high = last(n, |rank| 1.0 - fewer(rank) > tail) + 1;
    Some(Ranks {
        value: ((p * n as f64).ceil() as u64).clamp(1, n),
        low: (low > 0).then_some(low),
        high: (high <= n).then_some(high),
    })
}

/// The last of 1 to n for which the monotone condition `holds`; 0 if there is none.
fn last(n: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut yes, mut no) = (0, n + 1);
    while no - yes > 1 {
        let middle = u64::midpoint(yes, no);
        if holds(middle) { yes = middle } else { no = middle }
    }
    yes
}

/// The quantile `p` of unsorted samples; `None` without samples.
#[must_use]
pub fn of_samples(samples: &[f64], p: f64, confidence: f64) -> Option<Estimate> {
    let ranks = ranks(samples.len() as u64, p, confidence)?;
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(estimate(ranks, samples.len() as u64, |rank| sorted[rank as usize - 1]))
}

/// The quantile `p` of a histogram of (value, count), ascending by value; `None` if it is empty.
#[must_use]
pub fn of_counts(counts: &[(f64, u64)], p: f64, confidence: f64) -> Option<Estimate> {
    debug_assert!(counts.is_sorted_by(|a, b| a.0 < b.0), "a histogram must be sorted by value");
    let total = counts.iter().map(|(_, count)| count).sum();
    let ranks = ranks(total, p, confidence)?;
    Some(estimate(ranks, total, |rank| at_rank(counts, rank)))
}

fn at_rank(counts: &[(f64, u64)], rank: u64) -> f64 {
    let mut seen = 0;
    for &(value, count) in counts {
        seen += count;
        if seen >= rank {
            return value;
        }
    }
    f64::NAN // unreachable: `ranks` returns no rank beyond the total
}

fn estimate(ranks: Ranks, n: u64, value: impl Fn(u64) -> f64) -> Estimate {
    Estimate {
        value: value(ranks.value),
        low: ranks.low.map_or(f64::NEG_INFINITY, &value),
        high: ranks.high.map_or(f64::INFINITY, &value),
        n: n as usize,
    }
}

/// The mean of the replications' quantiles, with Student's t interval: valid for observations that depend on each other within a
/// replication. Empty replications are skipped; `None` if all are empty.
#[must_use]
pub fn over_replications(replications: &[Vec<f64>], p: f64, confidence: f64) -> Option<Estimate> {
    let each: Vec<f64> = replications
        .iter()
        .filter_map(|samples| of_samples(samples, p, confidence))
        .map(|quantile| quantile.value)
        .collect();
    mean(&each, confidence)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::{Draws, share};

    #[test]
    fn ranks_match_published_tables() {
        // the median of 20: the 6th and the 15th of them, 95.9 %
        assert_eq!(ranks(20, 0.5, 0.95), Some(Ranks { value: 10, low: Some(6), high: Some(15) }));
        // five observations cannot bound their median with 95 %: 1 - 2 / 2^5 = 93.75 %
        assert_eq!(ranks(5, 0.5, 0.95), Some(Ranks { value: 3, low: None, high: None }));
        assert_eq!(ranks(6, 0.5, 0.95), Some(Ranks { value: 3, low: Some(1), high: Some(6) }));
        // of 100 observations none is above the 99th percentile with 95 %
        assert_eq!(ranks(100, 0.99, 0.95).unwrap().high, None);
        assert_eq!(ranks(0, 0.5, 0.95), None);
        assert_eq!(ranks(9, 1.0, 0.95), None);
    }

    #[test]
    fn intervals_have_at_least_nominal_coverage() {
        let p99 = -(0.01_f64.ln());
        let holds = |draws: &mut Draws| {
            let samples: Vec<f64> = (0..1_000).map(|_| draws.exponential()).collect();
            of_samples(&samples, 0.99, 0.95).unwrap().contains(p99)
        };
        let covered = share(1_500, holds);
        assert!((0.94..0.99).contains(&covered), "{covered}");
    }

    #[test]
    fn intervals_over_replications_have_nominal_coverage() {
        let p90 = -(0.1_f64.ln());
        let holds = |draws: &mut Draws| {
            let runs: Vec<Vec<f64>> = (0..10).map(|_| (0..400).map(|_| draws.exponential()).collect()).collect();
            over_replications(&runs, 0.9, 0.95).unwrap().contains(p90)
        };
        let covered = share(800, holds);
        assert!((0.92..0.98).contains(&covered), "{covered}");
        assert_eq!(over_replications(&[vec![], vec![]], 0.5, 0.95), None);
    }

    #[test]
    fn large_histograms_have_narrow_intervals() {
        let counts: Vec<(f64, u64)> = (0..1_000).map(|i| (f64::from(i), 100_000)).collect();
        let p99_9 = of_counts(&counts, 0.999, 0.95).unwrap();
        assert_eq!(p99_9.value, 998.0);
        assert!(p99_9.low >= 997.0 && p99_9.high <= 999.0, "{p99_9:?}");
    }

    proptest! {
        #[test]
        fn a_histogram_equals_its_samples(
            counts in prop::collection::vec(0_u64..30, 1..20),
            p in 0.01_f64..0.99,
        ) {
            let counts: Vec<(f64, u64)> = counts.into_iter().enumerate().map(|(i, n)| (i as f64, n)).collect();
            let samples: Vec<f64> = counts.iter().flat_map(|&(value, n)| (0..n).map(move |_| value)).collect();
            prop_assert_eq!(of_counts(&counts, p, 0.95), of_samples(&samples, p, 0.95));
        }
    }
}
