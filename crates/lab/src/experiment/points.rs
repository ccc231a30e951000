//! An experiment's points: every combination of what its axes vary.
//!
//! An axis sets dotted keys of the file itself, so that whatever stands in a file can be varied, and a mistake is found by the
//! same check as one in the file. Keys that begin with `machine.` change the machine.

use toml::{Table, Value};

use super::schema::{Axis, AxisScale, Experiment};
use crate::dotted::{self, DottedError};
use crate::read::{self, ReadError};

/// One combination.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Where it lies, as results have it: `rate=10000;depth=8`, or `-` if nothing is varied.
    pub name: String,
    /// The same, an entry for each axis.
    pub coordinates: Vec<Coordinate>,
    /// The experiment with these values set; its axes are gone.
    pub experiment: Experiment,
    /// Changes of the machine, by dotted key.
    pub changes: Vec<(String, Value)>,
}

/// A place on an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Coordinate {
    /// The axis.
    pub axis: String,
    /// What results call the place.
    pub label: String,
    /// The value, where it is a number.
    pub value: Option<f64>,
}

/// Why an experiment has no points.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PointsError {
    /// It is not written as it should be, at the point named.
    #[error("{point}{error}")]
    Read {
        /// Which point, with a colon, or nothing.
        point: String,
        /// What is wrong.
        error: ReadError,
    },
    /// A key leads nowhere.
    #[error("{file}: {error}")]
    Key {
        /// Which file.
        file: String,
        /// What is wrong.
        error: DottedError,
    },
    /// An axis says nothing, or too much.
    #[error("{file}: axis {axis}: {reason}")]
    Axis {
        /// Which file.
        file: String,
        /// Which axis.
        axis: String,
        /// What is wrong.
        reason: String,
    },
}

/// A place on an axis with the keys that it sets.
#[derive(Clone)]
struct Place {
    coordinate: Coordinate,
    set: Vec<(String, Value)>,
}

/// The points of an experiment. What is `asked` beside the file, as dotted keys, holds at each of them, whatever an axis says.
///
/// # Errors
/// If an axis says nothing, a key leads nowhere, or the file with a point's values is not one.
pub fn expand(table: &Table, asked: &[(String, Value)], file: &str) -> Result<Vec<Point>, PointsError> {
    let read = read::table(table.clone(), file);
    let whole: Experiment = read.map_err(|error| PointsError::Read { point: String::new(), error })?;
    let mut combinations: Vec<Vec<Place>> = vec![Vec::new()];
    for axis in &whole.axes {
        let places = places(axis, file)?;
        let longer = |before: &Vec<Place>| {
            places.iter().map(|place| [before.as_slice(), std::slice::from_ref(place)].concat()).collect::<Vec<_>>()
        };
        combinations = combinations.iter().flat_map(longer).collect();
    }
    let asked: Vec<_> = asked.iter().filter(|(key, _)| !key.starts_with("axis.")).cloned().collect();
    combinations.iter().map(|places| point(table, &asked, places, file)).collect()
}

fn point(table: &Table, asked: &[(String, Value)], places: &[Place], file: &str) -> Result<Point, PointsError> {
    let mut table = table.clone();
    table.remove("axis");
    let keys: Vec<_> = places.iter().flat_map(|place| &place.set).chain(asked).cloned().collect();
    let changes = set_all(&mut table, &keys, file)?;
    let coordinates: Vec<Coordinate> = places.iter().map(|place| place.coordinate.clone()).collect();
    let name = name(&coordinates);
    let read = read::table(table, file);
    let experiment = read.map_err(|error| PointsError::Read { point: format!("at {name}: "), error })?;
    Ok(Point { name, coordinates, experiment, changes })
}

fn name(coordinates: &[Coordinate]) -> String {
    let parts: Vec<String> = coordinates.iter().map(|at| format!("{}={}", at.axis, at.label)).collect();
    if parts.is_empty() { "-".into() } else { parts.join(";") }
}

/// Sets dotted keys of the file; returns those of the machine, without their `machine.`.
///
/// # Errors
/// If one leads nowhere.
pub fn set_all(table: &mut Table, keys: &[(String, Value)], file: &str) -> Result<Vec<(String, Value)>, PointsError> {
    let mut machine = Vec::new();
    for (key, value) in keys {
        match key.strip_prefix("machine.") {
            Some(key) => machine.push((key.to_owned(), value.clone())),
            None => dotted::set(table, key, value.clone())
                .map_err(|error| PointsError::Key { file: file.to_owned(), error })?,
        }
    }
    Ok(machine)
}

fn places(axis: &Axis, file: &str) -> Result<Vec<Place>, PointsError> {
    let wrong =
        |reason: &str| PointsError::Axis { file: file.to_owned(), axis: axis.name.clone(), reason: reason.to_owned() };
    let keys = keys(axis).ok_or_else(|| wrong("`key` is a dotted key, or a list of them"))?;
    let values = values(axis).map_err(wrong)?;
    let places = match (keys.is_empty(), axis.cases.is_empty()) {
        (true, false) if values.is_empty() => cases(axis),
        (false, true) => values
            .iter()
            .map(|value| place(axis, &keys, value))
            .collect::<Option<_>>()
            .ok_or_else(|| wrong("with several keys, each of `values` is a list with a value for each key"))?,
        _ => return Err(wrong("give either `key` with `values` (or `from` and `to`), or `case`s")),
    };
    check_labels(&places).map_err(|reason| wrong(&reason))?;
    Ok(places)
}

fn check_labels(places: &[Place]) -> Result<(), String> {
    if places.is_empty() {
        return Err("it has no values".into());
    }
    for (at, place) in places.iter().enumerate() {
        let label = &place.coordinate.label;
        if label.is_empty() || label.contains(|c: char| c.is_control() || ",;=\"".contains(c)) {
            return Err(format!("{label:?} cannot be a label: leave out , ; = and quotes"));
        }
        if places[..at].iter().any(|other| other.coordinate.label == *label) {
            return Err(format!("{label:?} is there twice"));
        }
    }
    Ok(())
}

fn keys(axis: &Axis) -> Option<Vec<String>> {
    match &axis.key {
        None => Some(Vec::new()),
        Some(Value::String(key)) => Some(vec![key.clone()]),
        Some(Value::Array(keys)) => keys.iter().map(|key| key.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    }
}

fn values(axis: &Axis) -> Result<Vec<Value>, &'static str> {
    match (axis.from, axis.to) {
        (None, None) => Ok(axis.values.clone()),
        (Some(from), Some(to)) if axis.values.is_empty() => range(axis, from, to),
        _ => Err("give `values`, or both `from` and `to`"),
    }
}

fn range(axis: &Axis, from: f64, to: f64) -> Result<Vec<Value>, &'static str> {
    let log = axis.scale == AxisScale::Log2;
    let doublings = || ((to / from).log2().round() as u32).saturating_add(1);
    let count = axis.count.or_else(|| log.then(doublings)).ok_or("a linear range needs `count`")?;
    if from.partial_cmp(&to) != Some(std::cmp::Ordering::Less) || count < 2 || (log && from <= 0.0) {
        return Err("a range rises from `from` to `to`, above 0 on a log2 scale, with at least 2 values");
    }
    let at = |step: u32| {
        let share = f64::from(step) / f64::from(count - 1);
        if log { from * (to / from).powf(share) } else { from + (to - from) * share }
    };
    Ok((0..count).map(|step| number(at(step))).collect())
}

/// A whole number where it is one.
fn number(value: f64) -> Value {
    let whole = value.round();
    if (value - whole).abs() <= 1e-9 * value.abs().max(1.0) {
        Value::Integer(whole as i64)
    } else {
        Value::Float(value)
    }
}

fn place(axis: &Axis, keys: &[String], value: &Value) -> Option<Place> {
    let values = match (keys, value) {
        ([_], value) => vec![value.clone()],
        (_, Value::Array(values)) if values.len() == keys.len() => values.clone(),
        _ => return None,
    };
    let coordinate =
        Coordinate { axis: axis.name.clone(), label: label(values.first()?), value: measure(values.first()?) };
    Some(Place { coordinate, set: keys.iter().cloned().zip(values).collect() })
}

fn cases(axis: &Axis) -> Vec<Place> {
    let place = |case: &super::schema::Case| Place {
        coordinate: Coordinate { axis: axis.name.clone(), label: case.label.clone(), value: None },
        set: case.set.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
    };
    axis.cases.iter().map(place).collect()
}

fn label(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Table(table) => table.get("kind").and_then(Value::as_str).unwrap_or("table").to_owned(),
        other => other.to_string(),
    }
}

/// The value as a number: of times in microseconds, of shares in percent.
fn measure(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        Value::String(text) => {
            let time = crate::quantity::Time::parse(text).map(|time| time.0 as f64 / 1e3);
            time.or_else(|| text.strip_suffix('%')?.parse().ok()).or_else(|| text.parse().ok())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#"
        name = "t"
        figure = "none"
        title = "a test"
        profile = "p"
        duration = "1s"
        warm_up = { rule = "fixed", time = "100ms" }
        replications = 2
        topology = { cores = 4, siblings = true, threads = 4 }
        drive = [{ profile = "d", count = 1 }]
        policy = [{ label = "a", name = "static" }, { label = "b", name = "sandman", settings = { z = 2.0 } }]
        [[workload]]
        name = "hosts"
        connections = 4
        depth = 8
        rate = 100
        request = { kind = "plain", size = "4KiB" }
    "#;

    fn points(axes: &str) -> Result<Vec<Point>, PointsError> {
        expand(&read::parse("t.toml", &format!("{BASE}\n{axes}")).unwrap(), &[], "t.toml")
    }

    #[test]
    fn axes_multiply_in_order() {
        let axes = "[[axis]]\nname = 'rate'\nkey = 'workload.hosts.rate'\nscale = 'log2'\nfrom = 10_000\nto = 40_000\n\
                    [[axis]]\nname = 'z'\nkey = ['policy.b.settings.z', 'machine.poll.loop_ns']\nvalues = [[1, 50], [3, 60]]";
        let points = points(axes).unwrap();
        let names: Vec<&str> = points.iter().map(|point| point.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "rate=10000;z=1",
                "rate=10000;z=3",
                "rate=20000;z=1",
                "rate=20000;z=3",
                "rate=40000;z=1",
                "rate=40000;z=3"
            ]
        );
        assert_eq!(points[3].changes, [("poll.loop_ns".to_owned(), Value::Integer(60))]);
        assert_eq!(points[3].experiment.policies[1].settings["z"], Value::Integer(3));
        assert_eq!(points[3].experiment.workload[0].rate, Some(crate::quantity::Rate::PerSecond(20_000.0)));
    }

    #[test]
    fn what_is_asked_beside_the_file_wins_over_axes() {
        let axes = "[[axis]]\nname = 'seed'\nkey = 'seed'\nvalues = [1, 2]";
        let table = read::parse("t.toml", &format!("{BASE}\n{axes}")).unwrap();
        let asked = [("seed".to_owned(), Value::Integer(9)), ("machine.poll.batch".to_owned(), Value::Integer(8))];
        let points = expand(&table, &asked, "t.toml").unwrap();
        assert!(points.iter().all(|point| point.experiment.seed == 9 && point.changes.len() == 1));
    }

    #[test]
    fn without_axes_there_is_one_point() {
        let points = points("").unwrap();
        assert_eq!((points.len(), points[0].name.as_str()), (1, "-"));
    }

    #[test]
    fn mistakes_name_axis_point_and_key() {
        let message = |axes: &str| points(axes).unwrap_err().to_string();
        let unknown = message("[[axis]]\nname = 'r'\nkey = 'workload.hosts.rates'\nvalues = [1]");
        assert!(unknown.contains("at r=1") && unknown.contains("rates"), "{unknown}");
        let nowhere = message("[[axis]]\nname = 'r'\nkey = 'workload.guests.rate'\nvalues = [1]");
        assert!(nowhere.contains("guests") && nowhere.contains("hosts"), "{nowhere}");
        assert!(message("[[axis]]\nname = 'r'\nkey = 'seed'").contains("axis r: it has no values"));
        assert!(message("[[axis]]\nname = 'r'\nvalues = [1]").contains("give either `key`"));
        assert!(message("[[axis]]\nname = 'r'\nkey = 'seed'\nvalues = [1, 1]").contains("twice"));
        assert!(message("[[axis]]\nname = 'r'\nkey = 'seed'\nfrom = 2\nto = 1\ncount = 3").contains("rises"));
    }

    #[test]
    fn an_experiment_is_written_and_read_back() {
        let table = read::parse("t", BASE).unwrap();
        let first: Experiment = read::table(table, "t").unwrap();
        let text = toml::to_string(&first).unwrap();
        let second: Experiment = read::table(read::parse("t", &text).unwrap(), "t").unwrap();
        assert_eq!(first, second);
    }
}
