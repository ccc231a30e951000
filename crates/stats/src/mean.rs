//! The mean over independent replications, with its Student's t interval.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::Estimate;

/// The arithmetic mean; `None` without values.
#[must_use]
pub fn average(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The sample variance (divided by n - 1); `None` for fewer than two values.
#[must_use]
pub fn variance(values: &[f64]) -> Option<f64> {
    covariance(values, values)
}

/// The sample covariance (divided by n - 1); `None` for fewer than two pairs or different lengths.
#[must_use]
pub fn covariance(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() != b.len() || a.len() < 2 {
        return None;
    }
    let (mean_a, mean_b) = (average(a)?, average(b)?);
    let sum: f64 = a.iter().zip(b).map(|(x, y)| (x - mean_a) * (y - mean_b)).sum();
    Some(sum / (a.len() - 1) as f64)
}

/// The mean over replications with its interval, which is unbounded for one replication; `None` without replications.
#[must_use]
pub fn mean(values: &[f64], confidence: f64) -> Option<Estimate> {
    let value = average(values)?;
    let n = values.len();
    let Some(variance) = variance(values) else { return Some(Estimate::unbounded(value, n)) };
    let half = t_quantile(confidence, (n - 1) as f64) * (variance / n as f64).sqrt();
    Some(Estimate { value, low: value - half, high: value + half, n })
}

/// Half the width of an interval of this confidence, in standard errors, for these degrees of freedom.
///
/// # Panics
/// If `degrees` is not positive or `confidence` not between 0 and 1.
#[must_use]
pub fn t_quantile(confidence: f64, degrees: f64) -> f64 {
    assert!(confidence > 0.0 && confidence < 1.0, "a confidence must be between 0 and 1");
    student(degrees).inverse_cdf(f64::midpoint(1.0, confidence))
}

/// Two-sided p-value of Student's t.
pub(crate) fn two_sided(t: f64, degrees: f64) -> f64 {
    (2.0 * student(degrees).cdf(-t.abs())).min(1.0)
}

fn student(degrees: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, degrees).expect("degrees of freedom are positive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Draws, share};

    #[test]
    fn quantiles_match_published_tables() {
        // two-sided 95 %: 1, 4, 9, 30 degrees of freedom
        for (degrees, expected) in [(1.0, 12.7062), (4.0, 2.776_4), (9.0, 2.262_2), (30.0, 2.042_3)] {
            assert!((t_quantile(0.95, degrees) - expected).abs() < 1e-3, "{degrees}: {}", t_quantile(0.95, degrees));
        }
        assert!((two_sided(2.262_157, 9.0) - 0.05).abs() < 1e-5);
    }

    #[test]
    fn matches_a_hand_calculation() {
        // mean 3, s = sqrt(2.5), t(4) = 2.7764: half width 1.9633
        let estimate = mean(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95).unwrap();
        assert!((estimate.value - 3.0).abs() < 1e-12);
        assert!((estimate.high - 4.9633).abs() < 1e-3, "{estimate:?}");
    }

    #[test]
    fn one_replication_has_no_interval() {
        assert_eq!(mean(&[], 0.95), None);
        assert!(!mean(&[7.0], 0.95).unwrap().is_bounded());
    }

    #[test]
    fn intervals_have_nominal_coverage() {
        let holds = |draws: &mut Draws| {
            let values: Vec<f64> = (0..10).map(|_| 5.0 + 2.0 * draws.normal()).collect();
            mean(&values, 0.95).unwrap().contains(5.0)
        };
        let covered = share(4_000, holds);
        assert!((covered - 0.95).abs() < 0.015, "{covered}");
    }
}
