//! The changes of a reload: carrying them out, and recording them in the state.

use std::net::SocketAddr;

use pilotlight_nvmf_target::config::Advertised;
use pilotlight_nvmf_target::config::{NamespaceConfig, PathRule, ServerConfig, SubsystemConfig};
use pilotlight_nvmf_target::hosts::authentication::AuthenticationConfig;
use pilotlight_nvmf_target::{AssociationStats, Draining, ServerError};
use tracing::info;

use super::super::running::Running;
use super::super::state::State;
use crate::address;
use crate::config::NamespaceName;

/// A change that can be made to a running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The states of paths.
    Paths {
        rules: Vec<PathRule>,
    },
    /// The addresses that the server listens on, of this configuration.
    Listen {
        config: Box<ServerConfig>,
    },
    /// The addresses on which a subsystem is offered.
    Offer {
        nqn: String,
        listen: Vec<SocketAddr>,
        /// Whether it is offered on one on which it was not before (`order`).
        admits: bool,
    },
    /// Advertised addresses and referrals.
    Discovery {
        advertised: Advertised,
        referrals: Vec<(String, u16)>,
    },
    /// Secrets of hosts, and what exchanges with them allow.
    Authentication {
        authentication: AuthenticationConfig,
        /// Whether a host no longer has a secret (`order`).
        loosens: bool,
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

/// Makes a change; the blocks of a namespace that was resized.
pub(super) fn carry_out(
    change: &Change,
    server: &dyn Running,
    draining: &mut Vec<Draining>,
) -> Result<Option<u64>, ServerError> {
    match change {
        Change::Paths { rules } => {
            draining.push(server.set_paths(rules));
            Ok(None)
        }
        Change::Listen { config } => {
            let ended = server.set_listeners(config)?;
            log_ended("the server does not listen on its address any more", ended.associations());
            draining.push(ended);
            Ok(None)
        }
        Change::Offer { nqn, listen, .. } => {
            let ended = server.set_subsystem_listen(nqn, listen)?;
            log_ended(&format!("{nqn} is not offered on its address any more"), ended.associations());
            draining.push(ended);
            Ok(None)
        }
        Change::Discovery { advertised, referrals } => {
            server.set_discovery(advertised.clone(), referrals.clone());
            Ok(None)
        }
        Change::Authentication { authentication, .. } => {
            server.set_authentication(authentication.clone());
            Ok(None)
        }
        Change::AllowHosts { nqn, allowed_hosts, .. } => {
            let ended = server.set_allowed_hosts(nqn, allowed_hosts)?;
            log_ended(&format!("the host may no longer connect to {nqn}"), ended.associations());
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

/// Which hosts have lost their connections, and why.
fn log_ended(why: &str, ended: &[AssociationStats]) {
    for association in ended {
        let AssociationStats { hostnqn, peer, cntlid, .. } = association;
        info!(host = hostnqn, %peer, cntlid, "{why}: its association is ended");
    }
}

/// The log message of a change.
pub(super) fn done(change: &Change, blocks: Option<u64>) -> String {
    match (change, blocks) {
        (Change::Resize { nqn, to, .. }, Some(blocks)) => format!("namespace {} of {nqn} has {blocks} blocks", to.nsid),
        _ => format!("{} is done", describe(change)),
    }
}

/// Notes that a change has been made.
pub(super) fn record(state: &mut State, change: Change, blocks: Option<u64>) {
    match change {
        Change::Paths { rules } => state.config.paths = rules,
        Change::Listen { config: wanted } => state.config.copy_listeners(&wanted),
        Change::Offer { nqn, listen, .. } => {
            let known = state.config.subsystems.iter_mut().filter(|subsystem| subsystem.nqn == nqn);
            known.for_each(|subsystem| subsystem.listen.clone_from(&listen));
        }
        Change::Discovery { advertised, referrals } => {
            let config = &mut state.config;
            (config.advertise, config.tls_advertise) = (advertised.plain, advertised.tls);
            config.referrals = referrals;
        }
        Change::Authentication { authentication, .. } => state.config.authentication = authentication,
        Change::AllowHosts { nqn, allowed_hosts, .. } => {
            let known = state.config.subsystems.iter_mut().filter(|subsystem| subsystem.nqn == nqn);
            known.for_each(|subsystem| subsystem.allowed_hosts.clone_from(&allowed_hosts));
        }
        Change::Show { nqn, nsid, hosts, .. } => {
            let found = state.namespaces(&nqn).and_then(|all| all.iter_mut().find(|namespace| namespace.nsid == nsid));
            found.into_iter().for_each(|namespace| namespace.hosts.clone_from(&hosts));
        }
        Change::AddSubsystem { subsystem } => state.config.subsystems.push(subsystem),
        Change::RemoveSubsystem { nqn } => state.forget_subsystem(&nqn),
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
                let hosts = std::mem::take(&mut namespace.hosts); // visibility is a separate change, which may come later
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

pub(super) fn describe(change: &Change) -> String {
    match change {
        Change::Paths { .. } => "changing the states of paths".to_owned(),
        Change::Listen { config } => format!("listening on {} alone", address::list(&config.all_listeners())),
        Change::Offer { nqn, .. } => format!("changing the addresses on which {nqn} is offered"),
        Change::Authentication { .. } => "changing the secrets of hosts".to_owned(),
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
