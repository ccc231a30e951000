//! Bandwidth caps of a running server.

use std::collections::HashSet;
use std::sync::Arc;

use pilotlight_reactor::clock;
use pilotlight_storage::BackendSpec;

use super::{Server, ServerError, Shared, index_in, no_namespace};
use crate::caps::{Limit, LimitStats, Setter};
use crate::latency::LatencyWindow;
use crate::shared::Namespace;

/// A namespace or a host with a cap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capped {
    /// A namespace.
    Namespace {
        /// Its subsystem.
        nqn: String,
        /// Its NSID.
        nsid: u32,
    },
    /// A host, over all namespaces.
    Host {
        /// Its NQN.
        nqn: String,
    },
}

/// Statistics of a namespace or host that is or was capped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapStats {
    /// The namespace or host.
    pub of: Capped,
    /// Its statistics.
    pub stats: LimitStats,
}

impl Shared {
    /// Adds a namespace to the limits known to policies, and assigns its background work to an I/O thread.
    pub(super) fn add_limit(&self, namespace: &Namespace, name: (&str, u32), backend: &BackendSpec) {
        self.caps.add_namespace(&namespace.limit, backend.path(), self.counters.len() as u32);
        self.background.add(&namespace.info.upkeep, name, backend);
    }

    /// As [`Self::add_limit`] for all configured namespaces.
    pub(super) fn add_configured_limits(&self) {
        let state = self.state();
        for (entry, subsystem) in state.subsystems.iter().zip(&self.config.subsystems) {
            for (nsid, namespace) in &entry.namespaces {
                let backend =
                    subsystem.namespaces.iter().rfind(|known| known.nsid == *nsid).map(|known| &known.backend);
                let name = (entry.subsystem.nqn(), *nsid);
                backend.into_iter().for_each(|backend| self.add_limit(namespace, name, backend));
            }
        }
    }

    /// Lists hosts that the operator names ([`crate::hosts::usage`]).
    pub(super) fn list_hosts(&self, nqns: &[String]) {
        if self.hosts.listed_hosts.are_many() {
            let directory = Arc::clone(&self.state().directory);
            let allowed: HashSet<&str> = directory.all_allowed_hosts().collect();
            self.hosts.listed_hosts.forget(
                |nqn| allowed.contains(nqn) || self.caps.uses_host(nqn),
                |numbers| {
                    let is_it = |(host, _)| numbers.contains(&host);
                    self.counters.iter().for_each(|counters| counters.usage.forget(is_it));
                },
            );
        }
        nqns.iter().for_each(|nqn| self.hosts.listed_hosts.add(nqn));
    }

    /// Removes a namespace.
    pub(super) fn remove_limit(&self, namespace: &Namespace) {
        self.caps.remove_namespace(&namespace.limit, clock::now_ns());
        self.background.remove(&namespace.info.upkeep);
    }

    /// The limit of every namespace.
    pub(crate) fn namespace_limits(&self) -> Vec<(Capped, Arc<Limit>)> {
        let mut limits = Vec::new();
        for entry in &self.state().subsystems {
            let nqn = entry.subsystem.nqn();
            let one = |(&nsid, namespace): (&u32, &Namespace)| {
                (Capped::Namespace { nqn: nqn.to_owned(), nsid }, Arc::clone(&namespace.limit))
            };
            limits.extend(entry.namespaces.iter().map(one));
        }
        limits
    }

    /// The last latency window of each namespace in use by a policy.
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
    /// Sets the operator's cap of a namespace or a host in bytes per second, within [`crate::caps::CAPS`], or removes it. A
    /// policy may set a lower cap. A host need not be connected; a namespace's cap ends with it.
    ///
    /// # Errors
    /// If there is no such namespace.
    pub fn set_cap(&self, of: &Capped, bytes_per_s: Option<u64>) -> Result<(), ServerError> {
        let limit = match of {
            Capped::Namespace { nqn, nsid } => {
                let state = self.shared.state();
                let subsystem = &state.subsystems[index_in(&state.directory, nqn)?];
                let namespace = subsystem.namespaces.get(nsid).ok_or_else(|| no_namespace(nqn, *nsid))?;
                Arc::clone(&namespace.limit)
            }
            Capped::Host { nqn } => {
                self.shared.list_hosts(std::slice::from_ref(nqn));
                self.shared.host_limit(nqn)
            }
        };
        self.shared.caps.set(&limit, Setter::Operator, bytes_per_s, clock::now_ns());
        self.runtime.plant_changed(); // policies must not exceed it
        Ok(())
    }

    /// Statistics of namespaces and hosts that are or were capped.
    pub(super) fn cap_stats(&self) -> Vec<CapStats> {
        self.shared.cap_stats()
    }
}
