//! A simulated server of one core, and a polling reference with the same requests.

use pilotlight_plant::{
    Capabilities, Command, CompletionMode, CoreId, CoreSample, CoreState, Cost, Depth, Goals, NEVER, Policy, Quantity,
    Reading, Refusal, RestCost, Sample, Scope, SleepCost, Source, Start, Stat, ThreadId, ThreadSample, Tolerance,
    Topology, Window,
};
use pilotlight_policy::build;

use crate::random::Random;

const STEP_NS: u64 = 500_000_000;
/// CPU time of an empty poll.
const ROUND_NS: f64 = 1_000.0;

/// Costs of waits, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub(crate) wake: f64,
    pub(crate) sleep_cpu: f64,
    pub(crate) late: f64,
    pub(crate) rest_cpu: f64,
}

/// The machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// CPU time of a request.
    pub(crate) service_ns: f64,
    /// Time of a request outside the core: network and drive.
    pub(crate) elsewhere_ns: f64,
    pub(crate) costs: Costs,
    /// Costs reported by the plant.
    pub(crate) reported: Costs,
    /// Whether the whole server can sleep, so that the core can sleep after an idle timeout.
    pub(crate) sleeps: bool,
    /// Whether arrivals are Poisson or equidistant.
    pub(crate) is_random: bool,
    pub(crate) seed: u64,
}

/// Sums over a period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) requests: f64,
    pub(crate) latency_ns: f64,
    /// Latency of the polling reference.
    pub(crate) polled_ns: f64,
    pub(crate) cpu_ns: f64,
    pub(crate) time_ns: f64,
}

impl Sums {
    pub(crate) fn loss(&self) -> f64 {
        self.latency_ns / self.polled_ns - 1.0
    }

    pub(crate) fn cpu(&self) -> f64 {
        self.cpu_ns / self.time_ns
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.requests += more.requests;
        self.latency_ns += more.latency_ns;
        self.polled_ns += more.polled_ns;
        self.cpu_ns += more.cpu_ns;
        self.time_ns += more.time_ns;
    }
}

/// The server with a policy in charge.
pub(crate) struct OneCore {
    machine: Machine,
    policy: Box<dyn Policy>,
    capabilities: Capabilities,
    how: CompletionMode,
    awake_ns: u64,
    /// All commands.
    pub(crate) commanded: Vec<CompletionMode>,
    now_ns: u64,
    arrival_ns: f64,
    /// When the server and the polling reference are free.
    free_ns: (f64, f64),
    random: Random,
}

fn capabilities(machine: &Machine) -> Capabilities {
    let cost = |ns: f64| Cost::Measured(ns as u64);
    let said = &machine.reported;
    let sleep = SleepCost { depth: Depth::SoftwareWait, waker: cost(said.sleep_cpu), wake: cost(said.wake) };
    let quantity = Quantity::LatencyNs(Stat::Mean);
    Capabilities {
        sleeps: vec![sleep],
        moves: Some(cost(100.0)),
        interrupts: true,
        rests: Some(RestCost { cpu: cost(said.rest_cpu), late: cost(said.late) }),
        server_sleep: machine.sleeps.then(|| cost(said.sleep_cpu)),
        sources: vec![Source { scope: Scope::Server, quantity, window_ns: STEP_NS, lag: Cost::Measured(0) }],
        ..Capabilities::default()
    }
}

impl OneCore {
    pub(crate) fn new(machine: Machine, tolerance_ppm: u32) -> Self {
        let goals = Goals { tolerances: vec![Tolerance::mean_loss(tolerance_ppm)], ..Goals::default() };
        let mut server = Self {
            policy: build("pacer", &[]).unwrap(),
            capabilities: capabilities(&machine),
            how: CompletionMode::Poll,
            awake_ns: NEVER,
            commanded: Vec::new(),
            now_ns: 0,
            arrival_ns: 0.0,
            free_ns: (0.0, 0.0),
            random: Random::new(machine.seed),
            machine,
        };
        let cores = [CoreSample::new(CoreState::Awake)];
        let topology = Topology::flat(1).unwrap();
        let mut out = Vec::new();
        let start = Start {
            now_ns: 0,
            topology: &topology,
            capabilities: &server.capabilities,
            cores: &cores,
            homes: &[CoreId(0)],
            goals: &goals,
        };
        server.awake_ns = server.policy.start(&start, &mut out).unwrap().idle_timeout_ns;
        server.obey(&out);
        server
    }

    /// Sets the tolerance.
    pub(crate) fn set_tolerance(&mut self, ppm: u32) {
        let goals = Goals { tolerances: vec![Tolerance::mean_loss(ppm)], ..Goals::default() };
        let mut out = Vec::new();
        self.policy.on_goals(self.now_ns, &goals, &mut out);
        self.obey(&out);
    }

    /// Refuses a wait.
    pub(crate) fn refuse(&mut self, how: CompletionMode) {
        self.how = CompletionMode::Poll;
        let command = Command::Completions { thread: ThreadId(0), mode: how };
        self.policy.on_refused(self.now_ns, &command, Refusal::Failed);
    }

    fn obey(&mut self, commands: &[Command]) {
        for command in commands {
            let Command::Completions { mode: how, .. } = *command else { panic!("{command:?}") };
            self.how = how;
            self.commanded.push(how);
        }
    }

    fn gap_ns(&mut self, rate: f64) -> f64 {
        let uniform = (self.random.below(1 << 40) + 1) as f64 / (1_u64 << 40) as f64;
        if self.machine.is_random { -uniform.ln() * 1e9 / rate } else { 1e9 / rate }
    }

    /// When the core starts a request that arrives at `at_ns`, idle since `free_ns`, and CPU time until then.
    fn begin_ns(&self, at_ns: f64, free_ns: f64) -> (f64, f64) {
        let (idle_ns, costs) = (at_ns - free_ns, &self.machine.costs);
        match self.how {
            CompletionMode::Poll if self.awake_ns != NEVER && idle_ns > self.awake_ns as f64 => {
                (at_ns + costs.wake, self.awake_ns as f64 + costs.sleep_cpu)
            }
            CompletionMode::Poll => (at_ns, idle_ns),
            CompletionMode::Interrupt => (at_ns + costs.wake, costs.sleep_cpu),
            CompletionMode::Hybrid { idle_ns: rest_ns, .. } => {
                let whole_ns = f64::from(rest_ns) + costs.late + ROUND_NS;
                let rests = (idle_ns / whole_ns).ceil();
                (free_ns + rests * whole_ns, rests * (costs.rest_cpu + ROUND_NS).min(whole_ns))
            }
        }
    }

    /// Simulates half a second at this rate.
    pub(crate) fn step(&mut self, rate: f64) -> Sums {
        let began_ns = self.now_ns as f64;
        self.now_ns += STEP_NS;
        let end_ns = self.now_ns as f64;
        let mut sums = Sums { time_ns: STEP_NS as f64, ..Sums::default() };
        while rate > 0.0 && self.arrival_ns < end_ns {
            let at_ns = self.arrival_ns;
            self.arrival_ns += self.gap_ns(rate);
            let (begin_ns, cpu_ns) =
                if at_ns > self.free_ns.0 { self.begin_ns(at_ns, self.free_ns.0) } else { (self.free_ns.0, 0.0) };
            self.free_ns.0 = begin_ns + self.machine.service_ns;
            self.free_ns.1 = self.free_ns.1.max(at_ns) + self.machine.service_ns;
            sums.requests += 1.0;
            sums.latency_ns += self.free_ns.0 - at_ns + self.machine.elsewhere_ns;
            sums.polled_ns += self.free_ns.1 - at_ns + self.machine.elsewhere_ns;
            sums.cpu_ns += cpu_ns + self.machine.service_ns;
        }
        if rate == 0.0 {
            self.arrival_ns = end_ns;
            let sleeps = self.how == CompletionMode::Poll && began_ns - self.free_ns.0 > self.awake_ns as f64;
            sums.cpu_ns += if sleeps { 0.0 } else { self.begin_ns(end_ns, began_ns.max(self.free_ns.0)).1 };
        }
        self.report(&sums);
        sums
    }

    fn report(&mut self, sums: &Sums) {
        let busy_ns = ((sums.requests * self.machine.service_ns) as u64).min(STEP_NS);
        let awake_ns = (sums.cpu_ns as u64).clamp(busy_ns, STEP_NS);
        let cores = [CoreSample { state: CoreState::Awake, busy_ns, awake_ns }];
        let (requests, in_progress_ns) = (sums.requests as u64, sums.latency_ns as u64);
        let threads =
            [ThreadSample { requests, busy_ns, answered: requests, in_progress_ns, ..ThreadSample::default() }];
        let mean_ns = (requests > 0).then(|| (sums.latency_ns / sums.requests) as u64);
        let reading = |id| -> Reading {
            let source: &Source = &self.capabilities.sources[0];
            source.reading(id, Some(Window { ended_ns: self.now_ns, value: mean_ns }), self.now_ns)
        };
        let readings: Vec<_> = self.policy.wants().readings.into_iter().map(reading).collect();
        let (now_ns, elapsed_ns) = (self.now_ns, STEP_NS);
        let sample = Sample { now_ns, elapsed_ns, cores: &cores, threads: &threads, readings: &readings };
        let mut out = Vec::new();
        self.awake_ns = self.policy.on_interval(&sample, &mut out).idle_timeout_ns;
        self.obey(&out);
    }

    /// Simulates `seconds` at this rate.
    pub(crate) fn run(&mut self, seconds: u64, rate: f64) -> Sums {
        let mut sums = Sums::default();
        (0..seconds * 2).for_each(|_| sums.add(&self.step(rate)));
        sums
    }

    /// A value of the view.
    pub(crate) fn view(&self, name: &str) -> String {
        self.policy.view().into_iter().find(|(known, _)| *known == name).unwrap().1
    }
}
