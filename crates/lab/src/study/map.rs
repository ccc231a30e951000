//! The most efficient value of a knob by two other knobs (Figure 3 of the polling paper), for any knob.
//!
//! A *cell* is a combination of two other varied knobs, such as request size and jobs; further knobs give one map for each combination. The
//! *margin* is the difference of the two best means. *Rule* (section 3.4 of the paper), with Welch's t-test, which does not assume equal variances:
//! a cell with p above 0.05 is a tie. Cells are tested individually; the number of winners after Holm's correction is reported too. Points whose
//! actual mechanism differs from the requested one are left out. Values with a single measurement are not tested.

use std::fmt;

use pilotlight_stats::compare::{holm, welch};
use pilotlight_stats::{CONFIDENCE, mean::average};
use serde::Serialize;

use crate::displayed::SCOPES;
use crate::result_set::ResultSet;
use crate::results::Results;
use crate::results::summary::PointResult;
use pilotlight_workloads::mechanism::KNOB;

/// Significance level of a cell.
pub const LEVEL: f64 = 0.05;

/// A measure of efficiency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Bytes per joule.
    Energy,
    /// Bytes per second of CPU time of the whole machine.
    CpuTime,
    /// Mean latency.
    Latency,
}

/// Options of a map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// The knob. Default: the completion mechanism.
    pub knob: Option<String>,
    /// The measure. Default: energy if power is known, otherwise CPU time and latency separately.
    pub by: Option<Measure>,
    /// Scope of energy: `system`, `ssd_cpu`, `ssd` or `cpu`. Default: the widest measured one.
    pub scope: Option<String>,
}

/// A map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Map {
    /// The compared knob.
    pub knob: String,
    /// The measure.
    pub by: Measure,
    /// Title of the measure.
    pub words: String,
    /// The metric's key.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Whether it is modelled.
    pub modelled: bool,
    /// The knob of the rows with its values; `None` if no other knob varies.
    pub down: Option<(String, Vec<String>)>,
    /// The knob of the columns with its values.
    pub across: Option<(String, Vec<String>)>,
    /// Values of the remaining varied knobs.
    pub rest: String,
    /// The cells by row.
    pub cells: Vec<Cell>,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Value of the knob of the rows.
    pub down: String,
    /// Value of the knob of the columns.
    pub across: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The value with the best mean.
    pub best: Option<String>,
    /// The value with the second best mean.
    pub next: Option<String>,
    /// Difference of the two best means, in the metric's unit.
    pub margin: Option<f64>,
    /// The margin in percent of the second best mean.
    pub margin_percent: Option<f64>,
    /// Welch's p of the two best values.
    pub p: Option<f64>,
    /// p corrected for all cells of the map.
    pub p_holm: Option<f64>,
    /// All compared values, the best first, with mean and number of repeats.
    pub means: Vec<(String, f64, usize)>,
}

/// The outcome of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The best value is significantly better.
    Wins,
    /// The two best values do not differ significantly.
    Tie,
    /// A single measurement or no variation: not testable.
    Untested,
    /// Only one value has measurements.
    Alone,
    /// No value has measurements.
    Nothing,
}

/// Reasons why there is no map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMap {
    /// The knob is unknown or not varied.
    #[error("--map {name}: no such knob was varied (varied: {known})")]
    Knob {
        /// The requested knob.
        name: String,
        /// The varied knobs.
        known: String,
    },
    /// No measure has values.
    #[error("no measure of efficiency is known: neither power nor CPU time nor latency{0}")]
    Metric(String),
}

/// The maps of an experiment.
///
/// # Errors
/// If there are none, with the reason.
pub fn maps(result_set: &ResultSet, question: &Question) -> Result<Vec<Map>, NoMap> {
    let knob = question.knob.clone().unwrap_or_else(|| KNOB.to_owned());
    let results = &result_set.results;
    let varied = varied(results);
    if !varied.iter().any(|(name, _)| *name == knob) {
        let known: Vec<&str> = varied.iter().map(|(name, _)| name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(NoMap::Knob { name: knob, known });
    }
    let metrics = metrics(results, question);
    if metrics.is_empty() {
        let scope = question.scope.as_ref().map(|scope| format!(" (--scope {scope})")).unwrap_or_default();
        return Err(NoMap::Metric(scope));
    }
    let others: Vec<Knob> = varied.into_iter().filter(|(name, _)| *name != knob).collect();
    Ok(metrics.iter().flat_map(|metric| of_metric(results, &knob, metric, &others)).collect())
}

/// A knob with its values.
type Knob = (String, Vec<String>);

/// The varied knobs with their requested values, in order.
fn varied(results: &Results) -> Vec<Knob> {
    let values = |knob: &String| {
        let mut values: Vec<String> = Vec::new();
        for value in results.points.iter().filter_map(|point| value_of(point, knob)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        (knob.clone(), values)
    };
    results.knobs.iter().map(values).filter(|(_, values)| values.len() > 1).collect()
}

/// The value of a knob; of the mechanism the requested one.
fn value_of(point: &PointResult, knob: &str) -> Option<String> {
    let requested = point.completion.as_ref().filter(|_| knob == KNOB).map(|verdict| verdict.requested.clone());
    requested.or_else(|| point.knobs.get(knob).map(ToString::to_string))
}

/// A metric as measure of efficiency.
struct Metric {
    by: Measure,
    key: String,
    words: String,
    unit: String,
    modelled: bool,
}

fn metrics(results: &Results, question: &Question) -> Vec<Metric> {
    let energy = || energy(results, question.scope.as_deref());
    let metric = |by, key: &str, words: &str| {
        let about = results.metric(key).filter(|about| results.has(&about.key))?;
        Some(Metric { by, key: key.into(), words: words.into(), unit: about.unit.clone(), modelled: false })
    };
    let cpu = || metric(Measure::CpuTime, "bytes_per_cpu_s", "bytes per second of CPU time of the whole machine");
    let latency = || metric(Measure::Latency, "latency_mean_us", "mean latency");
    match question.by {
        Some(Measure::Energy) => energy().into_iter().collect(),
        Some(Measure::CpuTime) => cpu().into_iter().collect(),
        Some(Measure::Latency) => latency().into_iter().collect(),
        None => match energy() {
            Some(energy) => vec![energy],
            None => [cpu(), latency()].into_iter().flatten().collect(),
        },
    }
}

/// Bytes per joule of the widest scope: measured before modelled.
fn energy(results: &Results, scope: Option<&str>) -> Option<Metric> {
    let scopes = SCOPES.into_iter().filter(|name| scope.is_none_or(|scope| scope == *name));
    let abouts: Vec<_> = scopes.filter_map(|name| results.find(&format!("bytes_per_j_{name}"))).collect();
    let about = abouts.iter().find(|about| !about.modelled).or(abouts.first())?;
    let (words, unit) = (about.title.clone(), about.unit.clone());
    Some(Metric { by: Measure::Energy, key: about.key.clone(), words, unit, modelled: about.modelled })
}

fn of_metric(results: &Results, knob: &str, metric: &Metric, others: &[Knob]) -> Vec<Map> {
    let (down, across) = (others.first(), others.get(1));
    let rest: Vec<&Knob> = others.iter().skip(2).collect();
    let others = |point: &PointResult| {
        let pairs = rest.iter().filter_map(|(name, _)| Some(format!("{name}={}", value_of(point, name)?)));
        pairs.collect::<Vec<_>>().join(" ")
    };
    let mut combinations: Vec<String> = Vec::new();
    for combination in results.points.iter().map(others) {
        if !combinations.contains(&combination) {
            combinations.push(combination);
        }
    }
    let map = |rest: String| {
        let points: Vec<&PointResult> = results.points.iter().filter(|point| others(point) == rest).collect();
        Map {
            knob: knob.to_owned(),
            by: metric.by,
            words: metric.words.clone(),
            metric: metric.key.clone(),
            unit: metric.unit.clone(),
            modelled: metric.modelled,
            cells: cells(&points, knob, metric, down, across),
            down: down.cloned(),
            across: across.cloned(),
            rest,
        }
    };
    combinations.into_iter().map(map).collect()
}

fn cells(
    points: &[&PointResult],
    knob: &str,
    metric: &Metric,
    down: Option<&Knob>,
    across: Option<&Knob>,
) -> Vec<Cell> {
    let values = |of: Option<&Knob>| of.map_or_else(|| vec![String::new()], |(_, values)| values.clone());
    let is_at = |point: &PointResult, of: Option<&Knob>, value: &str| {
        of.is_none_or(|(name, _)| value_of(point, name).as_deref() == Some(value))
    };
    let mut cells = Vec::new();
    for row in values(down) {
        for column in values(across) {
            let here: Vec<&PointResult> = points
                .iter()
                .copied()
                .filter(|point| is_at(point, down, &row) && is_at(point, across, &column))
                .collect();
            cells.push(Cell { down: row.clone(), across: column, ..cell(&here, knob, metric) });
        }
    }
    correct(&mut cells);
    cells
}

fn cell(points: &[&PointResult], knob: &str, metric: &Metric) -> Cell {
    // Points whose actual mechanism differs from the requested one are left out.
    let verified =
        points.iter().filter(|point| knob != KNOB || point.completion.as_ref().is_none_or(|v| v.is_as_requested()));
    let mut found: Vec<(String, &[f64])> = verified
        .filter_map(|point| Some((value_of(point, knob)?, point.values.get(&metric.key)?.values.as_slice())))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    let mean = |values: &[f64]| average(values).unwrap_or(f64::NAN);
    let better = if metric.by == Measure::Latency { -1.0 } else { 1.0 };
    found.sort_by(|(_, a), (_, b)| (better * mean(b)).total_cmp(&(better * mean(a))));
    let means = found.iter().map(|(name, values)| (name.clone(), mean(values), values.len())).collect();
    let name = |at: usize| found.get(at).map(|(name, _)| name.clone());
    let mut cell = Cell {
        down: String::new(),
        across: String::new(),
        outcome: if found.is_empty() { Outcome::Nothing } else { Outcome::Alone },
        best: name(0),
        next: name(1),
        margin: None,
        margin_percent: None,
        p: None,
        p_holm: None,
        means,
    };
    if let [(_, first), (_, second), ..] = found.as_slice() {
        let test = welch(first, second, CONFIDENCE);
        let (first, second) = (mean(first), mean(second));
        cell.margin = Some((first - second).abs());
        cell.margin_percent = Some(100.0 * (first - second).abs() / second);
        cell.p = test.map(|test| test.p);
        cell.outcome = match cell.p {
            None => Outcome::Untested,
            Some(p) if p > LEVEL => Outcome::Tie,
            Some(_) => Outcome::Wins,
        };
    }
    cell
}

fn correct(cells: &mut [Cell]) {
    let p: Vec<f64> = cells.iter().filter_map(|cell| cell.p).collect();
    let tested = cells.iter_mut().filter(|cell| cell.p.is_some());
    tested.zip(holm(&p)).for_each(|(cell, corrected)| cell.p_holm = Some(corrected));
}

/// The winner and its margin, or the outcome.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let best = self.best.as_deref().unwrap_or_default();
        let percent = self.margin_percent.map(|percent| format!("{percent:.1} %")).unwrap_or_default();
        match self.outcome {
            Outcome::Wins => write!(f, "{best} {percent}"),
            Outcome::Tie => f.write_str("tie"),
            Outcome::Untested => write!(f, "{best}? {percent}"),
            Outcome::Alone => write!(f, "only {best}"),
            Outcome::Nothing => f.write_str("-"),
        }
    }
}

impl Map {
    /// The cell at a row and a column.
    #[must_use]
    pub fn at(&self, down: &str, across: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.down == down && cell.across == across)
    }

    /// Names of rows and columns; one empty name without a knob.
    #[must_use]
    pub fn sides(&self) -> (Vec<String>, Vec<String>) {
        let values = |of: &Option<Knob>| of.as_ref().map_or_else(|| vec![String::new()], |(_, values)| values.clone());
        (values(&self.down), values(&self.across))
    }

    /// Title: the knob, rows, columns, remaining knobs and measure.
    #[must_use]
    pub fn title(&self) -> String {
        let name = |of: &Option<Knob>| of.as_ref().map(|(name, _)| name.clone());
        let sides: Vec<String> = [name(&self.down), name(&self.across)].into_iter().flatten().collect();
        let over = if sides.is_empty() { String::new() } else { format!(" by {}", sides.join(" and ")) };
        let rest = if self.rest.is_empty() { String::new() } else { format!(", {}", self.rest) };
        format!("most efficient {}{over}{rest}; measure: {} ({})", self.knob, self.words, self.unit)
    }

    /// Number of cells by winner and outcome, as text.
    #[must_use]
    pub fn tally(&self) -> String {
        let mut wins: Vec<(String, usize)> = Vec::new();
        for best in self.cells.iter().filter(|cell| cell.outcome == Outcome::Wins).filter_map(|cell| cell.best.clone())
        {
            match wins.iter_mut().find(|(name, _)| *name == best) {
                Some((_, count)) => *count += 1,
                None => wins.push((best, 1)),
            }
        }
        wins.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut words: Vec<String> = wins.iter().map(|(name, count)| format!("{name} wins {count}")).collect();
        for (outcome, what) in [
            (Outcome::Tie, "tie"),
            (Outcome::Untested, "not testable (too few or constant repeats)"),
            (Outcome::Alone, "with a single value"),
            (Outcome::Nothing, "without a value"),
        ] {
            let count = self.cells.iter().filter(|cell| cell.outcome == outcome).count();
            words.extend((count > 0).then(|| format!("{count} {what}")));
        }
        format!("of {} cells {}", self.cells.len(), words.join(", "))
    }

    /// Number of winners, and of those significant after correction for all cells.
    #[must_use]
    pub fn winners(&self) -> (usize, usize) {
        let wins = || self.cells.iter().filter(|cell| cell.outcome == Outcome::Wins);
        (wins().count(), wins().filter(|cell| cell.p_holm.is_some_and(|p| p <= LEVEL)).count())
    }
}
