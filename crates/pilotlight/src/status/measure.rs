//! The report of two snapshots of a server's counters: differences, rates, percentages.

use pilotlight_nvmf_target::latency::LatencyWindow;
use pilotlight_nvmf_target::{CapStats, Capped, NamespaceFailures, ServerStats, TargetThreadStats};
use pilotlight_plant::{Bound, CoreState, Goal, Goals, Topology, Unreachable, View};
use pilotlight_reactor::cells::SLEEPS;
use pilotlight_reactor::{HistogramSnapshot, IoThreadStats, ReactorStats, RuntimeStats, SleepStats};

use super::report::{
    CapReport, CommandsReport, Count, Distribution, FORMAT, FailureReport, GoalsReport, IoReport, IoThreadReport,
    MinimumReport, NameAndValue, NamespaceLatencyReport, ParameterReport, PolicyReport, PowerStateReport,
    PrioritiesReport, PriorityReport, ReactorReport, Report, ServerFacts, SocketLatencyReport, ToleranceReport,
    WakeUpReport,
};
use crate::config::{LatencyBound, NamespaceTolerance, Reactors};
use crate::policies::PolicyChoice;

/// A server's counters at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Time since the start, in nanoseconds.
    pub(crate) uptime_ns: u64,
    /// The counters.
    pub(crate) stats: ServerStats,
}

/// The time between two snapshots.
struct Window {
    ns: u64,
}

impl Window {
    fn per_s(&self, before: u64, now: u64) -> f64 {
        rounded(now.saturating_sub(before) as f64 * 1e9 / self.ns as f64)
    }

    /// Parts of the window's time in percent. No two parts overlap, so they never exceed the window but for what passes between
    /// the readings of the clock; their sum is then the better measure of its length.
    fn shares<const N: usize>(&self, before_ns: [u64; N], now_ns: [u64; N]) -> [f64; N] {
        let parts: [u64; N] = std::array::from_fn(|part| now_ns[part].saturating_sub(before_ns[part]));
        let whole = self.ns.max(parts.iter().sum());
        parts.map(|part| rounded(part as f64 * 100.0 / whole as f64))
    }
}

/// Two places are more than any of this is good for.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn count(before: u64, now: u64) -> Count {
    Count { in_window: now.saturating_sub(before), since_start: now }
}

fn distribution(before: &HistogramSnapshot, now: &HistogramSnapshot) -> Distribution {
    let window = now.since(before);
    Distribution {
        count: window.count(),
        p50_ns: window.percentile_ns(0.5),
        p99_ns: window.percentile_ns(0.99),
        p99_9_ns: window.percentile_ns(0.999),
        max_ns: window.max_ns(),
    }
}

/// The report of the time between `before` and `now`.
pub(crate) fn report(
    before: &Snapshot,
    now: &Snapshot,
    facts: ServerFacts,
    policy: PolicyReport,
    at: &Reactors,
) -> Report {
    let window = Window { ns: now.uptime_ns.saturating_sub(before.uptime_ns).max(1) };
    let (was, is) = (&before.stats.runtime, &now.stats.runtime);
    Report {
        energy_shares: None,
        format: FORMAT,
        server: facts,
        window_ns: window.ns,
        policy,
        goals: GoalsReport::default(),
        priorities: PrioritiesReport::default(),
        budget: None,
        power: None,
        io: io(&window, &before.stats, &now.stats),
        caps: caps(&window, &before.stats, &now.stats),
        cap_wait: summed(&before.stats, &now.stats, |thread| &thread.cap_waits),
        power_states: power_states(&now.stats),
        failures: failures(&before.stats, &now.stats),
        background: super::background::background(&now.stats),
        reactors: reactors(&window, was, is, at),
        io_threads: io_threads(&window, &before.stats, &now.stats),
        commands: commands(was, is),
        wake_ups: wake_ups(was, is),
        metrics: Vec::new(),
        page: None,
        limit: None,
    }
}

/// The policy, its parameters and its view.
pub(crate) fn policy(choice: &PolicyChoice, view: View) -> PolicyReport {
    let parameters = choice.settings().into_iter().map(|setting| ParameterReport {
        is_set: choice.parameters.iter().any(|(key, _)| key == setting.key),
        key: setting.key.to_owned(),
        value: setting.value,
    });
    let view = view.into_iter().map(|(name, value)| NameAndValue { name: name.to_owned(), value });
    PolicyReport { name: choice.name.clone(), parameters: parameters.collect(), view: view.collect() }
}

/// The goals, and those that the policy does not use.
pub(crate) fn goals(
    goals: &Goals,
    namespaces: &[NamespaceTolerance],
    policy: &PolicyChoice,
    unreachable: Option<Unreachable>,
) -> GoalsReport {
    let server = goals.tolerances.iter().map(|tolerance| tolerance_report(None, LatencyBound::from(*tolerance)));
    let namespaces = namespaces.iter().map(|(of, bound)| tolerance_report(Some(of), *bound));
    let tolerances: Vec<_> = server.chain(namespaces).collect();
    let (budget_uw, has_tolerance) = (goals.budget_uw, !tolerances.is_empty());
    let policy = policy.build().ok();
    let is_unused = |goal| !policy.as_ref().is_some_and(|policy| policy.uses(goal));
    let set = [("budget", Goal::Budget, budget_uw.is_some()), ("tolerance", Goal::Tolerance, has_tolerance)];
    let unused = set.into_iter().filter(|&(_, goal, is_set)| is_set && is_unused(goal));
    let unused: Vec<String> = unused.map(|(name, ..)| name.to_owned()).collect();
    let floor = unreachable.filter(|unreachable| unreachable.goal == Goal::Budget);
    let gives_way = (budget_uw.is_some() && has_tolerance && unused.is_empty()).then(|| "tolerance".to_owned());
    GoalsReport { budget_uw, tolerances, unused, gives_way, floor_uw: floor.map(|floor| floor.reached) }
}

fn tolerance_report(of: Option<&Capped>, bound: LatencyBound) -> ToleranceReport {
    let (nqn, nsid, _) = of.map_or((None, None, None), names);
    let (loss_ppm, latency_ns) = match bound.bound {
        Bound::LossPpm(ppm) => (Some(ppm), None),
        Bound::LatencyNs(ns) => (None, Some(ns)),
    };
    let (stat, text) = (bound.stat.name().to_owned(), bound.to_string());
    ToleranceReport { nqn, nsid, stat, loss_ppm, latency_ns, text }
}

/// Priorities, each with whether it was set manually, and minimums.
pub(crate) fn priorities<'a>(
    named: impl Iterator<Item = (&'a Capped, u8, bool)>,
    goals: &Goals,
    policy: &PolicyChoice,
) -> PrioritiesReport {
    let one = |(of, priority, manual): (&Capped, u8, bool)| {
        let (nqn, nsid, host) = names(of);
        PriorityReport { nqn, nsid, host, priority, manual }
    };
    let minimum = |&(priority, bytes_per_s): &(u8, u64)| MinimumReport { priority, bytes_per_s };
    PrioritiesReport {
        named: named.map(one).collect(),
        minimums: goals.minimums.iter().map(minimum).collect(),
        unused: !policy.uses(Goal::Priorities),
    }
}

/// The subsystem and the number of a namespace, or the name of a host.
fn names(of: &Capped) -> (Option<String>, Option<u32>, Option<String>) {
    match of {
        Capped::Namespace { nqn, nsid } => (Some(nqn.clone()), Some(*nsid), None),
        Capped::Host { nqn } => (None, None, Some(nqn.clone())),
    }
}

fn io(window: &Window, before: &ServerStats, now: &ServerStats) -> IoReport {
    let (was, is) = (&before.totals, &now.totals);
    IoReport {
        connections: is.connections,
        associations: now.associations as u64,
        faults: count(was.faults, is.faults),
        iops: window.per_s(was.reads + was.writes, is.reads + is.writes),
        read_iops: window.per_s(was.reads, is.reads),
        write_iops: window.per_s(was.writes, is.writes),
        read_bytes_per_s: window.per_s(was.read_bytes, is.read_bytes),
        written_bytes_per_s: window.per_s(was.written_bytes, is.written_bytes),
        latency: summed(before, now, |thread| &thread.latency),
        from_socket: from_socket(before, now),
        namespaces_from_socket: now.latencies.iter().map(namespace_latency).collect(),
    }
}

fn namespace_latency((of, window): &(Capped, LatencyWindow)) -> NamespaceLatencyReport {
    let (nqn, nsid, _) = names(of);
    let LatencyWindow { mean_ns, p50_ns, p99_ns } = *window;
    NamespaceLatencyReport { nqn, nsid, mean_ns, p50_ns, p99_ns }
}

/// Latencies from the socket on; `None` where none were sampled.
fn from_socket(before: &ServerStats, now: &ServerStats) -> Option<SocketLatencyReport> {
    let of: fn(&TargetThreadStats) -> &HistogramSnapshot = |thread| &thread.from_socket.latency;
    let window = sum(now, of).since(&sum(before, of));
    let stamped = |stats: &ServerStats| stats.threads.iter().map(|thread| thread.from_socket.stamped).sum::<u64>();
    let start = if stamped(now) > stamped(before) { "socket" } else { "poll" };
    (window.count() > 0).then(|| SocketLatencyReport {
        start: start.to_owned(),
        mean_ns: window.mean_ns(),
        p50_ns: window.percentile_ns(0.5),
        p99_ns: window.percentile_ns(0.99),
    })
}

/// A cap with its counters since the start.
pub(crate) fn cap(is: &CapStats) -> CapReport {
    let (nqn, nsid, host) = names(&is.of);
    CapReport {
        nqn,
        nsid,
        host,
        operator_bytes_per_s: is.stats.operator,
        policy_bytes_per_s: is.stats.policy,
        bytes_per_s: 0.0,
        throttled: count(is.stats.throttled, is.stats.throttled),
        throttled_now: is.stats.throttled_now,
    }
}

fn caps(window: &Window, before: &ServerStats, now: &ServerStats) -> Vec<CapReport> {
    let one = |is: &CapStats| {
        let was = before.caps.iter().find(|was| was.of == is.of).map(|was| was.stats).unwrap_or_default();
        CapReport {
            bytes_per_s: window.per_s(was.bytes, is.stats.bytes),
            throttled: count(was.throttled, is.stats.throttled),
            ..cap(is)
        }
    };
    now.caps.iter().map(one).collect()
}

fn power_states(now: &ServerStats) -> Vec<PowerStateReport> {
    let report = |&(controller, power_state): &(u16, u8)| PowerStateReport { controller, power_state };
    now.power_states.iter().map(report).collect()
}

fn failures(before: &ServerStats, now: &ServerStats) -> Vec<FailureReport> {
    let mut reports = Vec::new();
    for namespace in &now.failures {
        let same = |other: &&NamespaceFailures| (&other.nqn, other.nsid) == (&namespace.nqn, namespace.nsid);
        let before = before.failures.iter().find(same).map_or(&[][..], |before| &before.counts);
        for is in &namespace.counts {
            let was = before.iter().find(|was| (was.status, was.cause) == (is.status, is.cause));
            reports.push(FailureReport {
                nqn: namespace.nqn.clone(),
                nsid: namespace.nsid,
                status: is.status.to_owned(),
                cause: is.cause.to_owned(),
                commands: count(was.map_or(0, |was| was.commands), is.commands),
            });
        }
    }
    reports
}

/// Over all I/O threads.
fn summed(before: &ServerStats, now: &ServerStats, of: fn(&TargetThreadStats) -> &HistogramSnapshot) -> Distribution {
    distribution(&sum(before, of), &sum(now, of))
}

fn sum(stats: &ServerStats, of: fn(&TargetThreadStats) -> &HistogramSnapshot) -> HistogramSnapshot {
    stats.threads.iter().fold(HistogramSnapshot::default(), |mut sum, thread| {
        sum += of(thread);
        sum
    })
}

fn reactors(window: &Window, before: &RuntimeStats, now: &RuntimeStats, at: &Reactors) -> Vec<ReactorReport> {
    let none = none_yet();
    let homes = |id: usize| {
        let here = |(_, thread): &(usize, &IoThreadStats)| !thread.finished && thread.home.index() == id;
        now.threads.iter().enumerate().filter(here).map(|(thread, _)| thread as u16).collect()
    };
    let one = |(id, is): (usize, &ReactorStats)| {
        let was = before.reactors.get(id).unwrap_or(&none);
        let core = at.cores.get(id).copied().flatten();
        reactor(window, was, is, id, core, &at.topology, homes(id))
    };
    now.reactors.iter().enumerate().map(one).collect()
}

fn reactor(
    window: &Window,
    was: &ReactorStats,
    is: &ReactorStats,
    id: usize,
    core: Option<u32>,
    topology: &Topology,
    io_threads: Vec<u16>,
) -> ReactorReport {
    let this = topology.cores().nth(id);
    let parts = |stats: &ReactorStats| {
        let [a, b, c] = stats.asleep.each_ref().map(|sleep| sleep.ns);
        [stats.busy_ns, stats.idle_ns, a, b, c]
    };
    let [busy_percent, idle_percent, asleep @ ..] = window.shares(parts(was), parts(is));
    let asleep = SLEEPS.iter().zip(asleep).map(|(depth, percent)| (depth.name().to_owned(), percent));
    ReactorReport {
        id: id as u16,
        core,
        main: this == Some(topology.main()),
        sibling: this.and_then(|core| topology.sibling(core)).map(|sibling| sibling.0),
        state: state(is.state),
        busy_percent,
        idle_percent,
        asleep_percent: asleep.collect(),
        scheduled_percent: (is.cpu_ns > 0).then(|| window.shares([was.cpu_ns], [is.cpu_ns])[0]),
        loops_per_s: window.per_s(was.loops, is.loops),
        requests_per_s: window.per_s(was.requests, is.requests),
        io_threads,
        moves_in: count(was.moves_in, is.moves_in),
        moves_out: count(was.moves_out, is.moves_out),
    }
}

fn state(state: CoreState) -> String {
    match state {
        CoreState::Awake => "awake".to_owned(),
        CoreState::Asleep(depth) => depth.name().to_owned(),
    }
}

fn io_threads(window: &Window, before: &ServerStats, now: &ServerStats) -> Vec<IoThreadReport> {
    let nothing = TargetThreadStats::default();
    let one = |(id, is): (usize, &IoThreadStats)| {
        let was = before.runtime.threads.get(id);
        let of = |field: fn(&IoThreadStats) -> u64| was.map_or(0, field);
        let parts = |stats: &IoThreadStats| [stats.busy_ns, stats.idle_ns, stats.asleep_ns[1], stats.asleep_ns[2]];
        let [busy_percent, idle_percent, software_wait_percent, server_sleep_percent] =
            window.shares(was.map_or([0; 4], parts), parts(is));
        let (target_was, target_is) =
            (before.threads.get(id).unwrap_or(&nothing), now.threads.get(id).unwrap_or(&nothing));
        IoThreadReport {
            id: id as u16,
            home: is.home.0,
            connections: target_is.totals.connections,
            class: now.classes.get(id).copied().flatten(),
            requests_per_s: window.per_s(of(|was| was.requests), is.requests),
            busy_percent,
            idle_percent,
            software_wait_percent,
            server_sleep_percent,
            latency: distribution(&target_was.latency, &target_is.latency),
            moves: count(of(|was| was.moves), is.moves),
        }
    };
    now.runtime.threads.iter().enumerate().map(one).collect()
}

fn commands(before: &RuntimeStats, now: &RuntimeStats) -> CommandsReport {
    let (was, is) = (&before.director, &now.director);
    CommandsReport {
        moves: count(was.moves, is.moves),
        sleeps: count(was.sleeps, is.sleeps),
        wakes: count(was.wakes, is.wakes),
        refusals: count(was.refusals, is.refusals),
        intervals: count(was.intervals, is.intervals),
        ticks: count(was.ticks, is.ticks),
        tick_lateness: distribution(&was.lateness, &is.lateness),
    }
}

fn wake_ups(before: &RuntimeStats, now: &RuntimeStats) -> Vec<WakeUpReport> {
    let sum = |stats: &RuntimeStats, depth: usize| {
        stats.reactors.iter().fold(SleepStats::default(), |mut sum, reactor| {
            let sleep = &reactor.asleep[depth];
            sum.wakes += sleep.wakes;
            sum.latency += &sleep.latency;
            sum
        })
    };
    let one = |(index, depth): (usize, &pilotlight_plant::Depth)| {
        let (was, is) = (sum(before, index), sum(now, index));
        WakeUpReport {
            from: depth.name().to_owned(),
            wakes: count(was.wakes, is.wakes),
            latency: distribution(&was.latency, &is.latency),
        }
    };
    SLEEPS.iter().enumerate().map(one).collect()
}

/// A reactor before its start.
pub(crate) fn none_yet() -> ReactorStats {
    ReactorStats {
        state: CoreState::Awake,
        loops: 0,
        busy_ns: 0,
        idle_ns: 0,
        asleep: Default::default(),
        cpu_ns: 0,
        requests: 0,
        io_threads: 0,
        moves_out: 0,
        moves_in: 0,
    }
}

#[cfg(test)]
mod tests;
