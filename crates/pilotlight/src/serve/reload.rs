//! SIGHUP: applies a new configuration to a running server.
//!
//! Subsystems, namespaces and their sizes, allowed hosts, the discovery log and the policy change at once; every other difference is logged
//! and waits for a restart. [`plan`] decides and changes nothing; [`apply`] carries out the plan and updates the state, so that a failed
//! change is retried at the next SIGHUP.
//!
//! A change made over the control socket holds until the configuration of its object changes (`admin`).
//!
//! A namespace keeps its storage as long as it keeps its number: hosts cache blocks under the number, and would write them to other storage
//! with that number. Files and devices that get another number are moved while they are open (`moves`), and no namespace shrinks unless the
//! configuration allows it (`shrink`).

mod differences;
mod moves;
mod order;
mod shrink;

use pilotlight_nvmf_target::config::{NamespaceConfig, ServerConfig, SubsystemConfig};
use pilotlight_nvmf_target::{AssociationStats, Draining, ServerError};
use tracing::{info, warn};

use super::admin::{HostsOverride, State, allowed_hosts, find_namespace, refresh, tolerance_of};
use super::budget::{self, Configured, GoalOverrides};
use super::holder;
use super::server::{NO_SENSOR, NO_SENSOR_HELP, Running};
use crate::config::{AdminSocket, Cap, NamespaceName, Operation, Reactors, format_budget, format_cap, name_of};
use crate::policies::PolicyChoice;
pub(super) use differences::{differences, in_full, settled_differences};
use moves::Move;
use shrink::Shrink;

/// A change that can be made to a running server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// Advertised address and referrals.
    Discovery {
        advertise: Option<(String, u16)>,
        referrals: Vec<(String, u16)>,
    },
    /// Which hosts may connect to a subsystem.
    AllowHosts {
        nqn: String,
        allowed_hosts: Vec<String>,
        /// Whether a host may connect that might not before (`order`).
        admits: bool,
    },
    /// Which hosts see a namespace.
    Show {
        nqn: String,
        nsid: u32,
        hosts: Vec<String>,
        /// Whether a host sees it that did not before (`order`).
        admits: bool,
    },
    /// A subsystem without its namespaces: they are changes of their own.
    AddSubsystem {
        subsystem: SubsystemConfig,
    },
    RemoveSubsystem {
        nqn: String,
    },
    Remove {
        nqn: String,
        nsid: u32,
    },
    Add {
        nqn: String,
        namespace: NamespaceConfig,
    },
    Resize {
        nqn: String,
        to: NamespaceConfig,
        blocks: Option<u64>,
    },
    /// A namespace gets another number or subsystem, its storage staying open.
    Move {
        from: NamespaceName,
        nqn: String,
        to: NamespaceConfig,
    },
}

/// The changes of a reload.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// In order: removals make room for additions.
    changes: Vec<Change>,
    /// Differences that only a restart brings about.
    waiting: Vec<String>,
}

/// The configuration that was read.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) config: &'a ServerConfig,
    pub(super) operation: &'a Operation,
    /// Namespaces that may shrink.
    pub(super) may_shrink: &'a [NamespaceName],
}

/// Makes a running server into what was read, as far as that can be done; `state` follows. Returns the associations that
/// are ended: requests of them can be in the backends, and are not waited for here, as the state is locked.
pub(super) fn apply(state: &mut State, read: Wanted, server: &dyn Running) -> Vec<Draining> {
    let (wanted, staying) = with_what_stays(state, read.config);
    for namespace in staying {
        info!("{namespace}");
    }
    let mut plan = plan(&state.config, &wanted);
    plan.waiting.extend(settled_operation(&state.operation, read.operation));
    for difference in &plan.waiting {
        warn!("{difference}");
    }
    let draining = apply_changes(state, plan.changes, (&wanted, read.may_shrink), server);
    state.read = read.config.clone();
    apply_goals(state, read.operation, server);
    apply_caps(state, &read.operation.caps, server);
    apply_policy(state, &read.operation.policy, server);
    info!("configuration read again");
    draining
}

/// Makes changes in order. If a removal of access has failed, no host is admitted to that subsystem.
fn apply_changes(
    state: &mut State,
    changes: Vec<Change>,
    (wanted, may_shrink): (&ServerConfig, &[NamespaceName]),
    server: &dyn Running,
) -> Vec<Draining> {
    let (mut failed, mut draining) = (Vec::<String>::new(), Vec::new());
    for change in changes {
        if order::admits_to(&change).is_some_and(|nqn| failed.iter().any(|other| other == nqn)) {
            warn!("{} waits for the next reload: what was to be hidden or removed before is not", describe(&change));
            continue;
        }
        let takes_from = order::takes_from(&change).map(str::to_owned);
        if !apply_change(state, change, (wanted, may_shrink), server, &mut draining) {
            failed.extend(takes_from);
        }
    }
    draining
}

/// Makes a change; `false` where that has failed.
fn apply_change(
    state: &mut State,
    change: Change,
    (wanted, may_shrink): (&ServerConfig, &[NamespaceName]),
    server: &dyn Running,
    draining: &mut Vec<Draining>,
) -> bool {
    if let Change::RemoveSubsystem { nqn } = &change
        && let Some(staying) = moves::find(&state.config, wanted).iter().find(|one| one.from.nqn == nqn)
    {
        let nsid = staying.from.namespace.nsid;
        warn!("subsystem {nqn} stays: the storage of its namespace {nsid} could not be moved");
        return false;
    }
    if let Change::Resize { nqn, to, blocks } = &change {
        if find_namespace(&state.config, nqn, to.nsid).is_none() {
            return false; // it could not be moved there
        }
        if let Some(shrink) = Shrink::of(state, nqn, to, *blocks) {
            if !may_shrink.iter().any(|(allowed, nsid)| (allowed, *nsid) == (nqn, to.nsid)) {
                warn!("{}", shrink.refusal(nqn, to.nsid));
                return false;
            }
            warn!("{}", shrink.notice(nqn, to.nsid));
        }
    }
    match carry_out(&change, server, draining) {
        Ok(blocks) => {
            info!("{}", done(&change, blocks));
            record(state, change, blocks);
            true
        }
        Err(error) => {
            warn!("{} failed: {error}", describe(&change));
            false
        }
    }
}

/// The configuration that was read, with the overrides that hold, and a message for each.
fn with_what_stays(state: &mut State, read: &ServerConfig) -> (ServerConfig, Vec<String>) {
    let mut wanted = read.clone();
    let mut words = Vec::new();
    state.namespace_overrides.retain(|entry| find_namespace(read, &entry.nqn, entry.nsid) == entry.configured.as_ref());
    for entry in &state.namespace_overrides {
        let Some(subsystem) = wanted.subsystems.iter_mut().find(|subsystem| subsystem.nqn == entry.nqn) else {
            continue;
        };
        let runs = find_namespace(&state.config, &entry.nqn, entry.nsid).cloned();
        let (nsid, nqn) = (entry.nsid, &entry.nqn);
        match (&runs, &entry.configured) {
            (Some(_), None) => words.push(format!("namespace {nsid} of {nqn} stays: it was added by hand")),
            (None, Some(_)) => words.push(format!("namespace {nsid} of {nqn} stays away: it was removed by hand")),
            (runs, configured) if runs != configured => {
                words.push(format!("namespace {nsid} of {nqn} stays as it is: it was changed by hand"));
            }
            _ => {}
        }
        subsystem.namespaces.retain(|namespace| namespace.nsid != nsid);
        subsystem.namespaces.extend(runs);
    }
    state.host_overrides.retain(|entry| allowed_hosts(read, &entry.nqn) == Some(&entry.configured));
    for HostsOverride { nqn, configured } in &state.host_overrides {
        let runs = allowed_hosts(&state.config, nqn).cloned().unwrap_or_default();
        if runs != *configured {
            words.push(format!("the allowed hosts of {nqn} stay as they are: they were changed by hand"));
        }
        let subsystem = wanted.subsystems.iter_mut().find(|subsystem| subsystem.nqn == *nqn);
        subsystem.into_iter().for_each(|subsystem| subsystem.allowed_hosts.clone_from(&runs));
    }
    (wanted, words)
}

/// Asks what was read of the policy, if it is something else than was read before.
fn apply_goals(state: &mut State, read: &Operation, server: &dyn Running) {
    let configured = Configured::of(read);
    if configured == state.configured {
        if state.goal_overrides != GoalOverrides::default() {
            info!("goals stay: they were set manually");
        }
        return;
    }
    if configured.has_budget() && server.sources().is_empty() {
        warn!("{NO_SENSOR}: {NO_SENSOR_HELP}");
    }
    let (budget, tolerance) = (format_budget(read.goals.budget_uw), tolerance_of(&read.goals));
    info!("goals: budget {budget}, tolerance {tolerance}");
    (state.configured, state.goal_overrides) = (configured, GoalOverrides::default());
    (state.strict_before, state.withdrawn_uw) = (None, None);
    if let Err(why) = refresh(state, server, budget::now_s()) {
        warn!("policy {} stays: {why}", state.active_policy.name);
    }
}

/// Caps what was read, where it is something else than was read before; what was set manually stays otherwise.
fn apply_caps(state: &mut State, read: &[Cap], server: &dyn Running) {
    let before = std::mem::replace(&mut state.caps_read, read.to_vec());
    let gone = before.iter().filter(|(of, _)| read.iter().all(|(other, _)| other != of)).map(|(of, _)| (of, None));
    let new = read.iter().filter(|cap| !before.contains(cap)).map(|(of, rate)| (of, Some(*rate)));
    for (of, rate) in gone.chain(new) {
        match server.set_cap(of, rate) {
            Ok(()) => info!("cap of {}: {}", name_of(of), format_cap(rate)),
            Err(error) if rate.is_some() => warn!("the cap of {} is not set: {error}", name_of(of)),
            Err(_) => {} // it has ended with its namespace
        }
    }
}

/// Lets the policy that was read decide, if it is another than was read before.
fn apply_policy(state: &mut State, read: &PolicyChoice, server: &dyn Running) {
    let runs = &state.operation.policy;
    if *read == state.policy_read {
        if runs != read {
            info!("policy {} stays: it was set manually", runs.name);
        }
        return;
    }
    if runs != read
        && let Err(why) = holder::choose(state, read, server)
    {
        return warn!("policy {} stays: {why}", state.operation.policy.name);
    }
    info!("policy {} is in charge", state.active_policy.name);
    state.policy_read = read.clone();
}

/// Differences in how the program runs the server that only a start settles. A new field of [`Operation`] is decided here.
fn settled_operation(running: &Operation, wanted: &Operation) -> Vec<String> {
    let Operation {
        reactors,
        sleep_after,
        hotplug,
        profile,
        sensor,
        state_file,
        admin_socket,
        energy_shares,
        metrics,
        page,
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
    let socket = |socket: &Option<AdminSocket>| socket.as_ref().map(|socket| (socket.path.clone(), socket.asked));
    let group = |socket: &Option<AdminSocket>| socket.as_ref().and_then(|socket| socket.read_group.clone());
    let differs = [
        ("server.reactors", test_reactors(reactors) != test_reactors(&wanted.reactors)),
        ("server.sleep_after", *sleep_after != wanted.sleep_after),
        ("server.hotplug", *hotplug != wanted.hotplug),
        ("server.sensor", *sensor != wanted.sensor),
        ("server.energy_shares", *energy_shares != wanted.energy_shares),
        ("goals.profile", *profile != wanted.profile),
        ("admin.state", *state_file != wanted.state_file),
        ("admin.socket", socket(admin_socket) != socket(&wanted.admin_socket)),
        ("admin.read_group", group(admin_socket) != group(&wanted.admin_socket)),
        ("metrics.listen", *metrics != wanted.metrics),
        ("page", *page != wanted.page),
    ];
    name(&differs)
}

fn name(differs: &[(&str, bool)]) -> Vec<String> {
    let differing = differs.iter().filter(|(_, differs)| *differs);
    differing.map(|(key, _)| format!("{key} has changed; a restart brings it about")).collect()
}

/// The changes from `running` to `wanted`.
fn plan(running: &ServerConfig, wanted: &ServerConfig) -> Plan {
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
    if (&running.advertise, &running.referrals) != (&wanted.advertise, &wanted.referrals) {
        let (advertise, referrals) = (wanted.advertise.clone(), wanted.referrals.clone());
        plan.changes.push(Change::Discovery { advertise, referrals });
    }
    plan.waiting.extend(moves.iter().filter_map(Move::refusal));
    plan.changes.extend(moves.iter().filter(|one| one.obstacle.is_none()).flat_map(plan_move));
    plan.changes.sort_by_key(order::place); // stable, so that within each kind the order of the file holds
    plan
}

/// A file may have grown too.
fn plan_move(one: &Move) -> [Change; 2] {
    let (nqn, to) = (one.to.nqn.to_owned(), one.to.namespace.clone());
    let resize = Change::Resize { nqn: nqn.clone(), to: to.clone(), blocks: None };
    let from = (one.from.nqn.to_owned(), one.from.namespace.nsid);
    [Change::Move { from, nqn, to }, resize]
}

/// Differences in what is settled at the start.
fn settled(running: &ServerConfig, wanted: &ServerConfig) -> Vec<String> {
    let differs = [
        ("server.listen", running.listeners != wanted.listeners),
        ("server.cores", running.cores != wanted.cores),
        ("server.main_core", running.main_core != wanted.main_core),
        ("server.io_threads", running.io_threads != wanted.io_threads),
        ("server.power_states", running.power_states != wanted.power_states),
        ("limits", running.limits != wanted.limits),
        ("background", running.background != wanted.background),
    ];
    name(&differs)
}

fn plan_subsystem(plan: &mut Plan, running: &SubsystemConfig, wanted: &SubsystemConfig, moves: &[Move]) {
    let differs = [
        ("serial", running.serial != wanted.serial),
        ("controller_ids", running.controller_ids != wanted.controller_ids),
    ];
    let waiting = differs.iter().filter(|(_, differs)| *differs);
    plan.waiting
        .extend(waiting.map(|(key, _)| format!("{key} of {} has changed; a restart brings it about", running.nqn)));
    let steps = order::steps(&running.allowed_hosts, &wanted.allowed_hosts).into_iter();
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
    let steps = order::steps(&running.hosts, &wanted.hosts).into_iter();
    let show = |(admits, hosts)| Change::Show { nqn: nqn.to_owned(), nsid: running.nsid, hosts, admits };
    let running = &NamespaceConfig { hosts: wanted.hosts.clone(), ..running.clone() };
    let same_otherwise = NamespaceConfig { backend: wanted.backend.clone(), ..running.clone() } == *wanted;
    let is_another = !same_otherwise || !running.backend.is_same_storage(&wanted.backend);
    // new hosts are for the storage after a restart, not for the present one
    plan.changes.extend(steps.filter(|(admits, _)| !is_another || !admits).map(show));
    if is_another {
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

/// Makes a change; the blocks of a namespace that was resized.
fn carry_out(change: &Change, server: &dyn Running, draining: &mut Vec<Draining>) -> Result<Option<u64>, ServerError> {
    match change {
        Change::Discovery { advertise, referrals } => {
            server.set_discovery(advertise.clone(), referrals.clone());
            Ok(None)
        }
        Change::AllowHosts { nqn, allowed_hosts, .. } => {
            let ended = server.set_allowed_hosts(nqn, allowed_hosts)?;
            log_ended(nqn, ended.associations());
            draining.push(ended);
            Ok(None)
        }
        Change::Show { nqn, nsid, hosts, .. } => server.set_namespace_hosts(nqn, *nsid, hosts).map(|()| None),
        Change::AddSubsystem { subsystem } => server.add_subsystem(subsystem).map(|()| None),
        Change::RemoveSubsystem { nqn } => server.remove_subsystem(nqn).map(|()| None),
        Change::Remove { nqn, nsid } => server.remove_namespace(nqn, *nsid).map(|()| None),
        Change::Add { nqn, namespace } => server.add_namespace(nqn, namespace).map(|()| None),
        Change::Resize { nqn, to, blocks } => server.resize_namespace(nqn, to.nsid, *blocks).map(Some),
        Change::Move { from: (from, nsid), nqn, to } => server.move_namespace((from, *nsid), nqn, to).map(|()| None),
    }
}

/// Which hosts have lost their connections, as they may no longer connect.
fn log_ended(nqn: &str, ended: &[AssociationStats]) {
    for association in ended {
        let AssociationStats { hostnqn, peer, cntlid, .. } = association;
        info!(host = hostnqn, %peer, cntlid, "the host may no longer connect to {nqn}: its association is ended");
    }
}

/// The log message of a change.
fn done(change: &Change, blocks: Option<u64>) -> String {
    match (change, blocks) {
        (Change::Resize { nqn, to, .. }, Some(blocks)) => format!("namespace {} of {nqn} has {blocks} blocks", to.nsid),
        _ => format!("{} is done", describe(change)),
    }
}

/// Notes that a change has been made.
fn record(state: &mut State, change: Change, blocks: Option<u64>) {
    match change {
        Change::Discovery { advertise, referrals } => {
            (state.config.advertise, state.config.referrals) = (advertise, referrals);
        }
        Change::AllowHosts { nqn, allowed_hosts, .. } => {
            let known = state.config.subsystems.iter_mut().filter(|subsystem| subsystem.nqn == nqn);
            known.for_each(|subsystem| subsystem.allowed_hosts.clone_from(&allowed_hosts));
        }
        Change::Show { nqn, nsid, hosts, .. } => {
            let found = state.namespaces(&nqn).and_then(|all| all.iter_mut().find(|namespace| namespace.nsid == nsid));
            found.into_iter().for_each(|namespace| namespace.hosts.clone_from(&hosts));
        }
        Change::AddSubsystem { subsystem } => state.config.subsystems.push(subsystem),
        Change::RemoveSubsystem { nqn } => {
            state.config.subsystems.retain(|subsystem| subsystem.nqn != nqn);
            state.blocks.retain(|(of, _, _)| *of != nqn);
            state.namespace_overrides.retain(|entry| entry.nqn != nqn);
            state.host_overrides.retain(|entry| entry.nqn != nqn);
        }
        Change::Remove { nqn, nsid } => {
            state.forget_size(&nqn, nsid);
            state.namespaces(&nqn).into_iter().for_each(|all| all.retain(|namespace| namespace.nsid != nsid));
        }
        Change::Add { nqn, namespace } => {
            state.note_size(&nqn, &namespace, None);
            state.namespaces(&nqn).into_iter().for_each(|all| all.push(namespace.clone()));
        }
        Change::Resize { nqn, to, .. } => {
            state.note_size(&nqn, &to, blocks);
            let all = state.namespaces(&nqn).into_iter().flatten();
            let resized = |namespace: &mut NamespaceConfig| {
                let hosts = std::mem::take(&mut namespace.hosts); // who sees it is a change of its own, which may come later
                *namespace = NamespaceConfig { hosts, ..to.clone() };
            };
            all.filter(|namespace| namespace.nsid == to.nsid).for_each(resized);
        }
        Change::Move { from: (from, nsid), nqn, to } => {
            let blocks = state.blocks(&from, nsid);
            record(state, Change::Remove { nqn: from, nsid }, None);
            state.note_size(&nqn, &to, Some(blocks));
            state.namespaces(&nqn).into_iter().for_each(|all| all.push(to.clone()));
        }
    }
}

fn describe(change: &Change) -> String {
    match change {
        Change::Discovery { .. } => "changing the advertised address and referrals".to_owned(),
        Change::AllowHosts { nqn, .. } => format!("changing the allowed hosts of {nqn}"),
        Change::Show { nqn, nsid, .. } => format!("changing the hosts that see namespace {nsid} of {nqn}"),
        Change::AddSubsystem { subsystem } => format!("adding subsystem {}", subsystem.nqn),
        Change::RemoveSubsystem { nqn } => format!("removing subsystem {nqn}"),
        Change::Remove { nqn, nsid } => format!("removing namespace {nsid} of {nqn}"),
        Change::Add { nqn, namespace } => {
            format!("adding namespace {} of {nqn}, {},", namespace.nsid, namespace.backend)
        }
        Change::Resize { nqn, to, .. } => format!("resizing namespace {} of {nqn}", to.nsid),
        Change::Move { from: (from, nsid), nqn, to } => {
            format!("moving namespace {nsid} of {from}, {}, to number {} of {nqn}", to.backend, to.nsid)
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
