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
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::mpsc::SyncSender;

use pilotlight_plant::{
    Capabilities, Command, Completions, CoreId, CoreSample, CoreState, Depth, KnobId, NEVER, Policy, Refusal, Sample,
    Start, ThreadCount, ThreadId, ThreadSample, Tick, Topology, Unsupported, View, Wants,
};

use crate::cells::{ThreadCell, add};
use crate::clock;
use crate::histogram::{Histogram, HistogramSnapshot};
use crate::knobs::Knobs;
use crate::reactor::{Event, Peer};

mod gather;
mod settings;
#[cfg(test)]
mod tests;

use gather::Seen;
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

/// Where an I/O thread is to live.
#[derive(Clone, Copy, Default)]
struct Order {
    to: Option<CoreId>,
    /// The new home that it has been sent to, until it is there.
    sent: Option<CoreId>,
}

/// Runs a policy.
pub(crate) struct Director {
    peers: Arc<[Peer]>,
    topology: Topology,
    capabilities: Capabilities,
    quiet_ns: Option<u64>,
    settings: Settings,
    cell: Arc<DirectorCell>,

    policy: Option<Box<dyn Policy>>,
    wants: Wants,
    cells: Vec<Arc<ThreadCell>>,
    next_needed_ns: u64,
    tick_due_ns: u64,
    last_tick_ns: u64,
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
        quiet_ns: Option<u64>,
        knobs: Option<Arc<dyn Knobs>>,
        cell: Arc<DirectorCell>,
    ) -> Self {
        let cores = topology.len();
        Self {
            peers,
            topology,
            capabilities,
            quiet_ns,
            settings: Settings::new(knobs),
            cell,
            policy: None,
            wants: Wants::default(),
            cells: Vec::new(),
            next_needed_ns: NEVER,
            tick_due_ns: NEVER,
            last_tick_ns: 0,
            interval_due_ns: NEVER,
            last_interval_ns: 0,
            due_ns: NEVER,
            on_tick: Vec::new(),
            on_interval: Vec::new(),
            cores_on_interval: vec![CoreSample::new(CoreState::Awake); cores],
            counts: Vec::new(),
            cores: Vec::with_capacity(cores),
            threads: Vec::new(),
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

    /// Whether the whole server may wait in the kernel at `now_ns`, after `quiet_for_ns` without a request on the main core:
    /// every worker rests, nothing is on its way, and the policy has been told everything and waits for nothing yet.
    pub(crate) fn is_quiet(&self, now_ns: u64, quiet_for_ns: u64) -> bool {
        self.wants.sleeps_when_quiet
            && self.quiet_ns.is_some_and(|quiet| quiet_for_ns >= quiet.max(self.wants.tick_ns.unwrap_or(0)))
            && self.due_ns() > now_ns
            && self.may_wait_for_orders()
            && self.topology.workers().all(|core| self.state(core) != CoreState::Awake)
    }

    /// What a core does, as a policy sees it: one that was told to wake is as good as awake, however long that takes.
    fn state(&self, core: CoreId) -> CoreState {
        if self.asleep_by_order[core.index()] { self.peers[core.index()].state() } else { CoreState::Awake }
    }

    /// Whether the main core may wait in the kernel for its own I/O threads: nobody wants ticks.
    pub(crate) fn may_wait(&self) -> bool {
        self.wants.tick_ns.is_none() && self.may_wait_for_orders()
    }

    fn may_wait_for_orders(&self) -> bool {
        self.ordered.is_empty() && self.unsent.is_empty()
    }

    /// When the policy could act although nothing arrives. Ticks do not count: they stop with the main core.
    pub(crate) fn due_ns(&self) -> u64 {
        // Without ticks it is asked at intervals only.
        if self.wants.tick_ns.is_some() { self.next_needed_ns } else { self.next_needed_ns.max(self.interval_due_ns) }
    }

    /// The main core is about to wait in the kernel, as the last one. Cores that wait in an instruction are scheduled all
    /// the time, so they go into the kernel too.
    pub(crate) fn before_sleep(&mut self) {
        for core in self.topology.workers() {
            if self.state(core) == CoreState::Asleep(Depth::MonitorWait) && !self.deepened.contains(&core) {
                self.deepened.push(core);
                self.send(core, Event::Sleep(Depth::ServerSleep));
            }
        }
    }

    /// The main core is back. Windows start anew.
    pub(crate) fn after_sleep(&mut self, now_ns: u64) {
        if let Some(policy) = &mut self.policy {
            policy.on_resume(now_ns);
        }
        if let Some(tick_ns) = self.wants.tick_ns {
            self.last_tick_ns = now_ns;
            self.tick_due_ns = now_ns + tick_ns;
        }
        if now_ns >= self.interval_due_ns {
            self.interval(now_ns); // it ended before anything came that ends the sleep
        }
        self.set_due();
    }

    /// Requests are there again: workers may rest where a store wakes them.
    fn make_shallow(&mut self) {
        while let Some(core) = self.deepened.pop() {
            self.send(core, Event::Sleep(Depth::MonitorWait)); // whether it has got as deep by now or not
        }
    }

    pub(crate) fn instruct(&mut self, instruction: Instruction) {
        match instruction {
            Instruction::Policy { policy, cells, reply } => {
                let _ = reply.send(self.take_policy(policy, cells));
            }
            Instruction::View(reply) => {
                let _ = reply.send(self.policy.as_ref().map(|policy| (policy.name(), policy.view())));
            }
            Instruction::Refused { knob, value, refusal } => {
                if let Some(command) = self.settings.refused(knob, value) {
                    self.refuse(&command, refusal, clock::now_ns());
                }
            }
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
        let start = Start { now_ns, topology, capabilities, cores: &cores, homes: &homes };
        let started = policy.start(&start, &mut commands);
        self.commands = commands;
        self.next_needed_ns = started?;
        self.wants = policy.wants();
        self.policy = Some(policy);
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
            cell.set_completions(Completions::Poll);
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
        let elapsed_ns = now_ns - self.last_tick_ns;
        self.last_tick_ns = now_ns;
        self.tick_due_ns = next_on_grid(self.tick_due_ns, tick_ns, now_ns);
        if self.counts.is_empty() && now_ns < self.next_needed_ns {
            return;
        }
        if !self.deepened.is_empty() {
            self.make_shallow();
        }
        let Some(policy) = &mut self.policy else { return };
        self.commands.clear();
        let tick = Tick { now_ns, elapsed_ns, counts: &self.counts };
        self.next_needed_ns = policy.on_tick(&tick, &mut self.commands);
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
        if quiet && now_ns < self.next_needed_ns {
            return;
        }
        let Some(policy) = &mut self.policy else { return };
        self.commands.clear();
        let sample = Sample { now_ns, elapsed_ns, cores: &self.cores, threads: &self.threads };
        self.next_needed_ns = policy.on_interval(&sample, &mut self.commands);
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
            Command::Completions { thread, how } => {
                let cell = self.cells.get(thread.index()).ok_or(Refusal::Unknown)?;
                cell.set_completions(how);
                fence(SeqCst); // before the look at where it lives; see `Reactor::waits_as_told`
                let home = cell.home();
                self.send(home, Event::Look);
                Ok(())
            }
        }
    }

    /// Whether an I/O thread is on its way to a core, or about to be; not where it lives there and nobody has sent it away.
    fn comes(&self, thread: ThreadId, core: CoreId) -> bool {
        let Order { to, sent } = self.orders[thread.index()];
        let stays = self.cells[thread.index()].home() == core && sent.is_none_or(|sent| sent == core);
        to == Some(core) && !stays
    }

    fn wake(&mut self, core: CoreId, now_ns: u64) {
        self.asleep_by_order[core.index()] = false;
        self.deepened.retain(|&other| other != core);
        self.send(core, Event::Wake { sent_ns: now_ns });
    }

    fn order(&mut self, thread: ThreadId, to: CoreId, now_ns: u64) -> Result<(), Refusal> {
        let cell = self.cells.get(thread.index()).ok_or(Refusal::Unknown)?;
        if cell.finished.load(Acquire) || self.peers.get(to.index()).is_none() {
            return Err(Refusal::Unknown);
        }
        if self.asleep_by_order[to.index()] {
            self.wake(to, now_ns);
        }
        add(&self.cell.moves, 1);
        let order = &mut self.orders[thread.index()];
        if order.to.replace(to).is_none() {
            self.ordered.push(thread);
        }
        Ok(())
    }

    /// Sends what waits for room, and moves I/O threads along.
    fn pursue(&mut self) {
        while let Some((core, event)) = self.unsent.pop_front() {
            if let Err(event) = self.peers[core.index()].events.send(event) {
                self.unsent.push_front((core, event));
                break;
            }
        }
        let mut at = 0;
        while at < self.ordered.len() {
            if self.is_settled(self.ordered[at]) {
                self.ordered.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Moves one I/O thread along; whether its order is done.
    fn is_settled(&mut self, thread: ThreadId) -> bool {
        let cell = &self.cells[thread.index()];
        let order = &mut self.orders[thread.index()];
        let Some(to) = order.to.filter(|_| !cell.finished.load(Acquire)) else {
            *order = Order::default();
            return true;
        };
        let home = cell.home();
        if order.sent.is_some_and(|sent| sent != home) {
            return false; // on its way
        }
        order.sent = None;
        if home == to {
            order.to = None;
            return true;
        }
        if self.peers[to.index()].is_ready() {
            order.sent = Some(to);
            self.send(home, Event::Hand { thread, to });
        }
        false
    }

    fn send(&mut self, core: CoreId, event: Event) {
        let blocked = self.unsent.iter().any(|(waiting, _)| *waiting == core); // order within a ring is kept
        let event = if blocked { Err(event) } else { self.peers[core.index()].events.send(event) };
        if let Err(event) = event {
            self.unsent.push_back((core, event));
        }
    }
}

/// The first moment after `now_ns` on the grid that `due_ns` is on, which has come. Late once, late no more.
fn next_on_grid(due_ns: u64, every_ns: u64, now_ns: u64) -> u64 {
    let every_ns = every_ns.max(1);
    due_ns + ((now_ns - due_ns) / every_ns + 1) * every_ns
}
