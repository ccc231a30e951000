//! Interface of profiled machines: this machine (`live`, `drive`) or a simulated one.

use std::time::Duration;

use pilotlight_lab::run::StopFlag;
use serde::{Deserialize, Serialize};

/// A configuration of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Configuration {
    /// Polling cores including the main core.
    pub(super) cores: u16,
    /// Quota of the workers' CPU time, in millionths of one core.
    pub(super) quota_ppm: u64,
    /// Power limit of all packages together, in microwatts; 0 without a limit.
    pub(super) limit_uw: u64,
}

/// A measurement of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// The configuration.
    pub(super) configuration: Configuration,
    /// Mean and 99th percentile of the time between two polls of an I/O thread, in nanoseconds.
    pub(super) mean_ns: f64,
    pub(super) p99_ns: f64,
    /// CPU time of the reactors, in cores.
    pub(super) used_cores: f64,
    /// Power of consecutive windows, in watts.
    pub(super) watts: Vec<f64>,
}

impl Measured {
    /// Mean power in watts.
    pub(super) fn mean_w(&self) -> f64 {
        pilotlight_stats::mean::average(&self.watts).unwrap_or(f64::NAN)
    }
}

/// Knobs of a CPU.
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
    /// Minimum, in millionths of a core.
    pub(super) least_ppm: u64,
    /// Whether polling cores can use the share of sleeping ones.
    pub(super) is_shared: bool,
}

/// A power limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Limit {
    /// Minimum and maximum, in microwatts.
    pub(super) least_uw: u64,
    pub(super) most_uw: u64,
}

/// Millionths in a core.
pub(super) const CORE_PPM: u64 = 1_000_000;

impl Axes {
    /// The quota that does not restrict a number of cores.
    pub(super) fn full_ppm(&self, cores: u16) -> u64 {
        let polling = if self.quota.is_none_or(|quota| quota.is_shared) { cores } else { self.cores };
        u64::from(polling.saturating_sub(1)) * CORE_PPM
    }

    /// The configuration without restrictions.
    pub(super) fn most_uw(&self) -> u64 {
        self.limit.map_or(0, |limit| limit.most_uw)
    }
}

/// A measurement ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    /// A signal was received.
    #[error("stopped by signal {0}")]
    Signal(i32),
    /// It failed.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

/// Time between two checks for a signal, and length of a power window of a drive.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Sleeps, unless a signal arrives.
pub(super) fn sleep(stop: &StopFlag, mut time: Duration) -> Result<(), Stopped> {
    while !time.is_zero() {
        if let Some(signal) = stop.signal() {
            return Err(Stopped::Signal(signal));
        }
        let part = time.min(POLL_INTERVAL);
        std::thread::sleep(part);
        time -= part;
    }
    Ok(())
}

/// A profiled CPU.
pub(super) trait CpuSubject {
    /// Its knobs.
    fn axes(&self) -> &Axes;

    /// Applies and measures a configuration.
    fn measure(&mut self, configuration: Configuration) -> Result<Measured, Stopped>;
}

/// Load on a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Load {
    /// Whether it writes.
    pub(super) writes: bool,
    /// Bytes per second; `None`: unlimited.
    pub(super) bytes_per_s: Option<u64>,
}

/// A measurement of a drive under a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct DriveMeasured {
    /// The load.
    pub(super) load: Load,
    /// Bytes per second.
    pub(super) read: f64,
    pub(super) written: f64,
    /// Power of all drives in consecutive windows, in watts.
    pub(super) watts: Vec<f64>,
}

/// Profiled drives.
pub(super) trait DriveSubject {
    /// Number of drives, all under the same load.
    fn drives(&self) -> u32;

    /// Measures them under a load.
    fn measure(&mut self, load: Load) -> Result<DriveMeasured, Stopped>;
}
