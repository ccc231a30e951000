//! The parameters of a drive's stages: what some drives have beside front and dies. All are off where a profile does not name them.

use serde::Deserialize;

use super::model::{SsdModel, SsdModelError, require};

/// A controller that takes one command after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// Least time between two commands.
    pub command_ns: u64,
    /// Bytes a second.
    pub bytes_per_s: u64,
    /// Share of a command's time that is drawn (exponential), in millionths.
    #[serde(default)]
    pub random_ppm: u64,
    /// Most bytes a second of sequential reads, which are read ahead and wait for no die; 0 where they are like others.
    #[serde(default)]
    pub stream_bytes_per_s: u64,
    /// Most sequential streams that it reads ahead of, each with a window of its own; a read of any other stream waits for its dies. 0: it
    /// follows all.
    #[serde(default)]
    pub streams: u32,
    /// How far behind the foremost read of a stream data is still in its window, in bytes.
    #[serde(default)]
    pub stream_window_bytes: u64,
    /// Extra time where a sequential stream turns from reads to writes or back.
    #[serde(default)]
    pub turn_ns: u64,
    /// The largest command (MDTS); larger requests are cut.
    pub most_bytes: u64,
    /// Bytes that one entry of the mapping stands for. A write of a part of a unit reads the unit from flash and changes it, unless it
    /// goes on in the unit that the sequential write before it began. 0: data is written as it comes.
    #[serde(default)]
    pub unit_bytes: u64,
}

impl Controller {
    /// What no command can be faster than.
    pub(super) fn least_ns(&self) -> u64 {
        let fixed_ppm = 1_000_000 - self.random_ppm.min(1_000_000);
        (u128::from(self.command_ns) * u128::from(fixed_ppm) / 1_000_000) as u64
    }
}

/// A buffer that empties to flash at the power state's rate, and data that is moved again later. In the place of the buffer of `[program]`
/// and of `[gc]` where nothing is known of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Memory that takes writes.
    pub buffer_bytes: u64,
    /// Flash that takes writes at full speed before older ones must be moved.
    pub cache_bytes: u64,
    /// Bytes a second that are moved while writes wait for room.
    pub full_bytes_per_s: u64,
    /// Whether a random write must first read where its block is mapped.
    pub map_reads: bool,
    /// Whether a random read must, too.
    #[serde(default)]
    pub map_of_reads: bool,
    /// Share of the mapping that is in memory, in millionths: so often such a request reads nothing first. For requests that are uniform
    /// over the drive it is what any replacement of segments leaves there.
    #[serde(default)]
    pub map_cached_ppm: u64,
    /// Whether programs of `[program]` occupy dies while the buffer empties, so that reads wait behind them; of that table only the times, the
    /// size of a program and the suspension count. Without it programs hold up no reads.
    #[serde(default)]
    pub programs: bool,
    /// A drive without work begins to move data after so long.
    pub gc_after_ns: u64,
}

/// What a drive does when it is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rest {
    /// It goes to its own rest after so long without anything to do
    pub after_ns: u64,
    /// and takes so long to come back.
    pub wake_ns: u64,
    /// Where autonomous transitions are on, it goes to its lowest power state after so long; it comes back as from its own rest.
    pub asleep_after_ns: u64,
}

/// A state that a drive goes to by itself while it has nothing to do (NVMe: a non-operational power state, entered autonomously).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleState {
    /// Such as `idle-0`.
    pub name: String,
    /// It goes there after so long without anything to do
    pub after_ns: u64,
    /// and takes so long to come back, in which it draws what it draws awake.
    pub wake_ns: u64,
    /// What it draws there, in microwatts.
    pub uw: u64,
}

/// Most idle states of a drive.
const MOST_IDLE: usize = 4;

/// Most bytes for an entry of the mapping.
const MOST_UNIT: u64 = 1 << 20;

/// A power state in which a drive works; rates of 0 are no limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveState {
    /// Such as `ps1`.
    pub name: String,
    /// Most bytes a second of reads.
    #[serde(default)]
    pub read_bytes_per_s: u64,
    /// Most bytes a second that go from the buffer to flash.
    #[serde(default)]
    pub write_bytes_per_s: u64,
    /// Bytes a second that are moved when nothing else is to do.
    #[serde(default)]
    pub gc_bytes_per_s: u64,
    /// What moving takes beside the awake drive, in microwatts.
    #[serde(default)]
    pub gc_uw: u64,
}

/// Page reads that take longer (they are read again, at another voltage): the tail of a drive that nobody else uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowReads {
    /// How many of a million.
    pub pages_ppm: u64,
    /// How much longer on the mean (exponential).
    pub mean_ns: u64,
}

/// What a drive takes by state and byte; what moving data takes stands in its power states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveEnergy {
    /// Awake, in microwatts.
    pub awake_uw: u64,
    /// At its own rest, or after so long without work that it draws less, with nothing to come back from.
    pub rest_uw: u64,
    /// In its lowest power state.
    pub asleep_uw: u64,
    /// Picojoules for each byte read.
    pub read_pj_per_byte: u64,
    /// Picojoules for each byte written.
    pub write_pj_per_byte: u64,
}

impl SsdModel {
    /// The number of power states in which it works.
    #[must_use]
    pub fn power_states(&self) -> usize {
        self.state.len().max(1)
    }

    /// Whether it has any stage beside front and dies.
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
            require("controller.unit_bytes", unit, unit <= MOST_UNIT, "at most 1 MiB")?;
        }
        let idle = self.idle.len();
        require("idle", idle as u64, idle <= MOST_IDLE, "at most four states")?;
        require("idle", idle as u64, idle == 0 || self.energy.is_some(), "in a profile with [energy]")?;
        let deeper = self.idle.is_sorted_by(|one, next| one.after_ns < next.after_ns);
        let last_ns = self.idle.last().map_or(0, |last| last.after_ns);
        require("idle.after_ns", last_ns, deeper, "each after the one before")?;
        let slow = self.slow.map_or(0, |slow| slow.pages_ppm);
        require("slow.pages_ppm", slow, slow <= 1_000_000, "0 to 1000000")
    }
}
