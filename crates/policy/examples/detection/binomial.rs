//! Exact binomial confidence intervals (Clopper and Pearson, 1934).

use pilotlight_stats::{CONFIDENCE, binomial};
use serde::Serialize;

/// A share with its 95 % interval, in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Share {
    pub(crate) count: u64,
    pub(crate) of: u64,
    pub(crate) percent: f64,
    pub(crate) low_percent: f64,
    pub(crate) high_percent: f64,
}

impl Share {
    /// Computed for the smaller of the share and its complement, so that a share near 1 is as exact as one near 0.
    pub(crate) fn new(count: u64, of: u64) -> Self {
        let percent = 100.0 * count as f64 / of as f64;
        let interval = binomial::proportion(count.min(of - count), of, CONFIDENCE);
        let [low, high] = interval.map_or([0.0, 1.0], |interval| [interval.low, interval.high]);
        let mirrored = count > of - count;
        let [low_percent, high_percent] =
            if mirrored { [1.0 - high, 1.0 - low] } else { [low, high] }.map(|x| 100.0 * x);
        Self { count, of, percent, low_percent, high_percent }
    }
}

/// More digits near 0 and near 100.
pub(crate) fn digits(percent: f64) -> String {
    match percent.min(100.0 - percent) {
        0.0 => format!("{percent:.0}"),
        rest if rest < 0.01 => format!("{percent:.6}"),
        rest if rest < 1.0 => format!("{percent:.4}"),
        _ => format!("{percent:.2}"),
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [share, low, high] = [self.percent, self.low_percent, self.high_percent].map(digits);
        f.pad(&format!("{share} [{low}, {high}]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{Binomial, DiscreteCDF};

    #[test]
    fn each_tail_has_2_5_per_cent() {
        for (count, of) in [(1, 10), (5, 10), (9, 10), (3, 1_000), (17, 100), (97, 100)] {
            let share = Share::new(count, of);
            let binomial = |percent: f64| Binomial::new(percent / 100.0, of).unwrap();
            let fewer = binomial(share.low_percent).cdf(count - 1);
            let most = binomial(share.high_percent).cdf(count);
            assert!((fewer - 0.975).abs() < 1e-6, "{share}: {fewer}");
            assert!((most - 0.025).abs() < 1e-6, "{share}: {most}");
        }
    }

    #[test]
    fn shares_of_0_and_1_have_one_sided_intervals() {
        // With none of n the upper end is 1 - 0.025^(1/n).
        let none = Share::new(0, 46_080_000);
        assert_eq!(none.low_percent, 0.0);
        assert!((none.high_percent / 8.005e-6 - 1.0).abs() < 1e-3, "{none}");
        assert_eq!(Share::new(100, 100).high_percent, 100.0);
        assert!((Share::new(100, 100).low_percent - 96.3783).abs() < 1e-3);
    }
}
