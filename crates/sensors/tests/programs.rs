//! Sensors that run a program or read a file: `command`, and `ipmi` with another program instead of ipmitool.

use std::fs;
use std::path::Path;

use pilotlight_sensors::command::{Options, Pick, Source, ValueUnit};
use pilotlight_sensors::{Config, Kind, Missing, Part, Reading, Roots, Unit, Why, ipmi};

fn options(from: Source, pick: Pick, unit: ValueUnit) -> Options {
    Options { name: "test".into(), from, pick, unit, part: None, step: None, interval_ms: None, timeout_ms: None }
}

fn shell(script: &str) -> Source {
    Source::Command(vec!["/bin/sh".into(), "-c".into(), script.into()])
}

fn value(options: Options) -> Result<i64, Missing> {
    let mut sensor = Config::Command(options).open(&Roots::default())?;
    let mut readings = Vec::new();
    sensor.read(&mut readings).unwrap();
    assert_eq!(readings.len(), 1);
    Ok(readings[0].value)
}

#[test]
fn numbers_are_found_and_scaled() {
    let watts = Pick::Regex(r"power: ([0-9.]+) W".into());
    assert_eq!(value(options(shell("echo temp: 40; echo power: 12.345 W"), watts, ValueUnit::Watt)), Ok(12_345_000));
    let pointer = Pick::Pointer("/gpus/1/power".into());
    let json = "echo '{\"gpus\": [{\"power\": 1}, {\"power\": 80.5}]}'";
    assert_eq!(value(options(shell(json), pointer, ValueUnit::Watt)), Ok(80_500_000));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meter");
    fs::write(&path, "1.5\n").unwrap();
    for (unit, expected) in [
        (ValueUnit::Watt, 1_500_000),
        (ValueUnit::MilliWatt, 1_500),
        (ValueUnit::KiloWatt, 1_500_000_000),
        (ValueUnit::Joule, 1_500_000),
        (ValueUnit::WattHour, 5_400_000_000),
        (ValueUnit::KiloWattHour, 5_400_000_000_000),
        (ValueUnit::Gauge("rpm".into()), 2),
    ] {
        assert_eq!(value(options(Source::File(path.clone()), Pick::Whole, unit.clone())), Ok(expected), "{unit:?}");
    }
}

#[test]
fn the_unit_determines_the_kind_of_value() {
    let domain = |unit| {
        Config::Command(options(shell("echo 3"), Pick::Whole, unit)).open(&Roots::default()).unwrap().domains()[0]
            .clone()
    };
    assert_eq!((domain(ValueUnit::Watt).kind, domain(ValueUnit::Watt).unit), (Kind::Power, Unit::MicroWatt));
    assert!(matches!(domain(ValueUnit::WattHour).kind, Kind::EnergyCounter(_)));
    assert_eq!(domain(ValueUnit::Gauge("rpm".into())).column(), "test_rpm");
    assert_eq!(domain(ValueUnit::Counter("pages".into())).part, Part::None);
    // Its part is unknown unless configured.
    assert!(domain(ValueUnit::Watt).part.overlaps(&Part::Package(0)));
}

/// The step of a meter that is configured as in an experiment.
fn step(printed: &str, step: &str) -> Result<Option<u64>, Missing> {
    let config = format!(
        r#"{{"sensor": "command", "name": "m", "from": {{"command": ["echo", "{printed}"]}}, "unit": "kWh", "step": {step}}}"#
    );
    let sensor = serde_json::from_str::<Config>(&config).unwrap().open(&Roots::default())?;
    Ok(sensor.domains()[0].timing.quantum)
}

#[test]
fn the_step_of_a_meter_is_the_configured_one() {
    for printed in ["0", "1.50", "1.5", "1e-5"] {
        assert_eq!(step(printed, "null"), Ok(None), "{printed}");
        assert_eq!(step(printed, "0.01"), Ok(Some(36_000_000_000)), "{printed}");
    }
    assert_eq!(step("0", "1"), Ok(Some(3_600_000_000_000)));
    assert_eq!(step("0", "1e-5"), Ok(Some(36_000_000)));
    for wrong in ["0", "-1", "1e-20", "1e30"] {
        let missing = step("0", wrong).unwrap_err();
        assert_eq!(missing.why, Why::NotConfigured, "{wrong}: {missing}");
    }
}

#[test]
fn errors_of_a_reading_are_reported() {
    // Starting a program can be slow on a busy machine.
    const PATIENT: u64 = 60_000;
    for (script, timeout_ms, pick, message) in [
        ("exit 3", PATIENT, Pick::Whole, "exit status: 3"),
        ("echo many", PATIENT, Pick::Whole, "pick finds no number in \"many\\n\""),
        ("echo '{}'", PATIENT, Pick::Pointer("/watts".into()), "pick finds no number"),
        ("echo 5", PATIENT, Pick::Regex("([0-9]+".into()), "is not a valid regular expression"),
        ("sleep 60", 200, Pick::Whole, "timed out"),
    ] {
        let options = Options { timeout_ms: Some(timeout_ms), ..options(shell(script), pick, ValueUnit::Watt) };
        let missing = value(options).unwrap_err();
        assert!(missing.to_string().contains(message), "{script}: {missing}");
    }
    let absent = options(Source::Command(vec!["/no/such/program".into()]), Pick::Whole, ValueUnit::Watt);
    assert!(value(absent).unwrap_err().to_string().contains("/no/such/program"));
}

#[test]
fn a_pipe_without_a_writer_does_not_block_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("meter");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: there is no mkfifo");
        return;
    }
    let missing = value(options(Source::File(pipe), Pick::Whole, ValueUnit::Watt)).unwrap_err();
    assert!(missing.to_string().contains("pick finds no number"), "{missing}");
}

#[test]
fn cpu_time_of_a_program_is_part_of_the_cost() {
    let busy = shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo 1");
    let sensor = Config::Command(options(busy, Pick::Whole, ValueUnit::Watt)).open(&Roots::default()).unwrap();
    assert!(sensor.helpers_cpu_ns() > 0);
}

/// A program with the output of ipmitool 1.8.19.
fn tool(folder: &Path, watts: &str, state: &str) -> Config {
    let path = folder.join("ipmitool");
    let script = format!(
        "#!/bin/sh\n[ \"$*\" = '-I open dcmi power reading' ] || exit 9\ncat <<END\n\n    Instantaneous power reading:              {watts:>8} Watts\n    \
         Minimum during sampling period:                  2 Watts\n    Maximum during sampling period:                468 Watts\n    \
         Average power reading over sample period:      184 Watts\n    IPMI timestamp:                           \
         05/05/24 13:06:44 UTC    Sampling period:                          00000001 Seconds.\n    \
         Power reading state is:                   {state}\n\nEND\n"
    );
    fs::write(&path, script).unwrap();
    // Not run by its own name: a child forked by another test may hold it open for writing, and the kernel refuses (ETXTBSY).
    let arguments = ["/bin/sh", path.to_str().unwrap(), "-I", "open"].map(str::to_owned).to_vec();
    Config::Ipmi { from: ipmi::Options::Tool(arguments) }
}

#[test]
fn ipmitool_is_understood() {
    let folder = tempfile::tempdir().unwrap();
    let mut sensor = tool(folder.path(), "214", "activated").open(&Roots::default()).unwrap();
    let mut readings = Vec::new();
    sensor.read(&mut readings).unwrap();
    assert_eq!(readings, [Reading { domain: 0, value: 214_000_000 }]);
    assert_eq!(sensor.domains()[0].part, Part::System);
    assert!(sensor.info().notes.is_empty());
    for (watts, state, message) in [
        ("0", "activated", "0 W"),
        ("0", "deactivated", "0 W"),
        ("65535", "deactivated", "error code"),
        ("", "activated", "no number"),
    ] {
        let Err(missing) = tool(folder.path(), watts, state).open(&Roots::default()) else { panic!("{watts} {state}") };
        assert_eq!(missing.why, Why::Broken);
        assert!(missing.to_string().contains(message) || watts.is_empty(), "{missing}");
    }
}

#[test]
fn a_reading_counts_beside_a_deactivated_state_and_has_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let mut sensor = tool(folder.path(), "360", "deactivated").open(&Roots::default()).unwrap();
    let mut readings = Vec::new();
    sensor.read(&mut readings).unwrap();
    assert_eq!(readings, [Reading { domain: 0, value: 360_000_000 }]);
    assert!(sensor.info().notes[0].contains("deactivated"), "{:?}", sensor.info().notes);
}

/// `ipmitool` that fails as often as the file `fails` has lines, and then has a power.
fn unreliable(folder: &Path) -> (Config, impl Fn(usize)) {
    let (script, fails) = (folder.join("ipmitool"), folder.join("fails"));
    let quoted = fails.display();
    let text = format!(
        "if [ -s '{quoted}' ]; then sed -i 1d '{quoted}'; exit 1; fi\necho 'Instantaneous power reading: 214 Watts'\n"
    );
    fs::write(&script, text).unwrap();
    let arguments = ["/bin/sh", script.to_str().unwrap()].map(str::to_owned).to_vec();
    (Config::Ipmi { from: ipmi::Options::Tool(arguments) }, move |times| {
        fs::write(&fails, "Unspecified error\n".repeat(times)).unwrap();
    })
}

#[test]
fn a_bmc_has_three_tries() {
    let folder = tempfile::tempdir().unwrap();
    let (config, fail) = unreliable(folder.path());
    fail(2);
    let mut sensor = config.open(&Roots::default()).unwrap();
    let mut read = |fails| {
        fail(fails);
        sensor.read(&mut Vec::new())
    };
    assert!(read(2).is_ok());
    let error = read(3).unwrap_err().to_string();
    assert!(error.contains("exit status: 1"), "{error}");
    assert!(read(0).is_ok());
}

#[test]
fn without_dcmi_the_sensors_in_watts_are_added_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("ipmitool");
    let open = |list: &str| {
        let text = format!("case \"$*\" in\n'-I open sdr elist full') cat <<END\n{list}END\n;;\n*) exit 1;;\nesac\n");
        fs::write(&script, text).unwrap();
        let arguments = ["/bin/sh", script.to_str().unwrap(), "-I", "open"].map(str::to_owned).to_vec();
        Config::Ipmi { from: ipmi::Options::Tool(arguments) }.open(&Roots::default())
    };
    let list = "PS1 Power In     | 52h | ok  | 10.1 | 132 Watts\nPS2 Power In     | 53h | ok  | 10.2 | 160 Watts\n";
    let mut sensor = open(list).unwrap();
    let mut readings = Vec::new();
    sensor.read(&mut readings).unwrap();
    assert_eq!(readings, [Reading { domain: 0, value: 292_000_000 }]);
    assert_eq!(sensor.domains()[0].part, Part::System);
    assert!(sensor.info().notes[0].contains("PS1 Power In + PS2 Power In"), "{:?}", sensor.info().notes);
    for (list, message) in [
        ("Temp | 1h | ok  |  7.1 | 30 degrees C\n", "lists no power"),
        (&list.replace("132", "0").replace("160", "0"), "0 W"),
    ] {
        let missing = open(list).err().unwrap();
        assert!(missing.to_string().contains(message) && missing.to_string().contains("exit status: 1"), "{missing}");
    }
}

#[test]
fn a_tool_that_fails_is_not_believed() {
    let script = "echo 'Instantaneous power reading: 214 Watts'; echo 'Power reading state is: activated'; exit 3";
    let arguments = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let missing = Config::Ipmi { from: ipmi::Options::Tool(arguments) }.open(&Roots::default()).err().unwrap();
    assert!(missing.to_string().contains("exit status: 3"), "{missing}");
}

#[test]
fn a_machine_without_a_bmc_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Config::by_name("ipmi").unwrap().open(&Roots::below(folder.path())).err().unwrap();
    assert_eq!(missing.why, Why::Absent);
    // Another file instead of the device does not respond.
    fs::create_dir(folder.path().join("dev")).unwrap();
    fs::write(folder.path().join("dev/ipmi0"), "").unwrap();
    assert_eq!(Config::by_name("ipmi").unwrap().open(&Roots::below(folder.path())).err().unwrap().why, Why::Broken);
}
