//! Axes: positions of values, and ticks.

/// Spacing of values on an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Linear.
    #[default]
    Linear,
    /// Logarithmic, with ticks at values of the data (rates that double).
    Log2,
    /// Logarithmic, with ticks at 1, 2 and 5 times powers of ten.
    Log10,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// Its scale.
    pub scale: Scale,
    /// Whether a linear axis starts at zero.
    pub from_zero: bool,
}

/// An axis with its range.
pub(super) struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

/// Maximum number of ticks on an axis.
const MAX_TICKS: usize = 8;

impl Ruler {
    /// The axis over these values. A logarithmic axis ignores values that are not above zero.
    pub(super) fn new(axis: &Axis, values: &[f64]) -> Self {
        let log = axis.scale != Scale::Linear;
        let mut values: Vec<f64> = values.iter().copied().filter(|v| v.is_finite() && (!log || *v > 0.0)).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.dedup();
        let (low, high) = (values.first().copied().unwrap_or(1.0), values.last().copied().unwrap_or(1.0));
        match axis.scale {
            Scale::Linear => Self::linear(if axis.from_zero { low.min(0.0) } else { low }, high),
            Scale::Log2 => Self { scale: axis.scale, low, high, ticks: thinned(&values) },
            Scale::Log10 => Self::decades(low, high),
        }
    }

    fn linear(low: f64, high: f64) -> Self {
        let span = if high > low { high - low } else { high.abs().max(1.0) };
        let step = nice(span / 5.0);
        let first = (low / step).floor();
        let last = (high / step).ceil().max(first + 1.0);
        let ticks = (0..=(last - first) as u32).map(|at| (first + f64::from(at)) * step).collect();
        Self { scale: Scale::Linear, low: first * step, high: last * step, ticks }
    }

    fn decades(low: f64, high: f64) -> Self {
        let (from, to) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let all: Vec<f64> =
            (from..=to).flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10_f64.powi(power))).collect();
        let low = all.iter().copied().rfind(|&tick| tick <= low).unwrap_or(low);
        let high = all.iter().copied().find(|&tick| tick >= high && tick > low).unwrap_or(high);
        let mut ticks: Vec<f64> = all.into_iter().filter(|tick| (low..=high).contains(tick)).collect();
        if ticks.len() > MAX_TICKS {
            ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9);
        }
        Self { scale: Scale::Log10, low, high, ticks }
    }

    /// Position of a value, from 0 to 1. On a logarithmic axis values that are not above zero are at 0.
    pub(super) fn share(&self, value: f64) -> f64 {
        let on = |value: f64| if self.scale == Scale::Linear { value } else { value.max(f64::MIN_POSITIVE).ln() };
        let span = on(self.high) - on(self.low);
        if span > 0.0 { ((on(value) - on(self.low)) / span).clamp(0.0, 1.0) } else { 0.5 }
    }

    pub(super) fn ticks(&self) -> &[f64] {
        &self.ticks
    }
}

/// Every n-th value, at most [`MAX_TICKS`] of them.
fn thinned(values: &[f64]) -> Vec<f64> {
    let step = values.len().div_ceil(MAX_TICKS).max(1);
    values.iter().copied().step_by(step).collect()
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors.into_iter().map(|factor| factor * power).find(|nice| *nice >= step * (1.0 - 1e-9)).unwrap_or(step)
}

/// Text of a tick: 10k, 2.5M, 0.05.
pub(super) fn tick(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        size if size > 0.0 && size < 1e-3 => return format!("{value:.1e}"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.3}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn axis(scale: Scale) -> Axis {
        Axis { label: String::new(), scale, from_zero: false }
    }

    #[test]
    fn ticks_are_where_people_expect_them() {
        assert_eq!(
            Ruler::new(&Axis { from_zero: true, ..axis(Scale::Linear) }, &[412.0, 940.0]).ticks(),
            [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]
        );
        assert_eq!(Ruler::new(&axis(Scale::Log10), &[12.0, 180.0]).ticks(), [10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(Ruler::new(&axis(Scale::Log2), &[10.0, 20.0, 40.0]).ticks(), [10.0, 20.0, 40.0]);
        assert_eq!(
            [tick(10_240_000.0), tick(10_000.0), tick(0.05), tick(0.0), tick(2e-8)],
            ["10.24M", "10k", "0.05", "0", "2.0e-8"]
        );
    }

    proptest! {
        #[test]
        fn every_value_has_a_place_and_ticks_rise(values in prop::collection::vec(1e-3..1e9_f64, 1..20), which in 0..3_usize) {
            let ruler = Ruler::new(&axis([Scale::Linear, Scale::Log2, Scale::Log10][which]), &values);
            prop_assert!(values.iter().all(|&value| (0.0..=1.0).contains(&ruler.share(value))));
            prop_assert!(ruler.ticks().is_sorted() && !ruler.ticks().is_empty());
            prop_assert!(ruler.ticks().len() <= 60);
            let (least, largest) = values.iter().fold((f64::MAX, 0.0_f64), |(a, b), &v| (a.min(v), b.max(v)));
            prop_assert!(ruler.share(least) <= ruler.share(largest));
        }
    }
}
