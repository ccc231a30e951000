//! Maps of synthetic results, compared with known winners and a reference implementation.

use super::map::{Map, Measure, NoMap, Outcome, Question, maps};
use super::verify::{Verdict, summary};
use crate::fixtures::{Noise, at, knob, results};
use crate::result_set::ResultSet;
use crate::results::summary::PointResult;
use pilotlight_workloads::Value;

const METRICS: [(&str, &str); 3] =
    [("bytes_per_j_system", "B/J"), ("bytes_per_cpu_s", "B/s"), ("latency_mean_us", "us")];

fn knobs() -> Vec<(String, Vec<Value>)> {
    vec![
        knob("mechanism", &["interrupt", "classic", "hybrid"]),
        knob("bs", &["1k", "128k"]),
        knob("numjobs", &["1", "8"]),
    ]
}

/// Classic polling is 20 % better at 1k, interrupts at 128k; no difference with eight jobs. Ten repeats with a deviation of 1 %.
fn paper(seed: u64) -> ResultSet {
    let mut noise = Noise::new(seed);
    let mut result_set = results(&knobs(), 10, &METRICS, |point| {
        let (mechanism, size) = (at(point, "mechanism"), at(point, "bs"));
        let better = match (mechanism.as_str(), size.as_str()) {
            _ if at(point, "numjobs") == "8" => 1.0,
            ("classic", "1k") | ("interrupt", "128k") => 1.2,
            ("hybrid", _) => 0.8,
            _ => 1.0,
        };
        let value = 1e6 * better * (1.0 + 0.01 * noise.normal());
        vec![value, 2.0 * value, 1e8 / value]
    });
    for point in &mut result_set.results.points {
        point.completion = Some(verdict(&at(&point.knobs, "mechanism"), &at(&point.knobs, "mechanism")));
    }
    result_set
}

fn verdict(requested: &str, actual: &str) -> Verdict {
    Verdict {
        requested: requested.into(),
        actual: Some(actual.into()),
        why: "counted".into(),
        interrupts_per_io: Some(1.0),
        switches_per_io: Some(1.0),
        io_poll: Some(true),
        io_poll_delay: Some(-1),
    }
}

fn one(result_set: &ResultSet) -> Map {
    let mut all = maps(result_set, &Question::default()).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn text(map: &Map, down: &str, across: &str) -> String {
    map.at(down, across).map(ToString::to_string).unwrap()
}

#[test]
fn the_winner_of_each_cell_is_found_with_its_margin() {
    let map = one(&paper(3));
    assert_eq!((map.by, map.metric.as_str(), map.modelled), (Measure::Energy, "bytes_per_j_system", false));
    let (small, large) = (map.at("1k", "1").unwrap(), map.at("128k", "1").unwrap());
    assert_eq!((small.best.as_deref(), small.next.as_deref()), (Some("classic"), Some("interrupt")));
    assert!((small.margin_percent.unwrap() - 20.0).abs() < 2.0 && small.outcome == Outcome::Wins, "{small:?}");
    assert!((small.margin.unwrap() - 2e5).abs() < 2e4);
    assert_eq!(large.best.as_deref(), Some("interrupt"));
    assert!(text(&map, "1k", "1").starts_with("classic 2") || text(&map, "1k", "1").starts_with("classic 19"));
    assert_eq!(map.winners().1, 2, "two significant winners: {}", map.tally());
}

/// About one cell in twenty without differences has a winner; fewer for the best two of three.
#[test]
fn cells_without_differences_are_ties() {
    let equal = (0..200).flat_map(|seed| {
        let map = one(&paper(seed));
        ["1k", "128k"].map(|size| map.at(size, "8").unwrap().outcome)
    });
    let wins = equal.filter(|outcome| *outcome == Outcome::Wins).count();
    assert!(wins < 30, "{wins} of 400");
}

#[test]
fn points_with_another_actual_mechanism_are_left_out() {
    let mut result_set = paper(5);
    for point in result_set.results.points.iter_mut().filter(|point| at(&point.knobs, "mechanism") == "classic") {
        point.completion = Some(verdict("classic", "interrupt"));
        point.knobs.insert("mechanism".into(), Value::Word("classic (ran interrupt)".into()));
    }
    let map = one(&result_set);
    let cell = map.at("1k", "1").unwrap();
    assert_eq!((cell.best.as_deref(), cell.next.as_deref()), (Some("interrupt"), Some("hybrid")));
    assert!(cell.means.iter().all(|(name, ..)| !name.contains("classic")), "{cell:?}");
    let rows = summary(result_set.results.verdicts());
    let row = rows.iter().find(|row| row.requested == "classic").unwrap();
    assert_eq!((row.actual.as_deref(), row.is_as_requested, row.points, row.of), (Some("interrupt"), false, 4, 4));
    for point in result_set.results.points.iter_mut().filter(|point| at(&point.knobs, "mechanism") == "hybrid") {
        point.completion = Some(verdict("hybrid", "interrupt"));
    }
    assert_eq!(text(&one(&result_set), "1k", "8"), "only interrupt");
}

#[test]
fn without_power_there_are_two_maps_and_the_lower_latency_wins() {
    let mut result_set = paper(7);
    result_set.results.points.iter_mut().for_each(|point| drop(point.values.remove("bytes_per_j_system")));
    let all = maps(&result_set, &Question::default()).unwrap();
    assert_eq!(all.iter().map(|map| map.by).collect::<Vec<_>>(), [Measure::CpuTime, Measure::Latency]);
    assert!(all.iter().all(|map| map.at("1k", "1").unwrap().best.as_deref() == Some("classic")));
    let question = Question { by: Some(Measure::Energy), ..Question::default() };
    assert!(matches!(maps(&result_set, &question), Err(NoMap::Metric(_))));
}

#[test]
fn single_measurements_are_not_tested() {
    let result_set = results(&knobs()[..2], 1, &METRICS[2..], |point| {
        vec![if at(point, "mechanism") == "hybrid" { 9.0 } else { 10.0 }]
    });
    let map = one(&result_set);
    assert_eq!(text(&map, "1k", ""), "hybrid? 10.0 %");
    assert!(map.tally().contains("not testable"), "{}", map.tally());
}

#[test]
fn any_varied_knob_has_a_map() {
    let result_set = paper(1);
    let maps_of = |knob: &str| maps(&result_set, &Question { knob: Some(knob.into()), ..Question::default() });
    let map = maps_of("numjobs").unwrap().remove(0);
    let sides = (map.down.as_ref().unwrap().0.as_str(), map.across.as_ref().unwrap().0.as_str());
    assert_eq!(sides, ("mechanism", "bs"));
    let refused = maps_of("iodepth").unwrap_err().to_string();
    assert!(refused.contains("iodepth") && refused.contains("mechanism, bs, numjobs"), "{refused}");
}

#[test]
fn a_fourth_knob_gives_a_map_for_each_of_its_values() {
    let mut knobs = knobs();
    knobs.push(knob("rw", &["randread", "read"]));
    let mut noise = Noise::new(2);
    let result_set = results(&knobs, 3, &METRICS[..1], |point| {
        let better = if (at(point, "rw") == "read") == (at(point, "mechanism") == "classic") { 2.0 } else { 1.0 };
        vec![better * (100.0 + noise.normal())]
    });
    let all = maps(&result_set, &Question::default()).unwrap();
    assert_eq!(all.iter().map(|map| map.rest.as_str()).collect::<Vec<_>>(), ["rw=randread", "rw=read"]);
    assert_eq!(all[1].at("1k", "8").unwrap().best.as_deref(), Some("classic"));
    assert_ne!(all[0].at("1k", "8").unwrap().best.as_deref(), Some("classic"));
}

/// Reference implementation: sorts by mean and tests the first two.
fn naive(result_set: &ResultSet, key: &str, size: &str, jobs: &str) -> (String, String, f64, f64) {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let here = |name: &str, point: &PointResult, value: &str| at(&point.knobs, name) == value;
    let mut all: Vec<(String, &[f64])> = (result_set.results.points.iter())
        .filter(|point| here("bs", point, size) && here("numjobs", point, jobs))
        .map(|point| (at(&point.knobs, "mechanism"), point.values[key].values.as_slice()))
        .collect();
    all.sort_by(|a, b| mean(b.1).total_cmp(&mean(a.1)));
    let (first, second) = (mean(all[0].1), mean(all[1].1));
    let p = pilotlight_stats::compare::welch(all[0].1, all[1].1, 0.95).unwrap().p;
    (all[0].0.clone(), all[1].0.clone(), 100.0 * (first / second - 1.0), p)
}

/// Results with random means close to each other.
fn drawn(seed: u64) -> ResultSet {
    let mut noise = Noise::new(seed);
    let mut means = std::collections::BTreeMap::new();
    results(&knobs(), 4, &METRICS[..1], |point| {
        let name = format!("{point:?}");
        let mean = *means.entry(name).or_insert_with(|| 1_000.0 + 12.0 * noise.normal());
        vec![mean + 10.0 * noise.normal()]
    })
}

#[test]
fn cells_and_correction_match_the_reference_implementation() {
    let (mut near, mut total) = (0, 0);
    for seed in 0..40 {
        let result_set = drawn(seed);
        let map = one(&result_set);
        let mut all = Vec::new();
        for (size, jobs) in [("1k", "1"), ("1k", "8"), ("128k", "1"), ("128k", "8")] {
            let cell = map.at(size, jobs).unwrap();
            let (best, next, percent, p) = naive(&result_set, "bytes_per_j_system", size, jobs);
            assert_eq!((cell.best.as_deref(), cell.next.as_deref()), (Some(best.as_str()), Some(next.as_str())));
            assert!((cell.margin_percent.unwrap() - percent).abs() < 1e-9 && (cell.p.unwrap() - p).abs() < 1e-12);
            assert_eq!(cell.outcome == Outcome::Wins, p <= 0.05, "{p}");
            near += usize::from((0.05..0.1).contains(&p));
            all.push((p, cell.p_holm.unwrap()));
        }
        // Holm by its definition: the k-th smallest times the number of p values not smaller, monotonic.
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut adjusted = 0.0_f64;
        for (place, (p, holm)) in all.iter().enumerate() {
            adjusted = adjusted.max((p * (4 - place) as f64).min(1.0));
            assert!((holm - adjusted).abs() < 1e-12, "{all:?}");
        }
        let significant = all.iter().filter(|(p, holm)| *p <= 0.05 && *holm <= 0.05).count();
        assert_eq!(map.winners().1, significant);
        total += significant;
    }
    assert!(near > 0 && total > 0, "cells near the level, and significant winners: {near} {total}");
}

#[test]
fn winners_are_sorted_by_count() {
    let mut noise = Noise::new(4);
    let result_set = results(&knobs(), 5, &METRICS[..1], |point| {
        let winner =
            if (at(point, "bs"), at(point, "numjobs")) == ("1k".into(), "1".into()) { "hybrid" } else { "interrupt" };
        vec![if at(point, "mechanism") == winner { 200.0 } else { 100.0 } + noise.normal()]
    });
    assert_eq!(one(&result_set).tally(), "of 4 cells interrupt wins 3, hybrid wins 1");
}

#[test]
fn a_measured_narrow_scope_precedes_a_modelled_wide_one() {
    let mut result_set = paper(9);
    let about = &mut result_set.results.metrics[0];
    *about = crate::results::summary::MetricInfo {
        modelled: true,
        ..crate::fixtures::metric_info("bytes_per_j_system_modelled_x", "B/J")
    };
    about.title = "bytes per joule, system, modelled (x)".into();
    result_set.results.metrics.push(crate::fixtures::metric_info("bytes_per_j_cpu", "B/J"));
    for point in &mut result_set.results.points {
        let values = point.values.remove("bytes_per_j_system").unwrap();
        point.values.insert("bytes_per_j_system_modelled_x".into(), values.clone());
        point.values.insert("bytes_per_j_cpu".into(), values);
    }
    assert_eq!((one(&result_set).metric.as_str(), one(&result_set).modelled), ("bytes_per_j_cpu", false));
    let system = Question { scope: Some("system".into()), ..Question::default() };
    assert!(maps(&result_set, &system).unwrap()[0].modelled, "a requested scope may be modelled");
}

#[test]
fn rows_have_the_requested_mechanism() {
    let mut result_set = paper(1);
    for point in result_set.results.points.iter_mut().filter(|point| at(&point.knobs, "mechanism") == "classic") {
        point.knobs.insert("mechanism".into(), Value::Word("classic (ran interrupt)".into()));
    }
    let question = Question { knob: Some("numjobs".into()), ..Question::default() };
    let map = maps(&result_set, &question).unwrap().remove(0);
    assert_eq!(map.sides().0, ["interrupt", "classic", "hybrid"]);
    assert_eq!(map.at("classic", "1k").unwrap().means.len(), 2, "one and eight jobs");
}
