//! The director: runs a policy on the main core, collects its samples and executes its commands.
//!
//! # Problem
//! A policy considers its commands done. But an I/O thread may still be moving, its new core may need a wake-up that takes longer
//! than many requests, and a ring may be full.
//!
//! # Algorithm
//! Each I/O thread has at most one *pending move*. While it is between two cores nothing else is sent for it; when it has arrived
//! (its cell has the new core) and the target has changed, it is sent on. A new core in a software sleep is woken first, and the
//! old core serves until the new one is awake. All other commands are sent at once, and kept here while a ring is full.
//!
//! Ticks without requests and quiet intervals are left out until the time that the policy has named, which by contract changes
//! nothing. Requests in progress count only if the policy wants service times.
//!
//! # Properties
//! - At most one transfer of an I/O thread is in progress.
//! - The director allocates nothing between two changes of policy, except when a ring is full.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use pilotlight_plant::{
    Capabilities, Command, CompletionMode, CoreId, CoreSample, CoreState, Goals, LongRound, NEVER, Next, Policy,
    Reading, Refusal, Sample, Start, ThreadCount, ThreadId, ThreadSample, Tick, Topology, Unsupported, Wants,
};

use crate::cells::{ThreadCell, add};
use crate::clock;
use crate::event::{Event, Peer};
use crate::instruction::{Abilities, Instruction};
use crate::knobs::Knobs;
use crate::readings::Readings;

mod moves;
mod samples;
mod settings;
mod sleep;
mod stats;
#[cfg(test)]
mod tests;

pub(crate) use stats::DirectorCell;
pub use stats::DirectorStats;

use moves::PendingMove;
use samples::Counters;
use settings::Settings;

/// Idle timeout of a server that may sleep: how long a core polls after the last request before it waits in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleTimeout {
    /// The policy's ([`pilotlight_plant::Next`]).
    #[default]
    FromPolicy,
    /// A time in nanoseconds; a worker's is at least [`DEFAULT_IDLE_TIMEOUT_NS`](pilotlight_plant::DEFAULT_IDLE_TIMEOUT_NS).
    Fixed(u64),
    /// It does not sleep.
    Never,
}

/// Options of a director.
#[derive(Clone, Default)]
pub(crate) struct DirectorOptions {
    pub(crate) idle_timeout: IdleTimeout,
    pub(crate) knobs: Option<Arc<dyn Knobs>>,
    pub(crate) readings: Option<Arc<dyn Readings>>,
}

/// Runs a policy.
pub(crate) struct Director {
    peers: Arc<[Peer]>,
    topology: Topology,
    capabilities: Capabilities,
    idle_timeout: IdleTimeout,
    goals: Goals,
    /// Known classes of I/O threads.
    classes: Vec<Option<u8>>,
    settings: Settings,
    readings: Option<Arc<dyn Readings>>,
    cell: Arc<DirectorCell>,

    policy: Option<Box<dyn Policy>>,
    wants: Wants,
    cells: Vec<Arc<ThreadCell>>,
    next: Next,
    /// Idle timeout of workers, as the cores have it; 0 for never.
    worker_timeout_ns: u64,
    tick_due_ns: u64,
    /// Start of the next tick's time, without sleeps of the whole server.
    last_tick_ns: u64,
    /// Start of the current sleep of the whole server.
    asleep_since_ns: u64,
    /// It began with every request reported at an interval.
    slept_quiet: bool,
    /// Time of the last tick or interval with requests.
    active_ns: u64,
    interval_due_ns: u64,
    last_interval_ns: u64,
    /// The earliest due time: one comparison a round.
    due_ns: u64,

    on_tick: Vec<Counters>,
    on_interval: Vec<Counters>,
    cores_on_interval: Vec<CoreSample>,
    counts: Vec<ThreadCount>,
    cores: Vec<CoreSample>,
    threads: Vec<ThreadSample>,
    read: Vec<Reading>,
    commands: Vec<Command>,

    pending_moves: Vec<PendingMove>,
    /// I/O threads with a pending move.
    moving: Vec<ThreadId>,
    commanded_asleep: Vec<bool>,
    unsent: VecDeque<(CoreId, Event)>,
    /// Workers that were put into a deeper sleep with the whole server.
    deepened: Vec<CoreId>,
}

impl Director {
    pub(crate) fn new(
        peers: Arc<[Peer]>,
        topology: Topology,
        capabilities: Capabilities,
        options: &DirectorOptions,
        cell: Arc<DirectorCell>,
    ) -> Self {
        let cores = topology.len();
        Self {
            peers,
            topology,
            capabilities,
            idle_timeout: options.idle_timeout,
            goals: Goals::default(),
            classes: Vec::new(),
            settings: Settings::new(options.knobs.clone()),
            readings: options.readings.clone(),
            cell,
            policy: None,
            wants: Wants::default(),
            cells: Vec::new(),
            next: Next::NEVER,
            worker_timeout_ns: 0,
            tick_due_ns: NEVER,
            last_tick_ns: 0,
            asleep_since_ns: 0,
            slept_quiet: false,
            active_ns: 0,
            interval_due_ns: NEVER,
            last_interval_ns: 0,
            due_ns: NEVER,
            on_tick: Vec::new(),
            on_interval: Vec::new(),
            cores_on_interval: vec![CoreSample::new(CoreState::Awake); cores],
            counts: Vec::new(),
            cores: Vec::with_capacity(cores),
            threads: Vec::new(),
            read: Vec::new(),
            commands: Vec::new(),
            pending_moves: Vec::new(),
            moving: Vec::new(),
            commanded_asleep: vec![false; cores],
            unsent: VecDeque::new(),
            deepened: Vec::with_capacity(cores),
        }
    }

    /// Called between two polls of the main core; usually nothing is due.
    pub(crate) fn step(&mut self, now_ns: u64) {
        if now_ns < self.due_ns {
            return;
        }
        self.advance_moves();
        if now_ns >= self.tick_due_ns {
            self.tick(now_ns);
        }
        if now_ns >= self.interval_due_ns {
            self.interval(now_ns);
        }
        self.set_due();
    }

    fn set_due(&mut self) {
        let busy = !self.moving.is_empty() || !self.unsent.is_empty();
        self.due_ns = if busy { 0 } else { self.tick_due_ns.min(self.interval_due_ns) };
    }

    /// Time of the next due work of [`Director::step`].
    pub(crate) fn next_step_ns(&self) -> u64 {
        self.due_ns
    }

    /// State of a core for the policy: from the wake command on it is awake.
    fn state(&self, core: CoreId) -> CoreState {
        if self.commanded_asleep[core.index()] { self.peers[core.index()].state() } else { CoreState::Awake }
    }

    pub(crate) fn instruct(&mut self, instruction: Instruction) {
        match instruction {
            Instruction::Policy { policy, cells, reply } => {
                let _ = reply.send(self.start_policy(policy, cells));
            }
            Instruction::View(reply) => {
                let _ = reply.send(self.policy.as_ref().map(|policy| (policy.name(), policy.view())));
            }
            Instruction::Goals(goals) => {
                self.goals = goals;
                self.notify(|policy, now_ns, director, out| policy.on_goals(now_ns, &director.goals, out));
                self.update_wants();
            }
            Instruction::Classes(classes) => self.classes = classes,
            Instruction::Bottleneck(reply) => {
                let _ = reply.send(self.policy.as_ref().and_then(|policy| policy.bottleneck()));
            }
            Instruction::Unreachable(reply) => {
                let _ = reply.send(self.policy.as_ref().and_then(|policy| policy.unreachable()));
            }
            Instruction::Plant(Abilities { knobs, sources, drives }) => {
                self.capabilities = Capabilities { knobs, sources, drives, ..std::mem::take(&mut self.capabilities) };
                self.notify(|policy, now_ns, director, out| policy.on_plant(now_ns, &director.capabilities, out));
                self.update_wants();
            }
            Instruction::Refused { knob, value, refusal } => {
                if let Some(command) = self.settings.refused(knob, value) {
                    self.refuse(&command, refusal, clock::now_ns());
                }
            }
        }
    }

    /// Notifies the policy of a change; it then gets the next tick and interval.
    fn notify(&mut self, call: impl FnOnce(&mut dyn Policy, u64, &Self, &mut Vec<Command>)) {
        let Some(mut policy) = self.policy.take() else { return };
        let now_ns = clock::now_ns();
        let mut commands = std::mem::take(&mut self.commands);
        commands.clear();
        call(&mut *policy, now_ns, self, &mut commands);
        (self.policy, self.commands) = (Some(policy), commands);
        self.next.needed_ns = now_ns;
        self.execute(now_ns);
        self.set_due();
    }

    /// Applies changed wants of the policy.
    fn update_wants(&mut self) {
        let Some(policy) = &self.policy else { return };
        let now_ns = clock::now_ns();
        let before = std::mem::replace(&mut self.wants, policy.wants());
        self.request_readings();
        for cell in &self.cells {
            cell.service.store(self.wants.service, Relaxed);
        }
        if before.tick_ns != self.wants.tick_ns {
            self.tick_due_ns = self.wants.tick_ns.map_or(NEVER, |tick| now_ns + tick);
            if before.tick_ns.is_none() {
                self.last_tick_ns = now_ns;
                self.on_tick = self.cells.iter().map(|cell| Counters::load(cell)).collect();
            }
        }
        if before.interval_ns != self.wants.interval_ns {
            self.interval_due_ns = self.wants.interval_ns.map_or(NEVER, |interval| now_ns + interval);
            if before.interval_ns.is_none() {
                self.last_interval_ns = now_ns;
                self.on_interval = self.cells.iter().map(|cell| Counters::load(cell)).collect();
                self.cores_on_interval = self.core_totals(now_ns);
            }
        }
        self.set_due();
    }

    /// Requests the readings that the policy wants.
    fn request_readings(&mut self) {
        self.wants.readings.retain(|id| id.index() < self.capabilities.sources.len());
        self.read.reserve(self.wants.readings.len());
        if let Some(readings) = &self.readings {
            readings.want(&self.wants.readings);
        }
    }

    fn start_policy(&mut self, mut policy: Box<dyn Policy>, cells: Vec<Arc<ThreadCell>>) -> Result<(), Unsupported> {
        let now_ns = clock::now_ns();
        self.cells = cells;
        self.pending_moves.resize(self.cells.len(), PendingMove::default());
        self.moving.reserve(self.cells.len());
        self.counts.reserve(self.cells.len());
        self.threads.reserve(self.cells.len());
        let homes: Vec<CoreId> = self
            .cells
            .iter()
            .zip(&self.pending_moves)
            .map(|(cell, pending)| pending.to.unwrap_or_else(|| cell.home()))
            .collect();
        let cores: Vec<CoreSample> = self.topology.cores().map(|core| CoreSample::new(self.state(core))).collect();
        let (topology, capabilities) = (&self.topology, &self.capabilities);
        let mut commands = std::mem::take(&mut self.commands);
        commands.clear();
        let start = Start { now_ns, topology, capabilities, cores: &cores, homes: &homes, goals: &self.goals };
        let started = policy.start(&start, &mut commands);
        self.commands = commands;
        let next = started?;
        self.wants = policy.wants();
        self.set_next(next);
        self.cell.set_standing(policy.standing());
        self.policy = Some(policy);
        self.request_readings();
        self.start_windows(now_ns);
        for (core, found) in (0..).map(CoreId).zip(&cores) {
            if self.commanded_asleep[core.index()] && found.state == CoreState::Awake {
                self.wake(core, now_ns); // cancels a pending sleep command of the last policy
            }
        }
        self.settings.restore(); // settings of the last policy
        self.start_with_polling();
        self.execute(now_ns);
        self.set_due();
        Ok(())
    }

    /// Ends waits in the kernel for I/O threads.
    fn start_with_polling(&mut self) {
        for cell in &self.cells {
            cell.set_completions(CompletionMode::Poll);
            cell.service.store(self.wants.service, Relaxed);
        }
        fence(SeqCst); // before the counts of I/O threads are read; see `Reactor::completions_are_current`
        for core in 0..self.peers.len() {
            if self.peers[core].cell.io_threads.load(Relaxed) > 0 {
                self.send(CoreId(core as u16), Event::EndWait);
            }
        }
    }

    fn start_windows(&mut self, now_ns: u64) {
        self.last_tick_ns = now_ns;
        self.tick_due_ns = self.wants.tick_ns.map_or(NEVER, |tick| now_ns + tick);
        self.last_interval_ns = now_ns;
        self.interval_due_ns = self.wants.interval_ns.map_or(NEVER, |interval| now_ns + interval);
        self.on_tick = self.cells.iter().map(|cell| Counters::load(cell)).collect();
        self.on_interval.clone_from(&self.on_tick);
        self.cores_on_interval = self.core_totals(now_ns);
    }

    fn tick(&mut self, now_ns: u64) {
        let tick_ns = self.wants.tick_ns.unwrap_or(NEVER);
        let is_early = now_ns < self.tick_due_ns;
        add(&self.cell.ticks, 1);
        if !is_early {
            self.cell.lateness.record(now_ns - self.tick_due_ns, 1);
        }
        self.collect_counts();
        let elapsed_ns = now_ns - self.last_tick_ns;
        let elapsed_ns = if is_early { elapsed_ns.max(tick_ns) } else { elapsed_ns };
        self.last_tick_ns = now_ns;
        self.tick_due_ns = next_due(self.tick_due_ns, tick_ns, now_ns);
        self.note_requests(now_ns, !self.counts.is_empty());
        if self.counts.is_empty() && now_ns < self.next.needed_ns {
            return;
        }
        if !self.deepened.is_empty() {
            self.restore_sleep_depth();
        }
        let Some(policy) = &mut self.policy else { return };
        self.commands.clear();
        let tick = Tick { now_ns, elapsed_ns, counts: &self.counts };
        let next = policy.on_tick(&tick, &mut self.commands);
        self.set_next(next);
        self.execute(now_ns);
    }

    /// A core's rounds are long: the interval ends now.
    pub(crate) fn long_round(&mut self, long: LongRound, now_ns: u64) {
        if self.next.round_ns == NEVER {
            return; // it was on its way when the rule was disarmed
        }
        self.end_interval(now_ns, Some(long));
        self.set_due();
    }

    fn interval(&mut self, now_ns: u64) {
        self.end_interval(now_ns, None);
    }

    fn end_interval(&mut self, now_ns: u64, long: Option<LongRound>) {
        let elapsed_ns = now_ns - self.last_interval_ns;
        self.skip_interval(now_ns);
        add(&self.cell.intervals, 1);
        let quiet = self.fill_threads();
        self.fill_cores(now_ns, elapsed_ns);
        self.note_requests(now_ns, !quiet && self.wants.tick_ns.is_none());
        if quiet && long.is_none() && now_ns < self.next.needed_ns {
            return;
        }
        self.fill_readings(now_ns);
        let Some(policy) = &mut self.policy else { return };
        self.commands.clear();
        let (cores, threads) = (&self.cores[..], &self.threads[..]);
        let sample = Sample { now_ns, elapsed_ns, cores, threads, readings: &self.read };
        let next = match long {
            Some(long) => policy.on_long_round(long, &sample, &mut self.commands),
            None => policy.on_interval(&sample, &mut self.commands),
        };
        self.set_next(next);
        self.execute(now_ns);
        if long.is_none() {
            self.cell.set_standing(self.policy.as_ref().and_then(|policy| policy.standing())); // after the commands: it may take a while
        }
    }

    /// The next interval begins, and the policy does not get the one before, in which there was nothing.
    fn skip_interval(&mut self, now_ns: u64) {
        self.last_interval_ns = now_ns;
        self.interval_due_ns =
            self.wants.interval_ns.map_or(NEVER, |every| next_due(self.interval_due_ns, every, now_ns));
    }

    fn execute(&mut self, now_ns: u64) {
        let commands = std::mem::take(&mut self.commands);
        for command in &commands {
            if let Err(refusal) = self.apply(command, now_ns) {
                self.refuse(command, refusal, now_ns);
            }
        }
        self.commands = commands;
        self.advance_moves();
    }

    fn refuse(&mut self, command: &Command, refusal: Refusal, now_ns: u64) {
        add(&self.cell.refusals, 1);
        if let Some(policy) = &mut self.policy {
            policy.on_refused(now_ns, command, refusal);
        }
    }

    fn apply(&mut self, command: &Command, now_ns: u64) -> Result<(), Refusal> {
        match *command {
            Command::Move { thread, to } => self.start_move(thread, to, now_ns),
            Command::Sleep { core, goal } => {
                self.peers.get(core.index()).ok_or(Refusal::Unknown)?;
                if core == self.topology.main() {
                    return Err(Refusal::MainCore);
                }
                if self.moving.iter().any(|&thread| self.is_arriving(thread, core)) {
                    return Err(Refusal::NotEmpty); // asleep again, it would never be ready
                }
                let sleep = self.capabilities.sleep_for(goal).ok_or(Refusal::Unsupported)?;
                add(&self.cell.sleeps, 1);
                self.commanded_asleep[core.index()] = true;
                self.send(core, Event::Sleep(sleep.depth));
                Ok(())
            }
            Command::Wake { core } => {
                self.peers.get(core.index()).ok_or(Refusal::Unknown)?;
                add(&self.cell.wakes, 1);
                self.wake(core, now_ns);
                Ok(())
            }
            Command::Set { knob, value } => self.settings.set(&self.capabilities.knobs, knob, value),
            Command::Completions { thread, mode } => {
                let cell = self.cells.get(thread.index()).ok_or(Refusal::Unknown)?;
                cell.set_completions(mode);
                fence(SeqCst); // before its core is read; see `Reactor::completions_are_current`
                let home = cell.home();
                self.send(home, Event::EndWait);
                Ok(())
            }
        }
    }
}

/// The first time after `now_ns` that is a whole number of periods after `due_ns`, so that lateness does not accumulate.
fn next_due(due_ns: u64, every_ns: u64, now_ns: u64) -> u64 {
    let every_ns = every_ns.max(1);
    if now_ns < due_ns { now_ns + every_ns } else { due_ns + ((now_ns - due_ns) / every_ns + 1) * every_ns }
}
