//! Runs the program where it was built, and parses a recorded output.

use serde_json::Value as Json;

use super::*;
use crate::record::OperationKind;
use crate::testing::{fixture, outcome, points, run, run_all, run_context, words};

fn configured(keys: &str) -> Read {
    Read::new(toml::from_str(keys).unwrap()).unwrap()
}

/// The built program, or the one in `PILOTLAB`, if it has the command `read`.
fn built() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let configured = std::env::var_os("PILOTLAB").map(PathBuf::from);
    let found = configured.into_iter().chain([target.join("debug/pilotlab"), target.join("release/pilotlab")]);
    let found = found.into_iter().find(|program| program.is_file());
    let Some(program) = found else {
        println!("skipped: pilotlab is not built, and PILOTLAB is not set");
        return None;
    };
    let can = program::output(&program, &["read", "--help"], "").is_ok_and(|help| help.contains("--mechanism"));
    if !can {
        println!("skipped: {} is older than its command read", program.display());
    }
    can.then_some(program)
}

#[test]
fn a_file_is_filled_and_read() {
    let Some(program) = built() else { return };
    let read = configured(&format!(
        "program = '{}'\nmechanism = ['interrupt', 'uring interrupt']\nbs = ['4k', '64k']\nnumjobs = 2",
        program.display()
    ));
    let beside = std::env::current_exe().unwrap(); // on a disk: /tmp may be a tmpfs
    let scratch = tempfile::tempdir_in(beside.parent().unwrap()).unwrap();
    let target = Target::File(scratch.path().join("data"), 3 << 19);
    let context = run_context(scratch.path(), target, 0.1, 0.3);
    assert!(read.tool().unwrap().known);
    drop(run_all(&read.prepare(&context).unwrap(), &context));
    let data = std::fs::read(scratch.path().join("data")).unwrap();
    assert_eq!((data.len(), data.iter().filter(|byte| **byte == 0).count() < 10_000), (3 << 19, true));
    for point in points(&read) {
        let outcome = run(&read.command(&point, &context).unwrap(), &context);
        let record = match read.parse(&point, &context, &outcome) {
            Err(problem) if problem.why.contains("no direct I/O") || problem.why.contains("forbidden here") => {
                println!("skipped: {problem}");
                continue;
            }
            record => record.unwrap_or_else(|problem| panic!("{point:?}: {problem}")),
        };
        let json: Json = serde_json::from_slice(&outcome.stdout).unwrap();
        assert_same(&record, &json);
        assert_eq!(json["settings"]["block_bytes"], if point["bs"] == Value::Word("4k".into()) { 4096 } else { 65536 });
        assert_eq!((&json["settings"]["numjobs"], &json["settings"]["seed"]), (&Json::from(2), &Json::from(7)));
        let (from, to) = record.window_ns.unwrap();
        assert!(from >= 99_000_000 && to - from >= 300_000_000 && to <= outcome.span_ns.1 + SLACK, "{from} {to}");
        assert_eq!(record.tool.version, read.tool().unwrap().version);
        assert!(record.warnings.is_empty(), "{:?}", record.warnings);
        assert_eq!(read.mechanism(&point).unwrap().to_string(), point["mechanism"].to_string());
    }
    assert_eq!(std::fs::read(scratch.path().join("data")).unwrap(), data, "the file is unchanged");
}

/// Tolerance of the wall clock against the monotonic clock.
const SLACK: u64 = 5_000_000;

/// Compares every field with the JSON.
fn assert_same(record: &Record, json: &Json) {
    let [class] = record.classes.as_slice() else { panic!("one class: {record:?}") };
    let (read, of) = (&json["read"], &json["read"]["latency"]);
    assert_eq!((&class.kind, class.counted()), (&OperationKind::Read, read["ios"].as_u64().unwrap()));
    assert_eq!((class.bytes, class.runtime_ns), (read["data_bytes"].as_u64(), json["elapsed_ns"].as_u64().unwrap()));
    let latency = &class.latency;
    assert_eq!((latency.mean_ns, latency.deviation_ns), (of["mean_ns"].as_f64(), of["stddev_ns"].as_f64()));
    assert_eq!((latency.least_ns, latency.greatest_ns), (of["min_ns"].as_u64(), of["max_ns"].as_u64()));
    let buckets = read["histogram_ns"].as_array().unwrap();
    assert_eq!(latency.histogram.len(), buckets.len());
    for ((ns, count), bucket) in latency.histogram.iter().zip(buckets) {
        assert_eq!((Some(*ns), Some(*count)), (bucket[0].as_u64(), bucket[1].as_u64()));
    }
    // The printed quantiles are those of the histogram.
    for (ppm, key) in [(500_000, "p50_ns"), (990_000, "p99_ns"), (999_900, "p99_99_ns")] {
        assert_eq!(crate::latency::quantile(&latency.histogram, ppm), of[key].as_u64(), "{key}");
    }
    let switches = &json["context_switches"];
    let (waited, taken) =
        (switches["voluntary_count"].as_f64().unwrap(), switches["involuntary_count"].as_f64().unwrap());
    assert_eq!(record.extra["context_switches_count"], waited + taken);
    assert_eq!(record.extra["voluntary_context_switches_count"], waited);
    for (share, time) in [("cpu_user_percent", "cpu_user_ns"), ("cpu_system_percent", "cpu_system_ns")] {
        let cpu = json[time].as_f64().unwrap() / json["elapsed_ns"].as_f64().unwrap() * 100.0;
        assert!((record.extra[share] - cpu).abs() < 1e-9, "{share}");
    }
    assert!(json["read"]["latency"]["p90_ns"].is_u64() && json["queue"]["io_poll"].as_u64().is_none_or(|on| on < 2));
}

#[test]
fn a_recorded_output_is_parsed() {
    let text = fixture("read/0.1.0.json");
    let json: Json = serde_json::from_str(&text).unwrap();
    let began_ms = json["began_wall_ns"].as_u64().unwrap() / 1_000_000 - 250;
    let record = output::record(&outcome(&text, began_ms), "0.1.0".into()).unwrap();
    assert_same(&record, &json);
    let (from, to) = record.window_ns.unwrap();
    assert!((250_000_000..251_000_000).contains(&from) && to - from == json["elapsed_ns"].as_u64().unwrap());
    let moved = output::record(&outcome(&text, began_ms + 10_000), "0.1.0".into()).unwrap();
    assert!(moved.window_ns.is_none() && moved.warnings.iter().any(|warning| warning.contains("clock")));
}

#[test]
fn command_lines() {
    let keys =
        "program = 'pilotlab'\nmechanism = 'uring hybrid'\nbs = '16k'\nnumjobs = 4\noffset = '1m'\nsize = 1048576
        rw = 'randread'\noptions = { direct = true, thread = true }";
    let read = configured(keys);
    let at = |target| run_context(Path::new("/s"), target, 0.5, 10.0);
    let [point] = points(&read).try_into().unwrap();
    let device = at(Target::Device("/dev/nvme0n1".into()));
    let expected = "pilotlab read /dev/nvme0n1 --json --mechanism=uring hybrid --bs=16k --numjobs=4 --runtime=10000000us \
        --ramp_time=500000us --randseed=7 --offset=1m --size=1048576";
    assert_eq!(words(&read.command(&point, &device).unwrap()).join(" "), expected);
    assert!(read.prepare(&device).unwrap().is_empty(), "a device is never written");
    let file = at(Target::File("/d/a file".into(), 4096));
    let fill = "dd|if=/dev/urandom|of=/d/a file|bs=1M|count=4096|iflag=count_bytes,fullblock|conv=fsync";
    assert_eq!(words(&read.prepare(&file).unwrap()[0]).join("|"), fill);
    assert!(configured("fill = false").prepare(&file).unwrap().is_empty());
    assert_eq!(read.mechanism(&point), Mechanism::read("uring hybrid").ok());
    for nowhere in [Target::None, Target::Folder("/d".into())] {
        assert_eq!(read.prepare(&at(nowhere.clone())).unwrap_err().at, "target");
        assert_eq!(read.command(&point, &at(nowhere)).unwrap_err().at, "target");
    }
    assert_eq!(read.command(&point, &RunContext { duration_s: 0.0, ..device }).unwrap_err().at, "duration");
}

#[test]
fn invalid_keys_are_refused_by_name() {
    for (keys, at) in [
        ("mechanism = ['interrupt', 'poll']", "workload.mechanism"),
        ("mechanism = []", "workload.mechanism"),
        ("bs = ['4k', '4k']", "workload.bs"),
        ("rw = 'randwrite'", "workload.rw"),
        ("options = { direct = false }", "workload.options.direct"),
        ("options = { iodepth = 4 }", "workload.options.iodepth"),
    ] {
        assert_eq!(Read::new(toml::from_str(keys).unwrap()).unwrap_err().at, at, "{keys}");
    }
    let missing = configured("program = '/nowhere'").tool().unwrap_err();
    assert!(missing.help.contains("workload.program"));
    assert!(configured("program = '/bin/true'").tool().unwrap_err().why.contains("--version prints"));
}

#[test]
fn failures_and_missing_fields_are_named() {
    let text = fixture("read/0.1.0.json");
    let read = |outcome: &Outcome| output::record(outcome, String::new()).unwrap_err();
    let problem = read(&outcome(&text.replacen("\"min_ns\"", "\"other\"", 1), 0));
    assert!(problem.at.contains("read.latency") && problem.why.contains("min_ns"), "{problem}");
    let mut ended = outcome("", 0);
    ended.status = Some(1);
    ended.stderr = b"error: io_uring: this kernel does not have it\n".to_vec();
    assert!(read(&ended).why.contains("exit status 1; output: error: io_uring: this kernel does not"));
    let newer = output::record(&outcome(&text.replacen("\"format\":1", "\"format\":2", 1), 0), String::new()).unwrap();
    assert!(!newer.tool.known && newer.warnings.iter().any(|warning| warning.contains("format 2")));
}
