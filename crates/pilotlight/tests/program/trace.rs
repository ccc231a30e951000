//! Replays of traces with `pilotlight load --trace` as a process.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::process::{Server, run, text};

fn tpcc() -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../trace/tests/data/mqsim/tpcc-small.trace.gz"].iter().collect();
    path.to_str().expect("text").to_owned()
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn write(dir: &Path, name: &str, content: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_trace_is_replayed_against_a_server() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--namespace", "mem:16MiB"]);
    let target = server.address().to_string();
    let output = run(&[
        "load",
        "--yield",
        "--target",
        &target,
        "--trace",
        &tpcc(),
        "--speed",
        "0.2",
        "--numjobs",
        "2",
        "--json",
    ]);
    let report = json(&output);
    assert_eq!((&report["trace"]["requests"], &report["trace"]["format"]), (&6999.into(), &"mqsim".into()));
    assert_eq!(report["total"]["ios"], 6999, "no request is larger than a command");
    assert_eq!((&report["total"]["errors"], &report["settings"]["rw"]), (&0.into(), &"trace".into()));
    assert_eq!(report["open_loop"]["unstarted"], 0);
    assert!(report["open_loop"]["late"].is_u64() && report["open_loop"]["start_delay_p99_ns"].is_u64());
    // 136 ms at a fifth of the speed
    assert!(report["elapsed_ns"].as_u64() >= Some(680_000_000), "{}", report["elapsed_ns"]);
    assert_eq!(report["read"]["ios"].as_u64().zip(report["write"]["ios"].as_u64()).map(|(r, w)| r + w), Some(6999));
}

#[test]
fn a_trace_without_requests_is_refused_before_a_connection() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "issued.txt", "8,0 1 1 0.0 697 D W 8 + 8 [fio]\n");
    let output = run(&["load", "--target", "127.0.0.1:1", "--trace", &file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--blkparse-action issued"), "{}", text(&output.stderr));
}

#[test]
fn a_replay_reports_malformed_lines_and_refuses_conflicting_options() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "time_us,op,offset,bytes\n0,R,99999999999,300000\nnonsense\n10,W,512,1\n";
    let file = write(dir.path(), "a.csv", rows);
    let server = Server::start(&["--listen", "127.0.0.1:0", "--namespace", "mem:16MiB"]);
    let target = server.address().to_string();
    let load = |more: &[&str]| run(&[&["load", "--yield", "--target", &target, "--trace", &file], more].concat());
    let output = load(&[]);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}{}", text(&output.stderr));
    for wanted in ["open (trace)", "4 sent, 0 not sent", "2 requests of", "1 malformed", "line 3"] {
        assert!(table.contains(wanted), "no `{wanted}` in\n{table}"); // 300,000 bytes are three commands
    }
    assert_eq!(load(&["--strict"]).status.code(), Some(1));
    for (more, expected) in
        [(vec!["--verify"], "--verify"), (vec!["--rate_iops", "5"], "--rate_iops"), (vec!["--speed", "0"], "--speed")]
    {
        let refused = load(&more);
        assert_eq!(refused.status.code(), Some(2), "{more:?}");
        assert!(text(&refused.stderr).contains(expected), "{more:?}: {}", text(&refused.stderr));
    }
}
