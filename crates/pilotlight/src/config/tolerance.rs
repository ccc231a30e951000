//! Latency tolerances: as text (`20%`, `20% p99`, `500us p99`), and as numbers.

use std::fmt;
use std::ops::RangeInclusive;

use anyhow::Context as _;
use pilotlight_input::quantity::{self, TIMES, Units};
use pilotlight_nvmf_target::Capped;
use pilotlight_plant::{Bound, Scope, Stat, Tolerance};
use serde::{Deserialize, Serialize};

/// Removes a tolerance.
const OFF: &str = "off";
/// A share, in millionths.
const SHARES: &Units = &[("", 1_000_000), ("%", 10_000)];
/// The highest relative bound, in millionths: requests may take eleven times as long.
const HIGHEST_LOSS_PPM: u64 = 10_000_000;
/// Absolute bounds, in nanoseconds: 1 us to 10 s.
const BOUNDS_NS: RangeInclusive<u64> = 1_000..=10_000_000_000;

/// A namespace and its tolerance.
pub(crate) type NamespaceTolerance = (Capped, LatencyBound);

/// A [`Tolerance`] without its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct LatencyBound {
    pub(crate) stat: Stat,
    pub(crate) bound: Bound,
}

impl LatencyBound {
    /// The tolerance of the server or of a namespace.
    pub(crate) fn in_scope(self, scope: Scope) -> Tolerance {
        Tolerance { scope, stat: self.stat, bound: self.bound }
    }
}

impl From<Tolerance> for LatencyBound {
    fn from(tolerance: Tolerance) -> Self {
        Self { stat: tolerance.stat, bound: tolerance.bound }
    }
}

impl fmt::Display for LatencyBound {
    /// As it is written: `20%` (of the mean), `20% p99`, `500us p99`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound {
            Bound::LossPpm(ppm) => write!(f, "{}%", f64::from(ppm) / 1e4)?,
            Bound::LatencyNs(ns) => f.write_str(&quantity::format_time(ns))?,
        }
        if self.stat == Stat::Mean { Ok(()) } else { write!(f, " {}", self.stat.name()) }
    }
}

impl TryFrom<String> for LatencyBound {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Self> {
        parse_tolerance(&text)?.with_context(|| format!("`{text}` is not a tolerance"))
    }
}

impl From<LatencyBound> for String {
    fn from(bound: LatencyBound) -> Self {
        bound.to_string()
    }
}

/// A latency tolerance: `0.2`, `20%` or `500us`, of the mean or of the percentile that follows; `None` for `off`.
pub(crate) fn parse_tolerance(text: &str) -> anyhow::Result<Option<LatencyBound>> {
    if text.trim() == OFF {
        return Ok(None);
    }
    let wrong = || {
        format!(
            "`{text}` is not a tolerance: write a share such as 0.2 or 20%, at most 10, or a time such as 500us, from 1us to \
             10s; after it p50 or p99 where it is not for the mean; or {OFF}"
        )
    };
    let named = Stat::ALL.into_iter().find_map(|stat| Some((text.trim_end().strip_suffix(stat.name())?, stat)));
    let (value, stat) = named.unwrap_or((text, Stat::Mean));
    let bound = parse_bound(value).with_context(wrong)?;
    Ok(Some(LatencyBound { stat, bound }))
}

fn parse_bound(text: &str) -> Option<Bound> {
    let loss = quantity::parse(text, SHARES).ok().filter(|&ppm| ppm <= HIGHEST_LOSS_PPM);
    let latency = || quantity::parse(text, TIMES).ok().filter(|ns| BOUNDS_NS.contains(ns));
    loss.map(|ppm| Bound::LossPpm(ppm as u32)).or_else(|| latency().map(Bound::LatencyNs))
}

/// A tolerance as it is written, or `off`.
pub(crate) fn format_tolerance(tolerance: Option<LatencyBound>) -> String {
    tolerance.map_or(OFF.to_owned(), |bound| bound.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_survive_a_round_trip() {
        let loss = |stat, ppm| Some(LatencyBound { stat, bound: Bound::LossPpm(ppm) });
        let latency = |stat, ns| Some(LatencyBound { stat, bound: Bound::LatencyNs(ns) });
        for (text, parsed, written) in [
            ("0.2", loss(Stat::Mean, 200_000), "20%"),
            ("1.25% mean", loss(Stat::Mean, 12_500), "1.25%"),
            ("0", loss(Stat::Mean, 0), "0%"),
            ("10", loss(Stat::Mean, 10_000_000), "1000%"),
            ("0.2 p99", loss(Stat::P99, 200_000), "20% p99"),
            ("500us p99", latency(Stat::P99, 500_000), "500us p99"),
            ("1.5 ms", latency(Stat::Mean, 1_500_000), "1500us"),
            ("off", None, "off"),
        ] {
            assert_eq!(parse_tolerance(text).unwrap(), parsed, "{text}");
            assert_eq!(format_tolerance(parsed), written);
            assert_eq!(parse_tolerance(written).unwrap(), parsed, "{written}");
        }
        for text in ["", "-0.1", "11", "1.5.2", "a few", "p99", "20% p90", "p99 20%", "999ns", "11s"] {
            assert!(parse_tolerance(text).unwrap_err().to_string().contains("20%"), "{text}");
        }
    }
}
