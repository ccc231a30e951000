//! Conversion of wall-clock times that tools log to times since the start of the run.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::Outcome;

/// Nanoseconds since 1970 of a date and time in UTC.
pub(crate) fn since_1970_ns(utc: DateTime) -> Option<u64> {
    u64::try_from(TimeZone::UTC.to_timestamp(utc).ok()?.as_nanosecond()).ok()
}

/// Converts a window from nanoseconds since 1970 to nanoseconds since the start. `None` if it exceeds the run by more than
/// `slack_ns`, as after a step of the wall clock.
pub(crate) fn window(outcome: &Outcome, from_ns: u64, to_ns: u64, slack_ns: u64) -> Option<(u64, u64)> {
    let after_start = |ns: u64| i128::from(ns) - i128::from(outcome.began_wall_ns);
    let (from, to) = (after_start(from_ns), after_start(to_ns));
    let slack = i128::from(slack_ns);
    let lasted = i128::from(outcome.span_ns.1.saturating_sub(outcome.span_ns.0));
    let inside = from >= -slack && from < to && to <= lasted + slack;
    inside.then_some((from.max(0) as u64, to.max(0) as u64))
}

/// Warning where [`window`] returns none.
pub(crate) const CLOCK: &str =
    "the tool's wall-clock times are outside its run; the clock was probably set during the run";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outcome;

    #[test]
    fn dates_are_converted_as_utc() {
        // `date -u -d DATE +%s`
        for (date, expected_days) in
            [((1970, 1, 1), 0), ((2000, 2, 29), 11_016), ((2026, 11, 22), 20_779), ((2100, 3, 1), 47_541)]
        {
            let utc = jiff::civil::date(date.0, date.1, date.2).at(0, 0, 0, 0);
            assert_eq!(since_1970_ns(utc), Some(expected_days * 86_400_000_000_000), "{date:?}");
        }
        let utc = jiff::civil::date(2026, 11, 22).at(4, 12, 59, 645_000_000);
        assert_eq!(since_1970_ns(utc), Some(1_795_320_779_645_000_000));
    }

    #[test]
    fn a_window_lies_within_the_run() {
        let outcome = outcome("", 1_000_000); // 100 s long
        let at = |s: u64| (1_000 + s) * 1_000_000_000;
        assert_eq!(window(&outcome, at(1), at(99), 0), Some((1_000_000_000, 99_000_000_000)));
        assert_eq!(window(&outcome, at(1), at(101), 0), None);
        assert_eq!(window(&outcome, at(0) - 5, at(100) + 5, 5), Some((0, 100_000_000_005)));
        assert_eq!(window(&outcome, at(5), at(5), 0), None);
    }
}
