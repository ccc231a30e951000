//! The director: runs a policy on the main core, gathers what it wants to know, and carries out what it says.
//!
//! # The problem
//! A policy's commands are facts to the policy and wishes to the machine: an I/O thread that is to move may be on its way
//! already, its new home may need a wake-up that takes longer than many requests, and a ring may be full.
//!
//! # The algorithm
//! Each I/O thread has at most one *order*: where it is to live. While it is on its way nothing else is sent for it; when
//! it has arrived (its cell says so) and a newer order says otherwise, it is sent on. A new home that only software can wake
//! is woken first, and the old home serves until the new one says that it is awake. Everything else is sent at once, and
//! kept here while a ring is full.
//!
//! Ticks in which nothing arrived, and intervals without requests, are left out until the moment that the policy has
//! named: the contract says that this changes nothing. Whether requests were in progress is known, and looked at, where the
//! policy wants to know about service times.
//!
//! # The properties
//! - At most one hand-over of an I/O thread is on its way.
//! - The director allocates nothing between two changes of policy, but when a ring is full.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::mpsc::SyncSender;

use pilotlight_plant::{
    Capabilities, Command, CompletionMode, Component, CoreId, CoreSample, CoreState, Goals, Knob, KnobId, NEVER, Next,
    Policy, Reading, Refusal, Sample, Source, Start, ThreadCount, ThreadId, ThreadSample, Tick, Topology, Unreachable,
    Unsupported, View, Wants,
};

use crate::cells::{ThreadCell, add};
use crate::clock;
use crate::histogram::{Histogram, HistogramSnapshot};
use crate::knobs::Knobs;
use crate::reactor::{Event, Peer};
use crate::readings::Readings;
use crate::runtime::QuietTime;

mod gather;
mod orders;
mod settings;
mod sleep;
#[cfg(test)]
mod tests;

use gather::Seen;
use orders::Order;
use settings::Settings;

/// What the director is told from outside.
pub(crate) enum Instruction {
    /// Run this policy from now on.
    Policy {
        /// The policy.
        policy: Box<dyn Policy>,
        /// Every I/O thread.
        cells: Vec<Arc<ThreadCell>>,
        /// Whether it could.
        reply: SyncSender<Result<(), Unsupported>>,
    },
    /// Say what the policy sees.
    View(SyncSender<Option<(&'static str, View)>>),
    /// The operator asks for this from now on.
    Goals(Goals),
    /// I/O threads carry these classes from now on.
    Classes(Vec<Option<u8>>),
    /// Say which goal the policy does not reach.
    Unreachable(SyncSender<Option<Unreachable>>),
    /// Say which component limits throughput.
    Bottleneck(SyncSender<Option<Component>>),
    /// Namespaces, hosts or devices have come or gone.
    Plant(Abilities),
    /// The machine has refused a setting.
    Refused {
        /// The knob.
        knob: KnobId,
        /// The value to which it was to be set.
        value: u64,
        /// Why.
        refusal: Refusal,
    },
}

/// What can be set and read now, and the drives of namespaces.
#[derive(Debug)]
pub(crate) struct Abilities {
    pub(crate) knobs: Vec<Knob>,
    pub(crate) sources: Vec<Source>,
    pub(crate) drives: Vec<(u32, u16)>,
}

/// What the director counts.
#[derive(Debug, Default)]
pub(crate) struct DirectorCell {
    ticks: AtomicU64,
    intervals: AtomicU64,
    lateness: Histogram,
    moves: AtomicU64,
    sleeps: AtomicU64,
    wakes: AtomicU64,
    refusals: AtomicU64,
}

/// What the director has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectorStats {
    /// Ticks that the main core looked at, quiet ones included.
    pub ticks: u64,
    /// Intervals.
    pub intervals: u64,
    /// How late ticks were.
    pub lateness: HistogramSnapshot,
    /// I/O threads that were ordered to move.
    pub moves: u64,
    /// Cores that were ordered to sleep.
    pub sleeps: u64,
    /// Cores that were ordered to wake.
    pub wakes: u64,
    /// Commands that were refused.
    pub refusals: u64,
}

impl DirectorCell {
    pub(crate) fn stats(&self) -> DirectorStats {
        DirectorStats {
            ticks: self.ticks.load(Relaxed),
            intervals: self.intervals.load(Relaxed),
            lateness: self.lateness.snapshot(),
            moves: self.moves.load(Relaxed),
            sleeps: self.sleeps.load(Relaxed),
            wakes: self.wakes.load(Relaxed),
            refusals: self.refusals.load(Relaxed),
        }
    }
}

/// What a director gets beside its cores.
#[derive(Clone, Default)]
pub(crate) struct DirectorOptions {
    pub(crate) quiet: QuietTime,
    pub(crate) knobs: Option<Arc<dyn Knobs>>,
    pub(crate) readings: Option<Arc<dyn Readings>>,
}

/// Runs a policy.
pub(crate) struct Director {
    peers: Arc<[Peer]>,
    topology: Topology,
    capabilities: Capabilities,
    quiet: QuietTime,
    goals: Goals,
    /// Class of each I/O thread, as far as it is known.
    classes: Vec<Option<u8>>,
    settings: Settings,
    readings: Option<Arc<dyn Readings>>,
    cell: Arc<DirectorCell>,

    policy: Option<Box<dyn Policy>>,
    wants: Wants,
    cells: Vec<Arc<ThreadCell>>,
    next: Next,
    tick_due_ns: u64,
    /// When the time began that the next tick is about; a sleep of the whole server is not part of it.
    last_tick_ns: u64,
    /// When ticks were gathered last.
    gathered_ns: u64,
    /// When the whole server went to sleep that is now asleep.
    asleep_since_ns: u64,
    interval_due_ns: u64,
    last_interval_ns: u64,
    /// The earliest of all that is due: one comparison a round.
    due_ns: u64,

    on_tick: Vec<Seen>,
    on_interval: Vec<Seen>,
    cores_on_interval: Vec<CoreSample>,
    counts: Vec<ThreadCount>,
    cores: Vec<CoreSample>,
    threads: Vec<ThreadSample>,
    read: Vec<Reading>,
    commands: Vec<Command>,

    orders: Vec<Order>,
    /// I/O threads with an order.
    ordered: Vec<ThreadId>,
    asleep_by_order: Vec<bool>,
    unsent: VecDeque<(CoreId, Event)>,
    /// Workers that were let fall deeper when the whole server went to sleep.
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
            quiet: options.quiet,
            goals: Goals::default(),
            classes: Vec::new(),
            settings: Settings::new(options.knobs.clone()),
            readings: options.readings.clone(),
            cell,
            policy: None,
            wants: Wants::default(),
            cells: Vec::new(),
            next: Next::NEVER,
            tick_due_ns: NEVER,
            last_tick_ns: 0,
            gathered_ns: 0,
            asleep_since_ns: 0,
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
            orders: Vec::new(),
            ordered: Vec::new(),
            asleep_by_order: vec![false; cores],
            unsent: VecDeque::new(),
            deepened: Vec::with_capacity(cores),
        }
    }

    /// Between two rounds of the main core. Does nothing most of the time.
    pub(crate) fn step(&mut self, now_ns: u64) {
        if now_ns < self.due_ns {
            return;
        }
        self.pursue();
        if now_ns >= self.tick_due_ns {
            self.tick(now_ns);
        }
        if now_ns >= self.interval_due_ns {
            self.interval(now_ns);
        }
        self.set_due();
    }

    fn set_due(&mut self) {
        let busy = !self.ordered.is_empty() || !self.unsent.is_empty();
        self.due_ns = if busy { 0 } else { self.tick_due_ns.min(self.interval_due_ns) };
    }

    /// When [`Director::step`] has something to do again.
    pub(crate) fn next_step_ns(&self) -> u64 {
        self.due_ns
    }

    /// What a core does, as a policy sees it: one that was told to wake is as good as awake, however long that takes.
    fn state(&self, core: CoreId) -> CoreState {
        if self.asleep_by_order[core.index()] { self.peers[core.index()].state() } else { CoreState::Awake }
    }

    pub(crate) fn instruct(&mut self, instruction: Instruction) {
        match instruction {
            Instruction::Policy { policy, cells, reply } => {
                let _ = reply.send(self.take_policy(policy, cells));
            }
            Instruction::View(reply) => {
                let _ = reply.send(self.policy.as_ref().map(|policy| (policy.name(), policy.view())));
            }
            Instruction::Goals(goals) => {
                self.goals = goals;
                self.tell(|policy, now_ns, director, out| policy.on_goals(now_ns, &director.goals, out));
                self.want_again();
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
                self.tell(|policy, now_ns, director, out| policy.on_plant(now_ns, &director.capabilities, out));
                self.want_again();
            }
            Instruction::Refused { knob, value, refusal } => {
                if let Some(command) = self.settings.refused(knob, value) {
                    self.refuse(&command, refusal, clock::now_ns());
                }
            }
        }
    }

    /// Tells the policy of something that is no sample; then it is asked at the next tick and interval.
    fn tell(&mut self, what: impl FnOnce(&mut dyn Policy, u64, &Self, &mut Vec<Command>)) {
        let Some(mut policy) = self.policy.take() else { return };
        let now_ns = clock::now_ns();
        let mut commands = std::mem::take(&mut self.commands);
        commands.clear();
        what(&mut *policy, now_ns, self, &mut commands);
        (self.policy, self.commands) = (Some(policy), commands);
        self.next.needed_ns = now_ns;
        self.carry_out(now_ns);
        self.set_due();
    }

    /// The policy may want something else now. What it did not want before begins now.
    fn want_again(&mut self) {
        let Some(policy) = &self.policy else { return };
        let now_ns = clock::now_ns();
        let before = std::mem::replace(&mut self.wants, policy.wants());
        self.want_readings();
        for cell in &self.cells {
            cell.service.store(self.wants.service, Relaxed);
        }
        if before.tick_ns != self.wants.tick_ns {
            self.tick_due_ns = self.wants.tick_ns.map_or(NEVER, |tick| now_ns + tick);
            if before.tick_ns.is_none() {
                self.last_tick_ns = now_ns;
                self.on_tick = self.cells.iter().map(|cell| Seen::of(cell)).collect();
            }
        }
        if before.interval_ns != self.wants.interval_ns {
            self.interval_due_ns = self.wants.interval_ns.map_or(NEVER, |interval| now_ns + interval);
            if before.interval_ns.is_none() {
                self.last_interval_ns = now_ns;
                self.on_interval = self.cells.iter().map(|cell| Seen::of(cell)).collect();
                self.cores_on_interval = self.core_totals();
            }
        }
        self.set_due();
    }

    /// What the policy wants to read is measured from now on.
    fn want_readings(&mut self) {
        self.wants.readings.retain(|id| id.index() < self.capabilities.sources.len());
        self.read.reserve(self.wants.readings.len());
        if let Some(readings) = &self.readings {
            readings.want(&self.wants.readings);
        }
    }

    fn take_policy(&mut self, mut policy: Box<dyn Policy>, cells: Vec<Arc<ThreadCell>>) -> Result<(), Unsupported> {
        let now_ns = clock::now_ns();
        self.cells = cells;
        self.orders.resize(self.cells.len(), Order::default());
        self.ordered.reserve(self.cells.len());
        self.counts.reserve(self.cells.len());
        self.threads.reserve(self.cells.len());
        let homes: Vec<CoreId> =
            self.cells.iter().zip(&self.orders).map(|(cell, order)| order.to.unwrap_or_else(|| cell.home())).collect();
        let cores: Vec<CoreSample> = self.topology.cores().map(|core| CoreSample::new(self.state(core))).collect();
        let (topology, capabilities) = (&self.topology, &self.capabilities);
        let mut commands = std::mem::take(&mut self.commands);
        commands.clear();
        let start = Start { now_ns, topology, capabilities, cores: &cores, homes: &homes, goals: &self.goals };
        let started = policy.start(&start, &mut commands);
        self.commands = commands;
        self.next = started?;
        self.wants = policy.wants();
        self.policy = Some(policy);
        self.want_readings();
        self.begin_windows(now_ns);
        for (core, found) in (0..).map(CoreId).zip(&cores) {
            if self.asleep_by_order[core.index()] && found.state == CoreState::Awake {
                self.wake(core, now_ns); // found awake, it is not to fall asleep by the last policy's command
            }
        }
        self.settings.restore(); // what the policy before has set
        self.begin_with_polling();
        self.carry_out(now_ns);
        self.set_due();
        Ok(())
    }

    /// Whoever waits in the kernel for its I/O threads ends that.
    fn begin_with_polling(&mut self) {
        for cell in &self.cells {
            cell.set_completions(CompletionMode::Poll);
            cell.service.store(self.wants.service, Relaxed);
        }
        fence(SeqCst); // before the look at who owns any; see `Reactor::waits_as_told`
        for core in 0..self.peers.len() {
            if self.peers[core].cell.io_threads.load(Relaxed) > 0 {
                self.send(CoreId(core as u16), Event::Look);
            }
        }
    }

    fn begin_windows(&mut self, now_ns: u64) {
        self.last_tick_ns = now_ns;
        self.tick_due_ns = self.wants.tick_ns.map_or(NEVER, |tick| now_ns + tick);
        self.last_interval_ns = now_ns;
        self.interval_due_ns = self.wants.interval_ns.map_or(NEVER, |interval| now_ns + interval);
        self.on_tick = self.cells.iter().map(|cell| Seen::of(cell)).collect();
        self.on_interval.clone_from(&self.on_tick);
        self.cores_on_interval = self.core_totals();
    }

    fn tick(&mut self, now_ns: u64) {
        let tick_ns = self.wants.tick_ns.unwrap_or(NEVER);
        add(&self.cell.ticks, 1);
        self.cell.lateness.record(now_ns - self.tick_due_ns, 1);
        self.gather();
        self.gathered_ns = now_ns;
        let elapsed_ns = now_ns - self.last_tick_ns;
        self.last_tick_ns = now_ns;
        self.tick_due_ns = next_on_grid(self.tick_due_ns, tick_ns, now_ns);
        if self.counts.is_empty() && now_ns < self.next.needed_ns {
            return;
        }
        if !self.deepened.is_empty() {
            self.make_shallow();
        }
        let Some(policy) = &mut self.policy else { return };
        self.commands.clear();
        let tick = Tick { now_ns, elapsed_ns, counts: &self.counts };
        self.next = policy.on_tick(&tick, &mut self.commands);
        self.carry_out(now_ns);
    }

    fn interval(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns - self.last_interval_ns;
        self.last_interval_ns = now_ns;
        self.interval_due_ns =
            self.wants.interval_ns.map_or(NEVER, |every| next_on_grid(self.interval_due_ns, every, now_ns));
        add(&self.cell.intervals, 1);
        let quiet = self.fill_threads();
        self.fill_cores();
        if quiet && now_ns < self.next.needed_ns {
            return;
        }
        self.fill_readings(now_ns);
        let Some(policy) = &mut self.policy else { return };
        self.commands.clear();
        let (cores, threads) = (&self.cores[..], &self.threads[..]);
        let sample = Sample { now_ns, elapsed_ns, cores, threads, readings: &self.read };
        self.next = policy.on_interval(&sample, &mut self.commands);
        self.carry_out(now_ns);
    }

    fn carry_out(&mut self, now_ns: u64) {
        let commands = std::mem::take(&mut self.commands);
        for command in &commands {
            if let Err(refusal) = self.apply(command, now_ns) {
                self.refuse(command, refusal, now_ns);
            }
        }
        self.commands = commands;
        self.pursue();
    }

    fn refuse(&mut self, command: &Command, refusal: Refusal, now_ns: u64) {
        add(&self.cell.refusals, 1);
        if let Some(policy) = &mut self.policy {
            policy.on_refused(now_ns, command, refusal);
        }
    }

    fn apply(&mut self, command: &Command, now_ns: u64) -> Result<(), Refusal> {
        match *command {
            Command::Move { thread, to } => self.order(thread, to, now_ns),
            Command::Sleep { core, goal } => {
                self.peers.get(core.index()).ok_or(Refusal::Unknown)?;
                if core == self.topology.main() {
                    return Err(Refusal::MainCore);
                }
                if self.ordered.iter().any(|&thread| self.comes(thread, core)) {
                    return Err(Refusal::NotEmpty); // asleep again, it would never be ready for what comes
                }
                let sleep = self.capabilities.sleep_for(goal).ok_or(Refusal::Unsupported)?;
                add(&self.cell.sleeps, 1);
                self.asleep_by_order[core.index()] = true;
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
                fence(SeqCst); // before the look at where it lives; see `Reactor::waits_as_told`
                let home = cell.home();
                self.send(home, Event::Look);
                Ok(())
            }
        }
    }
}

/// The first moment after `now_ns` on the grid that `due_ns` is on, which has come. Late once, late no more.
fn next_on_grid(due_ns: u64, every_ns: u64, now_ns: u64) -> u64 {
    let every_ns = every_ns.max(1);
    due_ns + ((now_ns - due_ns) / every_ns + 1) * every_ns
}
