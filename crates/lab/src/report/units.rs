//! Display units of metrics that keep numbers short: MB for bytes, milliseconds for long times.

use crate::results::Results;
use crate::results::summary::{MetricInfo, PointResult};

/// The display unit and its size in the metric's unit.
pub(super) fn of_points<'a>(about: &MetricInfo, points: impl Iterator<Item = &'a PointResult>) -> (String, f64) {
    let means = points.filter_map(|point| point.values.get(&about.key)).map(|spread| spread.mean.abs());
    of_maximum(&about.unit, means.fold(0.0, f64::max))
}

/// As [`of_points`], for all points.
pub(super) fn of_results(about: &MetricInfo, results: &Results) -> (String, f64) {
    of_points(about, results.points.iter())
}

fn of_maximum(unit: &str, max: f64) -> (String, f64) {
    let (name, factor) = match unit {
        "B/s" => ("MB/s", 1e6),
        "B/J" => ("MB/J", 1e6),
        "ns" if max >= 1e6 => ("ms", 1e6),
        "ns" if max >= 1e3 => ("us", 1e3),
        "us" if max >= 1e4 => ("ms", 1e3),
        "J s" if max < 1e-6 => ("nJ s", 1e-9),
        "J s" if max < 1e-3 => ("uJ s", 1e-6),
        "W s" if max < 1e-6 => ("nW s", 1e-9),
        "W s" if max < 1e-3 => ("uW s", 1e-6),
        other => (other, 1.0),
    };
    (name.to_owned(), factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_small_values_get_a_suitable_unit() {
        for (unit, max, expected, factor) in [
            ("B/s", 1.0, "MB/s", 1e6),
            ("ns", 96_468_991.0, "ms", 1e6),
            ("ns", 9_000.0, "us", 1e3),
            ("ns", 900.0, "ns", 1.0),
            ("us", 127_271.0, "ms", 1e3),
            ("us", 900.0, "us", 1.0),
            ("J s", 1e-7, "nJ s", 1e-9),
            ("W", 1e9, "W", 1.0),
        ] {
            assert_eq!(of_maximum(unit, max), (expected.to_owned(), factor), "{unit} {max}");
        }
    }
}
