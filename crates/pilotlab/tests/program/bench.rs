//! `pilotlab run` on this machine: plan, run, interruption and resumption.

use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::process::{run, spawn, text};

/// Four points of 0.25 s; each command logs its process ID.
pub(crate) fn experiment(folder: &Path) -> String {
    let (file, log) = (folder.join("e.toml"), folder.join("pids"));
    let text = format!(
        r#"
title = "naps"
repeats = 1
target = {{ nothing = true }}
[[sensor]]
sensor = "cputime"
[workload]
kind = "command"
argv = ["sh", "-c", "echo $$ >> {}; sleep 0.25; echo {{depth}}"]
knobs = {{ depth = [1, 2, 3, 4] }}
metric = [{{ name = "said", unit = "count", regex = "([0-9]+)" }}]
"#,
        log.display()
    );
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn the_plan_lists_points_commands_and_time_without_running() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["run", &experiment(folder.path()), "--dry-run"]);
    let plan = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for expected in ["4 points", "depth=3", "sleep 0.25; echo 3", "round 0:", "takes as long as its commands do"] {
        assert!(plan.contains(expected), "{expected} in {plan}");
    }
    let entries: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(entries.len(), 1, "only the experiment");
}

#[test]
fn errors_name_the_nearest_valid_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = experiment(folder.path());
    let wrong = std::fs::read_to_string(&file).unwrap().replace("knobs =", "nobs =");
    std::fs::write(&file, wrong).unwrap();
    let output = run(&["run", &file]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("workload.nobs") && error.contains("did you mean `knobs`?"), "{error}");
    let unknown = "title = 't'\n[workload]\nkind = 'command'\nargv = ['true', '{zzz}']\n";
    std::fs::write(&file, unknown).unwrap();
    let output = run(&["run", &file]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("workload.argv") && error.contains("{zzz}"), "{error}");
}

#[test]
fn an_interrupted_run_can_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (experiment(folder.path()), folder.path().join("out"));
    let out = out.to_str().unwrap();
    let mut child = spawn(&["run", &file, "--out", out]);
    let pids = folder.path().join("pids");
    let begun = || std::fs::read_to_string(&pids).unwrap_or_default().lines().count();
    let until = Instant::now() + Duration::from_secs(30);
    while begun() < 2 {
        assert!(Instant::now() < until, "nothing is measured");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains(&format!("pilotlab run --resume {out}")), "{said}");
    for pid in std::fs::read_to_string(&pids).unwrap().lines() {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} still runs");
    }

    let output = run(&["run", "--resume", out, "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results["complete"], true);
    let said = |at: usize| results["points"][at]["values"]["said_count"]["mean"].as_f64();
    assert_eq!([said(0), said(1), said(2), said(3)], [1.0, 2.0, 3.0, 4.0].map(Some));
    assert!(begun() <= 5, "what was finished is not measured again");
    assert!(Path::new(out).join("report.html").exists());
}

#[test]
fn a_device_without_confirmation_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = experiment(folder.path());
    let text_of = std::fs::read_to_string(&file).unwrap().replace("{ nothing = true }", "{ device = '/dev/null' }");
    std::fs::write(&file, text_of).unwrap();
    let output = run(&["run", &file, "--i-may-overwrite", "/dev/null"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("not a block device"), "{}", text(&output.stderr));
}
