//! What metrics are computed from, of a running server.

use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pilotlight_target::ServerStats;

use super::{State, Station};
use crate::metrics::{Facts, NamespaceFacts, ReloadFacts};
use crate::status::measure;

impl Station {
    /// A server as it is now. The main core is not asked, so that a scrape wakes nobody.
    pub(in crate::serve) fn facts(&self) -> Facts {
        self.facts_with(self.server.stats())
    }

    /// The same with counters that were read before.
    pub(super) fn facts_with(&self, stats: ServerStats) -> Facts {
        let state = self.state();
        let goals = measure::goals(
            &state.operation.goals,
            &state.operation.tolerances,
            &state.in_charge,
            self.server.unreachable(),
        );
        let facts = Facts {
            started_s: (unix_s() - self.started.elapsed().as_secs_f64()).max(0.0),
            stats,
            cpus: state.operation.reactors.cores.clone(),
            namespaces: namespaces(&state),
            policy: state.in_charge.name.clone(),
            goals,
            budget: self.budget_status(&state),
            power: self.server.power_facts(),
            reload: *self.reloaded.lock().unwrap_or_else(PoisonError::into_inner),
        };
        drop(state);
        let free = |namespace: &mut NamespaceFacts| {
            namespace.free_bytes = namespace.path.take().and_then(|path| free_bytes(&path));
        };
        let mut facts = facts;
        facts.namespaces.iter_mut().for_each(free); // a file system may take its time
        facts
    }

    /// A configuration was read again, and taken if it was good.
    pub(in crate::serve) fn note_reload(&self, is_good: bool) {
        let mut last = self.reloaded.lock().unwrap_or_else(PoisonError::into_inner);
        *last = ReloadFacts { is_good, taken_s: if is_good { unix_s() } else { last.taken_s } };
    }
}

/// The time, in seconds since 1970.
pub(super) fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}

fn namespaces(state: &State) -> Vec<NamespaceFacts> {
    let mut all = Vec::new();
    for subsystem in &state.config.subsystems {
        all.extend(subsystem.namespaces.iter().map(|namespace| NamespaceFacts {
            nqn: subsystem.nqn.clone(),
            nsid: namespace.nsid,
            bytes: state.blocks(&subsystem.nqn, namespace.nsid) * u64::from(namespace.block_size),
            path: namespace.backend.path().map(Path::to_owned),
            free_bytes: None,
        }));
    }
    all
}

/// What is free in the file system of a regular file.
fn free_bytes(path: &Path) -> Option<u64> {
    let is_file = std::fs::metadata(path).ok()?.is_file();
    let volume = rustix::fs::statvfs(path).ok().filter(|_| is_file)?;
    Some(volume.f_bavail * volume.f_frsize)
}
