//! Runs that could not keep up.
//!
//! # The problem
//! Where a plant is given more than it can do, what waits grows as long as the run lasts. The latency that such a run prints
//! says how long it was, not how fast the plant is, and an average over it says nothing at all.
//!
//! # The words
//! A run is *saturated* if its metric `saturated` is 1. A metric *grows* with the run if it is a latency. Watts, requests
//! answered and shares of time are those of a plant that is busy all the time; they are what they are.
//!
//! # The algorithm
//! When results are read, every latency of a saturated run becomes infinite. Where a value of a replication is infinite there is
//! no mean, so the median is asked for, with the interval that order statistics give: distribution-free, and infinite values have a
//! rank as all others do. Where all replications are saturated the value is infinite, surely.
//!
//! # The properties
//! No finite number depends on the latency of a saturated run. One saturated replication of ten decides nothing alone; nine do.
//! Of two plants that are both saturated nothing is said: infinity less infinity has no value, and its interval is everything.

use std::collections::BTreeMap;
use std::fmt;

use pilotlight_stats::{CONFIDENCE, Estimate, mean, quantile};
use serde::Serialize;

use super::point::Point;

/// Runs that could not keep up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SaturatedRuns {
    /// The experiment.
    pub experiment: String,
    /// The policy.
    pub policy: String,
    /// The point.
    pub point: String,
    /// How many of them.
    pub saturated: usize,
    /// Of how many.
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

/// Whether a metric of a saturated run grows with the run, rather than being a property of the plant.
#[must_use]
pub fn grows(metric: &str) -> bool {
    let name = metric.split('@').next().unwrap_or(metric);
    name.rsplit('.').next().unwrap_or(name).starts_with("latency_")
}

/// The mean over replications with Student's interval; the median with that of order statistics where one of them is infinite.
#[must_use]
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    if values.iter().all(|value| value.is_finite()) { mean::mean(values, CONFIDENCE) } else { median(values) }
}

/// The median, where values may be infinite or (a saturated plant against another) undefined: then they may be anything.
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

/// Each place once, with the most of its runs that were saturated in any variant.
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

    /// Ten replications, of which so many are saturated.
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
    fn few_saturated_replications_decide_nothing_and_nearly_all_do() {
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
    fn two_replications_that_are_saturated_agree_and_one_says_nothing() {
        let both = estimate(&[INF, INF]).unwrap();
        assert_eq!((both.value, both.low, both.high, both.n), (INF, INF, INF, 2));
        let one = estimate(&[INF]).unwrap();
        assert_eq!((one.low, one.high), (-INF, INF));
        assert_eq!(estimate(&[]), None);
    }

    #[test]
    fn of_two_saturated_plants_nothing_is_said() {
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
