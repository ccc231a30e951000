//! Input of the metrics, of a running server.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pilotlight_nvmf_target::hosts::usage::Counts;
use pilotlight_nvmf_target::{Capped, NamespaceConfig, ServerStats, SubsystemConfig};

use super::Admin;
use crate::metrics::{Facts, HostFacts, NamespaceFacts, OTHER_HOSTS, ReloadFacts};
use crate::serve::state::State;
use crate::status::measure;

impl Admin {
    /// A snapshot. It does not wake the main core.
    pub(in crate::serve) fn facts(&self) -> Facts {
        self.facts_with(self.server.stats())
    }

    /// The same with counters that were read before.
    pub(super) fn facts_with(&self, stats: ServerStats) -> Facts {
        let energy = self.energy_shares();
        let state = self.state();
        let goals = measure::goals(&state.operation.goals, &state.operation.tolerances, &state.active_policy, None);
        let mut stats = stats;
        // A host's name is the host's own choice: only those that the operator names become series.
        let listed = std::mem::take(&mut stats.listed_hosts);
        stats.caps.retain(|cap| match &cap.of {
            Capped::Namespace { .. } => true,
            Capped::Host { nqn } => listed.contains(nqn),
        });
        stats.listed_hosts = listed;
        let namespaces = self.namespaces(&state, &stats);
        let hosts = hosts(&stats);
        Facts {
            started_s: self.started_s,
            stats,
            cpus: state.operation.reactors.cores.clone(),
            namespaces,
            hosts,
            policy: state.active_policy.name.clone(),
            goals,
            budget: self.budget_status(&state),
            power: self.server.power_facts(),
            energy,
            limit: self.limit_report(),
            reload: *self.reloaded.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn namespaces(&self, state: &State, stats: &ServerStats) -> Vec<NamespaceFacts> {
        let mut counts = HashMap::<(&str, u32), Counts>::new();
        for usage in &stats.usages {
            *counts.entry((&usage.nqn, usage.nsid)).or_default() += usage.counts;
        }
        let failures: HashMap<_, _> = stats.failures.iter().map(|it| ((&*it.nqn, it.nsid), it)).collect();
        let of_subsystem = |subsystem: &SubsystemConfig| {
            let one = |namespace: &NamespaceConfig| NamespaceFacts {
                nqn: subsystem.nqn.clone(),
                nsid: namespace.nsid,
                bytes: state.blocks(&subsystem.nqn, namespace.nsid) * u64::from(namespace.block_size),
                free_bytes: namespace.backend.path().and_then(|path| self.volumes.free_bytes(path)),
                counts: counts.get(&(&*subsystem.nqn, namespace.nsid)).copied().unwrap_or_default(),
                failures: failures.get(&(&*subsystem.nqn, namespace.nsid)).copied().cloned(),
            };
            subsystem.namespaces.iter().map(one).collect::<Vec<_>>()
        };
        state.config.subsystems.iter().flat_map(of_subsystem).collect()
    }

    /// A configuration was read again, and taken if it was good.
    pub(in crate::serve) fn note_reload(&self, is_good: bool) {
        let mut last = self.reloaded.lock().unwrap_or_else(PoisonError::into_inner);
        *last = ReloadFacts { is_good, taken_s: if is_good { unix_s() } else { last.taken_s } };
    }
}

/// I/O of each listed host, and of the others together.
fn hosts(stats: &ServerStats) -> Vec<HostFacts> {
    let mut sums = HashMap::<&str, Counts>::new();
    for usage in &stats.usages {
        *sums.entry(usage.host.as_deref().unwrap_or(OTHER_HOSTS)).or_default() += usage.counts;
    }
    let names = stats.listed_hosts.iter().map(String::as_str).chain([OTHER_HOSTS]);
    names.map(|name| HostFacts { name: name.to_owned(), counts: sums.remove(name).unwrap_or_default() }).collect()
}

/// The time, in seconds since 1970.
pub(super) fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}
