//! Recommendations from the results of an experiment: the best value of each varied knob, its savings and its effect on latency, as Table 5.1
//! of the thesis.
//!
//! *Problem.* The thesis derives its table from single runs, but measurements vary, and of many settings one is always best by chance.
//! *Terms.* *Work* is IOPS-driven (small random requests, measured in I/Os per joule) or throughput-driven (large sequential requests, bytes
//! per joule). A *combination* is an assignment of values to all other knobs; only combinations with enough measurements of every value of the
//! knob are used.
//!
//! *Algorithm.* For each work, knob and pair of values: the mean difference of log efficiency, paired by combination, with the standard error
//! of the repeats (Welch-Satterthwaite). Holm's correction covers all pairs of all knobs and works. The recommendation is the value with the
//! highest mean and those not significantly worse; there is none if no value is significantly worse. A combination in which another value
//! is significantly better (Bonferroni over all such tests) is an exception.
//!
//! *Properties.* If no value differs, nothing is recommended with probability 95 %, for any number of knobs. Results apply to the measured
//! combinations only and do not depend on the order of points. Intervals of savings are not simultaneous and slightly biased upwards, because
//! the best and worst values are selected by the same data.

mod basis;
mod kind;
mod knob;
#[cfg(test)]
mod tests;
pub mod thesis;
pub mod work;

use pilotlight_stats::Estimate;
use pilotlight_stats::compare::holm;
use serde::Serialize;

use crate::result_set::ResultSet;
use crate::results::idle;
use basis::Basis;
pub use kind::Kind;
use knob::Study;

/// Family-wise error rate.
pub const LEVEL: f64 = 0.05;

/// Options of the recommendation.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Minimum number of repeats of a point.
    pub at_least: usize,
    /// Value to compare with, by knob. Default: the worst significantly worse value.
    pub baseline: Vec<(String, String)>,
    /// Upper limit of the p99 latency of a recommended value in all combinations, in microseconds.
    pub p99_at_most_us: Option<f64>,
    /// Scope of energy: `system`, `ssd_cpu`, `ssd` or `cpu`. Default: the widest measured one.
    pub scope: Option<String>,
}

impl Default for Question {
    fn default() -> Self {
        Self { at_least: 3, baseline: Vec::new(), p99_at_most_us: None, scope: None }
    }
}

/// Recommendations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Advice {
    /// The results folder.
    pub of: String,
    /// Warnings.
    pub warnings: Vec<String>,
    /// Number of tests in the correction.
    pub tests: usize,
    /// Minimum number of repeats of a point.
    pub at_least: usize,
    /// By kind of work.
    pub works: Vec<Work>,
}

/// Recommendations for one kind of work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Work {
    /// The kind.
    pub kind: Kind,
    /// Description.
    pub about: String,
    /// Number of points.
    pub points: usize,
    /// The measure of efficiency; `None` if unknown.
    pub by: Option<String>,
    /// Whether the measure is modelled.
    pub modelled: bool,
    /// Whether the measure is of energy; otherwise of CPU time or speed.
    pub is_energy: bool,
    /// The rows of Table 5.1, then the other knobs.
    pub rows: Vec<Row>,
}

/// The recommendation for one variable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The variable of the thesis, or the knob.
    pub variable: String,
    /// The knob; `None` if the experiment has none.
    pub knob: Option<String>,
    /// The recommendation.
    pub outcome: Outcome,
    /// Combinations left out because of missing values or repeats.
    pub left_out: usize,
    /// The recommendation of the thesis for its machine (Table 5.1).
    pub thesis: Option<&'static str>,
}

/// A recommendation, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The knob was not varied.
    NotVaried,
    /// Not derivable from such data, with the reason.
    NotDerived(&'static str),
    /// Insufficient data, with the reason.
    InsufficientData(String),
    /// No value is significantly worse than the best.
    NoDifference {
        /// Values, the highest mean first.
        values: Vec<String>,
        /// The smallest corrected p of the best value against another.
        p: f64,
    },
    /// Every value exceeds the limit of p99 latency in a combination.
    NoneWithinLimit,
    /// A recommendation.
    Best(Box<Best>),
}

/// A recommendation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// The best value, then those not significantly worse.
    pub values: Vec<String>,
    /// The value it is compared with.
    pub against: String,
    /// Whether that is the requested baseline, not the worst value.
    pub is_baseline: bool,
    /// Saved energy (or CPU time, or time) for the same work, in percent, with its 95 % interval.
    pub saves_percent: Estimate,
    /// Corrected p value.
    pub p: f64,
    /// Ratio of the mean latency to that of `against`.
    pub latency_mean: Option<Estimate>,
    /// Ratio of the p99 latency to that of `against`.
    pub latency_p99: Option<Estimate>,
    /// Number of combinations in which its mean is the highest within the limit.
    pub holds_in: usize,
    /// Number of combinations.
    pub circumstances: usize,
    /// Combinations in which another value is significantly better, with that value.
    pub except: Vec<(String, String)>,
}

/// Derives recommendations.
#[must_use]
pub fn advise(result_set: &ResultSet, question: &Question) -> Advice {
    let works = work::kinds_of_work(result_set);
    let mut warnings = warnings(result_set);
    warnings.extend(unused_points_warning(result_set, &works));
    let mut studies: Vec<(Work, Vec<(String, Study)>)> = Vec::new();
    for work in works {
        let by = basis::choose(result_set, &work, question.scope.as_deref());
        let (by, modelled, is_energy) = match &by {
            Some(by) => (Some(by), by.modelled, by.scope.is_some()),
            None => (None, false, false),
        };
        let doubt = by.and_then(|by| doubt(result_set, by));
        let of_knob = |name: &String| Some((name.clone(), Study::new(result_set, &work, name, (by?, doubt), question)));
        let knobs: Vec<(String, Study)> = result_set.results.knobs.iter().filter_map(of_knob).collect();
        let about = work.description();
        let by = by.map(|by| by.name.clone());
        let points = work.points.len();
        studies.push((Work { kind: work.kind, about, points, by, modelled, is_energy, rows: Vec::new() }, knobs));
    }
    let tests = correct(&mut studies);
    let pairs_within: usize = studies.iter().flat_map(|(_, knobs)| knobs).map(|(_, study)| study.inner_tests()).sum();
    let works = studies.into_iter().map(|(work, knobs)| finish(work, &knobs, question, pairs_within)).collect();
    if tests > 0 {
        warnings.push("savings apply to the measured combinations of settings only".into());
    }
    Advice { of: result_set.name.clone(), warnings, tests, at_least: question.at_least, works }
}

/// The reason why a measure says nothing about settings, whatever its intervals.
fn doubt(result_set: &ResultSet, by: &Basis) -> Option<&'static str> {
    if by.scope.is_some() && result_set.results.not_idle.is_some() {
        return Some("the machine was not idle in its idle baselines");
    }
    let indistinct = by.scope.and_then(|scope| idle::indistinct(&result_set.results, scope));
    indistinct.map(|_| "the power above idle is not more than the idle machine varies")
}

/// Warns of points that belong to neither kind of work.
fn unused_points_warning(result_set: &ResultSet, works: &[work::Points<'_>]) -> Option<String> {
    let all = result_set.results.points.len();
    let of_a_kind: usize = works.iter().map(|work| work.points.len()).sum();
    let left = all.saturating_sub(of_a_kind);
    let words = "neither random requests of at most 16 KiB nor sequential ones of 128 KiB or more";
    (!works.is_empty() && left > 0)
        .then(|| format!("{left} of {all} points are {words}: they are used for the request size only"))
}

fn warnings(result_set: &ResultSet) -> Vec<String> {
    let mut warnings: Vec<String> = result_set.results.not_idle.iter().cloned().collect();
    if !result_set.results.complete {
        warnings.push("the run is incomplete: planned measurements are missing".to_owned());
    }
    if result_set.results.points.iter().any(|point| !point.failures.is_empty()) {
        warnings.push("some measurements failed".to_owned());
    }
    warnings
}

/// Corrects all tests; returns their number.
fn correct(studies: &mut [(Work, Vec<(String, Study)>)]) -> usize {
    let mut tests: Vec<&mut knob::Pair> =
        studies.iter_mut().flat_map(|(_, knobs)| knobs).flat_map(|(_, study)| study.pairs.iter_mut()).collect();
    let p: Vec<f64> = tests.iter().map(|pair| pair.p).collect();
    for (pair, corrected) in tests.iter_mut().zip(holm(&p)) {
        pair.p_holm = corrected;
    }
    p.len()
}

fn finish(work: Work, knobs: &[(String, Study)], question: &Question, inner: usize) -> Work {
    let mut rows = Vec::new();
    let mut listed: Vec<&str> = Vec::new();
    for variable in &thesis::TABLE {
        let found: Vec<&(String, Study)> = knobs.iter().filter(|(name, _)| variable.is(name)).collect();
        listed.extend(found.iter().map(|(name, _)| name.as_str()));
        let mut add = |knob: Option<String>, outcome, left_out| {
            let (variable, thesis) = (variable.name.to_owned(), variable.advice(work.kind));
            rows.push(Row { variable, knob, outcome, left_out, thesis });
        };
        match (variable.not_derived, found.as_slice()) {
            (Some(why), _) => add(None, Outcome::NotDerived(why), 0),
            (None, []) => add(None, Outcome::NotVaried, 0),
            (None, found) => found.iter().for_each(|(name, study)| {
                add(Some(name.clone()), study.outcome(name, question, inner), study.incomplete);
            }),
        }
    }
    for (name, study) in knobs.iter().filter(|(name, _)| !listed.contains(&name.as_str())) {
        let outcome = study.outcome(name, question, inner);
        let (variable, knob) = (name.clone(), Some(name.clone()));
        rows.push(Row { variable, knob, outcome, left_out: study.incomplete, thesis: None });
    }
    Work { rows, ..work }
}
