//! Moments and times of day as RFC 3339 writes them: `2026-11-23T18:00Z`, `18:00+01:00`. The offset from UTC is required, seconds are not.

/// Seconds of a day.
pub(crate) const DAY_S: u64 = 86_400;

/// A moment in seconds since 1970 (UTC).
pub(crate) fn parse_moment(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't'])?;
    let mut parts = date.splitn(3, '-');
    let [year, month, day] = [4, 2, 2].map(|digits| parts.next().and_then(|part| number(part, digits)));
    let (year, month, day) = (year?, month?, day?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    let (of_day_s, offset_s) = time_and_offset(time)?;
    let unix_s = days_since_1970(year, month, day) * DAY_S as i64 + of_day_s - offset_s;
    u64::try_from(unix_s).ok()
}

/// A time of day in seconds since midnight (UTC).
pub(crate) fn parse_time_of_day(text: &str) -> Option<u64> {
    let (of_day_s, offset_s) = time_and_offset(text)?;
    Some((of_day_s - offset_s).rem_euclid(DAY_S as i64) as u64)
}

/// A moment in UTC.
pub(crate) fn format_moment(unix_s: u64) -> String {
    let (year, month, day) = date(unix_s / DAY_S);
    format!("{year:04}-{month:02}-{day:02}T{}", format_time_of_day(unix_s % DAY_S))
}

/// A time of day in UTC.
pub(crate) fn format_time_of_day(of_day_s: u64) -> String {
    let (hours, minutes, seconds) = (of_day_s / 3600, of_day_s / 60 % 60, of_day_s % 60);
    let seconds = if seconds == 0 { String::new() } else { format!(":{seconds:02}") };
    format!("{hours:02}:{minutes:02}{seconds}Z")
}

fn number(text: &str, digits: usize) -> Option<i64> {
    (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Seconds since midnight, and how far that clock is ahead of UTC.
fn time_and_offset(text: &str) -> Option<(i64, i64)> {
    let (time, offset_s) = match text.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => {
            let at = text.rfind(['+', '-'])?;
            let sign = if text.as_bytes()[at] == b'-' { -1 } else { 1 };
            (&text[..at], sign * time_of(&text[at + 1..])?)
        }
    };
    Some((time_of(time)?, offset_s))
}

/// `HH:MM` or `HH:MM:SS`.
fn time_of(text: &str) -> Option<i64> {
    let mut parts = text.split(':');
    let (hours, minutes) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let seconds = parts.next().map_or(Some(0), |part| number(part, 2))?;
    let is_time = hours < 24 && minutes < 60 && seconds < 60 && parts.next().is_none();
    is_time.then_some(hours * 3600 + minutes * 60 + seconds)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let before = year - 1;
    let leap_days = before / 4 - before / 100 + before / 400 - 477; // 477 until the end of 1969
    let months: i64 = (1..month).map(|month| days_of(year, month)).sum();
    (year - 1970) * 365 + leap_days + months + day - 1
}

/// Year, month and day.
fn date(days: u64) -> (i64, i64, i64) {
    let days = days as i64;
    let mut year = 1970 + days / 366; // not later than it is
    while days_since_1970(year + 1, 1, 1) <= days {
        year += 1;
    }
    let month = (1..=12).rev().find(|&month| days_since_1970(year, month, 1) <= days).unwrap_or(1);
    (year, month, days - days_since_1970(year, month, 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_date() {
        // `date -u -d TEXT +%s`
        for (text, unix_s) in [
            ("1970-01-01T00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2024-12-31T00:00Z", 1_735_603_200),
            ("2026-11-23T18:00Z", 1_795_456_800),
            ("2026-11-23T18:00+01:00", 1_795_453_200),
            ("2026-11-23T18:00:30-05:30", 1_795_476_630),
            ("2100-03-01T00:00Z", 4_107_542_400),
        ] {
            assert_eq!(parse_moment(text), Some(unix_s), "{text}");
            assert_eq!(parse_moment(&format_moment(unix_s)), Some(unix_s), "{text}");
        }
        assert_eq!(format_moment(1_795_456_800), "2026-11-23T18:00Z");
        for text in ["2026-11-23", "2026-11-23T18:00", "2026-02-29T18:00Z", "2026-13-01T18:00Z", "26-11-23T18:00Z", "T"]
        {
            assert_eq!(parse_moment(text), None, "{text}");
        }
    }

    #[test]
    fn times_of_day_wrap_at_midnight_of_utc() {
        for (text, of_day_s) in
            [("18:00Z", 64_800), ("00:30+01:00", 84_600), ("23:30-01:00", 1_800), ("06:00:05Z", 21_605)]
        {
            assert_eq!(parse_time_of_day(text), Some(of_day_s), "{text}");
        }
        assert_eq!(format_time_of_day(84_600), "23:30Z");
        for text in ["", "18:00", "24:00Z", "18Z", "18:60Z", "18:00:00:00Z", "+1:00"] {
            assert_eq!(parse_time_of_day(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_comes_back() {
        for day in 0..146_097 {
            let unix_s = day * DAY_S;
            assert_eq!(parse_moment(&format_moment(unix_s)), Some(unix_s), "{}", format_moment(unix_s));
        }
    }
}
