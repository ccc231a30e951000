//! What hosts can connect to: the subsystems, who may use them, and the discovery log that follows. A value that never changes:
//! a change makes a new one, and each I/O thread gets it by message, so that neither Connect nor Get Log Page takes a lock.
//!
//! Words: a *place* is the index of a subsystem, which its associations and namespaces are known by.
//!
//! Properties: a place belongs to one NQN for the server's life. A subsystem that is removed leaves its place empty, and gets
//! the same one when it comes back: so that what its hosts still have in the backends is waited for (`register.rs`).

use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::{ControllerIds, ServerConfig, allows};
use crate::discovery::DiscoveryLog;
use crate::server::DISCOVERY;
use crate::subsystem::Subsystem;

/// NQNs that a server can have had as subsystems: the tables of I/O threads grow with them.
pub(crate) const MAX_PLACES: usize = 16_384;

/// What hosts can connect to.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    places: Vec<Place>,
    reach: Reach,
    log: DiscoveryLog,
}

/// A subsystem that exists or has existed.
#[derive(Clone, Debug)]
struct Place {
    subsystem: Arc<Subsystem>,
    /// NQNs of the hosts that may use it; empty admits any.
    allowed_hosts: Vec<String>,
    is_removed: bool,
}

/// How hosts reach the server, and where else they are sent.
#[derive(Clone, Debug, Default)]
struct Reach {
    addresses: Vec<SocketAddr>,
    advertise: Option<(String, u16)>,
    referrals: Vec<(String, u16)>,
}

impl Directory {
    /// The subsystems of `config`, with these identities, on a server that listens on `addresses`.
    pub(crate) fn new(config: &ServerConfig, identities: &[Arc<Subsystem>], addresses: &[SocketAddr]) -> Self {
        let place = |(subsystem, config): (&Arc<Subsystem>, &crate::config::SubsystemConfig)| Place {
            subsystem: Arc::clone(subsystem),
            allowed_hosts: config.allowed_hosts.clone(),
            is_removed: false,
        };
        let reach = Reach {
            addresses: addresses.to_vec(),
            advertise: config.advertise.clone(),
            referrals: config.referrals.clone(),
        };
        let places = identities.iter().zip(&config.subsystems).map(place).collect();
        let mut directory = Self { places, reach, log: DiscoveryLog::default() };
        directory.follow();
        directory
    }

    /// The place of the subsystem named `nqn`.
    #[must_use]
    pub fn find(&self, nqn: &str) -> Option<usize> {
        self.places.iter().position(|place| !place.is_removed && place.subsystem.nqn() == nqn)
    }

    /// The subsystem at this place, which may be removed.
    #[must_use]
    pub fn subsystem(&self, at: usize) -> Option<&Arc<Subsystem>> {
        Some(&self.places.get(at)?.subsystem)
    }

    /// The hosts that may use the subsystem at this place; `None` where there is none.
    #[must_use]
    pub fn allowed_hosts(&self, at: usize) -> Option<&[String]> {
        Some(&self.place(at)?.allowed_hosts)
    }

    /// Whether the host may use the subsystem. Anyone may ask what there is: the discovery log shows a host only what it
    /// may use.
    #[must_use]
    pub fn allows(&self, at: usize, hostnqn: &str) -> bool {
        at == DISCOVERY || self.allowed_hosts(at).is_some_and(|allowed| allows(allowed, hostnqn))
    }

    /// Whether there is such a subsystem, or it is the discovery service.
    #[must_use]
    pub fn exists(&self, at: usize) -> bool {
        at == DISCOVERY || self.place(at).is_some()
    }

    /// The ranges of controller identifiers that subsystems have for themselves.
    pub(crate) fn reserved_ids(&self) -> Vec<ControllerIds> {
        let existing = self.places.iter().filter(|place| !place.is_removed);
        existing.filter_map(|place| place.subsystem.controller_ids()).collect()
    }

    /// The discovery log.
    #[must_use]
    pub fn log(&self) -> &DiscoveryLog {
        &self.log
    }

    fn place(&self, at: usize) -> Option<&Place> {
        self.places.get(at).filter(|place| !place.is_removed)
    }

    /// The place that a subsystem named `nqn` would get; `None` where there is no place left.
    pub(crate) fn place_for(&self, nqn: &str) -> Option<usize> {
        let before = self.places.iter().position(|place| place.subsystem.nqn() == nqn);
        before.or_else(|| (self.places.len() < MAX_PLACES).then_some(self.places.len()))
    }

    /// With this subsystem at place `at`, which [`Directory::place_for`] has chosen.
    pub(crate) fn with(mut self, at: usize, subsystem: Arc<Subsystem>, allowed_hosts: Vec<String>) -> Self {
        let place = Place { subsystem, allowed_hosts, is_removed: false };
        match self.places.get_mut(at) {
            Some(known) => *known = place,
            None => self.places.push(place),
        }
        self.follow();
        self
    }

    /// Without the subsystem at this place.
    pub(crate) fn without(mut self, at: usize) -> Self {
        self.places.get_mut(at).into_iter().for_each(|place| place.is_removed = true);
        self.follow();
        self
    }

    /// With other hosts that may use the subsystem at this place.
    pub(crate) fn with_allowed_hosts(mut self, at: usize, allowed_hosts: &[String]) -> Self {
        self.places.get_mut(at).into_iter().for_each(|place| allowed_hosts.clone_into(&mut place.allowed_hosts));
        self.follow();
        self
    }

    /// With another address that hosts are told, and other discovery services that they are referred to.
    pub(crate) fn with_reach(mut self, advertise: Option<(String, u16)>, referrals: Vec<(String, u16)>) -> Self {
        (self.reach.advertise, self.reach.referrals) = (advertise, referrals);
        self.follow();
        self
    }

    /// Brings the log up to date.
    fn follow(&mut self) {
        let mut log = DiscoveryLog::default();
        for &address in &self.reach.addresses {
            for place in self.places.iter().filter(|place| !place.is_removed) {
                log.add(place.subsystem.nqn(), &place.allowed_hosts, address, self.reach.advertise.as_ref());
            }
        }
        self.reach.referrals.iter().for_each(|referral| log.add_referral(referral));
        self.log = log.after(&self.log);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SubsystemConfig;

    fn subsystem(nqn: &str) -> SubsystemConfig {
        SubsystemConfig {
            nqn: nqn.into(),
            serial: None,
            allowed_hosts: Vec::new(),
            controller_ids: None,
            namespaces: Vec::new(),
        }
    }

    fn directory(nqns: &[&str]) -> Directory {
        let subsystems: Vec<_> = nqns.iter().map(|nqn| subsystem(nqn)).collect();
        let identities: Vec<_> = subsystems.iter().map(|config| Arc::new(Subsystem::new(config))).collect();
        let config = ServerConfig { subsystems, ..ServerConfig::default() };
        Directory::new(&config, &identities, &config.listeners)
    }

    #[test]
    fn a_place_belongs_to_one_nqn_for_ever() {
        let removed = directory(&["a", "b"]).without(0);
        assert_eq!((removed.find("a"), removed.find("b")), (None, Some(1)));
        assert!(!removed.allows(0, "h") && !removed.exists(0) && removed.allows(DISCOVERY, "h"));
        assert_eq!((removed.place_for("a"), removed.place_for("c")), (Some(0), Some(2)));
        let back = removed.with(0, Arc::new(Subsystem::new(&subsystem("a"))), vec!["h".into()]);
        assert_eq!(back.find("a"), Some(0));
        assert!(back.allows(0, "h") && !back.allows(0, "other"));
    }

    #[test]
    fn the_log_follows_and_its_generation_grows_with_every_change_and_no_other() {
        let generation = |directory: &Directory| directory.log().page("h", None)[0];
        let first = directory(&["a"]);
        let same = first.clone().with_reach(None, Vec::new());
        assert_eq!(generation(&same), generation(&first));
        let referring = same.with_reach(None, vec![("192.0.2.9".into(), 8009)]);
        assert_eq!(generation(&referring), generation(&first) + 1);
        assert_eq!(referring.log().page("h", None).len(), 3072);
        let closed = referring.clone().with_allowed_hosts(0, &["other".into()]);
        assert_eq!(generation(&closed), generation(&referring) + 1);
        assert!(closed.log().is_news_to("h"), "it sees one less");
        assert!(!closed.log().is_news_to("other"), "it sees what it saw");
        let removed = closed.without(0);
        assert!(!removed.log().is_news_to("h"), "it did not see it before");
        assert!(removed.log().is_news_to("other"));
        assert!(
            !removed.with_reach(None, vec![("192.0.2.9".into(), 8009)]).log().is_news_to("other"),
            "nothing is new"
        );
    }
}
