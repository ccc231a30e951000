//! Runs `db_bench` where it is installed, and parses recorded outputs whose values were read by hand.

use std::path::Path;

use super::*;
use crate::record::OperationKind;
use crate::testing::{fixture, is_installed, outcome, point, points, run, run_all, run_context, words};

fn configured(keys: &str) -> DbBench {
    DbBench::new(toml::from_str(keys).unwrap()).unwrap()
}

fn in_folder(scratch: &Path) -> RunContext {
    run_context(scratch, Target::Folder(scratch.into()), 1.0, 1.0)
}

/// The numbers after `key` in all lines, in order; independent of the adapter's parser.
fn all_behind(text: &str, key: &str) -> Vec<f64> {
    let number = |rest: &str| rest.split_whitespace().next().unwrap().parse().unwrap();
    text.split(key).skip(1).map(number).collect()
}

/// Compares counts and latencies of the classes with the text, in the order of its blocks.
fn assert_same(record: &Record, stdout: &str) {
    let blocks = stdout.split_once("Microseconds per").unwrap().1;
    let (counts, means, deviations) =
        (all_behind(blocks, "Count:"), all_behind(blocks, "Average:"), all_behind(blocks, "StdDev:"));
    let (least, greatest, p99) = (all_behind(blocks, "Min:"), all_behind(blocks, "Max:"), all_behind(blocks, " P99:"));
    assert_eq!(record.classes.len(), counts.len());
    for (i, class) in record.classes.iter().enumerate() {
        assert_eq!(class.counted() as f64, counts[i]);
        assert_eq!(class.latency.mean_ns, Some(means[i] * 1e3));
        assert_eq!(class.latency.deviation_ns, Some(deviations[i] * 1e3));
        assert_eq!(class.latency.least_ns, Some(least[i] as u64 * 1_000));
        assert_eq!(class.latency.greatest_ns, Some(greatest[i] as u64 * 1_000));
        let printed = class.latency.printed.iter().find(|(ppm, _)| *ppm == 990_000).unwrap().1;
        assert_eq!(printed, (p99[i] * 1e3).round() as u64);
    }
}

#[test]
fn installed_db_bench_is_loaded_run_and_parsed() {
    let keys =
        "benchmark = ['readrandomwriterandom', 'readrandom', 'fillrandom']\nvalue_size = 200\nthreads = 2\nnum = 5000
        options = { statistics = true, compression_type = 'none' }";
    let db_bench = configured(keys);
    if !is_installed(&db_bench) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let context = in_folder(scratch.path());
    run_all(&db_bench.prepare(&context).unwrap(), &context);
    for point in points(&db_bench) {
        let fills = point["benchmark"] == Value::Word("fillrandom".into());
        if point["benchmark"] == Value::Word("readrandomwriterandom".into()) {
            run_all(&db_bench.before(&point, &context).unwrap(), &context);
        }
        let outcome = run(&db_bench.command(&point, &context).unwrap(), &context);
        let record =
            db_bench.parse(&point, &context, &outcome).unwrap_or_else(|problem| panic!("{point:?}: {problem}"));
        let stdout = String::from_utf8_lossy(&outcome.stdout);
        assert_same(&record, &stdout);
        assert_eq!(record.tool, db_bench.tool().unwrap());
        let (from, to) = record.window_ns.unwrap();
        assert_eq!((to - from) / 1_000_000, record.classes[0].runtime_ns / 1_000_000);
        assert!(to <= outcome.span_ns.1 + 1_000_000 && record.extra["block_cache_misses_count"] >= 0.0);
        // It ends after the first operation past the deadline, which on a busy machine may be much later.
        let runtime_ns = record.classes[0].runtime_ns;
        assert!(fills || (900_000_000..outcome.span_ns.1 + 1_000_000).contains(&runtime_ns), "{runtime_ns}");
        assert!(fills || record.warnings.iter().all(|warning| warning.starts_with("WARNING")), "{:?}", record.warnings);
        assert!(fills || record.extra.get("found_percent").is_none_or(|percent| *percent == 100.0));
    }
}

#[test]
fn recorded_outputs_of_both_versions_are_parsed() {
    for (version, began_ms, log, seconds_ms, operations, p9999_ns, misses) in [
        ("7.8.3", 1_795_321_979_032, LOG_7, 1_012, [379_800, 42_198], 0, 61.0),
        ("9.10.0", 1_795_321_980_348, LOG_9, 1_006, [342_900, 38_098], 0, 63.0),
    ] {
        let mut outcome = outcome(&fixture(&format!("db_bench/{version}.stdout")), began_ms);
        outcome.stderr = fixture(&format!("db_bench/{version}.stderr")).into_bytes();
        let record = output::record("readrandomwriterandom", &outcome, log).unwrap();
        assert_eq!(record.tool.version, version);
        assert_same(&record, &String::from_utf8_lossy(&outcome.stdout));
        let kinds: Vec<&OperationKind> = record.classes.iter().map(|class| &class.kind).collect();
        assert_eq!(kinds, [&OperationKind::Operation("read".into()), &OperationKind::Operation("write".into())]);
        for (class, operations) in record.classes.iter().zip(operations) {
            assert_eq!((class.counted(), class.runtime_ns), (operations, seconds_ms * 1_000_000));
            let ppm: Vec<u32> = class.latency.printed.iter().map(|(ppm, _)| *ppm).collect();
            assert_eq!(ppm, [500_000, 750_000, 990_000, 999_000, 999_900]);
            assert!(class.latency.printed.last().unwrap().1 > p9999_ns);
        }
        let (from, to) = record.window_ns.unwrap();
        assert_eq!(to - from, seconds_ms * 1_000_000);
        assert_eq!(record.extra["block_cache_misses_count"], misses);
        assert_eq!(record.warnings, ["WARNING: Assertions are enabled; benchmarks unnecessarily slow"]);
    }
}

const LOG_7: &str = "\
2026/11/22-04:33:00.095676 11266 [db/db_impl/db_impl.cc:496] Shutdown: canceling all background work
2026/11/22-04:33:00.103164 11266 [db/db_impl/db_impl.cc:704] Shutdown complete
";
const LOG_9: &str = "\
2026/11/22-04:33:01.422770 11332 [db/db_impl/db_impl.cc:499] Shutdown: canceling all background work
2026/11/22-04:33:01.427558 11332 [db/db_impl/db_impl.cc:709] Shutdown complete
";

#[test]
fn the_window_ends_with_the_shutdown_of_the_database() {
    let outcome = outcome(&fixture("db_bench/7.8.3.stdout"), 1_795_321_979_032);
    let record = output::record("readrandomwriterandom", &outcome, LOG_7).unwrap();
    // 1795321980.095676 less 1795321979.032, and 1.012 s before that
    assert_eq!(record.window_ns, Some((51_676_000, 1_063_676_000)));
    let without = output::record("readrandomwriterandom", &outcome, "").unwrap();
    assert!(without.window_ns.is_none() && without.warnings.iter().any(|warning| warning.contains("LOG")));
}

#[test]
fn command_lines() {
    let keys = "benchmark = ['readrandom', 'fillrandom']\nvalue_size = [100, 400]\nnum = 1000
        options = { cache_size = [0, 4096], use_direct_reads = true }";
    let (db_bench, context) = (configured(keys), in_folder(Path::new("/d")));
    let loads: Vec<String> = db_bench.prepare(&context).unwrap().iter().map(|step| words(step).join(" ")).collect();
    let expected = "db_bench --benchmarks=fillseq --db=/d/db_bench-400 --use_existing_db=0 --num=1000 --key_size=16 \
        --value_size=400 --seed=7 --use_direct_reads=1";
    assert_eq!(
        (loads.len(), loads[1].as_str()),
        (2, expected),
        "an option with several values does not apply to loading"
    );
    let of = |benchmark: &str| {
        let knobs =
            [("value_size", Value::Integer(400)), ("threads", Value::Integer(4)), ("cache_size", Value::Integer(0))];
        let mut point = point(knobs);
        point.insert("use_direct_reads".into(), Value::Switch(true));
        point.insert("benchmark".into(), Value::Word(benchmark.into()));
        point
    };
    let expected = "db_bench --benchmarks=readrandom --db=/d/db_bench-400 --use_existing_db=1 --num=1000 --key_size=16 \
        --value_size=400 --seed=7 --threads=4 --duration=1 --histogram=1 --cache_size=0 --use_direct_reads=1";
    assert_eq!(words(&db_bench.command(&of("readrandom"), &context).unwrap()).join(" "), expected);
    let fills = words(&db_bench.command(&of("fillrandom"), &context).unwrap()).join(" ");
    assert!(fills.contains("--db=/d/db_bench-fill --use_existing_db=0"), "{fills}");
    assert_eq!(db_bench.before(&of("readrandom"), &context).unwrap().len(), 1, "the ramp");
    assert!(db_bench.before(&of("fillrandom"), &context).unwrap().is_empty());
    let reloading = configured(&format!("{keys}\n").replace("num", "reload = true\nnum"));
    assert!(reloading.prepare(&context).unwrap().is_empty());
    assert_eq!(reloading.before(&of("readrandom"), &context).unwrap().len(), 2, "loading, and the ramp");
}

#[test]
fn invalid_keys_are_refused_by_name() {
    for (keys, at) in [
        ("benchmark = 'readrandom,stats'", "workload.benchmark"),
        ("benchmark = []", "workload.benchmark"),
        ("benchmark = 'readseq'\noptions = { num = 5 }", "workload.options.num"),
    ] {
        assert_eq!(DbBench::new(toml::from_str(keys).unwrap()).unwrap_err().at, at);
    }
    let db_bench = configured("benchmark = 'readseq'");
    let on_file = run_context(Path::new("/s"), Target::File("/f".into(), 1), 0.0, 1.0);
    assert_eq!(db_bench.prepare(&on_file).unwrap_err().at, "target");
    let endless = run_context(Path::new("/s"), Target::Folder("/f".into()), 0.0, 0.0);
    assert_eq!(db_bench.command(&points(&db_bench)[0], &endless).unwrap_err().at, "duration");
}

#[test]
fn failures_and_missing_fields_are_named() {
    let text = fixture("db_bench/7.8.3.stdout");
    let read = |text: &str| output::record("readrandomwriterandom", &outcome(text, 0), "");
    assert_eq!(read("DB path: [/tmp]\n").unwrap_err().at, "readrandomwriterandom");
    assert!(read(&text.replace(" operations;", ";")).unwrap_err().at.contains("operations"));
    assert!(read(&text.replace("StdDev", "Spread")).unwrap_err().at.contains("StdDev"));
    let mut ended = outcome("open error: Invalid argument: no such folder\n", 0);
    ended.status = Some(1);
    let problem = output::record("readrandom", &ended, "").unwrap_err();
    assert!(problem.why.contains("exit status 1") && problem.why.contains("no such folder"), "{problem}");
}

#[test]
fn an_empty_database_and_an_unknown_version_are_warnings() {
    let line =
        "readrandom   :  0.364 micros/op 2749753 ops/sec 0.364 seconds 1000000 operations; (0 of 1000000 found)\n";
    let scratch = tempfile::tempdir().unwrap();
    let (db_bench, context) = (configured("benchmark = 'readrandom'"), in_folder(scratch.path()));
    let mut outcome = outcome(line, 0);
    outcome.stderr = b"RocksDB:    version 10.1.2\n".to_vec();
    let record = db_bench.parse(&points(&db_bench)[0], &context, &outcome).unwrap();
    assert_eq!(record.classes[0].kind, OperationKind::Operation("readrandom".into()));
    assert!(!record.tool.known);
    for text in ["all reads missed", "10.1.2", "ended before the requested", "LOG"] {
        assert!(record.warnings.iter().any(|warning| warning.contains(text)), "{text}: {:?}", record.warnings);
    }
}
