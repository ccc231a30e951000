//! The plan of a reload: changes from the running configuration to the wanted one.

use pilotlight_nvmf_target::config::{Limits, NamespaceConfig, ServerConfig, SubsystemConfig};
use pilotlight_nvmf_target::hosts::authentication::AuthenticationConfig;

use super::change::Change;
use super::moves::{self, Move};
use super::order;
use crate::config::{AdminSocket, Operation, Reactors};

/// The changes of a reload.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// In order: removals make room for additions.
    pub(super) changes: Vec<Change>,
    /// Differences that only a restart brings about.
    pub(super) waiting: Vec<String>,
}

/// Differences in how the program runs the server that only a start settles. A new field of [`Operation`] is decided here.
pub(super) fn settled_operation(running: &Operation, wanted: &Operation) -> Vec<String> {
    let Operation {
        reactors,
        sleep_after,
        hotplug,
        keep_limits,
        profile,
        sensor,
        state_file,
        reservations,
        admin_socket,
        energy_shares,
        metrics,
        page,
        seccomp,
        user,
        floor_uw,
        // they change while the server runs
        policy: _,
        goals: _,
        caps: _,
        priorities: _,
        tolerances: _,
        domain: _,
        schedule: _,
        mdns: _,
        log_format: _,
        // command line only
        roots: _,
    } = running;
    let test_reactors = |reactors: &Reactors| reactors.is_test_mode().then(|| reactors.len());
    let socket = |socket: &Option<AdminSocket>| socket.as_ref().map(|socket| (socket.path.clone(), socket.is_explicit));
    let group = |socket: &Option<AdminSocket>| socket.as_ref().and_then(|socket| socket.read_group.clone());
    let differs = [
        ("server.reactors", test_reactors(reactors) != test_reactors(&wanted.reactors)),
        ("server.sleep_after", *sleep_after != wanted.sleep_after),
        ("server.hotplug", *hotplug != wanted.hotplug),
        ("goals.keep_limits", *keep_limits != wanted.keep_limits),
        ("server.sensor", *sensor != wanted.sensor),
        ("server.energy_shares", *energy_shares != wanted.energy_shares),
        ("goals.profile", *profile != wanted.profile),
        ("admin.state", *state_file != wanted.state_file),
        ("server.reservations", *reservations != wanted.reservations),
        ("admin.socket", socket(admin_socket) != socket(&wanted.admin_socket)),
        ("admin.read_group", group(admin_socket) != group(&wanted.admin_socket)),
        ("metrics.listen", *metrics != wanted.metrics),
        ("page", *page != wanted.page),
        ("security.seccomp", *seccomp != wanted.seccomp),
        ("security.user", *user != wanted.user),
        ("goals.floor", *floor_uw != wanted.floor_uw),
    ];
    name(&differs)
}

fn name(differs: &[(&str, bool)]) -> Vec<String> {
    let differing = differs.iter().filter(|(_, differs)| *differs);
    differing.map(|(key, _)| format!("{key} has changed; it takes effect at a restart")).collect()
}

/// The changes from `running` to `wanted`.
pub(super) fn plan(running: &ServerConfig, wanted: &ServerConfig) -> Plan {
    let mut plan = Plan { changes: Vec::new(), waiting: settled(running, wanted) };
    let moves = moves::find(running, wanted);
    for subsystem in &running.subsystems {
        match wanted.subsystems.iter().find(|other| other.nqn == subsystem.nqn) {
            Some(other) => plan_subsystem(&mut plan, subsystem, other, &moves),
            None => plan_removal(&mut plan, &subsystem.nqn, &moves),
        }
    }
    let is_new = |other: &&SubsystemConfig| running.subsystems.iter().all(|subsystem| subsystem.nqn != other.nqn);
    for subsystem in wanted.subsystems.iter().filter(is_new) {
        let empty = SubsystemConfig { namespaces: Vec::new(), ..subsystem.clone() };
        plan_namespaces(&mut plan, &empty, subsystem, &moves);
        plan.changes.push(Change::AddSubsystem { subsystem: empty });
    }
    if !running.listens_as(wanted) {
        plan.changes.push(Change::Listen { config: Box::new(wanted.clone()) });
    }
    if running.paths != wanted.paths {
        plan.changes.push(Change::Paths { rules: wanted.paths.clone() });
    }
    let advertised = wanted.advertised();
    if (&running.advertised(), &running.referrals) != (&advertised, &wanted.referrals) {
        plan.changes.push(Change::Discovery { advertised, referrals: wanted.referrals.clone() });
    }
    plan_authentication(&mut plan, &running.authentication, &wanted.authentication);
    plan.waiting.extend(moves.iter().filter_map(Move::refusal));
    plan.changes.extend(moves.iter().filter(|one| one.obstacle.is_none()).flat_map(plan_move));
    plan.changes.sort_by_key(order::place); // stable, so that within each kind the order of the file holds
    plan
}

/// First what both configurations require, at the end what the wanted one does.
fn plan_authentication(plan: &mut Plan, running: &AuthenticationConfig, wanted: &AuthenticationConfig) {
    let strict = running.with(wanted);
    if strict != *running {
        plan.changes.push(Change::Authentication { authentication: strict.clone(), loosens: false });
    }
    if strict != *wanted {
        plan.changes.push(Change::Authentication { authentication: wanted.clone(), loosens: true });
    }
    let lost = running.hosts.keys().filter(|host| !wanted.hosts.contains_key(*host));
    plan.waiting
        .extend(lost.map(|host| format!("host {host} has no secret any more: it is served without DH-HMAC-CHAP")));
    let lost = running.tls_keys.keys().filter(|host| !wanted.tls_keys.contains_key(*host));
    plan.waiting.extend(lost.map(|host| format!("host {host} has no TLS key any more: it is served without TLS")));
}

/// A file may have grown too.
fn plan_move(one: &Move) -> [Change; 2] {
    let (nqn, to) = (one.to.nqn.to_owned(), one.to.namespace.clone());
    let resize = Change::Resize { nqn: nqn.clone(), to: to.clone(), blocks: None };
    let from = (one.from.nqn.to_owned(), one.from.namespace.nsid);
    [Change::Move { from, nqn, to }, resize]
}

/// Differences in what is settled at the start. A key whose default follows from another that differs is not named: perhaps nobody changed it.
pub(super) fn settled(running: &ServerConfig, wanted: &ServerConfig) -> Vec<String> {
    let cores = running.cores != wanted.cores;
    let differs = [
        ("security.kernel_tls", running.kernel_tls != wanted.kernel_tls),
        ("server.cores", cores),
        ("server.main_core", !cores && running.main_core != wanted.main_core),
        ("server.io_threads", !cores && running.io_threads != wanted.io_threads),
        ("server.power_states", running.power_states != wanted.power_states),
        ("background", running.background != wanted.background),
    ];
    let threads = running.io_threads != wanted.io_threads;
    [name(&differs), name(&limits(&running.limits, &wanted.limits, threads))].concat()
}

/// Limits that differ; `threads`: so does the number of I/O threads.
fn limits(running: &Limits, wanted: &Limits, threads: bool) -> [(&'static str, bool); 13] {
    let Limits {
        max_memory,
        buffer_memory,
        queue_memory,
        max_connections,
        max_pending,
        max_address_pending,
        max_host_memory,
        admin_rate,
        max_host_queues,
        max_io_queues,
        max_queue_depth,
        icreq_timeout,
        drain_timeout,
    } = running;
    let memory = *max_memory != wanted.max_memory;
    let buffers = *buffer_memory != wanted.buffer_memory;
    let queues = *queue_memory != wanted.queue_memory;
    [
        ("limits.max_memory", memory),
        ("limits.buffer_memory", buffers && !threads && !memory),
        ("limits.queue_memory", queues && !buffers && !memory),
        ("limits.max_host_memory", *max_host_memory != wanted.max_host_memory && !queues),
        ("limits.max_connections", *max_connections != wanted.max_connections),
        ("limits.max_pending", *max_pending != wanted.max_pending),
        ("limits.max_address_pending", *max_address_pending != wanted.max_address_pending),
        ("limits.admin_rate", *admin_rate != wanted.admin_rate),
        ("limits.max_host_queues", *max_host_queues != wanted.max_host_queues),
        ("limits.max_io_queues", *max_io_queues != wanted.max_io_queues),
        ("limits.max_queue_depth", *max_queue_depth != wanted.max_queue_depth),
        ("limits.icreq_timeout", *icreq_timeout != wanted.icreq_timeout),
        ("limits.drain_timeout", *drain_timeout != wanted.drain_timeout),
    ]
}

fn plan_subsystem(plan: &mut Plan, running: &SubsystemConfig, wanted: &SubsystemConfig, moves: &[Move]) {
    let differs = [
        ("serial", running.serial != wanted.serial),
        ("controller_ids", running.controller_ids != wanted.controller_ids),
    ];
    let waiting = differs.iter().filter(|(_, differs)| *differs);
    plan.waiting
        .extend(waiting.map(|(key, _)| format!("{key} of {} has changed; it takes effect at a restart", running.nqn)));
    let steps = order::steps(&running.listen, &wanted.listen, order::NO_ADDRESS).into_iter();
    plan.changes.extend(steps.map(|(admits, listen)| Change::Offer { nqn: running.nqn.clone(), listen, admits }));
    let steps = order::steps(&running.allowed_hosts, &wanted.allowed_hosts, order::NO_HOST.to_owned()).into_iter();
    plan.changes.extend(steps.map(|(admits, allowed_hosts)| Change::AllowHosts {
        nqn: running.nqn.clone(),
        allowed_hosts,
        admits,
    }));
    plan_namespaces(plan, running, wanted, moves);
}

/// Removes a subsystem with its namespaces, unless storage of one has to be moved and cannot be.
fn plan_removal(plan: &mut Plan, nqn: &str, moves: &[Move]) {
    if moves.iter().any(|one| one.from.nqn == nqn && one.obstacle.is_some()) {
        plan.waiting.push(format!("subsystem {nqn} stays, as the storage of a namespace cannot be moved"));
    } else {
        plan.changes.push(Change::RemoveSubsystem { nqn: nqn.to_owned() });
    }
}

fn plan_namespaces(plan: &mut Plan, running: &SubsystemConfig, wanted: &SubsystemConfig, moves: &[Move]) {
    let nqn = || running.nqn.clone();
    for namespace in &running.namespaces {
        match wanted.namespaces.iter().find(|other| other.nsid == namespace.nsid) {
            Some(other) => plan_namespace(plan, &running.nqn, namespace, other),
            None if moves.iter().any(|one| one.from.is(&running.nqn, namespace.nsid)) => {}
            None => plan.changes.push(Change::Remove { nqn: nqn(), nsid: namespace.nsid }),
        }
    }
    let is_new = |other: &&NamespaceConfig| running.namespaces.iter().all(|namespace| namespace.nsid != other.nsid);
    let is_moved = |other: &NamespaceConfig| moves.iter().any(|one| one.to.is(&running.nqn, other.nsid));
    let added = wanted.namespaces.iter().filter(is_new).filter(|other| !is_moved(other));
    plan.changes.extend(added.map(|namespace| Change::Add { nqn: nqn(), namespace: namespace.clone() }));
}

fn plan_namespace(plan: &mut Plan, nqn: &str, running: &NamespaceConfig, wanted: &NamespaceConfig) {
    let steps = order::steps(&running.hosts, &wanted.hosts, order::NO_HOST.to_owned()).into_iter();
    let show = |(admits, hosts)| Change::Show { nqn: nqn.to_owned(), nsid: running.nsid, hosts, admits };
    if running.ana_group != wanted.ana_group {
        let nsid = running.nsid;
        plan.waiting.push(format!("ana_group of namespace {nsid} of {nqn} has changed; it takes effect at a restart"));
    }
    let running = &NamespaceConfig { hosts: wanted.hosts.clone(), ana_group: wanted.ana_group, ..running.clone() };
    let same_otherwise = NamespaceConfig { backend: wanted.backend.clone(), ..running.clone() } == *wanted;
    let is_another = !same_otherwise || !running.backend.is_same_storage(&wanted.backend);
    // new hosts are for the storage after a restart, not for the present one
    plan.changes.extend(steps.filter(|(admits, _)| !is_another || !admits).map(show));
    if is_another {
        let nsid = running.nsid;
        plan.waiting
            .push(format!("namespace {nsid} of {nqn} has other storage or format; use another NSID, or restart"));
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
