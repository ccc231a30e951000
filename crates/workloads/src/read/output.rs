//! What `pilotlab read --json` printed as a record.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::record::{Class, Latency, Record, Tool, What};
use crate::{Outcome, Problem, problem, wall};

/// What the tool is called.
pub(super) const NAME: &str = "pilotlab read";
/// The form of the output that this reads.
const FORMAT: u32 = 1;
/// How far the wall clock at its own start may seem to lie before the runner's.
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

/// What came of a run.
pub(super) fn record(outcome: &Outcome, version: String) -> Result<Record, Problem> {
    if outcome.status != Some(0) {
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        let said = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        let status = outcome.status.map_or("a signal ended it".into(), |status| format!("its exit status is {status}"));
        return Err(problem(NAME, format!("{status}; it said: {said}")));
    }
    let mut reader = serde_json::Deserializer::from_slice(&outcome.stdout);
    let report: Report = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        problem(format!("{NAME}'s output, {}", error.path()), format!("cannot be read: {}", error.inner()))
    })?;
    let window_ns = wall::window(outcome, report.began_wall_ns, report.began_wall_ns + report.elapsed_ns, SLACK_NS);
    Ok(Record {
        tool: Tool { name: NAME.into(), version, known: report.format == FORMAT },
        classes: class(&report).into_iter().collect(),
        window_ns,
        extra: extra(&report),
        warnings: doubts(&report, window_ns.is_some()),
    })
}

fn class(report: &Report) -> Option<Class> {
    let (read, of) = (&report.read, &report.read.latency);
    (read.ios > 0).then(|| Class {
        what: What::Read,
        operations: Some(read.ios),
        bytes: Some(read.data_bytes),
        runtime_ns: report.elapsed_ns,
        latency: Latency {
            mean_ns: Some(of.mean_ns),
            deviation_ns: Some(of.stddev_ns),
            least_ns: Some(of.min_ns),
            greatest_ns: Some(of.max_ns),
            histogram: read.histogram_ns.clone(),
            printed: Vec::new(),
        },
    })
}

/// Of the reading threads, as fio's adapter names those of its jobs.
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

fn doubts(report: &Report, has_window: bool) -> Vec<String> {
    let mut doubts = report.warnings.clone();
    if report.format != FORMAT {
        doubts.push(format!("read's output has format {}; this reads {FORMAT}", report.format));
    }
    if report.read.ios == 0 {
        doubts.push("no operation ended within the measured time".into());
    }
    if !has_window {
        doubts.push(wall::CLOCK.into());
    }
    doubts
}
