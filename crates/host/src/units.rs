//! Parses numbers with units: `4k`, `1GiB`, `250ms`, `50k` a second, `5%:1s,100%:200ms`.
//!
//! `4k` is 4,096 bytes, as in fio, and `4kB` is 4,000, as in the SI; rates are powers of 1,000.

use pilotlight_input::quantity;

use crate::schedule::Phase;

/// An invalid number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {what}, such as {example}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    example: &'static str,
}

fn invalid<T>(text: &str, what: &'static str, example: &'static str) -> Result<T, UnitError> {
    Err(UnitError { text: text.to_owned(), what, example })
}

/// A size in bytes: `512`, `4k`, `128KiB`, `1g`.
///
/// # Errors
/// [`UnitError`] for anything else.
pub fn bytes(text: &str) -> Result<u64, UnitError> {
    let bytes = quantity::storage_bytes(text).ok().filter(|bytes| *bytes < 1 << 63);
    bytes.map_or_else(|| invalid(text, "a size", "4096, 4k or 1GiB"), Ok)
}

/// A number, and its unit in lower case.
fn split(text: &str) -> Option<(f64, String)> {
    let (number, unit) = quantity::split(text);
    Some((number.parse().ok()?, unit.to_ascii_lowercase()))
}

/// A duration in nanoseconds: `10`, `10s` (seconds), `250ms`, `50us`, `2m`, `1h`.
///
/// # Errors
/// [`UnitError`] for anything else.
pub fn duration_ns(text: &str) -> Result<u64, UnitError> {
    let factor = |unit: &str| match unit {
        "us" => Some(1e3),
        "ms" => Some(1e6),
        "" | "s" => Some(1e9),
        "m" | "min" => Some(60e9),
        "h" => Some(3600e9),
        _ => None,
    };
    match split(text).and_then(|(n, unit)| Some(n * factor(&unit)?)) {
        Some(ns) if ns < 1e18 => Ok(ns as u64),
        _ => invalid(text, "a duration", "10s, 250ms or 2m"),
    }
}

/// A rate per second: `500`, `50k`, `1.2m`.
///
/// # Errors
/// [`UnitError`] for anything else.
pub fn rate(text: &str) -> Result<f64, UnitError> {
    let factor = |unit: &str| match unit {
        "" => Some(1.0),
        "k" => Some(1e3),
        "m" => Some(1e6),
        _ => None,
    };
    match split(text).and_then(|(n, unit)| Some(n * factor(&unit)?)) {
        Some(rate) => Ok(rate),
        None => invalid(text, "a rate per second", "500, 50k or 1.2m"),
    }
}

/// A schedule of phases, rate and duration each: `5%:1s,100%:200ms` of `full_rate`, or `20k:1s,0:500ms`.
///
/// # Errors
/// [`UnitError`] for anything else, and for percentages where there is no `full_rate`.
pub fn phases(text: &str, full_rate: Option<f64>) -> Result<Vec<Phase>, UnitError> {
    text.split(',').map(|part| phase(part, full_rate)).collect()
}

fn phase(text: &str, full_rate: Option<f64>) -> Result<Phase, UnitError> {
    let Some((text_rate, time)) = text.split_once(':') else {
        return invalid(text, "a phase", "50k:200ms, or 5%:1s of --rate_iops");
    };
    let duration_ns = duration_ns(time)?;
    let Some(percent) = text_rate.trim().strip_suffix('%') else {
        return Ok(Phase { rate_iops: rate(text_rate)?, duration_ns });
    };
    match (percent.trim().parse::<f64>(), full_rate) {
        (Ok(percent), Some(full)) if percent >= 0.0 => Ok(Phase { rate_iops: full * percent / 100.0, duration_ns }),
        (Ok(_), None) => invalid(text, "a phase without --rate_iops", "50k:200ms"),
        _ => invalid(text, "a phase", "50k:200ms, or 5%:1s of --rate_iops"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, n) in
            [("512", 512), ("4k", 4096), ("4K", 4096), ("4kB", 4000), ("128KiB", 131_072), ("1.5m", 1_572_864)]
        {
            assert_eq!(bytes(text), Ok(n), "{text}");
        }
        assert_eq!(bytes("1GiB"), Ok(1 << 30));
        assert_eq!(bytes("2t"), Ok(2 << 40));
        for text in ["", "k", "4q", "-1", "0.3", "1.2.3", "99999999999t"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_and_rates() {
        assert_eq!(duration_ns("10"), Ok(10_000_000_000));
        assert_eq!(duration_ns("1.5 ms"), Ok(1_500_000));
        assert_eq!(duration_ns("2m"), Ok(120_000_000_000));
        assert!(duration_ns("5x").is_err() && duration_ns("").is_err());
        assert_eq!(rate("50k"), Ok(50_000.0));
        assert!(rate("fast").is_err());
    }

    #[test]
    fn schedules() {
        let phase = |rate_iops, duration_ns| Phase { rate_iops, duration_ns };
        let burst = vec![phase(500.0, 1_000_000_000), phase(10_000.0, 200_000_000)];
        assert_eq!(phases("5%:1s,100%:200ms", Some(1e4)), Ok(burst));
        assert_eq!(phases("2k:1s,0:1ms", None), Ok(vec![phase(2000.0, 1_000_000_000), phase(0.0, 1_000_000)]));
        for text in ["5%", "x:1s", "5%:1s", "1k:", ""] {
            assert!(phases(text, None).is_err(), "{text}");
        }
    }
}
