//! State shared by all I/O threads, and the subsystems and namespaces.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossbeam_queue::ArrayQueue;
use pilotlight_nvmf_proto::services::{AuthenticationRequest, ReservationRequest, ThreadLimits, UtilizationRequest};
use pilotlight_nvmf_proto::subsystems::directory::{Directory, Reach};
use pilotlight_nvmf_proto::subsystems::listing::NamespaceList;
use pilotlight_nvmf_proto::subsystems::subsystem::{NamespaceInfo, Subsystem};
use pilotlight_nvmf_proto::subsystems::views::{Restricted, Views};
use pilotlight_reactor::housekeeping::Waker;
use pilotlight_storage::Backend;
use pilotlight_storage::background::control::Background;
use pilotlight_storage::lease::Lease;
use pilotlight_storage::reaper::Reaper;

use crate::caps::{Caps, Limit};
use crate::config::ServerConfig;
use crate::hosts::Hosts;
use crate::hosts::authentication_queue::Turns;
use crate::latency::{Latencies, SocketLatencyStats};
use crate::offload::Requests;
use crate::reservation_store::ReservationStore;
use crate::stats::Counters;
use crate::stop_state::StopState;
use crate::thread::classes::Placement;

/// Time limit of a Connect, in nanoseconds: it waits for queues of the host's earlier association to stop.
const CONNECT_TIMEOUT_NS: u64 = 60_000_000_000;

/// State shared by all I/O threads, not used by reads and writes. I/O threads do not access [`State`]: they get changes by
/// message.
pub struct Shared {
    /// Limits.
    pub limits: ThreadLimits,
    /// The hosts.
    pub hosts: Arc<Hosts>,
    /// Identify commands that wait for the allocated bytes of a namespace.
    pub utilization: Requests<ArrayQueue<UtilizationRequest>>,
    /// Messages of authentication to check.
    pub authentication: Requests<Mutex<Turns<AuthenticationRequest>>>,
    /// Commands on reservations that wait.
    pub reservations: Requests<ArrayQueue<ReservationRequest>>,
    /// Keeps reservations over a restart.
    pub(crate) reservation_store: Option<Arc<dyn ReservationStore>>,
    /// Closes channels.
    pub(crate) reaper: Reaper,
    /// State of the stop.
    pub(crate) stop_state: StopState,
    /// Woken by failed commands.
    pub failed: Waker,
    /// Bandwidth caps.
    pub caps: Arc<Caps>,
    /// Sampling of latencies.
    pub latencies: Arc<Latencies>,
    /// Background work.
    pub background: Arc<Background>,
    pub(crate) placement: Placement,
    pub(crate) config: ServerConfig,
    pub(crate) state: Mutex<State>,
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) connections: AtomicU32,
    #[cfg(feature = "testing")]
    pub(crate) records_moves: std::sync::atomic::AtomicBool,
    pub(crate) started: Instant,
}

/// The subsystems and namespaces, used only by OS threads that are not reactors.
pub(crate) struct State {
    /// The subsystems.
    pub(crate) directory: Arc<Directory>,
    /// The namespaces visible to each host.
    pub(crate) views: Arc<Views>,
    /// The last list that I/O threads were sent.
    pub(crate) list: Option<Arc<NamespaceList>>,
    /// By directory index. A removed subsystem has no namespaces.
    pub(crate) subsystems: Vec<Entry>,
}

pub(crate) struct Entry {
    pub(crate) subsystem: Arc<Subsystem>,
    pub(crate) namespaces: BTreeMap<u32, Namespace>,
}

pub(crate) struct Namespace {
    pub(crate) info: NamespaceInfo,
    pub(crate) limit: Arc<Limit>,
    pub(crate) storage: Storage,
    /// The hosts to which it is attached; empty: all.
    pub(crate) hosts: Vec<String>,
}

/// A namespace's backend and its lease, in the order in which they are dropped.
#[derive(Clone)]
pub(crate) struct Storage {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) lease: Lease,
}

impl Storage {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, lease: Lease::default() }
    }
}

/// Namespaces visible to some hosts only.
pub(crate) fn restricted(entry: &Entry) -> Vec<Restricted> {
    let of = |(&nsid, namespace): (&u32, &Namespace)| Restricted { nsid, hosts: namespace.hosts.clone() };
    entry.namespaces.iter().map(of).filter(|one| !one.hosts.is_empty()).collect()
}

/// The initial views.
fn views_of(subsystems: &[Entry]) -> Views {
    let with = |views: Views, (at, entry): (usize, &Entry)| {
        let restricted = restricted(entry);
        views.prepared(at, &restricted).restricted_to(at, &restricted)
    };
    subsystems.iter().enumerate().fold(Views::default(), with)
}

impl Shared {
    /// The state of a server with these subsystems, without classes and the limits of namespaces.
    pub(crate) fn new(
        config: ServerConfig,
        subsystems: Vec<Entry>,
        reach: Reach,
        reservation_store: Option<Arc<dyn ReservationStore>>,
    ) -> io::Result<Self> {
        let identities: Vec<_> = subsystems.iter().map(|entry| Arc::clone(&entry.subsystem)).collect();
        let directory = Arc::new(Directory::new(&config.subsystems, &identities, reach));
        let views = Arc::new(views_of(&subsystems));
        let limits = ThreadLimits {
            max_queue_depth: config.limits.max_queue_depth,
            max_io_queues: config.limits.max_io_queues,
            icreq_timeout_ns: config.limits.icreq_timeout.as_nanos() as u64,
            connect_timeout_ns: CONNECT_TIMEOUT_NS,
        };
        let shared = Self {
            limits,
            hosts: Arc::new(Hosts::new(&config)),
            utilization: Requests::default(),
            authentication: Requests::new(Mutex::default()),
            reservations: Requests::default(),
            reservation_store,
            failed: Waker::default(),
            caps: Arc::default(),
            latencies: Arc::default(),
            background: Arc::new(Background::new(config.background.clone(), config.io_threads.max(1) as usize)),
            placement: Placement::new(config.io_threads.max(1) as usize, config.placement),
            state: Mutex::new(State { directory, views, list: None, subsystems }),
            reaper: Reaper::start()?,
            stop_state: StopState::default(),
            counters: (0..config.io_threads.max(1)).map(|_| Arc::new(Counters::default())).collect(),
            connections: AtomicU32::new(0),
            #[cfg(feature = "testing")]
            records_moves: false.into(),
            started: Instant::now(),
            config,
        };
        shared.hosts.associations.set_views(Arc::clone(&shared.state().views));
        shared.hosts.associations.reserve(shared.state().directory.reserved_ids());
        Ok(shared)
    }

    /// One I/O thread's counters.
    pub(crate) fn counters(&self, thread: usize) -> Arc<Counters> {
        Arc::clone(&self.counters[thread])
    }

    /// Latencies from the socket of all I/O threads.
    pub(crate) fn socket_latency(&self) -> SocketLatencyStats {
        let mut sum = SocketLatencyStats::default();
        self.counters.iter().for_each(|counters| sum += &counters.from_socket.snapshot());
        sum
    }

    /// The limit of a host. Takes a lock: for Connect.
    pub(crate) fn host_limit(&self, nqn: &str) -> Arc<Limit> {
        self.caps.host(nqn)
    }

    /// The list of namespaces for hosts.
    pub(crate) fn list(&self) -> Arc<NamespaceList> {
        let state = self.state();
        let listed = |entry: &Entry| entry.namespaces.iter().map(|(&nsid, ns)| (nsid, ns.info.clone())).collect();
        let subsystems = state.subsystems.iter().map(listed).collect();
        Arc::new(NamespaceList::new(Arc::clone(&state.directory), subsystems, Arc::clone(&state.views)))
    }

    /// The storage of a namespace.
    pub(crate) fn storage(&self, subsystem: usize, nsid: u32) -> Option<Storage> {
        let state = self.state();
        let namespace = state.subsystems.get(subsystem)?.namespaces.get(&nsid)?;
        Some(namespace.storage.clone())
    }

    /// Updates the allocated bytes of a namespace. May block: not for reactors.
    pub(crate) fn read_utilization(&self, subsystem: usize, nsid: u32) {
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

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether I/O threads record the work in progress at moves.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn records_moves(&self) -> bool {
        self.records_moves.load(Relaxed)
    }

    /// Enables recording of the work in progress at moves.
    #[cfg(feature = "testing")]
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
