//! Changes of namespaces and subsystems of a running server.
//!
//! # The problem
//! I/O threads learn of a change one by one. If one of them notified a host at once, the host could use another that does
//! not have the change yet, and get Invalid Namespace or LBA Out of Range with Do Not Retry for a valid command.
//!
//! # The algorithm
//! Two broadcasts, each acknowledged by every I/O thread. With the first, I/O threads apply the change, which is not visible
//! to hosts yet. With the second, they get the new list of namespaces for Identify and send asynchronous events. The list
//! includes the directory of subsystems (`directory.rs`), whose changes need only the second broadcast: after it hosts that
//! are not allowed cannot connect, and connected ones are in the register.
//!
//! # The properties
//! - When a host is notified of a change, or sees it in Identify, every I/O thread has applied it.
//! - When a method returns, the change is visible to every host.
//! - Failures occur before the first message: then nothing has changed.
//! - Requests in progress are finished, those of a removed namespace included.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pilotlight_nvmf_proto::association::Association;
use pilotlight_nvmf_proto::queue_pair::message::QueueMessage;
use pilotlight_nvmf_proto::subsystems::directory::{Directory, MAX_PLACES};
use pilotlight_nvmf_proto::subsystems::discovery::Endpoint;
use pilotlight_nvmf_proto::subsystems::subsystem::Subsystem;
use pilotlight_nvmf_proto::subsystems::views::ChangedNamespace;
use pilotlight_reactor::Sender;
use pilotlight_storage::lease::Closed;
use pilotlight_storage::{Backend, Geometry};

use super::assemble::namespace;
use super::{Draining, Entry, Namespace, Opener, ServerError, Shared, State, Storage, added, no_namespace, send};
use crate::config::Advertised;
use crate::config::{NamespaceConfig, SubsystemConfig, allows};
use crate::namespaces::NamespaceChange;
use crate::thread::acks::{Ack, Acks};
use crate::thread::message::Message;

/// Time limit for closing the storage of removed namespaces when another one cannot be opened.
const CLOSING: Duration = Duration::from_secs(10);

/// Changes the namespaces of a server.
pub struct Changes {
    pub(super) shared: Arc<Shared>,
    pub(super) threads: Arc<[Sender<Message>]>,
    opener: Box<Opener>,
    /// Held during a change; contains the storage of removed namespaces until it is closed.
    one_at_a_time: Mutex<Vec<Arc<Closed>>>,
}

/// A namespace: index of the subsystem, and NSID.
type Key = (usize, u32);

impl Changes {
    /// Changes `shared` and `threads`.
    pub(crate) fn new(shared: Arc<Shared>, threads: Arc<[Sender<Message>]>, opener: Box<Opener>) -> Self {
        Self { shared, threads, opener, one_at_a_time: Mutex::default() }
    }

    /// As [`super::Server::add_namespace`].
    ///
    /// # Errors
    /// As there.
    pub fn add(&self, nqn: &str, config: &NamespaceConfig) -> Result<(), ServerError> {
        let closing = self.begin();
        let index = self.index_of(nqn)?;
        self.refuse_existing(nqn, index, config.nsid)?;
        let storage = Storage::new(self.open(config, &closing)?);
        let added = namespace(&self.identity(index), config, storage, self.shared.reservation_store.as_deref())?;
        let changes = self.channels(&added, config.nsid)?;
        self.restrict(index, config.nsid, &config.hosts);
        self.apply((index, config.nsid), changes);
        self.shared.add_limit(&added, (nqn, config.nsid), &config.backend);
        self.change_state(|state| state.subsystems[index].namespaces.insert(config.nsid, added));
        self.publish(&[(index, config.nsid)]);
        Ok(())
    }

    /// As [`super::Server::remove_namespace`].
    ///
    /// # Errors
    /// As there.
    pub fn remove(&self, nqn: &str, nsid: u32) -> Result<(), ServerError> {
        let mut closing = self.begin();
        let index = self.index_of(nqn)?;
        self.remove_at(nqn, (index, nsid), &mut closing)
    }

    fn remove_at(&self, nqn: &str, (index, nsid): Key, closing: &mut Vec<Arc<Closed>>) -> Result<(), ServerError> {
        closing.push(self.storage(nqn, index, nsid)?.lease.closed());
        self.apply((index, nsid), self.threads.iter().map(|_| NamespaceChange::Removed));
        let removed = self.change_state(|state| state.subsystems[index].namespaces.remove(&nsid));
        self.publish(&[(index, nsid)]);
        self.restrict(index, nsid, &[]);
        removed.iter().for_each(|removed| self.shared.remove_limit(removed));
        removed.iter().for_each(|removed| removed.info.reservation.end());
        drop(removed);
        Ok(())
    }

    /// As [`super::Server::add_subsystem`].
    ///
    /// # Errors
    /// As there.
    pub fn add_subsystem(&self, config: &SubsystemConfig) -> Result<(), ServerError> {
        let _one_at_a_time = self.begin();
        let directory = self.directory();
        if directory.find(&config.nqn).is_some() {
            return Err(ServerError::SubsystemExists(config.nqn.clone()));
        }
        let used = || self.shared.hosts.associations.subsystems();
        let at = directory.place_for(&config.nqn, used).ok_or(ServerError::TooManySubsystems(MAX_PLACES))?;
        if directory.subsystem(at).is_some_and(|before| before.nqn() != config.nqn) {
            self.shared.counters.iter().for_each(|counters| counters.forget_subsystem(at));
        }
        let subsystem = Arc::new(Subsystem::new(config));
        let entry = Entry { subsystem: Arc::clone(&subsystem), namespaces: BTreeMap::new() };
        self.change_state(|state| match state.subsystems.get_mut(at) {
            Some(known) => *known = entry,
            None => state.subsystems.push(entry),
        });
        self.shared.list_hosts(&config.allowed_hosts);
        self.change_directory(|directory| directory.with(at, subsystem, config));
        Ok(())
    }

    /// As [`super::Server::remove_subsystem`].
    ///
    /// # Errors
    /// As there.
    pub fn remove_subsystem(&self, nqn: &str) -> Result<(), ServerError> {
        let mut closing = self.begin();
        let at = self.index_of(nqn)?;
        self.change_directory(|directory| directory.without(at));
        // Connections are closed before the namespaces are removed, so that no commands fail.
        for queue in self.shared.hosts.associations.queues_where(|host| host.subsystem == at) {
            send(&self.threads[usize::from(queue.thread)], Message::Queue(QueueMessage::Terminate(queue)));
        }
        let nsids: Vec<u32> = self.change_state(|state| state.subsystems[at].namespaces.keys().copied().collect());
        nsids.into_iter().try_for_each(|nsid| self.remove_at(nqn, (at, nsid), &mut closing))
    }

    /// As [`super::Server::set_allowed_hosts`].
    ///
    /// # Errors
    /// As there.
    pub fn set_allowed_hosts(&self, nqn: &str, allowed_hosts: &[String]) -> Result<Draining, ServerError> {
        let _one_at_a_time = self.begin();
        let at = self.index_of(nqn)?;
        self.shared.list_hosts(allowed_hosts);
        self.change_directory(|directory| directory.with_allowed_hosts(at, allowed_hosts));
        Ok(self
            .end_associations(|Association { host, .. }| host.subsystem == at && !allows(allowed_hosts, &host.hostnqn)))
    }

    /// As [`super::Server::set_subsystem_listen`].
    ///
    /// # Errors
    /// As there.
    pub fn set_subsystem_listen(&self, nqn: &str, listen: &[SocketAddr]) -> Result<Draining, ServerError> {
        let _one_at_a_time = self.begin();
        let at = self.index_of(nqn)?;
        self.change_directory(|directory| directory.with_listen(at, listen));
        let directory = self.directory();
        Ok(self.end_associations(|one| one.host.subsystem == at && !directory.is_offered(at, one.origin.port)))
    }

    /// Publishes other endpoints: those of subsystems, and those of the discovery service alone.
    pub(super) fn set_endpoints(&self, (endpoints, discovery): (Vec<Endpoint>, Vec<Endpoint>)) {
        let _one_at_a_time = self.begin();
        self.change_directory(|directory| directory.with_endpoints(endpoints, discovery));
    }

    /// Publishes other addresses of the machine.
    pub(super) fn set_machine_addresses(&self, machine: Vec<IpAddr>) {
        let _one_at_a_time = self.begin();
        self.change_directory(|directory| directory.with_machine(machine));
    }

    /// As [`super::Server::set_discovery`].
    pub fn set_discovery(&self, advertised: Advertised, referrals: Vec<(String, u16)>) {
        let _one_at_a_time = self.begin();
        self.change_directory(|directory| directory.with_reach(advertised, referrals));
    }

    /// As [`super::Server::resize_namespace`].
    ///
    /// # Errors
    /// As there.
    pub fn resize(&self, nqn: &str, nsid: u32, blocks: Option<u64>) -> Result<u64, ServerError> {
        let _one_at_a_time = self.begin();
        let index = self.index_of(nqn)?;
        let backend = self.storage(nqn, index, nsid)?.backend;
        let before = backend.geometry();
        let geometry = backend.resize(blocks)?;
        if geometry != before {
            self.apply((index, nsid), self.threads.iter().map(|_| NamespaceChange::Resized(geometry)));
            self.change_state(|state| set_geometry(state, index, nsid, geometry));
            self.publish(&[(index, nsid)]);
        }
        Ok(geometry.blocks)
    }

    /// As [`super::Server::move_namespace`].
    ///
    /// # Errors
    /// As there.
    pub fn move_to(&self, from: (&str, u32), to: &str, config: &NamespaceConfig) -> Result<(), ServerError> {
        let _one_at_a_time = self.begin();
        let old = (self.index_of(from.0)?, from.1);
        let new = (self.index_of(to)?, config.nsid);
        let storage = self.storage(from.0, old.0, old.1)?;
        self.refuse_existing(to, new.0, new.1)?;
        let actual = storage.backend.geometry().block_size;
        if actual != config.block_size {
            return Err(ServerError::OtherBlockSize {
                nqn: from.0.into(),
                nsid: from.1,
                actual,
                requested: config.block_size,
            });
        }
        let mut moved = namespace(&self.identity(new.0), config, storage, self.shared.reservation_store.as_deref())?;
        self.keep_reservation(old, &mut moved);
        let reservation = Arc::clone(&moved.info.reservation);
        let changes = self.channels(&moved, new.1)?;
        self.restrict(new.0, new.1, &config.hosts);
        self.apply(new, changes);
        self.apply(old, self.threads.iter().map(|_| NamespaceChange::Removed));
        self.shared.add_limit(&moved, (to, config.nsid), &config.backend);
        let removed = self.change_state(|state| {
            state.subsystems[new.0].namespaces.insert(new.1, moved);
            state.subsystems[old.0].namespaces.remove(&old.1)
        });
        self.publish(&[old, new]);
        self.restrict(old.0, old.1, &[]);
        let has_left = |one: &&Namespace| !Arc::ptr_eq(&one.info.reservation, &reservation);
        removed.iter().filter(has_left).for_each(|removed| removed.info.reservation.end());
        removed.iter().for_each(|removed| self.shared.remove_limit(removed));
        Ok(())
    }

    /// Gives a moved namespace the reservation that it has, if its identity stays.
    fn keep_reservation(&self, (subsystem, nsid): Key, moved: &mut Namespace) {
        let state = self.shared.state();
        let before = state.subsystems[subsystem].namespaces.get(&nsid).map(|namespace| &namespace.info);
        if let Some(before) = before.filter(|before| before.uuid == moved.info.uuid) {
            moved.info.reservation = Arc::clone(&before.reservation);
        }
    }

    /// Begins a change; returns the unclosed storage of removed namespaces.
    pub(super) fn begin(&self) -> MutexGuard<'_, Vec<Arc<Closed>>> {
        let mut closing = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        closing.retain(|storage| !storage.wait(Instant::now()));
        closing
    }

    /// Opens a backend. Its resources (a lock, a device, memory) may still belong to a namespace that was just removed.
    fn open(&self, config: &NamespaceConfig, closing: &[Arc<Closed>]) -> Result<Arc<dyn Backend>, ServerError> {
        let failed = match (self.opener)(config) {
            Ok(backend) => return Ok(backend),
            Err(error) => error,
        };
        if closing.is_empty() {
            return Err(failed.into());
        }
        let until = Instant::now() + CLOSING;
        let closed = closing.iter().all(|storage| storage.wait(until));
        (self.opener)(config).map_err(|source| if closed { source.into() } else { ServerError::Closing(source) })
    }

    /// First broadcast: every I/O thread applies its change of a namespace.
    fn apply(&self, (subsystem, nsid): Key, changes: impl IntoIterator<Item = NamespaceChange>) {
        let mut changes = changes.into_iter();
        self.broadcast(|applied| {
            let change = changes.next().expect("a change for each I/O thread");
            Message::Namespace { subsystem, nsid, change, applied }
        });
    }

    /// Changes the directory on every I/O thread, and notifies hosts with discovery log events enabled.
    pub(super) fn change_directory(&self, change: impl FnOnce(Directory) -> Directory) {
        let changed = Arc::new(change((*self.directory()).clone()));
        self.shared.hosts.associations.reserve(changed.reserved_ids());
        self.change_state(|state| state.directory = changed);
        self.publish(&[]);
    }

    pub(super) fn directory(&self) -> Arc<Directory> {
        Arc::clone(&self.shared.state().directory)
    }

    fn identity(&self, index: usize) -> Arc<Subsystem> {
        Arc::clone(&self.shared.state().subsystems[index].subsystem)
    }

    /// Second broadcast: publishes the state in Identify, and notifies hosts of changed namespaces.
    fn publish(&self, changed: &[Key]) {
        let one = |&(subsystem, nsid): &Key| ChangedNamespace { subsystem, nsid, before: None };
        self.publish_changes(&changed.iter().map(one).collect());
    }

    /// As [`Self::publish`], possibly for changes of visibility. The previous list is released here: it may be long.
    pub(super) fn publish_changes(&self, changed: &Arc<[ChangedNamespace]>) {
        let list = self.shared.list();
        let before = self.change_state(|state| state.list.replace(Arc::clone(&list)));
        self.broadcast(|applied| Message::Listed { list: Arc::clone(&list), changed: Arc::clone(changed), applied });
        drop(before);
    }

    /// Sends a message to every I/O thread, and waits until each has processed it.
    pub(super) fn broadcast(&self, mut message: impl FnMut(Ack) -> Message) {
        let acks = Acks::new();
        for thread in self.threads.iter() {
            send(thread, message(acks.expect()));
        }
        acks.wait(|missing| {
            tracing::warn!(missing, "a change of a namespace waits for I/O threads that do not respond");
        });
    }

    pub(super) fn change_state<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.shared.state())
    }

    fn channels(&self, namespace: &Namespace, nsid: u32) -> Result<Vec<NamespaceChange>, ServerError> {
        Ok(self.threads.iter().map(|_| added(namespace, nsid)).collect::<Result<_, _>>()?)
    }

    /// The storage of a namespace. The state is not locked during its use: a backend may wait for requests of I/O threads.
    pub(super) fn storage(&self, nqn: &str, index: usize, nsid: u32) -> Result<Storage, ServerError> {
        let found = self.shared.storage(index, nsid);
        found.ok_or_else(|| no_namespace(nqn, nsid))
    }

    fn refuse_existing(&self, nqn: &str, index: usize, nsid: u32) -> Result<(), ServerError> {
        match self.shared.storage(index, nsid) {
            Some(_) => Err(ServerError::Exists { nqn: nqn.into(), nsid }),
            None => Ok(()),
        }
    }

    pub(super) fn index_of(&self, nqn: &str) -> Result<usize, ServerError> {
        self.shared.index_of(nqn)
    }
}

fn set_geometry(state: &mut State, index: usize, nsid: u32, geometry: Geometry) {
    if let Some(namespace) = state.subsystems[index].namespaces.get_mut(&nsid) {
        namespace.info.geometry = geometry;
    }
}
