//! The subsystems and namespaces in the discovery log and in Identify: an immutable list. A change creates a new list, which
//! each I/O thread gets by message, so that admin commands take no lock.
//!
//! Only the allocated bytes change, written by an OS thread (`server/utilization.rs`).

use std::sync::Arc;

pub use crate::allocated_bytes::AllocatedBytes;
use crate::directory::Directory;
use crate::subsystem::NamespaceInfo;
use crate::views::{ViewId, Views};

/// The subsystems, and the namespaces of each.
#[derive(Clone, Debug, Default)]
pub struct NamespaceList {
    directory: Arc<Directory>,
    subsystems: Vec<Vec<(u32, NamespaceInfo)>>,
    /// The namespaces of each view.
    views: Vec<Vec<(u32, NamespaceInfo)>>,
}

impl NamespaceList {
    /// The list of the namespaces of each subsystem of `directory`, by ascending NSID, and their visibility.
    #[must_use]
    pub fn new(directory: Arc<Directory>, subsystems: Vec<Vec<(u32, NamespaceInfo)>>, views: &Views) -> Self {
        let seen = |(view, subsystem): (ViewId, usize)| {
            let all = subsystems.get(subsystem).into_iter().flatten();
            all.filter(|(nsid, _)| views.contains(view, *nsid)).cloned().collect()
        };
        let views = views.subsystems().map(seen).collect();
        Self { directory, subsystems, views }
    }

    /// The number of subsystems, including removed ones.
    #[must_use]
    pub fn subsystems(&self) -> usize {
        self.subsystems.len()
    }

    /// The subsystems.
    #[must_use]
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The namespaces of this view by ascending NSID; empty without such a subsystem.
    #[must_use]
    pub fn of(&self, view: ViewId) -> &[(u32, NamespaceInfo)] {
        let found = match view.index() {
            Ok(view) => self.views.get(view),
            Err(subsystem) => self.subsystems.get(subsystem),
        };
        found.map_or(&[], Vec::as_slice)
    }
}
