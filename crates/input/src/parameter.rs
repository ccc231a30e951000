//! `[[parameter]]` of an experiment.

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// A parameter: keys with a list or range of values, or named cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Name in the results; experiments that run a tool use the key.
    #[serde(default)]
    pub name: String,
    /// Unit of the values, for charts.
    #[serde(default)]
    pub unit: String,
    /// Scale of the axis in charts, and of the steps from `from` to `to`.
    #[serde(default)]
    pub scale: ParameterScale,
    /// A dotted key, or a list of keys that are set together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemars", schemars(with = "Option<serde_json::Value>"))]
    pub key: Option<Value>,
    /// Values; with several keys, lists with one value for each.
    #[serde(default)]
    #[cfg_attr(feature = "schemars", schemars(with = "Vec<serde_json::Value>"))]
    pub values: Vec<Value>,
    /// First value of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<f64>,
    /// Last value of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<f64>,
    /// Number of values in a range; on a log2 scale without it: powers of two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Named cases, each with keys to set.
    #[serde(default, rename = "case", skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<Case>,
}

/// Scale of a parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ParameterScale {
    /// Linear.
    #[default]
    Linear,
    /// Logarithmic, base 2.
    Log2,
}

/// A named case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Name of the case in the results.
    pub label: String,
    /// Values by dotted key.
    #[cfg_attr(feature = "schemars", schemars(with = "serde_json::Value"))]
    pub set: Table,
}

impl Parameter {
    /// The dotted keys that it sets; none of a parameter with cases. `None` if `key` is neither a key nor a list of keys.
    #[must_use]
    pub fn keys(&self) -> Option<Vec<String>> {
        match &self.key {
            None => Some(Vec::new()),
            Some(Value::String(key)) => Some(vec![key.clone()]),
            Some(Value::Array(keys)) => keys.iter().map(|key| key.as_str().map(str::to_owned)).collect(),
            Some(_) => None,
        }
    }

    /// Its values, including those of a range.
    ///
    /// # Errors
    /// A key is missing or superfluous.
    pub fn values(&self) -> Result<Vec<Value>, &'static str> {
        match (self.from, self.to) {
            (None, None) => Ok(self.values.clone()),
            (Some(from), Some(to)) if self.values.is_empty() => range(self, from, to),
            _ => Err("give `values`, or both `from` and `to`"),
        }
    }
}

fn range(parameter: &Parameter, from: f64, to: f64) -> Result<Vec<Value>, &'static str> {
    let log = parameter.scale == ParameterScale::Log2;
    let doublings = || ((to / from).log2().round() as u32).saturating_add(1);
    let count = parameter.count.or_else(|| log.then(doublings)).ok_or("a linear range needs `count`")?;
    let rises = from < to;
    if !rises || count < 2 || (log && from <= 0.0) {
        return Err("a range rises from `from` to `to`, above 0 on a log2 scale, with at least 2 values");
    }
    let at = |step: u32| {
        let share = f64::from(step) / f64::from(count - 1);
        if log { from * (to / from).powf(share) } else { from + (to - from) * share }
    };
    Ok((0..count).map(|step| number(at(step))).collect())
}

/// An integer if the value is one.
fn number(value: f64) -> Value {
    let whole = value.round();
    if (value - whole).abs() <= 1e-9 * value.abs().max(1.0) {
        Value::Integer(whole as i64)
    } else {
        Value::Float(value)
    }
}
