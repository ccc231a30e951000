//! Every metric of the server, defined once.

use std::iter::zip;

use pilotlight_nvmf_target::Failures;
use pilotlight_nvmf_target::Operation;
use pilotlight_nvmf_target::hosts::usage::Counts;
use pilotlight_nvmf_target::{Capped, TargetThreadStats};
use pilotlight_plant::{Limit, NEVER};
use pilotlight_reactor::HistogramSnapshot;
use pilotlight_reactor::cells::SLEEPS;

use super::family::{Family, Kind, Samples};
use super::power::{budget_states, host_energy, limit, namespace_energy, watts};
use super::{Facts, NamespaceFacts};
use crate::status::report::{BUSY, EMPTY_POLLS};

use Kind::{Counter, Gauge, Histogram, Info};

/// States of a budget, as the status has them.
pub(crate) const BUDGET_STATES: [&str; 7] =
    ["off", "not used by the policy", "not measured", "settling", "held", "exceeded", "unreachable"];

const fn family(
    name: &'static str,
    (kind, unit): (Kind, &'static str),
    labels: &'static [&'static str],
    help: &'static str,
    collect: fn(&Facts, &mut Samples<'_>),
) -> Family {
    Family { name, kind, unit, labels, help, collect }
}

/// All metrics, in the order of the text.
pub(crate) static FAMILIES: &[Family] = &[
    family("pilotlight_build", (Info, ""), &["version"], "The program's version.", |_, out| {
        out.put([("version", env!("CARGO_PKG_VERSION"))], 1.0);
    }),
    family(
        "pilotlight_start_time_seconds",
        (Gauge, "seconds"),
        &[],
        "Start of the server, in Unix time.",
        |facts, out| {
            out.put([], facts.started_s);
        },
    ),
    family(
        "pilotlight_io_requests",
        (Counter, ""),
        &["subsystem", "namespace", "operation"],
        "Completed I/O commands by namespace.",
        |facts, out| by_namespace(facts, out, |namespace| namespace.counts.requests),
    ),
    family(
        "pilotlight_io_bytes",
        (Counter, "bytes"),
        &["subsystem", "namespace", "operation"],
        "Bytes of completed reads and writes by namespace.",
        |facts, out| by_namespace(facts, out, |namespace| namespace.counts.bytes),
    ),
    family(
        "pilotlight_io_errors",
        (Counter, ""),
        &["subsystem", "namespace", "operation"],
        "Failed commands since the namespace was added, including refused ones; `pilotlight_failed_commands_total` counts them by status.",
        |facts, out| {
            let failed = |it: &NamespaceFacts| it.failures.as_ref().map_or_else(Default::default, |it| it.by_operation);
            by_namespace(facts, out, failed);
        },
    ),
    family(
        "pilotlight_host_io_requests",
        (Counter, ""),
        &["host", "operation"],
        "Completed I/O commands by configured host, and of all other hosts together.",
        |facts, out| by_host(facts, out, |counts| counts.requests),
    ),
    family(
        "pilotlight_host_io_bytes",
        (Counter, "bytes"),
        &["host", "operation"],
        "Bytes of completed reads and writes by configured host, and of all other hosts together.",
        |facts, out| by_host(facts, out, |counts| counts.bytes),
    ),
    family(
        "pilotlight_io_duration_seconds",
        (Histogram, "seconds"),
        &["subsystem", "operation"],
        "Time of reads and writes in the target, from the poll that received the command until the response was written to the socket.",
        |facts, out| {
            for (nqn, operation, durations) in &facts.stats.by_subsystem {
                out.coarse([("subsystem", nqn), ("operation", operation.name())], durations);
            }
        },
    ),
    family(
        "pilotlight_failed_commands",
        (Counter, ""),
        &["subsystem", "namespace", "status", "cause"],
        "Failed commands since the namespace was added, by status of the NVMe specification.",
        failed_commands,
    ),
    family("pilotlight_connections", (Gauge, ""), &[], "Current connections (queues of hosts).", |facts, out| {
        out.put([], facts.stats.totals.connections as f64);
    }),
    family(
        "pilotlight_associations",
        (Gauge, ""),
        &[],
        "Current associations of hosts with controllers.",
        |facts, out| {
            out.put([], facts.stats.associations as f64);
        },
    ),
    family(
        "pilotlight_connection_faults",
        (Counter, ""),
        &[],
        "Connections closed because of a protocol error of the peer.",
        |facts, out| {
            out.put([], facts.stats.totals.faults as f64);
        },
    ),
    family(
        "pilotlight_refused_connections",
        (Counter, ""),
        &["reason"],
        "Connections and Connect commands that were refused; the log names the hosts.",
        |facts, out| {
            let refusals = &facts.stats.refusals;
            refusals.iter().for_each(|(reason, count)| out.put([("reason", reason.name())], *count as f64));
        },
    ),
    family(
        "pilotlight_core_seconds",
        (Counter, "seconds"),
        &["reactor", "cpu", "state"],
        "Time of each reactor by state: busy, empty polls, and each depth of sleep.",
        core_seconds,
    ),
    family(
        "pilotlight_core_scheduled_seconds",
        (Counter, "seconds"),
        &["reactor", "cpu"],
        "CPU time of each reactor's thread as accounted by the kernel, including wait instructions.",
        |facts, out| {
            for (reactor, cpu, stats) in reactors(facts) {
                out.put([("reactor", &reactor), ("cpu", &cpu)], seconds(stats.cpu_ns));
            }
        },
    ),
    family(
        "pilotlight_thread_moves",
        (Counter, ""),
        &[],
        "Moves of I/O threads to another reactor by the policy.",
        |facts, out| {
            out.put([], facts.stats.runtime.director.moves as f64);
        },
    ),
    family("pilotlight_core_sleeps_ordered", (Counter, ""), &[], "Sleep commands of the policy.", |facts, out| {
        out.put([], facts.stats.runtime.director.sleeps as f64);
    }),
    family(
        "pilotlight_refused_policy_commands",
        (Counter, ""),
        &[],
        "Commands of the policy that were refused or failed.",
        |facts, out| {
            out.put([], facts.stats.runtime.director.refusals as f64);
        },
    ),
    family(
        "pilotlight_wake_ups",
        (Counter, ""),
        &["depth"],
        "Wake-ups of reactors by depth of sleep.",
        |facts, out| {
            for (index, depth) in SLEEPS.iter().enumerate() {
                let wakes = facts.stats.runtime.reactors.iter().map(|reactor| reactor.asleep[index].wakes).sum::<u64>();
                out.put([("depth", depth.name())], wakes as f64);
            }
        },
    ),
    family(
        "pilotlight_wake_up_duration_seconds",
        (Histogram, "seconds"),
        &["depth"],
        "Time from a wake-up by another core to the first poll of the woken reactor.",
        wake_up_durations,
    ),
    family("pilotlight_policy", (Info, ""), &["policy"], "The active policy.", |facts, out| {
        out.put([("policy", &facts.policy)], 1.0);
    }),
    family(
        "pilotlight_policy_limit",
        (Gauge, ""),
        &["limit"],
        "1 for what keeps the policy from saving more, 0 for the others; absent if it does not say (docs/policies.md).",
        |facts, out| {
            let standing = facts.stats.runtime.director.standing;
            for limit in Limit::ALL.into_iter().filter(|_| standing.is_some()) {
                let holds = standing.is_some_and(|standing| standing.limit == limit);
                out.put([("limit", limit.name())], f64::from(u8::from(holds)));
            }
        },
    ),
    family(
        "pilotlight_policy_latency_rise_seconds",
        (Gauge, "seconds"),
        &["kind"],
        "Rise of latency above that without savings, as the tolerance counts it: estimated by the policy, and allowed.",
        |facts, out| {
            let Some(standing) = facts.stats.runtime.director.standing else { return };
            for (kind, ns) in [("estimated", standing.rise_ns), ("allowed", standing.allowed_ns)] {
                out.put_some([("kind", kind)], (ns != NEVER).then(|| seconds(ns)));
            }
        },
    ),
    family(
        "pilotlight_energy_joules",
        (Counter, "joules"),
        &["zone", "sensor", "model"],
        "Energy since the start, by zone; `model` is empty for measured energy and names the profile of modelled energy.",
        energy,
    ),
    family(
        "pilotlight_host_energy_joules",
        (Counter, "joules"),
        &["zone", "sensor", "model", "host"],
        "Energy since the start by host (energy_shares); `unassigned` is the energy of no host.",
        host_energy,
    ),
    family(
        "pilotlight_namespace_energy_joules",
        (Counter, "joules"),
        &["zone", "sensor", "model", "subsystem", "namespace"],
        "Energy since the start by namespace (energy_shares); `unassigned` is the energy of no namespace.",
        namespace_energy,
    ),
    family(
        "pilotlight_power_watts",
        (Gauge, "watts"),
        &["zone", "sensor"],
        "Power in the last window of sensors that read power; for others use the rate of pilotlight_energy_joules_total.",
        watts,
    ),
    family("pilotlight_budget_watts", (Gauge, "watts"), &[], "The power budget in force.", |facts, out| {
        out.put_some([], facts.goals.budget_uw.map(millionths));
    }),
    family(
        "pilotlight_budget_headroom_watts",
        (Gauge, "watts"),
        &[],
        "The budget minus the power of its domain; negative if exceeded.",
        |facts, out| {
            let headroom_uw = facts.budget.as_ref().and_then(|budget| budget.headroom_uw);
            out.put_some([], headroom_uw.map(|uw| uw as f64 / 1e6));
        },
    ),
    family(
        "pilotlight_budget_state",
        (Gauge, ""),
        &["state"],
        "1 for the current state of the budget, 0 for the others (docs/operate/limit-power.md).",
        budget_states,
    ),
    family(
        "pilotlight_budget_limit_watts",
        (Gauge, "watts"),
        &[],
        "Limit of all budgets that is in force; without a valid one, that after the last deadline, or the floor.",
        |facts, out| limit(facts, out, |limit| millionths(limit.power_uw)),
    ),
    family(
        "pilotlight_budget_limit_then_watts",
        (Gauge, "watts"),
        &[],
        "Limit of all budgets after the deadline.",
        |facts, out| limit(facts, out, |limit| millionths(limit.then_uw)),
    ),
    family(
        "pilotlight_budget_limit_valid_seconds",
        (Gauge, "seconds"),
        &[],
        "Time until the deadline of the limit; 0 if it is past, or none was set.",
        |facts, out| limit(facts, out, |limit| limit.valid_for_ns.unwrap_or(0) as f64 / 1e9),
    ),
    family(
        "pilotlight_budget_limit_settings",
        (Counter, ""),
        &[],
        "Limits with a deadline that were set.",
        |facts, out| {
            limit(facts, out, |limit| limit.settings as f64);
        },
    ),
    family(
        "pilotlight_budget_limit_expiries",
        (Counter, ""),
        &[],
        "Deadlines that have passed and changed the limit.",
        |facts, out| limit(facts, out, |limit| limit.expiries as f64),
    ),
    family(
        "pilotlight_tolerance_ratio",
        (Gauge, "ratio"),
        &["subsystem", "namespace", "stat"],
        "Tolerated increase of latency relative to no saving; labels are empty for the whole server.",
        |facts, out| tolerances(facts, out, |tolerance| tolerance.loss_ppm.map(|ppm| f64::from(ppm) / 1e6)),
    ),
    family(
        "pilotlight_tolerance_seconds",
        (Gauge, "seconds"),
        &["subsystem", "namespace", "stat"],
        "Maximum latency; labels are empty for the whole server.",
        |facts, out| tolerances(facts, out, |tolerance| tolerance.latency_ns.map(seconds)),
    ),
    family(
        "pilotlight_bandwidth_cap_bytes_per_second",
        (Gauge, "bytes_per_second"),
        &["subsystem", "namespace", "host", "by"],
        "Bandwidth caps of namespaces and configured hosts, by source.",
        caps,
    ),
    family(
        "pilotlight_throttled_commands",
        (Counter, ""),
        &["subsystem", "namespace", "host"],
        "Commands delayed by a bandwidth cap; of a namespace since it was added.",
        |facts, out| capped(facts, out, |stats| stats.throttled as f64),
    ),
    family(
        "pilotlight_throttled_bytes",
        (Counter, "bytes"),
        &["subsystem", "namespace", "host"],
        "Bytes of those commands.",
        |facts, out| capped(facts, out, |stats| stats.throttled_bytes as f64),
    ),
    family(
        "pilotlight_cap_wait_seconds",
        (Histogram, "seconds"),
        &[],
        "Delay of commands by bandwidth caps, which is not part of their duration.",
        |facts, out| out.durations([], &sum(facts, |thread| &thread.cap_waits)),
    ),
    family(
        "pilotlight_namespace_size_bytes",
        (Gauge, "bytes"),
        &["subsystem", "namespace"],
        "Capacity of each namespace.",
        |facts, out| {
            for namespace in &facts.namespaces {
                let labels = [("subsystem", &*namespace.nqn), ("namespace", &*namespace.nsid.to_string())];
                out.put(labels, namespace.bytes as f64);
            }
        },
    ),
    family(
        "pilotlight_storage_free_bytes",
        (Gauge, "bytes"),
        &["subsystem", "namespace"],
        "Free space of the file system of a namespace's file; absent for memory and devices.",
        |facts, out| {
            for namespace in &facts.namespaces {
                let labels = [("subsystem", &*namespace.nqn), ("namespace", &*namespace.nsid.to_string())];
                out.put_some(labels, namespace.free_bytes.map(|bytes| bytes as f64));
            }
        },
    ),
    family(
        "pilotlight_config_last_reload_successful",
        (Gauge, ""),
        &[],
        "Whether the configuration was valid when it was last read.",
        |facts, out| out.put([], f64::from(u8::from(facts.reload.is_good))),
    ),
    family(
        "pilotlight_config_last_reload_success_timestamp_seconds",
        (Gauge, "seconds"),
        &[],
        "Time of the last successful reload, in Unix time.",
        |facts, out| out.put([], facts.reload.taken_s),
    ),
];

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

pub(super) fn millionths(value: u64) -> f64 {
    value as f64 / 1e6
}

fn sum(facts: &Facts, of: fn(&TargetThreadStats) -> &HistogramSnapshot) -> HistogramSnapshot {
    let mut sum = HistogramSnapshot::default();
    facts.stats.threads.iter().for_each(|thread| sum += of(thread));
    sum
}

/// A value for each namespace and operation.
fn by_namespace<const N: usize>(facts: &Facts, out: &mut Samples<'_>, values: fn(&NamespaceFacts) -> [u64; N]) {
    for namespace in &facts.namespaces {
        let nsid = namespace.nsid.to_string();
        for (operation, value) in zip(Operation::ALL, values(namespace)) {
            let labels = [("subsystem", &*namespace.nqn), ("namespace", &*nsid), ("operation", operation.name())];
            out.put(labels, value as f64);
        }
    }
}

/// A value for each host and operation.
fn by_host<const N: usize>(facts: &Facts, out: &mut Samples<'_>, values: fn(&Counts) -> [u64; N]) {
    for host in &facts.hosts {
        for (operation, value) in zip(Operation::ALL, values(&host.counts)) {
            out.put([("host", &*host.name), ("operation", operation.name())], value as f64);
        }
    }
}

/// Every status of every namespace: a series that begins above 0 would hide its first failures from `increase`.
fn failed_commands(facts: &Facts, out: &mut Samples<'_>) {
    for namespace in &facts.namespaces {
        let failed = namespace.failures.as_ref().map_or(&[][..], |failed| &failed.counts);
        let nsid = namespace.nsid.to_string();
        for none in Failures::none() {
            let count = failed.iter().find(|count| (count.status, count.cause) == (none.status, none.cause));
            let labels =
                [("subsystem", &*namespace.nqn), ("namespace", &*nsid), ("status", none.status), ("cause", none.cause)];
            out.put(labels, count.map_or(0, |count| count.commands) as f64);
        }
    }
}

fn reactors(facts: &Facts) -> impl Iterator<Item = (String, String, &pilotlight_reactor::ReactorStats)> {
    let cpus = facts.cpus.iter().copied().chain(std::iter::repeat(None));
    let named = zip(facts.stats.runtime.reactors.iter().enumerate(), cpus);
    named.map(|((id, stats), cpu)| (id.to_string(), cpu.map_or(String::new(), |cpu| cpu.to_string()), stats))
}

fn core_seconds(facts: &Facts, out: &mut Samples<'_>) {
    for (reactor, cpu, stats) in reactors(facts) {
        let mut put = |state, ns| out.put([("reactor", &*reactor), ("cpu", &*cpu), ("state", state)], seconds(ns));
        put(BUSY, stats.busy_ns);
        put(EMPTY_POLLS, stats.idle_ns);
        zip(SLEEPS, &stats.asleep).for_each(|(depth, sleep)| put(depth.name(), sleep.ns));
    }
}

fn wake_up_durations(facts: &Facts, out: &mut Samples<'_>) {
    for (index, depth) in SLEEPS.iter().enumerate() {
        let mut sum = HistogramSnapshot::default();
        facts.stats.runtime.reactors.iter().for_each(|reactor| sum += &reactor.asleep[index].latency);
        out.durations([("depth", depth.name())], &sum);
    }
}

fn energy(facts: &Facts, out: &mut Samples<'_>) {
    let Some(power) = &facts.power else { return };
    for zone in &power.zones {
        let labels =
            [("zone", &*zone.name), ("sensor", &*power.sensor), ("model", power.model.as_deref().unwrap_or_default())];
        out.put(labels, millionths(zone.energy_uj));
    }
}

fn tolerances(facts: &Facts, out: &mut Samples<'_>, value: fn(&crate::status::report::ToleranceReport) -> Option<f64>) {
    for tolerance in &facts.goals.tolerances {
        let nsid = tolerance.nsid.map_or(String::new(), |nsid| nsid.to_string());
        let nqn = tolerance.nqn.as_deref().unwrap_or_default();
        out.put_some([("subsystem", nqn), ("namespace", &*nsid), ("stat", &*tolerance.stat)], value(tolerance));
    }
}

/// Subsystem, namespace and host of what is capped; what does not apply is empty.
fn names(of: &Capped) -> (String, String, String) {
    match of {
        Capped::Namespace { nqn, nsid } => (nqn.clone(), nsid.to_string(), String::new()),
        Capped::Host { nqn } => (String::new(), String::new(), nqn.clone()),
    }
}

fn caps(facts: &Facts, out: &mut Samples<'_>) {
    for cap in &facts.stats.caps {
        let (nqn, nsid, host) = names(&cap.of);
        for (by, rate) in [("operator", cap.stats.operator), ("policy", cap.stats.policy)] {
            let labels = [("subsystem", &*nqn), ("namespace", &*nsid), ("host", &*host), ("by", by)];
            out.put_some(labels, rate.map(|rate| rate as f64));
        }
    }
}

fn capped(facts: &Facts, out: &mut Samples<'_>, value: fn(&pilotlight_nvmf_target::caps::LimitStats) -> f64) {
    for cap in &facts.stats.caps {
        let (nqn, nsid, host) = names(&cap.of);
        out.put([("subsystem", &*nqn), ("namespace", &*nsid), ("host", &*host)], value(&cap.stats));
    }
}
