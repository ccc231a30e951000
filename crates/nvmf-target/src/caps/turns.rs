//! Whose turn it is while commands are throttled: among hosts by bytes, among the I/O threads of a host by age.
//!
//! # The algorithm
//! Start-time fair queuing, without an order of all commands. A *contender* is a host (64 are told apart) with a throttled
//! command. It has the number of bytes that it has been served; a host that had nothing to wait for begins with about as many
//! as the contender that has been served least, so that it has saved nothing up. A host may go while it is no more than a
//! few requests ahead of every other contender. Of the commands of one host the oldest is noted, and younger ones let it go
//! first.
//!
//! # The properties
//! - Hosts that contend all the time are served equally, but for a few requests and [`ahead`].
//! - A contender that does not come back for its turn (its I/O thread is held up, its connection is lost) stops nobody for
//!   longer than [`LEASE_NS`].
//! - Every word stands for itself, so that no ordering matters: a reader that sees some of them late lets somebody go who is
//!   a request further ahead.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::budget::bytes_of;

/// Contenders that are told apart: a bit for each in one word.
const CONTENDERS: usize = 64;
/// How long a contender is waited for that does not come back, in nanoseconds: three times as long as a throttled command is
/// left alone, and less than the time whose bytes a budget keeps.
pub(super) const LEASE_NS: u64 = 6_000_000;
/// Time until a command whose turn it was not is tried again, in nanoseconds.
pub(super) const TURN_NS: u64 = 50_000;
/// No time: nothing waits.
const NONE: u64 = u64::MAX;

/// Who wants to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The host's number.
    pub host: u32,
    /// When the command came, in nanoseconds.
    pub since_ns: u64,
}

impl Claim {
    fn contender(self) -> usize {
        self.host as usize % CONTENDERS
    }
}

#[derive(Debug)]
struct Contender {
    /// Bytes that it has been served.
    served: AtomicU64,
    /// When its oldest throttled command came that is known.
    since_ns: AtomicU64,
    /// When that was last noted.
    seen_ns: AtomicU64,
}

impl Contender {
    fn contends(&self, now_ns: u64) -> bool {
        self.since_ns.load(Relaxed) != NONE && now_ns.saturating_sub(self.seen_ns.load(Relaxed)) <= LEASE_NS
    }
}

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Turns {
    /// Until when commands count as throttled.
    until_ns: AtomicU64,
    /// A bit for each contender.
    present: AtomicU64,
    /// Bytes of the contender that had been served least when one was served last.
    progress: AtomicU64,
    contenders: [Contender; CONTENDERS],
}

impl Default for Turns {
    fn default() -> Self {
        let contender =
            || Contender { served: AtomicU64::new(0), since_ns: AtomicU64::new(NONE), seen_ns: AtomicU64::new(0) };
        Self {
            until_ns: AtomicU64::new(0),
            present: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            contenders: std::array::from_fn(|_| contender()),
        }
    }
}

/// A host's turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// With how many bytes the host begins.
    start: u64,
    /// Bytes of the contender that has been served least.
    least: u64,
}

/// Bytes that a host may be ahead of others: few enough to be fair within milliseconds, and a request at least.
pub(super) fn ahead(rate: u64) -> u64 {
    bytes_of(1_000_000, rate).max(128 << 10)
}

impl Turns {
    /// Whether commands are throttled.
    pub(super) fn are_taken(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns.load(Relaxed)
    }

    /// Bytes that a host begins with that had nothing to wait for: as many as the contender that has been served least, less
    /// what it may be ahead, so that a host whose commands are all on the way for a moment loses nothing.
    fn newcomer(&self, rate: u64) -> u64 {
        self.progress.load(Relaxed).saturating_sub(ahead(rate))
    }

    /// The claim's turn, if it is.
    pub(super) fn turn(&self, claim: Claim, rate: u64, now_ns: u64) -> Option<Turn> {
        let own = claim.contender();
        let start = self.contenders[own].served.load(Relaxed).max(self.newcomer(rate));
        let (mut least, mut present) = (start, self.present.load(Relaxed));
        while present != 0 {
            let at = present.trailing_zeros() as usize;
            present &= present - 1;
            let contender = &self.contenders[at];
            if !contender.contends(now_ns) {
                self.present.fetch_and(!(1 << at), Relaxed);
                continue;
            }
            if at == own {
                if contender.since_ns.load(Relaxed) < claim.since_ns {
                    return None;
                }
                continue;
            }
            least = least.min(contender.served.load(Relaxed));
        }
        (start <= least.saturating_add(ahead(rate))).then_some(Turn { start, least })
    }

    /// The claim's command has been throttled, and waits.
    pub(super) fn wait(&self, claim: Claim, rate: u64, now_ns: u64) {
        let at = claim.contender();
        let contender = &self.contenders[at];
        if !contender.contends(now_ns) {
            contender.served.fetch_max(self.newcomer(rate), Relaxed);
            contender.since_ns.store(NONE, Relaxed);
        }
        if claim.since_ns <= contender.since_ns.load(Relaxed) {
            contender.since_ns.store(claim.since_ns, Relaxed);
            contender.seen_ns.store(now_ns, Relaxed);
        }
        self.present.fetch_or(1 << at, Relaxed);
        self.until_ns.fetch_max(now_ns + LEASE_NS, Relaxed);
    }

    /// The claim's command takes its turn with `bytes` bytes.
    pub(super) fn serve(&self, claim: Claim, turn: Turn, bytes: u64) {
        let contender = &self.contenders[claim.contender()];
        contender.served.fetch_max(turn.start, Relaxed);
        contender.served.fetch_add(bytes, Relaxed);
        self.progress.fetch_max(turn.least, Relaxed);
        self.leave(claim);
    }

    /// The claim's command waits no longer. Others of its host say so when they are tried again.
    pub(super) fn leave(&self, claim: Claim) {
        let since_ns = &self.contenders[claim.contender()].since_ns;
        let _ = since_ns.compare_exchange(claim.since_ns, NONE, Relaxed, Relaxed);
    }
}
