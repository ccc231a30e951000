//! The median of a few measurements, with an interval that holds whatever their distribution is.
//!
//! The number of measurements below the true median is binomial with one half. So the k-th smallest and the k-th largest enclose
//! the median unless fewer than k lie on one side; k is the largest for which that has a chance of at most 5 %.

use serde::Serialize;

/// A median and its interval (at least 95 %); no interval of fewer than six measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Median {
    pub(super) median: f64,
    pub(super) interval: Option<(f64, f64)>,
}

impl Median {
    /// Of these measurements; 0 of none.
    pub(super) fn from_values(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        if n == 0 {
            return Self { median: 0.0, interval: None };
        }
        let median = f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]);
        let rank = rank(n);
        let interval = (rank > 0).then(|| (sorted[rank - 1], sorted[n - rank]));
        Self { median, interval }
    }

    /// Whether the interval contains a value; not if there is no interval.
    pub(super) fn may_be(&self, value: f64) -> bool {
        self.interval.is_some_and(|(low, high)| low <= value && value <= high)
    }
}

/// The largest k for which fewer than k of `n` lie on one side of the median with a chance of at most 5 %, either side counted.
fn rank(n: usize) -> usize {
    let mut at_most = 0.5_f64.powi(n as i32); // the chance of exactly `k` on one side, then of at most `k`
    let mut one = at_most;
    let mut k = 0;
    while k < n / 2 && 2.0 * at_most <= 0.05 {
        k += 1;
        one *= (n - k + 1) as f64 / k as f64;
        at_most += one;
    }
    k
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of the sign test.
    #[test]
    fn ranks_are_those_of_the_sign_test() {
        assert_eq!([1, 5, 6, 8, 9, 10, 11, 12, 20].map(rank), [0, 0, 1, 1, 2, 2, 2, 3, 6]);
    }

    #[test]
    fn the_median_lies_in_its_interval() {
        let median = Median::from_values((1..=10).map(f64::from));
        assert_eq!(median, Median { median: 5.5, interval: Some((2.0, 9.0)) });
        assert!(median.may_be(9.0) && !median.may_be(9.1));
        assert_eq!(Median::from_values([3.0, 1.0, 2.0]), Median { median: 2.0, interval: None });
        assert!(!Median::from_values([1.0; 3]).may_be(1.0));
        assert_eq!(Median::from_values([]).median, 0.0);
    }
}
