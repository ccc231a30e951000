//! The inner policy of a limiter, and the plant that it sees.
//!
//! **Cores.** The plant that it sees has the main core and the first of the workers, numbered without gaps. When their number changes it takes that
//! plant over as it is, as any policy takes over a plant ([`Policy::start`]). I/O threads on cores that it does not see are shown on the main core; those that it leaves there
//! are moved there. The other cores sleep.
//! **Quiet times.** It is never told of a quiet tick or interval that it does not need, whether the plant leaves that out or not; so what is
//! left out changes nothing. Where it wants longer intervals than the limiter, several are added up.

use pilotlight_plant::{
    Capabilities, Command, Component, CoreId, CoreSample, CoreState, Goal, Goals, Kind, NEVER, Next, Policy, Refusal,
    Sample, Scope, SleepGoal, Start, ThreadId, ThreadSample, Tick, Topology, Unreachable, Unsupported, Values, View,
    Wants,
};

use super::separate::separated;
use super::sum::Sum;
use crate::grid::Grid;
use crate::load::is_quiet;
use crate::switches::Switches;

/// An inner policy.
pub(crate) struct Inner {
    policy: Box<dyn Policy>,
    /// Kinds of knobs that it does not have.
    hidden: &'static [Kind],
    wants: Wants,
    next: Next,
    goals: Goals,
    /// The whole plant; `None` before the start.
    topology: Option<Topology>,
    capabilities: Capabilities,
    /// The cores that it sees, by the number that it sees them under.
    shown: Vec<CoreId>,
    /// State of each core, home of each I/O thread, and to where it was told to move since.
    cores: Vec<CoreSample>,
    homes: Vec<CoreId>,
    going: Vec<Option<CoreId>>,
    switches: Switches,
    /// Its intervals; `None` if it wants all that there are.
    grid: Option<Grid>,
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
            shown: Vec::new(),
            cores: Vec::new(),
            homes: Vec::new(),
            going: Vec::new(),
            switches: Switches::default(),
            grid: None,
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

    /// How many cores it sees.
    pub(crate) fn cores(&self) -> usize {
        self.shown.len()
    }

    /// As many cores as it can be limited to: all, where I/O threads cannot be moved or cores cannot sleep.
    pub(crate) fn clamp(&self, cores: usize) -> usize {
        let can = self.capabilities.moves.is_some() && !self.capabilities.sleeps.is_empty();
        if can { cores.clamp(1, self.cores.len().max(1)) } else { self.cores.len() }
    }

    /// Takes over a plant, of which it sees so many cores; `limiter_ns` is the limiter's interval.
    pub(crate) fn start(
        &mut self,
        start: &Start<'_>,
        cores: usize,
        limiter_ns: u64,
        out: &mut Vec<Command>,
    ) -> Result<(), Unsupported> {
        self.topology = Some(start.topology.clone());
        self.capabilities = start.capabilities.clone();
        self.switches.find(start.capabilities);
        self.cores = start.cores.to_vec();
        self.homes = start.homes.to_vec();
        self.going = vec![None; start.homes.len()];
        self.goals = without_budget(start.goals);
        self.show(start.topology, cores);
        self.take_over(start.now_ns, out)?;
        let longer = self.wants.interval_ns.filter(|&interval_ns| interval_ns > limiter_ns);
        self.grid = longer.map(|every_ns| Grid { start_ns: start.now_ns, every_ns });
        Ok(())
    }

    fn show(&mut self, topology: &Topology, cores: usize) {
        self.shown = topology.workers().take(self.clamp(cores).saturating_sub(1)).chain([topology.main()]).collect();
        self.shown.sort_unstable();
    }

    /// Lets it see so many cores from now on; whether that is another number than before.
    pub(crate) fn limit_cores(&mut self, now_ns: u64, cores: usize, out: &mut Vec<Command>) -> bool {
        let Some(topology) = self.topology.clone().filter(|_| self.clamp(cores) != self.shown.len()) else {
            return false;
        };
        self.show(&topology, cores);
        // What it could do with other cores it can do with these.
        self.take_over(now_ns, out).is_ok()
    }

    fn take_over(&mut self, now_ns: u64, out: &mut Vec<Command>) -> Result<(), Unsupported> {
        let Some(topology) = &self.topology else { return Ok(()) };
        let seen = |core: CoreId| self.shown.iter().position(|&shown| shown == core).map(|at| CoreId(at as u16));
        let main = seen(topology.main()).unwrap_or_default();
        let siblings = self.shown.iter().map(|&core| topology.sibling(core).and_then(seen)).collect();
        let Ok(small) = Topology::new(main, siblings) else { return Ok(()) };
        let cores: Vec<_> = self.shown.iter().map(|core| self.cores[core.index()]).collect();
        let homes: Vec<_> = (0..self.homes.len()).map(|thread| seen(self.place(thread)).unwrap_or(main)).collect();
        let capabilities = self.seen_capabilities();
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

    /// Where an I/O thread is, or will be.
    fn place(&self, thread: usize) -> CoreId {
        self.going[thread].unwrap_or(self.homes[thread])
    }

    /// The plant without the hidden knobs, and with the numbers of the cores that it sees.
    fn seen_capabilities(&self) -> Capabilities {
        let mut capabilities = self.capabilities.clone();
        let seen = |scope: &mut Scope| {
            let Scope::Core(core) = scope else { return true };
            let at = self.shown.iter().position(|shown| shown == core);
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

    /// What it has commanded, with the plant's numbers of cores.
    fn translate(&mut self, begin: usize, out: &mut [Command]) {
        for command in &mut out[begin..] {
            match command {
                Command::Move { thread, to } => {
                    *to = self.shown[to.index()];
                    self.going[thread.index()] = Some(*to);
                }
                Command::Sleep { core, .. } | Command::Wake { core } => *core = self.shown[core.index()],
                Command::Completions { .. } | Command::Set { .. } => {}
            }
        }
    }

    /// Moves I/O threads off cores that it does not see, unless `out` moves them, and lets those cores sleep, and leave where they can.
    pub(crate) fn clear_hidden(&mut self, out: &mut Vec<Command>) {
        self.switches.set(&self.shown, &self.cores, out);
        let Some(topology) = self.topology.as_ref().filter(|all| all.len() > self.shown.len()) else { return };
        let main = topology.main();
        for thread in 0..self.homes.len() {
            let number = ThreadId(thread as u16);
            let moves = |command: &Command| matches!(command, Command::Move { thread, .. } if *thread == number);
            if !self.shown.contains(&self.place(thread)) && !out.iter().any(moves) {
                self.going[thread] = Some(main);
                out.push(Command::Move { thread: number, to: main });
            }
        }
        let goal = SleepGoal::DEEPEST;
        let is_left = |core: &CoreId| !self.shown.contains(core) && self.cores[core.index()].state == CoreState::Awake;
        out.extend(topology.workers().filter(is_left).map(|core| Command::Sleep { core, goal }));
    }

    /// Moves I/O threads so that those of the highest class share no core with others.
    pub(crate) fn separate(&mut self, threads: &[ThreadSample], out: &mut Vec<Command>) {
        if self.capabilities.moves.is_none() {
            return;
        }
        let classes: Vec<_> = threads.iter().map(|thread| thread.class).collect();
        let places: Vec<_> = (0..self.homes.len()).map(|thread| self.place(thread)).collect();
        for (at, to) in separated(&classes, &places).into_iter().enumerate().filter(|(at, to)| places[*at] != *to) {
            let number = ThreadId(at as u16);
            // Neither its own move stays, nor the order to sleep of the core that now has it.
            out.retain(|command| match command {
                Command::Move { thread, .. } => *thread != number,
                Command::Sleep { core, .. } => *core != to,
                _ => true,
            });
            self.going[at] = Some(to).filter(|&to| to != self.homes[at]);
            out.extend(self.going[at].map(|to| Command::Move { thread: number, to }));
        }
    }

    /// Where cores and I/O threads are.
    pub(crate) fn note_state(&mut self, sample: &Sample<'_>) {
        for (known, core) in self.cores.iter_mut().zip(sample.cores) {
            known.state = core.state;
        }
        for ((home, going), thread) in self.homes.iter_mut().zip(&mut self.going).zip(sample.threads) {
            *home = thread.home;
            going.take_if(|to| *to == thread.home);
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
            self.due_ns = self.grid.map_or(0, |grid| grid.after(began_ns));
        }
        self.sum.add(sample);
        if sample.now_ns < self.due_ns && sample.now_ns < self.next.needed_ns {
            return;
        }
        let begin = out.len();
        let seen = self.sum.seen(sample, &self.shown, self.topology.as_ref(), &self.wants);
        self.next = self.policy.on_interval(&seen, out);
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
        self.switches.find(capabilities);
        let (seen, begin) = (self.seen_capabilities(), out.len());
        self.policy.on_plant(now_ns, &seen, out);
        self.wants = self.policy.wants();
        self.translate(begin, out);
        self.next.needed_ns = now_ns;
    }

    pub(crate) fn on_refused(&mut self, now_ns: u64, command: &Command, refusal: Refusal) {
        if matches!(*command, Command::Set { knob, value } if self.switches.on_refused(knob, value)) {
            return;
        }
        let seen = |core: CoreId| self.shown.iter().position(|&shown| shown == core).map(|at| CoreId(at as u16));
        let command = match *command {
            Command::Move { thread, to } => {
                self.going[thread.index()].take_if(|going| *going == to);
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

    /// Its last answer; an interval with requests that has not ended is needed.
    pub(crate) fn next(&self) -> Next {
        let due_ns = if self.sum.elapsed_ns() > 0 { self.due_ns } else { NEVER };
        let switch_ns = if self.switches.are_due(&self.shown) { 0 } else { NEVER };
        Next { needed_ns: self.next.needed_ns.min(due_ns).min(switch_ns), ..self.next }
    }
}

/// What the operator asks for without the budget, which is the limiter's.
fn without_budget(goals: &Goals) -> Goals {
    Goals { budget_uw: None, ..goals.clone() }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use pilotlight_plant::{Cost, Depth, Knob, KnobId, SleepCost};

    use super::*;

    /// Moves its first I/O thread to the main core, and notes what it sees.
    #[derive(Clone, Default)]
    struct Gathers(Arc<Mutex<Seen>>);

    #[derive(Default)]
    struct Seen {
        cores: usize,
        homes: Vec<CoreId>,
        knobs: Vec<(Scope, bool)>,
        budget_uw: Option<u64>,
        interval: Option<(u64, u64, CoreId)>,
    }

    impl Policy for Gathers {
        fn name(&self) -> &'static str {
            "gathers"
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
    fn inner(policy: &Gathers, cores: usize, out: &mut Vec<Command>) -> Inner {
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
    fn it_sees_a_smaller_plant_and_its_commands_are_for_the_whole_one() {
        let (policy, mut out) = (Gathers::default(), Vec::new());
        let mut inner = inner(&policy, 2, &mut out);
        let to_main = |thread| Command::Move { thread: ThreadId(thread), to: CoreId(3) };
        let sleep = |core| Command::Sleep { core: CoreId(core), goal: SleepGoal::DEEPEST };
        assert_eq!(out, [to_main(0), to_main(1), to_main(2), sleep(1), sleep(2)]);
        {
            let seen = policy.0.lock().unwrap();
            assert_eq!((seen.cores, seen.budget_uw), (2, None));
            assert_eq!(seen.homes, [0, 1, 1, 1].map(CoreId), "what is on hidden cores is shown on the main core");
            let frequency = |core, there| (Scope::Core(CoreId(core)), there);
            let hidden = frequency(u16::MAX, false);
            assert_eq!(seen.knobs, [frequency(0, true), hidden, hidden, frequency(1, true), (Scope::Server, false)]);
        }
        out.clear();
        assert!(inner.limit_cores(5, 4, &mut out) && !inner.limit_cores(5, 9, &mut out));
        assert_eq!((policy.0.lock().unwrap().cores, &out[..]), (4, &[to_main(0)][..]));
    }

    #[test]
    fn intervals_are_added_up_to_the_length_that_it_wants_and_quiet_ones_left_out() {
        let (policy, mut out) = (Gathers::default(), Vec::new());
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
    fn a_core_that_gets_an_io_thread_of_its_class_is_not_told_to_sleep() {
        let (policy, mut out) = (Gathers::default(), Vec::new());
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
    fn a_refused_command_is_told_with_the_numbers_that_it_knows() {
        let (policy, mut out) = (Gathers::default(), Vec::new());
        let mut inner = inner(&policy, 2, &mut out);
        inner.on_refused(1, &Command::Move { thread: ThreadId(1), to: CoreId(3) }, Refusal::Failed);
        out.clear();
        inner.clear_hidden(&mut out);
        assert_eq!(out[0], Command::Move { thread: ThreadId(1), to: CoreId(3) }, "it is moved again");
        inner.on_refused(1, &Command::Set { knob: KnobId(0), value: 1 }, Refusal::Failed);
    }
}
