//! Metrics of a budget, compared with manual calculations.

use std::path::Path;

use pilotlight_sim::outcome::Energy;
use proptest::prelude::*;

use super::*;
use crate::simulated::experiment::schema::Experiment;
use crate::simulated::experiment::{self, Request};

/// 40 s with 100 W, from 20 s with 80 W; bins of 500 ms.
fn experiment(steps: &str) -> Experiment {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/sandman/fig5.toml");
    let keys = [("duration", "40s"), ("series", "500ms"), ("budget_w", "100"), ("budget_steps", steps)];
    let set = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let bench = experiment::load(&path, &Request { set, smoke: false, repeats: Some(1) }).unwrap();
    bench.points[0].experiment.clone()
}

const STEPS: &str = "[{ at = '20s', watts = 80 }]";

fn series(watts: &[u64]) -> Vec<Stretch> {
    let stretch =
        |watts: &u64| Stretch { energy: Energy { cpu_uj: watts * 500_000, ..Energy::default() }, ..Stretch::default() };
    watts.iter().map(stretch).collect()
}

fn kept_budget(watts: &[u64], experiment: &Experiment) -> Kept {
    let labels = ["load".to_owned()];
    let context = Context { experiment, labels: &labels, cores: experiment.topology, warm_up_ns: 0, request_ns: 1 };
    kept(&series(watts), &context).unwrap()
}

/// 80 bins from the power of each second.
fn seconds(of: impl Fn(usize) -> u64) -> Vec<u64> {
    (0..80).map(|half| of(half / 2)).collect()
}

#[test]
fn a_step_that_takes_three_seconds_is_above_for_three() {
    let kept = kept_budget(&seconds(|second| if second < 23 { 99 } else { 79 }), &experiment(STEPS));
    // The mean of a second is above by 2 % for another half second.
    assert_eq!(kept.above_limit, (3.5, 99.0 / 80.0 - 1.0));
    assert_eq!(kept.settled, [(0, 0.5), (20_000_000_000, 4.0)]);
    assert!((kept.within - (80.0 - 7.0) / 80.0).abs() < 1e-12, "{kept:?}");
    assert!((kept.deviation - 1.0 / 80.0).abs() < 1e-12, "{kept:?}");
}

#[test]
fn a_small_excess_is_above_the_budget_and_within_the_limit() {
    let kept = kept_budget(&seconds(|second| if (5..12).contains(&second) { 101 } else { 100 }), &experiment("[]"));
    assert_eq!((kept.above.0, kept.above_limit.0, kept.within), (7.5, 0.0, 1.0));
    assert!((kept.above.1 - 0.01).abs() < 1e-12);
}

#[test]
fn power_that_stays_above_the_limit_is_above_since_the_step() {
    let kept = kept_budget(&seconds(|second| if second < 20 { 90 } else { 85 }), &experiment(STEPS));
    assert_eq!((kept.above.0, kept.above_limit.0), (20.0, 20.0));
    assert!((kept.above.1 - 5.0 / 80.0).abs() < 1e-12);
}

#[test]
fn power_that_was_far_below_the_budget_has_reached_it() {
    let kept = kept_budget(&seconds(|second| if second < 10 { 50 } else { 110 }), &experiment("[]"));
    assert_eq!(kept.above.0, 29.5, "the mean of a second is above half a second later");
}

#[test]
fn the_time_above_the_budget_begins_with_the_first_second_not_above_the_limit() {
    let power_w = |second| match second {
        0..20 => 100,
        20..25 => 90, // 80 W are allowed
        25..32 => 80,
        _ => 81,
    };
    let kept = kept_budget(&seconds(power_w), &experiment(STEPS));
    assert_eq!((kept.above.0, kept.above_limit.0), (8.0, 5.5));
    assert!((kept.above.1 - 1.0 / 80.0).abs() < 1e-12);
}

#[test]
fn a_meter_shows_its_steps() {
    assert_eq!([300.4, 300.6].map(|power_w| to_steps(power_w, 1.0)), [300.0, 301.0]);
    assert_eq!(to_steps(300.4, 0.0), 300.4);
}

#[test]
fn power_that_alternates_within_a_second_is_its_mean() {
    let halves: Vec<u64> = (0..80).map(|half| if half % 2 == 0 { 120 } else { 80 }).collect();
    let kept = kept_budget(&halves, &experiment("[]"));
    assert_eq!(kept.above_limit.0, 0.5, "only the first entry has nothing before it");
    assert_eq!(kept.within, 79.0 / 80.0);
}

#[test]
fn time_without_a_budget_does_not_count() {
    let kept = kept_budget(&seconds(|second| if second < 20 { 100 } else { 500 }), &experiment("[{ at = '20s' }]"));
    assert_eq!((kept.above.0, kept.within), (0.0, 1.0));
    assert_eq!(kept.settled.len(), 1);
}

#[test]
fn a_reading_is_of_the_last_available_window() {
    let series = series(&(0..20).collect::<Vec<_>>());
    let read = |at| reading_w(&series, at, 500_000_000, (1_000_000_000, 1_300_000_000));
    // At 2.5 s the window that ended at 1 s is available, of bins 0 and 1; at 3.5 s the next one.
    assert_eq!((read(3), read(4), read(6)), (None, Some(0.5), Some(2.5)));
}

proptest! {
    #[test]
    fn every_number_is_that_of_a_walk_through_the_entries(watts in prop::collection::vec(70..110_u64, 80)) {
        let kept = kept_budget(&watts, &experiment(STEPS));
        let mean = |at: usize| {
            let first = if at == 0 || at == 40 { at } else { at - 1 };
            watts[first..=at].iter().sum::<u64>() as f64 / (at + 1 - first) as f64
        };
        let budget = |at: usize| if at < 40 { 100.0 } else { 80.0 };
        let error = |at: usize| mean(at) / budget(at) - 1.0;
        let (mut longest, mut now) = (0, 0);
        for at in 0..80 {
            now = if error(at) > 0.02 { now + 1 } else { 0 };
            longest = longest.max(now);
        }
        prop_assert_eq!(kept.above_limit.0, f64::from(longest) / 2.0);
        let within = (0..80).filter(|at| error(*at).abs() <= 0.02).count();
        let reached = |from: usize| (from..from + 39).find(|at| error(*at) <= 0.02 && error(at + 1) <= 0.02);
        let (mut longest, mut now) = (0, 0);
        for at in 0..80 {
            let from = if at < 40 { 0 } else { 40 };
            let counts = reached(from).is_none_or(|first| at > first);
            now = if counts && error(at) > 0.0 { now + 1 } else { 0 };
            longest = longest.max(now);
        }
        prop_assert_eq!(kept.above.0, f64::from(longest) / 2.0);
        prop_assert_eq!(kept.within, within as f64 / 80.0);
        let late = (0..80).filter(|at| (20..40).contains(at) || *at >= 60);
        let worst = late.map(|at| error(at).abs()).fold(0.0, f64::max);
        prop_assert!((kept.deviation - worst).abs() < 1e-12);
        let both = |at: &usize| error(*at).abs() <= 0.02 && error(at + 1).abs() <= 0.02;
        let settled = |from: usize| ((from..from + 39).find(both).unwrap_or(from + 39) - from + 1) as f64 / 2.0;
        prop_assert_eq!(kept.settled, vec![(0, settled(0)), (20_000_000_000, settled(40))]);
    }
}
