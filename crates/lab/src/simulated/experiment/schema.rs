//! What stands in an experiment's file (`experiments/*.toml`). Unknown keys are refused; docs/experiments.md describes it.

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use pilotlight_input::Parameter;

use super::goals::{BudgetStep, Minimum};
use crate::simulated::quantity::{Depth, Rate, Size, Time};

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What results call it.
    pub name: String,
    /// The figure or table, with the paper's section.
    pub figure: String,
    /// What is shown, in a line.
    pub title: String,
    /// More, for the report.
    #[serde(default)]
    pub about: String,
    /// The machine.
    pub machine: MachineName,
    /// Simulated time of a run, warm-up included.
    pub duration: Time,
    /// What is not measured at the beginning.
    pub warm_up: WarmUp,
    /// Length of an entry of a time series.
    #[serde(default = "ten_ms")]
    pub series: Time,
    /// Runs of each point, each with a seed of its own.
    pub repeats: u32,
    /// The seed of the first repeat.
    #[serde(default = "one")]
    pub seed: u64,
    /// What the paper prints of the workload, for whoever checks that; the simulator does not read it.
    #[serde(default)]
    pub given: Table,
    /// Keys that `--smoke` sets, by dotted key.
    #[serde(default)]
    pub smoke: Table,
    /// Cores and I/O threads.
    pub topology: Cores,
    /// Most power that the server may draw, in watts, for policies that hold a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_w: Option<u32>,
    /// How much longer requests may take than without savings, as a mean: 0.2 is a fifth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// Other budgets later on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budget_steps: Vec<BudgetStep>,
    /// Bandwidth that priorities keep under a budget.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub minimums: Vec<Minimum>,
    /// How the machine measures itself, for policies that want readings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensors: Option<SensorTimes>,
    /// Drives, in groups of equal ones.
    #[serde(rename = "drive")]
    pub drives: Vec<Drives>,
    /// What hosts ask for, in groups of equal connections.
    #[serde(default, rename = "workload")]
    pub workload: Vec<Group>,
    /// What the server has to do by itself, by class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<Background>,
    /// A trace that is replayed, beside the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// What decides.
    #[serde(rename = "policy")]
    pub policies: Vec<PolicySpec>,
    /// What is varied.
    #[serde(default, rename = "parameter")]
    pub parameters: Vec<Parameter>,
    /// Metrics to keep; none named: all.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// What else is kept, and what is drawn.
    #[serde(default)]
    pub output: Output,
}

fn ten_ms() -> Time {
    Time(10_000_000)
}

fn one() -> u64 {
    1
}

/// The machine that is simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineName {
    /// Its profile: `profiles/NAME.toml`.
    pub profile: String,
    /// Constants of the profile and of `calibration.toml` at other values.
    #[serde(flatten)]
    pub constants: Table,
}

/// What is not measured at the beginning of a run: a time such as `"2s"`, or a rule that finds it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum WarmUp {
    /// So much.
    Fixed {
        /// The time.
        time: Time,
    },
    /// What MSER-5 says of a pilot run's power and latency over time, but at least so much.
    Mser5 {
        /// The least.
        least: Time,
        /// The most; what needs longer is warned of.
        most: Time,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "rule")]
enum WarmUpRule {
    #[serde(rename = "mser-5")]
    Mser5 { least: Time, most: Time },
}

impl TryFrom<Value> for WarmUp {
    type Error = String;
    fn try_from(value: Value) -> Result<Self, String> {
        if value.is_table() {
            let rule: WarmUpRule = value.try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
            let WarmUpRule::Mser5 { least, most } = rule;
            return Ok(Self::Mser5 { least, most });
        }
        Ok(Self::Fixed { time: Time::try_from(value)? })
    }
}

impl From<WarmUp> for Value {
    fn from(warm_up: WarmUp) -> Self {
        match warm_up {
            WarmUp::Fixed { time } => Self::String(time.into()),
            // Times are texts, so there is nothing that TOML cannot hold.
            WarmUp::Mser5 { least, most } => {
                Self::try_from(WarmUpRule::Mser5 { least, most }).unwrap_or(Self::Boolean(false))
            }
        }
    }
}

/// Cores and I/O threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cores {
    /// Logical cores.
    pub cores: u16,
    /// Whether 0 and 1, 2 and 3, and so on are siblings.
    pub siblings: bool,
    /// I/O threads.
    pub threads: u16,
}

/// How a machine measures itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensorTimes {
    /// Time over which a reading is a mean.
    #[serde(default = "hundred_ms")]
    pub window: Time,
    /// Time from its end until the reading is known.
    #[serde(default = "ten_ms")]
    pub lag: Time,
    /// What reads the power of the server, where it is not as exact as the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Meter>,
}

fn hundred_ms() -> Time {
    Time(100_000_000)
}

/// A meter of the server's power, such as IPMI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meter {
    /// Time over which a reading is a mean.
    pub window: Time,
    /// Time from its end until the reading is known.
    pub lag: Time,
    /// Time between two readings.
    pub update: Time,
    /// Readings are whole multiples of this, in milliwatts; 0 for any.
    #[serde(default)]
    pub step_mw: u32,
    /// Standard deviation of the noise, in milliwatts.
    #[serde(default)]
    pub noise_mw: u32,
    /// What it reads of what is true, in per cent.
    #[serde(default = "hundred")]
    pub gain_percent: u32,
    /// Readings that are missing, in millionths.
    #[serde(default)]
    pub fails_ppm: u32,
}

fn hundred() -> u32 {
    100
}

/// Equal drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drives {
    /// The model: `profiles/ssd/NAME.toml`.
    pub profile: String,
    /// How many.
    pub count: u16,
    /// Priority of their namespaces: the higher, the later they are throttled; unnamed ones have 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
}

/// Equal connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// How keys address it.
    pub name: String,
    /// How many.
    pub connections: u32,
    /// Priority of these hosts: the higher, the later they are throttled; unnamed ones have 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// The I/O threads that they are dealt to, one after the other.
    #[serde(default)]
    pub threads: Selection,
    /// The drives that each uses.
    #[serde(default)]
    pub drives: DriveUse,
    /// What a request is.
    pub request: Request,
    /// Most requests of each connection in progress.
    pub depth: Depth,
    /// How due times are spaced.
    #[serde(default)]
    pub spacing: Spacing,
    /// Time between an answer and the next request that it lets go.
    #[serde(default)]
    pub think: Time,
    /// What `%` in a rate is of: requests a second of the whole group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<f64>,
    /// Requests of the whole group, all the time; or else `phase`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Times with one rate each, repeated.
    #[serde(default, rename = "phase", skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// What results call requests that have no phase.
    #[serde(default = "load")]
    pub label: String,
}

impl Group {
    /// Whether it has requests that results call so.
    #[must_use]
    pub fn has_label(&self, label: &str) -> bool {
        if self.phases.is_empty() { self.label == label } else { self.phases.iter().any(|phase| phase.label == label) }
    }
}

fn load() -> String {
    "load".into()
}

/// Background work of a class, spread evenly over all drives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// How keys address it.
    pub name: String,
    /// What is to be done at the start, in bytes.
    #[serde(default)]
    pub backlog_bytes: u64,
    /// What comes to it in a second, in bytes.
    #[serde(default)]
    pub bytes_per_s: u64,
    /// Most that is done in a second, in bytes: at the highest rate.
    pub most_bytes_per_s: u64,
    /// Its rate at the start, in per cent of the highest.
    #[serde(default = "hundred")]
    pub rate_percent: u32,
    /// An I/O.
    #[serde(default = "largest_background")]
    pub size: Size,
    /// Whether it writes.
    #[serde(default)]
    pub writes: bool,
    /// CPU time for each KiB at full speed, in nanoseconds.
    #[serde(default)]
    pub ns_per_kib: u32,
}

fn largest_background() -> Size {
    Size(pilotlight_sim::scenario::Background::MOST_BYTES)
}

/// A time with one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// What results call it.
    pub label: String,
    /// How long.
    pub length: Time,
    /// Requests of the whole group.
    pub rate: Rate,
}

/// `"all"`, or `[from, count]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Selection {
    /// Every one.
    #[default]
    All,
    /// These.
    Range(u16, u16),
}

/// The drives that a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum DriveUse {
    /// `"one"`: one drive; the connections are dealt to drives in equal blocks.
    #[default]
    One,
    /// `"all"`: every drive, each as often as the others.
    All,
    /// `[from, count]`: these, each as often as the others.
    Range(u16, u16),
}

fn pair(value: &Value) -> Option<(u16, u16)> {
    let [from, count] = value.as_array()?.as_slice() else { return None };
    let small = |value: &Value| u16::try_from(value.as_integer()?).ok();
    Some((small(from)?, small(count).filter(|&count| count > 0)?))
}

impl TryFrom<Value> for Selection {
    type Error = String;
    fn try_from(value: Value) -> Result<Self, String> {
        if value.as_str() == Some("all") {
            return Ok(Self::All);
        }
        let range = pair(&value).map(|(from, count)| Self::Range(from, count));
        range.ok_or_else(|| format!("{value} is not \"all\" or [first, count]"))
    }
}

impl From<Selection> for Value {
    fn from(selection: Selection) -> Self {
        match selection {
            Selection::All => "all".into(),
            Selection::Range(from, count) => vec![i64::from(from), i64::from(count)].into(),
        }
    }
}

impl TryFrom<Value> for DriveUse {
    type Error = String;
    fn try_from(value: Value) -> Result<Self, String> {
        match value.as_str() {
            Some("one") => return Ok(Self::One),
            Some("all") => return Ok(Self::All),
            _ => {}
        }
        let range = pair(&value).map(|(from, count)| Self::Range(from, count));
        range.ok_or_else(|| format!("{value} is not \"one\", \"all\" or [first, count]"))
    }
}

impl From<DriveUse> for Value {
    fn from(drives: DriveUse) -> Self {
        match drives {
            DriveUse::One => "one".into(),
            DriveUse::All => "all".into(),
            DriveUse::Range(from, count) => vec![i64::from(from), i64::from(count)].into(),
        }
    }
}

/// What a request is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum Request {
    /// One read or write.
    Plain {
        /// Its size.
        size: Size,
        /// Share of writes, 0 to 1.
        #[serde(default)]
        writes: f64,
        /// One after the other on each drive.
        #[serde(default)]
        sequential: bool,
    },
    /// Steps that follow each other (RAID).
    Steps {
        /// The steps.
        steps: Vec<Step>,
        /// From host to target.
        bytes_in: Size,
        /// From target to host.
        bytes_out: Size,
    },
}

impl Request {
    /// Bytes between host and target.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Plain { size, .. } => size.0.into(),
            Self::Steps { bytes_in, bytes_out, .. } => u64::from(bytes_in.0) + u64::from(bytes_out.0),
        }
    }
}

/// A step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Commands that read, each on another drive.
    #[serde(default)]
    pub reads: u8,
    /// Commands that write, each on another drive.
    #[serde(default)]
    pub writes: u8,
    /// Size of each.
    pub size: Size,
    /// Parity computed before the step.
    #[serde(default)]
    pub parity: Size,
}

/// How due times are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum Spacing {
    /// At equal distances.
    Paced,
    /// Independently of each other.
    #[default]
    Poisson,
    /// Poisson at a rate that changes between a low and a high one.
    Mmpp {
        /// High over low rate.
        ratio: f64,
        /// Share of time at the high rate.
        high_share: f64,
        /// Mean time at the high rate.
        high: Time,
    },
}

/// A trace to replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// Where requests come from: `surrogate:NAME` (made to published figures) or the path of a file.
    pub source: String,
    /// How many volumes, each on a partition of its own.
    pub volumes: u16,
    /// Sets of volumes with equal load, each a client (SANDMAN, section 5.6).
    pub client_sets: u16,
    /// Threads of each client.
    pub threads_per_client: u16,
    /// Most requests of each thread in progress.
    pub depth: u32,
    /// Of surrogates: requests a second of all volumes, bursts left out; or `[low, high]`: each seed draws one, evenly over its
    /// logarithm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_iops: Option<MeanRate>,
    /// Of files: the format, where it is not to be told from the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Of files: sizes of the volumes, CSV of `device_id,capacity` in bytes (Alibaba's `device_size.csv`); else the end of the
    /// farthest request is a volume's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<String>,
    /// Of files: a tick of the trace's clock that requests are spread over (Tencent: 1 s).
    #[serde(default)]
    pub spread: Time,
    /// Replays dependently: each thread of a client sends a request when the one before it has been answered and as much time has
    /// gone by as the trace has between the two, less this, which the one before is assumed to have taken; never before the trace
    /// does. Without it every request is sent at its time, up to `depth` of each thread in progress (open loop).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependent: Option<Time>,
    /// Time in the trace at which the replay begins.
    #[serde(default)]
    pub begin: Time,
    /// How much faster than the trace's own time.
    #[serde(default = "unity")]
    pub speed: f64,
    /// Replays a sample of windows, and estimates the whole; without it, everything is replayed in one go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
}

/// What the name of a surrogate begins with.
pub const SURROGATE: &str = "surrogate:";

impl Trace {
    /// The files that it names: the trace, unless it is a surrogate, and the sizes of its volumes.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let source = Some(self.source.as_str()).filter(|source| !source.starts_with(SURROGATE));
        source.into_iter().chain(self.sizes.as_deref())
    }
}

fn unity() -> f64 {
    1.0
}

/// A rate, or a range that one is drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MeanRate {
    /// This, in requests a second.
    Given(f64),
    /// Between these.
    Drawn([f64; 2]),
}

impl MeanRate {
    /// Its mean, over draws.
    #[must_use]
    pub fn mean(self) -> f64 {
        match self {
            Self::Given(rate) => rate,
            Self::Drawn([low, high]) if low < high => (high - low) / (high / low).ln(),
            Self::Drawn([low, _]) => low,
        }
    }
}

/// Which windows of a replay are simulated (docs/traces.md).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Windows to draw.
    pub windows: usize,
    /// Width of a window; `series` is a multiple of it.
    pub window: Time,
    /// What is simulated before each window and not measured, so that the policy is where it would be.
    pub run_in: Time,
    /// Strata.
    #[serde(default = "twelve")]
    pub strata: usize,
    /// Most windows in and around bursts that are all simulated, beside those drawn; where there are more, bursts are strata.
    #[serde(default)]
    pub around_bursts: usize,
    /// A replay of no more requests than this, and no longer than `exact_time`, is simulated whole.
    #[serde(default)]
    pub exact_requests: u64,
    /// See `exact_requests`.
    #[serde(default)]
    pub exact_time: Time,
}

fn twelve() -> usize {
    12
}

impl Sample {
    /// The same, under these policies: the least `exact_time` of any decides for all. A whole replay beside one by windows would compare
    /// percentiles of different requests, so that a slower policy may seem to be the faster one.
    #[must_use]
    pub fn under(self, policies: &[PolicySpec]) -> Self {
        let least = policies.iter().map(|policy| policy.exact_time.unwrap_or(self.exact_time)).min();
        Self { exact_time: least.unwrap_or(self.exact_time), ..self }
    }
}

/// A policy with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    /// What results call it.
    pub label: String,
    /// Its name in the program.
    pub name: String,
    /// Its parameters.
    #[serde(default)]
    pub settings: Table,
    /// Cores and I/O threads, where not the experiment's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Cores>,
    /// Simulated time of a run, warm-up included, where not the experiment's: for a policy that takes longer to repeat itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Time>,
    /// What is not measured at the beginning, where not the experiment's: for a policy that takes longer to settle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,
    /// As `trace.sample.exact_time`, for a policy under which quiet time takes long to simulate. The least of all policies holds for all, so
    /// that all meet the same requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_time: Option<Time>,
    /// Changes of the machine under this policy, by dotted key.
    #[serde(default)]
    pub machine: Table,
}

impl PolicySpec {
    /// Simulated time of a run of an experiment.
    #[must_use]
    pub fn duration(&self, experiment: &Experiment) -> Time {
        self.duration.unwrap_or(experiment.duration)
    }

    /// What is not measured of it at the beginning.
    #[must_use]
    pub fn warm_up(&self, experiment: &Experiment) -> WarmUp {
        self.warm_up.unwrap_or(experiment.warm_up)
    }
}

/// What is kept and drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Metrics to keep over time: `iops`, `system_power_w`, `cores_awake`, `capacity_share`, `moves`.
    #[serde(default)]
    pub series: Vec<String>,
    /// Detection: phases of this label that an I/O thread moved in, soon enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detect: Option<Detect>,
    /// Charts.
    #[serde(default, rename = "chart")]
    pub charts: Vec<Chart>,
}

/// When a phase counts as detected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detect {
    /// The phases.
    pub label: String,
    /// A thread moved within so much of its beginning, in whole entries of the series.
    pub within: Time,
}

/// A chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// What it shows, and where in the paper.
    pub title: String,
    /// What kind.
    pub kind: ChartKind,
    /// The metric.
    pub metric: String,
    /// The parameter along x; for bars without one: the policies.
    #[serde(default)]
    pub x: String,
    /// The parameter along y, for heat maps.
    #[serde(default)]
    pub y: String,
    /// What stands at the y axis.
    #[serde(default)]
    pub label: String,
    /// Whether y is logarithmic.
    #[serde(default)]
    pub log_y: bool,
}

/// Kinds of charts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    /// A line for each policy, with its interval.
    Lines,
    /// A bar for each policy, in groups.
    Bars,
    /// Colours over two axes, a map for each policy.
    Heat,
    /// A line over time for each policy.
    Series,
}
