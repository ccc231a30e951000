//! Requests that a lost queue has in the backends, by storage. The next association of its host waits for them ([`crate::association`]).

use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire};

use pilotlight_storage::lease::{Lease, StorageId};

/// Requests of one lost queue.
#[derive(Debug)]
pub struct Unfinished {
    by_storage: Box<[Requests]>,
}

/// Requests to one storage.
#[derive(Debug)]
struct Requests {
    storage: StorageId,
    number: AtomicU32,
}

impl Unfinished {
    /// Maximum bytes for each request.
    pub(crate) const BYTES: usize = size_of::<Requests>();

    /// One request for each lease in `leases`, at most `most`.
    #[must_use]
    pub fn new<'a>(leases: impl Iterator<Item = &'a Lease>, most: usize) -> Self {
        let mut by_storage: Vec<Requests> = Vec::with_capacity(most);
        for lease in leases {
            match by_storage.iter_mut().find(|requests| lease.is_of(&requests.storage)) {
                Some(requests) => *requests.number.get_mut() += 1,
                None => by_storage.push(Requests { storage: lease.storage(), number: AtomicU32::new(1) }),
            }
        }
        Self { by_storage: by_storage.into() }
    }

    /// A request has ended.
    pub fn end_one(&self, lease: &Lease) {
        let found = self.by_storage.iter().find(|requests| lease.is_of(&requests.storage));
        found.into_iter().for_each(|requests| _ = requests.number.fetch_sub(1, AcqRel));
    }

    /// Whether no request is left.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.by_storage.iter().all(|requests| requests.number.load(Acquire) == 0)
    }

    /// Whether a request to the storage with this identity is left.
    #[must_use]
    pub fn includes_storage(&self, storage: &StorageId) -> bool {
        let is_left = |requests: &&Requests| requests.number.load(Acquire) > 0;
        self.by_storage.iter().filter(is_left).any(|requests| requests.storage == *storage)
    }

    /// Whether a request to this storage is left.
    #[must_use]
    pub fn includes(&self, lease: &Lease) -> bool {
        let is_left = |requests: &&Requests| requests.number.load(Acquire) > 0;
        self.by_storage.iter().filter(is_left).any(|requests| lease.is_of(&requests.storage))
    }
}
