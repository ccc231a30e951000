//! The inner policy of a limiter, and the plant that is visible to it.
//!
//! **Cores.** The visible plant has the main core and the first workers, numbered without gaps. When their number changes the inner policy
//! takes over the new plant ([`Policy::start`]). I/O threads on hidden cores are reported on the main core; those that it leaves there are moved
//! there. Hidden cores sleep.
//! **Intervals without requests** that it does not need are never passed on, so that it makes no difference whether the plant skips them. If it
//! wants longer intervals than the limiter, several are added up.

use pilotlight_plant::{
    Capabilities, Command, Component, CoreId, CoreSample, CoreState, Goal, Goals, Kind, LongRound, NEVER, Next, Policy,
    Refusal, Sample, Scope, SleepGoal, Start, ThreadId, ThreadSample, Tick, Topology, Unreachable, Unsupported, Values,
    View, Wants,
};

use super::separate::separated;
use super::sum::Sum;
use crate::hotplug::Hotplug;
use crate::load::is_quiet;
use crate::schedule::Schedule;

/// An inner policy.
pub(crate) struct Inner {
    policy: Box<dyn Policy>,
    /// Kinds of knobs that are hidden from it.
    hidden: &'static [Kind],
    wants: Wants,
    next: Next,
    goals: Goals,
    /// The whole plant; `None` before the start.
    topology: Option<Topology>,
    capabilities: Capabilities,
    /// The visible cores, by their number in the visible plant.
    visible: Vec<CoreId>,
    /// State of each core, home of each I/O thread, and the target of its pending move.
    cores: Vec<CoreSample>,
    homes: Vec<CoreId>,
    moving_to: Vec<Option<CoreId>>,
    hotplug: Hotplug,
    /// Its intervals; `None` if it wants all of the limiter's.
    schedule: Option<Schedule>,
    due_ns: u64,
    sum: Sum,
}

impl Inner {
    pub(crate) fn new(policy: Box<dyn Policy>, hidden: &'static [Kind]) -> Self {
        Self {
            policy,
            hidden,
            wants: Wants::default(),
            next: Next::NEVER,
            goals: Goals::default(),
            topology: None,
            capabilities: Capabilities::default(),
            visible: Vec::new(),
            cores: Vec::new(),
            homes: Vec::new(),
            moving_to: Vec::new(),
            hotplug: Hotplug::default(),
            schedule: None,
            due_ns: 0,
            sum: Sum::default(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.policy.name()
    }

    pub(crate) fn uses(&self, goal: Goal) -> bool {
        self.policy.uses(goal)
    }

    pub(crate) fn unreachable(&self) -> Option<Unreachable> {
        self.policy.unreachable()
    }

    pub(crate) fn bottleneck(&self) -> Option<Component> {
        self.policy.bottleneck()
    }

    pub(crate) fn wants(&self) -> &Wants {
        &self.wants
    }

    pub(crate) fn view(&self) -> View {
        self.policy.view()
    }

    /// Number of visible cores.
    pub(crate) fn cores(&self) -> usize {
        self.visible.len()
    }

    /// The number of cores that it can be limited to: all, if I/O threads cannot be moved or cores cannot sleep.
    pub(crate) fn clamp(&self, cores: usize) -> usize {
        let can = self.capabilities.moves.is_some() && !self.capabilities.sleeps.is_empty();
        if can { cores.clamp(1, self.cores.len().max(1)) } else { self.cores.len() }
    }

    /// Takes over a plant with this number of visible cores; `limiter_ns` is the limiter's interval.
    pub(crate) fn start(
        &mut self,
        start: &Start<'_>,
        cores: usize,
        limiter_ns: u64,
        out: &mut Vec<Command>,
    ) -> Result<(), Unsupported> {
        self.topology = Some(start.topology.clone());
        self.capabilities = start.capabilities.clone();
        self.hotplug.find(start.capabilities);
        self.cores = start.cores.to_vec();
        self.homes = start.homes.to_vec();
        self.moving_to = vec![None; start.homes.len()];
        self.goals = without_budget(start.goals);
        self.set_visible(start.topology, cores);
        self.take_over(start.now_ns, out)?;
        let longer = self.wants.interval_ns.filter(|&interval_ns| interval_ns > limiter_ns);
        self.schedule = longer.map(|period_ns| Schedule { start_ns: start.now_ns, period_ns });
        Ok(())
    }

    fn set_visible(&mut self, topology: &Topology, cores: usize) {
        self.visible = topology.workers().take(self.clamp(cores).saturating_sub(1)).chain([topology.main()]).collect();
        self.visible.sort_unstable();
    }

    /// Changes the number of visible cores; whether it was different.
    pub(crate) fn limit_cores(&mut self, now_ns: u64, cores: usize, out: &mut Vec<Command>) -> bool {
        let Some(topology) = self.topology.clone().filter(|_| self.clamp(cores) != self.visible.len()) else {
            return false;
        };
        self.set_visible(&topology, cores);
        // It has run on this plant, so it supports it.
        self.take_over(now_ns, out).is_ok()
    }

    fn take_over(&mut self, now_ns: u64, out: &mut Vec<Command>) -> Result<(), Unsupported> {
        let Some(topology) = &self.topology else { return Ok(()) };
        let seen = |core: CoreId| self.visible.iter().position(|&visible| visible == core).map(|at| CoreId(at as u16));
        let main = seen(topology.main()).unwrap_or_default();
        let siblings = self.visible.iter().map(|&core| topology.sibling(core).and_then(seen)).collect();
        let Ok(small) = Topology::new(main, siblings) else { return Ok(()) };
        let cores: Vec<_> = self.visible.iter().map(|core| self.cores[core.index()]).collect();
        let homes: Vec<_> =
            (0..self.homes.len()).map(|thread| seen(self.target_home(thread)).unwrap_or(main)).collect();
        let capabilities = self.visible_capabilities();
        let begin = out.len();
        let start = Start {
            now_ns,
            topology: &small,
            capabilities: &capabilities,
            cores: &cores,
            homes: &homes,
            goals: &self.goals,
        };
        self.next = self.policy.start(&start, out)?;
        self.wants = self.policy.wants();
        self.sum.clear();
        self.translate(begin, out);
        Ok(())
    }

    /// Home of an I/O thread after its pending move.
    fn target_home(&self, thread: usize) -> CoreId {
        self.moving_to[thread].unwrap_or(self.homes[thread])
    }

    /// The plant without hidden knobs, with the numbers of visible cores.
    fn visible_capabilities(&self) -> Capabilities {
        let mut capabilities = self.capabilities.clone();
        let seen = |scope: &mut Scope| {
            let Scope::Core(core) = scope else { return true };
            let at = self.visible.iter().position(|visible| visible == core);
            *core = at.map_or(CoreId(u16::MAX), |at| CoreId(at as u16));
            at.is_some()
        };
        for knob in &mut capabilities.knobs {
            if !seen(&mut knob.scope) || self.hidden.contains(&knob.kind) || knob.kind == Kind::Online {
                knob.values = Values::List(Vec::new());
            }
        }
        capabilities.sources.iter_mut().for_each(|source| _ = seen(&mut source.scope));
        capabilities
    }

    /// Translates commands to the plant's numbers of cores.
    fn translate(&mut self, begin: usize, out: &mut [Command]) {
        for command in &mut out[begin..] {
            match command {
                Command::Move { thread, to } => {
                    *to = self.visible[to.index()];
                    self.moving_to[thread.index()] = Some(*to);
                }
                Command::Sleep { core, .. } | Command::Wake { core } => *core = self.visible[core.index()],
                Command::Completions { .. } | Command::Set { .. } => {}
            }
        }
    }

    /// Moves I/O threads off hidden cores, unless `out` moves them, puts those cores to sleep, and sets them offline if possible.
    pub(crate) fn clear_hidden(&mut self, out: &mut Vec<Command>) {
        self.hotplug.set(&self.visible, &self.cores, out);
        let Some(topology) = self.topology.as_ref().filter(|all| all.len() > self.visible.len()) else { return };
        let main = topology.main();
        for thread in 0..self.homes.len() {
            let number = ThreadId(thread as u16);
            let moves = |command: &Command| matches!(command, Command::Move { thread, .. } if *thread == number);
            if !self.visible.contains(&self.target_home(thread)) && !out.iter().any(moves) {
                self.moving_to[thread] = Some(main);
                out.push(Command::Move { thread: number, to: main });
            }
        }
        let goal = SleepGoal::DEEPEST;
        let is_left =
            |core: &CoreId| !self.visible.contains(core) && self.cores[core.index()].state == CoreState::Awake;
        out.extend(topology.workers().filter(is_left).map(|core| Command::Sleep { core, goal }));
    }

    /// Moves I/O threads so that those of the highest class share no core with others.
    pub(crate) fn separate(&mut self, threads: &[ThreadSample], out: &mut Vec<Command>) {
        if self.capabilities.moves.is_none() {
            return;
        }
        let classes: Vec<_> = threads.iter().map(|thread| thread.class).collect();
        let places: Vec<_> = (0..self.homes.len()).map(|thread| self.target_home(thread)).collect();
        for (at, to) in separated(&classes, &places).into_iter().enumerate().filter(|(at, to)| places[*at] != *to) {
            let number = ThreadId(at as u16);
            // Replaces its move, and cancels the sleep of its new core.
            out.retain(|command| match command {
                Command::Move { thread, .. } => *thread != number,
                Command::Sleep { core, .. } => *core != to,
                _ => true,
            });
            self.moving_to[at] = Some(to).filter(|&to| to != self.homes[at]);
            out.extend(self.moving_to[at].map(|to| Command::Move { thread: number, to }));
        }
    }

    /// Records states of cores and homes of I/O threads.
    pub(crate) fn update_state(&mut self, sample: &Sample<'_>) {
        for (known, core) in self.cores.iter_mut().zip(sample.cores) {
            known.state = core.state;
        }
        for ((home, moving_to), thread) in self.homes.iter_mut().zip(&mut self.moving_to).zip(sample.threads) {
            *home = thread.home;
            moving_to.take_if(|to| *to == thread.home);
        }
    }

    pub(crate) fn on_tick(&mut self, tick: &Tick<'_>, out: &mut Vec<Command>) {
        if tick.counts.is_empty() && tick.now_ns < self.next.needed_ns {
            return;
        }
        let begin = out.len();
        self.next = self.policy.on_tick(tick, out);
        self.translate(begin, out);
    }

    pub(crate) fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) {
        if self.wants.interval_ns.is_none() || (is_quiet(sample) && sample.now_ns < self.next().needed_ns) {
            return;
        }
        let began_ns = sample.now_ns.saturating_sub(sample.elapsed_ns);
        if self.sum.elapsed_ns() == 0 {
            self.due_ns = self.schedule.map_or(0, |schedule| schedule.after(began_ns));
        }
        self.sum.add(sample);
        if sample.now_ns < self.due_ns && sample.now_ns < self.next.needed_ns {
            return;
        }
        let begin = out.len();
        let seen = self.sum.seen(sample, &self.visible, self.topology.as_ref(), &self.wants);
        self.next = self.policy.on_interval(&seen, out);
        self.sum.clear();
        self.translate(begin, out);
    }

    /// A long round of a visible core: an interval that ends early.
    pub(crate) fn on_long_round(&mut self, long: LongRound, sample: &Sample<'_>, out: &mut Vec<Command>) {
        self.sum.add(sample);
        let Some(core) = self.visible.iter().position(|&visible| visible == long.core) else { return };
        let begin = out.len();
        let seen = self.sum.seen(sample, &self.visible, self.topology.as_ref(), &self.wants);
        self.next = self.policy.on_long_round(LongRound { core: CoreId(core as u16), ..long }, &seen, out);
        self.sum.clear();
        self.translate(begin, out);
    }

    pub(crate) fn on_goals(&mut self, now_ns: u64, goals: &Goals, out: &mut Vec<Command>) {
        let goals = without_budget(goals);
        if goals == self.goals {
            return;
        }
        self.goals = goals;
        let begin = out.len();
        self.policy.on_goals(now_ns, &self.goals, out);
        self.wants = self.policy.wants();
        self.translate(begin, out);
        self.next.needed_ns = now_ns;
    }

    pub(crate) fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.capabilities = capabilities.clone();
        self.hotplug.find(capabilities);
        let (seen, begin) = (self.visible_capabilities(), out.len());
        self.policy.on_plant(now_ns, &seen, out);
        self.wants = self.policy.wants();
        self.translate(begin, out);
        self.next.needed_ns = now_ns;
    }

    pub(crate) fn on_refused(&mut self, now_ns: u64, command: &Command, refusal: Refusal) {
        if matches!(*command, Command::Set { knob, value } if self.hotplug.on_refused(knob, value)) {
            return;
        }
        let seen = |core: CoreId| self.visible.iter().position(|&visible| visible == core).map(|at| CoreId(at as u16));
        let command = match *command {
            Command::Move { thread, to } => {
                self.moving_to[thread.index()].take_if(|moving_to| *moving_to == to);
                seen(to).map(|to| Command::Move { thread, to })
            }
            Command::Sleep { core, goal } => seen(core).map(|core| Command::Sleep { core, goal }),
            Command::Wake { core } => seen(core).map(|core| Command::Wake { core }),
            Command::Completions { .. } | Command::Set { .. } => Some(*command),
        };
        if let Some(command) = command {
            self.policy.on_refused(now_ns, &command, refusal);
        }
    }

    pub(crate) fn on_resume(&mut self, now_ns: u64) {
        self.policy.on_resume(now_ns);
    }

    /// Its next needed call; an interval with requests that has not ended is needed.
    pub(crate) fn next(&self) -> Next {
        let due_ns = if self.sum.elapsed_ns() > 0 { self.due_ns } else { NEVER };
        let switch_ns = if self.hotplug.has_pending(&self.visible) { 0 } else { NEVER };
        Next { needed_ns: self.next.needed_ns.min(due_ns).min(switch_ns), ..self.next }
    }
}

/// The goals without the budget, which the limiter enforces.
fn without_budget(goals: &Goals) -> Goals {
    Goals { budget_uw: None, ..goals.clone() }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use pilotlight_plant::{Cost, Depth, Knob, KnobId, SleepCost};

    use super::*;

    /// Moves its first I/O thread to the main core, and records its input.
    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Seen>>);

    #[derive(Default)]
    struct Seen {
        cores: usize,
        homes: Vec<CoreId>,
        knobs: Vec<(Scope, bool)>,
        budget_uw: Option<u64>,
        interval: Option<(u64, u64, CoreId)>,
    }

    impl Policy for Recorder {
        fn name(&self) -> &'static str {
            "recorder"
        }

        fn wants(&self) -> Wants {
            Wants { interval_ns: Some(100), ..Wants::default() }
        }

        fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
            let mut seen = self.0.lock().unwrap();
            seen.cores = start.topology.len();
            seen.homes = start.homes.to_vec();
            let knob = |knob: &Knob| (knob.scope, knob.values.lowest().is_some());
            seen.knobs = start.capabilities.knobs.iter().map(knob).collect();
            seen.budget_uw = start.goals.budget_uw;
            out.push(Command::Move { thread: ThreadId(0), to: start.topology.main() });
            Ok(Next::NEVER)
        }

        fn on_interval(&mut self, sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
            let thread = sample.threads[0];
            self.0.lock().unwrap().interval = Some((sample.elapsed_ns, thread.requests, thread.home));
            Next::NEVER
        }
    }

    fn capabilities() -> Capabilities {
        let knob = |scope, kind| Knob {
            scope,
            kind,
            values: Values::List(vec![1, 2]),
            initial: 2,
            caller: Cost::Measured(0),
            effect: Cost::Measured(0),
        };
        let knobs = (0..4).map(|core| knob(Scope::Core(CoreId(core)), Kind::FrequencyKhz));
        let sleep = SleepCost { depth: Depth::SoftwareWait, waker: Cost::Measured(0), wake: Cost::Measured(30_000) };
        Capabilities {
            knobs: knobs.chain([knob(Scope::Server, Kind::QuotaPpm)]).collect(),
            moves: Some(Cost::Measured(1)),
            sleeps: vec![sleep],
            ..Capabilities::default()
        }
    }

    /// Four cores, of which the last is the main core; one I/O thread on each.
    fn inner(policy: &Recorder, cores: usize, out: &mut Vec<Command>) -> Inner {
        let mut inner = Inner::new(Box::new(policy.clone()), &[Kind::QuotaPpm]);
        let topology = Topology::new(CoreId(3), vec![None; 4]).unwrap();
        let states = [CoreSample::new(CoreState::Awake); 4];
        let homes: Vec<_> = (0..4).map(CoreId).collect();
        let goals = Goals { budget_uw: Some(1), ..Goals::default() };
        let capabilities = capabilities();
        let start = Start {
            now_ns: 0,
            topology: &topology,
            capabilities: &capabilities,
            cores: &states,
            homes: &homes,
            goals: &goals,
        };
        inner.start(&start, cores, 10, out).unwrap();
        inner.clear_hidden(out);
        inner
    }

    #[test]
    fn the_visible_plant_is_smaller_and_commands_are_translated() {
        let (policy, mut out) = (Recorder::default(), Vec::new());
        let mut inner = inner(&policy, 2, &mut out);
        let to_main = |thread| Command::Move { thread: ThreadId(thread), to: CoreId(3) };
        let sleep = |core| Command::Sleep { core: CoreId(core), goal: SleepGoal::DEEPEST };
        assert_eq!(out, [to_main(0), to_main(1), to_main(2), sleep(1), sleep(2)]);
        {
            let seen = policy.0.lock().unwrap();
            assert_eq!((seen.cores, seen.budget_uw), (2, None));
            assert_eq!(
                seen.homes,
                [0, 1, 1, 1].map(CoreId),
                "I/O threads on hidden cores are reported on the main core"
            );
            let frequency = |core, there| (Scope::Core(CoreId(core)), there);
            let hidden = frequency(u16::MAX, false);
            assert_eq!(seen.knobs, [frequency(0, true), hidden, hidden, frequency(1, true), (Scope::Server, false)]);
        }
        out.clear();
        assert!(inner.limit_cores(5, 4, &mut out) && !inner.limit_cores(5, 9, &mut out));
        assert_eq!((policy.0.lock().unwrap().cores, &out[..]), (4, &[to_main(0)][..]));
    }

    #[test]
    fn intervals_are_added_up_and_those_without_requests_skipped() {
        let (policy, mut out) = (Recorder::default(), Vec::new());
        let mut inner = inner(&policy, 2, &mut out);
        for (now_ns, requests) in [(10, 0), (20, 3), (30, 0), (90, 2), (100, 1)] {
            let thread = ThreadSample { home: CoreId(3), requests, ..ThreadSample::default() };
            let cores = [CoreSample::new(CoreState::Awake); 4];
            let sample = Sample { now_ns, elapsed_ns: 10, cores: &cores, threads: &[thread; 4], readings: &[] };
            inner.on_interval(&sample, &mut out);
            assert_eq!(policy.0.lock().unwrap().interval.is_some(), now_ns == 100, "at {now_ns}");
        }
        assert_eq!(policy.0.lock().unwrap().interval, Some((30, 6, CoreId(1))));
    }

    #[test]
    fn a_core_that_gets_an_io_thread_of_its_class_stays_awake() {
        let (policy, mut out) = (Recorder::default(), Vec::new());
        let mut inner = inner(&policy, 4, &mut out);
        let sleep = |core| Command::Sleep { core: CoreId(core), goal: SleepGoal::DEEPEST };
        out = vec![sleep(1), sleep(2)];
        // I/O thread 0 is on its way to core 3, which has I/O thread 3.
        let classes = [Some(5), Some(5), Some(0), Some(0)];
        inner.separate(&classes.map(|class| ThreadSample { class, ..ThreadSample::default() }), &mut out);
        let gets =
            |to: CoreId| out.iter().any(|command| matches!(command, Command::Move { to: there, .. } if *there == to));
        assert!(gets(CoreId(1)) || gets(CoreId(2)), "{out:?}");
        for core in [CoreId(1), CoreId(2)] {
            assert_eq!(out.contains(&sleep(core.0)), !gets(core), "{out:?}");
        }
    }

    #[test]
    fn a_refused_command_is_reported_with_visible_core_numbers() {
        let (policy, mut out) = (Recorder::default(), Vec::new());
        let mut inner = inner(&policy, 2, &mut out);
        inner.on_refused(1, &Command::Move { thread: ThreadId(1), to: CoreId(3) }, Refusal::Failed);
        out.clear();
        inner.clear_hidden(&mut out);
        assert_eq!(out[0], Command::Move { thread: ThreadId(1), to: CoreId(3) }, "it is moved again");
        inner.on_refused(1, &Command::Set { knob: KnobId(0), value: 1 }, Refusal::Failed);
    }
}
