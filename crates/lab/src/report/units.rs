//! In which unit a metric is shown, so that its figures are short: bytes by the million, times in milliseconds where they are long.

use crate::results::Results;
use crate::results::summary::{About, PointResult};

/// A unit, and how much of the metric's own makes one.
pub(super) fn shown<'a>(about: &About, points: impl Iterator<Item = &'a PointResult>) -> (String, f64) {
    let means = points.filter_map(|point| point.values.get(&about.key)).map(|spread| spread.mean.abs());
    of(&about.unit, means.fold(0.0, f64::max))
}

/// The same over all points.
pub(super) fn everywhere(about: &About, results: &Results) -> (String, f64) {
    shown(about, results.points.iter())
}

fn of(unit: &str, greatest: f64) -> (String, f64) {
    let (name, factor) = match unit {
        "B/s" => ("MB/s", 1e6),
        "B/J" => ("MB/J", 1e6),
        "ns" if greatest >= 1e6 => ("ms", 1e6),
        "ns" if greatest >= 1e3 => ("us", 1e3),
        "us" if greatest >= 1e4 => ("ms", 1e3),
        "J s" if greatest < 1e-6 => ("nJ s", 1e-9),
        "J s" if greatest < 1e-3 => ("uJ s", 1e-6),
        "W s" if greatest < 1e-6 => ("nW s", 1e-9),
        "W s" if greatest < 1e-3 => ("uW s", 1e-6),
        other => (other, 1.0),
    };
    (name.to_owned(), factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_say_in_what() {
        for (unit, greatest, shown, factor) in [
            ("B/s", 1.0, "MB/s", 1e6),
            ("ns", 96_468_991.0, "ms", 1e6),
            ("ns", 9_000.0, "us", 1e3),
            ("ns", 900.0, "ns", 1.0),
            ("us", 127_271.0, "ms", 1e3),
            ("us", 900.0, "us", 1.0),
            ("J s", 1e-7, "nJ s", 1e-9),
            ("W", 1e9, "W", 1.0),
        ] {
            assert_eq!(of(unit, greatest), (shown.to_owned(), factor), "{unit} {greatest}");
        }
    }
}
