//! Times and sizes as fields of files: `500ms`, `64KiB`. A number without a unit is refused.

use serde::{Deserialize, Serialize};
use toml::Value;

use crate::quantity::{self, BYTES, TIMES};

/// A time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "String")]
pub struct Time(pub u64);

/// A size, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "String")]
pub struct Size(pub u64);

impl Time {
    /// Parses a time with its unit.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        quantity::parse(text, TIMES).ok().map(Self)
    }

    /// In seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Size {
    /// Parses a size with its unit.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        quantity::parse(text, BYTES).ok().map(Self)
    }
}

#[cfg(feature = "schemars")]
macro_rules! written_as {
    ($quantity:ident, $format:literal) => {
        impl schemars::JsonSchema for $quantity {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                $format.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "format": $format })
            }
        }
    };
}
#[cfg(feature = "schemars")]
written_as!(Time, "time");
#[cfg(feature = "schemars")]
written_as!(Size, "size");

impl TryFrom<Value> for Time {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let refused = || format!("{value} is not a time with its unit, such as \"10us\", \"2.5s\" or \"2min\"");
        value.as_str().and_then(Self::parse).ok_or_else(refused)
    }
}

impl TryFrom<Value> for Size {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let refused = || format!("{value} is not a size with its unit, such as \"64KiB\" or \"1GiB\"");
        value.as_str().and_then(Self::parse).ok_or_else(refused)
    }
}

impl From<Time> for String {
    fn from(Time(ns): Time) -> Self {
        quantity::format_time(ns)
    }
}

impl From<Size> for String {
    fn from(Size(bytes): Size) -> Self {
        quantity::format_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_refused() {
        assert_eq!(Time::try_from(Value::from("1.5h")), Ok(Time(5_400_000_000_000)));
        assert_eq!(Size::try_from(Value::from("1GB")), Ok(Size(1_000_000_000)));
        assert!(Time::try_from(Value::Integer(10)).unwrap_err().contains("10 is not a time with its unit"));
        assert!(Size::try_from(Value::from("10")).is_err());
    }
}
