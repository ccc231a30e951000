//! Giving cores back soon after a burst (not in the paper, whose cores poll on until the next consolidation, one second later).
//!
//! **Problem.** A burst gets every core within a fraction of a millisecond, and its cores poll on, with hardly any work, until the coarse
//! interval has ended: on six cores with 0.2 s of burst in 2 s more CPU time than the requests themselves.
//!
//! **Rule.** At each *check* threads that are *quiet* go to the main core: those with no request since the last check and hardly any smoothed
//! load, and all if no thread had a request or hardly any load. Workers that are idle by a *smoothed load* are
//! emptied and pairs of siblings filled as in [`super::consolidate`], and empty workers sleep. With `relieve`, a core whose smoothed load is above the healthy threshold gives threads away.
//! The smoothed load of a thread is a mean over about [`MEMORY`] checks; a check shorter than half of the others is left out. Where a worker is emptied, a thread counts with the larger of that and its load in the last check.
//!
//! **Against moving to and fro.** A core only takes threads of an emptied worker if [`MARGIN_PPM`] below the healthy threshold are left. After a
//! surge no worker is emptied for [`HOLD_CHECKS`] checks: the first check of a burst shows the load before it.
//!
//! **Properties** (tests/properties.rs). Checks without requests change nothing while every worker sleeps, so they can be skipped then.

use pilotlight_plant::{CoreSample, Sample, ThreadSample, Topology};

use super::consolidate::{Plan, give_back};
use super::parameters::Parameters;

/// Checks in the mean.
const MEMORY: u64 = 8;
/// A thread without a request since the last check is quiet below this part of a core.
const QUIET: u64 = 100;
/// Checks after a surge in which no worker is emptied.
const HOLD_CHECKS: u64 = 5;
/// Part of a core that stays free below the healthy threshold when it takes threads of an emptied worker.
pub(super) const MARGIN_PPM: u64 = 100_000;

/// Loads of the last checks.
#[derive(Debug, Default)]
pub(super) struct GiveBack {
    /// Busy time of a check, smoothed: of each thread.
    threads: Vec<u64>,
    /// No worker is emptied before.
    held_until_ns: u64,
}

impl GiveBack {
    /// Whether no worker is emptied now.
    pub(super) fn is_held(&self, now_ns: u64) -> bool {
        now_ns < self.held_until_ns
    }

    /// Cores were woken for a surge.
    pub(super) fn hold(&mut self, now_ns: u64, every_ns: u64) {
        self.held_until_ns = now_ns.saturating_add(every_ns.saturating_mul(HOLD_CHECKS));
    }

    /// Forgets the loads: there is little.
    pub(super) fn rest(&mut self) {
        self.threads.clear();
    }

    /// The plan of a check; `None` if it was too short.
    pub(super) fn check(&mut self, sample: &Sample<'_>, topology: &Topology, parameters: &Parameters) -> Option<Plan> {
        let every_ns = parameters.give_back_ns;
        if sample.elapsed_ns < every_ns / 2 {
            return None;
        }
        let whole = |ns: u64| (u128::from(ns) * u128::from(every_ns) / u128::from(sample.elapsed_ns)) as u64;
        let last: Vec<u64> = sample.threads.iter().map(|thread| whole(thread.busy_ns)).collect();
        if self.threads.len() == last.len() {
            let smoothed = self.threads.iter_mut().zip(&last);
            smoothed.for_each(|(mean_ns, last_ns)| *mean_ns = (*mean_ns * (MEMORY - 1) + last_ns) / MEMORY);
        } else {
            self.threads.clone_from(&last);
        }
        let is_busy = |(thread, &last_ns): (&ThreadSample, &u64)| thread.requests > 0 || last_ns > every_ns / QUIET;
        let has_work = sample.threads.iter().zip(&last).any(is_busy);
        let threads = |of: &dyn Fn(u64, u64) -> u64| -> Vec<ThreadSample> {
            let one = |((thread, &mean_ns), &last_ns): ((&ThreadSample, &u64), &u64)| {
                let is_active = thread.requests > 0 || has_work && mean_ns > every_ns / QUIET;
                ThreadSample { requests: u64::from(is_active), busy_ns: of(mean_ns, last_ns), ..*thread }
            };
            sample.threads.iter().zip(&self.threads).zip(&last).map(one).collect()
        };
        let cores = |threads: &[ThreadSample]| -> Vec<CoreSample> {
            let core = |core: &CoreSample| CoreSample { busy_ns: 0, awake_ns: whole(core.awake_ns), ..*core };
            let mut cores: Vec<CoreSample> = sample.cores.iter().map(core).collect();
            threads.iter().for_each(|thread| cores[thread.home.index()].busy_ns += thread.busy_ns);
            cores
        };
        let (mean, most) = (threads(&|mean_ns, _| mean_ns), threads(&u64::max));
        let (mean_cores, most_cores) = (cores(&mean), cores(&most));
        let sample = Sample { elapsed_ns: every_ns, ..*sample };
        let mean = Sample { cores: &mean_cores, threads: &mean, ..sample };
        let most = Sample { cores: &most_cores, threads: &most, ..sample };
        let is_held = self.is_held(sample.now_ns);
        Some(give_back((!is_held).then_some(&most), &mean, topology, parameters))
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{CoreId, CoreState};
    use rand_xoshiro::SplitMix64;
    use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

    use super::*;

    const CHECK_NS: u64 = 2_000_000;

    /// Six cores and I/O threads, whose orders are carried out at once.
    struct Bench {
        give_back: GiveBack,
        parameters: Parameters,
        homes: Vec<CoreId>,
        checks: u64,
        random: SplitMix64,
    }

    impl Bench {
        fn new(homes: [u16; 6]) -> Self {
            let homes = homes.map(CoreId).to_vec();
            let random = SplitMix64::seed_from_u64(7);
            Self { give_back: GiveBack::default(), parameters: Parameters::default(), homes, checks: 0, random }
        }

        /// A check after which each thread had this load, in thousandths of a core, give or take a part of it; returns the moves.
        fn check(&mut self, load: u64, noise_percent: u64) -> usize {
            self.check_after(CHECK_NS, load, noise_percent, 0)
        }

        /// As [`Self::check`], after this time; of each request in `rare` checks the thread shows one only.
        fn check_after(&mut self, elapsed_ns: u64, load: u64, noise_percent: u64, rare: u64) -> usize {
            self.checks += 1;
            let topology = Topology::flat(6).unwrap();
            let mut cores = [CoreSample { state: CoreState::Awake, busy_ns: 0, awake_ns: elapsed_ns }; 6];
            let mut thread = |&home: &CoreId| {
                let percent = 100 - noise_percent + self.random.next_u64() % (2 * noise_percent + 1);
                let busy_ns = elapsed_ns / 1_000 * load * percent / 100;
                cores[home.index()].busy_ns += busy_ns;
                let has_requests = rare == 0 || self.random.next_u64().is_multiple_of(rare);
                let requests = if has_requests { load } else { 0 };
                ThreadSample { home, requests, busy_ns, ..ThreadSample::default() }
            };
            let threads: Vec<ThreadSample> = self.homes.iter().map(&mut thread).collect();
            for core in &mut cores {
                core.busy_ns = core.busy_ns.min(elapsed_ns);
            }
            let now_ns = self.checks * CHECK_NS;
            let sample = Sample { now_ns, elapsed_ns, cores: &cores, threads: &threads, readings: &[] };
            let Some(Plan { homes }) = self.give_back.check(&sample, &topology, &self.parameters) else { return 0 };
            let moves = homes.iter().zip(&self.homes).filter(|(to, from)| to != from).count();
            self.homes = homes;
            moves
        }

        fn cores(&self) -> usize {
            (0..6).filter(|&core| self.homes.contains(&CoreId(core))).count()
        }
    }

    #[test]
    fn cores_are_given_back_soon_after_a_burst() {
        let mut bench = Bench::new([0, 1, 2, 3, 4, 5]);
        (0..50).for_each(|_| assert_eq!(bench.check(600, 10), 0, "each core is needed"));
        let checks = (1..100).find(|_| {
            bench.check(30, 50);
            bench.cores() == 1
        });
        assert!(checks.is_some_and(|checks| (5..30).contains(&checks)), "{checks:?} checks of 2 ms");
    }

    #[test]
    fn threads_without_requests_leave_at_once() {
        let mut bench = Bench::new([0, 1, 2, 3, 4, 5]);
        bench.check(600, 10);
        assert_eq!((bench.check(0, 0), bench.cores()), (5, 1));
    }

    /// Loads around which a core is given back, and taken again.
    #[test]
    fn steady_load_moves_no_thread() {
        for load in (20..200).step_by(3) {
            let mut bench = Bench::new([0; 6]);
            (0..50).for_each(|_| _ = bench.check(load, 30));
            let moves: usize = (0..2_000).map(|_| bench.check(load, 30)).sum();
            assert!(moves <= 2, "{moves} moves in 4 s of 6 x {load} thousandths");
        }
    }

    /// A late check is followed by a short one, as their ends are on a grid.
    #[test]
    fn late_and_short_checks_move_no_thread() {
        let mut bench = Bench::new([0; 6]);
        (0..50).for_each(|_| _ = bench.check(128, 10));
        for late_ns in (0..CHECK_NS).step_by(100_000) {
            let moves: usize = [CHECK_NS + late_ns, CHECK_NS - late_ns, CHECK_NS, CHECK_NS]
                .map(|elapsed_ns| bench.check_after(elapsed_ns.max(1_000), 128, 10, 0))
                .iter()
                .sum();
            assert_eq!(moves, 0, "{late_ns} ns late");
        }
    }

    #[test]
    fn threads_with_few_expensive_requests_stay() {
        let mut bench = Bench::new([0, 1, 2, 3, 4, 5]);
        (0..50).for_each(|_| _ = bench.check_after(CHECK_NS, 300, 30, 3));
        let moves: usize = (0..500).map(|_| bench.check_after(CHECK_NS, 300, 30, 3)).sum();
        assert!(moves <= 2, "{moves} moves in a second");
    }

    #[test]
    fn no_worker_is_emptied_just_after_a_surge() {
        let mut bench = Bench::new([0; 6]);
        (0..20).for_each(|_| _ = bench.check(30, 10));
        bench.give_back.hold(bench.checks * CHECK_NS, CHECK_NS);
        bench.homes = (0..6).map(CoreId).collect();
        let kept = (1..20).take_while(|_| bench.check(30, 10) == 0).count();
        assert_eq!(kept as u64, HOLD_CHECKS - 1, "the load before it");
    }
}
