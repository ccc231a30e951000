//! How a configuration that is to be written differs from what runs: in nothing, or it is not written.

use std::collections::HashSet;
use std::path::Path;

use pilotlight_nvmf_target::Capped;
use pilotlight_nvmf_target::config::{ServerConfig, SubsystemConfig};

use super::change::{Change, describe};
use super::plan::{Plan, plan, settled, settled_operation};
use crate::config::{Cap, Operation, PageAddress, Priority, SensorChoice, TokenFile, format_cap, name_of};
use crate::serve::state::exists;

/// Changes of a reload or a restart: subsystems and namespaces, the policy, caps, priorities and tolerances; not that files may have
/// grown, and not what only a start settles ([`settled_differences`]).
pub(in crate::serve) fn differences(
    (config, operation): (&ServerConfig, &Operation),
    wanted: &ServerConfig,
    by: &Operation,
) -> Vec<String> {
    let Plan { changes, waiting } = plan(config, &with_settled_of(wanted, config));
    let follows_file = |change: &&Change| !matches!(change, Change::Resize { blocks: None, .. });
    let mut differences: Vec<String> = changes.iter().filter(follows_file).map(describe).chain(waiting).collect();
    let mut seen = HashSet::new();
    differences.retain(|difference| seen.insert(difference.clone())); // a list of hosts can change in two steps
    if by.policy != operation.policy {
        differences.push(format!("policy {} instead of {}", by.policy.name, operation.policy.name));
    }
    let is_there = |of: &Capped| exists(config, of);
    differences.extend(of_caps(&operation.caps, &by.caps, is_there));
    differences.extend(of_priorities(&operation.priorities, &by.priorities, is_there));
    differences.extend(of_tolerances(operation, by, is_there));
    differences
}

/// Differences that need a restart.
pub(in crate::serve) fn settled_differences(
    (config, operation): (&ServerConfig, &Operation),
    wanted: &ServerConfig,
    by: &Operation,
) -> Vec<String> {
    let mut differences = settled(config, wanted);
    // the file of the profile is named, and may have changed since
    let profile = by.profile.clone().filter(|_| operation.profile.is_some()).or_else(|| operation.profile.clone());
    differences.extend(settled_operation(&Operation { profile, ..operation.clone() }, by));
    let at_once =
        [("discovery.mdns", operation.mdns != by.mdns), ("log.format", operation.log_format != by.log_format)];
    differences.extend(at_once.iter().filter(|(_, differs)| *differs).map(|(key, _)| format!("{key} would change")));
    differences
}

/// With what only a start settles as it runs: it may have been read, and wait for a restart.
fn with_settled_of(wanted: &ServerConfig, running: &ServerConfig) -> ServerConfig {
    let subsystem = |wanted: &SubsystemConfig| {
        let known = running.subsystems.iter().find(|known| known.nqn == wanted.nqn).unwrap_or(wanted);
        SubsystemConfig { serial: known.serial.clone(), controller_ids: known.controller_ids, ..wanted.clone() }
    };
    ServerConfig {
        advertise: wanted.advertise.clone(),
        referrals: wanted.referrals.clone(),
        authentication: wanted.authentication.clone(),
        subsystems: wanted.subsystems.iter().map(subsystem).collect(),
        paths: wanted.paths.clone(),
        listeners: wanted.listeners.clone(),
        tls_listeners: wanted.tls_listeners.clone(),
        concatenation_listeners: wanted.concatenation_listeners.clone(),
        discovery_port: wanted.discovery_port,
        ..running.clone()
    }
}

fn of_caps(running: &[Cap], wanted: &[Cap], is_there: impl Fn(&Capped) -> bool) -> Vec<String> {
    unlike(running, wanted, is_there, |of, rate| format!("cap of {}: {}", name_of(of), format_cap(Some(*rate))))
}

fn of_priorities(running: &[Priority], wanted: &[Priority], is_there: impl Fn(&Capped) -> bool) -> Vec<String> {
    unlike(running, wanted, is_there, |of, priority| format!("priority of {}: {priority}", name_of(of)))
}

/// Of namespaces, by whether they have one.
fn of_tolerances(running: &Operation, wanted: &Operation, is_there: impl Fn(&Capped) -> bool) -> Vec<String> {
    let named = |operation: &Operation| -> Vec<(Capped, ())> {
        operation.tolerances.iter().map(|(of, _)| (of.clone(), ())).collect()
    };
    unlike(&named(running), &named(wanted), is_there, |of, ()| format!("a tolerance of {}", name_of(of)))
}

/// Elements that only one of two lists has.
fn unlike<T: PartialEq>(
    running: &[(Capped, T)],
    wanted: &[(Capped, T)],
    is_there: impl Fn(&Capped) -> bool,
    name: impl Fn(&Capped, &T) -> String,
) -> Vec<String> {
    let alone = |these: &[(Capped, T)], those: &[(Capped, T)]| -> Vec<String> {
        let alone = these.iter().filter(|one| !those.contains(one) && is_there(&one.0));
        alone.map(|(of, value)| name(of, value)).collect()
    };
    let missing = alone(running, wanted).into_iter().map(|what| format!("{what}, is not in the file"));
    let added = alone(wanted, running).into_iter().map(|what| format!("{what}, is not in force"));
    missing.chain(added).collect()
}

/// The configuration of the flags, with paths relative to `here` made absolute, as `config save` writes them.
pub(in crate::serve) fn in_full(config: &mut ServerConfig, operation: &mut Operation, here: &Path) {
    for namespace in config.subsystems.iter_mut().flat_map(|subsystem| &mut subsystem.namespaces) {
        namespace.backend = namespace.backend.clone().relative_to(here);
    }
    let socket = operation.admin_socket.as_mut().map(|socket| &mut socket.path);
    let (listen, token) = operation.page.as_mut().map(|page| (&mut page.listen, &mut page.token)).unzip();
    let listen = listen.and_then(|listen| match listen {
        PageAddress::Unix(path) => Some(path),
        PageAddress::Tcp(_) => None,
    });
    let token = token.map(|(TokenFile::Generated(path) | TokenFile::Configured(path))| path);
    let profile = match &mut operation.sensor {
        SensorChoice::Modelled(profile) => profile.as_mut(),
        _ => None,
    };
    let paths = [socket, operation.state_file.as_mut(), operation.reservations.as_mut(), listen, token, profile];
    paths.into_iter().flatten().for_each(|path| *path = here.join(&path));
}
