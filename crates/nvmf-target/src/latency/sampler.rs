//! Which receives of an I/O thread are sampled: all while there are few, fewer the more there are.

/// Samples between two ticks (10 ms) above which every other one is left out: 6,400 a second on each I/O thread.
const MOST: u32 = 64;
/// Most receives that a sample stands for, as a binary logarithm: 4096.
const SPARSEST: u32 = 12;

/// Chooses receives at random, so that no order in which connections take turns shows in the samples.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Receives for each sample, on average, as a binary logarithm.
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
    /// There is another receive: how many it stands for, as a binary logarithm, if it is sampled.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u32> {
        self.left -= 1;
        (self.left == 0).then(|| self.take())
    }

    #[cold]
    fn take(&mut self) -> u32 {
        let weight = self.every_log2;
        self.taken += 1;
        if self.taken > MOST && self.every_log2 < SPARSEST {
            (self.every_log2, self.taken) = (self.every_log2 + 1, MOST / 2);
        }
        self.left = self.gap();
        weight
    }

    /// From 1 to twice the average less one, each as likely as the others.
    fn gap(&mut self) -> u32 {
        // Marsaglia's xorshift32
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        1 + self.random % ((2 << self.every_log2) - 1)
    }

    /// 10 ms have passed, or more.
    pub(crate) fn tick(&mut self) {
        if self.taken < MOST / 2 && self.every_log2 > 0 {
            self.every_log2 -= 1;
            self.left = self.gap();
        }
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of `receives` receives between two ticks, and what they stand for.
    fn tick(sampler: &mut Sampler, receives: u32) -> (u32, u64) {
        let weights: Vec<u32> = (0..receives).filter_map(|_| sampler.next()).collect();
        sampler.tick();
        (weights.len() as u32, weights.iter().map(|&weight| 1 << weight).sum())
    }

    #[test]
    fn few_receives_are_all_sampled_and_of_many_a_bounded_number() {
        let mut sampler = Sampler::default();
        for _ in 0..10 {
            assert_eq!(tick(&mut sampler, MOST / 2), (MOST / 2, u64::from(MOST / 2)));
        }
        for receives in [100, 1_000, 10_000, 100_000] {
            let (samples, stands_for): (Vec<_>, Vec<_>) = (0..200).map(|_| tick(&mut sampler, receives)).unzip();
            assert!(samples[20..].iter().all(|&samples| samples <= 2 * MOST), "{receives}: {samples:?}");
            let mean = stands_for.iter().sum::<u64>() as f64 / 200.0;
            assert!((mean / f64::from(receives) - 1.0).abs() < 0.05, "{mean} instead of {receives}");
        }
        (0..20).for_each(|_| _ = tick(&mut sampler, 1));
        assert_eq!(tick(&mut sampler, 1), (1, 1), "few again");
    }

    #[test]
    fn connections_that_take_turns_are_sampled_alike() {
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
