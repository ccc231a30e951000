//! A report in full, as a person reads it.

use expect_test::expect;

use super::*;
use crate::status::report::{
    BudgetReport, Count, Distribution, FORMAT, GoalsReport, IoThreadReport, NameAndValue, NamespaceLatencyReport,
    ParameterReport, PolicyReport, PowerReading, PowerReport, PrioritiesReport, ScheduleEntryReport, ServerFacts,
    SocketLatencyReport, ToleranceReport, WakeUpReport,
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

fn budget() -> BudgetReport {
    BudgetReport {
        domain: "cpu".to_owned(),
        origin: "schedule".to_owned(),
        until_unix_s: None,
        next: Some(ScheduleEntryReport { at_unix_s: 1_795_456_800, budget: "off".to_owned() }),
        state: "held".to_owned(),
        held: None,
        power_uw: Some(57_213_000),
        headroom_uw: Some(242_787_000),
        floor_uw: None,
        age_ns: None,
        sensor: None,
        bottleneck: None,
        throttled: vec![NameAndValue {
            name: "CPU quota of the worker cores".to_owned(),
            value: "23.0 % of 100 %".to_owned(),
        }],
        withdrawn_uw: None,
    }
}

fn power() -> PowerReport {
    PowerReport {
        sensor: "modelled".to_owned(),
        modelled: Some("sandman-epyc-9454p".to_owned()),
        readings: vec![
            PowerReading { of: "CPU packages".to_owned(), power_uw: Some(57_213_000), age_ns: Some(312_000_000) },
            PowerReading { of: "system".to_owned(), power_uw: None, age_ns: None },
        ],
    }
}

fn io_report() -> IoReport {
    IoReport {
        connections: 12,
        associations: 3,
        faults: count(0, 1),
        iops: 12_300.0,
        read_iops: 8_200.0,
        write_iops: 4_100.0,
        read_bytes_per_s: 33_587_200.0,
        written_bytes_per_s: 16_793_600.0,
        latency: distribution(6150, 12_100),
        from_socket: Some(SocketLatencyReport {
            start: "socket".to_owned(),
            mean_ns: 15_000,
            p50_ns: 14_000,
            p99_ns: 30_000,
        }),
        namespaces_from_socket: vec![NamespaceLatencyReport {
            nqn: Some("nqn.2024-05.com.example:disks".to_owned()),
            nsid: Some(7),
            mean_ns: 25_000,
            p50_ns: 24_000,
            p99_ns: 40_000,
        }],
    }
}

/// A report with all parts.
pub(crate) fn report() -> Report {
    let parameter =
        |key: &str, value: &str, is_set| ParameterReport { key: key.to_owned(), value: value.to_owned(), is_set };
    Report {
        energy_shares: None,
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
        priorities: PrioritiesReport::default(),
        goals: GoalsReport {
            budget_uw: Some(300_000_000),
            tolerances: vec![ToleranceReport { text: "20%".to_owned(), ..ToleranceReport::default() }],
            unused: vec!["tolerance".to_owned()],
            gives_way: None,
            floor_uw: None,
        },
        budget: Some(budget()),
        power: Some(power()),
        io: io_report(),
        caps: Vec::new(),
        background: crate::status::report::BackgroundReport::default(),
        cap_wait: Distribution::default(),
        power_states: Vec::new(),
        failures: Vec::new(),
        reactors: vec![reactor(0, "awake", 12.1, 0.0), reactor(1, "software-wait", 0.0, 99.9)],
        io_threads: vec![IoThreadReport {
            id: 0,
            home: 0,
            connections: 4,
            class: Some(0),
            requests_per_s: 12_345.6,
            busy_percent: 12.0,
            idle_percent: 8.0,
            software_wait_percent: 0.0,
            server_sleep_percent: 80.0,
            latency: distribution(6150, 12_100),
            moves: count(1, 9),
        }],
        commands: CommandsReport {
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
        metrics: Vec::new(),
        page: None,
        limit: None,
    }
}

#[test]
fn text_output() {
    expect![[r#"
        pilotlight 0.1.0 (process 4242) on 127.0.0.1:4420, up 3 min 12 s; the last 500 ms
        reactors have no cores of their own (test mode): measurements are not valid

        policy                sandman (window=64); the server may sleep after 1ms without requests
        policy view           cores awake 1; watts are modelled
        budget                300W
        tolerance             20%; policy sandman does not use it
        budget is             held; CPU packages 57.2 W (modelled), headroom 242.8 W
        budget from           schedule; next in the schedule: off from 2026-11-23T18:00Z
        throttled             CPU quota of the worker cores 23.0 % of 100 %
        power                 CPU packages 57.2 W (modelled, profile sandman-epyc-9454p), 312 ms ago; system unknown (modelled, profile sandman-epyc-9454p)
        connections           12 of 3 associations; ended by faults: 0 (1 since start)
        served                12.3 k IOPS (8.20 k read, 4.10 k write); 33.6 MB/s read, 16.8 MB/s written
        latency               p50 12.1 us, p99 24.2 us, p99.9 36.3 us, max 48.4 us
        latency sampled       from the socket: mean 15.0 us, p50 14.0 us, p99 30.0 us
          namespace 7         of nqn.2024-05.com.example:disks: mean 25.0 us, p50 24.0 us, p99 40.0 us

        reactor  core  sibling  state          busy %  idle %  software-wait %  CPU %  loops/s  requests/s  moves in  out  I/O threads
        0 main      2        1  awake            12.1    87.9              0.0  100.0   1.23 M      12.3 k         1    0  0-2,5
        1           3        0  software-wait     0.0     0.1             99.9      -   1.23 M      12.3 k         1    0

        I/O thread  reactor  connections  requests/s  busy %  idle %  asleep %      p50      p99  moves  since start
        0                 0            4      12.3 k    12.0     8.0      80.0  12.1 us  24.2 us      1            9

        moves ordered         1 (17 since start)
        sleeps ordered        0 (4 since start)
        wake-ups ordered      0 (3 since start)
        commands refused      0 (0 since start)
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
fn failed_commands_are_listed_by_namespace_and_status() {
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

#[test]
fn a_long_view_has_lines_of_limited_length() {
    let items: Vec<String> = (0..30).map(|at| format!("quantity {at} 12.5 W")).collect();
    let lines = wrapped(&items, "; watts are modelled");
    assert!(lines.len() > 5 && lines.iter().all(|line| line.chars().count() <= VIEW_WIDTH), "{lines:#?}");
    assert_eq!(lines.join(" "), items.join(", ") + "; watts are modelled");
    assert_eq!(wrapped(&items[..2], ""), ["quantity 0 12.5 W, quantity 1 12.5 W"]);
}
