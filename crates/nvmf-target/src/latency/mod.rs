//! Latency from the socket: from the arrival of a command's bytes at the socket until its response is written.
//!
//! # The problem
//! A latency measured from the poll (`stats.rs`) excludes the time that a command waited for the poll. A policy that lets
//! cores sleep causes that time, so it must be measured.
//!
//! # Measurement
//! The kernel timestamps a packet when the network stack receives it (`SO_TIMESTAMPNS`, `stamp.rs`). Timestamps make a
//! receive more expensive, so receives are sampled (`sampler.rs`), and only while a policy uses latencies or the status is
//! read ([`Latencies`]). All commands of a sampled receive are counted with its weight.
//!
//! For TCP the timestamp is that of the last packet of the receive. So earlier commands of a receive may have waited longer
//! than counted, and a write with in-capsule data starts at the end of its data. A write with R2T starts with its command.
//! Time in which a bandwidth cap throttles a command is not part of its latency.
//!
//! Without a timestamp the latency starts at the poll, and is counted in [`SocketLatency::unstamped`].
//!
//! # Windows
//! A thread (`meter.rs`) computes mean, p50 and p99 of each window of 500 ms, for the server and for each namespace in use
//! by a policy. Memory is fixed: a histogram per I/O thread, and one per such namespace.

pub mod batch;
pub mod coarse;
mod meter;
mod sample;
mod sampler;
mod stamp;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::Thread;

use pilotlight_plant::{NEVER, Stat, Window};
use pilotlight_reactor::cells::add;
use pilotlight_reactor::{Histogram, HistogramSnapshot};

pub(crate) use meter::{LatencyMeter, SOURCES, sources_of};
pub use sample::Sample;
pub(crate) use sampler::Sampler;
pub(crate) use stamp::{receive_stamped, set_stamping};

use crate::caps::Limit;
use crate::namespaces::Namespaces;
use crate::stats::Counters;
use crate::views::ViewId;
use coarse::Pair;

/// Arrival of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Time of the poll that read it, or of its admission if it was throttled, in nanoseconds. 0 if it is not counted.
    pub poll_ns: u64,
    /// Its time at the socket.
    pub sample: Sample,
}

impl Arrival {
    /// A command that is not counted.
    pub const NONE: Self = Self { poll_ns: 0, sample: Sample::NONE };

    /// Counts `count` commands with responses written at `end_ns`.
    pub(crate) fn record(
        self,
        count: u64,
        end_ns: u64,
        into: &Counters,
        of_subsystem: Option<&Pair>,
        namespaces: &Namespaces,
    ) {
        let polled_ns = end_ns.saturating_sub(self.poll_ns);
        into.latency.record(polled_ns, count);
        if let Some(pair) = of_subsystem {
            pair[usize::from(self.sample.is_write())].record(polled_ns, count);
        }
        if self.sample.is_sampled() {
            let index = |nsid| namespaces.index_of(ViewId::whole(self.sample.subsystem()), nsid);
            let limit = self.sample.namespace().and_then(index).and_then(|index| namespaces.limit(index));
            self.sample.record(count, polled_ns, into, limit.map(|limit| &**limit));
        }
    }
}

impl Sample {
    /// Counts `count` commands with responses written `polled_ns` after the poll that read them.
    #[cold]
    fn record(self, count: u64, polled_ns: u64, into: &Counters, limit: Option<&Limit>) {
        let (ns, count) = (polled_ns + self.waited_ns(), count * u64::from(self.weight()));
        into.from_socket.histogram.record(ns, count);
        add(if self.is_stamped() { &into.from_socket.stamped } else { &into.from_socket.unstamped }, count);
        if let Some(histogram) = limit.and_then(|limit| limit.latency().histogram()) {
            histogram.record_shared(ns, count);
        }
    }
}

/// Sampled latencies of an I/O thread, its only writer.
#[derive(Debug, Default)]
pub struct SocketLatency {
    histogram: Histogram,
    stamped: AtomicU64,
    unstamped: AtomicU64,
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

/// Sampling state, and the latency reading of the server.
#[derive(Debug)]
pub struct Latencies {
    is_on: AtomicBool,
    /// A policy uses the readings.
    is_wanted: AtomicBool,
    /// End of sampling for status readers, in nanoseconds.
    watched_until_ns: AtomicU64,
    server: LatencyReading,
    meter: OnceLock<Thread>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            watched_until_ns: AtomicU64::new(0),
            server: LatencyReading::default(),
            meter: OnceLock::new(),
        }
    }
}

impl Latencies {
    /// Whether receives are sampled.
    #[inline]
    #[must_use]
    pub fn are_sampled(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Sets whether a policy uses latency readings.
    pub(crate) fn set_wanted(&self, is_wanted: bool) {
        if self.is_wanted.swap(is_wanted, Relaxed) != is_wanted {
            self.wake_meter();
        }
    }

    /// Samples until `until_ns`.
    pub(crate) fn watch_until(&self, until_ns: u64) {
        self.watched_until_ns.fetch_max(until_ns, Relaxed);
        if !self.are_sampled() {
            self.is_on.store(true, Relaxed);
            self.wake_meter(); // it ends the sampling
        }
    }

    /// The server's reading.
    pub(crate) fn server(&self) -> &LatencyReading {
        &self.server
    }

    fn wake_meter(&self) {
        self.meter.get().into_iter().for_each(Thread::unpark);
    }
}

/// A latency reading of a namespace, or of the server (without the histogram: each I/O thread has one).
#[derive(Debug, Default)]
pub struct LatencyReading {
    is_wanted: AtomicBool,
    /// Allocated on first use.
    histogram: OnceLock<Histogram>,
    last: LastWindow,
}

/// Statistics of a window, by [`Stat`].
#[derive(Debug)]
struct LastWindow {
    /// [`NEVER`] before the first window.
    ended_ns: AtomicU64,
    /// [`NEVER`] without requests.
    values_ns: [AtomicU64; Stat::ALL.len()],
}

impl Default for LastWindow {
    fn default() -> Self {
        let never = || AtomicU64::new(NEVER);
        Self { ended_ns: never(), values_ns: std::array::from_fn(|_| never()) }
    }
}

impl LatencyReading {
    pub(crate) fn set_wanted(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Relaxed);
    }

    fn is_wanted(&self) -> bool {
        self.is_wanted.load(Relaxed)
    }

    /// Its histogram while it is in use.
    fn histogram(&self) -> Option<&Histogram> {
        self.is_wanted().then(|| self.histogram.get())?
    }

    /// Records a window.
    fn note(&self, window: &HistogramSnapshot, ended_ns: u64) {
        let is_empty = window.count() == 0;
        for (cell, stat) in self.last.values_ns.iter().zip(Stat::ALL) {
            cell.store(if is_empty { NEVER } else { value_of(window, stat) }, Relaxed);
        }
        self.last.ended_ns.store(ended_ns, Relaxed);
    }

    /// The last window of a statistic, by its index in [`Stat::ALL`].
    pub(crate) fn window(&self, stat: usize) -> Option<Window> {
        let (ended_ns, value) = (self.last.ended_ns.load(Relaxed), self.last.values_ns.get(stat)?.load(Relaxed));
        (ended_ns != NEVER).then_some(Window { ended_ns, value: Some(value).filter(|&value| value != NEVER) })
    }
}

/// Statistics of a namespace's last window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyWindow {
    /// Mean latency from the socket in nanoseconds.
    pub mean_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
}

impl LatencyReading {
    /// The last window, if in use and not empty.
    pub(crate) fn last_window(&self) -> Option<LatencyWindow> {
        let of = |stat: Stat| {
            let at = Stat::ALL.iter().position(|known| *known == stat)?;
            self.window(at)?.value
        };
        let window =
            || Some(LatencyWindow { mean_ns: of(Stat::Mean)?, p50_ns: of(Stat::P50)?, p99_ns: of(Stat::P99)? });
        self.is_wanted().then(window).flatten()
    }
}

/// A statistic of a window in nanoseconds.
fn value_of(window: &HistogramSnapshot, stat: Stat) -> u64 {
    match stat {
        Stat::Mean => window.mean_ns(),
        Stat::P50 => window.percentile_ns(0.5),
        Stat::P99 => window.percentile_ns(0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_weighted() {
        let (counters, limit) = (Counters::default(), Limit::default());
        Sample::new(2, Some(2_000)).record(2, 1_000, &counters, Some(&limit));
        Sample::new(2, None).record(1, 3_000, &counters, None);
        let socket = counters.from_socket.snapshot();
        assert_eq!((socket.latency.count(), socket.stamped, socket.unstamped), (12, 8, 4));
        assert_eq!(socket.latency.mean_ns(), 3_000);
        assert!(limit.latency().histogram().is_none(), "not in use");
    }

    #[test]
    fn a_namespace_counts_while_in_use() {
        let (counters, limit) = (Counters::default(), Limit::default());
        let sample = Sample::new(0, Some(900));
        let reading = limit.latency();
        reading.set_wanted(true);
        reading.histogram.get_or_init(Histogram::default);
        sample.record(3, 100, &counters, Some(&limit));
        let window = reading.histogram().unwrap().snapshot();
        reading.note(&window, 9);
        let last = reading.last_window().expect("in use");
        assert_eq!((last.mean_ns, last.p50_ns), (1_000, window.percentile_ns(0.5)));
        assert_eq!(reading.window(0), Some(Window { ended_ns: 9, value: Some(1_000) }));
        reading.note(&HistogramSnapshot::default(), 10);
        assert_eq!(reading.window(2), Some(Window { ended_ns: 10, value: None }), "no request, no latency");
        assert_eq!(reading.last_window(), None);
        reading.set_wanted(false);
        sample.record(1, 100, &counters, Some(&limit));
        assert_eq!(reading.histogram.get().unwrap().snapshot(), window);
    }
}
