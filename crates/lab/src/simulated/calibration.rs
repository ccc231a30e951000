//! `profiles/calibration/NAME.toml`: free constants with their ranges and the claims they were fitted on, and other choices made after results
//! were known, with the claims they were made on.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::{Table, Value};

use pilotlight_stats::latin::{self, Range};

use pilotlight_input::file::{self as read, ReadError};

/// The free constants of a simulated machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The constants.
    #[serde(default, rename = "constant")]
    pub constants: Vec<Constant>,
    /// Members of the family of machines consistent with the printed values.
    #[serde(default, rename = "family")]
    pub families: Vec<Family>,
    /// Guards, interpretations and settings chosen after results were known.
    #[serde(default, rename = "choice")]
    pub choices: Vec<Choice>,
}

/// A choice other than a constant; it counts as a fit on its claims.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The choice.
    pub what: String,
    /// Its file, relative to the repository.
    pub place: String,
    /// The claims considered; empty if the choice could only worsen results.
    pub chosen_on: Vec<String>,
    /// When and why it was made.
    pub source: String,
}

/// A free constant.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Dotted key of [`pilotlight_sim::machine::Machine`].
    pub key: String,
    /// Its value, in the unit of its key.
    pub value: Value,
    /// Lower end of its range.
    #[serde(default)]
    pub low: Option<Value>,
    /// Upper end of its range.
    #[serde(default)]
    pub high: Option<Value>,
    /// Distribution of draws over the range.
    #[serde(default)]
    pub scale: Scale,
    /// Key of a constant whose value this one has in every variant, in place of a range.
    #[serde(default)]
    pub equal_to: Option<String>,
    /// Source of value and range.
    pub source: String,
    /// Claims and files it was fitted on.
    pub fitted_on: Vec<String>,
    /// Claims whose results were considered in the choice of the value; they count as `fitted_on`.
    #[serde(default)]
    pub chosen_on: Vec<String>,
    /// Notes.
    #[serde(default)]
    pub note: String,
}

/// Distribution of draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Uniform.
    #[default]
    Linear,
    /// Log-uniform.
    Log,
}

/// A member of the family: the calibration with other values for some constants.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// Its name in results.
    pub name: String,
    /// Values by dotted key.
    pub set: Table,
}

/// States of cores, from the deepest, as keys of their power.
const STATES: [&str; 4] = ["deep", "shallow", "slow", "poll"];

/// A calibration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// It cannot be parsed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A duplicate constant.
    #[error("calibration: duplicate constant {0}: remove one")]
    Twice(String),
    /// An invalid range, or one without the value.
    #[error("calibration: {0}: must have low <= value <= high of one type, above 0 on a log scale")]
    Range(String),
    /// A family sets an unknown constant.
    #[error("calibration: family {family} sets {key}, which is not a constant")]
    Family {
        /// The family.
        family: String,
        /// The key.
        key: String,
    },
    /// A constant that has not the value of another.
    #[error(
        "calibration: {0}: equal_to names a constant of the same value with a range of its own, and takes the place of low and high"
    )]
    EqualTo(String),
    /// An unknown constant.
    #[error("calibration: there is no numeric constant {0}")]
    Unknown(String),
}

impl Calibration {
    /// Reads a calibration.
    ///
    /// # Errors
    /// If it cannot be parsed, has a duplicate constant, or an invalid range.
    pub fn parse(text: &str) -> Result<Self, CalibrationError> {
        let calibration: Self = read::table(read::parse("calibration", text)?, "calibration")?;
        calibration.check()?;
        Ok(calibration)
    }

    fn check(&self) -> Result<(), CalibrationError> {
        for (at, constant) in self.constants.iter().enumerate() {
            if self.constants[..at].iter().any(|other| other.key == constant.key) {
                return Err(CalibrationError::Twice(constant.key.clone()));
            }
            constant.check()?;
            if let Some(other) = &constant.equal_to {
                let other = self.constant(other);
                let is_equal = other.is_some_and(|other| other.equal_to.is_none() && other.value == constant.value);
                if !is_equal || constant.low.is_some() {
                    return Err(CalibrationError::EqualTo(constant.key.clone()));
                }
            }
        }
        for family in &self.families {
            if let Some((key, _)) = family.set.iter().find(|(key, _)| self.constant(key).is_none()) {
                return Err(CalibrationError::Family { family: family.name.clone(), key: key.clone() });
            }
        }
        Ok(())
    }

    /// The constant with this key.
    #[must_use]
    pub fn constant(&self, key: &str) -> Option<&Constant> {
        self.constants.iter().find(|constant| constant.key == key)
    }

    /// The value of a constant, changed by a percentage.
    ///
    /// # Errors
    /// If there is no such numeric constant.
    pub fn moved(&self, key: &str, percent: i32) -> Result<Value, CalibrationError> {
        let constant = self.constant(key).filter(|constant| constant.is_number());
        let constant = constant.ok_or_else(|| CalibrationError::Unknown(key.to_owned()))?;
        Ok(constant.typed(constant.number() * (1.0 + f64::from(percent) / 100.0)))
    }

    /// Claims and files that constants were fitted on or choices were made on.
    #[must_use]
    pub fn fitted_on(&self) -> BTreeSet<String> {
        self.fits().into_keys().collect()
    }

    /// As [`Self::fitted_on`], with the constants and choices of each.
    #[must_use]
    pub fn fits(&self) -> BTreeMap<String, Vec<String>> {
        let constants = self.constants.iter().map(|one| (&one.key, one.fitted_on.iter().chain(&one.chosen_on)));
        let choices = self.choices.iter().map(|one| (&one.what, one.chosen_on.iter().chain(&[])));
        let mut fits: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name_of_fit, names) in constants.chain(choices) {
            names.for_each(|name| fits.entry(name.clone()).or_default().push(name_of_fit.clone()));
        }
        fits
    }

    /// Numeric constants that do not have the value of another one.
    pub fn numbers(&self) -> impl Iterator<Item = &Constant> {
        self.constants.iter().filter(|constant| constant.is_number() && constant.equal_to.is_none())
    }

    /// Changes with those of constants that have the value of a changed one, and with no deeper state of cores above the power of a lighter one: the
    /// lighter one gets the power of the deeper.
    #[must_use]
    pub fn consistent(&self, mut changes: Vec<(String, Value)>) -> Vec<(String, Value)> {
        let equal = self.constants.iter().filter_map(|constant| {
            let (_, value) = changes.iter().find(|(key, _)| Some(key) == constant.equal_to.as_ref())?;
            Some((constant.key.clone(), value.clone()))
        });
        let equal: Vec<_> = equal.collect();
        changes.extend(equal);
        for component in ["cpu_uw", "others_uw"] {
            let mut deeper: Option<Value> = None;
            for state in STATES {
                let key = format!("power.{component}.{state}");
                let Some(constant) = self.constant(&key) else { continue };
                let at = changes.iter().position(|(changed, _)| *changed == key);
                let value = at.map_or(&constant.value, |at| &changes[at].1).clone();
                let raised = deeper.filter(|deeper| number(deeper) > number(&value));
                if let Some(raised) = &raised {
                    match at {
                        Some(at) => changes[at].1 = raised.clone(),
                        None => changes.push((key, raised.clone())),
                    }
                }
                deeper = Some(raised.unwrap_or(value));
            }
        }
        changes
    }

    /// `draws` sets of values for all constants with a range (Latin hypercube).
    ///
    /// # Errors
    /// If a range is invalid.
    pub fn hypercube(&self, draws: usize, seed: u64) -> Result<Vec<Vec<(String, Value)>>, CalibrationError> {
        let free: Vec<(&Constant, Range)> = self.constants.iter().filter_map(|c| Some((c, c.range()?))).collect();
        let ranges: Vec<Range> = free.iter().map(|(_, range)| range.clone()).collect();
        let drawn =
            latin::hypercube(&ranges, draws, seed).map_err(|error| CalibrationError::Range(error.to_string()))?;
        let set =
            |values: Vec<f64>| free.iter().zip(values).map(|((c, _), value)| (c.key.clone(), c.typed(value))).collect();
        Ok(drawn.into_iter().map(set).collect())
    }
}

impl Constant {
    fn check(&self) -> Result<(), CalibrationError> {
        let invalid = || CalibrationError::Range(self.key.clone());
        let (low, high) = match (&self.low, &self.high) {
            (None, None) => return Ok(()),
            (Some(low), Some(high)) => (low, high),
            _ => return Err(invalid()),
        };
        let ends = [low, high].map(number);
        let [Some(low), Some(high)] = ends else { return Err(invalid()) };
        let holds = low <= self.number() && self.number() <= high;
        let log_works = self.scale == Scale::Linear || low > 0.0;
        if holds && log_works { Ok(()) } else { Err(invalid()) }
    }

    /// Whether it is numeric.
    #[must_use]
    pub fn is_number(&self) -> bool {
        matches!(self.value, Value::Integer(_) | Value::Float(_))
    }

    /// The midpoint of its range (geometric on a log scale). `None` without a range, or for a boolean.
    #[must_use]
    pub fn middle(&self) -> Option<Value> {
        let Range { low, high, .. } = self.range().filter(|_| self.is_number())?;
        Some(self.typed(if self.scale == Scale::Log { (low * high).sqrt() } else { f64::midpoint(low, high) }))
    }

    fn number(&self) -> f64 {
        number(&self.value).unwrap_or(f64::NAN)
    }

    /// Converts a number to this constant's type.
    fn typed(&self, value: f64) -> Value {
        match self.value {
            Value::Integer(_) => Value::Integer(value.round() as i64),
            Value::Boolean(_) => Value::Boolean(value >= 0.5),
            _ => Value::Float(value),
        }
    }

    fn range(&self) -> Option<Range> {
        let (low, high) = (number(self.low.as_ref()?)?, number(self.high.as_ref()?)?);
        let scale = match self.scale {
            Scale::Linear => latin::Scale::Linear,
            Scale::Log => latin::Scale::Log,
        };
        Some(Range { name: self.key.clone(), low, high, scale })
    }
}

fn number(value: &Value) -> Option<f64> {
    match *value {
        Value::Integer(value) => Some(value as f64),
        Value::Float(value) => Some(value),
        Value::Boolean(value) => Some(f64::from(u8::from(value))),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
