//! Parameters of a drive's optional stages. Stages absent from the profile are disabled.

use serde::Deserialize;

/// A controller that processes one command at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// Minimum time between two commands.
    pub command_ns: u64,
    /// Bytes per second.
    pub bytes_per_s: u64,
    /// Share of a command's time that is random (exponential), in millionths.
    #[serde(default)]
    pub random_ppm: u64,
    /// Maximum bytes per second of sequential reads, which are read ahead and wait for no die; 0 for no read-ahead.
    #[serde(default)]
    pub stream_bytes_per_s: u64,
    /// Maximum sequential streams with read-ahead, each with its own window; a read of any other stream waits for its dies. 0: no maximum.
    #[serde(default)]
    pub streams: u32,
    /// Bytes behind a stream's foremost read that are still in its window.
    #[serde(default)]
    pub stream_window_bytes: u64,
    /// Extra time for a change of a sequential stream between reads and writes.
    #[serde(default)]
    pub turn_ns: u64,
    /// Maximum command size (MDTS); larger requests are split.
    pub most_bytes: u64,
    /// Bytes per mapping entry. A partial write of a unit is a read-modify-write, unless it continues the unit that the previous sequential write
    /// began. 0: data is written as is.
    #[serde(default)]
    pub unit_bytes: u64,
}

impl Controller {
    /// Minimum time of a command.
    pub(super) fn least_ns(&self) -> u64 {
        let fixed_ppm = 1_000_000 - self.random_ppm.min(1_000_000);
        (u128::from(self.command_ns) * u128::from(fixed_ppm) / 1_000_000) as u64
    }
}

/// A buffer that drains to flash at the power state's rate, with later moves of the data. Replaces the buffer of `[program]` and `[gc]` for drives
/// without figures for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Size of the write buffer.
    pub buffer_bytes: u64,
    /// Flash that accepts writes at full speed before older data must be moved.
    pub cache_bytes: u64,
    /// Bytes per second moved while writes wait for room.
    pub full_bytes_per_s: u64,
    /// Whether a random write first reads its mapping entry.
    pub map_reads: bool,
    /// The same for a random read.
    #[serde(default)]
    pub map_of_reads: bool,
    /// Share of the mapping cached in memory, in millionths: the share of such requests without a mapping read. For requests uniform over the drive,
    /// this is the hit ratio of any replacement policy of segments.
    #[serde(default)]
    pub map_cached_ppm: u64,
    /// Whether programs of `[program]` occupy dies while the buffer drains, so that reads wait for them; of that table only the times, the size of a
    /// program and the suspension apply. If `false`, programs do not delay reads.
    #[serde(default)]
    pub programs: bool,
    /// Idle time after which the drive begins to move data.
    pub gc_after_ns: u64,
}

/// Autonomous idle behaviour of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rest {
    /// Idle time until it enters its idle state.
    pub after_ns: u64,
    /// Exit latency.
    pub wake_ns: u64,
    /// Idle time until it enters its lowest power state, if autonomous transitions are enabled; same exit latency.
    pub asleep_after_ns: u64,
}

/// An autonomous idle state of a drive (NVMe: a non-operational power state, entered autonomously).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleState {
    /// Such as `idle-0`.
    pub name: String,
    /// Idle time until it enters the state.
    pub after_ns: u64,
    /// Exit latency, at awake power.
    pub wake_ns: u64,
    /// Power in the state, in microwatts.
    pub uw: u64,
}

/// An operational power state; rates of 0 are no limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveState {
    /// Such as `ps1`.
    pub name: String,
    /// Maximum read bytes per second.
    #[serde(default)]
    pub read_bytes_per_s: u64,
    /// Maximum bytes per second from the buffer to flash.
    #[serde(default)]
    pub write_bytes_per_s: u64,
    /// Bytes per second moved while idle.
    #[serde(default)]
    pub gc_bytes_per_s: u64,
    /// Power of moving data above awake power, in microwatts.
    #[serde(default)]
    pub gc_uw: u64,
}

/// Slow page reads (read retries at another voltage): the latency tail of an otherwise idle drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowReads {
    /// Share of pages, in millionths.
    pub pages_ppm: u64,
    /// Mean extra time (exponential).
    pub mean_ns: u64,
}

/// Energy of a drive by state and byte; its power states have the power of moving data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveEnergy {
    /// Awake power, in microwatts.
    pub awake_uw: u64,
    /// Power in its idle state, or after idle time that lowers its power without exit latency.
    pub rest_uw: u64,
    /// Power in its lowest power state.
    pub asleep_uw: u64,
    /// Picojoules per byte read.
    pub read_pj_per_byte: u64,
    /// Picojoules per byte written.
    pub write_pj_per_byte: u64,
}
