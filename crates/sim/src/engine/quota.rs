//! CPU time quota of all workers together (CFS bandwidth control, cpu.max).
//!
//! **Rule.** A *pool* is filled with the quota at the start of each period. A running worker takes a *slice* at a time; a worker that goes to
//! sleep returns the rest of its slice. If the pool is empty, a worker that has used its slice is throttled at its next loop boundary until
//! the period ends. The exit from an idle state after it is not charged. Throttled workers then get slices first, in the order of throttling. Overuse
//! (at most one loop) is deducted from the next slice. A changed quota refills the pool and ends all slices, as `tg_set_cfs_bandwidth` does.
//!
//! **Differences from Linux.** The exit from an idle state in which a core waited for requests is charged. Slices end with the period (since Linux
//! 5.4 a CPU may keep one), usage is exact (the kernel samples at timer ticks), and time in a wait instruction is not charged.
//!
//! Calls must be in time order.

use std::collections::VecDeque;

/// The remaining time of all workers.
#[derive(Debug)]
pub(crate) struct QuotaPool {
    period_ns: u64,
    slice_ns: u64,
    /// Quota per period; `None` for no limit.
    quota_ns: Option<u64>,
    /// Pending changes of quota and period, in order of time.
    orders: VecDeque<(u64, Option<u64>, u64)>,
    left_ns: u64,
    /// Time and number of the last refill.
    filled_ns: u64,
    fills: u64,
    end_ns: u64,
    /// Throttled workers and their overuse, in order of throttling.
    waiting: VecDeque<(u16, u64)>,
    /// Workers that may run again: core, time, slice.
    released: Vec<(u16, u64, u64)>,
}

/// A worker's part of the pool.
#[derive(Debug, Default)]
pub(crate) struct CoreQuota {
    /// Whether the core is under the quota.
    is_limited: bool,
    /// Remaining slice; negative after overuse.
    left_ns: i64,
    /// Accounted awake time of the core.
    awake_ns: u64,
    /// Number of the refill that the slice is from.
    fill: u64,
}

impl QuotaPool {
    pub(crate) fn new(slice_ns: u64) -> Self {
        Self {
            period_ns: 1,
            slice_ns: slice_ns.max(1),
            quota_ns: None,
            orders: VecDeque::new(),
            left_ns: 0,
            filled_ns: 0,
            fills: 0,
            end_ns: u64::MAX,
            waiting: VecDeque::new(),
            released: Vec::new(),
        }
    }

    /// Sets quota and period from `at_ns` on; `None` for no limit.
    pub(crate) fn order(&mut self, at_ns: u64, quota_ns: Option<u64>, period_ns: u64) {
        self.orders.push_back((at_ns, quota_ns, period_ns.max(1)));
    }

    /// Whether a quota is set or pending.
    pub(crate) fn is_active(&self) -> bool {
        self.quota_ns.is_some() || !self.orders.is_empty()
    }

    /// Applies all refills and changes due until `now_ns`.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        loop {
            let at_ns = self.until_ns();
            if at_ns > now_ns {
                return;
            }
            if let Some(&(_, quota_ns, period_ns)) = self.orders.front().filter(|(order_ns, ..)| *order_ns <= at_ns) {
                self.orders.pop_front();
                (self.quota_ns, self.period_ns) = (quota_ns, period_ns);
            }
            self.fill(at_ns);
        }
    }

    fn fill(&mut self, at_ns: u64) {
        (self.filled_ns, self.fills) = (at_ns, self.fills + 1);
        let Some(quota_ns) = self.quota_ns else {
            self.end_ns = u64::MAX;
            self.released.extend(self.waiting.drain(..).map(|(core, _)| (core, at_ns, 0)));
            return;
        };
        self.left_ns = quota_ns;
        self.end_ns = (at_ns / self.period_ns + 1) * self.period_ns;
        while let Some(&(core, debt_ns)) = self.waiting.front() {
            let taken_ns = self.take(debt_ns);
            if taken_ns <= debt_ns {
                self.waiting[0].1 -= taken_ns;
                return;
            }
            self.waiting.pop_front();
            self.released.push((core, at_ns, taken_ns - debt_ns));
        }
    }

    /// Takes a slice plus the overuse, limited to the remaining time.
    fn take(&mut self, debt_ns: u64) -> u64 {
        let taken_ns = self.left_ns.min(self.slice_ns + debt_ns);
        self.left_ns -= taken_ns;
        taken_ns
    }

    /// Time of the next refill or change.
    pub(crate) fn until_ns(&self) -> u64 {
        self.end_ns.min(self.orders.front().map_or(u64::MAX, |&(at_ns, ..)| at_ns))
    }

    /// Time at which a throttled core can run again, or must check again.
    pub(crate) fn release_ns(&self, core: u16) -> u64 {
        let released = self.released.iter().find(|&&(of, ..)| of == core);
        released.map_or(self.until_ns(), |&(_, at_ns, _)| at_ns)
    }
}

impl CoreQuota {
    /// Puts this core under the quota.
    pub(crate) fn limit(&mut self) {
        self.is_limited = true;
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Charges a core that has been awake for `awake_ns` in total. Returns the time of the next check, or `None` to throttle it.
    pub(crate) fn check(&mut self, pool: &mut QuotaPool, core: u16, now_ns: u64, awake_ns: u64) -> Option<u64> {
        pool.advance(now_ns);
        self.charge(pool, now_ns, awake_ns);
        if pool.quota_ns.is_none() {
            return Some(pool.until_ns());
        }
        if self.left_ns <= 0 {
            self.left_ns += pool.take(self.left_ns.unsigned_abs()) as i64;
        }
        if self.left_ns <= 0 {
            pool.waiting.push_back((core, self.left_ns.unsigned_abs()));
            return None;
        }
        Some(pool.until_ns().min(now_ns + self.left_ns.unsigned_abs()))
    }

    /// Charges the awake time since the last call. Slices of an earlier period are void.
    fn charge(&mut self, pool: &QuotaPool, now_ns: u64, awake_ns: u64) {
        let mut used_ns = awake_ns - std::mem::replace(&mut self.awake_ns, awake_ns);
        if self.fill != pool.fills {
            (self.fill, self.left_ns) = (pool.fills, 0);
            used_ns = used_ns.min(now_ns - pool.filled_ns);
        }
        self.left_ns -= used_ns as i64;
    }

    /// Returns the rest of a slice before the core sleeps.
    pub(crate) fn return_slice(&mut self, pool: &mut QuotaPool, now_ns: u64, awake_ns: u64) {
        pool.advance(now_ns);
        self.charge(pool, now_ns, awake_ns);
        if pool.quota_ns.is_some() && self.left_ns > 0 {
            pool.left_ns += std::mem::take(&mut self.left_ns).unsigned_abs();
        }
    }

    /// Whether a throttled core may run again at `now_ns`; it is charged for awake time above `awake_ns`.
    pub(crate) fn run_again(&mut self, pool: &mut QuotaPool, core: u16, now_ns: u64, awake_ns: u64) -> bool {
        pool.advance(now_ns);
        let Some(place) = pool.released.iter().position(|&(of, ..)| of == core) else { return false };
        let (_, _, slice_ns) = pool.released.remove(place);
        *self = Self { left_ns: slice_ns as i64, awake_ns, fill: pool.fills, ..*self };
        true
    }
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
