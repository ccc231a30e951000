//! Results of a simulated server as those of any experiment: its numbers (`values.csv.zst`) over parameters and policy.
//!
//! The policy is a parameter like the others. Only the default variant of the machine is taken: others are one machine each, and not
//! repeats. A point with a run that could not keep up has no values, because what grows with the length of a run is no average.

use std::collections::BTreeMap;

use pilotlight_results::metric::{self, SATURATED};
use pilotlight_results::values::{About as Origin, Results as Numbers, Run};
use pilotlight_workloads::{Point, Value};

use super::environment::Environment;
use super::summary::{About, PointResult, Results, Spread};
use crate::metrics::power::Taken;

/// What results call the policy, as a parameter.
const POLICY: &str = "policy";
/// The variant of the machine in which nothing is changed.
const DEFAULT: &str = "default";

/// The summary of these numbers.
#[must_use]
pub fn summary(numbers: &Numbers) -> Results {
    let origin = &numbers.about;
    let mut runs: BTreeMap<(&str, &str), Vec<&Run>> = BTreeMap::new();
    for (key, run) in numbers.runs.iter().filter(|(key, _)| key.variant == DEFAULT) {
        runs.entry((&key.point, &key.policy)).or_default().push(run);
    }
    let mut results = Results {
        title: origin.experiment.clone(),
        plan_hash: origin.hash.clone(),
        complete: true,
        taken: taken(origin),
        notes: notes(numbers),
        ..Results::default()
    };
    for (at, ((point, policy), runs)) in runs.into_iter().enumerate() {
        let knobs = knobs(point, policy);
        for name in knobs.keys().filter(|name| name.as_str() != POLICY) {
            if !results.knobs.contains(name) {
                results.knobs.push(name.clone());
            }
        }
        for value in runs.iter().flat_map(|run| &run.values) {
            let shown = value.metric != SATURATED && !value.metric.contains('@');
            if shown && !results.metrics.iter().any(|about| about.key == value.metric) {
                results.metrics.push(about(&value.metric, &value.unit));
            }
        }
        results.points.push(point_result(at, knobs, &runs));
    }
    results.knobs.push(POLICY.to_owned());
    results
}

/// The machine, as far as the numbers say it.
#[must_use]
pub fn environment(origin: &Origin) -> Environment {
    let of =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    if origin.is_measured() {
        return Environment { host: origin.host.clone(), ..Environment::default() };
    }
    Environment {
        host: format!("simulated: {}", origin.profile),
        cpu: of(&[("model", "simulated"), ("profile", &origin.profile), ("profile_hash", &origin.hash)]),
        kernel: of(&[("release", "simulated")]),
        ..Environment::default()
    }
}

/// Each group is of what was simulated, and so of something else than any sensor.
fn taken(origin: &Origin) -> Taken {
    let all = if origin.is_measured() { Vec::new() } else { vec![format!("simulated/{}", origin.profile)] };
    Taken { ssd: all.clone(), cpu: all.clone(), system: all }
}

fn notes(numbers: &Numbers) -> Vec<String> {
    let Origin { profile, hash, .. } = &numbers.about;
    let mut notes = Vec::new();
    if !numbers.about.is_measured() {
        notes.push(format!(
            "nothing was measured: everything is simulated with the profile {profile} ({hash}), power included"
        ));
    }
    let others = numbers.cells.keys().filter(|cell| cell.variant != DEFAULT).count();
    if others > 0 {
        notes.push(format!("{others} cells of other variants of the machine are left out"));
    }
    notes
}

/// `rate=5;window=64` and the policy.
fn knobs(point: &str, policy: &str) -> Point {
    let pairs = point.split(';').filter_map(|pair| pair.split_once('='));
    let value = |text: &str| text.parse().map_or_else(|_| Value::Word(text.to_owned()), Value::Integer);
    let mut knobs: Point = pairs.map(|(name, text)| (name.to_owned(), value(text))).collect();
    knobs.insert(POLICY.to_owned(), Value::Word(policy.to_owned()));
    knobs
}

fn about(key: &str, unit: &str) -> About {
    let label = key.rsplit_once('.').map(|(label, _)| format!("{label}: ")).unwrap_or_default();
    let title = metric::find(key).filter(|metric| metric.name == metric::bare(key));
    let title = title.map_or_else(|| metric::words(metric::bare(key)), |metric| metric.what.replace('`', ""));
    let unit = if unit == "1" { "" } else { unit };
    About { key: key.to_owned(), title: format!("{label}{title}"), unit: unit.to_owned(), modelled: false }
}

fn point_result(point: usize, knobs: Point, runs: &[&Run]) -> PointResult {
    let full = runs.iter().filter(|run| run.saturated()).count();
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for value in runs.iter().flat_map(|run| &run.values) {
        if value.metric != SATURATED && !value.metric.contains('@') {
            all.entry(value.metric.clone()).or_default().push(value.value);
        }
    }
    let mut result = PointResult { point, knobs, repeats: runs.len(), ..PointResult::default() };
    if full == 0 {
        result.values = all.into_iter().filter_map(|(key, values)| Some((key, Spread::of(&values)?))).collect();
    } else {
        let why = format!("could not keep up in {full} of {} repeats", runs.len());
        result.missing = all.into_keys().map(|key| (key, why.clone())).collect();
        result.failures = vec![why];
    }
    result
}

#[cfg(test)]
mod tests {
    use pilotlight_results::values::{RunKey, Value as Number};

    use super::*;

    fn numbers(rows: &[(&str, &str, &str, u32, f64, f64)]) -> Numbers {
        let mut numbers = Numbers {
            about: Origin { experiment: "e".into(), profile: "p".into(), hash: "h".into(), ..Origin::default() },
            ..Numbers::default()
        };
        for (point, variant, policy, replication, watts, full) in rows {
            let key = RunKey {
                point: (*point).into(),
                variant: (*variant).into(),
                policy: (*policy).into(),
                replication: *replication,
            };
            let value =
                |metric: &str, value| Number { metric: metric.into(), unit: metric::unit(metric).into(), value };
            let values = vec![value("system_power_w", *watts), value("iops@1ms", 1.0), value(SATURATED, *full)];
            numbers.runs.insert(key, Run { seed: 1, values });
        }
        numbers
    }

    #[test]
    fn the_policy_is_a_parameter_and_what_is_saturated_has_no_value() {
        let results = summary(&numbers(&[
            ("rate=5", "default", "static", 0, 10.0, 0.0),
            ("rate=5", "default", "static", 1, 14.0, 0.0),
            ("rate=5", "family:x", "static", 0, 99.0, 0.0),
            ("rate=5", "default", "sandman", 0, 7.0, 1.0),
        ]));
        assert_eq!(results.knobs, ["rate", "policy"]);
        assert_eq!(results.metrics.iter().map(|about| about.key.as_str()).collect::<Vec<_>>(), ["system_power_w"]);
        let [sandman, polling] = &results.points[..] else { panic!("{results:?}") };
        assert_eq!((polling.values["system_power_w"].mean, polling.repeats), (12.0, 2));
        assert_eq!(polling.knobs["rate"], Value::Integer(5));
        assert!(sandman.values.is_empty() && sandman.failures[0].contains("1 of 1"), "{sandman:?}");
    }
}
