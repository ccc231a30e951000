//! Parser of `db_bench`'s output.
//!
//! One line summarizes the benchmark, and one block for each kind of operation has the latencies:
//!
//! ```text
//! readrandomwriterandom :  9.638 micros/op 207290 ops/sec 2.007 seconds 415998 operations; ( reads:180000 ... )
//! Microseconds per read:
//! Count: 374400 Average: 8.7964  StdDev: 228.52
//! Min: 0  Median: 1.9919  Max: 24121
//! Percentiles: P50: 1.99 P75: 3.04 P99: 8.93 P99.9: 38.40 P99.99: 9697.23
//! ```
//!
//! Each block becomes a class; without blocks, the line does. `MB/s` counts 2^20 bytes of keys and values.

use std::collections::BTreeMap;

use jiff::civil::DateTime;

use crate::record::{Class, Latency, OperationKind, Record, Tool};
use crate::{Outcome, Problem, problem, program, wall};

const BLOCK: &str = "Microseconds per ";
/// RocksDB's counters (with `statistics`) and their columns.
const COUNTERS: [(&str, &str); 9] = [
    ("rocksdb.block.cache.hit", "block_cache_hits_count"),
    ("rocksdb.block.cache.miss", "block_cache_misses_count"),
    ("rocksdb.bytes.read", "user_read_bytes"),
    ("rocksdb.bytes.written", "user_written_bytes"),
    ("rocksdb.wal.bytes", "log_written_bytes"),
    ("rocksdb.flush.write.bytes", "flush_written_bytes"),
    ("rocksdb.compact.read.bytes", "compaction_read_bytes"),
    ("rocksdb.compact.write.bytes", "compaction_written_bytes"),
    ("rocksdb.stall.micros", "stall_us"),
];

/// The summary line.
#[derive(Debug, PartialEq)]
struct Summary {
    seconds: f64,
    operations: u64,
    mib_per_s: Option<f64>,
    found: Option<(u64, u64)>,
}

/// Builds the record of one run of `benchmark`; `log` is RocksDB's `LOG`.
pub(super) fn record(benchmark: &str, outcome: &Outcome, log: &str) -> Result<Record, Problem> {
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    if outcome.status != Some(0) {
        return Err(failed(outcome, &stdout, &stderr));
    }
    let line = stdout.lines().find(|line| line.split_once(':').is_some_and(|(name, _)| name.trim_end() == benchmark));
    let line = line
        .ok_or_else(|| problem(benchmark, format!("no such line in the output; {}", last_lines(&stdout, &stderr))))?;
    let summary = summary(benchmark, line)?;
    let classes = classes(benchmark, &stdout, &summary)?;
    let mut record = Record {
        tool: Tool { name: "db_bench".into(), version: version(&stderr).unwrap_or_default(), known: false },
        window_ns: window(outcome, log, summary.seconds),
        extra: extra(&summary, &stdout),
        warnings: tool_warnings(&stdout),
        classes,
    };
    record.warnings.extend(own_warnings(&record, &summary));
    Ok(record)
}

fn failed(outcome: &Outcome, stdout: &str, stderr: &str) -> Problem {
    let status = outcome.status_text();
    problem("db_bench", format!("{status}; {}", last_lines(stdout, stderr)))
}

/// The last lines without progress reports.
fn last_lines(stdout: &str, stderr: &str) -> String {
    let lines = stdout.lines().chain(stderr.lines()).filter(|line| !line.contains("... finished"));
    let lines: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    format!("output: {}", lines[lines.len().saturating_sub(4)..].join("; "))
}

fn version(stderr: &str) -> Option<String> {
    let line = stderr.lines().find(|line| line.starts_with("RocksDB:"))?;
    program::version_in(line).map(str::to_owned)
}

/// The number before `unit` in words separated by spaces.
fn before<T: std::str::FromStr>(line: &str, unit: &str) -> Option<T> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| word.trim_end_matches(';') == unit)?;
    words.get(at.checked_sub(1)?)?.parse().ok()
}

fn summary(benchmark: &str, line: &str) -> Result<Summary, Problem> {
    let missing = |unit: &str| {
        problem(format!("{benchmark}, {unit}"), format!("not found in db_bench's summary: {}", line.trim()))
    };
    Ok(Summary {
        seconds: before(line, "seconds").ok_or_else(|| missing("seconds"))?,
        operations: before(line, "operations").ok_or_else(|| missing("operations"))?,
        mib_per_s: before(line, "MB/s"),
        found: found(line),
    })
}

/// `(180 of 200 found)`.
fn found(line: &str) -> Option<(u64, u64)> {
    let words: Vec<&str> = line.rsplit_once('(')?.1.trim_end_matches(')').split_whitespace().collect();
    let [found, "of", all, "found"] = words[..] else { return None };
    Some((found.parse().ok()?, all.parse().ok()?))
}

fn classes(benchmark: &str, stdout: &str, summary: &Summary) -> Result<Vec<Class>, Problem> {
    let runtime_ns = (summary.seconds * 1e9).round() as u64;
    let mut classes = Vec::new();
    let lines: Vec<&str> = stdout.lines().collect();
    for (i, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with(BLOCK)) {
        let name = line[BLOCK.len()..].trim_end_matches(':');
        let block = lines[i + 1..].iter().take(3).copied().collect::<Vec<_>>().join(" ");
        let operations = after(&block, name, "Count:")?;
        if operations > 0.0 {
            let kind = OperationKind::Operation(name.into());
            let latency = latency(&block, name)?;
            classes.push(Class { kind, operations: Some(operations as u64), bytes: None, runtime_ns, latency });
        }
    }
    if classes.is_empty() && summary.operations > 0 {
        classes.push(Class {
            kind: OperationKind::Operation(benchmark.into()),
            operations: Some(summary.operations),
            bytes: None,
            runtime_ns,
            latency: Latency::default(),
        });
    }
    Ok(classes)
}

/// The number after `key`.
fn after(block: &str, name: &str, key: &str) -> Result<f64, Problem> {
    let words: Vec<&str> = block.split_whitespace().collect();
    let number = words.iter().position(|word| *word == key).and_then(|at| words.get(at + 1)?.parse().ok());
    number.ok_or_else(|| problem(format!("{BLOCK}{name}, {key}"), format!("not found in db_bench's block: {block}")))
}

fn latency(block: &str, name: &str) -> Result<Latency, Problem> {
    let ns = |key: &str| after(block, name, key).map(|us| us * 1e3);
    Ok(Latency {
        mean_ns: Some(ns("Average:")?),
        deviation_ns: Some(ns("StdDev:")?),
        least_ns: Some(ns("Min:")? as u64),
        greatest_ns: Some(ns("Max:")? as u64),
        histogram: Vec::new(),
        printed: quantiles(block),
    })
}

/// Parses pairs such as `P99.9: 38.40`.
fn quantiles(block: &str) -> Vec<(u32, u64)> {
    let words: Vec<&str> = block.split_whitespace().collect();
    let read = |pair: &[&str]| {
        let percent: f64 = pair[0].strip_prefix('P')?.strip_suffix(':')?.parse().ok()?;
        let us: f64 = pair[1].parse().ok()?;
        Some(((percent * 1e4).round() as u32, (us * 1e3).round() as u64))
    };
    words.windows(2).filter_map(read).collect()
}

/// The window before the shutdown of the database, which RocksDB logs in UTC.
fn window(outcome: &Outcome, log: &str, seconds: f64) -> Option<(u64, u64)> {
    let line = log.lines().rev().find(|line| line.contains("Shutdown: canceling all background work"))?;
    let to = logged_ns(line)?;
    wall::window(outcome, to.checked_sub((seconds * 1e9).round() as u64)?, to, 1_000_000)
}

/// `2026/11/22-04:29:48.254177 8435 ...`.
fn logged_ns(line: &str) -> Option<u64> {
    let time = line.split_whitespace().next()?;
    wall::since_1970_ns(DateTime::strptime("%Y/%m/%d-%H:%M:%S%.f", time).ok()?)
}

fn extra(summary: &Summary, stdout: &str) -> BTreeMap<String, f64> {
    let mut extra = BTreeMap::new();
    extra.extend(summary.mib_per_s.map(|rate| ("user_data_mib_per_s".into(), rate)));
    extra.extend(summary.found.map(|(found, all)| ("found_percent".into(), 100.0 * found as f64 / all.max(1) as f64)));
    for line in stdout.lines() {
        let Some((counter, count)) = line.split_once(" COUNT : ") else { continue };
        let Some((_, column)) = COUNTERS.iter().find(|(name, _)| *name == counter) else { continue };
        extra.extend(count.trim().parse().ok().map(|count: f64| ((*column).to_owned(), count)));
    }
    extra
}

fn tool_warnings(stdout: &str) -> Vec<String> {
    let mut warnings: Vec<String> =
        stdout.lines().filter(|line| line.starts_with("WARNING")).map(str::to_owned).collect();
    warnings.dedup();
    warnings
}

fn own_warnings(record: &Record, summary: &Summary) -> Vec<String> {
    let mut warnings = Vec::new();
    let counted: u64 = record.classes.iter().map(|class| class.counted()).sum();
    if counted != summary.operations {
        warnings.push(format!("db_bench reports {} operations but latencies of {counted}", summary.operations));
    }
    if matches!(summary.found, Some((0, all)) if all > 0) {
        warnings.push("all reads missed: the database may be empty".into());
    }
    if record.window_ns.is_none() {
        warnings.push("no shutdown in RocksDB's LOG: the end of the benchmark is unknown".into());
    }
    warnings
}
