//! Shares of an experiment, one for each of several machines.
//!
//! *Assignment.* Runs are taken by decreasing estimated cost, each by the share with the lowest total so far (longest processing time first).
//! It depends on the experiment and the number of shares only, not on finished runs. *Properties* (tested): shares are disjoint, their union is
//! the whole, and no share exceeds another by more than the most expensive run.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fmt;
use std::str::FromStr;

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
    fn items_dealt_in_turn_are_in_one_share() {
        for of in 1..9 {
            let has = |item| (1..=of).filter(|&number| Shard { number, of }.has(item)).count();
            assert!((0..30).all(|item| has(item) == 1), "{of}");
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
