//! Assembles a server: listeners, namespaces, I/O threads.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use pilotlight_nvmf_proto::ids::PortId;
use pilotlight_nvmf_proto::subsystems::directory::Reach;
use pilotlight_nvmf_proto::subsystems::discovery::Endpoint;
use pilotlight_nvmf_proto::subsystems::subsystem::{NamespaceInfo, Subsystem};
use pilotlight_reactor::{Inbox, Sender};
use pilotlight_storage::OpenError;
use pilotlight_storage::background::upkeep::Upkeep;

use super::{Entry, Namespace, Opener, Shared, StartError, Storage, added, send};
use crate::config::{NamespaceConfig, ServerConfig};
use crate::latency_batch::Clock;
use crate::reservation_store::{self, ReservationStore};
use crate::server::listener::{Address, Listener, endpoints};
use crate::server::machine_addresses;
use crate::thread::acks::Acks;
use crate::thread::message::Message;
use crate::thread::message::ThreadOutbox;
use crate::thread::{TargetThread, ThreadParts};

/// Capacity of an I/O thread's inbox.
const INBOX: usize = 16_384;

/// The parts of a server that is not running yet.
pub(crate) struct Assembled {
    pub(crate) listeners: Vec<Arc<Listener>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) inboxes: Arc<[Sender<Message>]>,
    pub(crate) threads: Vec<TargetThread>,
}

impl Assembled {
    /// Opens the configured addresses and namespaces, and creates the I/O threads.
    pub(crate) fn new(
        config: ServerConfig,
        opener: &Opener,
        store: Option<Arc<dyn ReservationStore>>,
    ) -> Result<Self, StartError> {
        let listen = |(id, address): (u16, Address)| match Listener::open(address, PortId(id)) {
            Ok(listener) => Ok(Arc::new(listener)),
            Err(source) => Err(StartError::listen(address, source)),
        };
        let listeners = (1..).zip(Address::all(&config)).map(listen).collect::<Result<Vec<_>, _>>()?;
        let endpoints = endpoints(&listeners)?;
        let subsystems = open_all(&config, opener, store.as_deref())?;
        let io_threads = config.io_threads.max(1) as usize;
        let pool_bytes = config.limits.buffer_memory as usize / io_threads;
        let shared = Arc::new(shared(config, subsystems, endpoints, store)?);
        let ends: Vec<Inbox<Message>> = (0..io_threads).map(|_| Inbox::new(INBOX)).collect();
        let inboxes: Arc<[Sender<Message>]> = ends.iter().map(Inbox::sender).collect();
        let thread = |(id, inbox)| {
            TargetThread::new(ThreadParts {
                id: id as u16,
                inbox,
                out: ThreadOutbox::new(Arc::clone(&inboxes)),
                pool_bytes,
                counters: shared.counters(id),
                clock: Clock::Monotonic,
                shared: Arc::clone(&shared),
            })
        };
        let threads = ends.into_iter().enumerate().map(thread).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { listeners, shared, inboxes, threads })
    }
}

impl Shared {
    /// Shared state without a server.
    #[cfg(feature = "testing")]
    pub(crate) fn for_tests(config: ServerConfig, opener: &Opener) -> Result<Self, StartError> {
        let subsystems = open_all(&config, opener, None)?;
        let address = (std::net::Ipv4Addr::LOCALHOST, crate::config::DEFAULT_PORT).into();
        let security = crate::config::Security::Plain;
        let endpoint = Endpoint { id: PortId::default(), address, security, is_v6_only: false };
        shared(config, subsystems, (vec![endpoint], Vec::new()), None)
    }

    /// The messages that announce every namespace to an I/O thread.
    ///
    /// # Errors
    /// If a channel cannot be opened.
    pub(crate) fn announcements(&self) -> Result<Vec<Message>, StartError> {
        let acks = Acks::new(); // no need to wait: connections come after these messages
        let state = self.state();
        let mut messages = vec![Message::Views { views: Arc::clone(&state.views), applied: acks.expect() }];
        for (subsystem, entry) in state.subsystems.iter().enumerate() {
            for (&nsid, namespace) in &entry.namespaces {
                let change = added(namespace, nsid).map_err(|source| StartError::Namespace {
                    nqn: entry.subsystem.nqn().into(),
                    nsid,
                    source,
                })?;
                messages.push(Message::Namespace { subsystem, nsid, change, applied: acks.expect() });
            }
        }
        drop(state);
        let list = self.list();
        self.state().list = Some(Arc::clone(&list));
        messages.push(Message::Listed { list, changed: Arc::new([]), applied: acks.expect() });
        Ok(messages)
    }
}

/// Announces the namespaces to the running I/O threads, before the first connection: a host that reconnects at once must
/// find its namespaces.
pub(crate) fn announce(shared: &Shared, inboxes: &[Sender<Message>]) -> Result<(), StartError> {
    for inbox in inboxes {
        shared.announcements()?.into_iter().for_each(|message| send(inbox, message));
    }
    Ok(())
}

/// The shared state, with classes and the limits of namespaces.
fn shared(
    config: ServerConfig,
    subsystems: Vec<Entry>,
    (endpoints, discovery_endpoints): (Vec<Endpoint>, Vec<Endpoint>),
    store: Option<Arc<dyn ReservationStore>>,
) -> Result<Shared, StartError> {
    let reach = Reach {
        machine: machine_addresses::read_for(&endpoints),
        endpoints,
        discovery_endpoints,
        paths: config.paths.clone(),
        advertised: config.advertised(),
        referrals: config.referrals.clone(),
    };
    let shared = Shared::new(config, subsystems, reach, store)?;
    shared.add_configured_limits();
    shared.update_classes(&[]);
    Ok(shared)
}

fn open_all(
    config: &ServerConfig,
    opener: &Opener,
    store: Option<&dyn ReservationStore>,
) -> Result<Vec<Entry>, StartError> {
    let mut entries = Vec::new();
    for subsystem_config in &config.subsystems {
        let subsystem = Arc::new(Subsystem::new(subsystem_config));
        let mut namespaces = BTreeMap::new();
        for ns in &subsystem_config.namespaces {
            let opened = opener(ns).and_then(|backend| namespace(&subsystem, ns, Storage::new(backend), store));
            let namespace = opened.map_err(|source| StartError::Namespace {
                nqn: subsystem_config.nqn.clone(),
                nsid: ns.nsid,
                source,
            })?;
            namespaces.insert(ns.nsid, namespace);
        }
        entries.push(Entry { subsystem, namespaces });
    }
    Ok(entries)
}

pub(super) fn namespace(
    subsystem: &Subsystem,
    config: &NamespaceConfig,
    storage: Storage,
    store: Option<&dyn ReservationStore>,
) -> Result<Namespace, OpenError> {
    let upkeep = Arc::new(Upkeep::new(storage.backend.tracker().cloned()));
    let info = NamespaceInfo::new(subsystem, config, storage.backend.geometry());
    let reservation = Arc::new(reservation_store::open(&info.uuid, store)?);
    let info = NamespaceInfo { upkeep, reservation, ..info };
    info.allocated_bytes.set(storage.backend.allocated_bytes().ok());
    Ok(Namespace { info, limit: Arc::default(), storage, hosts: config.hosts.clone() })
}
