//! The budget of a limit: one word, the time up to which it is spent.
//!
//! Threads share only this word, so relaxed ordering is sufficient.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::DEPTH_NS;

/// Fractions of a nanosecond: 4 KiB at 100 GB/s take 655 of them. The clock lasts for 36 years.
const PARTS: u64 = 16;
const NS_PER_S: u128 = 1_000_000_000;

/// A budget shared by all I/O threads.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// In [`PARTS`] of monotonic nanoseconds.
    spent_until: AtomicU64,
}

impl Budget {
    /// Takes `bytes` at `rate` bytes per second, if the budget is not spent beyond now.
    ///
    /// # Errors
    /// The time up to which it is spent, in nanoseconds.
    pub(super) fn take(&self, bytes: u64, rate: u64, now_ns: u64) -> Result<(), u64> {
        let (now, cost) = (now_ns * PARTS, cost(bytes, rate));
        let mut until = self.spent_until.load(Relaxed);
        loop {
            if until > now {
                return Err(until.div_ceil(PARTS));
            }
            let from = until.max(now.saturating_sub(DEPTH_NS * PARTS));
            match self.spent_until.compare_exchange_weak(until, from.saturating_add(cost), Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => until = other,
            }
        }
    }

    /// Returns `bytes` taken and not used.
    pub(super) fn release(&self, bytes: u64, rate: u64) {
        let cost = cost(bytes, rate);
        self.change(|until| until.saturating_sub(cost));
    }

    /// Converts the overspent part to a new rate.
    pub(super) fn change_rate(&self, before: u64, after: u64, now_ns: u64) {
        let now = now_ns * PARTS;
        self.change(|until| {
            let debt = u128::from(until.saturating_sub(now)) * u128::from(before) / u128::from(after.max(1));
            if until > now { now.saturating_add(u64::try_from(debt).unwrap_or(u64::MAX)) } else { until }
        });
    }

    fn change(&self, change: impl Fn(u64) -> u64) {
        let mut until = self.spent_until.load(Relaxed);
        while let Err(other) = self.spent_until.compare_exchange_weak(until, change(until), Relaxed, Relaxed) {
            until = other;
        }
    }
}

/// The time of `bytes` at `rate` bytes per second, rounded up.
fn cost(bytes: u64, rate: u64) -> u64 {
    let parts = (u128::from(bytes) * NS_PER_S * u128::from(PARTS)).div_ceil(u128::from(rate.max(1)));
    u64::try_from(parts).unwrap_or(u64::MAX)
}

/// The bytes of `ns` nanoseconds at `rate` bytes per second.
pub(super) fn bytes_of(ns: u64, rate: u64) -> u64 {
    (u128::from(ns) * u128::from(rate) / NS_PER_S) as u64
}
