//! The points of an experiment: all combinations of the values of its parameters.
//!
//! A parameter sets dotted keys of the file, so every key can be varied and has the same checks as in the file. Keys with the prefix `machine.`
//! change the machine.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::schema::Experiment;
use pilotlight_input::Parameter;
use pilotlight_input::dotted::{self, DottedError};
use pilotlight_input::file::{self as read, ReadError};

/// A point.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its name in results: `rate=10000;depth=8`, or `-` without parameters.
    pub name: String,
    /// The value of each parameter.
    pub coordinates: Vec<Coordinate>,
    /// The experiment with these values, without parameters.
    pub experiment: Experiment,
    /// Changes of the machine, by dotted key.
    pub changes: Vec<(String, Value)>,
}

/// A value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Coordinate {
    /// The parameter.
    pub parameter: String,
    /// Label of the value in results.
    pub label: String,
    /// The value, if numeric.
    pub value: Option<f64>,
}

/// The parameters of an experiment are invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PointsError {
    /// The experiment is invalid at a point.
    #[error("{point}{error}")]
    Read {
        /// The point with a colon, or empty.
        point: String,
        /// The reason.
        error: ReadError,
    },
    /// An unknown key.
    #[error("{file}: {error}")]
    Key {
        /// The file.
        file: String,
        /// The reason.
        error: DottedError,
    },
    /// A parameter is invalid.
    #[error("{file}: parameter {parameter}: {reason}")]
    Parameter {
        /// The file.
        file: String,
        /// Its name.
        parameter: String,
        /// The reason.
        reason: String,
    },
}

/// No point has a label.
#[derive(Debug, thiserror::Error)]
#[error("--at {parameter}={label}: no such point (labels: {known})")]
#[expect(missing_docs, reason = "the message names them")]
pub struct NoPoint {
    pub parameter: String,
    pub label: String,
    pub known: String,
}

/// A value of a parameter with the keys that it sets.
#[derive(Clone)]
struct Setting {
    coordinate: Coordinate,
    set: Vec<(String, Value)>,
}

/// The points of an experiment. `overrides` are dotted keys that take precedence over parameters.
///
/// # Errors
/// If a parameter is invalid, a key is unknown, or the experiment with a point's values is invalid.
pub fn expand(table: &Table, overrides: &[(String, Value)], file: &str) -> Result<Vec<Point>, PointsError> {
    let read = read::table(table.clone(), file);
    let whole: Experiment = read.map_err(|error| PointsError::Read { point: String::new(), error })?;
    let mut combinations: Vec<Vec<Setting>> = vec![Vec::new()];
    for parameter in &whole.parameters {
        let settings = settings(parameter, file)?;
        let longer = |before: &Vec<Setting>| {
            settings
                .iter()
                .map(|setting| [before.as_slice(), std::slice::from_ref(setting)].concat())
                .collect::<Vec<_>>()
        };
        combinations = combinations.iter().flat_map(longer).collect();
    }
    let overrides: Vec<_> = overrides.iter().filter(|(key, _)| !key.starts_with("parameter.")).cloned().collect();
    combinations.iter().map(|settings| point(table, &overrides, settings, file)).collect()
}

fn point(table: &Table, overrides: &[(String, Value)], settings: &[Setting], file: &str) -> Result<Point, PointsError> {
    let mut table = table.clone();
    table.remove("parameter");
    let keys: Vec<_> = settings.iter().flat_map(|setting| &setting.set).chain(overrides).cloned().collect();
    let of_machine = set_all(&mut table, &keys, file)?;
    let coordinates: Vec<Coordinate> = settings.iter().map(|setting| setting.coordinate.clone()).collect();
    let name = name(&coordinates);
    let read = read::table(table, file);
    let experiment: Experiment = read.map_err(|error| PointsError::Read { point: format!("at {name}: "), error })?;
    let of_file = dotted::leaves(&experiment.machine.constants);
    let changes = of_file.into_iter().map(|(key, value)| (key, value.clone())).chain(of_machine).collect();
    Ok(Point { name, coordinates, experiment, changes })
}

fn name(coordinates: &[Coordinate]) -> String {
    let parts: Vec<String> = coordinates.iter().map(|at| format!("{}={}", at.parameter, at.label)).collect();
    if parts.is_empty() { "-".into() } else { parts.join(";") }
}

/// Sets dotted keys; returns those of the machine, without the prefix `machine.`.
///
/// # Errors
/// If a key is unknown.
pub fn set_all(table: &mut Table, keys: &[(String, Value)], file: &str) -> Result<Vec<(String, Value)>, PointsError> {
    let mut machine = Vec::new();
    for (key, value) in keys {
        match key.strip_prefix("machine.").filter(|key| *key != "profile") {
            Some(key) => machine.push((key.to_owned(), value.clone())),
            None => dotted::set(table, key, value.clone())
                .map_err(|error| PointsError::Key { file: file.to_owned(), error })?,
        }
    }
    Ok(machine)
}

fn settings(parameter: &Parameter, file: &str) -> Result<Vec<Setting>, PointsError> {
    let invalid = |reason: &str| PointsError::Parameter {
        file: file.to_owned(),
        parameter: parameter.name.clone(),
        reason: reason.to_owned(),
    };
    let keys = parameter.keys().ok_or_else(|| invalid("`key` must be a dotted key or a list of them"))?;
    let values = parameter.values().map_err(invalid)?;
    let settings = match (keys.is_empty(), parameter.cases.is_empty()) {
        (true, false) if values.is_empty() => cases(parameter),
        (false, true) => {
            values.iter().map(|value| setting(parameter, &keys, value)).collect::<Option<_>>().ok_or_else(|| {
                invalid("with several keys, each of `values` must be a list with a value for each key")
            })?
        }
        _ => return Err(invalid("set either `key` with `values` (or `from` and `to`), or `case`")),
    };
    if settings.is_empty() {
        return Err(invalid("no values"));
    }
    for (at, setting) in settings.iter().enumerate() {
        let label = &setting.coordinate.label;
        if label.is_empty() || label.contains(|c: char| c.is_control() || ",;=\"".contains(c)) {
            return Err(invalid(&format!("{label:?} is not a valid label: remove , ; = and quotes")));
        }
        if settings[..at].iter().any(|other| other.coordinate.label == *label) {
            return Err(invalid(&format!("duplicate label {label:?}")));
        }
    }
    if parameter.name.is_empty() {
        return Err(invalid("`name` is required, for the results"));
    }
    Ok(settings)
}

fn setting(parameter: &Parameter, keys: &[String], value: &Value) -> Option<Setting> {
    let values = match (keys, value) {
        ([_], value) => vec![value.clone()],
        (_, Value::Array(values)) if values.len() == keys.len() => values.clone(),
        _ => return None,
    };
    let coordinate = Coordinate {
        parameter: parameter.name.clone(),
        label: label(values.first()?),
        value: measure(values.first()?),
    };
    Some(Setting { coordinate, set: keys.iter().cloned().zip(values).collect() })
}

fn cases(parameter: &Parameter) -> Vec<Setting> {
    let setting = |case: &pilotlight_input::parameter::Case| Setting {
        coordinate: Coordinate { parameter: parameter.name.clone(), label: case.label.clone(), value: None },
        set: case.set.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
    };
    parameter.cases.iter().map(setting).collect()
}

fn label(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Table(table) => table.get("kind").and_then(Value::as_str).unwrap_or("table").to_owned(),
        other => other.to_string(),
    }
}

/// The value as a number: times in microseconds, fractions in percent.
fn measure(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        Value::String(text) => {
            let time = crate::simulated::quantity::Time::parse(text).map(|time| time.0 as f64 / 1e3);
            time.or_else(|| text.strip_suffix('%')?.parse().ok()).or_else(|| text.parse().ok())
        }
        _ => None,
    }
}

/// Indices of the points with these labels of parameters.
///
/// # Errors
/// If no point has all of them.
pub fn select(points: &[Point], at: &[(String, String)]) -> Result<BTreeSet<usize>, NoPoint> {
    let has = |point: &Point, (parameter, label): &(String, String)| {
        point.coordinates.iter().any(|at| at.parameter == *parameter && at.label == *label)
    };
    let mut left: BTreeSet<usize> = (0..points.len()).collect();
    for wanted in at {
        left.retain(|&index| has(&points[index], wanted));
        if left.is_empty() {
            let labels = points.iter().flat_map(|point| &point.coordinates);
            let known: BTreeSet<String> = labels.map(|at| format!("{}={}", at.parameter, at.label)).collect();
            let mut known = known.into_iter().collect::<Vec<_>>().join(", ");
            if known.is_empty() {
                known = "a single point without parameters".to_owned();
            }
            let (parameter, label) = wanted.clone();
            return Err(NoPoint { parameter, label, known });
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests;
