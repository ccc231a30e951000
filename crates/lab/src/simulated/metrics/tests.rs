//! Each metric of a constructed outcome, compared with manual calculations.

use std::path::Path;

use pilotlight_sim::outcome::{Decisions, Energy};

use super::*;
use crate::simulated::experiment::{self, Request};

const MS: u64 = 1_000_000;

/// A short Figure 4: 4 ms base load and 2 ms burst in turn, for 16 ms with a warm-up of 4 ms; two cores.
fn experiment(set: &[(&str, &str)]) -> Experiment {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/sandman/fig4.toml");
    let mut keys = vec![
        ("topology", "{ cores = 2, siblings = true, threads = 2 }"),
        ("duration", "16ms"),
        ("warm_up", "4ms"),
        ("workload.hosts.phase.base.length", "4ms"),
        ("workload.hosts.phase.burst.length", "2ms"),
        ("metrics", "[]"),
        ("output.chart", "[]"),
    ];
    keys.extend(set);
    let set = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let bench = experiment::load(&path, &Request { set, smoke: false, repeats: Some(1) }).unwrap();
    bench.points[0].experiment.clone()
}

fn latencies(each: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    each.iter().for_each(|&ns| histogram.record(ns));
    histogram
}

/// 12 ms are measured: 200 completions of the base load, 400 of bursts.
fn outcome() -> Outcome {
    let stretch = Stretch { awake_ns: 2 * MS, capacity_ns: MS, ..Stretch::default() };
    let rested = Stretch { awake_ns: MS / 2, capacity_ns: MS / 2, ..Stretch::default() };
    let mut series = vec![stretch; 4];
    series.extend([rested; 12]);
    Outcome {
        jobs: pilotlight_sim::outcome::Jobs::default(),
        measured_ns: 12 * MS,
        requests: pilotlight_sim::outcome::Requests::default(),
        latency: vec![(0, latencies(&[100; 200])), (1, latencies(&[200; 400]))],
        cap_waits: latencies(&[]),
        background: Vec::new(),
        metered_uw: Vec::new(),
        label_ns: vec![(0, 8 * MS), (1, 4 * MS)],
        energy: Energy { cpu_uj: 2_400_000, drives_uj: 1_200_000, others_uj: 600_000 },
        family: Vec::new(),
        capped_uj: 0,
        series,
        decisions: Decisions {
            policy_calls: 40,
            surge_checks: 1_000,
            moves: 6,
            sleeps: 3,
            switches: 1_200,
            late_ns: 80_000,
            deciding_ns: 120_000,
            ..Decisions::default()
        },
        view: vec![("surges", "16".to_owned())],
        saturated: false,
    }
}

fn value(outcome: &Outcome, experiment: &Experiment, name: &str) -> Option<f64> {
    let labels = ["base".to_owned(), "burst".to_owned()];
    let context =
        Context { experiment, labels: &labels, cores: experiment.topology, warm_up_ns: 4 * MS, request_ns: 1_000 };
    metrics(outcome, None, &context).into_iter().find(|metric| metric.name == name).map(|metric| metric.value)
}

fn close(outcome: &Outcome, experiment: &Experiment, expected: &[(&str, f64)]) {
    for &(name, expected) in expected {
        let ours = value(outcome, experiment, name).unwrap_or_else(|| panic!("no {name}"));
        assert!((ours - expected).abs() < 1e-9 * expected.abs().max(1.0), "{name}: {ours}, expected {expected}");
    }
}

#[test]
fn rates_refer_to_the_time_of_their_label() {
    let expected = [
        ("iops", 600.0 / 0.012),
        ("base.iops", 200.0 / 0.008),
        ("burst.iops", 400.0 / 0.004),
        ("base.latency_p99_us", 0.1),
        ("burst.latency_mean_us", 0.2),
        ("latency_p50_us", 0.2),
        ("latency_mean_us", 0.1 / 3.0 + 0.4 / 3.0),
        ("moves_per_s", 500.0),
        ("sleeps_per_s", 250.0),
        ("context_switches_per_s", 100_000.0),
        ("context_switches_per_operation", 2.0),
        ("deciding_share", 0.01),
        ("algorithm_us", 3.0),
        ("lateness_us", 2.0),
        ("warm_up_ms", 4.0),
        ("saturated", 0.0),
    ];
    close(&outcome(), &experiment(&[]), &expected);
}

#[test]
fn every_metric_is_in_the_table() {
    let labels = ["base".to_owned(), "burst".to_owned()];
    let experiment = experiment(&[("output.series", "['cores_awake', 'moves', 'iops']")]);
    let context =
        Context { experiment: &experiment, labels: &labels, cores: experiment.topology, warm_up_ns: 0, request_ns: 1 };
    for metric in metrics(&outcome(), None, &context) {
        assert!(metric::find(&metric.name).is_some(), "{}", metric.name);
    }
}

#[test]
fn power_is_energy_over_the_measured_time() {
    let expected = [
        ("cpu_power_w", 200.0),
        ("ssd_power_w", 100.0),
        ("others_power_w", 50.0),
        ("system_power_w", 350.0),
        ("system_energy_j", 4.2),
    ];
    close(&outcome(), &experiment(&[]), &expected);
}

#[test]
fn cores_and_capacity_exclude_the_warm_up() {
    // 600 requests of a microsecond in 12 ms: 0.05 of a core
    let expected = [("cores_awake", 0.5), ("capacity_share", 0.25), ("wasted_over_required", 0.45 / 0.05)];
    close(&outcome(), &experiment(&[]), &expected);
}

/// Bursts start at 4, 10 and 16 ms; the last is after the end.
#[test]
fn a_burst_is_detected_if_a_thread_moves_soon_after_its_start() {
    let moved = |at: &[usize]| {
        let mut outcome = outcome();
        at.iter().for_each(|&stretch| outcome.series[stretch].moves = 1);
        outcome
    };
    let experiment = experiment(&[("output.detect", "{ label = 'burst', within = '2ms' }")]);
    for (at, detected) in [(&[][..], 0.0), (&[4], 1.0), (&[5, 11], 2.0), (&[3, 6, 9, 12], 0.0), (&[4, 5, 10], 2.0)] {
        let expected = [("phases", 2.0), ("phases_detected", detected), ("accuracy_percent", 50.0 * detected)];
        close(&moved(at), &experiment, &expected);
    }
}

/// Surges are counted over 16 ms, decisions over the measured 12 ms.
#[test]
fn under_stable_load_every_surge_is_false() {
    let stable = experiment(&[("output", "{}")]);
    close(&outcome(), &stable, &[("surges_per_s", 1_000.0), ("accuracy_percent", 98.8)]);
    let nobody = Outcome { view: Vec::new(), ..outcome() };
    assert_eq!(value(&nobody, &stable, "accuracy_percent"), None);
}

#[test]
fn named_metrics_are_kept_for_every_label() {
    let idle = Outcome { latency: vec![(0, Histogram::default()), (1, Histogram::default())], ..outcome() };
    for name in ["latency_p99_us", "context_switches_per_operation", "wasted_over_required"] {
        assert_eq!(value(&idle, &experiment(&[]), name), None, "{name}");
    }
    let some = experiment(&[("metrics", "['iops', 'base.latency_p99_us']")]);
    let kept = |name: &str| value(&outcome(), &some, name).is_some();
    assert!(kept("iops") && kept("burst.iops") && kept("base.latency_p99_us") && kept("saturated"));
    assert!(!kept("burst.latency_p99_us") && !kept("system_power_w"));
}

#[test]
fn a_value_over_time_has_its_time_in_milliseconds() {
    let experiment = experiment(&[("output.series", "['cores_awake', 'moves']")]);
    let mut outcome = outcome();
    outcome.series[15].moves = 7;
    close(&outcome, &experiment, &[("cores_awake@0ms", 2.0), ("cores_awake@4ms", 0.5), ("moves@15ms", 7.0)]);
    assert_eq!(value(&outcome, &experiment, "moves@16ms"), None);
}
