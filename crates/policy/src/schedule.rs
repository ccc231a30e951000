//! Periodic interval ends. A late interval does not delay the following ones.

/// Times `start`, `start + period`, `start + 2 period`, and so on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) start_ns: u64,
    pub(crate) period_ns: u64,
}

impl Schedule {
    /// The first of them at or after `now_ns`.
    pub(crate) fn at_or_after(&self, now_ns: u64) -> u64 {
        let periods = now_ns.saturating_sub(self.start_ns).div_ceil(self.period_ns.max(1));
        self.start_ns.saturating_add(self.period_ns.saturating_mul(periods))
    }

    /// The first of them after `now_ns`.
    pub(crate) fn after(&self, now_ns: u64) -> u64 {
        self.at_or_after(now_ns.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_interval_does_not_delay_the_next_ones() {
        let schedule = Schedule { start_ns: 5, period_ns: 10 };
        assert_eq!([0, 5, 6, 15, 16].map(|now| schedule.at_or_after(now)), [5, 5, 15, 15, 25]);
        assert_eq!([5, 14, 15, 19].map(|now| schedule.after(now)), [15, 15, 25, 25]);
        assert_eq!(schedule.after(u64::MAX), u64::MAX);
    }
}
