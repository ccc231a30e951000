//! MSER-5: the end of a run's warm-up.
//!
//! A simulation starts empty, so its first observations are not in steady state. White's rule truncates where the interval of the rest
//! is narrowest: with Z(j) the means of consecutive groups of five observations and d groups removed, it takes the d that minimises
//! `sum over j >= d of (Z(j) - mean)^2 / (m - d)^2` (White, Cobb and Spratt, "A comparison of five steady-state truncation heuristics for
//! simulation", WSC 2000).
//!
//! If the minimum is at the end of the first half, the run has not settled.

/// Observations in a group.
const GROUP: usize = 5;

/// The warm-up of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warmup {
    /// Leading observations that belong to the warm-up.
    pub cut: usize,
    /// Whether the cut lies within the first half, so that the rest can be taken as steady.
    pub settled: bool,
}

/// The warm-up of these observations, which are in order of time. Fewer than ten observations cannot settle.
#[must_use]
pub fn mser5(observations: &[f64]) -> Warmup {
    let groups: Vec<f64> = observations.chunks_exact(GROUP).map(|group| group.iter().sum::<f64>() / 5.0).collect();
    let half = groups.len() / 2;
    if half == 0 {
        return Warmup { cut: 0, settled: false };
    }
    let widths = widths(&groups);
    let best = (0..=half).min_by(|&a, &b| widths[a].total_cmp(&widths[b])).unwrap_or(0);
    Warmup { cut: best * GROUP, settled: best < half || best == 0 }
}

/// The statistic for every number of removed groups.
fn widths(groups: &[f64]) -> Vec<f64> {
    let mut widths = vec![0.0; groups.len()];
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for (d, group) in groups.iter().enumerate().rev() {
        // Welford's algorithm from the end: numerically stable, and it yields every tail.
        count += 1.0;
        let off = group - mean;
        mean += off / count;
        squares += off * (group - mean);
        widths[d] = squares / (count * count);
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Draws;

    fn naive(observations: &[f64]) -> usize {
        let groups: Vec<f64> = observations.chunks_exact(5).map(|five| five.iter().sum::<f64>() / 5.0).collect();
        let width = |d: usize| {
            let rest = &groups[d..];
            let mean = rest.iter().sum::<f64>() / rest.len() as f64;
            rest.iter().map(|z| (z - mean).powi(2)).sum::<f64>() / (rest.len() as f64).powi(2)
        };
        5 * (0..=groups.len() / 2).min_by(|&a, &b| width(a).total_cmp(&width(b))).unwrap()
    }

    #[test]
    fn matches_the_definition() {
        for seed in 0..50 {
            let mut draws = Draws::new(seed);
            let start = 20.0 * draws.uniform();
            let run: Vec<f64> = (0..200).map(|i| start * (-f64::from(i) / 15.0).exp() + draws.normal()).collect();
            assert_eq!(mser5(&run).cut, naive(&run), "seed {seed}");
        }
    }

    #[test]
    fn a_ramp_is_cut_and_noise_is_not() {
        let mut draws = Draws::new(3);
        let ramp: Vec<f64> = (0..1_000).map(|i| f64::from((i - 100).min(0)) + draws.normal()).collect();
        let warmup = mser5(&ramp);
        assert!(warmup.settled && (85..=130).contains(&warmup.cut), "{warmup:?}");
        let noise: Vec<f64> = (0..1_000).map(|_| draws.normal()).collect();
        assert!(mser5(&noise).settled && mser5(&noise).cut < 250, "{:?}", mser5(&noise));
    }

    #[test]
    fn a_rising_run_has_not_settled() {
        let rising: Vec<f64> = (0..500).map(f64::from).collect();
        assert!(!mser5(&rising).settled);
        assert!(!mser5(&[1.0; 9]).settled);
        assert_eq!(mser5(&[1.0; 50]), Warmup { cut: 0, settled: true });
    }
}
