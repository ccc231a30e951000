//! Random numbers for tests of coverage.

use crate::latin::SplitMix;

/// Draws for tests.
pub(crate) struct Dice(SplitMix);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    /// Uniform in (0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0.unit().max(1e-300)
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Exponential with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }
}

/// The share of `runs` seeds for which `holds`.
pub(crate) fn share(runs: u64, mut holds: impl FnMut(&mut Dice) -> bool) -> f64 {
    let times = (0..runs).filter(|&seed| holds(&mut Dice::new(seed + 1))).count();
    times as f64 / runs as f64
}
