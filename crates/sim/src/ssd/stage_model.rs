//! Parameters of a drive's optional stages. Stages absent from the profile are disabled.

use serde::Deserialize;

use super::model::{SsdModel, SsdModelError, require};

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

/// Maximum idle states of a drive.
const MAX_IDLE: usize = 4;

/// Maximum bytes per mapping entry.
const MAX_UNIT: u64 = 1 << 20;

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

impl SsdModel {
    /// Number of operational power states.
    #[must_use]
    pub fn power_states(&self) -> usize {
        self.state.len().max(1)
    }

    /// Whether it has any stage besides front and dies.
    #[must_use]
    pub fn has_stages(&self) -> bool {
        self.controller.is_some()
            || self.cache.is_some()
            || self.rest.is_some()
            || self.slow.is_some()
            || !self.state.is_empty()
            || !self.idle.is_empty()
            || self.flash.read_ns_per_kib > 0
            || self.flash.placement == super::Placement::Scattered
    }

    pub(super) fn check_stages(&self) -> Result<(), SsdModelError> {
        if let Some(controller) = &self.controller {
            let most = controller.most_bytes;
            require("controller.most_bytes", most, most > 0, "1 or more")?;
            require("controller.bytes_per_s", 0, controller.bytes_per_s > 0, "1 or more")?;
            let random = controller.random_ppm;
            require("controller.random_ppm", random, random <= 1_000_000, "0 to 1000000")?;
        }
        if let Some(cache) = &self.cache {
            let fits = cache.programs == self.program.is_some() && self.gc.is_none();
            require(
                "cache.programs",
                u64::from(cache.programs),
                fits,
                "true with [program] and without [gc], else false",
            )?;
            let cached = cache.map_cached_ppm;
            require("cache.map_cached_ppm", cached, cached <= 1_000_000, "0 to 1000000")?;
        }
        if let Some(unit) = self.controller.map(|controller| controller.unit_bytes) {
            require("controller.unit_bytes", unit, unit <= MAX_UNIT, "at most 1 MiB")?;
        }
        let idle = self.idle.len();
        require("idle", idle as u64, idle <= MAX_IDLE, "at most four states")?;
        require("idle", idle as u64, idle == 0 || self.energy.is_some(), "in a profile with [energy]")?;
        let deeper = self.idle.is_sorted_by(|one, next| one.after_ns < next.after_ns);
        let last_ns = self.idle.last().map_or(0, |last| last.after_ns);
        require("idle.after_ns", last_ns, deeper, "each after the one before")?;
        let slow = self.slow.map_or(0, |slow| slow.pages_ppm);
        require("slow.pages_ppm", slow, slow <= 1_000_000, "0 to 1000000")
    }
}
