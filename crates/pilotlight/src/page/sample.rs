//! Data of the page: the present sample, and the history.

use std::collections::BTreeMap;

use pilotlight_reactor::cells::SLEEPS;
use serde::Serialize;

use crate::status::report::{
    BUSY, BudgetReport, ClassReport, EMPTY_POLLS, GoalsReport, ParameterReport, PolicyReport, PowerReport,
    ReactorReport, Report,
};

/// A server now. Rates and percentages are of the time since the sample before.
#[derive(Serialize)]
pub(super) struct Sample<'a> {
    unix_ms: u64,
    uptime_ns: u64,
    version: &'a str,
    test_mode: bool,
    sleep_after: &'a str,
    policy: Policy<'a>,
    goals: &'a GoalsReport,
    budget: Option<&'a BudgetReport>,
    power: Option<&'a PowerReport>,
    connections: u64,
    read_iops: f64,
    write_iops: f64,
    read_bytes_per_s: f64,
    written_bytes_per_s: f64,
    cores: Vec<Core<'a>>,
    background: &'a [ClassReport],
}

#[derive(Serialize)]
struct Policy<'a> {
    name: &'a str,
    /// Those that were set.
    parameters: Vec<&'a ParameterReport>,
}

/// A reactor.
#[derive(Serialize)]
struct Core<'a> {
    id: u16,
    core: Option<u32>,
    main: bool,
    state: &'a str,
    /// As [`states`].
    percent: Vec<f64>,
}

/// A server over a longer time.
#[derive(Serialize)]
struct Point<'a> {
    /// The end of that time.
    unix_ms: u64,
    seconds: f64,
    iops: f64,
    bytes_per_s: f64,
    /// `None`: there were no requests.
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    budget_uw: Option<u64>,
    /// Power by domain.
    power_uw: BTreeMap<&'a str, Option<u64>>,
    /// Of each core, as [`states`].
    cores: Vec<Vec<f64>>,
}

/// Names of the states of a core, in the order of their shares.
pub(super) fn states() -> Vec<&'static str> {
    [BUSY, EMPTY_POLLS].into_iter().chain(SLEEPS.iter().map(|depth| depth.name())).collect()
}

fn shares(reactor: &ReactorReport) -> Vec<f64> {
    let asleep = SLEEPS.iter().map(|depth| reactor.asleep_percent.get(depth.name()).copied().unwrap_or_default());
    [reactor.busy_percent, reactor.idle_percent].into_iter().chain(asleep).collect()
}

/// A sample as JSON on one line.
pub(super) fn sample(report: &Report, unix_ms: u64) -> String {
    let cores = report.reactors.iter().map(|reactor| Core {
        id: reactor.id,
        core: reactor.core,
        main: reactor.main,
        state: &reactor.state,
        percent: shares(reactor),
    });
    let PolicyReport { name, parameters, .. } = &report.policy;
    json(&Sample {
        unix_ms,
        uptime_ns: report.server.uptime_ns,
        version: &report.server.version,
        test_mode: report.server.test_mode,
        sleep_after: &report.server.sleep_after,
        policy: Policy { name, parameters: parameters.iter().filter(|parameter| parameter.is_set).collect() },
        goals: &report.goals,
        budget: report.budget.as_ref(),
        power: report.power.as_ref(),
        connections: report.io.connections,
        read_iops: report.io.read_iops,
        write_iops: report.io.write_iops,
        read_bytes_per_s: report.io.read_bytes_per_s,
        written_bytes_per_s: report.io.written_bytes_per_s,
        cores: cores.collect(),
        background: &report.background.classes,
    })
}

/// A point as JSON on one line.
pub(super) fn point(report: &Report, unix_ms: u64) -> String {
    let latency = (report.io.latency.count > 0).then_some(report.io.latency);
    let power = report.power.iter().flat_map(|power| &power.readings);
    json(&Point {
        unix_ms,
        seconds: report.window_ns as f64 / 1e9,
        iops: report.io.iops,
        bytes_per_s: report.io.read_bytes_per_s + report.io.written_bytes_per_s,
        p50_ns: latency.map(|latency| latency.p50_ns),
        p99_ns: latency.map(|latency| latency.p99_ns),
        budget_uw: report.goals.budget_uw,
        power_uw: power.map(|reading| (reading.of.as_str(), reading.power_uw)).collect(),
        cores: report.reactors.iter().map(shares).collect(),
    })
}

/// Values of these types always become JSON.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned())
}
