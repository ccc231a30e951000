//! Moves of an I/O thread, as detected by itself.
//!
//! An I/O thread detects that its OS thread has changed since its last poll. For tests it also records the work in progress
//! ([`InProgress`]), which takes a pass over all commands and is therefore optional.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use pilotlight_nvmf_proto::tcp::InProgress;
use pilotlight_reactor::cells::add;

/// Identifies the calling OS thread among the running ones, at the cost of an addition.
#[must_use]
pub fn os_thread_id() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| &raw const *here as usize)
}

/// Move counters of an I/O thread, the only writer.
#[derive(Debug, Default)]
pub struct MoveCounters {
    moves: AtomicU64,
    longest_gap_ns: AtomicU64,
    in_backends: AtomicU64,
    partial_pdus: AtomicU64,
    open_r2ts: AtomicU64,
    unfinished_sends: AtomicU64,
}

/// A copy of [`MoveCounters`], or a sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Moves from one OS thread to another.
    pub moves: u64,
    /// The longest time from the last poll before a move to the first one after it, in nanoseconds, of threads that did not
    /// wait in the kernel meanwhile.
    pub longest_gap_ns: u64,
    /// Moves with work of each kind in progress, if recorded.
    pub with: InProgress,
}

impl MoveCounters {
    /// Counts a move with `gap_ns` between the polls, and the work in progress, if recorded.
    pub fn moved(&self, gap_ns: u64, in_progress: Option<InProgress>) {
        add(&self.moves, 1);
        self.longest_gap_ns.store(self.longest_gap_ns.load(Relaxed).max(gap_ns), Relaxed);
        let in_progress = in_progress.unwrap_or_default();
        add(&self.in_backends, in_progress.in_backends.min(1));
        add(&self.partial_pdus, in_progress.partial_pdus.min(1));
        add(&self.open_r2ts, in_progress.open_r2ts.min(1));
        add(&self.unfinished_sends, in_progress.unfinished_sends.min(1));
    }

    /// A copy.
    #[must_use]
    pub fn snapshot(&self) -> Moves {
        Moves {
            moves: self.moves.load(Relaxed),
            longest_gap_ns: self.longest_gap_ns.load(Relaxed),
            with: InProgress {
                in_backends: self.in_backends.load(Relaxed),
                partial_pdus: self.partial_pdus.load(Relaxed),
                open_r2ts: self.open_r2ts.load(Relaxed),
                unfinished_sends: self.unfinished_sends.load(Relaxed),
            },
        }
    }
}

impl std::ops::Add for Moves {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let (a, b) = (self.with, other.with);
        Self {
            moves: self.moves + other.moves,
            longest_gap_ns: self.longest_gap_ns.max(other.longest_gap_ns),
            with: InProgress {
                in_backends: a.in_backends + b.in_backends,
                partial_pdus: a.partial_pdus + b.partial_pdus,
                open_r2ts: a.open_r2ts + b.open_r2ts,
                unfinished_sends: a.unfinished_sends + b.unfinished_sends,
            },
        }
    }
}
