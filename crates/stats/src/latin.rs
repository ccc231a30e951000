//! Latin hypercube sampling of several uncertain constants.
//!
//! With n draws the range of each constant is cut into n equal parts, and each part is used once, in random combination. A few dozen
//! draws cover every range, while independent draws would leave gaps.
//!
//! Random numbers come from the seed and the constant's name, so that a constant has the same draws beside other constants: machines
//! whose free constants differ can be compared draw by draw.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// Distribution of a constant's values over its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    #[default]
    Linear,
    /// Evenly in the logarithm, for constants that are uncertain by a factor.
    Log,
}

/// The range of a constant, in its own unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// Its name.
    pub name: String,
    /// The least value.
    pub low: f64,
    /// The greatest value.
    pub high: f64,
    /// The distribution of values.
    pub scale: Scale,
}

/// An invalid range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RangeError {
    /// The ends are not finite or not in ascending order.
    #[error("range of {name}: {low} to {high} is not a range; write the lower value first")]
    Ends {
        /// The constant.
        name: String,
        /// The lower end.
        low: f64,
        /// The upper end.
        high: f64,
    },
    /// A logarithm needs positive values.
    #[error("range of {name}: a logarithmic range must begin above 0, not at {low}")]
    Log {
        /// The constant.
        name: String,
        /// The lower end.
        low: f64,
    },
}

impl Range {
    fn check(&self) -> Result<(), RangeError> {
        let Self { name, low, high, scale } = self;
        if !(low.is_finite() && high.is_finite() && low <= high) {
            return Err(RangeError::Ends { name: name.clone(), low: *low, high: *high });
        }
        if *scale == Scale::Log && *low <= 0.0 {
            return Err(RangeError::Log { name: name.clone(), low: *low });
        }
        Ok(())
    }

    /// The value at a fraction of the range.
    fn at(&self, share: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => self.low + share * (self.high - self.low),
            Scale::Log => self.low * (self.high / self.low).powf(share),
        };
        value.clamp(self.low, self.high)
    }
}

/// `draws` points, each with a value for every range, in the order of `ranges`. The same seed gives the same points.
///
/// # Errors
/// If a range is invalid.
pub fn hypercube(ranges: &[Range], draws: usize, seed: u64) -> Result<Vec<Vec<f64>>, RangeError> {
    ranges.iter().try_for_each(Range::check)?;
    let mut points = vec![Vec::with_capacity(ranges.len()); draws];
    for range in ranges {
        let mut random = SplitMix::named(&range.name, seed);
        for (point, part) in points.iter_mut().zip(permutation(draws, &mut random)) {
            point.push(range.at((part as f64 + random.unit()) / draws as f64));
        }
    }
    Ok(points)
}

/// The numbers below `n` in random order (Fisher and Yates).
fn permutation(n: usize, random: &mut SplitMix) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, random.below(i + 1));
    }
    order
}

/// Seeded random numbers.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix(SplitMix64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// Numbers of a name: the seed and the name's FNV-1a hash, which is the same on every machine and with every compiler.
    fn named(name: &str, seed: u64) -> Self {
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self::new(seed ^ name.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
    }

    /// From 0 to below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(low: f64, high: f64, scale: Scale) -> Range {
        named("sim.loop_ns", low, high, scale)
    }

    fn named(name: &str, low: f64, high: f64, scale: Scale) -> Range {
        Range { name: name.to_owned(), low, high, scale }
    }

    proptest! {
        #[test]
        fn every_part_of_every_range_is_drawn_once(seed: u64, draws in 1_usize..60) {
            let ranges = [range(-3.0, 5.0, Scale::Linear), named("another", 0.01, 100.0, Scale::Log)];
            let points = hypercube(&ranges, draws, seed).unwrap();
            let shares: [fn(f64) -> f64; 2] = [|x| (x + 3.0) / 8.0, |x| (x / 0.01).log10() / 4.0];
            for (column, share) in shares.into_iter().enumerate() {
                let part = |point: &Vec<f64>| ((share(point[column]) * draws as f64) as usize).min(draws - 1);
                let mut parts: Vec<usize> = points.iter().map(part).collect();
                parts.sort_unstable();
                let missing = (0..draws).filter(|part| parts.binary_search(part).is_err()).count();
                prop_assert!(missing <= 1, "{missing} of {draws}"); // rounding at an edge
            }
            prop_assert_eq!(hypercube(&ranges, draws, seed).unwrap(), points);
        }
    }

    #[test]
    fn a_range_has_the_same_draws_beside_other_ranges() {
        let [a, b, c] = ["a", "b", "c"].map(|name| named(name, 0.0, 1.0, Scale::Linear));
        let column = |ranges: &[Range], at: usize| {
            let points = hypercube(ranges, 20, 7).unwrap();
            points.into_iter().map(|point| point[at]).collect::<Vec<f64>>()
        };
        let alone = column(std::slice::from_ref(&c), 0);
        assert_eq!(column(&[a.clone(), b, c.clone()], 2), alone);
        assert_ne!(column(&[a, c], 0), alone, "names have draws of their own");
    }

    #[test]
    fn seeds_give_different_draws() {
        let ranges = [range(0.0, 1.0, Scale::Linear)];
        assert_ne!(hypercube(&ranges, 10, 1), hypercube(&ranges, 10, 2));
    }

    #[test]
    fn invalid_ranges_are_refused_by_name() {
        let refused = |range| hypercube(&[range], 3, 0).unwrap_err().to_string();
        assert!(refused(range(2.0, 1.0, Scale::Linear)).contains("sim.loop_ns"));
        assert!(refused(range(0.0, 1.0, Scale::Log)).contains("above 0"));
        assert!(refused(range(f64::NAN, 1.0, Scale::Linear)).contains("not a range"));
    }

    #[test]
    fn the_generator_is_splitmix64() {
        let mut random = SplitMix::new(1_234_567);
        assert_eq!(random.0.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.0.next_u64(), 3_203_168_211_198_807_973);
    }
}
