//! The limiter of a power state: full speed for a part of each period, nothing for the rest of it.
//!
//! *Problem.* A lower power state holds a drive's mean power by holding its mean throughput. A drive may run every command more slowly, or it
//! may run at full speed and stop: the means are the same, the latencies are not. *Words.* Each byte has a *cost*, the time that it takes
//! at the state's rate. A period has a *budget* of cost, which is its own length. *Algorithm.* A command takes its cost out of the budget of the
//! present period. What is more than is left there is taken out of the periods that follow, and the command begins with the last of them. What
//! is left of a period's budget is lost. *Properties.* Commands begin in the order in which they came; in any number of whole periods no more begins
//! than the rate allows, but for the last command; a command that finds budget does not wait. The part of a period in which a busy
//! drive works is the state's rate over its full speed.

/// What is left of the present period.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limiter {
    /// When the period began whose budget is in use; it may be ahead of time.
    began_ns: u64,
    used_ns: u64,
}

impl Limiter {
    /// When a command may begin that comes at `at_ns`.
    pub(super) fn begin_ns(&mut self, at_ns: u64, cost_ns: u64, period_ns: u64) -> u64 {
        let began_ns = at_ns - at_ns % period_ns;
        if began_ns > self.began_ns {
            *self = Self { began_ns, used_ns: 0 };
        }
        self.used_ns += cost_ns;
        let further = self.used_ns.saturating_sub(1) / period_ns;
        self.began_ns += further * period_ns;
        self.used_ns -= further * period_ns;
        at_ns.max(self.began_ns)
    }
}

/// When a buffer has emptied at full speed and stopped in turn what it would have emptied until `at_ns` at the mean rate.
pub(super) fn stepped_ns(at_ns: u64, period_ns: u64, rate: u64, full_rate: u64) -> u64 {
    let into_ns = at_ns % period_ns;
    let worked_ns = u128::from(into_ns) * u128::from(rate.min(full_rate)) / u128::from(full_rate.max(1));
    at_ns - into_ns + worked_ns as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIOD: u64 = 1_000;

    #[test]
    fn a_budget_is_used_at_once_and_then_nothing_begins_until_the_next_period() {
        let mut limiter = Limiter::default();
        let begins: Vec<u64> = [5, 6, 7, 8, 9].iter().map(|&at| limiter.begin_ns(at, 400, PERIOD)).collect();
        assert_eq!(begins, [5, 6, 1_000, 1_000, 1_000]);
        assert_eq!(limiter.begin_ns(5_900, 400, PERIOD), 5_900, "what was left before is lost, and no debt is kept");
        assert_eq!(limiter.begin_ns(5_900, 2_600, PERIOD), 7_000, "as large as what is left and two more periods");
        assert_eq!(limiter.begin_ns(5_901, 1, PERIOD), 8_000);
    }

    #[test]
    fn a_buffer_empties_in_the_first_part_of_a_period() {
        assert_eq!([0, 500, 999, 1_000, 1_500].map(|at| stepped_ns(at, PERIOD, 1, 5)), [0, 100, 199, 1_000, 1_100]);
        assert_eq!(stepped_ns(1_700, PERIOD, 9, 5), 1_700, "no state is faster than full speed");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_mean_is_held_and_order_kept(load in prop::collection::vec((0..900_u64, 1..2_500_u64), 1..200)) {
            let (mut limiter, mut at_ns, mut last_ns, mut begun, mut first) = (Limiter::default(), 0, 0, 0, None);
            for (gap_ns, cost_ns) in load {
                at_ns += gap_ns;
                let begins_ns = limiter.begin_ns(at_ns, cost_ns, PERIOD);
                prop_assert!(begins_ns >= at_ns.max(last_ns));
                begun += cost_ns;
                let first_ns = *first.get_or_insert(at_ns - at_ns % PERIOD);
                let periods = begins_ns / PERIOD - first_ns / PERIOD + 1;
                prop_assert!(begun <= periods * PERIOD, "{begun} in {periods}");
                last_ns = begins_ns;
            }
        }

        /// A busy drive wastes nothing: all that comes at once begins within as many periods as it costs.
        #[test]
        fn no_budget_is_lost_while_commands_wait(load in prop::collection::vec(1..2_500_u64, 1..200)) {
            let mut limiter = Limiter::default();
            let last_ns = load.iter().map(|&cost_ns| limiter.begin_ns(0, cost_ns, PERIOD)).last().unwrap();
            prop_assert_eq!(last_ns / PERIOD, (load.iter().sum::<u64>() - 1) / PERIOD);
        }
    }
}
