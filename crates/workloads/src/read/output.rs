//! Parser of the output of `pilotlab read --json`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::record::{Class, Latency, OperationKind, Record, Tool};
use crate::{Outcome, Problem, problem, wall};

/// Name of the tool.
pub(super) const NAME: &str = "pilotlab read";
/// Supported format of the output.
const FORMAT: u32 = 1;
/// Tolerance for the difference between the tool's and the runner's wall-clock times.
const SLACK_NS: u64 = 1_000_000;

#[derive(Deserialize)]
struct Report {
    format: u32,
    began_wall_ns: u64,
    elapsed_ns: u64,
    read: Reads,
    context_switches: Switches,
    cpu_user_ns: u64,
    cpu_system_ns: u64,
    warnings: Vec<String>,
}

#[derive(Deserialize)]
struct Reads {
    ios: u64,
    data_bytes: u64,
    latency: Times,
    histogram_ns: Vec<(u64, u64)>,
}

#[derive(Deserialize)]
struct Times {
    min_ns: u64,
    mean_ns: f64,
    stddev_ns: f64,
    max_ns: u64,
}

#[derive(Deserialize)]
struct Switches {
    voluntary_count: u64,
    involuntary_count: u64,
}

/// Builds the record of one run.
pub(super) fn record(outcome: &Outcome, version: String) -> Result<Record, Problem> {
    if outcome.status != Some(0) {
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        let messages = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        let status = outcome.status_text();
        return Err(problem(NAME, format!("{status}; output: {messages}")));
    }
    let mut reader = serde_json::Deserializer::from_slice(&outcome.stdout);
    let report: Report = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        problem(format!("{NAME}'s output, {}", error.path()), format!("cannot be parsed: {}", error.inner()))
    })?;
    let window_ns = wall::window(outcome, report.began_wall_ns, report.began_wall_ns + report.elapsed_ns, SLACK_NS);
    Ok(Record {
        tool: Tool { name: NAME.into(), version, known: report.format == FORMAT },
        classes: class(&report).into_iter().collect(),
        window_ns,
        extra: extra(&report),
        warnings: warnings(&report, window_ns.is_some()),
    })
}

fn class(report: &Report) -> Option<Class> {
    let (read, latency) = (&report.read, &report.read.latency);
    (read.ios > 0).then(|| Class {
        kind: OperationKind::Read,
        operations: Some(read.ios),
        bytes: Some(read.data_bytes),
        runtime_ns: report.elapsed_ns,
        latency: Latency {
            mean_ns: Some(latency.mean_ns),
            deviation_ns: Some(latency.stddev_ns),
            least_ns: Some(latency.min_ns),
            greatest_ns: Some(latency.max_ns),
            histogram: read.histogram_ns.clone(),
            printed: Vec::new(),
        },
    })
}

/// Columns of the reading threads, with the names of fio's adapter.
fn extra(report: &Report) -> BTreeMap<String, f64> {
    let switches = &report.context_switches;
    let percent = |ns: u64| ns as f64 / report.elapsed_ns.max(1) as f64 * 100.0;
    BTreeMap::from([
        ("context_switches_count".into(), (switches.voluntary_count + switches.involuntary_count) as f64),
        ("voluntary_context_switches_count".into(), switches.voluntary_count as f64),
        ("cpu_user_percent".into(), percent(report.cpu_user_ns)),
        ("cpu_system_percent".into(), percent(report.cpu_system_ns)),
    ])
}

fn warnings(report: &Report, has_window: bool) -> Vec<String> {
    let mut warnings = report.warnings.clone();
    if report.format != FORMAT {
        warnings.push(format!("read's output has format {}; supported: {FORMAT}", report.format));
    }
    if report.read.ios == 0 {
        warnings.push("no operation completed within the measured time".into());
    }
    if !has_window {
        warnings.push(wall::CLOCK.into());
    }
    warnings
}
