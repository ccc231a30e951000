//! Parameters of policies: parses `key=value` and lists keys, values and descriptions.
//!
//! A policy keeps its values in a plain struct and describes each in a table of [`Parameter`]s.

use std::fmt::Write as _;

/// A parameter of a policy whose values are a `P`.
#[derive(Debug)]
pub struct Parameter<P> {
    /// Its key.
    pub key: &'static str,
    /// Its purpose, with the paper's section and value.
    pub meaning: &'static str,
    /// Allowed values, with their unit.
    pub allowed: &'static str,
    /// Formats the value.
    pub get: fn(&P) -> String,
    /// Parses a value; `None` if it is not allowed.
    pub set: fn(&mut P, &str) -> Option<()>,
}

/// A parameter and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its key.
    pub key: &'static str,
    /// Its value, in the syntax of the input.
    pub value: String,
    /// Allowed values, with their unit.
    pub allowed: &'static str,
    /// Its purpose.
    pub meaning: &'static str,
}

/// Why a parameter cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// The policy has no such parameter.
    #[error("policy {policy} has no parameter {key:?}; {known}")]
    Unknown {
        /// The policy.
        policy: &'static str,
        /// The input.
        key: String,
        /// The parameters of the policy, as a sentence.
        known: String,
    },
    /// The value is not among those allowed.
    #[error("{key} = {value:?} is not allowed: {key} is {allowed}")]
    Value {
        /// The parameter.
        key: &'static str,
        /// The input.
        value: String,
        /// Allowed values.
        allowed: &'static str,
    },
    /// Values that are not allowed together.
    #[error("{0}")]
    Conflict(String),
}

/// Sets one parameter.
///
/// # Errors
/// If the parameter does not exist or the value is not allowed.
pub fn set<P>(
    policy: &'static str,
    table: &[Parameter<P>],
    values: &mut P,
    key: &str,
    value: &str,
) -> Result<(), ParameterError> {
    let Some(parameter) = table.iter().find(|parameter| parameter.key == key) else {
        return Err(ParameterError::Unknown { policy, key: key.to_owned(), known: known(table, key) });
    };
    (parameter.set)(values, value.trim()).ok_or_else(|| ParameterError::Value {
        key: parameter.key,
        value: value.to_owned(),
        allowed: parameter.allowed,
    })
}

/// Sets a parameter of one of two tables.
///
/// # Errors
/// As [`set`].
pub(crate) fn set_either<A, B>(
    policy: &'static str,
    (first, first_values): (&[Parameter<A>], &mut A),
    (second, second_values): (&[Parameter<B>], &mut B),
    (key, value): (&str, &str),
) -> Result<(), ParameterError> {
    if first.iter().any(|parameter| parameter.key == key) {
        return set(policy, first, first_values, key, value);
    }
    if second.iter().any(|parameter| parameter.key == key) {
        return set(policy, second, second_values, key, value);
    }
    let name = |key| Parameter { key, meaning: "", allowed: "", get: |()| String::new(), set: |(), _| None };
    let first = first.iter().map(|parameter| name(parameter.key));
    let all: Vec<Parameter<()>> = first.chain(second.iter().map(|parameter| name(parameter.key))).collect();
    set(policy, &all, &mut (), key, value)
}

/// Every parameter with its value.
pub fn list<P>(table: &[Parameter<P>], values: &P) -> Vec<Setting> {
    let setting = |parameter: &Parameter<P>| Setting {
        key: parameter.key,
        value: (parameter.get)(values),
        allowed: parameter.allowed,
        meaning: parameter.meaning,
    };
    table.iter().map(setting).collect()
}

/// The default values, with these settings applied.
///
/// # Errors
/// If a parameter does not exist or a value is not allowed.
pub(crate) fn read<P: Default>(
    policy: &'static str,
    table: &[Parameter<P>],
    settings: &[(&str, &str)],
) -> Result<P, ParameterError> {
    let mut values = P::default();
    for (key, value) in settings {
        set(policy, table, &mut values, key, value)?;
    }
    Ok(values)
}

/// Allowed values of an interval.
pub(crate) const TIME: &str = "a time from 1us to 3600s, for example 10us, 250ms or 1s";
/// Allowed values of a share.
pub(crate) const PERCENT: &str = "a share of a core from 0% to 100%";
/// Allowed values of a switch.
pub(crate) const SWITCH: &str = "true or false";

/// Stores a value, if there is one.
pub(crate) fn put<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

/// Stores a time as [`TIME`] describes it, in nanoseconds.
pub(crate) fn time(place: &mut u64, value: &str) -> Option<()> {
    put(place, text::duration(value).filter(|ns| (1_000..=3_600_000_000_000).contains(ns)))
}

/// "did you mean `window`? There are: ...".
fn known<P>(table: &[Parameter<P>], key: &str) -> String {
    if table.is_empty() {
        return "it has no parameters".to_owned();
    }
    let mut text = String::new();
    let keys: Vec<_> = table.iter().map(|parameter| parameter.key).collect();
    if let Some(nearest) = pilotlight_input::file::nearest(key, &keys) {
        let _ = write!(text, "did you mean {nearest}? ");
    }
    let _ = write!(text, "There are: {}", keys.join(", "));
    text
}

/// Parses and formats values.
pub mod text {
    use pilotlight_input::quantity::{self, TIMES};

    /// `10us`, `1.5s`, `250ms`, `2min`; in nanoseconds. A number without a unit is invalid.
    #[must_use]
    pub fn duration(text: &str) -> Option<u64> {
        quantity::parse(text, TIMES).ok()
    }

    /// Nanoseconds, in the largest unit up to seconds in which they are a whole number.
    #[must_use]
    pub fn format_duration(ns: u64) -> String {
        let up_to_seconds = TIMES.iter().position(|(name, _)| *name == "min").unwrap_or(TIMES.len());
        quantity::format(ns, &TIMES[..up_to_seconds])
    }

    /// `40%` or `40`, in millionths.
    #[must_use]
    pub fn percent(text: &str) -> Option<u32> {
        let number: f64 = text.strip_suffix('%').unwrap_or(text).trim().parse().ok()?;
        (0.0..=100.0).contains(&number).then(|| (number * 10_000.0).round() as u32)
    }

    /// Millionths as a percentage.
    #[must_use]
    pub fn format_percent(ppm: u32) -> String {
        format!("{}%", f64::from(ppm) / 10_000.0)
    }

    /// A number within bounds.
    pub fn within<N: std::str::FromStr + PartialOrd>(text: &str, least: N, most: N) -> Option<N> {
        text.parse().ok().filter(|number| (least..=most).contains(number))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn durations_need_a_unit_and_survive_a_round_trip() {
            for (text, ns) in [("10us", 10_000), ("1s", 1_000_000_000), ("250ms", 250_000_000), ("1500ns", 1_500)] {
                assert_eq!(duration(text), Some(ns));
                assert_eq!(duration(&format_duration(ns)), Some(ns));
            }
            assert_eq!(format_duration(0), "0ns");
            for text in ["", "10", "us", "-1s", "1d", "99999999999999999999s", "18446744073709551615s"] {
                assert_eq!(duration(text), None, "{text}");
            }
        }

        #[test]
        fn percentages_are_read_with_and_without_a_sign() {
            assert_eq!(percent("40%"), Some(400_000));
            assert_eq!(percent("12.5"), Some(125_000));
            assert_eq!(format_percent(125_000), "12.5%");
            for text in ["101", "-1", "NaN", ""] {
                assert_eq!(percent(text), None, "{text}");
            }
        }
    }
}
