//! Counter-based random numbers: a number depends only on seed, purpose, index and counter.
//!
//! The streams are independent: the requests of a volume do not depend on the number of volumes. Mixing is that of SplitMix64 (Steele,
//! Lea and Flood, OOPSLA 2014). Hand-written because the results of published experiments depend on the sequence.

const WEYL: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection of 64-bit words that spreads every bit of the input over the output.
#[must_use]
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    key: u64,
    next: u64,
}

impl Stream {
    /// The stream of a seed, a purpose and an index.
    pub(crate) fn new(seed: u64, purpose: u64, index: u64) -> Self {
        Self { key: mix(mix(mix(seed ^ WEYL).wrapping_add(purpose)).wrapping_add(index)), next: 0 }
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.next += 1;
        mix(self.key.wrapping_add(self.next.wrapping_mul(WEYL)))
    }

    /// Uniform over `0..bound`; `bound` must not be 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform over (0, 1].
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.draw() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform over a range.
    pub(crate) fn between(&mut self, (low, high): (f64, f64)) -> f64 {
        low + (high - low) * (1.0 - self.unit())
    }

    /// Exponential with this mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed, purpose, index| Stream::new(seed, purpose, index).draw();
        assert_eq!(first(1, 2, 3), first(1, 2, 3));
        let all = [first(1, 2, 3), first(2, 2, 3), first(1, 3, 3), first(1, 2, 4)];
        assert!((1..4).all(|at| !all[..at].contains(&all[at])));
    }

    #[test]
    fn draws_are_uniform_and_gaps_exponential() {
        let mut stream = Stream::new(1, 0, 0);
        let (mut bins, mut sum) = ([0_u32; 16], 0.0);
        for _ in 0..160_000 {
            bins[stream.below(16) as usize] += 1;
            sum += stream.exponential(3.0);
        }
        assert!(bins.iter().all(|&count| (9_500..=10_500).contains(&count)), "{bins:?}"); // 10,000, deviation 97
        assert!((sum / 160_000.0 - 3.0).abs() < 0.05, "{sum}");
    }
}
