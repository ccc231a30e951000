//! Paired comparison of two systems: the i-th value of each comes from the same arrivals and devices (common random numbers).
//!
//! Common noise cancels in the difference, so fewer replications suffice. The interval of the ratio of means follows Fieller's theorem:
//! the set of r for which the mean of `a - r b` does not differ significantly from 0. It is unbounded if the denominator does not differ
//! significantly from 0.

use crate::Estimate;
use crate::mean::{average, covariance, mean, t_quantile};

/// The mean of `a - b`; `None` if the lengths differ or are 0.
#[must_use]
pub fn difference(a: &[f64], b: &[f64], confidence: f64) -> Option<Estimate> {
    if a.len() != b.len() {
        return None;
    }
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    mean(&differences, confidence)
}

/// The mean of `a` over the mean of `b`; `None` if the lengths differ or are 0, or the mean of `b` is 0.
#[must_use]
pub fn ratio(a: &[f64], b: &[f64], confidence: f64) -> Option<Estimate> {
    let n = a.len();
    let (over, under) = (average(a)?, average(b)?);
    if n != b.len() || under == 0.0 {
        return None;
    }
    let value = over / under;
    let (Some(aa), Some(bb), Some(ab)) = (covariance(a, a), covariance(b, b), covariance(a, b)) else {
        return Some(Estimate::unbounded(value, n));
    };
    // (over - r under)^2 <= t^2 (aa - 2 r ab + r^2 bb) / n is a quadratic inequality in r
    let scale = t_quantile(confidence, (n - 1) as f64).powi(2) / n as f64;
    let square = under * under - scale * bb;
    let linear = over * under - scale * ab;
    let constant = over * over - scale * aa;
    if square <= 0.0 {
        return Some(Estimate::unbounded(value, n));
    }
    let root = (linear * linear - square * constant).max(0.0).sqrt();
    Some(Estimate { value, low: ((linear - root) / square).min(value), high: ((linear + root) / square).max(value), n })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::{Draws, share};

    /// Ten pairs with means 60 and 100 that share most of their noise.
    fn pairs(draws: &mut Draws) -> (Vec<f64>, Vec<f64>) {
        let pair = |_| {
            let shared = draws.normal();
            (60.0 + 6.0 * shared + draws.normal(), 100.0 + 10.0 * shared + draws.normal())
        };
        (0..10).map(pair).unzip()
    }

    #[test]
    fn intervals_have_nominal_coverage() {
        let differences = share(3_000, |draws| {
            let (a, b) = pairs(draws);
            difference(&a, &b, 0.95).unwrap().contains(-40.0)
        });
        let ratios = share(3_000, |draws| {
            let (a, b) = pairs(draws);
            ratio(&a, &b, 0.95).unwrap().contains(0.6)
        });
        assert!((differences - 0.95).abs() < 0.02, "{differences}");
        assert!((ratios - 0.95).abs() < 0.02, "{ratios}");
    }

    #[test]
    fn common_noise_cancels() {
        let (a, b) = pairs(&mut Draws::new(1));
        let width = |estimate: Estimate| estimate.high - estimate.low;
        let alone = width(mean(&a, 0.95).unwrap());
        assert!(width(ratio(&a, &b, 0.95).unwrap()) * 100.0 < alone);
    }

    #[test]
    fn a_denominator_near_zero_is_unbounded() {
        let ratio_of = |b: &[f64]| ratio(&[1.0, 2.0, 3.0], b, 0.95);
        assert!(!ratio_of(&[1.0, -1.0, 0.5]).unwrap().is_bounded());
        assert_eq!(ratio_of(&[0.0, 0.0, 0.0]), None);
        assert_eq!(ratio_of(&[1.0]), None);
        assert!(!ratio(&[1.0], &[2.0], 0.95).unwrap().is_bounded());
    }

    #[test]
    fn constant_values_are_exact() {
        let exact = ratio(&[3.0; 4], &[4.0; 4], 0.95).unwrap();
        assert_eq!((exact.low, exact.value, exact.high), (0.75, 0.75, 0.75));
    }

    proptest! {
        #[test]
        fn swapping_the_systems_negates_the_difference(
            pairs in prop::collection::vec((-1e3_f64..1e3, -1e3_f64..1e3), 2..20),
        ) {
            let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let (forth, back) = (difference(&a, &b, 0.95).unwrap(), difference(&b, &a, 0.95).unwrap());
            prop_assert!((forth.low + back.high).abs() < 1e-9 && (forth.value + back.value).abs() < 1e-9);
        }
    }
}
