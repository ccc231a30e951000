//! Tool-independent record of one run: operations, bytes and latencies by class of operation.
//!
//! Times are integers in nanoseconds. Latencies of several jobs are merged as histograms or not at all: percentiles cannot be averaged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Measurements of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The tool that ran.
    pub tool: Tool,
    /// Classes of operations that occurred, such as reads and writes.
    pub classes: Vec<Class>,
    /// Start and end of the measured window in nanoseconds after the tool's start, without its initialization and ramp. `None` if the tool
    /// does not report it; the runner then uses the ramp and duration of the experiment.
    pub window_ns: Option<(u64, u64)>,
    /// Further columns; the name ends in its unit, such as `context_switches_count`.
    pub extra: BTreeMap<String, f64>,
    /// Warnings, such as a version that the adapter was not tested with.
    pub warnings: Vec<String>,
}

/// A load generator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name, such as `fio`.
    pub name: String,
    /// Its version, as it prints it.
    pub version: String,
    /// Whether the adapter was tested with that version.
    pub known: bool,
}

/// Kind of operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// Reads of a device or file.
    Read,
    /// Writes to a device or file.
    Write,
    /// Deallocations.
    Trim,
    /// Transactions of a database.
    Transaction,
    /// Transactions of one of several kinds, by its name.
    TransactionKind(String),
    /// Operations of an application, by its name for them.
    Operation(String),
}

/// Operations of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Kind of the operations.
    pub kind: OperationKind,
    /// Operations completed within the window; `None` if not counted.
    pub operations: Option<u64>,
    /// Bytes transferred, if the tool counts them.
    pub bytes: Option<u64>,
    /// Duration of the count, in nanoseconds.
    pub runtime_ns: u64,
    /// Latency of the operations.
    pub latency: Latency,
}

impl Class {
    /// Number of operations; 0 if not counted.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.operations.unwrap_or(0)
    }

    /// Whether operations may have occurred.
    #[must_use]
    pub fn may_have_occurred(&self) -> bool {
        self.operations != Some(0)
    }
}

/// Latency of operations, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean over all operations.
    pub mean_ns: Option<f64>,
    /// Standard deviation over all operations.
    pub deviation_ns: Option<f64>,
    /// Minimum.
    pub least_ns: Option<u64>,
    /// Maximum.
    pub greatest_ns: Option<u64>,
    /// Value and count of each bucket, ascending, with buckets as the tool defines them. Empty if the tool prints none.
    pub histogram: Vec<(u64, u64)>,
    /// Quantiles that the tool prints: parts per million (990,000 for p99) and nanoseconds. Used without a histogram.
    pub printed: Vec<(u32, u64)>,
}
