//! What the measured windows say of all.

use serde::Serialize;

use super::plan::{Plan, Stratum};

/// The total over all windows, and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimate, in the unit of what was measured.
    pub total: f64,
    /// Low end of the interval of 95 %.
    pub low: f64,
    /// High end.
    pub high: f64,
    /// The part of the total that was measured exactly.
    pub exact: f64,
    /// Standard error.
    pub standard_error: f64,
    /// Degrees of freedom; 0 where nothing is uncertain.
    pub degrees_of_freedom: f64,
}

/// A window of the plan without a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("window {0} of the plan has not been measured")]
pub struct Unmeasured(pub usize);

impl Plan {
    /// Estimates the total from what each window of the plan measured. `t_quantile` is the 97.5 % quantile of Student's distribution for
    /// so many degrees of freedom; a caller's, so that readers of traces need no library of statistics.
    ///
    /// # Errors
    /// [`Unmeasured`] where `measured` knows nothing of a window.
    pub fn estimate(
        &self,
        measured: impl Fn(usize) -> Option<f64>,
        t_quantile: impl Fn(f64) -> f64,
    ) -> Result<Estimate, Unmeasured> {
        let value = |&window: &usize| measured(window).ok_or(Unmeasured(window));
        let exact: f64 = self.exact.iter().map(value).sum::<Result<f64, _>>()?;
        let (mut total, mut variance, mut freedom) = (exact, 0.0, 0.0);
        for stratum in &self.strata {
            let values: Vec<f64> = stratum.drawn.iter().map(value).collect::<Result<_, _>>()?;
            let (sum, spread) = of_stratum(stratum, &values);
            total += sum;
            variance += spread;
            freedom += spread * spread / (values.len() as f64 - 1.0).max(1.0);
        }
        let degrees_of_freedom = if variance > 0.0 { variance * variance / freedom } else { 0.0 };
        let standard_error = variance.sqrt();
        let half = if variance > 0.0 { standard_error * t_quantile(degrees_of_freedom) } else { 0.0 };
        Ok(Estimate { total, low: total - half, high: total + half, exact, standard_error, degrees_of_freedom })
    }
}

/// A stratum's total, and the variance of that.
fn of_stratum(stratum: &Stratum, values: &[f64]) -> (f64, f64) {
    let (all, drawn) = (stratum.windows as f64, values.len() as f64);
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = values.iter().sum::<f64>() / drawn;
    if values.len() == stratum.windows || values.len() < 2 {
        return (all * mean, 0.0);
    }
    let spread = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (drawn - 1.0);
    (all * mean, all * all * (1.0 - drawn / all) * spread / drawn)
}
