//! Subsystems, and the addresses on which they are offered, at run time.

use std::net::SocketAddr;

use pilotlight_nvmf_target::config::SubsystemConfig;

use super::Admin;
use super::hosts::{drained, ended_report};
use super::listeners::parsed;
use super::namespaces::{refusal, subsystem};
use crate::address;
use crate::admin::refusal::Refusal;
use crate::admin::request::SubsystemAdd;
use crate::config::nqn;
use crate::serve::state::{OfferOverride, State, find_subsystem};
use crate::subsystem::{SubsystemReport, SubsystemsReport};

impl Admin {
    /// All subsystems.
    pub(super) fn subsystems(&self) -> SubsystemsReport {
        let state = self.state();
        let report = |SubsystemConfig { nqn, listen, allowed_hosts, namespaces, .. }: &SubsystemConfig| {
            let read = find_subsystem(&state.read, nqn);
            SubsystemReport {
                nqn: nqn.clone(),
                listen: listen.clone(),
                hosts: (!allowed_hosts.is_empty()).then_some(allowed_hosts.len()),
                namespaces: namespaces.len(),
                configured: read.is_some_and(|read| read.listen == *listen),
            }
        };
        SubsystemsReport { subsystems: state.config.subsystems.iter().map(report).collect(), ended: None }
    }

    /// Adds a subsystem without namespaces.
    pub(super) fn add_subsystem(&self, request: &SubsystemAdd) -> Result<SubsystemsReport, Refusal> {
        let SubsystemAdd { nqn, hosts, allow_any, listen } = request;
        nqn::check(nqn).map_err(|what| Refusal::for_field("nqn", what).help(nqn::FORMS))?;
        for host in hosts {
            nqn::check(host).map_err(|what| Refusal::for_field("hosts", what).help(nqn::FORMS))?;
        }
        if hosts.is_empty() != *allow_any {
            let what = if *allow_any { "hosts are named, and any host is allowed" } else { "no host is named" };
            let help = "name the hosts that may connect (--host), or allow any (--allow-any, \"allow_any\": true)";
            return Err(Refusal::for_field("hosts", what).help(help));
        }
        let mut state = self.state();
        let subsystem = SubsystemConfig {
            allowed_hosts: hosts.clone(),
            listen: listed(&state, listen)?,
            ..SubsystemConfig::new(nqn, Vec::new())
        };
        self.server.add_subsystem(&subsystem).map_err(|error| refusal(&error))?;
        state.config.subsystems.push(subsystem);
        state.note_subsystem_override(nqn);
        drop(state);
        Ok(self.subsystems())
    }

    /// Removes a subsystem with its namespaces; its hosts are disconnected.
    pub(super) fn remove_subsystem(&self, nqn: &str) -> Result<SubsystemsReport, Refusal> {
        let mut state = self.state();
        subsystem(&state, Some(nqn))?;
        self.server.remove_subsystem(nqn).map_err(|error| refusal(&error))?;
        state.forget_subsystem(nqn);
        state.note_subsystem_override(nqn);
        drop(state);
        Ok(self.subsystems())
    }

    /// Offers a subsystem on these addresses alone, or for none on all.
    pub(super) fn set_subsystem_listen(&self, nqn: &str, listen: &[String]) -> Result<SubsystemsReport, Refusal> {
        let mut state = self.state();
        subsystem(&state, Some(nqn))?;
        let listen = listed(&state, listen)?;
        let draining = self.server.set_subsystem_listen(nqn, &listen).map_err(|error| refusal(&error))?;
        let known = state.config.subsystems.iter_mut().find(|subsystem| subsystem.nqn == nqn);
        known.into_iter().for_each(|subsystem| subsystem.listen.clone_from(&listen));
        let configured = find_subsystem(&state.read, nqn).map(|read| read.listen.clone()).unwrap_or_default();
        state.offer_overrides.retain(|entry| entry.nqn != nqn);
        state.offer_overrides.push(OfferOverride { nqn: nqn.to_owned(), configured });
        drop(state);
        let ended = drained([&draining]).next().map(|ended| ended_report(&ended));
        Ok(SubsystemsReport { ended, ..self.subsystems() })
    }
}

/// Addresses, each of them one that the server listens on.
fn listed(state: &State, texts: &[String]) -> Result<Vec<SocketAddr>, Refusal> {
    let config = &state.config;
    let all = config.own_addresses();
    let one = |text: &String| {
        let address = parsed("listen", text)?;
        if all.contains(&address) {
            return Ok(address);
        }
        let help = format!("it listens on {}; `pilotlight listener add` adds one", address::list(&all));
        Err(Refusal::for_field("listen", format!("the server does not listen on {address}")).help(help))
    };
    let mut addresses = texts.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}
