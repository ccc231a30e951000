//! A sweep restricted to a share of its runs, and its identity.

use crate::stored::values::{Results, RunKey};

use super::{Sweep, seed};
use crate::shard::Shard;
use crate::simulated::machine;

impl Sweep<'_> {
    /// Restricts the sweep to a share of its runs.
    #[must_use]
    pub fn share(mut self, shard: Shard) -> Self {
        // Whole microseconds, at least 1: runs of unknown cost are divided evenly.
        let costs: Vec<u64> = self.jobs.iter().map(|job| (self.cost_s(job) * 1e6) as u64).map(|us| us.max(1)).collect();
        let own = shard.indices(&costs);
        self.jobs = own.into_iter().map(|at| self.jobs[at]).collect();
        self
    }

    /// Hash of everything that determines the results of the sweep: names, seeds and fingerprints of all runs.
    #[must_use]
    pub fn identity(&self) -> String {
        let cells = self.cells(&Results::default());
        let line = |key: &RunKey, seed: u64| {
            let fingerprint = cells.get(&key.cell()).map(|fingerprint| fingerprint.to_string());
            format!("{key:?} {seed} {fingerprint:?}")
        };
        let of_job = |job| {
            let seed = seed(self.point(job).experiment.seed, job.replication);
            self.keys(job).into_iter().map(move |key| line(&key, seed))
        };
        let lines: Vec<String> = self.jobs.iter().flat_map(of_job).collect();
        machine::hash(lines.iter().map(String::as_str))
    }

    /// Runs without complete results.
    #[must_use]
    pub fn missing_runs(&self, results: &Results) -> Vec<RunKey> {
        self.missing(results).into_iter().map(|job| self.key(job, &self.variants[job.variant])).collect()
    }
}
