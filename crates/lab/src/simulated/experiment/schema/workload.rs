//! Keys of the hosts: groups of connections and their requests.

use serde::{Deserialize, Serialize};
use toml::Value;

use crate::simulated::quantity::{Depth, Rate, Size, Time};

/// Hosts: a group of equal connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Name for dotted keys.
    pub name: String,
    /// Number of connections.
    pub connections: u32,
    /// Number of hosts that share the connections in equal blocks. Without it: one for each connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<u32>,
    /// Priority of these hosts: the highest is throttled last. Without it: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// I/O threads that the connections are assigned to, round robin.
    #[serde(default)]
    pub threads: Selection,
    /// Drives that each connection uses.
    #[serde(default)]
    pub drives: DriveUse,
    /// The requests.
    pub request: Request,
    /// Queue depth of each connection.
    pub depth: Depth,
    /// Distribution of arrival times.
    #[serde(default)]
    pub spacing: Spacing,
    /// Time between a completion and the next request.
    #[serde(default)]
    pub think_time: Time,
    /// Requests per second of the whole group that `%` in a rate refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<f64>,
    /// Constant request rate of the whole group; alternative to `phase`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Phases with one rate each, repeated in a cycle.
    #[serde(default, rename = "phase", skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// Label of the requests in the results where there are no phases.
    #[serde(default = "load")]
    pub label: String,
}

impl Group {
    /// Whether it has requests with this label.
    #[must_use]
    pub fn has_label(&self, label: &str) -> bool {
        if self.phases.is_empty() { self.label == label } else { self.phases.iter().any(|phase| phase.label == label) }
    }
}

fn load() -> String {
    "load".into()
}

/// A phase with one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Label in the results and in dotted keys.
    pub label: String,
    /// Length.
    pub length: Time,
    /// Request rate of the whole group.
    pub rate: Rate,
}

/// `"all"`, or `[first, count]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Selection {
    /// All.
    #[default]
    All,
    /// A range.
    Range(u16, u16),
}

/// The drives that a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum DriveUse {
    /// `"one"`: one drive; the connections are assigned to drives in equal blocks.
    #[default]
    One,
    /// `"all"`: every drive, equally often.
    All,
    /// `[first, count]`: a range, equally often.
    Range(u16, u16),
}

fn pair(value: &Value) -> Option<(u16, u16)> {
    let [first, count] = value.as_array()?.as_slice() else { return None };
    let small = |value: &Value| u16::try_from(value.as_integer()?).ok();
    Some((small(first)?, small(count).filter(|&count| count > 0)?))
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

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum Request {
    /// One read or write.
    Plain {
        /// Its size.
        size: Size,
        /// Fraction of writes, 0 to 1.
        #[serde(default)]
        writes: f64,
        /// Whether the addresses are sequential on each drive.
        #[serde(default)]
        sequential: bool,
    },
    /// Dependent steps (RAID): each begins when the one before is complete.
    Steps {
        /// The steps.
        steps: Vec<Step>,
        /// Bytes from host to target.
        bytes_in: Size,
        /// Bytes from target to host.
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Number of reads, each on another drive.
    #[serde(default)]
    pub reads: u8,
    /// Number of writes, each on another drive.
    #[serde(default)]
    pub writes: u8,
    /// Size of each command.
    pub size: Size,
    /// Bytes of parity computed before the step.
    #[serde(default)]
    pub parity: Size,
}

/// Distribution of arrival times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum Spacing {
    /// Constant interval.
    Paced,
    /// Poisson process.
    #[default]
    Poisson,
    /// Poisson process that alternates between a low and a high rate (Markov-modulated).
    Mmpp {
        /// Ratio of the high to the low rate.
        ratio: f64,
        /// Fraction of the time at the high rate.
        high_share: f64,
        /// Mean duration of the high rate.
        high: Time,
    },
}
