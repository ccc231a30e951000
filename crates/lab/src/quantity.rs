//! Quantities as people write them: `450us`, `4KiB`, `10240k`, `5%`.

use serde::{Deserialize, Serialize};
use toml::Value;

/// A time in nanoseconds; written as `10us`, `2.5s`, `0s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "String")]
pub struct Time(pub u64);

/// A size in bytes; written as `64KiB`, `512B`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "String")]
pub struct Size(pub u32);

/// How many requests; written as a number of requests a second (`10_000`, `"10k"`, `"2.5M"`), `"5%"` of the group's `max_iops`,
/// `"unlimited"` (as many as the depth allows) or `"off"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Rate {
    /// Requests a second.
    PerSecond(f64),
    /// A share of the group's `max_iops`.
    Share(f64),
    /// As many as the depth allows.
    Unlimited,
    /// None.
    Off,
}

/// Most requests of a connection in progress; a number, or `"open"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Depth {
    /// At most so many.
    AtMost(u32),
    /// No limit: an open loop.
    Open,
}

const TIMES: [(&str, f64); 6] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("min", 60e9), ("s", 1e9), ("h", 3_600e9)];
const SIZES: [(&str, f64); 3] = [("KiB", 1024.0), ("MiB", 1_048_576.0), ("B", 1.0)];
const COUNTS: [(&str, f64); 3] = [("k", 1e3), ("M", 1e6), ("", 1.0)];

/// Splits off the unit that fits; the number must be finite and not negative.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let number = |(unit, factor): &(&str, f64)| {
        let digits = text.trim().strip_suffix(unit)?.trim_end().replace('_', "");
        let value: f64 = digits.parse().ok()?;
        (value.is_finite() && value >= 0.0).then_some(value * factor)
    };
    units.iter().find_map(number)
}

fn text(value: &Value) -> Option<&str> {
    value.as_str()
}

fn expected(what: &str, value: &Value) -> String {
    format!("{value} is not {what}")
}

impl Time {
    /// Reads a time.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self(scaled(text, &TIMES)?.round() as u64))
    }

    /// In seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl TryFrom<Value> for Time {
    type Error = String;
    fn try_from(value: Value) -> Result<Self, String> {
        text(&value)
            .and_then(Self::parse)
            .ok_or_else(|| expected("a time such as \"10us\", \"2.5s\" or \"24h\"", &value))
    }
}

impl From<Time> for String {
    fn from(Time(ns): Time) -> Self {
        let units = [("h", 3_600_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
        let fits = units.into_iter().find(|&(_, unit)| ns >= unit && ns.is_multiple_of(unit));
        fits.map_or(format!("{ns}ns"), |(name, unit)| format!("{}{name}", ns / unit))
    }
}

impl TryFrom<Value> for Size {
    type Error = String;
    fn try_from(value: Value) -> Result<Self, String> {
        let bytes = text(&value).and_then(|text| scaled(text, &SIZES)).filter(|&bytes| bytes <= f64::from(u32::MAX));
        bytes
            .map(|bytes| Self(bytes.round() as u32))
            .ok_or_else(|| expected("a size such as \"4KiB\" or \"512B\"", &value))
    }
}

impl From<Size> for String {
    fn from(Size(bytes): Size) -> Self {
        if bytes > 0 && bytes.is_multiple_of(1024) { format!("{}KiB", bytes / 1024) } else { format!("{bytes}B") }
    }
}

impl TryFrom<Value> for Rate {
    type Error = String;
    fn try_from(value: Value) -> Result<Self, String> {
        let number = |value: f64| (value.is_finite() && value >= 0.0).then_some(Self::PerSecond(value));
        let rate = match &value {
            Value::Integer(rate) => number(*rate as f64),
            Value::Float(rate) => number(*rate),
            Value::String(text) if text == "unlimited" => Some(Self::Unlimited),
            Value::String(text) if text == "off" => Some(Self::Off),
            Value::String(text) if text.ends_with('%') => scaled(text, &[("%", 0.01)]).map(Self::Share),
            Value::String(text) => scaled(text, &COUNTS).map(Self::PerSecond),
            _ => None,
        };
        rate.ok_or_else(|| expected("a rate such as 10_000, \"10k\", \"5%\", \"unlimited\" or \"off\"", &value))
    }
}

impl From<Rate> for Value {
    fn from(rate: Rate) -> Self {
        match rate {
            Rate::PerSecond(rate) => Self::Float(rate),
            Rate::Share(share) => Self::String(format!("{}%", share * 100.0)),
            Rate::Unlimited => Self::String("unlimited".into()),
            Rate::Off => Self::String("off".into()),
        }
    }
}

impl TryFrom<Value> for Depth {
    type Error = String;
    fn try_from(value: Value) -> Result<Self, String> {
        let depth = match &value {
            Value::Integer(depth) => u32::try_from(*depth).ok().filter(|&depth| depth > 0).map(Self::AtMost),
            Value::String(text) if text == "open" => Some(Self::Open),
            _ => None,
        };
        depth.ok_or_else(|| expected("a depth: a whole number above 0, or \"open\"", &value))
    }
}

impl From<Depth> for Value {
    fn from(depth: Depth) -> Self {
        match depth {
            Depth::AtMost(depth) => Self::Integer(depth.into()),
            Depth::Open => Self::String("open".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_read() {
        let time = |text: &str| Time::parse(text).map(|time| time.0);
        assert_eq!(
            [time("10us"), time("2.5s"), time("24h"), time("0s")],
            [Some(10_000), Some(2_500_000_000), Some(86_400_000_000_000), Some(0)]
        );
        assert_eq!([time("10"), time("-1s"), time("s"), time("1 parsec")], [None; 4]);
        assert_eq!(Size::try_from(Value::from("64KiB")), Ok(Size(65_536)));
        assert_eq!(Rate::try_from(Value::from("10240k")), Ok(Rate::PerSecond(10_240_000.0)));
        assert_eq!(Rate::try_from(Value::from("5%")), Ok(Rate::Share(0.05)));
        assert_eq!(Depth::try_from(Value::from("open")), Ok(Depth::Open));
        assert!(Depth::try_from(Value::from(0)).unwrap_err().contains("above 0"));
    }

    proptest! {
        #[test]
        fn times_and_sizes_are_read_back(ns in 0..=1_u64 << 50, bytes: u32) {
            prop_assert_eq!(Time::parse(&String::from(Time(ns))), Some(Time(ns)));
            prop_assert_eq!(Size::try_from(Value::from(String::from(Size(bytes)))), Ok(Size(bytes)));
        }
    }
}
