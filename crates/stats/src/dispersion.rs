//! Burstiness of arrivals: the index of dispersion of counts.

use crate::mean::{average, variance};

/// Variance of the counts over their mean: 1 for Poisson arrivals, 0 for paced ones, above 1 for bursts. `None` for fewer
/// than two windows, or if nothing arrived.
#[must_use]
pub fn index(counts: &[u64]) -> Option<f64> {
    let counts: Vec<f64> = counts.iter().map(|&count| count as f64).collect();
    let mean = average(&counts)?;
    if mean > 0.0 { Some(variance(&counts)? / mean) } else { None }
}

/// The index over windows of `scale` input windows each; a partial window at the end is dropped. It grows with the scale if bursts
/// last longer than a window.
#[must_use]
pub fn at_scale(counts: &[u64], scale: usize) -> Option<f64> {
    if scale == 0 {
        return None;
    }
    index(&counts.chunks_exact(scale).map(|windows| windows.iter().sum()).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Draws;

    /// Arrivals in windows of length 1, at these rates.
    fn arrivals(draws: &mut Draws, rates: impl Iterator<Item = f64>) -> Vec<u64> {
        let window = |rate: f64| {
            let mut time = draws.exponential() / rate;
            let mut count = 0;
            while time < 1.0 {
                time += draws.exponential() / rate;
                count += 1;
            }
            count
        };
        rates.map(window).collect()
    }

    #[test]
    fn poisson_has_index_one_and_paced_zero() {
        let poisson = arrivals(&mut Draws::new(1), std::iter::repeat_n(5.0, 20_000));
        assert!((index(&poisson).unwrap() - 1.0).abs() < 0.05);
        assert!((at_scale(&poisson, 10).unwrap() - 1.0).abs() < 0.15);
        assert_eq!(index(&[4; 100]), Some(0.0));
        assert_eq!(index(&[0; 100]), None);
        assert_eq!(index(&[3]), None);
        assert_eq!(at_scale(&[3; 9], 0), None);
    }

    #[test]
    fn bursts_add_the_variance_of_the_rate() {
        // half of the windows at rate 1, half at 9: mean 5, variance of the rate 16, so 1 + 16 / 5 = 4.2
        let mut draws = Draws::new(2);
        let rates: Vec<f64> = (0..20_000).map(|_| if draws.uniform() < 0.5 { 1.0 } else { 9.0 }).collect();
        let bursts = arrivals(&mut draws, rates.into_iter());
        assert!((index(&bursts).unwrap() - 4.2).abs() < 0.15, "{:?}", index(&bursts));
    }
}
