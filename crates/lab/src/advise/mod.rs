//! What the data of an experiment support: the best setting of each knob that was varied, what it saves, and at what cost in latency. The
//! thesis's Table 5.1, for the machine that was measured.
//!
//! *Problem.* The thesis reads its table off single runs. A machine that is measured anew gives other numbers each time, and of many settings
//! one is always the best by chance. *Words.* A *work* is what is asked of the drive: IOPS-driven (small random requests,
//! judged by I/Os per joule) or throughput-driven (large sequential ones, bytes per joule). A *circumstance* of a knob is one standing of all other
//! knobs; only circumstances in which every value of the knob was measured often enough count.
//!
//! *Algorithm.* Of each work, each knob and each pair of its values: the mean difference of log efficiency, paired over circumstances, with
//! the standard error that follows from the repeats within them (Welch and Satterthwaite). All pairs of all knobs and
//! works are corrected together by Holm. The best value is the one with the highest mean; with it stand those not shown to be
//! worse. If none is shown to be worse, there is nothing to recommend. Where another value is better in some circumstance
//! (Bonferroni over all such tests) that is named as an exception.
//!
//! *Properties.* With 95 % no value is recommended where none differs, however many knobs there are. What is said is about the
//! circumstances that were measured, not about others. The order of points changes nothing. Intervals of savings hold one at a time; because the
//! best and the worst are picked by what was measured, they overstate a little.

mod basis;
mod knob;
#[cfg(test)]
mod tests;
pub mod thesis;
pub mod work;

use pilotlight_stats::Estimate;
use pilotlight_stats::compare::holm;
use serde::Serialize;

use crate::given::Given;
use knob::Study;
use work::Kind;

/// Chance of recommending anything where nothing differs.
pub const LEVEL: f64 = 0.05;

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Points with fewer repeats do not count.
    pub at_least: usize,
    /// What is compared with, by knob; the worst that is shown to be worse, if a knob is not named.
    pub baseline: Vec<(String, String)>,
    /// Settings whose p99 latency is above this anywhere are not recommended, in microseconds.
    pub p99_at_most_us: Option<f64>,
    /// Whose energy counts: `system`, `ssd_cpu`, `ssd` or `cpu`; the widest that was measured if `None`.
    pub scope: Option<String>,
}

impl Default for Question {
    fn default() -> Self {
        Self { at_least: 3, baseline: Vec::new(), p99_at_most_us: None, scope: None }
    }
}

/// What the data support.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Advice {
    /// Where the data lie.
    pub of: String,
    /// What a reader must know first.
    pub warnings: Vec<String>,
    /// How many tests were corrected for.
    pub tests: usize,
    /// Points with fewer repeats do not count.
    pub at_least: usize,
    /// By kind of work.
    pub works: Vec<Work>,
}

/// One kind of work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Work {
    /// Which.
    pub kind: Kind,
    /// What it is, and which points it takes.
    pub about: String,
    /// How many points it has.
    pub points: usize,
    /// What efficiency is counted by, in words; `None` if there is nothing to count by.
    pub by: Option<String>,
    /// Whether that rests on a model.
    pub modelled: bool,
    /// Whether that is energy. Without power it is CPU time or speed.
    pub is_energy: bool,
    /// The rows of Table 5.1, then the other knobs.
    pub rows: Vec<Row>,
}

/// What is said of one variable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The variable, as the thesis calls it; or the knob.
    pub variable: String,
    /// The knob; `None` if there is none of this variable.
    pub knob: Option<String>,
    /// What the data support.
    pub outcome: Outcome,
    /// Circumstances that do not count because a value is missing in them, or was measured too seldom.
    pub left_out: usize,
    /// What the thesis recommends for its machine (Table 5.1).
    pub thesis: Option<&'static str>,
}

/// What the data support.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The knob stood still.
    NotVaried,
    /// This is the work itself, or cannot be told from such data.
    NotDerived(&'static str),
    /// Too little was measured: what is missing.
    TooLittle(String),
    /// No value is shown to be worse than the best one.
    NoDifference {
        /// Values, the best by its mean first.
        values: Vec<String>,
        /// The least corrected p of the best one against another.
        p: f64,
    },
    /// Every value is above the limit of p99 latency somewhere.
    NoneWithinLimit,
    /// A recommendation.
    Best(Box<Best>),
}

/// A recommendation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// The best value, then those not shown to be worse.
    pub values: Vec<String>,
    /// What it is compared with.
    pub against: String,
    /// Whether that is the baseline that was asked for, and not the worst.
    pub is_baseline: bool,
    /// Energy (or CPU time, or time) of the same work that is saved, in percent, with its 95 % interval.
    pub saves_percent: Estimate,
    /// Chance of such a difference where there is none, corrected for all tests.
    pub p: f64,
    /// Mean latency over that of `against`.
    pub latency_mean: Option<Estimate>,
    /// p99 latency over that of `against`.
    pub latency_p99: Option<Estimate>,
    /// In how many circumstances its mean is the highest of all that are within the limit.
    pub holds_in: usize,
    /// How many circumstances there are.
    pub circumstances: usize,
    /// Where another value is shown to be better: the circumstance, and that value.
    pub except: Vec<(String, String)>,
}

/// What the data support.
#[must_use]
pub fn advise(given: &Given, question: &Question) -> Advice {
    let works = work::works(given);
    let mut warnings = warnings(given);
    warnings.extend(neither(given, &works));
    let mut studies: Vec<(Work, Vec<(String, Study)>)> = Vec::new();
    for work in works {
        let by = basis::choose(given, &work, question.scope.as_deref());
        let (by, modelled, is_energy) = match &by {
            Some(by) => (Some(by), by.modelled, by.is_energy),
            None => (None, false, false),
        };
        let of_knob = |name: &String| Some((name.clone(), Study::of(given, &work, name, by?, question)));
        let knobs: Vec<(String, Study)> = given.results.knobs.iter().filter_map(of_knob).collect();
        let about = work.about();
        let by = by.map(|by| by.words.clone());
        let points = work.points.len();
        studies.push((Work { kind: work.kind, about, points, by, modelled, is_energy, rows: Vec::new() }, knobs));
    }
    let tests = correct(&mut studies);
    let pairs_within: usize = studies.iter().flat_map(|(_, knobs)| knobs).map(|(_, study)| study.inner_tests()).sum();
    let works = studies.into_iter().map(|(work, knobs)| finish(work, &knobs, question, pairs_within)).collect();
    if tests > 0 {
        warnings.push("savings are about the circumstances that were measured; others may differ".into());
    }
    Advice { of: given.name.clone(), warnings, tests, at_least: question.at_least, works }
}

/// Points that are no work of either kind: nothing below is about them.
fn neither(given: &Given, works: &[work::Points<'_>]) -> Option<String> {
    let all = given.results.points.len();
    let of_a_kind: usize = works.iter().map(|work| work.points.len()).sum();
    let left = all.saturating_sub(of_a_kind);
    let words = "neither random requests of at most 16 KiB nor sequential ones of 128 KiB or more";
    (!works.is_empty() && left > 0)
        .then(|| format!("{left} of {all} points are {words}: only the request size is judged with them"))
}

fn warnings(given: &Given) -> Vec<String> {
    let mut warnings = Vec::new();
    if !given.results.complete {
        warnings.push("the run is not complete: some of what was planned is missing".to_owned());
    }
    if given.results.points.iter().any(|point| !point.failures.is_empty()) {
        warnings.push("some measurements failed".to_owned());
    }
    warnings
}

/// Corrects all tests together; how many there are.
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
    let mut told: Vec<&str> = Vec::new();
    for variable in &thesis::TABLE {
        let found: Vec<&(String, Study)> = knobs.iter().filter(|(name, _)| variable.is(name)).collect();
        told.extend(found.iter().map(|(name, _)| name.as_str()));
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
    for (name, study) in knobs.iter().filter(|(name, _)| !told.contains(&name.as_str())) {
        let outcome = study.outcome(name, question, inner);
        let (variable, knob) = (name.clone(), Some(name.clone()));
        rows.push(Row { variable, knob, outcome, left_out: study.incomplete, thesis: None });
    }
    Work { rows, ..work }
}
