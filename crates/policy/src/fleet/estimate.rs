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
