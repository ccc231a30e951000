//! This server as a member of a rack: its share is a budget, and the rack learns what it needs.
//!
//! What it would deliver at each power follows from the profile of `[goals]` and from what it does at present; without a profile it asks for
//! its full power in proportion to its load.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pilotlight_fleet::{Fleet, MemberConfig, Report, Target, Tls};
use pilotlight_policy::fleet::{Work, estimate};
use pilotlight_policy::pass::profile::Profile;
use pilotlight_policy::pass::ssd_model::Rate;
use pilotlight_reactor::{clock, keep_off};

use super::admin::Admin;
use crate::config::{self, Operation};

/// The least time over which load is measured, in nanoseconds.
const WINDOW_NS: u64 = 1_000_000_000;
/// How often the policy is asked for the bottleneck, in nanoseconds: that wakes the main core.
const ASK_NS: u64 = 10_000_000_000;
/// A server whose power is this close to its budget, in percent of it, is taken as held back by it.
const CLOSE_PERCENT: u64 = 5;

/// Joins the rack of the configuration, until the result is dropped.
pub(super) fn join(admin: &Arc<Admin>, operation: &Operation) -> io::Result<Option<Fleet>> {
    let Some(wanted) = &operation.fleet else { return Ok(None) };
    let profile = operation.profile.as_ref().and_then(|text| Profile::parse(text).ok());
    let target = Server {
        admin: Arc::clone(admin),
        fleet: wanted.clone(),
        profile,
        load: Load::default(),
        asked_ns: 0,
        bottleneck: None,
    };
    let cpus: Vec<u32> = operation.reactors.cores.iter().flatten().copied().collect();
    let fleet = Fleet::start(member(wanted), Box::new(target), move || keep_off(&cpus))?;
    admin.note_fleet(wanted, fleet.reader());
    Ok(Some(fleet))
}

fn member(wanted: &config::Fleet) -> MemberConfig {
    let config::Fleet { etcd, rack, name, floor_uw, full_uw, priority, lease } = wanted.clone();
    let tls = Tls { ca: etcd.ca, identity: etcd.identity };
    let etcd = pilotlight_fleet::Etcd { endpoints: etcd.endpoints, tls, user: etcd.user };
    MemberConfig { etcd, rack, name, floor_uw, full_uw, priority, lease: Duration::from_secs(lease.as_secs()) }
}

struct Server {
    admin: Arc<Admin>,
    fleet: config::Fleet,
    profile: Option<Profile>,
    load: Load,
    asked_ns: u64,
    bottleneck: Option<String>,
}

/// Counters, and what they say of the last window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    /// Busy time of all reactors.
    pub(super) busy_ns: u64,
}

#[derive(Default)]
struct Load {
    at_ns: u64,
    before: Counters,
    rate: Rate,
    cpu_ppm: u64,
}

impl Load {
    fn update(&mut self, now_ns: u64, now: impl FnOnce() -> Counters) {
        let window_ns = now_ns.saturating_sub(self.at_ns);
        if window_ns < WINDOW_NS {
            return;
        }
        let now = now();
        let is_first = self.at_ns == 0;
        let per_s = |was: u64, is: u64| is.saturating_sub(was) as f64 * 1e9 / window_ns as f64;
        if !is_first {
            let before = self.before;
            self.rate = Rate {
                read: per_s(before.read_bytes, now.read_bytes),
                written: per_s(before.written_bytes, now.written_bytes),
            };
            self.cpu_ppm = (per_s(before.busy_ns, now.busy_ns) / 1e3) as u64;
        }
        (self.at_ns, self.before) = (now_ns, now);
    }
}

impl Target for Server {
    fn report(&mut self) -> Report {
        let now_ns = clock::now_ns();
        let admin = &self.admin;
        self.load.update(now_ns, || admin.load_counters());
        if now_ns.saturating_sub(self.asked_ns) >= ASK_NS {
            (self.asked_ns, self.bottleneck) = (now_ns, admin.bottleneck());
        }
        let power = admin.power_for_rack();
        let is_held_back = match (power.measured_uw, power.budget_uw) {
            (Some(measured_uw), Some(budget_uw)) => measured_uw >= budget_uw / 100 * (100 - CLOSE_PERCENT),
            _ => false,
        };
        let work = Work { rate: self.load.rate, cpu_ppm: self.load.cpu_ppm, is_held_back };
        let curve = match &self.profile {
            Some(profile) => {
                estimate(profile, self.fleet.floor_uw, work).points().map(|one| (one.power_uw, one.rate)).collect()
            }
            None => line(&self.fleet, work),
        };
        Report {
            measured_uw: power.measured_uw,
            source: power.source,
            bottleneck: self.bottleneck.clone(),
            curve,
            is_within: power.is_within,
        }
    }

    fn set_share(&mut self, power_uw: u64) {
        self.admin.set_share(power_uw);
    }
}

/// Without a profile: all that it delivers is delivered at full power, more where it is held back.
fn line(fleet: &config::Fleet, work: Work) -> Vec<(u64, u64)> {
    let rate = work.rate.bytes() * if work.is_held_back { 2.0 } else { 1.0 };
    if fleet.full_uw == fleet.floor_uw {
        return vec![(fleet.floor_uw, rate as u64)];
    }
    vec![(fleet.floor_uw, 0), (fleet.full_uw, rate as u64)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_measured_over_a_second_or_more() {
        let mut load = Load::default();
        let counters = |bytes| Counters { read_bytes: bytes, written_bytes: 2 * bytes, busy_ns: 500_000 * bytes };
        load.update(5_000_000_000, || counters(100));
        assert_eq!((load.rate.bytes(), load.cpu_ppm), (0.0, 0), "since when is not known");
        load.update(5_900_000_000, || panic!("too early"));
        load.update(7_000_000_000, || counters(1100));
        assert_eq!((load.rate.read, load.rate.written, load.cpu_ppm), (500.0, 1000.0, 250_000));
    }
}
