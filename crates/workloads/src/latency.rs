//! Merges latencies of several classes or jobs: histograms are added; means and quantiles cannot be.

use crate::record::{Class, Latency};

/// Reported quantiles: name and parts per million.
pub const QUANTILES: [(&str, u32); 4] = [("p50", 500_000), ("p99", 990_000), ("p99_9", 999_000), ("p99_99", 999_900)];

/// Why a latency of several classes is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LatencyError {
    /// No class has an operation.
    #[error("no operation completed")]
    NoOperation,
    /// A class has no mean.
    #[error("the tool does not report the latency of every class")]
    NoMean,
    /// A class has no weight.
    #[error("the operations of a class are not counted, so its latency has no weight")]
    NoWeight,
    /// A class has quantiles only.
    #[error("the tool reports quantiles of each class but no histograms, and quantiles cannot be merged")]
    NoHistogram,
    /// Merged histograms have no values.
    #[error("the histogram is empty")]
    Empty,
    /// The only class has no such quantile.
    #[error("the tool reports neither a histogram nor this quantile")]
    NoQuantile,
}

/// Counts by value of all histograms, ascending.
#[must_use]
pub fn merge<'a>(histograms: impl Iterator<Item = &'a [(u64, u64)]>) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = histograms.flatten().copied().collect();
    all.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(all.len());
    for (value, count) in all {
        match merged.last_mut() {
            Some(last) if last.0 == value => last.1 += count,
            _ => merged.push((value, count)),
        }
    }
    merged
}

/// The quantile at this many parts per million; `None` without samples.
#[must_use]
pub fn quantile(histogram: &[(u64, u64)], ppm: u32) -> Option<u64> {
    let total: u128 = histogram.iter().map(|(_, count)| u128::from(*count)).sum();
    let rank = (total * u128::from(ppm)).div_ceil(1_000_000).max(1);
    let mut seen = 0;
    for &(value, count) in histogram {
        seen += u128::from(count);
        if seen >= rank {
            return Some(value);
        }
    }
    None
}

/// Mean over all operations of several classes, in nanoseconds.
///
/// # Errors
/// The mean of a class is unknown.
pub fn mean_ns(classes: &[&Class]) -> Result<f64, LatencyError> {
    let (mut sum, mut count) = (0.0, 0.0);
    let with: Vec<&&Class> = classes.iter().filter(|class| class.may_have_occurred()).collect();
    for class in &with {
        let mean = class.latency.mean_ns.or_else(|| mean_of(&class.latency.histogram));
        let mean = mean.ok_or(LatencyError::NoMean)?;
        let weight = match class.operations {
            Some(operations) => operations as f64,
            None if with.len() == 1 => 1.0,
            None => return Err(LatencyError::NoWeight),
        };
        sum += mean * weight;
        count += weight;
    }
    if count > 0.0 { Ok(sum / count) } else { Err(LatencyError::NoOperation) }
}

/// A quantile over all operations of several classes, in nanoseconds.
///
/// # Errors
/// It is unknown: printed quantiles of several classes cannot be merged.
pub fn quantile_ns(classes: &[&Class], ppm: u32) -> Result<f64, LatencyError> {
    let with: Vec<&&Class> = classes.iter().filter(|class| class.may_have_occurred()).collect();
    match with.as_slice() {
        [] => Err(LatencyError::NoOperation),
        [class] => quantile_of_one(&class.latency, ppm),
        several if several.iter().any(|class| class.latency.histogram.is_empty()) => Err(LatencyError::NoHistogram),
        several => {
            let merged = merge(several.iter().map(|class| class.latency.histogram.as_slice()));
            quantile(&merged, ppm).map(|ns| ns as f64).ok_or(LatencyError::Empty)
        }
    }
}

fn quantile_of_one(latency: &Latency, ppm: u32) -> Result<f64, LatencyError> {
    let printed = || latency.printed.iter().find(|(of, _)| *of == ppm).map(|(_, ns)| *ns);
    let found = quantile(&latency.histogram, ppm).or_else(printed);
    found.map(|ns| ns as f64).ok_or(LatencyError::NoQuantile)
}

fn mean_of(histogram: &[(u64, u64)]) -> Option<f64> {
    let total: f64 = histogram.iter().map(|(_, count)| *count as f64).sum();
    let sum: f64 = histogram.iter().map(|(value, count)| *value as f64 * *count as f64).sum();
    (total > 0.0).then(|| sum / total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::OperationKind;

    fn class(histogram: Vec<(u64, u64)>) -> Class {
        let operations = histogram.iter().map(|(_, count)| count).sum();
        let latency = Latency { histogram, ..Latency::default() };
        Class { kind: OperationKind::Read, operations: Some(operations), bytes: None, runtime_ns: 1, latency }
    }

    #[test]
    fn two_jobs_are_merged() {
        // 99 fast and 1 slow; 50 and 50: of all 200, the 198th and later are slow ones of 1,000
        let (a, b) = (class(vec![(10, 99), (1_000, 1)]), class(vec![(20, 50), (100, 50)]));
        assert_eq!(quantile_ns(&[&a, &b], 500_000), Ok(20.0), "the 100th of 200: 99 of 10, then 20");
        assert_eq!(quantile_ns(&[&a, &b], 990_000), Ok(100.0), "the 198th");
        assert_eq!(quantile_ns(&[&a, &b], 999_000), Ok(1_000.0), "the 200th");
        // (990 + 1000 + 1000 + 5000) / 200
        assert_eq!(mean_ns(&[&a, &b]), Ok(39.95));
    }

    #[test]
    fn printed_quantiles_are_not_merged() {
        let mut a = class(vec![]);
        a.operations = Some(5);
        a.latency.printed = vec![(990_000, 77)];
        assert_eq!(quantile_ns(&[&a], 990_000), Ok(77.0));
        assert!(quantile_ns(&[&a], 500_000).is_err());
        assert_eq!(quantile_ns(&[&a, &a], 990_000), Err(LatencyError::NoHistogram));
        assert!(mean_ns(&[&a]).is_err());
        let idle = class(vec![]);
        assert_eq!(quantile_ns(&[&a, &idle], 990_000), Ok(77.0), "a class without operations is ignored");
    }

    proptest! {
        /// The quantile of merged histograms is that of all values in one sorted list.
        #[test]
        fn merged_quantiles_equal_those_of_all_values(
            jobs in prop::collection::vec(prop::collection::btree_map(0..1_000_u64, 1..20_u64, 1..20), 1..5),
            ppm in 1..1_000_000_u32,
        ) {
            let jobs: Vec<Vec<(u64, u64)>> = jobs.into_iter().map(|job| job.into_iter().collect()).collect();
            let mut all: Vec<u64> = jobs.iter().flatten().flat_map(|&(v, n)| std::iter::repeat_n(v, n as usize)).collect();
            all.sort_unstable();
            let rank = (all.len() as f64 * f64::from(ppm) / 1e6).ceil() as usize;
            let merged = merge(jobs.iter().map(Vec::as_slice));
            prop_assert_eq!(quantile(&merged, ppm), Some(all[rank - 1]));
        }
    }
}
