//! The exact interval of a proportion (Clopper and Pearson), and the binomial distribution.
//!
//! Not from `statrs`: its beta quantile does not finish within a minute for 10^8 trials. Probabilities are summed outward from the most
//! likely count until the rest is negligible, without factorials.

use crate::Estimate;

/// Terms below this fraction of the largest are dropped.
const NEGLIGIBLE: f64 = 1e-17;

/// `hits / trials` with its exact interval; `None` without trials or with more hits than trials.
#[must_use]
pub fn proportion(hits: u64, trials: u64, confidence: f64) -> Option<Estimate> {
    if trials == 0 || hits > trials {
        return None;
    }
    let tail = (1.0 - confidence) / 2.0;
    let low = if hits == 0 { 0.0 } else { solve(|p| 1.0 - below(trials, p, hits) > tail) };
    let high = if hits == trials { 1.0 } else { solve(|p| below(trials, p, hits + 1) < tail) };
    Some(Estimate { value: hits as f64 / trials as f64, low, high, n: trials as usize })
}

/// The least p for which the monotone condition `beyond` holds, by bisection.
fn solve(beyond: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if beyond(middle) { high = middle } else { low = middle }
    }
    f64::midpoint(low, high)
}

/// The probability of fewer than `count` hits in `trials` of probability `p`.
#[must_use]
pub fn below(trials: u64, p: f64, count: u64) -> f64 {
    if count == 0 {
        return 0.0;
    }
    if count > trials || p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    let mode = (((trials + 1) as f64 * p) as u64).min(trials);
    let odds = p / (1.0 - p);
    let mut sums = Sums { count, below: 0.0, all: 0.0 };
    let mut weight = 1.0;
    for k in mode..=trials {
        if !sums.add(k, weight) {
            break;
        }
        weight *= (trials - k) as f64 / (k + 1) as f64 * odds;
    }
    weight = 1.0;
    for k in (0..mode).rev() {
        weight *= (k + 1) as f64 / (trials - k) as f64 / odds;
        if !sums.add(k, weight) {
            break;
        }
    }
    (sums.below / sums.all).min(1.0)
}

/// Weights relative to that of the most likely count.
struct Sums {
    count: u64,
    below: f64,
    all: f64,
}

impl Sums {
    /// Adds a term; whether later terms can matter.
    fn add(&mut self, k: u64, weight: f64) -> bool {
        self.all += weight;
        if k < self.count {
            self.below += weight;
        }
        weight > NEGLIGIBLE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use statrs::distribution::{Beta, Binomial, ContinuousCDF as _, DiscreteCDF as _};

    use super::*;

    #[test]
    fn matches_known_intervals() {
        // 0 of 10: 1 - 0.025^(1/10)
        let none = proportion(0, 10, 0.95).unwrap();
        assert_eq!(none.low, 0.0);
        assert!((none.high - (1.0 - 0.025_f64.powf(0.1))).abs() < 1e-9);
        let all = proportion(10, 10, 0.95).unwrap();
        assert!((all.low - 0.025_f64.powf(0.1)).abs() < 1e-9 && all.high == 1.0);
        let half = proportion(5, 10, 0.95).unwrap();
        assert!((half.low - 0.187_086).abs() < 1e-5 && (half.high - 0.812_914).abs() < 1e-5);
        assert_eq!(proportion(0, 0, 0.95), None);
        assert_eq!(proportion(2, 1, 0.95), None);
    }

    #[test]
    fn many_trials_are_exact() {
        // nearly Poisson, whose exact interval for 100 events is 81.36 to 121.63
        let rare = proportion(100, 100_000_000, 0.95).unwrap();
        assert!((rare.low * 1e8 - 81.36).abs() < 0.01 && (rare.high * 1e8 - 121.63).abs() < 0.01, "{rare:?}");
        assert!((below(1_000_000_000, 0.5, 500_000_000) - 0.5).abs() < 1e-4);
    }

    proptest! {
        #[test]
        fn interval_ends_are_beta_quantiles(trials in 1_u64..300, share in 0.0_f64..=1.0) {
            let hits = (share * trials as f64) as u64;
            let interval = proportion(hits, trials, 0.95).unwrap();
            if hits > 0 {
                let beta = Beta::new(hits as f64, (trials - hits + 1) as f64).unwrap();
                prop_assert!((beta.cdf(interval.low) - 0.025).abs() < 1e-6);
            }
            if hits < trials {
                let beta = Beta::new((hits + 1) as f64, (trials - hits) as f64).unwrap();
                prop_assert!((beta.cdf(interval.high) - 0.975).abs() < 1e-6);
            }
        }

        #[test]
        fn below_equals_the_cumulative_distribution(trials in 1_u64..500, p in 0.001_f64..0.999, count in 0_u64..501) {
            let expected = if count == 0 { 0.0 } else { Binomial::new(p, trials).unwrap().cdf(count - 1) };
            prop_assert!((below(trials, p, count) - expected).abs() < 1e-9);
        }
    }
}
