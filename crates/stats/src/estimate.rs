//! A value with its confidence interval.

use serde::Serialize;

/// The confidence level of every printed interval.
pub const CONFIDENCE: f64 = 0.95;

/// A value with its interval, in the unit of the observations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The point estimate.
    pub value: f64,
    /// Lower end; minus infinity if unbounded.
    pub low: f64,
    /// Upper end; infinity if unbounded.
    pub high: f64,
    /// Number of independent observations.
    pub n: usize,
}

impl Estimate {
    /// A value that is known exactly.
    #[must_use]
    pub const fn exact(value: f64) -> Self {
        Self { value, low: value, high: value, n: 1 }
    }

    /// A value of unknown variance.
    #[must_use]
    pub const fn unbounded(value: f64, n: usize) -> Self {
        Self { value, low: f64::NEG_INFINITY, high: f64::INFINITY, n }
    }

    /// Whether both ends are finite.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }

    /// Whether the interval contains `truth`.
    #[must_use]
    pub fn contains(&self, truth: f64) -> bool {
        (self.low..=self.high).contains(&truth)
    }

    /// `offset + factor * self`; a negative factor swaps the ends.
    #[must_use]
    pub fn affine(self, offset: f64, factor: f64) -> Self {
        let (a, b) = (offset + factor * self.low, offset + factor * self.high);
        Self { value: offset + factor * self.value, low: a.min(b), high: a.max(b), n: self.n }
    }

    /// The smallest interval that contains both; its value is the midpoint of the two values, its count the smaller one.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self {
            value: f64::midpoint(self.value, other.value),
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            n: self.n.min(other.n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_factor_swaps_the_ends() {
        let ratio = Estimate { value: 0.6, low: 0.5, high: 0.8, n: 10 };
        let reduction = ratio.affine(100.0, -100.0);
        assert!((reduction.value - 40.0).abs() < 1e-12);
        assert!((reduction.low - 20.0).abs() < 1e-12 && (reduction.high - 50.0).abs() < 1e-12);
    }

    #[test]
    fn unbounded_intervals_stay_unbounded() {
        let nothing = Estimate::unbounded(3.0, 1).affine(1.0, -2.0);
        assert!(!nothing.is_bounded() && nothing.contains(1e300) && nothing.contains(-1e300));
        assert!(nothing.hull(Estimate::exact(0.0)).contains(1e300));
    }
}
