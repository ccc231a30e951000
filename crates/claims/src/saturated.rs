//! Saturated runs.
//!
//! # The problem
//! Under overload the queue grows as long as the run lasts. The measured latency depends on the length of the run, and its mean is
//! meaningless.
//!
//! # Terms
//! A run is *saturated* if its metric `saturated` is 1. Latencies *grow* with the run; power, throughput and shares of time do not.
//!
//! # The algorithm
//! Every latency of a saturated run is read as infinite. With infinite values the median is used, with the distribution-free interval of
//! order statistics. If all replications are saturated the value is infinite.
//!
//! # The properties
//! No finite number depends on the latency of a saturated run. The difference of two saturated latencies is undefined, with an unbounded
//! interval.

use std::collections::BTreeMap;
use std::fmt;

use pilotlight_stats::{CONFIDENCE, Estimate, mean, quantile};
use serde::Serialize;

use super::point::Point;

/// Saturated runs of a policy at a point.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SaturatedRuns {
    /// The experiment.
    pub experiment: String,
    /// The policy.
    pub policy: String,
    /// The point.
    pub point: String,
    /// Number of saturated runs.
    pub saturated: usize,
    /// Number of all runs.
    pub runs: usize,
}

impl fmt::Display for SaturatedRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { experiment, policy, point, saturated, runs } = self;
        write!(f, "{policy} in {experiment}")?;
        if !point.is_empty() {
            write!(f, " at {point}")?;
        }
        write!(f, " {saturated}/{runs}")
    }
}

/// Whether a metric of a saturated run grows with the length of the run.
#[must_use]
pub fn grows(metric: &str) -> bool {
    let name = metric.split('@').next().unwrap_or(metric);
    name.rsplit('.').next().unwrap_or(name).starts_with("latency_")
}

/// The mean over replications with its t interval; with infinite values the median with the interval of order statistics.
#[must_use]
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    if values.iter().all(|value| value.is_finite()) { mean::mean(values, CONFIDENCE) } else { median(values) }
}

/// The median of values that may be infinite or undefined (NaN); undefined values may be anything.
#[must_use]
pub fn median(values: &[f64]) -> Option<Estimate> {
    let first = *values.first()?;
    if values.len() > 1 && values.iter().all(|value| *value == first) {
        return Some(Estimate { n: values.len(), ..Estimate::exact(first) });
    }
    let with = |anything: f64| {
        let defined: Vec<f64> = values.iter().map(|value| if value.is_nan() { anything } else { *value }).collect();
        quantile::of_samples(&defined, 0.5, CONFIDENCE)
    };
    let (low, high) = (with(f64::NEG_INFINITY)?, with(f64::INFINITY)?);
    let value = if low.value == high.value { low.value } else { f64::NAN };
    Some(Estimate { value, low: low.low, high: high.high, n: values.len() })
}

/// Merges entries of the same point, keeping the maximum number of saturated runs over variants.
pub(super) fn merge_runs(full: impl Iterator<Item = SaturatedRuns>) -> Vec<SaturatedRuns> {
    let mut places: BTreeMap<(String, String, Option<Point>), SaturatedRuns> = BTreeMap::new();
    for full in full {
        let place = (full.experiment.clone(), full.policy.clone(), Point::parse(&full.point));
        let known = places.entry(place).or_insert_with(|| full.clone());
        known.saturated = known.saturated.max(full.saturated);
    }
    places.into_values().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INF: f64 = f64::INFINITY;

    /// Ten replications, of which this number is saturated.
    fn ten(saturated: usize) -> Estimate {
        let values: Vec<f64> = (0..10).map(|i| if i < saturated { INF } else { 100.0 + i as f64 }).collect();
        estimate(&values).unwrap()
    }

    #[test]
    fn latencies_grow_and_watts_do_not() {
        for grown in ["latency_p99_us", "burst.latency_mean_us", "latency_mean_us@2.5ms"] {
            assert!(grows(grown), "{grown}");
        }
        for not in ["system_power_w", "burst.iops", "lateness_us", "saturated", "iops@1ms"] {
            assert!(!grows(not), "{not}");
        }
    }

    #[test]
    fn a_majority_of_saturated_replications_decides() {
        let none = ten(0);
        assert!((none.value - 104.5).abs() < 1e-9 && none.is_bounded(), "{none:?}");
        // the interval of a median of ten is from the second to the ninth
        let one = ten(1);
        assert_eq!((one.low, one.high), (102.0, 109.0));
        let some = ten(4);
        assert_eq!((some.low, some.high), (105.0, INF));
        let most = ten(8);
        assert_eq!((most.value, most.low, most.high), (INF, 109.0, INF));
        assert_eq!((ten(9).low, ten(10).low, ten(10).value), (INF, INF, INF));
    }

    #[test]
    fn two_saturated_replications_are_infinite_and_one_is_unbounded() {
        let both = estimate(&[INF, INF]).unwrap();
        assert_eq!((both.value, both.low, both.high, both.n), (INF, INF, INF, 2));
        let one = estimate(&[INF]).unwrap();
        assert_eq!((one.low, one.high), (-INF, INF));
        assert_eq!(estimate(&[]), None);
    }

    #[test]
    fn differences_of_saturated_runs_are_undefined() {
        let undefined = estimate(&[INF - INF; 10]).unwrap();
        assert!(undefined.value.is_nan() && undefined.low == -INF && undefined.high == INF);
    }

    proptest! {
        /// What a saturated run measured does not matter, and one more saturated run never lowers anything.
        #[test]
        fn more_saturated_runs_never_lower_an_end(values in prop::collection::vec(1.0_f64..9.0, 10), saturated in 1_usize..10) {
            let with = |saturated: usize| {
                let cut: Vec<f64> = values.iter().enumerate().map(|(i, v)| if i < saturated { INF } else { *v }).collect();
                estimate(&cut).unwrap()
            };
            let (less, more) = (with(saturated), with(saturated + 1));
            prop_assert!(less.low <= more.low && less.value <= more.value && less.high <= more.high);
        }
    }
}
