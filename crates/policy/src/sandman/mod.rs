//! `sandman`: sleeping cores, woken for bursts (SANDMAN, SOSP 2025, sections 4.3 and 4.4).
//!
//! **Problem.** Polling cores burn the same whether there is work or not. Put the ones that are not needed to sleep, wake them within
//! microseconds of a burst, and do not move threads about while the load is steady.
//!
//! **Words.** The *main core* runs the scheduler and never sleeps by its command; the others are *workers*. I/O threads are
//! *idle* if they had no request for a whole coarse interval, else *active*.
//!
//! **Algorithm.** Every coarse interval (1 s) threads are gathered on as few cores as will carry them, and empty workers sleep:
//! [`consolidate`]. Every fine interval (10 us) each thread's requests are compared with what they were lately; one that has
//! surged gets a whole sleeping core: [`detector`] (or [`by_load`], for comparison) and [`select`]. Between samples the policy goes by what it has commanded
//! itself: [`belief`]. When every thread is on the main core, every worker asleep and no command on its way, it asks for nothing until a
//! request arrives, and allows the whole server to sleep.
//!
//! **Readings** of what the paper leaves open, beside those at the top of [`consolidate`], [`detector`] and [`select`]; where there is a parameter,
//! `variant = paper` sets the paper's text and the default is ours.
//!
//! - A surging thread that has a core to itself moves to another all the same (`exempt_alone` keeps it).
//! - "An unused sleeping core" is not one that is awake and empty (`reuse_awake` takes it).
//! - Load that rises too slowly to be a burst changes nothing (`relieve` acts on it once in a coarse interval).
//! - The main core is the last resort for active threads, and gives them away (`main_takes_active`, `main_gives_active`).
//! - A core sleeps when its last thread has left (`sleep_at_once`), or after the coarse interval.
//! - The load of a core that was awake for a part of an interval is busy time over time awake, or what its threads did in the whole interval
//!   if that is more; a thread's load is not more than its core's.
//! - A window of 32 ticks; the paper prints none, and with the printed rule its length hardly matters.
//!
//! README.md has the measured accuracy of detection, the reasons for the recommended guards, and the cost of a decision.
//!
//! **Properties** (tests/properties.rs). The main core is never told to sleep. No core is told to sleep that still gets a thread, and
//! none is woken that does not get one. A thread moves at most once in a tick or an interval. A plant that leaves out
//! quiet ticks, and intervals without requests, gets the same commands as one that does not.

pub mod belief;
pub mod by_load;
pub mod consolidate;
pub mod detector;
pub mod parameters;
pub mod select;
mod table;

use pilotlight_plant::{
    Command, CompletionMode, CoreId, CoreState, NEVER, Next, Policy, Refusal, Sample, SleepGoal, Start, ThreadId, Tick,
    Unsupported, View, Wants,
};

pub use parameters::{Detect, Parameters};

use crate::gap::Gap;
use crate::grid::Grid;
use belief::Belief;
use by_load::ByLoad;
use detector::Detector;
use select::{Cores, whole_core};

/// The name by which an operator chooses it.
pub const NAME: &str = "sandman";

/// The policy.
#[derive(Debug)]
pub struct Sandman {
    parameters: Parameters,
    /// From [`Policy::start`] on.
    running: Option<Running>,
    counters: Counters,
}

/// What it has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Threads found to have surged, each once for each tick.
    pub surges: u64,
    /// Those that got a core of their own.
    pub surge_moves: u64,
    /// Moves of the coarse interval.
    pub consolidation_moves: u64,
    /// Cores told to sleep.
    pub sleeps: u64,
    /// Commands that the plant refused.
    pub refused: u64,
}

#[derive(Debug)]
struct Running {
    detector: Detector,
    by_load: ByLoad,
    belief: Belief,
    goal: SleepGoal,
    /// The threads that have surged in this tick; empty between ticks.
    surged: Vec<ThreadId>,
    /// Workers that threads have left in this tick; empty between ticks.
    left: Vec<CoreId>,
    /// When intervals end.
    grid: Grid,
    /// When the next interval is needed: never where the last sample showed every thread on the main core and all workers
    /// asleep, and nothing was commanded since.
    due_ns: u64,
    /// A core was woken since the last interval, which may take a while to show.
    woke: bool,
    /// There was no core left to give away, and nothing has changed since.
    exhausted: bool,
    /// Where the whole server may sleep.
    gap: Option<Gap>,
}

impl Sandman {
    /// With these parameters; check them first ([`Parameters::check`]).
    #[must_use]
    pub fn new(parameters: Parameters) -> Self {
        Self { parameters, running: None, counters: Counters::default() }
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn unsupported(what: &'static str) -> Unsupported {
        Unsupported { policy: NAME, feature: what, remedy: "choose policy static or interrupt" }
    }
}

impl Cores for Belief {
    fn is_awake(&self, core: CoreId) -> bool {
        Self::is_awake(self, core)
    }
    fn is_empty(&self, core: CoreId) -> bool {
        self.owned(core) == 0
    }
}

impl Running {
    fn next(&self) -> Next {
        Next { needed_ns: self.due_ns, awake_ns: self.gap.map_or(NEVER, |gap| gap.awake_ns()) }
    }

    /// Gives each thread that has surged a whole core, as long as there are any; how many got one.
    fn scale_up(&mut self, now_ns: u64, parameters: &Parameters, out: &mut Vec<Command>) -> u64 {
        let before = out.len();
        for surged in 0..self.surged.len() {
            if self.exhausted {
                break;
            }
            let thread = self.surged[surged];
            if parameters.exempt_alone && self.is_alone(thread) {
                continue;
            }
            match whole_core(self.belief.topology(), &self.belief, parameters.selection()) {
                Some(core) => {
                    self.left.push(self.belief.home(thread));
                    self.give(thread, core, out);
                }
                None => self.exhausted = true,
            }
        }
        let moved = self.left.len() as u64;
        if parameters.sleep_at_once {
            self.rest_empty(out);
        }
        self.left.clear();
        if out.len() > before {
            self.woke = true;
            self.due_ns = self.due_ns.min(self.grid.end(now_ns));
        }
        moved
    }

    /// Workers that their last thread has left sleep, and can be woken again for others.
    fn rest_empty(&mut self, out: &mut Vec<Command>) {
        for &core in &self.left {
            let is_empty = self.belief.owned(core) == 0 && self.belief.is_awake(core);
            if is_empty && core != self.belief.topology().main() {
                let order = Command::Sleep { core, goal: self.goal };
                out.push(order);
                self.belief.follow(&order);
                self.exhausted = false;
            }
        }
    }

    /// Whether a thread has a worker core to itself.
    fn is_alone(&self, thread: ThreadId) -> bool {
        let home = self.belief.home(thread);
        home != self.belief.topology().main() && self.belief.owned(home) == 1
    }

    /// Moves a thread to a core, waking it where it sleeps.
    fn give(&mut self, thread: ThreadId, core: CoreId, out: &mut Vec<Command>) {
        if !self.belief.is_awake(core) {
            out.push(Command::Wake { core });
        }
        let order = Command::Move { thread, to: core };
        out.push(order);
        self.belief.follow(&order);
    }
}

impl Policy for Sandman {
    fn name(&self) -> &'static str {
        NAME
    }

    fn wants(&self) -> Wants {
        Wants {
            tick_ns: Some(self.parameters.fine_interval_ns),
            tick_busy: self.parameters.detect == Detect::Load,
            interval_ns: Some(self.parameters.coarse_interval_ns),
            ..Wants::default()
        }
    }

    /// Threads poll, and stay where they are until there is something to go by; those on a core that sleeps go to the main core.
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        if start.capabilities.moves.is_none() {
            return Err(Self::unsupported("I/O threads that can be moved"));
        }
        let Some(goal) = self.parameters.sleep.goal(start.capabilities, self.parameters.wake_within_ns) else {
            return Err(Self::unsupported(self.parameters.sleep.what()));
        };
        let mut belief = Belief::new(start.topology, start.cores, start.homes.iter().copied());
        for (thread, &home) in start.homes.iter().enumerate() {
            let thread = ThreadId(thread as u16);
            out.push(Command::Completions { thread, mode: CompletionMode::Poll });
            if start.cores[home.index()].state != CoreState::Awake {
                let order = Command::Move { thread, to: start.topology.main() };
                belief.follow(&order);
                out.push(order);
            }
        }
        let threads = start.homes.len();
        let running = Running {
            detector: Detector::new(&self.parameters, threads, start.now_ns),
            by_load: ByLoad::new(&self.parameters, start.topology.len()),
            belief,
            goal,
            surged: Vec::with_capacity(threads),
            left: Vec::with_capacity(threads),
            grid: Grid { start_ns: start.now_ns, every_ns: self.parameters.coarse_interval_ns },
            due_ns: start.now_ns.saturating_add(self.parameters.coarse_interval_ns),
            woke: false,
            exhausted: false,
            gap: start.capabilities.server_sleep.filter(|_| self.parameters.server_sleep).map(Gap::new),
        };
        let next = running.next();
        self.running = Some(running);
        Ok(next)
    }

    fn on_tick(&mut self, tick: &Tick<'_>, out: &mut Vec<Command>) -> Next {
        let Some(running) = &mut self.running else { return Next::NEVER };
        running.surged.clear();
        if let Some(gap) = &mut running.gap {
            gap.on_tick(tick);
        }
        match self.parameters.detect {
            Detect::Queues => running.detector.on_tick(tick, &mut running.surged),
            Detect::Load => running.by_load.on_tick(tick, &running.belief, &mut running.surged),
        }
        self.counters.surges += running.surged.len() as u64;
        let before = out.len();
        self.counters.surge_moves += running.scale_up(tick.now_ns, &self.parameters, out);
        let is_sleep = |command: &&Command| matches!(command, Command::Sleep { .. });
        self.counters.sleeps += out[before..].iter().filter(is_sleep).count() as u64;
        running.next()
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let Some(running) = &mut self.running else { return Next::NEVER };
        if let Some(gap) = &mut running.gap {
            gap.on_interval(sample);
        }
        running.belief.see(sample.cores, sample.threads.iter().map(|thread| thread.home));
        let plan = consolidate::plan(sample, running.belief.topology(), &self.parameters);
        let before = out.len();
        consolidate::commands(&plan, sample, running.belief.topology(), running.goal, out);
        for command in &out[before..] {
            running.belief.follow(command);
            self.counters.consolidation_moves += u64::from(matches!(command, Command::Move { .. }));
            self.counters.sleeps += u64::from(matches!(command, Command::Sleep { .. }));
        }
        // Only what a sample shows rests: a command can still be refused, or be on its way.
        let woke = std::mem::take(&mut running.woke);
        running.exhausted = false;
        let rests = !woke && out.len() == before && running.belief.rests();
        running.due_ns = if rests { NEVER } else { running.grid.after(sample.now_ns) };
        running.next()
    }

    fn on_refused(&mut self, _now_ns: u64, command: &Command, _refusal: Refusal) {
        self.counters.refused += 1;
        if let Some(running) = &mut self.running {
            running.belief.take_back(command);
            running.exhausted = false;
        }
    }

    /// A sleep that the window reaches beyond is quiet ticks.
    fn on_resume(&mut self, now_ns: u64) {
        if let Some(running) = &mut self.running {
            running.detector.resume(now_ns);
        }
    }

    fn view(&self) -> View {
        let Counters { surges, surge_moves, consolidation_moves, sleeps, refused } = self.counters;
        let awake = self.running.as_ref().map_or(0, |running| running.belief.cores_awake());
        vec![
            ("cores awake", awake.to_string()),
            ("surges", surges.to_string()),
            ("moves for surges", surge_moves.to_string()),
            ("moves for consolidation", consolidation_moves.to_string()),
            ("cores put to sleep", sleeps.to_string()),
            ("commands refused", refused.to_string()),
        ]
    }
}
