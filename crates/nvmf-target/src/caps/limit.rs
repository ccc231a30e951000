//! A limit: the caps of a namespace or a host, their budget, the turns of throttled commands, and statistics.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::SLICES_NS;
use super::budget::{Budget, bytes_of};
use super::metered::Metered;
use super::turns::{Claim, TURN_NS, Turns};
use crate::latency::reading::LatencyReading;

/// Setter of a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setter {
    /// The operator, by the configuration or the control socket.
    Operator,
    /// The policy in charge.
    Policy,
}

/// No cap.
const NONE: u64 = u64::MAX;

/// A command is throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Throttled {
    /// Time to retry, in nanoseconds.
    pub(super) until_ns: u64,
}

/// A limit.
#[derive(Debug)]
#[repr(align(128))]
pub struct Limit {
    operator: AtomicU64,
    policy: AtomicU64,
    budget: Budget,
    turns: Turns,
    /// Buckets that take slices of the budget.
    buckets: AtomicU32,
    number: u32,
    retired: AtomicBool,
    bytes: AtomicU64,
    throttled: AtomicU64,
    throttled_now: AtomicU64,
    throttled_bytes: AtomicU64,
    wait_ns: AtomicU64,
    metered: Metered,
    latency: LatencyReading,
}

/// Statistics of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitStats {
    /// The operator's cap in bytes per second.
    pub operator: Option<u64>,
    /// The policy's cap in bytes per second.
    pub policy: Option<u64>,
    /// Bytes of commands admitted while capped, without those of abandoned commands.
    pub bytes: u64,
    /// Commands throttled now.
    pub throttled_now: u64,
    /// Commands throttled and then admitted.
    pub throttled: u64,
    /// Bytes of those.
    pub throttled_bytes: u64,
    /// Total wait time of those, in nanoseconds.
    pub wait_ns: u64,
}

impl Default for Limit {
    fn default() -> Self {
        Self::of_host(0)
    }
}

impl Limit {
    /// The uncapped limit of the host with this number.
    pub(super) fn of_host(number: u32) -> Self {
        Self {
            operator: AtomicU64::new(NONE),
            policy: AtomicU64::new(NONE),
            budget: Budget::default(),
            turns: Turns::default(),
            buckets: AtomicU32::new(0),
            number,
            retired: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            throttled_now: AtomicU64::new(0),
            throttled_bytes: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
            metered: Metered::default(),
            latency: LatencyReading::default(),
        }
    }

    /// The latency reading of a namespace.
    pub(crate) fn latency(&self) -> &LatencyReading {
        &self.latency
    }

    /// The host's number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The effective cap in bytes per second; `None` if uncapped.
    #[must_use]
    pub fn bytes_per_s(&self) -> Option<u64> {
        let rate = self.operator.load(Relaxed).min(self.policy.load(Relaxed));
        Some(rate).filter(|&rate| rate != NONE)
    }

    /// The cap of one setter, in bytes per second.
    pub(super) fn cap_of(&self, setter: Setter) -> Option<u64> {
        Some(self.word(setter).load(Relaxed)).filter(|&rate| rate != NONE)
    }

    fn word(&self, setter: Setter) -> &AtomicU64 {
        match setter {
            Setter::Operator => &self.operator,
            Setter::Policy => &self.policy,
        }
    }

    /// Sets a cap; returns whether this setter had one.
    pub(super) fn set(&self, setter: Setter, bytes_per_s: Option<u64>, now_ns: u64) -> bool {
        let before = self.bytes_per_s();
        let had = self.word(setter).swap(bytes_per_s.map_or(NONE, |rate| rate.clamp(1, NONE - 1)), Relaxed);
        if let (Some(before), Some(after)) = (before, self.bytes_per_s()) {
            self.budget.change_rate(before, after, now_ns);
        }
        had != NONE
    }

    /// Marks its namespace as removed: policies cannot set it any more.
    pub(super) fn retire(&self) {
        self.retired.store(true, Relaxed);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    /// Adds buckets that take slices.
    pub(super) fn add_buckets(&self, count: u32) {
        self.buckets.fetch_add(count, Relaxed);
    }

    pub(super) fn remove_bucket(&self) {
        self.buckets.fetch_sub(1, Relaxed);
    }

    /// Whether commands are throttled.
    pub(super) fn is_contended(&self, now_ns: u64) -> bool {
        self.turns.are_taken(now_ns)
    }

    /// Takes a slice of at least `bytes` bytes. Returns its size.
    pub(super) fn take_slice(&self, bytes: u64, rate: u64, claim: Claim, now_ns: u64) -> Result<u64, Throttled> {
        let slice = bytes_of(SLICES_NS / u64::from(self.buckets.load(Relaxed).max(1)), rate).max(bytes);
        self.take(slice, rate, claim, now_ns).map(|()| slice)
    }

    /// Takes a command's bytes, if it is its turn.
    pub(super) fn take_in_turn(&self, bytes: u64, rate: u64, claim: Claim, now_ns: u64) -> Result<(), Throttled> {
        let Some(turn) = self.turns.turn(claim, rate, now_ns) else {
            self.turns.wait(claim, rate, now_ns);
            return Err(Throttled { until_ns: now_ns + TURN_NS });
        };
        self.take(bytes, rate, claim, now_ns)?;
        self.turns.serve(claim, turn, bytes);
        Ok(())
    }

    fn take(&self, bytes: u64, rate: u64, claim: Claim, now_ns: u64) -> Result<(), Throttled> {
        self.budget.take(bytes, rate, now_ns).map_err(|until_ns| {
            self.turns.wait(claim, rate, now_ns);
            Throttled { until_ns }
        })
    }

    /// Returns bytes taken at `rate` and not used.
    pub(super) fn release(&self, bytes: u64, rate: u64) {
        self.budget.release(bytes, rate);
    }

    /// Withdraws the claim of a command that waits for another limit.
    pub(super) fn leave(&self, claim: Claim) {
        self.turns.leave(claim);
    }

    /// Its meter.
    pub(super) fn metered(&self) -> &Metered {
        &self.metered
    }

    /// Counts the bytes of an admitted command.
    pub(super) fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Subtracts the bytes of an abandoned command.
    pub(super) fn uncount(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Counts a command as throttled.
    pub(crate) fn begin_wait(&self) {
        self.throttled_now.fetch_add(1, Relaxed);
    }

    /// Ends the wait of a throttled command: `admitted` after nanoseconds with bytes, or abandoned.
    pub(crate) fn end_wait(&self, admitted: Option<(u64, u64)>) {
        self.throttled_now.fetch_sub(1, Relaxed);
        if let Some((waited_ns, bytes)) = admitted {
            self.throttled.fetch_add(1, Relaxed);
            self.throttled_bytes.fetch_add(bytes, Relaxed);
            self.wait_ns.fetch_add(waited_ns, Relaxed);
        }
    }

    /// Its statistics.
    #[must_use]
    pub fn stats(&self) -> LimitStats {
        LimitStats {
            operator: self.cap_of(Setter::Operator),
            policy: self.cap_of(Setter::Policy),
            bytes: self.bytes.load(Relaxed),
            throttled_now: self.throttled_now.load(Relaxed),
            throttled: self.throttled.load(Relaxed),
            throttled_bytes: self.throttled_bytes.load(Relaxed),
            wait_ns: self.wait_ns.load(Relaxed),
        }
    }
}
