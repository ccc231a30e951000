//! Writes the values of all runs in the common format (`crate::stored::values`).
//!
//! The mechanism, scheduler or engine is the policy; the other varied knobs are the point. Of a simulated machine only the metrics of the
//! experiment are kept, without the name of the model. Of a real machine all are kept.

use crate::stored::values::{self, Cell, Fingerprints, Provenance, RunKey, Value};
use pilotlight_workloads::Point;

use super::folder::Folder;
use super::journal::Finished;
use super::{FolderError, summary};
use crate::metrics::{Metric, power::PowerDomains, tidy};
use crate::plan::Plan;

/// Knobs that are the policy; the first that is varied.
const POLICIES: [&str; 3] = ["mechanism", "machine.scheduler", "ioengine"];
/// The only variant.
const DEFAULT: &str = "default";

/// Writes the values; no file without a finished run.
///
/// # Errors
/// If the file cannot be written.
pub fn write(
    folder: &Folder,
    about: &Provenance,
    cells: Fingerprints,
    (plan, finished, power_domains): (&Plan, &Finished, &PowerDomains),
) -> Result<(), FolderError> {
    let mut results = values::Results { about: about.clone(), cells, ..values::Results::default() };
    for run in finished.runs.values() {
        let Cell { point, variant, policy } = cell(plan, &run.knobs, about);
        let key = RunKey { point, variant, policy, replication: run.key.repeat };
        let values = numbers(plan, &summary::metrics_of(run, finished, power_domains), about);
        results.runs.insert(key, values::Run { seed: plan.seed_of(run.key), values });
    }
    Ok(values::write(&folder.values(), &results)?)
}

/// The cell of a point.
#[must_use]
pub fn cell(plan: &Plan, knobs: &Point, about: &Provenance) -> Cell {
    let knob = POLICIES.iter().copied().find(|knob| varies(plan, knob));
    let otherwise = || if about.is_measured() { "measured".to_owned() } else { about.profile.clone() };
    let policy = knob.and_then(|knob| knobs.get(knob)).map_or_else(otherwise, |value| plain(&value.to_string()));
    Cell { point: point(plan, knobs, knob), variant: DEFAULT.to_owned(), policy }
}

fn numbers(plan: &Plan, metrics: &[Metric], about: &Provenance) -> Vec<Value> {
    let model = format!("_modelled_{}", tidy(&about.profile));
    let number = |metric: &Metric| {
        let name = if about.is_measured() { plain(&metric.key) } else { metric.key.replace(&model, "") };
        let is_kept = about.is_measured() || plan.metrics_first.is_empty() || plan.metrics_first.contains(&name);
        let unit = if metric.unit.is_empty() { "1" } else { &metric.unit };
        let value = values::nine_digits(*metric.value.as_ref().ok()?);
        is_kept.then(|| Value { metric: name, unit: unit.to_owned(), value })
    };
    let mut numbers: Vec<Value> = Vec::new();
    for number in metrics.iter().filter_map(number) {
        // A metric of a command can have the name of another; the first counts, because a repeated name would start a new run.
        if !numbers.iter().any(|known| known.metric == number.metric) {
            numbers.push(number);
        }
    }
    numbers
}

fn varies(plan: &Plan, knob: &str) -> bool {
    let first = plan.points.first().and_then(|point| point.get(knob));
    plan.points.iter().any(|point| point.get(knob) != first)
}

fn point(plan: &Plan, knobs: &Point, policy: Option<&str>) -> String {
    let is_varied = |(name, _): &(&String, _)| Some(name.as_str()) != policy && varies(plan, name);
    let pair = |(name, value): (&String, &pilotlight_workloads::Value)| {
        format!("{}={}", name.strip_prefix("machine.").unwrap_or(name), plain(&value.to_string()))
    };
    let pairs: Vec<String> = knobs.iter().filter(is_varied).map(pair).collect();
    if pairs.is_empty() { "-".into() } else { pairs.join(";") }
}

/// Replaces separators of fields, points and values.
fn plain(value: &str) -> String {
    value.replace([',', ';', '='], " ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn values_are_equal_after_a_round_trip() {
        let metric = |key: &str, value| Metric {
            key: key.into(),
            title: String::new(),
            unit: String::new(),
            modelled: false,
            value: Ok(value),
        };
        let about = Provenance { experiment: "e".into(), host: "h".into(), ..Provenance::default() };
        // Metrics of a command can have any name.
        let metrics = [metric("bytes_per_s", 1.0), metric("iops", 2.0), metric("a,b_count", 3.0), metric("iops", 4.0)];
        let cell = Cell { point: "-".into(), variant: DEFAULT.into(), policy: "measured".into() };
        let key =
            RunKey { point: cell.point.clone(), variant: cell.variant.clone(), policy: cell.policy, replication: 0 };
        let run = values::Run { seed: 1, values: numbers(&Plan::default(), &metrics, &about) };
        let results = values::Results { about, runs: BTreeMap::from([(key, run)]), ..values::Results::default() };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(values::FILE);
        values::write(&path, &results).unwrap();
        let again = values::read_whole(&path).unwrap().unwrap();
        assert_eq!(again, results);
        let run = again.runs.values().next().unwrap();
        assert_eq!(["bytes_per_s", "iops", "a b_count"].map(|name| run.get(name)), [Some(1.0), Some(2.0), Some(3.0)]);
    }
}
