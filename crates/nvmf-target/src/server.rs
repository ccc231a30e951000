//! A running target: start, changes at run time, stop.

mod assemble;
mod authentication;
mod caps;
mod changes;
mod connections;
pub mod distributor;
mod error;
mod failure_log;
pub mod handshakes;
mod latency_meter;
pub mod listener;
mod listeners;
pub(crate) mod machine_addresses;
mod notices;
mod offload;
mod priorities;
pub(crate) mod reservations;
mod stats;
mod stop;
mod utilization;
mod visibility;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pilotlight_plant::{Component, CoreId, Policy, Unreachable, Unsupported, View};
use pilotlight_reactor::housekeeping::Task;
use pilotlight_reactor::{Housekeeping, Idle, Runtime, RuntimeOptions, Sender};

use crate::caps::{CapKnobs, meter};
use crate::config::{Advertised, Security};
use crate::config::{NamespaceConfig, ServerConfig, SubsystemConfig};
use crate::hosts::authentication::AuthenticationConfig;
use crate::namespaces::NamespaceChange;
use crate::reservation_store::ReservationStore;
use crate::server::distributor::Distributor;
use crate::server::listener::Address;
use crate::server::listeners::Listeners;
pub use crate::shared::Shared;
use crate::shared::{Entry, Namespace, State, Storage};
use crate::thread::message::Message;
pub(crate) use assemble::{Assembled, announce};
pub use caps::{CapStats, Capped};
pub use changes::Changes;
pub use connections::{AssociationStats, Draining, Ended};
pub use error::{DrainError, Leftover, ServerError, StartError};
use notices::Notices;
use offload::Worker;
pub use pilotlight_nvmf_proto::ids::DISCOVERY;
use pilotlight_nvmf_proto::services::AuthenticationRequest;
use pilotlight_nvmf_proto::services::ReservationRequest;
pub use pilotlight_nvmf_proto::services::ThreadLimits;
pub use pilotlight_nvmf_proto::services::UtilizationRequest;
use pilotlight_nvmf_proto::subsystems::directory::Directory;
use pilotlight_storage::background::control::Class;
use pilotlight_storage::background::knobs::{self, BackgroundKnobs, BackgroundReadings};
use pilotlight_storage::lease::Leased;
use pilotlight_storage::{Access, Backend, CHANNEL_DEPTH, MemoryBudget, OpenError};
use priorities::Priorities;
pub use stats::{NamespaceFailures, NamespaceUsage, ServerStats, TargetThreadStats};

/// Opens a namespace's backend.
pub type Opener = dyn Fn(&NamespaceConfig) -> Result<Arc<dyn Backend>, OpenError> + Send + Sync;

/// A running target.
pub struct Server {
    shared: Arc<Shared>,
    threads: Arc<[Sender<Message>]>,
    listeners: Listeners,
    runtime: Runtime,
    changes: Arc<Changes>,
    priorities: Priorities,
    /// Serves [`Shared::utilization`].
    _utilization: Worker<UtilizationRequest>,
    /// Serves [`Shared::authentication`].
    _authentication: Worker<AuthenticationRequest>,
    /// Serves [`Shared::reservations`].
    _reservations: Worker<ReservationRequest>,
    notices: Notices,
    _tasks: [Task; 4],
    housekeeping: Housekeeping,
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
        let opener = move |ns: &NamespaceConfig| pilotlight_storage::open(&ns.backend, ns.block_size, &budget);
        Self::start_with(config, options, Box::new(opener))
    }

    /// Starts a server on given reactors with an opener of backends.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(config: ServerConfig, options: RuntimeOptions, opener: Box<Opener>) -> Result<Self, StartError> {
        Self::start_with_store(config, options, opener, None)
    }

    /// As [`Server::start_with`], with what keeps reservations over a restart; without it hosts cannot ask for that.
    ///
    /// # Errors
    /// As [`Server::start`], or if the reservations of a namespace cannot be read.
    pub fn start_with_store(
        config: ServerConfig,
        mut options: RuntimeOptions,
        opener: Box<Opener>,
        store: Option<Arc<dyn ReservationStore>>,
    ) -> Result<Self, StartError> {
        let Assembled { listeners, shared, inboxes, threads } = Assembled::new(config, &opener, store)?;
        if BackgroundKnobs::are_offered(&shared.background) {
            options.knobs = Some(Arc::new(BackgroundKnobs::new(options.knobs.take(), Arc::clone(&shared.background))));
            options.readings =
                Some(Arc::new(BackgroundReadings::new(options.readings.take(), Arc::clone(&shared.background))));
        }
        let cpus: Vec<u32> = options.cores.iter().flatten().copied().collect();
        let housekeeping = Housekeeping::start(cpus.clone())?;
        let background = knobs::housekeep(&shared.background, &housekeeping);
        options.knobs = Some(Arc::new(CapKnobs::new(options.knobs.take(), Arc::clone(&shared.caps))));
        let (bandwidth, readings) =
            meter::start(options.readings.take(), (&shared.caps, &shared.latencies), &housekeeping);
        options.readings = Some(readings);
        let latency = latency_meter::start(&shared, &housekeeping);
        let runtime = Runtime::start(&options)?;
        for (id, thread) in threads.into_iter().enumerate() {
            runtime.adopt(CoreId((id % options.cores.len()) as u16), Box::new(thread));
        }
        announce(&shared, &inboxes)?;
        let utilization = Worker::start(&shared, Arc::clone(&inboxes), cpus.clone())?;
        let authentication = Worker::start(&shared, Arc::clone(&inboxes), cpus.clone())?;
        let reservations = Worker::start(&shared, Arc::clone(&inboxes), cpus.clone())?;
        let failures = failure_log::start(&shared, &housekeeping);
        let notices = Notices::start(&shared, runtime.plant_notice(), &housekeeping);
        let distributor = Arc::new(Distributor::new(Arc::clone(&inboxes), Arc::clone(&shared)));
        let changes = Arc::new(Changes::new(Arc::clone(&shared), Arc::clone(&inboxes), opener));
        let listeners = Listeners::start(listeners, (distributor, cpus), &changes)?;
        Ok(Self {
            shared,
            threads: inboxes,
            listeners,
            runtime,
            changes,
            priorities: Priorities::default(),
            _utilization: utilization,
            _authentication: authentication,
            _reservations: reservations,
            notices,
            _tasks: [failures, bandwidth, latency, background],
            housekeeping,
        })
    }

    /// Sets secrets and policy for queues that connect from now on, and for exchanges that begin. Connections are kept.
    pub fn set_authentication(&self, authentication: AuthenticationConfig) {
        let before = self.shared.hosts.authenticator.config();
        self.shared.hosts.authenticator.set(authentication);
        let now = self.shared.hosts.authenticator.config();
        self.shared
            .hosts
            .generated
            .retain(|host| before.hosts.get(host).is_some_and(|old| now.hosts.get(host) == Some(old)));
    }

    /// The thread for short periodic work.
    #[must_use]
    pub fn housekeeping(&self) -> &Housekeeping {
        &self.housekeeping
    }

    /// The listening addresses without TLS.
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.addresses(Security::Plain)
    }

    /// The listening addresses with TLS.
    #[must_use]
    pub fn tls_addrs(&self) -> Vec<SocketAddr> {
        self.addresses(Security::Tls)
    }

    /// The listening addresses for secure channel concatenation.
    #[must_use]
    pub fn concatenation_addrs(&self) -> Vec<SocketAddr> {
        self.addresses(Security::Concatenation)
    }

    fn addresses(&self, security: Security) -> Vec<SocketAddr> {
        let directory = self.changes.directory();
        let of_kind = directory.endpoints().iter().filter(|endpoint| endpoint.security == security);
        of_kind.map(|endpoint| endpoint.address).collect()
    }

    /// Listens on the addresses of `config`, and no others. Associations that began on others are ended as by
    /// [`Server::disconnect`]. Hosts with discovery log events enabled are notified.
    ///
    /// # Errors
    /// If an address cannot be listened on. Nothing has changed then, but if it had to replace another with its port, hosts of that were
    /// disconnected.
    pub fn set_listeners(&self, config: &ServerConfig) -> Result<Draining, ServerError> {
        self.listeners.change(&self.changes, &Address::all(config))
    }

    /// Offers a subsystem on these of the server's addresses, or for none on all. Associations that began on others are ended as by
    /// [`Server::disconnect`]. Affected hosts with discovery log events enabled are notified.
    ///
    /// # Errors
    /// If there is no such subsystem.
    pub fn set_subsystem_listen(&self, nqn: &str, listen: &[SocketAddr]) -> Result<Draining, ServerError> {
        self.changes.set_subsystem_listen(nqn, listen)
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

    /// Makes I/O threads record the work in progress at moves.
    #[cfg(feature = "testing")]
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

    /// How requests of namespace `nsid` of subsystem `nqn` reach its medium; `None` where they do not wait for one.
    ///
    /// # Errors
    /// If there is no such namespace.
    pub fn access(&self, nqn: &str, nsid: u32) -> Result<Option<Access>, ServerError> {
        let storage = self.shared.storage(self.shared.index_of(nqn)?, nsid);
        Ok(storage.ok_or_else(|| no_namespace(nqn, nsid))?.backend.access())
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

    /// Sets the advertised addresses and the referrals of the discovery log.
    pub fn set_discovery(&self, advertised: Advertised, referrals: Vec<(String, u16)>) {
        self.changes.set_discovery(advertised, referrals);
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
fn added(namespace: &Namespace, nsid: u32) -> Result<NamespaceChange, OpenError> {
    let Namespace { info, storage, limit, .. } = namespace;
    let channel = storage
        .backend
        .open_channel(CHANNEL_DEPTH)
        .map_err(|source| OpenError::System { spec: format!("a channel to namespace {nsid}"), source })?;
    let leased = Leased { channel, lease: storage.lease.clone() };
    let reservation = Arc::clone(&info.reservation);
    Ok(NamespaceChange::Added(storage.backend.geometry(), leased, Arc::clone(limit), reservation))
}

/// Sends a message to an I/O thread; waits while its inbox is full.
fn send(thread: &Sender<Message>, mut message: Message) {
    while let Err(returned) = thread.send(message) {
        message = returned;
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Shared {
    fn index_of(&self, nqn: &str) -> Result<usize, ServerError> {
        index_in(&self.state().directory, nqn)
    }
}

fn index_in(directory: &Directory, nqn: &str) -> Result<usize, ServerError> {
    directory.find(nqn).ok_or_else(|| ServerError::NoSubsystem(nqn.into()))
}

fn no_namespace(nqn: &str, nsid: u32) -> ServerError {
    ServerError::NoNamespace { nqn: nqn.into(), nsid }
}
