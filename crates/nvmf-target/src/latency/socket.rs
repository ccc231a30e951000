//! Sampled latencies of an I/O thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pilotlight_reactor::{Histogram, HistogramSnapshot};

/// Sampled latencies of an I/O thread, its only writer.
#[derive(Debug, Default)]
pub struct SocketLatency {
    pub(crate) histogram: Histogram,
    pub(crate) stamped: AtomicU64,
    pub(crate) unstamped: AtomicU64,
}

/// A copy of a [`SocketLatency`], or the sum of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketLatencyStats {
    /// The latencies, weighted by sample.
    pub latency: HistogramSnapshot,
    /// Latencies from the socket.
    pub stamped: u64,
    /// Latencies from the poll, without a timestamp.
    pub unstamped: u64,
}

impl SocketLatency {
    /// A copy.
    #[must_use]
    pub fn snapshot(&self) -> SocketLatencyStats {
        SocketLatencyStats {
            latency: self.histogram.snapshot(),
            stamped: self.stamped.load(Relaxed),
            unstamped: self.unstamped.load(Relaxed),
        }
    }
}

impl std::ops::AddAssign<&Self> for SocketLatencyStats {
    fn add_assign(&mut self, other: &Self) {
        self.latency += &other.latency;
        self.stamped += other.stamped;
        self.unstamped += other.unstamped;
    }
}
