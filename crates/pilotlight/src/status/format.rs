//! Lines, counts, rates and times of the status as people read them.

use std::fmt::Write as _;

use super::report::{Count, Distribution};

/// A line with a heading.
pub(crate) fn line(out: &mut String, heading: &str, text: &str) {
    let _ = writeln!(out, "{heading:20}  {text}");
}

/// `3 (17 since start)`.
/// A time in nanoseconds in its largest unit: `38.0 us`.
pub(crate) fn times(count: Count) -> String {
    format!("{} ({} since start)", count.in_window, count.since_start)
}

/// Percentiles and the maximum; `none` where nothing was measured.
pub(crate) fn measured(distribution: Distribution, none: &str) -> String {
    if distribution.count == 0 {
        return none.to_owned();
    }
    let Distribution { p50_ns, p99_ns, p99_9_ns, max_ns, .. } = distribution;
    format!("p50 {}, p99 {}, p99.9 {}, max {}", time(p50_ns), time(p99_ns), time(p99_9_ns), time(max_ns))
}

/// Three digits and the unit's thousands: `12.3 k`.
fn scaled(value: f64, steps: &[&str]) -> String {
    let mut value = value;
    let mut step = 0;
    while value >= 999.5 && step + 1 < steps.len() {
        value /= 1000.0;
        step += 1;
    }
    let digits = if value >= 99.95 || (step == 0 && value.fract() == 0.0) {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", steps[step]).trim_end().to_owned()
}

/// A rate per second without its unit: `12.3 k`.
pub(crate) fn rate(per_s: f64) -> String {
    scaled(per_s, &["", "k", "M", "G"])
}

/// A bandwidth: `12.3 MB/s`.
pub(crate) fn bytes_per_s(per_s: f64) -> String {
    scaled(per_s, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

/// A time in nanoseconds in its largest unit: `38.0 us`.
pub(crate) fn time(ns: u64) -> String {
    scaled(ns as f64, &["ns", "us", "ms", "s"])
}

/// A time that people count in days.
pub(crate) fn long_time(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        for (value, text) in
            [(0.0, "0"), (7.0, "7"), (7.254, "7.25"), (999.6, "1.00 k"), (12_345.0, "12.3 k"), (2e6, "2.00 M")]
        {
            assert_eq!(rate(value), text);
        }
        assert_eq!(
            (time(0), time(950), time(38_000), time(1_500_000_000)),
            ("0 ns".to_owned(), "950 ns".to_owned(), "38.0 us".to_owned(), "1.50 s".to_owned())
        );
        assert_eq!(long_time(59_999_999_999), "59 s");
        assert_eq!(long_time(3_661_000_000_000), "1 h 1 min");
        assert_eq!(long_time(90_000_000_000_000), "1 d 1 h");
    }
}
