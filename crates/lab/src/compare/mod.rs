//! Two sets of results beside each other: which metric of which point is higher, by how much, and how sure that is.
//!
//! *Words.* A is what is compared with, B what is compared: differences are B less A, ratios B over A. A *pair* is a metric of a point that
//! both have. *Method.* Welch's t-test over the repeats (variances may differ), the ratio by Fieller's theorem, Hedges' g for
//! the size; p values are corrected by Holm over all pairs of the comparison, so that with 95 % none of the differences that are told
//! is there by chance. Equivalence within a margin, if it is asked for, is shown by two one-sided tests, corrected
//! among themselves. *Properties.* A point that was measured once on either side decides nothing. Nothing modelled is compared with something
//! measured, with another model, or with the power of other parts of the machine (packages and memory against packages), unless that is
//! asked for. Exchanging A and B exchanges higher and lower and nothing else,
//! as long as no margin is asked for.

mod domains;
mod matched;
mod pair;
#[cfg(test)]
mod tests;

use pilotlight_results::metric::{self, Better};
use pilotlight_stats::Estimate;
use pilotlight_stats::compare::holm;
use serde::Serialize;

use crate::given::{self, Given};
use crate::results::summary::{About, PointResult};
use crate::shown;

/// Chance of telling any difference where there is none.
pub const LEVEL: f64 = 0.05;

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// Metrics by key, with or without the model in it; [`shown::main_keys`] if empty.
    pub metrics: Vec<String>,
    /// Only points of A where knobs stand so; of B too, unless `versus` says otherwise of a knob.
    pub point: Vec<(String, String)>,
    /// Only points of B where knobs stand so.
    pub versus: Vec<(String, String)>,
    /// A difference of at most this share of A's mean is none: equivalence is tested.
    pub margin: Option<f64>,
    /// Whether what is modelled may be compared with what is measured or with another model, and the power of some parts of the machine
    /// with that of others.
    pub mixed: bool,
}

/// What a comparison says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// What A is.
    pub a: String,
    /// What B is.
    pub b: String,
    /// What a reader must know first.
    pub warnings: Vec<String>,
    /// What differs between the machines and experiments: key, A's, B's.
    pub differing: Vec<(String, String, String)>,
    /// How many tests were corrected for.
    pub tests: usize,
    /// The margin within which both are called equivalent, as a share of A's mean.
    pub margin: Option<f64>,
    /// Metric by metric of each point.
    pub pairs: Vec<Pair>,
}

/// A metric of a point that both have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The point, as people say it: what A and B share of their knobs.
    pub point: String,
    /// The metric's key, without the model that it rests on.
    pub metric: String,
    /// In words.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// A.
    pub a: Side,
    /// B.
    pub b: Side,
    /// B less A, with its 95 % interval; `None` where there is no test.
    pub difference: Option<Estimate>,
    /// B over A, with its 95 % interval.
    pub ratio: Option<Estimate>,
    /// Hedges' g: the difference in pooled standard deviations, corrected for few repeats.
    pub hedges_g: Option<f64>,
    /// Welch's p for this pair alone.
    pub p: Option<f64>,
    /// The same corrected for all pairs.
    pub p_holm: Option<f64>,
    /// Chance that the difference exceeds the margin, corrected; where a margin was asked for.
    pub p_equivalent: Option<f64>,
    /// In a word.
    pub verdict: Verdict,
    /// Whether a difference that is shown is for the better; `None` where that depends on the question.
    pub is_better: Option<bool>,
    /// Whether the difference is within the margin; where a margin was asked for.
    pub within: Option<bool>,
}

/// One side of a pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Arithmetic mean over the repeats.
    pub mean: f64,
    /// How many repeats.
    pub n: usize,
    /// Whether it rests on a model.
    pub modelled: bool,
}

/// What can be said of B against A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// B is higher.
    Higher,
    /// B is lower.
    Lower,
    /// No difference is shown, and the difference is within the margin.
    Equivalent,
    /// No difference is shown. That is not to say that there is none.
    NotShown,
    /// Measured once, on one side at least.
    OneRepeat,
    /// The repeats do not vary, so there is no measure of chance.
    NoSpread,
}

impl Verdict {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Equivalent => "equivalent",
            Self::NotShown => "no difference shown",
            Self::OneRepeat => "one repeat decides nothing",
            Self::NoSpread => "repeats do not vary: no test",
        }
    }

    /// Whether a difference is shown.
    #[must_use]
    pub const fn is_difference(self) -> bool {
        matches!(self, Self::Higher | Self::Lower)
    }
}

/// Why there is nothing to compare.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A knob stands at several values in one and is not known in the other.
    #[error("{side} varies {knob}, which the other does not know: say which with --{option} {knob}=VALUE")]
    Knob {
        /// Which of the two.
        side: String,
        /// The knob.
        knob: String,
        /// The option that chooses.
        option: &'static str,
    },
    /// What was asked for matches no point.
    #[error("{side} has no point with {asked}; its knobs are {knobs}")]
    NoPoint {
        /// Which of the two.
        side: String,
        /// What was asked for.
        asked: String,
        /// What there is.
        knobs: String,
    },
    /// A and B have no point in common.
    #[error("no point of A is one of B: {a} against {b}{apart}")]
    NothingMatches {
        /// The first point of A.
        a: String,
        /// The first point of B.
        b: String,
        /// What sets all of them apart, and how it is left out of account.
        apart: String,
    },
    /// They measured different things.
    #[error("no metric has a value in both A and B")]
    NoneInCommon,
    /// There is no such metric.
    #[error("no metric {asked:?} has a value on both sides{meant}; both have {known}")]
    NoMetric {
        /// What was asked for.
        asked: String,
        /// What was probably meant.
        meant: String,
        /// What there is.
        known: String,
    },
    /// Only what is modelled differently, or of other parts of the machine.
    #[error("{0}")]
    Mixed(String),
    /// The same points twice.
    #[error("A and B are the same points: name two folders, or two settings with --point and --versus")]
    Same,
}

/// Compares B with A.
///
/// # Errors
/// If nothing of them can be compared.
pub fn compare(a: &Given, b: &Given, question: &Question) -> Result<Comparison, Refused> {
    let (points, mut warnings) = matched::points(a, b, question)?;
    let (metrics, mixed) = metrics(a, b, question)?;
    warnings.extend(mixed);
    let mut pairs: Vec<Pair> = Vec::new();
    for (words, first, second) in &points {
        pairs.extend(metrics.iter().filter_map(|both| one(words, (first, second), both, question)));
    }
    warnings.extend(metrics.iter().flat_map(|both| holes(&points, both)));
    correct(&mut pairs);
    let differing = differing(a, b);
    warnings.extend(general(a, b, &differing));
    if pairs.iter().any(|pair| pair.verdict == Verdict::OneRepeat) {
        warnings.push("points that were measured once decide nothing: set repeats = 3 or more".into());
    }
    let tests = pairs.iter().filter(|pair| pair.p.is_some()).count();
    let (a, b) = matched::names(a, b, question);
    Ok(Comparison { a, b, warnings, differing, tests, margin: question.margin, pairs })
}

/// A metric as A and as B call it.
struct Both<'a> {
    plain: String,
    a: &'a About,
    b: &'a About,
}

/// Metrics that both have, and what is left out because it rests on different models.
fn metrics<'a>(a: &'a Given, b: &'a Given, question: &Question) -> Result<(Vec<Both<'a>>, Vec<String>), Refused> {
    let wanted = if question.metrics.is_empty() { usual(a, b) } else { question.metrics.clone() };
    let (mut found, mut left_out, mut warned) = (Vec::new(), Vec::new(), Vec::new());
    for key in wanted {
        let both = shown::find(&a.results, &key).zip(shown::find(&b.results, &key));
        let Some((first, second)) = both else {
            if question.metrics.is_empty() {
                continue;
            }
            return Err(unknown(a, b, &key));
        };
        if first.key != second.key && !question.mixed {
            left_out.push(format!(
                "left out: {key} is {} in A and {} in B; --mixed compares them all the same",
                origin(first),
                origin(second)
            ));
            continue;
        }
        if let Some(why) = domains::differ(a, b, &shown::plain(first)) {
            if !question.mixed {
                left_out.push(format!("left out: {key} is {why}; --mixed compares them all the same"));
                continue;
            }
            warned.push(format!("{key} is {why}"));
        }
        found.push(Both { plain: shown::plain(first), a: first, b: second });
    }
    match (found.is_empty(), left_out.is_empty()) {
        (false, _) => {
            left_out.extend(warned);
            Ok((found, left_out))
        }
        (true, false) => Err(Refused::Mixed(left_out.join("\n"))),
        (true, true) => Err(Refused::NoneInCommon),
    }
}

/// What is compared where nobody has named anything: the main metrics; whatever both have where there are none of these.
fn usual(a: &Given, b: &Given) -> Vec<String> {
    let is_there = |key: &str| shown::find(&a.results, key).is_some() && shown::find(&b.results, key).is_some();
    let is_counted = |given: &Given| shown::FAMILIES.iter().any(|family| shown::is_counted(&given.results, family));
    let mut keys = if is_counted(a) && is_counted(b) { Vec::new() } else { shown::byte_keys() };
    keys.extend(shown::main_keys());
    let of_phases = a.results.metrics.iter().map(|about| &about.key).filter(|key| key.contains('.'));
    let of_phases: Vec<String> =
        of_phases.filter(|key| keys.iter().any(|main| main == metric::bare(key))).cloned().collect();
    keys.extend(of_phases);
    keys.retain(|key| is_there(key));
    if keys.is_empty() {
        keys = shown::shown(&a.results).into_iter().map(shown::plain).filter(|key| is_there(key)).collect();
    }
    keys
}

/// Points at which only one of both has a value: they are in no table.
fn holes(points: &[(String, &PointResult, &PointResult)], both: &Both<'_>) -> Vec<String> {
    let without = |side: &str, has: fn(&(String, &PointResult, &PointResult), &Both<'_>) -> [bool; 2]| {
        let count = points.iter().filter(|point| has(point, both) == [true, false]).count();
        let (key, all) = (&both.plain, points.len());
        (count > 0).then(|| format!("{key} has no value in {side} at {count} of {all} points: they are not compared"))
    };
    let in_b = without("B", |(_, a, b), both| [a.values.contains_key(&both.a.key), b.values.contains_key(&both.b.key)]);
    let in_a = without("A", |(_, a, b), both| [b.values.contains_key(&both.b.key), a.values.contains_key(&both.a.key)]);
    in_b.into_iter().chain(in_a).collect()
}

fn origin(about: &About) -> &str {
    if about.modelled { &about.key } else { "measured" }
}

fn unknown(a: &Given, b: &Given, asked: &str) -> Refused {
    let in_both = |about: &&About| shown::has(&a.results, &about.key) && shown::find(&b.results, &about.key).is_some();
    let known: Vec<&str> = a.results.metrics.iter().filter(in_both).map(|about| about.key.as_str()).collect();
    let meant = pilotlight_input::file::nearest(asked, &known);
    let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    Refused::NoMetric { asked: asked.to_owned(), meant, known: known.join(", ") }
}

fn one(words: &str, (a, b): (&PointResult, &PointResult), both: &Both<'_>, question: &Question) -> Option<Pair> {
    let (first, second) = (a.values.get(&both.a.key)?, b.values.get(&both.b.key)?);
    let mut pair = pair::pair(&first.values, &second.values, question.margin)?;
    words.clone_into(&mut pair.point);
    pair.metric.clone_from(&both.plain);
    pair.title.clone_from(&both.a.title);
    pair.unit.clone_from(&both.a.unit);
    (pair.a.modelled, pair.b.modelled) = (both.a.modelled, both.b.modelled);
    Some(pair)
}

/// Corrects the p values of all pairs together, and judges.
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

fn differing(a: &Given, b: &Given) -> Vec<(String, String, String)> {
    let machine = given::differing(&a.machine(), &b.machine());
    let asked = given::differing(&a.asked(), &b.asked());
    machine.into_iter().chain(asked.into_iter().map(|(key, a, b)| (format!("experiment.{key}"), a, b))).collect()
}

fn general(a: &Given, b: &Given, differing: &[(String, String, String)]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (side, given) in [("A", a), ("B", b)] {
        if !given.results.complete {
            warnings.push(format!("{side} is not complete: some of what was planned is missing"));
        }
        if given.environment.is_none() {
            warnings.push(format!("{side} does not say on what machine it was measured"));
        }
    }
    let keys: Vec<&str> = differing.iter().map(|(key, ..)| key.as_str()).collect();
    if !keys.is_empty() {
        warnings.push(format!("what differs may be due to: {}", keys.join(", ")));
    }
    warnings
}
