//! A namespace or a host, capped or not: its caps, its budget, whose turn it is, and what it has throttled.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::SLICES_NS;
use super::budget::{Budget, bytes_of};
use super::meter::Metered;
use super::turns::{Claim, TURN_NS, Turns};
use crate::latency::LatencyReading;

/// Who sets a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setter {
    /// A person, by the configuration or the control socket.
    Operator,
    /// The policy in charge.
    Policy,
}

/// No cap.
const NONE: u64 = u64::MAX;

/// Why a command may not go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldBack {
    /// When it is to be tried again, in nanoseconds.
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

/// What a limit has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitStats {
    /// The operator's cap in bytes a second.
    pub operator: Option<u64>,
    /// The policy's cap in bytes a second.
    pub policy: Option<u64>,
    /// Bytes of commands that were admitted while it was capped, less those of commands that were given up.
    pub bytes: u64,
    /// Commands that are throttled now.
    pub throttled_now: u64,
    /// Commands that were throttled and then admitted.
    pub throttled: u64,
    /// Bytes of those.
    pub throttled_bytes: u64,
    /// How long those waited, in nanoseconds, all together.
    pub wait_ns: u64,
}

impl Default for Limit {
    fn default() -> Self {
        Self::of_host(0)
    }
}

impl Limit {
    /// The limit of the host with this number, not capped.
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

    /// The latency of a namespace, as a reading.
    pub(crate) fn latency(&self) -> &LatencyReading {
        &self.latency
    }

    /// The number of a host.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The cap that holds, in bytes a second; `None`: it is not capped.
    #[must_use]
    pub fn bytes_per_s(&self) -> Option<u64> {
        let rate = self.operator.load(Relaxed).min(self.policy.load(Relaxed));
        Some(rate).filter(|&rate| rate != NONE)
    }

    /// The cap of one setter, in bytes a second.
    pub(super) fn cap_of(&self, setter: Setter) -> Option<u64> {
        Some(self.word(setter).load(Relaxed)).filter(|&rate| rate != NONE)
    }

    fn word(&self, setter: Setter) -> &AtomicU64 {
        match setter {
            Setter::Operator => &self.operator,
            Setter::Policy => &self.policy,
        }
    }

    /// Sets a cap; returns whether there was one of this setter.
    pub(super) fn set(&self, setter: Setter, bytes_per_s: Option<u64>, now_ns: u64) -> bool {
        let before = self.bytes_per_s();
        let had = self.word(setter).swap(bytes_per_s.map_or(NONE, |rate| rate.clamp(1, NONE - 1)), Relaxed);
        if let (Some(before), Some(after)) = (before, self.bytes_per_s()) {
            self.budget.change_rate(before, after, now_ns);
        }
        had != NONE
    }

    /// Its namespace is gone: policies cannot set it any more.
    pub(super) fn retire(&self) {
        self.retired.store(true, Relaxed);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    /// So many more buckets may take slices.
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

    /// Takes a slice of the budget that is worth `bytes` at least. Returns how many bytes it is worth.
    pub(super) fn take_slice(&self, bytes: u64, rate: u64, claim: Claim, now_ns: u64) -> Result<u64, HeldBack> {
        let slice = bytes_of(SLICES_NS / u64::from(self.buckets.load(Relaxed).max(1)), rate).max(bytes);
        self.take(slice, rate, claim, now_ns).map(|()| slice)
    }

    /// Takes what a command needs, if it is its turn.
    pub(super) fn take_in_turn(&self, bytes: u64, rate: u64, claim: Claim, now_ns: u64) -> Result<(), HeldBack> {
        let Some(turn) = self.turns.turn(claim, rate, now_ns) else {
            self.turns.wait(claim, rate, now_ns);
            return Err(HeldBack { until_ns: now_ns + TURN_NS });
        };
        self.take(bytes, rate, claim, now_ns)?;
        self.turns.serve(claim, turn, bytes);
        Ok(())
    }

    fn take(&self, bytes: u64, rate: u64, claim: Claim, now_ns: u64) -> Result<(), HeldBack> {
        self.budget.take(bytes, rate, now_ns).map_err(|until_ns| {
            self.turns.wait(claim, rate, now_ns);
            HeldBack { until_ns }
        })
    }

    /// Gives back what was taken at `rate` and not used.
    pub(super) fn give_back(&self, bytes: u64, rate: u64) {
        self.budget.give_back(bytes, rate);
    }

    /// A command that waits for something else does not hold up others here.
    pub(super) fn leave(&self, claim: Claim) {
        self.turns.leave(claim);
    }

    /// Its bytes, while they are metered.
    pub(super) fn metered(&self) -> &Metered {
        &self.metered
    }

    /// Counts the bytes of an admitted command.
    pub(super) fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Takes back the bytes of a command that was given up.
    pub(super) fn uncount(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// A command is throttled from now on.
    pub(crate) fn begin_wait(&self) {
        self.throttled_now.fetch_add(1, Relaxed);
    }

    /// A throttled command waits no longer; it was admitted after so many nanoseconds, with so many bytes, or given up.
    pub(crate) fn end_wait(&self, admitted: Option<(u64, u64)>) {
        self.throttled_now.fetch_sub(1, Relaxed);
        if let Some((waited_ns, bytes)) = admitted {
            self.throttled.fetch_add(1, Relaxed);
            self.throttled_bytes.fetch_add(bytes, Relaxed);
            self.wait_ns.fetch_add(waited_ns, Relaxed);
        }
    }

    /// What it has done so far.
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
