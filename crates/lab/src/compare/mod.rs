//! Compares two sets of results: which metrics of which points differ, by how much, with which significance.
//!
//! A is the reference: differences are B - A, ratios B / A. A *pair* is a metric of a point that both have. *Method.* Welch's t-test over the
//! repeats, ratios by Fieller's theorem, effect sizes by Hedges' g. Holm's correction covers all pairs of the comparison (family-wise error rate
//! 5 %). Equivalence within a margin is tested by two one-sided tests with their own correction. *Properties.* A point with a single
//! measurement on either side has no test. Modelled metrics are not compared with measured ones, other models, or the power of other parts of
//! the machine, unless `mixed`. Without a margin, exchanging A and B only exchanges higher and lower.

mod domains;
mod matched;
mod pair;
#[cfg(test)]
mod tests;

use crate::stored::metric::{self, Better};
use pilotlight_stats::Estimate;
use pilotlight_stats::compare::holm;
use serde::Serialize;

use crate::displayed;
use crate::result_set::{self, ResultSet};
use crate::results::summary::{MetricInfo, PointResult};

/// Family-wise error rate.
pub const LEVEL: f64 = 0.05;

/// Options of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// Keys of metrics, with or without their model. Default: [`displayed::main_keys`].
    pub metrics: Vec<String>,
    /// Values of knobs that select points of A, and of B unless `versus` overrides them.
    pub point: Vec<(String, String)>,
    /// Values of knobs that select points of B.
    pub versus: Vec<(String, String)>,
    /// Margin of the test of equivalence, as a fraction of A's mean.
    pub margin: Option<f64>,
    /// Whether to compare metrics with different models or parts of the machine.
    pub mixed: bool,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of A.
    pub a: String,
    /// Name of B.
    pub b: String,
    /// Warnings.
    pub warnings: Vec<String>,
    /// Differences between the machines and experiments: key, value in A, value in B.
    pub differing: Vec<(String, String, String)>,
    /// Number of tests in the correction.
    pub tests: usize,
    /// The margin of equivalence, as a fraction of A's mean.
    pub margin: Option<f64>,
    /// The pairs.
    pub pairs: Vec<Pair>,
}

/// A metric of a point that both have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The point, by the common knobs of A and B.
    pub point: String,
    /// The metric's key without its model.
    pub metric: String,
    /// Its title.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// A.
    pub a: Side,
    /// B.
    pub b: Side,
    /// B - A with its 95 % interval; `None` without a test.
    pub difference: Option<Estimate>,
    /// B / A with its 95 % interval.
    pub ratio: Option<Estimate>,
    /// Hedges' g: the difference in pooled standard deviations, corrected for few repeats.
    pub hedges_g: Option<f64>,
    /// Welch's p of this pair.
    pub p: Option<f64>,
    /// p corrected for all pairs.
    pub p_holm: Option<f64>,
    /// Corrected p of the test of equivalence, if there is a margin.
    pub p_equivalent: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether a significant difference is an improvement; `None` if the metric has no better direction.
    pub is_better: Option<bool>,
    /// Whether the difference is within the margin, if there is one.
    pub within: Option<bool>,
}

/// One side of a pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Arithmetic mean over the repeats.
    pub mean: f64,
    /// Number of repeats.
    pub n: usize,
    /// Whether it is modelled.
    pub modelled: bool,
}

/// The result of a test of B against A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// B is higher.
    Higher,
    /// B is lower.
    Lower,
    /// Not significantly different, and within the margin.
    Equivalent,
    /// Not significantly different.
    NotShown,
    /// At least one side has a single repeat.
    OneRepeat,
    /// The repeats do not vary, so there is no test.
    NoSpread,
}

impl Verdict {
    /// Its title.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Equivalent => "equivalent",
            Self::NotShown => "no significant difference",
            Self::OneRepeat => "single repeat: no test",
            Self::NoSpread => "repeats do not vary: no test",
        }
    }

    /// Whether the difference is significant.
    #[must_use]
    pub const fn is_difference(self) -> bool {
        matches!(self, Self::Higher | Self::Lower)
    }
}

/// Reasons why nothing can be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// One side varies a knob that the other lacks.
    #[error("{side} varies {knob}, which the other side lacks: select a value with --{option} {knob}=VALUE")]
    Knob {
        /// A or B.
        side: String,
        /// The knob.
        knob: String,
        /// The option that selects a value.
        option: &'static str,
    },
    /// The selection matches no point.
    #[error("{side} has no point with {selection}{hint}; its knobs are {knobs}")]
    NoPoint {
        /// A or B.
        side: String,
        /// The selection.
        selection: String,
        /// Advice on a list of values.
        hint: &'static str,
        /// The knobs and values.
        knobs: String,
    },
    /// A and B have no point in common.
    #[error("A and B have no point in common: {a} against {b}{hint}")]
    NothingMatches {
        /// The first point of A.
        a: String,
        /// The first point of B.
        b: String,
        /// Options that would pair points.
        hint: String,
    },
    /// A and B have no metric in common.
    #[error("no metric has a value in both A and B")]
    NoneInCommon,
    /// There is no such metric.
    #[error("no metric {name:?} has a value on both sides{hint}; both have {known}")]
    NoMetric {
        /// The requested name.
        name: String,
        /// The nearest known name.
        hint: String,
        /// The known names.
        known: String,
    },
    /// All metrics have different models or parts of the machine.
    #[error("{0}")]
    Mixed(String),
    /// A and B are the same points.
    #[error("A and B are the same points: specify two folders, or two settings with --point and --versus")]
    Same,
}

/// Compares B with A.
///
/// # Errors
/// If nothing of them can be compared.
pub fn compare(a: &ResultSet, b: &ResultSet, question: &Question) -> Result<Comparison, CompareError> {
    let (points, mut warnings) = matched::points(a, b, question)?;
    let (metrics, mixed) = metrics(a, b, question)?;
    warnings.extend(mixed);
    let mut pairs: Vec<Pair> = Vec::new();
    for (point, first, second) in &points {
        pairs.extend(metrics.iter().filter_map(|both| pair_of(point, (first, second), both, question)));
    }
    warnings.extend(metrics.iter().flat_map(|both| holes(&points, both)));
    correct(&mut pairs);
    let differing = differing(a, b);
    warnings.extend(general(a, b, &differing));
    if pairs.iter().any(|pair| pair.verdict == Verdict::OneRepeat) {
        warnings.push("points with a single measurement give no test: set repeats = 3 or more".into());
    }
    let tests = pairs.iter().filter(|pair| pair.p.is_some()).count();
    let (a, b) = matched::names(a, b, question);
    Ok(Comparison { a, b, warnings, differing, tests, margin: question.margin, pairs })
}

/// A metric with its descriptions in A and B.
struct Common<'a> {
    plain: String,
    a: &'a MetricInfo,
    b: &'a MetricInfo,
}

/// Metrics that both have, and warnings about those left out because of different models.
fn metrics<'a>(
    a: &'a ResultSet,
    b: &'a ResultSet,
    question: &Question,
) -> Result<(Vec<Common<'a>>, Vec<String>), CompareError> {
    let wanted = if question.metrics.is_empty() { default_metrics(a, b) } else { question.metrics.clone() };
    let (mut found, mut left_out, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    for key in wanted {
        let both = a.results.find(&key).zip(b.results.find(&key));
        let Some((first, second)) = both else {
            if question.metrics.is_empty() {
                continue;
            }
            return Err(unknown(a, b, &key));
        };
        if first.key != second.key && !question.mixed {
            left_out.push(format!(
                "left out: {key} is {} in A and {} in B; --mixed compares them",
                origin(first),
                origin(second)
            ));
            continue;
        }
        if let Some(why) = domains::differ(a, b, &first.without_model()) {
            if !question.mixed {
                left_out.push(format!("left out: {key} is {why}; --mixed compares them"));
                continue;
            }
            warnings.push(format!("{key} is {why}"));
        }
        found.push(Common { plain: first.without_model(), a: first, b: second });
    }
    match (found.is_empty(), left_out.is_empty()) {
        (false, _) => {
            left_out.extend(warnings);
            Ok((found, left_out))
        }
        (true, false) => Err(CompareError::Mixed(left_out.join("\n"))),
        (true, true) => Err(CompareError::NoneInCommon),
    }
}

/// Metrics compared by default: the main ones, or all common ones if there are none.
fn default_metrics(a: &ResultSet, b: &ResultSet) -> Vec<String> {
    let is_there = |key: &str| a.results.find(key).is_some() && b.results.find(key).is_some();
    let is_counted = |result_set: &ResultSet| {
        displayed::FAMILIES.iter().any(|family| displayed::is_counted(&result_set.results, family))
    };
    let mut keys = if is_counted(a) && is_counted(b) { Vec::new() } else { displayed::byte_keys() };
    keys.extend(displayed::main_keys());
    let of_phases = a.results.metrics.iter().map(|about| &about.key).filter(|key| key.contains('.'));
    let of_phases: Vec<String> =
        of_phases.filter(|key| keys.iter().any(|main| main == metric::bare(key))).cloned().collect();
    keys.extend(of_phases);
    keys.retain(|key| is_there(key));
    if keys.is_empty() {
        keys = displayed::displayed(&a.results)
            .into_iter()
            .map(MetricInfo::without_model)
            .filter(|key| is_there(key))
            .collect();
    }
    keys
}

/// Warnings about points with a value on one side only.
fn holes(points: &[(String, &PointResult, &PointResult)], both: &Common<'_>) -> Vec<String> {
    let without = |side: &str, has: fn(&(String, &PointResult, &PointResult), &Common<'_>) -> [bool; 2]| {
        let count = points.iter().filter(|point| has(point, both) == [true, false]).count();
        let (key, all) = (&both.plain, points.len());
        (count > 0).then(|| format!("{key} has no value in {side} at {count} of {all} points, which are not compared"))
    };
    let in_b = without("B", |(_, a, b), both| [a.values.contains_key(&both.a.key), b.values.contains_key(&both.b.key)]);
    let in_a = without("A", |(_, a, b), both| [b.values.contains_key(&both.b.key), a.values.contains_key(&both.a.key)]);
    in_b.into_iter().chain(in_a).collect()
}

fn origin(about: &MetricInfo) -> &str {
    if about.modelled { &about.key } else { "measured" }
}

fn unknown(a: &ResultSet, b: &ResultSet, name: &str) -> CompareError {
    let in_both = |about: &&MetricInfo| a.results.has(&about.key) && b.results.find(&about.key).is_some();
    let known: Vec<&str> = a.results.metrics.iter().filter(in_both).map(|about| about.key.as_str()).collect();
    let nearest = pilotlight_input::file::nearest(name, &known);
    let hint = nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
    CompareError::NoMetric { name: name.to_owned(), hint, known: known.join(", ") }
}

fn pair_of(point: &str, (a, b): (&PointResult, &PointResult), both: &Common<'_>, question: &Question) -> Option<Pair> {
    let (first, second) = (a.values.get(&both.a.key)?, b.values.get(&both.b.key)?);
    let mut pair = pair::pair(&first.values, &second.values, question.margin)?;
    point.clone_into(&mut pair.point);
    pair.metric.clone_from(&both.plain);
    pair.title.clone_from(&both.a.title);
    pair.unit.clone_from(&both.a.unit);
    (pair.a.modelled, pair.b.modelled) = (both.a.modelled, both.b.modelled);
    Some(pair)
}

/// Corrects the p values of all pairs and sets the verdicts.
fn correct(pairs: &mut [Pair]) {
    let tested = |pairs: &[Pair], p: fn(&Pair) -> Option<f64>| -> (Vec<usize>, Vec<f64>) {
        pairs.iter().enumerate().filter_map(|(at, pair)| Some((at, p(pair)?))).unzip()
    };
    let (at, p) = tested(pairs, |pair| pair.p);
    for (at, p) in at.into_iter().zip(holm(&p)) {
        pairs[at].p_holm = Some(p);
    }
    let (at, p) = tested(pairs, |pair| pair.p_equivalent);
    for (at, p) in at.into_iter().zip(holm(&p)) {
        pairs[at].p_equivalent = Some(p);
    }
    pairs.iter_mut().for_each(pair::judge);
    pairs.iter_mut().for_each(|pair| pair.is_better = is_better(pair));
}

fn is_better(pair: &Pair) -> Option<bool> {
    let better = metric::find(&pair.metric)?.better?;
    match pair.verdict {
        Verdict::Higher => Some(better == Better::Higher),
        Verdict::Lower => Some(better == Better::Lower),
        _ => None,
    }
}

fn differing(a: &ResultSet, b: &ResultSet) -> Vec<(String, String, String)> {
    let machine = result_set::differing(&a.machine(), &b.machine());
    let experiment = result_set::differing(&a.experiment_keys(), &b.experiment_keys());
    machine.into_iter().chain(experiment.into_iter().map(|(key, a, b)| (format!("experiment.{key}"), a, b))).collect()
}

fn general(a: &ResultSet, b: &ResultSet, differing: &[(String, String, String)]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (side, result_set) in [("A", a), ("B", b)] {
        if !result_set.results.complete {
            warnings.push(format!("{side} is incomplete: planned measurements are missing"));
        }
        if result_set.environment.is_none() {
            warnings.push(format!("{side} has no description of its machine"));
        }
    }
    let keys: Vec<&str> = differing.iter().map(|(key, ..)| key.as_str()).collect();
    if !keys.is_empty() {
        warnings.push(format!("differences may be caused by: {}", keys.join(", ")));
    }
    warnings
}
