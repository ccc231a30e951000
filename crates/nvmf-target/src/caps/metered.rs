//! The metered bytes of a limit, and its bandwidth in the last window.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pilotlight_plant::{NEVER, Quantity, Scope, Window};

use crate::latency::reading::SOURCES;

/// Interval at which a bucket adds its bytes to the counters, in nanoseconds.
pub(super) const FLUSH_NS: u64 = 1_000_000;
const NS_PER_S: u128 = 1_000_000_000;

/// A direction; an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Bytes read.
    Read,
    /// Bytes written.
    Written,
}

/// Quantities of the readings of bytes, by [`Direction`].
pub(super) const QUANTITIES: [Quantity; 2] = [Quantity::ReadBytesPerS, Quantity::WrittenBytesPerS];

/// The bytes of a limit, by [`Direction`]; on other cache lines than its caps, which every command reads.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Metered {
    bytes: [AtomicU64; 2],
    /// Bytes per second in the last window; [`NEVER`] for none.
    rates: [AtomicU64; 2],
    /// End of the last window.
    ended_ns: AtomicU64,
}

impl Default for Metered {
    fn default() -> Self {
        let never = || AtomicU64::new(NEVER);
        Self { bytes: Default::default(), rates: [never(), never()], ended_ns: never() }
    }
}

impl Metered {
    pub(super) fn add(&self, bytes: [u64; 2]) {
        for (total, bytes) in self.bytes.iter().zip(bytes).filter(|(_, bytes)| *bytes > 0) {
            total.fetch_add(bytes, Relaxed);
        }
    }

    pub(super) fn totals(&self) -> [u64; 2] {
        self.bytes.each_ref().map(|bytes| bytes.load(Relaxed))
    }

    /// Records a window that ended at `now_ns`, `elapsed_ns` after the previous one.
    pub(super) fn note(&self, before: [u64; 2], totals: [u64; 2], now_ns: u64, elapsed_ns: u64) {
        for (at, rate) in self.rates.iter().enumerate() {
            let bytes = u128::from(totals[at].wrapping_sub(before[at]));
            rate.store((bytes * NS_PER_S / u128::from(elapsed_ns.max(1))) as u64, Relaxed);
        }
        self.ended_ns.store(now_ns, Relaxed);
    }

    pub(super) fn window(&self, direction: usize) -> Option<Window> {
        let (ended_ns, rate) = (self.ended_ns.load(Relaxed), self.rates.get(direction)?.load(Relaxed));
        (ended_ns != NEVER).then_some(Window { ended_ns, value: Some(rate).filter(|&rate| rate != NEVER) })
    }
}

/// Readings of a limit: bytes by [`Direction`], then latencies.
pub(super) fn count_of(scope: Scope) -> usize {
    QUANTITIES.len() + if matches!(scope, Scope::Namespace(_)) { SOURCES } else { 0 }
}
