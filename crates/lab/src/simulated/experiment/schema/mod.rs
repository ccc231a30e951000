//! The keys of a simulated experiment (`experiments/*.toml`). Unknown keys are refused. The doc comments are the reference in
//! docs/experiment-keys.md.

mod output;
mod trace;
mod workload;

use pilotlight_input::Parameter;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

pub use output::{Chart, ChartKind, Detect, Output};
pub use trace::{MeanRate, SURROGATE, Sample, Trace};
pub use workload::{DriveUse, Group, Phase, Request, Selection, Spacing, Step};

use crate::simulated::quantity::{Size, Time};

/// Keys of an experiment that simulates a server and policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name of the results.
    pub name: String,
    /// Figure or table of the paper, with its section.
    pub figure: String,
    /// Title, one line.
    pub title: String,
    /// Description for the report.
    #[serde(default)]
    pub about: String,
    /// The simulated machine.
    pub machine: MachineName,
    /// Simulated time of a run, warm-up included.
    pub duration: Time,
    /// Unmeasured start of each run: a time, or a rule that finds it in a pilot run.
    pub warm_up: WarmUp,
    /// Width of a bin of the time series.
    #[serde(default = "ten_ms")]
    pub series: Time,
    /// Runs of each point, each with its own seed.
    pub repeats: u32,
    /// Seed of the first repeat; each further repeat adds 1.
    #[serde(default = "one")]
    pub seed: u64,
    /// Properties of the workload as the paper prints them, for checks against the paper. The simulator does not read them.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub printed: Table,
    /// Values of dotted keys under `--smoke`, which also sets two repeats.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub smoke: Table,
    /// Cores and I/O threads.
    pub topology: Cores,
    /// Power budget of the server in watts, for policies that hold one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_w: Option<u32>,
    /// Accepted increase of the mean latency over a run without savings, as a fraction: 0.2 is 20 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// Changes of the power budget during the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budget_steps: Vec<BudgetStep>,
    /// Guaranteed bandwidth by priority, under a power budget.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub minimums: Vec<Minimum>,
    /// The machine's own power sensors, for policies that use readings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensors: Option<SensorTimes>,
    /// Drives, in groups of equal ones.
    #[serde(rename = "drive")]
    pub drives: Vec<Drives>,
    /// Hosts, in groups of equal connections.
    #[serde(default, rename = "workload")]
    pub workload: Vec<Group>,
    /// Background work of the server, by class, spread evenly over all drives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<Background>,
    /// A trace to replay beside the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// Policies to compare.
    #[serde(rename = "policy")]
    pub policies: Vec<PolicySpec>,
    /// Parameters to vary.
    #[serde(default, rename = "parameter")]
    pub parameters: Vec<Parameter>,
    /// Metrics to keep (docs/metrics.md); empty keeps all.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// Time series and charts.
    #[serde(default)]
    pub output: Output,
}

fn ten_ms() -> Time {
    Time(10_000_000)
}

fn one() -> u64 {
    1
}

/// The simulated machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MachineName {
    /// Name of its profile: `profiles/NAME.toml`.
    pub profile: String,
    /// Other values for constants of the profile and its calibration, by dotted key.
    #[serde(flatten)]
    #[cfg_attr(test, schemars(skip))]
    pub constants: Table,
}

/// The unmeasured start of a run: a time such as `"2s"`, or a rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum WarmUp {
    /// A fixed time.
    Fixed {
        /// The time.
        time: Time,
    },
    /// The cut that MSER-5 finds in the power and latency of a pilot run, between `min` and `max`.
    Mser5 {
        /// Lower limit.
        min: Time,
        /// Upper limit; a later cut gives a warning.
        max: Time,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "rule")]
enum WarmUpRule {
    #[serde(rename = "mser-5")]
    Mser5 { min: Time, max: Time },
}

impl TryFrom<Value> for WarmUp {
    type Error = String;
    fn try_from(value: Value) -> Result<Self, String> {
        if value.is_table() {
            let rule: WarmUpRule = value.try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
            let WarmUpRule::Mser5 { min, max } = rule;
            return Ok(Self::Mser5 { min, max });
        }
        Ok(Self::Fixed { time: Time::try_from(value)? })
    }
}

impl From<WarmUp> for Value {
    fn from(warm_up: WarmUp) -> Self {
        match warm_up {
            WarmUp::Fixed { time } => Self::String(time.into()),
            // Times are strings, which TOML always holds.
            WarmUp::Mser5 { min, max } => {
                Self::try_from(WarmUpRule::Mser5 { min, max }).unwrap_or(Self::Boolean(false))
            }
        }
    }
}

/// Cores and I/O threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cores {
    /// Logical cores.
    pub cores: u16,
    /// Which cores are hardware threads of one core: none (`false`), 0 and 1, 2 and 3, and so on (`true`), or the first and second half,
    /// as Linux numbers them (`"split"`).
    pub siblings: Siblings,
    /// I/O threads.
    pub threads: u16,
    /// What is assigned to I/O threads, round robin.
    #[serde(default, skip_serializing_if = "ThreadPlacement::is_by_queue")]
    pub placement: ThreadPlacement,
}

/// Which cores are hardware threads of one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "true, false or \"split\"")]
pub enum Siblings {
    /// 0 and 1, 2 and 3, or none.
    Adjacent(bool),
    /// The first and the second half.
    Numbered(Numbering),
}

/// How Linux numbers hardware threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Numbering {
    /// Core `c` and core `c` plus half of all.
    Split,
}

/// What is assigned to an I/O thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ThreadPlacement {
    /// Each connection.
    #[default]
    Queue,
    /// Each host, with all its connections.
    Host,
}

impl ThreadPlacement {
    fn is_by_queue(&self) -> bool {
        *self == Self::Queue
    }
}

/// The machine's power sensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SensorTimes {
    /// Averaging time of a reading.
    #[serde(default = "hundred_ms")]
    pub window: Time,
    /// Delay from the end of the window until the reading is available.
    #[serde(default = "ten_ms")]
    pub lag: Time,
    /// A separate, less exact meter of the server's power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Meter>,
}

fn hundred_ms() -> Time {
    Time(100_000_000)
}

/// A meter of the server's power, such as IPMI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Meter {
    /// Averaging time of a reading.
    pub window: Time,
    /// Delay from the end of the window until the reading is available.
    pub lag: Time,
    /// Interval between readings.
    pub update: Time,
    /// Resolution in milliwatts; 0: unlimited.
    #[serde(default)]
    pub step_mw: u32,
    /// Standard deviation of the noise, in milliwatts.
    #[serde(default)]
    pub noise_mw: u32,
    /// Reading in per cent of the true value.
    #[serde(default = "hundred")]
    pub gain_percent: u32,
    /// Missing readings, in parts per million.
    #[serde(default)]
    pub missing_ppm: u32,
}

fn hundred() -> u32 {
    100
}

/// Equal drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Drives {
    /// Model: `profiles/ssd/NAME.toml`.
    pub profile: String,
    /// Number of drives.
    pub count: u16,
    /// Priority of their namespaces: the highest is throttled last. Without it: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
}

/// Background work of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Name for dotted keys.
    pub name: String,
    /// Bytes to process at the start.
    #[serde(default)]
    pub backlog_bytes: u64,
    /// Bytes that are added per second.
    #[serde(default)]
    pub bytes_per_s: u64,
    /// Bytes processed per second at the maximum rate.
    pub max_bytes_per_s: u64,
    /// Rate at the start, in per cent of the maximum rate.
    #[serde(default = "hundred")]
    pub rate_percent: u32,
    /// Size of an I/O.
    #[serde(default = "largest_background")]
    pub size: Size,
    /// Whether it writes.
    #[serde(default)]
    pub writes: bool,
    /// CPU time per KiB at full speed, in nanoseconds.
    #[serde(default)]
    pub ns_per_kib: u32,
}

fn largest_background() -> Size {
    Size(pilotlight_sim::scenario::Background::MAX_BYTES)
}

/// A change of the power budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BudgetStep {
    /// Simulated time of the change.
    pub at: Time,
    /// New budget in watts; without it the budget is lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts: Option<u32>,
}

/// Bandwidth that each namespace and each host of a priority keeps under a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Minimum {
    /// The priority.
    pub priority: u8,
    /// Bandwidth per second.
    pub bytes_per_s: Size,
}

/// A policy with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    /// Name in the results.
    pub label: String,
    /// Name of the policy ([list](policies.md)).
    pub name: String,
    /// Parameters of the policy.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub settings: Table,
    /// Cores and I/O threads under this policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Cores>,
    /// `duration` under this policy, for one with a longer period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Time>,
    /// `warm_up` under this policy, for one that settles later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,
    /// `trace.sample.exact_time` for a policy under which idle time takes long to simulate. The minimum over all policies applies to all,
    /// so that all get the same requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_time: Option<Time>,
    /// Changes of the machine under this policy, by dotted key.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub machine: Table,
}

impl PolicySpec {
    /// Simulated time of a run.
    #[must_use]
    pub fn duration(&self, experiment: &Experiment) -> Time {
        self.duration.unwrap_or(experiment.duration)
    }

    /// Unmeasured start of a run.
    #[must_use]
    pub fn warm_up(&self, experiment: &Experiment) -> WarmUp {
        self.warm_up.unwrap_or(experiment.warm_up)
    }
}
