//! Keys of a replayed trace.

use serde::{Deserialize, Serialize};

use super::PolicySpec;
use crate::simulated::quantity::Time;

/// Prefix of the source of a surrogate.
pub const SURROGATE: &str = "surrogate:";

/// A trace to replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// `surrogate:alibaba` or `surrogate:tencent` (synthetic, after published statistics), or the path of a trace file.
    pub source: String,
    /// Number of volumes, each on its own partition.
    pub volumes: u16,
    /// Sets of volumes with equal load; each set is one client (SANDMAN, section 5.6).
    pub client_sets: u16,
    /// Threads of each client.
    pub threads_per_client: u16,
    /// Queue depth of each thread.
    pub depth: u32,
    /// Surrogates only: requests per second of all volumes without bursts; or `[low, high]`, from which each seed draws one
    /// (log-uniform).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_iops: Option<MeanRate>,
    /// Files only: the format, where it cannot be detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Files only: CSV file with the sizes of the volumes, `device_id,capacity` in bytes (Alibaba's `device_size.csv`). Without it a
    /// volume ends where its last request ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<String>,
    /// Files only: resolution of the timestamps; requests are spread over it (Tencent: 1 s).
    #[serde(default)]
    pub spread: Time,
    /// Dependent replay: a thread sends a request after the completion of the previous one and the interval of the trace less this
    /// assumed service time, but never before its timestamp. Without it the replay is open loop, up to `depth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependent: Option<Time>,
    /// Time in the trace at which the replay starts.
    #[serde(default)]
    pub begin: Time,
    /// Speed-up over the trace's own time.
    #[serde(default = "unity")]
    pub speed: f64,
    /// Replays a sample of windows and estimates the whole (docs/traces.md). Without it the trace is replayed whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
}

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

/// A rate, or a range from which it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum MeanRate {
    /// Requests per second.
    Fixed(f64),
    /// The limits of the range.
    Drawn([f64; 2]),
}

impl MeanRate {
    /// Its expected value.
    #[must_use]
    pub fn mean(self) -> f64 {
        match self {
            Self::Fixed(rate) => rate,
            Self::Drawn([low, high]) if low < high => (high - low) / (high / low).ln(),
            Self::Drawn([low, _]) => low,
        }
    }
}

/// A stratified sample of windows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Number of windows to draw.
    pub windows: usize,
    /// Width of a window; `series` is a multiple of it.
    pub window: Time,
    /// Unmeasured time before each window, in which the policy settles.
    pub run_in: Time,
    /// Number of strata.
    #[serde(default = "twelve")]
    pub strata: usize,
    /// Up to this number of windows in and around bursts are all simulated, in addition to those drawn; if there are more, bursts are
    /// strata.
    #[serde(default)]
    pub around_bursts: usize,
    /// A replay with at most this number of requests and at most `exact_time` is simulated whole.
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
    /// The sample for these policies, with the minimum of their `exact_time`. A whole replay beside a sampled one would compare
    /// percentiles of different requests.
    #[must_use]
    pub fn with_policies(self, policies: &[PolicySpec]) -> Self {
        let exact_time = policies.iter().map(|policy| policy.exact_time.unwrap_or(self.exact_time)).min();
        Self { exact_time: exact_time.unwrap_or(self.exact_time), ..self }
    }
}
