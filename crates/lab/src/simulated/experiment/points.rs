//! An experiment's points: every combination of the values of its parameters.
//!
//! A parameter sets dotted keys of the file itself, so that whatever stands in a file can be varied, and a mistake is found by the
//! same check as one in the file. Keys that begin with `machine.` change the machine.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::schema::Experiment;
use pilotlight_input::Parameter;
use pilotlight_input::dotted::{self, DottedError};
use pilotlight_input::file::{self as read, ReadError};

/// One combination.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Where it lies, as results have it: `rate=10000;depth=8`, or `-` if nothing is varied.
    pub name: String,
    /// The same, an entry for each parameter.
    pub coordinates: Vec<Coordinate>,
    /// The experiment with these values set; its parameters are gone.
    pub experiment: Experiment,
    /// Changes of the machine, by dotted key.
    pub changes: Vec<(String, Value)>,
}

/// A value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Coordinate {
    /// The parameter.
    pub parameter: String,
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
    /// A parameter says nothing, or too much.
    #[error("{file}: parameter {parameter}: {reason}")]
    Parameter {
        /// Which file.
        file: String,
        /// Which parameter.
        parameter: String,
        /// What is wrong.
        reason: String,
    },
}

/// A value of a parameter with the keys that it sets.
#[derive(Clone)]
struct Place {
    coordinate: Coordinate,
    set: Vec<(String, Value)>,
}

/// The points of an experiment. What is `asked` beside the file, as dotted keys, holds at each of them, whatever a parameter says.
///
/// # Errors
/// If a parameter says nothing, a key leads nowhere, or the file with a point's values is not one.
pub fn expand(table: &Table, asked: &[(String, Value)], file: &str) -> Result<Vec<Point>, PointsError> {
    let read = read::table(table.clone(), file);
    let whole: Experiment = read.map_err(|error| PointsError::Read { point: String::new(), error })?;
    let mut combinations: Vec<Vec<Place>> = vec![Vec::new()];
    for parameter in &whole.parameters {
        let places = places(parameter, file)?;
        let longer = |before: &Vec<Place>| {
            places.iter().map(|place| [before.as_slice(), std::slice::from_ref(place)].concat()).collect::<Vec<_>>()
        };
        combinations = combinations.iter().flat_map(longer).collect();
    }
    let asked: Vec<_> = asked.iter().filter(|(key, _)| !key.starts_with("parameter.")).cloned().collect();
    combinations.iter().map(|places| point(table, &asked, places, file)).collect()
}

fn point(table: &Table, asked: &[(String, Value)], places: &[Place], file: &str) -> Result<Point, PointsError> {
    let mut table = table.clone();
    table.remove("parameter");
    let keys: Vec<_> = places.iter().flat_map(|place| &place.set).chain(asked).cloned().collect();
    let asked = set_all(&mut table, &keys, file)?;
    let coordinates: Vec<Coordinate> = places.iter().map(|place| place.coordinate.clone()).collect();
    let name = name(&coordinates);
    let read = read::table(table, file);
    let experiment: Experiment = read.map_err(|error| PointsError::Read { point: format!("at {name}: "), error })?;
    let of_file = dotted::leaves(&experiment.machine.constants);
    let changes = of_file.into_iter().map(|(key, value)| (key, value.clone())).chain(asked).collect();
    Ok(Point { name, coordinates, experiment, changes })
}

fn name(coordinates: &[Coordinate]) -> String {
    let parts: Vec<String> = coordinates.iter().map(|at| format!("{}={}", at.parameter, at.label)).collect();
    if parts.is_empty() { "-".into() } else { parts.join(";") }
}

/// Sets dotted keys of the file; returns those of the machine, without their `machine.`.
///
/// # Errors
/// If one leads nowhere.
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

fn places(parameter: &Parameter, file: &str) -> Result<Vec<Place>, PointsError> {
    let wrong = |reason: &str| PointsError::Parameter {
        file: file.to_owned(),
        parameter: parameter.name.clone(),
        reason: reason.to_owned(),
    };
    let keys = parameter.keys().ok_or_else(|| wrong("`key` is a dotted key, or a list of them"))?;
    let values = parameter.values().map_err(wrong)?;
    let places = match (keys.is_empty(), parameter.cases.is_empty()) {
        (true, false) if values.is_empty() => cases(parameter),
        (false, true) => values
            .iter()
            .map(|value| place(parameter, &keys, value))
            .collect::<Option<_>>()
            .ok_or_else(|| wrong("with several keys, each of `values` is a list with a value for each key"))?,
        _ => return Err(wrong("give either `key` with `values` (or `from` and `to`), or `case`s")),
    };
    check_labels(&places).map_err(|reason| wrong(&reason))?;
    if parameter.name.is_empty() {
        return Err(wrong("give it a name, by which results call it"));
    }
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

fn place(parameter: &Parameter, keys: &[String], value: &Value) -> Option<Place> {
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
    Some(Place { coordinate, set: keys.iter().cloned().zip(values).collect() })
}

fn cases(parameter: &Parameter) -> Vec<Place> {
    let place = |case: &pilotlight_input::parameter::Case| Place {
        coordinate: Coordinate { parameter: parameter.name.clone(), label: case.label.clone(), value: None },
        set: case.set.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
    };
    parameter.cases.iter().map(place).collect()
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
            let time = crate::simulated::quantity::Time::parse(text).map(|time| time.0 as f64 / 1e3);
            time.or_else(|| text.strip_suffix('%')?.parse().ok()).or_else(|| text.parse().ok())
        }
        _ => None,
    }
}

/// Indices of the points at which each parameter that is named has the label given with it; the others vary.
///
/// # Errors
/// In words, if no point has all those labels.
pub fn chosen(points: &[Point], at: &[(String, String)]) -> Result<BTreeSet<usize>, String> {
    let has = |point: &Point, (parameter, label): &(String, String)| {
        point.coordinates.iter().any(|at| at.parameter == *parameter && at.label == *label)
    };
    let mut left: BTreeSet<usize> = (0..points.len()).collect();
    for wanted in at {
        left.retain(|&index| has(&points[index], wanted));
        if left.is_empty() {
            let labels = points.iter().flat_map(|point| &point.coordinates);
            let known: BTreeSet<String> = labels.map(|at| format!("{}={}", at.parameter, at.label)).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "one point without parameters" } else { &known };
            return Err(format!("--at {}={}: there is {known}", wanted.0, wanted.1));
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#"
        name = "t"
        figure = "none"
        title = "a test"
        machine = { profile = "p" }
        duration = "1s"
        warm_up = "100ms"
        repeats = 2
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
    fn points_can_be_chosen_by_their_labels() {
        let axes = "[[parameter]]\nname = 'rate'\nkey = 'workload.hosts.rate'\nvalues = [10, 20]\n\
                    [[parameter]]\nname = 'depth'\nkey = 'workload.hosts.depth'\nvalues = [1, 2]";
        let points = points(axes).unwrap();
        let names = |at: &[(&str, &str)]| {
            let at: Vec<_> = at.iter().map(|(name, label)| ((*name).to_owned(), (*label).to_owned())).collect();
            let chosen = chosen(&points, &at)?;
            Ok::<_, String>(chosen.into_iter().map(|index| points[index].name.as_str()).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), 4);
        assert_eq!(names(&[("rate", "20")]).unwrap(), ["rate=20;depth=1", "rate=20;depth=2"]);
        assert_eq!(names(&[("rate", "20"), ("depth", "1")]).unwrap(), ["rate=20;depth=1"]);
        let none = names(&[("rate", "30")]).unwrap_err();
        assert_eq!(none, "--at rate=30: there is depth=1, depth=2, rate=10, rate=20");
    }

    #[test]
    fn axes_multiply_in_order() {
        let axes = "[[parameter]]\nname = 'rate'\nkey = 'workload.hosts.rate'\nscale = 'log2'\nfrom = 10_000\nto = 40_000\n\
                    [[parameter]]\nname = 'z'\nkey = ['policy.b.settings.z', 'machine.poll.loop_ns']\nvalues = [[1, 50], [3, 60]]";
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
        assert_eq!(points[3].experiment.workload[0].rate, Some(crate::simulated::quantity::Rate::PerSecond(20_000.0)));
    }

    #[test]
    fn what_is_asked_beside_the_file_wins_over_axes() {
        let axes = "[[parameter]]\nname = 'seed'\nkey = 'seed'\nvalues = [1, 2]";
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
        let unknown = message("[[parameter]]\nname = 'r'\nkey = 'workload.hosts.rates'\nvalues = [1]");
        assert!(unknown.contains("at r=1") && unknown.contains("rates"), "{unknown}");
        let nowhere = message("[[parameter]]\nname = 'r'\nkey = 'workload.guests.rate'\nvalues = [1]");
        assert!(nowhere.contains("guests") && nowhere.contains("hosts"), "{nowhere}");
        assert!(message("[[parameter]]\nname = 'r'\nkey = 'seed'").contains("parameter r: it has no values"));
        assert!(message("[[parameter]]\nkey = 'seed'\nvalues = [1]").contains("give it a name"));
        assert!(message("[[parameter]]\nname = 'r'\nvalues = [1]").contains("give either `key`"));
        assert!(message("[[parameter]]\nname = 'r'\nkey = 'seed'\nvalues = [1, 1]").contains("twice"));
        assert!(message("[[parameter]]\nname = 'r'\nkey = 'seed'\nfrom = 2\nto = 1\ncount = 3").contains("rises"));
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
