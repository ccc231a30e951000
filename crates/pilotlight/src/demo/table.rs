//! The demo's result: a table and a sentence under it, or JSON.

use std::fmt::Write as _;

use pilotlight_host::load::Report;
use pilotlight_reactor::cells::SLEEPS;
use serde_json::{Value, json};

use super::bursts::{Bursts, Measured};
use super::stage::NQN;

/// Everything that was measured.
pub(super) struct Outcome {
    pub(super) bursts: Bursts,
    pub(super) rows: Vec<Measured>,
    pub(super) cpus: usize,
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
    "policy                     IOPS       latency of all requests   of bursts      CPU per I/O         time asleep %            moves  wake-   W",
    "                    offered served   p50 us   p99 us p99.9 us      p99 us  active / sched. us  monitor  software  server        ups   mod.",
];

impl Outcome {
    pub(super) fn is_clean(&self) -> bool {
        self.rows.iter().all(|row| row.report.is_clean())
    }

    /// Why figures of a policy do not compare with the others' on this machine, if so.
    fn caveat(&self, row: &Measured) -> Option<String> {
        match self.cpus {
            1 => Some("target and load share one CPU: they wait for each other".to_owned()),
            2 if row.label.starts_with("sandman") => Some(
                "not comparable: of 2 CPUs one is the load's, so the target has its main core alone; no core can sleep while \
                 another serves, and only server-sleep shows"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("\n{}\n{}\n", HEADER[0], HEADER[1]);
        for row in &self.rows {
            text += &self.line(row);
        }
        for row in &self.rows {
            if let Some(caveat) = self.caveat(row) {
                let _ = writeln!(text, "  {}: {caveat}.", row.label);
            }
        }
        if let Some(row) = self.rows.first() {
            let _ = writeln!(
                text,
                "  CPU per I/O: active is awake, polling included; scheduled is the kernel's books. W: modelled, profile {}: the \
                 target's cores above deep sleep.",
                row.profile
            );
        }
        text + &self.sentence() + &going_on()
    }

    fn line(&self, row: &Measured) -> String {
        let total = &row.report.total;
        let us = |ns: u64| ns as f64 / 1e3;
        let share = |ns: u64| 100.0 * ns as f64 / row.elapsed_ns as f64;
        let [monitor, software, server] = row.asleep_ns.map(share);
        format!(
            "{:19}{:>6.1}k {:>5.1}k {:>8.1} {:>8.1} {:>8.1}    {:>8.1}   {:>7.2} / {:<7.2}  {monitor:>7.1} {software:>9.1} {server:>7.1} {:>7} {:>6} {:>6.2}\n",
            row.label,
            self.bursts.offered_iops() / 1e3,
            total.rate_iops / 1e3,
            us(total.latency.p50_ns),
            us(total.latency.p99_ns),
            us(total.latency.p99_9_ns),
            us(row.burst_p99_ns()),
            row.per_io_us(row.active_ns),
            row.per_io_us(row.scheduled_ns),
            row.moves,
            row.wakes,
            row.modelled_uw as f64 / 1e6,
        )
    }

    /// What the table shows, in one sentence, from its own figures.
    fn sentence(&self) -> String {
        let find = |label: &str| self.rows.iter().find(|row| row.label == label);
        let (Some(fixed), Some(interrupt), Some(sandman)) =
            (find("static"), find("interrupt"), find("sandman, guarded"))
        else {
            return String::new();
        };
        let cpu = |row: &Measured| 100.0 * row.scheduled_ns as f64 / fixed.scheduled_ns.max(1) as f64;
        let tail = |row: &Measured| row.burst_p99_ns() as f64 / fixed.burst_p99_ns().max(1) as f64;
        format!(
            "\nAgainst cores that poll all the time, interrupts took {:.0} % of the CPU time at {:.1} times the p99 of bursts; \
             guarded sandman {:.0} % at {:.1} times.\n",
            cpu(interrupt),
            tail(interrupt),
            cpu(sandman),
            tail(sandman),
        )
    }
}

impl Measured {
    /// Latency of requests that were due in a burst.
    fn burst_p99_ns(&self) -> u64 {
        self.report.phases.get(1).map_or(0, |phase| phase.latency.p99_ns)
    }
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
    let row = |row: &Measured| {
        let asleep: serde_json::Map<String, Value> =
            SLEEPS.iter().zip(row.asleep_ns).map(|(depth, ns)| (depth.name().to_owned(), json!(ns))).collect();
        json!({
            "policy": row.label,
            "offered_iops": bursts.offered_iops(),
            "elapsed_ns": row.elapsed_ns,
            "busy_ns": row.busy_ns,
            "active_ns": row.active_ns,
            "scheduled_ns": row.scheduled_ns,
            "active_us_per_io": row.per_io_us(row.active_ns),
            "scheduled_us_per_io": row.per_io_us(row.scheduled_ns),
            "asleep_ns": asleep,
            "moves": row.moves,
            "wake_ups": row.wakes,
            "power_modelled_uw": row.modelled_uw,
            "power_profile": row.profile,
            "not_comparable": outcome.caveat(row),
            "load": row.report,
        })
    };
    json!({
        "verified": verified,
        "cpus": outcome.cpus,
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
