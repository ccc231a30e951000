//! A server as a member of a rack: its share is a budget, and the rack learns what it needs.
//!
//! What it would deliver at each power follows from the profile of the machine and its present load, as in the simulation of
//! `results/fleet.md`; without a profile it is in proportion to power, up to what the server needs.

use pilotlight_fleet::{Limit, MemberConfig, Report, Target};
use pilotlight_input::quantity::{self, POWERS};
use pilotlight_policy::fleet::{Work, cpu_uw, estimate, is_held_back, speed};
use pilotlight_policy::pass::profile::Profile;
use pilotlight_policy::pass::ssd_model::Rate;
use tracing::debug;

use super::control::{Counters, Setting, Shared};

/// The least time over which load is measured, in nanoseconds.
const WINDOW_NS: u64 = 1_000_000_000;
/// How often the policy is asked for the bottleneck, in nanoseconds: that wakes the main core.
const ASK_NS: u64 = 10_000_000_000;
/// A need that is too high falls by this part of the difference in each window.
const FALL_DIVISOR: u64 = 5;
/// What a microjoule delivers where no profile says it: about as the machine of PASS.
const BYTES_PER_UJ: u64 = 10;
/// Power within the share for so long is confirmed, in nanoseconds: policies first oscillate about a lower budget.
const SETTLES_NS: u64 = 3_000_000_000;
/// Shares are rounded down to 0.1 W.
const ROUND_UW: u64 = 100_000;
/// Excess that counts as within a share, in percent.
const MARGIN_PERCENT: u64 = 2;

/// A server, as the rack sees it.
pub(super) struct Server {
    control: Shared,
    member: MemberConfig,
    profile: Option<Profile>,
    load: Load,
    need: Need,
    asked_ns: u64,
    /// The share, and its number.
    share_uw: u64,
    number: u64,
    /// Since when power is within it.
    within_since_ns: Option<u64>,
    /// The last power of a window under a share, and that share, in microwatts.
    seen_uw: Option<(u64, u64)>,
    /// What it said in the last window.
    last: Report,
}

#[derive(Default)]
struct Load {
    at_ns: u64,
    before: Counters,
    rate: Rate,
    cpu_ppm: u64,
    /// Requests in progress, in the mean.
    in_progress: f64,
    io_threads: usize,
}

impl Load {
    /// Looks at the counters if a window is over; returns whether it did.
    fn update(&mut self, now: &Counters) -> bool {
        let window_ns = now.now_ns.saturating_sub(self.at_ns);
        if window_ns < WINDOW_NS {
            return false;
        }
        let per_s = |was: u64, is: u64| is.saturating_sub(was) as f64 * 1e9 / window_ns as f64;
        if self.at_ns != 0 {
            let before = &self.before;
            self.rate = Rate {
                read: per_s(before.read_bytes, now.read_bytes),
                written: per_s(before.written_bytes, now.written_bytes),
            };
            self.cpu_ppm = (per_s(before.busy_ns, now.busy_ns) / 1e3) as u64;
            self.in_progress = per_s(before.in_progress_ns, now.in_progress_ns) / 1e9;
        }
        self.io_threads = now.io_threads;
        (self.at_ns, self.before) = (now.now_ns, now.clone());
        true
    }
}

/// Power that a server without a profile needs, as it was learned.
///
/// It needs what it draws and a tenth more, up to its share. If that holds it back it is not known how much more, so it asks for half as much again. Asking
/// that rises with what is given, and falls slowly, comes to rest; asking for the whole machine at once would not.
#[derive(Debug, Default)]
struct Need {
    uw: u64,
}

impl Need {
    /// Once in a window.
    fn update(&mut self, (measured_uw, share_uw): (u64, u64), is_held_back: bool, full_uw: u64) {
        let below_uw = (measured_uw / 10 * 11).min(share_uw.max(measured_uw));
        let wanted_uw = if is_held_back { share_uw / 2 * 3 } else { below_uw }.min(full_uw);
        self.uw = wanted_uw.max(self.uw - self.uw.saturating_sub(wanted_uw).div_ceil(FALL_DIVISOR));
    }
}

impl Server {
    pub(super) fn new(control: Shared, member: &MemberConfig, profile: Option<Profile>) -> Self {
        Self {
            control,
            member: member.clone(),
            profile,
            load: Load::default(),
            need: Need::default(),
            asked_ns: 0,
            share_uw: 0,
            number: 0,
            within_since_ns: None,
            seen_uw: None,
            last: Report::default(),
        }
    }

    /// Once in a window: what it delivers at each power.
    fn curve(&mut self) -> Vec<(u64, u64)> {
        let Load { rate, cpu_ppm, in_progress, io_threads, .. } = self.load;
        let Some(seen_uw) = self.seen_uw else { return curve_of_need(&self.member, self.need.uw) };
        let is_held_back = is_held_back(seen_uw, in_progress, io_threads);
        self.need.update(seen_uw, is_held_back, self.member.full_uw);
        let Some(profile) = &self.profile else { return curve_of_need(&self.member, self.need.uw) };
        let cpu_ppm = (cpu_ppm as f64 * speed(profile, cpu_uw(profile, seen_uw.0, rate))) as u64;
        curve_of_load(profile, &self.member, Work { rate, cpu_ppm, is_held_back })
    }
}

impl Target for Server {
    fn report(&mut self) -> Report {
        let asks = self.load.at_ns.saturating_sub(self.asked_ns) >= ASK_NS;
        self.asked_ns = if asks { self.load.at_ns } else { self.asked_ns };
        let Some((taken, counters)) = self.control.latest(asks) else { return Report::default() };
        // not before the server has taken the share
        let limit = counters.limit.filter(|limit| taken == self.number && limit.power_uw == self.share_uw);
        // a window from before the share says nothing about it
        let under_share = counters.power.zip(limit).filter(|(window, limit)| window.began_ns >= limit.since_ns);
        self.seen_uw = under_share.map(|(window, _)| (window.power_uw, self.share_uw)).or(self.seen_uw);
        if self.load.update(&counters) {
            let (source, bottleneck, curve) = (counters.source, counters.bottleneck, self.curve());
            self.last = Report { source, bottleneck, curve, ..Report::default() };
        }
        if let Some((window, _)) = under_share {
            let is_within = is_within(window.power_uw, self.share_uw);
            self.within_since_ns = is_within.then(|| self.within_since_ns.unwrap_or(window.began_ns));
        }
        let has_settled = |since_ns: u64| counters.now_ns.saturating_sub(since_ns) >= SETTLES_NS;
        let is_within = limit.is_some() && self.within_since_ns.is_some_and(has_settled);
        Report { measured_uw: counters.power.map(|window| window.power_uw), is_within, ..self.last.clone() }
    }

    fn set_limit(&mut self, limit: Limit) {
        let rounded_uw = limit.power_uw / ROUND_UW * ROUND_UW;
        let share_uw = rounded_uw.max(limit.then_uw.min(limit.power_uw));
        if share_uw != self.share_uw {
            let was_within = share_uw < self.share_uw && self.seen_uw.is_some_and(|(uw, _)| is_within(uw, share_uw));
            self.within_since_ns = self.within_since_ns.filter(|_| was_within);
            self.share_uw = share_uw;
            self.number += 1;
            debug!("share: {}", quantity::format(share_uw, POWERS)); // the server logs it
        }
        let until_ns =
            limit.until_ns.unwrap_or_else(|| pilotlight_fleet::now_ns() + self.member.lease.as_nanos() as u64);
        self.control.set(self.number, Setting { power_uw: share_uw, until_ns, then_uw: limit.then_uw });
    }
}

/// Whether power is within a share, with the margin of PASS (3.3).
fn is_within(power_uw: u64, share_uw: u64) -> bool {
    power_uw <= share_uw.saturating_add(share_uw / 100 * MARGIN_PERCENT)
}

/// What a server with a profile delivers at each power, up to full power.
fn curve_of_load(profile: &Profile, member: &MemberConfig, work: Work) -> Vec<(u64, u64)> {
    let curve = estimate(profile, member.floor_uw, work);
    let below = curve.points().filter(|point| point.power_uw < member.full_uw);
    let mut points: Vec<(u64, u64)> = below.map(|point| (point.power_uw, point.rate)).collect();
    points.push((member.full_uw, curve.rate(member.full_uw) as u64));
    points
}

/// What a server without a profile delivers at each power, up to what it needs.
fn curve_of_need(member: &MemberConfig, need_uw: u64) -> Vec<(u64, u64)> {
    let MemberConfig { floor_uw, full_uw, .. } = *member;
    let need_uw = need_uw.clamp(floor_uw, full_uw);
    let mut powers = vec![floor_uw, need_uw, full_uw];
    powers.dedup();
    powers.into_iter().map(|uw| (uw, (uw.min(need_uw) - floor_uw) * BYTES_PER_UJ)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn load_is_measured_over_a_second_or_more() {
        let mut load = Load::default();
        let counters = |now_ms: u64, bytes| Counters {
            now_ns: now_ms * 1_000_000,
            read_bytes: bytes,
            written_bytes: 2 * bytes,
            busy_ns: 500_000 * bytes,
            in_progress_ns: 6_000_000 * bytes,
            io_threads: 4,
            ..Counters::default()
        };
        load.update(&counters(5_000, 100));
        assert_eq!((load.rate.bytes(), load.cpu_ppm), (0.0, 0), "since when is not known");
        assert!(!load.update(&counters(5_900, 500)));
        assert!(load.update(&counters(7_000, 1100)));
        assert_eq!((load.rate.read, load.rate.written, load.cpu_ppm), (500.0, 1000.0, 250_000));
        assert_eq!((load.in_progress, load.io_threads), (3.0, 4));
    }

    const W: u64 = 1_000_000;

    fn member() -> MemberConfig {
        MemberConfig {
            reserved_uw: None,
            etcd: Default::default(),
            rack: "r".to_owned(),
            name: "a".to_owned(),
            floor_uw: 40 * W,
            full_uw: 200 * W,
            priority: 0,
            lease: Duration::from_secs(10),
        }
    }

    /// Servers that ask for these powers, with a budget of which each gets its share; the shares of the last rounds.
    fn shares(asked_w: [u64; 3], budget_w: u64) -> Vec<Vec<u64>> {
        use pilotlight_policy::fleet::{Curve, Point, Server, divide};
        let mut needs: [Need; 3] = Default::default();
        let mut shares = vec![40 * W; 3];
        let round = |_| {
            for (need, (asked_w, share_uw)) in needs.iter_mut().zip(asked_w.iter().zip(&shares)) {
                let measured_uw = (asked_w * W).min(*share_uw);
                need.update((measured_uw, *share_uw), is_held_back((measured_uw, *share_uw), 9.0, 1), 200 * W);
            }
            let server = |need: &Need| {
                let points: Vec<Point> = curve_of_need(&member(), need.uw)
                    .iter()
                    .map(|&(power_uw, rate)| Point { power_uw, rate })
                    .collect();
                Server { priority: 0, curve: Curve::new(&points).unwrap() }
            };
            shares = divide(&needs.iter().map(server).collect::<Vec<_>>(), budget_w * W).shares_uw;
            shares.iter().map(|uw| uw / W).collect()
        };
        (0..60).map(round).collect()
    }

    #[test]
    fn shares_come_to_rest_where_they_are_needed() {
        for (asked_w, budget_w) in
            [([200, 120, 60], 420), ([200, 120, 60], 210), ([200, 200, 200], 300), ([40, 40, 200], 280)]
        {
            let rounds = shares(asked_w, budget_w);
            let last = &rounds[40..];
            assert!(last.iter().all(|one| one.iter().zip(&last[0]).all(|(a, b)| a.abs_diff(*b) <= 4)), "{last:?}");
            if asked_w.iter().sum::<u64>() <= budget_w {
                assert!(last[0].iter().zip(asked_w).all(|(share, asked)| *share >= asked * 95 / 100), "{:?}", last[0]);
            }
        }
    }

    #[test]
    fn a_curve_by_a_profile_ends_at_full_power() {
        let profile = Profile::named("pass-xeon-gold-6430").unwrap();
        let work = Work { is_held_back: true, ..Work::default() };
        let whole = estimate(&profile, 260 * W, work);
        for full_w in [300, 1_000] {
            let member = MemberConfig { floor_uw: 260 * W, full_uw: full_w * W, ..member() };
            let points = curve_of_load(&profile, &member, work);
            assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{points:?}");
            let last = (full_w * W, whole.rate(full_w * W) as u64);
            assert_eq!((points[0].0, points.last().copied()), (260 * W, Some(last)));
        }
    }

    #[test]
    fn a_curve_rises_to_what_is_needed() {
        assert_eq!(curve_of_need(&member(), 60 * W), [(40 * W, 0), (60 * W, 200 * W), (200 * W, 200 * W)]);
        assert_eq!(curve_of_need(&member(), 0), [(40 * W, 0), (200 * W, 0)]);
    }
}
