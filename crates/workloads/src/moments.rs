//! Pools latencies of several jobs: counts, means, deviations, extremes and histograms.
//!
//! Pooled count, mean and sum of squared deviations follow exactly from those of the jobs (Chan, Golub and LeVeque, 1979); histograms
//! are added. Percentiles come from the pooled histogram only.
//!
//! Deviations are sample deviations: the sum of squares is divided by the count less one, as in fio.

use std::collections::BTreeMap;

use crate::record::Latency;

/// Statistics of latencies, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    count: u64,
    mean: f64,
    squares: f64,
    extremes: Option<(u64, u64)>,
    histogram: BTreeMap<u64, u64>,
}

impl Moments {
    /// Statistics of `count` operations with this mean, sample deviation and range.
    pub fn new(count: u64, mean_ns: f64, deviation_ns: f64, least_ns: u64, greatest_ns: u64) -> Self {
        let squares = deviation_ns * deviation_ns * count.saturating_sub(1) as f64;
        let extremes = (count > 0).then_some((least_ns, greatest_ns));
        Self { count, mean: mean_ns, squares, extremes, histogram: BTreeMap::new() }
    }

    /// Statistics of single values.
    pub fn of_values(values: impl IntoIterator<Item = u64>) -> Self {
        let mut all = Self::default();
        for value in values {
            all.add(value);
        }
        all
    }

    /// Adds one operation (Welford); the histogram gets the middle of its [`bucket`].
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        let off = ns as f64 - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (ns as f64 - self.mean);
        self.stretch(ns, ns);
        *self.histogram.entry(bucket(ns)).or_default() += 1;
    }

    /// Adds a histogram: value and count.
    #[must_use]
    pub fn with_histogram(mut self, histogram: impl IntoIterator<Item = (u64, u64)>) -> Self {
        self.add_histogram(histogram);
        self
    }

    /// Number of operations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds the operations of another job.
    pub fn merge(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        let (mine, theirs, all) = (self.count as f64, other.count as f64, (self.count + other.count) as f64);
        let apart = other.mean - self.mean;
        self.count += other.count;
        self.mean += apart * theirs / all;
        self.squares += other.squares + apart * apart * mine * theirs / all;
        if let Some((least, greatest)) = other.extremes {
            self.stretch(least, greatest);
        }
        self.add_histogram(other.histogram);
    }

    fn stretch(&mut self, least: u64, greatest: u64) {
        let (l, g) = self.extremes.unwrap_or((least, greatest));
        self.extremes = Some((l.min(least), g.max(greatest)));
    }

    fn add_histogram(&mut self, histogram: impl IntoIterator<Item = (u64, u64)>) {
        for (value, count) in histogram.into_iter().filter(|(_, count)| *count > 0) {
            *self.histogram.entry(value).or_default() += count;
        }
    }

    /// Arithmetic mean; `None` without operations.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean)
    }

    /// Sample standard deviation; 0 of one operation, `None` without operations.
    pub fn deviation_ns(&self) -> Option<f64> {
        let freedom = self.count.saturating_sub(1).max(1) as f64;
        (self.count > 0).then(|| (self.squares / freedom).max(0.0).sqrt())
    }

    /// Converts to the latency of a record.
    pub fn into_latency(self) -> Latency {
        Latency {
            mean_ns: self.mean_ns(),
            deviation_ns: self.deviation_ns(),
            least_ns: self.extremes.map(|(least, _)| least),
            greatest_ns: self.extremes.map(|(_, greatest)| greatest),
            histogram: self.histogram.into_iter().collect(),
            printed: Vec::new(),
        }
    }
}

/// The middle of the bucket of a value. Buckets are 1/128 of their power of two wide, so the error is at most 0.4 % and the histogram is
/// bounded. Values below 256 are exact.
pub fn bucket(value: u64) -> u64 {
    let width = 1 << (64 - value.leading_zeros()).saturating_sub(8);
    value / width * width + width / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The statistics that a job would print of these latencies, with histogram buckets of 16.
    fn printed(job: &[u64]) -> Moments {
        let n = job.len() as f64;
        let mean = job.iter().map(|&v| v as f64).sum::<f64>() / n.max(1.0);
        let squares: f64 = job.iter().map(|&v| (v as f64 - mean).powi(2)).sum();
        let deviation = (squares / (n - 1.0).max(1.0)).sqrt();
        let (least, greatest) = (job.iter().min().copied().unwrap_or(0), job.iter().max().copied().unwrap_or(0));
        let of_values = job.iter().map(|&v| (v / 16 * 16 + 8, 1));
        Moments::new(job.len() as u64, mean, deviation, least, greatest).with_histogram(of_values)
    }

    fn close(one: Option<f64>, other: Option<f64>) -> bool {
        match (one, other) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-7 * a.abs().max(b.abs()).max(1.0),
            _ => one == other,
        }
    }

    proptest! {
        #[test]
        fn merged_jobs_equal_the_pooled_samples(
            jobs in prop::collection::vec(prop::collection::vec(1_000u64..10_000_000, 0..60), 0..6),
        ) {
            let mut merged = Moments::default();
            jobs.iter().for_each(|job| merged.merge(printed(job)));
            let pooled = printed(&jobs.concat());
            prop_assert_eq!(merged.count(), pooled.count());
            prop_assert!(close(merged.mean_ns(), pooled.mean_ns()));
            prop_assert!(close(merged.deviation_ns(), pooled.deviation_ns()), "{:?} {:?}", merged, pooled);
            let (merged, pooled) = (merged.into_latency(), pooled.into_latency());
            prop_assert_eq!((merged.least_ns, merged.greatest_ns), (pooled.least_ns, pooled.greatest_ns));
            prop_assert_eq!(merged.histogram, pooled.histogram);
        }

        #[test]
        fn adding_values_equals_computing_from_all(job in prop::collection::vec(1_000u64..10_000_000, 0..60)) {
            let (singly, at_once) = (Moments::of_values(job.clone()), printed(&job));
            prop_assert!(close(singly.mean_ns(), at_once.mean_ns()));
            prop_assert!(close(singly.deviation_ns(), at_once.deviation_ns()));
            prop_assert_eq!(singly.extremes, at_once.extremes);
            prop_assert_eq!(singly.histogram.values().sum::<u64>(), job.len() as u64);
        }

        #[test]
        fn buckets_are_near_their_values_and_ordered(one: u64, other: u64) {
            let apart = |value: u64| bucket(value).abs_diff(value) as f64 / value.max(1) as f64;
            prop_assert!(apart(one) <= 1.0 / 256.0, "{one} {}", bucket(one));
            prop_assert!(one > other || bucket(one) <= bucket(other));
            prop_assert_eq!(bucket(bucket(one)), bucket(one));
        }
    }

    #[test]
    fn without_operations_there_is_no_latency() {
        assert_eq!(Moments::default().into_latency(), Latency::default());
        assert_eq!(Moments::new(0, 0.0, 0.0, 0, 0).into_latency(), Latency::default());
    }
}
