//! Namespaces that come, go, change their size or their number while the server runs.
//!
//! # The problem
//! I/O threads learn of a change one by one. A host that one of them has told at once could meet another that does not know
//! yet, and would get Invalid Namespace or LBA Out of Range with Do Not Retry for a command that is right.
//!
//! # The algorithm
//! Two rounds of messages, each of which waits for the acknowledgement of every I/O thread. In the first, I/O threads apply
//! the change; nothing that a host can ask for shows it yet. In the second, they get the new list of namespaces for
//! Identify and send the asynchronous events.
//!
//! # The properties
//! - A host that has been told of a change, or sees it in Identify, meets it on every I/O thread.
//! - When a method returns, every host sees the change.
//! - What fails, fails before the first message: then nothing has changed.
//! - Requests in progress are finished, those of a removed namespace included.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pilotlight_reactor::Sender;

use super::assemble::namespace;
use super::{Opener, ServerError, Shared, State, Storage, added, no_namespace, send};
use crate::acks::{Ack, Acks};
use crate::backend::{Backend, Geometry};
use crate::config::NamespaceConfig;
use crate::lease::Closed;
use crate::message::{Message, NamespaceChange};

/// How long the storage of removed namespaces is waited for where another one cannot be opened.
const CLOSING: Duration = Duration::from_secs(10);

/// Changes the namespaces of a server.
pub struct Changes {
    pub(super) shared: Arc<Shared>,
    threads: Arc<[Sender<Message>]>,
    opener: Box<Opener>,
    /// Held during a change: the storage of namespaces that were removed, until it is closed.
    one_at_a_time: Mutex<Vec<Arc<Closed>>>,
}

/// A namespace: index of the subsystem, and NSID.
type Key = (usize, u32);

impl Changes {
    /// Changes what `shared` says and `threads` know.
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
        let changes = self.channels(&storage, config.nsid)?;
        self.apply((index, config.nsid), changes);
        let added = namespace(&self.shared.identities[index], config, storage);
        self.shared.add_limit(&added.info, (nqn, config.nsid), &config.backend);
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
        closing.push(self.storage(nqn, index, nsid)?.lease.closed());
        self.apply((index, nsid), self.threads.iter().map(|_| NamespaceChange::Removed));
        let removed = self.change_state(|state| state.subsystems[index].namespaces.remove(&nsid));
        self.publish(&[(index, nsid)]);
        removed.iter().for_each(|removed| self.shared.remove_limit(&removed.info));
        drop(removed);
        Ok(())
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
            self.change_state(|state| note_geometry(state, index, nsid, geometry));
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
        let has = storage.backend.geometry().block_size;
        if has != config.block_size {
            return Err(ServerError::OtherBlockSize {
                nqn: from.0.into(),
                nsid: from.1,
                has,
                asked: config.block_size,
            });
        }
        let changes = self.channels(&storage, new.1)?;
        self.apply(new, changes);
        self.apply(old, self.threads.iter().map(|_| NamespaceChange::Removed));
        let moved = namespace(&self.shared.identities[new.0], config, storage);
        self.shared.add_limit(&moved.info, (to, config.nsid), &config.backend);
        let removed = self.change_state(|state| {
            state.subsystems[new.0].namespaces.insert(new.1, moved);
            state.subsystems[old.0].namespaces.remove(&old.1)
        });
        self.publish(&[old, new]);
        removed.iter().for_each(|removed| self.shared.remove_limit(&removed.info));
        Ok(())
    }

    /// Begins a change; returns the storage of removed namespaces that is not closed yet.
    fn begin(&self) -> MutexGuard<'_, Vec<Arc<Closed>>> {
        let mut closing = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        closing.retain(|storage| !storage.wait(Instant::now()));
        closing
    }

    /// Opens a backend. What it needs (a lock, a device, memory) may belong to a namespace that was removed a moment ago.
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

    /// First round: every I/O thread applies its change of namespace `key`.
    fn apply(&self, (subsystem, nsid): Key, changes: impl IntoIterator<Item = NamespaceChange>) {
        let mut changes = changes.into_iter();
        self.round(|applied| {
            let change = changes.next().expect("a change for each I/O thread");
            Message::Namespace { subsystem, nsid, change, applied }
        });
    }

    /// Second round: Identify shows the state as it is now, and hosts are told that `changed` have changed.
    fn publish(&self, changed: &[Key]) {
        let (list, changed) = (self.shared.list(), Arc::<[Key]>::from(changed));
        self.round(|applied| Message::Listed { list: Arc::clone(&list), changed: Arc::clone(&changed), applied });
    }

    /// Sends every I/O thread a message, and waits until each has acted on its own.
    pub(super) fn round(&self, mut message: impl FnMut(Ack) -> Message) {
        let acks = Acks::new();
        for thread in self.threads.iter() {
            send(thread, message(acks.expect()));
        }
        acks.wait(|missing| {
            tracing::warn!(missing, "a change of a namespace waits for I/O threads that do not answer");
        });
    }

    fn change_state<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.shared.state())
    }

    fn channels(&self, storage: &Storage, nsid: u32) -> Result<Vec<NamespaceChange>, ServerError> {
        Ok(self.threads.iter().map(|_| added(storage, nsid)).collect::<Result<_, _>>()?)
    }

    /// The storage of a namespace. The state is not held while it is used: a backend may wait for requests of I/O threads.
    fn storage(&self, nqn: &str, index: usize, nsid: u32) -> Result<Storage, ServerError> {
        let found = self.shared.storage(index, nsid);
        found.ok_or_else(|| no_namespace(nqn, nsid))
    }

    fn refuse_existing(&self, nqn: &str, index: usize, nsid: u32) -> Result<(), ServerError> {
        match self.shared.storage(index, nsid) {
            Some(_) => Err(ServerError::Exists { nqn: nqn.into(), nsid }),
            None => Ok(()),
        }
    }

    fn index_of(&self, nqn: &str) -> Result<usize, ServerError> {
        self.shared.index_of(nqn)
    }
}

fn note_geometry(state: &mut State, index: usize, nsid: u32, geometry: Geometry) {
    if let Some(namespace) = state.subsystems[index].namespaces.get_mut(&nsid) {
        namespace.info.geometry = geometry;
    }
}
