//! A server of six cores under the policy, whose commands take effect at once.

use pilotlight_plant::{
    CoreSample, Cost, Depth, Kind, Knob, KnobId, Limit, Reading, SleepCost, SleepGoal, Source, ThreadSample, Tolerance,
    Values,
};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use super::*;

mod reserve;
mod waits;

const CHECK_NS: u64 = 10_000_000;
const SERVICE_NS: u64 = 9_000;
const SOURCE: Source = Source {
    scope: Scope::Server,
    quantity: Quantity::LatencyNs(Stat::P99),
    window_ns: 500_000_000,
    lag: Cost::Measured(0),
};

/// Has no readings here.
const MEAN: Source = Source { quantity: Quantity::LatencyNs(Stat::Mean), ..SOURCE };

/// Power of the server and of its package, in windows of a second without lag: 40 W and 10 W a core in use, and for the server 1.5 times that and 100 W.
const POWER: [Source; 2] = [
    Source { scope: Scope::Server, quantity: Quantity::PowerUw, window_ns: 1_000_000_000, lag: Cost::Measured(0) },
    Source { scope: Scope::Package(0), quantity: Quantity::PowerUw, window_ns: 10_000_000, lag: Cost::Measured(0) },
];

/// A server of six cores whose commands take effect at once.
struct Bench {
    policy: Adaptive,
    homes: Vec<CoreId>,
    states: Vec<CoreState>,
    next: Next,
    now_ns: u64,
    random: SplitMix64,
    modes: Vec<CompletionMode>,
    /// The measured 99th percentile, if there is one.
    p99_ns: Option<u64>,
    limit_uw: u64,
    /// The wake-up limit of its drive.
    drive_ns: u64,
    /// The commanded rate of its background work, and the bytes left.
    background_ppm: Option<u64>,
    backlog: u64,
    /// Cores can wait for a store.
    has_monitor: bool,
    /// Commands that woke a core.
    woken: usize,
    service_ns: u64,
}

/// A bound of the server's latency.
fn bound(stat: Stat, ppm: u32) -> Tolerance {
    Tolerance { scope: Scope::Server, stat, bound: Bound::LossPpm(ppm) }
}

impl Bench {
    fn new(threads: usize, tolerance_ppm: Option<u32>) -> Self {
        Self::with(threads, tolerance_ppm.map(|ppm| bound(Stat::P99, ppm)), |_| ())
    }

    /// With this tolerance, on a plant that was changed.
    fn with(threads: usize, tolerance: Option<Tolerance>, change: impl FnOnce(&mut Capabilities)) -> Self {
        let mut policy = Adaptive::new(Parameters::default());
        let sleep =
            SleepCost { depth: Depth::SoftwareWait, waker: Cost::Measured(5_000), wake: Cost::Measured(40_000) };
        let limit = Knob {
            scope: Scope::Package(0),
            kind: Kind::LimitUw,
            values: Values::Range { min: 30_000_000, max: 100_000_000, step: 1 },
            initial: 100_000_000,
            caller: Cost::Measured(0),
            effect: Cost::Measured(0),
        };
        let drive = Knob {
            scope: Scope::Device(0),
            kind: Kind::WakeLimitNs,
            values: Values::List(vec![0, 1_000, 15_000, 60_000]),
            initial: 0,
            ..limit.clone()
        };
        let mut capabilities = Capabilities {
            sleeps: vec![sleep],
            moves: Some(Cost::Measured(100)),
            interrupts: true,
            server_sleep: Some(Cost::Measured(12_000)),
            sources: vec![SOURCE, POWER[0], POWER[1], MEAN],
            knobs: vec![limit, drive],
            ..Capabilities::default()
        };
        change(&mut capabilities);
        let has_monitor = capabilities.sleeps.len() > 1;
        let goals = Goals { tolerances: tolerance.into_iter().collect(), ..Goals::default() };
        let homes: Vec<CoreId> = (0..threads).map(|thread| CoreId(thread as u16 % 6)).collect();
        let states = vec![CoreState::Awake; 6];
        let mut out = Vec::new();
        let start = Start {
            now_ns: 0,
            topology: &Topology::flat(6).unwrap(),
            capabilities: &capabilities,
            cores: &[CoreSample::new(CoreState::Awake); 6],
            homes: &homes,
            goals: &goals,
        };
        let next = policy.start(&start, &mut out).unwrap();
        let modes = vec![CompletionMode::Poll; threads];
        let random = SplitMix64::seed_from_u64(5);
        let (now_ns, p99_ns, limit_uw, drive_ns, service_ns) = (0, None, 100_000_000, 0, SERVICE_NS);
        let mut bench = Self {
            policy,
            homes,
            states,
            next,
            now_ns,
            random,
            modes,
            p99_ns,
            limit_uw,
            drive_ns,
            background_ppm: None,
            backlog: 0,
            has_monitor,
            woken: 0,
            service_ns,
        };
        bench.obey(&out);
        bench
    }

    /// Carries out commands; returns the number of moves.
    fn obey(&mut self, commands: &[Command]) -> usize {
        for command in commands {
            match *command {
                Command::Move { thread, to } => self.homes[thread.index()] = to,
                Command::Sleep { core, goal } => {
                    let is_shallow = self.has_monitor && goal != SleepGoal::DEEPEST;
                    let depth = if is_shallow { Depth::MonitorWait } else { Depth::SoftwareWait };
                    self.states[core.index()] = CoreState::Asleep(depth);
                }
                Command::Wake { core } => {
                    self.woken += 1;
                    self.states[core.index()] = CoreState::Awake;
                }
                Command::Completions { thread, mode } => self.modes[thread.index()] = mode,
                Command::Set { knob: KnobId(0), value } => self.limit_uw = value,
                Command::Set { knob: KnobId(2), value } => self.background_ppm = Some(value),
                Command::Set { value, .. } => self.drive_ns = value,
            }
        }
        for (core, state) in self.states.iter().enumerate() {
            let has_threads = self.homes.contains(&CoreId(core as u16));
            assert!(*state == CoreState::Awake || !has_threads, "core {core} sleeps with an I/O thread");
        }
        commands.iter().filter(|command| matches!(command, Command::Move { .. })).count()
    }

    /// Requests of each thread in a time, in random number around this rate a second.
    fn requests(&mut self, rate: u64, elapsed_ns: u64) -> Vec<u64> {
        let mean = rate * elapsed_ns / 1_000_000_000 / self.homes.len() as u64;
        let mut noisy = || {
            let sum: u64 = (0..12).map(|_| self.random.next_u64() >> 32).sum();
            let deviations = sum as f64 / f64::from(u32::MAX) - 6.0;
            (mean as f64 + deviations * (mean as f64).sqrt()).max(0.0) as u64
        };
        (0..self.homes.len()).map(|_| noisy()).collect()
    }

    fn sample(&mut self, rate: u64, elapsed_ns: u64, long: Option<LongRound>) -> usize {
        self.now_ns += elapsed_ns;
        let (requests, service_ns) = (self.requests(rate, elapsed_ns), self.service_ns);
        let thread = |(&home, requests): (&CoreId, u64)| {
            let busy_ns = (requests * service_ns).min(elapsed_ns);
            ThreadSample { home, requests, busy_ns, ..ThreadSample::default() }
        };
        let threads: Vec<ThreadSample> = self.homes.iter().zip(requests).map(thread).collect();
        let cores: Vec<CoreSample> = self.states.iter().map(|&state| CoreSample::new(state)).collect();
        let age_ns = self.now_ns % SOURCE.window_ns;
        let cpu_uw = (40_000_000 + 10_000_000 * self.cores() as u64).min(self.limit_uw);
        let power = |id, uw, age_ns| Reading { id: ReadingId(id), value: Some(uw), age_ns };
        let readings = [
            Reading { id: ReadingId(0), value: self.p99_ns, age_ns },
            power(1, 100_000_000 + cpu_uw * 3 / 2, self.now_ns % POWER[0].window_ns),
            power(2, cpu_uw, 0),
            power(4, self.backlog, 0),
        ];
        let sample = Sample { now_ns: self.now_ns, elapsed_ns, cores: &cores, threads: &threads, readings: &readings };
        let mut out = Vec::new();
        self.next = match long {
            Some(long) => self.policy.on_long_round(long, &sample, &mut out),
            None => self.policy.on_interval(&sample, &mut out),
        };
        self.obey(&out)
    }

    /// Checks of this time; returns the number of moves.
    fn run(&mut self, rate: u64, ms: u64) -> usize {
        (0..ms * 1_000_000 / CHECK_NS).map(|_| self.sample(rate, CHECK_NS, None)).sum()
    }

    fn budget(&mut self, budget_uw: Option<u64>) {
        let mut out = Vec::new();
        self.policy.on_goals(self.now_ns, &Goals { budget_uw, ..Goals::default() }, &mut out);
        self.obey(&out);
    }

    fn limited_by(&self) -> String {
        let view = self.policy.view();
        view.into_iter().find(|(name, _)| *name == "limited by").map(|(_, value)| value).unwrap()
    }

    /// Whether the main core has several I/O threads.
    fn main_has_several(&self) -> bool {
        self.homes.iter().filter(|home| **home == CoreId(0)).count() > 1
    }

    /// Cores that sleep in this state.
    fn asleep(&self, depth: Depth) -> usize {
        self.states.iter().filter(|&&state| state == CoreState::Asleep(depth)).count()
    }

    fn cores(&self) -> usize {
        (0..6).filter(|&core| self.homes.contains(&CoreId(core))).count()
    }
}

#[test]
fn the_number_of_cores_follows_the_load() {
    let cores = |rate| {
        let mut bench = Bench::new(6, None);
        bench.run(rate, 1_000);
        bench.cores()
    };
    assert_eq!([0, 1_000, 20_000, 600_000].map(cores), [1, 1, 1, 6]);
    let rising: Vec<usize> = (0..30).map(|step| cores(step * 20_000)).collect();
    assert!(rising.is_sorted(), "{rising:?}");
}

#[test]
fn at_tolerance_0_every_core_polls() {
    let mut bench = Bench::new(6, Some(0));
    bench.run(10_000, 1_000);
    assert_eq!((bench.cores(), bench.states.clone()), (6, vec![CoreState::Awake; 6]));
    assert!(bench.modes.iter().all(|mode| *mode == CompletionMode::Poll));
    assert_eq!((bench.next.idle_timeout_ns, bench.next.worker_idle_timeout_ns), (NEVER, NEVER));
}

#[test]
fn the_larger_the_tolerance_the_fewer_cores() {
    let cores = |ppm| {
        let mut bench = Bench::new(6, Some(ppm));
        bench.run(150_000, 1_000);
        bench.cores()
    };
    let cores = [0, 100_000, 500_000, 2_000_000, 10_000_000].map(cores);
    assert!(cores.is_sorted_by(|more, fewer| more >= fewer) && cores[0] > cores[4], "{cores:?}");
}

/// Of two cores at 50 %, a request waits for 4.5 us in the mean, and for 28 us if it is the slowest of a hundred.
#[test]
fn the_statistic_of_the_tolerance_counts() {
    let cores = |stat| {
        let mut bench = Bench::with(6, Some(bound(stat, 300_000)), |_| ());
        bench.run(150_000, 1_000);
        bench.cores()
    };
    assert!(cores(Stat::Mean) < cores(Stat::P99), "{} and {}", cores(Stat::Mean), cores(Stat::P99));
    let mut bench = Bench::new(6, None);
    assert!(bench.policy.wants().readings.contains(&ReadingId(0)));
    let goals = Goals { tolerances: vec![bound(Stat::Mean, 300_000)], ..Goals::default() };
    bench.policy.on_goals(0, &goals, &mut Vec::new());
    assert!(bench.policy.wants().readings.contains(&ReadingId(3)));
}

/// A core with two of six threads adds less to the mean than to its own requests.
#[test]
fn of_a_mean_each_core_counts_by_its_requests() {
    let mut bench = Bench::with(6, Some(bound(Stat::Mean, 10_000)), |_| ());
    bench.service_ns = 30_000;
    bench.run(76_000, 3_000);
    assert_eq!(bench.cores(), 5);
}

#[test]
fn drives_sleep_as_deep_as_the_tolerance_allows_where_power_is_measured() {
    let limits = |tolerance_ppm: Option<u32>, change: fn(&mut Capabilities)| {
        let mut bench = Bench::with(6, tolerance_ppm.map(|ppm| bound(Stat::P99, ppm)), change);
        bench.run(10_000, 1_000);
        let loaded_ns = bench.drive_ns;
        bench.run(0, 900);
        assert_eq!(bench.drive_ns, loaded_ns, "a pause is not the end of a load");
        bench.run(0, 400);
        assert_eq!(bench.next.needed_ns, NEVER, "then it is at rest");
        let idle_ns = bench.drive_ns;
        let hold_ns = bench.policy.running.as_ref().map(|running| running.hold.length_ns);
        bench.run(10_000, 100);
        let hold_after_ns = bench.policy.running.as_ref().map(|running| running.hold.length_ns);
        assert_eq!(
            (bench.drive_ns, hold_after_ns),
            (loaded_ns, hold_ns),
            "the limit is lowered before cores are counted"
        );
        assert!(bench.cores() == 1 || tolerance_ppm == Some(0), "{} cores", bench.cores());
        (loaded_ns, idle_ns)
    };
    assert_eq!(limits(None, |_| ()), (1_000, 15_000));
    assert_eq!(limits(Some(3_000_000), |_| ()), (1_000, 60_000));
    assert_eq!(limits(Some(0), |_| ()), (0, 0));
    let without_power = |plant: &mut Capabilities| plant.sources.truncate(1);
    assert_eq!(limits(None, without_power), (0, 0), "the knob has no price");
    let limit_of_operator = |plant: &mut Capabilities| plant.knobs[1].initial = 60_000;
    assert_eq!(limits(None, limit_of_operator), (0, 0), "nothing is commanded: the operator allows more");
}

/// PACER, section IV-D: at its highest rate while the server is idle, until none is left, and before drives rest.
#[test]
fn background_work_runs_without_requests_where_power_is_measured() {
    let with_work = |plant: &mut Capabilities| {
        let scope = Scope::Background(0);
        let values = Values::Range { min: 1_000, max: 1_000_000, step: 1 };
        plant.knobs.push(Knob { scope, kind: Kind::RatePpm, values, initial: 1_000_000, ..plant.knobs[1].clone() });
        plant.sources.push(Source { scope, quantity: Quantity::BacklogBytes, ..SOURCE });
    };
    let mut bench = Bench::with(6, None, with_work);
    bench.backlog = 1 << 30;
    bench.run(10_000, 1_000);
    let loaded_ns = bench.drive_ns;
    assert_eq!(bench.background_ppm, Some(1_000));
    bench.run(0, 900);
    assert_eq!(bench.background_ppm, Some(1_000), "a pause is not the end of a load");
    bench.run(0, 6_000);
    assert_eq!(bench.background_ppm, Some(1_000_000), "it may begin late");
    for _ in 0..20 {
        bench.backlog -= 1 << 20; // a reading is of a second
        bench.run(0, 1_000);
    }
    assert_eq!((bench.background_ppm, bench.drive_ns), (Some(1_000_000), loaded_ns));
    assert!(bench.next.needed_ns <= bench.now_ns + 1_000_000_000, "it looks until none is left");
    bench.backlog = 0;
    bench.run(0, 1_100);
    assert_eq!((bench.background_ppm, bench.drive_ns), (Some(1_000), 15_000), "then drives rest");
    let again_ns = bench.next.needed_ns - bench.now_ns;
    assert!((1_000_000_000..=ACCUMULATES_NS).contains(&again_ns), "{again_ns}");
    let mut bench = Bench::with(6, None, |plant| {
        with_work(plant);
        let backlog = plant.sources.pop();
        plant.sources.truncate(1);
        plant.sources.extend(backlog);
    });
    bench.run(10_000, 1_000);
    assert_eq!(bench.background_ppm, None, "the knob has no price");
}

#[test]
fn what_drives_may_take_is_not_left_for_cores() {
    let cores = |rate, change: fn(&mut Capabilities)| {
        let mut bench = Bench::with(6, Some(bound(Stat::P99, 1_000_000)), change);
        bench.run(rate, 1_000);
        bench.cores()
    };
    let slow_drive = |plant: &mut Capabilities| plant.knobs[1].values = Values::List(vec![0, 2_500]);
    let none = |plant: &mut Capabilities| plant.knobs.truncate(1);
    let both: Vec<_> = (20..120).map(|step| (cores(step * 3_000, slow_drive), cores(step * 3_000, none))).collect();
    assert!(both.iter().all(|(with, without)| with >= without), "{both:?}");
    assert!(both.iter().any(|(with, without)| with > without), "{both:?}");
}

/// A thread that has no time left says nothing about drives.
#[test]
fn a_saturated_core_lets_no_drive_sleep_deeper() {
    let mut bench = Bench::new(1, None);
    bench.run(200_000, 1_000);
    assert_eq!(bench.drive_ns, 0);
}

/// Two requests of 160 us are not a burst.
#[test]
fn long_requests_are_not_long_rounds() {
    let mut bench = Bench::new(6, None);
    bench.service_ns = 160_000;
    bench.run(6_000, 1_000);
    assert!((450_000..520_000).contains(&bench.next.round_ns), "{}", bench.next.round_ns);
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn nothing_moves_to_and_fro_at_a_constant_load() {
    for rate in (40_000..400_000).step_by(31_000) {
        let mut bench = Bench::new(6, None);
        bench.run(rate, 300_000);
        let moves = bench.run(rate, 600_000);
        assert!(moves <= 6 * 10, "{moves} moves of six threads in ten minutes at {rate}");
    }
}

#[test]
fn after_long_rounds_each_thread_has_a_core_and_gives_it_back() {
    let mut bench = Bench::new(6, None);
    bench.run(20_000, 1_000);
    let long = LongRound { core: CoreId(0), round_ns: 200_000 };
    assert_eq!(bench.sample(1_000_000, 400_000, Some(long)), 5);
    assert_eq!((bench.cores(), bench.next.round_ns), (6, NEVER), "no core is left");
    bench.run(1_000_000, 200);
    assert_eq!(bench.cores(), 6);
    bench.run(20_000, 250);
    assert_eq!(bench.cores(), 1);
    assert_eq!(bench.next.round_ns, Parameters::default().round_ns, "they were needed");
}

/// Bursts of this length, five times as far apart; moves, and cores in use before the next, in the last tenth of a minute.
fn bursts_of(ms: u64) -> (usize, usize) {
    let mut bench = Bench::new(6, None);
    bench.run(20_000, 1_000);
    let bursts = 60_000 / (6 * ms);
    let mut of_burst = || {
        let long = LongRound { core: CoreId(0), round_ns: 200_000 };
        let found = bench.next.round_ns != NEVER && bench.main_has_several();
        let at_once = if found { bench.sample(500_000, 400_000, Some(long)) } else { 0 };
        (at_once + bench.run(500_000, ms) + bench.run(20_000, 5 * ms), bench.cores())
    };
    let last = (0..bursts).map(|_| of_burst()).skip(bursts as usize * 9 / 10);
    last.fold((0, 0), |(moves, _), (more, cores)| (moves + more, cores))
}

/// Of a burst of 10 ms the requests that are late until it is found are more than one in a hundred, of one of 500 ms fewer.
#[test]
fn short_bursts_that_recur_mostly_find_their_cores_and_long_ones_do_not() {
    let (moves, _) = bursts_of(10);
    assert!(moves < 300, "{moves} moves in 100 bursts, ten each if none kept them");
    let (moves, cores) = bursts_of(500);
    assert!(moves > 0 && cores < 6, "{moves} moves, {cores} cores");
}

#[test]
fn long_rounds_at_a_load_that_stays_must_be_longer_from_then_on() {
    let mut bench = Bench::new(6, None);
    bench.run(20_000, 1_000);
    bench.sample(20_000, 5_000_000, Some(LongRound { core: CoreId(0), round_ns: 90_000 }));
    bench.run(20_000, 250);
    assert_eq!(bench.cores(), 1);
    assert!(bench.next.round_ns > 90_000, "{}", bench.next.round_ns);
}

#[test]
fn a_machine_that_takes_the_cpu_from_a_core_moves_threads_ever_less() {
    let mut bench = Bench::new(6, None);
    bench.run(20_000, 1_000);
    let moves = (0..3_000).map(|_| {
        let is_disturbed = bench.next.round_ns != NEVER && bench.main_has_several();
        let long = LongRound { core: CoreId(0), round_ns: 5_000_000 };
        let at_once = if is_disturbed { bench.sample(20_000, 5_000_000, Some(long)) } else { 0 };
        at_once + bench.run(20_000, 200)
    });
    let moves: usize = moves.sum();
    assert!(moves < 250, "{moves} moves in ten minutes with a disturbance every 0.2 s");
    assert!(bench.next.round_ns <= 4 * Parameters::default().round_ns || bench.cores() == 6);
}

#[test]
fn a_lone_thread_gains_nothing_from_more_cores_and_hides_no_other() {
    let mut bench = Bench::new(6, None);
    bench.run(20_000, 1_000);
    let core = CoreId(3);
    bench.homes[2] = core;
    bench.states[3] = CoreState::Awake;
    assert_eq!(bench.sample(20_000, 5_000_000, Some(LongRound { core, round_ns: 200_000 })), 0);
    assert_ne!(bench.next.round_ns, NEVER, "other cores may need help");
}

/// One core draws 175 W, six 250 W.
#[test]
fn a_burst_wakes_only_the_cores_that_the_budget_carries() {
    let burst = |budget_uw| {
        let mut bench = Bench::new(6, None);
        bench.budget(budget_uw);
        bench.run(20_000, 10_000);
        assert_eq!(bench.cores(), 1);
        bench.sample(1_000_000, 400_000, Some(LongRound { core: CoreId(0), round_ns: 200_000 }));
        let at_once = bench.cores();
        bench.run(1_000_000, 10_000);
        (at_once, bench.cores(), bench.limit_uw, bench.limited_by())
    };
    let none = burst(None);
    assert_eq!((none.0, none.1, none.2), (6, 6, 100_000_000));
    let tight = burst(Some(210_000_000));
    assert!(tight.0 < 4 && (2..5).contains(&tight.1), "{tight:?}");
    let mut light = Bench::new(6, None);
    light.budget(Some(210_000_000));
    light.run(20_000, 10_000);
    assert_eq!(light.limited_by(), "load: one core", "the budget is not in the way");
    assert!(tight.2 < 90_000_000 && tight.3.starts_with("budget"), "{tight:?}");
}

#[test]
fn a_budget_limits_cores_that_are_all_in_use_and_its_end_lifts_the_limit() {
    let mut bench = Bench::new(6, None);
    bench.run(600_000, 1_000);
    assert_eq!((bench.cores(), bench.limited_by().starts_with("load")), (6, true));
    bench.budget(Some(215_000_000));
    bench.run(600_000, 3_000);
    assert!((60_000_000..80_000_000).contains(&bench.limit_uw), "{}", bench.limit_uw);
    assert!(bench.limited_by().starts_with("budget"), "{}", bench.limited_by());
    bench.budget(None);
    bench.run(600_000, 1_000);
    assert_eq!((bench.cores(), bench.limit_uw), (6, 100_000_000));
}

#[test]
fn what_limits_is_named() {
    let limited = |rate, ppm| {
        let mut bench = Bench::new(6, ppm);
        bench.run(rate, 1_000);
        bench.limited_by()
    };
    assert!(limited(0, None).starts_with("floor"));
    let standing = |rate| {
        let mut bench = Bench::new(6, Some(1_000_000));
        bench.run(rate, 1_000);
        bench.policy.standing().unwrap()
    };
    let (idle, loaded) = (standing(0), standing(120_000));
    assert_eq!(
        (idle.limit, idle.rise_ns, idle.allowed_ns),
        (Limit::Floor, 15_000, 30_000),
        "drives may take 15 us to wake up"
    );
    assert!((1_000..loaded.allowed_ns).contains(&loaded.rise_ns), "{loaded:?}");
    assert_eq!(limited(20_000, None), "load: one core");
    assert!(limited(20_000, Some(0)).starts_with("tolerance: nothing"));
    assert_eq!(limited(120_000, Some(100_000)), "tolerance: fewer cores exceed it");
    assert_eq!(limited(400_000, Some(9_000_000)), "load: fewer cores cannot serve it");
}

#[test]
fn a_policy_that_gets_no_checks_keeps_cores_awake() {
    let bench = Bench::new(6, None);
    assert_eq!(bench.states, vec![CoreState::Awake; 6], "no core sleeps before the first check");
}
