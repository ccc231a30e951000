//! Giving cores back soon after a burst (not in the paper, whose cores poll on until the next consolidation, one second later).
//!
//! **Problem.** A burst gets every core within a fraction of a millisecond, and its cores poll on, with hardly any work, until the coarse
//! interval has ended: on six cores with 0.2 s of burst in 2 s more CPU time than the requests themselves.
//!
//! **Rule.** At each *check* threads without a request since the last one go to the main core. Workers that are idle by a *smoothed load* are
//! emptied and pairs of siblings filled as in [`super::consolidate`], and empty workers sleep. With `relieve`, a core whose smoothed load is above the healthy threshold gives threads away.
//! The smoothed load of a thread is a mean over about [`MEMORY`] checks. Where a worker is emptied, a thread counts with the larger of that and its load in the last check.
//!
//! **Against moving to and fro.** A core only takes threads of an emptied worker if [`MARGIN_PPM`] below the healthy threshold are left. After a
//! surge no worker is emptied for [`HOLD_CHECKS`] checks: the first check of a burst shows the load before it.
//!
//! **Properties** (tests/properties.rs). While every worker sleeps nothing is remembered, so checks without requests can be skipped then.

use pilotlight_plant::{CoreSample, Sample, ThreadSample, Topology};

use super::consolidate::{Plan, give_back};
use super::parameters::Parameters;

/// Checks in the mean.
const MEMORY: u64 = 8;
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

    /// Forgets the loads: no worker is awake.
    pub(super) fn rest(&mut self) {
        self.threads.clear();
    }

    /// The plan of a check.
    pub(super) fn check(&mut self, sample: &Sample<'_>, topology: &Topology, parameters: &Parameters) -> Plan {
        let busy_ns = |thread: &ThreadSample| thread.busy_ns;
        if self.threads.len() == sample.threads.len() {
            let smoothed = self.threads.iter_mut().zip(sample.threads);
            smoothed.for_each(|(mean_ns, thread)| *mean_ns = (*mean_ns * (MEMORY - 1) + thread.busy_ns) / MEMORY);
        } else {
            self.threads = sample.threads.iter().map(busy_ns).collect();
        }
        let is_held = self.is_held(sample.now_ns);
        let smoothed = |of: &dyn Fn(u64, u64) -> u64| -> Vec<ThreadSample> {
            let threads = sample.threads.iter().zip(&self.threads);
            threads.map(|(thread, &mean_ns)| ThreadSample { busy_ns: of(mean_ns, thread.busy_ns), ..*thread }).collect()
        };
        let (mean, most) = (smoothed(&|mean_ns, _| mean_ns), smoothed(&u64::max));
        let of = |threads: &[ThreadSample]| -> Vec<CoreSample> {
            let mut cores: Vec<CoreSample> =
                sample.cores.iter().map(|core| CoreSample { busy_ns: 0, ..*core }).collect();
            threads.iter().for_each(|thread| cores[thread.home.index()].busy_ns += thread.busy_ns);
            cores
        };
        let (mean_cores, most_cores) = (of(&mean), of(&most));
        let mean = Sample { cores: &mean_cores, threads: &mean, ..*sample };
        let most = Sample { cores: &most_cores, threads: &most, ..*sample };
        give_back((!is_held).then_some(&most), &mean, topology, parameters)
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
            self.checks += 1;
            let topology = Topology::flat(6).unwrap();
            let mut cores = [CoreSample { state: CoreState::Awake, busy_ns: 0, awake_ns: CHECK_NS }; 6];
            let mut thread = |&home: &CoreId| {
                let percent = 100 - noise_percent + self.random.next_u64() % (2 * noise_percent + 1);
                let busy_ns = CHECK_NS / 1_000 * load * percent / 100;
                cores[home.index()].busy_ns += busy_ns;
                ThreadSample { home, requests: load, busy_ns, ..ThreadSample::default() }
            };
            let threads: Vec<ThreadSample> = self.homes.iter().map(&mut thread).collect();
            for core in &mut cores {
                core.busy_ns = core.busy_ns.min(CHECK_NS);
            }
            let now_ns = self.checks * CHECK_NS;
            let sample = Sample { now_ns, elapsed_ns: CHECK_NS, cores: &cores, threads: &threads, readings: &[] };
            let Plan { homes } = self.give_back.check(&sample, &topology, &self.parameters);
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
