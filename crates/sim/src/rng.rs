//! Counter-based random numbers: draw `n` of a stream is a function of seed, purpose, index and `n`.
//!
//! Draws are independent of each other's order, so two policies see the same arrivals and drives (common random numbers). Hand-written
//! because `rand_xoshiro` has no random access by counter. The mixing function is that of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014),
//! applied to a key and a Weyl sequence. No platform mathematics is used, so a seed yields the same numbers on every platform.

/// Purpose of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Times and contents of requests.
    Arrivals = 1,
    /// Service times of drives.
    Devices = 2,
    /// Random choices of a policy.
    Policy = 3,
    /// Failures of commands.
    Machine = 4,
    /// Sampled constants.
    Constants = 5,
    /// Noise of sensors.
    Sensors = 6,
    /// Stalls of client threads.
    Hosts = 7,
    /// Delays of cores.
    Cores = 8,
}

/// A stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: u64,
    next: u64,
}

const WEYL: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Stream {
    /// The stream of `seed` for a purpose; `index` distinguishes streams of the same purpose.
    #[must_use]
    pub fn new(seed: u64, purpose: Purpose, index: u64) -> Self {
        let key = mix(mix(mix(seed ^ WEYL).wrapping_add(purpose as u64)).wrapping_add(index));
        Self { key, next: 0 }
    }

    /// Draw number `counter`, independent of the stream's position.
    #[must_use]
    pub fn at(&self, counter: u64) -> u64 {
        mix(self.key.wrapping_add(counter.wrapping_add(1).wrapping_mul(WEYL)))
    }

    /// Skips draws.
    pub fn pass(&mut self, draws: u64) {
        self.next += draws;
    }

    /// The next draw.
    pub fn draw(&mut self) -> u64 {
        let drawn = self.at(self.next);
        self.next += 1;
        drawn
    }

    /// The next draw, uniform over `0..bound`; `bound` must not be 0. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        below(self.draw(), bound)
    }

    /// The next draw, uniform over (0, 1].
    pub fn unit(&mut self) -> f64 {
        unit(self.draw())
    }

    /// The next draw, exponential with this mean.
    #[inline]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        exponential(self.draw()) * mean
    }
}

/// Several draws from 64 random bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draws {
    seed: u64,
    /// Number of draws taken.
    pub(crate) taken: u64,
}

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, taken: 0 }
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.taken += 1;
        mix(self.seed.wrapping_add(self.taken.wrapping_mul(WEYL)))
    }
}

/// A draw as a number of `0..bound`.
#[must_use]
pub fn below(drawn: u64, bound: u64) -> u64 {
    ((u128::from(drawn) * u128::from(bound)) >> 64) as u64
}

/// A draw as a number of (0, 1].
#[must_use]
pub fn unit(drawn: u64) -> f64 {
    ((drawn >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// A draw as an exponential number of mean 1: the negative logarithm of [`unit`], within 1e-14.
///
/// A table over the first seven bits and a short series: with them a simulated request takes 66 instructions less than with the
/// platform's `ln` and `fract` (`valgrind --tool=callgrind` on `examples/speed`).
#[must_use]
#[inline]
pub fn exponential(drawn: u64) -> f64 {
    let bits = (((drawn >> 11) + 1) as f64).to_bits();
    let halvings = 53 - ((bits >> MANTISSA_BITS) as i32 - 1023);
    let (inverse, ln) = LOGARITHMS[(bits >> (MANTISSA_BITS - TABLE_BITS)) as usize % LOGARITHMS.len()];
    let mantissa = f64::from_bits((bits & ((1 << MANTISSA_BITS) - 1)) | (1023 << MANTISSA_BITS));
    let r = mantissa * inverse - 1.0; // from 0 to 1/128: the first term left out is below 3e-16
    let series = r * (1.0 + r * (-1.0 / 2.0 + r * (1.0 / 3.0 + r * (-1.0 / 4.0 + r * (1.0 / 5.0 + r * (-1.0 / 6.0))))));
    (f64::from(halvings) * std::f64::consts::LN_2 - ln - series).max(0.0)
}

const MANTISSA_BITS: u32 = 52;
const TABLE_BITS: u32 = 7;

/// `(1 / x, ln x)` for x from 1 to 2 in steps of 1/128.
static LOGARITHMS: [(f64, f64); 1 << TABLE_BITS] = {
    let mut table = [(1.0, 0.0); 1 << TABLE_BITS];
    let mut at = 1;
    while at < table.len() {
        let x = 1.0 + at as f64 / table.len() as f64;
        table[at] = (1.0 / x, ln_near_one(x));
        at += 1;
    }
    table
};

/// ln x for x from 1 to 2: the series of the inverse hyperbolic tangent, at compile time.
const fn ln_near_one(x: f64) -> f64 {
    let z = (x - 1.0) / (x + 1.0);
    let (mut power, mut sum, mut odd) = (z, 0.0, 1);
    while odd < 40 {
        sum += power / odd as f64;
        power *= z * z;
        odd += 2;
    }
    2.0 * sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn exponential_matches_the_logarithm(drawn in any::<u64>(), zeros in 0..64_u32) {
            for drawn in [drawn >> zeros, !(drawn >> zeros), 0, u64::MAX] {
                let (ours, exact) = (exponential(drawn), -unit(drawn).ln());
                prop_assert!((ours - exact).abs() < 1e-14 && ours >= 0.0, "{drawn}: {ours} for {exact}");
            }
        }
    }

    /// Kolmogorov-Smirnov test.
    #[test]
    fn exponential_has_the_expected_distribution() {
        let mut stream = Stream::new(5, Purpose::Arrivals, 0);
        let mut drawn: Vec<f64> = (0..200_000).map(|_| stream.exponential(1.0)).collect();
        drawn.sort_unstable_by(f64::total_cmp);
        let count = drawn.len() as f64;
        let distance = |(rank, value): (usize, &f64)| (1.0 - (-value).exp() - (rank as f64 + 0.5) / count).abs();
        let largest = drawn.iter().enumerate().map(distance).fold(0.0, f64::max);
        assert!(largest < 1.63 / count.sqrt(), "{largest}: beyond what one seed in a hundred gives");
    }

    #[test]
    fn draws_are_independent_of_their_order() {
        let mut stream = Stream::new(7, Purpose::Arrivals, 3);
        let ahead = stream.at(5);
        assert_eq!((0..6).map(|_| stream.draw()).last(), Some(ahead));
    }

    #[test]
    fn streams_differ_by_seed_purpose_and_index() {
        let first = |seed, purpose, index| Stream::new(seed, purpose, index).draw();
        let all = [
            first(1, Purpose::Arrivals, 0),
            first(2, Purpose::Arrivals, 0),
            first(1, Purpose::Devices, 0),
            first(1, Purpose::Arrivals, 1),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{all:x?}");
        }
    }

    #[test]
    fn draws_are_uniform() {
        let mut stream = Stream::new(1, Purpose::Machine, 0);
        let mut bins = [0_u32; 16];
        let mut sum = 0.0;
        for _ in 0..160_000 {
            bins[stream.below(16) as usize] += 1;
            sum += stream.exponential(3.0);
        }
        // 10,000 expected in each, standard deviation 97.
        assert!(bins.iter().all(|&count| (9_500..=10_500).contains(&count)), "{bins:?}");
        assert!((sum / 160_000.0 - 3.0).abs() < 0.05, "{sum}");
    }
}
