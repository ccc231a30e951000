//! Start and stop of reactors, their I/O threads, policy and statistics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pilotlight_plant::{
    Capabilities, Component, CoreId, Cost, Depth, Goals, Policy, RestCost, SleepCost, Topology, Unreachable,
    Unsupported, View,
};
use rustix::thread::{gettid, sched_yield};

pub use crate::affinity::keep_off;
use crate::affinity::pin;
use crate::cells::{IoThreadStats, ReactorStats, ThreadCell};
use crate::clock;
pub use crate::director::IdleTimeout;
use crate::director::{Director, DirectorCell, DirectorOptions, DirectorStats};
use crate::event::{Event, Peer, Slot};
use crate::inbox::{Inbox, Sender};
use crate::instruction::{Abilities, Instruction};
use crate::io_thread::IoThread;
use crate::knobs::{Knobs, Refusals};
use crate::probe::{self, SocketSleep, WakeUp};
use crate::reactor::{Idle, Reactor};
use crate::readings::Readings;
use crate::wait::{self, Monitor};

/// Events that a reactor's ring holds at most.
const EVENT_RING: usize = 1024;
/// Interval of checks for ended reactors.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Cost of a wake-up by a futex, measured on another machine (design section 6).
const SOFTWARE_WAKE: SleepCost =
    SleepCost { depth: Depth::SoftwareWait, waker: Cost::Assumed(14_000), wake: Cost::Assumed(46_000) };
/// By a store: SANDMAN, Table 2, exit latency of C-1.
const MONITOR_WAKE: SleepCost =
    SleepCost { depth: Depth::MonitorWait, waker: Cost::Assumed(0), wake: Cost::Assumed(3_000) };
/// A rest that the kernel ends: measured in a virtual machine, where setting a timer traps.
const SOFTWARE_REST: RestCost = RestCost { cpu: Cost::Assumed(25_000), late: Cost::Assumed(25_000) };
/// A rest in a wait instruction with a deadline: as a wake-up by a store.
const MONITOR_REST: RestCost = RestCost { cpu: Cost::Assumed(3_000), late: Cost::Assumed(3_000) };
/// Cost of handing over an I/O thread between polling cores, measured on another machine (design section 8).
const MOVE: Cost = Cost::Assumed(100);
/// CPU time that a sleep of the whole server costs: at 20 k reads a second one that waits in the kernel took 14.5 us of CPU a read, one that
/// polls without a pause 2.5 us (one core, loopback, on another machine).
const SERVER_SLEEP: Cost = Cost::Assumed(12_000);

/// Options of a [`Runtime`].
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// One reactor for each core; `None` leaves that reactor unpinned.
    pub cores: Vec<Option<u32>>,
    /// Main core and siblings.
    pub topology: Topology,
    /// Behaviour after rounds without work.
    pub idle: Idle,
    /// The wait instruction of sleeping cores; `None` for wake-ups by software.
    pub monitor: Option<Monitor>,
    /// Idle timeout after which every core waits in the kernel, if the policy allows it.
    pub idle_timeout: IdleTimeout,
    /// The knobs of the machine.
    pub knobs: Option<Arc<dyn Knobs>>,
    /// The readings of the machine.
    pub readings: Option<Arc<dyn Readings>>,
}

impl RuntimeOptions {
    /// Reactors on these cores, the first of which is the main core; none are siblings. Sleeping cores use the wait
    /// instruction that the CPU has.
    #[must_use]
    pub fn new(cores: Vec<Option<u32>>, idle: Idle) -> Self {
        let topology = Topology::flat(cores.len().max(1) as u16).unwrap_or_else(|_| unreachable!("there is a core"));
        Self {
            cores,
            topology,
            idle,
            monitor: wait::available(),
            idle_timeout: IdleTimeout::default(),
            knobs: None,
            readings: None,
        }
    }
}

/// Notifies a runtime of changed namespaces, hosts or devices, and of classes of I/O threads.
pub struct PlantNotice {
    events: Sender<Event>,
    options: RuntimeOptions,
}

impl PlantNotice {
    /// As [`Runtime::plant_changed`]. False if the ring is full: try again later, unless the runtime has ended.
    #[must_use]
    pub fn send(&self) -> bool {
        let instruction = Instruction::Plant(abilities(&self.options));
        self.events.send(Event::Instruct(Box::new(instruction))).is_ok()
    }

    /// As [`Runtime::set_classes`], with the same result.
    #[must_use]
    pub fn send_classes(&self, classes: Vec<Option<u8>>) -> bool {
        self.events.send(Event::Instruct(Box::new(Instruction::Classes(classes)))).is_ok()
    }
}

/// Why a [`Runtime`] did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refused to pin to this core.
    #[error(
        "cannot run on core {core}: {source}; use cores that this process is allowed to run on (see `taskset -p $$`)"
    )]
    Pin {
        /// The core.
        core: u32,
        /// The system's error.
        r#source: std::io::Error,
    },
    /// The system refused a new OS thread, or the descriptor that wakes it.
    #[error("cannot start a reactor thread: {0}")]
    Spawn(std::io::Error),
    /// The topology has another number of cores.
    #[error("the topology has {topology} cores, but there are {cores} reactors")]
    Topology {
        /// Cores in the topology.
        topology: usize,
        /// Reactors.
        cores: usize,
    },
    /// The policy needs more than this machine has.
    #[error(transparent)]
    Policy(#[from] Unsupported),
}

/// Running reactors; dropped, they stop and drop their I/O threads.
pub struct Runtime {
    peers: Arc<[Peer]>,
    main: CoreId,
    director: Arc<DirectorCell>,
    threads: Mutex<Vec<Arc<ThreadCell>>>,
    capabilities: Capabilities,
    options: RuntimeOptions,
    joins: Vec<JoinHandle<()>>,
}

/// Statistics of a runtime.
#[derive(Clone, Debug, Default)]
pub struct RuntimeStats {
    /// Each reactor, by [`CoreId`].
    pub reactors: Vec<ReactorStats>,
    /// Each I/O thread, by its number.
    pub threads: Vec<IoThreadStats>,
    /// The director.
    pub director: DirectorStats,
}

impl Runtime {
    /// Starts one reactor per core. Until a policy is set they all poll.
    ///
    /// # Errors
    /// If a core cannot be used or the system has no thread left; all reactors are then stopped.
    pub fn start(options: &RuntimeOptions) -> Result<Self, StartError> {
        let (topology, cores) = (options.topology.len(), options.cores.len());
        if topology != cores {
            return Err(StartError::Topology { topology, cores });
        }
        let inboxes: Vec<Inbox<Event>> = (0..cores).map(|_| Inbox::new(EVENT_RING)).collect();
        let peers: Arc<[Peer]> =
            inboxes.iter().map(|inbox| Peer { events: inbox.sender(), cell: Arc::default() }).collect();
        let mut runtime = Self {
            peers,
            main: options.topology.main(),
            director: Arc::default(),
            threads: Mutex::default(),
            capabilities: measured(options),
            options: options.clone(),
            joins: Vec::new(),
        };
        let mut workers = Vec::new();
        for (core, inbox) in (0..).map(CoreId).zip(inboxes) {
            let thread = runtime.spawn(core, inbox, options)?;
            workers.extend((core != runtime.main).then_some(thread));
        }
        if let Some(knobs) = &options.knobs {
            knobs.connect(Refusals(runtime.peers[runtime.main.index()].events.clone()), &workers);
        }
        Ok(runtime)
    }

    /// Starts a reactor; returns the number of its OS thread.
    fn spawn(&mut self, id: CoreId, inbox: Inbox<Event>, options: &RuntimeOptions) -> Result<u32, StartError> {
        inbox.doorbell().map_err(StartError::Spawn)?; // created now, so that an error can be reported
        let core = options.cores[id.index()];
        let mut reactor = self.reactor(id, inbox, options);
        let (started, start) = std::sync::mpsc::channel();
        let body = move || {
            let pinned = core.map_or(Ok(()), pin);
            let failed = pinned.is_err();
            let _ = started.send(pinned.map(|()| gettid().as_raw_nonzero().get().cast_unsigned()));
            if !failed && catch_unwind(AssertUnwindSafe(|| reactor.run())).is_err() {
                eprintln!("pilotlight: a reactor panicked (see above); the process aborts and can be restarted");
                std::process::abort();
            }
        };
        let builder = std::thread::Builder::new().name(format!("reactor-{}", id.0));
        self.joins.push(builder.spawn(body).map_err(StartError::Spawn)?);
        match start.recv() {
            Ok(Ok(thread)) => Ok(thread),
            Ok(Err(source)) => Err(StartError::Pin { core: core.unwrap_or_default(), source }),
            Err(_) => Err(StartError::Spawn(std::io::ErrorKind::Other.into())),
        }
    }

    fn reactor(&self, id: CoreId, inbox: Inbox<Event>, options: &RuntimeOptions) -> Reactor {
        let director = (id == self.main).then(|| {
            let (topology, capabilities) = (options.topology.clone(), self.capabilities.clone());
            let (peers, knobs) = (Arc::clone(&self.peers), options.knobs.clone());
            let director_options =
                DirectorOptions { idle_timeout: options.idle_timeout, knobs, readings: options.readings.clone() };
            Director::new(peers, topology, capabilities, &director_options, Arc::clone(&self.director))
        });
        let reactor = Reactor::new(id, inbox, &self.peers, options.idle.for_core(id == self.main));
        Reactor { monitor: options.monitor, director, main: self.main, ..reactor }
    }

    /// Adds an I/O thread to a core. I/O threads are numbered from 0 in the order of these calls. The current policy does not get
    /// it; add all before the first policy.
    ///
    /// # Panics
    /// If the I/O thread has another number.
    pub fn adopt(&self, core: CoreId, thread: Box<dyn IoThread>) {
        let cell = Arc::new(ThreadCell::default());
        cell.home.store(core.0, Relaxed);
        let mut threads = self.threads();
        assert_eq!(thread.id() as usize, threads.len(), "I/O threads are numbered in the order of their adoption");
        threads.push(Arc::clone(&cell));
        drop(threads);
        let slot = Slot::new(thread, cell);
        send(&self.peers[core.index()].events, Event::Adopt { slot, sent_ns: clock::now_ns() });
    }

    /// Replaces the policy, also while cores sleep and I/O threads move. A stopped runtime drops it.
    ///
    /// # Errors
    /// If the policy needs an unsupported feature: the last policy then continues.
    pub fn set_policy(&self, policy: Box<dyn Policy>) -> Result<(), Unsupported> {
        let cells = self.threads().clone();
        let (reply, response) = sync_channel(1);
        self.instruct(Instruction::Policy { policy, cells, reply });
        response.recv().unwrap_or(Ok(()))
    }

    /// Sets the goals of this policy and the following ones.
    pub fn set_goals(&self, goals: Goals) {
        self.instruct(Instruction::Goals(goals));
    }

    /// Sets the highest class of requests of each I/O thread, by its number ([`pilotlight_plant::ThreadSample::class`]).
    pub fn set_classes(&self, classes: Vec<Option<u8>>) {
        self.instruct(Instruction::Classes(classes));
    }

    /// The goal that the policy does not reach.
    #[must_use]
    pub fn unreachable(&self) -> Option<Unreachable> {
        let (reply, response) = sync_channel(1);
        self.instruct(Instruction::Unreachable(reply));
        response.recv().unwrap_or(None)
    }

    /// The component that limits throughput, if the policy knows it.
    #[must_use]
    pub fn bottleneck(&self) -> Option<Component> {
        let (reply, response) = sync_channel(1);
        self.instruct(Instruction::Bottleneck(reply));
        response.recv().unwrap_or(None)
    }

    /// Notifies the policy of the knobs and sources after a change of namespaces, hosts or devices.
    pub fn plant_changed(&self) {
        self.instruct(Instruction::Plant(abilities(&self.options)));
    }

    /// A handle for the thread that notices such changes.
    #[must_use]
    pub fn plant_notice(&self) -> PlantNotice {
        PlantNotice { events: self.peers[self.main.index()].events.clone(), options: self.options.clone() }
    }

    /// Name and view of the policy; `None` without one.
    #[must_use]
    pub fn view(&self) -> Option<(&'static str, View)> {
        let (reply, response) = sync_channel(1);
        self.instruct(Instruction::View(reply));
        response.recv().unwrap_or(None)
    }

    fn instruct(&self, instruction: Instruction) {
        if self.joins.is_empty() {
            return; // stopped: there would be no response
        }
        send(&self.peers[self.main.index()].events, Event::Instruct(Box::new(instruction)));
    }

    /// Capabilities of this machine.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Statistics until now.
    #[must_use]
    pub fn stats(&self) -> RuntimeStats {
        RuntimeStats {
            reactors: self.peers.iter().map(|peer| peer.cell.stats()).collect(),
            threads: self.threads().iter().map(|cell| cell.stats()).collect(),
            director: self.director.stats(),
        }
    }

    /// Whether any I/O thread has not finished.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.threads().iter().any(|cell| !cell.finished.load(Acquire))
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Arc<ThreadCell>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops every reactor and drops its I/O threads.
    pub fn stop(&mut self) {
        self.end(None);
    }

    /// As [`Runtime::stop`], but waits until `until` at most. Returns the reactors that have not ended: their OS threads end when
    /// the call that blocks them returns.
    pub fn stop_until(&mut self, until: Instant) -> Vec<CoreId> {
        self.end(Some(until))
    }

    fn end(&mut self, until: Option<Instant>) -> Vec<CoreId> {
        let mut stopping = vec![false; self.joins.len()];
        loop {
            for ((peer, join), stopping) in self.peers.iter().zip(&self.joins).zip(&mut stopping) {
                *stopping = *stopping || join.is_finished() || peer.events.send(Event::Stop).is_ok();
            }
            let ended = self.joins.iter().all(JoinHandle::is_finished);
            if ended || until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            std::thread::sleep(END_CHECK_INTERVAL);
        }
        let ends = self.joins.drain(..).enumerate();
        ends.filter(|(_, join)| !join.is_finished()).map(|(index, _)| CoreId(index as u16)).collect()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends from an ordinary OS thread; waits while the ring is full.
fn send(events: &Sender<Event>, mut event: Event) {
    while let Err(back) = events.send(event) {
        event = back;
        sched_yield();
    }
}

/// [`capabilities`], with costs of sleep and wake-ups measured on the first worker's core.
fn measured(options: &RuntimeOptions) -> Capabilities {
    let mut capabilities = capabilities(options);
    if options.idle == Idle::Spin {
        let main = options.cores[options.topology.main().index()];
        if let Some(SocketSleep { cpu_ns, wake_ns }) = probe::socket_sleep(main) {
            capabilities.server_sleep = capabilities.server_sleep.map(|_| Cost::Measured(cpu_ns));
            let is_alone = options.topology.len() == 1; // only a socket wakes it
            let kernel = capabilities.sleeps.iter_mut().find(|sleep| is_alone && sleep.depth == Depth::SoftwareWait);
            kernel.into_iter().for_each(|sleep| sleep.wake = Cost::Measured(wake_ns));
        }
    }
    if options.idle == Idle::Spin && options.monitor.is_none() {
        let main = options.cores[options.topology.main().index()];
        capabilities.rests = probe::rest(main).or(capabilities.rests);
    }
    let worker = options.topology.workers().next().filter(|_| options.idle == Idle::Spin);
    let Some(worker) = worker else { return capabilities };
    for sleep in &mut capabilities.sleeps {
        let monitor = options.monitor.filter(|_| sleep.depth == Depth::MonitorWait);
        if let Some(WakeUp { waker_ns, wake_ns }) = probe::wake_up(options.cores[worker.index()], monitor) {
            (sleep.waker, sleep.wake) = (Cost::Measured(waker_ns), Cost::Measured(wake_ns));
        }
    }
    capabilities
}

/// Capabilities of a machine with these options, with assumed costs.
#[must_use]
pub fn capabilities(options: &RuntimeOptions) -> Capabilities {
    let mut sleeps = Vec::new();
    if options.monitor.is_some() {
        sleeps.push(MONITOR_WAKE);
    }
    sleeps.push(SOFTWARE_WAKE);
    let Abilities { knobs, sources, drives } = abilities(options);
    Capabilities {
        sleeps,
        moves: Some(MOVE),
        interrupts: true,
        rests: Some(if options.monitor.is_some() { MONITOR_REST } else { SOFTWARE_REST }),
        server_sleep: Some(SERVER_SLEEP).filter(|_| options.idle_timeout != IdleTimeout::Never),
        knobs,
        sources,
        drives,
        groups: Vec::new(),
    }
}

fn abilities(options: &RuntimeOptions) -> Abilities {
    let (knobs, readings) = (options.knobs.as_ref(), options.readings.as_ref());
    Abilities {
        knobs: knobs.map(|knobs| knobs.knobs()).unwrap_or_default(),
        sources: readings.map(|readings| readings.sources()).unwrap_or_default(),
        drives: knobs.map(|knobs| knobs.drives()).unwrap_or_default(),
    }
}
