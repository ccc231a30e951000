//! Table 5.1 of the thesis: its variables, what it recommends for its machine (a 980 Pro, ten-core Xeon), and the knobs that stand for
//! each variable here.

use super::work::Kind;

/// A row of Table 5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// As the thesis calls it.
    pub name: &'static str,
    /// Names of knobs that are this variable.
    pub knobs: &'static [&'static str],
    /// What the thesis recommends, in short: IOPS-driven and throughput-driven.
    pub advice: [&'static str; 2],
    /// Why no advice of this kind is derived here.
    pub not_derived: Option<&'static str>,
}

impl Variable {
    /// Whether a knob is this variable.
    #[must_use]
    pub fn is(&self, knob: &str) -> bool {
        self.knobs.contains(&knob)
    }

    /// What the thesis recommends for such work.
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

/// Names of knobs that say how large a request is.
pub const SIZES: &[&str] = &["bs", "block_size", "request_size"];
/// Names of knobs that say in which order and direction requests go: they describe the work and are nothing to recommend.
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
        ["last of all: costs latency", "up to where throughput saturates"],
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
        not_derived: Some("the pattern is the work itself: see `pilotlab compare --point rw=... --versus rw=...`"),
    },
    row("scheduler", &["machine.scheduler", "scheduler"], ["none; kyber if one is needed", SAME]),
    row(
        "power state (intervals)",
        &["machine.power_state", "power_state", "machine.transitions"],
        ["the highest", SAME],
    ),
    row("NUMA node", &["numa_node", "numa_cpu_nodes", "bind.numa_node"], ["that of the SSD", SAME]),
    Variable {
        name: "garbage collection",
        knobs: &[],
        advice: ["high power state after writes", SAME],
        not_derived: Some("happens after the window: see power over time in the report"),
    },
];
