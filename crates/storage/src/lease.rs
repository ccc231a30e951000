//! Tracks when the storage of a removed namespace is closed.
//!
//! A removed namespace keeps its file, device or memory open until the reaper has closed the channels of every I/O thread.
//! Each user of the storage has a [`Lease`] and drops it last; [`Closed`] is signalled when all are dropped.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

use crate::Channel;

/// Whether the storage of a namespace is closed.
#[derive(Debug, Default)]
pub struct Closed {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl Closed {
    /// Waits until the storage is closed, at most until `until`; returns whether it is.
    pub fn wait(&self, until: Instant) -> bool {
        let is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(is_closed, left, |is_closed| !*is_closed);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[derive(Debug, Default)]
struct Last(Arc<Closed>);

impl Drop for Last {
    fn drop(&mut self) {
        *self.0.is_closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}

/// Accompanies a user of a namespace's storage, and is dropped after it.
#[derive(Clone, Debug, Default)]
pub struct Lease(Arc<Last>);

impl Lease {
    /// Signalled when this lease and its clones are dropped.
    #[must_use]
    pub fn closed(&self) -> Arc<Closed> {
        Arc::clone(&self.0.0)
    }

    /// The identity of the storage.
    #[must_use]
    pub fn storage(&self) -> StorageId {
        StorageId(Arc::downgrade(&self.0))
    }

    /// Whether this is a lease of that storage.
    #[must_use]
    pub fn is_of(&self, storage: &StorageId) -> bool {
        storage.0.as_ptr() == Arc::as_ptr(&self.0)
    }
}

/// Identifies the storage of a namespace, also after the namespace has moved to another NSID. Never reused while it exists; does not keep
/// the storage open.
#[derive(Clone, Debug)]
pub struct StorageId(Weak<Last>);

impl PartialEq for StorageId {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

/// A channel and its lease, in the order in which they are dropped.
pub struct Leased {
    /// The channel.
    pub channel: Box<dyn Channel>,
    /// The lease of its namespace.
    pub lease: Lease,
}
