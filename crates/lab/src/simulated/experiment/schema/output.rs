//! Keys of time series and charts.

use serde::{Deserialize, Serialize};

use crate::simulated::quantity::Time;

/// Time series and charts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Metrics to keep over time: `iops`, `latency_mean_us`, `cpu_power_w`, `system_power_w`, `cores_awake`, `capacity_share`, `moves`,
    /// `read_power_w`.
    #[serde(default)]
    pub series: Vec<String>,
    /// Burst detection (`accuracy_percent`): a phase counts as detected if an I/O thread moved soon enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detect: Option<Detect>,
    /// Charts.
    #[serde(default, rename = "chart")]
    pub charts: Vec<Chart>,
}

/// Detected phases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Detect {
    /// Label of the phases.
    pub label: String,
    /// Time from the start of the phase within which a thread must move, in whole bins of `series`.
    pub within: Time,
}

/// A chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// Title, with the place in the paper.
    pub title: String,
    /// Kind.
    pub kind: ChartKind,
    /// The metric.
    pub metric: String,
    /// Parameter along x; bars without one show the policies.
    #[serde(default)]
    pub x: String,
    /// Parameter along y (heat maps).
    #[serde(default)]
    pub y: String,
    /// Label of the y axis.
    #[serde(default)]
    pub y_label: String,
    /// Whether y is logarithmic.
    #[serde(default)]
    pub log_y: bool,
}

/// Kinds of charts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    /// A line with its interval for each policy.
    Lines,
    /// Grouped bars, one for each policy.
    Bars,
    /// A heat map for each policy.
    Heat,
    /// A time series for each policy.
    Series,
}
