//! Converts values of runs (`values.csv.zst`) to results: of a simulated server, or committed results of an experiment.
//!
//! The policy is a parameter. Means and 95 % intervals are over the repeats of the default variant of the machine; counted events have exact
//! binomial intervals. Other variants give the range of their means. A point with a saturated run has no values.

use std::collections::BTreeMap;

use crate::stored::metric::{self, SATURATED};
use crate::stored::values::{Provenance, Results as Numbers, Run, RunKey};
use pilotlight_stats::{Estimate, mean};
use pilotlight_workloads::{Point, Value};

use super::environment::Environment;
use super::summary::{MetricInfo, PointResult, Results, Spread};
use crate::metrics::power::PowerDomains;
use crate::simulated::experiment::Bench;
use crate::simulated::experiment::schema::ChartKind;
use crate::simulated::metrics::{COUNTED, of_events};
use crate::simulated::variant::{DEFAULT, MEMBER, ORACLE};

/// Name of the policy as a parameter.
pub(crate) const POLICY: &str = "policy";
/// Prefix of variants with random constants.
const DRAWS: &str = "lhs:";

/// Runs by variant.
type Variants<'a> = BTreeMap<&'a str, Vec<&'a Run>>;

/// The results of these values, sorted by point and policy.
#[must_use]
pub fn summary(values: &Numbers) -> Results {
    let cells = by_cell(values);
    let title = values.about.experiment.clone();
    collected(Results { title, ..Results::default() }, values, cells.into_iter())
}

/// The results in the order of the experiment, with its title and the metrics of its charts first.
#[must_use]
pub fn summary_of(bench: &Bench, values: &Numbers) -> Results {
    let mut cells = by_cell(values);
    let names = bench
        .points
        .iter()
        .flat_map(|point| point.experiment.policies.iter().map(|policy| (point.name.as_str(), policy.label.as_str())));
    let cells = names.filter_map(|name| Some((name, cells.remove(&name)?)));
    let experiment = &bench.experiment;
    let title = format!("{}: {}", experiment.figure, experiment.title);
    let drawn = experiment.output.charts.iter().filter(|chart| chart.kind != ChartKind::Series);
    let mut metrics_first: Vec<String> = Vec::new();
    for chart in drawn.filter(|chart| !chart.metric.is_empty()) {
        if !metrics_first.contains(&chart.metric) {
            metrics_first.push(chart.metric.clone());
        }
    }
    collected(Results { title, metrics_first, ..Results::default() }, values, cells)
}

fn by_cell(values: &Numbers) -> BTreeMap<(&str, &str), Variants<'_>> {
    let mut cells: BTreeMap<_, Variants<'_>> = BTreeMap::new();
    for (RunKey { point, variant, policy, .. }, run) in &values.runs {
        let variants = cells.entry((point.as_str(), policy.as_str())).or_default();
        variants.entry(variant.as_str()).or_default().push(run);
    }
    cells
}

fn collected<'a>(
    results: Results,
    values: &'a Numbers,
    cells: impl Iterator<Item = ((&'a str, &'a str), Variants<'a>)>,
) -> Results {
    let origin = &values.about;
    let (plan_hash, power_domains, notes) = (origin.hash.clone(), power_domains(origin), notes(values));
    let mut results = Results { plan_hash, complete: true, power_domains, notes, ..results };
    for ((point, policy), variants) in cells.filter(|(_, variants)| variants.contains_key(DEFAULT)) {
        for (name, _) in pairs(point) {
            if !results.knobs.iter().any(|known| known == name) {
                results.knobs.push(name.to_owned());
            }
        }
        let point = point_result(results.points.len(), knobs(point, policy), &variants);
        for value in variants[DEFAULT].iter().copied().chain(bounds(&variants)).flat_map(|run| &run.values) {
            let is_tabled = value.metric != SATURATED && !value.metric.contains('@');
            if is_tabled && results.metric(&value.metric).is_none() {
                results.metrics.push(metric_info(&value.metric, &value.unit));
            }
        }
        results.points.push(point);
    }
    results.knobs.push(POLICY.to_owned());
    results
}

/// The environment of these values.
#[must_use]
pub fn environment(origin: &Provenance) -> Environment {
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

/// The domains of a simulation, which differ from those of any sensor.
fn power_domains(origin: &Provenance) -> PowerDomains {
    let all = if origin.is_measured() { Vec::new() } else { vec![format!("simulated/{}", origin.profile)] };
    PowerDomains { ssd: all.clone(), cpu: all.clone(), system: all }
}

/// The note of simulated results.
pub(crate) fn nothing_measured(Provenance { profile, hash, .. }: &Provenance) -> String {
    format!("all values are simulated with the profile {profile} ({hash}), including power")
}

fn notes(values: &Numbers) -> Vec<String> {
    let mut notes = Vec::new();
    if !values.about.is_measured() {
        notes.push(nothing_measured(&values.about));
    }
    let is_left_out = |variant: &str| {
        variant != DEFAULT && variant != ORACLE && !variant.starts_with(MEMBER) && !variant.starts_with(DRAWS)
    };
    let others = values.cells.keys().filter(|cell| is_left_out(&cell.variant)).count();
    if others > 0 {
        notes.push(format!("{others} cells of other variants of the machine are omitted"));
    }
    notes
}

/// Names and values in `rate=5;window=64`.
fn pairs(point: &str) -> impl Iterator<Item = (&str, &str)> {
    point.split(';').filter_map(|pair| pair.split_once('='))
}

/// The knobs of `rate=5;window=64` and a policy.
pub(crate) fn knobs(point: &str, policy: &str) -> Point {
    let value = |text: &str| text.parse().map_or_else(|_| Value::Word(text.to_owned()), Value::Integer);
    let mut knobs: Point = pairs(point).map(|(name, text)| (name.to_owned(), value(text))).collect();
    knobs.insert(POLICY.to_owned(), Value::Word(policy.to_owned()));
    knobs
}

fn metric_info(key: &str, unit: &str) -> MetricInfo {
    let label = key.rsplit_once('.').map(|(label, _)| format!("{label}: ")).unwrap_or_default();
    let title = metric::find(key).filter(|metric| metric.name == metric::bare(key));
    let title = title.map_or_else(|| metric::title(metric::bare(key)), |metric| metric.meaning.replace('`', ""));
    let unit = if unit == "1" { "" } else { unit };
    MetricInfo { key: key.to_owned(), title: format!("{label}{title}"), unit: unit.to_owned(), modelled: false }
}

fn point_result(point: usize, knobs: Point, variants: &Variants<'_>) -> PointResult {
    let runs = &variants[DEFAULT];
    let saturated = runs.iter().filter(|run| run.saturated()).count();
    let mut result = PointResult { point, knobs, repeats: runs.len(), saturated, ..PointResult::default() };
    let metrics = runs.iter().flat_map(|run| &run.values).map(|value| &value.metric);
    let metrics = metrics.filter(|metric| *metric != SATURATED);
    if saturated > 0 {
        let why = format!("saturated in {saturated} of {} repeats", runs.len());
        result.missing = metrics.map(|metric| (metric.clone(), why.clone())).collect();
        result.failures = vec![why];
        return result;
    }
    for metric in metrics {
        let values = if metric.contains('@') { &mut result.over_time } else { &mut result.values };
        if !values.contains_key(metric) {
            values.extend(spread(variants, metric).map(|spread| (metric.clone(), spread)));
        }
    }
    for value in bounds(variants).flat_map(|run| &run.values).filter(|value| value.metric != SATURATED) {
        result.values.extend(Spread::new(&[value.value]).map(|spread| (value.metric.clone(), spread)));
    }
    result
}

/// The run with the bounds of the oracle.
fn bounds<'a>(variants: &Variants<'a>) -> impl Iterator<Item = &'a Run> + use<'a> {
    variants.get(ORACLE).and_then(|runs| runs.first()).copied().into_iter()
}

fn column(runs: &[&Run], metric: &str) -> Vec<f64> {
    runs.iter().filter_map(|run| run.get(metric)).collect()
}

fn spread(variants: &Variants<'_>, metric: &str) -> Option<Spread> {
    let runs = &variants[DEFAULT];
    let mut spread = Spread::new(&column(runs, metric))?;
    if let Some(Estimate { value, low, high, .. }) = share(runs, metric) {
        (spread.mean, spread.low, spread.high) = (value, Some(low), Some(high));
    }
    let members = levels(variants, MEMBER, metric);
    if let (Some(least), Some(most)) = (members.first(), members.last()) {
        spread.family = Some((least.min(spread.mean), most.max(spread.mean)));
    }
    let draws = levels(variants, DRAWS, metric);
    if let Some(last) = draws.len().checked_sub(1) {
        let at = |share: f64| draws[(share * last as f64).round() as usize];
        spread.drawn = Some((at(0.025), at(0.975)));
    }
    Some(spread)
}

/// The exact interval of counted events; `None` for other metrics.
fn share(runs: &[&Run], metric: &str) -> Option<Estimate> {
    let [counted, hits, events] = COUNTED;
    let sum = |metric: &str| column(runs, metric).iter().sum::<f64>();
    (metric == counted).then(|| of_events(sum(hits), sum(events)))?
}

/// Means of the variants with this prefix, in ascending order, without saturated ones.
fn levels(variants: &Variants<'_>, prefix: &str, metric: &str) -> Vec<f64> {
    let chosen =
        variants.iter().filter(|(name, runs)| name.starts_with(prefix) && !runs.iter().any(|run| run.saturated()));
    let mut levels: Vec<f64> = chosen.filter_map(|(_, runs)| mean::average(&column(runs, metric))).collect();
    levels.sort_unstable_by(f64::total_cmp);
    levels
}

#[cfg(test)]
mod tests {
    use crate::stored::values::{RunKey, Value as Number};

    use super::*;

    fn values_of(rows: &[(&str, &str, &str, u32, f64, f64)]) -> Numbers {
        let mut numbers = Numbers {
            about: Provenance { experiment: "e".into(), profile: "p".into(), hash: "h".into(), ..Default::default() },
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

    fn result<'a>(results: &'a Results, policy: &str) -> &'a PointResult {
        results.points.iter().find(|point| point.knobs[POLICY] == Value::Word(policy.into())).unwrap()
    }

    #[test]
    fn the_policy_is_a_parameter_and_saturated_points_have_no_values() {
        let results = summary(&values_of(&[
            ("rate=5", "default", "static", 0, 10.0, 0.0),
            ("rate=5", "default", "static", 1, 14.0, 0.0),
            ("rate=5", "leave-out:x", "static", 0, 99.0, 0.0),
            ("rate=5", "default", "sandman", 0, 7.0, 1.0),
            ("rate=5", "default", "sandman", 1, 7.0, 0.0),
        ]));
        assert_eq!(results.knobs, ["rate", "policy"]);
        assert_eq!(results.metrics.iter().map(|about| about.key.as_str()).collect::<Vec<_>>(), ["system_power_w"]);
        let (polling, sandman) = (result(&results, "static"), result(&results, "sandman"));
        assert_eq!((polling.values["system_power_w"].family, polling.repeats), (None, 2));
        assert_eq!(polling.knobs["rate"], Value::Integer(5));
        assert!(polling.over_time.contains_key("iops@1ms"));
        assert!(sandman.values.is_empty() && sandman.failures[0].contains("1 of 2"), "{sandman:?}");
        assert_eq!((sandman.repeats, sandman.saturated), (2, 1));
    }

    #[test]
    fn repeats_are_averaged_and_other_machines_give_a_range() {
        let results = summary(&values_of(&[
            ("-", "default", "static", 0, 10.0, 0.0),
            ("-", "default", "static", 1, 14.0, 0.0),
            ("-", "family:f", "static", 0, 20.0, 0.0),
            ("-", "family:full", "static", 0, 90.0, 1.0),
            ("-", "lhs:1", "static", 0, 9.0, 0.0),
            ("-", "lhs:2", "static", 0, 8.0, 0.0),
        ]));
        let power = &result(&results, "static").values["system_power_w"];
        // Two values, 10 and 14: s = 2.828, half-width 12.706 x 2.828 / sqrt(2).
        assert!((power.mean - 12.0).abs() < 1e-9 && (power.high.unwrap() - 37.41).abs() < 0.02, "{power:?}");
        assert_eq!((power.family, power.drawn), (Some((12.0, 20.0)), Some((8.0, 9.0))));
        assert_eq!(power.text(1.0), "12.00 ± 25.41 [12.00 to 20.00]");
        let columns = results.table().columns;
        for name in ["system_power_w_family_low", "system_power_w_drawn_high", "system_power_w_n"] {
            assert!(columns.iter().any(|column| column.name == name), "{name}");
        }
    }

    #[test]
    fn counted_events_have_an_exact_interval() {
        let run = |phases: Option<f64>| {
            let events = [("phases_detected", Some(5.0)), ("accuracy_percent", Some(100.0)), ("phases", phases)];
            let value = |(metric, value): (&str, Option<f64>)| {
                Some(Number { metric: metric.into(), unit: "1".into(), value: value? })
            };
            Run { seed: 1, values: events.into_iter().filter_map(value).collect() }
        };
        let accuracy = |phases: Option<f64>| {
            let mut values = values_of(&[("-", "default", "a", 0, 0.0, 0.0), ("-", "default", "a", 1, 0.0, 0.0)]);
            values.runs.values_mut().for_each(|one| *one = run(phases));
            let Spread { mean, low, high, .. } = summary(&values).points[0].values["accuracy_percent"].clone();
            (mean, low.unwrap(), high.unwrap())
        };
        let (mean, low, high) = accuracy(Some(5.0));
        // 10 of 10: lower end 0.025^(1/10)
        assert!((low - 69.15).abs() < 0.01 && (mean, high) == (100.0, 100.0), "{low}");
        assert_eq!(accuracy(None).1, 100.0, "other metrics have an interval over repeats");
    }
}
