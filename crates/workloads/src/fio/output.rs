//! Parser of fio's output (`--output-format=json+`).
//!
//! fio prints notes and errors around the JSON on both streams; they become warnings or the error. Jobs are merged by direction: counts
//! and bytes are added, the runtime is that of the longest job, latencies are pooled ([`Moments`]). After a ramp fio's latencies can
//! count a few requests more than `total_ios`: those outstanding when the ramp ended. The operations of a class are `total_ios`.
//!
//! fio 3.8 to 3.16 print no count (`N`) with latencies: it is the sum of the bins, else `total_ios`. Several versions print `-nan` for
//! means of nothing, which is not JSON: it is read as `null`.
//!
//! A histogram value is the middle of fio's bucket, whose width is 1/64 of its power of two: the error is at most 0.8 %.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::Kind;
use crate::moments::Moments;
use crate::record::{Class, OperationKind, Record, Tool};
use crate::{Outcome, Problem, problem, wall};

#[derive(Deserialize)]
struct Output {
    #[serde(rename = "fio version")]
    version: String,
    timestamp_ms: u64,
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    jobname: String,
    error: i64,
    #[serde(default)]
    total_err: u64,
    #[serde(default)]
    job_start: Option<u64>,
    job_runtime: u64,
    read: Direction,
    write: Direction,
    trim: Direction,
    #[serde(default)]
    sync: Sync,
    usr_cpu: f64,
    sys_cpu: f64,
    ctx: u64,
    majf: u64,
    minf: u64,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: u64,
    runtime: u64,
    total_ios: u64,
    short_ios: u64,
    drop_ios: u64,
    slat_ns: Latency,
    clat_ns: Latency,
    lat_ns: Latency,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Sync {
    total_ios: u64,
    lat_ns: Latency,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Latency {
    min: u64,
    max: u64,
    mean: Option<f64>,
    stddev: Option<f64>,
    #[serde(rename = "N")]
    count: Option<u64>,
    bins: BTreeMap<u64, u64>,
}

impl Latency {
    /// Its statistics; nothing without a mean. `total_ios`: the operations, if neither count nor bins are printed.
    fn moments(&self, total_ios: u64) -> Moments {
        let Some(mean) = self.mean else { return Moments::default() };
        let in_bins = || self.bins.values().sum();
        // A latency that was not measured is 0 throughout.
        let counted = || {
            if !self.bins.is_empty() {
                in_bins()
            } else if self.max > 0 {
                total_ios
            } else {
                0
            }
        };
        let count = self.count.unwrap_or_else(counted);
        Moments::new(count, mean, self.stddev.unwrap_or(0.0), self.min, self.max).with_histogram(self.bins.clone())
    }
}

/// Builds the record of one run.
pub(super) fn record(outcome: &Outcome, kind: Kind) -> Result<Record, Problem> {
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    let (before, json, after) = parts(&stdout);
    let notes = notes([before, after, &*stderr]);
    let Some(json) = json else { return Err(failed(outcome, &notes, "no result in the output")) };
    let output = read(&without_nan(json))?;
    if let Some(job) = output.jobs.iter().find(|job| job.error != 0) {
        return Err(failed(outcome, &notes, &format!("job {} ended with error {}", job.jobname, job.error)));
    }
    if outcome.status != Some(0) {
        return Err(failed(outcome, &notes, "the result has no error"));
    }
    Ok(assemble(&output, outcome, kind, notes))
}

fn assemble(output: &Output, outcome: &Outcome, kind: Kind, notes: Vec<String>) -> Record {
    let version = output.version.trim_start_matches("fio-").to_owned();
    let mut record = Record {
        tool: Tool { name: "fio".into(), known: super::TESTED.contains(&version.as_str()), version },
        classes: classes(&output.jobs, kind),
        window_ns: window(output, outcome),
        extra: extra(&output.jobs),
        warnings: notes,
    };
    let errors: u64 = output.jobs.iter().map(|job| job.total_err).sum();
    if errors > 0 {
        record.warnings.push(format!("{errors} requests failed and fio continued (total_err)"));
    }
    if record.classes.is_empty() {
        record.warnings.push("no operation completed within the measured time".into());
    }
    if record.classes.iter().any(|class| class.latency.histogram.is_empty()) {
        record.warnings.push("no histogram (bins) in fio's output; latency measurement may be disabled".into());
    }
    if record.window_ns.is_none() {
        record.warnings.push(wall::CLOCK.into());
    }
    record
}

/// Splits standard output into the text before the JSON, the JSON, and the text after it. The JSON starts at the first line that is an
/// opening brace.
fn parts(stdout: &str) -> (&str, Option<&str>, &str) {
    let begins = if stdout.starts_with('{') { Some(0) } else { stdout.find("\n{").map(|at| at + 1) };
    let Some(begins) = begins else { return (stdout, None, "") };
    let (before, rest) = stdout.split_at(begins);
    let ends = rest.find("\n}").map_or(rest.len(), |at| at + 2);
    (before, Some(&rest[..ends]), &rest[ends..])
}

/// Lines that are not empty, without duplicates.
fn notes(texts: [&str; 3]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for line in texts.iter().flat_map(|text| text.lines()).map(str::trim).filter(|line| !line.is_empty()) {
        if !notes.iter().any(|note| note == line) {
            notes.push(line.into());
        }
    }
    notes
}

fn failed(outcome: &Outcome, notes: &[String], why: &str) -> Problem {
    let status = outcome.status_text();
    let output = if notes.is_empty() { "no output".into() } else { format!("output: {}", notes.join("; ")) };
    problem("fio", format!("{why}; {status}; {output}"))
}

/// The text with `null` in place of `nan`, `-nan`, `inf` and `-inf`, which follow the colon of a key.
fn without_nan(json: &str) -> Cow<'_, str> {
    let is_number = |text: &str| ["nan", "-nan", "inf", "-inf"].contains(&text);
    let of = |line: &str| {
        let (key, value) = line.split_once("\" : ")?;
        let value = value.trim_end_matches(',');
        is_number(value).then(|| format!("{key}\" : null{}", if line.ends_with(',') { "," } else { "" }))
    };
    if !json.lines().any(|line| of(line).is_some()) {
        return Cow::Borrowed(json);
    }
    let lines = json.lines().map(|line| of(line).unwrap_or_else(|| line.to_owned()));
    Cow::Owned(lines.collect::<Vec<_>>().join("\n"))
}

fn read(json: &str) -> Result<Output, Problem> {
    let mut reader = serde_json::Deserializer::from_str(json);
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        problem(format!("fio's output, {path}"), format!("cannot be parsed: {}", error.into_inner()))
    })
}

type DirectionOf = fn(&Job) -> &Direction;

const DIRECTIONS: [(OperationKind, DirectionOf); 3] = [
    (OperationKind::Read, |job| &job.read),
    (OperationKind::Write, |job| &job.write),
    (OperationKind::Trim, |job| &job.trim),
];

fn classes(jobs: &[Job], kind: Kind) -> Vec<Class> {
    DIRECTIONS
        .iter()
        .filter_map(|(operation, direction_of)| class(operation, jobs.iter().map(direction_of), kind))
        .collect()
}

fn class<'a>(operation: &OperationKind, jobs: impl Iterator<Item = &'a Direction>, kind: Kind) -> Option<Class> {
    let (mut operations, mut bytes, mut runtime_ms, mut latency) = (0, 0, 0, Moments::default());
    for job in jobs {
        operations += job.total_ios;
        bytes += job.io_bytes;
        runtime_ms = job.runtime.max(runtime_ms);
        latency.merge(if kind == Kind::Total { &job.lat_ns } else { &job.clat_ns }.moments(job.total_ios));
    }
    (operations > 0).then(|| Class {
        kind: operation.clone(),
        operations: Some(operations),
        bytes: Some(bytes),
        runtime_ns: runtime_ms * 1_000_000,
        latency: latency.into_latency(),
    })
}

/// The measured window in nanoseconds after the start; fio's times have milliseconds.
fn window(output: &Output, outcome: &Outcome) -> Option<(u64, u64)> {
    let (from_ms, to_ms) = window_ms(output)?;
    wall::window(outcome, from_ms * 1_000_000, to_ms * 1_000_000, 1_000_000)
}

/// The measured window in milliseconds since 1970: from the start of the first job to the end of the last where fio prints it, else up
/// to the time of the result.
fn window_ms(output: &Output) -> Option<(u64, u64)> {
    let starts: Option<Vec<u64>> = output.jobs.iter().map(|job| job.job_start).collect();
    let longest = output.jobs.iter().map(|job| job.job_runtime).max()?;
    let Some(starts) = starts else { return Some((output.timestamp_ms.checked_sub(longest)?, output.timestamp_ms)) };
    let ends = starts.iter().zip(&output.jobs).map(|(start, job)| start + job.job_runtime);
    Some((starts.iter().copied().min()?, ends.max()?))
}

/// CPU times are percent of one CPU, summed over the jobs.
fn extra(jobs: &[Job]) -> BTreeMap<String, f64> {
    let directions = || jobs.iter().flat_map(|job| [&job.read, &job.write, &job.trim]);
    let sum = |of: fn(&Job) -> f64| jobs.iter().map(of).sum::<f64>();
    let mut extra = BTreeMap::from([
        ("cpu_user_percent".into(), sum(|job| job.usr_cpu)),
        ("cpu_system_percent".into(), sum(|job| job.sys_cpu)),
        ("context_switches_count".into(), sum(|job| job.ctx as f64)),
        ("major_faults_count".into(), sum(|job| job.majf as f64)),
        ("minor_faults_count".into(), sum(|job| job.minf as f64)),
        ("failed_requests_count".into(), sum(|job| job.total_err as f64)),
        ("short_requests_count".into(), directions().map(|d| d.short_ios as f64).sum()),
        ("dropped_requests_count".into(), directions().map(|d| d.drop_ios as f64).sum()),
    ]);
    let submission = pooled(directions().map(|direction| (&direction.slat_ns, direction.total_ios)));
    extra.extend(submission.mean_ns().map(|mean| ("submission_mean_ns".into(), mean)));
    let syncs = pooled(jobs.iter().map(|job| (&job.sync.lat_ns, job.sync.total_ios)));
    extra.insert("syncs_count".into(), syncs.count() as f64);
    extra.extend(syncs.mean_ns().map(|mean| ("sync_mean_ns".into(), mean)));
    extra
}

fn pooled<'a>(latencies: impl Iterator<Item = (&'a Latency, u64)>) -> Moments {
    let mut all = Moments::default();
    latencies.for_each(|(latency, total_ios)| all.merge(latency.moments(total_ios)));
    all
}
