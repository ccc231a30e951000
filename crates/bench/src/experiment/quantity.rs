//! Times and sizes as people write them: `500ms`, `10s`, `64KiB`, `1GiB`. A number without a unit is refused.

use serde::{Deserialize, Serialize};

/// A time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "toml::Value", into = "String")]
pub struct Time(pub u64);

/// A size, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "toml::Value", into = "String")]
pub struct Size(pub u64);

const TIMES: [(&str, f64); 6] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("min", 60e9), ("s", 1e9), ("h", 3_600e9)];
const SIZES: [(&str, f64); 8] = [
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("B", 1.0),
];

/// The number before the first unit that fits, times what the unit stands for.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let number = |(unit, factor): &(&str, f64)| {
        let value: f64 = text.trim().strip_suffix(unit)?.trim_end().parse().ok()?;
        (value.is_finite() && value >= 0.0 && value * factor < 9e18).then(|| (value * factor).round() as u64)
    };
    units.iter().find_map(number)
}

impl Time {
    /// Reads a time with its unit.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        scaled(text, &TIMES).map(Self)
    }

    /// In seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Size {
    /// Reads a size with its unit.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        scaled(text, &SIZES).map(Self)
    }
}

impl TryFrom<toml::Value> for Time {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let refused = || format!("{value} is not a time with its unit, such as \"500ms\", \"10s\" or \"2min\"");
        value.as_str().and_then(Self::parse).ok_or_else(refused)
    }
}

impl TryFrom<toml::Value> for Size {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let refused = || format!("{value} is not a size with its unit, such as \"64KiB\" or \"1GiB\"");
        value.as_str().and_then(Self::parse).ok_or_else(refused)
    }
}

/// The largest unit of which it is a whole number.
fn shown(value: u64, units: &[(&str, u64)], least: &str) -> String {
    let fits = units.iter().find(|(_, unit)| value >= *unit && value.is_multiple_of(*unit));
    fits.map_or_else(|| format!("{value}{least}"), |(name, unit)| format!("{}{name}", value / unit))
}

impl From<Time> for String {
    fn from(Time(ns): Time) -> Self {
        shown(ns, &[("h", 3_600_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)], "ns")
    }
}

impl From<Size> for String {
    fn from(Size(bytes): Size) -> Self {
        shown(bytes, &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)], "B")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_read_and_bare_numbers_are_not() {
        let times = ["500ms", "10s", "2min", "1.5h", "0s"].map(|text| Time::parse(text).map(|time| time.0));
        let expected = [500_000_000, 10_000_000_000, 120_000_000_000, 5_400_000_000_000, 0].map(Some);
        assert_eq!(times, expected);
        assert_eq!([Time::parse("10"), Time::parse("-1s"), Time::parse("ms")], [None; 3]);
        assert_eq!(Size::parse("64KiB"), Some(Size(65_536)));
        assert_eq!(Size::parse("1GB"), Some(Size(1_000_000_000)));
        assert!(Time::try_from(toml::Value::Integer(10)).unwrap_err().contains("10 is not a time with its unit"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in 0..=1_u64 << 52) {
            prop_assert_eq!(Time::parse(&String::from(Time(value))), Some(Time(value)));
            prop_assert_eq!(Size::parse(&String::from(Size(value))), Some(Size(value)));
        }
    }
}
