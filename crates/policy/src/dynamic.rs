//! `dynamic`: threads with little load share the main core, the others fill the first cores, and cores without threads sleep in the kernel
//! (SPDK's `dynamic` scheduler, spdk.io/doc/scheduler.html; SANDMAN sections 3.1 and 3.5).
//!
//! **Terms.** The *load* of a thread is its busy time over its busy and idle time in the last interval; likewise for a core. A thread is
//! *active* from `load_limit` on. A core is *at its limit* if it has more than one thread and a load from `core_limit` on.
//!
//! **Steps** at the end of each interval, in this order, threads in the order of their cores:
//!
//! 1. Threads that are not active go to the main core.
//! 2. An active thread goes to the first core, in order, that can take it and stay below `core_limit`: to the main core always; from a
//!    worker to a lower one; from a core at its limit to any. A core without threads can always take one. If a core at its limit finds
//!    none, the thread goes to the least busy core.
//! 3. Workers that had no thread and got none sleep. A worker that gets a thread is woken.
//!
//! A thread that leaves a core with a load from `core_busy` on does not bring it below `core_limit`: the remaining threads will use the time.
//!
//! Nothing is smoothed, as in SPDK: an interval of 10 us contains only a few polls. SANDMAN section 3.5 observes the effect.
//!
//! **Properties.** The main core and cores that get a thread are never commanded to sleep. A thread moves at most once in an interval. An
//! interval without requests can be skipped once all threads are on the main core, all workers asleep, and no move is pending.

use pilotlight_plant::{
    Command, CompletionMode, CoreId, CoreState, NEVER, Next, Policy, Refusal, Sample, SleepGoal, Start, ThreadId,
    Topology, Unsupported, View, Wants,
};

use crate::load::{Limits, Load, is_quiet};
use crate::parameter::{self, PERCENT, Parameter, ParameterError, Setting, TIME, put, text, time};
use crate::schedule::Schedule;
use crate::sleep::Sleep;

/// The name by which an operator chooses it.
pub const NAME: &str = "dynamic";

/// Its parameters. Loads are in millionths of a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// From this load on a thread is active.
    pub load_limit_ppm: u32,
    /// Load that no core should reach.
    pub core_limit_ppm: u32,
    /// Load from which threads of a core delay each other.
    pub core_busy_ppm: u32,
    /// Base of the load of a thread.
    pub thread_load: ThreadLoad,
    /// How cores without threads sleep.
    pub sleep: Sleep,
}

/// Base of the load of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadLoad {
    /// Its own busy time and an equal part of the core's idle time.
    Own,
    /// The awake time of its core.
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
        meaning: "length of an interval (SANDMAN 3.5: 10us; SPDK: 1s)",
        allowed: TIME,
        get: |p| text::format_duration(p.interval_ns),
        set: |p, v| time(&mut p.interval_ns, v),
    },
    Parameter {
        key: "load_limit",
        meaning: "load from which an I/O thread is active; below it goes to the main core (SPDK: 20%)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.load_limit_ppm),
        set: |p, v| put(&mut p.load_limit_ppm, text::percent(v)),
    },
    Parameter {
        key: "core_limit",
        meaning: "load that no core should reach (SPDK: 80%)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.core_limit_ppm),
        set: |p, v| put(&mut p.core_limit_ppm, text::percent(v)),
    },
    Parameter {
        key: "core_busy",
        meaning: "load from which a core's I/O threads delay each other, so that one that leaves frees no time (SPDK: 95%)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.core_busy_ppm),
        set: |p, v| put(&mut p.core_busy_ppm, text::percent(v)),
    },
    Parameter {
        key: "thread_load",
        meaning: "base of an I/O thread's load: its own polls (own, SPDK), or all of its core's time (core)",
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
    /// Applies settings in this order.
    ///
    /// # Errors
    /// If a parameter does not exist, a value is not allowed, or the limits are not in order.
    pub fn read(settings: &[(&str, &str)]) -> Result<Self, ParameterError> {
        let read = parameter::read(NAME, &TABLE, settings)?;
        if read.core_limit_ppm > read.core_busy_ppm {
            return Err(ParameterError::Conflict("core_limit must not be above core_busy".to_owned()));
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

/// Counters since the start.
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
    schedule: Schedule,
    goal: SleepGoal,
    due_ns: u64,
    /// Target of each thread's move that no sample has shown yet.
    pending_moves: Vec<Option<CoreId>>,
    plan: Plan,
}

/// The target placement; buffers are kept between intervals.
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
    /// Reads a sample.
    fn update(&mut self, sample: &Sample<'_>, parameters: &Parameters) {
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

    /// Assigns threads: those that are not active, then the active ones.
    fn assign(&mut self, topology: &Topology, limits: &Limits) {
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

    /// The target core of an active thread.
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
            self.loads[home.index()].remove(*busy_ns, limits);
            self.loads[to.index()].add(*busy_ns);
            *home = to;
        }
    }
}

impl Running {
    /// Commands the target placement: wake-ups, moves, sleep.
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
                self.pending_moves[at] = Some(to);
                counters.moves += 1;
            }
        }
        let owned = |core: CoreId| sample.threads.iter().any(|thread| thread.home == core);
        let comes = |core: CoreId| self.pending_moves.contains(&Some(core));
        let empty =
            |core: &CoreId| loads[core.index()].threads == 0 && !asleep(*core) && !owned(*core) && !comes(*core);
        for core in self.topology.workers().filter(empty) {
            out.push(Command::Sleep { core, goal: self.goal });
            counters.sleeps += 1;
        }
    }

    /// Whether an interval without requests changes nothing, by this sample.
    fn is_at_rest(&self, sample: &Sample<'_>) -> bool {
        let main = self.topology.main();
        sample.threads.iter().all(|thread| thread.home == main)
            && self.topology.workers().all(|core| sample.cores[core.index()].state != CoreState::Awake)
            && self.pending_moves.iter().all(Option::is_none)
    }

    fn note_arrivals(&mut self, sample: &Sample<'_>) {
        for (pending_moves, thread) in self.pending_moves.iter_mut().zip(sample.threads) {
            if *pending_moves == Some(thread.home) {
                *pending_moves = None;
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

    /// Threads poll and stay until the first interval; those on a sleeping core go to the main core.
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        if start.capabilities.moves.is_none() {
            return Err(Self::unsupported("I/O threads that can be moved"));
        }
        let Some(goal) = self.parameters.sleep.goal(start.capabilities, 0) else {
            return Err(Self::unsupported(self.parameters.sleep.requirement()));
        };
        let mut pending_moves = vec![None; start.homes.len()];
        for (thread, &home) in start.homes.iter().enumerate() {
            let (number, to) = (ThreadId(thread as u16), start.topology.main());
            out.push(Command::Completions { thread: number, mode: CompletionMode::Poll });
            if start.cores[home.index()].state != CoreState::Awake {
                out.push(Command::Move { thread: number, to });
                pending_moves[thread] = Some(to);
            }
        }
        let schedule = Schedule { start_ns: start.now_ns, period_ns: self.parameters.interval_ns };
        let due_ns = schedule.after(start.now_ns);
        let limits = Limits {
            core_ppm: u64::from(self.parameters.core_limit_ppm),
            busy_ppm: u64::from(self.parameters.core_busy_ppm),
        };
        let (topology, plan) = (start.topology.clone(), Plan::default());
        self.running = Some(Running { topology, limits, schedule, goal, due_ns, pending_moves, plan });
        Ok(Next::at(due_ns))
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let Some(running) = &mut self.running else { return Next::NEVER };
        running.note_arrivals(sample);
        running.plan.update(sample, &self.parameters);
        running.plan.assign(&running.topology, &running.limits);
        let before = out.len();
        running.command(sample, &mut self.counters, out);
        let rests = out.len() == before && running.is_at_rest(sample);
        running.due_ns = if rests { NEVER } else { running.schedule.after(sample.now_ns) };
        Next::at(running.due_ns)
    }

    fn on_refused(&mut self, _now_ns: u64, command: &Command, _refusal: Refusal) {
        self.counters.refused += 1;
        if let (Some(running), Command::Move { thread, to }) = (&mut self.running, command)
            && let Some(pending_moves) = running.pending_moves.get_mut(thread.index())
            && *pending_moves == Some(*to)
        {
            *pending_moves = None;
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
