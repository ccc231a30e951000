//! Requests per window of one width.

use serde::Serialize;

/// Counts of windows.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    width_ns: u64,
    /// Number and end of the current window.
    index: u64,
    end_ns: u64,
    count: u64,
    /// Of the preceding windows.
    sum: u64,
    squares: u128,
    peak: u64,
}

/// Statistics of the windows of one width.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WindowSummary {
    /// The width, in nanoseconds.
    pub width_ns: u64,
    /// Most requests in a window.
    pub peak_requests: u64,
    /// `peak_requests` as a rate.
    pub peak_rate_iops: f64,
    /// Complete windows in the span.
    pub complete_windows: u64,
    /// Variance over mean of the counts of the complete windows; `None` if there are fewer than two or all are empty.
    pub dispersion: Option<f64>,
}

impl Windows {
    pub(super) fn new(width_ns: u64) -> Self {
        Self { width_ns, index: 0, end_ns: width_ns, count: 0, sum: 0, squares: 0, peak: 0 }
    }

    #[inline]
    pub(super) fn add(&mut self, at_ns: u64) {
        if at_ns >= self.end_ns {
            self.close();
            self.index = at_ns / self.width_ns;
            self.end_ns = self.index.saturating_add(1).saturating_mul(self.width_ns);
        }
        self.count += 1;
    }

    /// Ends the current window. Skipped windows are empty and count only in the number of windows.
    fn close(&mut self) {
        self.sum += self.count;
        self.squares += u128::from(self.count) * u128::from(self.count);
        self.peak = self.peak.max(self.count);
        self.count = 0;
    }

    pub(super) fn summary(&self) -> WindowSummary {
        let peak_requests = self.peak.max(self.count);
        WindowSummary {
            width_ns: self.width_ns,
            peak_requests,
            peak_rate_iops: peak_requests as f64 * 1e9 / self.width_ns as f64,
            complete_windows: self.index,
            dispersion: self.dispersion(),
        }
    }

    fn dispersion(&self) -> Option<f64> {
        let windows = self.index;
        if windows < 2 || self.sum == 0 {
            return None;
        }
        let mean = self.sum as f64 / windows as f64;
        // exact before the division: sum of squares less square of the sum over n
        let spread = self.squares * u128::from(windows) - u128::from(self.sum) * u128::from(self.sum);
        let variance = spread as f64 / windows as f64 / (windows - 1) as f64;
        Some(variance / mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    /// Peak and dispersion from a vector of all windows.
    fn naive(times: &[u64], width: u64) -> (u64, Option<f64>) {
        let mut counts = vec![0_u64; (times.last().unwrap() / width) as usize + 1];
        times.iter().for_each(|at| counts[(at / width) as usize] += 1);
        let peak = *counts.iter().max().unwrap();
        counts.pop();
        let n = counts.len() as f64;
        let mean = counts.iter().sum::<u64>() as f64 / n;
        let variance = counts.iter().map(|&c| (c as f64 - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (peak, (n >= 2.0 && mean > 0.0).then(|| variance / mean))
    }

    proptest! {
        #[test]
        fn counts_are_those_of_a_vector(gaps in proptest::collection::vec(0_u64..30, 1..200), width in 1_u64..40) {
            let mut at = 0;
            let times: Vec<u64> = std::iter::once(0).chain(gaps.iter().map(|gap| { at += gap; at })).collect();
            let mut windows = Windows::new(width);
            times.iter().for_each(|&at| windows.add(at));
            let (peak, dispersion) = naive(&times, width);
            let summary = windows.summary();
            prop_assert_eq!(summary.peak_requests, peak);
            match (summary.dispersion, dispersion) {
                (Some(a), Some(b)) => prop_assert!((a - b).abs() < 1e-9, "{a} {b}"),
                (a, b) => prop_assert_eq!(a, b),
            }
        }
    }

    #[test]
    fn the_largest_times_do_not_overflow() {
        let mut windows = Windows::new(7);
        [0, u64::MAX - 1, u64::MAX].iter().for_each(|&at| windows.add(at));
        assert!(windows.summary().complete_windows > 1 << 60);
    }
}
