//! The slope of a series, with an interval.

use std::fmt;

/// Blocks of points, each of which counts as one independent point, as successive readings are alike.
const BLOCKS: usize = 10;
/// Student's t of 99.9 % for as many blocks less two: a test that runs often must not fail by chance.
const T: f64 = 5.041;

/// Change from one value to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slope {
    mean: f64,
    half_width: f64,
}

impl Slope {
    /// The change over so many values.
    pub(super) fn growth(self, values: usize) -> f64 {
        self.mean * values as f64
    }

    /// Whether the interval is above zero.
    pub(super) fn is_growth(self) -> bool {
        self.mean - self.half_width > 0.0
    }
}

impl fmt::Display for Slope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ± {:.3} a round (99.9 %)", self.mean, self.half_width)
    }
}

/// The slope of a line through the means of blocks of these values, by least squares.
pub(super) fn slope(values: &[f64]) -> Slope {
    let size = values.len() / BLOCKS;
    assert!(size > 0, "{} values are too few for a slope", values.len());
    let means: Vec<f64> =
        values.chunks_exact(size).take(BLOCKS).map(|block| block.iter().sum::<f64>() / size as f64).collect();
    let mean = means.iter().sum::<f64>() / BLOCKS as f64;
    let at = |block: usize| (block as f64 - (BLOCKS - 1) as f64 / 2.0) * size as f64;
    let spread: f64 = (0..BLOCKS).map(|block| at(block).powi(2)).sum();
    let slope = means.iter().enumerate().map(|(block, it)| at(block) * (it - mean)).sum::<f64>() / spread;
    let rest: f64 = means.iter().enumerate().map(|(block, it)| (it - mean - slope * at(block)).powi(2)).sum();
    Slope { mean: slope, half_width: T * (rest / (BLOCKS - 2) as f64 / spread).sqrt() }
}

#[test]
fn growth_is_found_and_noise_is_none() {
    let series = |growth: f64| -> Vec<f64> {
        (0..64_u32).map(|at| growth * f64::from(at) + f64::from(at * 7919 % 101)).collect()
    };
    for growth in [0.0, -3.0] {
        assert!(!slope(&series(growth)).is_growth(), "{}", slope(&series(growth)));
    }
    let grows = slope(&series(3.0));
    assert!(grows.is_growth() && (100.0..300.0).contains(&grows.growth(64)), "{grows}");
}
