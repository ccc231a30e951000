//! What stands in an experiment's file. Unknown keys are refused; docs/experiments.md describes it.

use std::path::PathBuf;

use pilotlight_actuators::Machine;
use pilotlight_input::{Size, Time};
use pilotlight_sensors::Config;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What it is about, in a line.
    pub title: String,
    /// More, for the report.
    #[serde(default)]
    pub about: String,
    /// Unmeasured time at the start of each command; see [`Experiment::warm_up`] for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<Time>,
    /// Measured time of each command. Only a `command` may do without: it is measured until it ends.
    #[serde(default)]
    pub duration: Option<Time>,
    /// Rest after each measurement.
    #[serde(default)]
    pub cool_down: Time,
    /// Wait after filling and after changing settings, before anything is measured, and before an idle baseline that follows a
    /// measurement.
    #[serde(default = "settle")]
    pub settle: Time,
    /// How long the idle machine is measured, in each round and for each setting of the machine; `"0s"` if not at all. See
    /// [`Experiment::idle_baseline`] for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_baseline: Option<Time>,
    /// How often each point is measured.
    #[serde(default = "three")]
    pub repeats: u32,
    /// Decides the order of points and what tools draw.
    #[serde(default = "one_seed")]
    pub seed: u64,
    /// Whether power sensors are taken that are not listed.
    #[serde(default)]
    pub power_sensors: PowerSensors,
    /// What is done when a measured command fails.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// What is worked on; a file in the results' folder if not given.
    #[serde(default, rename = "target")]
    pub place: PlaceSpec,
    /// What is done to the device before anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precondition: Option<Precondition>,
    /// What is changed on the machine, and put back.
    #[serde(default)]
    pub machine: Machine,
    /// Where the workload may run.
    #[serde(default)]
    pub bind: Bind,
    /// What makes work: `kind`, and the keys of that kind.
    pub workload: Table,
    /// What is read.
    #[serde(default, rename = "sensor")]
    pub sensors: Vec<SensorSpec>,
    /// Until when points are repeated, instead of `repeats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// Keys of metrics that tables and charts show first, before the usual ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
}

/// Long enough for a drive's write buffer and for the power states of an idle machine; short beside a measurement.
fn settle() -> Time {
    Time(5_000_000_000)
}

/// The warm-up, where a duration is given and no warm-up: past the start of the workload's processes and the rise of the CPU frequency.
const WARM_UP: Time = Time(2_000_000_000);
/// The idle baseline of a round, where none is given: five readings of a sensor with an interval of 1 s (IPMI, Redfish, NVMe).
const IDLE_BASELINE: Time = Time(5_000_000_000);

impl Experiment {
    /// Unmeasured time at the start of each command. Default: 2 s where a duration is given; none of a command that is measured until
    /// it ends, whose energy is that of all its work.
    #[must_use]
    pub fn warm_up(&self) -> Time {
        self.warm_up.unwrap_or(if self.duration.is_some() { WARM_UP } else { Time(0) })
    }

    /// How long the idle machine is measured in each round. Default: 5 s. Nothing but power above idle reads it: without a sensor that
    /// reads energy (`has_energy`) it is not measured, whatever is given.
    #[must_use]
    pub fn idle_baseline(&self, has_energy: bool) -> Time {
        if has_energy { self.idle_baseline.unwrap_or(IDLE_BASELINE) } else { Time(0) }
    }
}

fn one_seed() -> u64 {
    1
}

/// Whether sensors are read that are not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerSensors {
    /// Only those that are listed.
    Listed,
    /// Also every one that this machine has, and, if no sensor is listed, the kernel's counters. None of these is needed.
    #[default]
    Found,
}

/// What is done when a measured command fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// The run ends with the reason; it can be resumed.
    #[default]
    Stop,
    /// The point gets no value but the reason, and the run goes on. A resumed run tries it again.
    GoOn,
}

/// What is worked on: at most one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceSpec {
    /// A file that may be made and overwritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The size of that file, or of the one in the results' folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// A folder for databases and files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// A block device; everything on it is lost, so the command line must name it as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// The workload needs no place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nothing: bool,
}

impl PlaceSpec {
    /// Whether it is the file in the results' folder.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self { size: self.size, ..Self::default() }
    }
}

/// What is done to the device before anything else, as the thesis does (section 5: formatted, then filled).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precondition {
    /// Erase it with `nvme format -s 1`.
    #[serde(default)]
    pub format: bool,
    /// Write all of it so often, front to back, with bytes that do not compress.
    #[serde(default)]
    pub fill: u32,
}

/// Where the workload may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// CPUs, such as `0-3,8` (`taskset`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// The NUMA node whose CPUs and memory are used (`numactl`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
}

/// A sensor, how often it is read, and whether it is needed. In TOML: `sensor = "rapl"` with that sensor's own options, and
/// `interval` and `optional` beside them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Table", into = "Table")]
pub struct SensorSpec {
    /// Which, with its options.
    pub config: Config,
    /// How often; as often as there is something new if not given.
    pub interval: Option<Time>,
    /// Whether the run goes on without it.
    pub optional: bool,
}

/// The keys that every sensor has beside its own.
#[derive(Default, Serialize, Deserialize)]
struct Common {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interval: Option<Time>,
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
        let Common { interval, optional } = common.try_into().map_err(|error: toml::de::Error| said(&error))?;
        let config =
            pilotlight_input::file::table(table, "").map_err(|error| format!("{}{}", error.place, error.reason))?;
        Ok(Self { config, interval, optional })
    }
}

fn said(error: &toml::de::Error) -> String {
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

/// A point is repeated until the interval of a metric is narrow enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// The metric, by its column in `results.csv`, such as `iops`.
    pub metric: String,
    /// Half of its 95 % interval, as a share of its mean, such as `"5%"`.
    pub within: Share,
    /// So many repeats in any case.
    #[serde(default = "three")]
    pub at_least: u32,
    /// So many at most.
    #[serde(default = "ten")]
    pub at_most: u32,
}

fn three() -> u32 {
    3
}

fn ten() -> u32 {
    10
}

/// A share, written as `"5%"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "String")]
pub struct Share(pub f64);

impl TryFrom<Value> for Share {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let percent = value.as_str().and_then(|text| text.trim().strip_suffix('%')?.trim_end().parse::<f64>().ok());
        let share =
            percent.filter(|percent| percent.is_finite() && *percent > 0.0).map(|percent| Self(percent / 100.0));
        share.ok_or_else(|| format!("{value} is not a share above zero such as \"5%\""))
    }
}

impl From<Share> for String {
    fn from(Share(share): Share) -> Self {
        format!("{}%", share * 100.0)
    }
}
