//! The report of `pilotlight status --json`: plain values, units in their names.
//!
//! Rates and percentages are over a window; what happens seldom is counted in the window and since the start.

mod background;
mod goals;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub(crate) use background::{BackgroundReport, ClassReport, UpkeepReport};
pub(crate) use goals::{
    BudgetReport, EnergySharesReport, EnergyUserReport, EnergyZoneReport, GoalsReport, GoalsResponse, MinimumReport,
    PowerReading, PowerReport, PrioritiesReport, PriorityReport, ScheduleEntryReport, ToleranceReport,
};

/// The version of this format; removing a field or changing its meaning increments it.
pub(crate) const FORMAT: u32 = 1;

/// A server and its activity in a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// [`FORMAT`].
    pub(crate) format: u32,
    pub(crate) server: ServerFacts,
    /// Length of the window in nanoseconds: since the previous request of this connection, or for the first since the start.
    pub(crate) window_ns: u64,
    pub(crate) policy: PolicyReport,
    /// The goals.
    #[serde(default)]
    pub(crate) goals: GoalsReport,
    /// Priorities, and the minimum bandwidth of each under a budget.
    #[serde(default)]
    pub(crate) priorities: PrioritiesReport,
    /// How the budget does; `None` where there is none, and no schedule.
    #[serde(default)]
    pub(crate) budget: Option<BudgetReport>,
    /// Power; `None` without a sensor.
    #[serde(default)]
    pub(crate) power: Option<PowerReport>,
    pub(crate) io: IoReport,
    /// Namespaces and hosts that are capped, or were.
    #[serde(default)]
    pub(crate) caps: Vec<CapReport>,
    /// How long commands waited for a bandwidth cap, which is not part of their latency.
    #[serde(default)]
    pub(crate) cap_wait: Distribution,
    /// Controllers that show their hosts power states, in the order of their identifiers.
    #[serde(default)]
    pub(crate) power_states: Vec<PowerStateReport>,
    /// Failed commands, by namespace and status; those that never occurred are not here.
    #[serde(default)]
    pub(crate) failures: Vec<FailureReport>,
    /// Background work: its classes, and the namespaces that have any.
    #[serde(default)]
    pub(crate) background: BackgroundReport,
    pub(crate) reactors: Vec<ReactorReport>,
    pub(crate) io_threads: Vec<IoThreadReport>,
    pub(crate) commands: CommandsReport,
    /// Wake-ups by what was woken from, over all reactors.
    pub(crate) wake_ups: Vec<WakeUpReport>,
    /// Which hosts and namespaces energy was for, where that is on.
    #[serde(default)]
    pub(crate) energy_shares: Option<EnergySharesReport>,
    /// All metrics: counters since the start, under the names of docs/metrics-server.md.
    #[serde(default)]
    pub(crate) metrics: Vec<JsonSample>,
    /// The live page for browsers, if one is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) page: Option<PageReport>,
    /// The limit of all budgets, with a floor in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<LimitReport>,
}

/// The limit of all budgets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitReport {
    /// The limit in force, in microwatts.
    pub(crate) power_uw: u64,
    /// Since when (`CLOCK_MONOTONIC`).
    pub(crate) since_ns: u64,
    /// Its deadline (`CLOCK_BOOTTIME`), if it has one.
    pub(crate) until_boottime_ns: Option<u64>,
    /// Time until the deadline.
    pub(crate) valid_for_ns: Option<u64>,
    /// The limit after the deadline, in microwatts.
    pub(crate) then_uw: u64,
    /// The limit from the start of the server until the first setting, in microwatts.
    pub(crate) floor_uw: u64,
    /// Settings, and deadlines that have passed, since the start.
    pub(crate) settings: u64,
    pub(crate) expiries: u64,
}

/// Power, load and the limit, for a program that sets the limit. Times are of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CountersReport {
    pub(crate) now_ns: u64,
    /// The last window of the budget's domain, unless it is stale.
    pub(crate) power: Option<PowerWindowReport>,
    /// The sensor, or that power is modelled and with which profile.
    pub(crate) source: String,
    /// The component that limits throughput, as it was last known.
    pub(crate) bottleneck: Option<String>,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    /// Busy time of all reactors.
    pub(crate) busy_ns: u64,
    /// Time of all requests from arrival to answer.
    pub(crate) in_progress_ns: u64,
    pub(crate) io_threads: usize,
    pub(crate) limit: Option<LimitReport>,
}

/// Power over a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PowerWindowReport {
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) power_uw: u64,
}

/// Properties of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerFacts {
    /// The program's version.
    pub(crate) version: String,
    /// Its process.
    pub(crate) pid: u32,
    /// Time since its start, in nanoseconds.
    pub(crate) uptime_ns: u64,
    /// Addresses it listens on.
    pub(crate) listening: Vec<SocketAddr>,
    /// Reactors are not pinned: measurements are meaningless.
    pub(crate) test_mode: bool,
    /// How long after the last request the whole server sleeps: a time, `policy` or `never`.
    pub(crate) sleep_after: String,
}

/// The active policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PolicyReport {
    pub(crate) name: String,
    /// Every parameter.
    pub(crate) parameters: Vec<ParameterReport>,
    /// The policy's view.
    pub(crate) view: Vec<NameAndValue>,
}

/// A parameter of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ParameterReport {
    pub(crate) key: String,
    pub(crate) value: String,
    /// Whether it was set, by the configuration or over the control socket; otherwise it has its default.
    pub(crate) is_set: bool,
}

/// An entry of the policy's view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameAndValue {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) in_window: u64,
    pub(crate) since_start: u64,
}

/// How long something took, in nanoseconds, over the window; known to 1.6 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Distribution {
    /// How often it was measured; where that is 0 the others mean nothing.
    pub(crate) count: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p99_9_ns: u64,
    pub(crate) max_ns: u64,
}

/// I/O of hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct IoReport {
    /// Connections now.
    pub(crate) connections: u64,
    /// Associations (a host's tie to a controller) now.
    pub(crate) associations: u64,
    /// Connections closed because of a protocol error of the peer.
    pub(crate) faults: Count,
    pub(crate) iops: f64,
    pub(crate) read_iops: f64,
    pub(crate) write_iops: f64,
    pub(crate) read_bytes_per_s: f64,
    pub(crate) written_bytes_per_s: f64,
    /// Of reads and writes within the target: from the poll that read the command to the end of the one in which the socket
    /// took the last byte of its answer.
    pub(crate) latency: Distribution,
    /// The same from the time when the bytes of a command were at its socket, of sampled commands; `None` where none were.
    #[serde(default)]
    pub(crate) from_socket: Option<SocketLatencyReport>,
    /// Likewise for each namespace that a policy wants it of, in the policy's last window.
    #[serde(default)]
    pub(crate) namespaces_from_socket: Vec<NamespaceLatencyReport>,
}

/// The latency of a namespace in the last window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamespaceLatencyReport {
    pub(crate) nqn: Option<String>,
    pub(crate) nsid: Option<u32>,
    pub(crate) mean_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

/// Latencies from the socket on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SocketLatencyReport {
    /// Where they start: `socket`, or `poll` where the kernel gives no time of receipt.
    pub(crate) start: String,
    pub(crate) mean_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

/// The bandwidth cap of a namespace or a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CapReport {
    /// The subsystem of a namespace, and its number.
    pub(crate) nqn: Option<String>,
    pub(crate) nsid: Option<u32>,
    /// The NQN of a host.
    pub(crate) host: Option<String>,
    /// The operator's cap; `None`: there is none.
    pub(crate) operator_bytes_per_s: Option<u64>,
    /// The policy's cap; the lower of both holds.
    pub(crate) policy_bytes_per_s: Option<u64>,
    /// Bandwidth while capped.
    pub(crate) bytes_per_s: f64,
    /// Commands that had to wait.
    pub(crate) throttled: Count,
    /// Commands that wait now.
    pub(crate) throttled_now: u64,
}

/// The power state of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PowerStateReport {
    /// The controller's identifier.
    pub(crate) controller: u16,
    /// The state that it was in when its host last sent an admin command.
    pub(crate) power_state: u8,
}

/// Commands on a namespace that failed with one status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FailureReport {
    /// The subsystem.
    pub(crate) nqn: String,
    /// The namespace.
    pub(crate) nsid: u32,
    /// The name of the status in the specification.
    pub(crate) status: String,
    /// More about the cause; may be empty.
    pub(crate) cause: String,
    /// How many; since the namespace was added.
    pub(crate) commands: Count,
}

/// States of a core that is awake, as all outputs name them; the depths of sleep are the others.
pub(crate) const BUSY: &str = "busy";
pub(crate) const EMPTY_POLLS: &str = "empty-polls";

/// A reactor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReactorReport {
    pub(crate) id: u16,
    /// The CPU that it is pinned to.
    pub(crate) core: Option<u32>,
    /// Whether it is the main core.
    pub(crate) main: bool,
    /// The reactor of the other logical core.
    pub(crate) sibling: Option<u16>,
    /// `awake`, or the depth at which it sleeps.
    pub(crate) state: String,
    /// Time in poll steps that found work.
    pub(crate) busy_percent: f64,
    /// Time in poll steps that found none.
    pub(crate) idle_percent: f64,
    /// Time asleep, by depth.
    pub(crate) asleep_percent: BTreeMap<String, f64>,
    /// CPU time as accounted by the kernel, waiting instructions included; `None` if the kernel does not report it.
    pub(crate) scheduled_percent: Option<f64>,
    pub(crate) loops_per_s: f64,
    pub(crate) requests_per_s: f64,
    /// I/O threads on this reactor.
    pub(crate) io_threads: Vec<u16>,
    pub(crate) moves_in: Count,
    pub(crate) moves_out: Count,
}

/// An I/O thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct IoThreadReport {
    pub(crate) id: u16,
    /// The reactor that it is on.
    pub(crate) home: u16,
    /// Connections now.
    pub(crate) connections: u64,
    /// The highest class of priority of its connections; `None` without connections.
    #[serde(default)]
    pub(crate) class: Option<u8>,
    pub(crate) requests_per_s: f64,
    /// Time in poll steps of its own that found work.
    pub(crate) busy_percent: f64,
    /// Time in poll steps of its own that found none.
    pub(crate) idle_percent: f64,
    /// Time that its reactor waited in the kernel alone, with a policy that uses this depth; the present
    /// wait included.
    pub(crate) software_wait_percent: f64,
    /// Likewise, together with the whole server.
    pub(crate) server_sleep_percent: f64,
    /// As of the whole server.
    pub(crate) latency: Distribution,
    pub(crate) moves: Count,
}

/// Commands and inputs of the policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CommandsReport {
    pub(crate) moves: Count,
    pub(crate) sleeps: Count,
    pub(crate) wakes: Count,
    pub(crate) refusals: Count,
    pub(crate) intervals: Count,
    pub(crate) ticks: Count,
    /// How late ticks were.
    pub(crate) tick_lateness: Distribution,
}

/// Wake-ups from one depth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WakeUpReport {
    /// The depth that names the mechanism.
    pub(crate) from: String,
    /// Sleeps that ended.
    pub(crate) wakes: Count,
    /// From the sending of a wake-up to the sleeper's first poll, if another core sent it.
    pub(crate) latency: Distribution,
}

/// A sample for programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JsonSample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// Where a page is served, and what opens it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageReport {
    /// An URL, or `unix:PATH`.
    pub(crate) address: String,
    pub(crate) token_file: String,
}
