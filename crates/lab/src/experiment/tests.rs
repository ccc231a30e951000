//! Valid and invalid files of experiments.

use pilotlight_input::Time;

use super::*;

const MINIMAL: &str = "title = 't'\n[workload]\nkind = 'command'\nargv = ['true']\n";

fn load(text: &str, overrides: &Overrides) -> Result<Loaded, String> {
    let table = read::parse("e.toml", text).unwrap();
    from_merged(Merged::single("e.toml", table), overrides).map_err(|error| error.to_string())
}

fn refused(text: &str) -> String {
    load(text, &Overrides::default()).err().unwrap()
}

#[test]
fn a_minimal_experiment_is_read() {
    let loaded = load(MINIMAL, &Overrides::default()).unwrap();
    let Experiment { repeats, seed, settle, power_sensors, .. } = loaded.experiment;
    assert_eq!((repeats, seed, String::from(settle).as_str()), (3, 1, "5s"));
    assert_eq!(power_sensors, schema::PowerSensors::Found);
    assert_eq!(loaded.workload.name(), "command");
}

#[test]
fn the_defaults_of_warm_up_and_baseline_depend_on_the_duration() {
    let of = |text: &str| load(&format!("{text}\n{MINIMAL}"), &Overrides::default()).unwrap().experiment;
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
    assert!(load(&format!("{MINIMAL}knobs = {{ a = [1, 2], b = [1, 2] }}"), &Overrides::default()).is_ok());
}

#[test]
fn a_parameter_is_equivalent_to_a_list_as_value_of_its_key() {
    let keys = "[machine]\nprofile = 'p'\ngovernor = 'x'\n[[parameter]]\nkey = 'machine.scheduler'\nvalues = ['none', 'kyber']\n\
                [[parameter]]\nkey = 'workload.knobs.a'\nscale = 'log2'\nfrom = 1\nto = 4\n";
    let loaded = load(&format!("{MINIMAL}{keys}"), &Overrides::default()).unwrap();
    assert_eq!((loaded.vary[0].0.as_str(), loaded.vary[0].1.len()), ("machine.scheduler", 2));
    let direct = load(&format!("{MINIMAL}knobs = {{ a = [1, 2, 4] }}\n"), &Overrides::default()).unwrap();
    assert_eq!(loaded.workload.knobs(), direct.workload.knobs());
    assert_eq!((loaded.profile.as_deref(), direct.profile), (Some("p"), None));
    assert!(loaded.table.contains_key("parameter"), "the table is kept as written");
    let set = |key: &str, value: &str| Overrides { set: vec![(key.into(), value.into())], ..Overrides::default() };
    let overrides = load(&format!("{MINIMAL}knobs = {{ a = [1] }}\n"), &set("workload.knobs.a", "[5, 6]")).unwrap();
    assert_eq!(overrides.workload.knobs()[0].1.len(), 2);
    assert!(load(MINIMAL, &set("title.x", "1")).err().unwrap().starts_with("--set: title.x"));
}

#[test]
fn errors_name_the_included_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("common.toml"), "[bind]\ncpu = '1'").unwrap();
    std::fs::write(folder.path().join("e.toml"), format!("include = ['common.toml']\n{MINIMAL}")).unwrap();
    let error = super::load(&folder.path().join("e.toml"), &Overrides::default()).err().unwrap().to_string();
    assert!(error.contains("common.toml: bind.cpu") && error.contains("did you mean `cpus`?"), "{error}");
}

#[test]
fn the_command_line_becomes_part_of_the_experiment() {
    let overrides = Overrides {
        sensors: vec!["modelled".into(), "cputime".into()],
        seed: Some(7),
        no_baseline: true,
        repeats: Some(9),
        ..Overrides::default()
    };
    let text = format!("idle_baseline = '5s'\nsensor = [{{ sensor = 'cputime', optional = true }}]\n{MINIMAL}");
    let experiment = load(&text, &overrides).unwrap().experiment;
    let values = (experiment.seed, experiment.idle_baseline, experiment.repeats);
    assert_eq!(values, (7, Some(Time(0)), 9));
    let sensors: Vec<_> = experiment.sensors.iter().map(|spec| (spec.config.name(), spec.optional)).collect();
    assert_eq!(sensors, [("cputime", false), ("modelled", false)]);
    let overrides = Overrides { program: Some("/p/pilotlight".into()), ..Overrides::default() };
    let load_of = "title = 't'\nduration = '1s'\n[workload]\nkind = 'load'\ntarget = '127.0.0.1:4420'\n";
    assert_eq!(load(load_of, &overrides).unwrap().experiment.workload["program"].as_str(), Some("/p/pilotlight"));
    assert!(load(MINIMAL, &overrides).err().unwrap().contains("--program"));
    let unknown = Overrides { sensors: vec!["raple".into()], ..Overrides::default() };
    assert!(load(MINIMAL, &unknown).err().unwrap().contains("did you mean rapl?"));
}

#[test]
fn an_experiment_is_equal_after_a_round_trip() {
    let text = format!(
        "warm_up = '500ms'\nduration = '2s'\nsensor = [{{ sensor = 'rapl', interval = '5ms', optional = true }}]\n\
         stop = {{ metric = 'iops', within = '5%' }}\n{MINIMAL}"
    );
    let loaded = load(&text, &Overrides::default()).unwrap();
    let again = toml::to_string(&loaded.experiment).unwrap();
    assert_eq!(load(&again, &Overrides::default()).unwrap().experiment, loaded.experiment);
}
