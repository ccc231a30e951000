//! Random numbers for coverage tests.

use crate::latin::SplitMix;

/// Random variates for tests.
pub(crate) struct Draws(SplitMix);

impl Draws {
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

/// The fraction of `runs` seeds for which `holds`.
pub(crate) fn share(runs: u64, mut holds: impl FnMut(&mut Draws) -> bool) -> f64 {
    let times = (0..runs).filter(|&seed| holds(&mut Draws::new(seed + 1))).count();
    times as f64 / runs as f64
}
