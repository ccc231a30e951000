//! Subsystems and namespaces as hosts are told of them, in the discovery log and in Identify: a list that never changes. A change makes a new list, and each
//! I/O thread gets it by message, so that admin commands take no lock.
//!
//! One number in it does change, the bytes that hold data: an ordinary thread writes it (`server/utilization.rs`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::directory::Directory;
use crate::subsystem::NamespaceInfo;
use crate::views::{ViewId, Views};

/// The subsystems, and the namespaces of each.
#[derive(Clone, Debug, Default)]
pub struct NamespaceList {
    directory: Arc<Directory>,
    subsystems: Vec<Vec<(u32, NamespaceInfo)>>,
    /// What each view shows.
    views: Vec<Vec<(u32, NamespaceInfo)>>,
}

impl NamespaceList {
    /// The list of the namespaces of each subsystem of `directory`, by ascending NSID, and what of them hosts see.
    #[must_use]
    pub fn new(directory: Arc<Directory>, subsystems: Vec<Vec<(u32, NamespaceInfo)>>, views: &Views) -> Self {
        let seen = |(view, subsystem): (ViewId, usize)| {
            let all = subsystems.get(subsystem).into_iter().flatten();
            all.filter(|(nsid, _)| views.shows(view, *nsid)).cloned().collect()
        };
        let views = views.subsystems().map(seen).collect();
        Self { directory, subsystems, views }
    }

    /// The number of subsystems, those that are removed included.
    #[must_use]
    pub fn subsystems(&self) -> usize {
        self.subsystems.len()
    }

    /// What hosts can connect to.
    #[must_use]
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The namespaces that hosts with this view see, by ascending NSID; none if there is no such subsystem.
    #[must_use]
    pub fn of(&self, view: ViewId) -> &[(u32, NamespaceInfo)] {
        let found = match view.index() {
            Ok(view) => self.views.get(view),
            Err(subsystem) => self.subsystems.get(subsystem),
        };
        found.map_or(&[], Vec::as_slice)
    }
}

/// What stands for "the medium does not say".
const UNKNOWN: u64 = u64::MAX;

/// Bytes of a namespace that hold data, as of the last look. Clones are one number.
#[derive(Clone)]
pub struct AllocatedBytes(Arc<AtomicU64>);

impl AllocatedBytes {
    /// A number of bytes; `None` where the medium does not say.
    #[must_use]
    pub fn new(bytes: Option<u64>) -> Self {
        Self(Arc::new(AtomicU64::new(bytes.unwrap_or(UNKNOWN))))
    }

    /// The number as it was last seen; `None` where the medium does not say.
    #[must_use]
    pub fn get(&self) -> Option<u64> {
        Some(self.0.load(Relaxed)).filter(|&bytes| bytes != UNKNOWN)
    }

    /// Notes the number as it is now.
    pub fn set(&self, bytes: Option<u64>) {
        self.0.store(bytes.unwrap_or(UNKNOWN), Relaxed);
    }
}

impl fmt::Debug for AllocatedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
