//! The subsystems, their allowed hosts, and the discovery log. An immutable value: a change creates a new one, which each
//! I/O thread gets by message, so that neither Connect nor Get Log Page takes a lock.
//!
//! A *place* is the index of a subsystem in its associations and namespaces.
//!
//! A subsystem that is removed and added again gets the same place, so that requests of its hosts that are still in the backends are waited
//! for ([`crate::unfinished`]), and its counters go on. Of more than [`KEPT`] removed subsystems the first loses its place to a new one, once nothing
//! of its hosts is left.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pilotlight_nvme::ana::AnaState;

use crate::ids::{DISCOVERY, PortId};
use crate::subsystems::config::{Advertised, ControllerIds, Security, SubsystemConfig, allows};
use crate::subsystems::discovery::{DiscoveryLog, Endpoint};
use crate::subsystems::paths::{self, MAX_GROUP, PathRule};
use crate::subsystems::subsystem::Subsystem;

/// Maximum number of subsystems, with the [`KEPT`] removed ones: the tables of I/O threads grow with them.
pub const MAX_PLACES: usize = 16_384;
/// Removed subsystems that keep their places.
const KEPT: usize = 256;

/// The subsystems.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    places: Vec<Place>,
    /// Number of removals.
    removals: u64,
    reach: Reach,
    /// Number of changes of the states of paths by each address, where there were any.
    path_changes: Vec<(SocketAddr, u64)>,
    log: DiscoveryLog,
}

/// A subsystem, possibly removed.
#[derive(Clone, Debug)]
struct Place {
    subsystem: Arc<Subsystem>,
    /// NQNs of the allowed hosts; empty admits any.
    allowed_hosts: Vec<String>,
    /// The addresses on which it is offered; empty: on all.
    listen: Vec<SocketAddr>,
    /// The number of its removal.
    removal: Option<u64>,
}

impl Place {
    fn is_removed(&self) -> bool {
        self.removal.is_some()
    }

    fn is_offered_on(&self, address: SocketAddr) -> bool {
        self.listen.is_empty() || self.listen.contains(&address)
    }
}

/// Addresses and referrals.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Where the server listens.
    pub endpoints: Vec<Endpoint>,
    /// Where it listens for the discovery service alone: these are not in the log.
    pub discovery_endpoints: Vec<Endpoint>,
    /// Addresses of the machine by which hosts can reach wildcards.
    pub machine: Vec<IpAddr>,
    /// The states of paths by these addresses.
    pub paths: Vec<PathRule>,
    /// Addresses in the discovery log in their place.
    pub advertised: Advertised,
    /// Other discovery services: address or name, and port.
    pub referrals: Vec<(String, u16)>,
}

impl Directory {
    /// The subsystems of `config` with these identities.
    #[must_use]
    pub fn new(config: &[SubsystemConfig], identities: &[Arc<Subsystem>], reach: Reach) -> Self {
        let place = |(subsystem, config): (&Arc<Subsystem>, &SubsystemConfig)| Place {
            subsystem: Arc::clone(subsystem),
            allowed_hosts: config.allowed_hosts.clone(),
            listen: config.listen.clone(),
            removal: None,
        };
        let places = identities.iter().zip(config).map(place).collect();
        let mut directory = Self { places, removals: 0, reach, path_changes: Vec::new(), log: DiscoveryLog::default() };
        directory.update_log();
        directory
    }

    /// The place of the subsystem named `nqn`.
    #[must_use]
    pub fn find(&self, nqn: &str) -> Option<usize> {
        self.places.iter().position(|place| !place.is_removed() && place.subsystem.nqn() == nqn)
    }

    /// The subsystem at this place, even if removed.
    #[must_use]
    pub fn subsystem(&self, at: usize) -> Option<&Arc<Subsystem>> {
        Some(&self.places.get(at)?.subsystem)
    }

    /// The allowed hosts of the subsystem at this place, if it exists.
    #[must_use]
    pub fn allowed_hosts(&self, at: usize) -> Option<&[String]> {
        Some(&self.place(at)?.allowed_hosts)
    }

    /// The allowed hosts of all subsystems.
    pub fn all_allowed_hosts(&self) -> impl Iterator<Item = &str> {
        let existing = self.places.iter().filter(|place| !place.is_removed());
        existing.flat_map(|place| &place.allowed_hosts).map(String::as_str)
    }

    /// Whether the host may use the subsystem. Any host may use the discovery service, whose log lists only its subsystems.
    #[must_use]
    pub fn allows(&self, at: usize, hostnqn: &str) -> bool {
        at == DISCOVERY || self.allowed_hosts(at).is_some_and(|allowed| allows(allowed, hostnqn))
    }

    /// Whether the server listens on this port, and offers the subsystem on it. The discovery service is offered on every port.
    #[must_use]
    pub fn is_offered(&self, at: usize, port: PortId) -> bool {
        let endpoint = self.endpoint(port);
        let is_offered =
            |on: &Endpoint| at == DISCOVERY || self.place(at).is_some_and(|one| one.is_offered_on(on.address));
        endpoint.is_some_and(is_offered)
    }

    fn endpoint(&self, port: PortId) -> Option<&Endpoint> {
        let endpoints = self.reach.endpoints.iter().chain(&self.reach.discovery_endpoints);
        endpoints.into_iter().find(|endpoint| endpoint.id == port)
    }

    /// The ANA state of a group by this port. A removed port is inaccessible, so that a closed one never opens for its last hosts.
    #[must_use]
    pub fn ana_state(&self, port: PortId, group: u32) -> AnaState {
        let by = |endpoint: &Endpoint| paths::state(&self.reach.paths, endpoint.address, group);
        self.endpoint(port).map_or(AnaState::Inaccessible, by)
    }

    /// Whether some group cannot be accessed by this port.
    #[must_use]
    pub fn has_closed_paths(&self, port: PortId) -> bool {
        (1..=MAX_GROUP).any(|group| paths::refusal(self.ana_state(port, group)).is_some())
    }

    /// Number of changes of states by this port; `None` if it is removed.
    #[must_use]
    pub fn path_changes(&self, port: PortId) -> Option<u64> {
        let address = self.endpoint(port)?.address;
        Some(self.path_changes.iter().find(|(changed, _)| *changed == address).map_or(0, |(_, changes)| *changes))
    }

    /// The addresses on which the subsystem is offered, if it exists; empty: all.
    #[must_use]
    pub fn listen(&self, at: usize) -> Option<&[SocketAddr]> {
        Some(&self.place(at)?.listen)
    }

    /// Where the server listens, without the discovery port.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.reach.endpoints
    }

    /// Whether the subsystem exists, or is the discovery service.
    #[must_use]
    pub fn exists(&self, at: usize) -> bool {
        at == DISCOVERY || self.place(at).is_some()
    }

    /// The reserved ranges of controller identifiers.
    pub fn reserved_ids(&self) -> Vec<ControllerIds> {
        let existing = self.places.iter().filter(|place| !place.is_removed());
        existing.filter_map(|place| place.subsystem.controller_ids()).collect()
    }

    /// The discovery log.
    #[must_use]
    pub fn log(&self) -> &DiscoveryLog {
        &self.log
    }

    fn place(&self, at: usize) -> Option<&Place> {
        self.places.get(at).filter(|place| !place.is_removed())
    }

    /// The place for a subsystem named `nqn`; `None` if none is left. `used` tells the places with hosts, also of removed subsystems.
    pub fn place_for(&self, nqn: &str, used: impl FnOnce() -> HashSet<usize>) -> Option<usize> {
        if let Some(before) = self.places.iter().position(|place| place.subsystem.nqn() == nqn) {
            return Some(before);
        }
        let new = Some(self.places.len()).filter(|&at| at < MAX_PLACES);
        let removed = self.places.iter().enumerate().filter_map(|(at, place)| Some((place.removal?, at)));
        if removed.clone().count() <= KEPT && new.is_some() {
            return new;
        }
        let used = used();
        removed.filter(|(_, at)| !used.contains(at)).min().map(|(_, at)| at).or(new)
    }

    /// With this subsystem at place `at` from [`Directory::place_for`].
    pub fn with(mut self, at: usize, subsystem: Arc<Subsystem>, config: &SubsystemConfig) -> Self {
        let (allowed_hosts, listen) = (config.allowed_hosts.clone(), config.listen.clone());
        let place = Place { subsystem, allowed_hosts, listen, removal: None };
        match self.places.get_mut(at) {
            Some(known) => *known = place,
            None => self.places.push(place),
        }
        self.update_log();
        self
    }

    /// Without the subsystem at this place.
    pub fn without(mut self, at: usize) -> Self {
        self.removals += 1;
        self.places.get_mut(at).into_iter().for_each(|place| place.removal = Some(self.removals));
        self.update_log();
        self
    }

    /// With other allowed hosts of the subsystem at this place.
    pub fn with_allowed_hosts(mut self, at: usize, allowed_hosts: &[String]) -> Self {
        self.places.get_mut(at).into_iter().for_each(|place| allowed_hosts.clone_into(&mut place.allowed_hosts));
        self.update_log();
        self
    }

    /// With other addresses on which the subsystem at this place is offered.
    pub fn with_listen(mut self, at: usize, listen: &[SocketAddr]) -> Self {
        self.places.get_mut(at).into_iter().for_each(|place| listen.clone_into(&mut place.listen));
        self.update_log();
        self
    }

    /// With other listening addresses: those of subsystems, and those of the discovery service alone.
    pub fn with_endpoints(mut self, endpoints: Vec<Endpoint>, discovery_endpoints: Vec<Endpoint>) -> Self {
        (self.reach.endpoints, self.reach.discovery_endpoints) = (endpoints, discovery_endpoints);
        self.update_log();
        self
    }

    /// With other states of paths.
    pub fn with_paths(mut self, rules: Vec<PathRule>) -> Self {
        let before = std::mem::replace(&mut self.reach.paths, rules);
        let all = before.iter().chain(&self.reach.paths).map(|rule| rule.address).collect::<HashSet<_>>();
        for address in all {
            if paths::states(&before, address) == paths::states(&self.reach.paths, address) {
                continue;
            }
            match self.path_changes.iter_mut().find(|(known, _)| *known == address) {
                Some((_, changes)) => *changes += 1,
                None => self.path_changes.push((address, 1)),
            }
        }
        self
    }

    /// With other addresses of the machine.
    pub fn with_machine(mut self, machine: Vec<IpAddr>) -> Self {
        self.reach.machine = machine;
        self.update_log();
        self
    }

    /// With other advertised addresses and other referrals.
    pub fn with_reach(mut self, advertised: Advertised, referrals: Vec<(String, u16)>) -> Self {
        (self.reach.advertised, self.reach.referrals) = (advertised, referrals);
        self.update_log();
        self
    }

    /// Updates the discovery log.
    fn update_log(&mut self) {
        let mut log = DiscoveryLog::new(&self.reach.machine);
        for endpoint in &self.reach.endpoints {
            let advertised = &self.reach.advertised;
            let advertise = match endpoint.security {
                Security::Plain => &advertised.plain,
                Security::Tls => &advertised.tls,
                Security::Concatenation => &None,
            };
            let is_listed = |place: &&Place| !place.is_removed() && place.is_offered_on(endpoint.address);
            for place in self.places.iter().filter(is_listed) {
                log.add(place.subsystem.nqn(), &place.allowed_hosts, *endpoint, advertise.as_ref());
            }
        }
        self.reach.referrals.iter().for_each(|referral| log.add_referral(referral));
        self.log = log.after(&self.log);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subsystems::config::SubsystemConfig;

    fn subsystem(nqn: &str) -> SubsystemConfig {
        SubsystemConfig::new(nqn, Vec::new())
    }

    fn directory(nqns: &[&str]) -> Directory {
        let subsystems: Vec<_> = nqns.iter().map(|nqn| subsystem(nqn)).collect();
        let identities: Vec<_> = subsystems.iter().map(|config| Arc::new(Subsystem::new(config))).collect();
        let address = ([127, 0, 0, 1], 4420).into();
        let endpoints = vec![Endpoint { id: PortId(1), address, security: Security::Plain, is_v6_only: false }];
        Directory::new(&subsystems, &identities, Reach { endpoints, ..Reach::default() })
    }

    /// Between its removal and the end of its hosts nothing is accessed by an address that was closed.
    #[test]
    fn a_removed_port_stays_closed() {
        let address = ([127, 0, 0, 1], 4420).into();
        let closed = vec![PathRule { address, group: None, state: AnaState::Inaccessible }];
        let drained = directory(&["a"]).with_paths(closed);
        let state = |directory: &Directory| (directory.ana_state(PortId(1), 1), directory.path_changes(PortId(1)));
        assert_eq!(state(&drained), (AnaState::Inaccessible, Some(1)));
        let removed = drained.with_endpoints(Vec::new(), Vec::new());
        assert_eq!(state(&removed), (AnaState::Inaccessible, None));
        assert_eq!(state(&removed.with_paths(Vec::new())), (AnaState::Inaccessible, None));
    }

    #[test]
    fn a_place_belongs_to_one_nqn() {
        let removed = directory(&["a", "b"]).without(0);
        assert_eq!((removed.find("a"), removed.find("b")), (None, Some(1)));
        assert!(!removed.allows(0, "h") && !removed.exists(0) && removed.allows(DISCOVERY, "h"));
        let place_for = |nqn| removed.place_for(nqn, HashSet::new);
        assert_eq!((place_for("a"), place_for("c")), (Some(0), Some(2)));
        let closed = SubsystemConfig { allowed_hosts: vec!["h".into()], ..subsystem("a") };
        let back = removed.with(0, Arc::new(Subsystem::new(&subsystem("a"))), &closed);
        assert_eq!(back.find("a"), Some(0));
        assert!(back.allows(0, "h") && !back.allows(0, "other"));
    }

    #[test]
    fn the_subsystem_removed_first_loses_its_place_when_nothing_of_its_hosts_is_left() {
        let add = |directory: Directory, nqn: &str, used: &HashSet<usize>| {
            let at = directory.place_for(nqn, || used.clone()).expect("a place");
            (directory.with(at, Arc::new(Subsystem::new(&subsystem(nqn))), &subsystem(nqn)), at)
        };
        let (mut directory, used) = (directory(&["stays"]), HashSet::from([1]));
        for round in 0..3 * KEPT {
            let (added, at) = add(directory, &round.to_string(), &used);
            assert!(at <= KEPT + 1, "place {at} in round {round}");
            assert!(round == 0 || at > 1, "place {at} in round {round}");
            directory = added.without(at);
        }
        assert_eq!(directory.find("stays"), Some(0));
        assert_eq!(directory.place_for("0", || used.clone()), Some(1), "its hosts are not forgotten");
        assert_eq!(directory.place_for("new", HashSet::new), Some(1), "the first one");
    }

    #[test]
    fn the_generation_of_the_log_counts_changes() {
        let generation = |directory: &Directory| directory.log().page("h", None)[0];
        let first = directory(&["a"]);
        let same = first.clone().with_reach(Advertised::default(), Vec::new());
        assert_eq!(generation(&same), generation(&first));
        let referring = same.with_reach(Advertised::default(), vec![("192.0.2.9".into(), 8009)]);
        assert_eq!(generation(&referring), generation(&first) + 1);
        assert_eq!(referring.log().page("h", None).len(), 3072);
        let closed = referring.clone().with_allowed_hosts(0, &["other".into()]);
        assert_eq!(generation(&closed), generation(&referring) + 1);
        assert!(closed.log().has_changed_for("h"), "one entry less");
        assert!(!closed.log().has_changed_for("other"), "the same entries");
        let removed = closed.without(0);
        assert!(!removed.log().has_changed_for("h"), "not listed before");
        assert!(removed.log().has_changed_for("other"));
        assert!(
            !removed.with_reach(Advertised::default(), vec![("192.0.2.9".into(), 8009)]).log().has_changed_for("other"),
            "no change"
        );
    }
}
