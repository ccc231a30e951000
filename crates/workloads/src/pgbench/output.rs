//! Parser of pgbench's output and log.

use std::collections::BTreeMap;
use std::io::BufRead;

use crate::moments::Moments;
use crate::record::{Class, Latency, OperationKind, Record, Tool};
use crate::{Outcome, Problem, problem, program, wall};

/// Whether the adapter was tested with this version.
pub(super) fn is_known(version: &str) -> bool {
    super::TESTED.contains(&version.split('.').next().unwrap_or_default())
}

/// The log of transactions. A line has client, number, duration in microseconds, script, and end in seconds and microseconds since
/// 1970.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// By script.
    latencies: BTreeMap<usize, Moments>,
    /// First start and last end, in microseconds since 1970.
    span_us: Option<(u64, u64)>,
    /// Lines without a duration: failed or skipped transactions.
    without_duration: u64,
}

impl Log {
    /// Adds the lines of a log file.
    pub(super) fn read(&mut self, lines: impl BufRead) -> Result<(), Problem> {
        for line in lines.lines() {
            let line = line.map_err(|error| problem("pgbench's log", error.to_string()))?;
            self.add_line(&line).ok_or_else(|| problem("pgbench's log", format!("invalid line: {line}")))?;
        }
        Ok(())
    }

    fn add_line(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, took, script, seconds, us, ..] = words[..] else { return None };
        let Ok(took_us) = took.parse::<u64>() else {
            self.without_duration += u64::from(["failed", "skipped", "serialization", "deadlock"].contains(&took));
            return (self.without_duration > 0).then_some(());
        };
        let ended = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(us.parse().ok()?)?;
        let began = ended.checked_sub(took_us)?;
        let (first, last) = self.span_us.unwrap_or((began, ended));
        self.span_us = Some((first.min(began), last.max(ended)));
        self.latencies.entry(script.parse().ok()?).or_default().add(took_us * 1_000);
        Some(())
    }

    fn count(&self) -> u64 {
        self.latencies.values().map(Moments::count).sum()
    }

    /// The latencies of all scripts.
    fn merged(self) -> Moments {
        self.latencies.into_values().fold(Moments::default(), |mut all, one| {
            all.merge(one);
            all
        })
    }
}

/// A kind of transaction, which is a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// Its name in the record.
    pub(super) name: String,
    /// The script's file, as pgbench prints it.
    pub(super) script: String,
}

/// Builds the record of one run. With `sample` the log has only some of the transactions. With `kinds` each has a class.
pub(super) fn record(outcome: &Outcome, log: Log, sample: bool, kinds: &[Kind]) -> Result<Record, Problem> {
    let (stdout, stderr) = (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    if outcome.status != Some(0) {
        let status = outcome.status_text();
        return Err(problem("pgbench", format!("{status}; output: {}", messages(&stderr).join("; "))));
    }
    let report = Report::read(&stdout)?;
    let version = stdout.lines().next().and_then(program::version_in).unwrap_or_default().to_owned();
    let window_ns = log.span_us.and_then(|(from, to)| wall::window(outcome, from * 1_000, to * 1_000, 1_000_000));
    let mut warnings = messages(&stderr);
    let logged = log.count();
    if !sample && logged != report.transactions {
        warnings.push(format!("pgbench reports {} transactions but logged {logged}", report.transactions));
    }
    warnings.extend(window_ns.is_none().then(|| wall::CLOCK.into()));
    if report.failed > 0 {
        warnings.push(format!("{} transactions failed and are not counted", report.failed));
    }
    let mut classes = if kinds.is_empty() {
        vec![report.class(OperationKind::Transaction, log.merged(), sample, report.runtime_ns())]
    } else {
        classes_by_kind(&stdout, &report, log, sample, kinds)?
    };
    let in_classes: u64 = classes.iter().map(|class| class.counted()).sum();
    if sample && in_classes != report.transactions {
        let all = report.transactions;
        warnings.push(format!(
            "pgbench counts {in_classes} transactions by script and {all} in all: its threads update these counters without a lock; \
             with jobs = 1, or without sampling, the counts are exact"
        ));
    }
    classes.retain(|class| class.counted() > 0);
    let tool = Tool { name: "pgbench".into(), known: is_known(&version), version };
    Ok(Record { tool, classes, window_ns, extra: report.extra(&stdout, logged), warnings })
}

/// A class for each script. pgbench's threads update the counters of a script without a lock (processXactStats in its source) and lose
/// updates; only the totals are per thread. With a complete log the operations are therefore its lines.
fn classes_by_kind(
    stdout: &str,
    total: &Report,
    mut log: Log,
    sample: bool,
    kinds: &[Kind],
) -> Result<Vec<Class>, Problem> {
    let class = |(at, kind): (usize, &Kind)| {
        let script = format!("SQL script {}: {}", at + 1, kind.script);
        let missing = || problem(format!("pgbench's report, {script}"), "is missing");
        let (_, rest) = stdout.split_once(&script).ok_or_else(missing)?;
        let own = rest.split_once("SQL script").map_or(rest, |(own, _)| own);
        let logged = log.latencies.remove(&at).unwrap_or_default();
        let mut report = Report::of_script(own, &script)?;
        if !sample {
            report.transactions = logged.count();
        }
        Ok(report.class(OperationKind::TransactionKind(kind.name.clone()), logged, sample, total.runtime_ns()))
    };
    kinds.iter().enumerate().map(class).collect()
}

/// Messages on standard error without progress reports.
fn messages(stderr: &str) -> Vec<String> {
    let progress = ["starting vacuum...", "setting random seed"];
    let quiet = |line: &&str| !line.is_empty() && !progress.iter().any(|words| line.contains(words));
    stderr.lines().map(str::trim).filter(quiet).map(str::to_owned).collect()
}

/// The report at the end of pgbench's output.
#[derive(Debug, PartialEq)]
struct Report {
    transactions: u64,
    failed: u64,
    mean_ms: f64,
    deviation_ms: Option<f64>,
    per_s: f64,
}

/// The number after `key` and `=` or `:`.
fn number(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let rest = line.trim_start_matches([' ', '=', ':']);
    rest.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == 'e' || c == '-')).next()?.parse().ok()
}

impl Report {
    fn read(text: &str) -> Result<Self, Problem> {
        let needed = |key: &str| {
            number(text, key).ok_or_else(|| problem(format!("pgbench's report, {key}"), "is missing or not a number"))
        };
        Ok(Self {
            transactions: needed("number of transactions actually processed")? as u64,
            failed: number(text, "number of failed transactions").unwrap_or(0.0) as u64,
            mean_ms: needed("latency average")?,
            deviation_ms: number(text, "latency stddev"),
            per_s: needed("tps")?,
        })
    }

    /// The report of one of several scripts, whose lines begin with a dash. A script that never ran has no latency.
    fn of_script(text: &str, script: &str) -> Result<Self, Problem> {
        let missing = |key: &str| problem(format!("pgbench's report, {script}, {key}"), "is missing or not a number");
        let line = text.lines().find(|line| line.contains(" transactions ("));
        let transactions = line.and_then(|line| line.trim_start_matches(" - ").split(' ').next()?.parse().ok());
        let transactions: u64 = transactions.ok_or_else(|| missing("transactions"))?;
        let mean_ms = match number(text, " - latency average") {
            None if transactions == 0 => 0.0,
            mean => mean.ok_or_else(|| missing("latency average"))?,
        };
        let failed = number(text, " - number of failed transactions").unwrap_or(0.0) as u64;
        Ok(Self { transactions, failed, mean_ms, deviation_ms: number(text, " - latency stddev"), per_s: 0.0 })
    }

    fn class(&self, kind: OperationKind, logged: Moments, sample: bool, runtime_ns: u64) -> Class {
        let latency = self.latency(logged.into_latency(), sample);
        Class { kind, operations: Some(self.transactions), bytes: None, runtime_ns, latency }
    }

    /// Runtime without the time to connect.
    fn runtime_ns(&self) -> u64 {
        if self.per_s > 0.0 { (self.transactions as f64 / self.per_s * 1e9).round() as u64 } else { 0 }
    }

    /// The logged latency; with `sample`, mean and deviation are those that pgbench prints of all transactions.
    fn latency(&self, logged: Latency, sample: bool) -> Latency {
        if !sample {
            return logged;
        }
        let deviation_ns = self.deviation_ms.map(|ms| ms * 1e6);
        // Extremes of a sample are not those of all transactions.
        Latency { mean_ns: Some(self.mean_ms * 1e6), deviation_ns, least_ns: None, greatest_ns: None, ..logged }
    }

    fn extra(&self, text: &str, logged: u64) -> BTreeMap<String, f64> {
        let mut extra = BTreeMap::from([
            ("failed_transactions_count".into(), self.failed as f64),
            ("logged_transactions_count".into(), logged as f64),
        ]);
        let mut add_if_printed =
            |column: &str, key: &str| extra.extend(number(text, key).map(|value| (column.to_owned(), value)));
        add_if_printed("connecting_ms", "initial connection time");
        add_if_printed("schedule_lag_mean_ms", "rate limit schedule lag: avg");
        add_if_printed("skipped_transactions_count", "number of transactions skipped");
        add_if_printed("retried_transactions_count", "number of transactions retried");
        extra
    }
}
