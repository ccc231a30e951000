//! Parameters of a drive, as in its profile.
//!
//! A profile is TOML with one table per stage of the drive. Omitted stages cost nothing: a profile of `[flash]` alone is the plain queue of the law
//! tests. `README.md` describes the effect of parameters on latency curves.

use serde::Deserialize;

use super::stage_model::{Cache, Controller, DriveEnergy, DriveState, IdleState, Rest, SlowReads};

/// A drive, as in `profiles/ssd/NAME.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdModel {
    /// Name of the profile.
    pub name: String,
    /// Source of the figures.
    pub source: String,
    /// Host interface and controller.
    #[serde(default)]
    pub front: Front,
    /// Dies and reads.
    pub flash: Flash,
    /// Write buffer, programs and erases. Without it, writes do not reach the dies.
    #[serde(default)]
    pub program: Option<Program>,
    /// Garbage collection. Without it, free flash is unlimited.
    #[serde(default)]
    pub gc: Option<Gc>,
    /// Power ceiling; unlimited if absent.
    #[serde(default)]
    pub power: Option<DrivePower>,
    /// A controller that processes one command at a time.
    #[serde(default)]
    pub controller: Option<Controller>,
    /// A buffer that drains at a fixed rate.
    #[serde(default)]
    pub cache: Option<Cache>,
    /// Operational power states, fastest first. Without any, only the other stages limit the speed.
    #[serde(default)]
    pub state: Vec<DriveState>,
    /// Autonomous idle behaviour; none if absent.
    #[serde(default)]
    pub rest: Option<Rest>,
    /// Autonomous idle states, shallowest first, in place of `rest`; none if empty.
    #[serde(default)]
    pub idle: Vec<IdleState>,
    /// Slow page reads; none if absent.
    #[serde(default)]
    pub slow: Option<SlowReads>,
    /// Energy by state and byte. Without it, the machine's figures for all drives apply.
    #[serde(default)]
    pub energy: Option<DriveEnergy>,
}

/// Power ceiling of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrivePower {
    /// Maximum mean power above idle, in microwatts.
    pub most_load_uw: u64,
}

/// Host interface and controller; 0 means no limit, or no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Front {
    /// Added to every read; occupies no resource.
    pub read_latency_ns: u64,
    /// Added to every write; occupies no resource.
    pub write_latency_ns: u64,
    /// Maximum commands per second; 0 for no limit.
    pub max_iops: u64,
    /// Maximum writes per second, of these.
    pub max_write_iops: u64,
    /// Maximum bytes per second of the host interface.
    pub max_bytes_per_s: u64,
    /// Command queues, each with its own window; a command goes to a random one. Ignored without `reorder_window`.
    pub queues: u32,
    /// A completion is reported no earlier than those of commands at least this many earlier in its queue; 0: in any order.
    pub reorder_window: u32,
    /// Lanes that take writes into the buffer; a write goes to a random one. 0: writes need no lane.
    pub write_lanes: u32,
    /// Time for which a write occupies its lane.
    pub write_lane_ns: u64,
}

/// Dies and their reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    /// Units that read and program independently: dies, or planes if the drive supports it.
    pub dies: u32,
    /// A request is split at multiples of this many bytes; the parts go to consecutive dies.
    pub page_bytes: u32,
    /// Mean page read time of a die.
    pub read_ns: u64,
    /// Read times vary by up to this much, uniformly: pages of one cell differ. Only for `service = "uniform"`.
    #[serde(default)]
    pub read_spread_ns: u64,
    /// Additional time per KiB read from the page.
    #[serde(default)]
    pub read_ns_per_kib: u64,
    /// Distribution of read times.
    #[serde(default)]
    pub service: Service,
    /// Placement of offsets on dies.
    #[serde(default)]
    pub placement: Placement,
}

/// Distribution of page read times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// Uniform within `read_spread_ns` of `read_ns`.
    #[default]
    Uniform,
    /// Exponential with mean `read_ns`. Not realistic; for comparison with closed forms.
    Exponential,
}

/// Placement of pages on dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The first page of a request is on a random die, by the request's draw; further pages are on the following dies.
    #[default]
    Random,
    /// Page n is on die n modulo dies: data written once, in order of offsets.
    Striped,
    /// The die that is free first. Not possible for a drive's reads; for comparison with M/M/c.
    FirstFree,
    /// Every page is on an independent random die.
    Scattered,
}

/// Write buffer, programs and erases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Mean time of a program.
    pub program_ns: u64,
    /// Program times vary by up to this much, uniformly.
    #[serde(default)]
    pub program_spread_ns: u64,
    /// Bytes of one program on a die (all planes and bits of a word line that it writes at once).
    pub program_bytes: u32,
    /// Maximum acknowledged but unprogrammed data. Every die owns an equal part, of at least one program.
    pub buffer_bytes: u64,
    /// Time of an erase; 0: never.
    #[serde(default)]
    pub erase_ns: u64,
    /// Programs per erase of a die.
    #[serde(default)]
    pub programs_per_erase: u32,
    /// Time after which a read suspends a program or erase; absent: the read waits for the end.
    #[serde(default)]
    pub suspend_ns: Option<u64>,
}

/// Garbage collection of random writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gc {
    /// Spare flash in thousandths of the stored data: overprovisioning and capacity unused by the host.
    pub spare_permille: u32,
    /// Pool of erased flash, in bytes. Garbage collection starts when half is used and stops when the pool is full.
    pub pool_bytes: u64,
    /// Initial fill of the pool, in thousandths.
    pub start_permille: u32,
    /// Share of die time that garbage collection takes while host requests run, in thousandths.
    pub duty_permille: u32,
}

impl Gc {
    /// Bytes copied per byte written by the host, in thousandths. Uniform random writes and round-robin victims: a write
    /// amplification of about (1 + s) / 2s for a spare share s (Hu et al., SYSTOR '09, in its simplest form).
    #[must_use]
    pub fn copies_permille(&self) -> u64 {
        let spare = u64::from(self.spare_permille);
        ((1000 + spare) * 500 / spare).saturating_sub(1000)
    }
}

/// Error in a drive's profile.
#[derive(Debug, thiserror::Error)]
pub enum SsdModelError {
    /// Invalid TOML or unknown keys.
    #[error("the drive's profile cannot be read: {0}")]
    Toml(toml::de::Error),
    /// An invalid value.
    #[error("the drive's profile: {key} is {value}; {wanted}")]
    Figure {
        /// The key.
        key: &'static str,
        /// The value.
        value: u64,
        /// The allowed values.
        wanted: &'static str,
    },
}

impl From<toml::de::Error> for SsdModelError {
    fn from(error: toml::de::Error) -> Self {
        Self::Toml(error)
    }
}

impl SsdModel {
    /// Reads a profile.
    ///
    /// # Errors
    /// If the text is no profile or has an invalid value; the error names the key.
    pub fn parse(text: &str) -> Result<Self, SsdModelError> {
        let model: Self = toml::from_str(text)?;
        model.check()?;
        Ok(model)
    }

    /// Whether the offset matters for requests of this size, aligned to it: they cross pages, or offsets determine dies.
    #[must_use]
    pub fn minds_offset(&self, bytes: u32) -> bool {
        self.flash.placement == Placement::Striped || !self.flash.page_bytes.is_multiple_of(bytes.max(1))
    }

    /// Checks the values.
    ///
    /// # Errors
    /// If a value is invalid; the error names the key.
    pub fn check(&self) -> Result<(), SsdModelError> {
        let flash = &self.flash;
        require("flash.dies", u64::from(flash.dies), flash.dies > 0 && flash.dies <= 65_536, "1 to 65536")?;
        require("flash.page_bytes", u64::from(flash.page_bytes), flash.page_bytes.is_power_of_two(), "a power of two")?;
        require("flash.read_ns", flash.read_ns, flash.read_ns < YEAR_NS, "under a year")?;
        let spread = flash.read_spread_ns;
        require("flash.read_spread_ns", spread, spread <= flash.read_ns, "at most flash.read_ns")?;
        self.program.as_ref().map_or(Ok(()), |program| program.check(flash.dies))?;
        self.gc.as_ref().map_or(Ok(()), |gc| gc.check(self.program.as_ref()))?;
        self.check_stages()
    }

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
            || self.flash.placement == Placement::Scattered
    }

    fn check_stages(&self) -> Result<(), SsdModelError> {
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

/// Maximum idle states of a drive.
const MAX_IDLE: usize = 4;

/// Maximum bytes per mapping entry.
const MAX_UNIT: u64 = 1 << 20;

const YEAR_NS: u64 = 31_536_000_000_000_000;

impl Program {
    fn check(&self, dies: u32) -> Result<(), SsdModelError> {
        require("program.program_bytes", u64::from(self.program_bytes), self.program_bytes > 0, "a program has bytes")?;
        let enough = self.buffer_bytes >= u64::from(dies) * u64::from(self.program_bytes);
        require("program.buffer_bytes", self.buffer_bytes, enough, "flash.dies times program.program_bytes, or more")?;
        require("program.program_ns", self.program_ns, self.program_ns < YEAR_NS, "under a year")?;
        let spread = self.program_spread_ns;
        require("program.program_spread_ns", spread, spread <= self.program_ns, "at most program.program_ns")?;
        let every = self.programs_per_erase;
        require(
            "program.programs_per_erase",
            0,
            every > 0 || self.erase_ns == 0,
            "1 or more where there is an erase_ns",
        )
    }
}

impl Gc {
    fn check(&self, program: Option<&Program>) -> Result<(), SsdModelError> {
        let unit = program.map_or(u64::MAX, |program| 2 * u64::from(program.program_bytes));
        require(
            "gc.pool_bytes",
            self.pool_bytes,
            self.pool_bytes >= unit,
            "at least two programs, in a profile with [program]",
        )?;
        require("gc.spare_permille", u64::from(self.spare_permille), self.spare_permille > 0, "more than 0")?;
        let start = u64::from(self.start_permille);
        require("gc.start_permille", start, start <= 1000, "0 to 1000")?;
        let duty = u64::from(self.duty_permille);
        require("gc.duty_permille", duty, (1..=1000).contains(&duty), "1 to 1000")
    }
}

fn require(key: &'static str, value: u64, holds: bool, wanted: &'static str) -> Result<(), SsdModelError> {
    if holds { Ok(()) } else { Err(SsdModelError::Figure { key, value, wanted }) }
}
