//! The average against its definition, and final frequencies.

use proptest::prelude::*;

use super::*;

const SPEED: Speed = Speed {
    min_khz: 800_000,
    max_khz: 3_200_000,
    step_khz: 100_000,
    transition_ns: 0,
    transition_restarts: false,
    stalled_ppm: 0,
    sibling_gain_ppm: 0,
};

fn governor(utilisation: f64) -> Schedutil {
    let khz = SPEED.max_khz;
    Schedutil { speed: SPEED, cores: vec![Load { awake_ns: 0, work_ns: 0, behind_ns: 0, utilisation, khz }] }
}

/// Frequency after `seconds` of a core whose running time in each step is `awake_ns` of time and frequency.
fn ends_at(utilisation: f64, seconds: u64, awake_ns: impl Fn(u64, u32) -> u64) -> u32 {
    let (mut governor, mut khz) = (governor(utilisation), SPEED.max_khz);
    for step in 1..=seconds * 1_000 {
        governor.spend(0, awake_ns(step, khz), khz, 1);
        khz = governor.update(step * STEP_NS).first().map_or(khz, |&(_, khz)| khz);
    }
    khz
}

/// The definition: the sum of all past running time, weighted by its age on the clock of the average, which is evaluated backwards from the present.
fn defined(history: &[(f64, bool)]) -> f64 {
    let weight = |age_ns: f64| 0.5_f64.powf(age_ns / HALF_LIFE_NS as f64);
    let (mut age_ns, mut sum) = (0.0, 0.0);
    for &(length_ns, runs) in history.iter().rev() {
        if runs {
            sum += weight(age_ns) - weight(age_ns + length_ns);
        }
        age_ns += length_ns;
    }
    sum + weight(age_ns) // it ran before all that
}

proptest! {
    /// For any load and frequencies, the average equals its definition.
    #[test]
    fn utilisation_is_the_frequency_scaled_running_average(
        steps in prop::collection::vec((0..=4_u64, 0..=8_u32, 0..=1_000_000_u64), 1..120)
    ) {
        let (mut governor, mut history) = (governor(1.0), Vec::new());
        let (mut clock_ns, mut number) = (0.0, 0_u64);
        for (kind, level, some_ns) in steps {
            let (khz, awake_ns) = (SPEED.min_khz + level * 300_000, [some_ns, 0, STEP_NS, STEP_NS, STEP_NS][kind as usize]);
            let (begin_ns, end_ns) = (number as f64 * STEP_NS as f64, (number + 1) as f64 * STEP_NS as f64);
            if awake_ns < STEP_NS {
                if defined(&history) >= FULL {
                    clock_ns = begin_ns; // stolen idle time is lost
                }
                let idle_until_ns = end_ns - awake_ns as f64;
                history.push((idle_until_ns - clock_ns, false));
                clock_ns = idle_until_ns;
            }
            let work_ns = awake_ns * u64::from(khz) / u64::from(SPEED.max_khz);
            history.push((work_ns as f64, true));
            clock_ns += work_ns as f64;
            governor.spend(0, awake_ns, khz, 1);
            number += 1;
            governor.update(number * STEP_NS);
            let found = governor.cores[0].utilisation;
            prop_assert!((found - defined(&history)).abs() < 1e-9, "{} and {}", found, defined(&history));
        }
    }

    #[test]
    fn halving_is_exact(ns in 0..400_000_000_u64) {
        prop_assert!((kept(ns) - 0.5_f64.powf(ns as f64 / HALF_LIFE_NS as f64)).abs() < 1e-14);
    }
}

#[test]
fn a_core_that_polls_without_pause_ends_at_the_highest_frequency() {
    for utilisation in [0.0, 0.3, 1.0] {
        assert_eq!(ends_at(utilisation, 2, |_, _| STEP_NS), SPEED.max_khz);
    }
}

/// A core with a load of half its capacity: running time grows as frequency falls.
#[test]
fn half_a_core_of_load_settles_at_1_25_times_half_the_maximum() {
    let awake_ns = |_: u64, khz: u32| STEP_NS / 2 * u64::from(SPEED.max_khz) / u64::from(khz);
    for utilisation in [0.0, 1.0] {
        let khz = ends_at(utilisation, 5, awake_ns);
        assert!(khz.abs_diff(SPEED.max_khz / 8 * 5) <= SPEED.step_khz, "{khz}");
    }
    assert_eq!(ends_at(1.0, 5, |_, _| 0), SPEED.min_khz, "nothing to do");
}

/// Polling uses all time within a quota, at any frequency: 1.25 q f is less than f for q below 0.8.
#[test]
fn a_quota_in_short_periods_ends_at_a_frequency_limit() {
    for (share, ends) in [(0.5, SPEED.min_khz), (0.6, SPEED.min_khz), (0.85, SPEED.max_khz)] {
        assert_eq!(ends_at(1.0, 20, |_, _| (share * STEP_NS as f64) as u64), ends, "{share}");
    }
}
