//! One knob of one kind of work: its values, the combinations of the other knobs, and tests between values.

use std::collections::BTreeMap;

use crate::stored::metric;
use pilotlight_stats::contrast::{Contrast, contrast};
use pilotlight_stats::mean::average;
use pilotlight_stats::{CONFIDENCE, Estimate};

use super::basis::Basis;
use super::work::Points;
use super::{Best, LEVEL, Outcome, Question};
use crate::result_set::ResultSet;
use crate::results::summary::{PointResult, pairs};

/// Logarithms of a quantity: by combination of the other knobs, value of the knob, and repeat.
type Logs = Vec<Vec<Vec<f64>>>;

/// Measurements and tests of a knob.
pub(super) struct Study {
    /// Values of the knob, in the order of the experiment.
    pub(super) values: Vec<String>,
    /// Combinations of the other knobs.
    circumstances: Vec<String>,
    efficiency: Logs,
    latency_mean: Logs,
    latency_p99: Logs,
    /// Combinations left out because values are missing.
    pub(super) incomplete: usize,
    /// The reason why the measure says nothing, so that values are not tested.
    doubt: Option<&'static str>,
    /// Tests between values over all combinations.
    pub(super) pairs: Vec<Pair>,
}

/// A test between two values.
pub(super) struct Pair {
    of: (usize, usize),
    pub(super) p: f64,
    pub(super) p_holm: f64,
}

impl Study {
    /// Collects the measurements and tests every pair of values.
    pub(super) fn new(
        result_set: &ResultSet,
        work: &Points<'_>,
        knob: &str,
        (by, doubt): (&Basis, Option<&'static str>),
        question: &Question,
    ) -> Self {
        let points = work.of_knob(knob);
        let mut values: Vec<String> = Vec::new();
        let mut cells: BTreeMap<usize, (String, BTreeMap<usize, &PointResult>)> = BTreeMap::new();
        let mut order: Vec<String> = Vec::new();
        for point in points {
            let Some(value) = point.knobs.get(knob).map(ToString::to_string) else { continue };
            let circumstance = circumstance(result_set, point, knob);
            let (column, row) = (index_or_add(&mut values, value), index_or_add(&mut order, circumstance.clone()));
            cells.entry(row).or_insert_with(|| (circumstance, BTreeMap::new())).1.insert(column, point);
        }
        let mut study = Self {
            values,
            circumstances: Vec::new(),
            efficiency: Vec::new(),
            latency_mean: Vec::new(),
            latency_p99: Vec::new(),
            incomplete: 0,
            doubt,
            pairs: Vec::new(),
        };
        for (name, row) in cells.into_values() {
            study.add(name, &row, work.family, by, question.at_least);
        }
        if doubt.is_none() {
            study.test();
        }
        study
    }

    fn add(&mut self, name: String, row: &BTreeMap<usize, &PointResult>, family: &str, by: &Basis, at_least: usize) {
        let all = |of: &dyn Fn(&PointResult) -> Vec<f64>| -> Option<Vec<Vec<f64>>> {
            (0..self.values.len())
                .map(|at| logs(&of(row.get(&at)?)).filter(|values| values.len() >= at_least))
                .collect()
        };
        let Some(efficiency) = all(&|point| by.values(point)) else {
            self.incomplete += 1;
            return;
        };
        let latency = |which: &str| {
            let key = metric::latency(family, which);
            let of =
                |point: &PointResult| point.values.get(&key).map(|spread| spread.values.clone()).unwrap_or_default();
            all(&of).unwrap_or_default()
        };
        let (mean, p99) = (latency("mean"), latency("p99"));
        self.circumstances.push(name);
        self.efficiency.push(efficiency);
        self.latency_mean.push(mean);
        self.latency_p99.push(p99);
    }

    fn test(&mut self) {
        let count = self.values.len();
        for of in (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))) {
            let test = between(&self.efficiency, of);
            self.pairs.extend(test.map(|test| Pair { of, p: test.p, p_holm: 1.0 }));
        }
    }

    /// Number of tests between values within single combinations.
    pub(super) fn inner_tests(&self) -> usize {
        let count = self.values.len();
        self.circumstances.len() * count * count.saturating_sub(1) / 2
    }

    /// The mean log efficiency of a value over all combinations.
    fn score(&self, value: usize) -> f64 {
        let means: Vec<f64> = self.efficiency.iter().filter_map(|row| average(&row[value])).collect();
        average(&means).unwrap_or(f64::NEG_INFINITY)
    }

    fn p(&self, a: usize, b: usize) -> Option<f64> {
        let of = (a.min(b), a.max(b));
        self.pairs.iter().find(|pair| pair.of == of).map(|pair| pair.p_holm)
    }

    /// The recommendation. `inner` is the number of tests within single combinations, of all knobs.
    pub(super) fn outcome(&self, knob: &str, question: &Question, inner: usize) -> Outcome {
        if self.values.is_empty() {
            return Outcome::InsufficientData("no point has this kind of work".into());
        }
        if self.values.len() < 2 {
            return Outcome::NotVaried;
        }
        if self.pairs.is_empty() {
            return self.insufficient_data(question);
        }
        if question.p99_at_most_us.is_some() && self.latency_p99.iter().any(Vec::is_empty) {
            return Outcome::InsufficientData(
                "p99 latency is not known for every combination, so the limit cannot be checked".into(),
            );
        }
        let mut order: Vec<usize> = (0..self.values.len()).filter(|value| self.is_within(*value, question)).collect();
        order.sort_by(|a, b| self.score(*b).total_cmp(&self.score(*a)));
        let Some(&best) = order.first() else { return Outcome::NoneWithinLimit };
        let is_worse =
            |value: usize| self.score(value) < self.score(best) && self.p(best, value).is_some_and(|p| p < LEVEL);
        let name = |value: &usize| self.values[*value].clone();
        let worst = (0..self.values.len())
            .filter(|value| is_worse(*value))
            .min_by(|a, b| self.score(*a).total_cmp(&self.score(*b)));
        let Some(worst) = worst else {
            let p = (0..self.values.len()).filter_map(|other| self.p(best, other)).fold(1.0, f64::min);
            return Outcome::NoDifference { values: order.iter().map(name).collect(), p };
        };
        let named = question.baseline.iter().find(|(name, _)| name == knob).map(|(_, value)| value);
        let named = named.and_then(|value| self.values.iter().position(|name| name == value));
        let baseline = named.filter(|value| is_worse(*value));
        let against = baseline.unwrap_or(worst);
        let values = order.iter().filter(|value| !is_worse(**value)).map(name).collect();
        // The best is first; the others within the limit are those compared with it.
        self.best(&order, against, values, baseline.is_some(), inner)
    }

    fn best(&self, within: &[usize], against: usize, values: Vec<String>, is_baseline: bool, inner: usize) -> Outcome {
        let Some(&best) = within.first() else { return Outcome::NoneWithinLimit };
        let pair = (best, against);
        let Some(test) = between(&self.efficiency, pair) else { return Outcome::NotVaried };
        Outcome::Best(Box::new(Best {
            values,
            against: self.values[against].clone(),
            is_baseline,
            saves_percent: saved(test.estimate),
            p: self.p(best, against).unwrap_or(1.0),
            latency_mean: between(&self.latency_mean, pair).map(|test| ratio(test.estimate)),
            latency_p99: between(&self.latency_p99, pair).map(|test| ratio(test.estimate)),
            holds_in: self.efficiency.iter().filter(|row| highest(row, within) == Some(best)).count(),
            circumstances: self.circumstances.len(),
            except: self.exceptions(within, best, inner),
        }))
    }

    /// Combinations in which another value is significantly better.
    fn exceptions(&self, within: &[usize], best: usize, inner: usize) -> Vec<(String, String)> {
        let better = |row: &Vec<Vec<f64>>, other: usize| {
            let test = contrast(&[(1.0, &row[other]), (-1.0, &row[best])], CONFIDENCE);
            test.is_some_and(|test| test.t > 0.0 && test.p * (inner.max(1) as f64) < LEVEL)
        };
        let of = |(name, row): (&String, &Vec<Vec<f64>>)| {
            let other = highest(row, within).filter(|other| *other != best && better(row, *other))?;
            Some((name.clone(), self.values[other].clone()))
        };
        self.circumstances.iter().zip(&self.efficiency).filter_map(of).collect()
    }

    /// Whether a value's p99 latency is within the limit in all combinations.
    fn is_within(&self, value: usize, question: &Question) -> bool {
        let Some(limit_us) = question.p99_at_most_us else { return true };
        let above = |row: &Vec<Vec<f64>>| {
            row.get(value).and_then(|logs| average(logs)).is_none_or(|mean| mean.exp() > limit_us)
        };
        !self.latency_p99.iter().any(above)
    }

    fn insufficient_data(&self, question: &Question) -> Outcome {
        let why = if let Some(doubt) = self.doubt {
            doubt.to_owned()
        } else if self.efficiency.is_empty() {
            format!(
                "no combination of the other knobs has at least {} measurements above zero of every value",
                question.at_least
            )
        } else {
            "the repeats do not vary, so significance cannot be tested".into()
        };
        Outcome::InsufficientData(why)
    }
}

/// The index of an item in a list, added if new.
fn index_or_add(list: &mut Vec<String>, item: String) -> usize {
    list.iter().position(|known| *known == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}

fn circumstance(result_set: &ResultSet, point: &PointResult, knob: &str) -> String {
    let others = result_set.results.knobs.iter().filter(|name| *name != knob && varies(result_set, name));
    pairs(others.filter_map(|name| point.knobs.get_key_value(name)))
}

fn varies(result_set: &ResultSet, knob: &str) -> bool {
    let mut values = result_set.results.points.iter().filter_map(|point| point.knobs.get(knob));
    let first = values.next();
    values.any(|value| Some(value) != first)
}

fn logs(values: &[f64]) -> Option<Vec<f64>> {
    (!values.is_empty() && values.iter().all(|value| *value > 0.0)).then(|| values.iter().map(|v| v.ln()).collect())
}

/// The mean difference of two values' logarithms, paired by combination.
fn between(logs: &Logs, (a, b): (usize, usize)) -> Option<Contrast> {
    let weight = 1.0 / logs.len() as f64;
    let mut groups: Vec<(f64, &[f64])> = Vec::new();
    for row in logs {
        groups.extend([(weight, row.get(a)?.as_slice()), (-weight, row.get(b)?.as_slice())]);
    }
    contrast(&groups, CONFIDENCE)
}

/// The value with the highest mean, of those within the limit.
fn highest(row: &[Vec<f64>], within: &[usize]) -> Option<usize> {
    let means = row.iter().enumerate().filter_map(|(at, values)| Some((at, average(values)?)));
    let means = means.filter(|(at, _)| within.contains(at));
    means.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
}

/// Energy saved for the same work, in percent, from a difference of log efficiencies.
fn saved(log: Estimate) -> Estimate {
    let percent = |log: f64| 100.0 * (1.0 - (-log).exp());
    Estimate { value: percent(log.value), low: percent(log.low), high: percent(log.high), n: log.n }
}

fn ratio(log: Estimate) -> Estimate {
    Estimate { value: log.value.exp(), low: log.low.exp(), high: log.high.exp(), n: log.n }
}
