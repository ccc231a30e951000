//! SIGHUP: applies a new configuration to a running server.
//!
//! Addresses, subsystems, namespaces and their sizes, allowed hosts, the discovery log and the policy change at once; every other difference is logged
//! and waits for a restart. [`plan`] decides and changes nothing; [`apply`] carries out the plan and updates the state, so that a failed
//! change is retried at the next SIGHUP.
//!
//! A change made over the control socket holds until the configuration of its object changes (`admin`).
//!
//! A namespace keeps its storage as long as it keeps its number: hosts cache blocks under the number, and would write them to other storage
//! with that number. Files and devices that get another number are moved while they are open (`moves`), and no namespace shrinks unless the
//! configuration allows it (`shrink`).

mod change;
mod differences;
mod moves;
mod order;
mod plan;
mod shrink;

use pilotlight_nvmf_target::Draining;
use pilotlight_nvmf_target::config::ServerConfig;
use pilotlight_plant::{Goals, Scope};
use tracing::{info, warn};

use super::budget::{self, Configured, GoalOverrides, NO_SENSOR, NO_SENSOR_HELP};
use super::holder::{self, refresh};
use super::running::Running;
use super::state::{
    HostsOverride, OfferOverride, State, SubsystemOverride, allowed_hosts, find_namespace, find_subsystem, offered_on,
};
use crate::config::{
    Cap, LatencyBound, NamespaceName, Operation, format_budget, format_cap, format_tolerance, name_of,
};
use crate::policies::PolicyChoice;
use change::{Change, carry_out, describe, done, record};
pub(super) use differences::{differences, in_full, settled_differences};
use plan::{plan, settled_operation};
use shrink::Shrink;

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
            warn!("{} waits for the next reload: an earlier removal of access has failed", describe(&change));
            continue;
        }
        if matches!(change, Change::Authentication { loosens: true, .. }) && !failed.is_empty() {
            warn!("{} waits for the next reload: an earlier removal of access has failed", describe(&change));
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
        if let Some(shrink) = Shrink::find(state, nqn, to, *blocks) {
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
    state.listen_override.take_if(|configured| !read.listens_as(configured));
    if state.listen_override.is_some() {
        if !state.config.listens_as(read) {
            words.push("the addresses to listen on are unchanged: they were changed manually".to_owned());
        }
        wanted.copy_listeners(&state.config);
    }
    state.path_override.take_if(|configured| read.paths != *configured);
    if state.path_override.is_some() {
        if state.config.paths != read.paths {
            words.push("the states of paths are unchanged: they were changed manually".to_owned());
        }
        wanted.paths.clone_from(&state.config.paths);
    }
    let listeners = wanted.all_listeners();
    wanted.paths.retain(|rule| listeners.contains(&rule.address)); // one may have been removed manually
    state.subsystem_overrides.retain(|entry| find_subsystem(read, &entry.nqn) == entry.configured.as_ref());
    for SubsystemOverride { nqn, configured } in &state.subsystem_overrides {
        let runs = find_subsystem(&state.config, nqn).cloned();
        match (&runs, configured) {
            (Some(_), None) => words.push(format!("subsystem {nqn} is kept: it was added manually")),
            (None, Some(_)) => words.push(format!("subsystem {nqn} is not added: it was removed manually")),
            _ => {}
        }
        wanted.subsystems.retain(|subsystem| subsystem.nqn != *nqn);
        wanted.subsystems.extend(runs);
    }
    state.namespace_overrides.retain(|entry| find_namespace(read, &entry.nqn, entry.nsid) == entry.configured.as_ref());
    for entry in &state.namespace_overrides {
        let Some(subsystem) = wanted.subsystems.iter_mut().find(|subsystem| subsystem.nqn == entry.nqn) else {
            continue;
        };
        let runs = find_namespace(&state.config, &entry.nqn, entry.nsid).cloned();
        let (nsid, nqn) = (entry.nsid, &entry.nqn);
        match (&runs, &entry.configured) {
            (Some(_), None) => words.push(format!("namespace {nsid} of {nqn} is kept: it was added manually")),
            (None, Some(_)) => words.push(format!("namespace {nsid} of {nqn} is not added: it was removed manually")),
            (runs, configured) if runs != configured => {
                words.push(format!("namespace {nsid} of {nqn} is unchanged: it was changed manually"));
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
            words.push(format!("the allowed hosts of {nqn} are unchanged: they were changed manually"));
        }
        let subsystem = wanted.subsystems.iter_mut().find(|subsystem| subsystem.nqn == *nqn);
        subsystem.into_iter().for_each(|subsystem| subsystem.allowed_hosts.clone_from(&runs));
    }
    state.offer_overrides.retain(|entry| offered_on(read, &entry.nqn) == Some(&entry.configured));
    for OfferOverride { nqn, configured } in &state.offer_overrides {
        let runs = offered_on(&state.config, nqn).cloned().unwrap_or_default();
        if runs != *configured {
            words.push(format!("the addresses of {nqn} are unchanged: they were changed manually"));
        }
        let subsystem = wanted.subsystems.iter_mut().find(|subsystem| subsystem.nqn == *nqn);
        subsystem.into_iter().for_each(|subsystem| subsystem.listen.clone_from(&runs));
    }
    (wanted, words)
}

/// Requests the policy of the configuration if it differs from the one read before.
fn apply_goals(state: &mut State, read: &Operation, server: &dyn Running) {
    let configured = Configured { limit_uw: state.configured.limit_uw, ..Configured::from_operation(read) };
    if configured == state.configured {
        if state.goal_overrides != GoalOverrides::default() {
            info!("goals are unchanged: they were set manually");
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

/// The tolerance of the server, as text.
fn tolerance_of(goals: &Goals) -> String {
    format_tolerance(goals.tolerance(Scope::Server).map(LatencyBound::from))
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
            info!("policy {} is kept: it was set manually", runs.name);
        }
        return;
    }
    if runs != read
        && let Err(why) = holder::choose(state, read, server)
    {
        return warn!("policy {} stays: {why}", state.operation.policy.name);
    }
    info!("policy {} is active", state.active_policy.name);
    state.policy_read = read.clone();
}

#[cfg(test)]
pub(super) mod tests;
