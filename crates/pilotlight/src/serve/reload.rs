//! SIGHUP: from the configuration that runs to the one that was just read.
//!
//! Namespaces come, go and change their size while the server runs; every other difference is named and waits for a
//! restart. [`plan`] decides and touches nothing; [`apply`] carries out and keeps account of what has become true, so
//! that what fails is tried again at the next SIGHUP.
//!
//! A namespace keeps its storage for as long as it keeps its number: hosts cache blocks under the number, and would
//! write them into whatever stood in its place.

use pilotlight_target::ServerError;
use pilotlight_target::backend::BackendSpec;
use pilotlight_target::config::{NamespaceConfig, ServerConfig, SubsystemConfig};
use tracing::{info, warn};

use super::server::Running;

/// A change that can be made to a running server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Remove { nqn: String, nsid: u32 },
    Add { nqn: String, namespace: NamespaceConfig },
    Resize { nqn: String, to: NamespaceConfig, blocks: Option<u64> },
}

/// What a reload comes to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// In the order in which they are to be made: what goes first sets free what comes.
    changes: Vec<Change>,
    /// Differences that only a restart brings about.
    waiting: Vec<String>,
}

/// Makes a running server into what `wanted` says, as far as that can be done; `running` follows.
pub(super) fn apply(running: &mut ServerConfig, wanted: &ServerConfig, server: &dyn Running) {
    let plan = plan(running, wanted);
    for difference in &plan.waiting {
        warn!("{difference}");
    }
    for change in plan.changes {
        match carry_out(&change, server) {
            Ok(done) => {
                info!("{done}");
                record(running, change);
            }
            Err(error) => warn!("{} failed: {error}", describe(&change)),
        }
    }
    info!("configuration read again");
}

/// What leads from `running` to `wanted`.
fn plan(running: &ServerConfig, wanted: &ServerConfig) -> Plan {
    let mut plan = Plan { changes: Vec::new(), waiting: settled(running, wanted) };
    for subsystem in &running.subsystems {
        match wanted.subsystems.iter().find(|other| other.nqn == subsystem.nqn) {
            Some(other) => plan_subsystem(&mut plan, subsystem, other),
            None => plan.waiting.push(format!("subsystem {} is removed by a restart only", subsystem.nqn)),
        }
    }
    let is_new = |other: &&SubsystemConfig| running.subsystems.iter().all(|subsystem| subsystem.nqn != other.nqn);
    for subsystem in wanted.subsystems.iter().filter(is_new) {
        plan.waiting.push(format!("subsystem {} is added by a restart only", subsystem.nqn));
    }
    // stable, so that within each kind the order of the file holds
    plan.changes.sort_by_key(|change| match change {
        Change::Remove { .. } => 0,
        Change::Resize { .. } => 1,
        Change::Add { .. } => 2,
    });
    plan
}

/// Differences in what is settled at the start.
fn settled(running: &ServerConfig, wanted: &ServerConfig) -> Vec<String> {
    let differs = [
        ("server.listen", running.listeners != wanted.listeners),
        ("server.advertise", running.advertise != wanted.advertise),
        ("server.cores", running.cores != wanted.cores),
        ("server.main_core", running.main_core != wanted.main_core),
        ("server.io_threads", running.io_threads != wanted.io_threads),
        ("limits", running.limits != wanted.limits),
    ];
    let differing = differs.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(key, _)| format!("{key} has changed; a restart brings it about")).collect()
}

fn plan_subsystem(plan: &mut Plan, running: &SubsystemConfig, wanted: &SubsystemConfig) {
    if running.serial != wanted.serial || running.allowed_hosts != wanted.allowed_hosts {
        let text = format!("serial or allowed_hosts of {} have changed; a restart brings it about", running.nqn);
        plan.waiting.push(text);
    }
    let nqn = || running.nqn.clone();
    for namespace in &running.namespaces {
        match wanted.namespaces.iter().find(|other| other.nsid == namespace.nsid) {
            Some(other) => plan_namespace(plan, &running.nqn, namespace, other),
            None => plan.changes.push(Change::Remove { nqn: nqn(), nsid: namespace.nsid }),
        }
    }
    let is_new = |other: &&NamespaceConfig| running.namespaces.iter().all(|namespace| namespace.nsid != other.nsid);
    let added = wanted.namespaces.iter().filter(is_new);
    plan.changes.extend(added.map(|namespace| Change::Add { nqn: nqn(), namespace: namespace.clone() }));
}

fn plan_namespace(plan: &mut Plan, nqn: &str, running: &NamespaceConfig, wanted: &NamespaceConfig) {
    let same_otherwise = NamespaceConfig { backend: wanted.backend.clone(), ..running.clone() } == *wanted;
    if !same_otherwise || !is_same_storage(&running.backend, &wanted.backend) {
        let nsid = running.nsid;
        plan.waiting
            .push(format!("namespace {nsid} of {nqn} is another one now; give it a number of its own, or restart"));
        return;
    }
    // a file is as large as it is (where a size was written, that has been checked), and may have grown
    let in_file = wanted.backend.path().is_some();
    if in_file || running != wanted {
        let written = wanted.backend.size().filter(|_| !in_file);
        let blocks = written.map(|size| size / u64::from(wanted.block_size));
        plan.changes.push(Change::Resize { nqn: nqn.to_owned(), to: wanted.clone(), blocks });
    }
}

/// Whether two backends differ in nothing but size.
fn is_same_storage(a: &BackendSpec, b: &BackendSpec) -> bool {
    match (a, b) {
        (BackendSpec::Memory(_), BackendSpec::Memory(_)) | (BackendSpec::Null(_), BackendSpec::Null(_)) => true,
        (BackendSpec::File { path: a, .. }, BackendSpec::File { path: b, .. }) => a == b,
        (BackendSpec::Delay { delays: a, inner: x }, BackendSpec::Delay { delays: b, inner: y }) => {
            a == b && is_same_storage(x, y)
        }
        _ => false,
    }
}

/// Makes a change; says what was done.
fn carry_out(change: &Change, server: &dyn Running) -> Result<String, ServerError> {
    match change {
        Change::Remove { nqn, nsid } => server.remove_namespace(nqn, *nsid)?,
        Change::Add { nqn, namespace } => server.add_namespace(nqn, namespace)?,
        Change::Resize { nqn, to, blocks } => {
            let blocks = server.resize_namespace(nqn, to.nsid, *blocks)?;
            return Ok(format!("namespace {} of {nqn} has {blocks} blocks", to.nsid));
        }
    }
    Ok(format!("{} is done", describe(change)))
}

/// Notes in `running` that a change has been made.
fn record(running: &mut ServerConfig, change: Change) {
    let (Change::Remove { nqn, .. } | Change::Add { nqn, .. } | Change::Resize { nqn, .. }) = &change;
    let Some(subsystem) = running.subsystems.iter_mut().find(|subsystem| subsystem.nqn == *nqn) else { return };
    match change {
        Change::Remove { nsid, .. } => subsystem.namespaces.retain(|namespace| namespace.nsid != nsid),
        Change::Add { namespace, .. } => subsystem.namespaces.push(namespace),
        Change::Resize { to, .. } => {
            subsystem.namespaces.iter_mut().filter(|namespace| namespace.nsid == to.nsid).for_each(|namespace| {
                namespace.clone_from(&to);
            });
        }
    }
}

fn describe(change: &Change) -> String {
    match change {
        Change::Remove { nqn, nsid } => format!("removing namespace {nsid} of {nqn}"),
        Change::Add { nqn, namespace } => {
            format!("adding namespace {} of {nqn}, {},", namespace.nsid, namespace.backend)
        }
        Change::Resize { nqn, to, .. } => format!("resizing namespace {} of {nqn}", to.nsid),
    }
}

#[cfg(test)]
mod tests;
