//! Batch means: an interval from one long run whose neighbouring observations depend on each other.
//!
//! The run is cut into batches so long that their means are nearly independent; these are treated as replications. Whether
//! they were long enough is told by the correlation between neighbouring batches.

use crate::Estimate;
use crate::mean::{average, mean};

/// The mean of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchMeans {
    /// Over all batches.
    pub estimate: Estimate,
    /// Observations in a batch.
    pub size: usize,
    /// Correlation between a batch and the next. Far above 0 the interval is too narrow.
    pub lag_one: f64,
}

impl BatchMeans {
    /// Whether neighbouring batches could be independent: their correlation is within what chance gives (95 %, one-sided).
    #[must_use]
    pub fn is_independent(&self) -> bool {
        self.lag_one < 1.645 / (self.estimate.n as f64).sqrt()
    }
}

/// The mean of a run in so many batches (10 to 30 are usual); what does not fill a batch is left out at the start, where
/// the warm-up was. `None` if there are fewer than two batches or not two observations for each.
#[must_use]
pub fn batch_means(observations: &[f64], batches: usize, confidence: f64) -> Option<BatchMeans> {
    let size = observations.len().checked_div(batches)?;
    if batches < 2 || size < 2 {
        return None;
    }
    let used = &observations[observations.len() - batches * size..];
    let means: Vec<f64> = used.chunks_exact(size).filter_map(average).collect();
    Some(BatchMeans { estimate: mean(&means, confidence)?, size, lag_one: lag_one(&means) })
}

/// The correlation between a value and the next; 0 where nothing varies.
#[must_use]
pub fn lag_one(values: &[f64]) -> f64 {
    let Some(mean) = average(values) else { return 0.0 };
    let total: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    let together: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    if total > 0.0 { together / total } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Dice, share};

    /// A first-order autoregression with mean 10.
    fn dependent(dice: &mut Dice, memory: f64, n: usize) -> Vec<f64> {
        let mut state = 0.0;
        let step = |_| {
            state = memory * state + dice.normal();
            10.0 + state
        };
        (0..n).map(step).collect()
    }

    #[test]
    fn dependent_observations_are_covered_where_a_naive_interval_fails() {
        let batches = share(600, |dice| {
            let run = dependent(dice, 0.9, 4_000);
            batch_means(&run, 20, 0.95).unwrap().estimate.contains(10.0)
        });
        let naive = share(600, |dice| mean(&dependent(dice, 0.9, 4_000), 0.95).unwrap().contains(10.0));
        assert!(batches > 0.91, "{batches}");
        assert!(naive < 0.6, "{naive}");
    }

    #[test]
    fn batches_that_are_too_short_are_told() {
        let run = dependent(&mut Dice::new(5), 0.99, 4_000);
        assert!(!batch_means(&run, 400, 0.95).unwrap().is_independent());
        let noise = dependent(&mut Dice::new(6), 0.0, 4_000);
        assert!(batch_means(&noise, 20, 0.95).unwrap().is_independent());
    }

    #[test]
    fn the_remainder_is_left_out_at_the_start() {
        let run: Vec<f64> = [1e9].into_iter().chain((0..20).map(|i| f64::from(i % 2))).collect();
        let means = batch_means(&run, 10, 0.95).unwrap();
        assert_eq!((means.size, means.estimate.value), (2, 0.5));
        assert_eq!(batch_means(&[1.0; 5], 4, 0.95), None);
        assert_eq!(batch_means(&[1.0; 5], 0, 0.95), None);
    }
}
