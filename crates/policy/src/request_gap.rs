//! Expected gap between requests, and the sleep decision of a server that follows from it.
//!
//! **Rule.** A gap is *worthwhile* if a server that sleeps in each such gap takes three quarters of the CPU time of one that polls. The expected gap is
//! a mean over the last requests; each gap counts up to four worthwhile ones. If it is worthwhile the server sleeps at once; otherwise it
//! polls for four expected gaps, at least for a worthwhile one.
//!
//! **The worthwhile gap.** With a mean gap `g`, CPU time `c` of a sleep and `s` of a request, a server that sleeps at once sleeps for `g` on
//! average, then works for `c` and `n` requests, which include those that arrived meanwhile: `n = 1 + (c + s n) / g`. It works for
//! `(c + s) / (g + c)` of the time: three quarters of it at `g = (c + 4 s) / 3`. At half of it, `c + 2 s`, the main core polled on
//! between bursts at 54 k requests a second: simulated 1.48 cores of `live-16cpu`, `interrupt` 1.25. This holds for independent gaps (Poisson), of which either all are worth a
//! sleep or none is. `s` is that of the last interval with requests, or a mean if there were few.
//!
//! **Why four.** A long pause counts as at most four worthwhile gaps, so that a few ticks of a burst are enough to start polling. The mean of
//! gaps that are just worthwhile is 2 % too low because of it.
//!
//! **Properties.** Ticks without requests change nothing.

use pilotlight_plant::{Cost, Sample, Tick};

/// Approximate number of requests in the mean.
const MEMORY: u64 = 64;
/// A gap counts at most as this many worthwhile gaps.
const MOST: u64 = 4;

/// The mean gap between requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestGap {
    sleep_ns: u64,
    /// CPU time of a request.
    service_ns: u64,
    mean_ns: u64,
    /// End of the last tick with requests.
    last_ns: u64,
}

impl RequestGap {
    /// Without requests so far. `sleep` is the CPU time of a sleep.
    pub(crate) fn new(sleep: Cost) -> Self {
        let sleep_ns = sleep.ns();
        let new = Self { sleep_ns, service_ns: 0, mean_ns: 0, last_ns: 0 };
        Self { mean_ns: new.worthwhile_ns().saturating_mul(MOST), ..new }
    }

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

    pub(crate) fn on_interval(&mut self, sample: &Sample<'_>) {
        let (requests, busy_ns) = sample
            .threads
            .iter()
            .fold((0, 0), |(requests, busy_ns), thread| (requests + thread.requests, busy_ns + thread.busy_ns));
        let Some(service_ns) = busy_ns.checked_div(requests) else { return };
        let weight = if self.service_ns == 0 { MEMORY } else { requests.min(MEMORY) };
        self.service_ns = (self.service_ns * (MEMORY - weight) + service_ns * weight) / MEMORY;
    }

    fn worthwhile_ns(&self) -> u64 {
        self.sleep_ns.saturating_add(self.service_ns.saturating_mul(4)) / 3
    }

    /// The idle timeout.
    pub(crate) fn idle_timeout_ns(&self) -> u64 {
        if self.mean_ns > self.worthwhile_ns() { 0 } else { self.worthwhile_ns().max(4 * self.mean_ns) }
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{ThreadCount, ThreadId};
    use rand_xoshiro::SplitMix64;
    use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

    use super::*;

    const COST: Cost = Cost::Assumed(14_000);
    /// Without a service time.
    const WORTHWHILE_NS: u64 = 14_000 / 3;

    fn tick(gap: &mut RequestGap, now_ns: u64, requests: u32) {
        let counts = [ThreadCount { thread: ThreadId(0), requests, busy_ns: 0 }];
        let counts = if requests == 0 { &[][..] } else { &counts };
        gap.on_tick(&Tick { now_ns, elapsed_ns: 10_000, counts });
    }

    /// Awake time after `ticks` ticks of 10 us with `requests` requests each.
    fn after(gap: &mut RequestGap, from_ns: u64, ticks: u64, requests: u32) -> u64 {
        (1..=ticks).for_each(|nth| tick(gap, from_ns + nth * 10_000, requests));
        gap.idle_timeout_ns()
    }

    #[test]
    fn an_idle_server_sleeps_at_once_and_a_busy_one_polls_through() {
        let mut gap = RequestGap::new(COST);
        assert_eq!(gap.idle_timeout_ns(), 0);
        assert!(
            after(&mut gap, 1_000_000_000, 40, 4) >= WORTHWHILE_NS,
            "400 k requests a second, after a second of rest"
        );
        assert!((9_000..11_000).contains(&after(&mut gap, 1_000_400_000, 50, 4)), "four gaps of 2.5 us");
        for nth in 1..=80 {
            tick(&mut gap, 2_000_000_000 + nth * 50_000, 1);
        }
        assert_eq!(gap.idle_timeout_ns(), 0, "20 k requests a second");
    }

    #[test]
    fn a_gap_just_below_the_worthwhile_one_is_polled_through() {
        let mut gap = RequestGap::new(COST);
        for nth in 1..=300 {
            tick(&mut gap, nth * 4_000, 1);
        }
        assert!((15_500..=16_500).contains(&gap.idle_timeout_ns()), "{} ns", gap.idle_timeout_ns());
    }

    /// Share of time that a server works if it sleeps in each gap; Poisson arrivals.
    fn working_share(gap_ns: f64, sleep_ns: f64, service_ns: f64) -> f64 {
        let mut random = SplitMix64::seed_from_u64(1);
        let mut arrival_ns = || -gap_ns * (1.0 - (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64).ln();
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
    fn a_server_that_sleeps_in_worthwhile_gaps_works_three_quarters_of_the_time() {
        for (sleep_ns, service_ns) in [(20_000, 0), (20_000, 4_000), (3_000, 5_000)] {
            let gap = RequestGap { service_ns, ..RequestGap::new(Cost::Measured(sleep_ns)) };
            let share = working_share(gap.worthwhile_ns() as f64, sleep_ns as f64, service_ns as f64);
            assert!((0.74..=0.76).contains(&share), "{share} with {sleep_ns} ns a sleep and {service_ns} ns a request");
        }
    }

    #[test]
    fn a_longer_service_time_makes_a_longer_gap_worthwhile() {
        use pilotlight_plant::{CoreId, ThreadSample};
        let mut gap = RequestGap::new(COST);
        let thread = |requests, busy_ns| ThreadSample { home: CoreId(0), requests, busy_ns, ..ThreadSample::default() };
        let mut update = |threads: &[ThreadSample]| {
            gap.on_interval(&Sample { now_ns: 0, elapsed_ns: 0, cores: &[], threads, readings: &[] });
            gap.worthwhile_ns()
        };
        assert_eq!(update(&[thread(10, 20_000), thread(10, 60_000)]), 10_000);
        assert_eq!(update(&[thread(0, 0)]), 10_000, "an interval without requests changes nothing");
        assert!(update(&[thread(1, 640_000)]) < 25_000, "one slow request of 640 us");
    }

    #[test]
    fn a_pause_in_a_burst_does_not_end_polling() {
        let mut gap = RequestGap::new(COST);
        after(&mut gap, 0, 50, 8);
        assert!(after(&mut gap, 10_000_000, 2, 8) >= WORTHWHILE_NS);
    }

    #[test]
    fn ticks_without_requests_change_nothing() {
        let (mut with, mut without) = (RequestGap::new(COST), RequestGap::new(COST));
        for nth in 1..=200_u64 {
            let requests = if nth % 7 == 0 { 3 } else { 0 };
            tick(&mut with, nth * 10_000, requests);
            if requests > 0 {
                tick(&mut without, nth * 10_000, requests);
            }
            assert_eq!(with.idle_timeout_ns(), without.idle_timeout_ns());
        }
    }
}
