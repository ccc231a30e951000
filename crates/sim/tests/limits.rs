//! CPU quota and power limit: both engines agree, no law is broken, and each has its documented effect.

mod support;

use pilotlight_plant::{
    Capabilities, Command, CompletionMode, CoreId, Goals, Kind, KnobId, Next, Policy, Sample, Scope, SleepGoal, Start,
    ThreadId, Unsupported, Values, Wants,
};
use pilotlight_sim::audit::TraceAuditor;
use pilotlight_sim::engine::{run_naive, run_traced};
use pilotlight_sim::machine::{Governor, Machine};
use pilotlight_sim::outcome::{Energy, Outcome};
use pilotlight_sim::run;
use pilotlight_sim::scenario::{Rate, Scenario, Sensors};
use pilotlight_sim::trace::{Record, RecordKind, State, THROTTLED};

const MS: u64 = 1_000_000;

/// A policy with a fixed list of commands per interval.
struct Setter {
    interval_ns: u64,
    commands: std::vec::IntoIter<Vec<Command>>,
}

impl Setter {
    fn boxed(interval_ns: u64, commands: Vec<Vec<Command>>) -> Box<dyn Policy> {
        Box::new(Self { interval_ns, commands: commands.into_iter() })
    }
}

impl Policy for Setter {
    fn name(&self) -> &'static str {
        "setter"
    }
    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(self.interval_ns), ..Wants::default() }
    }
    fn start(&mut self, _start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        out.extend(self.commands.next().unwrap_or_default());
        Ok(Next::at(0))
    }
    fn on_interval(&mut self, _sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        out.extend(self.commands.next().unwrap_or_default());
        Next::at(0)
    }
    fn on_goals(&mut self, _now_ns: u64, _goals: &Goals, _out: &mut Vec<Command>) {}
}

fn capabilities(scenario: &Scenario) -> Capabilities {
    pilotlight_sim::engine::capabilities(scenario)
}

/// The only knob of a kind.
fn knob(scenario: &Scenario, kind: Kind) -> KnobId {
    capabilities(scenario).knobs_of(kind).next().unwrap().0
}

/// Runs both engines: equal traces, and no law broken.
fn checked(scenario: &Scenario, interval_ns: u64, commands: &[Vec<Command>]) -> Outcome {
    println!("{commands:?}");
    checked_under(scenario, || Setter::boxed(interval_ns, commands.to_vec()))
}

fn checked_under(scenario: &Scenario, policy: impl Fn() -> Box<dyn Policy>) -> Outcome {
    let (mut fast, mut plain) = (Vec::new(), Vec::new());
    let outcome = run_traced(scenario, policy(), &mut fast).unwrap();
    let expected = run_naive(scenario, policy(), &mut plain).unwrap();
    assert!(fast == plain, "{}", first_difference(&fast, &plain));
    assert_eq!(outcome, expected);
    let mut audit = TraceAuditor::new(scenario);
    std::io::Write::write_all(&mut audit, &fast).unwrap();
    if let Err(violations) = audit.finish(&outcome) {
        panic!("{violations:?}");
    }
    outcome
}

fn first_difference(one: &[u8], other: &[u8]) -> String {
    let (one, other) = (one.as_chunks::<{ Record::BYTES }>().0, other.as_chunks::<{ Record::BYTES }>().0);
    let at = one.iter().zip(other).position(|(one, other)| one != other).unwrap_or(one.len().min(other.len()));
    let around = |all: &[[u8; Record::BYTES]]| -> Vec<_> {
        all[at.saturating_sub(3)..all.len().min(at + 2)].iter().map(Record::decode).collect()
    };
    format!("record {at}: {:#?} and {:#?}", around(one), around(other))
}

/// A period of 2 ms in slices of 0.1 ms, so that short runs have several.
fn scenario(cores: u16, rate: f64, duration_ns: u64, seed: u64) -> Scenario {
    let mut scenario = support::scenario(cores, 2, rate, duration_ns, seed);
    (scenario.machine.limits.quota_period_ns, scenario.machine.limits.quota_slice_ns) = (2 * MS, MS / 10);
    scenario.machine.limits.power_period_ns = MS / 2;
    scenario.series_ns = duration_ns / 4;
    scenario
}

/// Seeded pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn command(&mut self, scenario: &Scenario) -> Command {
        let all = capabilities(scenario);
        let cores = scenario.topology.len() as u64;
        let (thread, to) = (ThreadId(self.below(u64::from(scenario.threads)) as u16), CoreId(self.below(cores) as u16));
        match self.below(12) {
            0 => Command::Move { thread, to },
            1 => Command::Sleep { core: to, goal: SleepGoal { wake_within_ns: self.below(60_000) } },
            2 => Command::Completions { thread, mode: CompletionMode::Interrupt },
            3 => Command::Completions { thread, mode: CompletionMode::Poll },
            kind => {
                let of = if kind == 10 {
                    Scope::Namespace(self.below(2) as u32)
                } else {
                    Scope::Host(self.below(cores) as u32)
                };
                let knob = match kind {
                    4 if scenario.machine.governor == Governor::Performance => {
                        all.find_knob(Scope::Core(to), Kind::FrequencyKhz)
                    }
                    4..=6 => all.knobs_of(Kind::LimitUw).next(),
                    7 => all.knobs_of(Kind::QuotaPeriodNs).next(),
                    10 | 11 => {
                        let value = if self.below(4) == 0 { u64::MAX } else { 1_000_000 << self.below(8) };
                        return Command::Set { knob: all.find_knob(of, Kind::BytesPerS).unwrap().0, value };
                    }
                    _ => all.knobs_of(Kind::QuotaPpm).next(),
                };
                let (id, knob) = knob.unwrap();
                let (lowest, highest) = (knob.values.lowest().unwrap(), knob.values.highest().unwrap());
                let value = lowest + (highest - lowest) * self.below(11) / 10;
                Command::Set { knob: id, value }
            }
        }
    }
}

#[test]
fn both_engines_agree_whatever_is_set() {
    for seed in 0..24 {
        let mut dice = Dice(seed);
        let mut scenario = scenario(1 + dice.below(6) as u16, 3_000.0 * 10_f64.powi(seed as i32 % 3), 24 * MS, seed);
        scenario.machine.power.family.kernel_idles_deep = seed % 2 == 0;
        scenario.machine.limits.quota_slice_ns = [MS / 10, MS / 4, 5 * MS][dice.below(3) as usize];
        scenario.machine.kernel.deep_residency_ns = 300_000;
        scenario.machine.speed.step_khz = [50_000, 70_000, 300_000][seed as usize % 3];
        scenario.machine.limits.quota_of_main = seed % 4 == 3;
        scenario.machine.governor = [Governor::Performance, Governor::Schedutil][seed as usize / 3 % 2];
        scenario.machine.power.uncore_uw = [None, Some(40_000_000)][seed as usize / 2 % 2];
        if scenario.topology.len() == 1 {
            continue; // no workers, so no quota
        }
        let commands: Vec<Vec<Command>> =
            (0..40).map(|_| (0..dice.below(3)).map(|_| dice.command(&scenario)).collect()).collect();
        // The minimum quota is less than a loop in a period of 2 ms, and a main core throttled that long issues no commands.
        let least = if scenario.machine.limits.quota_of_main { 250_000 * scenario.topology.len() as u64 } else { 0 };
        let quota = knob(&scenario, Kind::QuotaPpm);
        let raised = |command: Command| match command {
            Command::Set { knob, value } if knob == quota => Command::Set { knob, value: value.max(least) },
            other => other,
        };
        let commands: Vec<Vec<Command>> =
            commands.into_iter().map(|commands| commands.into_iter().map(raised).collect()).collect();
        checked(&scenario, 350_000, &commands);
    }
}

#[test]
fn a_throttled_worker_does_not_poll_until_the_period_ends() {
    let (scenario, idle) = (scenario(4, 20_000.0, 40 * MS, 1), scenario(4, 0.0, 40 * MS, 1));
    let all = checked(&scenario, 50 * MS, &[]);
    let set = |ppm: u64| vec![vec![Command::Set { knob: knob(&scenario, Kind::QuotaPpm), value: 3 * ppm }]];
    let quarter = checked(&scenario, 50 * MS, &set(250_000));
    let awake_ns = |outcome: &Outcome| outcome.series.iter().map(|stretch| stretch.awake_ns).sum::<u64>();
    // The main core is not limited: 40 ms, and a quarter of it for each of three workers.
    let expected_ns = 40 * MS + 3 * 10 * MS;
    assert!(awake_ns(&quarter).abs_diff(expected_ns) < MS / 2, "{} ns", awake_ns(&quarter));
    assert_eq!(awake_ns(&all), 4 * 40 * MS);
    assert!(quarter.energy.cpu_uj < all.energy.cpu_uj);
    let p99_ns = |outcome: &Outcome| outcome.latency[0].1.quantile(0.99);
    assert!(p99_ns(&all) < MS && (MS..2 * MS).contains(&p99_ns(&quarter)), "{} {}", p99_ns(&all), p99_ns(&quarter));
    assert_eq!(awake_ns(&checked(&idle, 50 * MS, &set(1_000_000))), 4 * 40 * MS, "no quota");
}

/// Linux charges a task from the time at which it runs, so a quota shorter than the exit latency still serves requests.
#[test]
fn the_exit_from_an_idle_state_is_not_charged() {
    let served = |deep: bool| {
        let mut scenario = scenario(1, 20_000.0, 40 * MS, 1);
        scenario.machine.limits.quota_of_main = true;
        scenario.machine.power.family.kernel_idles_deep = deep;
        let kernel = &mut scenario.machine.kernel;
        (kernel.deep_exit_ns, kernel.deep_residency_ns) = (300_000, 600_000);
        let set = vec![vec![Command::Set { knob: knob(&scenario, Kind::QuotaPpm), value: 50_000 }]];
        checked(&scenario, 50 * MS, &set).latency[0].1.count()
    };
    let (deep, shallow) = (served(true), served(false));
    assert!(deep > 0 && deep.abs_diff(shallow) * 10 < shallow, "{deep} of {shallow} requests in 0.1 of 2 ms");
}

#[test]
fn the_main_core_is_in_the_quota_if_configured() {
    for cores in [1, 4] {
        let mut scenario = scenario(cores, 20_000.0, 40 * MS, 1);
        scenario.machine.limits.quota_of_main = true;
        let all = u64::from(cores);
        let set = vec![vec![Command::Set { knob: knob(&scenario, Kind::QuotaPpm), value: all * 250_000 }]];
        let outcome = checked(&scenario, 50 * MS, &set);
        let awake_ns: u64 = outcome.series.iter().map(|stretch| stretch.awake_ns).sum();
        assert!(awake_ns.abs_diff(all * 10 * MS) < MS / 2, "{awake_ns} ns of {cores} cores");
    }
}

/// Final frequency of each core, from the trace.
fn last_khz(scenario: &Scenario, policy: Box<dyn Policy>) -> Vec<u64> {
    let mut trace = Vec::new();
    run_traced(scenario, policy, &mut trace).unwrap();
    let mut khz = vec![u64::from(scenario.machine.speed.max_khz); scenario.topology.len()];
    for record in trace.as_chunks::<{ Record::BYTES }>().0.iter().filter_map(Record::decode) {
        if record.kind == RecordKind::Frequency {
            khz[record.a as usize] = record.b;
        }
    }
    khz
}

#[test]
fn schedutil_slows_cores_that_a_quota_throttles_and_no_others() {
    let mut scenario = scenario(4, 20_000.0, 400 * MS, 1);
    scenario.machine.governor = Governor::Schedutil;
    let speed = scenario.machine.speed;
    let (lowest, highest) = (u64::from(speed.min_khz), u64::from(speed.max_khz));
    let performance = Scenario {
        machine: Machine { governor: Governor::Performance, ..scenario.machine.clone() },
        ..scenario.clone()
    };
    let of_quota = knob(&scenario, Kind::QuotaPpm);
    // With the governor there is no frequency knob, so the quota knob has another number.
    let other = knob(&performance, Kind::QuotaPpm);
    let quota = |knob: KnobId, ppm: u64| vec![vec![Command::Set { knob, value: 3 * ppm }]];
    let ends = |ppm: u64| last_khz(&scenario, Setter::boxed(50 * MS, quota(of_quota, ppm)));
    assert_eq!(ends(1_000_000), [highest; 4]);
    assert_eq!(ends(500_000), [highest, lowest, lowest, lowest], "the main core is not limited");
    assert_eq!(ends(900_000), [highest; 4]);
    let all = checked(&scenario, 50 * MS, &[]);
    let half = checked(&scenario, 50 * MS, &quota(of_quota, 500_000));
    assert_eq!(all.energy, checked(&performance, 50 * MS, &[]).energy, "cores that poll are busy");
    assert!(half.energy.cpu_uj < checked(&performance, 50 * MS, &quota(other, 500_000)).energy.cpu_uj);
}

#[test]
fn a_policy_that_sets_frequencies_is_refused_beside_schedutil() {
    let mut scenario = scenario(2, 0.0, 4 * MS, 1);
    scenario.machine.governor = Governor::Schedutil;
    assert_eq!(capabilities(&scenario).knobs_of(Kind::FrequencyKhz).count(), 0);
    let error = run(&scenario, support::policy("governor", &[])).unwrap_err().to_string();
    assert!(error.contains("schedutil") && error.contains("governor"), "{error}");
}

/// Awake time of workers in each period, and number of throttlings, from the trace.
fn awake_by_period(scenario: &Scenario, commands: &[Vec<Command>]) -> (Vec<u64>, usize) {
    let mut trace = Vec::new();
    run_traced(scenario, Setter::boxed(MS, commands.to_vec()), &mut trace).unwrap();
    let period_ns = scenario.machine.limits.quota_period_ns;
    let mut awake_ns = vec![0; scenario.duration_ns.div_ceil(period_ns) as usize];
    let mut add = |from_ns: u64, to_ns: u64| {
        for (period, awake_ns) in (0..).zip(&mut awake_ns) {
            *awake_ns += to_ns.min((period + 1) * period_ns).saturating_sub(from_ns.max(period * period_ns));
        }
    };
    let mut since_ns = vec![Some(0); scenario.topology.len()];
    let mut throttled = 0;
    for record in trace.as_chunks().0.iter().filter_map(Record::decode).filter(|record| record.kind == RecordKind::Core)
    {
        let since = &mut since_ns[record.a as usize];
        throttled += usize::from(record.b & THROTTLED != 0);
        if record.b == State::Awake as u64 {
            *since = since.or(Some(record.at_ns));
        } else if let Some(from_ns) = since.take().filter(|_| record.a > 0) {
            add(from_ns, record.at_ns);
        }
    }
    since_ns.iter().skip(1).flatten().for_each(|&from_ns| add(from_ns, scenario.duration_ns));
    (awake_ns, throttled)
}

/// Some workers wait in the kernel and wake again, one sleeps: a worker exceeds the quota at most by its current loop.
#[test]
fn no_period_has_more_cpu_time_of_workers_than_the_quota() {
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let mut scenario = scenario(6, 30_000.0, 40 * MS, seed);
        scenario.machine.limits.quota_slice_ns = [MS / 10, MS / 2, 5 * MS][seed as usize % 3];
        let value = 50_000 + dice.below(3_000_000);
        let mut commands = vec![Command::Set { knob: knob(&scenario, Kind::QuotaPpm), value }];
        let waits = |thread| Command::Completions { thread: ThreadId(thread), mode: CompletionMode::Interrupt };
        commands.extend((0..seed as u16 % 6).map(waits));
        let (awake_ns, throttled) = awake_by_period(&scenario, &[commands]);
        let quota_ns = value * 2 * MS / 1_000_000;
        let loop_ns = 20_000;
        let most_ns = quota_ns + 5 * loop_ns;
        assert!(awake_ns.iter().all(|ns| *ns <= most_ns), "seed {seed}: {awake_ns:?} of {quota_ns}");
        if seed % 6 == 0 {
            let least_ns = quota_ns - 5 * loop_ns.min(quota_ns / 10);
            assert!(
                throttled > 0 && awake_ns.iter().all(|ns| *ns >= least_ns),
                "seed {seed}: {awake_ns:?} of {quota_ns}"
            );
        }
    }
}

#[test]
fn one_busy_worker_with_a_quota_of_one_core_is_not_throttled() {
    let scenario = scenario(4, 100_000.0, 40 * MS, 1);
    let all_on_one = |to: u16| (0..scenario.threads).map(move |thread| go(thread, to));
    let mut commands: Vec<_> = all_on_one(1).collect();
    commands.extend([2, 3].map(|core| Command::Sleep { core: CoreId(core), goal: SleepGoal::DEEPEST }));
    let quota = Command::Set { knob: knob(&scenario, Kind::QuotaPpm), value: 1_000_000 };
    let (awake_ns, throttled) = awake_by_period(&scenario, &[commands.clone(), vec![], vec![quota]]);
    assert_eq!((throttled, awake_ns[5]), (0, 2 * MS));
    let two = Command::Move { thread: ThreadId(0), to: CoreId(2) };
    let (_, throttled) = awake_by_period(&scenario, &[commands, vec![], vec![quota, two]]);
    assert!(throttled > 20, "two that run share it: {throttled}");
}

fn go(thread: u16, to: u16) -> Command {
    Command::Move { thread: ThreadId(thread), to: CoreId(to) }
}

#[test]
fn a_quota_that_is_lifted_ends_the_throttling_at_once() {
    let mut scenario = scenario(2, 20_000.0, 40 * MS, 1);
    scenario.machine.limits.quota_period_ns = 40 * MS;
    let set = |value| vec![Command::Set { knob: knob(&scenario, Kind::QuotaPpm), value }];
    let outcome = checked(&scenario, 10 * MS, &[set(100_000), set(1_000_000)]);
    let awake_ns: u64 = outcome.series.iter().map(|stretch| stretch.awake_ns).sum();
    assert!(awake_ns.abs_diff((40 + 4 + 30) * MS) < MS / 2, "{awake_ns} ns");
}

/// A tenth of a core is 0.2 ms per period of 2 ms, and 10 ms per period of 100 ms, which a run of 40 ms uses up.
#[test]
fn the_period_of_the_quota_is_a_knob() {
    let scenario = scenario(2, 20_000.0, 40 * MS, 1);
    let all = capabilities(&scenario);
    let (period, knob) = all.knobs_of(Kind::QuotaPeriodNs).next().unwrap();
    assert_eq!((knob.initial, &knob.values), (2 * MS, &Values::List([2, 100, 1_000].map(|ms| ms * MS).into())));
    let quota = Command::Set { knob: all.knobs_of(Kind::QuotaPpm).next().unwrap().0, value: 100_000 };
    let awake_ns = |period_ns: u64, first: bool| {
        let period = Command::Set { knob: period, value: period_ns };
        let commands = if first { vec![period, quota] } else { vec![quota, period] };
        awake_by_period(&scenario, &[commands]).0.into_iter().sum::<u64>()
    };
    assert!(awake_ns(2 * MS, true).abs_diff(4 * MS) < MS / 2, "{} ns", awake_ns(2 * MS, true));
    for first in [true, false] {
        assert!(awake_ns(100 * MS, first).abs_diff(10 * MS) < MS / 10, "{} ns", awake_ns(100 * MS, first));
    }
    assert_eq!(awake_ns(1_000 * MS, true), 40 * MS, "more than the run is long");
}

#[test]
fn a_power_limit_is_kept_by_lower_frequencies() {
    let scenario = scenario(48, 200_000.0, 80 * MS, 1);
    let watts = |outcome: &Outcome| {
        let last = &outcome.series[3];
        last.energy.cpu_uj as f64 / (scenario.duration_ns / 4) as f64 * 1e3
    };
    let set = |value| vec![vec![Command::Set { knob: knob(&scenario, Kind::LimitUw), value }]];
    for limit_w in [240, 200, 180, 160, 150] {
        let outcome = run(&scenario, Setter::boxed(100 * MS, set(limit_w * 1_000_000))).unwrap();
        let limit_w = limit_w as f64;
        assert!((limit_w - 0.5..=limit_w + 0.1).contains(&watts(&outcome)), "{} of {limit_w} W", watts(&outcome));
    }
    let lowest = run(&scenario, Setter::boxed(100 * MS, set(60_000_000))).unwrap();
    assert!((watts(&lowest) - 144.0).abs() < 0.1, "the lowest frequency of all cores: {} W", watts(&lowest));
    let free = run(&scenario, Setter::boxed(100 * MS, set(244_000_000))).unwrap();
    assert!((watts(&free) - 244.0).abs() < 0.1, "no limit: {} W", watts(&free));
}

/// The package draws 40 W outside its cores, less if its limit lowers their frequency; a limit therefore saves power even with mostly idle cores.
#[test]
fn a_limit_includes_the_uncore_power() {
    let mut scenario = scenario(4, 1_000.0, 40 * MS, 1);
    scenario.machine.power.family.package_ppm = 0;
    let set = |kind, value| Command::Set { knob: knob(&scenario, kind), value };
    let quota = set(Kind::QuotaPpm, 30_000);
    let limit = set(Kind::LimitUw, 60_000_000);
    let watts = |uncore_uw: Option<u64>, commands: Vec<Command>| {
        let mut scenario = scenario.clone();
        scenario.machine.power.uncore_uw = uncore_uw;
        checked(&scenario, 50 * MS, &[commands]).series[3].energy
    };
    let cpu = |energy: Energy| energy.cpu_uj as f64 / 1e4;
    let [none, all] = [None, Some(40_000_000)].map(|uncore| cpu(watts(uncore, vec![quota])));
    assert!((all - none - 40.0).abs() < 2.0, "{none} W and {all} W");
    let limited = watts(Some(40_000_000), vec![quota, limit]);
    assert!(cpu(limited) < all - 20.0, "{} W of {all} W", cpu(limited));
    let line = 126.0 + (cpu(limited) - 52.0) * (398.0 - 126.0) / (244.0 - 52.0);
    assert!((limited.others_uj as f64 / 1e4 - line).abs() < 0.1, "others follow the CPU: {limited:?}");
}

/// If drives limit a closed loop, a power limit reduces power but hardly throughput; a lower limit reduces both. PASS's machine has such a knee
/// (Figure 6: 160 W and no limit have the same throughput).
#[test]
fn throughput_over_power_has_a_knee() {
    let mut scenario = scenario(8, 0.0, 40 * MS, 3);
    for connection in &mut scenario.workload.connections {
        (connection.depth, connection.phases[0].rate) = (8, Rate::Unlimited);
    }
    let limit = knob(&scenario, Kind::LimitUw);
    let at = |w: u64| {
        let set = vec![vec![Command::Set { knob: limit, value: w * 1_000_000 }]];
        let outcome = run(&scenario, Setter::boxed(50 * MS, set)).unwrap();
        (outcome.requests.answered as f64, outcome.energy.cpu_uj as f64)
    };
    let (free, knee, below) = (at(244), at(108), at(100));
    assert!(knee.0 > 0.99 * free.0 && knee.1 < 0.93 * free.1, "{knee:?} of {free:?}");
    assert!(below.0 < 0.9 * free.0, "{below:?} of {free:?}");
}

/// Readings every 2 ms, of server and package.
fn budgeted(duration_ns: u64, seed: u64) -> Scenario {
    let mut scenario = scenario(8, 200_000.0, duration_ns, seed);
    scenario.series_ns = 2 * MS;
    scenario.sensors = Sensors { window_ns: 2 * MS, lag_ns: MS, silent: vec![(200 * MS, 212 * MS)], meter: None };
    let budget = |w: u64| Goals { budget_uw: Some(w * 1_000_000), ..Goals::default() };
    let (high, low) = (budget(355), budget(345));
    scenario.goals = vec![(20 * MS + 1, high), (150 * MS, low), (300 * MS, Goals::default())];
    scenario
}

const SETTINGS: [(&str, &str); 2] = [("interval", "2ms"), ("stale_after", "20ms")];

#[test]
fn policies_under_a_budget_are_equal_in_both_engines() {
    for (name, seed) in [("rapl-only", 1), ("cpu-bandwidth", 2)] {
        let mut scenario = budgeted(320 * MS, seed);
        let outcome = checked_under(&scenario, || support::policy(name, &SETTINGS));
        scenario.eager = true;
        let mut eager = run(&scenario, support::policy(name, &SETTINGS)).unwrap();
        assert!(outcome.decisions.policy_calls <= eager.decisions.policy_calls);
        eager.decisions = outcome.decisions;
        assert_eq!(outcome, eager, "{name}");
    }
}

#[test]
fn both_policies_keep_the_budget_and_lift_the_cap_with_it() {
    for name in ["rapl-only", "cpu-bandwidth"] {
        let scenario = budgeted(320 * MS, 3);
        let outcome = run(&scenario, support::policy(name, &SETTINGS)).unwrap();
        let watts: Vec<f64> = outcome.series.iter().map(|stretch| stretch.energy.system_uj() as f64 / 2e3).collect();
        let mean = |from_ms: usize, to_ms: usize| {
            watts[from_ms / 2..to_ms / 2].iter().sum::<f64>() / ((to_ms - from_ms) / 2) as f64
        };
        println!("{name}: {watts:?} {:?}", outcome.view);
        let (free, high, low, lifted) = (mean(0, 20), mean(120, 150), mean(270, 300), mean(310, 320));
        assert!((346.0..355.0 * 1.005).contains(&high), "{name}: {high}");
        assert!((335.0..345.0 * 1.005).contains(&low), "{name}: {low}");
        assert!((lifted - free).abs() < 2.0, "{name}: {free} and {lifted}");
    }
}
