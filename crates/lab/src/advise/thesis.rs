//! Table 5.1 of the thesis: its variables, its recommendations for its machine (980 Pro, ten-core Xeon), and the corresponding knobs.

use super::kind::Kind;

/// A row of Table 5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name in the thesis.
    pub name: &'static str,
    /// Names of the corresponding knobs.
    pub knobs: &'static [&'static str],
    /// Recommendation of the thesis for IOPS-driven and throughput-driven work.
    pub advice: [&'static str; 2],
    /// Reason why no recommendation is derived.
    pub not_derived: Option<&'static str>,
}

impl Variable {
    /// Whether a knob corresponds to this variable.
    #[must_use]
    pub fn is(&self, knob: &str) -> bool {
        self.knobs.contains(&knob)
    }

    /// Recommendation of the thesis for a kind of work.
    #[must_use]
    pub fn advice(&self, kind: Kind) -> Option<&'static str> {
        match kind {
            Kind::Iops => Some(self.advice[0]),
            Kind::Throughput => Some(self.advice[1]),
            Kind::Application => None,
        }
    }
}

const SAME: &str = "the same as for IOPS";

const fn row(name: &'static str, knobs: &'static [&'static str], advice: [&'static str; 2]) -> Variable {
    Variable { name, knobs, advice, not_derived: None }
}

/// Knobs for the request size.
pub const SIZES: &[&str] = &["bs", "block_size", "request_size"];
/// Knobs for the access pattern. They define the work, so nothing is recommended.
pub const PATTERNS: &[&str] = &["rw", "pattern", "access"];

/// Table 5.1.
pub const TABLE: [Variable; 10] = [
    row("request size", SIZES, ["small, such as 4 KiB", "large, such as 4 MiB"]),
    row(
        "I/O depth",
        &["iodepth", "depth", "queue_depth"],
        ["as high as latency allows", "up to where throughput saturates"],
    ),
    row(
        "jobs",
        &["numjobs", "jobs", "threads", "clients", "connections"],
        ["last resort: costs latency", "up to where throughput saturates"],
    ),
    row(
        "interrupts or polling",
        &["hipri", "sqthread_poll", "completion", "mechanism"],
        ["poll only at 4 KiB without idle time", "interrupts"],
    ),
    row("I/O engine", &["ioengine", "engine"], ["libaio", SAME]),
    Variable {
        name: "mixed reads and writes",
        knobs: PATTERNS,
        advice: ["interleave where random; split where sequential and mostly reads", SAME],
        not_derived: Some("the pattern defines the work: see `pilotlab compare --point rw=... --versus rw=...`"),
    },
    row("scheduler", &["machine.scheduler", "scheduler"], ["none; kyber if one is needed", SAME]),
    row("power state (intervals)", &["machine.power_state", "power_state", "machine.apst"], ["the highest", SAME]),
    row("NUMA node", &["numa_node", "numa_cpu_nodes", "bind.numa_node"], ["that of the SSD", SAME]),
    Variable {
        name: "garbage collection",
        knobs: &[],
        advice: ["high power state after writes", SAME],
        not_derived: Some("occurs after the measured window: see power over time in the report"),
    },
];
