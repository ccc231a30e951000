//! Quantities of simulated workloads: sizes (`4KiB`), rates (`10240k`, `5%`) and queue depths.

use pilotlight_input::quantity::{self, BYTES};
use serde::{Deserialize, Serialize};
use toml::Value;

pub use pilotlight_input::Time;

/// A size in bytes, such as `64KiB` or `512B`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "String")]
pub struct Size(pub u32);

/// A rate: requests per second (`10_000`, `"10k"`, `"2.5M"`), `"5%"` of the group's `max_iops`, `"unlimited"` (limited by the depth) or `"off"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Rate {
    /// Requests per second.
    PerSecond(f64),
    /// A fraction of the group's `max_iops`.
    Share(f64),
    /// Limited by the depth.
    Unlimited,
    /// None.
    Off,
}

/// Queue depth of a connection; a number or `"open"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Depth {
    /// The maximum.
    AtMost(u32),
    /// No limit: an open loop.
    Open,
}

const COUNTS: [(&str, f64); 3] = [("", 1.0), ("k", 1e3), ("M", 1e6)];

fn count(text: &str) -> Option<f64> {
    let (number, unit) = quantity::split(text);
    let (_, factor) = COUNTS.iter().find(|(name, _)| *name == unit)?;
    Some(number.replace('_', "").parse::<f64>().ok()? * factor)
}

fn expected(what: &str, value: &Value) -> String {
    format!("{value} is not {what}")
}

impl TryFrom<Value> for Size {
    type Error = String;
    fn try_from(value: Value) -> Result<Self, String> {
        let bytes = value.as_str().and_then(|text| quantity::parse(text, BYTES).ok()?.try_into().ok());
        bytes.map(Self).ok_or_else(|| expected("a size below 4GiB such as \"4KiB\" or \"512B\"", &value))
    }
}

impl From<Size> for String {
    fn from(Size(bytes): Size) -> Self {
        quantity::format_bytes(bytes.into())
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
            Value::String(text) => match quantity::split(text) {
                (percent, "%") => percent.parse::<f64>().ok().map(|percent| Self::Share(percent * 0.01)),
                _ => count(text).map(Self::PerSecond),
            },
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
    use super::*;

    #[test]
    fn units_are_read() {
        assert_eq!(Size::try_from(Value::from("64KiB")), Ok(Size(65_536)));
        assert!(Size::try_from(Value::from("4GiB")).is_err() && Size::try_from(Value::from("64k")).is_err());
        assert_eq!(Rate::try_from(Value::from("10240k")), Ok(Rate::PerSecond(10_240_000.0)));
        assert_eq!(Rate::try_from(Value::from("5%")), Ok(Rate::Share(0.05)));
        assert!(Rate::try_from(Value::from("-5%")).is_err());
        assert_eq!(Depth::try_from(Value::from("open")), Ok(Depth::Open));
        assert!(Depth::try_from(Value::from(0)).unwrap_err().contains("above 0"));
    }
}
