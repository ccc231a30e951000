//! The bandwidth caps of a running server: set by the operator, reported to people, and told to policies.

use std::sync::Arc;

use pilotlight_reactor::clock;

use super::{Server, ServerError, Shared, index_in, no_namespace};
use crate::backend::BackendSpec;
use crate::caps::{Limit, LimitStats, Setter};
use crate::latency::LatencyWindow;
use crate::subsystem::NamespaceInfo;

/// What can be capped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capped {
    /// A namespace.
    Namespace {
        /// Its subsystem.
        nqn: String,
        /// Its number.
        nsid: u32,
    },
    /// A host, over all namespaces.
    Host {
        /// Its NQN.
        nqn: String,
    },
}

/// A namespace or a host that is capped, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapStats {
    /// Which.
    pub of: Capped,
    /// Its caps, and what they have done.
    pub stats: LimitStats,
}

impl Shared {
    /// The limit of a host. Takes a lock: for Connect.
    pub(crate) fn host_limit(&self, nqn: &str) -> Arc<Limit> {
        self.caps.host(nqn)
    }

    /// Makes the limit of namespace `nsid` of subsystem `nqn` in this backend known to policies, and gives its background work to an I/O thread.
    pub(super) fn add_limit(&self, info: &NamespaceInfo, name: (&str, u32), backend: &BackendSpec) {
        self.caps.add_namespace(&info.limit, backend.path(), self.counters.len() as u32);
        self.background.add(&info.upkeep, name, backend);
    }

    /// The same of all namespaces of the configuration.
    pub(super) fn add_configured_limits(&self) {
        let state = self.state();
        for (entry, subsystem) in state.subsystems.iter().zip(&self.config.subsystems) {
            for (nsid, namespace) in &entry.namespaces {
                let backend =
                    subsystem.namespaces.iter().rfind(|known| known.nsid == *nsid).map(|known| &known.backend);
                let name = (entry.subsystem.nqn(), *nsid);
                backend.into_iter().for_each(|backend| self.add_limit(&namespace.info, name, backend));
            }
        }
    }

    /// The namespace is gone.
    pub(super) fn remove_limit(&self, info: &NamespaceInfo) {
        self.caps.remove_namespace(&info.limit, clock::now_ns());
        self.background.remove(&info.upkeep);
    }

    /// The limit of every namespace.
    pub(crate) fn namespace_limits(&self) -> Vec<(Capped, Arc<Limit>)> {
        let mut limits = Vec::new();
        for entry in &self.state().subsystems {
            let nqn = entry.subsystem.nqn();
            let one = |(&nsid, namespace): (&u32, &super::Namespace)| {
                (Capped::Namespace { nqn: nqn.to_owned(), nsid }, Arc::clone(&namespace.info.limit))
            };
            limits.extend(entry.namespaces.iter().map(one));
        }
        limits
    }

    /// The last window of latency of each namespace of which a policy wants them.
    pub(super) fn namespace_latencies(&self) -> Vec<(Capped, LatencyWindow)> {
        let limits = self.namespace_limits().into_iter();
        limits.filter_map(|(of, limit)| Some((of, limit.latency().last_window()?))).collect()
    }

    fn cap_stats(&self) -> Vec<CapStats> {
        let hosts = self.caps.hosts().into_iter().map(|(nqn, limit)| (Capped::Host { nqn }, limit));
        let all = self.namespace_limits().into_iter().chain(hosts);
        let all = all.map(|(of, limit)| CapStats { of, stats: limit.stats() });
        all.filter(|cap| cap.stats != LimitStats::default()).collect()
    }
}

impl Server {
    /// Caps a namespace or a host at `bytes_per_s`, within [`crate::caps::CAPS`], from now on; `None`: the operator caps it no longer. A policy may cap it
    /// lower. A host need not be connected; a namespace's cap ends with it.
    ///
    /// # Errors
    /// If there is no such namespace.
    pub fn set_cap(&self, of: &Capped, bytes_per_s: Option<u64>) -> Result<(), ServerError> {
        let limit = match of {
            Capped::Namespace { nqn, nsid } => {
                let state = self.shared.state();
                let subsystem = &state.subsystems[index_in(&state.directory, nqn)?];
                let namespace = subsystem.namespaces.get(nsid).ok_or_else(|| no_namespace(nqn, *nsid))?;
                Arc::clone(&namespace.info.limit)
            }
            Capped::Host { nqn } => {
                self.shared.listed_hosts.add(nqn);
                self.shared.host_limit(nqn)
            }
        };
        self.shared.caps.set(&limit, Setter::Operator, bytes_per_s, clock::now_ns());
        self.runtime.plant_changed(); // a policy is not to exceed it
        Ok(())
    }

    /// Namespaces and hosts that are capped, or were.
    pub(super) fn cap_stats(&self) -> Vec<CapStats> {
        self.shared.cap_stats()
    }
}
