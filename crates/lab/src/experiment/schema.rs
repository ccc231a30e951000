//! The keys of an experiment that runs a tool. Unknown keys are refused. The doc comments are the reference in
//! docs/experiment-keys.md.

use std::path::{Path, PathBuf};

use pilotlight_actuators::Machine;
use pilotlight_input::{Size, Time};
use pilotlight_sensors::Config;
use pilotlight_workloads::Target;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// Keys of an experiment that runs a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Title, one line.
    pub title: String,
    /// Description for the report.
    #[serde(default)]
    pub about: String,
    /// Unmeasured start of each measurement. Default: `"2s"` where `duration` is given, otherwise `"0s"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<Time>,
    /// Measured time of each point. Required unless `workload.kind` is `"command"`, which is then measured until it exits.
    #[serde(default)]
    pub duration: Option<Time>,
    /// Pause after each measurement.
    #[serde(default)]
    pub cool_down: Time,
    /// Pause after preconditioning, after a change of settings, and before an idle baseline that follows a measurement.
    #[serde(default = "settle")]
    pub settle: Time,
    /// Measured time of the idle machine in each round and for each setting of the machine; `"0s"`: none. Default: `"5s"` where a
    /// sensor reads energy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_baseline: Option<Time>,
    /// Measurements of each point.
    #[serde(default = "three")]
    pub repeats: u32,
    /// Seed of the order of points and of the random numbers of workloads.
    #[serde(default = "one_seed")]
    pub seed: u64,
    /// Whether power sensors are read that are not listed.
    #[serde(default)]
    pub power_sensors: PowerSensors,
    /// Reaction to the failure of a measured command.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// File, folder or device that the workload uses. Default: a file of 1 GiB in the results folder.
    #[serde(default)]
    pub target: TargetSpec,
    /// Preparation of the device before the first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precondition: Option<Precondition>,
    /// Settings of the machine during the experiment, restored at the end (docs/measure.md); `profile` names a machine to simulate
    /// instead.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub machine: Machine,
    /// CPUs and memory of the workload.
    #[serde(default)]
    pub bind: Bind,
    /// The tool: `kind` and the keys of that kind (docs/workloads.md).
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub workload: Table,
    /// Sensors to read.
    #[serde(default, rename = "sensor")]
    #[cfg_attr(test, schemars(with = "Vec<Common>"))]
    pub sensors: Vec<SensorSpec>,
    /// Repeats points until an interval is narrow enough, instead of `repeats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// Metrics that tables and charts show first (docs/metrics.md).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
}

/// Covers the write buffer of a drive and the power states of an idle machine.
fn settle() -> Time {
    Time(5_000_000_000)
}

/// Covers the start of the workload's processes and the rise of the CPU frequency.
const WARM_UP: Time = Time(2_000_000_000);
/// Five readings of a sensor with an interval of 1 s (IPMI, Redfish, NVMe).
const IDLE_BASELINE: Time = Time(5_000_000_000);

impl Experiment {
    /// Unmeasured start of each measurement. Default: 2 s where a duration is given; 0 for a command that is measured until it exits,
    /// because its energy is that of all its work.
    #[must_use]
    pub fn warm_up(&self) -> Time {
        self.warm_up.unwrap_or(if self.duration.is_some() { WARM_UP } else { Time(0) })
    }

    /// Measured time of the idle machine in each round. Only power above idle uses it, so it is 0 without a sensor of energy
    /// (`has_energy`).
    #[must_use]
    pub fn idle_baseline(&self, has_energy: bool) -> Time {
        if has_energy { self.idle_baseline.unwrap_or(IDLE_BASELINE) } else { Time(0) }
    }
}

fn one_seed() -> u64 {
    1
}

/// Whether power sensors are read that are not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PowerSensors {
    /// Only listed sensors.
    Listed,
    /// Also every power sensor of this machine and, if no sensor is listed, `cputime`, `kernel`, `diskstats` and `frequency`; all of
    /// them optional.
    #[default]
    Found,
}

/// Reaction to the failure of a measured command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// Stop the run with an error; it can be resumed.
    #[default]
    Stop,
    /// Record the error for the point and continue. A resumed run repeats the point.
    Continue,
}

/// The target: at most one of `file`, `folder`, `device` and `nothing`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TargetSpec {
    /// A file that is created or overwritten; needs `size`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Size of the file, or of the default file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// A folder, for databases and file systems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// A block device. All data on it is lost, so the command line must name it too (`--i-may-overwrite`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// The workload needs no target.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nothing: bool,
}

/// Default size of the file, in bytes.
pub(crate) const DEFAULT_SIZE: u64 = 1 << 30;

/// The default file, in the results folder. It is removed at the end of the run.
pub(crate) const DEFAULT_FILE: &str = "data.bin";

impl TargetSpec {
    /// The target, without checks.
    #[must_use]
    pub fn unchecked(&self, folder: &Path) -> Target {
        let size = self.size.map_or(DEFAULT_SIZE, |size| size.0);
        match self {
            Self { nothing: true, .. } => Target::None,
            Self { device: Some(device), .. } => Target::Device(device.clone()),
            Self { folder: Some(folder), .. } => Target::Folder(folder.clone()),
            Self { file: Some(file), .. } => Target::File(file.clone(), size),
            _ => Target::File(folder.join(DEFAULT_FILE), size),
        }
    }

    /// Whether it is the default file in the results folder.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self { size: self.size, ..Self::default() }
    }
}

/// Preparation of the device before the first measurement (the thesis, section 5: formatted, then filled).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Precondition {
    /// Erase the device with `nvme format -s 1`.
    #[serde(default)]
    pub format: bool,
    /// Number of sequential writes of the whole device with incompressible data.
    #[serde(default)]
    pub fill: u32,
}

/// CPUs and memory of the workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// CPUs, such as `"0-3,8"` (`taskset`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// NUMA node of CPUs and memory (`numactl`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
}

/// A sensor. In TOML: `sensor = "rapl"` with the options of that sensor, `interval` and `optional`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Table", into = "Table")]
pub struct SensorSpec {
    /// The sensor with its options.
    pub config: Config,
    /// Interval between readings; `None`: the sensor's update interval.
    pub interval: Option<Time>,
    /// Whether the run continues without it.
    pub optional: bool,
}

/// Keys of every sensor, beside `sensor` and its options (docs/sensors.md).
#[derive(Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Common {
    /// Interval between readings. Default: the update interval of the sensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interval: Option<Time>,
    /// Whether the run continues if the sensor cannot be read, or fails lastingly: in at least three readings in a row, over ten intervals
    /// and one second. Shorter failures are gaps in any case. Its columns are then empty, with the reason.
    #[serde(default)]
    optional: bool,
}

impl TryFrom<Table> for SensorSpec {
    type Error = String;

    fn try_from(mut table: Table) -> Result<Self, String> {
        let mut common = Table::new();
        for key in ["interval", "optional"] {
            common.extend(table.remove(key).map(|value| (key.to_owned(), value)));
        }
        let Common { interval, optional } = common.try_into().map_err(|error: toml::de::Error| message(&error))?;
        let config =
            pilotlight_input::file::table(table, "").map_err(|error| format!("{}{}", error.place, error.reason))?;
        Ok(Self { config, interval, optional })
    }
}

fn message(error: &toml::de::Error) -> String {
    error.message().to_owned()
}

impl From<SensorSpec> for Table {
    fn from(spec: SensorSpec) -> Self {
        let mut table = Self::try_from(&spec.config).unwrap_or_default();
        let common = Common { interval: spec.interval, optional: spec.optional };
        table.extend(Self::try_from(&common).unwrap_or_default());
        table
    }
}

/// Repeats each point until the confidence interval of a metric is narrow enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Metric (a column of `results.csv`), such as `iops`.
    pub metric: String,
    /// Half-width of the 95 % interval relative to the mean, such as `"5%"`.
    pub within: Share,
    /// Minimum number of repeats.
    #[serde(default = "three")]
    pub at_least: u32,
    /// Maximum number of repeats.
    #[serde(default = "ten")]
    pub at_most: u32,
}

fn three() -> u32 {
    3
}

fn ten() -> u32 {
    10
}

/// A fraction, written as `"5%"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "String")]
pub struct Share(pub f64);

impl TryFrom<Value> for Share {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let percent = value.as_str().and_then(|text| text.trim().strip_suffix('%')?.trim_end().parse::<f64>().ok());
        let share =
            percent.filter(|percent| percent.is_finite() && *percent > 0.0).map(|percent| Self(percent / 100.0));
        share.ok_or_else(|| format!("{value} is not a percentage above 0 such as \"5%\""))
    }
}

impl From<Share> for String {
    fn from(Share(share): Share) -> Self {
        format!("{}%", share * 100.0)
    }
}
