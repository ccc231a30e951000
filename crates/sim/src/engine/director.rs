//! Connects policy and cores: collects samples and executes commands, at their cost.
//!
//! The policy is called on the main core, at the first loop boundary at or after each time of a fixed grid. Deciding costs time of the main
//! core, then each command does. Another core sees a command at its next boundary.

mod changes;
mod commands;
mod server_sleep;

use pilotlight_plant::{
    Capabilities, Command, CoreId, CoreSample, CoreState, Depth, Goals, KnobId, LongRound, NEVER, Next, Policy, Sample,
    Scope, Start, ThreadCount, ThreadId, ThreadSample, Tick, Topology, Unsupported, View, Wants,
};

use self::changes::PendingChanges;
pub use self::commands::command_code;
use super::abilities::{capabilities, first_scheduled, limited_workers};
use super::core::Core;
use super::meter::Metering;
use super::sensors::Sensors;
use super::shared::Shared;
use crate::outcome::Decisions;
use crate::rng::{Purpose, Stream};
use crate::scenario::Scenario;
use crate::trace::RecordKind;

/// Counters of a thread at the last call of the policy.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
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
    /// Cores under the quota.
    limited: Vec<CoreId>,
    /// The first scheduled core.
    first_scheduled: usize,
    quota: (Option<u64>, u64),
    eager: bool,
    tick_due_ns: u64,
    interval_due_ns: u64,
    pending: PendingChanges,
    /// Current goals, and the class of each I/O thread.
    goals: Goals,
    classes: Vec<Option<u8>>,
    /// Hosts and namespaces that each I/O thread serves.
    served: Vec<Vec<(Scope, Scope)>>,
    /// Knobs that the policy has set.
    set: Vec<KnobId>,
    /// Error of a policy that could not take over.
    pub(crate) refused_policy: Option<Unsupported>,
    ticked_ns: u64,
    sampled_ns: u64,
    /// The policy's last answer.
    next: Next,
    /// When the whole server fell asleep.
    asleep_since_ns: u64,
    /// It began with every request reported at an interval.
    slept_quiet: bool,
    /// Whether the next tick is an early one before a sleep of the whole server.
    reports: bool,
    /// Whether the last due call was skipped, as there were no requests.
    skipped: bool,
    on_tick: Vec<Counters>,
    on_interval: Vec<Counters>,
    cores_before: Vec<(u64, u64, u64)>,
    /// Commanded sleep state of each core.
    asleep: Vec<Option<Depth>>,
    /// End of each core's software wake-up.
    ready_ns: Vec<u64>,
    counts: Vec<ThreadCount>,
    cores: Vec<CoreSample>,
    threads: Vec<ThreadSample>,
    commands: Vec<Command>,
    /// Present if the policy needs readings.
    pub(crate) sensors: Option<Sensors>,
    /// Random failures of commands.
    failures: Stream,
    pub(crate) decisions: Decisions,
    pub(crate) moves: u64,
    /// Number of times it was due, including skipped calls.
    #[cfg(feature = "testing")]
    pub(crate) checks: u64,
}

impl Director {
    /// # Errors
    /// If the policy requires a missing feature.
    pub(crate) fn start(
        mut policies: Vec<(u64, Box<dyn Policy>)>,
        scenario: &Scenario,
        cores: &mut [Core],
        meter: &mut dyn Metering,
        shared: &mut Shared<'_>,
    ) -> Result<Self, Unsupported> {
        let topology = &scenario.topology;
        let threads = shared.threads.len();
        let capabilities = capabilities(scenario);
        let later = policies.split_off(1.min(policies.len()));
        let (_, policy) = policies.remove(0);
        let keeps_sensing = !later.is_empty() || !scenario.changes.is_empty() || !scenario.goals.is_empty();
        let mut director = Self {
            policy,
            wants: Wants::default(),
            topology: topology.clone(),
            pending: PendingChanges::new(scenario, later, capabilities.knobs.len()),
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
            next: Next::NEVER,
            asleep_since_ns: 0,
            slept_quiet: false,
            reports: false,
            skipped: false,
            on_tick: vec![Counters::default(); threads],
            on_interval: vec![Counters::default(); threads],
            cores_before: vec![(0, 0, 0); cores.len()],
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
            #[cfg(feature = "testing")]
            checks: 0,
        };
        let states = vec![CoreSample::new(CoreState::Awake); cores.len()];
        let homes: Vec<_> = shared.threads.iter().map(|thread| CoreId(thread.destination)).collect();
        director.goals = director.pending.first_goals();
        director.classify();
        let (capabilities, goals) = (&director.capabilities, &director.goals);
        let start = Start { now_ns: 0, topology, capabilities, cores: &states, homes: &homes, goals };
        let next = director.policy.start(&start, &mut director.commands)?;
        director.set_next(next);
        let wants = director.policy.wants();
        director.tick_due_ns = wants.tick_ns.unwrap_or(NEVER);
        director.interval_due_ns = wants.interval_ns.unwrap_or(NEVER);
        director.sensors = Sensors::new(&wants.readings, &director.capabilities.sources, scenario, keeps_sensing);
        if let Some(every_ns) = wants.tick_ns.or(wants.interval_ns) {
            meter.fill(shared.machine.director.fill_ns, every_ns, cores);
        }
        director.wants = wants;
        director.carry_out(cores, meter, shared);
        shared.policy_due_ns = director.due_ns();
        director.allow_sleep(shared);
        Ok(director)
    }

    pub(crate) fn view(&self) -> View {
        self.policy.view()
    }

    fn due_ns(&self) -> u64 {
        self.tick_due_ns.min(self.interval_due_ns).min(self.pending.due_ns())
    }

    /// Updates the selected readings.
    fn select_readings(&mut self) {
        if let Some(sensors) = &mut self.sensors {
            sensors.want(&self.wants.readings, &self.capabilities.sources);
        }
    }

    /// Makes the due calls. The main core is at a boundary, and all other cores have advanced to it.
    pub(crate) fn call_policy(&mut self, cores: &mut [Core], meter: &mut dyn Metering, shared: &mut Shared<'_>) {
        let main = self.topology.main().index();
        let now_ns = cores[main].now_ns;
        if shared.machine.sockets.server_sleep_ns > 0 && self.sleep_or_wake(cores, meter, shared) {
            return;
        }
        #[cfg(feature = "testing")]
        {
            self.checks += 1;
        }
        self.decisions.late_ns += now_ns.saturating_sub(self.due_ns());
        let asked = self.decisions.policy_calls;
        self.apply_changes(cores, meter, shared);
        if let Some(long) = shared.long_round.take().filter(|_| self.next.round_ns != NEVER) {
            self.interval_due_ns = self.wants.interval_ns.map_or(NEVER, |every_ns| now_ns + every_ns);
            self.decide(cores, shared);
            self.interval(now_ns, cores, Some(long), shared);
            self.carry_out(cores, meter, shared);
        }
        let (tick, interval) = (self.tick_due_ns <= now_ns, self.interval_due_ns <= now_ns);
        if tick {
            self.tick_due_ns = self.tick_after_ns(now_ns);
            self.decide(cores, shared);
            self.tick(now_ns, shared);
            self.carry_out(cores, meter, shared);
        }
        if interval {
            self.interval_due_ns = self.interval_after_ns(now_ns);
            self.decide(cores, shared);
            self.interval(now_ns, cores, None, shared);
            self.carry_out(cores, meter, shared);
        }
        shared.policy_due_ns = self.due_ns();
        self.allow_sleep(shared);
        self.skipped = self.decisions.policy_calls == asked;
        self.decisions.deciding_ns += cores[main].now_ns - now_ns;
    }

    /// Whether the last due call was skipped, so that the next may be too.
    pub(crate) fn may_skip(&self) -> bool {
        self.skipped
    }

    /// Skips the calls before `until_ns` that would be skipped individually, as no event occurs until then; the main core spends the same time.
    /// The last of them is kept, so that samples begin at the same time.
    pub(crate) fn pass(&mut self, main: &mut Core, shared: &mut Shared<'_>, until_ns: u64) {
        let Some(loop_ns) = main.steady_loop_ns(shared) else { return };
        let sensed_ns = self.sensors.as_ref().map_or(NEVER, Sensors::end_ns);
        let mut until_ns = until_ns.min(self.next.needed_ns).min(self.pending.due_ns()).min(sensed_ns);
        if self.wants.tick_ns.is_some() {
            until_ns = until_ns.min(self.interval_due_ns); // there may have been requests since the last one
        }
        until_ns = until_ns.min(main.idle_timeout_at_ns(shared));
        let took_ns = main.price_ns(self.decide_ns(shared));
        let mut at_ns = main.next_boundary_ns(loop_ns, self.due_ns());
        loop {
            let (tick_ns, interval_ns) = (self.tick_after_ns(at_ns), self.interval_after_ns(at_ns));
            let next_ns = Core::boundary_after_ns(at_ns + took_ns, loop_ns, tick_ns.min(interval_ns));
            if next_ns >= until_ns {
                return;
            }
            self.decisions.late_ns += at_ns - self.due_ns();
            self.decisions.deciding_ns += took_ns;
            if self.tick_due_ns <= at_ns {
                self.decisions.surge_checks += shared.threads.len() as u64;
            }
            (self.tick_due_ns, self.interval_due_ns) = (tick_ns, interval_ns);
            shared.policy_due_ns = self.due_ns();
            main.pass(shared, at_ns, took_ns);
            at_ns = next_ns;
        }
    }

    /// Time of the tick after one at `now_ns`; unchanged if none is due.
    fn tick_after_ns(&self, now_ns: u64) -> u64 {
        let due_ns = self.tick_due_ns;
        if due_ns <= now_ns { next_on_grid(due_ns, self.wants.tick_ns, now_ns) } else { due_ns }
    }

    /// As [`Self::tick_after_ns`], for intervals.
    fn interval_after_ns(&self, now_ns: u64) -> u64 {
        let due_ns = self.interval_due_ns;
        if due_ns <= now_ns { next_on_grid(due_ns, self.wants.interval_ns, now_ns) } else { due_ns }
    }

    fn decide_ns(&self, shared: &Shared<'_>) -> u32 {
        let costs = shared.machine.director;
        costs.decide_ns + costs.decide_thread_ns * shared.threads.len() as u32
    }

    /// Charges the main core for a decision.
    fn decide(&mut self, cores: &mut [Core], shared: &Shared<'_>) {
        let main = self.topology.main().index();
        cores[main].spend(self.decide_ns(shared));
    }

    fn tick(&mut self, now_ns: u64, shared: &mut Shared<'_>) {
        self.counts.clear();
        let mut all = 0;
        for (index, (thread, before)) in shared.threads.iter().zip(&mut self.on_tick).enumerate() {
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
        let elapsed_ns = if self.reports { elapsed_ns.max(self.wants.tick_ns.unwrap_or(0)) } else { elapsed_ns };
        self.decisions.surge_checks += shared.threads.len() as u64;
        if self.counts.is_empty() && now_ns < self.next.needed_ns && !self.eager {
            return;
        }
        self.decisions.policy_calls += 1;
        if !self.counts.is_empty() {
            shared.recorder.note(now_ns, RecordKind::PolicyCalled, 1, all);
        }
        let tick = Tick { now_ns, elapsed_ns, counts: &self.counts };
        let next = self.policy.on_tick(&tick, &mut self.commands);
        self.set_next(next);
    }

    /// An interval; early after a long round.
    fn interval(&mut self, now_ns: u64, cores: &[Core], long: Option<LongRound>, shared: &mut Shared<'_>) {
        let (all, quiet) = self.fill_threads(now_ns, shared);
        let elapsed_ns = now_ns - std::mem::replace(&mut self.sampled_ns, now_ns);
        self.fill_cores(cores, now_ns, elapsed_ns);
        if quiet && long.is_none() && now_ns < self.next.needed_ns && !self.eager {
            return;
        }
        self.decisions.policy_calls += 1;
        if !quiet {
            shared.recorder.note(now_ns, RecordKind::PolicyCalled, 2, all);
        }
        let readings = self.sensors.as_mut().map_or(&[][..], |sensors| sensors.read(now_ns));
        let sample = Sample { now_ns, elapsed_ns, cores: &self.cores, threads: &self.threads, readings };
        let next = match long {
            Some(long) => self.policy.on_long_round(long, &sample, &mut self.commands),
            None => self.policy.on_interval(&sample, &mut self.commands),
        };
        self.set_next(next);
    }

    /// Fills thread samples; returns the number of requests, and whether there were none and none in progress.
    fn fill_threads(&mut self, now_ns: u64, shared: &mut Shared<'_>) -> (u64, bool) {
        self.threads.clear();
        let (mut all, mut quiet) = (0, true);
        let mut classes = self.classes.iter();
        for (thread, before) in shared.threads.iter_mut().zip(&mut self.on_interval) {
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
            *before = Counters {
                polled: thread.polled,
                busy_ns: thread.busy_ns,
                answered,
                in_progress: thread.in_progress,
                in_progress_ns,
            };
        }
        (all, quiet)
    }

    /// A core that rests without a command is awake and idle to the policy.
    fn fill_cores(&mut self, cores: &[Core], now_ns: u64, elapsed_ns: u64) {
        self.cores.clear();
        for (index, (core, before)) in cores.iter().zip(&mut self.cores_before).enumerate() {
            let asleep = self.asleep[index].filter(|_| core.is_asleep());
            let state = asleep.map_or(CoreState::Awake, CoreState::Asleep);
            let (busy_ns, mut awake_ns) = (core.busy_ns - before.0, core.awake_ns() - before.1);
            let rested_ns = core.rested_quietly_ns(now_ns);
            if rested_ns > before.2 {
                awake_ns = (awake_ns + rested_ns - before.2).min(elapsed_ns.max(busy_ns));
            }
            self.cores.push(CoreSample { state, busy_ns, awake_ns });
            *before = (core.busy_ns, core.awake_ns(), rested_ns);
        }
    }
}

/// Hosts and namespaces of each I/O thread: a connection is a host, a drive is a namespace.
fn served(scenario: &Scenario) -> Vec<Vec<(Scope, Scope)>> {
    let mut served = vec![Vec::new(); usize::from(scenario.threads)];
    for (host, connection) in (0..).map(Scope::Host).zip(&scenario.workload.connections) {
        let (from, many) = connection.drives;
        let drives = (from..from.saturating_add(many)).map(|drive| (host, Scope::Namespace(drive.into())));
        served[usize::from(connection.thread)].extend(drives);
    }
    served
}

/// The first time of the grid after `now_ns`.
fn next_on_grid(due_ns: u64, every_ns: Option<u64>, now_ns: u64) -> u64 {
    let every_ns = every_ns.unwrap_or(u64::MAX).max(1);
    due_ns.saturating_add(every_ns.saturating_mul((now_ns - due_ns) / every_ns + 1))
}
