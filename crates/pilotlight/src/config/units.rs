//! Quantities as people write them: durations, lists of cores. (Sizes are the target's: `pilotlight_storage`.)

use std::time::Duration;

use anyhow::{Context as _, bail};
use pilotlight_input::quantity::{self, QuantityError, TIMES};

pub(crate) use pilotlight_input::cpu_list::format as format_cores;

/// A duration: `10s`, `500ms`.
pub(crate) fn parse_duration(text: &str) -> anyhow::Result<Duration> {
    match quantity::parse(text, TIMES) {
        Ok(ns) => Ok(Duration::from_nanos(ns)),
        Err(QuantityError::TooLarge) => bail!("`{text}` is longer than 500 years"),
        Err(_) => bail!("`{text}` is not a duration: write a number and a unit, such as 10s (us, ms, s, min, h)"),
    }
}

/// A duration in the largest unit that divides it: `10s`, `1500ms`.
pub(crate) fn format_duration(duration: Duration) -> String {
    u64::try_from(duration.as_nanos()).map_or_else(|_| format!("{duration:?}"), |ns| quantity::format(ns, TIMES))
}

/// A list of cores as the kernel writes it: `0,2-3`. The order is kept.
pub(crate) fn parse_cores(text: &str) -> anyhow::Result<Vec<u32>> {
    let wrong = || format!("`{text}` is not a list of cores: write numbers and ranges, such as 0,1 or 0-3 or 0,4-7");
    pilotlight_input::cpu_list::parse(text).with_context(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [("10s", 10_000), ("500ms", 500), ("2min", 120_000), ("1h", 3_600_000), ("0s", 0)] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for text in ["", "10", "s", "10 sec", "-1s", "99999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_survive_a_round_trip() {
        for text in ["10s", "1500ms", "2min", "1h", "7us"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }
}
