//! Two groups of independent measurements: Welch's t-test, the size of the effect, and Holm's correction for many tests.

use serde::Serialize;

use crate::Estimate;
use crate::mean::{average, t_quantile, two_sided, variance};

/// Result of a comparison of two groups.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Mean of the first less mean of the second.
    pub difference: Estimate,
    /// Welch's t.
    pub t: f64,
    /// Degrees of freedom (Welch and Satterthwaite).
    pub degrees: f64,
    /// Two-sided p-value of the hypothesis that the means are equal.
    pub p: f64,
    /// Hedges' g: the difference in pooled standard deviations, corrected for small groups. 0.2 is small, 0.8 large.
    pub effect: f64,
}

/// Compares two groups of any variances and sizes; `None` if one has fewer than two values, or both are constant.
#[must_use]
pub fn welch(a: &[f64], b: &[f64], confidence: f64) -> Option<Comparison> {
    let (count_a, count_b) = (a.len() as f64, b.len() as f64);
    let (error_a, error_b) = (variance(a)? / count_a, variance(b)? / count_b);
    let error = (error_a + error_b).sqrt();
    if error <= 0.0 {
        return None;
    }
    let value = average(a)? - average(b)?;
    let spread = error_a.powi(2) / (count_a - 1.0) + error_b.powi(2) / (count_b - 1.0);
    let degrees = error.powi(4) / spread;
    let half = t_quantile(confidence, degrees) * error;
    let t = value / error;
    Some(Comparison {
        difference: Estimate { value, low: value - half, high: value + half, n: a.len() + b.len() },
        t,
        degrees,
        p: two_sided(t, degrees),
        effect: hedges_g(a, b)?,
    })
}

/// Hedges' g; `None` if a group has fewer than two values, or both are constant.
#[must_use]
pub fn hedges_g(a: &[f64], b: &[f64]) -> Option<f64> {
    let (free_a, free_b) = (a.len() as f64 - 1.0, b.len() as f64 - 1.0);
    let degrees = free_a + free_b;
    let pooled = (free_a * variance(a)? + free_b * variance(b)?) / degrees;
    let correction = 1.0 - 3.0 / (4.0 * degrees - 1.0);
    (pooled > 0.0).then(|| correction * (average(a).unwrap_or(0.0) - average(b).unwrap_or(0.0)) / pooled.sqrt())
}

/// Holm's correction: the adjusted p-value of each test, in the order of `p`. Rejecting those below 0.05 keeps the family-wise error
/// rate below 5 %.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]).then(a.cmp(&b)));
    let mut corrected = vec![0.0; p.len()];
    let mut least: f64 = 0.0;
    for (place, &test) in order.iter().enumerate() {
        least = least.max((p.len() - place) as f64 * p[test]).min(1.0);
        corrected[test] = least;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::{Draws, share};

    #[test]
    fn matches_the_published_example() {
        // t.test on R's data set `sleep`: t = -1.8608, df = 17.776, p = 0.07939
        let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let result = welch(&first, &second, 0.95).unwrap();
        assert!((result.t + 1.8608).abs() < 1e-4, "{result:?}");
        assert!((result.degrees - 17.776).abs() < 1e-3, "{result:?}");
        assert!((result.p - 0.07939).abs() < 1e-5, "{result:?}");
        assert!((result.difference.low + 3.365_483).abs() < 1e-4, "{result:?}");
        assert!((result.difference.high - 0.205_483).abs() < 1e-4, "{result:?}");
    }

    #[test]
    fn false_positives_occur_at_the_nominal_rate() {
        let level = share(3_000, |draws: &mut Draws| {
            let a: Vec<f64> = (0..8).map(|_| draws.normal()).collect();
            let b: Vec<f64> = (0..20).map(|_| 3.0 * draws.normal()).collect();
            welch(&a, &b, 0.95).unwrap().p < 0.05
        });
        assert!((level - 0.05).abs() < 0.015, "{level}");
    }

    #[test]
    fn effect_size_is_in_standard_deviations() {
        // means 2 and 4, pooled deviation 1, correction 1 - 3 / 15
        let g = hedges_g(&[1.0, 2.0, 3.0], &[3.0, 4.0, 5.0]).unwrap();
        assert!((g + 1.6).abs() < 1e-12, "{g}");
        assert_eq!(hedges_g(&[1.0, 1.0], &[2.0, 2.0]), None);
        assert_eq!(welch(&[1.0], &[1.0, 2.0], 0.95), None);
    }

    #[test]
    fn holm_matches_a_hand_calculation() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        let expected = [0.03, 0.06, 0.06, 0.02];
        for (ours, theirs) in corrected.iter().zip(expected) {
            assert!((ours - theirs).abs() < 1e-12, "{corrected:?}");
        }
    }

    proptest! {
        #[test]
        fn holm_is_monotone_and_between_uncorrected_and_bonferroni(
            p in prop::collection::vec(0.0_f64..=1.0, 1..20),
        ) {
            let corrected = holm(&p);
            for (i, a) in p.iter().enumerate() {
                let bonferroni = (a * p.len() as f64).min(1.0);
                prop_assert!(corrected[i] >= *a && corrected[i] <= bonferroni + 1e-12);
                for (j, b) in p.iter().enumerate() {
                    prop_assert!(a > b || corrected[i] <= corrected[j]);
                }
            }
        }
    }
}
