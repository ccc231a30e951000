//! Parser of the output of `pilotlight load --json`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::record::{Class, Latency, OperationKind, Record, Tool};
use crate::{Outcome, Problem, problem};

/// Supported format of the output.
const FORMAT: u32 = 1;

#[derive(Deserialize)]
struct Report {
    format: u32,
    elapsed_ns: u64,
    total: Operation,
    read: Option<Operation>,
    write: Option<Operation>,
    write_zeroes: Option<Operation>,
    deallocate: Option<Operation>,
    flush: Option<Operation>,
    phases: Vec<Phase>,
    open_loop: Option<OpenLoop>,
    verify: Option<serde_json::Value>,
    host_cpu_ns: u64,
    faults: Vec<String>,
}

#[derive(Deserialize)]
struct Operation {
    ios: u64,
    data_bytes: u64,
    errors: u64,
    latency: Times,
}

#[derive(Deserialize)]
struct Phase {
    rate_iops: f64,
    duration_ns: u64,
    ios: u64,
    latency: Times,
}

#[derive(Deserialize)]
struct OpenLoop {
    wanted_iops: f64,
    unstarted: u64,
    late: u64,
    start_delay_p99_ns: u64,
}

#[derive(Deserialize)]
struct Times {
    min_ns: u64,
    mean_ns: f64,
    stddev_ns: f64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p99_9_ns: u64,
    p99_99_ns: u64,
    max_ns: u64,
}

impl From<&Times> for Latency {
    fn from(times: &Times) -> Self {
        Self {
            mean_ns: Some(times.mean_ns),
            deviation_ns: Some(times.stddev_ns),
            least_ns: Some(times.min_ns),
            greatest_ns: Some(times.max_ns),
            histogram: Vec::new(),
            printed: vec![
                (500_000, times.p50_ns),
                (900_000, times.p90_ns),
                (990_000, times.p99_ns),
                (999_000, times.p99_9_ns),
                (999_900, times.p99_99_ns),
            ],
        }
    }
}

/// Builds the record of one run.
pub(super) fn record(outcome: &Outcome, version: String) -> Result<Record, Problem> {
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    let messages = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    if outcome.status != Some(0) && outcome.stdout.trim_ascii().is_empty() {
        let status = outcome.status_text();
        return Err(problem("pilotlight load", format!("{status}; output: {messages}")));
    }
    let mut reader = serde_json::Deserializer::from_slice(&outcome.stdout);
    let report: Report = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        problem(format!("pilotlight load's output, {}", error.path()), format!("cannot be parsed: {}", error.inner()))
    })?;
    if outcome.status != Some(0) || report.total.errors > 0 {
        let why = format!("{} commands failed: {}; {messages}", report.total.errors, report.faults.join("; "));
        return Err(problem("pilotlight load", why));
    }
    let tool = Tool { name: "pilotlight load".into(), version, known: report.format == FORMAT };
    let warnings = warnings(&report);
    Ok(Record { tool, classes: classes(&report), window_ns: window(&report, outcome), extra: extra(&report), warnings })
}

fn classes(report: &Report) -> Vec<Class> {
    let zeroes = OperationKind::Operation("write-zeroes".into());
    let kinds = [
        (OperationKind::Read, &report.read),
        (OperationKind::Write, &report.write),
        (OperationKind::Trim, &report.deallocate),
        (zeroes, &report.write_zeroes),
    ];
    let class = |(kind, operation): (OperationKind, &Option<Operation>)| {
        let operation = operation.as_ref().filter(|operation| operation.ios > 0)?;
        Some(Class {
            kind,
            operations: Some(operation.ios),
            bytes: Some(operation.data_bytes),
            runtime_ns: report.elapsed_ns,
            latency: (&operation.latency).into(),
        })
    };
    kinds.into_iter().filter_map(class).collect()
}

fn window(report: &Report, outcome: &Outcome) -> Option<(u64, u64)> {
    let lasted = outcome.span_ns.1.saturating_sub(outcome.span_ns.0);
    let from = lasted.checked_sub(report.elapsed_ns)?;
    (report.verify.is_none() && from < lasted).then_some((from, lasted))
}

fn extra(report: &Report) -> BTreeMap<String, f64> {
    let mut extra = BTreeMap::from([("host_cpu_with_ramp_ns".to_owned(), report.host_cpu_ns as f64)]);
    let mut add = |column: String, value: f64| extra.insert(column, value);
    if let Some(flush) = &report.flush {
        add("flushes_count".into(), flush.ios as f64);
        add("flush_mean_ns".into(), flush.latency.mean_ns);
    }
    if let Some(open) = &report.open_loop {
        add("wanted_iops".into(), open.wanted_iops);
        add("unstarted_requests_count".into(), open.unstarted as f64);
        add("late_requests_count".into(), open.late as f64);
        add("start_delay_p99_ns".into(), open.start_delay_p99_ns as f64);
    }
    if report.phases.len() > 1 {
        for (i, phase) in report.phases.iter().enumerate() {
            add(format!("phase{i}_wanted_iops"), phase.rate_iops);
            add(format!("phase{i}_length_ns"), phase.duration_ns as f64);
            add(format!("phase{i}_requests_count"), phase.ios as f64);
            add(format!("phase{i}_mean_ns"), phase.latency.mean_ns);
            add(format!("phase{i}_p99_ns"), phase.latency.p99_ns as f64);
        }
    }
    extra
}

fn warnings(report: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    if report.format != FORMAT {
        warnings.push(format!("load's output has format {}; supported: {FORMAT}", report.format));
    }
    if let Some(unstarted) = report.open_loop.as_ref().map(|open| open.unstarted).filter(|unstarted| *unstarted > 0) {
        warnings.push(format!(
            "{unstarted} due requests were not submitted for lack of a free slot; latencies do not include them"
        ));
    }
    warnings
}
