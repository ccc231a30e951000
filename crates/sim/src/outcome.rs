//! The result of a run.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// The result of a run, excluding the warm-up unless stated otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Length of the measured time in nanoseconds.
    pub measured_ns: u64,
    /// Requests over the whole run.
    pub requests: Requests,
    /// Latency at the host, by label of the phase in which a request was due: from its due time (open loop) or issue time (where depth delayed it) to
    /// its response, in nanoseconds.
    pub latency: Vec<(u8, Histogram)>,
    /// Waits for a bandwidth cap, of commands that waited, in nanoseconds; included in `latency`.
    pub cap_waits: Histogram,
    /// Measured time spent in phases of each label, in nanoseconds.
    pub label_ns: Vec<(u8, u64)>,
    /// Energy by component.
    pub energy: Energy,
    /// The same, by member of [`crate::scenario::Scenario::family`].
    pub family: Vec<Energy>,
    /// Energy of drives' requests above the drives' power ceilings, in microjoules; not spent.
    pub capped_uj: u64,
    /// Totals of each stretch of [`crate::scenario::Scenario::series_ns`], including the warm-up.
    pub series: Vec<Stretch>,
    /// Reading of the server's power meter at the end of each stretch, in microwatts; empty without a meter or a policy that reads it.
    pub metered_uw: Vec<Option<u64>>,
    /// Counts of the policy's decisions.
    pub decisions: Decisions,
    /// The policy's metrics at the end of the run: names with units, and values.
    pub view: Vec<(&'static str, String)>,
    /// Whether the number of due, unanswered requests grew from half-time to the end: the plant is overloaded.
    pub saturated: bool,
    /// Results of jobs on scheduled cores. Of the figures above, only energy includes them.
    pub jobs: Jobs,
    /// Background work, by class.
    pub background: Vec<Background>,
}

/// Background work of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Background {
    /// Bytes that drives completed in the measured time.
    pub done_bytes: u64,
    /// Backlog at the end, in bytes.
    pub backlog_bytes: u64,
}

/// Results of jobs on scheduled cores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Jobs {
    /// Requests over the whole run; those of a job that needs no drive are its operations.
    pub requests: Requests,
    /// Latencies of reads that ended within the measured time, from submission to completion in the program.
    pub reads: Histogram,
    /// The same of writes.
    pub writes: Histogram,
    /// Latencies of clients' read operations from begin to end, including those without a request.
    pub client_reads: Histogram,
    /// The same of clients' write operations.
    pub client_writes: Histogram,
    /// Bytes that clients added to backlogs over the whole run.
    pub added_bytes: u64,
    /// Remaining backlog of each job at the end, in bytes of its requests.
    pub left_bytes: Vec<u64>,
    /// Operations of each job that ended within the measured time.
    pub operations: Vec<u64>,
    /// Sum of their latencies by job, in nanoseconds; 0 without a drive.
    pub latency_ns: Vec<u64>,
    /// Totals of each stretch, including the warm-up; empty without jobs.
    pub series: Vec<JobStretch>,
    /// Time that the slowest drive needs to move the data written by the end of the work, in nanoseconds.
    pub to_move_ns: u64,
}

/// Totals of scheduled cores in a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobStretch {
    /// Working time, summed over cores, in nanoseconds.
    pub work_ns: u64,
    /// Time spent polling queues, likewise.
    pub look_ns: u64,
    /// Context switches.
    pub switches: u64,
    /// Interrupts of drives.
    pub interrupts: u64,
    /// Interrupts of timers.
    pub timers: u64,
    /// Requests that ended.
    pub requests: u64,
    /// Sum of their latencies in nanoseconds.
    pub latency_ns: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// Requests over a whole run: `issued = answered + in_progress`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Sent by hosts.
    pub issued: u64,
    /// Responses received by hosts.
    pub answered: u64,
    /// In progress at the end.
    pub in_progress: u64,
}

/// Energy in microjoules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Energy {
    /// The CPU.
    pub cpu_uj: u64,
    /// The drives.
    pub drives_uj: u64,
    /// Everything else.
    pub others_uj: u64,
}

impl Energy {
    /// Adds other energy.
    pub fn add(&mut self, more: &Self) {
        self.cpu_uj += more.cpu_uj;
        self.drives_uj += more.drives_uj;
        self.others_uj += more.others_uj;
    }

    /// The whole machine.
    #[must_use]
    pub fn system_uj(&self) -> u64 {
        self.cpu_uj + self.drives_uj + self.others_uj
    }
}

/// A stretch of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// Responses received by hosts.
    pub answered: u64,
    /// Sum of their latencies in nanoseconds.
    pub latency_ns: u64,
    /// Energy.
    pub energy: Energy,
    /// Awake time, summed over cores, in nanoseconds.
    pub awake_ns: u64,
    /// Awake time times frequency over the highest frequency: the scheduled capacity (SANDMAN, Fig 16).
    pub capacity_ns: u64,
    /// I/O threads moved.
    pub moves: u64,
}

/// Counts of a policy's decisions after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions {
    /// Ticks and intervals with a policy call.
    pub policy_calls: u64,
    /// I/O threads times ticks: number of surge checks.
    pub surge_checks: u64,
    /// I/O threads moved.
    pub moves: u64,
    /// Cores put to sleep.
    pub sleeps: u64,
    /// Cores woken.
    pub wakes: u64,
    /// Frequencies set.
    pub frequencies: u64,
    /// Commands refused.
    pub refused: u64,
    /// Context switches between the idle task and an I/O thread.
    pub switches: u64,
    /// Delay of ticks, summed, in nanoseconds.
    pub late_ns: u64,
    /// Main core's time for decisions and commands, in nanoseconds.
    pub deciding_ns: u64,
}
