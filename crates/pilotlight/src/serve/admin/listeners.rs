//! Addresses that the server listens on, at run time.

use std::net::SocketAddr;

use pilotlight_nvmf_target::config::ServerConfig;

use super::Admin;
use super::hosts::{drained, ended_report};
use super::namespaces::refusal;
use crate::address;
use crate::admin::refusal::Refusal;
use crate::admin::request::ListenerSecurity;
use crate::config::parse_listener;
use crate::listener::{ListenerReport, ListenersReport};
use crate::serve::state::State;

impl Admin {
    /// The listening addresses.
    pub(super) fn listeners(&self) -> ListenersReport {
        let configured = {
            let state = self.state();
            state.config.listens_as(&state.read)
        };
        let listening = self.listening();
        let kinds = [
            (listening.plain, ListenerSecurity::None),
            (listening.tls, ListenerSecurity::Tls),
            (listening.concat, ListenerSecurity::Concat),
        ];
        let of_kind = |(addresses, security): (Vec<SocketAddr>, ListenerSecurity)| {
            addresses.into_iter().map(move |address| ListenerReport { address, security })
        };
        ListenersReport { listeners: kinds.into_iter().flat_map(of_kind).collect(), configured, ended: None }
    }

    /// Listens on one more address.
    pub(super) fn add_listener(&self, address: &str, security: ListenerSecurity) -> Result<ListenersReport, Refusal> {
        let address = parsed("address", address)?;
        self.change_listeners(|state, config| {
            config.paths.extend(state.read.paths.iter().filter(|rule| rule.address == address));
            state.order_paths(&mut config.paths);
            if config.all_listeners().contains(&address) || self.listening().all().contains(&address) {
                return Err(Refusal::for_field("address", format!("the server listens on {address} already")));
            }
            let needs = |what: &str, help: &str| Err(Refusal::for_field("security", what).help(help));
            let authentication = &state.config.authentication;
            match security {
                ListenerSecurity::None => config.listeners.push(address),
                ListenerSecurity::Tls if authentication.tls_keys.is_empty() => {
                    return needs("no host has a TLS key", "add keys first: see docs/operate/encrypt.md");
                }
                ListenerSecurity::Tls => config.tls_listeners.push(address),
                ListenerSecurity::Concat if authentication.hosts.is_empty() => {
                    return needs("no host has a secret", "add secrets first: see docs/operate/authenticate.md");
                }
                ListenerSecurity::Concat => config.concatenation_listeners.push(address),
            }
            Ok(())
        })
    }

    /// Listens on an address no longer; associations that began on it end.
    pub(super) fn remove_listener(&self, address: &str) -> Result<ListenersReport, Refusal> {
        let address = parsed("address", address)?;
        self.change_listeners(|state, config| {
            let all = config.own_addresses();
            if !all.contains(&address) {
                let what = format!("the server does not listen on {address}");
                return Err(Refusal::for_field("address", what).help(format!("it listens on {}", address::list(&all))));
            }
            if all.len() == 1 {
                let what = format!("{address} is the only address: no host could connect");
                return Err(Refusal::for_field("address", what).help("add another one first"));
            }
            config.paths.retain(|rule| rule.address != address);
            if let Some(user) = state.config.subsystems.iter().find(|subsystem| subsystem.listen.contains(&address)) {
                let what = format!("{} is offered on {address} by name", user.nqn);
                let help = format!("change that first: pilotlight subsystem listen {} ADDRESS...", user.nqn);
                return Err(Refusal::for_field("address", what).help(help));
            }
            let lists = [&mut config.listeners, &mut config.tls_listeners, &mut config.concatenation_listeners];
            lists.into_iter().for_each(|list| list.retain(|other| *other != address));
            Ok(())
        })
    }

    /// Changes the addresses, and waits for requests of disconnected hosts.
    fn change_listeners(
        &self,
        change: impl FnOnce(&State, &mut ServerConfig) -> Result<(), Refusal>,
    ) -> Result<ListenersReport, Refusal> {
        let mut state = self.state();
        let mut config = state.config.clone();
        change(&state, &mut config)?;
        let comes = config.paths.len() > state.config.paths.len();
        if comes {
            let _ = self.server.set_paths(&config.paths); // a new address has its states from the start
        }
        let draining = self.server.set_listeners(&config).map_err(|error| {
            let _ = self.server.set_paths(&state.config.paths);
            refusal(&error)
        })?;
        if !comes {
            let _ = self.server.set_paths(&config.paths); // a removed one had them to the end
        }
        state.config.copy_listeners(&config);
        state.config.paths = config.paths;
        state.listen_override = Some(state.read.clone());
        drop(state);
        self.announce();
        let ended = drained([&draining]).next().map(|ended| ended_report(&ended));
        Ok(ListenersReport { ended, ..self.listeners() })
    }
}

/// An address with a port.
pub(super) fn parsed(field: &str, text: &str) -> Result<SocketAddr, Refusal> {
    let address = parse_listener(text).map_err(|(what, help)| Refusal::for_field(field, what).help(help))?;
    if address.port() == 0 {
        return Err(Refusal::for_field(field, format!("`{text}` has no port")).help("write a port other than 0"));
    }
    Ok(address)
}
