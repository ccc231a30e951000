//! A server's curve from its profile: what it delivers at each power, for what its hosts ask at present.
//!
//! **Model.** A CPU configuration of the profile allows as many bytes per second as its CPU time at full speed pays for, at the CPU time that a byte
//! costs at present; drives allow their maximum. Power is that of the configuration, of drives at this bandwidth, and of all else (PASS, section 3.2).
//!
//! **Demand.** A server whose limits hold nothing back delivers what its hosts ask. Of one whose limits do it is unknown what they ask: as much as
//! the whole machine delivers.

use super::curve::{Curve, Point};
use crate::pass::cpu_model::CpuRow;
use crate::pass::profile::Profile;
use crate::pass::ssd_model::Rate;

/// Part of the CPU's power by which full power may exceed the model's, which may be wrong by 20 % (as in `pass::cpu`).
const MARGIN: u64 = 4;

/// A server whose power is this close to its share, in percent of it, may be held back by it.
const CLOSE_PERCENT: u64 = 5;
/// Requests in progress for each I/O thread, in the mean, from which a server counts as in use: 2 % of the load of PASS's machine have fewer, 40 % more.
const IN_USE: f64 = 0.5;

/// Whether a share holds back a server with this power and this many requests in progress, in the mean, on this many I/O threads. A polling
/// CPU draws its share without requests too.
#[must_use]
pub fn is_held_back((measured_uw, share_uw): (u64, u64), in_progress: f64, threads: usize) -> bool {
    measured_uw >= share_uw / 100 * (100 - CLOSE_PERCENT) && in_progress >= IN_USE * threads as f64
}

/// Speed of the cores at this power of the CPU, as a part of full speed: that of the best configuration of the profile within it.
#[must_use]
pub fn speed(profile: &Profile, cpu_uw: u64) -> f64 {
    profile.cpu.full_speed_ppm_at(cpu_uw) as f64 / profile.cpu.configuration(cpu_uw).quota_ppm.max(1) as f64
}

/// Power of the CPU by the profile, of a server that draws `measured_uw` and delivers `rate`, in microwatts. Too low where all else draws less than
/// the profile's maximum.
#[must_use]
pub fn cpu_uw(profile: &Profile, measured_uw: u64, rate: Rate) -> u64 {
    let ssd = &profile.ssd;
    let others_uw = profile.others_uw as f64 + f64::from(ssd.drives) * ssd.idle_uw + ssd.power_uw(rate);
    (measured_uw as f64 - others_uw).max(0.0) as u64
}

/// What a server does at present.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// What it delivers.
    pub rate: Rate,
    /// CPU time that this takes, in millionths of one core at full speed.
    pub cpu_ppm: u64,
    /// Whether its power budget holds back requests.
    pub is_held_back: bool,
}

/// The curve of the machine of `profile`, from the floor in microwatts on.
#[must_use]
pub fn estimate(profile: &Profile, floor_uw: u64, work: Work) -> Curve {
    let (cpu, ssd) = (&profile.cpu, &profile.ssd);
    let drives = f64::from(ssd.drives);
    let mix = if work.rate.bytes() > 0.0 { work.rate } else { ssd.most };
    let drives_most = drives * mix.bytes() / (mix.read / ssd.most.read).max(mix.written / ssd.most.written);
    let by_ppm = match work.cpu_ppm {
        0 => drives_most / cpu.full_speed_ppm(cpu.top()) as f64,
        ppm => mix.bytes() / ppm as f64,
    };
    let whole = drives_most.min(by_ppm * cpu.full_speed_ppm(cpu.top()) as f64);
    let demand = if work.is_held_back { whole } else { work.rate.bytes().min(whole) };
    let idle_uw = profile.others_uw as f64 + drives * ssd.idle_uw;
    let at = |row: &CpuRow, demand: f64| {
        let rate = demand.min(by_ppm * cpu.full_speed_ppm(row) as f64);
        let power_uw = idle_uw + row.power_uw as f64 + rate * ssd.slope(mix);
        Point { power_uw: power_uw as u64, rate: rate as u64 }
    };
    let mut points: Vec<Point> = cpu.rows().iter().map(|row| at(row, demand)).collect();
    let full = at(cpu.top(), whole);
    points.push(Point { power_uw: full.power_uw + cpu.top().power_uw / MARGIN, rate: demand as u64 });
    from_floor(points, floor_uw)
}

/// The curve through `points` from the floor on: what is below it counts as delivered at the floor.
fn from_floor(mut points: Vec<Point>, floor_uw: u64) -> Curve {
    points.sort_by_key(|point| (point.power_uw, point.rate));
    let at_floor = points.iter().rev().find(|point| point.power_uw <= floor_uw).map_or(0, |point| point.rate);
    points.retain(|point| point.power_uw > floor_uw);
    points.insert(0, Point { power_uw: floor_uw, rate: at_floor });
    points.dedup_by(|next, kept| {
        let is_equal = next.power_uw == kept.power_uw;
        kept.rate = if is_equal { kept.rate.max(next.rate) } else { kept.rate };
        is_equal
    });
    Curve::new(&points).unwrap_or_else(|_| unreachable!("powers rise from the floor on"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pass() -> Profile {
        Profile::named("pass-xeon-gold-6430").unwrap()
    }

    const FLOOR_UW: u64 = 260_000_000;

    #[test]
    fn a_server_that_is_held_back_asks_for_the_whole_machine() {
        let work = Work { rate: Rate { read: 1e9, written: 0.0 }, cpu_ppm: 2_000_000, is_held_back: false };
        let content = estimate(&pass(), FLOOR_UW, work);
        assert_eq!(content.rate(content.full_uw()), 1e9);
        let held_back = estimate(&pass(), FLOOR_UW, Work { is_held_back: true, ..work });
        let all_cores = pass().cpu.top().quota_ppm as f64 / 2e6; // the best configuration has full speed
        assert_eq!(held_back.rate(held_back.full_uw()), 1e9 * all_cores, "at the same CPU time for a byte");
        assert_eq!(content.full_uw(), held_back.full_uw(), "a burst can need it");
    }

    /// Servers that poll, and so draw their shares, with these demands; each reports what it does at its share.
    #[test]
    fn divisions_by_estimates_deliver_what_one_by_the_demand_does() {
        use crate::fleet::{Server, divide};
        let (profile, cpu_ppm_of) = (pass(), |rate: f64| (rate / 1e3) as u64);
        let curve = |rate: f64, is_held_back| {
            let work = Work { rate: Rate { read: rate, written: 0.0 }, cpu_ppm: cpu_ppm_of(rate), is_held_back };
            estimate(&profile, FLOOR_UW, work)
        };
        let shares = |curves: Vec<Curve>, budget_uw| {
            let servers: Vec<_> = curves.into_iter().map(|curve| Server { priority: 0, curve }).collect();
            divide(&servers, budget_uw).shares_uw
        };
        for (demands, budget_w) in [([6e9, 3e9, 1e7], 1_100), ([7e9, 7e9, 7e9], 1_000), ([1e7, 1e7, 7e9], 900)] {
            let delivers = |shares_uw: &[u64]| -> f64 {
                shares_uw.iter().zip(demands).map(|(share_uw, demand)| curve(demand, false).rate(*share_uw)).sum()
            };
            let best =
                delivers(&shares(demands.iter().map(|rate| curve(*rate, false)).collect(), budget_w * 1_000_000));
            let mut shares_uw = vec![FLOOR_UW; 3];
            for round in 0..60 {
                let report = |(share_uw, demand): (&u64, &f64)| {
                    let rate = curve(*demand, false).rate(*share_uw).max(1e6);
                    let in_progress = if rate < demand * 0.99 { 64.0 } else { rate / 1e9 };
                    curve(rate, is_held_back((*share_uw, *share_uw), in_progress, 8))
                };
                let curves = shares_uw.iter().zip(&demands).map(report).collect();
                shares_uw = shares(curves, budget_w * 1_000_000);
                let part = delivers(&shares_uw) / best;
                assert!(round < 10 || part > 0.9, "{part} in round {round} of {demands:?}: {shares_uw:?}");
            }
        }
    }

    #[test]
    fn a_share_holds_back_a_server_in_use_that_draws_it() {
        assert!(is_held_back((380, 400), 4.0, 8));
        assert!(!is_held_back((379, 400), 4.0, 8) && !is_held_back((400, 400), 3.9, 8));
    }

    #[test]
    fn the_cpu_draws_what_drives_and_all_else_do_not() {
        let profile = pass();
        let rate = Rate { read: 7e9, written: 0.0 };
        let drives_uw = 50e6 + profile.ssd.power_uw(rate);
        let measured_uw = profile.others_uw + drives_uw as u64 + 70_000_000;
        assert!(cpu_uw(&profile, measured_uw, rate).abs_diff(70_000_000) <= 1);
        assert_eq!(cpu_uw(&profile, 1, rate), 0);
        assert!(speed(&profile, 70_000_000) <= 1.0 && speed(&profile, 1_000_000_000) > 0.99);
    }

    #[test]
    fn more_than_the_power_of_slow_cores_delivers_more() {
        let work = Work { rate: Rate { read: 1e9, written: 0.0 }, cpu_ppm: 7_500_000, is_held_back: false };
        let curve = estimate(&pass(), FLOOR_UW, work);
        let at = |cpu_uw: f64| curve.rate((160e6 + 50e6 + cpu_uw + 1e9 * pass().ssd.read_slope) as u64);
        assert!(at(99e6) < 0.7e9 && at(144e6) == 1e9, "{} and {}", at(99e6), at(144e6));
    }

    #[test]
    fn an_idle_server_needs_its_floor() {
        let idle = estimate(&pass(), FLOOR_UW, Work::default());
        assert_eq!((idle.floor_uw(), idle.rate(FLOOR_UW), idle.rate(idle.full_uw())), (FLOOR_UW, 0.0, 0.0));
    }

    #[test]
    fn a_floor_above_full_power_is_the_whole_curve() {
        let all = estimate(&pass(), 1_000_000_000_000, Work::default());
        assert_eq!((all.floor_uw(), all.full_uw()), (1_000_000_000_000, 1_000_000_000_000));
    }

    proptest! {
        #[test]
        fn more_power_delivers_no_less_and_never_more_than_is_asked(
            read in 0.0..1e11, written in 0.0..1e11, cpu_ppm in 0_u64..100_000_000, is_held_back: bool,
            floor_uw in 0_u64..600_000_000,
        ) {
            let work = Work { rate: Rate { read, written }, cpu_ppm, is_held_back };
            let curve = estimate(&pass(), floor_uw, work);
            let rates: Vec<f64> = (0..100).map(|step| curve.rate(floor_uw + step * 5_000_000)).collect();
            prop_assert!(rates.is_sorted());
            prop_assert!(is_held_back || rates.iter().all(|rate| *rate <= read + written + 1.0));
            prop_assert_eq!(curve.floor_uw(), floor_uw);
        }
    }
}
