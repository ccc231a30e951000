//! Changes of shares that never exceed the budget together: lower first, confirm, then raise.
//!
//! # The problem
//! Servers learn of new shares at different times, some late, some never. If a share is raised before another has been lowered, both draw
//! too much.
//!
//! # Vocabulary
//! A *grant* is a share as published for a server, with a number: the same power can be granted twice with another in between. Its *bound* is
//! the highest power that may be in force there: of its grants since the last one that it has confirmed, that one included. A server that loses touch holds its last grant until its validity ends, and takes its floor
//! then; the floor is agreed beforehand, so it stays reserved for every server that is known, running or not.
//!
//! # Properties
//! - The sum of bounds never exceeds the budget unless the budget itself was lowered; then it never rises before it is within the budget.
//! - Once all servers have confirmed, the next grants are the shares.
//! - Grants, bounds and floors are the whole state: a successor that reads them resumes.

use std::collections::BTreeMap;

/// A share as published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Higher for later grants of all servers.
    pub number: u64,
    /// In microwatts.
    pub power_uw: u64,
}

/// What is known of a server between two leaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its reserved floor in microwatts.
    pub floor_uw: u64,
    /// Its latest grant.
    pub grant: Grant,
    /// The highest power that may be in force, in microwatts.
    pub bound_uw: u64,
}

/// Grants of servers with identities `K`.
#[derive(Clone, Debug)]
pub struct Grants<K> {
    budget_uw: u64,
    /// Of the latest grant.
    number: u64,
    members: BTreeMap<K, Member>,
}

/// Why a server cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// No room for its floor yet.
    #[error(
        "its floor exceeds what others leave of the budget by {missing_uw} uW: lower their shares or its floor, or raise the budget"
    )]
    NoRoom {
        /// In microwatts.
        missing_uw: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Member {
    floor_uw: u64,
    share_uw: u64,
    grant: Grant,
    bound_uw: u64,
}

impl<K: Ord + Clone> Grants<K> {
    /// Without servers.
    #[must_use]
    pub fn new(budget_uw: u64) -> Self {
        Self { budget_uw, number: 0, members: BTreeMap::new() }
    }

    /// As a leader before has left them. A bound is at least the grant and the floor.
    pub fn resume(budget_uw: u64, servers: impl IntoIterator<Item = (K, Known)>) -> Self {
        let mut grants = Self::new(budget_uw);
        for (server, Known { floor_uw, grant, bound_uw }) in servers {
            grants.number = grants.number.max(grant.number);
            let bound_uw = bound_uw.max(grant.power_uw).max(floor_uw);
            grants.members.insert(server, Member { floor_uw, share_uw: grant.power_uw.max(floor_uw), grant, bound_uw });
        }
        grants
    }

    /// The latest grant of a server, and the highest power that may be in force there.
    #[must_use]
    pub fn known(&self, server: &K) -> Option<Known> {
        let &Member { floor_uw, grant, bound_uw, .. } = self.members.get(server)?;
        Some(Known { floor_uw, grant, bound_uw })
    }

    /// Sets the rack's budget in microwatts. Shares follow with [`Grants::set_share`].
    pub fn set_budget(&mut self, budget_uw: u64) {
        self.budget_uw = budget_uw;
    }

    /// Reserves the floor of a server, which is its first grant. A server that is known keeps its grant.
    ///
    /// # Errors
    /// If there is no room for it: others have to be lowered first.
    pub fn join(&mut self, server: K, floor_uw: u64) -> Result<(), JoinError> {
        if self.members.contains_key(&server) {
            return Ok(());
        }
        let missing_uw = self.bound_uw().saturating_add(floor_uw).saturating_sub(self.budget_uw);
        if missing_uw > 0 {
            return Err(JoinError::NoRoom { missing_uw });
        }
        let member = Member { floor_uw, share_uw: floor_uw, grant: self.number(floor_uw), bound_uw: floor_uw };
        self.members.insert(server, member);
        Ok(())
    }

    /// Reserves another floor for a server.
    ///
    /// # Errors
    /// If there is no room for a higher one: others have to be lowered first.
    pub fn set_floor(&mut self, server: &K, floor_uw: u64) -> Result<(), JoinError> {
        let (all_uw, budget_uw) = (self.bound_uw(), self.budget_uw);
        let Some(member) = self.members.get_mut(server) else { return Ok(()) };
        let more_uw = floor_uw.saturating_sub(member.bound_uw);
        let missing_uw = all_uw.saturating_add(more_uw).saturating_sub(budget_uw);
        if more_uw > 0 && missing_uw > 0 {
            return Err(JoinError::NoRoom { missing_uw });
        }
        member.floor_uw = floor_uw;
        member.share_uw = member.share_uw.max(floor_uw);
        member.bound_uw = member.bound_uw.max(floor_uw);
        Ok(())
    }

    /// Sets what a server is to have in the end. The floor is the least.
    pub fn set_share(&mut self, server: &K, share_uw: u64) {
        if let Some(member) = self.members.get_mut(server) {
            member.share_uw = share_uw.max(member.floor_uw);
        }
    }

    /// The server has applied the grant with this number. One that is not its latest changes nothing: a later one may be in force already.
    pub fn confirm(&mut self, server: &K, number: u64) {
        if let Some(member) = self.members.get_mut(server).filter(|member| member.grant.number == number) {
            member.bound_uw = member.grant.power_uw;
        }
    }

    /// The validity of the server's last grant has ended: it is at its floor, or off. Its floor stays reserved.
    pub fn expire(&mut self, server: &K) {
        let Some(&Member { floor_uw, .. }) = self.members.get(server) else { return };
        let member = Member { floor_uw, share_uw: floor_uw, grant: self.number(floor_uw), bound_uw: floor_uw };
        self.members.insert(server.clone(), member);
    }

    fn number(&mut self, power_uw: u64) -> Grant {
        self.number = self.number.saturating_add(1);
        Grant { number: self.number, power_uw }
    }

    /// Removes a server that is off for good; its floor is free.
    pub fn remove(&mut self, server: &K) {
        self.members.remove(server);
    }

    /// The grants to publish now: those that have changed.
    pub fn publish(&mut self) -> Vec<(K, Grant)> {
        let mut room_uw = self.budget_uw.saturating_sub(self.bound_uw());
        let mut changed = Vec::new();
        for (server, member) in &mut self.members {
            let raise_uw = member.share_uw.saturating_sub(member.bound_uw).min(room_uw);
            let power_uw = member.share_uw.min(member.bound_uw + raise_uw);
            room_uw -= raise_uw;
            member.bound_uw = member.bound_uw.max(power_uw);
            if power_uw != member.grant.power_uw {
                self.number = self.number.saturating_add(1);
                member.grant = Grant { number: self.number, power_uw };
                changed.push((server.clone(), member.grant));
            }
        }
        changed
    }

    /// The most that all servers may draw together, in microwatts.
    #[must_use]
    pub fn bound_uw(&self) -> u64 {
        self.members.values().fold(0, |sum, member| sum.saturating_add(member.bound_uw))
    }

    /// Whether every server has confirmed its share.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.members.values().all(|one| (one.grant.power_uw, one.bound_uw) == (one.share_uw, one.share_uw))
    }
}

#[cfg(test)]
#[path = "grants_tests.rs"]
mod tests;
