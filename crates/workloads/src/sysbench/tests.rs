use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;
use crate::Target;
use crate::testing::{fixture, is_installed, outcome, points, run, run_all, run_context, words};

fn configured(keys: &str) -> Sysbench {
    Sysbench::new(toml::from_str(keys).unwrap()).unwrap()
}

/// Compares counts and the histogram's 99th percentile with those that sysbench prints.
fn assert_is_of(record: &Record, stdout: &str) {
    let number_after = |key: &str| -> f64 {
        let rest = stdout.split_once(key).unwrap().1.split_whitespace().next().unwrap();
        rest.trim_end_matches('s').parse().unwrap()
    };
    let class = &record.classes[0];
    assert_eq!(
        (class.counted(), class.counted()),
        (number_after("total number of events:") as u64, number_after("transactions:") as u64)
    );
    assert_eq!(class.runtime_ns, (number_after("total time:") * 1e9).round() as u64);
    assert!((class.latency.mean_ns.unwrap() / 1e6 - number_after("avg:")).abs() < 0.01);
    let mean = number_after("sum:") * 1e6 / class.counted() as f64;
    assert!((class.latency.mean_ns.unwrap() / mean - 1.0).abs() < 1e-12);
    assert_eq!(class.latency.greatest_ns, Some((number_after("max:") * 1e6).round() as u64));
    let (mut seen, mut p99) = (0, 0);
    for (value, count) in &class.latency.histogram {
        seen += count;
        // sysbench rounds the rank half up (its sb_histogram.c).
        p99 = if p99 == 0 && seen >= (class.counted() * 99 + 50) / 100 { *value } else { p99 };
    }
    assert_eq!(seen, class.counted());
    // The percentile has a resolution of 0.01 ms, the buckets of 0.001 ms.
    assert!((p99 as f64 / 1e6 - number_after("99th percentile:")).abs() < 0.006, "{p99}: {stdout}");
    assert_eq!(record.extra["queries_count"], number_after("queries: "));
}

#[test]
fn installed_sysbench_on_postgresql() {
    let sysbench = configured("test = 'oltp_read_write'\nthreads = 2\ntable_size = 500\nsettings = { fsync = false }");
    if !is_installed(&sysbench) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let context = run_context(scratch.path(), Target::Folder(scratch.path().into()), 0.0, 1.0);
    let server = run_all(&sysbench.prepare(&context).unwrap(), &context);
    let [point] = points(&sysbench).try_into().unwrap();
    run_all(&sysbench.before(&point, &context).unwrap(), &context);
    let outcome = run(&sysbench.command(&point, &context).unwrap(), &context);
    let record = sysbench.parse(&point, &context, &outcome).unwrap();
    assert_is_of(&record, &String::from_utf8_lossy(&outcome.stdout));
    assert_eq!(record.tool, sysbench.tool().unwrap());
    run_all(&sysbench.clean_up(&context), &context);
    assert!(!scratch.path().join("pilotlight-postgres").exists());
    drop(server);
}

#[test]
fn a_recorded_output_is_parsed() {
    let text = fixture("sysbench/1.0.20.txt");
    let record = record(&outcome(&text, 0)).unwrap();
    assert_is_of(&record, &text);
    assert!(record.tool.known && record.warnings.is_empty(), "{record:?}");
    let (from, to) = record.window_ns.unwrap();
    assert_eq!((to, to - from), (100_000_000_000, record.classes[0].runtime_ns));
}

#[test]
fn command_lines() {
    let sysbench = configured("programs = '/pg'\nthreads = 4\ntables = 2\noptions = { rate = 50, skip_trx = true }");
    let context = run_context(Path::new("/s"), Target::Folder("/d".into()), 1.0, 9.2);
    let [point] = points(&sysbench).try_into().unwrap();
    let expected = "sysbench oltp_read_write --db-driver=pgsql --pgsql-host=/d/pilotlight-postgres --pgsql-user=postgres \
        --pgsql-db=sbtest --tables=2 --table-size=10000 --threads=4 --time=10 --events=0 --rand-seed=7 \
        --report-interval=0 --histogram=on --percentile=99 --rate=50 --skip_trx=on run";
    assert_eq!(words(&sysbench.command(&point, &context).unwrap()).join(" "), expected);
    assert_eq!(sysbench.before(&point, &context).unwrap().len(), 2);
}

#[test]
fn invalid_keys_and_missing_fields_are_named() {
    for (keys, at) in [
        ("test = 'fileio'", "workload.test"),
        ("options = { threads = 2 }", "workload.options.threads"),
        ("settings = { port = 1 }", "workload.settings.port"),
    ] {
        assert_eq!(Sysbench::new(toml::from_str(keys).unwrap()).unwrap_err().at, at);
    }
    let text = fixture("sysbench/1.0.20.txt");
    let missing = record(&outcome(&text.replace("total time:", "time:"), 0)).unwrap_err();
    assert!(missing.at.contains("total time"), "{missing}");
    let fewer = record(&outcome(&text.replace("Latency histogram", "Histogram"), 0)).unwrap();
    assert!(fewer.warnings.iter().any(|warning| warning.contains("latencies of 0")));
    let mut ended = outcome("FATAL: Connection to database failed\n", 0);
    ended.status = Some(1);
    assert!(record(&ended).unwrap_err().why.contains("Connection to database failed"));
}
