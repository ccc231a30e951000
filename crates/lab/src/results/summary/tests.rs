//! Statistics of points, and notes on missing values.

use super::*;

#[test]
fn a_spread_matches_a_manual_calculation() {
    // mean 3, s = sqrt(2.5), t(4) = 2.7764: half width 1.9633
    let spread = Spread::new(&[5.0, 1.0, 2.0, 4.0, 3.0]).unwrap();
    assert_eq!((spread.n, spread.mean, spread.median), (5, 3.0, 3.0));
    assert!((spread.deviation.unwrap() - 2.5_f64.sqrt()).abs() < 1e-12);
    assert!((spread.high.unwrap() - 4.9633).abs() < 1e-3 && (spread.low.unwrap() - 1.0367).abs() < 1e-3);
    assert_eq!(Spread::new(&[2.0, 4.0]).unwrap().median, 3.0);
}

/// Two repeats of a point; the second has no value of the SSD.
fn half_measured() -> Results {
    use crate::plan::Key;
    use crate::record::{DomainEnergy, Sensed};
    use pilotlight_sensors::energy::Window;
    let window = Window { from_ns: 0, to_ns: 1_000_000_000 };
    let domain = |uj| DomainEnergy {
        name: "nvme/nvme0".into(),
        part: pilotlight_sensors::Part::Drive("nvme0".into()),
        origin: pilotlight_sensors::Origin::Measured,
        uj,
    };
    let run = |repeat, uj| Run {
        key: Key { point: 0, repeat },
        knobs: Point::new(),
        began_wall_ns: 0,
        span: window,
        window,
        record: pilotlight_workloads::record::Record::default(),
        sensed: Sensed { energies: vec![domain(uj)], ..Sensed::default() },
        completion: None,
    };
    let runs = [run(0, Ok(5_000_000)), run(1, Err("a gap of 3 s".into()))];
    let finished = Finished { runs: runs.map(|run| (run.key, run)).into(), ..Finished::default() };
    let power_domains = PowerDomains::from_domains(&[domain(Ok(0))], None);
    let metrics_first = vec!["ssd_power_w".to_owned(), "ssd_power".to_owned()];
    let plan = Plan {
        title: "t".into(),
        knobs: Vec::new(),
        points: vec![Point::new()],
        repeats: (2, 2),
        seed: 1,
        metrics_first,
        ..Plan::default()
    };
    Results::new(&plan, &finished, &power_domains, Vec::new())
}

#[test]
fn a_mean_of_fewer_repeats_is_noted_with_the_reason() {
    let results = half_measured();
    let point = &results.points[0];
    assert_eq!((point.repeats, point.values["ssd_power_w"].n, point.values["ssd_power_w"].mean), (2, 1, 5.0));
    assert!(point.missing["ssd_power_w"].contains("a gap of 3 s"));
    let note = results.notes.iter().find(|note| note.contains("fewer repeats")).unwrap();
    assert!(note.contains("1 of 1 points") && note.ends_with("1 of 2: a gap of 3 s"), "{note}");
}

#[test]
fn unknown_metrics_are_noted() {
    let notes = half_measured().notes;
    let found: Vec<&String> = notes.iter().filter(|note| note.starts_with("metrics: ")).collect();
    assert_eq!(found.len(), 1, "{notes:?}");
    assert!(found[0].contains("did you mean ssd_power_w?"), "{found:?}");
}

#[test]
fn results_of_another_version_are_refused() {
    let text = serde_json::to_string(&half_measured()).unwrap();
    assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), half_measured());
    let refused = |text: String| serde_json::from_str::<Results>(&text).unwrap_err().to_string();
    let other = refused(text.replace("\"schema\":2", "\"schema\":3"));
    assert!(other.contains("schema version 3, this program reads 2"), "{other}");
    assert!(refused(text.replace("\"schema\":2,", "")).contains("missing field `schema`"));
}

#[test]
fn one_repeat_has_no_interval() {
    let spread = Spread::new(&[7.0]).unwrap();
    assert_eq!((spread.deviation, spread.low, spread.high), (None, None, None));
    assert_eq!(Spread::new(&[]), None);
}

/// One run of each of two points; in the second a clock jumped and a repeat failed.
#[test]
fn errors_and_clock_jumps_name_their_point() {
    use crate::plan::Key;
    use crate::record::Sensed;
    use pilotlight_sensors::clock::Jump;
    use pilotlight_sensors::energy::Window;
    let window = Window { from_ns: 0, to_ns: 1 };
    let point = |a| Point::from([("a".to_owned(), Value::Integer(a))]);
    let run = |at: usize, jumps| Run {
        key: Key { point: at, repeat: 0 },
        knobs: point(at as i64),
        began_wall_ns: 0,
        span: window,
        window,
        record: pilotlight_workloads::record::Record::default(),
        sensed: Sensed { jumps, ..Sensed::default() },
        completion: None,
    };
    let jump = Jump { from_ns: 0, to_ns: 1, wall_ns: 1, asleep_ns: 0 };
    let runs = [run(0, Vec::new()), run(1, vec![jump])];
    let finished = Finished {
        runs: runs.map(|run| (run.key, run)).into(),
        failed: [(Key { point: 1, repeat: 1 }, "no such drive".to_owned())].into(),
        ..Finished::default()
    };
    let (knobs, points) = (vec!["a".to_owned()], vec![point(0), point(1)]);
    let plan = Plan { knobs, points, repeats: (2, 2), ..Plan::default() };
    let results = Results::new(&plan, &finished, &PowerDomains::default(), Vec::new());
    let failures: Vec<usize> = results.points.iter().map(|point| point.failures.len()).collect();
    assert_eq!(failures, [0, 1]);
    let jumped: Vec<&String> = results.notes.iter().filter(|note| note.contains("jumped")).collect();
    assert!(jumped.len() == 1 && jumped[0].ends_with("a=1"), "{:?}", results.notes);
}

#[test]
fn the_model_is_removed_from_the_key() {
    let about = |key: &str, title: &str, modelled| MetricInfo {
        key: key.into(),
        title: title.into(),
        unit: String::new(),
        modelled,
    };
    let plain = |key, title, modelled| about(key, title, modelled).without_model();
    assert_eq!(plain("cpu_modelled_generic_power_w", "power, CPU, modelled (generic)", true), "cpu_power_w");
    let both = "I/Os per joule, SSD + CPU, modelled (a-b, c), above idle";
    assert_eq!(plain("io_per_j_ssd_cpu_modelled_a_b_c_above_idle", both, true), "io_per_j_ssd_cpu_above_idle");
    assert_eq!(plain("cpu_modelled_x", "an extra of that name", false), "cpu_modelled_x");
}
