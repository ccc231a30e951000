//! A member's share: which power it may draw now. Pure; time is an argument.
//!
//! A share holds for the session of its grant, until its validity ends; otherwise the floor holds. A lower share is confirmed once power is
//! within it, a higher one at once if power was within the one before.

use crate::documents::GrantDocument;

/// Part of the lease's time in which a share stays valid. The rest is for clocks of another rate, a late timer, and power to fall to the floor.
const VALID: (u64, u64) = (3, 4);

/// The power budget of a server, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In microwatts.
    pub power_uw: u64,
    /// The deadline, by the clock of the member; `None` for the floor, which has none.
    pub until_ns: Option<u64>,
    /// The floor, which is the limit after the deadline, in microwatts.
    pub then_uw: u64,
}

/// The share of a member.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Of the configuration, in microwatts.
    own_floor_uw: u64,
    /// As reserved in the rack, if it is known: a higher one of the configuration has no room yet.
    reserved_uw: Option<u64>,
    /// The lease; 0 for none.
    session: i64,
    lease_ns: u64,
    valid_until_ns: u64,
    grant: Option<GrantDocument>,
    in_force_uw: u64,
    /// Power is within what is in force.
    is_within: bool,
    /// Number of the last confirmed grant of the session.
    confirmed: u64,
}

impl Share {
    pub(crate) fn new(floor_uw: u64, lease_ns: u64) -> Self {
        Self {
            own_floor_uw: floor_uw,
            reserved_uw: None,
            session: 0,
            lease_ns,
            valid_until_ns: 0,
            grant: None,
            in_force_uw: floor_uw,
            is_within: false,
            confirmed: 0,
        }
    }

    /// A session with this lease begins.
    pub(crate) fn begin(&mut self, session: i64) {
        (self.session, self.grant, self.confirmed, self.valid_until_ns) = (session, None, 0, 0);
    }

    /// The request to keep the lease that was sent at `sent_ns` was answered.
    pub(crate) fn renew(&mut self, sent_ns: u64) {
        let valid_ns = self.lease_ns / VALID.1 * VALID.0;
        self.valid_until_ns = self.valid_until_ns.max(sent_ns + valid_ns);
    }

    /// The grant in etcd.
    pub(crate) fn set_grant(&mut self, grant: Option<GrantDocument>) {
        self.grant = grant;
    }

    /// The reserved floor in etcd.
    pub(crate) fn set_reserved(&mut self, floor_uw: Option<u64>) {
        self.reserved_uw = floor_uw.or(self.reserved_uw);
    }

    /// The session.
    pub(crate) fn session(&self) -> i64 {
        self.session
    }

    /// The budget in force at `now_ns` in microwatts, if it has changed.
    pub(crate) fn change(&mut self, now_ns: u64) -> Option<u64> {
        let power_uw = self.granted(now_ns).map_or(self.floor_uw(), |grant| grant.power_uw);
        if power_uw == self.in_force_uw {
            return None;
        }
        self.is_within &= power_uw > self.in_force_uw;
        self.in_force_uw = power_uw;
        Some(power_uw)
    }

    /// Whether power is within what is in force now.
    pub(crate) fn note_within(&mut self, is_within: bool, now_ns: u64) {
        self.is_within |= is_within;
        if let Some(grant) = self.granted(now_ns).filter(|grant| self.is_within && grant.power_uw == self.in_force_uw) {
            self.confirmed = grant.number;
        }
    }

    /// Number of the last confirmed grant.
    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// The budget in force.
    pub(crate) fn in_force_uw(&self) -> u64 {
        self.in_force_uw
    }

    /// Whether that is a grant.
    pub(crate) fn is_granted(&self, now_ns: u64) -> bool {
        self.granted(now_ns).is_some()
    }

    /// What the server is told.
    pub(crate) fn limit(&self, now_ns: u64) -> Limit {
        let granted = self.granted(now_ns);
        Limit {
            power_uw: granted.map_or(self.floor_uw(), |grant| grant.power_uw),
            until_ns: granted.map(|_| self.valid_until_ns),
            then_uw: self.floor_uw(),
        }
    }

    /// Until when it is valid.
    pub(crate) fn valid_until_ns(&self) -> u64 {
        self.valid_until_ns
    }

    /// How long it is valid, in nanoseconds.
    pub(crate) fn valid_for_ns(&self, now_ns: u64) -> u64 {
        self.valid_until_ns.saturating_sub(now_ns)
    }

    /// The floor in microwatts.
    pub(crate) fn floor_uw(&self) -> u64 {
        self.reserved_uw.map_or(self.own_floor_uw, |reserved_uw| reserved_uw.min(self.own_floor_uw))
    }

    fn granted(&self, now_ns: u64) -> Option<GrantDocument> {
        let is_good = |grant: &GrantDocument| grant.session == self.session && self.session != 0;
        self.grant.filter(is_good).filter(|_| now_ns < self.valid_until_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::FORMAT;

    const S: u64 = 1_000_000_000;

    fn grant(number: u64, power_uw: u64, session: i64) -> Option<GrantDocument> {
        Some(GrantDocument { format: FORMAT, number, power_uw, bound_uw: power_uw, session })
    }

    #[test]
    fn a_share_is_valid_for_three_quarters_of_the_lease_after_the_request_was_sent() {
        let mut share = Share::new(10, 8 * S);
        share.begin(7);
        share.renew(100 * S);
        share.set_grant(grant(1, 50, 7));
        assert_eq!(share.change(101 * S), Some(50));
        assert_eq!(share.limit(101 * S), Limit { power_uw: 50, until_ns: Some(106 * S), then_uw: 10 });
        assert_eq!(share.limit(106 * S), Limit { power_uw: 10, until_ns: None, then_uw: 10 });
        assert_eq!(share.change(106 * S - 1), None);
        assert_eq!(share.change(106 * S), Some(10), "the floor");
        share.renew(110 * S);
        assert_eq!(share.change(111 * S), Some(50), "the session lives");
    }

    #[test]
    fn a_grant_of_another_session_is_not_used() {
        let mut share = Share::new(10, 8 * S);
        share.begin(7);
        share.renew(100 * S);
        share.set_grant(grant(1, 50, 6));
        assert_eq!(share.change(101 * S), None);
        share.set_grant(grant(2, 50, 7));
        assert_eq!(share.change(101 * S), Some(50));
        share.begin(8);
        assert_eq!(share.change(101 * S), Some(10));
    }

    #[test]
    fn a_lower_share_is_confirmed_once_power_is_within_it() {
        let mut share = Share::new(10, 8 * S);
        share.begin(7);
        share.renew(100 * S);
        share.set_grant(grant(1, 50, 7));
        share.change(101 * S);
        share.note_within(false, 101 * S);
        assert_eq!(share.confirmed(), 0, "power may be above the floor since the start");
        share.note_within(true, 101 * S);
        assert_eq!(share.confirmed(), 1);
        share.set_grant(grant(2, 60, 7));
        share.change(101 * S);
        share.note_within(false, 101 * S);
        assert_eq!(share.confirmed(), 2, "a raise, at once");
        share.set_grant(grant(3, 40, 7));
        share.change(101 * S);
        share.note_within(false, 101 * S);
        assert_eq!(share.confirmed(), 2);
        share.set_grant(grant(4, 55, 7));
        share.change(101 * S);
        share.note_within(false, 101 * S);
        assert_eq!(share.confirmed(), 2, "power may still be at 60");
        share.note_within(true, 101 * S);
        assert_eq!(share.confirmed(), 4);
    }

    #[test]
    fn a_floor_of_the_configuration_waits_for_its_reservation() {
        let mut share = Share::new(30, 8 * S);
        share.set_reserved(Some(20));
        assert_eq!(share.change(0), Some(20));
        share.set_reserved(None);
        assert_eq!(share.change(0), None);
        share.set_reserved(Some(40));
        assert_eq!(share.change(0), Some(30));
    }
}
