//! The order in which a reload changes access.
//!
//! # The problem
//! The changes of one reload are made one after the other. A host that is admitted to a subsystem before a namespace is hidden from it, or
//! removed, can read and write that namespace meanwhile, although neither configuration shows it to this host.
//!
//! # The rule
//! A list of hosts first loses those that the new list does not name, then namespaces are removed and moved, and a list gets its new hosts
//! last. A list that loses some hosts and gets others is changed in two steps. Until the last namespace is moved every list is a part of
//! the old one, from then on a part of the new one: at any time a host sees only namespaces of the old or the new configuration.
//!
//! The addresses on which a subsystem is offered change by the same rule, before and after those of the server.
//!
//! An empty list means any host. So if the old and the new list have no host in common, the first step sets [`NO_HOST`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::change::Change;

/// A host list with this name allows no host: the target does not accept an empty host NQN as listed.
pub(super) const NO_HOST: &str = "";
/// A subsystem with this address is offered nowhere: the system chooses another port than 0.
pub(super) const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The steps from one list of hosts, or of addresses, to another; `true` with one that admits a host, or offers more. `none` is what no host
/// and no address is.
pub(super) fn steps<T: Clone + PartialEq>(running: &[T], wanted: &[T], none: T) -> Vec<(bool, Vec<T>)> {
    let (any_before, any_after) = (running.is_empty(), wanted.is_empty());
    if running == wanted {
        return Vec::new();
    }
    let admits = !any_before && (any_after || wanted.iter().any(|host| !running.contains(host)));
    if !admits {
        return vec![(false, wanted.to_vec())];
    }
    let mut kept = running.to_vec();
    kept.retain(|host| any_after || wanted.contains(host));
    if kept.is_empty() {
        kept.push(none);
    }
    let mut steps = vec![(false, kept), (true, wanted.to_vec())];
    steps.retain(|(_, hosts)| hosts != running); // if no host loses access, one step is enough
    steps
}

/// Changes are made in the order of these numbers.
pub(super) fn place(change: &Change) -> u8 {
    match change {
        Change::AllowHosts { admits: false, .. }
        | Change::Show { admits: false, .. }
        | Change::Offer { admits: false, .. }
        | Change::Authentication { loosens: false, .. } => 0,
        Change::Listen { .. } | Change::Paths { .. } | Change::Discovery { .. } => 1,
        Change::AddSubsystem { .. } => 2,
        Change::Remove { .. } => 3,
        Change::Move { .. } => 4,
        Change::RemoveSubsystem { .. } => 5,
        Change::Resize { .. } => 6,
        Change::Add { .. } => 7,
        Change::AllowHosts { admits: true, .. }
        | Change::Show { admits: true, .. }
        | Change::Offer { admits: true, .. } => 8,
        Change::Authentication { loosens: true, .. } => 9,
    }
}

/// The subsystem to which this change admits a host, or of which it shows a host more.
pub(super) fn admits_to(change: &Change) -> Option<&str> {
    match change {
        Change::AllowHosts { nqn, admits: true, .. }
        | Change::Show { nqn, admits: true, .. }
        | Change::Offer { nqn, admits: true, .. } => Some(nqn),
        _ => None,
    }
}

/// The subsystem of which this change shows hosts less.
pub(super) fn takes_from(change: &Change) -> Option<&str> {
    match change {
        Change::AllowHosts { nqn, admits: false, .. }
        | Change::Show { nqn, admits: false, .. }
        | Change::Offer { nqn, admits: false, .. }
        | Change::Remove { nqn, .. }
        | Change::Move { from: (nqn, _), .. } => Some(nqn),
        _ => None,
    }
}
