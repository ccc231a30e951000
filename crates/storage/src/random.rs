//! A seeded generator (SplitMix64) of reproducible random numbers: delays, power failures, tests.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// Pseudo-random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which must not be 0. The bias is at most `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_splitmix64() {
        // The first outputs for seed 1234567, from the reference implementation.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_covers_its_range() {
        let mut random = Random::new(1);
        let mut seen = [0; 7];
        for _ in 0..7_000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| count > 800), "{seen:?}");
    }
}
