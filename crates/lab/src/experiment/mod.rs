//! Reads and checks the files of experiments that run a tool.

pub mod machine;
pub mod schema;

use std::path::{Path, PathBuf};

use pilotlight_input::{Merged, Parameter, ReadError, dotted, file as read, include};
use pilotlight_sensors::Config;
use toml::{Table, Value};

pub use schema::Experiment;

use pilotlight_workloads::{self as workload, Workload, catalogue};

/// Options of the command line that override the file. They become part of the experiment and of its results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Dotted keys with their values, as text.
    pub set: Vec<(String, String)>,
    /// Names of additional required sensors.
    pub sensors: Vec<String>,
    /// The seed.
    pub seed: Option<u64>,
    /// Whether to skip the idle baseline.
    pub no_baseline: bool,
    /// Measurements of each point.
    pub repeats: Option<u32>,
    /// The server program for a workload of kind `load`.
    pub program: Option<PathBuf>,
}

/// An experiment that was read.
pub struct Loaded {
    /// Its keys, typed.
    pub experiment: Experiment,
    /// Its keys, merged.
    pub table: Table,
    /// The file name for messages.
    pub file: String,
    /// The workload.
    pub workload: Box<dyn Workload>,
    /// Varied keys of the machine, with their values in order.
    pub vary: Vec<(String, Vec<workload::Value>)>,
    /// The profile of the simulated machine; `None`: this machine.
    pub profile: Option<String>,
}

/// Reads an experiment.
///
/// # Errors
/// If a file cannot be read or a key is invalid; the message names file and key.
pub fn load(path: &Path, overrides: &Overrides) -> Result<Loaded, ReadError> {
    from_merged(include::load(path)?, overrides)
}

/// As [`load`], from merged tables.
///
/// # Errors
/// As [`load`].
pub fn from_merged(mut merged: Merged, overrides: &Overrides) -> Result<Loaded, ReadError> {
    apply(&mut merged.table, overrides)?;
    let file = merged.origin("").to_owned();
    let blame = |error: ReadError| {
        let file = merged.origin(error.place.trim_end_matches(": ")).to_owned();
        ReadError { file, ..error }
    };
    let mut table = merged.table.clone();
    let profile = profile(&mut table, &file).map_err(blame)?;
    let vary = parameters(&mut table, &file).map_err(blame)?;
    let experiment: Experiment = read::table(table, &file).map_err(blame)?;
    let workload = catalogue::read(&experiment.workload, &file).map_err(blame)?;
    check(&experiment, workload.name()).map_err(|(key, why)| blame(ReadError::key(&file, key, why)))?;
    check_varied(&experiment, &vary, &file).map_err(blame)?;
    check_twice(workload.knobs().iter().chain(&vary)).map_err(|(key, why)| blame(ReadError::key(&file, key, why)))?;
    Ok(Loaded { experiment, table: merged.table, file, workload, vary, profile })
}

fn apply(table: &mut Table, overrides: &Overrides) -> Result<(), ReadError> {
    for (key, value) in &overrides.set {
        let set = dotted::set(table, key, dotted::value(value));
        set.map_err(|error| ReadError::key("--set", "", error.to_string()))?;
    }
    if let Some(seed) = overrides.seed {
        let seed = i64::try_from(seed).map_err(|_| ReadError::key("--seed", "", format!("{seed} is too large")))?;
        table.insert("seed".into(), seed.into());
    }
    if overrides.no_baseline {
        table.insert("idle_baseline".into(), "0s".into());
    }
    if let Some(repeats) = overrides.repeats {
        table.insert("repeats".into(), i64::from(repeats).into());
    }
    if let Some(program) = &overrides.program {
        apply_program(table, program)?;
    }
    for name in &overrides.sensors {
        let config = sensor(name)?;
        let keys = Table::try_from(&config).map_err(|error| ReadError::key("--sensor", name, error.to_string()))?;
        let sensors = table.entry("sensor").or_insert_with(|| Value::Array(Vec::new()));
        let Value::Array(sensors) = sensors else { continue }; // the schema refuses it below
        let same = |other: &Value| other.get("sensor").and_then(Value::as_str) == Some(config.name());
        match sensors.iter_mut().find(|other| same(other)) {
            Some(Value::Table(there)) => drop(there.insert("optional".into(), false.into())),
            _ => sensors.push(Value::Table(keys)),
        }
    }
    Ok(())
}

fn apply_program(table: &mut Table, program: &Path) -> Result<(), ReadError> {
    let refused = |why: &str| ReadError::key("--program", "", why.to_owned());
    let workload = table.get_mut("workload").and_then(Value::as_table_mut);
    let workload = workload.filter(|workload| workload.get("kind").and_then(Value::as_str) == Some("load"));
    let workload = workload.ok_or_else(|| refused("only a workload of kind \"load\" starts pilotlight"))?;
    let path = std::path::absolute(program).unwrap_or_else(|_| program.to_owned()); // steps start in the scratch folder
    let path = path.to_str().ok_or_else(|| refused("the path is not UTF-8"))?;
    workload.insert("program".into(), path.into());
    Ok(())
}

/// The sensor of `--sensor` with its default options.
///
/// # Errors
/// If there is no such sensor; the message lists all.
pub fn sensor(name: &str) -> Result<Config, ReadError> {
    Config::by_name(name).ok_or_else(|| unknown_sensor(name))
}

fn unknown_sensor(name: &str) -> ReadError {
    let all = pilotlight_sensors::catalogue::all();
    let known: Vec<&str> = all.iter().map(Config::name).chain(["modelled"]).collect();
    let hint = read::nearest(name, &known).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    let reason = format!("unknown sensor{hint} (known: {})", known.join(", "));
    ReadError::key("--sensor", name, reason)
}

type Invalid = (&'static str, String);

fn check(experiment: &Experiment, workload: &str) -> Result<(), Invalid> {
    let invalid = |key: &'static str, why: &str| Err((key, why.to_owned()));
    let target = &experiment.target;
    let kinds = [target.file.is_some(), target.folder.is_some(), target.device.is_some(), target.nothing];
    if kinds.into_iter().filter(|is_set| *is_set).count() > 1 {
        return invalid("target", "set only one of file, folder, device and nothing");
    }
    if target.file.is_some() && target.size.is_none() {
        return invalid("target.size", "a file needs its size, such as \"1GiB\"");
    }
    if experiment.precondition.is_some() && target.device.is_none() {
        return invalid("precondition", "only a device can be formatted or filled: set target.device");
    }
    if experiment.duration.is_none() && workload != "command" {
        return invalid("duration", "required, such as \"30s\" (only kind \"command\" runs without it)");
    }
    if experiment.duration.is_some_and(|duration| duration.0 == 0) {
        return invalid("duration", "must be above zero");
    }
    if experiment.repeats == 0 {
        return invalid("repeats", "must be at least 1");
    }
    match &experiment.stop {
        Some(stop) if stop.at_least < 2 => invalid("stop.at_least", "an interval needs two repeats"),
        Some(stop) if stop.at_most < stop.at_least => invalid("stop.at_most", "must not be below stop.at_least"),
        _ => Ok(()),
    }
}

/// Removes `[[parameter]]` from the table: values for keys of the workload replace the key, those for keys of the machine are returned.
fn parameters(table: &mut Table, file: &str) -> Result<Vec<(String, Vec<workload::Value>)>, ReadError> {
    let Some(listed) = table.remove("parameter") else { return Ok(Vec::new()) };
    let listed = Table::from_iter([("parameter".to_owned(), listed)]);
    let Parameters { parameter } = read::table(listed, file)?;
    let mut of_machine = Vec::new();
    for (at, parameter) in parameter.iter().enumerate() {
        let wrong = |why: String| ReadError::key(file, &format!("parameter[{at}]"), why);
        let values = parameter.values().map_err(|why| wrong(why.to_owned()))?;
        let key = parameter.key.as_ref().and_then(Value::as_str);
        match key {
            Some(key) if key.starts_with("machine.") => {
                let values: Result<Vec<workload::Value>, _> = Value::Array(values).try_into();
                match values {
                    Ok(values) if !values.is_empty() => of_machine.push((key.to_owned(), values)),
                    _ => return Err(wrong("set a list of values, such as [\"none\", \"mq-deadline\"]".into())),
                }
            }
            Some(key) if key.starts_with("workload.") => {
                dotted::set(table, key, Value::Array(values)).map_err(|error| wrong(error.to_string()))?;
            }
            _ => return Err(wrong("`key` is a key of machine or of workload, such as \"machine.scheduler\"".into())),
        }
    }
    Ok(of_machine)
}

/// The lists of `[[parameter]]`.
#[derive(serde::Deserialize)]
struct Parameters {
    parameter: Vec<Parameter>,
}

/// Removes the profile of a simulated machine from `[machine]`.
fn profile(table: &mut Table, file: &str) -> Result<Option<String>, ReadError> {
    let machine = table.get_mut("machine").and_then(Value::as_table_mut);
    let profile = machine.and_then(|machine| machine.remove("profile"));
    let name = |value: Value| value.as_str().map(str::to_owned);
    let invalid =
        || ReadError::key(file, "machine.profile", "must be the name of a profile, such as \"thesis-980pro\"");
    profile.map(|value| name(value).ok_or_else(invalid)).transpose()
}

/// Checks all values of varied keys of the machine.
fn check_varied(experiment: &Experiment, vary: &[(String, Vec<workload::Value>)], file: &str) -> Result<(), ReadError> {
    for (key, values) in vary {
        for value in values {
            let setting = workload::Point::from([(key.clone(), value.clone())]);
            machine::machine(&experiment.machine, &setting, file)?;
        }
    }
    Ok(())
}

/// Refuses duplicate values: they would be two points with the same settings.
fn check_twice<'a>(knobs: impl Iterator<Item = &'a (String, Vec<workload::Value>)>) -> Result<(), Invalid> {
    for (name, values) in knobs {
        let duplicate = values.iter().enumerate().find(|(at, value)| values[..*at].contains(value));
        if let Some((_, value)) = duplicate {
            let section = if name.starts_with("machine.") { "parameter" } else { "workload" };
            return Err((section, format!("{name} has the value {value} twice: remove one, or set repeats")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
