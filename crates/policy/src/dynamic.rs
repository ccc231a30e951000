//! `dynamic`: threads with little load share the main core, the others fill the first cores, and cores without threads sleep
//! in the kernel (SPDK's `dynamic` scheduler, spdk.io/doc/scheduler.html; SANDMAN sections 3.1 and 3.5).
//!
//! **Words.** A thread's *load* is its busy time over its busy and idle time in the last interval, a core's likewise. A thread
//! is *active* from `load_limit` on. A core is *at its limit* if it has more than one thread and a load from `core_limit` on.
//!
//! **Steps** at the end of each interval, each on what the one before has left, threads in the order of their cores:
//!
//! 1. Threads that are not active go to the main core.
//! 2. An active thread goes to the first core, in order, that can take it and stay under `core_limit`: to the main core always;
//!    from a worker to a lower one; from a core at its limit to any. A core without threads can always take one. Where a
//!    core at its limit finds none, the thread goes to the least busy core.
//! 3. Workers that had no thread and got none sleep. One that a thread comes to is woken.
//!
//! A thread that leaves a core with a load from `core_busy` on does not bring it under `core_limit`: those that stay will
//! take the time.
//!
//! Nothing is smoothed: an interval of 10 us holds a few polls, and what they say is acted upon, as in SPDK. That is what
//! SANDMAN section 3.5 observes of it.
//!
//! **Properties.** The main core is never told to sleep, and no core that gets a thread is. A thread moves at most once in an
//! interval. Where nothing arrived and nothing was in progress there is no load, so a quiet interval can be left out once
//! all threads are on the main core, all workers asleep, and nothing is on its way.

use pilotlight_plant::{
    Command, CompletionMode, CoreId, CoreState, NEVER, Next, Policy, Refusal, Sample, SleepGoal, Start, ThreadId,
    Topology, Unsupported, View, Wants,
};

use crate::grid::Grid;
use crate::load::{Limits, Load, is_quiet};
use crate::parameter::{self, PERCENT, Parameter, ParameterError, Setting, TIME, put, text, time};
use crate::sleep::Sleep;

/// The name by which an operator chooses it.
pub const NAME: &str = "dynamic";

/// What can be set. Loads are in millionths of a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Time between two looks, in nanoseconds.
    pub interval_ns: u64,
    /// From this load on a thread is active.
    pub load_limit_ppm: u32,
    /// No core is to reach this load.
    pub core_limit_ppm: u32,
    /// From this load on threads of a core hold each other up.
    pub core_busy_ppm: u32,
    /// What the load of a thread is a share of.
    pub thread_load: ThreadLoad,
    /// How cores without threads sleep.
    pub sleep: Sleep,
}

/// What the load of a thread is a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadLoad {
    /// Its own busy time and its even part of the core's idle time.
    Own,
    /// The whole time that its core was awake.
    Core,
}

impl Default for Parameters {
    /// SANDMAN's interval, SPDK's limits.
    fn default() -> Self {
        Self {
            interval_ns: 10_000,
            load_limit_ppm: 200_000,
            core_limit_ppm: 800_000,
            core_busy_ppm: 950_000,
            thread_load: ThreadLoad::Own,
            sleep: Sleep::Software,
        }
    }
}

const TABLE: [Parameter<Parameters>; 6] = [
    Parameter {
        key: "interval",
        meaning: "time between two looks at load (SANDMAN 3.5: 10us; SPDK: 1s)",
        allowed: TIME,
        get: |p| text::in_units(p.interval_ns),
        set: |p, v| time(&mut p.interval_ns, v),
    },
    Parameter {
        key: "load_limit",
        meaning: "load from which an I/O thread is active; under it, it goes to the main core (SPDK: 20%)",
        allowed: PERCENT,
        get: |p| text::in_percent(p.load_limit_ppm),
        set: |p, v| put(&mut p.load_limit_ppm, text::percent(v)),
    },
    Parameter {
        key: "core_limit",
        meaning: "load that no core is to reach (SPDK: 80%)",
        allowed: PERCENT,
        get: |p| text::in_percent(p.core_limit_ppm),
        set: |p, v| put(&mut p.core_limit_ppm, text::percent(v)),
    },
    Parameter {
        key: "core_busy",
        meaning: "load from which a core's I/O threads hold each other up, so that one that leaves frees nothing (SPDK: 95%)",
        allowed: PERCENT,
        get: |p| text::in_percent(p.core_busy_ppm),
        set: |p, v| put(&mut p.core_busy_ppm, text::percent(v)),
    },
    Parameter {
        key: "thread_load",
        meaning: "an I/O thread's load is over its own polls (own, SPDK), or over all of its core's time (core)",
        allowed: "own or core",
        get: |p| if p.thread_load == ThreadLoad::Own { "own" } else { "core" }.to_owned(),
        set: |p, v| put(&mut p.thread_load, thread_load(v)),
    },
    Parameter {
        key: "sleep",
        meaning: "how a core without I/O threads sleeps: in the kernel (software; SPDK, SANDMAN 3.5), or in a wait \
                  instruction (monitor)",
        allowed: "software or monitor",
        get: |p| p.sleep.name().to_owned(),
        set: |p, v| put(&mut p.sleep, Sleep::read(v).filter(|sleep| *sleep != Sleep::Goal)),
    },
];

fn thread_load(value: &str) -> Option<ThreadLoad> {
    match value {
        "own" => Some(ThreadLoad::Own),
        "core" => Some(ThreadLoad::Core),
        _ => None,
    }
}

impl Parameters {
    /// With these set, in this order.
    ///
    /// # Errors
    /// If there is no such parameter, a value is not allowed, or the limits are not in order.
    pub fn read(settings: &[(&str, &str)]) -> Result<Self, ParameterError> {
        let read = parameter::read(NAME, &TABLE, settings)?;
        if read.core_limit_ppm > read.core_busy_ppm {
            return Err(ParameterError::Together("core_limit must not be above core_busy".to_owned()));
        }
        Ok(read)
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<Setting> {
        parameter::list(&TABLE, self)
    }
}

/// The policy.
#[derive(Debug)]
pub struct Dynamic {
    parameters: Parameters,
    /// From [`Policy::start`] on.
    running: Option<Running>,
    counters: Counters,
}

/// What it has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    moves: u64,
    sleeps: u64,
    wakes: u64,
    refused: u64,
}

#[derive(Debug)]
struct Running {
    topology: Topology,
    limits: Limits,
    grid: Grid,
    goal: SleepGoal,
    due_ns: u64,
    /// Where each thread was sent and has not been seen since.
    on_the_way: Vec<Option<CoreId>>,
    plan: Plan,
}

/// Where threads should live; room that is kept from interval to interval.
#[derive(Debug, Default)]
struct Plan {
    loads: Vec<Load>,
    /// Threads by core, then by number.
    order: Vec<ThreadId>,
    /// Of each thread: its home, its busy time, and whether it is active.
    threads: Vec<(CoreId, u64, bool)>,
}

impl Dynamic {
    /// With these parameters.
    #[must_use]
    pub fn new(parameters: Parameters) -> Self {
        Self { parameters, running: None, counters: Counters::default() }
    }

    fn unsupported(what: &'static str) -> Unsupported {
        Unsupported { policy: NAME, feature: what, remedy: "choose policy static or interrupt" }
    }
}

impl Plan {
    /// What the sample shows.
    fn see(&mut self, sample: &Sample<'_>, parameters: &Parameters) {
        self.loads.clear();
        self.loads.extend(sample.cores.iter().map(Load::of_core));
        for thread in sample.threads {
            self.loads[thread.home.index()].threads += 1;
        }
        let quiet = is_quiet(sample);
        let loads = &self.loads;
        self.threads.clear();
        self.threads.extend(sample.threads.iter().map(|thread| {
            let home = &loads[thread.home.index()];
            let load_ppm = match parameters.thread_load {
                ThreadLoad::Own => home.of_thread(thread.busy_ns),
                ThreadLoad::Core => crate::load::share(thread.busy_ns, home.busy_ns + home.idle_ns),
            };
            let active = !quiet && thread.busy_ns > 0 && load_ppm >= u64::from(parameters.load_limit_ppm);
            (thread.home, thread.busy_ns, active)
        }));
        self.order.clear();
        self.order.extend((0..sample.threads.len()).map(|thread| ThreadId(thread as u16)));
        let threads = &self.threads;
        self.order.sort_unstable_by_key(|thread| (threads[thread.index()].0, *thread));
    }

    /// Both passes over all threads.
    fn make(&mut self, topology: &Topology, limits: &Limits) {
        for active in [false, true] {
            for at in 0..self.order.len() {
                let thread = self.order[at];
                if self.threads[thread.index()].2 == active {
                    let to = if active { self.home_for(thread, topology, limits) } else { topology.main() };
                    self.move_to(thread, to, limits);
                }
            }
        }
    }

    /// The core that an active thread should live on.
    fn home_for(&self, thread: ThreadId, topology: &Topology, limits: &Limits) -> CoreId {
        let (home, busy_ns, _) = self.threads[thread.index()];
        let full = self.loads[home.index()].is_at_limit(limits);
        let better = |core: &CoreId| {
            let lower = *core < home && home != topology.main();
            let preferred = *core == topology.main() || lower || full;
            *core != home && preferred && self.loads[core.index()].can_take(busy_ns, limits)
        };
        if let Some(core) = topology.cores().find(better) {
            return core;
        }
        let least_busy = || topology.cores().min_by_key(|&core| (self.loads[core.index()].busy_ns, core != home, core));
        if full { least_busy().unwrap_or(home) } else { home }
    }

    fn move_to(&mut self, thread: ThreadId, to: CoreId, limits: &Limits) {
        let (home, busy_ns, _) = &mut self.threads[thread.index()];
        if *home != to {
            self.loads[home.index()].lose(*busy_ns, limits);
            self.loads[to.index()].gain(*busy_ns);
            *home = to;
        }
    }
}

impl Running {
    /// From what is to what should be: wake-ups, moves, sleep.
    fn command(&mut self, sample: &Sample<'_>, counters: &mut Counters, out: &mut Vec<Command>) {
        let asleep = |core: CoreId| sample.cores[core.index()].state != CoreState::Awake;
        let loads = &self.plan.loads;
        for core in self.topology.cores().filter(|core| loads[core.index()].threads > 0 && asleep(*core)) {
            out.push(Command::Wake { core });
            counters.wakes += 1;
        }
        for (at, thread) in sample.threads.iter().enumerate() {
            let to = self.plan.threads[at].0;
            if thread.home != to {
                out.push(Command::Move { thread: ThreadId(at as u16), to });
                self.on_the_way[at] = Some(to);
                counters.moves += 1;
            }
        }
        let owned = |core: CoreId| sample.threads.iter().any(|thread| thread.home == core);
        let comes = |core: CoreId| self.on_the_way.contains(&Some(core));
        let empty =
            |core: &CoreId| loads[core.index()].threads == 0 && !asleep(*core) && !owned(*core) && !comes(*core);
        for core in self.topology.workers().filter(empty) {
            out.push(Command::Sleep { core, goal: self.goal });
            counters.sleeps += 1;
        }
    }

    /// Whether a quiet interval changes nothing, as far as a sample shows.
    fn rests(&self, sample: &Sample<'_>) -> bool {
        let main = self.topology.main();
        sample.threads.iter().all(|thread| thread.home == main)
            && self.topology.workers().all(|core| sample.cores[core.index()].state != CoreState::Awake)
            && self.on_the_way.iter().all(Option::is_none)
    }

    fn see_arrivals(&mut self, sample: &Sample<'_>) {
        for (on_the_way, thread) in self.on_the_way.iter_mut().zip(sample.threads) {
            if *on_the_way == Some(thread.home) {
                *on_the_way = None;
            }
        }
    }
}

impl Policy for Dynamic {
    fn name(&self) -> &'static str {
        NAME
    }

    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(self.parameters.interval_ns), service: true, ..Wants::default() }
    }

    /// Threads poll, and stay where they are until there is something to go by; those on a core that sleeps go to the main core.
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        if start.capabilities.moves.is_none() {
            return Err(Self::unsupported("I/O threads that can be moved"));
        }
        let Some(goal) = self.parameters.sleep.goal(start.capabilities, 0) else {
            return Err(Self::unsupported(self.parameters.sleep.what()));
        };
        let mut on_the_way = vec![None; start.homes.len()];
        for (thread, &home) in start.homes.iter().enumerate() {
            let (number, to) = (ThreadId(thread as u16), start.topology.main());
            out.push(Command::Completions { thread: number, mode: CompletionMode::Poll });
            if start.cores[home.index()].state != CoreState::Awake {
                out.push(Command::Move { thread: number, to });
                on_the_way[thread] = Some(to);
            }
        }
        let grid = Grid { start_ns: start.now_ns, every_ns: self.parameters.interval_ns };
        let due_ns = grid.after(start.now_ns);
        let limits = Limits {
            core_ppm: u64::from(self.parameters.core_limit_ppm),
            busy_ppm: u64::from(self.parameters.core_busy_ppm),
        };
        let (topology, plan) = (start.topology.clone(), Plan::default());
        self.running = Some(Running { topology, limits, grid, goal, due_ns, on_the_way, plan });
        Ok(Next::at(due_ns))
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let Some(running) = &mut self.running else { return Next::NEVER };
        running.see_arrivals(sample);
        running.plan.see(sample, &self.parameters);
        running.plan.make(&running.topology, &running.limits);
        let before = out.len();
        running.command(sample, &mut self.counters, out);
        let rests = out.len() == before && running.rests(sample);
        running.due_ns = if rests { NEVER } else { running.grid.after(sample.now_ns) };
        Next::at(running.due_ns)
    }

    fn on_refused(&mut self, _now_ns: u64, command: &Command, _refusal: Refusal) {
        self.counters.refused += 1;
        if let (Some(running), Command::Move { thread, to }) = (&mut self.running, command)
            && let Some(on_the_way) = running.on_the_way.get_mut(thread.index())
            && *on_the_way == Some(*to)
        {
            *on_the_way = None;
        }
    }

    fn view(&self) -> View {
        let used = |running: &Running| running.plan.loads.iter().filter(|load| load.threads > 0).count();
        vec![
            ("cores with I/O threads", self.running.as_ref().map_or(0, used).to_string()),
            ("moves", self.counters.moves.to_string()),
            ("cores put to sleep", self.counters.sleeps.to_string()),
            ("cores woken", self.counters.wakes.to_string()),
            ("commands refused", self.counters.refused.to_string()),
        ]
    }
}
