//! What runs on cores that are scheduled: programs that have requests done one of several ways, and background work.

use serde::Deserialize;

/// How a request is had done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMethod {
    /// A synchronous call; the kernel wakes the job at an interrupt.
    Interrupt,
    /// A synchronous call that looks at the queue until the request is done.
    Classic,
    /// A synchronous call that sleeps half of the mean time and then looks.
    Hybrid,
    /// `libaio`, by interrupt.
    Libaio,
    /// `io_uring`, by interrupt.
    Uring,
    /// `io_uring` with a thread in the kernel that submits and looks.
    UringPolled,
    /// `posixaio`: a helper thread makes synchronous calls, one at a time for a file; what else is in progress waits for it.
    PosixAio,
    /// Without the kernel, looking all the time (SPDK).
    Bypass,
}

impl IoMethod {
    /// Whether a job has one request in progress, whatever depth is asked.
    #[must_use]
    pub fn is_synchronous(self) -> bool {
        matches!(self, Self::Interrupt | Self::Classic | Self::Hybrid)
    }

    /// Whether a job looks all the time, instead of sleeping until it is woken.
    #[must_use]
    pub fn spins(self) -> bool {
        matches!(self, Self::Bypass | Self::UringPolled)
    }
}

/// The order of requests in the kernel.
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

/// What it costs to have a request done, at the highest frequency and with an idle sibling, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobCosts {
    /// The load generator's own part of each request.
    pub job_ns: u64,
    /// From the system call to the doorbell.
    pub submit_ns: u64,
    /// From the completion queue's entry to the caller.
    pub complete_ns: u64,
    /// Mapping memory, for each KiB of a request.
    pub page_ns_per_kib: u64,
    /// Taking an interrupt.
    pub interrupt_ns: u64,
    /// Leaving a processor and coming back to it, half each.
    pub switch_ns: u64,
    /// Arming a timer and taking its interrupt, half each.
    pub timer_ns: u64,
    /// One look at a completion queue.
    pub look_ns: u64,
    /// What `libaio` takes more than a synchronous call.
    pub libaio_ns: u64,
    /// What `io_uring` takes more than a synchronous call.
    pub uring_ns: u64,
    /// The application's part of a request with a submission thread in the kernel.
    pub ring_ns: u64,
    /// Handing a request to a helper thread and back (`posixaio`).
    pub hand_over_ns: u64,
    /// Submission and completion without the kernel.
    pub bypass_ns: u64,
    /// How long each request holds the lock of the scheduler `kyber`.
    pub kyber_ns: u64,
    /// The same of `mq-deadline`.
    pub deadline_ns: u64,
    /// By how much work takes longer on a core whose sibling works too, in millionths.
    pub sibling_slows_ppm: u64,
    /// A request that cannot have the scheduler's lock waits in the scheduler's queue while its job goes on or sleeps; otherwise its job
    /// spins for it.
    #[serde(default)]
    pub lock_sleeps: bool,
    /// Most bytes of a command (MDTS, `max_sectors_kb`): a larger request is cut into several, each of which costs [`Self::submit_ns`] and
    /// [`Self::complete_ns`]; 0 if the drive gets every request whole.
    #[serde(default)]
    pub command_bytes: u32,
}

/// A program, or background work: so much processor time for each operation, and a request, or none.
///
/// A *client* is a job some of whose operations need no request, because a cache has what they read or takes what they write. Work that
/// its writes leave is done by other jobs ([`Job::backlog_ppm`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// It runs when nobody else wants to, and makes room at once.
    pub background: bool,
    /// Cores that it may run on: the first, and how many.
    pub cores: (u16, u16),
    /// The core of the kernel's thread that submits for it ([`IoMethod::UringPolled`]).
    pub helper: u16,
    /// Which of [`Scheduled::quotas`] limits its processor time.
    pub quota: Option<u16>,
    /// How requests are had done.
    pub method: IoMethod,
    /// Requests in progress.
    pub depth: u32,
    /// The drive that they go to.
    pub drive: u16,
    /// Bytes of a request; 0 for processor time only.
    pub bytes: u32,
    /// Whether requests follow each other on the drive.
    pub sequential: bool,
    /// Share of writes, in millionths.
    pub writes_ppm: u32,
    /// The order in the kernel.
    pub scheduler: Scheduler,
    /// Processor time of the program for each operation, beside [`JobCosts::job_ns`].
    pub cpu_ns: u64,
    /// After so many requests it rests; 0 if it never does.
    pub think_after: u32,
    /// for so long,
    pub think_ns: u64,
    /// of which it keeps its processor busy for so long.
    pub think_spin_ns: u64,
    /// Processor time of a write in the place of [`Self::cpu_ns`].
    pub write_cpu_ns: Option<u64>,
    /// Share of reads that need no request, in millionths.
    pub hits_ppm: u32,
    /// The same of writes.
    pub write_hits_ppm: u32,
    /// The request of a write that needs one reads: what is changed is read first, and written by others.
    pub fetches: bool,
    /// Bytes that each finished write adds to what jobs with a backlog have to do.
    pub adds: u32,
    /// It works only off a backlog: this multiple of all bytes that are added, in millionths; 0 if it is no such job. It waits where less than
    /// a whole request is left.
    pub backlog_ppm: u32,
    /// A write does not begin while any backlog is behind by more than so many bytes, as they were added; 0 if it never waits.
    pub stalls_bytes: u64,
}

impl Job {
    /// Whether it is a client.
    #[must_use]
    pub fn is_client(&self) -> bool {
        self.hits_ppm > 0 || self.write_hits_ppm > 0 || self.adds > 0
    }
}

impl Default for Job {
    /// A program that reads 4 KiB at random, one after the other by interrupt, on the first core from the first drive.
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

/// Processor time of a group of jobs: together no more than so much in each period (`cpu.max` of a control group).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Time in a period, on all cores together.
    pub quota_ns: u64,
    /// Length of a period.
    pub period_ns: u64,
    /// Most that a core takes of it at a time (Linux: 5 ms).
    pub slice_ns: u64,
}

/// Cores that are scheduled, and what runs on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// The first of them; all that follow are scheduled too, those before poll.
    pub first_core: u16,
    /// What runs.
    pub jobs: Vec<Job>,
    /// Limits of processor time.
    pub quotas: Vec<Quota>,
    /// Jobs work until then; what is left of the run shows what the machine does afterwards.
    pub until_ns: u64,
    /// Index of the power state of all drives.
    pub drive_state: usize,
    /// Whether drives go to their lowest state by themselves.
    pub drive_autonomous: bool,
}
