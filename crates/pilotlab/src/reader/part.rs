//! Statistics of reading threads.

use std::time::{Instant, SystemTime};

use hdrhistogram::Histogram;

use crate::reader::usage::Usage;

/// Largest latency of the histogram: an hour, in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Statistics of one or all threads.
pub(crate) struct Part {
    /// Latencies in nanoseconds with three significant digits.
    pub(crate) latencies: Histogram<u64>,
    /// Exact sum of the latencies.
    pub(crate) total_ns: u128,
    /// The window.
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// Start of the window on the wall clock.
    pub(crate) from_wall: SystemTime,
    /// Resource usage of the threads in the window.
    pub(crate) usage: Usage,
}

impl Part {
    /// Of no reads, with an empty window.
    pub(crate) fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("three digits from 1 ns to an hour");
        let (now, from_wall) = (Instant::now(), SystemTime::now());
        Self { latencies, total_ns: 0, from: now, to: now, from_wall, usage: Usage::default() }
    }

    /// Adds a read.
    pub(crate) fn add(&mut self, took_ns: u64) {
        self.latencies.saturating_record(took_ns);
        self.total_ns += u128::from(took_ns);
    }

    /// Adds the statistics of another thread.
    pub(crate) fn with(mut self, other: &Self) -> Self {
        self.latencies.add(&other.latencies).expect("the same bounds");
        self.total_ns += other.total_ns;
        if other.from < self.from {
            (self.from, self.from_wall) = (other.from, other.from_wall);
        }
        self.to = self.to.max(other.to);
        self.usage = self.usage + other.usage;
        self
    }
}
