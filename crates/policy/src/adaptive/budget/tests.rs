//! A server whose power is known, behind a sensor that is late, under the wall alone.

use pilotlight_plant::{
    CoreId, CoreSample, CoreState, Cost, Kind, Knob, Quantity, Reading, Scope, Source, ThreadSample, Topology, Values,
};

use super::*;

const S: u64 = 1_000_000_000;
const STEP_NS: u64 = 100_000_000;
const BUDGET_UW: u64 = 300_000_000;
/// The server's sensor: windows of a second, known 1.3 s later (PASS, section 5).
const LAG_STEPS: usize = 13;

/// What load would draw without limits: the CPU's watts, and bytes a second.
#[derive(Clone, Copy)]
struct Wish {
    cpu_uw: f64,
    bytes_per_s: f64,
    /// Power of something that no model has.
    more_uw: f64,
}

const VALLEY: Wish = Wish { cpu_uw: 60e6, bytes_per_s: 0.2e9, more_uw: 0.0 };
const BURST: Wish = Wish { cpu_uw: 120e6, bytes_per_s: 4e9, more_uw: 0.0 };

struct Bench {
    wall: Wall,
    now_ns: u64,
    limit_uw: f64,
    cap: f64,
    /// True power of each step: server, CPU, and bytes a second.
    steps: Vec<[f64; 3]>,
    is_blind: bool,
    /// How the plant refuses caps.
    refuses_caps: Option<Refusal>,
    /// Cores in use, of eight, and what each draws beside the wish.
    used: usize,
    core_uw: f64,
    /// CPU time of the seven workers, in cores; a core of it draws 15 W.
    quota: f64,
    commands: Vec<Command>,
}

impl Bench {
    fn new(profile: Option<&str>) -> Self {
        Self::of(profile, true, false)
    }

    /// With a reading of the CPU's power, or without; and with a CPU quota.
    fn of(profile: Option<&str>, has_packages: bool, has_quota: bool) -> Self {
        let knob = |scope, kind, (min, max)| Knob {
            scope,
            kind,
            values: Values::Range { min, max, step: 1 },
            initial: max,
            caller: Cost::Measured(0),
            effect: Cost::Measured(0),
        };
        let source =
            |scope, quantity, window_ns, lag_ns| Source { scope, quantity, window_ns, lag: Cost::Measured(lag_ns) };
        let capabilities = Capabilities {
            knobs: [
                knob(Scope::Package(0), Kind::LimitUw, (40_000_000, 200_000_000)),
                knob(Scope::Namespace(1), Kind::BytesPerS, (1_000_000, 1_000_000_000_000)),
                knob(Scope::Server, Kind::QuotaPpm, (10_000, 7_000_000)),
            ][..if has_quota { 3 } else { 2 }]
                .to_vec(),
            sources: vec![
                source(Scope::Server, Quantity::PowerUw, S, 1_300_000_000),
                source(if has_packages { Scope::Package(0) } else { Scope::Device(9) }, Quantity::PowerUw, STEP_NS, 0),
                source(Scope::Namespace(1), Quantity::ReadBytesPerS, STEP_NS, 0),
                source(Scope::Namespace(1), Quantity::WrittenBytesPerS, STEP_NS, 0),
            ],
            ..Capabilities::default()
        };
        let profile = profile.map(|name| Profile::named(name).unwrap());
        let mut wall = Wall::new(&Parameters { profile, ..Parameters::default() });
        let start = Start {
            now_ns: 0,
            topology: &Topology::flat(8).unwrap(),
            capabilities: &capabilities,
            cores: &[CoreSample::new(CoreState::Awake); 8],
            homes: &[CoreId(0); 8],
            goals: &Goals::default(),
        };
        wall.start(&start, &mut Vec::new());
        let mut bench = Self {
            wall,
            now_ns: 0,
            limit_uw: 200e6,
            cap: 1e12,
            steps: Vec::new(),
            is_blind: false,
            refuses_caps: None,
            used: 8,
            core_uw: 0.0,
            quota: f64::INFINITY,
            commands: Vec::new(),
        };
        bench.budget(Some(BUDGET_UW));
        bench
    }

    fn budget(&mut self, budget_uw: Option<u64>) {
        let mut out = Vec::new();
        self.wall.on_goals(self.now_ns, &Goals { budget_uw, ..Goals::default() }, &mut out);
        self.obey(out);
    }

    fn obey(&mut self, out: Vec<Command>) {
        for command in &out {
            match *command {
                Command::Set { knob: KnobId(0), value } => self.limit_uw = value as f64,
                Command::Set { knob: KnobId(2), value: 7_000_000 } => self.quota = f64::INFINITY,
                Command::Set { knob: KnobId(2), value } => self.quota = value as f64 / 1e6,
                Command::Set { knob: KnobId(1), value } => match self.refuses_caps {
                    Some(refusal) => assert!(self.wall.on_refused(self.now_ns, (KnobId(1), value), refusal)),
                    None => self.cap = value as f64,
                },
                ref other => panic!("{other:?}"),
            }
        }
        self.commands.extend(out);
    }

    /// A tenth of a second; the true power. What is left undone by limits is lost.
    fn step(&mut self, wish: Wish) -> f64 {
        let of_quota_uw = 60e6 + 15e6 * self.quota;
        let cpu_uw = wish.cpu_uw.min(of_quota_uw).min(self.limit_uw) + self.core_uw * self.used as f64;
        let bytes = wish.bytes_per_s.min(self.cap);
        // 90 W, 1.8 W for each of the CPU, and 2.5 W for each GB/s read, where the built-in model has 1.1 W
        let server_uw = 90e6 + 1.8 * cpu_uw + 2.5e-3 * bytes + wish.more_uw;
        self.steps.push([server_uw, cpu_uw, bytes]);
        self.now_ns += STEP_NS;
        let last = self.steps.len();
        let whole = last.saturating_sub(LAG_STEPS) / 10 * 10; // a window ends each second
        let mean = |steps: &[[f64; 3]]| steps.iter().map(|step| step[0]).sum::<f64>() / steps.len() as f64;
        let server = (whole >= 10 && !self.is_blind).then(|| mean(&self.steps[whole - 10..whole]) as u64);
        let reading = |id, value: Option<u64>, age_ns| Reading { id: ReadingId(id), value, age_ns };
        let age_ns = (last - whole) as u64 * STEP_NS;
        let readings = [
            reading(0, server, age_ns),
            reading(1, Some(cpu_uw as u64), 0),
            reading(2, Some(bytes as u64), 0),
            reading(3, Some(0), 0),
        ];
        let sample = Sample {
            now_ns: self.now_ns,
            elapsed_ns: STEP_NS,
            cores: &[CoreSample::new(CoreState::Awake); 8],
            threads: &[ThreadSample::default(); 8],
            readings: &readings,
        };
        let is_limited = self.limit_uw < wish.cpu_uw.min(of_quota_uw);
        let workers = if of_quota_uw < wish.cpu_uw { 0.95 * self.quota } else { 0.0 };
        let most = if self.used < 8 { self.wall.cores().min(8) } else { 8 };
        let load = Load { busiest: if is_limited { 1.0 } else { 0.5 }, workers, main: 1.0, used: self.used, most };
        let mut out = Vec::new();
        self.wall.on_sample(&sample, load, &mut out);
        self.obey(out);
        server_uw
    }

    /// The highest true power of these seconds.
    fn run(&mut self, seconds: u32, wish: Wish) -> f64 {
        (0..seconds * 10).map(|_| self.step(wish)).fold(0.0, f64::max)
    }
}

/// A burst without limits takes 316 W.
#[test]
fn after_the_first_bursts_a_burst_stays_within_the_budget() {
    for profile in [None, Some("pass-xeon-gold-6430")] {
        let mut bench = Bench::new(profile);
        let bursts: Vec<f64> = (0..12)
            .map(|_| {
                bench.run(10, VALLEY);
                bench.run(2, BURST)
            })
            .collect();
        let most = bursts[2..].iter().copied().fold(0.0, f64::max);
        assert!(most <= 1.01 * BUDGET_UW as f64, "{profile:?}: {bursts:?}");
        assert!(bursts[11] > 0.97 * BUDGET_UW as f64, "{profile:?}: the budget is used: {bursts:?}");
    }
}

/// Every other burst draws 20 W more, for what neither CPU nor drives explain.
#[test]
fn what_a_burst_adds_elsewhere_is_kept_for_the_next() {
    let mut bench = Bench::new(None);
    let bursts: Vec<f64> = (0..14)
        .map(|burst| {
            bench.run(10, VALLEY);
            bench.run(2, Wish { more_uw: if burst % 2 == 1 { 20e6 } else { 0.0 }, ..BURST })
        })
        .collect();
    let most = bursts[6..].iter().copied().fold(0.0, f64::max);
    assert!(most <= 1.01 * BUDGET_UW as f64, "{bursts:?}");
}

#[test]
fn a_long_valley_opens_no_limit_for_the_next_burst() {
    let mut bench = Bench::new(None);
    for _ in 0..4 {
        bench.run(10, VALLEY);
        bench.run(2, BURST);
    }
    bench.run(150, VALLEY);
    assert!(bench.limit_uw > VALLEY.cpu_uw && bench.cap > VALLEY.bytes_per_s, "what is drawn is allowed");
    let most = bench.run(10, BURST);
    assert!(most <= 1.01 * BUDGET_UW as f64, "{most}");
}

#[test]
fn a_load_within_the_budget_is_never_limited() {
    let mut bench = Bench::new(None);
    let wish = Wish { cpu_uw: 100e6, bytes_per_s: 3e9, more_uw: 0.0 };
    let uw = |step: &[f64; 3]| (step[1], step[2]);
    bench.run(60, wish);
    assert!(bench.steps.iter().all(|step| uw(step) == (wish.cpu_uw, wish.bytes_per_s)));
}

#[test]
fn a_budget_is_met_once_it_limits_what_is_drawn_and_until_it_is_another() {
    for profile in [None, Some("pass-xeon-gold-6430")] {
        let mut bench = Bench::new(profile);
        bench.run(20, VALLEY);
        // with a profile the first load meets limits that are armed at the start
        assert_eq!(bench.wall.is_met(), profile.is_some(), "{profile:?}");
        bench.run(5, BURST);
        assert!(bench.wall.is_met(), "{profile:?}");
        bench.run(20, VALLEY);
        assert!(bench.wall.is_met(), "{profile:?}: the next burst comes");
        bench.budget(Some(BUDGET_UW * 2));
        bench.run(20, BURST);
        assert!(!bench.wall.is_met(), "{profile:?}");
    }
}

#[test]
fn at_a_constant_load_commands_end() {
    for wish in [VALLEY, BURST, Wish { cpu_uw: 200e6, ..VALLEY }, Wish { bytes_per_s: 20e9, ..VALLEY }] {
        let mut bench = Bench::new(Some("pass-xeon-gold-6430"));
        let most = bench.run(240, wish);
        let late = bench.steps[100..].iter().map(|step| step[0]).fold(0.0, f64::max);
        assert!(late <= 1.02 * BUDGET_UW as f64, "{late} of {most}");
        bench.commands.clear();
        bench.run(60, wish);
        assert_eq!(bench.commands, []);
    }
}

#[test]
fn power_that_the_drives_do_not_use_is_the_cpus_and_the_reverse() {
    let mut bench = Bench::new(None);
    bench.run(120, Wish { cpu_uw: 200e6, bytes_per_s: 0.1e9, more_uw: 0.0 });
    assert!(bench.steps.last().unwrap()[0] > 0.97 * BUDGET_UW as f64, "{:?}", bench.steps.last());
    bench.run(180, Wish { cpu_uw: 60e6, bytes_per_s: 20e9, more_uw: 0.0 });
    assert!(bench.steps.last().unwrap()[2] > 6.8e9, "{:?}", bench.steps.last());
}

#[test]
fn a_sensor_that_stops_raises_nothing_and_ends_at_the_lowest_power() {
    let mut bench = Bench::new(None);
    bench.run(20, BURST);
    let limit_uw = bench.limit_uw;
    bench.is_blind = true;
    for _ in 0..300 {
        bench.step(BURST);
        assert!(bench.limit_uw <= limit_uw);
    }
    assert_eq!(bench.limit_uw, 40e6);
    bench.is_blind = false;
    bench.run(60, BURST);
    assert!(bench.limit_uw > 80e6, "and goes on when it is back");
}

#[test]
fn without_a_budget_everything_is_lifted() {
    let mut bench = Bench::new(None);
    bench.run(20, BURST);
    bench.used = 2;
    bench.run(1, BURST);
    assert!(bench.limit_uw < 200e6 && bench.cap < 1e12 && bench.wall.cores() < 8);
    bench.budget(None);
    assert_eq!((bench.limit_uw, bench.cap), (200e6, 1e12));
    assert!(bench.wall.cores() >= 8);
    assert!(bench.wall.readings().is_empty() && bench.wall.due_ns().is_none());
}

#[test]
fn a_budget_below_all_that_can_be_saved_is_named() {
    let mut bench = Bench::new(None);
    bench.budget(Some(120_000_000));
    bench.run(60, BURST);
    assert_eq!(bench.limit_uw, 40e6);
    assert!(bench.wall.unreachable().is_some_and(|floor| (160_000_000..170_000_000).contains(&floor.reached)));
}

/// Both loads would draw 316 W, of which CPU and drives take their parts.
#[test]
fn a_cap_that_is_refused_is_made_up_for_by_the_cpu() {
    for refusal in [Refusal::Unsupported, Refusal::Failed] {
        let mut bench = Bench::new(None);
        bench.refuses_caps = Some(refusal);
        bench.run(120, BURST);
        let late = bench.steps[900..].iter().map(|step| step[0]).fold(0.0, f64::max);
        assert!(late <= 1.005 * BUDGET_UW as f64 && bench.cap == 1e12, "{refusal:?}: {late}");
    }
}

#[test]
fn without_a_reading_of_the_cpus_power_the_budget_is_kept_and_used() {
    let mut bench = Bench::of(None, false, false);
    bench.run(240, BURST);
    let late = || bench.steps[1_800..].iter().map(|step| step[0]);
    let (least, most) = (late().fold(f64::MAX, f64::min), late().fold(0.0, f64::max));
    assert!(most <= 1.02 * BUDGET_UW as f64 && least > 0.8 * BUDGET_UW as f64, "{least} to {most}");
}

/// No core works much of its time, as the quota stops all workers together.
#[test]
fn a_quota_that_binds_is_raised_as_far_as_the_budget_goes() {
    let mut bench = Bench::of(Some("pass-xeon-gold-6430"), true, true);
    bench.run(120, Wish { cpu_uw: 200e6, bytes_per_s: 0.1e9, more_uw: 0.0 });
    assert!(bench.commands.iter().any(|command| matches!(command, Command::Set { knob: KnobId(2), .. })));
    assert!(bench.steps.last().unwrap()[0] > 0.97 * BUDGET_UW as f64, "{:?} {}", bench.steps.last(), bench.quota);
}

/// Two full cores at a power limit, which others share: the wall cannot know that a third adds nothing.
#[test]
fn cores_are_tried_one_by_one_where_the_power_limit_holds() {
    let wish = Wish { cpu_uw: 200e6, bytes_per_s: 0.1e9, more_uw: 0.0 };
    let mut bench = Bench::new(None);
    bench.run(30, wish);
    bench.used = 2;
    let most: Vec<usize> = (0..300)
        .map(|_| {
            bench.step(wish);
            bench.used = bench.wall.cores().min(8);
            bench.used
        })
        .collect();
    assert!(most.windows(2).all(|pair| pair[1] <= pair[0] + 1), "one at a time: {most:?}");
    assert_eq!(bench.used, 8, "{most:?}");
}

/// The limit does not hold: each core draws 6 W more.
#[test]
fn a_core_that_exceeds_the_budget_is_given_back_at_once_and_not_tried_again_for_a_minute() {
    let wish = Wish { cpu_uw: 200e6, bytes_per_s: 0.1e9, more_uw: 0.0 };
    let mut bench = Bench::new(None);
    (bench.core_uw, bench.used) = (6e6, 2);
    bench.run(60, wish);
    let mut over = 0;
    for _ in 0..1_300 {
        bench.step(wish);
        bench.used = bench.wall.cores().clamp(1, 8);
        over += usize::from(bench.steps.last().unwrap()[0] > 1.01 * BUDGET_UW as f64);
    }
    assert!((1..=2 * 3).contains(&over), "{over} steps of 1,300: two of each try");
}
