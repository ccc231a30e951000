//! Bandwidth caps, priorities and minimums that an operator sets: as text, and as numbers.

use anyhow::{Context as _, anyhow};
use pilotlight_input::quantity::{self, Units};
use pilotlight_nvmf_target::Capped;
use pilotlight_nvmf_target::caps::CAPS;

/// Removes a cap.
const OFF: &str = "off";
/// Bytes a second.
const RATES: &Units = &[
    ("B/s", 1),
    ("kB/s", 1_000),
    ("MB/s", 1_000_000),
    ("GB/s", 1_000_000_000),
    ("TB/s", 1_000_000_000_000),
    ("KiB/s", 1 << 10),
    ("MiB/s", 1 << 20),
    ("GiB/s", 1 << 30),
];

/// A namespace or a host, and its cap in bytes per second.
pub(crate) type Cap = (Capped, u64);

/// A namespace or a host, and its priority.
pub(crate) type Priority = (Capped, u8);

/// A cap in bytes a second: `100 MB/s`; `None` for `off`.
pub(crate) fn parse_cap(text: &str) -> anyhow::Result<Option<u64>> {
    parse_rate(text, "bandwidth cap")
}

/// A minimum in bytes a second: `100 MB/s`; `None` for `off`.
pub(crate) fn parse_minimum(text: &str) -> anyhow::Result<Option<u64>> {
    parse_rate(text, "minimum")
}

/// A rate of background work in bytes a second.
pub(crate) fn parse_background_rate(text: &str) -> anyhow::Result<u64> {
    parse_rate(text, "rate")?.with_context(|| format!("`{text}` is not a rate: write bytes a second such as 100MB/s"))
}

fn parse_rate(text: &str, what: &str) -> anyhow::Result<Option<u64>> {
    if text == OFF {
        return Ok(None);
    }
    let wrong =
        || format!("`{text}` is not a {what}: write bytes a second such as 100MB/s, from 1MB/s to 1TB/s, or {OFF}");
    quantity::parse(text, RATES).ok().filter(|rate| CAPS.contains(rate)).map(Some).with_context(wrong)
}

/// A priority: `5`; `None` for `off`.
pub(crate) fn parse_priority(text: &str) -> anyhow::Result<Option<u8>> {
    if text == OFF {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| anyhow!("`{text}` is not a priority: write 0 (the lowest) to 255, or {OFF}"))
}

/// A cap as it is written: `100MB/s`, or `off`.
pub(crate) fn format_cap(bytes_per_s: Option<u64>) -> String {
    bytes_per_s.map_or(OFF.to_owned(), |rate| quantity::format(rate, RATES))
}

/// The name of a namespace or host, as text.
pub(crate) fn name_of(capped: &Capped) -> String {
    match capped {
        Capped::Namespace { nqn, nsid } => format!("namespace {nsid} of {nqn}"),
        Capped::Host { nqn } => format!("host {nqn}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caps_come_back_as_they_were_written() {
        for text in ["100MB/s", "1500MB/s", "10MiB/s", "1TB/s", "off"] {
            assert_eq!(format_cap(parse_cap(text).unwrap()), text);
        }
        assert_eq!(parse_cap("100 MB/s").unwrap(), Some(100_000_000));
        assert_eq!(["0", "255", "off"].map(|text| parse_priority(text).unwrap()), [Some(0), Some(255), None]);
        for text in ["", "-1", "256", "high"] {
            assert!(parse_priority(text).unwrap_err().to_string().contains("0 (the lowest) to 255"), "{text}");
        }
        for text in ["", "100", "100MB", "0MB/s", "999kB/s", "2TB/s", "-1MB/s", "fast"] {
            assert!(parse_cap(text).unwrap_err().to_string().contains("100MB/s"), "{text}");
        }
    }
}
