//! A simulated storage server for tests of policies with a budget: CPU and drives with caps, and other components, in steps of 100 ms.

use std::collections::VecDeque;

use pilotlight_plant::{
    Capabilities, Command, Component, CoreId, CoreSample, CoreState, Cost, Depth, Goals, Kind, Knob, Policy, Quantity,
    Reading, ReadingId, Refusal, RestCost, Sample, Scope, SleepCost, Source, Start, ThreadSample, Topology, Values,
    Window,
};
use pilotlight_policy::build;

use super::random::Random;

pub(crate) const NAMESPACES: usize = 10;
/// 10 MiB/s a drive.
pub(crate) const FLOOR: u64 = 10 << 20;
pub(crate) const STEPS_PER_S: usize = 10;
const STEP_NS: u64 = 100_000_000;
const S: u64 = 1_000_000_000;
const LAG_NS: u64 = 1_300_000_000;
const CORES: u16 = 8;
const UNCAPPED: u64 = 100 << 30;
/// The namespaces' caps among the knobs: after the power limit and the quota.
const CAPS: std::ops::Range<usize> = 2..2 + NAMESPACES;

/// The machine and its load.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// Watts of the server for each watt of the CPU.
    pub(crate) gain: f64,
    /// Real power over that of the profile, of the CPU and of drives.
    pub(crate) cpu_error: f64,
    pub(crate) ssd_error: f64,
    /// Power of other components.
    pub(crate) others_w: f64,
    /// Power of the CPU under this load without limits.
    pub(crate) cpu_w: f64,
    /// Share of the drives' bandwidth that the load demands.
    pub(crate) drives: f64,
    /// Whether bandwidth follows the CPU's power.
    pub(crate) is_cpu_bound: bool,
    /// Whether the CPU draws as much without demand.
    pub(crate) polls: bool,
    pub(crate) writes: bool,
    pub(crate) window_steps: u64,
    /// When in each second the sensor reads.
    pub(crate) phase_steps: u64,
    pub(crate) noise_w: f64,
    /// Whether the power of the package is measured.
    pub(crate) has_package: bool,
    /// Priority of each namespace.
    pub(crate) classes: Vec<u8>,
    /// Whether the server's power follows the CPU's as in the artifact's `polling-interval-rapl.csv`, not by `gain`.
    pub(crate) is_artifact: bool,
    /// Minimum of each namespace of a class, in bytes a second.
    pub(crate) minimums: Vec<(u8, u64)>,
    /// Delay of the readings of bandwidth.
    pub(crate) bytes_lag_steps: usize,
    pub(crate) seed: u64,
}

/// Watts of the CPU under a limit of 110 to 160 W, and uncapped, with those of the server.
const ARTIFACT: [(f64, f64); 7] =
    [(0.0, 245.0), (99.0, 297.0), (109.0, 314.0), (119.0, 332.0), (125.0, 336.0), (144.0, 383.0), (200.0, 464.0)];

/// Linear interpolation.
fn interpolate(points: &[(f64, f64)], at: f64) -> f64 {
    let above = points.iter().position(|(x, _)| *x > at).unwrap_or(points.len()).clamp(1, points.len() - 1);
    let ((from, low), (to, high)) = (points[above - 1], points[above]);
    low + (high - low) * (at - from) / (to - from)
}

/// A period with constant conditions.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) seconds: u64,
    pub(crate) budget_w: Option<u64>,
    /// Demand as a share of the load.
    pub(crate) demand: f64,
    /// The sensor fails.
    pub(crate) is_dead: bool,
    /// Settings are refused.
    pub(crate) refuses: bool,
}

/// Limits in effect.
struct Limits<'a> {
    limit_uw: u64,
    quota_ppm: u64,
    caps: &'a [u64],
}

impl Machine {
    /// The lowest cap of a class.
    fn floor(&self, class: u8) -> u64 {
        let minimum = self.minimums.iter().find(|(named, _)| *named == class);
        minimum.map_or(FLOOR, |&(_, bytes_per_s)| bytes_per_s.max(FLOOR))
    }

    /// Demand on a namespace, in bytes a second.
    fn wanted(&self) -> f64 {
        self.drives * if self.writes { 3_600.0 * 1_048_576.0 } else { 7_000.0 * 1_048_576.0 }
    }

    /// Power that the CPU may draw.
    fn cpu_limit_w(&self, limits: &Limits<'_>) -> f64 {
        // cpu-profile.csv: limits from 110 W on draw 11 W to 16 W less; quotas of 5 to 800 % of a core draw 45 to 99 W.
        let by_limit = limits.limit_uw as f64 / 1e6 - if limits.limit_uw < 132_000_000 { 11.0 } else { 15.0 };
        const QUOTA: [(f64, f64); 12] = [
            (0.05, 45.0),
            (0.1, 50.0),
            (0.25, 55.0),
            (0.35, 60.0),
            (0.5, 65.0),
            (1.0, 70.0),
            (2.0, 75.0),
            (3.0, 80.0),
            (4.0, 85.0),
            (5.0, 90.0),
            (6.0, 95.0),
            (8.0, 99.0),
        ];
        let quota = limits.quota_ppm as f64 / 1e6;
        let by_quota = if quota >= 8.0 { f64::INFINITY } else { interpolate(&QUOTA, quota.max(0.05)) };
        by_limit.min(by_quota) * self.cpu_error
    }

    /// Power of the CPU and of the server, and bytes a second of each namespace.
    fn draws(&self, limits: &Limits<'_>, demand: f64) -> (f64, f64, Vec<f64>) {
        let wanted_w =
            40.0 * self.cpu_error + (self.cpu_w - 40.0 * self.cpu_error) * if self.polls { 1.0 } else { demand };
        let cpu_w = wanted_w.min(self.cpu_limit_w(limits));
        let speed = if self.is_cpu_bound { cpu_w / wanted_w } else { 1.0 };
        let bytes: Vec<_> = limits.caps.iter().map(|&cap| (self.wanted() * demand * speed).min(cap as f64)).collect();
        let slope_w = if self.writes { 10.0 / (3_600.0 * 1_048_576.0) } else { 7.0 / (7_000.0 * 1_048_576.0) };
        let drives_w = bytes.iter().sum::<f64>() * slope_w * self.ssd_error;
        let server_w = if self.is_artifact {
            // The measurement was made with the drives at full speed.
            let drives_full_w = self.wanted() * bytes.len() as f64 * slope_w * self.ssd_error;
            interpolate(&ARTIFACT, cpu_w) + drives_w - drives_full_w
        } else {
            self.others_w + 50.0 + self.gain * cpu_w + drives_w
        };
        (cpu_w, server_w, bytes)
    }

    pub(crate) fn full_w(&self) -> f64 {
        let caps = [UNCAPPED; NAMESPACES];
        self.draws(&Limits { limit_uw: 270_000_000, quota_ppm: 8_000_000, caps: &caps }, 1.0).1
    }

    /// Power with everything at its lowest; a class keeps its minimum.
    pub(crate) fn floor_w(&self) -> f64 {
        let caps: Vec<_> = self.classes.iter().map(|&class| self.floor(class)).collect();
        self.draws(&Limits { limit_uw: 110_000_000, quota_ppm: 50_000, caps: &caps }, 1.0).1
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let knob = |scope, kind, (min, max, step), found, effect_ns| Knob {
            scope,
            kind,
            values: Values::Range { min, max, step },
            initial: found,
            caller: Cost::Measured(0),
            effect: Cost::Measured(effect_ns),
        };
        let limit = (50_000_000, 270_000_000, 125_000);
        let mut knobs = vec![
            knob(Scope::Package(0), Kind::LimitUw, limit, 270_000_000, 10_000_000),
            knob(Scope::Server, Kind::QuotaPpm, (16_000, 8_000_000, 1_000), 8_000_000, 50_000_000),
        ];
        let namespace = |at| knob(Scope::Namespace(at as u32), Kind::BytesPerS, (1, UNCAPPED, 1), UNCAPPED, 0);
        knobs.extend((0..NAMESPACES).map(namespace));
        // Unused by policies: its window of 10 s is too long for a loop of 1 s.
        knobs.push(knob(Scope::Device(0), Kind::PowerState, (0, 2, 1), 0, 0));
        let source =
            |scope, quantity, window_ns, lag_ns| Source { scope, quantity, window_ns, lag: Cost::Measured(lag_ns) };
        let mut sources = vec![source(Scope::Server, Quantity::PowerUw, self.window_steps * STEP_NS, LAG_NS)];
        let bytes_lag_ns = self.bytes_lag_steps as u64 * STEP_NS;
        let quantity = if self.writes { Quantity::WrittenBytesPerS } else { Quantity::ReadBytesPerS };
        sources.extend((0..NAMESPACES).map(|at| source(Scope::Namespace(at as u32), quantity, STEP_NS, bytes_lag_ns)));
        if self.has_package {
            sources.push(source(Scope::Package(0), Quantity::PowerUw, S, 0));
        }
        let sleeps =
            vec![SleepCost { depth: Depth::SoftwareWait, waker: Cost::Measured(0), wake: Cost::Measured(30_000) }];
        let moves = Some(Cost::Measured(100));
        let rests = Some(RestCost { cpu: Cost::Measured(0), late: Cost::Measured(0) });
        Capabilities { knobs, sources, sleeps, moves, rests, ..Capabilities::default() }
    }
}

/// A machine with a policy in charge.
pub(crate) struct Plant {
    pub(crate) machine: Machine,
    pub(crate) capabilities: Capabilities,
    pub(crate) values: Vec<u64>,
    /// True power of each step so far.
    pub(crate) power_w: Vec<f64>,
    /// Bytes a second of the first namespace, likewise.
    pub(crate) first_bytes: Vec<f64>,
    pub(crate) commands: Vec<(u64, Command)>,
    pub(crate) raised_without_reading: Option<(u64, Command)>,
    /// Readings in a thousand that are refused.
    pub(crate) refused_permille: u64,
    /// The last reading was refused or stale.
    is_missing: bool,
    /// A namespace throttled before one of lower priority was at its floor.
    pub(crate) priority_violation: Option<(u64, usize, usize)>,
    /// A namespace below its minimum.
    pub(crate) below_minimum: Option<(u64, usize)>,
    /// Consecutive samples with a core shared by the highest class and others, while several cores had I/O threads.
    pub(crate) shared: usize,
    pub(crate) longest_shared: usize,
    policy: Box<dyn Policy>,
    wanted: Vec<ReadingId>,
    now_ns: u64,
    package_w: Vec<f64>,
    /// Bytes a second of each namespace, the last step at the end.
    bytes: VecDeque<Vec<f64>>,
    known: Option<Window>,
    /// Time of the last sensor reading.
    read_ns: u64,
    pub(crate) homes: Vec<CoreId>,
    pub(crate) asleep: Vec<bool>,
    budget_w: Option<u64>,
    has_started: bool,
    name: &'static str,
    random: Random,
}

impl Plant {
    pub(crate) fn new(machine: &Machine, settings: &[(&str, &str)]) -> Self {
        Self::of("pass", machine, settings)
    }

    pub(crate) fn of(name: &'static str, machine: &Machine, settings: &[(&str, &str)]) -> Self {
        let capabilities = machine.capabilities();
        Self {
            policy: build(name, settings).unwrap(),
            wanted: Vec::new(),
            now_ns: 0,
            values: capabilities.knobs.iter().map(|knob| knob.initial).collect(),
            power_w: Vec::new(),
            first_bytes: Vec::new(),
            package_w: Vec::new(),
            bytes: VecDeque::new(),
            known: None,
            read_ns: 0,
            homes: (0..CORES).map(CoreId).collect(),
            asleep: vec![false; CORES.into()],
            commands: Vec::new(),
            raised_without_reading: None,
            refused_permille: 0,
            is_missing: true,
            priority_violation: None,
            below_minimum: None,
            shared: 0,
            longest_shared: 0,
            budget_w: None,
            has_started: false,
            name,
            random: Random::new(machine.seed),
            capabilities,
            machine: machine.clone(),
        }
    }

    fn goals(&self) -> Goals {
        let classes = self.machine.classes.iter().enumerate();
        let priorities = classes.map(|(at, &class)| (Scope::Namespace(at as u32), class)).collect();
        let budget_uw = self.budget_w.map(|w| w * 1_000_000);
        Goals { budget_uw, priorities, minimums: self.machine.minimums.clone(), ..Goals::default() }
    }

    /// Runs a phase; the first one starts the policy.
    pub(crate) fn run(&mut self, phase: &Phase) {
        self.budget_w = phase.budget_w;
        let (goals, mut out) = (self.goals(), Vec::new());
        if self.has_started {
            self.policy.on_goals(self.now_ns, &goals, &mut out);
            self.wanted = self.policy.wants().readings;
        } else {
            let topology = Topology::flat(CORES).unwrap();
            let cores = vec![CoreSample::new(CoreState::Awake); CORES.into()];
            let start = Start {
                now_ns: 0,
                topology: &topology,
                capabilities: &self.capabilities,
                cores: &cores,
                homes: &self.homes,
                goals: &goals,
            };
            self.policy.start(&start, &mut out).unwrap();
            self.wanted = self.policy.wants().readings;
            self.has_started = true;
        }
        self.obey(&out, phase);
        for _ in 0..phase.seconds * STEPS_PER_S as u64 {
            let limits = Limits { limit_uw: self.values[0], quota_ppm: self.values[1], caps: &self.values[CAPS] };
            let (cpu_w, server_w, bytes) = self.machine.draws(&limits, phase.demand);
            self.power_w.push(server_w);
            self.package_w.push(cpu_w);
            self.first_bytes.push(bytes[0]);
            self.bytes.push_back(bytes);
            if self.bytes.len() > self.machine.bytes_lag_steps + 1 {
                self.bytes.pop_front();
            }
            self.now_ns += STEP_NS;
            self.interval(phase);
        }
    }

    fn interval(&mut self, phase: &Phase) {
        if !phase.is_dead && (self.now_ns / STEP_NS) % STEPS_PER_S as u64 == self.machine.phase_steps {
            self.known = self.sense().or(self.known);
            self.read_ns = self.now_ns;
            if self.refused_permille > 0 && self.random.below(1_000) < self.refused_permille {
                self.known = self.known.map(|window| Window { value: None, ..window });
            }
        }
        self.is_missing = self.reading(ReadingId(0)).value.is_none();
        let readings: Vec<_> = self.wanted.iter().map(|&id| self.reading(id)).collect();
        let state = |&asleep: &bool| {
            CoreSample::new(if asleep { CoreState::Asleep(Depth::SoftwareWait) } else { CoreState::Awake })
        };
        let cores: Vec<_> = self.asleep.iter().map(state).collect();
        let class = |at: usize| self.machine.classes.get(at).copied();
        let thread = |(at, &home): (usize, &CoreId)| ThreadSample {
            home,
            requests: 1,
            class: class(at),
            ..ThreadSample::default()
        };
        let threads: Vec<_> = self.homes.iter().enumerate().map(thread).collect();
        let sample =
            Sample { now_ns: self.now_ns, elapsed_ns: STEP_NS, cores: &cores, threads: &threads, readings: &readings };
        let mut out = Vec::new();
        let next = self.policy.on_interval(&sample, &mut out);
        let interval_ns = self.policy.wants().interval_ns.unwrap_or(0).max(STEP_NS);
        assert!(phase.budget_w.is_none() || self.name != "pass" || next.needed_ns <= self.now_ns + interval_ns);
        self.obey(&out, phase);
        self.check_cores();
    }

    fn reading(&self, id: ReadingId) -> Reading {
        let source = &self.capabilities.sources[id.index()];
        let window = match source.scope {
            Scope::Server => self.known,
            Scope::Package(_) => {
                let last = self.package_w.iter().rev().take(STEPS_PER_S);
                let mean_w = last.clone().sum::<f64>() / last.count().max(1) as f64;
                Some(Window { ended_ns: self.now_ns, value: Some((mean_w * 1e6) as u64) })
            }
            Scope::Namespace(at) => {
                let late_ns = self.machine.bytes_lag_steps as u64 * STEP_NS;
                let known = self.now_ns.checked_sub(late_ns).zip(self.bytes.front());
                known.map(|(ended_ns, bytes)| Window { ended_ns, value: Some(bytes[at as usize] as u64) })
            }
            _ => None,
        };
        source.reading(id, window, self.now_ns)
    }

    /// Reads the last whole window.
    fn sense(&mut self) -> Option<Window> {
        let ended_ns = self.now_ns.checked_sub(LAG_NS)?;
        let (to, steps) = ((ended_ns / STEP_NS) as usize, self.machine.window_steps as usize);
        let mean_w = self.power_w[to.checked_sub(steps)?..to].iter().sum::<f64>() / steps as f64;
        let uniform: f64 = (0..12).map(|_| self.random.below(1 << 20) as f64 / (1 << 20) as f64).sum();
        let value = (mean_w + self.machine.noise_w * (uniform - 6.0)).round().max(0.0) as u64 * 1_000_000;
        Some(Window { ended_ns: to as u64 * STEP_NS, value: Some(value) })
    }

    fn obey(&mut self, out: &[Command], phase: &Phase) {
        for &command in out {
            match command {
                Command::Move { thread, to } => self.homes[thread.index()] = to,
                Command::Sleep { core, .. } => self.asleep[core.index()] = true,
                Command::Wake { core } => self.asleep[core.index()] = false,
                Command::Completions { .. } => {}
                Command::Set { knob, value } => {
                    assert_ne!(self.capabilities.knobs[knob.index()].kind, Kind::PowerState);
                    self.commands.push((self.now_ns, command));
                    if phase.refuses {
                        self.policy.on_refused(self.now_ns, &command, Refusal::Failed);
                        continue;
                    }
                    let is_raise = value > std::mem::replace(&mut self.values[knob.index()], value);
                    // A new budget can start a trial until the next reading is missing.
                    let is_dead = phase.is_dead && self.now_ns >= self.read_ns + 2 * S;
                    if is_raise && phase.budget_w.is_some() && (self.is_missing || is_dead) {
                        self.raised_without_reading = Some((self.now_ns, command));
                    }
                }
            }
        }
        self.check_order();
    }

    /// Checks for cores shared by the highest class and others.
    fn check_cores(&mut self) {
        let top = self.machine.classes.iter().max();
        let of = |highest: bool| {
            let classes = self.homes.iter().zip(&self.machine.classes);
            let homes = classes.filter(move |(_, class)| (Some(*class) == top) == highest);
            homes.map(|(home, _)| *home).collect::<Vec<_>>()
        };
        let (own, others) = (of(true), of(false));
        let is_one = own.iter().chain(&others).all(|core| Some(core) == own.first());
        let is_shared = !is_one && own.iter().any(|core| others.contains(core));
        self.shared = if is_shared { self.shared + 1 } else { 0 };
        self.longest_shared = self.longest_shared.max(self.shared);
    }

    fn check_order(&mut self) {
        let caps = &self.values[CAPS];
        for (at, &class) in self.machine.classes.iter().enumerate() {
            if caps[at] + 1 < self.machine.floor(class) {
                self.below_minimum = Some((self.now_ns, at));
            }
        }
        for (one, &high) in self.machine.classes.iter().enumerate() {
            for (other, &low) in self.machine.classes.iter().enumerate() {
                let floor = self.machine.floor(low);
                if high > low && caps[one] < UNCAPPED && caps[other] > floor {
                    self.priority_violation = Some((self.now_ns, one, other));
                }
            }
        }
    }

    /// Whether every knob has its initial value, and no core sleeps.
    pub(crate) fn is_lifted(&self) -> bool {
        self.has_no_caps() && self.asleep.iter().all(|asleep| !asleep)
    }

    pub(crate) fn has_no_caps(&self) -> bool {
        self.capabilities.knobs.iter().zip(&self.values).all(|(knob, &value)| value == knob.initial)
    }

    /// Power reached, if the budget is unreachable.
    pub(crate) fn unreachable_uw(&self) -> Option<u64> {
        self.policy.unreachable().map(|unreachable| unreachable.reached)
    }

    pub(crate) fn bottleneck(&self) -> Option<Component> {
        self.policy.bottleneck()
    }

    /// The `budget_state` of the view.
    pub(crate) fn state(&self) -> String {
        let view = self.policy.view();
        view.into_iter().find(|(name, _)| *name == "budget_state").map_or(String::new(), |(_, state)| state)
    }

    /// Number of times with commands.
    pub(crate) fn changes(&self) -> usize {
        let mut times: Vec<_> = self.commands.iter().map(|(now_ns, _)| now_ns).collect();
        times.dedup();
        times.len()
    }

    /// Mean true power over the last seconds.
    pub(crate) fn mean_w(&self, seconds: usize) -> f64 {
        let last = &self.power_w[self.power_w.len() - seconds * STEPS_PER_S..];
        last.iter().sum::<f64>() / last.len() as f64
    }
}
