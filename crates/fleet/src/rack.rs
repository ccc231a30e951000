//! What the leader writes, as a pure function of all documents.
//!
//! The leader has no other state, so that another one goes on where it stopped. Bounds are in the documents; what statuses confirm, and sessions
//! that have ended, follow from them. A status exists from the start of a session to its end, as its key belongs to the session's lease and no other
//! session can create it meanwhile: a grant for another session than that of the status is over.

use std::collections::BTreeMap;

use pilotlight_policy::fleet::{Curve, CurveError, Grant, Grants, JoinError, Known, Point, Server, divide};

use crate::documents::{Documents, FORMAT, GrantDocument, Member, Status};

/// Most documents in one write: etcd's default limit is 128 operations.
const MOST_WRITES: usize = 100;
/// The highest power that a member may claim, in microwatts: 1 MW.
const MOST_UW: u64 = 1_000_000_000_000;
/// Power that exceeds a bound by more than this part, in percent, counts: as far as PASS lets power go above a budget (3.3).
const MARGIN_PERCENT: u64 = 2;
/// Step in which it counts, in percent of the bound, so that noise changes nothing.
const STEP_PERCENT: u64 = 5;

/// A document to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A known member.
    Member(String, Member),
    /// A grant.
    Grant(String, GrantDocument),
}

/// What is to be written, and what an operator should know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// In one transaction.
    pub writes: Vec<Write>,
    /// By member; without a name: of the rack.
    pub problems: Vec<(Option<String>, String)>,
    /// Shares that are aimed at, in microwatts.
    pub shares_uw: BTreeMap<String, u64>,
}

impl Decision {
    fn problem(&mut self, member: Option<&str>, what: impl Into<String>) {
        self.problems.push((member.map(str::to_owned), what.into()));
    }
}

/// Decides. Without a budget all members stay at their floors.
#[must_use]
pub fn decide(documents: &Documents) -> Decision {
    let mut decision = Decision::default();
    for (path, why) in &documents.unreadable {
        decision.problem(None, format!("{path} cannot be read: {why}"));
    }
    if documents.unreadable.keys().any(|path| !path.starts_with("status/")) {
        return decision; // what is in force is not known
    }
    let budget_uw = documents.budget_uw.unwrap_or(0);
    if documents.budget_uw.is_none() {
        decision.problem(
            None,
            "no budget is set, so that all members have their floors: `pilotlab fleet RACK budget 10kW`",
        );
    }
    let mut grants =
        Grants::resume(budget_uw, documents.members.keys().map(|name| (name.clone(), known(documents, name))));
    update(&mut grants, documents);
    let reserve_uw = excess(documents, &grants, &mut decision);
    let usable_uw = budget_uw.saturating_sub(reserve_uw);
    grants.set_budget(usable_uw);
    let running = running(documents, &mut decision);
    refloor(&mut grants, &running, documents, &mut decision);
    share(&mut grants, documents, &running, usable_uw, &mut decision);
    let joined = join(&mut grants, &running, documents, &mut decision);
    grants.publish();
    write(&grants, documents, &joined, &mut decision);
    decision
}

/// What the documents say of a member.
fn known(documents: &Documents, name: &str) -> Known {
    let floor_uw = documents.members[name];
    match documents.grants.get(name) {
        Some(grant) => {
            let latest = Grant { number: grant.number, power_uw: grant.power_uw };
            Known { floor_uw, grant: latest, bound_uw: grant.bound_uw }
        }
        None => Known { floor_uw, grant: Grant { number: 0, power_uw: floor_uw }, bound_uw: floor_uw },
    }
}

/// Takes confirmations and ends of sessions.
fn update(grants: &mut Grants<String>, documents: &Documents) {
    for name in documents.members.keys().filter(|name| !documents.is_unknown(name)) {
        let Some(grant) = documents.grants.get(name) else { continue };
        match documents.statuses.get(name) {
            Some(status) if grant.session == status.session => grants.confirm(name, status.applied),
            None if grant.session == 0 => {} // it has ended before
            _ => grants.expire(name),
        }
    }
}

/// Power that members draw beyond what they were granted, at most up to their full power.
fn excess(documents: &Documents, grants: &Grants<String>, decision: &mut Decision) -> u64 {
    let mut sum_uw = 0_u64;
    for (name, status) in &documents.statuses {
        let (Some(known), Some(measured_uw)) = (grants.known(name), status.measured_uw) else { continue };
        let most_uw = status.full_uw.min(MOST_UW).saturating_sub(known.bound_uw);
        let excess_uw = measured_uw.saturating_sub(known.bound_uw);
        if excess_uw > known.bound_uw / 100 * MARGIN_PERCENT {
            let step_uw = (known.bound_uw / 100 * STEP_PERCENT).max(1);
            let excess_uw = excess_uw.div_ceil(step_uw).saturating_mul(step_uw).min(most_uw);
            let watts = excess_uw as f64 / 1e6;
            decision
                .problem(Some(name), format!("draws {watts:.1} W more than it was granted; others get less meanwhile"));
            sum_uw = sum_uw.saturating_add(excess_uw);
        }
    }
    sum_uw
}

/// Members with a status that makes sense.
fn running(documents: &Documents, decision: &mut Decision) -> BTreeMap<String, Server> {
    let mut running = BTreeMap::new();
    for (name, status) in documents.statuses.iter().filter(|(name, _)| !documents.is_unknown(name)) {
        match server(status) {
            Ok(server) => _ = running.insert(name.clone(), server),
            Err(why) => decision.problem(Some(name), format!("stays at its floor: {why}")),
        }
    }
    running
}

/// Why a member's status gives it no share above its floor.
#[derive(Debug, thiserror::Error)]
enum StatusError {
    #[error("its floor is 0 or above its full power, or its full power is above 1 MW")]
    Powers,
    #[error("its power is not known: give it a sensor")]
    NoPower,
    #[error(transparent)]
    Curve(#[from] CurveError),
}

fn server(status: &Status) -> Result<Server, StatusError> {
    if !(1..=MOST_UW).contains(&status.floor_uw) || status.full_uw < status.floor_uw || status.full_uw > MOST_UW {
        return Err(StatusError::Powers);
    }
    if status.measured_uw.is_none() {
        return Err(StatusError::NoPower);
    }
    let is_within = |&&(power_uw, _): &&(u64, u64)| power_uw > status.floor_uw && power_uw < status.full_uw;
    let rate = |power_uw| status.curve.iter().rev().find(|(uw, _)| *uw <= power_uw).map_or(0, |(_, rate)| *rate);
    let point = |power_uw, rate| Point { power_uw, rate };
    let mut points = vec![point(status.floor_uw, rate(status.floor_uw))];
    points.extend(status.curve.iter().filter(is_within).map(|&(power_uw, rate)| point(power_uw, rate)));
    if status.full_uw > status.floor_uw {
        points.push(point(status.full_uw, rate(status.full_uw)));
    }
    Ok(Server { priority: status.priority, curve: Curve::new(&points)? })
}

/// Reserves floors that have changed.
fn refloor(
    grants: &mut Grants<String>,
    running: &BTreeMap<String, Server>,
    documents: &Documents,
    decision: &mut Decision,
) {
    for (name, server) in running.iter().filter(|(name, _)| documents.members.contains_key(*name)) {
        if let Err(JoinError::NoRoom { missing_uw }) = grants.set_floor(name, server.curve.floor_uw()) {
            let watts = missing_uw as f64 / 1e6;
            decision.problem(
                Some(name),
                format!("its higher floor waits until {watts:.1} W are free: raise the budget, or lower floors"),
            );
        }
    }
}

/// Sets shares: members that are off keep their floors, and those that wait to join count.
fn share(
    grants: &mut Grants<String>,
    documents: &Documents,
    running: &BTreeMap<String, Server>,
    usable_uw: u64,
    decision: &mut Decision,
) {
    let off = documents.members.keys().filter(|name| !running.contains_key(*name));
    let at_floor = |name: &String| {
        let floor_uw = grants.known(name).map_or(0, |known| known.floor_uw);
        let curve = Curve::new(&[Point { power_uw: floor_uw, rate: 0 }]).unwrap_or_else(|_| unreachable!("one point"));
        (name.clone(), Server { priority: 0, curve })
    };
    let off: Vec<(String, Server)> = off.map(at_floor).collect();
    let (names, servers): (Vec<String>, Vec<Server>) =
        off.into_iter().chain(running.iter().map(|(name, server)| (name.clone(), server.clone()))).unzip();
    let division = divide(&servers, usable_uw);
    if division.missing_uw > 0 && documents.budget_uw.is_some() {
        let watts = division.missing_uw as f64 / 1e6;
        decision.problem(None, format!("the floors exceed the budget by {watts:.1} W: raise it, lower floors, or forget members that are off for good"));
    }
    for (name, share_uw) in names.into_iter().zip(division.shares_uw) {
        grants.set_share(&name, share_uw);
        decision.shares_uw.insert(name, share_uw);
    }
}

/// Reserves the floors of new members where there is room; returns their names.
fn join(
    grants: &mut Grants<String>,
    running: &BTreeMap<String, Server>,
    documents: &Documents,
    decision: &mut Decision,
) -> Vec<String> {
    let mut joined = Vec::new();
    for (name, server) in running.iter().filter(|(name, _)| !documents.members.contains_key(*name)) {
        match grants.join(name.clone(), server.curve.floor_uw()) {
            Ok(()) => joined.push(name.clone()),
            Err(JoinError::NoRoom { missing_uw }) => {
                let watts = missing_uw as f64 / 1e6;
                decision.problem(Some(name), format!("waits to join until {watts:.1} W are free for its floor"));
            }
        }
    }
    joined
}

/// The documents that differ from what they should be: what lowers first.
fn write(grants: &Grants<String>, documents: &Documents, joined: &[String], decision: &mut Decision) {
    let mut writes: Vec<(bool, Write)> = Vec::new();
    for name in documents.members.keys().chain(joined).filter(|name| !documents.is_unknown(name)) {
        let Some(known) = grants.known(name) else { continue };
        if documents.members.get(name) != Some(&known.floor_uw) {
            let is_raise = documents.members.get(name).is_some_and(|floor_uw| known.floor_uw > *floor_uw);
            writes.push((is_raise, Write::Member(name.clone(), Member { format: FORMAT, floor_uw: known.floor_uw })));
        }
        let session = documents.statuses.get(name).map_or(0, |status| status.session);
        let grant = GrantDocument {
            format: FORMAT,
            number: known.grant.number,
            power_uw: known.grant.power_uw,
            bound_uw: known.bound_uw,
            session,
        };
        let before = documents.grants.get(name);
        let is_new = before.is_none() && (known.grant.number > 0 || session != 0);
        if is_new || before.is_some_and(|before| *before != grant) {
            let is_raise = before.is_some_and(|before| grant.power_uw > before.power_uw);
            writes.push((is_raise, Write::Grant(name.clone(), grant)));
        }
    }
    writes.sort_by_key(|(is_raise, _)| *is_raise);
    decision.writes = writes.into_iter().map(|(_, write)| write).take(MOST_WRITES).collect();
}

#[cfg(test)]
#[path = "rack_tests.rs"]
mod tests;
