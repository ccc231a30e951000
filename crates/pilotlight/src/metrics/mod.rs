//! Metrics of a running server for Prometheus.
//!
//! A *family* is a name with a type, a unit and labels; a *sample* is one value of it. Each family is defined once, in `table.rs`; the text
//! for scrapes (`text.rs`), `metrics` of `pilotlight status --json` and docs/metrics-server.md follow from it. Metrics are counters where
//! possible, and the configuration bounds the number of series. Samples are read from cells that reactors write anyway, by the thread of
//! `http.rs`, which stays off their CPUs.
//!
//! *Properties* (tests): no duplicate series; counters end in `_total`; buckets of a histogram increase and end with the count; energy and
//! power name the sensor or the model's profile.

pub(crate) mod family;
pub(crate) mod http;
mod power;
mod table;
pub(crate) mod text;

#[cfg(test)]
mod dashboard;
#[cfg(test)]
mod packaging;
#[cfg(test)]
mod tests;

use pilotlight_nvmf_target::hosts::usage::Counts;
use pilotlight_nvmf_target::{NamespaceFailures, ServerStats};

use crate::status::report::{BudgetReport, EnergySharesReport, GoalsReport, JsonSample, LimitReport};
#[cfg(test)]
pub(crate) use table::BUDGET_STATES;
pub(crate) use table::FAMILIES;

/// The input of the metrics: a snapshot of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// When the server started, in seconds since 1970.
    pub(crate) started_s: f64,
    /// Its counters.
    pub(crate) stats: ServerStats,
    /// The CPU of each reactor.
    pub(crate) cpus: Vec<Option<u32>>,
    pub(crate) namespaces: Vec<NamespaceFacts>,
    /// I/O of listed hosts, and of the others together.
    pub(crate) hosts: Vec<HostFacts>,
    /// The active policy.
    pub(crate) policy: String,
    pub(crate) goals: GoalsReport,
    pub(crate) budget: Option<BudgetReport>,
    pub(crate) power: Option<PowerFacts>,
    /// Which hosts and namespaces energy was for, where that is on.
    pub(crate) energy: Option<EnergySharesReport>,
    /// The limit with a deadline.
    pub(crate) limit: Option<LimitReport>,
    pub(crate) reload: ReloadFacts,
}

/// A namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamespaceFacts {
    pub(crate) nqn: String,
    pub(crate) nsid: u32,
    pub(crate) bytes: u64,
    /// Free bytes of its file system; `None` if there is none, or not known yet.
    pub(crate) free_bytes: Option<u64>,
    /// I/O of hosts.
    pub(crate) counts: Counts,
    /// Commands that failed, by status and by operation.
    pub(crate) failures: Option<NamespaceFailures>,
}

/// A host.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostFacts {
    /// Its NQN, or `other` for all that are not listed.
    pub(crate) name: String,
    /// Its I/O.
    pub(crate) counts: Counts,
}

/// The name of all hosts that are not listed. Not a valid NQN.
pub(crate) const OTHER_HOSTS: &str = "other";

/// Power and energy.
#[derive(Clone, Debug, Default)]
pub(crate) struct PowerFacts {
    pub(crate) sensor: String,
    /// The profile of a model; nothing was measured then.
    pub(crate) model: Option<String>,
    /// Whether the sensor itself gives power, and not energy.
    pub(crate) gives_watts: bool,
    pub(crate) zones: Vec<ZoneFacts>,
}

/// A part of the machine whose power is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct ZoneFacts {
    pub(crate) name: String,
    /// Energy since the start of the server, in microjoules.
    pub(crate) energy_uj: u64,
    /// When that was last read and known ([`pilotlight_reactor::clock`]); 0: never.
    pub(crate) read_ns: u64,
    /// Power in the last window, in microwatts; `None` where nothing is known, or too old.
    pub(crate) power_uw: Option<u64>,
}

/// The last time the configuration was read again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReloadFacts {
    pub(crate) is_good: bool,
    /// When it was last taken, in seconds since 1970.
    pub(crate) taken_s: f64,
}

impl Default for ReloadFacts {
    fn default() -> Self {
        Self { is_good: true, taken_s: 0.0 }
    }
}

/// All samples, as `pilotlight status --json` has them.
pub(crate) fn samples(facts: &Facts) -> Vec<JsonSample> {
    let of_family = |family: &family::Family| {
        let json = |sample: family::Sample| JsonSample {
            name: family.sample_name() + sample.suffix,
            labels: sample.labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            value: sample.value,
        };
        family.samples(facts).into_iter().map(json).collect::<Vec<_>>()
    };
    FAMILIES.iter().flat_map(of_family).collect()
}
