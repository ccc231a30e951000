//! Shares of a sweep's runs, one for each of several machines.
//!
//! *Assignment.* Runs are taken by decreasing estimated cost, each by the share with the lowest total so far (longest processing time first).
//! It depends on the experiment and the number of shares only, not on finished runs. *Properties* (tested): shares are disjoint, their union is
//! the whole, and no share exceeds another by more than the most expensive run.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fmt;
use std::str::FromStr;

use pilotlight_results::values::{Results, RunKey};

use super::{Sweep, seed};
use crate::simulated::machine;

/// Share K of N: `K/N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// K, from 1.
    number: u32,
    /// N.
    of: u32,
}

/// The text is not a share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected K/N with 1 <= K <= N, such as 3/8")]
pub struct ShardError;

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let (number, of) = text.split_once('/').ok_or(ShardError)?;
        let [number, of] = [number, of].map(|text| text.parse::<u32>().map_err(|_| ShardError));
        let shard = Self { number: number?, of: of? };
        if (1..=shard.of).contains(&shard.number) { Ok(shard) } else { Err(ShardError) }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl Shard {
    /// Whether an item with this number is in the share, if items are dealt in turn.
    #[must_use]
    pub const fn has(self, number: usize) -> bool {
        number % self.of as usize == self.number as usize - 1
    }

    /// The indices of this share among runs with these costs, in any unit.
    #[must_use]
    pub fn indices(self, costs: &[u64]) -> BTreeSet<usize> {
        let mut order: Vec<usize> = (0..costs.len()).collect();
        order.sort_by_key(|&at| (Reverse(costs[at]), at));
        // Only as many shares as runs can have one.
        let used = self.of.min(u32::try_from(costs.len()).unwrap_or(u32::MAX));
        let mut shares: BinaryHeap<Reverse<(u64, u32)>> = (1..=used).map(|number| Reverse((0, number))).collect();
        let mut own = BTreeSet::new();
        for at in order {
            let Some(Reverse((total, number))) = shares.pop() else { break };
            if number == self.number {
                own.insert(at);
            }
            shares.push(Reverse((total.saturating_add(costs[at]), number)));
        }
        own
    }
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares(costs: &[u64], of: u32) -> Vec<BTreeSet<usize>> {
        (1..=of).map(|number| Shard { number, of }.indices(costs)).collect()
    }

    proptest! {
        #[test]
        fn shares_are_disjoint_complete_and_balanced(
            costs in prop::collection::vec(1_u64..10_000, 0..80), of in 1_u32..100,
        ) {
            let shares = shares(&costs, of);
            let mut all: Vec<usize> = shares.iter().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..costs.len()).collect::<Vec<_>>());
            let totals: Vec<u64> = shares.iter().map(|share| share.iter().map(|&at| costs[at]).sum()).collect();
            let spread = totals.iter().max().unwrap() - totals.iter().min().unwrap();
            prop_assert!(spread <= costs.iter().copied().max().unwrap_or(0));
        }
    }

    #[test]
    fn equal_costs_give_equal_counts() {
        let counts: Vec<usize> = shares(&[1; 96], 8).iter().map(BTreeSet::len).collect();
        assert_eq!(counts, [12; 8]);
    }

    #[test]
    fn only_valid_shares_are_accepted() {
        assert_eq!("3/8".parse::<Shard>().unwrap().to_string(), "3/8");
        for wrong in ["", "3", "0/8", "9/8", "1/0", "-1/8", "a/b", "1/2/3"] {
            assert_eq!(wrong.parse::<Shard>(), Err(ShardError), "{wrong}");
        }
    }
}
