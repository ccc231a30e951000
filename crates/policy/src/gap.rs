//! The time between two requests that is to be expected, and what follows from it for a server that can sleep.
//!
//! **Rule.** A gap is *worthwhile* if a server that sleeps in each such gap takes half the CPU time of one that polls through. The expected
//! gap is a mean over the last requests, each gap counted up to four worthwhile ones. Where it is worthwhile the server sleeps at once; else
//! it polls through, for four expected gaps and no less than a worthwhile one.
//!
//! **The worthwhile gap.** With a mean gap `g`, CPU time `c` of a sleep and `s` of a request, a server that sleeps at once rests for `g`
//! on average, and then works for `c` and `n` requests: those that came meanwhile wait. `n = 1 + (c + s n) / g`, so that it works for
//! `(c + s) / (g + c)` of the time: for half of it at `g = c + 2 s`. That is for gaps that are independent of what was before (Poisson); of
//! these either all are worth a sleep or none is. `s` is that of the last interval with requests.
//!
//! **Why four.** A long pause counts as no more than four gaps that are worth a sleep, so that a few ticks of a burst are enough to poll; and
//! the mean of gaps that are just worthwhile comes out 2 % too low by it.
//!
//! **Properties.** Ticks without requests change nothing.

use pilotlight_plant::{Cost, Sample, Tick};

/// Requests that a mean is taken over, about.
const MEMORY: u64 = 64;
/// Worthwhile gaps that a gap counts as at most.
const MOST: u64 = 4;

/// The mean gap between requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    sleep_ns: u64,
    /// CPU time of a request.
    service_ns: u64,
    mean_ns: u64,
    /// End of the last tick with requests.
    last_ns: u64,
}

impl Gap {
    /// Nothing has come yet, so nothing is expected. `sleep` is the CPU time that a sleep costs.
    pub(crate) fn new(sleep: Cost) -> Self {
        let sleep_ns = sleep.ns();
        Self { sleep_ns, service_ns: 0, mean_ns: sleep_ns.saturating_mul(MOST), last_ns: 0 }
    }

    /// Takes in a tick.
    pub(crate) fn on_tick(&mut self, tick: &Tick<'_>) {
        let requests: u64 = tick.counts.iter().map(|count| u64::from(count.requests)).sum();
        if requests == 0 {
            return;
        }
        let since_ns = tick.now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, tick.now_ns));
        let gap_ns = since_ns.min(self.worthwhile_ns().saturating_mul(MOST)) / requests;
        let weight = requests.min(MEMORY);
        self.mean_ns = (self.mean_ns * (MEMORY - weight) + gap_ns * weight) / MEMORY;
    }

    /// Takes in an interval.
    pub(crate) fn on_interval(&mut self, sample: &Sample<'_>) {
        let (requests, busy_ns) = sample
            .threads
            .iter()
            .fold((0, 0), |(requests, busy_ns), thread| (requests + thread.requests, busy_ns + thread.busy_ns));
        if let Some(service_ns) = busy_ns.checked_div(requests) {
            self.service_ns = service_ns;
        }
    }

    fn worthwhile_ns(&self) -> u64 {
        self.sleep_ns.saturating_add(self.service_ns.saturating_mul(2))
    }

    /// How long to stay awake after a request.
    pub(crate) fn awake_ns(&self) -> u64 {
        if self.mean_ns > self.worthwhile_ns() { 0 } else { self.worthwhile_ns().max(4 * self.mean_ns) }
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
        assert!(after(&mut gap, 1_000_000_000, 30, 4) >= 14_000, "400 k requests a second, after a second of rest");
        assert_eq!(after(&mut gap, 1_000_300_000, 50, 4), 14_000);
        for nth in 1..=80 {
            tick(&mut gap, 2_000_000_000 + nth * 50_000, 1);
        }
        assert_eq!(gap.awake_ns(), 0, "20 k requests a second");
    }

    #[test]
    fn a_gap_that_is_hardly_worth_a_sleep_is_polled_through() {
        let mut gap = Gap::new(COST);
        for nth in 1..=300 {
            tick(&mut gap, nth * 12_000, 1);
        }
        assert!((47_000..=50_000).contains(&gap.awake_ns()), "{} ns", gap.awake_ns());
    }

    /// With requests that come one by one, at random: of the time, a server that sleeps in each gap works for this part.
    fn works(gap_ns: f64, sleep_ns: f64, service_ns: f64) -> f64 {
        let mut random = 1_u64;
        let mut arrival_ns = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            -gap_ns * (1.0 - (random >> 11) as f64 / (1_u64 << 53) as f64).ln()
        };
        let (mut free_ns, mut now_ns, mut worked_ns) = (0.0, 0.0, 0.0);
        for _ in 0..200_000 {
            now_ns += arrival_ns();
            let took_ns = if now_ns > free_ns { sleep_ns + service_ns } else { service_ns };
            free_ns = f64::max(free_ns, now_ns) + took_ns;
            worked_ns += took_ns;
        }
        worked_ns / now_ns
    }

    #[test]
    fn a_server_that_sleeps_in_worthwhile_gaps_works_half_of_the_time() {
        for (sleep_ns, service_ns) in [(20_000, 0), (20_000, 4_000), (3_000, 5_000)] {
            let gap = Gap { service_ns, ..Gap::new(Cost::Measured(sleep_ns)) };
            let share = works(gap.worthwhile_ns() as f64, sleep_ns as f64, service_ns as f64);
            assert!((0.49..=0.51).contains(&share), "{share} with {sleep_ns} ns a sleep and {service_ns} ns a request");
        }
    }

    #[test]
    fn requests_that_take_long_make_a_longer_gap_worthwhile() {
        use pilotlight_plant::{CoreId, ThreadSample};
        let mut gap = Gap::new(COST);
        let thread = |requests, busy_ns| ThreadSample { home: CoreId(0), requests, busy_ns, ..ThreadSample::default() };
        let mut see = |threads: &[ThreadSample]| {
            gap.on_interval(&Sample { now_ns: 0, elapsed_ns: 0, cores: &[], threads, readings: &[] });
            gap.worthwhile_ns()
        };
        assert_eq!(see(&[thread(10, 20_000), thread(10, 60_000)]), 22_000);
        assert_eq!(see(&[thread(0, 0)]), 22_000, "an interval without requests says nothing");
    }

    #[test]
    fn a_pause_in_a_busy_time_does_not_make_it_quiet() {
        let mut gap = Gap::new(COST);
        after(&mut gap, 0, 50, 8);
        assert_eq!(after(&mut gap, 10_000_000, 2, 8), 14_000);
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
