//! From two looks at a server's counters to a report: differences, rates, percentages.

use pilotlight_plant::{CoreState, Topology, View};
use pilotlight_reactor::cells::SLEEPS;
use pilotlight_reactor::{HistogramSnapshot, IoThreadStats, ReactorStats, RuntimeStats, SleepStats};
use pilotlight_target::ServerStats;

use super::report::{
    Count, Distribution, FORMAT, IoReport, IoThreadReport, NameAndValue, OrdersReport, ParameterReport, PolicyReport,
    ReactorReport, Report, ServerFacts, WakeUpReport,
};
use crate::config::Reactors;
use crate::policies::PolicyChoice;

/// A server's counters at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// Time since the start, in nanoseconds.
    pub(crate) uptime_ns: u64,
    /// The counters.
    pub(crate) stats: ServerStats,
}

/// What came between two looks.
struct Window {
    ns: u64,
}

impl Window {
    fn per_s(&self, before: u64, now: u64) -> f64 {
        rounded(now.saturating_sub(before) as f64 * 1e9 / self.ns as f64)
    }

    fn percent(&self, before_ns: u64, now_ns: u64) -> f64 {
        rounded(now_ns.saturating_sub(before_ns) as f64 * 100.0 / self.ns as f64)
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
        max_ns: window.percentile_ns(1.0),
    }
}

/// What happened between `before` and `now`.
pub(crate) fn report(before: &Look, now: &Look, facts: ServerFacts, policy: PolicyReport, at: &Reactors) -> Report {
    let window = Window { ns: now.uptime_ns.saturating_sub(before.uptime_ns).max(1) };
    let (was, is) = (&before.stats.runtime, &now.stats.runtime);
    Report {
        format: FORMAT,
        server: facts,
        window_ns: window.ns,
        policy,
        io: io(&window, &before.stats, &now.stats),
        reactors: reactors(&window, was, is, at),
        io_threads: io_threads(&window, was, is),
        orders: orders(was, is),
        wake_ups: wake_ups(was, is),
    }
}

/// The policy, its parameters and what it sees.
pub(crate) fn policy(choice: &PolicyChoice, view: View) -> PolicyReport {
    let defaults = PolicyChoice { parameters: Vec::new(), ..choice.clone() }.settings();
    let parameters = choice.settings().into_iter().map(|setting| ParameterReport {
        is_default: defaults.contains(&setting),
        key: setting.key.to_owned(),
        value: setting.value,
    });
    let view = view.into_iter().map(|(name, value)| NameAndValue { name: name.to_owned(), value });
    PolicyReport { name: choice.name.clone(), parameters: parameters.collect(), view: view.collect() }
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
        latency: None,
    }
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
    let asleep = SLEEPS.iter().zip(was.asleep.iter().zip(&is.asleep));
    ReactorReport {
        id: id as u16,
        core,
        main: this == Some(topology.main()),
        sibling: this.and_then(|core| topology.sibling(core)).map(|sibling| sibling.0),
        state: state(is.state),
        busy_percent: window.percent(was.busy_ns, is.busy_ns),
        idle_percent: window.percent(was.idle_ns, is.idle_ns),
        asleep_percent: asleep
            .map(|(depth, (was, is))| (depth.name().to_owned(), window.percent(was.ns, is.ns)))
            .collect(),
        scheduled_percent: (is.cpu_ns > 0).then(|| window.percent(was.cpu_ns, is.cpu_ns)),
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

fn io_threads(window: &Window, before: &RuntimeStats, now: &RuntimeStats) -> Vec<IoThreadReport> {
    let one = |(id, is): (usize, &IoThreadStats)| {
        let was = before.threads.get(id);
        let of = |field: fn(&IoThreadStats) -> u64| was.map_or(0, field);
        IoThreadReport {
            id: id as u16,
            home: is.home.0,
            requests_per_s: window.per_s(of(|was| was.requests), is.requests),
            busy_percent: window.percent(of(|was| was.busy_ns), is.busy_ns),
            moves: count(of(|was| was.moves), is.moves),
        }
    };
    now.threads.iter().enumerate().map(one).collect()
}

fn orders(before: &RuntimeStats, now: &RuntimeStats) -> OrdersReport {
    let (was, is) = (&before.director, &now.director);
    OrdersReport {
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
fn none_yet() -> ReactorStats {
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
