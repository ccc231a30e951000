//! Asymmetric namespace access (Base 8.1): in which state a listening address gives access to each group of namespaces.
//!
//! Every namespace is in one group, a number of its configuration. Rules give the state by address and group; the last one that matches
//! holds, and without any a path is optimized. The rules are part of the directory (`directory.rs`), which each I/O thread gets by message.

use std::net::SocketAddr;

use pilotlight_nvme::Status;
use pilotlight_nvme::ana::AnaState;

/// The highest group of namespaces; the lowest is 1.
pub const MAX_GROUP: u32 = 32;
/// The group of a namespace for which none is configured.
pub const DEFAULT_GROUP: u32 = 1;

/// The state of paths by an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRule {
    /// The address of the server, as it is configured.
    pub address: SocketAddr,
    /// The group of namespaces; `None`: all.
    pub group: Option<u32>,
    /// Their state.
    pub state: AnaState,
}

/// The state of a group by an address.
#[must_use]
pub fn state(rules: &[PathRule], address: SocketAddr, group: u32) -> AnaState {
    let holds = |rule: &&PathRule| rule.address == address && rule.group.is_none_or(|one| one == group);
    rules.iter().rev().find(holds).map_or(AnaState::Optimized, |rule| rule.state)
}

/// The states of all groups by an address, from group 1 on.
pub(crate) fn states(rules: &[PathRule], address: SocketAddr) -> [AnaState; MAX_GROUP as usize] {
    std::array::from_fn(|at| state(rules, address, at as u32 + 1))
}

/// The status of an I/O command to a namespace in this state; `None` if it can be executed. None has Do Not Retry: another path may be
/// open (Base 8.1.3).
#[must_use]
pub(crate) const fn refusal(state: AnaState) -> Option<Status> {
    match state {
        AnaState::Optimized | AnaState::NonOptimized => None,
        AnaState::Inaccessible => Some(Status::ANA_INACCESSIBLE),
        AnaState::PersistentLoss => Some(Status::ANA_PERSISTENT_LOSS),
        AnaState::Change => Some(Status::ANA_TRANSITION),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_matches_holds() {
        let at = |port| SocketAddr::from(([192, 0, 2, 7], port));
        let rule = |port, group, state| PathRule { address: at(port), group, state };
        let rules = [
            rule(1, None, AnaState::Inaccessible),
            rule(1, Some(2), AnaState::NonOptimized),
            rule(2, Some(2), AnaState::Change),
        ];
        let all = |port, groups: [u32; 3]| groups.map(|group| state(&rules, at(port), group));
        assert_eq!(all(1, [1, 2, 3]), [AnaState::Inaccessible, AnaState::NonOptimized, AnaState::Inaccessible]);
        assert_eq!(all(2, [1, 2, 3]), [AnaState::Optimized, AnaState::Change, AnaState::Optimized]);
        assert_eq!(states(&rules, at(3)), [AnaState::Optimized; 32]);
    }
}
