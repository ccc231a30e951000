//! Which value of a knob is the most efficient, by two other knobs: the polling paper's Figure 3, for any knob.
//!
//! *Words.* The knob is what is compared, such as the mechanism of completion; a *cell* is one standing of two other knobs that vary,
//! such as request size and jobs; a third one makes a map for each of its values. The *margin* is by how much the best mean lies above the
//! next one. *Rule.* That of the paper (section 3.4), with Welch's t-test instead of Student's, which supposes equal variances: where p is above
//! 0.05 the cell is a tie. Each cell is tested by itself; how many of the winners stand when all cells are corrected together (Holm) is
//! told beside. *Properties.* A mechanism that did not run takes no part, whatever was asked for. What was measured
//! once wins nothing. The order of points changes nothing but the order of what is told.

use pilotlight_stats::compare::{holm, welch};
use pilotlight_stats::{CONFIDENCE, mean::average};
use serde::Serialize;

use crate::given::Given;
use crate::results::Results;
use crate::results::summary::PointResult;
use crate::shown::{self, SCOPES};
use pilotlight_workloads::mechanism::KNOB;

/// Chance of a winner where nothing differs, in a single cell.
pub const LEVEL: f64 = 0.05;

/// What efficiency is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// Bytes per joule.
    Energy,
    /// Bytes per second of CPU time of the whole machine.
    CpuTime,
    /// Mean latency.
    Latency,
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// Which knob; the mechanism of completion if `None`.
    pub knob: Option<String>,
    /// What it is judged by: energy where there are watts, else CPU time and latency, each by itself, if `None`.
    pub by: Option<By>,
    /// Whose energy counts: `system`, `ssd_cpu`, `ssd` or `cpu`; the widest that was measured if `None`.
    pub scope: Option<String>,
}

/// A map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Map {
    /// The knob whose values are compared.
    pub knob: String,
    /// What they are judged by.
    pub by: By,
    /// The same in words, with the model that it rests on if it does.
    pub words: String,
    /// The metric's key.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Whether it rests on a model.
    pub modelled: bool,
    /// The knob from top to bottom, with its values; nothing if no other knob varies.
    pub down: Option<(String, Vec<String>)>,
    /// The knob from left to right, with its values.
    pub across: Option<(String, Vec<String>)>,
    /// How the remaining knobs stand; empty if none varies.
    pub rest: String,
    /// Row by row.
    pub cells: Vec<Cell>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Where the knob from top to bottom stands.
    pub down: String,
    /// Where the knob from left to right stands.
    pub across: String,
    /// What can be said.
    pub outcome: Outcome,
    /// The value with the best mean.
    pub best: Option<String>,
    /// The next one.
    pub next: Option<String>,
    /// By how much the best mean is better than the next, in the metric's unit.
    pub margin: Option<f64>,
    /// The same in percent of the next.
    pub margin_percent: Option<f64>,
    /// Welch's p of the best and the next.
    pub p: Option<f64>,
    /// The same corrected for all cells of the map.
    pub p_holm: Option<f64>,
    /// Every value that took part, the best first: its mean, and of how many repeats.
    pub means: Vec<(String, f64, usize)>,
}

/// What can be said of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The best one is shown to be better than the next.
    Wins,
    /// The two best are not shown to differ.
    Tie,
    /// Measured once, or without any variation: nothing tells chance from difference.
    Untested,
    /// Only one value was measured here, or only one ran.
    Alone,
    /// Nothing was.
    Nothing,
}

/// Why there is no map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMap {
    /// The knob has one value or is none.
    #[error("--map {asked}: no such knob was varied; the knobs with several values are {known}")]
    Knob {
        /// What was asked.
        asked: String,
        /// What there is.
        known: String,
    },
    /// Nothing to judge by.
    #[error("nothing was measured by which it could be judged: neither power nor CPU time nor latency{0}")]
    Metric(String),
}

/// The maps of an experiment.
///
/// # Errors
/// Why there are none.
pub fn maps(given: &Given, question: &Question) -> Result<Vec<Map>, NoMap> {
    let knob = question.knob.clone().unwrap_or_else(|| KNOB.to_owned());
    let results = &given.results;
    let varied = varied(results);
    if !varied.iter().any(|(name, _)| *name == knob) {
        let known: Vec<&str> = varied.iter().map(|(name, _)| name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(NoMap::Knob { asked: knob, known });
    }
    let metrics = metrics(results, question);
    if metrics.is_empty() {
        let asked = question.scope.as_ref().map(|scope| format!(" (--scope {scope})")).unwrap_or_default();
        return Err(NoMap::Metric(asked));
    }
    let others: Vec<Knob> = varied.into_iter().filter(|(name, _)| *name != knob).collect();
    Ok(metrics.iter().flat_map(|metric| of_metric(results, &knob, metric, &others)).collect())
}

/// A knob with its values.
type Knob = (String, Vec<String>);

/// Knobs with several values, in order, each with its values as they were asked for.
fn varied(results: &Results) -> Vec<Knob> {
    let values = |knob: &String| {
        let mut values: Vec<String> = Vec::new();
        for value in results.points.iter().filter_map(|point| stands(point, knob)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        (knob.clone(), values)
    };
    results.knobs.iter().map(values).filter(|(_, values)| values.len() > 1).collect()
}

/// Where a knob stands; the mechanism as it was asked for.
fn stands(point: &PointResult, knob: &str) -> Option<String> {
    let asked = point.completion.as_ref().filter(|_| knob == KNOB).map(|verdict| verdict.asked.clone());
    asked.or_else(|| point.knobs.get(knob).map(ToString::to_string))
}

/// What is judged by.
struct Metric {
    by: By,
    key: String,
    words: String,
    unit: String,
    modelled: bool,
}

fn metrics(results: &Results, question: &Question) -> Vec<Metric> {
    let energy = || energy(results, question.scope.as_deref());
    let metric = |by, key: &str, words: &str| {
        let about = results.metric(key).filter(|about| shown::has(results, &about.key))?;
        Some(Metric { by, key: key.into(), words: words.into(), unit: about.unit.clone(), modelled: false })
    };
    let cpu = || metric(By::CpuTime, "bytes_per_cpu_s", "bytes per second of CPU time of the whole machine");
    let latency = || metric(By::Latency, "latency_mean_us", "mean latency");
    match question.by {
        Some(By::Energy) => energy().into_iter().collect(),
        Some(By::CpuTime) => cpu().into_iter().collect(),
        Some(By::Latency) => latency().into_iter().collect(),
        None => match energy() {
            Some(energy) => vec![energy],
            None => [cpu(), latency()].into_iter().flatten().collect(),
        },
    }
}

/// Bytes per joule of the widest scope: measured before modelled.
fn energy(results: &Results, scope: Option<&str>) -> Option<Metric> {
    let scopes = SCOPES.into_iter().filter(|name| scope.is_none_or(|scope| scope == *name));
    let abouts: Vec<_> = scopes.filter_map(|name| shown::find(results, &format!("bytes_per_j_{name}"))).collect();
    let about = abouts.iter().find(|about| !about.modelled).or(abouts.first())?;
    let (words, unit) = (about.title.clone(), about.unit.clone());
    Some(Metric { by: By::Energy, key: about.key.clone(), words, unit, modelled: about.modelled })
}

fn of_metric(results: &Results, knob: &str, metric: &Metric, others: &[Knob]) -> Vec<Map> {
    let (down, across) = (others.first(), others.get(1));
    let rest: Vec<&Knob> = others.iter().skip(2).collect();
    let words = |point: &PointResult| {
        let pairs = rest.iter().filter_map(|(name, _)| Some(format!("{name}={}", stands(point, name)?)));
        pairs.collect::<Vec<_>>().join(" ")
    };
    let mut combinations: Vec<String> = Vec::new();
    for combination in results.points.iter().map(words) {
        if !combinations.contains(&combination) {
            combinations.push(combination);
        }
    }
    let map = |rest: String| {
        let points: Vec<&PointResult> = results.points.iter().filter(|point| words(point) == rest).collect();
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
        of.is_none_or(|(name, _)| stands(point, name).as_deref() == Some(value))
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
    // What did not run as it was asked for takes no part under that name, nor under another.
    let took_part =
        points.iter().filter(|point| knob != KNOB || point.completion.as_ref().is_none_or(|v| v.is_as_asked()));
    let mut found: Vec<(String, &[f64])> = took_part
        .filter_map(|point| Some((stands(point, knob)?, point.values.get(&metric.key)?.values.as_slice())))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    let mean = |values: &[f64]| average(values).unwrap_or(f64::NAN);
    let better = if metric.by == By::Latency { -1.0 } else { 1.0 };
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

impl Cell {
    /// As it stands in a table: the winner and by how much it is better, `tie`, or why there is neither.
    #[must_use]
    pub fn words(&self) -> String {
        let best = self.best.as_deref().unwrap_or_default();
        let percent = self.margin_percent.map(|percent| format!("{percent:.1} %")).unwrap_or_default();
        match self.outcome {
            Outcome::Wins => format!("{best} {percent}"),
            Outcome::Tie => "tie".to_owned(),
            Outcome::Untested => format!("{best}? {percent}"),
            Outcome::Alone => format!("only {best}"),
            Outcome::Nothing => "-".to_owned(),
        }
    }
}

impl Map {
    /// The cell at a row and a column.
    #[must_use]
    pub fn at(&self, down: &str, across: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.down == down && cell.across == across)
    }

    /// Names of the rows and of the columns, one empty name where no knob varies.
    #[must_use]
    pub fn sides(&self) -> (Vec<String>, Vec<String>) {
        let values = |of: &Option<Knob>| of.as_ref().map_or_else(|| vec![String::new()], |(_, values)| values.clone());
        (values(&self.down), values(&self.across))
    }

    /// What the map is of: rows, columns, and how the remaining knobs stand.
    #[must_use]
    pub fn title(&self) -> String {
        let name = |of: &Option<Knob>| of.as_ref().map(|(name, _)| name.clone());
        let sides: Vec<String> = [name(&self.down), name(&self.across)].into_iter().flatten().collect();
        let over = if sides.is_empty() { String::new() } else { format!(" by {}", sides.join(" and ")) };
        let rest = if self.rest.is_empty() { String::new() } else { format!(", {}", self.rest) };
        format!("the most efficient {}{over}{rest}; judged by {} ({})", self.knob, self.words, self.unit)
    }

    /// How many cells each value wins, and what else there is, in words.
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
            (Outcome::Untested, "not tested: the repeats are too few or do not vary"),
            (Outcome::Alone, "with nothing to compare"),
            (Outcome::Nothing, "without a value"),
        ] {
            let count = self.cells.iter().filter(|cell| cell.outcome == outcome).count();
            words.extend((count > 0).then(|| format!("{count} {what}")));
        }
        format!("of {} cells {}", self.cells.len(), words.join(", "))
    }

    /// How many winners there are, and how many of them stand when all cells are corrected together.
    #[must_use]
    pub fn standing(&self) -> (usize, usize) {
        let wins = || self.cells.iter().filter(|cell| cell.outcome == Outcome::Wins);
        (wins().count(), wins().filter(|cell| cell.p_holm.is_some_and(|p| p <= LEVEL)).count())
    }
}
