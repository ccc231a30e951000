//! What a run gives.

use crate::histogram::Histogram;

/// The result of a run. Everything but `series` is about the time after the warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Length of the measured time in nanoseconds.
    pub measured_ns: u64,
    /// Requests over the whole run.
    pub requests: Requests,
    /// Latency at the host, by label of the phase in which a request was due: from when it was due (open loop) or issued (where
    /// depth held it back) to its answer, in nanoseconds.
    pub latency: Vec<(u8, Histogram)>,
    /// How long commands waited for a bandwidth cap, of those that had to wait, in nanoseconds; a part of `latency`.
    pub cap_waits: Histogram,
    /// Measured time spent in phases of each label, in nanoseconds.
    pub label_ns: Vec<(u8, u64)>,
    /// Energy by component.
    pub energy: Energy,
    /// The same, by member of [`crate::scenario::Scenario::family`].
    pub family: Vec<Energy>,
    /// Energy that drives' requests would have taken beyond the drives' power ceilings, and that was not spent, in microjoules.
    pub capped_uj: u64,
    /// What happened in each stretch of [`crate::scenario::Scenario::series_ns`], warm-up included.
    pub series: Vec<Stretch>,
    /// What the meter of the server's power told when each stretch ended, in microwatts; empty where there is none, or nobody reads it.
    pub metered_uw: Vec<Option<u64>>,
    /// What the policy has caused.
    pub decisions: Decisions,
    /// What the policy says of itself at the end, since the start: names with units, and values.
    pub view: Vec<(&'static str, String)>,
    /// Requests that were due but not yet answered at the end, and at half-time: a plant that cannot keep up.
    pub saturated: bool,
    /// What jobs on scheduled cores did. They are in none of the figures above but energy.
    pub jobs: Jobs,
    /// What was done in the background, by class.
    pub background: Vec<Background>,
}

/// Background work of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Background {
    /// What drives completed in the measured time, in bytes.
    pub done_bytes: u64,
    /// What is still to be done at the end, in bytes.
    pub backlog_bytes: u64,
}

/// What jobs on scheduled cores did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Jobs {
    /// Requests over the whole run; those of a job that needs no drive are its operations.
    pub requests: Requests,
    /// Latencies of reads that ended within the measured time, from the submission by the program to its having the answer.
    pub reads: Histogram,
    /// The same of writes.
    pub writes: Histogram,
    /// The same of operations of clients that read, from their begin to their end, with those that need no request.
    pub client_reads: Histogram,
    /// The same of those that write.
    pub client_writes: Histogram,
    /// Bytes that clients added to the backlogs of others over the whole run.
    pub added_bytes: u64,
    /// What each job has left of its backlog at the end, in bytes of its requests.
    pub left_bytes: Vec<u64>,
    /// Operations of each job that ended within the measured time.
    pub operations: Vec<u64>,
    /// Sum of their latencies, of each job, in nanoseconds; 0 without a drive.
    pub latency_ns: Vec<u64>,
    /// What happened in each stretch, warm-up included; empty without jobs.
    pub series: Vec<JobStretch>,
    /// How long drives would take to move what was written when the work ended, the longest, in nanoseconds.
    pub to_move_ns: u64,
}

/// What happened on scheduled cores in a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobStretch {
    /// Time that cores worked, summed over cores, in nanoseconds.
    pub work_ns: u64,
    /// Time that they looked at queues.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Sent by hosts.
    pub issued: u64,
    /// Answers that hosts have got.
    pub answered: u64,
    /// Between the two at the end.
    pub in_progress: u64,
}

/// Energy in microjoules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Energy {
    /// The CPU.
    pub cpu_uj: u64,
    /// The drives.
    pub drives_uj: u64,
    /// Everything else.
    pub others_uj: u64,
}

impl Energy {
    /// Adds more.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Answers that hosts have got.
    pub answered: u64,
    /// Sum of their latencies in nanoseconds.
    pub latency_ns: u64,
    /// Energy.
    pub energy: Energy,
    /// Time that cores were awake, summed over cores, in nanoseconds.
    pub awake_ns: u64,
    /// The same, times frequency over the highest one: the capacity that was scheduled (SANDMAN, Fig 16).
    pub capacity_ns: u64,
    /// I/O threads moved.
    pub moves: u64,
}

/// What a policy has caused, after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Ticks and intervals that the policy was asked at.
    pub policy_calls: u64,
    /// I/O threads that had polled requests, summed over ticks: how often it was decided whether one has surged.
    pub surge_checks: u64,
    /// I/O threads moved.
    pub moves: u64,
    /// Cores told to sleep.
    pub sleeps: u64,
    /// Cores woken.
    pub wakes: u64,
    /// Frequencies set.
    pub frequencies: u64,
    /// Commands refused.
    pub refused: u64,
    /// Times a core went from the kernel's idle to an I/O thread and back.
    pub switches: u64,
    /// Time from when a tick was due to when it ran, summed, in nanoseconds.
    pub late_ns: u64,
    /// Time that the main core spent deciding and commanding, in nanoseconds.
    pub deciding_ns: u64,
}
