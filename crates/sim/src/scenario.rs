//! A scenario: machine, drives, workload, duration and seed of a run.

use pilotlight_plant::{Goals, KnobId, Topology};

use crate::jobs::Scheduled;
use crate::machine::{Machine, Power};
use crate::sensor::SensorModel;
use crate::ssd::SsdModel;

/// Input of a run, without the policy.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The machine.
    pub machine: Machine,
    /// Further members of its power family, accounted in addition. Events are the same under each: their `kernel_idles_deep` is ignored.
    pub family: Vec<Power>,
    /// Logical cores in use; by default, the first is the main core.
    pub topology: Topology,
    /// Number of I/O threads; thread `i` starts on core `i` modulo the number of cores.
    pub threads: u16,
    /// The drives.
    pub drives: Vec<SsdModel>,
    /// The workload.
    pub workload: Workload,
    /// Scheduled cores and their jobs; all others poll.
    pub scheduled: Option<Scheduled>,
    /// Simulated time in nanoseconds.
    pub duration_ns: u64,
    /// Warm-up time, excluded from results, in nanoseconds.
    pub warm_up_ns: u64,
    /// Length of one entry of [`crate::outcome::Outcome::series`], in nanoseconds.
    pub series_ns: u64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Sensors for the readings of a policy.
    pub sensors: Sensors,
    /// The operator's goals by start time, in ascending order; none before the first.
    pub goals: Vec<(u64, Goals)>,
    /// Changes of the machine's capabilities by time, in ascending order.
    pub changes: Vec<(u64, Change)>,
    /// Call the policy at every tick, even if the contract allows the plant to skip it. For tests.
    pub eager: bool,
}

/// A change of the machine's capabilities during the run; the policy is notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A knob becomes unavailable, and its setting is lost.
    KnobGoes(KnobId),
    /// A knob becomes available again.
    KnobComes(KnobId),
}

/// Sensors of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sensors {
    /// Averaging window of a reading, in nanoseconds.
    pub window_ns: u64,
    /// Time from the end of the window until the reading is available, in nanoseconds.
    pub lag_ns: u64,
    /// Periods (from, until) of sensor failure: windows that end in them have no reading.
    pub silent: Vec<(u64, u64)>,
    /// A less exact sensor of server power, such as IPMI.
    pub meter: Option<SensorModel>,
}

impl Default for Sensors {
    /// 100 ms window, 10 ms lag: chosen, as no paper states them for this machine.
    fn default() -> Self {
        Self { window_ns: 100_000_000, lag_ns: 10_000_000, silent: Vec::new(), meter: None }
    }
}

/// The workload.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Connections between hosts and target.
    pub connections: Vec<Connection>,
    /// The target's background work, by class ([`pilotlight_plant::Of::Background`]).
    pub background: Vec<Background>,
}

/// Background work of a class, distributed evenly over drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// Drives: first, number.
    pub drives: (u16, u16),
    /// Initial backlog, in bytes.
    pub backlog_bytes: u64,
    /// Growth of the backlog, in bytes per second.
    pub bytes_per_s: u64,
    /// Maximum bytes per second, at the highest rate and if drives allow it.
    pub max_bytes_per_s: u64,
    /// Initial rate, in millionths of the highest.
    pub rate_ppm: u32,
    /// Size of an I/O in bytes; at most [`Background::MAX_BYTES`].
    pub io_bytes: u32,
    /// Whether it writes.
    pub write: bool,
    /// CPU time per KiB at full speed, in nanoseconds.
    pub ns_per_kib: u32,
}

impl Background {
    /// Maximum I/O in bytes; bounds the wait of a host's request on a drive.
    pub const MAX_BYTES: u32 = 65_536;
}

/// A connection between host and target.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The I/O thread that serves it.
    pub thread: u16,
    /// Drives, used uniformly: first, number.
    pub drives: (u16, u16),
    /// Kind of its requests.
    pub request: Kind,
    /// Maximum requests in progress; further due requests wait at the host. `u32::MAX`: open loop.
    pub depth: u32,
    /// Distribution of due times in a phase with a rate.
    pub spacing: Spacing,
    /// Phases, repeated after the last.
    pub phases: Vec<Phase>,
    /// Time between a response and the next request that it releases, in nanoseconds.
    pub think_ns: u64,
}

/// Kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One read or write.
    Plain {
        /// Share of writes in millionths.
        writes_ppm: u32,
        /// Size in bytes.
        bytes: u32,
        /// Sequential on each drive, not random.
        sequential: bool,
    },
    /// Sequential steps: a step's commands begin when all commands of the previous step are complete (RAID).
    Steps {
        /// The steps.
        steps: Vec<Step>,
        /// Bytes from host to target.
        bytes_in: u32,
        /// Bytes from target to host.
        bytes_out: u32,
    },
    /// Requests from a trace ([`Arrival`]); `phases` and `spacing` are not used.
    Traced {
        /// Dependent replay: a request is sent after the response to the previous one, delayed by the trace's interval between the two minus this
        /// assumed service time of the previous one, in nanoseconds; never before its time. `None`: every request at its time (open loop).
        service_ns: Option<u64>,
    },
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Send time at the host, in nanoseconds; later if `depth` is exhausted.
    pub at_ns: u64,
    /// The connection, of kind [`Kind::Traced`].
    pub connection: u32,
    /// The command.
    pub what: Traced,
}

/// The command of a request of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// The drive.
    pub drive: u16,
    /// Whether it writes.
    pub write: bool,
    /// Offset on the drive, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// A step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Read commands, each on a different drive.
    pub reads: u8,
    /// Write commands, each on a different drive.
    pub writes: u8,
    /// Size of each, in bytes.
    pub bytes: u32,
    /// Parity computed before the step, in KiB.
    pub parity_kib: u32,
}

/// Distribution of the due times of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spacing {
    /// At equal intervals, with a phase shift per connection.
    Paced,
    /// Poisson arrivals.
    Poisson,
    /// Poisson at a rate that alternates between low and high, each for an exponential time; the mean is the phase's rate.
    Mmpp {
        /// High over low rate.
        ratio: f64,
        /// Share of time at the high rate.
        high_share: f64,
        /// Mean time at the high rate, in nanoseconds.
        high_ns: f64,
    },
}

/// A period with one rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Label by which results are grouped.
    pub label: u8,
    /// Length in nanoseconds.
    pub length_ns: u64,
    /// Request rate of this connection.
    pub rate: Rate,
}

/// Request rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Requests per second.
    PerSecond(f64),
    /// As many requests as `depth` allows.
    Unlimited,
    /// None.
    Off,
}
