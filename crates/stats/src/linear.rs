//! Linear fits by ordinary least squares, with Student's t intervals of the coefficients.
//!
//! **Resolution.** Quantised values are uncertain even if they lie exactly on the line: the variance of the residuals is at least that of
//! a uniform error of one step (step^2 / 12).

use serde::Serialize;

use crate::Estimate;
use crate::mean::{average, t_quantile};

/// A fit of `K` coefficients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit<const K: usize> {
    /// The coefficients, in the order of the columns; unbounded if there are as many values as coefficients.
    #[serde(serialize_with = "<[Estimate]>::serialize")]
    pub coefficients: [Estimate; K],
    /// Coefficient of determination; 1 if the values are constant.
    pub r2: f64,
}

/// Fits `y = sum of coefficient x column` to `(columns, y)`; a column of ones is the intercept. `None` if the columns do not determine the
/// coefficients.
#[must_use]
pub fn fit<const K: usize>(rows: &[([f64; K], f64)], step: f64, confidence: f64) -> Option<Fit<K>> {
    let n = rows.len();
    if n < K || K == 0 {
        return None;
    }
    let mut normal = [[0.0; K]; K];
    let mut right = [0.0; K];
    for (columns, y) in rows {
        for i in 0..K {
            right[i] += columns[i] * y;
            (0..K).for_each(|j| normal[i][j] += columns[i] * columns[j]);
        }
    }
    let inverse = inverse(normal)?;
    let values: [f64; K] = std::array::from_fn(|i| (0..K).map(|j| inverse[i][j] * right[j]).sum());
    let predicted = |columns: &[f64; K]| -> f64 { (0..K).map(|i| values[i] * columns[i]).sum() };
    let unexplained: f64 = rows.iter().map(|(columns, y)| (y - predicted(columns)).powi(2)).sum();
    let mean = average(&rows.iter().map(|(_, y)| *y).collect::<Vec<_>>())?;
    let total: f64 = rows.iter().map(|(_, y)| (y - mean).powi(2)).sum();
    let coefficients = std::array::from_fn(|i| {
        let value = values[i];
        if n == K {
            return Estimate::unbounded(value, n);
        }
        let degrees = (n - K) as f64;
        let variance = (unexplained / degrees).max(step * step / 12.0);
        let half = t_quantile(confidence, degrees) * (variance * inverse[i][i]).sqrt();
        Estimate { value, low: value - half, high: value + half, n }
    });
    Some(Fit { coefficients, r2: if total > 0.0 { 1.0 - unexplained / total } else { 1.0 } })
}

/// The inverse of a matrix, by Gauss-Jordan elimination with row pivots; `None` if it is singular.
fn inverse<const K: usize>(mut matrix: [[f64; K]; K]) -> Option<[[f64; K]; K]> {
    let mut inverse: [[f64; K]; K] = std::array::from_fn(|i| std::array::from_fn(|j| f64::from(u8::from(i == j))));
    let scales: [f64; K] = std::array::from_fn(|i| matrix[i][i].abs());
    for column in 0..K {
        let pivot = (column..K).max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()))?;
        // A column that depends on the others leaves a rounding error of about 1e-16.
        if matrix[pivot][column].abs() <= scales[column] * 1e-12 {
            return None;
        }
        matrix.swap(column, pivot);
        inverse.swap(column, pivot);
        let by = matrix[column][column];
        for j in 0..K {
            matrix[column][j] /= by;
            inverse[column][j] /= by;
        }
        for row in (0..K).filter(|&row| row != column) {
            let times = matrix[row][column];
            for j in 0..K {
                matrix[row][j] -= times * matrix[column][j];
                inverse[row][j] -= times * inverse[column][j];
            }
        }
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Draws, share};

    fn line(points: &[(f64, f64)]) -> Vec<([f64; 2], f64)> {
        points.iter().map(|&(x, y)| ([1.0, x], y)).collect()
    }

    #[test]
    fn matches_a_hand_calculation() {
        // x 1..4, y 2 4 5 4: slope 0.7, intercept 2, residual variance 0.7, t(2) = 4.3027
        let fit = fit(&line(&[(1.0, 2.0), (2.0, 4.0), (3.0, 5.0), (4.0, 4.0)]), 0.0, 0.95).unwrap();
        let [intercept, slope] = fit.coefficients;
        assert!((intercept.value - 2.0).abs() < 1e-9 && (slope.value - 0.7).abs() < 1e-9, "{fit:?}");
        let half = 4.3027 * (1.15_f64 / 5.0).sqrt();
        assert!((slope.high - slope.value - half).abs() < 1e-3, "{slope:?} for {half}");
        assert!((fit.r2 - (1.0 - 2.3 / 4.75)).abs() < 1e-9);
    }

    #[test]
    fn underdetermined_columns_have_no_fit() {
        assert_eq!(fit(&line(&[(3.0, 1.0), (3.0, 2.0), (3.0, 3.0)]), 0.0, 0.95), None);
        assert_eq!(fit(&line(&[(3.0, 1.0)]), 0.0, 0.95), None);
        let exact = fit(&line(&[(1.0, 1.0), (2.0, 3.0)]), 0.0, 0.95).unwrap();
        assert!((exact.coefficients[1].value - 2.0).abs() < 1e-9 && !exact.coefficients[1].is_bounded());
    }

    #[test]
    fn quantised_values_have_an_interval() {
        let points = line(&[(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]);
        let width = |step| {
            let slope = fit(&points, step, 0.95).unwrap().coefficients[1];
            slope.high - slope.low
        };
        assert!(width(0.0) < 1e-6 && width(0.5) > 0.1, "{} {}", width(0.0), width(0.5));
    }

    #[test]
    fn intervals_have_nominal_coverage() {
        let holds = |draws: &mut Draws| {
            let row = |i: u32| {
                let (a, b) = (f64::from(i), f64::from(i * i % 7));
                ([1.0, a, b], 5.0 + 2.0 * a - b + draws.normal())
            };
            let rows: Vec<_> = (0..12).map(row).collect();
            fit(&rows, 0.0, 0.95).unwrap().coefficients[2].contains(-1.0)
        };
        let covered = share(4_000, holds);
        assert!((covered - 0.95).abs() < 0.015, "{covered}");
    }
}
