//! Recomputes a random sample of results and compares every value exactly.
//!
//! The simulator is deterministic, so a difference means that results are of another program. *Sample*: every run gets a hash of the seed and its
//! name; the lowest are selected, independent of the order of files. *Budget*: selected runs are taken in that order while their estimated cost
//! fits.

use std::fmt;

use crate::simulated::machine;
use crate::simulated::sweep::{Engine, Sweep, SweepError};
use crate::stored::values::{Cell, Results, Run, RunKey};

/// A run to recompute.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Index of its file.
    pub file: usize,
    /// Index of the run in its sweep.
    pub job: usize,
    /// Its cell.
    pub cell: Cell,
    /// Its hash, which determines the order.
    pub lot: String,
    /// Estimated CPU time in seconds.
    pub cost_s: f64,
}

/// The runs of a results file, including those of which the file has only family members sharing the run.
#[must_use]
pub fn candidates(file: usize, sweep: &Sweep<'_>, results: &Results, seed: u64) -> Vec<Candidate> {
    let name = &results.about.experiment;
    let lot = |key: &RunKey| machine::hash([seed.to_string().as_str(), name, &format!("{key:?}")]);
    let stored = |job: usize| sweep.results_of(job).iter().any(|key| results.runs.contains_key(key));
    let jobs = sweep.list().filter(|&(job, ..)| stored(job));
    jobs.map(|(job, key, cost_s)| Candidate { file, job, cell: key.cell(), lot: lot(&key), cost_s }).collect()
}

/// A sample of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The runs in order of their hash.
    pub chosen: Vec<Candidate>,
    /// Number of selected runs that do not fit.
    pub left_out: usize,
    /// Number of all runs.
    pub of: usize,
}

/// Selects a share of all runs, at least one, and of these the ones within a CPU time in seconds.
#[must_use]
pub fn sample(mut all: Vec<Candidate>, share: f64, budget_s: Option<f64>) -> Sample {
    all.sort_unstable_by(|a, b| a.lot.cmp(&b.lot));
    let of = all.len();
    let drawn = ((of as f64 * share).ceil() as usize).clamp(of.min(1), of);
    let mut spent_s = 0.0;
    let fits = |candidate: &Candidate| {
        let fits = budget_s.is_none_or(|budget_s| spent_s + candidate.cost_s <= budget_s);
        if fits {
            spent_s += candidate.cost_s;
        }
        fits
    };
    let chosen: Vec<Candidate> = all.into_iter().take(drawn).filter(fits).collect();
    Sample { left_out: drawn - chosen.len(), chosen, of }
}

/// As [`sample`], plus the first run of each cell without a selected one.
#[must_use]
pub fn sample_each_cell(all: Vec<Candidate>, share: f64) -> Sample {
    let mut sample = sample(all.clone(), share, None);
    let mut rest: Vec<Candidate> = all.into_iter().filter(|candidate| !sample.chosen.contains(candidate)).collect();
    rest.sort_unstable_by(|a, b| a.lot.cmp(&b.lot));
    for candidate in rest {
        if sample.chosen.iter().all(|chosen| chosen.cell != candidate.cell) {
            sample.chosen.push(candidate);
        }
    }
    sample
}

/// A value that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The experiment.
    pub experiment: String,
    /// The run.
    pub run: RunKey,
    /// The metric with the stored and the recomputed value; `None` if missing.
    pub metric: String,
    /// The stored value.
    pub then: Option<f64>,
    /// The recomputed value.
    pub now: Option<f64>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunKey { point, variant, policy, replication } = &self.run;
        let say = |value: Option<f64>| value.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
        let (experiment, metric) = (&self.experiment, &self.metric);
        let (then, now) = (say(self.then), say(self.now));
        write!(
            f,
            "{experiment} at {point}, {policy}, {variant}, replication {replication}: {metric} is {then} in results, {now} now"
        )
    }
}

/// Recomputes a run and compares all its values; returns their number, or the first difference.
///
/// # Errors
/// If it cannot be run.
pub fn compare(
    sweep: &Sweep<'_>,
    job: usize,
    results: &Results,
    engine: &Engine<'_>,
) -> Result<Result<usize, Difference>, SweepError> {
    let mut equal = 0;
    for (key, now) in sweep.recompute(job, engine)? {
        let Some(then) = results.runs.get(&key) else { continue };
        if let Some((metric, then, now)) = differs(then, &now) {
            let experiment = results.about.experiment.clone();
            return Ok(Err(Difference { experiment, run: key, metric, then, now }));
        }
        equal += then.values.len();
    }
    Ok(Ok(equal))
}

fn differs(then: &Run, now: &Run) -> Option<(String, Option<f64>, Option<f64>)> {
    if then.seed != now.seed {
        return Some(("seed".into(), Some(then.seed as f64), Some(now.seed as f64)));
    }
    let names = then.values.iter().chain(&now.values).map(|value| &value.metric);
    let mut values = names.map(|metric| (metric, then.get(metric), now.get(metric)));
    let first = values.find(|(_, then, now)| then != now);
    first.map(|(metric, then, now)| (metric.clone(), then, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(job: usize, cost_s: f64) -> Candidate {
        let cell = Cell { point: (job % 5).to_string(), variant: "default".into(), policy: "static".into() };
        Candidate { file: 0, job, cell, lot: machine::hash([job.to_string().as_str()]), cost_s }
    }

    #[test]
    fn a_sample_is_independent_of_order_and_within_its_budget() {
        let all: Vec<Candidate> = (0..200).map(|job| candidate(job, 1.0 + (job % 7) as f64)).collect();
        let turned: Vec<Candidate> = all.iter().rev().cloned().collect();
        let drawn = sample(all.clone(), 0.1, None);
        assert_eq!((drawn.chosen.len(), drawn.left_out, drawn.of), (20, 0, 200));
        assert_eq!(sample(turned, 0.1, None), drawn);
        let within = sample(all, 0.1, Some(20.0));
        assert!(within.chosen.iter().map(|run| run.cost_s).sum::<f64>() <= 20.0);
        assert!(within.left_out > 0 && within.left_out + within.chosen.len() == 20);
        assert_eq!(sample(vec![candidate(1, 1.0)], 0.01, None).chosen.len(), 1, "one at least");
        assert_eq!(sample(Vec::new(), 0.01, None).chosen.len(), 0);
    }

    #[test]
    fn each_cell_is_selected_at_least_once() {
        let all: Vec<Candidate> = (0..100).map(|job| candidate(job, 1.0)).collect();
        let few = sample_each_cell(all.clone(), 0.01).chosen;
        let points: std::collections::BTreeSet<&str> = few.iter().map(|run| run.cell.point.as_str()).collect();
        assert_eq!((few.len(), points.len()), (5, 5));
        let share = sample(all.clone(), 0.5, None).chosen;
        assert_eq!(sample_each_cell(all, 0.5).chosen, share, "it has runs of every cell");
    }
}
