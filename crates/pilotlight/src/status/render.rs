//! The report as text: with units, and with colours if enabled.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pilotlight_plant::Depth;
use pilotlight_reactor::cells::SLEEPS;

use super::format::{bytes_per_s, line, long_time, measured, rate, time, times};
use super::report::{
    CommandsReport, FailureReport, IoReport, PowerStateReport, ReactorReport, Report, SocketLatencyReport,
};
use super::{background, caps, energy, goals, priorities};
use crate::config::{SleepAfter, format_cores};
use crate::table::Table;

/// I/O threads that are listed one by one; of more, the busiest.
const MAX_IO_THREADS: usize = 64;

/// A report as text.
pub(crate) fn text(report: &Report, colour: bool) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", head(report));
    if report.server.test_mode {
        let warning = "reactors have no cores of their own (test mode): measurements are not valid";
        let _ = writeln!(out, "{}", paint(colour, "33", warning));
    }
    let _ = write!(out, "\n{}", policy(report));
    let _ = write!(out, "{}", goals::goals(&report.goals, &report.policy));
    let _ = write!(out, "{}", priorities::priorities(&report.priorities));
    report.budget.iter().for_each(|budget| out += &goals::budget(budget, report.power.as_ref()));
    report.limit.iter().for_each(|limit| line(&mut out, "limit", &goals::limit(limit)));
    report.power.iter().for_each(|known| line(&mut out, "power", &goals::power(known)));
    report.energy_shares.iter().for_each(|shares| out += &energy::shares(shares));
    let _ = write!(out, "{}{}{}", io(&report.io), caps::caps(report), power_states(&report.power_states));
    out += &background::text(&report.background);
    let _ = writeln!(out, "{}", failures(&report.failures, colour));
    let _ = write!(out, "{}\n{}\n", reactors(&report.reactors, colour), io_threads(report));
    let _ = write!(out, "{}", commands(&report.commands));
    for wake_up in &report.wake_ups {
        if wake_up.wakes.since_start > 0 {
            let latency = measured(wake_up.latency, "no wake-up was sent by another core");
            line(&mut out, &format!("from {}", wake_up.from), &format!("{}; {latency}", times(wake_up.wakes)));
        }
    }
    out
}

fn head(report: &Report) -> String {
    let server = &report.server;
    let listening: Vec<String> = server.listening.iter().map(ToString::to_string).collect();
    format!(
        "pilotlight {} (process {}) on {}, up {}; the last {}",
        server.version,
        server.pid,
        listening.join(", "),
        long_time(server.uptime_ns),
        time(report.window_ns)
    )
}

fn policy(report: &Report) -> String {
    let (policy, sleep_after) = (&report.policy, &report.server.sleep_after);
    let mut out = String::new();
    let set = policy.parameters.iter().filter(|parameter| parameter.is_set);
    let set: Vec<String> = set.map(|parameter| format!("{}={}", parameter.key, parameter.value)).collect();
    let set = if set.is_empty() { String::new() } else { format!(" ({})", set.join(", ")) };
    let quiet = SleepAfter::sentence(sleep_after);
    line(&mut out, "policy", &format!("{}{set}; {quiet}", policy.name));
    let sees = policy.view.iter().filter(|seen| !goals::TOLERANCE_VIEW.contains(&seen.name.as_str()));
    let view: Vec<String> = sees.map(|seen| format!("{} {}", seen.name, seen.value)).collect();
    if !view.is_empty() {
        // Whatever it computes from watts that were not measured was not measured either.
        let is_modelled = report.power.as_ref().is_some_and(|power| power.modelled.is_some());
        let modelled = if is_modelled { "; watts are modelled" } else { "" };
        let mut label = "policy view";
        for text in wrapped(&view, modelled) {
            line(&mut out, std::mem::take(&mut label), &text);
        }
    }
    out
}

/// Maximum length of a line of a policy's view, in characters.
const VIEW_WIDTH: usize = 76;

/// The items of a list in lines, and `end` after them.
fn wrapped(items: &[String], end: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (at, item) in items.iter().enumerate() {
        let item = format!("{item}{}", if at + 1 < items.len() { "," } else { end });
        match lines.last_mut() {
            Some(last) if last.is_empty() => *last = item,
            Some(last) if last.chars().count() + 1 + item.chars().count() <= VIEW_WIDTH => *last += &format!(" {item}"),
            _ => lines.push(item),
        }
    }
    lines
}

fn io(io: &IoReport) -> String {
    let mut out = String::new();
    let faults =
        if io.faults.since_start > 0 { format!("; ended by faults: {}", times(io.faults)) } else { String::new() };
    line(&mut out, "connections", &format!("{} of {} associations{faults}", io.connections, io.associations));
    let served = format!(
        "{} IOPS ({} read, {} write); {} read, {} written",
        rate(io.iops),
        rate(io.read_iops),
        rate(io.write_iops),
        bytes_per_s(io.read_bytes_per_s),
        bytes_per_s(io.written_bytes_per_s)
    );
    line(&mut out, "served", &served);
    line(&mut out, "latency", &measured(io.latency, "no reads or writes"));
    io.from_socket.iter().for_each(|latency| line(&mut out, "latency sampled", &from_socket(latency)));
    for latency in &io.namespaces_from_socket {
        let (nsid, nqn) = (latency.nsid.unwrap_or_default(), latency.nqn.as_deref().unwrap_or_default());
        let (mean, p50, p99) = (time(latency.mean_ns), time(latency.p50_ns), time(latency.p99_ns));
        line(&mut out, &format!("  namespace {nsid}"), &format!("of {nqn}: mean {mean}, p50 {p50}, p99 {p99}"));
    }
    out
}

/// `from the socket: mean 14.2 us, p50 ...`
fn from_socket(latency: &SocketLatencyReport) -> String {
    let SocketLatencyReport { start, mean_ns, p50_ns, p99_ns } = latency;
    let why = if start == "socket" { "" } else { " (this kernel gives no time of receipt)" };
    format!("from the {start}{why}: mean {}, p50 {}, p99 {}", time(*mean_ns), time(*p50_ns), time(*p99_ns))
}

/// How many controllers are in which power state; nothing where none shows any.
fn power_states(controllers: &[PowerStateReport]) -> String {
    let mut out = String::new();
    let mut states: BTreeMap<u8, usize> = BTreeMap::new();
    controllers.iter().for_each(|controller| *states.entry(controller.power_state).or_default() += 1);
    let each = |(state, count): (&u8, &usize)| {
        format!("{count} controller{} in PS{state}", if *count == 1 { "" } else { "s" })
    };
    if !states.is_empty() {
        line(&mut out, "power states", &states.iter().map(each).collect::<Vec<_>>().join(", "));
    }
    out
}

/// A line for each namespace and status that commands failed with.
fn failures(failures: &[FailureReport], colour: bool) -> String {
    let mut out = String::new();
    for FailureReport { nqn, nsid, status, cause, commands } in failures {
        let cause = if cause.is_empty() { String::new() } else { format!(" ({cause})") };
        let text = format!("namespace {nsid} of {nqn}, {status}{cause}: {}", times(*commands));
        line(&mut out, "failed commands", &paint(colour, "31", &text));
    }
    out
}

fn reactors(reactors: &[ReactorReport], colour: bool) -> String {
    let slept = |reactor: &ReactorReport, depth: &str| reactor.asleep_percent.get(depth).copied().unwrap_or(0.0);
    // a machine uses one or two of the depths
    let mut depths = SLEEPS.map(Depth::name).to_vec();
    depths.retain(|depth| reactors.iter().any(|reactor| slept(reactor, depth) > 0.0));
    let asleep: Vec<String> = depths.iter().map(|depth| format!("{depth} %")).collect();
    let before = ["<reactor", "core", "sibling", "<state", "busy %", "idle %"];
    let after = ["CPU %", "loops/s", "requests/s", "moves in", "out", "<I/O threads"];
    let headings: Vec<&str> = before.into_iter().chain(asleep.iter().map(String::as_str)).chain(after).collect();
    let mut table = Table::new(&headings);
    for reactor in reactors {
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let state = if reactor.state == "awake" { "32" } else { "34" };
        let before = [
            format!("{}{}", reactor.id, if reactor.main { " main" } else { "" }),
            or_none(reactor.core.map(|core| core.to_string())),
            or_none(reactor.sibling.map(|sibling| sibling.to_string())),
            paint(colour, state, &reactor.state),
            percent(reactor.busy_percent),
            percent(reactor.idle_percent),
        ];
        let after = [
            or_none(reactor.scheduled_percent.map(percent)),
            rate(reactor.loops_per_s),
            rate(reactor.requests_per_s),
            reactor.moves_in.in_window.to_string(),
            reactor.moves_out.in_window.to_string(),
            ids(&reactor.io_threads),
        ];
        table.row(before.into_iter().chain(depths.iter().map(|depth| percent(slept(reactor, depth)))).chain(after));
    }
    table.to_string()
}

fn io_threads(report: &Report) -> String {
    let mut threads: Vec<_> = report.io_threads.iter().collect();
    threads.sort_by(|a, b| b.requests_per_s.total_cmp(&a.requests_per_s).then(a.id.cmp(&b.id)));
    let left_out = threads.len().saturating_sub(MAX_IO_THREADS);
    threads.truncate(MAX_IO_THREADS);
    threads.sort_by_key(|thread| thread.id);
    let has_classes = threads.iter().any(|thread| thread.class.is_some_and(|class| class > 0));
    let class = has_classes.then_some("class");
    let first = ["<I/O thread", "reactor", "connections"].into_iter().chain(class);
    let rest = ["requests/s", "busy %", "idle %", "asleep %", "p50", "p99", "moves", "since start"];
    let mut table = Table::new(&first.chain(rest).collect::<Vec<_>>());
    for thread in threads {
        let latency = |ns: u64| if thread.latency.count > 0 { time(ns) } else { "-".to_owned() };
        let class = thread.class.map_or_else(|| "-".to_owned(), |class| class.to_string());
        let first = [thread.id.to_string(), thread.home.to_string(), thread.connections.to_string()];
        let rest = [
            rate(thread.requests_per_s),
            percent(thread.busy_percent),
            percent(thread.idle_percent),
            percent(thread.software_wait_percent + thread.server_sleep_percent),
            latency(thread.latency.p50_ns),
            latency(thread.latency.p99_ns),
            thread.moves.in_window.to_string(),
            thread.moves.since_start.to_string(),
        ];
        table.row(first.into_iter().chain(has_classes.then_some(class)).chain(rest));
    }
    let rest = if left_out > 0 { format!("and {left_out} with fewer requests\n") } else { String::new() };
    format!("{table}{rest}")
}

fn commands(commands: &CommandsReport) -> String {
    let mut out = String::new();
    for (heading, count) in [
        ("moves ordered", commands.moves),
        ("sleeps ordered", commands.sleeps),
        ("wake-ups ordered", commands.wakes),
        ("commands refused", commands.refusals),
    ] {
        line(&mut out, heading, &times(count));
    }
    if commands.ticks.since_start > 0 {
        let late = measured(commands.tick_lateness, "none");
        line(&mut out, "ticks", &format!("{}; late by {late}", times(commands.ticks)));
    }
    out
}

fn percent(value: f64) -> String {
    format!("{value:.1}")
}

/// `0-3 7`.
fn ids(ids: &[u16]) -> String {
    let ids: Vec<u32> = ids.iter().map(|&id| u32::from(id)).collect();
    format_cores(&ids)
}

fn paint(colour: bool, code: &str, text: &str) -> String {
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
pub(crate) mod tests;
