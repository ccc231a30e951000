//! Batch means: a confidence interval from one long run of autocorrelated observations.
//!
//! The run is cut into batches that are long enough for their means to be nearly independent; these count as replications. The
//! correlation between consecutive batches shows whether they were long enough.

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
    /// Whether consecutive batches may be independent: their correlation is not significant (95 %, one-sided).
    #[must_use]
    pub fn is_independent(&self) -> bool {
        self.lag_one < 1.645 / (self.estimate.n as f64).sqrt()
    }
}

/// The mean of a run cut into `batches` batches (10 to 30 are usual). Observations that do not fill a batch are dropped at the start,
/// where the warm-up was. `None` if there are fewer than two batches or fewer than two observations in each.
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

/// The correlation between consecutive values; 0 if the values are constant.
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
    use crate::sample::{Draws, share};

    /// A first-order autoregression with mean 10.
    fn dependent(draws: &mut Draws, memory: f64, n: usize) -> Vec<f64> {
        let mut state = 0.0;
        let step = |_| {
            state = memory * state + draws.normal();
            10.0 + state
        };
        (0..n).map(step).collect()
    }

    #[test]
    fn autocorrelated_observations_need_batches() {
        let batches = share(600, |draws| {
            let run = dependent(draws, 0.9, 4_000);
            batch_means(&run, 20, 0.95).unwrap().estimate.contains(10.0)
        });
        let naive = share(600, |draws| mean(&dependent(draws, 0.9, 4_000), 0.95).unwrap().contains(10.0));
        assert!(batches > 0.91, "{batches}");
        assert!(naive < 0.6, "{naive}");
    }

    #[test]
    fn short_batches_are_not_independent() {
        let run = dependent(&mut Draws::new(5), 0.99, 4_000);
        assert!(!batch_means(&run, 400, 0.95).unwrap().is_independent());
        let noise = dependent(&mut Draws::new(6), 0.0, 4_000);
        assert!(batch_means(&noise, 20, 0.95).unwrap().is_independent());
    }

    #[test]
    fn the_remainder_is_dropped_at_the_start() {
        let run: Vec<f64> = [1e9].into_iter().chain((0..20).map(|i| f64::from(i % 2))).collect();
        let means = batch_means(&run, 10, 0.95).unwrap();
        assert_eq!((means.size, means.estimate.value), (2, 0.5));
        assert_eq!(batch_means(&[1.0; 5], 4, 0.95), None);
        assert_eq!(batch_means(&[1.0; 5], 0, 0.95), None);
    }
}
