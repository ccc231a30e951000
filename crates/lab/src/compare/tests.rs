//! Synthetic results with known differences.

use super::*;
use crate::fixtures::{Noise, knob, results};
use crate::results::environment::Environment;

const RATE: &[(&str, &str)] = &[("iops", "1/s")];

/// R's own data `sleep`, as repeats of one point.
fn sleep(values: [f64; 10]) -> ResultSet {
    let mut values = values.into_iter();
    results(&[], 10, RATE, |_| vec![values.next().unwrap()])
}

#[test]
fn a_known_example() {
    let first = sleep([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]);
    let second = sleep([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]);
    let comparison = compare(&first, &second, &Question::default()).unwrap();
    let [pair] = comparison.pairs.as_slice() else { panic!("{comparison:?}") };
    // output of R's t.test, second minus first
    assert!((pair.p.unwrap() - 0.07939).abs() < 1e-5, "{pair:?}");
    assert!((pair.difference.unwrap().low + 0.205_483).abs() < 1e-4, "{pair:?}");
    assert_eq!((pair.verdict, pair.point.as_str(), comparison.tests), (Verdict::NotShown, "the only point", 1));
    assert_eq!((pair.a.n, pair.b.n), (10, 10));
}

/// Points with one metric, distributed around `mean` of the point's number.
fn many(seed: u64, points: usize, mean: impl Fn(usize) -> f64) -> ResultSet {
    let mut noise = Noise::new(seed);
    let names: Vec<String> = (0..points).map(|at| at.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let knobs = [knob("k", &names)];
    results(&knobs, 4, RATE, |point| vec![mean(point["k"].to_string().parse().unwrap()) + noise.normal()])
}

fn share(runs: u64, holds: impl Fn(u64) -> bool) -> f64 {
    (0..runs).filter(|&seed| holds(seed)).count() as f64 / runs as f64
}

#[test]
fn the_rate_of_false_differences_is_below_the_level() {
    let any = |seed: u64| {
        let (a, b) = (many(2 * seed, 20, |_| 100.0), many(2 * seed + 1, 20, |_| 100.0));
        let comparison = compare(&a, &b, &Question::default()).unwrap();
        assert_eq!(comparison.tests, 20);
        comparison.pairs.iter().any(|pair| pair.verdict.is_difference())
    };
    let level = share(400, any);
    assert!(level < 0.08, "{level}");
}

#[test]
fn true_differences_are_found_and_no_others() {
    let (a, b) = (many(1, 6, |_| 100.0), many(2, 6, |at| if at < 3 { 120.0 } else { 100.0 }));
    let verdicts = |a, b| -> Vec<Verdict> {
        compare(a, b, &Question::default()).unwrap().pairs.iter().map(|pair| pair.verdict).collect()
    };
    assert_eq!(verdicts(&a, &b)[..3], [Verdict::Higher; 3]);
    assert_eq!(verdicts(&b, &a)[..3], [Verdict::Lower; 3]);
    assert_eq!(verdicts(&a, &b)[3..], [Verdict::NotShown; 3]);
}

#[test]
fn exchanging_both_sides_only_exchanges_signs() {
    let (a, b) = (many(1, 4, |at| 10.0 + at as f64), many(2, 4, |at| 12.0 + at as f64));
    let both = [compare(&a, &b, &Question::default()), compare(&b, &a, &Question::default())].map(Result::unwrap);
    for (there, back) in both[0].pairs.iter().zip(&both[1].pairs) {
        assert!((there.p_holm.unwrap() - back.p_holm.unwrap()).abs() < 1e-12);
        assert!((there.difference.unwrap().low + back.difference.unwrap().high).abs() < 1e-9);
        assert!((there.ratio.unwrap().low * back.ratio.unwrap().high - 1.0).abs() < 1e-6, "{there:?} {back:?}");
        assert!((there.hedges_g.unwrap() + back.hedges_g.unwrap()).abs() < 1e-9);
    }
}

#[test]
fn equivalence_needs_a_test() {
    let within = Question { margin: Some(0.10), ..Question::default() };
    let near = compare(&many(1, 1, |_| 100.0), &many(2, 1, |_| 100.0), &within).unwrap();
    assert_eq!(near.pairs[0].verdict, Verdict::Equivalent);
    let tight = Question { margin: Some(0.001), ..Question::default() };
    let open = compare(&many(1, 1, |_| 100.0), &many(2, 1, |_| 100.0), &tight).unwrap();
    assert_eq!((open.pairs[0].verdict, open.pairs[0].within), (Verdict::NotShown, Some(false)));
    let both = compare(&many(1, 1, |_| 100.0), &many(2, 1, |_| 106.0), &within).unwrap();
    assert_eq!((both.pairs[0].verdict, both.pairs[0].within), (Verdict::Higher, Some(true)));
    // At the margin the rate of false equivalence is below the level.
    let claimed = |seed: u64| {
        let (a, b) = (many(2 * seed, 1, |_| 100.0), many(2 * seed + 1, 1, |_| 101.0));
        let question = Question { margin: Some(0.01), ..Question::default() };
        compare(&a, &b, &question).unwrap().pairs[0].within == Some(true)
    };
    assert!(share(400, claimed) < 0.08);
}

#[test]
fn a_single_repeat_or_constant_repeats_give_no_test() {
    let once = |value: f64| results(&[], 1, RATE, |_| vec![value]);
    let comparison = compare(&once(1.0), &once(9.0), &Question::default()).unwrap();
    assert_eq!((comparison.pairs[0].verdict, comparison.tests), (Verdict::OneRepeat, 0));
    assert!(comparison.warnings.iter().any(|warning| warning.contains("repeats = 3")));
    let flat = |value: f64| results(&[], 3, RATE, |_| vec![value]);
    let comparison = compare(&flat(1.0), &flat(9.0), &Question::default()).unwrap();
    assert_eq!(comparison.pairs[0].verdict, Verdict::NoSpread);
}

fn modelled(mut result_set: ResultSet, profile: &str) -> ResultSet {
    let key = format!("cpu_modelled_{profile}_power_w");
    let about = &mut result_set.results.metrics[0];
    (about.key, about.title, about.modelled) = (key.clone(), format!("power, CPU, modelled ({profile})"), true);
    for point in &mut result_set.results.points {
        let spread = point.values.remove("cpu_power_w").unwrap();
        point.values.insert(key.clone(), spread);
    }
    result_set
}

#[test]
fn models_are_compared_with_measurements_only_on_request() {
    let watts = |seed| {
        let mut noise = Noise::new(seed);
        results(&[], 3, &[("cpu_power_w", "W")], |_| vec![50.0 + noise.normal()])
    };
    let (measured, model) = (watts(1), modelled(watts(2), "generic"));
    let refused = compare(&measured, &model, &Question::default()).unwrap_err();
    assert!(matches!(&refused, CompareError::Mixed(why) if why.contains("cpu_power_w is measured in A")), "{refused}");
    assert!(matches!(compare(&model, &modelled(watts(3), "other"), &Question::default()), Err(CompareError::Mixed(_))));
    let mixed = compare(&measured, &model, &Question { mixed: true, ..Question::default() }).unwrap();
    assert!(!mixed.pairs[0].a.modelled && mixed.pairs[0].b.modelled);
    let alike = compare(&model, &modelled(watts(3), "generic"), &Question::default()).unwrap();
    assert_eq!(alike.pairs[0].metric, "cpu_power_w");
}

fn two_knobs() -> ResultSet {
    let knobs = [knob("engine", &["libaio", "io_uring"]), knob("depth", &["1", "8"])];
    let mut noise = Noise::new(5);
    results(&knobs, 3, RATE, |point| {
        let fast = if point["engine"].to_string() == "io_uring" { 50.0 } else { 0.0 };
        vec![100.0 + fast + noise.normal()]
    })
}

fn chosen(text: &[(&str, &str)]) -> Vec<(String, String)> {
    text.iter().map(|(knob, value)| ((*knob).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn two_settings_of_one_folder_are_matched_over_the_other_knobs() {
    let result_set = two_knobs();
    let point = chosen(&[("engine", "libaio")]);
    let question = Question { point: point.clone(), versus: chosen(&[("engine", "io_uring")]), ..Question::default() };
    let comparison = compare(&result_set, &result_set, &question).unwrap();
    let words: Vec<&str> = comparison.pairs.iter().map(|pair| pair.point.as_str()).collect();
    assert_eq!(words, ["depth=1", "depth=8"]);
    assert!(comparison.pairs.iter().all(|pair| pair.verdict == Verdict::Higher), "{comparison:?}");
    assert!(comparison.b.contains("engine=io_uring"));
    assert_eq!(compare(&result_set, &result_set, &Question::default()), Err(CompareError::Same));
    let only = Question { versus: chosen(&[("engine", "io_uring")]), ..Question::default() };
    let refused = compare(&result_set, &result_set, &only).unwrap_err();
    assert!(refused.to_string().contains("--point engine=VALUE"), "{refused}");
    let absent = Question { point: chosen(&[("engine", "spdk")]), ..question };
    let refused = compare(&result_set, &result_set, &absent).unwrap_err().to_string();
    assert!(refused.contains("engine=spdk") && refused.contains("libaio | io_uring"), "{refused}");
}

#[test]
fn a_knob_varied_on_one_side_only_must_be_selected() {
    let one = results(&[knob("depth", &["1", "8"])], 3, RATE, {
        let mut noise = Noise::new(9);
        move |_| vec![100.0 + noise.normal()]
    });
    let refused = compare(&one, &two_knobs(), &Question::default()).unwrap_err();
    assert!(refused.to_string().contains("B varies engine"), "{refused}");
    let question = Question { versus: chosen(&[("engine", "libaio")]), ..Question::default() };
    let comparison = compare(&one, &two_knobs(), &question).unwrap();
    assert_eq!(comparison.pairs.len(), 2);
}

#[test]
fn differences_of_the_machines_are_listed() {
    let with = |governor: &str, result_set: ResultSet| {
        let frequency = [("governor".to_owned(), governor.to_owned())].into();
        let environment = Some(Environment { frequency, at_unix_s: 7, ..Environment::default() });
        let experiment = Some(format!("title = '{governor}'\nduration = '1s'").parse().unwrap());
        ResultSet { environment, experiment, ..result_set }
    };
    let (a, b) = (with("performance", many(1, 1, |_| 1.0)), with("powersave", many(2, 1, |_| 1.0)));
    let comparison = compare(&a, &b, &Question::default()).unwrap();
    let expected = [("frequency.governor".to_owned(), "performance".to_owned(), "powersave".to_owned())];
    assert_eq!(comparison.differing, expected, "titles and times are ignored");
    assert!(comparison.warnings.iter().any(|warning| warning.contains("frequency.governor")));
}

#[test]
fn points_without_a_value_on_one_side_are_counted() {
    let (a, mut b) = (many(1, 5, |_| 1.0), many(2, 5, |_| 1.0));
    for point in b.results.points.iter_mut().take(2) {
        point.values.remove("iops");
    }
    let comparison = compare(&a, &b, &Question::default()).unwrap();
    assert_eq!((comparison.pairs.len(), comparison.tests), (3, 3));
    let expected = |side: &str| format!("iops has no value in {side} at 2 of 5 points, which are not compared");
    assert_eq!(comparison.warnings[0], expected("B"));
    assert_eq!(compare(&b, &a, &Question::default()).unwrap().warnings[0], expected("A"));
}

#[test]
fn bytes_are_compared_if_operations_are_not_counted() {
    let only_bytes = |seed: u64| {
        let mut noise = Noise::new(seed);
        let metrics = [("bytes_per_s", "B/s"), ("bytes_per_j_system", "B/J"), ("cpu_busy_cores", "cores")];
        results(&[], 3, &metrics, |_| [1e6, 1e4, 1.0].map(|mean| mean + noise.normal()).to_vec())
    };
    let keys = |a: &ResultSet, b: &ResultSet| {
        let comparison = compare(a, b, &Question::default()).unwrap();
        comparison.pairs.into_iter().map(|pair| pair.metric).collect::<Vec<_>>()
    };
    let (a, b) = (only_bytes(1), only_bytes(2));
    assert_eq!(keys(&a, &b), ["bytes_per_s", "bytes_per_j_system", "cpu_busy_cores"]);
    let with = |seed: u64| {
        let mut noise = Noise::new(seed);
        results(&[], 3, &[("bytes_per_s", "B/s"), ("iops", "1/s")], |_| vec![1e6 + noise.normal(), 1e3])
    };
    assert_eq!(keys(&with(1), &with(2)), ["iops"], "otherwise bytes are redundant");
}

#[test]
fn without_usual_metrics_all_common_ones_are_compared() {
    let command = |keys: [&'static str; 2], seed| {
        let mut noise = Noise::new(seed);
        results(&[], 3, &keys.map(|key| (key, "count")), |_| vec![10.0 + noise.normal(), 5.0 + noise.normal()])
    };
    let (a, b) = (command(["x_count", "y_count"], 1), command(["y_count", "z_count"], 2));
    let comparison = compare(&a, &b, &Question::default()).unwrap();
    assert_eq!(comparison.pairs.iter().map(|pair| pair.metric.as_str()).collect::<Vec<_>>(), ["y_count"]);
    let other = command(["u_count", "v_count"], 3);
    assert_eq!(compare(&a, &other, &Question::default()), Err(CompareError::NoneInCommon));
}

#[test]
fn the_error_names_a_knob_without_common_values_and_the_options() {
    let of = |engine: &str| results(&[knob("engine", &[engine]), knob("depth", &["1", "8"])], 3, RATE, |_| vec![1.0]);
    let (a, b) = (of("libaio"), of("io_uring"));
    let refused = compare(&a, &b, &Question::default()).unwrap_err().to_string();
    assert!(refused.ends_with("--point engine=VALUE --versus engine=VALUE"), "{refused}");
    let question = Question {
        point: chosen(&[("engine", "libaio")]),
        versus: chosen(&[("engine", "io_uring")]),
        ..Question::default()
    };
    assert_eq!(compare(&a, &b, &question).unwrap().pairs.len(), 2);
}

#[test]
fn a_margin_applies_to_negative_means() {
    let below = |seed, mean: f64| {
        let mut noise = Noise::new(seed);
        results(&[], 5, RATE, |_| vec![mean + 0.5 * noise.normal()])
    };
    let question = Question { margin: Some(0.10), ..Question::default() };
    let within = |a: f64, b: f64| compare(&below(1, a), &below(2, b), &question).unwrap().pairs[0].within;
    assert_eq!([within(-100.0, -103.0), within(-100.0, -97.0)], [Some(true); 2]);
    assert_eq!([within(-100.0, -115.0), within(-100.0, -85.0)], [Some(false); 2]);
}

#[test]
fn tests_of_equivalence_are_corrected_among_themselves() {
    let question = Question { margin: Some(0.02), ..Question::default() };
    let (a, b) = (many(1, 8, |_| 100.0), many(2, 8, |_| 100.3));
    let together = compare(&a, &b, &question).unwrap();
    let alone = |at: usize| {
        let point = vec![("k".to_owned(), at.to_string())];
        compare(&a, &b, &Question { point, ..question.clone() }).unwrap().pairs[0].p_equivalent.unwrap()
    };
    let mut all: Vec<(f64, f64)> =
        together.pairs.iter().enumerate().map(|(at, pair)| (alone(at), pair.p_equivalent.unwrap())).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut least = 0.0_f64;
    for (place, (p, holm)) in all.iter().enumerate() {
        least = least.max((p * (8 - place) as f64).min(1.0));
        assert!((holm - least).abs() < 1e-12, "{all:?}");
    }
}

#[test]
fn warnings_name_the_side() {
    let (a, mut b) = (many(1, 3, |_| 1.0), many(2, 5, |_| 1.0));
    b.results.complete = false;
    let warnings = |a: &ResultSet, b: &ResultSet| compare(a, b, &Question::default()).unwrap().warnings;
    let (there, back) = (warnings(&a, &b), warnings(&b, &a));
    assert!(there.contains(&"2 of 5 points of B have no counterpart".to_owned()), "{there:?}");
    assert!(back.contains(&"2 of 5 points of A have no counterpart".to_owned()), "{back:?}");
    assert!(there.iter().any(|warning| warning.starts_with("B is incomplete")), "{there:?}");
    assert!(back.iter().any(|warning| warning.starts_with("A is incomplete")), "{back:?}");
    assert!(!there.iter().any(|warning| warning.starts_with("A is incomplete")), "{there:?}");
}

#[test]
fn the_error_for_an_unknown_metric_names_the_nearest() {
    let question = Question { metrics: vec!["iopz".into()], ..Question::default() };
    let refused = compare(&many(1, 1, |_| 1.0), &many(2, 1, |_| 1.0), &question).unwrap_err().to_string();
    assert!(refused.contains("did you mean iops"), "{refused}");
}
