//! Quantities as people write them: durations, lists of cores. (Sizes are the target's: `pilotlight_target::backend`.)

use std::time::Duration;

/// Units of a duration, in nanoseconds.
const DURATION_UNITS: [(&str, u64); 5] =
    [("h", 3_600_000_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];

/// Splits `10ms` into its number and its unit.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..digits].parse().ok()?;
    Some((number, text[digits..].trim_start()))
}

/// A duration: `10s`, `500ms`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("`{text}` is not a duration: write a whole number and a unit, such as 10s (us, ms, s, min, h)");
    let (number, unit) = number_and_unit(text.trim()).ok_or_else(wrong)?;
    let (_, nanos) = DURATION_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    number.checked_mul(*nanos).map(Duration::from_nanos).ok_or_else(|| format!("`{text}` is longer than 500 years"))
}

/// A duration in the largest unit that divides it: `10s`, `1500ms`.
pub(crate) fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let fits = |unit: &&(&str, u64)| nanos != 0 && nanos.is_multiple_of(u128::from(unit.1));
    match DURATION_UNITS.iter().find(fits) {
        Some((name, unit)) => format!("{}{name}", nanos / u128::from(*unit)),
        None => format!("{duration:?}"),
    }
}

/// A list of cores as the kernel writes it: `0,2-3`. Order is kept.
pub(crate) fn parse_cores(text: &str) -> Result<Vec<u32>, String> {
    text.split(',').map(|part| parse_core_range(part.trim())).try_fold(Vec::new(), |mut all, range| {
        all.extend(range.ok_or_else(|| {
            format!("`{text}` is not a list of cores: write numbers and ranges, such as 0,1 or 0-3 or 0,4-7")
        })?);
        Ok(all)
    })
}

/// `3`, or `0-3`; at most as many cores as Linux supports.
fn parse_core_range(part: &str) -> Option<std::ops::RangeInclusive<u32>> {
    const MOST_CORES: u32 = 8192;
    let core = |text: &str| text.parse::<u32>().ok().filter(|core| *core < MOST_CORES && !text.starts_with('+'));
    let (first, last) = match part.split_once('-') {
        Some((first, last)) => (core(first)?, core(last)?),
        None => (core(part)?, core(part)?),
    };
    (first <= last).then_some(first..=last)
}

/// A list of cores as the kernel writes it: `0-3,6`.
pub(crate) fn format_cores(cores: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &core in cores {
        match ranges.last_mut() {
            Some((_, last)) if core == last.wrapping_add(1) => *last = core,
            _ => ranges.push((core, core)),
        }
    }
    let text = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [("10s", 10_000), ("500ms", 500), ("2min", 120_000), ("1h", 3_600_000), ("0s", 0)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "10", "s", "10 sec", "1.5s", "-1s", "99999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_come_back_as_they_were_written() {
        for text in ["10s", "1500ms", "2min", "1h", "7us"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }

    #[test]
    fn cores() {
        assert_eq!(parse_cores("0"), Ok(vec![0]));
        assert_eq!(parse_cores("0,1"), Ok(vec![0, 1]));
        assert_eq!(parse_cores("4-6, 1"), Ok(vec![4, 5, 6, 1]));
        for text in ["", "a", "1-", "-1", "3-1", "0,,1", "0-4000000000", "+1", "1.5"] {
            assert!(parse_cores(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cores_come_back_as_they_were_written() {
        for text in ["0", "0-3", "0,2,4", "0-1,4-7", "5,1-2"] {
            assert_eq!(format_cores(&parse_cores(text).unwrap()), text);
        }
    }
}
