//! Starting reactors, giving them I/O threads and a policy, reading what they did, and stopping them.

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
use rustix::thread::{CpuSet, gettid, sched_setaffinity, sched_yield};

use crate::cells::{IoThreadStats, ReactorStats, ThreadCell};
use crate::clock;
use crate::director::{Abilities, Director, DirectorCell, DirectorOptions, DirectorStats, Instruction};
use crate::inbox::{Inbox, Sender};
use crate::io_thread::IoThread;
use crate::knobs::{Knobs, Refusals};
use crate::probe::{self, SocketSleep, WakeUp};
use crate::reactor::{Event, Idle, Peer, Reactor, Slot};
use crate::readings::Readings;
use crate::wait::{self, Monitor};

/// Events that a reactor's ring holds at most.
const EVENT_RING: usize = 1024;
/// Time between two looks whether reactors have ended.
const LOOK: Duration = Duration::from_millis(1);

/// What a wake-up costs by a futex, as measured on another machine (design section 6).
const SOFTWARE_WAKE: SleepCost =
    SleepCost { depth: Depth::SoftwareWait, waker: Cost::Assumed(14_000), wake: Cost::Assumed(46_000) };
/// By a store: SANDMAN, Table 2, exit latency of C-1.
const MONITOR_WAKE: SleepCost =
    SleepCost { depth: Depth::MonitorWait, waker: Cost::Assumed(0), wake: Cost::Assumed(3_000) };
/// A rest that the kernel ends: measured in a virtual machine, where setting a timer traps.
const SOFTWARE_REST: RestCost = RestCost { cpu: Cost::Assumed(25_000), late: Cost::Assumed(25_000) };
/// A rest in a wait instruction with a deadline: as a wake-up by a store.
const MONITOR_REST: RestCost = RestCost { cpu: Cost::Assumed(3_000), late: Cost::Assumed(3_000) };
/// What handing over an I/O thread between polling cores costs, as measured on another machine (design section 8).
const MOVE: Cost = Cost::Assumed(100);
/// CPU time that a sleep of the whole server costs: at 20 k reads a second one that waits in the kernel took 14.5 us of CPU a read, one that
/// polls without a pause 2.5 us (one core, loopback, on another machine).
const SERVER_SLEEP: Cost = Cost::Assumed(12_000);

/// How to start a [`Runtime`].
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// One reactor for each core; `None` leaves that reactor unpinned.
    pub cores: Vec<Option<u32>>,
    /// Which of them is the main core, and which are siblings.
    pub topology: Topology,
    /// What idle loops do.
    pub idle: Idle,
    /// The wait instruction that sleeping cores use; `None`: they are woken by software.
    pub monitor: Option<Monitor>,
    /// How long after the last request every core waits in the kernel, if the policy lets it.
    pub quiet: QuietTime,
    /// What sets the knobs of the machine, if anything can.
    pub knobs: Option<Arc<dyn Knobs>>,
    /// What measures the machine, if anything does.
    pub readings: Option<Arc<dyn Readings>>,
}

/// How long a server that may sleep stays awake after the last request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuietTime {
    /// As long as the policy says ([`pilotlight_plant::Next::awake_ns`]).
    #[default]
    AsPolicySays,
    /// So long, in nanoseconds.
    Fixed(u64),
    /// It does not sleep.
    Never,
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
            quiet: QuietTime::default(),
            knobs: None,
            readings: None,
        }
    }
}

/// Tells a runtime that namespaces, hosts or devices have come or gone, and which classes its I/O threads carry.
pub struct PlantNotice {
    events: Sender<Event>,
    options: RuntimeOptions,
}

impl PlantNotice {
    /// As [`Runtime::plant_changed`]. Whether there was room for the notice; if not, try again later, unless the runtime has ended.
    #[must_use]
    pub fn send(&self) -> bool {
        let instruction = Instruction::Plant(abilities(&self.options));
        self.events.send(Event::Instruct(Box::new(instruction))).is_ok()
    }

    /// As [`Runtime::set_classes`]. Whether there was room, as above.
    #[must_use]
    pub fn send_classes(&self, classes: Vec<Option<u8>>) -> bool {
        self.events.send(Event::Instruct(Box::new(Instruction::Classes(classes)))).is_ok()
    }
}

/// Why a [`Runtime`] did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refused to pin to this core.
    #[error("cannot run on core {core}: {source}; name cores that this process may use (see `taskset -p $$`)")]
    Pin {
        /// The core.
        core: u32,
        /// What the system said.
        r#source: std::io::Error,
    },
    /// The system refused a new OS thread, or the descriptor that wakes it.
    #[error("cannot start a reactor thread: {0}")]
    Spawn(std::io::Error),
    /// The topology is about another number of cores.
    #[error("the topology has {topology} cores, but reactors are to run on {cores}")]
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

/// Everything that reactors have counted.
#[derive(Clone, Debug, Default)]
pub struct RuntimeStats {
    /// Each reactor, by [`CoreId`].
    pub reactors: Vec<ReactorStats>,
    /// Each I/O thread, by its number.
    pub threads: Vec<IoThreadStats>,
    /// What the policy was told and has ordered.
    pub director: DirectorStats,
}

impl Runtime {
    /// Starts one reactor per core. Until a policy is set they all poll.
    ///
    /// # Errors
    /// If a core cannot be used or the system has no thread left; nothing keeps running then.
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

    /// Starts a reactor, and gives the number of its OS thread.
    fn spawn(&mut self, id: CoreId, inbox: Inbox<Event>, options: &RuntimeOptions) -> Result<u32, StartError> {
        inbox.doorbell().map_err(StartError::Spawn)?; // made now, where it can still be said that there is none left
        let core = options.cores[id.index()];
        let mut reactor = self.reactor(id, inbox, options);
        let (started, start) = std::sync::mpsc::channel();
        let body = move || {
            let pinned = core.map_or(Ok(()), pin);
            let failed = pinned.is_err();
            let _ = started.send(pinned.map(|()| gettid().as_raw_nonzero().get().cast_unsigned()));
            if !failed && catch_unwind(AssertUnwindSafe(|| reactor.run())).is_err() {
                eprintln!(
                    "pilotlight: a reactor panicked (see above); ending the process so that it can restart clean"
                );
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
            let given = DirectorOptions { quiet: options.quiet, knobs, readings: options.readings.clone() };
            Director::new(peers, topology, capabilities, &given, Arc::clone(&self.director))
        });
        let reactor = Reactor::new(id, inbox, &self.peers, options.idle.of(id == self.main));
        Reactor { monitor: options.monitor, director, ..reactor }
    }

    /// Gives an I/O thread its first home. I/O threads are numbered in the order in which they come, from 0. The policy in
    /// charge does not know it; give them all a home before one is set.
    ///
    /// # Panics
    /// If the I/O thread has another number.
    pub fn adopt(&self, core: CoreId, thread: Box<dyn IoThread>) {
        let cell = Arc::new(ThreadCell::default());
        cell.home.store(core.0, Relaxed);
        let mut threads = self.threads();
        assert_eq!(thread.id() as usize, threads.len(), "I/O threads are numbered in the order in which they come");
        threads.push(Arc::clone(&cell));
        drop(threads);
        let slot = Slot::new(thread, cell);
        send(&self.peers[core.index()].events, Event::Adopt { slot, sent_ns: clock::now_ns() });
    }

    /// Lets `policy` decide from now on; the one before is dropped. Sleeping cores and I/O threads on their way included.
    /// A runtime that was stopped drops it.
    ///
    /// # Errors
    /// If the policy needs what this machine cannot do: then the one before goes on.
    pub fn set_policy(&self, policy: Box<dyn Policy>) -> Result<(), Unsupported> {
        let cells = self.threads().clone();
        let (reply, answer) = sync_channel(1);
        self.instruct(Instruction::Policy { policy, cells, reply });
        answer.recv().unwrap_or(Ok(()))
    }

    /// Asks the policy in charge, and those after it, for this from now on.
    pub fn set_goals(&self, goals: Goals) {
        self.instruct(Instruction::Goals(goals));
    }

    /// The highest class of the requests that each I/O thread may carry, by its number ([`pilotlight_plant::ThreadSample::class`]).
    pub fn set_classes(&self, classes: Vec<Option<u8>>) {
        self.instruct(Instruction::Classes(classes));
    }

    /// The goal that the policy in charge does not reach, if there is one.
    #[must_use]
    pub fn unreachable(&self) -> Option<Unreachable> {
        let (reply, answer) = sync_channel(1);
        self.instruct(Instruction::Unreachable(reply));
        answer.recv().unwrap_or(None)
    }

    /// The component that limits throughput, where the policy in charge has found out.
    #[must_use]
    pub fn bottleneck(&self) -> Option<Component> {
        let (reply, answer) = sync_channel(1);
        self.instruct(Instruction::Bottleneck(reply));
        answer.recv().unwrap_or(None)
    }

    /// Namespaces, hosts or devices have come or gone: the policy is told which knobs and sources there are now.
    pub fn plant_changed(&self) {
        self.instruct(Instruction::Plant(abilities(&self.options)));
    }

    /// For a thread that learns of what comes and goes.
    #[must_use]
    pub fn plant_notice(&self) -> PlantNotice {
        PlantNotice { events: self.peers[self.main.index()].events.clone(), options: self.options.clone() }
    }

    /// The policy in charge and what it sees; `None` if there is none.
    #[must_use]
    pub fn view(&self) -> Option<(&'static str, View)> {
        let (reply, answer) = sync_channel(1);
        self.instruct(Instruction::View(reply));
        answer.recv().unwrap_or(None)
    }

    fn instruct(&self, instruction: Instruction) {
        if self.joins.is_empty() {
            return; // stopped: nobody would ever answer
        }
        send(&self.peers[self.main.index()].events, Event::Instruct(Box::new(instruction)));
    }

    /// What this machine lets a policy do.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// What has been counted so far.
    #[must_use]
    pub fn stats(&self) -> RuntimeStats {
        RuntimeStats {
            reactors: self.peers.iter().map(|peer| peer.cell.stats()).collect(),
            threads: self.threads().iter().map(|cell| cell.stats()).collect(),
            director: self.director.stats(),
        }
    }

    /// Whether an I/O thread has not finished yet, wherever it is.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.threads().iter().any(|cell| !cell.finished.load(Acquire))
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Arc<ThreadCell>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops every reactor, dropping the I/O threads that still live there.
    pub fn stop(&mut self) {
        self.end(None);
    }

    /// As [`Runtime::stop`], but waits no longer than until then. Returns the reactors that have not ended: their OS threads
    /// are left behind, and end when the call that holds them up returns.
    pub fn stop_until(&mut self, until: Instant) -> Vec<CoreId> {
        self.end(Some(until))
    }

    fn end(&mut self, until: Option<Instant>) -> Vec<CoreId> {
        let mut told = vec![false; self.joins.len()];
        loop {
            for ((peer, join), told) in self.peers.iter().zip(&self.joins).zip(&mut told) {
                *told = *told || join.is_finished() || peer.events.send(Event::Stop).is_ok();
            }
            let ended = self.joins.iter().all(JoinHandle::is_finished);
            if ended || until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            std::thread::sleep(LOOK);
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

/// Sends from an ordinary OS thread: waits for room, which a running reactor makes at once.
fn send(events: &Sender<Event>, mut event: Event) {
    while let Err(back) = events.send(event) {
        event = back;
        sched_yield();
    }
}

/// [`capabilities`], with what sleeping and waking cost where the first worker is to run.
fn measured(options: &RuntimeOptions) -> Capabilities {
    let mut capabilities = capabilities(options);
    if options.idle == Idle::Spin {
        let main = options.cores[options.topology.main().index()];
        if let Some(SocketSleep { cpu_ns, wake_ns }) = probe::socket_sleep(main) {
            capabilities.server_sleep = capabilities.server_sleep.map(|_| Cost::Measured(cpu_ns));
            let is_alone = options.topology.len() == 1; // nothing but a socket wakes it
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

/// What a machine lets a policy do where reactors are started with these options; what it costs is assumed.
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
        server_sleep: Some(SERVER_SLEEP).filter(|_| options.quiet != QuietTime::Never),
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

pub(crate) fn pin(core: u32) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    if core as usize >= CpuSet::MAX_CPU {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    set.set(core as usize);
    Ok(sched_setaffinity(None, &set)?)
}

/// Keeps the calling thread off these CPUs, where it may run on any other.
pub fn keep_off(cpus: &[u32]) {
    let Ok(mut set) = rustix::thread::sched_getaffinity(None) else { return };
    cpus.iter().map(|&cpu| cpu as usize).filter(|&cpu| cpu < CpuSet::MAX_CPU).for_each(|cpu| set.unset(cpu));
    if set.count() > 0 {
        let _ = sched_setaffinity(None, &set); // refused, it runs where it runs
    }
}
