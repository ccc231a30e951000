//! Latency from the socket: from the arrival of a command's bytes at the socket until its response is written.
//!
//! # The problem
//! A latency measured from the poll (`latency_batch.rs`) excludes the time that a command waited for the poll. A policy that lets
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
//! Housekeeping (`server/latency_meter.rs`) computes mean, p50 and p99 of each window of 500 ms, for the server and for each namespace in use
//! by a policy. Memory is fixed: a histogram per I/O thread, and one per such namespace (in its `Limit`, `caps/limit.rs`), written by `latency_batch.rs`.

pub mod coarse;
pub(crate) mod reading;
mod sampler;
pub(crate) mod socket;
mod stamp;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use pilotlight_reactor::housekeeping::Waker;

pub use reading::{LatencyReading, LatencyWindow};
pub(crate) use sampler::Sampler;
pub use socket::{SocketLatency, SocketLatencyStats};
pub(crate) use stamp::{receive_stamped, set_stamping};

/// Sampling state, and the latency reading of the server.
#[derive(Debug, Default)]
pub struct Latencies {
    pub(crate) is_on: AtomicBool,
    /// A policy uses the readings.
    pub(crate) is_wanted: AtomicBool,
    /// End of sampling for status readers, in nanoseconds.
    pub(crate) watched_until_ns: AtomicU64,
    server: LatencyReading,
    /// Of the task that computes the readings.
    pub(crate) meter: Waker,
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
            self.meter.wake();
        }
    }

    /// Samples until `until_ns`.
    pub(crate) fn watch_until(&self, until_ns: u64) {
        self.watched_until_ns.fetch_max(until_ns, Relaxed);
        if !self.are_sampled() {
            self.is_on.store(true, Relaxed);
            self.meter.wake(); // it ends the sampling
        }
    }

    /// The server's reading.
    pub(crate) fn server(&self) -> &LatencyReading {
        &self.server
    }
}
