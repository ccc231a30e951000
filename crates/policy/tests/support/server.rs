//! A simulated server whose latency depends on cores and frequency, in steps of 500 ms: each core is a queue (M/M/1) for its I/O threads, plus the
//! time of a drive.
#![allow(dead_code)] // each test uses a part

use pilotlight_plant::{
    Capabilities, Command, CoreId, CoreSample, CoreState, Cost, Depth, Goals, Kind, Knob, Policy, Quantity, Reading,
    ReadingId, Refusal, Sample, Scope, SleepCost, Source, Start, Stat, ThreadId, ThreadSample, Topology, Values,
    Window,
};
use pilotlight_policy::build;

use crate::random::Random;

pub(crate) const STEP_NS: u64 = 500_000_000;
pub(crate) const MAX_KHZ: u64 = 2_600_000;
const MIN_KHZ: u64 = 600_000;
const STEP_KHZ: u64 = 100_000;
/// Wake-up times of the drive's idle states, in nanoseconds; initially the first is allowed.
pub(crate) const WAKE_NS: [u64; 4] = [1_000, 16_000, 21_000, 200_000];
/// Latency of an overloaded core, in service times.
const FULL: f64 = 50.0;

/// The machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) cores: u16,
    /// Time of a core for each request at the highest frequency, in nanoseconds.
    pub(crate) service_ns: f64,
    /// Time of a drive, in nanoseconds.
    pub(crate) drive_ns: f64,
    /// Deviation of one latency, as a share of the mean.
    pub(crate) noise: f64,
    /// Whether the server's latency is a reading; else it follows from service times.
    pub(crate) has_latency: bool,
    /// The core group of each I/O thread.
    pub(crate) groups: Vec<u16>,
    pub(crate) offline: bool,
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) seed: u64,
}

/// A namespace, whose latency is a reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Namespace {
    /// Its share of the requests.
    pub(crate) part: f64,
    /// Time of its drive, in nanoseconds.
    pub(crate) drive_ns: f64,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            cores: 16,
            service_ns: 10_000.0,
            drive_ns: 80_000.0,
            noise: 1.0,
            has_latency: true,
            groups: Vec::new(),
            offline: false,
            namespaces: Vec::new(),
            seed: 1,
        }
    }
}

/// Load of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Requests a second.
    pub(crate) rate: f64,
    /// Bytes of each, and the share of bytes read.
    pub(crate) bytes: f64,
    pub(crate) reads: f64,
}

impl Load {
    pub(crate) fn of(rate: f64) -> Self {
        Self { rate, bytes: 8_192.0, reads: 0.7 }
    }
}

/// Result of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) latency_ns: f64,
    /// Without savings.
    pub(crate) native_ns: f64,
    pub(crate) cores: usize,
    /// The lowest of the cores awake.
    pub(crate) khz: u64,
    pub(crate) power_w: f64,
    /// Time of a request at the cores.
    pub(crate) core_ns: f64,
}

/// The server with a policy in charge.
pub(crate) struct Server {
    pub(crate) machine: Machine,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) capabilities: Capabilities,
    pub(crate) now_ns: u64,
    pub(crate) homes: Vec<CoreId>,
    pub(crate) awake: Vec<bool>,
    /// By knob.
    pub(crate) values: Vec<u64>,
    /// Backlog of background work, in bytes.
    pub(crate) backlog: u64,
    /// Duration of the last decision.
    pub(crate) decision_ns: u64,
    /// Commands at the end of the last step.
    pub(crate) commands: Vec<Command>,
    pub(crate) needed_ns: u64,
    pub(crate) awake_ns: u64,
    goals: Goals,
    power_w: f64,
    random: Random,
    /// Fraction of a request carried over.
    carry: f64,
}

fn knob(scope: Scope, kind: Kind, values: Values) -> Knob {
    let found = values.highest().unwrap();
    Knob { scope, kind, values, initial: found, caller: Cost::Measured(0), effect: Cost::Measured(1_000_000) }
}

fn capabilities(machine: &Machine) -> Capabilities {
    let frequency = |core| {
        let values = Values::Range { min: MIN_KHZ, max: MAX_KHZ, step: STEP_KHZ };
        knob(Scope::Core(CoreId(core)), Kind::FrequencyKhz, values)
    };
    let rate = Knob {
        initial: 500_000,
        ..knob(Scope::Background(0), Kind::RatePpm, Values::Range { min: 0, max: 1_000_000, step: 1 })
    };
    let mut knobs: Vec<_> = (0..machine.cores).map(frequency).chain([rate]).collect();
    let wake_limits = Values::List([0].into_iter().chain(WAKE_NS).collect());
    knobs.push(Knob { initial: WAKE_NS[0], ..knob(Scope::Device(0), Kind::WakeLimitNs, wake_limits) });
    knobs.push(Knob { initial: 0, ..knob(Scope::Device(0), Kind::PowerState, Values::List(vec![0, 1, 2])) });
    if machine.offline {
        let online = |core| knob(Scope::Core(CoreId(core)), Kind::Online, Values::List(vec![0, 1]));
        knobs.extend((1..machine.cores).map(online));
    }
    let source = |scope, quantity| Source { scope, quantity, window_ns: STEP_NS, lag: Cost::Measured(0) };
    let mut sources =
        vec![source(Scope::Background(0), Quantity::BacklogBytes), source(Scope::Server, Quantity::PowerUw)];
    for id in 0..machine.namespaces.len().max(1) as u32 {
        let of = Scope::Namespace(id);
        sources.extend([source(of, Quantity::ReadBytesPerS), source(of, Quantity::WrittenBytesPerS)]);
        if !machine.namespaces.is_empty() {
            sources.extend(Stat::ALL.map(|stat| source(of, Quantity::LatencyNs(stat))));
        }
    }
    if machine.has_latency {
        sources.push(source(Scope::Server, Quantity::LatencyNs(Stat::Mean)));
    }
    let sleep = SleepCost { depth: Depth::SoftwareWait, waker: Cost::Measured(0), wake: Cost::Measured(30_000) };
    Capabilities {
        knobs,
        sources,
        sleeps: vec![sleep],
        moves: Some(Cost::Measured(100)),
        server_sleep: Some(Cost::Measured(14_000)),
        groups: machine.groups.clone(),
        ..Capabilities::default()
    }
}

impl Server {
    /// With an I/O thread for each core.
    pub(crate) fn new(name: &str, settings: &[(&str, &str)], machine: Machine, goals: Goals) -> Self {
        let capabilities = capabilities(&machine);
        let mut server = Self {
            policy: build(name, settings).unwrap(),
            now_ns: 0,
            homes: (0..machine.cores).map(CoreId).collect(),
            awake: vec![true; machine.cores.into()],
            values: capabilities.knobs.iter().map(|knob| knob.initial).collect(),
            backlog: 0,
            decision_ns: 0,
            commands: Vec::new(),
            needed_ns: 0,
            awake_ns: 0,
            goals,
            power_w: 0.0,
            random: Random::new(machine.seed),
            carry: 0.0,
            capabilities,
            machine,
        };
        let cores: Vec<_> = server.awake.iter().map(|_| CoreSample::new(CoreState::Awake)).collect();
        let topology = Topology::flat(server.machine.cores).unwrap();
        let start = Start {
            now_ns: 0,
            topology: &topology,
            capabilities: &server.capabilities,
            cores: &cores,
            homes: &server.homes,
            goals: &server.goals,
        };
        let next = server.policy.start(&start, &mut server.commands).unwrap();
        (server.needed_ns, server.awake_ns) = (next.needed_ns, next.idle_timeout_ns);
        server.obey();
        server
    }

    pub(crate) fn set_goals(&mut self, goals: Goals) {
        self.goals = goals;
        self.commands.clear();
        self.policy.on_goals(self.now_ns, &self.goals, &mut self.commands);
        self.obey();
    }

    /// Mean latency, and the load of each core, for I/O threads at `homes` and cores at `khz`.
    fn latency(&self, rate: f64, homes: &[CoreId], khz: impl Fn(usize) -> u64) -> (f64, Vec<f64>) {
        let each = rate / homes.len() as f64;
        let mut loads = vec![0.0; self.awake.len()];
        let service = |core: usize| self.machine.service_ns * MAX_KHZ as f64 / khz(core) as f64;
        homes.iter().for_each(|home| loads[home.index()] += each * service(home.index()) / 1e9);
        let of = |home: &CoreId| {
            let load: f64 = loads[home.index()];
            service(home.index()) * if load < 1.0 { (1.0 / (1.0 - load)).min(FULL) } else { FULL }
        };
        let mean_ns = homes.iter().map(of).sum::<f64>() / homes.len() as f64;
        (self.machine.drive_ns + mean_ns, loads)
    }

    /// A random number of mean 0 and deviation 1.
    fn deviation(&mut self) -> f64 {
        (0..12).map(|_| self.random.below(1_000_000) as f64 / 1e6).sum::<f64>() - 6.0
    }

    /// Simulates a step under this load.
    pub(crate) fn step(&mut self, load: Load) -> Step {
        let seconds = STEP_NS as f64 / 1e9;
        self.now_ns += STEP_NS;
        let native: Vec<_> = (0..self.machine.cores).map(CoreId).collect();
        let deviation = self.deviation();
        let (native_ns, _) = self.latency(load.rate, &native, |_| MAX_KHZ);
        let khz = |core: usize| self.values[core];
        let (latency_ns, loads) = self.latency(load.rate, &self.homes, khz);
        self.carry += load.rate * seconds;
        let requests = self.carry as u64;
        self.carry -= requests as f64;
        let error = deviation * self.machine.noise / (requests.max(1) as f64).sqrt();
        let seen_ns = latency_ns * (1.0 + error).max(0.1);
        let in_use = self.awake.iter().filter(|awake| **awake).count();
        let lowest_khz = (0..self.awake.len()).filter(|&core| self.awake[core]).map(khz).min().unwrap();
        let awake_khz: u64 = (0..self.awake.len()).filter(|&core| self.awake[core]).map(khz).sum();
        self.power_w = 50.0 + 10.0 * awake_khz as f64 / MAX_KHZ as f64;
        self.work();
        self.report(load, (requests, seen_ns), &loads);
        let core_ns = latency_ns - self.machine.drive_ns;
        Step { latency_ns, native_ns, cores: in_use, khz: lowest_khz, power_w: self.power_w, core_ns }
    }

    /// Advances background work.
    fn work(&mut self) {
        let rate = self.capabilities.find_knob(Scope::Background(0), Kind::RatePpm).unwrap().0;
        self.backlog = self.backlog.saturating_sub(self.values[rate.index()] * 1_000);
    }

    fn report(&mut self, load: Load, (requests, seen_ns): (u64, f64), loads: &[f64]) {
        let core = |(awake, load): (&bool, &f64)| {
            let awake_ns = if *awake { STEP_NS } else { 0 };
            let state = if *awake { CoreState::Awake } else { CoreState::Asleep(Depth::SoftwareWait) };
            CoreSample { state, busy_ns: (load.min(1.0) * awake_ns as f64) as u64, awake_ns }
        };
        let cores: Vec<_> = self.awake.iter().zip(loads).map(core).collect();
        let threads = self.homes.len() as u64;
        let thread = |(at, &home): (usize, &CoreId)| {
            let requests = requests / threads + u64::from((at as u64) < requests % threads);
            let slower = MAX_KHZ as f64 / self.values[home.index()] as f64;
            let busy_ns = (requests as f64 * self.machine.service_ns * slower) as u64;
            let in_progress_ns = (requests as f64 * seen_ns) as u64;
            ThreadSample { home, requests, busy_ns, answered: requests, in_progress_ns, class: None }
        };
        let samples: Vec<_> = self.homes.iter().enumerate().map(thread).collect();
        let bytes_per_s = requests as f64 * load.bytes * 1e9 / STEP_NS as f64;
        let namespace = |of| match of {
            Scope::Namespace(id) => self.machine.namespaces.get(id as usize),
            _ => None,
        };
        let value = |of, quantity| match (namespace(of), quantity) {
            (_, Quantity::BacklogBytes) => Some(self.backlog),
            (one, Quantity::ReadBytesPerS) => Some((bytes_per_s * load.reads * one.map_or(1.0, |one| one.part)) as u64),
            (one, Quantity::WrittenBytesPerS) => {
                Some((bytes_per_s * (1.0 - load.reads) * one.map_or(1.0, |one| one.part)) as u64)
            }
            (_, Quantity::PowerUw) => Some((self.power_w * 1e6) as u64),
            (Some(one), Quantity::LatencyNs(stat)) => {
                let core_ns = (seen_ns - self.machine.drive_ns).max(0.0);
                let times = if stat == Stat::P99 { 5.0 } else { 1.0 };
                let ns = one.drive_ns + times * core_ns;
                (requests as f64 * one.part >= 1.0).then_some(ns as u64)
            }
            _ => (requests > 0).then_some(seen_ns as u64),
        };
        let reading = |id: &ReadingId| -> Reading {
            let source = &self.capabilities.sources[id.index()];
            source.reading(
                *id,
                Some(Window { ended_ns: self.now_ns, value: value(source.scope, source.quantity) }),
                self.now_ns,
            )
        };
        let readings: Vec<_> = self.policy.wants().readings.iter().map(reading).collect();
        let (now_ns, elapsed_ns) = (self.now_ns, STEP_NS);
        let sample = Sample { now_ns, elapsed_ns, cores: &cores, threads: &samples, readings: &readings };
        self.commands.clear();
        let began = std::time::Instant::now();
        let next = self.policy.on_interval(&sample, &mut self.commands);
        self.decision_ns = began.elapsed().as_nanos() as u64;
        (self.needed_ns, self.awake_ns) = (next.needed_ns, next.idle_timeout_ns);
        self.obey();
    }

    fn obey(&mut self) {
        for command in self.commands.clone() {
            match command {
                Command::Wake { core } => self.awake[core.index()] = true,
                Command::Move { thread: ThreadId(thread), to } => {
                    assert!(self.awake[to.index()], "{to:?} sleeps");
                    self.homes[usize::from(thread)] = to;
                }
                Command::Sleep { core, .. } if core == CoreId(0) || self.homes.contains(&core) => {
                    self.policy.on_refused(self.now_ns, &command, Refusal::NotEmpty);
                    panic!("{core:?} must not sleep");
                }
                Command::Sleep { core, .. } => self.awake[core.index()] = false,
                Command::Set { knob, value } => {
                    assert_eq!(self.capabilities.knobs[knob.index()].values.nearest(value), Some(value));
                    self.values[knob.index()] = value;
                }
                Command::Completions { .. } => {}
            }
        }
    }

    /// Simulates `seconds` under one load.
    pub(crate) fn run(&mut self, seconds: u64, load: Load) -> Vec<Step> {
        (0..seconds * 1_000_000_000 / STEP_NS).map(|_| self.step(load)).collect()
    }

    /// A value of the view.
    pub(crate) fn view(&self, name: &str) -> String {
        let view = self.policy.view();
        view.into_iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no {name:?}")).1
    }

    /// The value of the background knob.
    pub(crate) fn rate(&self) -> u64 {
        self.values[self.capabilities.find_knob(Scope::Background(0), Kind::RatePpm).unwrap().0.index()]
    }

    /// The wake-up limit of the drive, in nanoseconds.
    pub(crate) fn wake_limit_ns(&self) -> u64 {
        assert_eq!(self.value(Kind::PowerState), 0, "operational power states are not used");
        self.value(Kind::WakeLimitNs)
    }

    fn value(&self, kind: Kind) -> u64 {
        self.values[self.capabilities.find_knob(Scope::Device(0), kind).unwrap().0.index()]
    }

    /// Cores that are online.
    pub(crate) fn online(&self) -> usize {
        let off = self.capabilities.knobs_of(Kind::Online).filter(|(id, _)| self.values[id.index()] == 0).count();
        self.awake.len() - off
    }
}
