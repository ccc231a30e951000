//! Moves, as the I/O thread sees them that is moved.
//!
//! A thread finds out by itself that it is on another OS thread than in its last poll; nobody has to tell it. Tests want to
//! know what was in progress at that moment ([`InProgress`]); looking costs a pass over all commands, so it is done only
//! where it was asked for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pilotlight_reactor::cells::add;

/// Names the calling OS thread, among those that live. It costs no more than an addition.
#[must_use]
pub fn here() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| &raw const *here as usize)
}

/// What an I/O thread has in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
    /// Requests in the backends.
    pub in_backends: u64,
    /// Connections of which a PDU has come in part.
    pub partial_pdus: u64,
    /// R2Ts that have not been answered in full.
    pub open_r2ts: u64,
    /// Connections whose socket takes no more of what is to be sent.
    pub unfinished_sends: u64,
}

/// What an I/O thread counts of its moves. It is the only writer.
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
    /// The longest time from the last poll in the old place to the first in the new one, in nanoseconds, of threads that did
    /// not wait in the kernel meanwhile.
    pub longest_gap_ns: u64,
    /// Of the moves that were looked at, those with something of each kind in progress.
    pub with: InProgress,
}

impl MoveCounters {
    /// Counts a move after which the thread was polled `gap_ns` nanoseconds later than before; `found` is what was in
    /// progress, if anyone has looked.
    pub fn moved(&self, gap_ns: u64, found: Option<InProgress>) {
        add(&self.moves, 1);
        self.longest_gap_ns.store(self.longest_gap_ns.load(Relaxed).max(gap_ns), Relaxed);
        let found = found.unwrap_or_default();
        add(&self.in_backends, found.in_backends.min(1));
        add(&self.partial_pdus, found.partial_pdus.min(1));
        add(&self.open_r2ts, found.open_r2ts.min(1));
        add(&self.unfinished_sends, found.unfinished_sends.min(1));
    }

    /// The values as of now.
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
