//! Jobs on scheduled cores: programs with one of several I/O methods, and background work.

use serde::Deserialize;

/// I/O method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMethod {
    /// A synchronous call; the kernel wakes the job at an interrupt.
    Interrupt,
    /// A synchronous call that polls the queue until the request completes.
    Classic,
    /// A synchronous call that sleeps for half of the mean latency and then polls.
    Hybrid,
    /// `libaio`, by interrupt.
    Libaio,
    /// `io_uring`, by interrupt.
    Uring,
    /// `io_uring` with a kernel thread that submits and polls.
    UringPolled,
    /// `posixaio`: a helper thread makes synchronous calls, one at a time per file; other requests wait for it.
    PosixAio,
    /// Kernel bypass with continuous polling (SPDK).
    Bypass,
}

impl IoMethod {
    /// Whether a job has one request in progress, regardless of the depth.
    #[must_use]
    pub fn is_synchronous(self) -> bool {
        matches!(self, Self::Interrupt | Self::Classic | Self::Hybrid)
    }

    /// Whether a job polls continuously instead of sleeping until it is woken.
    #[must_use]
    pub fn spins(self) -> bool {
        matches!(self, Self::Bypass | Self::UringPolled)
    }
}

/// The kernel's I/O scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// None.
    #[default]
    None,
    /// `kyber`.
    Kyber,
    /// `mq-deadline`.
    Deadline,
}

/// Costs of a request, at the highest frequency and with an idle sibling, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobCosts {
    /// The load generator's own part of each request.
    pub job_ns: u64,
    /// From the system call to the doorbell.
    pub submit_ns: u64,
    /// From the completion queue's entry to the caller.
    pub complete_ns: u64,
    /// Mapping memory, per KiB of a request.
    pub page_ns_per_kib: u64,
    /// Taking an interrupt.
    pub interrupt_ns: u64,
    /// Context switch: half for leaving the CPU, half for returning.
    pub switch_ns: u64,
    /// Arming a timer and taking its interrupt, half each.
    pub timer_ns: u64,
    /// One poll of a completion queue.
    pub look_ns: u64,
    /// Extra cost of `libaio` over a synchronous call.
    pub libaio_ns: u64,
    /// Extra cost of `io_uring` over a synchronous call.
    pub uring_ns: u64,
    /// The application's part of a request with a submission thread in the kernel.
    pub ring_ns: u64,
    /// Handing a request to a helper thread and back (`posixaio`).
    pub hand_over_ns: u64,
    /// Submission and completion with kernel bypass.
    pub bypass_ns: u64,
    /// Time for which each request holds the lock of the scheduler `kyber`.
    pub kyber_ns: u64,
    /// The same of `mq-deadline`.
    pub deadline_ns: u64,
    /// Slow-down of work on a core whose sibling works too, in millionths.
    pub sibling_slows_ppm: u64,
    /// A request that cannot take the scheduler's lock waits in the scheduler's queue while its job continues or sleeps; otherwise its job spins.
    #[serde(default)]
    pub lock_sleeps: bool,
    /// Maximum bytes of a command (MDTS, `max_sectors_kb`): a larger request is split into several commands, each of which costs [`Self::submit_ns`]
    /// and [`Self::complete_ns`]; 0 for no limit.
    #[serde(default)]
    pub command_bytes: u32,
}

/// A program or background work: CPU time per operation, and one request or none.
///
/// A *client* is a job with operations that need no request: reads that hit a cache and buffered writes. Other jobs do the work that its writes cause
/// ([`Job::backlog_ppm`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Runs only on idle cores and is preempted at once.
    pub background: bool,
    /// Allowed cores: first, number.
    pub cores: (u16, u16),
    /// Core of the kernel thread that submits for it ([`IoMethod::UringPolled`]).
    pub helper: u16,
    /// Index in [`Scheduled::quotas`] of its CPU quota.
    pub quota: Option<u16>,
    /// I/O method.
    pub method: IoMethod,
    /// Maximum requests in progress.
    pub depth: u32,
    /// Drive of its requests.
    pub drive: u16,
    /// Bytes of a request; 0 for CPU time only.
    pub bytes: u32,
    /// Whether requests are sequential on the drive.
    pub sequential: bool,
    /// Share of writes, in millionths.
    pub writes_ppm: u32,
    /// The kernel's I/O scheduler.
    pub scheduler: Scheduler,
    /// CPU time of the program per operation, in addition to [`JobCosts::job_ns`].
    pub cpu_ns: u64,
    /// Number of requests after which it pauses (`thinktime_blocks` of fio); 0 for never.
    pub think_after: u32,
    /// Length of the pause.
    pub think_ns: u64,
    /// Part of the pause in which it keeps its CPU busy.
    pub think_spin_ns: u64,
    /// CPU time of a write, replaces [`Self::cpu_ns`].
    pub write_cpu_ns: Option<u64>,
    /// Share of reads that need no request, in millionths.
    pub hits_ppm: u32,
    /// The same of writes.
    pub write_hits_ppm: u32,
    /// The request of a write reads (read-modify-write); other jobs write the data.
    pub fetches: bool,
    /// Bytes that each completed write adds to the backlog of other jobs.
    pub adds: u32,
    /// Processes a backlog only: this multiple of all bytes added, in millionths; 0 for other jobs. It waits while less than a whole request is left.
    pub backlog_ppm: u32,
    /// A write waits while any backlog exceeds this many added bytes; 0 for no limit.
    pub stalls_bytes: u64,
}

impl Job {
    /// Whether the job is a client.
    #[must_use]
    pub fn is_client(&self) -> bool {
        self.hits_ppm > 0 || self.write_hits_ppm > 0 || self.adds > 0
    }
}

impl Default for Job {
    /// Random 4 KiB reads at depth 1 by interrupt, on the first core from the first drive.
    fn default() -> Self {
        Self {
            background: false,
            cores: (0, 1),
            helper: 0,
            quota: None,
            method: IoMethod::Interrupt,
            depth: 1,
            drive: 0,
            bytes: 4_096,
            sequential: false,
            writes_ppm: 0,
            scheduler: Scheduler::None,
            cpu_ns: 0,
            think_after: 0,
            think_ns: 0,
            think_spin_ns: 0,
            write_cpu_ns: None,
            hits_ppm: 0,
            write_hits_ppm: 0,
            fetches: false,
            adds: 0,
            backlog_ppm: 0,
            stalls_bytes: 0,
        }
    }
}

/// CPU quota of a group of jobs: maximum CPU time per period (`cpu.max` of a control group).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// CPU time per period, summed over cores.
    pub quota_ns: u64,
    /// Period.
    pub period_ns: u64,
    /// Time that a core takes from the quota at a time (Linux: 5 ms).
    pub slice_ns: u64,
}

/// Scheduled cores and their jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// The first scheduled core; all later cores are scheduled, all earlier ones poll.
    pub first_core: u16,
    /// Jobs.
    pub jobs: Vec<Job>,
    /// CPU quotas.
    pub quotas: Vec<Quota>,
    /// End of the jobs' work; the machine is idle for the rest of the run.
    pub until_ns: u64,
    /// Index of the power state of all drives.
    pub drive_state: usize,
    /// Whether drives enter their lowest power state autonomously.
    pub drive_autonomous: bool,
}
