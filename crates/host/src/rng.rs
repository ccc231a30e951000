//! A seeded random source: xoshiro256++ (Blackman and Vigna), seeded by SplitMix64.
//!
//! A seed gives the same sequence on every machine; each connection has its own, from [`Rng::fork`].

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// A deterministic random source.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// A source with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// An independent source for part number `part`.
    #[must_use]
    pub fn fork(seed: u64, part: u64) -> Self {
        Self::new(mix(seed ^ mix(part.wrapping_add(1))))
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`; the bias is below `bound / 2^64`. 0 for a bound of 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `(0, 1]`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

/// The finaliser of SplitMix64: a bijection that spreads every input bit over the output.
#[inline]
#[must_use]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_depend_on_seed_and_part_alone() {
        let take = |mut r: Rng| (0..64).map(|_| r.next_u64()).collect::<Vec<_>>();
        assert_eq!(take(Rng::new(7)), take(Rng::new(7)));
        assert_eq!(
            take(Rng::new(7))[..3],
            [0x0e2c_1a00_2aae_913d, 0x2c0f_c8dd_fa4e_9e14, 0xb7b3_11b3_b0d4_5872],
            "the reference generator"
        );
        assert_ne!(take(Rng::new(7)), take(Rng::new(8)));
        assert_ne!(take(Rng::fork(7, 0)), take(Rng::fork(7, 1)));
    }

    #[test]
    fn below_is_even_over_its_range() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 10];
        for _ in 0..100_000 {
            seen[rng.below(10) as usize] += 1;
        }
        // six standard deviations of 95
        assert!(seen.iter().all(|&n| n.abs_diff(10_000) < 570), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn unit_is_above_0_and_has_a_mean_of_one_half() {
        let mut rng = Rng::new(2);
        let draws: Vec<f64> = (0..100_000).map(|_| rng.unit()).collect();
        assert!(draws.iter().all(|&u| u > 0.0 && u <= 1.0));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean - 0.5).abs() < 0.006, "{mean}");
    }
}
