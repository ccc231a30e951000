//! `pilotlab measure` and `pilotlab sensors`: the command's streams and exit code, figures on a machine without power sensors, refusals.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::process::{command, run, spawn, text};

/// Whether this machine has no readable power sensor, as most virtual machines.
fn without_power() -> bool {
    let output = run(&["sensors", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sensors = value["sensors"].as_array().unwrap();
    !sensors.iter().filter_map(|sensor| sensor["values"].as_array()).flatten().any(|value| value["part"] != "none")
}

#[test]
fn a_command_is_measured_and_its_output_shown_on_request() {
    const COMMAND: [&str; 4] = ["--", "sh", "-c", "echo said; echo complained >&2"];
    let measure = |options: &[&str]| run(&[&["measure", "--idle", "0s"][..], options, &COMMAND].concat());
    for (options, stdout, stderr) in
        [(&[][..], 0, 0), (&["--show-output"], 3, 0), (&["--json"], 0, 0), (&["--json", "--show-output"], 0, 3)]
    {
        let output = measure(options);
        let count = |bytes: &[u8]| text(bytes).lines().filter(|line| *line == "said").count();
        assert_eq!((count(&output.stdout), count(&output.stderr)), (stdout, stderr), "{options:?}");
        assert!(text(&output.stderr).contains("run 1 of 3\n"), "{options:?}");
    }
    let output = measure(&["--show-output"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert_eq!(text(&output.stderr).matches("complained\n").count(), 3);
    for expected in
        ["sh -c 'echo said; echo complained >&2'  3 runs", "time", "CPU time, user", "95 % interval of 3 runs"]
    {
        assert!(said.contains(expected), "{expected} in {said}");
    }
    assert!(!said.contains('\x1b'), "colours are for terminals");
}

#[test]
fn without_power_sensors_it_names_remedies_and_succeeds() {
    if !without_power() {
        println!("skipped: this machine has power sensors");
        return;
    }
    let output = run(&["measure", "--repeats", "1", "--", "true"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        said.ends_with(
            "\nNo power is measured: no power sensor of this machine can be read (`pilotlab sensors` lists remedies); \
             --sensor modelled adds power from a model\n"
        ),
        "{said}"
    );
    let output = run(&["measure", "--sensor", "rapl", "--", "true"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("--sensor") && error.contains("rapl: ") && error.contains("intel_rapl_msr"), "{error}");
    let output = run(&["sensors"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(said.contains("no power sensor of this machine can be read") && said.contains("cputime"), "{said}");
}

#[test]
fn modelled_power_is_labelled_and_each_run_has_an_idle_baseline() {
    let output = run(&[
        "measure",
        "--json",
        "--sensor",
        "modelled",
        "--repeats",
        "2",
        "--idle",
        "200ms",
        "--settle",
        "0s",
        "--",
        "sleep",
        "0.2",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let line = &value["energy"][0];
    assert_eq!(
        (&line["modelled"], &value["idle_baseline"], &value["has_measured_power"]),
        (&true.into(), &true.into(), &false.into())
    );
    let values = |key: &str| line[key]["values"].as_array().map_or(0, Vec::len);
    assert_eq!(["energy_j", "power_w", "above_idle_w", "above_idle_j"].map(values), [2; 4]);
    let number = |value: &Value| value.as_f64().unwrap();
    let seconds = &value["lines"][0]["spread"]["values"];
    for run in 0..2 {
        let (joules, watts) = (number(&line["energy_j"]["values"][run]), number(&line["power_w"]["values"][run]));
        assert!((joules / number(&seconds[run]) / watts - 1.0).abs() < 1e-6, "{value}");
    }
}

#[test]
fn standard_output_has_only_json() {
    let output = run(&["measure", "--json", "--show-output", "--idle", "0s", "--repeats", "2", "--", "echo", "said"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((value["runs"].as_u64(), value["command"].as_str()), (Some(2), Some("echo said")));
    assert_eq!(text(&output.stderr).matches("said\n").count(), 2);
}

#[test]
fn failures_are_named_and_refused_options_run_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("ran");
    let touch = format!("touch {}; exit 7", mark.display());
    let measure = |options: &[&str]| {
        let output = run(&[&["measure"][..], options, &["--", "sh", "-c", &touch]].concat());
        (output.status.code(), text(&output.stderr))
    };
    for (options, expected) in [
        (&["--set", "governer=x"][..], "did you mean `governor`?"),
        (&["--set", "governor"], "not KEY=VALUE"),
        (&["--set", "power_state=1"], "machine.power_state"),
        (&["--settings", "/no/such"], "cannot read /no/such"),
        (&["--sensor", "rappl"], "did you mean rapl?"),
        (&["--repeats", "0"], "--repeats"),
        (&["--idle", "5"], "expected a time with its unit"),
    ] {
        let (code, error) = measure(options);
        assert_eq!(code, Some(2), "{options:?}: {error}");
        assert!(error.contains(expected), "{options:?}: {error}");
    }
    assert!(!mark.exists(), "nothing was run");
    let output = run(&["measure", "sleep", "1"]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("put `--` before it, as in `pilotlab measure -- sleep 2`"), "{error}");
    let output = run(&["measure", "--", "no-such-program-here"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no-such-program-here is not in PATH"), "{}", text(&output.stderr));
    let (code, error) = measure(&["--idle", "0s"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("run 1 of 3 failed") && error.contains("exited with status 7"), "{error}");
    assert_eq!(measure(&["--idle", "0s", "--ignore-failure"]).0, Some(0));
}

#[test]
fn sigterm_ends_the_command_first() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 1000", file.display());
    let mut child = spawn(&["measure", "--idle", "0s", "--", "sh", "-c", &script]);
    let until = Instant::now() + Duration::from_secs(60);
    let pid = loop {
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        if written.ends_with('\n') {
            break written.trim().to_owned();
        }
        assert!(Instant::now() < until, "the command does not run");
        std::thread::sleep(Duration::from_millis(5));
    };
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(!Path::new("/proc").join(pid).exists(), "the command still runs");
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("ended by SIGTERM"), "{said}");
}

#[test]
fn sensors_are_printed_until_the_output_is_closed() {
    let mut child = command(&["sensors", "--watch"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for second in 1..=2 {
        let line = lines.next().unwrap().unwrap();
        assert!(line.starts_with(&format!("{second} s  ")) && line.contains("CPUs busy"), "{line}");
    }
    drop(lines);
    assert!(!child.wait().unwrap().success(), "it ends as by SIGPIPE");
}
