//! Rates of counters and means of gauges over a window, with linear interpolation between samples.

use pilotlight_sensors::energy::{Point, Window};
use pilotlight_sensors::recording::Track;
use pilotlight_sensors::{Domain, Kind};

/// Whether a domain is of energy or power.
#[must_use]
pub fn is_energy(domain: &Domain) -> bool {
    matches!(domain.kind, Kind::EnergyCounter(_) | Kind::Power)
}

/// Column and value of a counter or gauge: `kernel/context-switches_count_per_s`, `frequency/cpu0_khz`. `None` if the samples do not cover
/// the window.
#[must_use]
pub fn value(track: &Track, domain: usize, window: Window) -> Option<(String, f64)> {
    let (of, points) = (track.domains.get(domain)?, track.points.get(domain)?);
    let column = format!("{}/{}", track.sensor, of.column());
    match of.kind {
        Kind::Counter => Some((column + "_per_s", rate(points, window)?)),
        Kind::Gauge => Some((column, mean(points, window)?)),
        Kind::EnergyCounter(_) | Kind::Power => None,
    }
}

/// Growth of a counter per second; `None` if it was reset in the window.
#[must_use]
pub fn rate(points: &[Point], window: Window) -> Option<f64> {
    let touches = |pair: &&[Point]| window.touches(pair[0].at_ns, pair[1].at_ns);
    if points.windows(2).filter(touches).any(|pair| pair[1].value < pair[0].value) {
        return None;
    }
    let grown = at(points, window.to_ns)? - at(points, window.from_ns)?;
    let seconds = window.length_ns() as f64 / 1e9;
    (seconds > 0.0).then(|| grown / seconds)
}

/// Mean of a gauge over time.
#[must_use]
pub fn mean(points: &[Point], window: Window) -> Option<f64> {
    let ends = [(window.from_ns, at(points, window.from_ns)?), (window.to_ns, at(points, window.to_ns)?)];
    let within = points.iter().filter(|point| window.from_ns < point.at_ns && point.at_ns < window.to_ns);
    let corners: Vec<(u64, f64)> =
        [ends[0]].into_iter().chain(within.map(|point| (point.at_ns, point.value as f64))).chain([ends[1]]).collect();
    let area: f64 = corners.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64 * (pair[0].1 + pair[1].1) / 2.0).sum();
    (window.length_ns() > 0).then(|| area / window.length_ns() as f64)
}

/// The interpolated value at a time.
fn at(points: &[Point], at_ns: u64) -> Option<f64> {
    let after = points.partition_point(|point| point.at_ns < at_ns);
    let next = points.get(after)?;
    if next.at_ns == at_ns {
        return Some(next.value as f64);
    }
    let before = points.get(after.checked_sub(1)?)?;
    let share = (at_ns - before.at_ns) as f64 / (next.at_ns - before.at_ns) as f64;
    Some(before.value as f64 + share * (next.value - before.value) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn points(values: &[(u64, i64)]) -> Vec<Point> {
        values.iter().map(|&(at_s, value)| Point { at_ns: at_s * S, value }).collect()
    }

    #[test]
    fn rates_match_a_manual_calculation() {
        // 10/s until 10 s, then 30/s: from 5 s to 15 s it grows by 50 + 150
        let points = points(&[(0, 0), (10, 100), (20, 400)]);
        assert_eq!(rate(&points, Window { from_ns: 5 * S, to_ns: 15 * S }), Some(20.0));
        assert_eq!(rate(&points, Window { from_ns: 10 * S, to_ns: 21 * S }), None, "not covered");
        assert_eq!(rate(&points, Window { from_ns: 5 * S, to_ns: 5 * S }), None, "empty");
    }

    #[test]
    fn a_counter_has_no_rate_across_a_reset() {
        let points = points(&[(0, 100), (10, 200), (20, 0), (30, 50)]);
        assert_eq!(rate(&points, Window { from_ns: 5 * S, to_ns: 12 * S }), None);
        assert_eq!(rate(&points, Window { from_ns: 0, to_ns: 10 * S }), Some(10.0), "ends before the reset");
        assert_eq!(rate(&points, Window { from_ns: 20 * S, to_ns: 30 * S }), Some(5.0), "begins after the reset");
    }

    #[test]
    fn means_match_a_manual_calculation() {
        // up from 0 to 10 over 10 s, then flat: from 5 s on 7.5 x 5 + 10 x 5 over 10
        let points = points(&[(0, 0), (10, 10), (20, 10)]);
        assert_eq!(mean(&points, Window { from_ns: 5 * S, to_ns: 15 * S }), Some(8.75));
        assert_eq!(mean(&points, Window { from_ns: 0, to_ns: 20 * S }), Some(7.5));
    }
}
