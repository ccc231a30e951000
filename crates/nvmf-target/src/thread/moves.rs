//! Moves of an I/O thread, as detected by itself.
//!
//! An I/O thread detects that its OS thread has changed since its last poll. With the feature `testing` it can also record the work in
//! progress (`work`), which takes a pass over all commands.

#[cfg(feature = "testing")]
mod work;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pilotlight_reactor::cells::add;

/// Identifies the calling OS thread among the running ones, at the cost of an addition.
#[must_use]
pub(crate) fn os_thread_id() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| &raw const *here as usize)
}

/// Move counters of an I/O thread, the only writer.
#[derive(Debug, Default)]
pub struct MoveCounters {
    moves: AtomicU64,
    longest_gap_ns: AtomicU64,
    #[cfg(feature = "testing")]
    work: work::WorkCounters,
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
    #[cfg(feature = "testing")]
    pub with: pilotlight_nvmf_proto::tcp::InProgress,
}

impl MoveCounters {
    /// Counts a move with `gap_ns` between the polls.
    pub fn moved(&self, gap_ns: u64) {
        add(&self.moves, 1);
        self.longest_gap_ns.store(self.longest_gap_ns.load(Relaxed).max(gap_ns), Relaxed);
    }

    /// A copy.
    #[must_use]
    pub fn snapshot(&self) -> Moves {
        Moves {
            moves: self.moves.load(Relaxed),
            longest_gap_ns: self.longest_gap_ns.load(Relaxed),
            #[cfg(feature = "testing")]
            with: self.work.snapshot(),
        }
    }
}

impl std::ops::Add for Moves {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self.moves += other.moves;
        self.longest_gap_ns = self.longest_gap_ns.max(other.longest_gap_ns);
        #[cfg(feature = "testing")]
        {
            self.with += other.with;
        }
        self
    }
}
