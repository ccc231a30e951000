//! Segments of a trace with the parameters of an equivalent micro-benchmark (PACER, section III-A3: 20 minutes; rate, reads, random
//! requests and sizes).
//!
//! A request is *sequential* if it begins where the last request of its volume ended; the first of a volume is not.

use std::collections::HashMap;

use serde::Serialize;

use super::sizes::{SizeSummary, Sizes};
use crate::request::{Op, Request};

/// PACER's length of a segment, in nanoseconds.
pub const SEGMENT_NS: u64 = 20 * 60 * 1_000_000_000;
/// Volumes whose last request is kept; requests of further volumes count as random.
const VOLUMES: usize = 1 << 20;

/// Collects segments.
#[derive(Clone, Debug)]
pub struct Segments {
    length_ns: u64,
    ended: Vec<Segment>,
    current: Current,
    /// End of the last request of each volume.
    ends: HashMap<u32, u64>,
}

#[derive(Clone, Debug, Default)]
struct Current {
    number: u64,
    requests: u64,
    reads: u64,
    sequential: u64,
    bytes: u64,
    sizes: Sizes,
    last_ns: u64,
}

/// A segment that has requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Segment {
    /// Start, in nanoseconds since the first request.
    pub begin_ns: u64,
    /// Requests.
    pub requests: u64,
    /// Requests per second; for the last segment over the time until its last request, at least a second.
    pub mean_rate_iops: f64,
    /// Reads over requests.
    pub read_share: f64,
    /// Sequential requests over requests.
    pub sequential_share: f64,
    /// Bytes over requests.
    pub mean_bytes: f64,
    /// Sizes.
    pub sizes: SizeSummary,
}

impl Segments {
    /// Segments of this length, in nanoseconds; at least 1.
    #[must_use]
    pub fn new(length_ns: u64) -> Self {
        Self { length_ns: length_ns.max(1), ended: Vec::new(), current: Current::default(), ends: HashMap::new() }
    }

    /// Adds the next request; times must not decrease.
    pub fn add(&mut self, request: &Request) {
        let number = request.at_ns / self.length_ns;
        if number != self.current.number {
            let whole_ns = self.length_ns;
            self.end(whole_ns);
            self.current.number = number;
        }
        let sequential = self.ends.get(&request.volume) == Some(&request.offset);
        if self.ends.len() < VOLUMES || self.ends.contains_key(&request.volume) {
            self.ends.insert(request.volume, request.offset.saturating_add(request.bytes.into()));
        }
        let current = &mut self.current;
        current.requests += 1;
        current.reads += u64::from(request.op == Op::Read);
        current.sequential += u64::from(sequential);
        current.bytes += u64::from(request.bytes);
        current.sizes.add(request.bytes);
        current.last_ns = request.at_ns;
    }

    fn end(&mut self, length_ns: u64) {
        let Current { number, requests, reads, sequential, bytes, sizes, .. } = std::mem::take(&mut self.current);
        let Some(sizes) = sizes.summary() else { return };
        let share = |part: u64| part as f64 / requests as f64;
        self.ended.push(Segment {
            begin_ns: number * self.length_ns,
            requests,
            mean_rate_iops: requests as f64 * 1e9 / length_ns as f64,
            read_share: share(reads),
            sequential_share: share(sequential),
            mean_bytes: share(bytes),
            sizes,
        });
    }

    /// The segments that have requests, in order.
    #[must_use]
    pub fn finish(mut self) -> Vec<Segment> {
        let begun_ns = self.current.number * self.length_ns;
        let length_ns = self.current.last_ns.saturating_sub(begun_ns).clamp(1_000_000_000, u64::MAX);
        self.end(length_ns.min(self.length_ns));
        self.ended
    }
}

/// A trace's pressure in percent: the sum of its segments' rates over the sum of a server's maximum rates for the same segments, in
/// requests per second (PACER, section III-A3; its sigma is printed as a run time and interpreted as the achieved rate). `None` without
/// segments.
#[must_use]
pub fn pressure(achieved_iops: &[f64], max_iops: &[f64]) -> Option<f64> {
    let max: f64 = max_iops.iter().sum();
    (max > 0.0).then(|| 100.0 * achieved_iops.iter().sum::<f64>() / max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn request(at_ns: u64, volume: u32, op: Op, offset: u64, bytes: u32) -> Request {
        Request { at_ns, volume, op, offset, bytes }
    }

    #[test]
    fn each_segment_has_its_own_mix() {
        let mut segments = Segments::new(10 * SECOND);
        for at in 0..20_u64 {
            segments.add(&request(at * SECOND / 4, 1, Op::Read, at * 4_096, 4_096)); // one after the other
        }
        for at in 0..4_u64 {
            segments.add(&request(30 * SECOND + at * SECOND, 1, Op::Write, at * 1_000_000, 8_192));
        }
        let all = segments.finish();
        assert_eq!(all.len(), 2, "a segment without requests is omitted");
        let [first, last] = &all[..] else { unreachable!() };
        assert_eq!((first.begin_ns, first.requests, first.mean_rate_iops), (0, 20, 2.0));
        assert_eq!((first.read_share, first.sequential_share, first.mean_bytes), (1.0, 0.95, 4_096.0));
        assert_eq!((last.begin_ns, last.requests, last.read_share), (30 * SECOND, 4, 0.0));
        assert_eq!((last.sequential_share, last.sizes.median_bytes), (0.0, 8_192));
        assert!((last.mean_rate_iops - 4.0 / 3.0).abs() < 1e-9, "over three seconds");
        assert!(Segments::new(SEGMENT_NS).finish().is_empty());
    }

    #[test]
    fn sequential_requests_are_detected_per_volume() {
        let mut segments = Segments::new(SEGMENT_NS);
        for at in 0..100_u64 {
            let volume = (at % 2) as u32;
            segments.add(&request(at * SECOND, volume, Op::Read, at / 2 * 512, 512));
        }
        let all = segments.finish();
        assert!((all[0].sequential_share - 0.98).abs() < 1e-9, "{}", all[0].sequential_share);
    }

    #[test]
    fn pressure_is_the_ratio_of_sums() {
        assert_eq!(pressure(&[60.0, 20.0], &[600.0, 200.0]), Some(10.0));
        assert_eq!(pressure(&[60.0, 0.0], &[300.0, 300.0]), Some(10.0), "not the mean of ratios");
        assert_eq!(pressure(&[], &[]), None);
    }
}
