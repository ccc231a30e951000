//! Between policy and cores: samples in, commands out, each with its time.
//!
//! The policy is asked on the main core, at the first loop boundary at or after a moment of a fixed grid. Deciding costs the main
//! core time; then it carries out the commands one after the other, each with its own cost. What a command changes on another
//! core, that core sees at its next boundary.

use pilotlight_plant::{
    Capabilities, Command, Completions, CoreId, CoreSample, CoreState, Depth, Goals, Kind, KnobId, NEVER, Of, Policy,
    Refusal, Sample, Start, ThreadCount, ThreadId, ThreadSample, Tick, Topology, Unsupported, View, Wants,
};

use super::abilities::{STORE_NS, capabilities, limited_workers};
use super::core::Core;
use super::floor::{Floor, Message, Say};
use super::meter::Metering;
use super::sensors::Sensors;
use crate::machine::Machine;
use crate::outcome::Decisions;
use crate::rng::{Purpose, Stream, below};
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
    /// The cores whose CPU time a quota limits.
    limited: Vec<CoreId>,
    eager: bool,
    tick_due_ns: u64,
    interval_due_ns: u64,
    /// Goals that are still to come, and when; the next one last.
    goals: Vec<(u64, Goals)>,
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
        policy: Box<dyn Policy>,
        scenario: &Scenario,
        cores: &mut [Core],
        meter: &mut dyn Metering,
        floor: &mut Floor<'_>,
    ) -> Result<Self, Unsupported> {
        let topology = &scenario.topology;
        let threads = floor.threads.len();
        let mut director = Self {
            policy,
            wants: Wants::default(),
            topology: topology.clone(),
            capabilities: capabilities(scenario),
            limited: limited_workers(scenario).collect(),
            eager: scenario.eager,
            tick_due_ns: NEVER,
            interval_due_ns: NEVER,
            goals: scenario.goals.iter().rev().cloned().collect(),
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
        let goals = director.goals.pop_if(|(at_ns, _)| *at_ns == 0).map(|(_, goals)| goals).unwrap_or_default();
        let capabilities = &director.capabilities;
        let start = Start { now_ns: 0, topology, capabilities, cores: &states, homes: &homes, goals: &goals };
        director.next_needed_ns = director.policy.start(&start, &mut director.commands)?.needed_ns;
        let wants = director.policy.wants();
        director.tick_due_ns = wants.tick_ns.unwrap_or(NEVER);
        director.interval_due_ns = wants.interval_ns.unwrap_or(NEVER);
        director.sensors = Sensors::new(&wants.readings, &director.capabilities.sources, scenario);
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
        self.tick_due_ns.min(self.interval_due_ns).min(self.goals_due_ns())
    }

    /// When the next goals come.
    fn goals_due_ns(&self) -> u64 {
        self.goals.last().map_or(NEVER, |&(at_ns, _)| at_ns)
    }

    /// Asks the policy what is due. The main core is at a boundary, and every other core has come as far.
    pub(crate) fn ask(&mut self, cores: &mut [Core], meter: &mut dyn Metering, floor: &mut Floor<'_>) {
        let main = self.topology.main().index();
        let now_ns = cores[main].now_ns;
        self.looks += 1;
        self.decisions.late_ns += now_ns - self.due_ns();
        let (tick, interval) = (self.tick_due_ns <= now_ns, self.interval_due_ns <= now_ns);
        let asked = self.decisions.asked;
        while let Some((_, goals)) = self.goals.pop_if(|(at_ns, _)| *at_ns <= now_ns) {
            self.decide(cores, floor);
            self.decisions.asked += 1;
            self.policy.on_goals(now_ns, &goals, &mut self.commands);
            self.next_needed_ns = now_ns;
            self.carry_out(cores, meter, floor);
        }
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
        let mut until_ns = until_ns.min(self.next_needed_ns).min(self.goals_due_ns()).min(sensed_ns);
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
        for (thread, before) in floor.threads.iter_mut().zip(&mut self.on_interval) {
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

    fn carry_out(&mut self, cores: &mut [Core], meter: &mut dyn Metering, floor: &mut Floor<'_>) {
        let commands = std::mem::take(&mut self.commands);
        for command in &commands {
            let main = self.topology.main().index();
            let carried_out = if self.fails(command, floor.machine) {
                Self::spend_on(command, &mut cores[main], floor.machine);
                Err(Refusal::Failed)
            } else {
                let (what, argument) = command_code(command);
                floor.recorder.note(cores[main].now_ns, What::Commanded, what, argument);
                self.apply(command, cores, meter, floor)
            };
            if let Err(refusal) = carried_out {
                self.decisions.refused += 1;
                self.policy.on_refused(cores[main].now_ns, command, refusal);
            }
        }
        self.commands = commands;
        self.commands.clear();
    }

    /// Whether the machine fails to carry a command out.
    fn fails(&mut self, command: &Command, machine: &Machine) -> bool {
        let can_fail = matches!(command, Command::Move { .. } | Command::Sleep { .. } | Command::Set { .. });
        let fails_ppm = u64::from(machine.director.fails_ppm);
        can_fail && fails_ppm > 0 && below(self.failures.draw(), 1_000_000) < fails_ppm
    }

    /// The main core's time for a command that has failed.
    fn spend_on(command: &Command, main: &mut Core, machine: &Machine) {
        let set = matches!(command, Command::Set { .. });
        main.spend(if set { machine.director.frequency_ns } else { STORE_NS });
    }

    fn apply(
        &mut self,
        command: &Command,
        cores: &mut [Core],
        meter: &mut dyn Metering,
        floor: &mut Floor<'_>,
    ) -> Result<(), Refusal> {
        let main = self.topology.main().index();
        match *command {
            Command::Move { thread, to } => self.send_thread(thread, to, cores, floor),
            Command::Sleep { core, goal } => {
                if core.index() >= cores.len() {
                    return Err(Refusal::Unknown);
                }
                if core.index() == main {
                    return Err(Refusal::MainCore);
                }
                let coming =
                    |thread: &super::floor::IoThread| thread.destination == core.0 && thread.home != Some(core.0);
                if floor.threads.iter().any(coming) {
                    return Err(Refusal::NotEmpty);
                }
                let sleep = self.capabilities.sleep_for(goal).ok_or(Refusal::Unsupported)?;
                self.asleep[core.index()] = Some(sleep.depth);
                self.decisions.sleeps += 1;
                let at_ns = cores[main].spend(STORE_NS);
                let monitor = sleep.depth == Depth::MonitorWait;
                let deep = !monitor && floor.machine.power.family.kernel_idles_deep;
                let exit_ns = sleep.wake.ns();
                cores[core.index()].deliver(Message { at_ns, say: Say::Sleep { deep, exit_ns } });
                Ok(())
            }
            Command::Wake { core } => {
                if core.index() >= cores.len() {
                    return Err(Refusal::Unknown);
                }
                self.wake(core, cores);
                Ok(())
            }
            Command::Completions { thread, how } => {
                let io = floor.threads.get_mut(thread.index()).ok_or(Refusal::Unknown)?;
                io.how = how;
                if let Some(home) = io.home {
                    cores[usize::from(home)].look_again();
                    let at_ns = cores[main].spend(STORE_NS);
                    cores[usize::from(home)].deliver(Message { at_ns, say: Say::Wake });
                }
                Ok(())
            }
            Command::Set { knob, value } => self.set(knob, value, cores, meter, floor),
        }
    }

    /// Sets a knob at the main core's cost: the server of the paper writes a file of the kernel.
    fn set(
        &mut self,
        id: KnobId,
        value: u64,
        cores: &mut [Core],
        meter: &mut dyn Metering,
        floor: &mut Floor<'_>,
    ) -> Result<(), Refusal> {
        let knob = self.capabilities.knob(id).ok_or(Refusal::Unknown)?;
        let (of, kind, found) = (knob.of, knob.kind, knob.found);
        let at_ns = cores[self.topology.main().index()].spend(floor.machine.director.frequency_ns);
        match (of, kind) {
            (Of::Core(core), Kind::FrequencyKhz) => {
                self.decisions.frequencies += 1;
                floor.recorder.note(at_ns, What::Ordered, u64::from(core.0), value);
                meter.order(at_ns, core.index(), u32::try_from(value).unwrap_or(u32::MAX));
            }
            (_, Kind::LimitUw) => meter.limit(at_ns, (value < found).then_some(value)),
            (_, Kind::QuotaPpm) => {
                let period_ns = floor.machine.limits.quota_period_ns;
                let part_ppm = value / self.limited.len().max(1) as u64;
                let allowed_ns = (value < found).then(|| part_ppm * period_ns / 1_000_000);
                for core in &self.limited {
                    cores[core.index()].set_quota(at_ns, allowed_ns, period_ns);
                }
            }
            _ => return Err(Refusal::Unsupported),
        }
        Ok(())
    }

    /// Wakes a core, at the waker's cost.
    fn wake(&mut self, core: CoreId, cores: &mut [Core]) {
        let main = self.topology.main().index();
        let slept = self.asleep[core.index()].take();
        let cost = self.capabilities.sleeps.iter().find(|sleep| Some(sleep.depth) == slept).copied();
        self.decisions.wakes += u64::from(slept.is_some());
        let at_ns = cores[main].spend(cost.map_or(STORE_NS, |cost| cost.waker.ns() as u32));
        cores[core.index()].deliver(Message { at_ns, say: Say::Wake });
        if let Some(cost) = cost.filter(|cost| cost.depth == Depth::SoftwareWait) {
            self.ready_ns[core.index()] = at_ns + cost.wake.ns();
        }
    }

    /// Orders a thread to a core. One that software wakes is awake before the thread leaves its old home.
    fn send_thread(
        &mut self,
        thread: ThreadId,
        to: CoreId,
        cores: &mut [Core],
        floor: &mut Floor<'_>,
    ) -> Result<(), Refusal> {
        let main = self.topology.main().index();
        if to.index() >= cores.len() || thread.index() >= floor.threads.len() {
            return Err(Refusal::Unknown);
        }
        if self.asleep[to.index()].is_some() {
            self.wake(to, cores);
        }
        let io = &mut floor.threads[thread.index()];
        let settled = io.home == Some(io.destination);
        let Some(home) = io.home else {
            io.destination = to.0; // it is sent on when it arrives
            return Ok(());
        };
        if settled && home != to.0 {
            floor.moving += 1;
        } else if !settled && home == to.0 {
            floor.moving -= 1;
        }
        io.destination = to.0;
        io.orders += 1;
        let order = io.orders;
        if home == to.0 {
            return Ok(());
        }
        self.moves += 1;
        self.decisions.moves += 1;
        let sent_ns = cores[main].spend(STORE_NS);
        let at_ns = self.ready_ns[to.index()].max(sent_ns);
        cores[usize::from(home)].deliver(Message { at_ns, say: Say::Give(thread.0, order) });
        Ok(())
    }
}

/// The first moment of the grid after `now_ns`.
fn next_on_grid(due_ns: u64, every_ns: Option<u64>, now_ns: u64) -> u64 {
    let every_ns = every_ns.unwrap_or(u64::MAX).max(1);
    due_ns.saturating_add(every_ns.saturating_mul((now_ns - due_ns) / every_ns + 1))
}

/// A command as two numbers of a trace: what, and its argument.
#[must_use]
pub fn command_code(command: &Command) -> (u64, u64) {
    let pair = |high: u16, low: u64| (u64::from(high) << 32) | low;
    match *command {
        Command::Move { thread, to } => (1, pair(thread.0, u64::from(to.0))),
        Command::Sleep { core, goal } => (2, pair(core.0, goal.wake_within_ns.min(u64::from(u32::MAX)))),
        Command::Wake { core } => (3, pair(core.0, 0)),
        Command::Completions { thread, how } => {
            let how = match how {
                Completions::Poll => 0,
                Completions::Interrupt => 1,
                Completions::Hybrid { idle_ns, rest_ns } => 2 + u64::from(idle_ns.max(rest_ns)),
            };
            (4, pair(thread.0, how))
        }
        Command::Set { knob, value } => (5, pair(knob.0, value.min(u64::from(u32::MAX)))),
    }
}
