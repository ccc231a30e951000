//! The time between two requests that is to be expected, and what follows from it for a server that can sleep.
//!
//! **Rule.** The expected gap is a mean over the last requests of a plant, each gap counted up to twice the *worthwhile* gap: one of twice
//! the CPU time that a sleep costs, in which sleeping halves the CPU time. Where the expected gap is longer the server sleeps at once; else
//! it polls through, for four expected gaps and no less than a worthwhile one.
//!
//! **Why so.** Of gaps that are independent of what was before (Poisson) either all are worth a sleep or none is. Where they are not, polling
//! for as long as a sleep has to last to be worthwhile costs at most twice what the best choice would. A long pause counts as no more
//! than two gaps that are worth a sleep, so that a few ticks of a burst are enough to poll.
//!
//! **Properties.** Ticks without requests change nothing.

use pilotlight_plant::{Cost, Tick};

/// Requests that a mean is taken over, about.
const MEMORY: u64 = 16;

/// The mean gap between requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    worthwhile_ns: u64,
    mean_ns: u64,
    /// End of the last tick with requests.
    last_ns: u64,
}

impl Gap {
    /// Nothing has come yet, so nothing is expected. `sleep` is the CPU time that a sleep costs.
    pub(crate) fn new(sleep: Cost) -> Self {
        let worthwhile_ns = sleep.ns().saturating_mul(2);
        Self { worthwhile_ns, mean_ns: worthwhile_ns.saturating_mul(2), last_ns: 0 }
    }

    /// Takes in a tick.
    pub(crate) fn on_tick(&mut self, tick: &Tick<'_>) {
        let requests: u64 = tick.counts.iter().map(|count| u64::from(count.requests)).sum();
        if requests == 0 {
            return;
        }
        let since_ns = tick.now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, tick.now_ns));
        let gap_ns = since_ns.min(self.worthwhile_ns.saturating_mul(2)) / requests;
        let weight = requests.min(MEMORY);
        self.mean_ns = (self.mean_ns * (MEMORY - weight) + gap_ns * weight) / MEMORY;
    }

    /// How long to stay awake after a request.
    pub(crate) fn awake_ns(&self) -> u64 {
        if self.mean_ns > self.worthwhile_ns { 0 } else { self.worthwhile_ns.max(4 * self.mean_ns) }
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{ThreadCount, ThreadId};

    use super::*;

    const COST: Cost = Cost::Assumed(14_000);

    fn tick(gap: &mut Gap, now_ns: u64, requests: u32) {
        let counts = [ThreadCount { thread: ThreadId(0), requests, busy_ns: 0 }];
        let counts = if requests == 0 { &[][..] } else { &counts };
        gap.on_tick(&Tick { now_ns, elapsed_ns: 10_000, counts });
    }

    /// Awake time after so many ticks of 10 us with so many requests each.
    fn after(gap: &mut Gap, from_ns: u64, ticks: u64, requests: u32) -> u64 {
        (1..=ticks).for_each(|nth| tick(gap, from_ns + nth * 10_000, requests));
        gap.awake_ns()
    }

    #[test]
    fn an_idle_server_sleeps_at_once_and_a_busy_one_polls_through() {
        let mut gap = Gap::new(COST);
        assert_eq!(gap.awake_ns(), 0);
        assert!(after(&mut gap, 1_000_000_000, 4, 4) >= 28_000, "400 k requests a second, after a second of rest");
        assert_eq!(after(&mut gap, 1_000_040_000, 20, 4), 28_000);
        for nth in 1..=40 {
            tick(&mut gap, 2_000_000_000 + nth * 50_000, 1);
        }
        assert_eq!(gap.awake_ns(), 0, "20 k requests a second");
    }

    #[test]
    fn a_gap_that_is_hardly_worth_a_sleep_is_polled_through() {
        let mut gap = Gap::new(COST);
        for nth in 1..=60 {
            tick(&mut gap, nth * 25_000, 1);
        }
        assert!((90_000..=110_000).contains(&gap.awake_ns()), "{} ns", gap.awake_ns());
    }

    #[test]
    fn a_pause_in_a_busy_time_does_not_make_it_quiet() {
        let mut gap = Gap::new(COST);
        after(&mut gap, 0, 50, 8);
        assert_eq!(after(&mut gap, 10_000_000, 1, 8), 28_000);
    }

    #[test]
    fn quiet_ticks_change_nothing() {
        let (mut with, mut without) = (Gap::new(COST), Gap::new(COST));
        for nth in 1..=200_u64 {
            let requests = if nth % 7 == 0 { 3 } else { 0 };
            tick(&mut with, nth * 10_000, requests);
            if requests > 0 {
                tick(&mut without, nth * 10_000, requests);
            }
            assert_eq!(with.awake_ns(), without.awake_ns());
        }
    }
}
