//! `pilotlab run`: valid options for each kind of file, and the server program that a workload starts.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{run, text};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn file(name: &str) -> String {
    format!("{ROOT}/papers/{name}")
}

#[test]
fn options_of_the_other_kind_are_refused_by_name() {
    let (quick, fig3, claims) =
        (format!("{ROOT}/experiments/quick.toml"), file("sandman/fig3.toml"), file("claims-map.toml"));
    for (args, expected) in [
        (vec![&quick[..], "--smoke"], "--smoke applies to simulated experiments only"),
        (vec![&fig3, "--no-baseline"], "--no-baseline applies to experiments on a real machine only"),
        (vec![&fig3, "--program", "x"], "--program applies to experiments on a real machine only"),
        (vec![&quick, "--program", "x"], "only a workload of kind \"load\""),
        (vec![&claims], "is not an experiment"),
    ] {
        let output = run(&[&["run"], &args[..]].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.contains(expected), "{args:?}: {message}");
    }
}

#[test]
fn a_dry_run_of_a_simulated_experiment_prints_its_runs_and_computes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let plan = |file: &str, more: &[&str]| {
        let output = run(&[&["run", &self::file(file), "--dry-run", "--out", out.to_str().unwrap()], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let json = |file: &str, more: &[&str]| -> serde_json::Value {
        serde_json::from_str(&plan(file, &[more, &["--json"]].concat())).unwrap()
    };
    let fig3 = json("sandman/fig3.toml", &["--at", "rate=10000", "--repeats", "5"]);
    assert_eq!((&fig3["experiment"], &fig3["runs"], &fig3["sampled_replays"]), (&"fig3".into(), &35.into(), &0.into()));
    assert!(fig3["cpu_s"].as_f64().unwrap() > 0.1, "{fig3}");
    let replay = json("sandman/fig15-alibaba.toml", &["--smoke"]);
    assert!(replay["runs"].as_u64().unwrap() > 1 && replay["sampled_replays"] == replay["runs"], "{replay}");
    let words = plan("sandman/fig3.toml", &["--smoke", "--at", "rate=10000"]);
    assert!(words.starts_with("fig3: 14 runs, about "), "{words}");
    assert!(!out.exists());
    for (file, more, expected) in [
        ("sandman/fig3.toml", &["--shard", "1/2", "--out", "x"][..], "omit --shard"),
        ("all.toml", &[], "name one of its experiments"),
    ] {
        let output = run(&[&["run", &self::file(file), "--dry-run"], more].concat());
        assert!(output.status.code() == Some(2) && text(&output.stderr).contains(expected), "{file}: {output:?}");
    }
}

/// A free port of a loopback address that only this process uses.
fn address() -> SocketAddr {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    TcpListener::bind((Ipv4Addr::new(127, a + 1, b, c), 0)).unwrap().local_addr().unwrap()
}

/// One point of 0.2 s of Pilotlight's own load on its own server.
fn experiment(folder: &Path) -> String {
    let address = address();
    let path = folder.join("e.toml");
    let text = format!(
        "title = 'load'\nduration = '200ms'\nrepeats = 1\ntarget = {{ nothing = true }}\n[[sensor]]\nsensor = 'cputime'\n\
         [workload]\nkind = 'load'\noptions = {{ yield = true }}\n[workload.serve]\npolicy = 'interrupt'\n\
         namespace = 'mem:1MiB'\nlisten = '{address}'\noptions = {{ reactors = 1 }}\n"
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The server program beside `pilotlab`, built here because `cargo test -p pilotlab` does not build it. `None` if the build fails, with a
/// reason that is shown even if the test passes.
pub(crate) fn server() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_pilotlab")).with_file_name("pilotlight");
    if !beside.is_file() {
        let release = beside.parent().is_some_and(|folder| folder.ends_with("release"));
        let mut build = Command::new(option_env!("CARGO").unwrap_or("cargo"));
        build.args(["build", "-p", "pilotlight"]).args(release.then_some("--release")).current_dir(ROOT);
        if !build.status().is_ok_and(|status| status.success()) || !beside.is_file() {
            let name = "a_workload_starts_the_server_beside_the_program";
            let _ = writeln!(std::io::stderr(), "skipped: {name}: {} cannot be built", beside.display());
            return None;
        }
    }
    Some(beside)
}

#[test]
fn a_workload_starts_the_server_beside_the_program() {
    if server().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let output = run(&["run", &experiment(folder.path()), "--out", out.to_str().unwrap(), "--no-baseline"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let results = std::fs::read_to_string(out.join("results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["complete"], true);
    assert!(results.to_string().contains("iops"), "{results}");
}

#[test]
fn a_server_of_another_version_is_refused_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("pilotlight");
    std::fs::write(&program, "#!/bin/sh\necho pilotlight 0.0.1\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let experiment = experiment(folder.path());
    let out = folder.path().join("out");
    let with = |path: &str| run(&["run", &experiment, "--out", out.to_str().unwrap(), "--program", path]);
    for (path, expected) in
        [(program.to_str().unwrap(), "is version 0.0.1"), ("/nowhere/pilotlight", "cannot be started")]
    {
        let output = with(path);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(expected) && message.contains("cargo build --release -p pilotlight"), "{message}");
    }
}
