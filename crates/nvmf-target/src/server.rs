//! A running target: its start, what its I/O threads share, changes while it runs, and its end.

mod assemble;
mod caps;
mod changes;
mod connections;
mod error;
mod failure_log;
mod notices;
mod priorities;
mod stats;
mod stop;
mod utilization;
mod visibility;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pilotlight_plant::{Component, CoreId, Policy, Unreachable, Unsupported, View};
use pilotlight_reactor::{Idle, Runtime, RuntimeOptions, Sender};

use crate::association::Association;
use crate::backend::{Backend, MemoryBudget, OpenError};
use crate::background::control::{Background, Class};
use crate::background::knobs::{BackgroundKnobs, BackgroundLog, BackgroundReadings};
use crate::caps::{CapKnobs, Caps, Meter};
use crate::config::{NamespaceConfig, ServerConfig, SubsystemConfig};
use crate::controller::{AdminEnv, Controller, ControllerKind, ControllerParams};
use crate::directory::Directory;
use crate::discovery::DiscoveryLog;
use crate::latency::{Latencies, LatencyMeter};
use crate::lease::{Lease, Leased};
use crate::listener::Acceptor;
use crate::listing::NamespaceList;
use crate::message::{Message, NamespaceChange};
use crate::reaper::Reaper;
use crate::refusals::Refusals;
use crate::register::Register;
use crate::stats::Counters;
use crate::subsystem::{NamespaceInfo, Subsystem};
use crate::usage::ListedHosts;
use crate::views::Views;
use assemble::open_all;
pub(crate) use assemble::{Assembled, announce};
pub use caps::{CapStats, Capped};
pub use changes::Changes;
pub use connections::{AssociationStats, Draining, Ended};
pub use error::{DrainError, Leftover, ServerError, StartError};
use failure_log::{FailureBell, FailureLog};
pub(crate) use notices::Bell;
use notices::Notices;
use priorities::Priorities;
pub use stats::{NamespaceFailures, NamespaceUsage, ServerStats, TargetThreadStats};
use stop::Ending;
use utilization::UtilizationReader;
pub use utilization::{UtilizationRequest, UtilizationRequests};

/// The "subsystem" of hosts that use the discovery service.
pub const DISCOVERY: usize = usize::MAX;
/// Requests that one I/O thread has in one namespace's backend at most.
pub const CHANNEL_DEPTH: u32 = 1024;
/// How long a Connect may take in all, in nanoseconds: it waits for what the host's earlier association still writes.
const CONNECT_TIMEOUT_NS: u64 = 60_000_000_000;

/// Limits as the request path uses them.
#[derive(Clone, Copy, Debug)]
pub struct ThreadLimits {
    /// Most entries of a queue.
    pub max_queue_depth: u16,
    /// Most I/O queues of a controller.
    pub max_io_queues: u16,
    /// Most queues of a host.
    pub max_host_queues: u32,
    /// Time until ICReq has to be there, in nanoseconds.
    pub icreq_timeout_ns: u64,
    /// Time until Connect has to be through, in nanoseconds.
    pub connect_timeout_ns: u64,
}

/// What all I/O threads share. Nothing here is touched by reads and writes, and I/O threads never touch the state: what
/// changes of it they get by message.
pub struct Shared {
    /// Limits.
    pub limits: ThreadLimits,
    /// Every association.
    pub register: Register,
    /// Identify commands that wait for the bytes that a namespace holds.
    pub utilization: UtilizationRequests,
    /// Closes channels.
    pub(crate) reaper: Reaper,
    /// For I/O threads that end.
    pub(crate) ending: Ending,
    /// Memory for the state of queues.
    pub queue_memory: MemoryBudget,
    /// Says that a command has failed.
    pub failure_bell: FailureBell,
    /// Bandwidth caps.
    pub caps: Caps,
    /// Which latencies are sampled.
    pub latencies: Latencies,
    /// Background work.
    pub background: Background,
    /// Connections and Connect commands that were refused.
    pub refusals: Refusals,
    /// The hosts that are counted by themselves.
    pub listed_hosts: ListedHosts,
    priorities: Priorities,
    config: ServerConfig,
    state: Mutex<State>,
    counters: Vec<Arc<Counters>>,
    connections: AtomicU32,
    looks_at_moves: AtomicBool,
    started: Instant,
}

/// What exists, and how it looks to hosts. Only ordinary OS threads look here.
struct State {
    /// What hosts can connect to.
    directory: Arc<Directory>,
    /// Which namespaces each host sees.
    views: Arc<Views>,
    /// By their places in the directory. A removed one has no namespaces.
    subsystems: Vec<Entry>,
}

struct Entry {
    subsystem: Arc<Subsystem>,
    namespaces: BTreeMap<u32, Namespace>,
}

struct Namespace {
    info: NamespaceInfo,
    storage: Storage,
    /// The hosts to which it is attached; empty: all.
    hosts: Vec<String>,
}

/// A namespace's backend and its lease, in the order in which they are dropped.
#[derive(Clone)]
struct Storage {
    backend: Arc<dyn Backend>,
    lease: Lease,
}

impl Storage {
    fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, lease: Lease::default() }
    }
}

impl Shared {
    fn new(config: ServerConfig, subsystems: Vec<Entry>, addresses: &[SocketAddr]) -> Result<Self, StartError> {
        let identities: Vec<_> = subsystems.iter().map(|entry| Arc::clone(&entry.subsystem)).collect();
        let directory = Arc::new(Directory::new(&config, &identities, addresses));
        let views = Arc::new(visibility::views_of(&subsystems));
        let limits = ThreadLimits {
            max_queue_depth: config.limits.max_queue_depth,
            max_io_queues: config.limits.max_io_queues,
            max_host_queues: config.limits.max_host_queues,
            icreq_timeout_ns: config.limits.icreq_timeout.as_nanos() as u64,
            connect_timeout_ns: CONNECT_TIMEOUT_NS,
        };
        let shared = Self {
            limits,
            register: Register::default(),
            utilization: UtilizationRequests::new(),
            failure_bell: FailureBell::default(),
            caps: Caps::default(),
            latencies: Latencies::default(),
            background: Background::new(config.background.clone(), config.io_threads.max(1) as usize),
            refusals: Refusals::default(),
            listed_hosts: ListedHosts::default(),
            priorities: Priorities::default(),
            state: Mutex::new(State { directory, views, subsystems }),
            reaper: Reaper::start()?,
            ending: Ending::default(),
            queue_memory: MemoryBudget::new(config.limits.queue_memory),
            counters: (0..config.io_threads.max(1)).map(|_| Arc::new(Counters::default())).collect(),
            connections: AtomicU32::new(0),
            looks_at_moves: AtomicBool::new(false),
            started: Instant::now(),
            config,
        };
        let hosts = shared.config.subsystems.iter().flat_map(|subsystem| &subsystem.allowed_hosts);
        hosts.chain(&shared.config.named_hosts).for_each(|host| shared.listed_hosts.add(host));
        shared.register.set_views(Arc::clone(&shared.state().views));
        shared.register.reserve(shared.state().directory.reserved_ids());
        shared.add_configured_limits();
        shared.update_classes(&[]);
        Ok(shared)
    }

    /// What I/O threads share that no server has started.
    pub(crate) fn for_tests(config: ServerConfig, opener: &Opener) -> Result<Self, StartError> {
        let subsystems = open_all(&config, opener)?;
        Self::new(config, subsystems, &[])
    }

    /// One I/O thread's counters.
    pub(crate) fn counters(&self, thread: usize) -> Arc<Counters> {
        Arc::clone(&self.counters[thread])
    }

    /// The namespaces as hosts are to be told of them.
    fn list(&self) -> Arc<NamespaceList> {
        let state = self.state();
        let listed = |entry: &Entry| entry.namespaces.iter().map(|(&nsid, ns)| (nsid, ns.info.clone())).collect();
        let subsystems = state.subsystems.iter().map(listed).collect();
        Arc::new(NamespaceList::new(Arc::clone(&state.directory), subsystems, &state.views))
    }

    /// The storage of a namespace.
    fn storage(&self, subsystem: usize, nsid: u32) -> Option<Storage> {
        let state = self.state();
        let namespace = state.subsystems.get(subsystem)?.namespaces.get(&nsid)?;
        Some(namespace.storage.clone())
    }

    /// Asks a medium how many bytes of it hold data. May block: not for reactors.
    fn look_at_utilization(&self, subsystem: usize, nsid: u32) {
        let found = self
            .state()
            .subsystems
            .get(subsystem)
            .and_then(|entry| entry.namespaces.get(&nsid))
            .map(|namespace| (namespace.storage.clone(), namespace.info.allocated_bytes.clone()));
        if let Some((storage, allocated)) = found {
            allocated.set(storage.backend.allocated_bytes().ok());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_of(&self, nqn: &str) -> Result<usize, ServerError> {
        index_in(&self.state().directory, nqn)
    }

    /// A controller for `association`, of this subsystem or, for `None`, of the discovery service.
    #[must_use]
    pub fn controller(
        &self,
        association: &Association,
        subsystem: Option<&Arc<Subsystem>>,
        kato_ms: u32,
        now_ns: u64,
    ) -> Controller {
        let kind = match subsystem {
            Some(subsystem) => ControllerKind::Io(Arc::clone(subsystem)),
            None => ControllerKind::Discovery,
        };
        let is_io = matches!(kind, ControllerKind::Io(_));
        Controller::new(ControllerParams {
            power_states: is_io && self.config.power_states,
            cntlid: association.cntlid,
            kind,
            hostid: association.host.hostid,
            hostnqn: association.host.hostnqn.clone(),
            kato_ms,
            max_io_queues: self.limits.max_io_queues,
            max_queue_depth: self.limits.max_queue_depth,
            now_ns,
        })
    }

    /// Calls `f` with what an admin command may look at: the namespaces of its subsystem, the discovery log, and the address at which
    /// the host has reached the server. Takes no lock.
    pub fn with_env<R>(
        &self,
        namespaces: &[(u32, NamespaceInfo)],
        (discovery, reached): (&DiscoveryLog, Option<IpAddr>),
        f: impl FnOnce(&AdminEnv) -> R,
    ) -> R {
        f(&AdminEnv { namespaces, counters: &self.totals(), power_on: self.started.elapsed(), discovery, reached })
    }

    /// Whether I/O threads look at what is in progress when they are moved: for tests.
    #[must_use]
    pub fn looks_at_moves(&self) -> bool {
        self.looks_at_moves.load(Relaxed)
    }

    /// Has I/O threads look at what is in progress when they are moved.
    pub(crate) fn look_at_moves(&self) {
        self.looks_at_moves.store(true, Relaxed);
    }

    /// Notes a new connection; `false` if there are too many.
    #[must_use]
    pub fn connection_opened(&self) -> bool {
        if self.connections.fetch_add(1, Relaxed) < self.config.limits.max_connections {
            return true;
        }
        self.connection_closed();
        false
    }

    /// Notes the end of a connection.
    pub fn connection_closed(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }
}

/// How to open a namespace's backend.
pub type Opener = dyn Fn(&NamespaceConfig) -> Result<Arc<dyn Backend>, OpenError> + Send + Sync;

/// A running target.
pub struct Server {
    shared: Arc<Shared>,
    threads: Arc<[Sender<Message>]>,
    acceptor: Acceptor,
    runtime: Runtime,
    addresses: Vec<SocketAddr>,
    changes: Changes,
    /// Answers [`Shared::utilization`] until the server ends.
    _utilization: UtilizationReader,
    _failure_log: FailureLog,
    notices: Notices,
    _meter: Meter,
    _latency_meter: LatencyMeter,
    _background_log: BackgroundLog,
}

impl Server {
    /// Starts a server that spins on its cores.
    ///
    /// # Errors
    /// If an address, a namespace or a core cannot be had; nothing keeps running then.
    pub fn start(config: ServerConfig) -> Result<Self, StartError> {
        let options = RuntimeOptions::new(config.cores.iter().map(|&core| Some(core)).collect(), Idle::Spin);
        Self::start_on(config, options)
    }

    /// Starts a server on given reactors; [`ServerConfig::cores`] is not looked at.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_on(config: ServerConfig, options: RuntimeOptions) -> Result<Self, StartError> {
        let budget = Arc::new(MemoryBudget::new(config.limits.namespace_memory()));
        let opener = move |ns: &NamespaceConfig| crate::backend::open(&ns.backend, ns.block_size, &budget);
        Self::start_with(config, options, Box::new(opener))
    }

    /// Starts a server on given reactors, with a way to open backends: for tests.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(
        config: ServerConfig,
        mut options: RuntimeOptions,
        opener: Box<Opener>,
    ) -> Result<Self, StartError> {
        let Assembled { listeners, addresses, shared, inboxes, threads } = Assembled::new(config, &opener)?;
        if BackgroundKnobs::are_offered(&shared.background) {
            options.knobs = Some(Arc::new(BackgroundKnobs::new(options.knobs.take(), Arc::clone(&shared))));
            options.readings = Some(Arc::new(BackgroundReadings::new(options.readings.take(), Arc::clone(&shared))));
        }
        let background_log = BackgroundLog::start(&shared)?;
        options.knobs = Some(Arc::new(CapKnobs::new(options.knobs.take(), Arc::clone(&shared))));
        let (meter, readings) = Meter::start(options.readings.take(), &shared)?;
        options.readings = Some(readings);
        let latency_meter = LatencyMeter::start(&shared)?;
        let runtime = Runtime::start(&options)?;
        for (id, thread) in threads.into_iter().enumerate() {
            runtime.adopt(CoreId((id % options.cores.len()) as u16), Box::new(thread));
        }
        announce(&shared, &inboxes)?;
        let utilization = UtilizationReader::start(&shared, Arc::clone(&inboxes))?;
        let failure_log = FailureLog::start(&shared)?;
        let notices = Notices::start(&shared, runtime.plant_notice())?;
        let acceptor = Acceptor::start(listeners, Arc::clone(&inboxes), Arc::clone(&shared))?;
        let changes = Changes::new(Arc::clone(&shared), Arc::clone(&inboxes), opener);
        Ok(Self {
            shared,
            threads: inboxes,
            acceptor,
            runtime,
            addresses,
            changes,
            _utilization: utilization,
            _failure_log: failure_log,
            notices,
            _meter: meter,
            _latency_meter: latency_meter,
            _background_log: background_log,
        })
    }

    /// The addresses that the server listens on.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Lets `policy` decide over cores and I/O threads from now on. Before the first, every core polls and I/O threads stay
    /// where they are.
    ///
    /// # Errors
    /// If the policy needs what this machine cannot do: then the one before goes on.
    pub fn set_policy(&self, policy: Box<dyn Policy>) -> Result<(), Unsupported> {
        self.runtime.set_policy(policy)
    }

    /// The policy in charge and what it sees; `None` before the first.
    #[must_use]
    pub fn policy(&self) -> Option<(&'static str, View)> {
        self.runtime.view()
    }

    /// The goal that the policy in charge does not reach, if there is one.
    #[must_use]
    pub fn unreachable(&self) -> Option<Unreachable> {
        self.runtime.unreachable()
    }

    /// The component that limits throughput, where the policy in charge has found out.
    #[must_use]
    pub fn bottleneck(&self) -> Option<Component> {
        self.runtime.bottleneck()
    }

    /// From now on I/O threads look at what is in progress when they are moved: for tests, as it takes time.
    #[doc(hidden)]
    pub fn look_at_moves(&self) {
        self.shared.look_at_moves();
    }

    /// Bytes that hold data in namespace `nsid` of subsystem `nqn`.
    ///
    /// # Errors
    /// If there is no such namespace, or the medium does not say.
    pub fn allocated_bytes(&self, nqn: &str, nsid: u32) -> Result<u64, ServerError> {
        let storage = self.shared.storage(self.shared.index_of(nqn)?, nsid);
        Ok(storage.ok_or_else(|| no_namespace(nqn, nsid))?.backend.allocated_bytes()?)
    }

    /// Pauses a class of background work, its least rate included, or resumes it.
    pub fn set_paused(&self, class: Class, paused: bool) {
        self.shared.background.set_paused(class, paused);
    }

    /// Adds a namespace; hosts are told once every I/O thread knows it.
    ///
    /// # Errors
    /// If the subsystem does not exist, the NSID is in use, or the backend cannot be opened. Nothing has changed then. A
    /// backend that cannot be opened is tried once more when the storage of namespaces removed before is closed: that may
    /// be what it needs, and is waited for, up to ten seconds.
    pub fn add_namespace(&self, nqn: &str, config: &NamespaceConfig) -> Result<(), ServerError> {
        self.changes.add(nqn, config)?;
        self.note_namespaces();
        Ok(())
    }

    /// Removes a namespace; hosts are told once it is gone from every I/O thread. Requests in progress are finished.
    ///
    /// # Errors
    /// If there is no such subsystem or namespace.
    pub fn remove_namespace(&self, nqn: &str, nsid: u32) -> Result<(), ServerError> {
        self.changes.remove(nqn, nsid)?;
        self.note_namespaces();
        Ok(())
    }

    /// Gives namespace `from` (NQN and NSID) another NSID, in its own or another subsystem `to`, without closing its
    /// storage: locks are held and data in memory stays. Block size and storage are those that it has; of `config`, the
    /// NSID and the UUID count. Requests in progress are finished under the old number.
    ///
    /// # Errors
    /// If there is no such subsystem or namespace, the new NSID is in use, `config` has another block size, or the system
    /// lacks what more channels to the storage need. Nothing has changed then.
    pub fn move_namespace(&self, from: (&str, u32), to: &str, config: &NamespaceConfig) -> Result<(), ServerError> {
        self.changes.move_to(from, to, config)?;
        self.note_namespaces();
        Ok(())
    }

    /// Adds a subsystem without namespaces. Hosts that ask for events of the discovery log are told where they see it.
    ///
    /// # Errors
    /// If there is one of this name, or the server has had too many.
    pub fn add_subsystem(&self, config: &SubsystemConfig) -> Result<(), ServerError> {
        self.changes.add_subsystem(config)?;
        self.note_namespaces();
        Ok(())
    }

    /// Removes a subsystem: no host gets in any more, the connections of those that are there end, and its namespaces are
    /// removed. Requests in the backends are finished.
    ///
    /// # Errors
    /// If there is no such subsystem.
    pub fn remove_subsystem(&self, nqn: &str) -> Result<(), ServerError> {
        self.changes.remove_subsystem(nqn)?;
        self.note_namespaces();
        Ok(())
    }

    /// From now on these hosts may connect to the subsystem; none named: any. Associations of hosts that are no longer named end, as
    /// [`Server::disconnect`] ends them. Hosts that ask for events of the discovery log are told where they see a difference.
    ///
    /// # Errors
    /// If there is no such subsystem.
    pub fn set_allowed_hosts(&self, nqn: &str, allowed_hosts: &[String]) -> Result<Draining, ServerError> {
        let ending = self.changes.set_allowed_hosts(nqn, allowed_hosts)?;
        self.note_namespaces();
        Ok(ending)
    }

    /// From now on the discovery log gives hosts this address instead of the one that they have reached, and refers them to
    /// these discovery services.
    pub fn set_discovery(&self, advertise: Option<(String, u16)>, referrals: Vec<(String, u16)>) {
        self.changes.set_discovery(advertise, referrals);
    }

    /// Changes a namespace's size to `blocks`, or for `None` to what its medium has become. Hosts are told if it differs,
    /// once every I/O thread knows. Returns the size in blocks that holds from now on.
    ///
    /// # Errors
    /// If there is no such subsystem or namespace, or the backend cannot be resized.
    pub fn resize_namespace(&self, nqn: &str, nsid: u32, blocks: Option<u64>) -> Result<u64, ServerError> {
        self.changes.resize(nqn, nsid, blocks)
    }
}

/// The news of a namespace for one I/O thread. The channel is opened here, where a failure can still be told: an I/O thread
/// without one would answer Invalid Namespace, which hosts take for a flush that succeeded.
fn added(storage: &Storage, nsid: u32) -> Result<NamespaceChange, OpenError> {
    let channel = storage
        .backend
        .open_channel(CHANNEL_DEPTH)
        .map_err(|source| OpenError::System { spec: format!("a channel to namespace {nsid}"), source })?;
    Ok(NamespaceChange::Added(storage.backend.geometry(), Leased { channel, lease: storage.lease.clone() }))
}

/// Sends a message to an I/O thread, waiting for room where its inbox is full.
fn send(thread: &Sender<Message>, mut message: Message) {
    while let Err(back) = thread.send(message) {
        message = back;
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn index_in(directory: &Directory, nqn: &str) -> Result<usize, ServerError> {
    directory.find(nqn).ok_or_else(|| ServerError::NoSubsystem(nqn.into()))
}

fn no_namespace(nqn: &str, nsid: u32) -> ServerError {
    ServerError::NoNamespace { nqn: nqn.into(), nsid }
}
