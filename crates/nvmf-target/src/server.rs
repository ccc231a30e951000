//! A running target: start, shared state, changes at run time, stop.

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
use notices::Notices;
pub(crate) use notices::Notifier;
use priorities::Priorities;
pub use stats::{NamespaceFailures, NamespaceUsage, ServerStats, TargetThreadStats};
use stop::StopState;
use utilization::UtilizationReader;
pub use utilization::{UtilizationRequest, UtilizationRequests};

/// Index of the discovery service in place of a subsystem.
pub const DISCOVERY: usize = usize::MAX;
/// Maximum requests of one I/O thread in one namespace's backend.
pub const CHANNEL_DEPTH: u32 = 1024;
/// Time limit of a Connect, in nanoseconds: it waits for writes of the host's earlier association.
const CONNECT_TIMEOUT_NS: u64 = 60_000_000_000;

/// Limits for I/O threads.
#[derive(Clone, Copy, Debug)]
pub struct ThreadLimits {
    /// Maximum entries of a queue.
    pub max_queue_depth: u16,
    /// Maximum I/O queues of a controller.
    pub max_io_queues: u16,
    /// Maximum queues of a host.
    pub max_host_queues: u32,
    /// Time limit of ICReq, in nanoseconds.
    pub icreq_timeout_ns: u64,
    /// Time limit of Connect, in nanoseconds.
    pub connect_timeout_ns: u64,
}

/// State shared by all I/O threads, not used by reads and writes. I/O threads do not access [`State`]: they get changes by
/// message.
pub struct Shared {
    /// Limits.
    pub limits: ThreadLimits,
    /// Every association.
    pub register: Register,
    /// Identify commands that wait for the allocated bytes of a namespace.
    pub utilization: UtilizationRequests,
    /// Closes channels.
    pub(crate) reaper: Reaper,
    /// State of the stop.
    pub(crate) stop_state: StopState,
    /// Memory for the state of queues.
    pub queue_memory: MemoryBudget,
    /// Signals failed commands.
    pub failure_bell: FailureBell,
    /// Bandwidth caps.
    pub caps: Caps,
    /// Sampling of latencies.
    pub latencies: Latencies,
    /// Background work.
    pub background: Background,
    /// Refused connections and Connect commands.
    pub refusals: Refusals,
    /// The hosts with their own counters.
    pub listed_hosts: ListedHosts,
    priorities: Priorities,
    config: ServerConfig,
    state: Mutex<State>,
    counters: Vec<Arc<Counters>>,
    connections: AtomicU32,
    records_moves: AtomicBool,
    started: Instant,
}

/// The subsystems and namespaces, used only by OS threads that are not reactors.
struct State {
    /// The subsystems.
    directory: Arc<Directory>,
    /// The namespaces visible to each host.
    views: Arc<Views>,
    /// By directory index. A removed subsystem has no namespaces.
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
            stop_state: StopState::default(),
            queue_memory: MemoryBudget::new(config.limits.queue_memory),
            counters: (0..config.io_threads.max(1)).map(|_| Arc::new(Counters::default())).collect(),
            connections: AtomicU32::new(0),
            records_moves: AtomicBool::new(false),
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

    /// Shared state without a server.
    pub(crate) fn for_tests(config: ServerConfig, opener: &Opener) -> Result<Self, StartError> {
        let subsystems = open_all(&config, opener)?;
        Self::new(config, subsystems, &[])
    }

    /// One I/O thread's counters.
    pub(crate) fn counters(&self, thread: usize) -> Arc<Counters> {
        Arc::clone(&self.counters[thread])
    }

    /// The list of namespaces for hosts.
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

    /// Updates the allocated bytes of a namespace. May block: not for reactors.
    fn read_utilization(&self, subsystem: usize, nsid: u32) {
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

    /// A controller for `association` and this subsystem, or for `None` the discovery service.
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

    /// Calls `f` with the inputs of an admin command. Takes no lock.
    pub fn with_env<R>(
        &self,
        namespaces: &[(u32, NamespaceInfo)],
        (discovery, local): (&DiscoveryLog, Option<IpAddr>),
        f: impl FnOnce(&AdminEnv) -> R,
    ) -> R {
        f(&AdminEnv { namespaces, counters: &self.totals(), power_on: self.started.elapsed(), discovery, local })
    }

    /// Whether I/O threads record the work in progress at moves: for tests.
    #[must_use]
    pub fn records_moves(&self) -> bool {
        self.records_moves.load(Relaxed)
    }

    /// Enables recording of the work in progress at moves.
    pub(crate) fn record_moves(&self) {
        self.records_moves.store(true, Relaxed);
    }

    /// Counts a new connection; `false` if there are too many.
    #[must_use]
    pub fn connection_opened(&self) -> bool {
        if self.connections.fetch_add(1, Relaxed) < self.config.limits.max_connections {
            return true;
        }
        self.connection_closed();
        false
    }

    /// Counts the end of a connection.
    pub fn connection_closed(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }
}

/// Opens a namespace's backend.
pub type Opener = dyn Fn(&NamespaceConfig) -> Result<Arc<dyn Backend>, OpenError> + Send + Sync;

/// A running target.
pub struct Server {
    shared: Arc<Shared>,
    threads: Arc<[Sender<Message>]>,
    acceptor: Acceptor,
    runtime: Runtime,
    addresses: Vec<SocketAddr>,
    changes: Changes,
    /// Serves [`Shared::utilization`].
    _utilization: UtilizationReader,
    _failure_log: FailureLog,
    notices: Notices,
    _meter: Meter,
    _latency_meter: LatencyMeter,
    _background_log: BackgroundLog,
}

impl Server {
    /// Starts a server with polling reactors on its cores.
    ///
    /// # Errors
    /// If an address, a namespace or a core is not available; nothing keeps running then.
    pub fn start(config: ServerConfig) -> Result<Self, StartError> {
        let options = RuntimeOptions::new(config.cores.iter().map(|&core| Some(core)).collect(), Idle::Spin);
        Self::start_on(config, options)
    }

    /// Starts a server on given reactors; [`ServerConfig::cores`] is ignored.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_on(config: ServerConfig, options: RuntimeOptions) -> Result<Self, StartError> {
        let budget = Arc::new(MemoryBudget::new(config.limits.namespace_memory()));
        let opener = move |ns: &NamespaceConfig| crate::backend::open(&ns.backend, ns.block_size, &budget);
        Self::start_with(config, options, Box::new(opener))
    }

    /// Starts a server on given reactors with an opener of backends: for tests.
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

    /// The listening addresses.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Sets the policy for cores and I/O threads. Without one, every core polls and I/O threads do not move.
    ///
    /// # Errors
    /// If the machine does not support the policy: then the previous one stays in effect.
    pub fn set_policy(&self, policy: Box<dyn Policy>) -> Result<(), Unsupported> {
        self.runtime.set_policy(policy)
    }

    /// The current policy and its view; `None` before the first.
    #[must_use]
    pub fn policy(&self) -> Option<(&'static str, View)> {
        self.runtime.view()
    }

    /// The goal that the current policy cannot reach, if any.
    #[must_use]
    pub fn unreachable(&self) -> Option<Unreachable> {
        self.runtime.unreachable()
    }

    /// The component that limits throughput, if determined by the policy.
    #[must_use]
    pub fn bottleneck(&self) -> Option<Component> {
        self.runtime.bottleneck()
    }

    /// Makes I/O threads record the work in progress at moves: for tests, because it takes time.
    #[doc(hidden)]
    pub fn record_moves(&self) {
        self.shared.record_moves();
    }

    /// Allocated bytes of namespace `nsid` of subsystem `nqn`.
    ///
    /// # Errors
    /// If there is no such namespace, or the medium does not report them.
    pub fn allocated_bytes(&self, nqn: &str, nsid: u32) -> Result<u64, ServerError> {
        let storage = self.shared.storage(self.shared.index_of(nqn)?, nsid);
        Ok(storage.ok_or_else(|| no_namespace(nqn, nsid))?.backend.allocated_bytes()?)
    }

    /// Pauses or resumes a class of background work.
    pub fn set_paused(&self, class: Class, paused: bool) {
        self.shared.background.set_paused(class, paused);
    }

    /// Adds a namespace; hosts are notified when every I/O thread has it.
    ///
    /// # Errors
    /// If the subsystem does not exist, the NSID is in use, or the backend cannot be opened. Nothing has changed then. Opening
    /// is retried once after the storage of removed namespaces, which may hold the same resources, has been closed, for up to
    /// ten seconds.
    pub fn add_namespace(&self, nqn: &str, config: &NamespaceConfig) -> Result<(), ServerError> {
        self.changes.add(nqn, config)?;
        self.note_namespaces();
        Ok(())
    }

    /// Removes a namespace; hosts are notified when it is removed from every I/O thread. Requests in progress are finished.
    ///
    /// # Errors
    /// If there is no such subsystem or namespace.
    pub fn remove_namespace(&self, nqn: &str, nsid: u32) -> Result<(), ServerError> {
        self.changes.remove(nqn, nsid)?;
        self.note_namespaces();
        Ok(())
    }

    /// Moves namespace `from` (NQN and NSID) to another NSID in subsystem `to` without closing its storage: locks are held and
    /// data in memory is kept. Block size and storage stay; of `config`, NSID and UUID apply. Requests in progress are finished
    /// under the old NSID.
    ///
    /// # Errors
    /// If there is no such subsystem or namespace, the new NSID is in use, `config` has another block size, or no more channels
    /// can be opened. Nothing has changed then.
    pub fn move_namespace(&self, from: (&str, u32), to: &str, config: &NamespaceConfig) -> Result<(), ServerError> {
        self.changes.move_to(from, to, config)?;
        self.note_namespaces();
        Ok(())
    }

    /// Adds a subsystem without namespaces. Affected hosts with discovery log events enabled are notified.
    ///
    /// # Errors
    /// If it exists, or the server has had too many subsystems.
    pub fn add_subsystem(&self, config: &SubsystemConfig) -> Result<(), ServerError> {
        self.changes.add_subsystem(config)?;
        self.note_namespaces();
        Ok(())
    }

    /// Removes a subsystem: new connections are refused, existing ones are closed, and its namespaces are removed. Requests in
    /// the backends are finished.
    ///
    /// # Errors
    /// If there is no such subsystem.
    pub fn remove_subsystem(&self, nqn: &str) -> Result<(), ServerError> {
        self.changes.remove_subsystem(nqn)?;
        self.note_namespaces();
        Ok(())
    }

    /// Sets the hosts that may connect to the subsystem (any if empty). Associations of other hosts are ended as by
    /// [`Server::disconnect`]. Affected hosts with discovery log events enabled are notified.
    ///
    /// # Errors
    /// If there is no such subsystem.
    pub fn set_allowed_hosts(&self, nqn: &str, allowed_hosts: &[String]) -> Result<Draining, ServerError> {
        let ending = self.changes.set_allowed_hosts(nqn, allowed_hosts)?;
        self.note_namespaces();
        Ok(ending)
    }

    /// Sets the advertised address and the referrals of the discovery log.
    pub fn set_discovery(&self, advertise: Option<(String, u16)>, referrals: Vec<(String, u16)>) {
        self.changes.set_discovery(advertise, referrals);
    }

    /// Resizes a namespace to `blocks`, or for `None` to the size of its medium. Hosts are notified of a change when every I/O
    /// thread has applied it. Returns the new size in blocks.
    ///
    /// # Errors
    /// If there is no such subsystem or namespace, or the backend cannot be resized.
    pub fn resize_namespace(&self, nqn: &str, nsid: u32, blocks: Option<u64>) -> Result<u64, ServerError> {
        self.changes.resize(nqn, nsid, blocks)
    }
}

/// An added namespace for one I/O thread. The channel is opened here, where a failure can be reported: an I/O thread without
/// one would return Invalid Namespace, which hosts treat as a successful flush.
fn added(storage: &Storage, nsid: u32) -> Result<NamespaceChange, OpenError> {
    let channel = storage
        .backend
        .open_channel(CHANNEL_DEPTH)
        .map_err(|source| OpenError::System { spec: format!("a channel to namespace {nsid}"), source })?;
    Ok(NamespaceChange::Added(storage.backend.geometry(), Leased { channel, lease: storage.lease.clone() }))
}

/// Sends a message to an I/O thread; waits while its inbox is full.
fn send(thread: &Sender<Message>, mut message: Message) {
    while let Err(returned) = thread.send(message) {
        message = returned;
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn index_in(directory: &Directory, nqn: &str) -> Result<usize, ServerError> {
    directory.find(nqn).ok_or_else(|| ServerError::NoSubsystem(nqn.into()))
}

fn no_namespace(nqn: &str, nsid: u32) -> ServerError {
    ServerError::NoNamespace { nqn: nqn.into(), nsid }
}
