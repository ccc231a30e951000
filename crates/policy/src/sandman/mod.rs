//! `sandman`: sleeping cores, woken for bursts (SANDMAN, SOSP 2025, sections 4.3 and 4.4).
//!
//! **Problem.** Polling cores draw the same power with and without work. Put unneeded cores to sleep, wake them within microseconds of a
//! burst, and do not move threads while the load is steady.
//!
//! **Terms.** The *main core* runs the scheduler and never sleeps by its command; the others are *workers*. I/O threads are *idle* if they had
//! no request for a whole coarse interval, else *active*.
//!
//! **Algorithm.** Every coarse interval (1 s; or `give_back_interval`) threads are gathered on the fewest cores that can carry them, and empty
//! workers sleep: [`consolidate`]. Every fine interval (10 us) each thread's requests are compared with its recent ones; a thread that has
//! surged gets a whole sleeping core: [`detector`] (or [`by_load`], for comparison) and [`select`]. Between samples the policy relies on its
//! own commands: [`plant_state`]. With `give_back_interval`, checks at shorter intervals replace the coarse ones, and give cores back soon after
//! a burst: `give_back.rs`; and threads of a flooded main core get cores together with the first that has surged. When every thread is on the
//! main core, every worker asleep and no command pending, it needs no call until a request arrives, and allows the whole server to sleep.
//!
//! **Interpretations** of the paper, beside those at the top of [`consolidate`], [`detector`] and [`select`]. Where there is a parameter,
//! `variant = paper` selects the paper's text; the default is ours.
//!
//! - A surging thread that has a core to itself stays there: another has not "more available CPU cycles" (`exempt_alone = false` moves it).
//! - "An unused sleeping core" excludes a core that is awake and empty (`reuse_awake` includes it).
//! - Load that rises too slowly to be a burst changes nothing (`relieve` handles it).
//! - The main core is the last resort for active threads, and gives them away (`main_takes_active`, `main_gives_active`).
//! - A core sleeps when its last thread has left (`sleep_at_once`), or after the coarse interval.
//! - The load of a core that was awake for a part of an interval is busy time over awake time, or the busy time of its threads over the
//!   interval if that is more; a thread's load is at most its core's.
//! - A window of 32 ticks; the paper prints none, and with the printed rule its length has little effect.
//!
//! README.md has the measured accuracy of detection, the reasons for the recommended guards, and the cost of a decision.
//!
//! **Properties** (tests/properties.rs). The main core and cores that get a thread are never commanded to sleep. Only cores that get a thread
//! are woken. A thread moves at most once in a tick or an interval. A plant that skips ticks and intervals without requests gets the same
//! commands as one that does not.

pub mod by_load;
pub mod consolidate;
pub mod detector;
mod give_back;
pub mod parameters;
pub mod plant_state;
pub mod select;
mod table;

use pilotlight_plant::{
    Command, CompletionMode, CoreId, CoreState, NEVER, Next, Policy, Refusal, Sample, SleepGoal, Start, ThreadId, Tick,
    Unsupported, View, Wants,
};

pub use parameters::{Detect, Parameters};

use crate::load::share;
use crate::request_gap::RequestGap;
use crate::schedule::Schedule;
use by_load::ByLoad;
use detector::Detector;
use give_back::GiveBack;
use plant_state::PlantState;
use select::{Cores, whole_core};

/// Fine intervals in a late tick; chosen: a poll of four connections with one request each takes 36 us on six cores. Simulated, the last of them
/// works 0.40 ms after the begin of a burst (median of eleven seeds), with 8 0.56 ms.
const LATE_INTERVALS: u64 = 5;

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

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Surges detected: threads and ticks.
    pub surges: u64,
    /// Surges for which a thread got a core.
    pub surge_moves: u64,
    /// Moves of the coarse interval.
    pub consolidation_moves: u64,
    /// Cores commanded to sleep.
    pub sleeps: u64,
    /// Commands that the plant refused.
    pub refused: u64,
}

#[derive(Debug)]
struct Running {
    detector: Detector,
    by_load: ByLoad,
    plant_state: PlantState,
    has_workers: bool,
    goal: SleepGoal,
    /// Threads that surged in this tick; empty between ticks.
    surged: Vec<ThreadId>,
    /// Workers that threads left in this tick; empty between ticks.
    left: Vec<CoreId>,
    /// When intervals end: checks, or else coarse intervals.
    schedule: Schedule,
    give_back: GiveBack,
    /// When the next interval is needed: never if the last sample showed every thread on the main core and all workers asleep,
    /// and nothing was commanded since.
    due_ns: u64,
    /// A core was woken since the last interval; a sample may not show it yet.
    woke: bool,
    /// No core was left for a surge, and nothing has changed since.
    exhausted: bool,
    /// `None` if the whole server must not sleep.
    gap: Option<RequestGap>,
}

impl Sandman {
    /// With parameters that pass [`Parameters::check`].
    #[must_use]
    pub fn new(parameters: Parameters) -> Self {
        Self { parameters, running: None, counters: Counters::default() }
    }

    /// Counters since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn unsupported(what: &'static str) -> Unsupported {
        Unsupported { policy: NAME, feature: what, remedy: "choose policy static or interrupt" }
    }
}

impl Cores for PlantState {
    fn is_awake(&self, core: CoreId) -> bool {
        Self::is_awake(self, core)
    }
    fn is_empty(&self, core: CoreId) -> bool {
        self.owned(core) == 0
    }
}

impl Running {
    fn next(&self, parameters: &Parameters) -> Next {
        let gap = self.gap.as_ref();
        Next {
            idle_timeout_ns: gap.map_or(NEVER, RequestGap::idle_timeout_ns),
            worker_idle_timeout_ns: gap.map_or(NEVER, |_| parameters.worker_rest_ns),
            ..Next::at(self.due_ns)
        }
    }

    /// A main core whose tick is late is flooded: each poll of a thread takes several fine intervals, and the threads surge in as many late
    /// ticks, one after the other. So those that are as active as before count as surged with the first.
    fn add_active(&mut self, tick: &Tick<'_>, parameters: &Parameters) {
        let is_late = tick.elapsed_ns >= parameters.fine_interval_ns.saturating_mul(LATE_INTERVALS);
        let main = self.plant_state.topology().main();
        if !is_late || self.exhausted || self.surged.iter().all(|&thread| self.plant_state.home(thread) != main) {
            return;
        }
        let first = self.surged.len();
        for thread in self.plant_state.threads_on(main) {
            if !self.surged[..first].contains(&thread) && self.detector.is_active(thread) {
                self.surged.push(thread);
            }
        }
    }

    /// Gives each thread that has surged a whole core, while there are any; returns the number of moves.
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
            match whole_core(self.plant_state.topology(), &self.plant_state, parameters.selection()) {
                Some(core) => {
                    self.left.push(self.plant_state.home(thread));
                    self.give(thread, core, out);
                }
                None => self.exhausted = true,
            }
        }
        let moved = self.left.len() as u64;
        if parameters.sleep_at_once {
            self.sleep_empty(out);
        }
        self.left.clear();
        if out.len() > before {
            if parameters.give_back_ns != u64::MAX {
                self.give_back.hold(now_ns, parameters.give_back_ns);
            }
            self.woke = true;
            self.due_ns = self.due_ns.min(self.schedule.at_or_after(now_ns));
        }
        moved
    }

    /// Whether a check can change nothing: there is no other core, or they sleep and the main core has little load. A request that ends a sleep
    /// of the server costs such a check, which is as expensive as the request.
    fn has_nothing_to_do(&mut self, sample: &Sample<'_>, parameters: &Parameters) -> bool {
        let busy_ns: u64 = sample.threads.iter().map(|thread| thread.busy_ns).sum();
        let is_light = share(busy_ns, sample.elapsed_ns) <= u64::from(parameters.healthy_ppm) / 2;
        let is_settled = !self.woke && !self.give_back.is_held(sample.now_ns) && self.plant_state.is_at_rest();
        let has_nothing = !self.has_workers || is_settled && is_light;
        if has_nothing {
            self.give_back.rest();
            self.due_ns = NEVER;
            self.exhausted = false;
        }
        has_nothing
    }

    /// The plan of a coarse interval, or of a check.
    fn plan(&mut self, sample: &Sample<'_>, parameters: &Parameters) -> Option<consolidate::Plan> {
        let topology = self.plant_state.topology();
        match parameters.give_back_ns {
            u64::MAX => Some(consolidate::plan(sample, topology, parameters)),
            _ => self.give_back.check(sample, topology, parameters),
        }
    }

    /// Puts workers without threads to sleep; they can be woken again for others.
    fn sleep_empty(&mut self, out: &mut Vec<Command>) {
        for &core in &self.left {
            let is_empty = self.plant_state.owned(core) == 0 && self.plant_state.is_awake(core);
            if is_empty && core != self.plant_state.topology().main() {
                let command = Command::Sleep { core, goal: self.goal };
                out.push(command);
                self.plant_state.apply(&command);
                self.exhausted = false;
            }
        }
    }

    /// Whether a thread has a worker core to itself.
    fn is_alone(&self, thread: ThreadId) -> bool {
        let home = self.plant_state.home(thread);
        home != self.plant_state.topology().main() && self.plant_state.owned(home) == 1
    }

    /// Moves a thread to a core, and wakes the core if it sleeps.
    fn give(&mut self, thread: ThreadId, core: CoreId, out: &mut Vec<Command>) {
        if !self.plant_state.is_awake(core) {
            out.push(Command::Wake { core });
        }
        let command = Command::Move { thread, to: core };
        out.push(command);
        self.plant_state.apply(&command);
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
            interval_ns: Some(self.parameters.interval_ns()),
            ..Wants::default()
        }
    }

    /// Threads poll and stay until the first interval or surge; those on a sleeping core go to the main core.
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        if start.capabilities.moves.is_none() {
            return Err(Self::unsupported("I/O threads that can be moved"));
        }
        let Some(goal) = self.parameters.sleep.goal(start.capabilities, self.parameters.wake_within_ns) else {
            return Err(Self::unsupported(self.parameters.sleep.requirement()));
        };
        let mut plant_state = PlantState::new(start.topology, start.cores, start.homes.iter().copied());
        for (thread, &home) in start.homes.iter().enumerate() {
            let thread = ThreadId(thread as u16);
            out.push(Command::Completions { thread, mode: CompletionMode::Poll });
            if start.cores[home.index()].state != CoreState::Awake {
                let command = Command::Move { thread, to: start.topology.main() };
                plant_state.apply(&command);
                out.push(command);
            }
        }
        let threads = start.homes.len();
        let running = Running {
            detector: Detector::new(&self.parameters, threads, start.now_ns),
            by_load: ByLoad::new(&self.parameters, start.topology.len()),
            plant_state,
            has_workers: start.topology.len() > 1,
            goal,
            surged: Vec::with_capacity(threads),
            left: Vec::with_capacity(threads),
            schedule: Schedule { start_ns: start.now_ns, period_ns: self.parameters.interval_ns() },
            give_back: GiveBack::default(),
            due_ns: start.now_ns.saturating_add(self.parameters.interval_ns()),
            woke: false,
            exhausted: false,
            gap: start.capabilities.server_sleep.filter(|_| self.parameters.server_sleep).map(RequestGap::new),
        };
        let next = running.next(&self.parameters);
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
            _ if !running.has_workers => {} // no core to give
            Detect::Queues => running.detector.on_tick(tick, &mut running.surged),
            Detect::Load => running.by_load.on_tick(tick, &running.plant_state, &mut running.surged),
        }
        if self.parameters.give_back_ns != u64::MAX && self.parameters.detect == Detect::Queues {
            running.add_active(tick, &self.parameters);
        }
        self.counters.surges += running.surged.len() as u64;
        let before = out.len();
        self.counters.surge_moves += running.scale_up(tick.now_ns, &self.parameters, out);
        let is_sleep = |command: &&Command| matches!(command, Command::Sleep { .. });
        self.counters.sleeps += out[before..].iter().filter(is_sleep).count() as u64;
        running.next(&self.parameters)
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let Some(running) = &mut self.running else { return Next::NEVER };
        if running.due_ns == NEVER && sample.threads.iter().all(|thread| thread.requests == 0) {
            return running.next(&self.parameters); // a plant may skip it
        }
        if let Some(gap) = &mut running.gap {
            gap.on_interval(sample);
        }
        running.plant_state.update(sample.cores, sample.threads.iter().map(|thread| thread.home));
        if self.parameters.give_back_ns != u64::MAX && running.has_nothing_to_do(sample, &self.parameters) {
            return running.next(&self.parameters);
        }
        let Some(plan) = running.plan(sample, &self.parameters) else {
            running.due_ns = running.schedule.after(sample.now_ns);
            return running.next(&self.parameters);
        };
        let before = out.len();
        consolidate::commands(&plan, sample, running.plant_state.topology(), |_| running.goal, out);
        for command in &out[before..] {
            running.plant_state.apply(command);
            self.counters.consolidation_moves += u64::from(matches!(command, Command::Move { .. }));
            self.counters.sleeps += u64::from(matches!(command, Command::Sleep { .. }));
        }
        // Only a sample decides: a command can still be refused or be pending.
        let woke = std::mem::take(&mut running.woke);
        running.exhausted = false;
        let is_pending = woke || running.give_back.is_held(sample.now_ns);
        let is_at_rest = !is_pending && out.len() == before && running.plant_state.is_at_rest();
        running.due_ns = if is_at_rest { NEVER } else { running.schedule.after(sample.now_ns) };
        running.next(&self.parameters)
    }

    fn on_refused(&mut self, _now_ns: u64, command: &Command, _refusal: Refusal) {
        self.counters.refused += 1;
        if let Some(running) = &mut self.running {
            running.plant_state.revert(command);
            running.exhausted = false;
        }
    }

    /// A sleep shorter than the window counts as ticks without requests.
    fn on_resume(&mut self, now_ns: u64) {
        if let Some(running) = &mut self.running {
            running.detector.resume(now_ns);
        }
    }

    fn view(&self) -> View {
        let Counters { surges, surge_moves, consolidation_moves, sleeps, refused } = self.counters;
        let awake = self.running.as_ref().map_or(0, |running| running.plant_state.cores_awake());
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
