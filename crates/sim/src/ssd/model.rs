//! The parameters of a drive, as a profile gives them.
//!
//! A profile is TOML with one table per stage of the drive. Stages left out cost nothing: a profile of `[flash]` alone is
//! the plain queue that the law tests use. `README.md` tells what parameters do to a curve.

use serde::Deserialize;

use super::stage_model::{Cache, Controller, DriveEnergy, DriveState, IdleState, Rest, SlowReads};

/// A drive: what `profiles/ssd/NAME.toml` says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdModel {
    /// Name of the profile.
    pub name: String,
    /// Where the figures come from.
    pub source: String,
    /// Host interface and controller.
    #[serde(default)]
    pub front: Front,
    /// Dies and reads.
    pub flash: Flash,
    /// Write buffer, programs and erases. Without it writes end in the buffer and no die hears of them.
    #[serde(default)]
    pub program: Option<Program>,
    /// Garbage collection. Without it flash never runs out.
    #[serde(default)]
    pub gc: Option<Gc>,
    /// What it can draw. Without it nothing limits that.
    #[serde(default)]
    pub power: Option<DrivePower>,
    /// A controller that takes one command after the other.
    #[serde(default)]
    pub controller: Option<Controller>,
    /// A buffer that empties at a rate.
    #[serde(default)]
    pub cache: Option<Cache>,
    /// Power states in which it works, the first the fastest. Without any it works as fast as its other stages allow.
    #[serde(default)]
    pub state: Vec<DriveState>,
    /// What it does when left alone. Without it nothing.
    #[serde(default)]
    pub rest: Option<Rest>,
    /// Where its power state lets it go when left alone, in the place of `rest`, from the shallowest down. Without any nowhere.
    #[serde(default)]
    pub idle: Vec<IdleState>,
    /// Page reads that take longer. Without it none do.
    #[serde(default)]
    pub slow: Option<SlowReads>,
    /// What it takes by state and byte. Without it the machine's figures for all drives hold.
    #[serde(default)]
    pub energy: Option<DriveEnergy>,
}

/// What a drive can draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrivePower {
    /// Most that it draws over what it draws idle, as a mean, in microwatts.
    pub most_load_uw: u64,
}

/// Host interface and controller; 0 means no limit, or no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Front {
    /// Added to every read; occupies nothing.
    pub read_latency_ns: u64,
    /// Added to every write; occupies nothing.
    pub write_latency_ns: u64,
    /// Commands the controller starts per second.
    pub max_iops: u64,
    /// Writes it takes per second, of these.
    pub max_write_iops: u64,
    /// Bytes the host interface carries per second.
    pub max_bytes_per_s: u64,
    /// Queues of commands, each with a window of its own; a command goes to any of them. Nothing without `reorder_window`.
    pub queues: u32,
    /// A completion is reported no earlier than those of commands that came this many or more before in its queue; 0: in any
    /// order.
    pub reorder_window: u32,
    /// Lanes that take writes into the buffer; a write goes to any of them. 0: writes need no lane.
    pub write_lanes: u32,
    /// How long a write occupies its lane.
    pub write_lane_ns: u64,
}

/// Dies and how they read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    /// Units that read and program on their own: dies, or planes where a drive can use them so.
    pub dies: u32,
    /// A request is split at multiples of this many bytes, the parts going to dies that follow one another.
    pub page_bytes: u32,
    /// Mean time a die takes to read a page.
    pub read_ns: u64,
    /// Reads take up to this much less or more, uniformly: pages of one cell differ. Only for `service = "uniform"`.
    #[serde(default)]
    pub read_spread_ns: u64,
    /// More of it, for each KiB of the page that a request asks for.
    #[serde(default)]
    pub read_ns_per_kib: u64,
    /// How the times of reads are distributed.
    #[serde(default)]
    pub service: Service,
    /// Which die holds an offset.
    #[serde(default)]
    pub placement: Placement,
}

/// How the times of page reads are distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// Uniform within `read_spread_ns` of `read_ns`.
    #[default]
    Uniform,
    /// Exponential with mean `read_ns`. No drive is like this; closed forms are.
    Exponential,
}

/// Which die serves a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The first page of a request lies on any die, by the request's draw; further pages follow it.
    #[default]
    Random,
    /// Page n lies on die n modulo dies: data written in the order of offsets, and never again.
    Striped,
    /// The die that is free first. No drive can do this with reads; M/M/c can.
    FirstFree,
    /// Every page lies on any die, whatever the one before lies on.
    Scattered,
}

/// Write buffer, programs and erases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Mean time of a program.
    pub program_ns: u64,
    /// Programs take up to this much less or more, uniformly.
    #[serde(default)]
    pub program_spread_ns: u64,
    /// What one program stores on a die (all planes and bits of a word line that it writes at once).
    pub program_bytes: u32,
    /// Data that is acknowledged and not yet programmed, at most. Every die owns an equal part, of a program or more.
    pub buffer_bytes: u64,
    /// Time of an erase; 0: never.
    #[serde(default)]
    pub erase_ns: u64,
    /// A die erases once in this many programs.
    #[serde(default)]
    pub programs_per_erase: u32,
    /// A read interrupts a program or an erase after this long; absent: it waits for the end.
    #[serde(default)]
    pub suspend_ns: Option<u64>,
}

/// Garbage collection of random writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gc {
    /// Flash beyond the data that is kept, in thousandths of that data: overprovisioning and what the host leaves unused.
    pub spare_permille: u32,
    /// Erased flash that garbage collection keeps ready, in bytes. It starts when half is used and stops when all is back.
    pub pool_bytes: u64,
    /// How much of the pool is there at the start, in thousandths.
    pub start_permille: u32,
    /// Share of the die time that garbage collection takes while it runs beside the host, in thousandths.
    pub duty_permille: u32,
}

impl Gc {
    /// Bytes copied for a byte that the host writes, in thousandths. Uniform random writes and victims taken in turn: a write
    /// amplification of about (1 + s) / 2s for a spare share s (Hu et al., SYSTOR '09, in its simplest form).
    #[must_use]
    pub fn copies_permille(&self) -> u64 {
        let spare = u64::from(self.spare_permille);
        ((1000 + spare) * 500 / spare).saturating_sub(1000)
    }
}

/// Why a text is not a drive.
#[derive(Debug, thiserror::Error)]
pub enum SsdModelError {
    /// Not TOML, or not these keys.
    #[error("the drive's profile cannot be read: {0}")]
    Toml(toml::de::Error),
    /// A figure that no drive has.
    #[error("the drive's profile: {key} is {value}; {wanted}")]
    Figure {
        /// Which key.
        key: &'static str,
        /// What it says.
        value: u64,
        /// What may stand there.
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
    /// A text that is no profile, or a figure that no drive has; the error names the key.
    pub fn parse(text: &str) -> Result<Self, SsdModelError> {
        let model: Self = toml::from_str(text)?;
        model.check()?;
        Ok(model)
    }

    /// Whether it makes a difference where requests go that have so many bytes and are aligned to their size: they cross pages, or
    /// offsets say which die they are for.
    #[must_use]
    pub fn minds_offset(&self, bytes: u32) -> bool {
        self.flash.placement == Placement::Striped || !self.flash.page_bytes.is_multiple_of(bytes.max(1))
    }

    /// Whether a drive can have these figures.
    ///
    /// # Errors
    /// A figure that no drive has; the error names the key.
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
}

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

pub(super) fn require(key: &'static str, value: u64, holds: bool, wanted: &'static str) -> Result<(), SsdModelError> {
    if holds { Ok(()) } else { Err(SsdModelError::Figure { key, value, wanted }) }
}
