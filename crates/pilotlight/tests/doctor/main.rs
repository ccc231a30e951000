//! `pilotlight doctor` as a process: its output and its exit codes.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn doctor(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilotlight"));
    command.arg("doctor").args(args).stdin(Stdio::null()).env_remove("PILOTLIGHT_LOG");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn json(args: &[&str]) -> Value {
    let output = doctor(&[&["--json"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A CPU that this process may use.
fn allowed_cpu() -> String {
    json(&[])["machine"]["cores"][0].to_string()
}

#[test]
fn whatever_it_finds_it_has_looked() {
    let output = doctor(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let message = text(&output.stdout);
    for title in ["Cores", "Wait instructions", "Idle states", "Frequency control", "Network", "Storage", "Sensors"] {
        assert!(message.contains(&format!("\n{title}\n")), "{message}");
    }
    assert!(!message.contains('\x1b'), "colours are for terminals: {message}");
}

#[test]
fn programs_get_every_section_and_a_summary() {
    let message = json(&[]);
    let names: Vec<&str> =
        message["sections"].as_array().unwrap().iter().map(|section| section["name"].as_str().unwrap()).collect();
    let wanted = ["cores", "wait", "idle", "frequency", "network", "storage", "sensors", "actuators", "limits"];
    assert_eq!(names, wanted);
    let rows = message["sections"].as_array().unwrap().iter().map(|section| section["rows"].as_array().unwrap().len());
    let counted = ["ok", "limited", "missing"].iter().map(|mark| message["summary"][mark].as_u64().unwrap());
    assert_eq!(rows.sum::<usize>() as u64, counted.sum::<u64>());
}

#[test]
fn it_looks_for_the_cores_that_are_named() {
    let cpu = allowed_cpu();
    let message = json(&["--cores", &cpu]);
    assert_eq!(message["machine"]["cores"], serde_json::from_str::<Value>(&format!("[{cpu}]")).unwrap());
}

#[test]
fn a_configuration_names_cores_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let cpu = allowed_cpu();
    std::fs::write(dir.path().join("disk"), [0; 8192]).unwrap();
    let config = format!(
        "[server]\ncores = \"{cpu}\"\nio_threads = 3\n[[subsystem]]\nnqn = \"nqn.2024-05.com.example:a\"\n\
         [[subsystem.namespace]]\nnsid = 1\nbackend = \"file:disk\"\n\
         [[subsystem.namespace]]\nnsid = 2\nbackend = \"mem:1MiB\"\n"
    );
    let path = dir.path().join("pilotlight.toml");
    std::fs::write(&path, config).unwrap();
    let message = json(&["--config", path.to_str().unwrap()]);
    let storage = message["sections"].as_array().unwrap().iter().find(|section| section["name"] == "storage").unwrap();
    let aio = storage["rows"].as_array().unwrap().iter().find(|row| row["item"] == "Linux AIO").unwrap();
    if aio["mark"] == "missing" {
        println!("skipped: this kernel has no Linux AIO");
        return;
    }
    assert_eq!(aio["value"]["channels_needed"], 3, "three I/O threads, one file");
}

#[test]
fn impossible_values_are_refused() {
    for (args, word) in [
        (&["--cores", "8191"] as &[&str], "core 8191"),
        (&["--cores", "none"], "list of cores"),
        (&["--config", "/no/such/file.toml"], "/no/such/file.toml"),
        (&["--config", "a", "--cores", "0"], "cannot be used with"),
    ] {
        let output = doctor(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}
