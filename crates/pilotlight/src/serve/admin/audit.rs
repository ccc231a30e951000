//! Who changed what over the control socket or the page: one line of the log for each value that is another afterwards, with the user's number
//! or the browser's address, the old value and the new one. All values are compared, so that no kind of request is missed.

use std::collections::BTreeMap;

use tracing::info;

use super::{Admin, paths};
use crate::address;
use crate::admin::request::{DisconnectRequest, Request};
use crate::config::{format_budget, format_cap, name_of};
use crate::policies::{BudgetDomain, PolicyChoice};
use crate::serve::banner::Listening;
use crate::status::measure;

/// Who sent a request.
pub(super) enum Author {
    /// The user with this number, over the control socket.
    User(u32),
    /// A browser at this address, over the page. Who has its token is not known here.
    Page(String),
}

impl Author {
    /// In the name of an event of the log.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::User(_) => "control",
            Self::Page(_) => "page",
        }
    }

    /// The channel of the request.
    pub(super) fn place(&self) -> &'static str {
        match self {
            Self::User(_) => "control socket",
            Self::Page(_) => "page",
        }
    }
}

/// Writes into the log what changes no value that stays: a disconnection, and that the configuration is saved.
pub(super) fn note(by: &Author, request: &Request) {
    let (uid, peer) = match by {
        Author::User(uid) => (Some(*uid), None),
        Author::Page(peer) => (None, Some(peer)),
    };
    let place = by.place();
    match request {
        Request::ConfigSave(_) => info!(uid, peer, "request over the {place}: save the configuration"),
        Request::Disconnect(DisconnectRequest { host, nqn }) => {
            info!(
                uid,
                peer,
                host,
                nqn = nqn.as_deref().unwrap_or("any"),
                "request over the {place}: disconnect a host"
            );
        }
        _ => {}
    }
}

/// Changeable values, by name.
pub(super) type Values = BTreeMap<String, String>;

impl Admin {
    /// The values that are in force.
    pub(super) fn values(&self) -> Values {
        let stats = self.server.stats();
        let state = self.state();
        let operation = &state.operation;
        let mut values = Values::from([
            ("policy".to_owned(), choice(&operation.policy)),
            ("budget".to_owned(), format_budget(operation.goals.budget_uw)),
            ("domain of the budget".to_owned(), domain(operation.domain).to_owned()),
        ]);
        let goals = measure::goals(&operation.goals, &operation.tolerances, &operation.policy, None);
        values.extend(goals.tolerances.into_iter().map(|tolerance| {
            let of = tolerance.nqn.zip(tolerance.nsid).map(|(nqn, nsid)| format!(" of namespace {nsid} of {nqn}"));
            (format!("tolerance{}", of.unwrap_or_default()), tolerance.text)
        }));
        let caps = stats.caps.iter().filter(|cap| cap.stats.operator.is_some());
        values.extend(caps.map(|cap| (format!("cap of {}", name_of(&cap.of)), format_cap(cap.stats.operator))));
        let priorities = operation.priorities.iter();
        values.extend(priorities.map(|(of, class)| (format!("priority of {}", name_of(of)), class.to_string())));
        let minimums = operation.goals.minimums.iter();
        values.extend(minimums.map(|(class, rate)| (format!("minimum of priority {class}"), format_cap(Some(*rate)))));
        let classes = stats.background.iter();
        values.extend(classes.map(|class| (format!("{} paused", class.class.name()), class.is_paused.to_string())));
        let Listening { plain, tls, concat } = self.listening();
        let listening = [("listening", plain), ("listening with TLS", tls), ("listening for concatenation", concat)];
        values.extend(listening.map(|(name, on)| (format!("addresses {name}"), address::list(&on))));
        values.insert("states of paths".to_owned(), paths::text(&state.config.paths));
        for subsystem in &state.config.subsystems {
            let (nqn, namespaces) = (&subsystem.nqn, subsystem.namespaces.iter());
            values.insert(format!("allowed hosts of {nqn}"), list(&subsystem.allowed_hosts));
            let listen: Vec<String> = subsystem.listen.iter().map(ToString::to_string).collect();
            values.insert(format!("addresses of {nqn}"), list(&listen));
            let restricted = subsystem.namespaces.iter().filter(|namespace| !namespace.hosts.is_empty());
            values.extend(restricted.map(|namespace| {
                (format!("hosts that see namespace {} of {nqn}", namespace.nsid), list(&namespace.hosts))
            }));
            values.extend(namespaces.map(|namespace| {
                let blocks = state.blocks(nqn, namespace.nsid);
                (format!("namespace {} of {nqn}", namespace.nsid), format!("{}, {blocks} blocks", namespace.backend))
            }));
        }
        values
    }
}

fn list(hosts: &[String]) -> String {
    if hosts.is_empty() { "any".to_owned() } else { hosts.join(" ") }
}

/// As the configuration has it; where it has none, the server takes what is measured.
fn domain(domain: Option<BudgetDomain>) -> &'static str {
    domain.map_or("none", BudgetDomain::name)
}

fn choice(policy: &PolicyChoice) -> String {
    let set = policy.parameters.iter().map(|(key, value)| format!(" {key}={value}"));
    set.fold(policy.name.clone(), |text, set| text + &set)
}

/// Names of values that differ, each with the old and the new one; `none` where there is none.
fn changes(before: &Values, after: &Values) -> Vec<(String, String, String)> {
    let value = |of: &Values, name: &String| of.get(name).cloned().unwrap_or_else(|| "none".to_owned());
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let all = names.into_iter().map(|name| (name.clone(), value(before, name), value(after, name)));
    all.filter(|(_, old, new)| old != new).collect()
}

/// Writes what was changed into the log.
pub(super) fn log(by: &Author, before: &Values, after: &Values) {
    for (name, old, new) in changes(before, after) {
        match by {
            Author::User(uid) => info!(uid, %old, %new, "{name} was changed over the control socket"),
            Author::Page(peer) => info!(by = "page", %peer, %old, %new, "{name} was changed over the page"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_logged_as_it_is_written() {
        for text in ["server", "cpu"] {
            assert_eq!(domain(BudgetDomain::parse(text).ok()), text);
        }
        assert_eq!(domain(None), "none");
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let values = |all: &[(&str, &str)]| -> Values {
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let before = values(&[("budget", "off"), ("policy", "sandman"), ("cap of a", "1MB/s")]);
        let after = values(&[("budget", "300W"), ("policy", "sandman"), ("priority of b", "3")]);
        let found = changes(&before, &after);
        let found: Vec<_> = found.iter().map(|(name, old, new)| (name.as_str(), old.as_str(), new.as_str())).collect();
        assert_eq!(found, [("budget", "off", "300W"), ("cap of a", "1MB/s", "none"), ("priority of b", "none", "3")]);
    }
}
