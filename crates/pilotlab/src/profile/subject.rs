//! What is profiled: a machine whose CPU and drives can be put into a configuration and measured. This machine (`live`), or a simulated one.

use serde::{Deserialize, Serialize};

/// A configuration of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Configuration {
    /// Polling cores, the main core among them.
    pub(super) cores: u16,
    /// CPU time of the worker cores together, in millionths of one core, as their quota is set.
    pub(super) quota_ppm: u64,
    /// Power limit of all packages together, in microwatts; 0 where none can be set.
    pub(super) limit_uw: u64,
}

/// What was measured of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// The configuration.
    pub(super) configuration: Configuration,
    /// Mean and 99th percentile of the time between two polls of an I/O thread, in nanoseconds.
    pub(super) mean_ns: f64,
    pub(super) p99_ns: f64,
    /// CPU time that the reactors used, in cores.
    pub(super) used_cores: f64,
    /// Watts of one window after the other.
    pub(super) watts: Vec<f64>,
}

impl Measured {
    /// Mean power in watts.
    pub(super) fn mean_w(&self) -> f64 {
        pilotlight_stats::mean::average(&self.watts).unwrap_or(f64::NAN)
    }
}

/// What can be set of a CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Axes {
    /// Cores.
    pub(super) cores: u16,
    /// The workers' quota.
    pub(super) quota: Option<Quota>,
    /// The power limit of all packages together.
    pub(super) limit: Option<Limit>,
}

/// A quota of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Quota {
    /// The least, in millionths of a core.
    pub(super) least_ppm: u64,
    /// Whether cores that poll can use what sleeping ones leave.
    pub(super) is_shared: bool,
}

/// A power limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Limit {
    /// The lowest and the highest, in microwatts.
    pub(super) least_uw: u64,
    pub(super) most_uw: u64,
}

/// Millionths of a core in a whole one.
pub(super) const CORE_PPM: u64 = 1_000_000;

impl Axes {
    /// The quota that holds so many cores back from nothing.
    pub(super) fn full_ppm(&self, cores: u16) -> u64 {
        let polling = if self.quota.is_none_or(|quota| quota.is_shared) { cores } else { self.cores };
        u64::from(polling.saturating_sub(1)) * CORE_PPM
    }

    /// All that there is.
    pub(super) fn most_uw(&self) -> u64 {
        self.limit.map_or(0, |limit| limit.most_uw)
    }
}

/// Why measuring ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    /// A signal came.
    #[error("stopped by signal {0}")]
    Signal(i32),
    /// Something failed.
    #[error("{0}")]
    Failed(String),
}

/// A CPU that can be profiled.
pub(super) trait CpuSubject {
    /// What can be set.
    fn axes(&self) -> &Axes;

    /// Puts it into a configuration and measures it.
    fn measure(&mut self, configuration: Configuration) -> Result<Measured, Stopped>;
}

/// Load on a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Load {
    /// Whether it is written, not read.
    pub(super) writes: bool,
    /// Bytes a second; `None` for all that it can do.
    pub(super) bytes_per_s: Option<u64>,
}

/// What was measured of a drive under a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct DriveMeasured {
    /// The load.
    pub(super) load: Load,
    /// Bytes a second.
    pub(super) read: f64,
    pub(super) written: f64,
    /// Watts of all drives that were under it, of one window after the other.
    pub(super) watts: Vec<f64>,
}

/// Drives that can be profiled.
pub(super) trait DriveSubject {
    /// How many they are, all under the same load.
    fn drives(&self) -> u32;

    /// Measures them under a load.
    fn measure(&mut self, load: Load) -> Result<DriveMeasured, Stopped>;
}
