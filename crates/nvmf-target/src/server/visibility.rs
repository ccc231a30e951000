//! Changes of the visibility of namespaces on a running server.
//!
//! # The algorithm
//! First every new view is created on every I/O thread with the previous visibility, and associations switch to it. Then the
//! change is applied as any other (`changes.rs`), in two broadcasts. Views that are no longer needed are removed last, after associations
//! have switched to others with the same visibility.

use std::sync::Arc;

use pilotlight_nvmf_proto::subsystems::views::ChangedNamespace;
use pilotlight_nvmf_proto::subsystems::views::{Restricted, Views};

use super::{Changes, Server, ServerError, no_namespace};
use crate::shared::{Namespace, restricted};
use crate::thread::message::Message;

impl Changes {
    /// As [`Server::set_namespace_hosts`].
    ///
    /// # Errors
    /// As there.
    pub fn set_namespace_hosts(&self, nqn: &str, nsid: u32, hosts: &[String]) -> Result<(), ServerError> {
        let _one_at_a_time = self.begin();
        let index = self.index_of(nqn)?;
        let change = |namespace: &mut Namespace| hosts.clone_into(&mut namespace.hosts);
        let found = self.change_state(|state| state.subsystems[index].namespaces.get_mut(&nsid).map(change));
        found.ok_or_else(|| no_namespace(nqn, nsid))?;
        self.restrict(index, nsid, hosts);
        Ok(())
    }

    /// Restricts namespace `nsid`, which need not exist, to these hosts (all if empty). Affected hosts are notified if it exists.
    pub(super) fn restrict(&self, subsystem: usize, nsid: u32, hosts: &[String]) {
        let (before, mut all) = self.change_state(|state| {
            let all = state.subsystems.get(subsystem).map(restricted).unwrap_or_default();
            (Arc::clone(&state.views), all)
        });
        all.retain(|one| one.nsid != nsid);
        if !hosts.is_empty() {
            all.push(Restricted { nsid, hosts: hosts.to_vec() });
        }
        let prepared = Arc::new(before.prepared(subsystem, &all));
        if prepared != before {
            self.apply_views(&prepared);
            self.publish_changes(&Arc::default());
            self.shared.hosts.associations.set_views(Arc::clone(&prepared));
        }
        let next = Arc::new(prepared.restricted_to(subsystem, &all));
        if next != prepared {
            self.apply_views(&next);
            let is_seen = self.shared.storage(subsystem, nsid).is_some() && prepared.differs(&next, nsid);
            let changed = ChangedNamespace { subsystem, nsid, before: Some(prepared) };
            self.publish_changes(&if is_seen { Arc::from([changed]) } else { Arc::default() });
            self.shared.hosts.associations.set_views(Arc::clone(&next));
        }
        let pruned = Arc::new(next.pruned(subsystem, &all));
        if pruned != next {
            self.shared.hosts.associations.set_views(Arc::clone(&pruned)); // first: I/O threads have both
            self.apply_views(&pruned);
            self.publish_changes(&Arc::default());
        }
    }

    /// Applies views on every I/O thread.
    fn apply_views(&self, views: &Arc<Views>) {
        self.broadcast(|applied| Message::Views { views: Arc::clone(views), applied });
        self.change_state(|state| state.views = Arc::clone(views));
    }
}

impl Server {
    /// Restricts a namespace to these hosts, or for an empty list to all allowed hosts. It is inactive for others; their earlier
    /// commands are finished. Affected hosts are notified when every I/O thread has applied the change.
    ///
    /// # Errors
    /// If there is no such subsystem or namespace.
    pub fn set_namespace_hosts(&self, nqn: &str, nsid: u32, hosts: &[String]) -> Result<(), ServerError> {
        self.changes.set_namespace_hosts(nqn, nsid, hosts)
    }
}
