//! Goals, priorities, power and energy in the report.

use serde::{Deserialize, Serialize};

use super::NameAndValue;

/// Goals of the active policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GoalsReport {
    pub(crate) budget_uw: Option<u64>,
    pub(crate) tolerances: Vec<ToleranceReport>,
    /// Those of the above that the policy does not use, by name.
    pub(crate) unused: Vec<String>,
    /// The goal that is not kept if both cannot be: `tolerance`, under a budget.
    #[serde(default)]
    pub(crate) gives_way: Option<String>,
    /// Where the budget is unreachable: power with everything at its lowest.
    #[serde(default)]
    pub(crate) floor_uw: Option<u64>,
}

/// How long requests may take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToleranceReport {
    /// The subsystem of a namespace, and its number; `None`: requests of the whole server.
    pub(crate) nqn: Option<String>,
    pub(crate) nsid: Option<u32>,
    /// The statistic: `mean`, `p50` or `p99`.
    pub(crate) stat: String,
    /// A relative bound: millionths above the value without saving.
    pub(crate) loss_ppm: Option<u32>,
    /// An absolute bound.
    pub(crate) latency_ns: Option<u64>,
    /// As it is written.
    pub(crate) text: String,
}

/// Priorities of namespaces and hosts, by which a budget takes bandwidth away: the lowest first. A request of which neither has one has 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrioritiesReport {
    pub(crate) named: Vec<PriorityReport>,
    pub(crate) minimums: Vec<MinimumReport>,
    /// The active policy does not use them.
    pub(crate) unused: bool,
}

/// The priority of a namespace or a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PriorityReport {
    /// The subsystem of a namespace, and its number.
    pub(crate) nqn: Option<String>,
    pub(crate) nsid: Option<u32>,
    /// The NQN of a host.
    pub(crate) host: Option<String>,
    pub(crate) priority: u8,
    /// Set over the control socket.
    pub(crate) manual: bool,
}

/// Bandwidth that each namespace and host of a priority keeps under a budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MinimumReport {
    pub(crate) priority: u8,
    pub(crate) bytes_per_s: u64,
}

/// How the budget does. Where [`PowerReport::modelled`] is set no figure here is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BudgetReport {
    /// `server` or `cpu`.
    pub(crate) domain: String,
    /// Its source: `configuration`, `schedule` or `manual`.
    pub(crate) origin: String,
    /// When a budget that was set manually ends, in seconds since 1970.
    pub(crate) until_unix_s: Option<u64>,
    /// The next entry of the schedule.
    pub(crate) next: Option<ScheduleEntryReport>,
    /// `off`, `not used by the policy`, `not measured`, `settling`, `held`, `exceeded` or `unreachable`.
    pub(crate) state: String,
    /// By which mechanism a policy around the chosen one holds it, and why.
    #[serde(default)]
    pub(crate) held: Option<String>,
    /// Power of the domain; `None` where nothing is known, or too old.
    pub(crate) power_uw: Option<u64>,
    /// Time since the window of that reading ended, in nanoseconds.
    #[serde(default)]
    pub(crate) age_ns: Option<u64>,
    /// The source: a sensor, or a model and its profile.
    #[serde(default)]
    pub(crate) sensor: Option<String>,
    /// The budget less that power.
    pub(crate) headroom_uw: Option<i64>,
    /// The lowest power that this server is known to reach with this policy.
    pub(crate) floor_uw: Option<u64>,
    /// The component that limits throughput, if the policy reports it.
    pub(crate) bottleneck: Option<String>,
    /// Knobs of the machine that are set below what was found, and namespaces and hosts whose bandwidth the policy caps, with their values.
    pub(crate) throttled: Vec<NameAndValue>,
    /// A budget set with `strict` that turned out unreachable and was taken back, in microwatts.
    #[serde(default)]
    pub(crate) withdrawn_uw: Option<u64>,
}

/// An entry of the schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScheduleEntryReport {
    /// From when on, in seconds since 1970.
    pub(crate) at_unix_s: u64,
    /// As it is written: `300W`, `off` or `default`.
    pub(crate) budget: String,
}

/// The goals in force after a request, or of a dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GoalsResponse {
    /// The active policy.
    pub(crate) policy: String,
    /// The policy that was chosen, where another holds the budget around it.
    pub(crate) inner_policy: Option<String>,
    /// A hint for holding the budget better.
    pub(crate) help: Option<String>,
    /// Nothing was changed.
    pub(crate) dry_run: bool,
    #[serde(flatten)]
    pub(crate) goals: GoalsReport,
    /// The budget until now, in microwatts.
    pub(crate) before_uw: Option<u64>,
    pub(crate) budget: Option<BudgetReport>,
    /// The file that keeps goals over a restart.
    pub(crate) kept_in: Option<String>,
    pub(crate) power: Option<PowerReport>,
}

/// Readings of a power sensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PowerReport {
    /// Its name.
    pub(crate) sensor: String,
    /// Nothing was measured: the power profile of the model.
    pub(crate) modelled: Option<String>,
    pub(crate) readings: Vec<PowerReading>,
}

/// Mean power over the last window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PowerReading {
    /// Of what.
    pub(crate) of: String,
    /// `None` where nothing is known, or too old.
    pub(crate) power_uw: Option<u64>,
    /// Time since that window ended, in nanoseconds.
    pub(crate) age_ns: Option<u64>,
}

/// Energy since the start by host and namespace. Where `modelled` is set nothing was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EnergySharesReport {
    /// The sensor.
    pub(crate) sensor: String,
    /// The power profile of the model.
    pub(crate) modelled: Option<String>,
    /// Who gets idle energy: `unassigned`, `equal` or `proportional`.
    pub(crate) idle: String,
    pub(crate) zones: Vec<EnergyZoneReport>,
}

/// Energy of a zone; its parts add up to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EnergyZoneReport {
    /// Of what.
    pub(crate) of: String,
    /// As of the last second.
    pub(crate) energy_uj: u64,
    /// Of no host.
    pub(crate) unassigned_uj: u64,
    pub(crate) users: Vec<EnergyUserReport>,
}

/// Energy of a host on a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EnergyUserReport {
    /// Its NQN, or `other` for all that the operator does not name.
    pub(crate) host: String,
    /// The subsystem.
    pub(crate) nqn: String,
    /// The namespace.
    pub(crate) nsid: u32,
    pub(crate) energy_uj: u64,
}
