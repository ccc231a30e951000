//! Standard output that cannot be written: a closed pipe, and a full disk.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Output, Stdio};

use signal_hook::consts::SIGPIPE;

use super::process::{command, text};
use super::{bench, results};

/// A pipe without a reader.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// A file on a full disk.
fn full() -> Stdio {
    std::fs::File::options().write(true).open("/dev/full").unwrap().into()
}

fn into(stdout: Stdio, args: &[&str]) -> Output {
    command(args).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
}

/// The common behaviour of all commands.
fn check(args: &[&str]) {
    let output = into(closed(), args);
    let said = text(&output.stderr);
    assert_eq!((output.status.signal(), said.as_str()), (Some(SIGPIPE), ""), "{args:?} into a closed pipe");
    let output = into(full(), args);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?} onto a full disk: {said}");
    assert!(said.contains("cannot write to standard output") && said.lines().count() == 1, "{args:?}: {said}");
}

#[test]
fn every_command() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (results::folder(folder.path(), "a", 1.0), results::folder(folder.path(), "b", 1.5));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let experiment = bench::experiment(folder.path());
    let nothing = folder.path().join("nothing");
    std::fs::create_dir(&nothing).unwrap();
    let (nothing, root) = (nothing.to_str().unwrap(), concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    check(&["--help"]);
    check(&["--version"]);
    check(&["restore", "--dry-run"]);
    check(&["restore", "--dry-run", "--json"]);
    check(&["trace", "--generate", "alibaba", "--hours", "0.001"]);
    check(&["trace", "--generate", "tencent", "--hours", "0.001", "--json"]);
    check(&["check", "results", nothing]);
    check(&["compare", a, b]);
    check(&["compare", a, b, "--json"]);
    check(&["advise", a]);
    check(&["claims", "--root", root, "--results", nothing, "--paper", "pacer", "--table", "verdicts"]);
    check(&["run", &experiment, "--dry-run"]);
}

/// A run whose output pipe is closed completes its results; the commands that read them behave as all others.
#[test]
fn a_run_finishes_after_its_output_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (bench::experiment(folder.path()), folder.path().join("out"));
    let mut command = command(&["run", &file, "--out", out.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap(); // as `head -1` does
    assert!(first.starts_with("sensors"), "{first}");
    assert_eq!(child.wait().unwrap().signal(), Some(SIGPIPE));
    let results = std::fs::read_to_string(out.join("results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["complete"], true);
    assert!(out.join("report.html").exists());
    check(&["report", out.to_str().unwrap()]);
}
