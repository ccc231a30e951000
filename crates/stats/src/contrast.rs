//! Contrasts (weighted sums of the means of independent groups): Welch's t-test for more than two groups. Also the ratio of two
//! independent means.
//!
//! Variances may differ: degrees of freedom are those of Satterthwaite (1946). The interval of the ratio follows Fieller's theorem, with
//! the degrees of freedom of the difference `a - ratio b`.

use serde::Serialize;

use crate::Estimate;
use crate::mean::{average, t_quantile, two_sided, variance};

/// A weighted sum of means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Contrast {
    /// The sum, with its interval.
    pub estimate: Estimate,
    /// The sum over its standard error.
    pub t: f64,
    /// Degrees of freedom.
    pub degrees: f64,
    /// Two-sided p-value of the hypothesis that the sum is zero.
    pub p: f64,
}

impl Contrast {
    /// One-sided p-value of the hypothesis that the sum is zero or less.
    #[must_use]
    pub fn p_above(&self) -> f64 {
        if self.t > 0.0 { self.p / 2.0 } else { 1.0 - self.p / 2.0 }
    }
}

/// The sum of `weight x mean` over the groups; `None` if a group has fewer than two values, or all are constant.
#[must_use]
pub fn contrast(groups: &[(f64, &[f64])], confidence: f64) -> Option<Contrast> {
    let (mut value, mut size, mut square, mut spread, mut n) = (0.0, 0.0_f64, 0.0, 0.0, 0);
    for (weight, values) in groups {
        let error = weight * weight * variance(values)? / values.len() as f64;
        value += weight * average(values)?;
        size += (weight * average(values)?).abs();
        square += error;
        spread += error * error / (values.len() - 1) as f64;
        n += values.len();
    }
    let error = square.sqrt();
    // Rounding leaves a small error even if the groups are constant.
    if error <= 1e-12 * size || spread <= 0.0 {
        return None;
    }
    let (t, degrees) = (value / error, square * square / spread);
    let half = t_quantile(confidence, degrees) * error;
    let estimate = Estimate { value, low: value - half, high: value + half, n };
    Some(Contrast { estimate, t, degrees, p: two_sided(t, degrees) })
}

/// The mean of `a` over the mean of `b`, of independent groups; `None` if a group has fewer than two values, both are constant, or the mean
/// of `b` is 0. Unbounded if the mean of `b` does not differ significantly from 0.
#[must_use]
pub fn ratio(a: &[f64], b: &[f64], confidence: f64) -> Option<Estimate> {
    let (over, under) = (average(a)?, average(b)?);
    let value = over / under;
    let n = a.len() + b.len();
    if under == 0.0 {
        return None;
    }
    let degrees = contrast(&[(1.0, a), (-value, b)], confidence);
    let (error_a, error_b) = (variance(a)? / a.len() as f64, variance(b)? / b.len() as f64);
    let degrees = degrees.map(|contrast| contrast.degrees)?;
    let scale = t_quantile(confidence, degrees).powi(2);
    let square = under * under - scale * error_b;
    if square <= 0.0 {
        return Some(Estimate::unbounded(value, n));
    }
    let (linear, constant) = (over * under, over * over - scale * error_a);
    let root = (linear * linear - square * constant).max(0.0).sqrt();
    Some(Estimate { value, low: ((linear - root) / square).min(value), high: ((linear + root) / square).max(value), n })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::welch;
    use crate::sample::{Draws, share};

    fn draw(draws: &mut Draws, count: usize, mean: f64, deviation: f64) -> Vec<f64> {
        (0..count).map(|_| mean + deviation * draws.normal()).collect()
    }

    #[test]
    fn two_groups_give_the_welch_test() {
        let (a, b) = ([0.7, -1.6, -0.2, -1.2, 3.4, 3.7], [1.9, 0.8, 1.1, 5.5]);
        let (ours, theirs) = (contrast(&[(1.0, &a), (-1.0, &b)], 0.95).unwrap(), welch(&a, &b, 0.95).unwrap());
        assert!((ours.t - theirs.t).abs() < 1e-12 && (ours.p - theirs.p).abs() < 1e-12);
        assert!((ours.estimate.low - theirs.difference.low).abs() < 1e-12);
        assert!((ours.p_above() + contrast(&[(-1.0, &a), (1.0, &b)], 0.95).unwrap().p_above() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn constant_groups_have_no_test() {
        assert_eq!(contrast(&[(1.0, &[0.1, 0.1, 0.1]), (-1.0, &[0.3, 0.3, 0.3])], 0.95), None);
        assert_eq!(contrast(&[(1.0, &[1.0])], 0.95), None);
        assert_eq!(ratio(&[1.0, 1.0], &[2.0, 2.0], 0.95), None);
    }

    /// Two settings under three very different loads; three repeats each.
    fn three_loads(draws: &mut Draws) -> Option<Contrast> {
        let groups: Vec<(f64, Vec<f64>)> = [1.0, 50.0, 2_000.0]
            .iter()
            .flat_map(|&level| [(1.0 / 3.0, level + 0.5, 1.0), (-1.0 / 3.0, level, 2.0)])
            .map(|(weight, mean, deviation)| (weight, draw(draws, 3, mean, deviation)))
            .collect();
        let groups: Vec<(f64, &[f64])> = groups.iter().map(|(weight, values)| (*weight, values.as_slice())).collect();
        contrast(&groups, 0.95)
    }

    #[test]
    fn intervals_have_nominal_coverage() {
        let contrasts = share(3_000, |draws| three_loads(draws).unwrap().estimate.contains(0.5));
        assert!((contrasts - 0.95).abs() < 0.02, "{contrasts}");
        let ratios = share(3_000, |draws| {
            let (a, b) = (draw(draws, 6, 60.0, 6.0), draw(draws, 4, 100.0, 3.0));
            ratio(&a, &b, 0.95).unwrap().contains(0.6)
        });
        assert!((ratios - 0.95).abs() < 0.02, "{ratios}");
    }

    #[test]
    fn a_denominator_near_zero_is_unbounded() {
        assert!(!ratio(&[1.0, 2.0, 3.0], &[1.0, -1.0, 0.5], 0.95).unwrap().is_bounded());
        assert_eq!(ratio(&[1.0, 2.0], &[1.0, -1.0], 0.95), None);
    }
}
