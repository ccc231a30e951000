//! Experiments: a file with what it includes in, everything that is to be done out.

pub mod schema;

use std::path::{Path, PathBuf};

use pilotlight_input::{Merged, Parameter, ReadError, dotted, file as read, include};
use pilotlight_sensors::Config;
use toml::{Table, Value};

pub use schema::Experiment;

use pilotlight_workloads::{self as workload, Workload, catalogue};

/// What the command line asks beside the file. It becomes part of the experiment, so that results say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Keys of the file with other values, as text.
    pub set: Vec<(String, String)>,
    /// Names of sensors that are needed beside those of the file.
    pub sensors: Vec<String>,
    /// The seed, where not the file's.
    pub seed: Option<u64>,
    /// Whether the idle machine is not measured.
    pub no_baseline: bool,
    /// How often each point is measured, where not as the file says.
    pub repeats: Option<u32>,
    /// The server program that a workload of kind `load` starts.
    pub program: Option<PathBuf>,
}

/// An experiment, read.
pub struct Loaded {
    /// As it stands in the file.
    pub experiment: Experiment,
    /// The keys it was read from.
    pub table: Table,
    /// Where messages say that it is from.
    pub file: String,
    /// What makes work.
    pub workload: Box<dyn Workload>,
    /// Keys of the machine that are varied, with their values in order.
    pub vary: Vec<(String, Vec<workload::Value>)>,
    /// The profile of the machine that is simulated; `None`: this machine is measured.
    pub profile: Option<String>,
}

/// Reads an experiment.
///
/// # Errors
/// If a file cannot be read or is not written as it should be; the message names file and key.
pub fn load(path: &Path, asked: &Asked) -> Result<Loaded, ReadError> {
    from_merged(include::load(path)?, asked)
}

/// As [`load`], of what has been merged.
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
        let Value::Array(sensors) = sensors else { continue }; // the schema refuses it in a moment
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

/// The sensor that `--sensor` names, with its default options.
///
/// # Errors
/// If there is none of this name; the message says which there are.
pub fn sensor(name: &str) -> Result<Config, ReadError> {
    Config::by_name(name).ok_or_else(|| unknown_sensor(name))
}

fn unknown_sensor(name: &str) -> ReadError {
    let all = pilotlight_sensors::catalogue::all();
    let known: Vec<&str> = all.iter().map(Config::name).chain(["modelled"]).collect();
    let meant = read::nearest(name, &known).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    let reason = format!("there is no sensor of this name{meant} (there are {})", known.join(", "));
    ReadError::key("--sensor", name, reason)
}

type Wrong = (&'static str, String);

fn check(experiment: &Experiment, workload: &str) -> Result<(), Wrong> {
    let wrong = |key: &'static str, why: &str| Err((key, why.to_owned()));
    let place = &experiment.target;
    let places = [place.file.is_some(), place.folder.is_some(), place.device.is_some(), place.nothing];
    if places.into_iter().filter(|there| *there).count() > 1 {
        return wrong("target", "give one of file, folder, device and nothing");
    }
    if place.file.is_some() && place.size.is_none() {
        return wrong("target.size", "a file needs its size, such as \"1GiB\"");
    }
    if experiment.precondition.is_some() && place.device.is_none() {
        return wrong("precondition", "only a device can be formatted or filled: give target.device");
    }
    if experiment.duration.is_none() && workload != "command" {
        return wrong("duration", "say how long each point is measured, such as \"30s\"");
    }
    if experiment.duration.is_some_and(|duration| duration.0 == 0) {
        return wrong("duration", "must be above zero");
    }
    if experiment.repeats == 0 {
        return wrong("repeats", "must be at least 1");
    }
    match &experiment.stop {
        Some(stop) if stop.at_least < 2 => wrong("stop.at_least", "an interval needs two repeats"),
        Some(stop) if stop.at_most < stop.at_least => wrong("stop.at_most", "must not be below stop.at_least"),
        _ => Ok(()),
    }
}

/// Takes `[[parameter]]` out of the table: values of a key of the workload are put in its place, those of a key of the machine are returned.
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
                    _ => return Err(wrong("give a list of values, such as [\"none\", \"mq-deadline\"]".into())),
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

/// Takes the profile of a simulated machine out of `[machine]`.
fn profile(table: &mut Table, file: &str) -> Result<Option<String>, ReadError> {
    let machine = table.get_mut("machine").and_then(Value::as_table_mut);
    let profile = machine.and_then(|machine| machine.remove("profile"));
    let name = |value: Value| value.as_str().map(str::to_owned);
    let wrong = || ReadError::key(file, "machine.profile", "write the name of a profile, such as \"thesis-980pro\"");
    profile.map(|value| name(value).ok_or_else(wrong)).transpose()
}

/// Every value that a key of the machine takes must be one that it can take.
fn check_varied(experiment: &Experiment, vary: &[(String, Vec<workload::Value>)], file: &str) -> Result<(), ReadError> {
    for (key, values) in vary {
        for value in values {
            let setting = workload::Point::from([(key.clone(), value.clone())]);
            crate::run::machine::machine(&experiment.machine, &setting, file)?;
        }
    }
    Ok(())
}

/// A value that stands twice would be two points, whose repeats look like those of two settings.
fn check_twice<'a>(knobs: impl Iterator<Item = &'a (String, Vec<workload::Value>)>) -> Result<(), Wrong> {
    for (name, values) in knobs {
        let twice = values.iter().enumerate().find(|(at, value)| values[..*at].contains(value));
        if let Some((_, value)) = twice {
            let section = if name.starts_with("machine.") { "parameter" } else { "workload" };
            return Err((section, format!("{name} has the value {value} twice: leave one out, or set repeats")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pilotlight_input::Time;

    use super::*;

    const LEAST: &str = "title = 't'\n[workload]\nkind = 'command'\nargv = ['true']\n";

    fn load(text: &str, asked: &Asked) -> Result<Loaded, String> {
        let table = read::parse("e.toml", text).unwrap();
        from_merged(Merged::single("e.toml", table), asked).map_err(|error| error.to_string())
    }

    fn refused(text: &str) -> String {
        load(text, &Asked::default()).err().unwrap()
    }

    #[test]
    fn the_least_experiment_is_read() {
        let loaded = load(LEAST, &Asked::default()).unwrap();
        let Experiment { repeats, seed, settle, power_sensors, .. } = loaded.experiment;
        assert_eq!((repeats, seed, String::from(settle).as_str()), (3, 1, "5s"));
        assert_eq!(power_sensors, schema::PowerSensors::Found);
        assert_eq!(loaded.workload.name(), "command");
    }

    #[test]
    fn ramps_and_baselines_have_defaults_that_depend_on_what_is_measured() {
        let of = |text: &str| load(&format!("{text}\n{LEAST}"), &Asked::default()).unwrap().experiment;
        let (whole, part) = (of(""), of("duration = '30s'"));
        assert_eq!(
            (whole.warm_up(), part.warm_up()),
            (Time(0), Time::parse("2s").unwrap()),
            "a whole command has no ramp"
        );
        assert_eq!(of("duration = '30s'\nwarm_up = '0s'").warm_up(), Time(0), "what the file says holds");
        assert_eq!((part.idle_baseline(true), part.idle_baseline(false)), (Time::parse("5s").unwrap(), Time(0)));
        let said = of("idle_baseline = '1s'");
        assert_eq!([said.idle_baseline(true), said.idle_baseline(false)], [Time::parse("1s").unwrap(), Time(0)]);
        assert_eq!(of("idle_baseline = '0s'").idle_baseline(true), Time(0));
    }

    #[test]
    fn mistakes_name_the_key_and_what_was_meant() {
        for (text, expected) in [
            ("durration = '1s'", "e.toml: durration: unknown field"),
            ("durration = '1s'", "did you mean `duration`?"),
            ("duration = 10", "e.toml: duration: 10 is not a time with its unit"),
            ("duration = '0s'", "e.toml: duration: must be above zero"),
            ("repeats = 0", "e.toml: repeats: must be at least 1"),
            ("target = { file = 'x' }", "e.toml: target.size: a file needs its size"),
            ("target = { file = 'x', size = '1MiB', nothing = true }", "give one of"),
            ("precondition = { fill = 2 }", "e.toml: precondition: only a device"),
            ("stop = { metric = 'x', within = 5 }", "e.toml: stop.within: 5 is not a share"),
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
            ("parameter = [{ key = 'machine.scheduler' }]", "e.toml: parameter[0]: give a list of values"),
            ("parameter = [{ kee = 'x' }]", "e.toml: parameter[0].kee: unknown field"),
            ("parameter = [{ key = 'machine.schedular', values = ['none'] }]", "did you mean `scheduler`?"),
            ("machine = { profile = 3 }", "e.toml: machine.profile: write the name"),
            ("machine = { governer = 'x' }", "did you mean `governor`?"),
            (
                "parameter = [{ key = 'machine.scheduler', values = ['none', 'kyber', 'none'] }]",
                "e.toml: parameter: machine.scheduler has the value none twice",
            ),
        ] {
            let error = refused(&format!("{text}\n{LEAST}"));
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_value_that_stands_twice_is_refused() {
        let error = refused(&format!("{LEAST}knobs = {{ a = [1, 2, 1], b = ['x'] }}"));
        assert!(error.contains("e.toml: workload: a has the value 1 twice"), "{error}");
        assert!(load(&format!("{LEAST}knobs = {{ a = [1, 2], b = [1, 2] }}"), &Asked::default()).is_ok());
    }

    #[test]
    fn a_parameter_is_a_list_in_the_place_of_its_key() {
        let keys = "[machine]\nprofile = 'p'\ngovernor = 'x'\n[[parameter]]\nkey = 'machine.scheduler'\nvalues = ['none', 'kyber']\n\
                    [[parameter]]\nkey = 'workload.knobs.a'\nscale = 'log2'\nfrom = 1\nto = 4\n";
        let loaded = load(&format!("{LEAST}{keys}"), &Asked::default()).unwrap();
        assert_eq!((loaded.vary[0].0.as_str(), loaded.vary[0].1.len()), ("machine.scheduler", 2));
        let direct = load(&format!("{LEAST}knobs = {{ a = [1, 2, 4] }}\n"), &Asked::default()).unwrap();
        assert_eq!(loaded.workload.knobs(), direct.workload.knobs());
        assert_eq!((loaded.profile.as_deref(), direct.profile), (Some("p"), None));
        assert!(loaded.table.contains_key("parameter"), "what is kept is the file");
        let set = |key: &str, value: &str| Asked { set: vec![(key.into(), value.into())], ..Asked::default() };
        let asked = load(&format!("{LEAST}knobs = {{ a = [1] }}\n"), &set("workload.knobs.a", "[5, 6]")).unwrap();
        assert_eq!(asked.workload.knobs()[0].1.len(), 2);
        assert!(load(LEAST, &set("title.x", "1")).err().unwrap().starts_with("--set: title.x"));
    }

    #[test]
    fn errors_name_the_included_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("common.toml"), "[bind]\ncpu = '1'").unwrap();
        std::fs::write(folder.path().join("e.toml"), format!("include = ['common.toml']\n{LEAST}")).unwrap();
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
        let text = format!("idle_baseline = '5s'\nsensor = [{{ sensor = 'cputime', optional = true }}]\n{LEAST}");
        let experiment = load(&text, &asked).unwrap().experiment;
        let values = (experiment.seed, experiment.idle_baseline, experiment.repeats);
        assert_eq!(values, (7, Some(Time(0)), 9));
        let sensors: Vec<_> = experiment.sensors.iter().map(|spec| (spec.config.name(), spec.optional)).collect();
        assert_eq!(sensors, [("cputime", false), ("modelled", false)]);
        let asked = Asked { program: Some("/p/pilotlight".into()), ..Asked::default() };
        let load_of = "title = 't'\nduration = '1s'\n[workload]\nkind = 'load'\ntarget = '127.0.0.1:4420'\n";
        assert_eq!(load(load_of, &asked).unwrap().experiment.workload["program"].as_str(), Some("/p/pilotlight"));
        assert!(load(LEAST, &asked).err().unwrap().contains("--program"));
        let unknown = Asked { sensors: vec!["raple".into()], ..Asked::default() };
        assert!(load(LEAST, &unknown).err().unwrap().contains("did you mean rapl?"));
    }

    #[test]
    fn an_experiment_is_read_back_as_it_was() {
        let text = format!(
            "warm_up = '500ms'\nduration = '2s'\nsensor = [{{ sensor = 'rapl', interval = '5ms', optional = true }}]\n\
             stop = {{ metric = 'iops', within = '5%' }}\n{LEAST}"
        );
        let loaded = load(&text, &Asked::default()).unwrap();
        let again = toml::to_string(&loaded.experiment).unwrap();
        assert_eq!(load(&again, &Asked::default()).unwrap().experiment, loaded.experiment);
    }
}
