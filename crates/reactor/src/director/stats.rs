//! Statistics of the director.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::histogram::{Histogram, HistogramSnapshot};

/// Counters of the director.
#[derive(Debug, Default)]
pub(crate) struct DirectorCell {
    pub(super) ticks: AtomicU64,
    pub(super) intervals: AtomicU64,
    pub(super) lateness: Histogram,
    pub(super) moves: AtomicU64,
    pub(super) sleeps: AtomicU64,
    pub(super) wakes: AtomicU64,
    pub(super) refusals: AtomicU64,
}

/// Statistics of the director.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectorStats {
    /// Ticks, quiet ones included.
    pub ticks: u64,
    /// Intervals.
    pub intervals: u64,
    /// Lateness of ticks.
    pub lateness: HistogramSnapshot,
    /// Move commands.
    pub moves: u64,
    /// Sleep commands.
    pub sleeps: u64,
    /// Wake commands.
    pub wakes: u64,
    /// Refused commands.
    pub refusals: u64,
}

impl DirectorCell {
    pub(crate) fn stats(&self) -> DirectorStats {
        DirectorStats {
            ticks: self.ticks.load(Relaxed),
            intervals: self.intervals.load(Relaxed),
            lateness: self.lateness.snapshot(),
            moves: self.moves.load(Relaxed),
            sleeps: self.sleeps.load(Relaxed),
            wakes: self.wakes.load(Relaxed),
            refusals: self.refusals.load(Relaxed),
        }
    }
}
