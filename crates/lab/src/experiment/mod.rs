//! Reads and checks the files of experiments that run a tool.

pub mod schema;

use std::path::{Path, PathBuf};

use pilotlight_input::{Merged, Parameter, ReadError, dotted, file as read, include};
use pilotlight_sensors::Config;
use toml::{Table, Value};

pub use schema::Experiment;

use pilotlight_workloads::{self as workload, Workload, catalogue};

/// Options of the command line that override the file. They become part of the experiment and of its results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
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
pub fn load(path: &Path, asked: &Asked) -> Result<Loaded, ReadError> {
    from_merged(include::load(path)?, asked)
}

/// As [`load`], from merged tables.
///
/// # Errors
/// As [`load`].
pub fn from_merged(mut merged: Merged, asked: &Asked) -> Result<Loaded, ReadError> {
    apply(&mut merged.table, asked)?;
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

fn apply(table: &mut Table, asked: &Asked) -> Result<(), ReadError> {
    for (key, value) in &asked.set {
        let set = dotted::set(table, key, dotted::value(value));
        set.map_err(|error| ReadError::key("--set", "", error.to_string()))?;
    }
    if let Some(seed) = asked.seed {
        let seed = i64::try_from(seed).map_err(|_| ReadError::key("--seed", "", format!("{seed} is too large")))?;
        table.insert("seed".into(), seed.into());
    }
    if asked.no_baseline {
        table.insert("idle_baseline".into(), "0s".into());
    }
    if let Some(repeats) = asked.repeats {
        table.insert("repeats".into(), i64::from(repeats).into());
    }
    if let Some(program) = &asked.program {
        apply_program(table, program)?;
    }
    for name in &asked.sensors {
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
    let invalid = || ReadError::key(file, "machine.profile", "must be the name of a profile, such as \"thesis-980pro\"");
    profile.map(|value| name(value).ok_or_else(invalid)).transpose()
}

/// Checks all values of varied keys of the machine.
fn check_varied(experiment: &Experiment, vary: &[(String, Vec<workload::Value>)], file: &str) -> Result<(), ReadError> {
    for (key, values) in vary {
        for value in values {
            let setting = workload::Point::from([(key.clone(), value.clone())]);
            crate::run::machine::machine(&experiment.machine, &setting, file)?;
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
mod tests {
    use pilotlight_input::Time;

    use super::*;

    const MINIMAL: &str = "title = 't'\n[workload]\nkind = 'command'\nargv = ['true']\n";

    fn load(text: &str, asked: &Asked) -> Result<Loaded, String> {
        let table = read::parse("e.toml", text).unwrap();
        from_merged(Merged::single("e.toml", table), asked).map_err(|error| error.to_string())
    }

    fn refused(text: &str) -> String {
        load(text, &Asked::default()).err().unwrap()
    }

    #[test]
    fn a_minimal_experiment_is_read() {
        let loaded = load(MINIMAL, &Asked::default()).unwrap();
        let Experiment { repeats, seed, settle, power_sensors, .. } = loaded.experiment;
        assert_eq!((repeats, seed, String::from(settle).as_str()), (3, 1, "5s"));
        assert_eq!(power_sensors, schema::PowerSensors::Found);
        assert_eq!(loaded.workload.name(), "command");
    }

    #[test]
    fn the_defaults_of_warm_up_and_baseline_depend_on_the_duration() {
        let of = |text: &str| load(&format!("{text}\n{MINIMAL}"), &Asked::default()).unwrap().experiment;
        let (whole, part) = (of(""), of("duration = '30s'"));
        assert_eq!(
            (whole.warm_up(), part.warm_up()),
            (Time(0), Time::parse("2s").unwrap()),
            "a whole command has no warm-up"
        );
        assert_eq!(of("duration = '30s'\nwarm_up = '0s'").warm_up(), Time(0), "the file takes precedence");
        assert_eq!((part.idle_baseline(true), part.idle_baseline(false)), (Time::parse("5s").unwrap(), Time(0)));
        let set = of("idle_baseline = '1s'");
        assert_eq!([set.idle_baseline(true), set.idle_baseline(false)], [Time::parse("1s").unwrap(), Time(0)]);
        assert_eq!(of("idle_baseline = '0s'").idle_baseline(true), Time(0));
    }

    #[test]
    fn errors_name_the_key_and_the_nearest_valid_one() {
        for (text, expected) in [
            ("durration = '1s'", "e.toml: durration: unknown field"),
            ("durration = '1s'", "did you mean `duration`?"),
            ("duration = 10", "e.toml: duration: 10 is not a time with its unit"),
            ("duration = '0s'", "e.toml: duration: must be above zero"),
            ("repeats = 0", "e.toml: repeats: must be at least 1"),
            ("target = { file = 'x' }", "e.toml: target.size: a file needs its size"),
            ("target = { file = 'x', size = '1MiB', nothing = true }", "set only one of"),
            ("precondition = { fill = 2 }", "e.toml: precondition: only a device"),
            ("stop = { metric = 'x', within = 5 }", "e.toml: stop.within: 5 is not a percentage"),
            ("stop = { metric = 'x', within = '5%', at_least = 1 }", "e.toml: stop.at_least"),
            (
                "stop = { metric = 'x', within = '5%', at_least = 4, at_most = 3 }",
                "e.toml: stop.at_most: must not be below",
            ),
            ("sensor = [{ sensor = 'rappl' }]", "did you mean `rapl`?"),
            ("sensor = [{ sensor = 'cputime', interval = 5 }]", "5 is not a time"),
            (
                "parameter = [{ key = 'depth', values = [1] }]",
                "e.toml: parameter[0]: `key` is a key of machine or of workload",
            ),
            ("parameter = [{ key = 'machine.scheduler' }]", "e.toml: parameter[0]: set a list of values"),
            ("parameter = [{ kee = 'x' }]", "e.toml: parameter[0].kee: unknown field"),
            ("parameter = [{ key = 'machine.schedular', values = ['none'] }]", "did you mean `scheduler`?"),
            ("machine = { profile = 3 }", "e.toml: machine.profile: must be the name"),
            ("machine = { governer = 'x' }", "did you mean `governor`?"),
            (
                "parameter = [{ key = 'machine.scheduler', values = ['none', 'kyber', 'none'] }]",
                "e.toml: parameter: machine.scheduler has the value none twice",
            ),
        ] {
            let error = refused(&format!("{text}\n{MINIMAL}"));
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn duplicate_values_are_refused() {
        let error = refused(&format!("{MINIMAL}knobs = {{ a = [1, 2, 1], b = ['x'] }}"));
        assert!(error.contains("e.toml: workload: a has the value 1 twice"), "{error}");
        assert!(load(&format!("{MINIMAL}knobs = {{ a = [1, 2], b = [1, 2] }}"), &Asked::default()).is_ok());
    }

    #[test]
    fn a_parameter_is_equivalent_to_a_list_as_value_of_its_key() {
        let keys = "[machine]\nprofile = 'p'\ngovernor = 'x'\n[[parameter]]\nkey = 'machine.scheduler'\nvalues = ['none', 'kyber']\n\
                    [[parameter]]\nkey = 'workload.knobs.a'\nscale = 'log2'\nfrom = 1\nto = 4\n";
        let loaded = load(&format!("{MINIMAL}{keys}"), &Asked::default()).unwrap();
        assert_eq!((loaded.vary[0].0.as_str(), loaded.vary[0].1.len()), ("machine.scheduler", 2));
        let direct = load(&format!("{MINIMAL}knobs = {{ a = [1, 2, 4] }}\n"), &Asked::default()).unwrap();
        assert_eq!(loaded.workload.knobs(), direct.workload.knobs());
        assert_eq!((loaded.profile.as_deref(), direct.profile), (Some("p"), None));
        assert!(loaded.table.contains_key("parameter"), "the table is kept as written");
        let set = |key: &str, value: &str| Asked { set: vec![(key.into(), value.into())], ..Asked::default() };
        let asked = load(&format!("{MINIMAL}knobs = {{ a = [1] }}\n"), &set("workload.knobs.a", "[5, 6]")).unwrap();
        assert_eq!(asked.workload.knobs()[0].1.len(), 2);
        assert!(load(MINIMAL, &set("title.x", "1")).err().unwrap().starts_with("--set: title.x"));
    }

    #[test]
    fn errors_name_the_included_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("common.toml"), "[bind]\ncpu = '1'").unwrap();
        std::fs::write(folder.path().join("e.toml"), format!("include = ['common.toml']\n{MINIMAL}")).unwrap();
        let error = super::load(&folder.path().join("e.toml"), &Asked::default()).err().unwrap().to_string();
        assert!(error.contains("common.toml: bind.cpu") && error.contains("did you mean `cpus`?"), "{error}");
    }

    #[test]
    fn the_command_line_becomes_part_of_the_experiment() {
        let asked = Asked {
            sensors: vec!["modelled".into(), "cputime".into()],
            seed: Some(7),
            no_baseline: true,
            repeats: Some(9),
            ..Asked::default()
        };
        let text = format!("idle_baseline = '5s'\nsensor = [{{ sensor = 'cputime', optional = true }}]\n{MINIMAL}");
        let experiment = load(&text, &asked).unwrap().experiment;
        let values = (experiment.seed, experiment.idle_baseline, experiment.repeats);
        assert_eq!(values, (7, Some(Time(0)), 9));
        let sensors: Vec<_> = experiment.sensors.iter().map(|spec| (spec.config.name(), spec.optional)).collect();
        assert_eq!(sensors, [("cputime", false), ("modelled", false)]);
        let asked = Asked { program: Some("/p/pilotlight".into()), ..Asked::default() };
        let load_of = "title = 't'\nduration = '1s'\n[workload]\nkind = 'load'\ntarget = '127.0.0.1:4420'\n";
        assert_eq!(load(load_of, &asked).unwrap().experiment.workload["program"].as_str(), Some("/p/pilotlight"));
        assert!(load(MINIMAL, &asked).err().unwrap().contains("--program"));
        let unknown = Asked { sensors: vec!["raple".into()], ..Asked::default() };
        assert!(load(MINIMAL, &unknown).err().unwrap().contains("did you mean rapl?"));
    }

    #[test]
    fn an_experiment_is_equal_after_a_round_trip() {
        let text = format!(
            "warm_up = '500ms'\nduration = '2s'\nsensor = [{{ sensor = 'rapl', interval = '5ms', optional = true }}]\n\
             stop = {{ metric = 'iops', within = '5%' }}\n{MINIMAL}"
        );
        let loaded = load(&text, &Asked::default()).unwrap();
        let again = toml::to_string(&loaded.experiment).unwrap();
        assert_eq!(load(&again, &Asked::default()).unwrap().experiment, loaded.experiment);
    }
}
