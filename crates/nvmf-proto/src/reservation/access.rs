//! Who has access to a namespace with a reservation (Base 8.19, Figure "Command Behavior in the Presence of a Reservation").

use pilotlight_nvme::reservation::Type;
use pilotlight_storage::Op;

use super::State;
use crate::ids::HostKey;

/// A group of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Read, Compare, Verify.
    Read = 1,
    /// Write, Write Zeroes, Dataset Management, Flush.
    Write = 2,
}

impl Group {
    /// The group of the commands with this request. All of Compare and Verify read.
    #[inline]
    #[must_use]
    pub const fn from_op(op: Op) -> Self {
        match op {
            Op::Read => Self::Read,
            _ => Self::Write,
        }
    }
}

/// Rights of hosts at a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Access {
    kind: Option<Type>,
    /// The hosts with access: the registrants, or the holder alone. By host identifier.
    admitted: Vec<([u8; 16], String)>,
}

impl Access {
    pub(super) fn from_state(state: &State) -> Self {
        let Some(held) = state.held else { return Self::default() };
        let is_admitted = |hostid| held.kind.admits_registrants() || hostid == held.holder;
        let hosts = state.registrants.iter().map(|one| &one.host).filter(|host| is_admitted(host.hostid));
        let mut admitted: Vec<_> = hosts.map(|host| (host.hostid, host.hostnqn.clone())).collect();
        admitted.sort_unstable();
        Self { kind: Some(held.kind), admitted }
    }

    /// A bit for each group that is refused to hosts without access.
    pub(super) fn restricted(&self) -> u8 {
        match self.kind {
            None => 0,
            Some(kind) if kind.excludes_reads() => Group::Read as u8 | Group::Write as u8,
            Some(_) => Group::Write as u8,
        }
    }

    /// Whether `host` has access to everything.
    pub(super) fn admits(&self, host: &HostKey) -> bool {
        let found = self.admitted.binary_search_by(|(hostid, _)| hostid.cmp(&host.hostid));
        found.is_ok_and(|at| self.admitted[at].1 == host.hostnqn)
    }
}
