//! Results: statistics of each metric of each point over its repeats, as JSON and as a table.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::stored::values::Schema;
use pilotlight_report::table::short;
use pilotlight_report::{Cell, Column, Kind, Table};
use pilotlight_stats::{CONFIDENCE, mean};
use serde::{Deserialize, Serialize};

use super::idle;
use super::journal::Finished;
use crate::displayed::SCOPES;
use crate::metrics::{self, Metric, power::PowerDomains};
use crate::plan::Plan;
use crate::record::Run;
use crate::study::count;
use crate::study::verify::{self, Verdict};
use pilotlight_workloads::mechanism::KNOB as MECHANISM;
use pilotlight_workloads::record::Tool;
use pilotlight_workloads::{Point, Value};

/// The results of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of the folder's layout.
    pub schema: Schema,
    /// The experiment's title.
    pub title: String,
    /// Hash of the plan.
    pub plan_hash: String,
    /// Whether all planned measurements exist.
    pub complete: bool,
    /// Names of the knobs, in order.
    pub knobs: Vec<String>,
    /// The domains that make up SSD, CPU and system.
    pub power_domains: PowerDomains,
    /// The tools of the workload.
    pub tools: Vec<Tool>,
    /// Notes: missing sensors, unknown versions, clock jumps.
    pub notes: Vec<String>,
    /// The reason why the machine was not idle in its baselines: nothing is recommended from such results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_idle: Option<String>,
    /// Metrics that tables and charts show first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics_first: Vec<String>,
    /// All metrics in order.
    pub metrics: Vec<MetricInfo>,
    /// One for each point of the plan.
    pub points: Vec<PointResult>,
}

/// Description of a metric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricInfo {
    /// Its key, which ends in its unit.
    pub key: String,
    /// Its title.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// Whether it is modelled.
    pub modelled: bool,
}

impl MetricInfo {
    /// The key of a metric without its model: `cpu_power_w` of `cpu_modelled_generic_power_w`.
    #[must_use]
    pub fn without_model(&self) -> String {
        if !self.modelled {
            return self.key.clone();
        }
        let profiles = self.title.split_once("modelled (").and_then(|(_, rest)| rest.split_once(')'));
        let profiles = profiles.map_or("", |(profiles, _)| profiles);
        let tidy = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let names: String =
            profiles.split(", ").map(|profile| format!("_{}", profile.chars().map(tidy).collect::<String>())).collect();
        self.key.replacen(&format!("_modelled{names}"), "", 1)
    }
}

/// The results of a point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    /// Its index in the plan.
    pub point: usize,
    /// Its knobs.
    pub knobs: Point,
    /// Number of finished measurements.
    pub repeats: usize,
    /// Errors of failed measurements.
    pub failures: Vec<String>,
    /// Statistics of metrics by key.
    pub values: BTreeMap<String, Spread>,
    /// Reasons for missing values of metrics.
    pub missing: BTreeMap<String, String>,
    /// Number of saturated repeats. A point with any has no values, because they depend on the length of the run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub saturated: usize,
    /// Metrics over time (`METRIC@TIMEms`), for charts only.
    #[serde(skip)]
    pub over_time: BTreeMap<String, Spread>,
    /// Requested and actual completion mechanism, if one was requested. If they differ, the knob has both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<Verdict>,
}

/// Statistics of a metric over the repeats of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of repeats with a value.
    pub n: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Sample standard deviation; `None` for one value.
    pub deviation: Option<f64>,
    /// Lower end of the 95 % interval of the mean (Student's t); `None` for one value.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// The values in the order of repeats.
    pub values: Vec<f64>,
    /// Minimum and maximum of the means over the family of simulated machines, including the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<(f64, f64)>,
    /// The central 95 % range of the means over random constants of the simulated machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<(f64, f64)>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Spread {
    /// Statistics of these values; `None` without values.
    #[must_use]
    pub fn new(values: &[f64]) -> Option<Self> {
        let estimate = mean::mean(values, CONFIDENCE)?;
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (below, above) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self {
            n: values.len(),
            mean: estimate.value,
            median: f64::midpoint(below, above),
            deviation: mean::variance(values).map(f64::sqrt),
            low: Some(estimate.low).filter(|low| low.is_finite()),
            high: Some(estimate.high).filter(|high| high.is_finite()),
            values: values.to_vec(),
            family: None,
            drawn: None,
        })
    }

    /// As text in units of `factor`: the mean, the half-width of its interval, and the range over the family of machines.
    #[must_use]
    pub fn text(&self, factor: f64) -> String {
        let number = |value: f64| short(value / factor);
        let half = self.low.zip(self.high).map(|(low, high)| format!(" ± {}", number((high - low) / 2.0)));
        let family = self.family.filter(|(low, high)| low < high);
        let family = family.map(|(low, high)| format!(" [{} to {}]", number(low), number(high)));
        format!("{}{}{}", number(self.mean), half.unwrap_or_default(), family.unwrap_or_default())
    }
}

/// The suffix of a column and its value.
type Part = (&'static str, fn(&Spread) -> Option<f64>);

/// The columns of a spread; those from [`FIRST_OF_OTHERS`] only if they have values.
const PARTS: [Part; 9] = [
    ("", |spread| Some(spread.mean)),
    ("_median", |spread| Some(spread.median)),
    ("_deviation", |spread| spread.deviation),
    ("_ci95_low", |spread| spread.low),
    ("_ci95_high", |spread| spread.high),
    ("_family_low", |spread| Some(spread.family?.0)),
    ("_family_high", |spread| Some(spread.family?.1)),
    ("_drawn_low", |spread| Some(spread.drawn?.0)),
    ("_drawn_high", |spread| Some(spread.drawn?.1)),
];
/// The first of [`PARTS`] for other machines.
const FIRST_OF_OTHERS: usize = 5;

/// All metrics of a run.
#[must_use]
pub fn metrics_of(run: &Run, finished: &Finished, power_domains: &PowerDomains) -> Vec<Metric> {
    metrics::of_run(run, power_domains, finished.baseline(run.key))
}

impl Results {
    /// The results of all finished measurements.
    #[must_use]
    pub fn new(plan: &Plan, finished: &Finished, power_domains: &PowerDomains, notes: Vec<String>) -> Self {
        let mut results = Self {
            title: plan.title.clone(),
            plan_hash: plan.hash.clone(),
            knobs: plan.knobs.clone(),
            power_domains: power_domains.clone(),
            metrics_first: plan.metrics_first.clone(),
            notes,
            ..Self::default()
        };
        for (point, knobs) in plan.points.iter().enumerate() {
            let result = results.point(point, knobs, finished);
            results.points.push(result);
        }
        results.note_idle(finished);
        results.note_runs(finished);
        results.note_fewer();
        results.note_unknown();
        results
    }

    /// Notes a machine that was not idle, and power that cannot be told from that of the idle machine.
    fn note_idle(&mut self, finished: &Finished) {
        let without_own = finished.baselines.iter().filter(|baseline| !baseline.own_programs);
        self.not_idle = idle::not_idle(without_own.map(|baseline| &baseline.sensed));
        let indistinct = SCOPES.iter().find_map(|scope| idle::indistinct(self, scope));
        let indistinct = indistinct.map(|(about, mean)| {
            let (value, low, high) = (short(mean.value), short(mean.low), short(mean.high));
            format!("{}: {value} W ({low} to {high}) on average, not more than the idle machine varies", about.title)
        });
        self.notes.extend(self.not_idle.iter().cloned().chain(indistinct));
    }

    /// Notes metrics with values in fewer repeats than were measured.
    fn note_fewer(&mut self) {
        let fewer = |point: &PointResult| {
            let mut incomplete = point.values.iter().filter(|(_, spread)| spread.n < point.repeats);
            let (key, spread) = incomplete.next()?;
            let why = point.missing.get(key).map_or("absent in the others", String::as_str);
            let which = point_text(&point.knobs);
            Some(format!("such as {key} at {which}, {} of {}: {why}", spread.n, point.repeats))
        };
        let found: Vec<String> = self.points.iter().filter_map(fewer).collect();
        if let Some(first) = found.first() {
            let (some, all) = (found.len(), self.points.len());
            self.notes.push(format!(
                "at {some} of {all} points some metrics have values in fewer repeats than were measured (columns _n), {first}"
            ));
        }
    }

    /// Notes unknown metrics in the experiment.
    fn note_unknown(&mut self) {
        let known: Vec<&str> = self.metrics.iter().map(|about| about.key.as_str()).collect();
        if known.is_empty() {
            return;
        }
        let unknown = |key: &&String| !known.contains(&key.as_str()) && self.find(key).is_none();
        let note = |key: &String| {
            let nearest = pilotlight_input::file::nearest(key, &known);
            let hint = nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
            format!("metrics: there is no metric {key:?} in the results{hint}")
        };
        let notes: Vec<String> = self.metrics_first.iter().filter(unknown).map(note).collect();
        self.notes.extend(notes);
    }

    fn point(&mut self, point: usize, knobs: &Point, finished: &Finished) -> PointResult {
        let runs: Vec<&Run> = finished.runs.values().filter(|run| run.key.point == point).collect();
        let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut missing = BTreeMap::new();
        for run in &runs {
            for metric in metrics_of(run, finished, &self.power_domains) {
                match &metric.value {
                    Ok(value) => values.entry(metric.key.clone()).or_default().push(*value),
                    Err(why) => drop(missing.insert(metric.key.clone(), why.to_string())),
                }
                self.add_metric(metric);
            }
        }
        let failures = finished.failed.iter().filter(|(key, _)| key.point == point).map(|(_, why)| why.clone());
        let values: BTreeMap<String, Spread> =
            values.into_iter().filter_map(|(key, values)| Some((key, Spread::new(&values)?))).collect();
        missing.retain(|key, _| values.get(key).is_none_or(|spread| spread.n < runs.len()));
        let completion = verdict(&runs);
        let knobs = with_actual_mechanism(knobs, completion.as_ref());
        let (repeats, failures) = (runs.len(), failures.collect());
        PointResult { point, knobs, repeats, failures, values, missing, completion, ..PointResult::default() }
    }

    fn add_metric(&mut self, Metric { key, title, unit, modelled, .. }: Metric) {
        if !self.metrics.iter().any(|about| about.key == key) {
            self.metrics.push(MetricInfo { key, title, unit, modelled });
        }
    }

    fn note_runs(&mut self, finished: &Finished) {
        let mut note = |text: String| {
            if !self.notes.contains(&text) {
                self.notes.push(text);
            }
        };
        for run in finished.runs.values() {
            run.record.warnings.iter().cloned().for_each(&mut note);
            if !run.sensed.jumps.is_empty() {
                let point = point_text(&run.knobs);
                note(format!("a clock jumped or the machine was suspended in a measurement of {point}"));
            }
        }
        let mut tools: Vec<Tool> = Vec::new();
        for run in finished.runs.values().filter(|run| !run.record.tool.name.is_empty()) {
            if !tools.contains(&run.record.tool) {
                tools.push(run.record.tool.clone());
            }
        }
        self.tools = tools;
        for row in verify::summary(self.verdicts()).iter().filter(|row| !row.is_as_requested) {
            self.notes.push(row.to_string());
        }
    }

    /// The verified mechanisms of all points that have one.
    pub fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.points.iter().filter_map(|point| point.completion.as_ref())
    }

    /// The description of a metric.
    #[must_use]
    pub fn metric(&self, key: &str) -> Option<&MetricInfo> {
        self.metrics.iter().find(|about| about.key == key)
    }

    /// The metric with this key, with or without its model; measured before modelled.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&MetricInfo> {
        let fits = |about: &&MetricInfo| self.has(&about.key) && (about.key == key || about.without_model() == key);
        self.metrics.iter().filter(fits).min_by_key(|about| (about.key != key, about.modelled))
    }

    /// Whether a metric has a value at any point.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.points.iter().any(|point| point.values.contains_key(key))
    }

    /// A row for each point: knobs, repeats, and at least six columns for each metric with values.
    #[must_use]
    pub fn table(&self) -> Table {
        let metrics: Vec<&MetricInfo> = self.metrics.iter().filter(|about| self.has(&about.key)).collect();
        let spreads = || self.points.iter().flat_map(|point| point.values.values());
        let is_there =
            |(at, (_, of)): &(usize, Part)| *at < FIRST_OF_OTHERS || spreads().any(|spread| of(spread).is_some());
        let parts: Vec<Part> = PARTS.into_iter().enumerate().filter(is_there).map(|(_, part)| part).collect();
        let mut columns: Vec<Column> = self.knobs.iter().map(|knob| Column::text(knob)).collect();
        columns.push(column("repeats".into(), Kind::Integer));
        for MetricInfo { key, .. } in &metrics {
            columns.extend(parts.iter().map(|(part, _)| column(format!("{key}{part}"), Kind::Number)));
            columns.push(column(format!("{key}_n"), Kind::Integer));
        }
        let row = |point: &PointResult| {
            let knob =
                |name| point.knobs.get(name).map_or(Cell::Nothing, |value: &Value| Cell::text(value.to_string()));
            let mut cells: Vec<Cell> = self.knobs.iter().map(knob).collect();
            cells.push(Cell::Integer(point.repeats as i64));
            for MetricInfo { key, .. } in &metrics {
                let spread = point.values.get(key);
                let number = |(_, of): &Part| spread.and_then(of).map_or(Cell::Nothing, Cell::number);
                cells.extend(parts.iter().map(number));
                cells.push(Cell::Integer(spread.map_or(0, |spread| spread.n as i64)));
            }
            cells
        };
        Table { title: self.title.clone(), rows: self.points.iter().map(row).collect(), columns }
    }
}

/// The verified completion mechanism.
fn verdict(runs: &[&Run]) -> Option<Verdict> {
    let repeats = runs.iter().filter_map(|run| Some((run.completion.as_ref()?, count::counted(run))));
    Verdict::verify(&repeats.collect::<Vec<_>>())
}

/// The knobs, with the actual mechanism in place of the requested one.
fn with_actual_mechanism(knobs: &Point, completion: Option<&Verdict>) -> Point {
    let mut knobs = knobs.clone();
    if let (Some(knob), Some(verdict)) = (knobs.get_mut(MECHANISM), completion) {
        *knob = Value::Word(verdict.label());
    }
    knobs
}

fn column(name: String, kind: Kind) -> Column {
    Column { name, unit: String::new(), kind }
}

/// Knobs as text: `bs=4k depth=8`; empty without any.
pub(crate) fn pairs<'a, V: Display + 'a>(knobs: impl IntoIterator<Item = (&'a String, &'a V)>) -> String {
    knobs.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// A point as text.
pub fn point_text<'a, V: Display + 'a>(knobs: impl IntoIterator<Item = (&'a String, &'a V)>) -> String {
    Some(pairs(knobs)).filter(|text| !text.is_empty()).unwrap_or_else(|| "the only point".into())
}

#[cfg(test)]
mod tests;
