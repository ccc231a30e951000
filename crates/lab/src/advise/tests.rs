//! Synthetic results with a known best value and effect.

use proptest::prelude::*;

use super::*;
use crate::fixtures::{Noise, at, knob, metric_info, results};
use crate::results::summary::Spread;
use pilotlight_workloads::Point;

const METRICS: &[(&str, &str)] = &[
    ("iops", "1/s"),
    ("bytes_per_s", "B/s"),
    ("latency_mean_us", "us"),
    ("latency_p99_us", "us"),
    ("cpu_busy_cores", "cores"),
    ("io_per_j_system", "1/J"),
    ("bytes_per_j_system", "B/J"),
];

/// A machine: `efficiency` is in I/Os per joule, with 2 % noise; latency is proportional to the depth.
fn machine(
    knobs: &[(String, Vec<pilotlight_workloads::Value>)],
    seed: u64,
    efficiency: impl Fn(&Point) -> f64,
) -> ResultSet {
    let mut noise = Noise::new(seed);
    results(knobs, 4, METRICS, |point| {
        let size = pilotlight_input::quantity::storage_bytes(&at(point, "bs")).unwrap_or(4096) as f64;
        let depth: f64 = at(point, "iodepth").parse().unwrap_or(1.0);
        let mut noisy = |value: f64| value * (0.02 * noise.normal()).exp();
        let (rate, latency) = (noisy(1e5), noisy(80.0 * depth));
        let per_joule = noisy(efficiency(point));
        vec![rate, rate * size, latency, 3.0 * latency, noisy(1.0), per_joule, per_joule * size]
    })
}

fn fio() -> Vec<(String, Vec<pilotlight_workloads::Value>)> {
    vec![
        knob("rw", &["randread", "read"]),
        knob("bs", &["4k", "1m"]),
        knob("iodepth", &["1", "8", "32"]),
        knob("machine.scheduler", &["none", "kyber"]),
    ]
}

fn row<'a>(advice: &'a Advice, kind: Kind, variable: &str) -> &'a Outcome {
    let work = advice.works.iter().find(|work| work.kind == kind).unwrap();
    &work.rows.iter().find(|row| row.variable == variable).unwrap().outcome
}

fn best(outcome: &Outcome) -> &Best {
    let Outcome::Best(best) = outcome else { panic!("{outcome:?}") };
    best
}

/// Depths 8 and 32 give twice the I/Os per joule of depth 1; the scheduler has no effect.
fn truth(point: &Point) -> f64 {
    let depth = if at(point, "iodepth") == "1" { 1.0 } else { 2.0 };
    let size = if at(point, "bs") == "4k" { 100.0 } else { 1.0 };
    1_000.0 * depth * size
}

#[test]
fn bytes_are_the_measure_if_operations_are_not_counted() {
    let mut noise = Noise::new(5);
    let result_set = results(&[knob("mode", &["slow", "fast"])], 4, &[("bytes_per_s", "B/s")], |point| {
        let rate = if at(point, "mode") == "fast" { 2e6 } else { 1e6 };
        vec![rate * (0.01 * noise.normal()).exp()]
    });
    let advice = advise(&result_set, &Question::default());
    let [work] = advice.works.as_slice() else { panic!("{advice:?}") };
    assert!(work.about.contains("byte") && work.by.as_ref().unwrap().contains("bytes per second"), "{work:?}");
    assert_eq!(best(row(&advice, Kind::Application, "mode")).values, ["fast"], "{work:?}");
}

#[test]
fn the_true_effect_and_its_cost_are_found() {
    let result_set = machine(&fio(), 1, truth);
    let advice = advise(&result_set, &Question::default());
    let depth = best(row(&advice, Kind::Iops, "I/O depth"));
    let mut values = depth.values.clone();
    values.sort();
    assert_eq!((values, depth.against.as_str()), (vec!["32".to_owned(), "8".to_owned()], "1"));
    assert!((depth.saves_percent.value - 50.0).abs() < 2.0 && depth.saves_percent.contains(50.0), "{depth:?}");
    let expected = if depth.values[0] == "32" { 32.0 } else { 8.0 };
    assert!((depth.latency_mean.unwrap().value / expected - 1.0).abs() < 0.1, "{depth:?}");
    assert!((depth.latency_p99.unwrap().value / expected - 1.0).abs() < 0.1, "{depth:?}");
    assert_eq!(depth.circumstances, 2, "two schedulers; the large size is another kind of work");
    assert!(matches!(row(&advice, Kind::Iops, "scheduler"), Outcome::NoDifference { .. }));
    assert_eq!(best(row(&advice, Kind::Iops, "request size")).values, ["4k"]);
    assert_eq!(*row(&advice, Kind::Iops, "jobs"), Outcome::NotVaried);
    assert!(matches!(row(&advice, Kind::Iops, "mixed reads and writes"), Outcome::NotDerived(_)));
}

#[test]
fn the_measure_of_sequential_work_is_bytes() {
    // 1/100 of the I/Os at 256 times the size
    let advice = advise(&machine(&fio(), 2, truth), &Question::default());
    let size = best(row(&advice, Kind::Throughput, "request size"));
    assert_eq!((size.values.as_slice(), size.against.as_str()), (["1m".to_owned()].as_slice(), "4k"));
    let true_saving = 100.0 * (1.0 - 100.0 / 256.0);
    assert!((size.saves_percent.value - true_saving).abs() < 2.0, "{size:?}");
    assert_eq!(advice.works[1].rows[0].thesis, Some("large, such as 4 MiB"));
}

/// I/Os per joule doubles with the depth in all cases. `above_w`: the load's power above idle; it varies by 1 W.
#[test]
fn nothing_is_recommended_from_a_busy_machine_or_power_within_the_variation_of_the_idle_machine() {
    let metrics = [METRICS, &[("system_power_above_idle_w", "W")]].concat();
    let of = |above_w: f64, not_idle: Option<&str>| {
        let mut noise = Noise::new(3);
        let mut result_set = results(&[knob("iodepth", &["1", "16"])], 5, &metrics, |point| {
            let depth: f64 = at(point, "iodepth").parse().unwrap();
            let mut row = vec![1e5, 4e8, 80.0, 240.0, 1.0, 100.0 * depth, 4e5 * depth];
            row.iter_mut().for_each(|value| *value *= (0.02 * noise.normal()).exp());
            row.push(if depth > 1.0 { above_w } else { 0.0 } + noise.normal());
            row
        });
        result_set.results.not_idle = not_idle.map(str::to_owned);
        advise(&result_set, &Question::default())
    };
    assert_eq!(
        best(row(&of(20.0, None), Kind::Application, "I/O depth")).values,
        ["16"],
        "a light load may be at idle"
    );
    for (above_w, not_idle, expected) in
        [(0.0, None, "power above idle"), (-3.0, None, "power above idle"), (20.0, Some("1.9 of 2 busy"), "not idle")]
    {
        let advice = of(above_w, not_idle);
        let Outcome::InsufficientData(why) = row(&advice, Kind::Application, "I/O depth") else { panic!("{advice:?}") };
        assert!(why.contains(expected), "{why}");
        assert_eq!((advice.tests, advice.warnings), (0, not_idle.map(str::to_owned).into_iter().collect()));
    }
}

/// Reference implementation: the value with the highest mean over all points.
fn naive(result_set: &ResultSet, name: &str, values: &[&str]) -> String {
    let mean = |value: &str| {
        let fits = result_set.results.points.iter().filter(|point| at(&point.knobs, name) == value);
        let logs: Vec<f64> = fits.flat_map(|p| &p.values["io_per_j_system"].values).map(|v| v.ln()).collect();
        logs.iter().sum::<f64>() / logs.len() as f64
    };
    let best = values.iter().max_by(|a, b| mean(a).total_cmp(&mean(b)));
    (*best.unwrap()).to_owned()
}

#[test]
fn the_best_value_is_that_of_the_reference_implementation() {
    let knobs = [knob("rw", &["randread"]), knob("ioengine", &["a", "b", "c"]), knob("iodepth", &["1", "8"])];
    for seed in 0..20 {
        let effect = |point: &Point| match at(point, "ioengine").as_str() {
            "a" => 100.0 + seed as f64,
            "b" => 112.0,
            _ => 104.0,
        };
        let result_set = machine(&knobs, seed, effect);
        let advice = advise(&result_set, &Question::default());
        let found = &best(row(&advice, Kind::Iops, "I/O engine")).values[0];
        assert_eq!(*found, naive(&result_set, "ioengine", &["a", "b", "c"]), "seed {seed}");
    }
}

#[test]
fn exceptions_are_named() {
    // polling is better at the small size only, as in section 5.5 of the thesis
    let knobs = [knob("rw", &["randread"]), knob("bs", &["4k", "8k", "16k"]), knob("hipri", &["false", "true"])];
    let result_set = machine(&knobs, 3, |point| match (at(point, "bs").as_str(), at(point, "hipri").as_str()) {
        ("4k", "true") => 130.0,
        (_, "true") => 60.0,
        _ => 100.0,
    });
    let polling = advise(&result_set, &Question::default());
    let polling = best(row(&polling, Kind::Iops, "interrupts or polling"));
    assert_eq!((polling.values.as_slice(), polling.holds_in), (["false".to_owned()].as_slice(), 2));
    assert_eq!(polling.except, [("bs=4k".to_owned(), "true".to_owned())]);
}

#[test]
fn baselines_and_limits_of_latency() {
    let result_set = machine(&fio(), 4, |point| 10.0 * at(point, "iodepth").parse::<f64>().unwrap());
    let question = Question { baseline: vec![("iodepth".into(), "8".into())], ..Question::default() };
    let advice = advise(&result_set, &question);
    let depth = best(row(&advice, Kind::Iops, "I/O depth"));
    assert_eq!((depth.values[0].as_str(), depth.against.as_str(), depth.is_baseline), ("32", "8", true));
    // p99 of depth 8 is about 1,920 us, of depth 32 7,680
    let question = Question { p99_at_most_us: Some(4_000.0), ..Question::default() };
    assert_eq!(best(row(&advise(&result_set, &question), Kind::Iops, "I/O depth")).values, ["8"]);
    let question = Question { p99_at_most_us: Some(4.0), ..Question::default() };
    assert_eq!(*row(&advise(&result_set, &question), Kind::Iops, "I/O depth"), Outcome::NoneWithinLimit);
}

#[test]
fn only_values_within_the_limit_are_compared() {
    let knobs = [knob("rw", &["randread"]), knob("iodepth", &["1", "8", "32"]), knob("x", &["u", "v"])];
    let result_set = machine(&knobs, 4, |point| 10.0 * at(point, "iodepth").parse::<f64>().unwrap());
    let question = Question { p99_at_most_us: Some(4_000.0), ..Question::default() };
    let advice = advise(&result_set, &question);
    let depth = best(row(&advice, Kind::Iops, "I/O depth"));
    assert_eq!((depth.values.as_slice(), depth.holds_in, depth.circumstances), (["8".to_owned()].as_slice(), 2, 2));
    assert_eq!(depth.except, [], "depth 32 is better but above the limit");
}

/// Removes `key` where a knob has this value.
fn without(mut result_set: ResultSet, key: &str, at_knob: (&str, &str)) -> ResultSet {
    for point in result_set.results.points.iter_mut().filter(|point| at(&point.knobs, at_knob.0) == at_knob.1) {
        point.values.retain(|name, _| !name.contains(key));
    }
    result_set
}

#[test]
fn a_limit_needs_known_latencies() {
    let result_set = without(machine(&fio(), 4, truth), "p99", ("iodepth", "8"));
    let question = Question { p99_at_most_us: Some(4_000.0), ..Question::default() };
    let advice = advise(&result_set, &question);
    let outcome = row(&advice, Kind::Iops, "I/O depth");
    assert!(
        matches!(outcome, Outcome::InsufficientData(why) if why.contains("p99 latency is not known")),
        "{outcome:?}"
    );
}

#[test]
fn incomplete_combinations_are_counted() {
    let knobs = [knob("rw", &["randread"]), knob("iodepth", &["1", "8"]), knob("x", &["u", "v", "w"])];
    let mut result_set = machine(&knobs, 6, truth);
    for point in &mut result_set.results.points {
        if at(&point.knobs, "x") != "u" && at(&point.knobs, "iodepth") == "8" {
            point.values.remove("io_per_j_system");
        }
    }
    let advice = advise(&result_set, &Question::default());
    let row = advice.works[0].rows.iter().find(|row| row.variable == "I/O depth").unwrap();
    assert_eq!((row.left_out, best(&row.outcome).circumstances), (2, 1));
}

#[test]
fn points_of_neither_kind_are_counted() {
    let knobs = [knob("rw", &["randread"]), knob("bs", &["64k"]), knob("iodepth", &["1", "8"])];
    let advice = advise(&machine(&knobs, 6, truth), &Question::default());
    assert!(
        matches!(row(&advice, Kind::Iops, "I/O depth"), Outcome::InsufficientData(why) if why.contains("no point has"))
    );
    assert!(advice.warnings.iter().any(|warning| warning.starts_with("2 of 2 points are neither")), "{advice:?}");
}

#[test]
fn too_few_repeats_recommend_nothing() {
    let question = Question { at_least: 5, ..Question::default() };
    let advice = advise(&machine(&fio(), 5, truth), &question);
    assert!(matches!(row(&advice, Kind::Iops, "I/O depth"), Outcome::InsufficientData(_)));
    assert_eq!(advice.tests, 0);
}

#[test]
fn without_power_the_measure_is_cpu_time() {
    let mut result_set = machine(&fio(), 6, truth);
    let drop = |result_set: &mut ResultSet, key: &str| {
        result_set.results.metrics.retain(|about| !about.key.contains(key));
        result_set.results.points.iter_mut().for_each(|point| point.values.retain(|name, _| !name.contains(key)));
    };
    drop(&mut result_set, "per_j");
    let advice = advise(&result_set, &Question::default());
    assert!(!advice.works[0].is_energy && advice.works[0].by.as_ref().unwrap().contains("CPU time (power is unknown)"));
    assert!(matches!(row(&advice, Kind::Iops, "I/O depth"), Outcome::NoDifference { .. }), "CPU time does not differ");
    drop(&mut result_set, "cpu_busy");
    let advice = advise(&result_set, &Question::default());
    assert!(advice.works[0].by.as_ref().unwrap().contains("mean latency"));
    assert_eq!(best(row(&advice, Kind::Iops, "I/O depth")).values, ["1"]);
    assert!(advice.works[1].by.as_ref().unwrap().contains("bytes per second"));
}

#[test]
fn modelled_power_is_used_only_without_a_measurement() {
    let mut result_set = machine(&fio(), 7, truth);
    let key = "io_per_j_ssd_cpu_modelled_x";
    let modelled = crate::results::summary::MetricInfo { modelled: true, ..metric_info(key, "1/J") };
    result_set
        .results
        .metrics
        .insert(0, crate::results::summary::MetricInfo { title: "t, modelled (x)".into(), ..modelled });
    for point in &mut result_set.results.points {
        let spread = point.values["io_per_j_system"].clone();
        point.values.insert(key.into(), spread);
    }
    assert!(!advise(&result_set, &Question::default()).works[0].modelled);
    let question = Question { scope: Some("ssd_cpu".into()), ..Question::default() };
    assert!(advise(&result_set, &question).works[0].modelled);
}

#[test]
fn without_patterns_there_is_one_kind_of_work() {
    let knobs = [knob("clients", &["1", "8"])];
    let mut noise = Noise::new(1);
    let metrics = [("transaction_per_s", "1/s"), ("transaction_per_j_system", "1/J")];
    let result_set = results(&knobs, 3, &metrics, |point| {
        let factor = if at(point, "clients") == "8" { 3.0 } else { 1.0 };
        vec![100.0 + noise.normal(), factor * (50.0 + noise.normal())]
    });
    let advice = advise(&result_set, &Question::default());
    assert_eq!(best(row(&advice, Kind::Application, "jobs")).values, ["8"]);
}

#[test]
fn the_best_is_compared_with_the_worst() {
    let knobs = [knob("rw", &["randread"]), knob("ioengine", &["good", "bad", "middle"])];
    let effect = |point: &Point| match at(point, "ioengine").as_str() {
        "good" => 300.0,
        "middle" => 200.0,
        _ => 100.0,
    };
    let advice = advise(&machine(&knobs, 2, effect), &Question::default());
    let engine = best(row(&advice, Kind::Iops, "I/O engine"));
    assert_eq!((engine.values.as_slice(), engine.against.as_str()), (["good".to_owned()].as_slice(), "bad"));
}

/// A value above the limit in one of several combinations is above the limit.
#[test]
fn a_limit_applies_to_every_combination() {
    let knobs = [knob("rw", &["randread"]), knob("iodepth", &["1", "8"]), knob("x", &["u", "v"])];
    let mut result_set = machine(&knobs, 4, truth);
    for point in result_set.results.points.iter_mut().filter(|point| at(&point.knobs, "x") == "v") {
        let slow: Vec<f64> = point.values["latency_p99_us"].values.iter().map(|value| value * 10.0).collect();
        point.values.insert("latency_p99_us".into(), Spread::new(&slow).unwrap());
    }
    // p99 of depth 8: 1,920 us with u, ten times that with v
    let question = Question { p99_at_most_us: Some(4_000.0), ..Question::default() };
    let advice = advise(&result_set, &question);
    let depth = row(&advice, Kind::Iops, "I/O depth");
    assert!(!matches!(depth, Outcome::Best(best) if best.values.contains(&"8".to_owned())), "{depth:?}");
}

#[test]
fn zeros_count_as_missing() {
    let mut result_set = machine(&[knob("rw", &["randread"]), knob("iodepth", &["1", "8"])], 4, truth);
    let values = result_set.results.points[0].values.get_mut("io_per_j_system").unwrap();
    values.values[1] = 0.0;
    let advice = advise(&result_set, &Question::default());
    let row = advice.works[0].rows.iter().find(|row| row.variable == "I/O depth").unwrap();
    assert!(matches!(&row.outcome, Outcome::InsufficientData(why) if why.contains("above zero")), "{row:?}");
    assert_eq!((row.left_out, advice.tests), (1, 0));
}

#[test]
fn a_measure_needs_values_at_half_of_the_points() {
    let result_set = machine(&fio(), 4, truth);
    let keep = |result_set: &ResultSet, kept: usize| {
        let mut result_set = result_set.clone();
        let random = |point: &&mut crate::results::summary::PointResult| at(&point.knobs, "rw") == "randread";
        for point in result_set.results.points.iter_mut().filter(random).skip(kept) {
            point.values.retain(|key, _| !key.contains("per_j"));
        }
        advise(&result_set, &Question::default()).works[0].is_energy
    };
    // of twelve random points
    assert!(keep(&result_set, 6) && !keep(&result_set, 5));
}

#[test]
fn a_measured_narrow_scope_precedes_a_modelled_wide_one() {
    let mut result_set = machine(&fio(), 7, truth);
    let about_of = result_set.results.metrics.iter_mut().find(|about| about.key == "io_per_j_system").unwrap();
    about_of.key = "io_per_j_system_modelled_x".into();
    (about_of.title, about_of.modelled) = ("I/Os per joule, system, modelled (x)".into(), true);
    result_set.results.metrics.push(metric_info("io_per_j_ssd", "1/J"));
    for point in &mut result_set.results.points {
        let values = point.values.remove("io_per_j_system").unwrap();
        point.values.insert("io_per_j_system_modelled_x".into(), values.clone());
        point.values.insert("io_per_j_ssd".into(), values);
    }
    let work = &advise(&result_set, &Question::default()).works[0];
    assert_eq!((work.modelled, work.by.as_deref()), (false, Some("io per j ssd")));
}

#[test]
fn small_is_up_to_16_kib_and_large_from_128_kib() {
    let knobs = [knob("rw", &["randread", "read"]), knob("bs", &["4k", "16k", "32k", "64k", "128k", "1m"])];
    let points = |kind| {
        let advice = advise(&machine(&knobs, 1, |_| 10.0), &Question::default());
        advice.works.iter().find(|work| work.kind == kind).unwrap().points
    };
    assert_eq!((points(Kind::Iops), points(Kind::Throughput)), (2, 2));
}

/// The rate of false exceptions is at most the level, for any number of combinations.
#[test]
fn the_rate_of_false_exceptions_is_below_the_level() {
    let names: Vec<String> = (0..20).map(|at| at.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let knobs = [knob("rw", &["randread"]), knob("iodepth", &["1", "8"]), knob("x", &names)];
    // Depth 8 is better in the first half of the combinations; in the others nothing differs.
    let is_first_half = |point: &Point| at(point, "x").parse::<usize>().unwrap() < 10;
    let effect = |point: &Point| if at(point, "iodepth") == "8" && is_first_half(point) { 150.0 } else { 100.0 };
    let excepted = |seed: &u64| {
        let advice = advise(&machine(&knobs, *seed, effect), &Question::default());
        matches!(row(&advice, Kind::Iops, "I/O depth"), Outcome::Best(best) if !best.except.is_empty())
    };
    let share = (0..200).filter(excepted).count() as f64 / 200.0;
    assert!(share < 0.08, "{share}");
}

/// Fraction of runs with a recommendation.
fn recommendation_rate(runs: u64, result_set: impl Fn(u64) -> ResultSet) -> f64 {
    let recommends = |seed: &u64| {
        let advice = advise(&result_set(*seed), &Question::default());
        assert!(advice.tests > 0);
        advice.works.iter().flat_map(|work| &work.rows).any(|row| matches!(row.outcome, Outcome::Best(_)))
    };
    (0..runs).filter(recommends).count() as f64 / runs as f64
}

#[test]
fn the_rate_of_false_recommendations_is_below_the_level() {
    let knobs = [
        knob("rw", &["randread"]),
        knob("iodepth", &["1", "8", "32"]),
        knob("ioengine", &["a", "b"]),
        knob("noise", &["w", "x", "y", "z"]),
    ];
    let share = recommendation_rate(300, |seed| machine(&knobs, seed, |_| 100.0));
    assert!(share < 0.08, "{share}");
}

/// A knob without effect beside one with a large effect.
#[test]
fn knobs_without_effect_are_not_recommended_beside_one_with_an_effect() {
    let knobs = [knob("rw", &["randread"]), knob("iodepth", &["1", "8"]), knob("noise", &["w", "x", "y"])];
    let effect = |point: &Point| if at(point, "iodepth") == "1" { 10.0 } else { 500.0 };
    let wrong = |seed: &u64| {
        let advice = advise(&machine(&knobs, *seed, effect), &Question::default());
        assert_eq!(best(row(&advice, Kind::Iops, "I/O depth")).values, ["8"]);
        matches!(row(&advice, Kind::Iops, "noise"), Outcome::Best(_))
    };
    let share = (0..300).filter(wrong).count() as f64 / 300.0;
    assert!(share < 0.08, "{share}");
}

/// Permuted measurements contain no effect.
#[test]
fn permuted_measurements_give_recommendations_below_the_level() {
    let knobs = [knob("rw", &["randread"]), knob("iodepth", &["1", "8", "32"]), knob("ioengine", &["a", "b"])];
    let permuted = |seed: u64| {
        let mut result_set = machine(&knobs, seed, |_| 100.0);
        let key = "io_per_j_system";
        let all: Vec<f64> =
            result_set.results.points.iter().flat_map(|point| point.values[key].values.clone()).collect();
        let mut order = crate::plan::order(seed, 0, all.len()).into_iter();
        for point in &mut result_set.results.points {
            let drawn: Vec<f64> = order.by_ref().take(4).map(|at| all[at]).collect();
            point.values.insert(key.into(), Spread::new(&drawn).unwrap());
        }
        result_set
    };
    let share = recommendation_rate(300, permuted);
    assert!(share < 0.08, "{share}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For any noise: p is consistent with the outcome, and the recommended value has the highest mean.
    #[test]
    fn outcome_and_p_are_consistent(
        means in prop::collection::vec(900.0..1_300.0_f64, 3),
        deviations in prop::collection::vec(0.001..0.5_f64, 3),
        seed in 0..1_000_u64,
    ) {
        let engines = ["a", "b", "c"];
        let mut noise = Noise::new(seed);
        let knobs = [knob("rw", &["randread"]), knob("ioengine", &engines)];
        let result_set = results(&knobs, 4, &[METRICS[0], METRICS[5]], |point| {
            let engine = engines.iter().position(|name| *name == at(point, "ioengine")).unwrap();
            vec![1e5, means[engine] * (deviations[engine] * noise.normal()).exp()]
        });
        let advice = advise(&result_set, &Question::default());
        match row(&advice, Kind::Iops, "I/O engine") {
            Outcome::NoDifference { values, p } => {
                prop_assert!(*p >= LEVEL, "{p}");
                prop_assert_eq!(&values[0], &naive(&result_set, "ioengine", &engines));
            }
            Outcome::Best(best) => {
                prop_assert!(best.p < LEVEL && best.saves_percent.value > 0.0);
                prop_assert_eq!(&best.values[0], &naive(&result_set, "ioengine", &engines));
                prop_assert!(!best.values.contains(&best.against));
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn the_result_is_independent_of_the_order_of_points(seed in 0..1_000_u64) {
        let result_set = machine(&fio(), seed, truth);
        let mut other = result_set.clone();
        let order = crate::plan::order(seed, 1, result_set.results.points.len());
        other.results.points = order.into_iter().map(|at| result_set.results.points[at].clone()).collect();
        let (one, two) = (advise(&result_set, &Question::default()), advise(&other, &Question::default()));
        for (a, b) in one.works.iter().zip(&two.works).flat_map(|(a, b)| a.rows.iter().zip(&b.rows)) {
            match (&a.outcome, &b.outcome) {
                (Outcome::Best(a), Outcome::Best(b)) => {
                    prop_assert_eq!((&a.values, &a.against, a.holds_in), (&b.values, &b.against, b.holds_in));
                    prop_assert!((a.saves_percent.low - b.saves_percent.low).abs() < 1e-6);
                }
                (Outcome::NoDifference { values: a, .. }, Outcome::NoDifference { values: b, .. }) => prop_assert_eq!(a, b),
                (a, b) => prop_assert_eq!(a, b),
            }
        }
    }
}
