//! A report for people: units everywhere, colours only where they are wanted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pilotlight_plant::Depth;
use pilotlight_reactor::cells::SLEEPS;

use super::report::{
    Count, Distribution, FailureReport, IoReport, OrdersReport, PowerStateReport, ReactorReport, Report,
};
use super::{caps, goals};
use crate::config::{SleepAfter, format_cores};
use crate::table::Table;

/// I/O threads that are listed one by one; of more, the busiest.
const MOST_IO_THREADS: usize = 64;

/// A report as text.
pub(crate) fn text(report: &Report, colour: bool) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", head(report));
    if report.server.test_mode {
        let warning = "reactors have no cores of their own (test mode): these figures mean nothing elsewhere";
        let _ = writeln!(out, "{}", paint(colour, "33", warning));
    }
    let _ = write!(out, "\n{}", policy(report));
    let _ = write!(out, "{}", goals::goals(&report.goals, &report.policy.name));
    report.power.iter().for_each(|known| line(&mut out, "power", &goals::power(known)));
    let _ = write!(out, "{}{}{}", io(&report.io), caps::caps(report), power_states(&report.power_states));
    let _ = writeln!(out, "{}", failures(&report.failures, colour));
    let _ = write!(out, "{}\n{}\n", reactors(&report.reactors, colour), io_threads(report));
    let _ = write!(out, "{}", orders(&report.orders));
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

/// A line with a heading.
pub(super) fn line(out: &mut String, heading: &str, text: &str) {
    let _ = writeln!(out, "{heading:20}  {text}");
}

fn policy(report: &Report) -> String {
    let (policy, sleep_after) = (&report.policy, &report.server.sleep_after);
    let mut out = String::new();
    let set = policy.parameters.iter().filter(|parameter| parameter.is_set);
    let set: Vec<String> = set.map(|parameter| format!("{}={}", parameter.key, parameter.value)).collect();
    let set = if set.is_empty() { String::new() } else { format!(" ({})", set.join(", ")) };
    let quiet = SleepAfter::sentence(sleep_after);
    line(&mut out, "policy", &format!("{}{set}; {quiet}", policy.name));
    let view: Vec<String> = policy.view.iter().map(|seen| format!("{} {}", seen.name, seen.value)).collect();
    if !view.is_empty() {
        // Whatever it computes from watts that were not measured was not measured either.
        let is_modelled = report.power.as_ref().is_some_and(|power| power.modelled.is_some());
        let modelled = if is_modelled { "; watts are modelled" } else { "" };
        line(&mut out, "policy sees", &format!("{}{modelled}", view.join(", ")));
    }
    out
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
    out
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
    let left_out = threads.len().saturating_sub(MOST_IO_THREADS);
    threads.truncate(MOST_IO_THREADS);
    threads.sort_by_key(|thread| thread.id);
    let mut table = Table::new(&[
        "<I/O thread",
        "reactor",
        "connections",
        "requests/s",
        "busy %",
        "idle %",
        "asleep %",
        "p50",
        "p99",
        "moves",
        "since start",
    ]);
    for thread in threads {
        let latency = |ns: u64| if thread.latency.count > 0 { time(ns) } else { "-".to_owned() };
        table.row([
            thread.id.to_string(),
            thread.home.to_string(),
            thread.connections.to_string(),
            rate(thread.requests_per_s),
            percent(thread.busy_percent),
            percent(thread.idle_percent),
            percent(thread.software_wait_percent + thread.server_sleep_percent),
            latency(thread.latency.p50_ns),
            latency(thread.latency.p99_ns),
            thread.moves.in_window.to_string(),
            thread.moves.since_start.to_string(),
        ]);
    }
    let rest = if left_out > 0 { format!("and {left_out} with fewer requests\n") } else { String::new() };
    format!("{table}{rest}")
}

fn orders(orders: &OrdersReport) -> String {
    let mut out = String::new();
    for (heading, count) in [
        ("moves ordered", orders.moves),
        ("sleeps ordered", orders.sleeps),
        ("wake-ups ordered", orders.wakes),
        ("orders refused", orders.refusals),
    ] {
        line(&mut out, heading, &times(count));
    }
    if orders.ticks.since_start > 0 {
        let late = measured(orders.tick_lateness, "none");
        line(&mut out, "ticks", &format!("{}; late by {late}", times(orders.ticks)));
    }
    out
}

/// `3 (17 since start)`.
pub(super) fn times(count: Count) -> String {
    format!("{} ({} since start)", count.in_window, count.since_start)
}

pub(super) fn measured(distribution: Distribution, none: &str) -> String {
    if distribution.count == 0 {
        return none.to_owned();
    }
    let Distribution { p50_ns, p99_ns, p99_9_ns, max_ns, .. } = distribution;
    format!("p50 {}, p99 {}, p99.9 {}, max {}", time(p50_ns), time(p99_ns), time(p99_9_ns), time(max_ns))
}

fn percent(value: f64) -> String {
    format!("{value:.1}")
}

/// `0-3 7`.
fn ids(ids: &[u16]) -> String {
    let ids: Vec<u32> = ids.iter().map(|&id| u32::from(id)).collect();
    format_cores(&ids)
}

/// Three digits and the unit's thousands: `12.3 k`.
fn scaled(value: f64, steps: &[&str]) -> String {
    let mut value = value;
    let mut step = 0;
    while value >= 999.5 && step + 1 < steps.len() {
        value /= 1000.0;
        step += 1;
    }
    let digits = if value >= 99.95 || (step == 0 && value.fract() == 0.0) {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", steps[step]).trim_end().to_owned()
}

fn rate(per_s: f64) -> String {
    scaled(per_s, &["", "k", "M", "G"])
}

pub(super) fn bytes_per_s(per_s: f64) -> String {
    scaled(per_s, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

pub(super) fn time(ns: u64) -> String {
    scaled(ns as f64, &["ns", "us", "ms", "s"])
}

/// A time that people count in days.
fn long_time(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

fn paint(colour: bool, code: &str, text: &str) -> String {
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::status::report::{
        FORMAT, GoalsReport, IoThreadReport, NameAndValue, ParameterReport, PolicyReport, PowerReading, PowerReport,
        ServerFacts, WakeUpReport,
    };

    fn count(in_window: u64, since_start: u64) -> Count {
        Count { in_window, since_start }
    }

    fn distribution(count: u64, p50_ns: u64) -> Distribution {
        Distribution { count, p50_ns, p99_ns: 2 * p50_ns, p99_9_ns: 3 * p50_ns, max_ns: 4 * p50_ns }
    }

    fn reactor(id: u16, state: &str, busy_percent: f64, asleep: f64) -> ReactorReport {
        ReactorReport {
            id,
            core: Some(u32::from(id) + 2),
            main: id == 0,
            sibling: Some(id ^ 1),
            state: state.to_owned(),
            busy_percent,
            idle_percent: 100.0 - busy_percent - asleep,
            asleep_percent: [("software-wait".to_owned(), asleep)].into(),
            scheduled_percent: (id == 0).then_some(100.0),
            loops_per_s: 1_234_567.0,
            requests_per_s: 12_345.6,
            io_threads: if id == 0 { vec![0, 1, 2, 5] } else { Vec::new() },
            moves_in: count(1, 7),
            moves_out: count(0, 3),
        }
    }

    fn report() -> Report {
        let parameter =
            |key: &str, value: &str, is_set| ParameterReport { key: key.to_owned(), value: value.to_owned(), is_set };
        Report {
            format: FORMAT,
            server: ServerFacts {
                version: "0.1.0".to_owned(),
                pid: 4242,
                uptime_ns: 192_000_000_000,
                listening: vec!["127.0.0.1:4420".parse().unwrap()],
                test_mode: true,
                sleep_after: "1ms".to_owned(),
            },
            window_ns: 500_123_456,
            policy: PolicyReport {
                name: "sandman".to_owned(),
                parameters: vec![parameter("z", "1.96", false), parameter("window", "64", true)],
                view: vec![NameAndValue { name: "cores awake".to_owned(), value: "1".to_owned() }],
            },
            goals: GoalsReport {
                budget_uw: Some(300_000_000),
                tolerance_ppm: Some(200_000),
                unused: vec!["tolerance".to_owned()],
                floor_uw: None,
            },
            power: Some(PowerReport {
                sensor: "modelled".to_owned(),
                modelled: Some("sandman-epyc-9454p".to_owned()),
                readings: vec![
                    PowerReading {
                        of: "CPU packages".to_owned(),
                        power_uw: Some(57_213_000),
                        age_ns: Some(312_000_000),
                    },
                    PowerReading { of: "system".to_owned(), power_uw: None, age_ns: None },
                ],
            }),
            io: IoReport {
                connections: 12,
                associations: 3,
                faults: count(0, 1),
                iops: 12_300.0,
                read_iops: 8_200.0,
                write_iops: 4_100.0,
                read_bytes_per_s: 33_587_200.0,
                written_bytes_per_s: 16_793_600.0,
                latency: distribution(6150, 12_100),
            },
            caps: Vec::new(),
            cap_wait: Distribution::default(),
            power_states: Vec::new(),
            failures: Vec::new(),
            reactors: vec![reactor(0, "awake", 12.1, 0.0), reactor(1, "software-wait", 0.0, 99.9)],
            io_threads: vec![IoThreadReport {
                id: 0,
                home: 0,
                connections: 4,
                requests_per_s: 12_345.6,
                busy_percent: 12.0,
                idle_percent: 8.0,
                software_wait_percent: 0.0,
                server_sleep_percent: 80.0,
                latency: distribution(6150, 12_100),
                moves: count(1, 9),
            }],
            orders: OrdersReport {
                moves: count(1, 17),
                sleeps: count(0, 4),
                wakes: count(0, 3),
                refusals: count(0, 0),
                intervals: count(0, 192),
                ticks: count(50_000, 9_000_000),
                tick_lateness: distribution(50_000, 900),
            },
            wake_ups: vec![
                WakeUpReport { from: "monitor-wait".to_owned(), wakes: count(0, 0), latency: distribution(0, 0) },
                WakeUpReport { from: "software-wait".to_owned(), wakes: count(2, 3), latency: distribution(2, 38_000) },
                WakeUpReport { from: "server-sleep".to_owned(), wakes: count(0, 5), latency: distribution(0, 0) },
            ],
        }
    }

    #[test]
    fn what_a_person_reads() {
        expect![[r#"
            pilotlight 0.1.0 (process 4242) on 127.0.0.1:4420, up 3 min 12 s; the last 500 ms
            reactors have no cores of their own (test mode): these figures mean nothing elsewhere

            policy                sandman (window=64); the server may sleep after 1ms of quiet
            policy sees           cores awake 1; watts are modelled
            budget                300W
            tolerance             20%; policy sandman does not use it
            power                 CPU packages 57.2 W (modelled, profile sandman-epyc-9454p), 312 ms ago; system unknown (modelled, profile sandman-epyc-9454p)
            connections           12 of 3 associations; ended by faults: 0 (1 since start)
            served                12.3 k IOPS (8.20 k read, 4.10 k write); 33.6 MB/s read, 16.8 MB/s written
            latency               p50 12.1 us, p99 24.2 us, p99.9 36.3 us, max 48.4 us

            reactor  core  sibling  state          busy %  idle %  software-wait %  CPU %  loops/s  requests/s  moves in  out  I/O threads
            0 main      2        1  awake            12.1    87.9              0.0  100.0   1.23 M      12.3 k         1    0  0-2,5
            1           3        0  software-wait     0.0     0.1             99.9      -   1.23 M      12.3 k         1    0

            I/O thread  reactor  connections  requests/s  busy %  idle %  asleep %      p50      p99  moves  since start
            0                 0            4      12.3 k    12.0     8.0      80.0  12.1 us  24.2 us      1            9

            moves ordered         1 (17 since start)
            sleeps ordered        0 (4 since start)
            wake-ups ordered      0 (3 since start)
            orders refused        0 (0 since start)
            ticks                 50000 (9000000 since start); late by p50 900 ns, p99 1.80 us, p99.9 2.70 us, max 3.60 us
            from software-wait    2 (3 since start); p50 38.0 us, p99 76.0 us, p99.9 114 us, max 152 us
            from server-sleep     0 (5 since start); no wake-up was sent by another core
        "#]].assert_eq(&text(&report(), false));
    }

    #[test]
    fn colours_only_where_wanted() {
        assert!(!text(&report(), false).contains('\x1b'));
        assert!(text(&report(), true).contains("\x1b[34msoftware-wait\x1b[0m"));
    }

    #[test]
    fn of_many_io_threads_the_busiest_are_listed() {
        let mut report = report();
        let thread = |id: u16| IoThreadReport { id, requests_per_s: f64::from(id), ..report.io_threads[0].clone() };
        report.io_threads = (0..70).map(thread).collect();
        let told = io_threads(&report);
        assert_eq!(told.lines().count(), 66);
        assert!(
            told.ends_with("and 6 with fewer requests\n") && told.contains("\n6  ") && !told.contains("\n5  "),
            "{told}"
        );
    }

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        for (value, text) in
            [(0.0, "0"), (7.0, "7"), (7.254, "7.25"), (999.6, "1.00 k"), (12_345.0, "12.3 k"), (2e6, "2.00 M")]
        {
            assert_eq!(rate(value), text);
        }
        assert_eq!(
            (time(0), time(950), time(38_000), time(1_500_000_000)),
            ("0 ns".to_owned(), "950 ns".to_owned(), "38.0 us".to_owned(), "1.50 s".to_owned())
        );
        assert_eq!(long_time(59_999_999_999), "59 s");
        assert_eq!(long_time(3_661_000_000_000), "1 h 1 min");
        assert_eq!(long_time(90_000_000_000_000), "1 d 1 h");
    }

    #[test]
    fn failed_commands_are_told_by_namespace_and_status() {
        let failed = |status: &str, cause: &str, commands| FailureReport {
            nqn: "nqn.2024-05.com.example:disks".to_owned(),
            nsid: 7,
            status: status.to_owned(),
            cause: cause.to_owned(),
            commands,
        };
        let lines = failures(
            &[
                failed("Capacity Exceeded", "", count(12, 102_981)),
                failed("LBA Out of Range", "the file is short", count(0, 1)),
            ],
            false,
        );
        expect![[r#"
            failed commands       namespace 7 of nqn.2024-05.com.example:disks, Capacity Exceeded: 12 (102981 since start)
            failed commands       namespace 7 of nqn.2024-05.com.example:disks, LBA Out of Range (the file is short): 0 (1 since start)
        "#]]
        .assert_eq(&lines);
        assert_eq!(failures(&[], true), "");
    }

    #[test]
    fn power_states_are_counted_where_there_are_any() {
        let in_state = |controller, power_state| PowerStateReport { controller, power_state };
        assert_eq!(power_states(&[]), "");
        let said = power_states(&[in_state(1, 0), in_state(2, 3), in_state(7, 0)]);
        assert_eq!(said, "power states          2 controllers in PS0, 1 controller in PS3\n");
    }
}
