//! The CPU time that a core may use in each period (CFS bandwidth control, cpu.max).
//!
//! **Rule.** Time awake counts. A core that has used its time is throttled at its next loop boundary, until the period ends or it gets
//! more; periods are the same for all cores. A part of the loop in which the period ends is not counted. Time in a wait instruction does not count
//! here; the kernel counts it.

use std::collections::VecDeque;

/// The quota of a core.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    period_ns: u64,
    /// Time awake that each period allows; `None` for any.
    allowed_ns: Option<u64>,
    /// What it will be from when on, in the order of time.
    orders: VecDeque<(u64, Option<u64>)>,
    /// Time awake when the present period began.
    before_ns: u64,
    end_ns: u64,
}

impl Quota {
    /// From `at_ns` on each period allows so much.
    pub(crate) fn order(&mut self, at_ns: u64, allowed_ns: Option<u64>, period_ns: u64) {
        self.period_ns = period_ns.max(1);
        self.orders.push_back((at_ns, allowed_ns));
    }

    /// At `now_ns`, when it has been awake for `awake_ns` in all: whether it has used its time, and when to look again if it stays
    /// awake until then.
    pub(crate) fn look(&mut self, now_ns: u64, awake_ns: u64) -> (bool, u64) {
        while let Some(&(_, allowed_ns)) = self.orders.front().filter(|(at_ns, _)| *at_ns <= now_ns) {
            self.orders.pop_front();
            if self.allowed_ns.is_none() {
                self.begin(now_ns, awake_ns);
            }
            self.allowed_ns = allowed_ns;
        }
        let next_ns = self.next_order_ns();
        let Some(allowed_ns) = self.allowed_ns else { return (false, next_ns) };
        if self.end_ns <= now_ns {
            self.begin(now_ns, awake_ns);
        }
        let left_ns = allowed_ns.saturating_sub(awake_ns - self.before_ns);
        (left_ns == 0, next_ns.min(self.end_ns).min(now_ns + left_ns))
    }

    fn begin(&mut self, now_ns: u64, awake_ns: u64) {
        self.before_ns = awake_ns;
        self.end_ns = (now_ns / self.period_ns + 1) * self.period_ns;
    }

    /// When a throttled core can go on, or has to look again.
    pub(crate) fn until_ns(&self) -> u64 {
        self.end_ns.min(self.next_order_ns())
    }

    fn next_order_ns(&self) -> u64 {
        self.orders.front().map_or(u64::MAX, |&(at_ns, _)| at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn time_awake_counts_and_periods_are_on_a_grid() {
        let mut quota = Quota::default();
        assert_eq!(quota.look(3 * MS, 3 * MS), (false, u64::MAX));
        quota.order(5 * MS, Some(2 * MS), 10 * MS);
        assert_eq!(quota.look(4 * MS, 4 * MS), (false, 5 * MS));
        assert_eq!(quota.look(5 * MS, 5 * MS), (false, 7 * MS), "from now on");
        assert_eq!(quota.look(6 * MS, 5 * MS), (false, 8 * MS), "it has rested");
        assert_eq!(quota.look(8 * MS, 7 * MS), (true, 8 * MS));
        assert_eq!(quota.until_ns(), 10 * MS);
        assert_eq!(quota.look(10 * MS, 7 * MS), (false, 12 * MS));
    }

    #[test]
    fn more_time_ends_the_throttling() {
        let mut quota = Quota::default();
        quota.order(0, Some(MS), 10 * MS);
        quota.look(0, 0);
        assert!(quota.look(MS, MS).0);
        quota.order(3 * MS, Some(4 * MS), 10 * MS);
        assert_eq!(quota.until_ns(), 3 * MS);
        assert_eq!(quota.look(3 * MS, MS), (false, 6 * MS));
        quota.order(4 * MS, None, 10 * MS);
        assert_eq!(quota.look(4 * MS, 2 * MS), (false, u64::MAX));
    }
}
