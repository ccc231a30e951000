//! Influence of constants: rank correlations, which detect any monotone dependence and ignore outliers.
//!
//! Spearman's coefficient considers one constant alone. The partial coefficient (PRCC) first removes what the other constants explain
//! linearly in ranks, so correlated draws do not mislead it.

use crate::mean::{covariance, two_sided};

/// Ranks from 1; equal values share the mean of theirs.
#[must_use]
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut place = 0;
    for equal in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = place as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|&i| ranks[i] = rank);
        place += equal.len();
    }
    ranks
}

/// Spearman's rank correlation, from -1 to 1; `None` if one is constant or the lengths differ.
#[must_use]
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    correlation(&ranks(a), &ranks(b))
}

fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let scale = (covariance(a, a)? * covariance(b, b)?).sqrt();
    let together = covariance(a, b)?;
    (scale > 0.0).then(|| (together / scale).clamp(-1.0, 1.0))
}

/// The partial rank correlation of each input (a column of draws) with the output; `None` if there are too few draws, an input is
/// constant, or inputs are collinear.
#[must_use]
pub fn partial(inputs: &[Vec<f64>], output: &[f64]) -> Option<Vec<f64>> {
    if output.len() < inputs.len() + 3 {
        return None;
    }
    let mut columns: Vec<Vec<f64>> = inputs.iter().map(|column| ranks(column)).collect();
    columns.push(ranks(output));
    let matrix: Option<Vec<Vec<f64>>> =
        columns.iter().map(|a| columns.iter().map(|b| correlation(a, b)).collect()).collect();
    let inverse = invert(matrix?)?;
    let last = inputs.len();
    let each = |i: usize| -inverse[i][last] / (inverse[i][i] * inverse[last][last]).sqrt();
    Some((0..last).map(each).collect())
}

/// Two-sided p-value of a rank correlation over `draws` pairs, with `others` further inputs removed (0 for Spearman's): Student's t with
/// `draws - 2 - others` degrees of freedom; `None` if there are none.
#[must_use]
pub fn p_value(correlation: f64, draws: usize, others: usize) -> Option<f64> {
    let degrees = draws.checked_sub(others + 2).filter(|degrees| *degrees > 0)? as f64;
    let rest = 1.0 - correlation * correlation;
    Some(if rest > 0.0 { two_sided(correlation * (degrees / rest).sqrt(), degrees) } else { 0.0 })
}

/// The inverse of a matrix (Gauss and Jordan with pivots); `None` if it is singular.
fn invert(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let n = matrix.len();
    for (i, row) in matrix.iter_mut().enumerate() {
        row.extend((0..n).map(|j| f64::from(u8::from(i == j))));
    }
    for column in 0..n {
        let pivot = (column..n).max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()))?;
        if matrix[pivot][column].abs() < 1e-10 {
            return None;
        }
        matrix.swap(column, pivot);
        eliminate(&mut matrix, column);
    }
    Some(matrix.into_iter().map(|row| row[n..].to_vec()).collect())
}

/// Reduces the column to that of the identity matrix.
fn eliminate(matrix: &mut [Vec<f64>], column: usize) {
    let scale = matrix[column][column];
    matrix[column].iter_mut().for_each(|x| *x /= scale);
    let pivot = matrix[column].clone();
    for (i, row) in matrix.iter_mut().enumerate().filter(|(i, _)| *i != column) {
        debug_assert_ne!(i, column);
        let factor = row[column];
        row.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= factor * p);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::{Draws, share};

    #[test]
    fn false_positives_occur_at_the_nominal_rate() {
        let column = |draws: &mut Draws| -> Vec<f64> { (0..16).map(|_| draws.uniform()).collect() };
        let alone = share(3_000, |draws| {
            let rho = spearman(&column(draws), &column(draws)).unwrap();
            p_value(rho, 16, 0).unwrap() < 0.05
        });
        assert!((alone - 0.05).abs() < 0.015, "{alone}");
        let beside_others = share(2_000, |draws| {
            let inputs: Vec<Vec<f64>> = (0..5).map(|_| column(draws)).collect();
            let found = partial(&inputs, &column(draws)).unwrap();
            p_value(found[0], 16, 4).unwrap() < 0.05
        });
        assert!((beside_others - 0.05).abs() < 0.02, "{beside_others}");
        assert_eq!((p_value(1.0, 5, 0), p_value(0.5, 6, 4)), (Some(0.0), None));
    }

    #[test]
    fn equal_values_share_a_rank() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
        assert_eq!(ranks(&[]), [0.0; 0]);
    }

    #[test]
    fn spearman_matches_its_formula() {
        // without ties 1 - 6 sum d^2 / (n (n^2 - 1)): here the differences are 4 ones
        let rho = spearman(&[1.0, 2.0, 3.0, 4.0, 5.0], &[20.0, 10.0, 40.0, 30.0, 99.0]).unwrap();
        assert!((rho - 0.8).abs() < 1e-12);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn influential_constants_are_found() {
        let mut draws = Draws::new(4);
        let inputs: Vec<Vec<f64>> = (0..3).map(|_| (0..200).map(|_| draws.uniform()).collect()).collect();
        let output: Vec<f64> =
            (0..200).map(|i| (5.0 * inputs[0][i]).exp() - 10.0 * inputs[1][i] + 0.1 * draws.normal()).collect();
        let found = partial(&inputs, &output).unwrap();
        assert!(found[0] > 0.9 && found[1] < -0.5 && found[2].abs() < 0.2, "{found:?}");
    }

    #[test]
    fn a_correlate_of_the_cause_has_no_partial_correlation() {
        // the second input follows the first, the output only the first
        let mut draws = Draws::new(5);
        let cause: Vec<f64> = (0..300).map(|_| draws.normal()).collect();
        let companion: Vec<f64> = cause.iter().map(|x| x + 0.7 * draws.normal()).collect();
        let output: Vec<f64> = cause.iter().map(|x| x + 0.3 * draws.normal()).collect();
        assert!(spearman(&companion, &output).unwrap() > 0.7);
        let found = partial(&[cause, companion], &output).unwrap();
        assert!(found[0] > 0.8 && found[1].abs() < 0.2, "{found:?}");
    }

    #[test]
    fn collinear_inputs_and_few_draws_give_none() {
        let column = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(partial(&[column.clone(), column.clone()], &[2.0, 1.0, 4.0, 3.0, 6.0, 5.0]), None);
        assert_eq!(partial(std::slice::from_ref(&column), &[1.0, 2.0]), None);
    }

    proptest! {
        #[test]
        fn with_one_input_partial_equals_spearman(
            pairs in prop::collection::vec((-10.0_f64..10.0, -10.0_f64..10.0), 6..30),
        ) {
            let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let (rho, partial) = (spearman(&a, &b), partial(std::slice::from_ref(&a), &b));
            if let (Some(rho), Some(partial)) = (rho, partial) {
                prop_assert!((rho - partial[0]).abs() < 1e-6);
            }
        }
    }
}
