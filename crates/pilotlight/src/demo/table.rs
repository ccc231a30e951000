//! The demo's result: a table and two sentences under it, or JSON.

use std::fmt::Write as _;

use pilotlight_host::load::Report;
use serde_json::{Value, json};

use super::bursts::{Bursts, Sample, profile};
use super::median::Median;
use super::stage::NQN;

/// Simulated values of the paper's machine: written by `pilotlab claims --write-tables`.
const PAPER: &str = include_str!("paper.txt");

/// Everything that was measured.
pub(super) struct Outcome {
    pub(super) bursts: Bursts,
    pub(super) rows: Vec<Row>,
    pub(super) cpus: usize,
}

/// The bursts under one policy, by round.
pub(super) struct Row {
    pub(super) policy: String,
    pub(super) samples: Vec<Sample>,
}

pub(super) fn verified(report: &Report) -> String {
    let Some(verify) = &report.verify else { return String::new() };
    let mut text = format!(
        "Wrote and verified: {} commands, {} blocks checked while running and {} at the end, {} wrong.",
        report.total.ios, verify.blocks_checked, verify.blocks_read_back, verify.mismatches
    );
    for fault in &report.faults {
        let _ = write!(text, "\n  {fault}");
    }
    text
}

const HEADER: [&str; 2] = [
    "                 under the light load                                  of bursts: p99 us",
    "policy           CPU %                p50 us  p99 us   W (modelled)    first millisecond        rest",
];

impl Row {
    fn median(&self, of: impl Fn(&Sample) -> f64) -> Median {
        Median::from_values(self.samples.iter().map(of))
    }

    /// The ratio of two policies, per burst.
    fn ratio(&self, other: &Self, of: impl Fn(&Sample) -> f64) -> Median {
        let pairs = self.samples.iter().zip(&other.samples);
        Median::from_values(pairs.map(|(one, other)| of(one) / of(other).max(f64::MIN_POSITIVE)))
    }

    fn line(&self) -> String {
        let us = |of: &dyn Fn(&Sample) -> u64| self.median(|sample| of(sample) as f64 / 1e3).median;
        format!(
            "{:16} {:20} {:>6.1}  {:>6.1}   {:<12.2}    {:24} {}\n",
            self.policy,
            with_interval(self.median(|sample| 100.0 * sample.quiet_cpu), 0),
            us(&|sample| sample.quiet.total.latency.p50_ns),
            us(&|sample| sample.quiet.total.latency.p99_ns),
            self.median(|sample| sample.quiet_uw as f64 / 1e6).median,
            with_interval(self.median(Sample::first_p99_us), 0),
            with_interval(self.median(Sample::burst_p99_us), 0),
        )
    }
}

fn with_interval(value: Median, decimals: usize) -> String {
    let Median { median, interval } = value;
    match interval {
        Some((low, high)) => format!("{median:.decimals$} ({low:.decimals$} to {high:.decimals$})"),
        None => format!("{median:.decimals$}"),
    }
}

impl Outcome {
    pub(super) fn is_clean(&self) -> bool {
        self.rows.iter().all(|row| row.samples.iter().all(Sample::is_clean))
    }

    /// Why the figures are not representative, if so.
    fn caveat(&self) -> Option<&'static str> {
        (self.cpus == 1).then_some("target and load share one CPU: they wait for each other")
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("\n{}\n{}\n", HEADER[0], HEADER[1]);
        self.rows.iter().for_each(|row| text += &row.line());
        if let Some(caveat) = self.caveat() {
            let _ = writeln!(text, "  Of little use here: {caveat}.");
        }
        let rounds = self.bursts.count;
        let _ = writeln!(
            text,
            "  Medians of {rounds} bursts, in brackets their interval of at least 95 %. CPU %: as the kernel accounts it, 100 is one core."
        );
        if let Ok(profile) = profile() {
            let _ = writeln!(text, "  W: modelled, profile {}: the target's cores above deep sleep.", profile.name);
        }
        text + &self.sentences() + PAPER + &going_on()
    }

    /// A summary of the table.
    fn sentences(&self) -> String {
        let Some(polling) = self.rows.iter().find(|row| row.policy == "static") else { return String::new() };
        let others = self.rows.iter().filter(|row| row.policy != "static");
        let all: Vec<String> = others.map(|row| against(row, polling)).collect();
        if all.is_empty() {
            String::new()
        } else {
            format!("\nBurst by burst, against cores that poll all the time:\n{}", all.concat())
        }
    }
}

/// One policy against polling.
fn against(row: &Row, polling: &Row) -> String {
    let cpu = row.ratio(polling, |sample| sample.quiet_cpu);
    let tail = row.ratio(polling, Sample::burst_p99_us);
    let alike = if tail.may_be(1.0) { " (the interval contains 1)" } else { "" };
    format!(
        "  {} takes {} of the CPU time under the light load, at {} times the p99 of bursts{alike}.\n",
        row.policy,
        with_interval(cpu, 2),
        with_interval(tail, 2)
    )
}

fn going_on() -> String {
    format!(
        "\nTo go on, start a server that stays, and connect a Linux host to it:\n  \
         pilotlight serve --nqn {NQN}\n  \
         nvme connect -t tcp -a 127.0.0.1 -s 4420 -n {NQN}"
    )
}

/// The result for programs. Keys are only ever added.
pub(super) fn json(verified: &Report, outcome: Option<&Outcome>) -> Value {
    let Some(outcome) = outcome else { return json!({ "verified": verified }) };
    let bursts = &outcome.bursts;
    let sample = |sample: &Sample| {
        json!({
            "quiet_cpu_cores": sample.quiet_cpu,
            "quiet_awake_cores": sample.quiet_awake,
            "quiet_power_modelled_uw": sample.quiet_uw,
            "burst_first_millisecond_p99_us": sample.first_p99_us(),
            "burst_rest_p99_us": sample.burst_p99_us(),
            "quiet": sample.quiet,
            "burst": sample.burst,
        })
    };
    let row = |row: &Row| {
        json!({
            "policy": row.policy,
            "quiet_cpu_cores": row.median(|sample| sample.quiet_cpu),
            "burst_first_millisecond_p99_us": row.median(Sample::first_p99_us),
            "burst_rest_p99_us": row.median(Sample::burst_p99_us),
            "samples": row.samples.iter().map(sample).collect::<Vec<_>>(),
        })
    };
    json!({
        "verified": verified,
        "cpus": outcome.cpus,
        "of_little_use": outcome.caveat(),
        "power_profile": profile().ok().map(|profile| profile.name),
        "bursts": {
            "count": bursts.count,
            "time_scale": bursts.time_scale,
            "maximum_iops": bursts.maximum_iops,
            "quiet_iops": bursts.quiet_iops,
            "quiet_ns": bursts.quiet_ns,
            "full_iops": bursts.full_iops,
            "full_ns": bursts.full_ns,
        },
        "rows": outcome.rows.iter().map(row).collect::<Vec<_>>(),
    })
}
