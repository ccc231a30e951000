//! `pilotlab read` on a file on this machine's disk: output and exit codes.

use std::io::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::process::{run, text};

/// A file of 1 MiB on a disk (/tmp may be memory).
fn file() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(&vec![7; 1 << 20]).unwrap();
    file.as_file().sync_all().unwrap();
    file
}

fn read(path: &Path, args: &str) -> std::process::Output {
    let path = path.to_str().unwrap();
    let all: Vec<&str> = ["read", path].into_iter().chain(args.split_whitespace()).collect();
    run(&all)
}

/// Whether this machine's disk has no direct I/O.
fn is_lacking(said: &str) -> bool {
    let lacks = said.contains("no direct I/O");
    if lacks {
        eprintln!("SKIPPED: {said}");
    }
    lacks
}

#[test]
fn json_has_stable_keys_and_the_file_is_unchanged() {
    let file = file();
    let before = file.as_file().metadata().unwrap().modified().unwrap();
    let output =
        read(file.path(), "--numjobs 2 --bs 8k --runtime 100ms --ramp_time 20ms --randseed 5 --size 512k --json");
    if is_lacking(&text(&output.stderr)) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["format"], &report["mechanism"]), (&Value::from(1), &Value::from("interrupt")));
    let requested = &report["settings"];
    for (key, value) in [("block_bytes", 8192), ("numjobs", 2), ("runtime_ns", 100_000_000), ("ramp_ns", 20_000_000)] {
        assert_eq!(requested[key], value, "{key}");
    }
    for (key, value) in [("offset_bytes", 0), ("size_bytes", 512 << 10), ("seed", 5)] {
        assert_eq!(requested[key], value, "{key}");
    }
    assert_eq!(
        (&requested["path"], &requested["calls"]),
        (&Value::from(file.path().to_str()), &Value::from("preadv2"))
    );
    let (reads, ios) = (&report["read"], report["read"]["ios"].as_u64().unwrap());
    assert!(ios > 0 && reads["data_bytes"] == ios * 8192 && report["elapsed_ns"].as_u64() >= Some(100_000_000));
    for key in ["rate_iops", "data_bytes_per_s"] {
        assert!(reads[key].as_f64() > Some(0.0), "{key}");
    }
    for key in ["min_ns", "mean_ns", "stddev_ns", "p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "p99_99_ns", "max_ns"] {
        assert!(reads["latency"][key].is_number(), "{key}");
    }
    assert!(reads["histogram_ns"].as_array().is_some_and(|buckets| buckets.iter().all(|bucket| bucket[1].is_u64())));
    for key in ["voluntary_count", "involuntary_count"] {
        assert!(report["context_switches"][key].is_u64(), "{key}");
    }
    for key in ["began_wall_ns", "cpu_user_ns", "cpu_system_ns"] {
        assert!(report[key].is_u64(), "{key}");
    }
    assert!(report["warnings"].as_array().is_some_and(Vec::is_empty) && report["queue"].is_object());
    assert_eq!(file.as_file().metadata().unwrap().modified().unwrap(), before, "it was written to");
}

#[test]
fn the_table_has_the_cost_of_a_read() {
    let file = file();
    let output = read(file.path(), "--runtime 50ms");
    if is_lacking(&text(&output.stderr)) {
        return;
    }
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}{}", text(&output.stderr));
    for expected in [
        "4096 bytes at a time by preadv2, 1 thread",
        "latency ",
        "p99.9 ",
        "context switches ",
        "us per read",
        "io_poll",
    ] {
        assert!(table.contains(expected), "{expected}: {table}");
    }
}

#[test]
fn unreadable_files_give_an_exit_code_and_a_hint() {
    let file = file();
    for (path, args, code, expected) in [
        (file.path(), "--mechanism poll", 2, "uring hybrid"),
        (file.path(), "--bs 1000", 2, "logical block size"),
        (file.path(), "--bs 2m", 2, "are less than one read of 2097152"),
        (file.path(), "--runtime 0", 2, "must be above 0"),
        (Path::new("/dev/null"), "", 1, "neither a block device nor a file"),
        (Path::new("/no/such"), "", 1, "No such file"),
    ] {
        let output = read(path, args);
        let printed = text(&output.stderr);
        if !is_lacking(&printed) {
            assert_eq!(output.status.code(), Some(code), "{args}: {printed}");
            assert!(printed.contains(expected) && output.stdout.is_empty(), "{args}: {printed}");
        }
    }
}
