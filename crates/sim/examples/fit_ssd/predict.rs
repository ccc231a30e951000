//! Predictions without a model, by interpolation between curves of other mixes.

use crate::curves::{Curve, Drive};

/// Latency at `rate` on a curve, linear between its points, and constant beyond its ends.
fn at_rate(curve: &Curve, rate: f64) -> [f64; 4] {
    let points = &curve.points;
    let above = points.partition_point(|point| point.rate < rate).min(points.len() - 1);
    let (low, high) = (points[above.saturating_sub(1)], points[above]);
    let share = if high.rate > low.rate { ((rate - low.rate) / (high.rate - low.rate)).clamp(0.0, 1.0) } else { 0.0 };
    std::array::from_fn(|index| low.latency_us[index] + share * (high.latency_us[index] - low.latency_us[index]))
}

/// Quantity that is linear in the write share between two curves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Latency.
    Linear,
    /// Its logarithm.
    Logarithm,
}

/// Latency at `rate` with `writes` of 1000, from the nearest curves on either side among those that `usable` allows, at equal
/// rate. `None` if one side is missing.
pub(crate) fn interpolate(
    drive: &Drive,
    usable: impl Fn(u32) -> bool,
    scale: Scale,
    writes: u32,
    rate: f64,
) -> Option<[f64; 4]> {
    let allowed = |(share, curve): &(&u32, &Curve)| usable(**share) && !curve.points.is_empty();
    let (below, low) = drive.range(..=writes).rfind(&allowed)?;
    let (above, high) = drive.range(writes..).find(&allowed)?;
    let (low, high) = (at_rate(low, rate), at_rate(high, rate));
    let share = if above > below { f64::from(writes - below) / f64::from(above - below) } else { 0.0 };
    Some(std::array::from_fn(|index| match scale {
        Scale::Linear => low[index] + share * (high[index] - low[index]),
        Scale::Logarithm => low[index] * (high[index] / low[index]).powf(share),
    }))
}
