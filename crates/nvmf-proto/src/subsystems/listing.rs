//! The subsystems and namespaces in the discovery log and in Identify: an immutable list. A change creates a new list, which
//! each I/O thread gets by message, so that admin commands take no lock.
//!
//! Only the allocated bytes change, written by an OS thread that may block.

use std::sync::Arc;

pub use crate::subsystems::allocated_bytes::AllocatedBytes;
use crate::subsystems::directory::Directory;
use crate::subsystems::subsystem::NamespaceInfo;
use crate::subsystems::views::{ViewId, Views};

/// The subsystems, and the namespaces of each.
#[derive(Clone, Debug, Default)]
pub struct NamespaceList {
    directory: Arc<Directory>,
    subsystems: Vec<Vec<(u32, NamespaceInfo)>>,
    /// The visibility of the namespaces.
    views: Arc<Views>,
}

/// The namespaces of a view by ascending NSID.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    all: &'a [(u32, NamespaceInfo)],
    view: Option<(&'a Views, ViewId)>,
}

impl<'a> Listed<'a> {
    /// All of a subsystem.
    #[must_use]
    pub fn whole(all: &'a [(u32, NamespaceInfo)]) -> Self {
        Self { all, view: None }
    }

    /// The visible namespaces.
    pub fn iter(self) -> impl Iterator<Item = &'a (u32, NamespaceInfo)> {
        self.all.iter().filter(move |(nsid, _)| self.shows(*nsid))
    }

    /// A visible namespace.
    #[must_use]
    pub fn find(self, nsid: u32) -> Option<&'a NamespaceInfo> {
        let at = self.all.binary_search_by_key(&nsid, |(nsid, _)| *nsid).ok().filter(|_| self.shows(nsid))?;
        Some(&self.all[at].1)
    }

    fn shows(self, nsid: u32) -> bool {
        self.view.is_none_or(|(views, view)| views.contains(view, nsid))
    }
}

impl NamespaceList {
    /// The list of the namespaces of each subsystem of `directory`, by ascending NSID, and their visibility.
    #[must_use]
    pub fn new(directory: Arc<Directory>, subsystems: Vec<Vec<(u32, NamespaceInfo)>>, views: Arc<Views>) -> Self {
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

    /// The visibility of the namespaces.
    #[must_use]
    pub fn views(&self) -> &Views {
        &self.views
    }

    /// The namespaces of this view; none without such a subsystem.
    #[must_use]
    pub fn listed(&self, view: ViewId) -> Listed<'_> {
        let subsystem = self.views.subsystem_of(view).and_then(|at| self.subsystems.get(at));
        Listed { all: subsystem.map_or(&[], Vec::as_slice), view: view.index().is_ok().then_some((&*self.views, view)) }
    }

    /// All namespaces of a subsystem by ascending NSID.
    #[must_use]
    pub fn whole(&self, subsystem: usize) -> &[(u32, NamespaceInfo)] {
        self.subsystems.get(subsystem).map_or(&[], Vec::as_slice)
    }
}
