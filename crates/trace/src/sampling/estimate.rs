//! Estimates for the whole trace from the measured windows.

use serde::Serialize;

use super::plan::{Plan, Stratum};

/// Estimate of the total over all windows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimate, in the unit of the measurements.
    pub total: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The part of the total from exact windows.
    pub exact: f64,
    /// Standard error.
    pub standard_error: f64,
    /// Degrees of freedom; 0 without uncertainty.
    pub degrees_of_freedom: f64,
}

/// A window of the plan has no measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("window {0} of the plan has not been measured")]
pub struct Unmeasured(pub usize);

impl Plan {
    /// Estimates the total from the measurement of each window of the plan. `t_quantile` is the 97.5 % quantile of Student's distribution
    /// for these degrees of freedom; the caller supplies it, so that this crate needs no statistics library.
    ///
    /// # Errors
    /// [`Unmeasured`] if `measured` returns `None` for a window.
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

/// Estimated total of a stratum and its variance.
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
