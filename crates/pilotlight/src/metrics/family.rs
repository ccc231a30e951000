//! Families and samples of metrics.

use pilotlight_nvmf_target::latency::coarse::{BOUNDS_NS, CoarseSnapshot};
use pilotlight_reactor::HistogramSnapshot;

use super::Facts;

/// The type of a family (OpenMetrics 1.0, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Never falls while a server runs.
    Counter,
    Gauge,
    /// In seconds, with the buckets of [`BUCKETS`].
    Histogram,
    /// Always 1; the information is in the labels.
    Info,
}

/// Upper bounds of buckets, in seconds and in nanoseconds: the ones that alerts need. Written as OpenMetrics 1.0 (section
/// 4.4.5) writes numbers, so that the series have one name in every format.
pub(crate) const BUCKETS: [(&str, u64); 12] = [
    ("2e-05", 20_000),
    ("5e-05", 50_000),
    ("0.0001", 100_000),
    ("0.0002", 200_000),
    ("0.0005", 500_000),
    ("0.001", 1_000_000),
    ("0.002", 2_000_000),
    ("0.005", 5_000_000),
    ("0.01", 10_000_000),
    ("0.05", 50_000_000),
    ("0.2", 200_000_000),
    ("1.0", 1_000_000_000),
];

const _: () = {
    let mut at = 0;
    while at < BUCKETS.len() {
        assert!(BUCKETS[at].1 == BOUNDS_NS[at]);
        at += 1;
    }
};

/// A metric. Its name lacks `_total` and `_info`.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The unit, with which the name ends; empty for counts and ratios.
    pub(crate) unit: &'static str,
    /// Labels of its samples.
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
    /// Its samples.
    pub(crate) collect: fn(&Facts, &mut Samples<'_>),
}

impl Family {
    /// The name of a sample, but for the suffix of a histogram's.
    pub(crate) fn sample_name(&self) -> String {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        format!("{}{suffix}", self.name)
    }

    /// Its samples now.
    pub(crate) fn samples(&self, facts: &Facts) -> Vec<Sample> {
        let mut all = Vec::new();
        let mut put = |suffix, labels: &[(&'static str, &str)], value| {
            let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            all.push(Sample { suffix, labels, value });
        };
        (self.collect)(facts, &mut Samples::new(&mut put));
        let has_labels = |sample: &Sample| {
            let names = sample.labels.iter().map(|(name, _)| *name).filter(|name| *name != "le");
            names.eq(self.labels.iter().copied())
        };
        debug_assert!(all.iter().all(has_labels), "{}: {:?}", self.name, self.labels);
        all
    }
}

/// A value of a family.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// `_bucket`, `_count` or `_sum` of a histogram; else empty.
    pub(crate) suffix: &'static str,
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: f64,
}

/// Receives a sample: its suffix, its labels and its value.
type Put<'a> = dyn FnMut(&'static str, &[(&'static str, &str)], f64) + 'a;

/// Where samples of one family go. Of a thousand namespaces there are tens of thousands, so that nothing is allocated for one.
pub(crate) struct Samples<'a> {
    put: &'a mut Put<'a>,
}

impl<'a> Samples<'a> {
    pub(crate) fn new(put: &'a mut Put<'a>) -> Self {
        Self { put }
    }

    /// A value.
    pub(crate) fn put<const N: usize>(&mut self, labels: [(&'static str, &str); N], value: f64) {
        (self.put)("", &labels, value);
    }

    /// A value, if there is one.
    pub(crate) fn put_some<const N: usize>(&mut self, labels: [(&'static str, &str); N], value: Option<f64>) {
        if let Some(value) = value {
            self.put(labels, value);
        }
    }

    /// Durations in the buckets of [`BUCKETS`].
    pub(crate) fn durations<const N: usize>(
        &mut self,
        labels: [(&'static str, &str); N],
        durations: &HistogramSnapshot,
    ) {
        let up_to = BUCKETS.map(|(_, end_ns)| durations.count_up_to(end_ns));
        self.histogram(labels, up_to, durations.count(), durations.sum_ns());
    }

    /// Durations that were counted in few buckets.
    pub(crate) fn coarse<const N: usize>(&mut self, labels: [(&'static str, &str); N], durations: &CoarseSnapshot) {
        let mut count = 0;
        let mut up_to = [0; BUCKETS.len()];
        for (bucket, up_to) in durations.counts.iter().zip(&mut up_to) {
            count += bucket;
            *up_to = count;
        }
        self.histogram(labels, up_to, durations.counts.iter().sum(), durations.sum_ns);
    }

    fn histogram<const N: usize>(
        &mut self,
        labels: [(&'static str, &str); N],
        up_to: [u64; BUCKETS.len()],
        count: u64,
        sum_ns: u64,
    ) {
        let ends = BUCKETS.map(|(end, _)| end).into_iter().chain(["+Inf"]);
        for (end, up_to) in ends.zip(up_to.into_iter().chain([count])) {
            let labels: Vec<_> = labels.into_iter().chain([("le", end)]).collect();
            (self.put)("_bucket", &labels, up_to as f64);
        }
        (self.put)("_count", &labels, count as f64);
        (self.put)("_sum", &labels, sum_ns as f64 / 1e9);
    }
}
