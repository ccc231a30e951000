//! What one run of a workload gave, whatever the tool: operations, bytes and latencies by class of operation.
//!
//! Times are integers in nanoseconds. Latencies of several jobs are merged as histograms, or not at all: a mean of
//! percentiles is no percentile.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What one run of a workload gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What ran.
    pub tool: Tool,
    /// One for each class of operation that took place, such as reads and writes.
    pub classes: Vec<Class>,
    /// When it was measured, in nanoseconds after the tool was started, from and to: without the tool's own start and
    /// ramp. `None` where the tool does not say; the runner then takes what the stage asked for.
    pub window_ns: Option<(u64, u64)>,
    /// Whatever else the tool said that is worth a column: a name that ends in its unit, such as `context_switches_count`.
    pub extra: BTreeMap<String, f64>,
    /// What a reader has to know, such as a version whose output this adapter was never tried on.
    pub warnings: Vec<String>,
}

/// The program that ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name, such as `fio`.
    pub name: String,
    /// Its version, as it says it.
    pub version: String,
    /// Whether this adapter was tried on the output of that version.
    pub known: bool,
}

/// What kind of operation a class counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Reads of a device or file.
    Read,
    /// Writes to a device or file.
    Write,
    /// Deallocations.
    Trim,
    /// Transactions of a database.
    Transaction,
    /// Transactions of one kind among several, by its name.
    TransactionKind(String),
    /// Operations of an application, by its own name for them.
    Operation(String),
}

/// Operations of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Which kind.
    pub what: What,
    /// How many ended within the window; `None` where nobody counts them.
    pub operations: Option<u64>,
    /// Bytes that they moved, where the tool counts them.
    pub bytes: Option<u64>,
    /// The time over which they were counted, in nanoseconds.
    pub runtime_ns: u64,
    /// How long they took.
    pub latency: Latency,
}

impl Class {
    /// How many ended, as far as they are counted.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.operations.unwrap_or(0)
    }

    /// Whether there may have been any.
    #[must_use]
    pub fn took_place(&self) -> bool {
        self.operations != Some(0)
    }
}

/// How long operations took, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean over all operations.
    pub mean_ns: Option<f64>,
    /// Standard deviation over all operations.
    pub deviation_ns: Option<f64>,
    /// Least.
    pub least_ns: Option<u64>,
    /// Greatest.
    pub greatest_ns: Option<u64>,
    /// Counts by value, ascending; the value stands for its bucket as the tool defines it. Empty where the tool gives none.
    pub histogram: Vec<(u64, u64)>,
    /// Quantiles as the tool printed them: parts per million (990,000 for p99) and nanoseconds. Used where there is no histogram.
    pub printed: Vec<(u32, u64)>,
}
