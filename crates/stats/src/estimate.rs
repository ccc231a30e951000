//! A value with the interval in which the truth is believed to lie.

use serde::Serialize;

/// The confidence of every interval that is printed.
pub const CONFIDENCE: f64 = 0.95;

/// A value with its interval, in the unit of what was observed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The best guess.
    pub value: f64,
    /// Lower end; minus infinity where nothing is known.
    pub low: f64,
    /// Upper end; infinity where nothing is known.
    pub high: f64,
    /// Independent observations behind it.
    pub n: usize,
}

impl Estimate {
    /// A value that is known exactly.
    #[must_use]
    pub const fn exact(value: f64) -> Self {
        Self { value, low: value, high: value, n: 1 }
    }

    /// A value of whose spread nothing is known.
    #[must_use]
    pub const fn unbounded(value: f64, n: usize) -> Self {
        Self { value, low: f64::NEG_INFINITY, high: f64::INFINITY, n }
    }

    /// Whether both ends are known.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }

    /// Whether the interval holds `truth`.
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

    /// The smallest interval that holds both; the value is the middle of the two values, the count the smaller.
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
    fn what_is_not_known_stays_unknown() {
        let nothing = Estimate::unbounded(3.0, 1).affine(1.0, -2.0);
        assert!(!nothing.is_bounded() && nothing.contains(1e300) && nothing.contains(-1e300));
        assert!(nothing.hull(Estimate::exact(0.0)).contains(1e300));
    }
}
