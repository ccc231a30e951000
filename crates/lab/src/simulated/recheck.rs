//! Results computed again: a random sample of runs, each number compared exactly.
//!
//! The simulator is deterministic, so a number that differs says that results are not of this program. *Sample*: every run of every file
//! gets a number from the seed and its own name; the lowest are drawn. So the sample does not depend on the order of files, and
//! another seed draws others. *Budget*: of those drawn, runs are taken in that order as long as their estimated cost fits.

use std::fmt;

use crate::simulated::machine;
use crate::simulated::sweep::{Engine, Sweep, SweepError};
use pilotlight_results::values::{Cell, Results, Run, RunKey};

/// A run that can be computed again.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Which file's, in the order of the caller.
    pub file: usize,
    /// Which run of its sweep.
    pub job: usize,
    /// Its cell.
    pub cell: Cell,
    /// What orders the draw.
    pub lot: String,
    /// Estimated cost in seconds of a core.
    pub cost_s: f64,
}

/// The runs of a file of results. A run of which the file has only members of the family that ride on it is among them.
#[must_use]
pub fn candidates(file: usize, sweep: &Sweep<'_>, results: &Results, seed: u64) -> Vec<Candidate> {
    let name = &results.about.experiment;
    let lot = |key: &RunKey| machine::hash([seed.to_string().as_str(), name, &format!("{key:?}")]);
    let there = |job: usize| sweep.results_of(job).iter().any(|key| results.runs.contains_key(key));
    let jobs = sweep.list().filter(|&(job, ..)| there(job));
    jobs.map(|(job, key, cost_s)| Candidate { file, job, cell: key.cell(), lot: lot(&key), cost_s }).collect()
}

/// What is computed again.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The runs, by lot.
    pub chosen: Vec<Candidate>,
    /// How many were drawn and do not fit.
    pub left_out: usize,
    /// How many there are.
    pub of: usize,
}

/// Draws a share of all runs, at least one; of these, those whose cost fits into so many seconds of a core.
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

/// As [`sample`], and beside the share the first run by lot of each cell that the share leaves out.
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

/// A number that came out otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The experiment.
    pub experiment: String,
    /// The run.
    pub run: RunKey,
    /// The metric, and what results and computation say; `None` where one does not have it.
    pub metric: String,
    /// In the file of results.
    pub then: Option<f64>,
    /// Computed now.
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

/// Runs a job again and compares everything that the file has of it; returns how many numbers were equal, or the first that is not.
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
    for (key, now) in sweep.again(job, engine)? {
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
    fn a_sample_does_not_depend_on_order_and_keeps_its_budget() {
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
    fn each_cell_is_drawn_at_least_once_and_the_share_stays() {
        let all: Vec<Candidate> = (0..100).map(|job| candidate(job, 1.0)).collect();
        let few = sample_each_cell(all.clone(), 0.01).chosen;
        let points: std::collections::BTreeSet<&str> = few.iter().map(|run| run.cell.point.as_str()).collect();
        assert_eq!((few.len(), points.len()), (5, 5));
        let share = sample(all.clone(), 0.5, None).chosen;
        assert_eq!(sample_each_cell(all, 0.5).chosen, share, "it has runs of every cell");
    }
}
