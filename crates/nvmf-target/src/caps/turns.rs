//! Order of throttled commands: among hosts by bytes, among the I/O threads of a host by age.
//!
//! # The algorithm
//! Start-time fair queuing without a total order of commands. A *contender* is a host (64 are distinguished) with a throttled
//! command. It counts the bytes served; a new contender starts with about the count of the least served one, so that idle
//! time earns no credit. A host has its turn while it is at most a few requests ahead of every other contender. The oldest
//! known command of a host goes first.
//!
//! # The properties
//! - Continuous contenders are served equally, up to a few requests and [`max_lead`].
//! - A contender that does not retry (a delayed I/O thread, a lost connection) delays others for at most [`LEASE_NS`].
//! - The words are independent, so relaxed ordering is sufficient: a stale value admits a host one request too early.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::budget::bytes_of;

/// Number of contenders: a bit for each in one word.
const CONTENDERS: usize = 64;
/// Time after which a contender without retries is ignored, in nanoseconds: three retry intervals, and less than the
/// unspent time that a budget keeps.
pub(super) const LEASE_NS: u64 = 6_000_000;
/// Retry interval of a command that did not have its turn, in nanoseconds.
pub(super) const TURN_NS: u64 = 50_000;
/// No waiting command.
const NONE: u64 = u64::MAX;

/// A waiting command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The host's number.
    pub host: u32,
    /// Arrival of the command, in nanoseconds.
    pub since_ns: u64,
}

impl Claim {
    fn contender(self) -> usize {
        self.host as usize % CONTENDERS
    }
}

#[derive(Debug)]
struct Contender {
    /// Bytes served.
    served: AtomicU64,
    /// Arrival of its oldest known throttled command.
    since_ns: AtomicU64,
    /// Time of its last retry.
    seen_ns: AtomicU64,
}

impl Contender {
    fn contends(&self, now_ns: u64) -> bool {
        self.since_ns.load(Relaxed) != NONE && now_ns.saturating_sub(self.seen_ns.load(Relaxed)) <= LEASE_NS
    }
}

/// The contenders of a limit.
#[derive(Debug)]
pub(super) struct Turns {
    /// End of contention.
    until_ns: AtomicU64,
    /// A bit for each contender.
    present: AtomicU64,
    /// Bytes of the least served contender at the last service.
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
    /// Bytes with which the host starts.
    start: u64,
    /// Bytes of the least served contender.
    least: u64,
}

/// Maximum lead of a host over others in bytes: fair within milliseconds, and at least one request.
pub(super) fn max_lead(rate: u64) -> u64 {
    bytes_of(1_000_000, rate).max(128 << 10)
}

impl Turns {
    /// Whether commands are throttled.
    pub(super) fn are_taken(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns.load(Relaxed)
    }

    /// Start count of a new contender: that of the least served one minus [`max_lead`], so that a host whose commands are all
    /// in flight for a moment loses nothing.
    fn newcomer(&self, rate: u64) -> u64 {
        self.progress.load(Relaxed).saturating_sub(max_lead(rate))
    }

    /// The claim's turn, if it has it.
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
        (start <= least.saturating_add(max_lead(rate))).then_some(Turn { start, least })
    }

    /// Records that the claim's command waits.
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

    /// Serves the claim's command with `bytes` bytes.
    pub(super) fn serve(&self, claim: Claim, turn: Turn, bytes: u64) {
        let contender = &self.contenders[claim.contender()];
        contender.served.fetch_max(turn.start, Relaxed);
        contender.served.fetch_add(bytes, Relaxed);
        self.progress.fetch_max(turn.least, Relaxed);
        self.leave(claim);
    }

    /// Withdraws the claim. Other commands of its host set theirs when they are retried.
    pub(super) fn leave(&self, claim: Claim) {
        let since_ns = &self.contenders[claim.contender()].since_ns;
        let _ = since_ns.compare_exchange(claim.since_ns, NONE, Relaxed, Relaxed);
    }
}
