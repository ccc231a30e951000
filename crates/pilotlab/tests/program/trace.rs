//! `pilotlab trace`: output, files and exit codes.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::process::{run, text};

fn tpcc() -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../trace/tests/data/mqsim/tpcc-small.trace.gz"].iter().collect();
    path.to_str().expect("text").to_owned()
}

fn trace(args: &[&str]) -> Output {
    run(&[&["trace"], args].concat())
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_real_trace_is_described_as_text_and_json() {
    let table = text(&trace(&[&tpcc()]).stdout);
    for wanted in ["(mqsim)", "6999, 56.95 MiB; 51278.9 IOPS", "82000", "volumes       16", "quartile 3"] {
        assert!(table.contains(wanted), "no `{wanted}` in\n{table}");
    }
    let report = json(&trace(&[&tpcc(), "--json"]));
    assert_eq!(report["statistics"]["requests"], 6999);
    assert_eq!(report["statistics"]["windows"][0]["peak_rate_iops"], 82_000.0);
    assert_eq!((&report["version"], &report["format"]), (&1.into(), &"mqsim".into()));
}

#[test]
fn a_gap_that_dominates_the_span_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let early = "0,R,0,512\n";
    let late = "659000000,R,0,512\n659001000,R,0,512\n659002000,R,0,512\n";
    let last = "1000,R,0,512\n2000,R,0,512\n659002000,R,0,512\n";
    for (rows, expected) in [
        (early.to_owned() + late, Some("--set trace.begin=659000ms")),
        (early.to_owned() + last, Some("--set duration=3ms")),
        (late.to_owned(), None),
    ] {
        let file = write(dir.path(), "a.csv", &format!("time_us,op,offset,bytes\n{rows}"));
        let table = text(&trace(&[&file]).stdout);
        assert_eq!(table.contains("without a request"), expected.is_some(), "{table}");
        assert!(table.contains(expected.unwrap_or_default()), "{table}");
    }
}

#[test]
fn malformed_lines_are_reported_and_strict_stops_at_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.csv", "time_us,op,offset,bytes\n1,R,0,512\nnonsense\n2,W,0,512\n");
    let output = trace(&[&file]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("line 3 has 1 fields"), "{}", text(&output.stdout));
    let strict = trace(&[&file, "--strict"]);
    assert_eq!(strict.status.code(), Some(1));
    assert!(text(&strict.stderr).contains("line 3"), "{}", text(&strict.stderr));
}

#[test]
fn files_that_are_not_traces_are_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.txt", "hello\n");
    let two_times = write(dir.path(), "two.csv", "time_ns,time_s,op,offset,bytes\n1,1,R,0,512\n");
    let with_mark = write(dir.path(), "mark.csv", "\u{feff}time_ns,op,offset,bytes\n1,R,0,512\n");
    let issued = write(dir.path(), "issued.txt", "8,0 1 1 0.0 697 D W 8 + 8 [fio]\n");
    let heading = write(dir.path(), "heading.csv", "time_s,op,offset,bytes\n");
    let usual = write(dir.path(), "usual.csv", "timestamp_us;op;lba;size_bytes\n1,5;R;0;512\n");
    let no_unit = write(dir.path(), "no-unit.csv", "ts,op,offset,length\n1,R,0,512\n");
    let lacking = write(dir.path(), "lacking.csv", "time_us,op,offset\n1,R,0\n");
    let packed = write(dir.path(), "a.xz", "");
    std::fs::write(&packed, b"\xfd7zXZ\0\0\x04").unwrap();
    let disksim = write(dir.path(), "disksim.txt", "0.5 0 8 8 1\n0.75 0 16 8 0\n");
    let spc = write(dir.path(), "a.spc", "0,20941264,8192,W,0.551706\n0,20939840,8192,R,0.554041\n");
    let tpcc = tpcc();
    for (args, code, expected) in [
        (vec![file.as_str()], 2, "--format"),
        (vec![file.as_str(), "--format", "snia"], 2, "blkparse"),
        (vec!["/no/such/file"], 1, "/no/such/file"),
        (vec!["--generate", "alibaba", "--hours", "0"], 2, "--hours"),
        (vec![&tpcc, "--burst-bin", "0s"], 2, "at least 1us"),
        (vec![&tpcc, "--burst-background", "0"], 2, "1..=1000000"),
        (vec![&tpcc, "--burst-factor", "nan"], 2, "above 0"),
        (vec![&tpcc, "-o", "x.bz2"], 2, ".gz or .zst"),
        (vec![&two_times], 2, "`time_ns` and `time_s`"),
        (vec![&two_times, "--format", "csv"], 2, "remove one"),
        (vec![&with_mark], 0, ""),
        (vec![&issued], 1, "--blkparse-action issued"),
        (vec![&issued, "--blkparse-action", "issued"], 0, ""),
        (vec![&heading, "--json"], 1, "no request as csv"),
        (vec![&usual], 0, ""),
        (vec![&no_unit], 2, "--time-unit"),
        (vec![&no_unit, "--time-unit", "us"], 0, ""),
        (vec![&lacking, "--format", "csv"], 2, "lacks a column for the size"),
        (vec![&packed], 2, "xz -dk"),
        (vec![&disksim], 2, "--format mqsim --time-unit ms"),
        (vec![&disksim, "--format", "mqsim", "--time-unit", "ms"], 0, ""),
        (vec![&spc], 0, ""),
        (vec![], 2, "--generate"),
    ] {
        let output = trace(&args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(expected), "{args:?}: {}", text(&output.stderr));
    }
}

fn write(dir: &Path, name: &str, content: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_surrogate_is_reproducible_and_survives_a_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let generate = |name: &str, seed: &str| {
        let output = path(name);
        let args = ["--generate", "tencent", "--hours", "0.05", "--rate-iops", "300", "--seed", seed, "--json"];
        let report = json(&trace(&[&args[..], &["-o", &output]].concat()));
        (report["statistics"].clone(), std::fs::read(output).unwrap())
    };
    let (drawn, first) = generate("a.csv.zst", "7");
    assert_eq!(generate("b.csv.zst", "7").1, first);
    assert_ne!(generate("c.csv.zst", "8").1, first);
    let read = &json(&trace(&[&path("a.csv.zst"), "--json"]))["statistics"];
    for key in ["requests", "bytes", "read_share", "read_sizes", "working_set", "volumes"] {
        assert_eq!(read[key], drawn[key], "{key}");
    }
    assert!(!dir.path().join("a.csv.zst.part").exists());
}
