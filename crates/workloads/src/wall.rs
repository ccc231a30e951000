//! Wall-clock times that tools log, as times after they were started.

use super::Outcome;

/// Days from 1970-01-01 to this date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years from March on, so that the leap day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days_before = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    days_before + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Nanoseconds since 1970 of year, month, day, hour, minute, second (UTC) and a fraction in nanoseconds.
pub(crate) fn since_1970_ns([year, month, day, hour, minute, second]: [i64; 6], fraction_ns: u64) -> Option<u64> {
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

/// From and to, in nanoseconds since 1970, as times after the start; `None` if that lies outside the run by more than `slack_ns`,
/// as it does when the clock was set meanwhile.
pub(crate) fn window(outcome: &Outcome, from_ns: u64, to_ns: u64, slack_ns: u64) -> Option<(u64, u64)> {
    let after_start = |ns: u64| i128::from(ns) - i128::from(outcome.began_wall_ns);
    let (from, to) = (after_start(from_ns), after_start(to_ns));
    let slack = i128::from(slack_ns);
    let lasted = i128::from(outcome.span_ns.1.saturating_sub(outcome.span_ns.0));
    let inside = from >= -slack && from < to && to <= lasted + slack;
    inside.then_some((from.max(0) as u64, to.max(0) as u64))
}

/// What is said where [`window`] gives none.
pub(crate) const CLOCK: &str = "the tool's wall-clock times lie outside its run: was the clock set meanwhile?";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outcome;

    #[test]
    fn dates_are_days_since_1970() {
        // `date -u -d DATE +%s` / 86400
        for (date, expected) in
            [((1970, 1, 1), 0), ((2000, 2, 29), 11_016), ((2026, 11, 22), 20_779), ((2100, 3, 1), 47_541)]
        {
            assert_eq!(days(date.0, date.1, date.2), expected, "{date:?}");
        }
        assert_eq!(since_1970_ns([2026, 11, 22, 4, 12, 59], 645_000_000), Some(1_795_320_779_645_000_000));
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
