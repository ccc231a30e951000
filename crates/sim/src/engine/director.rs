//! Between policy and cores: samples in, commands out, each with its time.
//!
//! The policy is asked on the main core, at the first loop boundary at or after a moment of a fixed grid. Deciding costs the main
//! core time; then it carries out the commands one after the other, each with its own cost. What a command changes on another
//! core, that core sees at its next boundary.

mod changes;
mod commands;

use pilotlight_plant::{
    Capabilities, Command, CoreId, CoreSample, CoreState, Depth, Goals, KnobId, NEVER, Policy, Sample, Scope, Start,
    ThreadCount, ThreadId, ThreadSample, Tick, Topology, Unsupported, View, Wants,
};

use self::changes::Coming;
pub use self::commands::command_code;
use super::abilities::{capabilities, first_scheduled, limited_workers};
use super::core::Core;
use super::floor::Floor;
use super::meter::Metering;
use super::sensors::Sensors;
use crate::outcome::Decisions;
use crate::rng::{Purpose, Stream};
use crate::scenario::Scenario;
use crate::trace::What;

/// One thread as it was when the policy was last asked.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    polled: u64,
    busy_ns: u64,
    answered: u64,
    in_progress: u64,
    in_progress_ns: u64,
}

pub(crate) struct Director {
    policy: Box<dyn Policy>,
    wants: Wants,
    topology: Topology,
    capabilities: Capabilities,
    /// The cores whose CPU time a quota limits, the quota in millionths of a core, if there is one, and its period in nanoseconds.
    limited: Vec<CoreId>,
    /// Cores from this one on are scheduled, and run no I/O threads.
    first_scheduled: usize,
    quota: (Option<u64>, u64),
    eager: bool,
    tick_due_ns: u64,
    interval_due_ns: u64,
    coming: Coming,
    /// The goals that hold, and the class of each I/O thread by them.
    goals: Goals,
    classes: Vec<Option<u8>>,
    /// Hosts and namespaces that each I/O thread serves.
    served: Vec<Vec<(Scope, Scope)>>,
    /// Knobs that the policy has set.
    set: Vec<KnobId>,
    /// Why a policy that was to take over could not.
    pub(crate) refused_policy: Option<Unsupported>,
    ticked_ns: u64,
    sampled_ns: u64,
    next_needed_ns: u64,
    /// Whether nothing had come when it last looked, so that the policy was left out.
    left_out: bool,
    on_tick: Vec<Before>,
    on_interval: Vec<Before>,
    cores_before: Vec<(u64, u64)>,
    /// Asleep by command: in which state.
    asleep: Vec<Option<Depth>>,
    /// When a core that software has woken will be awake.
    ready_ns: Vec<u64>,
    counts: Vec<ThreadCount>,
    cores: Vec<CoreSample>,
    threads: Vec<ThreadSample>,
    commands: Vec<Command>,
    /// Where the policy wants readings.
    pub(crate) sensors: Option<Sensors>,
    /// Which commands fail.
    failures: Stream,
    pub(crate) decisions: Decisions,
    pub(crate) moves: u64,
    /// How often it has looked whether the policy is to be asked.
    pub(crate) looks: u64,
}

impl Director {
    /// # Errors
    /// If the policy needs what the machine cannot do.
    pub(crate) fn start(
        mut policies: Vec<(u64, Box<dyn Policy>)>,
        scenario: &Scenario,
        cores: &mut [Core],
        meter: &mut dyn Metering,
        floor: &mut Floor<'_>,
    ) -> Result<Self, Unsupported> {
        let topology = &scenario.topology;
        let threads = floor.threads.len();
        let capabilities = capabilities(scenario);
        let later = policies.split_off(1.min(policies.len()));
        let (_, policy) = policies.remove(0);
        let keeps_sensing = !later.is_empty() || !scenario.changes.is_empty() || !scenario.goals.is_empty();
        let mut director = Self {
            policy,
            wants: Wants::default(),
            topology: topology.clone(),
            coming: Coming::new(scenario, later, capabilities.knobs.len()),
            capabilities,
            goals: Goals::default(),
            classes: Vec::new(),
            served: served(scenario),
            set: Vec::new(),
            refused_policy: None,
            limited: limited_workers(scenario).collect(),
            first_scheduled: first_scheduled(scenario),
            quota: (None, scenario.machine.limits.quota_period_ns),
            eager: scenario.eager,
            tick_due_ns: NEVER,
            interval_due_ns: NEVER,
            ticked_ns: 0,
            sampled_ns: 0,
            next_needed_ns: NEVER,
            left_out: false,
            on_tick: vec![Before::default(); threads],
            on_interval: vec![Before::default(); threads],
            cores_before: vec![(0, 0); cores.len()],
            asleep: vec![None; cores.len()],
            ready_ns: vec![0; cores.len()],
            counts: Vec::with_capacity(threads),
            cores: Vec::with_capacity(cores.len()),
            threads: Vec::with_capacity(threads),
            commands: Vec::new(),
            sensors: None,
            failures: Stream::new(scenario.seed, Purpose::Machine, 0),
            decisions: Decisions::default(),
            moves: 0,
            looks: 0,
        };
        let states = vec![CoreSample::new(CoreState::Awake); cores.len()];
        let homes: Vec<_> = floor.threads.iter().map(|thread| CoreId(thread.destination)).collect();
        director.goals = director.coming.first_goals();
        director.classify();
        let (capabilities, goals) = (&director.capabilities, &director.goals);
        let start = Start { now_ns: 0, topology, capabilities, cores: &states, homes: &homes, goals };
        director.next_needed_ns = director.policy.start(&start, &mut director.commands)?.needed_ns;
        let wants = director.policy.wants();
        director.tick_due_ns = wants.tick_ns.unwrap_or(NEVER);
        director.interval_due_ns = wants.interval_ns.unwrap_or(NEVER);
        director.sensors = Sensors::new(&wants.readings, &director.capabilities.sources, scenario, keeps_sensing);
        if let Some(every_ns) = wants.tick_ns.or(wants.interval_ns) {
            meter.fill(floor.machine.director.fill_ns, every_ns, cores);
        }
        director.wants = wants;
        director.carry_out(cores, meter, floor);
        floor.ask_ns = director.due_ns();
        Ok(director)
    }

    pub(crate) fn view(&self) -> View {
        self.policy.view()
    }

    fn due_ns(&self) -> u64 {
        self.tick_due_ns.min(self.interval_due_ns).min(self.coming.due_ns())
    }

    /// Other readings may be wanted.
    fn read_wanted(&mut self) {
        if let Some(sensors) = &mut self.sensors {
            sensors.want(&self.wants.readings, &self.capabilities.sources);
        }
    }

    /// Asks the policy what is due. The main core is at a boundary, and every other core has come as far.
    pub(crate) fn ask(&mut self, cores: &mut [Core], meter: &mut dyn Metering, floor: &mut Floor<'_>) {
        let main = self.topology.main().index();
        let now_ns = cores[main].now_ns;
        self.looks += 1;
        self.decisions.late_ns += now_ns - self.due_ns();
        let asked = self.decisions.asked;
        self.tell_changes(cores, meter, floor);
        let (tick, interval) = (self.tick_due_ns <= now_ns, self.interval_due_ns <= now_ns);
        if tick {
            self.tick_due_ns = self.tick_after_ns(now_ns);
            self.decide(cores, floor);
            self.tick(now_ns, floor);
            self.carry_out(cores, meter, floor);
        }
        if interval {
            self.interval_due_ns = self.interval_after_ns(now_ns);
            self.decide(cores, floor);
            self.interval(now_ns, cores, floor);
            self.carry_out(cores, meter, floor);
        }
        floor.ask_ns = self.due_ns();
        self.left_out = self.decisions.asked == asked;
        self.decisions.deciding_ns += cores[main].now_ns - now_ns;
    }

    /// Whether the policy was left out when it was last due, and may be left out again.
    pub(crate) fn leaves_out(&self) -> bool {
        self.left_out
    }

    /// Passes over the moments before `until_ns` at which the policy would be left out again, because nothing comes until then: the main
    /// core spends its time as it would. The last of them is not passed over, so that samples begin where they would. The main
    /// core has just asked.
    pub(crate) fn pass(&mut self, main: &mut Core, floor: &mut Floor<'_>, until_ns: u64) {
        let Some(loop_ns) = main.steady_loop_ns(floor) else { return };
        let sensed_ns = self.sensors.as_ref().map_or(NEVER, Sensors::end_ns);
        let mut until_ns = until_ns.min(self.next_needed_ns).min(self.coming.due_ns()).min(sensed_ns);
        if self.wants.tick_ns.is_some() {
            until_ns = until_ns.min(self.interval_due_ns); // something may have come since the last one
        }
        let took_ns = main.price_ns(self.decide_ns(floor));
        let mut at_ns = main.next_boundary_ns(loop_ns, self.due_ns());
        loop {
            let (tick_ns, interval_ns) = (self.tick_after_ns(at_ns), self.interval_after_ns(at_ns));
            let next_ns = Core::boundary_after_ns(at_ns + took_ns, loop_ns, tick_ns.min(interval_ns));
            if next_ns >= until_ns {
                return;
            }
            self.decisions.late_ns += at_ns - self.due_ns();
            self.decisions.deciding_ns += took_ns;
            (self.tick_due_ns, self.interval_due_ns) = (tick_ns, interval_ns);
            floor.ask_ns = self.due_ns();
            main.pass(at_ns, took_ns);
            at_ns = next_ns;
        }
    }

    /// When the next tick is due after one that is looked at now; unchanged if it is not due.
    fn tick_after_ns(&self, now_ns: u64) -> u64 {
        let due_ns = self.tick_due_ns;
        if due_ns <= now_ns { next_on_grid(due_ns, self.wants.tick_ns, now_ns) } else { due_ns }
    }

    /// As [`Self::tick_after_ns`], for intervals.
    fn interval_after_ns(&self, now_ns: u64) -> u64 {
        let due_ns = self.interval_due_ns;
        if due_ns <= now_ns { next_on_grid(due_ns, self.wants.interval_ns, now_ns) } else { due_ns }
    }

    fn decide_ns(&self, floor: &Floor<'_>) -> u32 {
        let costs = floor.machine.director;
        costs.decide_ns + costs.decide_thread_ns * floor.threads.len() as u32
    }

    /// The main core's time for gathering and deciding.
    fn decide(&mut self, cores: &mut [Core], floor: &Floor<'_>) {
        let main = self.topology.main().index();
        cores[main].spend(self.decide_ns(floor));
    }

    fn tick(&mut self, now_ns: u64, floor: &mut Floor<'_>) {
        self.counts.clear();
        let mut all = 0;
        for (index, (thread, before)) in floor.threads.iter().zip(&mut self.on_tick).enumerate() {
            let requests = thread.polled - before.polled;
            if requests > 0 {
                let busy_ns = if self.wants.tick_busy { thread.busy_ns - before.busy_ns } else { 0 };
                self.counts.push(ThreadCount { thread: ThreadId(index as u16), requests: requests as u32, busy_ns });
                all += requests;
            }
            before.polled = thread.polled;
            before.busy_ns = thread.busy_ns;
        }
        let elapsed_ns = now_ns - std::mem::replace(&mut self.ticked_ns, now_ns);
        if self.counts.is_empty() && now_ns < self.next_needed_ns && !self.eager {
            return;
        }
        self.decisions.asked += 1;
        self.decisions.judged += self.counts.len() as u64;
        if !self.counts.is_empty() {
            floor.recorder.note(now_ns, What::Asked, 1, all);
        }
        let tick = Tick { now_ns, elapsed_ns, counts: &self.counts };
        self.next_needed_ns = self.policy.on_tick(&tick, &mut self.commands).needed_ns;
    }

    fn interval(&mut self, now_ns: u64, cores: &[Core], floor: &mut Floor<'_>) {
        let (all, quiet) = self.fill_threads(now_ns, floor);
        self.fill_cores(cores);
        let elapsed_ns = now_ns - std::mem::replace(&mut self.sampled_ns, now_ns);
        if quiet && now_ns < self.next_needed_ns && !self.eager {
            return;
        }
        self.decisions.asked += 1;
        if !quiet {
            floor.recorder.note(now_ns, What::Asked, 2, all);
        }
        let readings = self.sensors.as_mut().map_or(&[][..], |sensors| sensors.read(now_ns));
        let sample = Sample { now_ns, elapsed_ns, cores: &self.cores, threads: &self.threads, readings };
        self.next_needed_ns = self.policy.on_interval(&sample, &mut self.commands).needed_ns;
    }

    /// What threads have done; how many requests came, and whether nothing came and nothing was in progress.
    fn fill_threads(&mut self, now_ns: u64, floor: &mut Floor<'_>) -> (u64, bool) {
        self.threads.clear();
        let (mut all, mut quiet) = (0, true);
        let mut classes = self.classes.iter();
        for (thread, before) in floor.threads.iter_mut().zip(&mut self.on_interval) {
            let class = classes.next();
            let in_progress_ns = if self.wants.service { thread.in_progress_ns(now_ns) } else { 0 };
            let requests = thread.polled - before.polled;
            all += requests;
            quiet &= requests == 0 && thread.in_progress == 0 && before.in_progress == 0;
            let answered = if self.wants.service { thread.answered } else { 0 };
            self.threads.push(ThreadSample {
                home: CoreId(thread.destination),
                requests,
                busy_ns: thread.busy_ns - before.busy_ns,
                answered: answered - before.answered,
                in_progress_ns: in_progress_ns - before.in_progress_ns,
                class: class.copied().flatten(),
            });
            *before = Before {
                polled: thread.polled,
                busy_ns: thread.busy_ns,
                answered,
                in_progress: thread.in_progress,
                in_progress_ns,
            };
        }
        (all, quiet)
    }

    fn fill_cores(&mut self, cores: &[Core]) {
        self.cores.clear();
        for (index, (core, before)) in cores.iter().zip(&mut self.cores_before).enumerate() {
            let asleep = self.asleep[index].filter(|_| core.is_asleep());
            let state = asleep.map_or(CoreState::Awake, CoreState::Asleep);
            let (busy_ns, awake_ns) = (core.busy_ns - before.0, core.awake_ns() - before.1);
            self.cores.push(CoreSample { state, busy_ns, awake_ns });
            *before = (core.busy_ns, core.awake_ns());
        }
    }
}

/// Hosts and namespaces that each I/O thread serves: a connection is a host, a drive is a namespace.
fn served(scenario: &Scenario) -> Vec<Vec<(Scope, Scope)>> {
    let mut served = vec![Vec::new(); usize::from(scenario.threads)];
    for (host, connection) in (0..).map(Scope::Host).zip(&scenario.workload.connections) {
        let (from, many) = connection.drives;
        let drives = (from..from.saturating_add(many)).map(|drive| (host, Scope::Namespace(drive.into())));
        served[usize::from(connection.thread)].extend(drives);
    }
    served
}

/// The first moment of the grid after `now_ns`.
fn next_on_grid(due_ns: u64, every_ns: Option<u64>, now_ns: u64) -> u64 {
    let every_ns = every_ns.unwrap_or(u64::MAX).max(1);
    due_ns.saturating_add(every_ns.saturating_mul((now_ns - due_ns) / every_ns + 1))
}
