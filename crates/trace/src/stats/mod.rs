//! Statistics of a trace, in one pass and in bounded memory.
//!
//! **Terms.** The *span* is the time from the first request to the last. A *window* of width `w` is `[k w, (k+1) w)`, counted
//! from the first request. A *burst* is defined in [`bursts`].
//!
//! | statistic | definition |
//! |---|---|
//! | mean rate | requests over span |
//! | peak rate | most requests in a window, over the window's width (the last window may be incomplete) |
//! | index of dispersion | variance over mean of the counts of the complete windows of the span, including empty ones; 1 for a Poisson process |
//! | read share | reads over requests; and bytes read over bytes |
//! | size quantile | smallest size such that at least this fraction of the requests is no larger |
//! | working set | distinct 4 KiB blocks (volume and number) that any request touches |
//! | longest gap | longest time between two consecutive requests |
//! | clock step | greatest common divisor of the timestamps: the resolution of the trace's clock |
//!
//! **Memory.** Window counters take a few words each; sizes, the working set and volumes are exact up to a limit and report when they are
//! not.

pub mod bursts;
pub mod segments;
mod sizes;
mod volumes;
mod windows;
mod working_set;

use serde::Serialize;

pub use bursts::{BurstRule, BurstSummary};
pub use sizes::SizeSummary;
pub use volumes::{VolumeSummary, VolumeTraffic};
pub use windows::WindowSummary;
pub use working_set::WorkingSet;

use crate::request::{Op, Request};
use bursts::Bursts;
use sizes::Sizes;
use volumes::Volumes;
use windows::Windows;
use working_set::Blocks;

const MS: u64 = 1_000_000;
/// Widths of the windows, in nanoseconds.
pub const WIDTHS_NS: [u64; 6] = [MS, 10 * MS, 100 * MS, 1000 * MS, 10_000 * MS, 60_000 * MS];

/// Statistics of the requests so far.
#[derive(Clone, Debug)]
pub struct Stats {
    reads: OpStats,
    writes: OpStats,
    last_ns: u64,
    longest_gap: Gap,
    clock_step_ns: u64,
    windows: [Windows; WIDTHS_NS.len()],
    bursts: Bursts,
    blocks: Blocks,
    volumes: Volumes,
}

#[derive(Clone, Debug, Default)]
struct OpStats {
    requests: u64,
    bytes: u64,
    sizes: Sizes,
}

/// A time without requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// Time of the request before it, in nanoseconds since the first request.
    pub begin_ns: u64,
    /// Until the next request.
    pub length_ns: u64,
    /// Requests up to its begin.
    pub requests_before: u64,
}

impl Gap {
    /// Shorter gaps are part of a load.
    const MIN_NS: u64 = 2_000 * MS;

    /// Whether rates over a span with this gap say little about the load: it is at least half of the span.
    #[must_use]
    pub fn dominates(&self, span_ns: u64) -> bool {
        self.length_ns >= Self::MIN_NS && self.length_ns >= span_ns / 2
    }
}

/// The statistics of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Requests.
    pub requests: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// From the first request to the last, in nanoseconds.
    pub span_ns: u64,
    /// Requests per second over the span; `None` if the span is 0.
    pub mean_rate_iops: Option<f64>,
    /// Bytes per second over the span.
    pub mean_rate_bytes_per_s: Option<f64>,
    /// Longest time without requests; of equal ones the first.
    pub longest_gap: Gap,
    /// Resolution of the trace's clock, in nanoseconds; 0 if all times are equal.
    pub clock_step_ns: u64,
    /// Counts by window width, narrowest first.
    pub windows: Vec<WindowSummary>,
    /// Bursts.
    pub bursts: BurstSummary,
    /// Reads over requests; `None` without requests.
    pub read_share: Option<f64>,
    /// Bytes read over bytes.
    pub read_bytes_share: Option<f64>,
    /// Sizes of reads; `None` without reads.
    pub read_sizes: Option<SizeSummary>,
    /// Sizes of writes.
    pub write_sizes: Option<SizeSummary>,
    /// Distinct blocks.
    pub working_set: WorkingSet,
    /// Volumes.
    pub volumes: VolumeSummary,
}

impl Default for Stats {
    fn default() -> Self {
        Self::new(BurstRule::default())
    }
}

impl Stats {
    /// Statistics without requests.
    #[must_use]
    pub fn new(rule: BurstRule) -> Self {
        Self {
            reads: OpStats::default(),
            writes: OpStats::default(),
            last_ns: 0,
            longest_gap: Gap::default(),
            clock_step_ns: 0,
            windows: WIDTHS_NS.map(Windows::new),
            bursts: Bursts::new(rule),
            blocks: Blocks::default(),
            volumes: Volumes::default(),
        }
    }

    /// Adds the next request; times must not decrease.
    pub fn add(&mut self, request: &Request) {
        let length_ns = request.at_ns.saturating_sub(self.last_ns);
        if length_ns > self.longest_gap.length_ns {
            self.longest_gap = Gap { begin_ns: self.last_ns, length_ns, requests_before: self.requests() };
        }
        let op = match request.op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
        };
        op.requests += 1;
        op.bytes += u64::from(request.bytes);
        op.sizes.add(request.bytes);
        self.last_ns = request.at_ns;
        self.clock_step_ns = common_divisor(self.clock_step_ns, request.at_ns);
        self.windows.iter_mut().for_each(|windows| windows.add(request.at_ns));
        self.bursts.add(request.at_ns);
        self.blocks.add(request);
        self.volumes.add(request);
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.reads.requests + self.writes.requests
    }

    /// Traffic of each volume, sorted by number.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeTraffic> {
        self.volumes.sorted()
    }

    /// The statistics so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let (requests, bytes) = (self.requests(), self.reads.bytes + self.writes.bytes);
        let per_s = |count: u64| (self.last_ns > 0).then(|| count as f64 * 1e9 / self.last_ns as f64);
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        Summary {
            requests,
            bytes,
            span_ns: self.last_ns,
            mean_rate_iops: per_s(requests),
            mean_rate_bytes_per_s: per_s(bytes),
            longest_gap: self.longest_gap,
            clock_step_ns: self.clock_step_ns,
            windows: self.windows.iter().map(Windows::summary).collect(),
            bursts: self.bursts.summary(self.last_ns),
            read_share: share(self.reads.requests, requests),
            read_bytes_share: share(self.reads.bytes, bytes),
            read_sizes: self.reads.sizes.summary(),
            write_sizes: self.writes.sizes.summary(),
            working_set: self.blocks.working_set(),
            volumes: self.volumes.summary(),
        }
    }
}

/// Greatest common divisor; that of 0 and a number is the number.
fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while a != 0 {
        (a, b) = (b % a, a);
    }
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(requests: &[Request]) -> Summary {
        let mut stats = Stats::default();
        requests.iter().for_each(|request| stats.add(request));
        stats.summary()
    }

    #[test]
    fn an_empty_trace_has_no_rates() {
        let summary = stats(&[]);
        assert_eq!((summary.requests, summary.mean_rate_iops, summary.read_share), (0, None, None));
        assert_eq!((summary.read_sizes, summary.working_set.blocks), (None, 0));
    }

    #[test]
    fn a_gap_of_half_the_span_dominates() {
        let s = 1_000 * MS;
        for (times, begin_ns, length_ns, requests_before, dominates) in [
            (vec![0, 660 * s, 661 * s], 0, 660 * s, 1, true),
            (vec![0, s, 61 * s], s, 60 * s, 2, true),
            (vec![0, 2 * s, 4 * s, 6 * s], 0, 2 * s, 1, false),
            (vec![0, s], 0, s, 1, false),
            (vec![0, 0], 0, 0, 0, false),
        ] {
            let request = |&at_ns: &u64| Request { at_ns, volume: 0, op: Op::Read, offset: 0, bytes: 1 };
            let summary = stats(&times.iter().map(request).collect::<Vec<_>>());
            let gap = summary.longest_gap;
            assert_eq!(gap, Gap { begin_ns, length_ns, requests_before }, "{times:?}");
            assert_eq!(gap.dominates(summary.span_ns), dominates, "{times:?}");
        }
    }

    #[test]
    fn shares_rates_and_the_clock() {
        let request = |at_ns, op, bytes| Request { at_ns, volume: 1, op, offset: 0, bytes };
        let all = [request(0, Op::Read, 1000), request(MS, Op::Write, 3000), request(500 * MS, Op::Write, 4000)];
        let summary = stats(&all);
        assert_eq!((summary.requests, summary.bytes, summary.span_ns), (3, 8000, 500 * MS));
        assert_eq!((summary.mean_rate_iops, summary.mean_rate_bytes_per_s), (Some(6.0), Some(16_000.0)));
        assert_eq!((summary.read_share, summary.read_bytes_share), (Some(1.0 / 3.0), Some(0.125)));
        assert_eq!(summary.clock_step_ns, MS);
        assert_eq!(summary.read_sizes.unwrap().median_bytes, 1000);
    }
}
