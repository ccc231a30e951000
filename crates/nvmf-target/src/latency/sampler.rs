//! Sampling of an I/O thread's receives: all at a low rate, a bounded number at a high rate.

/// Samples per tick (10 ms) above which the sampling rate is halved: 6,400 per second and I/O thread.
const MAX_SAMPLES: u32 = 64;
/// Binary logarithm of the maximum weight: 4096 receives per sample.
const MAX_WEIGHT_LOG2: u32 = 12;

/// Selects receives at random, so that a periodic order of connections causes no bias.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Binary logarithm of the mean receives per sample.
    every_log2: u32,
    /// Receives until the next sample.
    left: u32,
    /// Samples since the last tick.
    taken: u32,
    random: u32,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { every_log2: 0, left: 1, taken: 0, random: 0x9e37_79b9 }
    }
}

impl Sampler {
    /// For the next receive: the binary logarithm of its weight, if it is sampled.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u32> {
        self.left -= 1;
        (self.left == 0).then(|| self.take())
    }

    #[cold]
    fn take(&mut self) -> u32 {
        let weight = self.every_log2;
        self.taken += 1;
        if self.taken > MAX_SAMPLES && self.every_log2 < MAX_WEIGHT_LOG2 {
            (self.every_log2, self.taken) = (self.every_log2 + 1, MAX_SAMPLES / 2);
        }
        self.left = self.gap();
        weight
    }

    /// Uniform from 1 to twice the mean minus one.
    fn gap(&mut self) -> u32 {
        // Marsaglia's xorshift32, written out: it is on the request path, and needs 32 bits of state and no call.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        1 + self.random % ((2 << self.every_log2) - 1)
    }

    /// Called every 10 ms or more.
    pub(crate) fn tick(&mut self) {
        if self.taken < MAX_SAMPLES / 2 && self.every_log2 > 0 {
            self.every_log2 -= 1;
            self.left = self.gap();
        }
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of `receives` receives in a tick, and their total weight.
    fn tick(sampler: &mut Sampler, receives: u32) -> (u32, u64) {
        let weights: Vec<u32> = (0..receives).filter_map(|_| sampler.next()).collect();
        sampler.tick();
        (weights.len() as u32, weights.iter().map(|&weight| 1 << weight).sum())
    }

    #[test]
    fn the_number_of_samples_is_bounded() {
        let mut sampler = Sampler::default();
        for _ in 0..10 {
            assert_eq!(tick(&mut sampler, MAX_SAMPLES / 2), (MAX_SAMPLES / 2, u64::from(MAX_SAMPLES / 2)));
        }
        for receives in [100, 1_000, 10_000, 100_000] {
            let (samples, weights): (Vec<_>, Vec<_>) = (0..200).map(|_| tick(&mut sampler, receives)).unzip();
            assert!(samples[20..].iter().all(|&samples| samples <= 2 * MAX_SAMPLES), "{receives}: {samples:?}");
            let mean = weights.iter().sum::<u64>() as f64 / 200.0;
            assert!((mean / f64::from(receives) - 1.0).abs() < 0.05, "{mean} instead of {receives}");
        }
        (0..20).for_each(|_| _ = tick(&mut sampler, 1));
        assert_eq!(tick(&mut sampler, 1), (1, 1), "every receive is sampled again");
    }

    #[test]
    fn connections_in_a_fixed_order_are_sampled_equally() {
        let mut sampler = Sampler::default();
        let mut samples = [0_u32; 8];
        for receive in 0..800_000 {
            samples[receive % 8] += u32::from(sampler.next().is_some());
            if receive % 1_000 == 0 {
                sampler.tick();
            }
        }
        let (fewest, most) = (samples.iter().min().unwrap(), samples.iter().max().unwrap());
        assert!(*fewest > 0 && *most < *fewest * 5 / 4, "{samples:?}");
    }
}
