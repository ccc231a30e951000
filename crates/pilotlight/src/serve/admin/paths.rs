//! The states of paths, at run time.

use pilotlight_nvmf_target::config::{MAX_GROUP, PathRule};

use super::Admin;
use super::hosts::{drained, ended_report};
use super::listeners::parsed;
use crate::address;
use crate::admin::refusal::Refusal;
use crate::config::parse_state;
use crate::path::{CONFIGURED, PathReport, PathsReport};

/// The states, as text.
pub(super) fn text(rules: &[PathRule]) -> String {
    let one = |rule: &PathRule| {
        let group = rule.group.map(|group| format!(" group {group}")).unwrap_or_default();
        format!("{}{group} {}", rule.address, rule.state.name())
    };
    if rules.is_empty() { "all optimized".to_owned() } else { rules.iter().map(one).collect::<Vec<_>>().join(", ") }
}

impl Admin {
    /// The states of all addresses.
    pub(super) fn paths(&self) -> PathsReport {
        let state = self.state();
        let config = &state.config;
        let all = config.own_addresses();
        let report = |rule: &PathRule| PathReport {
            address: rule.address,
            group: rule.group,
            state: rule.state.name().to_owned(),
        };
        let ruled = |address| config.paths.iter().any(|rule| rule.address == address && rule.group.is_none());
        let open = all.into_iter().filter(|address| !ruled(*address));
        let open = open.map(|address| PathReport { address, group: None, state: "optimized".to_owned() });
        let mut paths: Vec<_> = open.chain(config.paths.iter().map(report)).collect();
        paths.sort_by_key(|path| (path.address, path.group));
        PathsReport { paths, configured: config.paths == state.read.paths, busy: None }
    }

    /// Sets the state of paths by an address. Waits for commands in progress on closed ones.
    pub(super) fn set_path(&self, address: &str, to: &str, group: Option<i64>) -> Result<PathsReport, Refusal> {
        let address = parsed("address", address)?;
        let group = match group.map(u32::try_from) {
            None => None,
            Some(Ok(group)) if (1..=MAX_GROUP).contains(&group) => Some(group),
            Some(_) => return Err(Refusal::for_field("group", format!("ANA groups are 1 to {MAX_GROUP}"))),
        };
        let mut state = self.state();
        let config = &state.config;
        let all = config.own_addresses();
        if !all.contains(&address) {
            let what = format!("the server does not listen on {address}");
            return Err(Refusal::for_field("address", what).help(format!("it listens on {}", address::list(&all))));
        }
        let is_meant = |rule: &PathRule| rule.address == address && (group.is_none() || rule.group == group);
        let mut rules = config.paths.clone();
        rules.retain(|rule| !is_meant(rule));
        if to == CONFIGURED {
            rules.extend(state.read.paths.iter().filter(|rule| is_meant(rule)));
        } else {
            let state = parse_state(to).map_err(|what| Refusal::for_field("state", what))?;
            rules.push(PathRule { address, group, state });
        }
        state.order_paths(&mut rules);
        let draining = self.server.set_paths(&rules);
        state.config.paths = rules;
        state.path_override = Some(state.read.paths.clone()).filter(|read| *read != state.config.paths);
        drop(state);
        let busy = drained([&draining]).next().map(|ended| ended_report(&ended).undrained);
        Ok(PathsReport { busy, ..self.paths() })
    }
}
