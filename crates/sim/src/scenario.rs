//! What is run: a machine, its drives, a workload, for how long, with which seed.

use pilotlight_plant::{Goals, KnobId, Topology};

use crate::jobs::Scheduled;
use crate::machine::{Machine, Power};
use crate::sensor::SensorModel;
use crate::ssd::SsdModel;

/// A run, but for the policy.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The machine.
    pub machine: Machine,
    /// Further members of the family of its power, that are to be accounted for beside it. What happens is the same under each: their
    /// `kernel_idles_deep` counts for nothing.
    pub family: Vec<Power>,
    /// Logical cores in use; the first is the main core unless the topology says otherwise.
    pub topology: Topology,
    /// I/O threads; thread `i` begins on core `i` modulo the number of cores.
    pub threads: u16,
    /// The drives.
    pub drives: Vec<SsdModel>,
    /// What hosts ask for.
    pub workload: Workload,
    /// Cores that are scheduled, and what runs on them; all others poll.
    pub scheduled: Option<Scheduled>,
    /// Simulated time in nanoseconds.
    pub duration_ns: u64,
    /// Time at the beginning that no result includes, in nanoseconds.
    pub warm_up_ns: u64,
    /// Length of one entry of [`crate::outcome::Outcome::series`], in nanoseconds.
    pub series_ns: u64,
    /// The seed of every random number.
    pub seed: u64,
    /// How the machine measures itself, where a policy wants readings.
    pub sensors: Sensors,
    /// What the operator asks for from when on, in the order of time; from 0 on nothing, if not said otherwise.
    pub goals: Vec<(u64, Goals)>,
    /// What comes and goes of the machine, in the order of time.
    pub changes: Vec<(u64, Change)>,
    /// Call the policy at every tick, also where the contract lets the plant leave it out. For tests.
    pub eager: bool,
}

/// What comes or goes of a machine while it runs; the policy is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A knob cannot be set any more, and what it had set does not hold any more.
    KnobGoes(KnobId),
    /// It can be set again.
    KnobComes(KnobId),
}

/// How a machine measures itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sensors {
    /// Time over which a reading is a mean, in nanoseconds.
    pub window_ns: u64,
    /// Time from the end of that until the reading is known, in nanoseconds.
    pub lag_ns: u64,
    /// From and until when sensors fail: windows that end then are never known.
    pub silent: Vec<(u64, u64)>,
    /// The meter that reads the server's power, where it is not as exact as the rest: IPMI's, for one.
    pub meter: Option<SensorModel>,
}

impl Default for Sensors {
    /// 100 ms, known 10 ms later: chosen, as no paper of this machine says how it would measure itself.
    fn default() -> Self {
        Self { window_ns: 100_000_000, lag_ns: 10_000_000, silent: Vec::new(), meter: None }
    }
}

/// What hosts ask for.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Connections between hosts and target.
    pub connections: Vec<Connection>,
    /// What the target has to do by itself, by class ([`pilotlight_plant::Of::Background`]).
    pub background: Vec<Background>,
}

/// Background work of a class, spread evenly over drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// Its drives: from, number.
    pub drives: (u16, u16),
    /// What is to be done at the start, in bytes.
    pub backlog_bytes: u64,
    /// What comes to it in a second, in bytes.
    pub bytes_per_s: u64,
    /// Most that is done in a second, in bytes: at the highest rate, if drives allow it.
    pub most_bytes_per_s: u64,
    /// Its rate at the start, in millionths of the highest.
    pub rate_ppm: u32,
    /// Size of an I/O in bytes, [`Background::MOST_BYTES`] at most.
    pub io_bytes: u32,
    /// Whether it writes.
    pub write: bool,
    /// CPU time for each KiB at full speed, in nanoseconds.
    pub ns_per_kib: u32,
}

impl Background {
    /// The largest I/O in bytes: what a host's request may have to wait for on a drive.
    pub const MOST_BYTES: u32 = 65_536;
}

/// One connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The I/O thread that serves it.
    pub thread: u16,
    /// Drives that it uses, each as often as the others: from, number.
    pub drives: (u16, u16),
    /// What a request is.
    pub request: Kind,
    /// Most requests in progress; what is due beyond it waits at the host. `u32::MAX`: open loop.
    pub depth: u32,
    /// How due times are spaced while a phase has a rate.
    pub spacing: Spacing,
    /// What is asked for when; begins anew after the last.
    pub phases: Vec<Phase>,
    /// Time between an answer and the next request that it lets go, in nanoseconds.
    pub think_ns: u64,
}

/// What a request is, on the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One read or write.
    Plain {
        /// Share of writes in millionths.
        writes_ppm: u32,
        /// Size in bytes.
        bytes: u32,
        /// One after the other on each drive, not at random.
        sequential: bool,
    },
    /// Steps that follow each other: a step's commands begin when all of the step before are done (RAID).
    Steps {
        /// The steps.
        steps: Vec<Step>,
        /// Bytes from host to target.
        bytes_in: u32,
        /// Bytes from target to host.
        bytes_out: u32,
    },
    /// What a trace says ([`Arrival`]); `phases` and `spacing` are not used.
    Traced {
        /// A dependent replay: a request follows the answer to the one before it after as long as the trace has between the two, less
        /// this much, in nanoseconds, that the one before is assumed to have taken; never before its time. `None`: every request at its
        /// time (open loop).
        service_ns: Option<u64>,
    },
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the host is to send it, in nanoseconds. Sent later where `depth` holds it back.
    pub at_ns: u64,
    /// The connection, of kind [`Kind::Traced`].
    pub connection: u32,
    /// What it asks for.
    pub what: Traced,
}

/// What a request of a trace asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// The drive.
    pub drive: u16,
    /// Whether it writes.
    pub write: bool,
    /// Where on the drive, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub bytes: u32,
}

/// A step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Commands that read, each on another drive.
    pub reads: u8,
    /// Commands that write, each on another drive.
    pub writes: u8,
    /// Size of each, in bytes.
    pub bytes: u32,
    /// Parity computed before the step, in KiB.
    pub parity_kib: u32,
}

/// How the due times of requests are spaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spacing {
    /// At equal distances, each connection with a phase of its own.
    Paced,
    /// Independently of each other.
    Poisson,
    /// Poisson at a rate that changes between a low and a high one, each for an exponential time; the mean is the phase's rate.
    Mmpp {
        /// High over low rate.
        ratio: f64,
        /// Share of time at the high rate.
        high_share: f64,
        /// Mean time at the high rate, in nanoseconds.
        high_ns: f64,
    },
}

/// A time with one rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Results are kept apart by label.
    pub label: u8,
    /// Length in nanoseconds.
    pub length_ns: u64,
    /// Requests of this connection.
    pub rate: Rate,
}

/// How many requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// So many a second.
    PerSecond(f64),
    /// As many as `depth` allows.
    Unlimited,
    /// None.
    Off,
}
