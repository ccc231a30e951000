//! A server on sockets: both engines agree, and each mechanism has its effect.

mod support;

use pilotlight_plant::{Command, CompletionMode, Next, Policy, Start, ThreadId, Unsupported, Wants};
use pilotlight_sim::engine::{run, run_naive, run_traced};
use pilotlight_sim::machine::{Client, Sockets};
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::{Phase, Rate, Scenario};
use pilotlight_sim::trace::{Record, RecordKind};
use support::policy;

const MS: u64 = 1_000_000;

fn sockets() -> Sockets {
    Sockets {
        memory: true,
        connection_ns: 1_800,
        between_polls: true,
        server_sleep_ns: 12_000,
        client: Client {
            look_ns: 200,
            receive_ns: 800,
            response_ns: 400,
            send_ns: 2_500,
            request_ns: 100,
            stall_gap_ns: 2_000_000,
            stall_ns: 35_000,
        },
        wait_ns: 4_000,
        timer_ns: 1_000,
        cold_ns: 1_500,
        warm_ns: 8_000,
        host_polls_ns: 100_000,
        host_wakes_ns: 20_000,
    }
}

/// Six connections a core; a rate for all.
fn server(sockets: Sockets, rate: f64) -> Scenario {
    let mut scenario = support::scenario(4, 1, 0.0, 20 * MS, 7);
    scenario.workload.connections = support::connections(24, 4, 1, rate);
    scenario.workload.connections.iter_mut().for_each(|connection| connection.depth = 16);
    scenario.machine.sleep.monitor = false;
    scenario.machine.sockets = sockets;
    (scenario.series_ns, scenario.warm_up_ns) = (MS, 4 * MS);
    scenario
}

/// `adaptive` in the time scale of these tests.
const QUICK: [(&str, &str); 3] = [("check_interval", "500us"), ("hold", "1ms"), ("round", "20us")];

fn cores_awake(scenario: &Scenario) -> f64 {
    let outcome = run(scenario, policy("sandman", &[])).unwrap();
    let awake_ns: u64 = outcome.series.iter().skip(4).map(|stretch| stretch.awake_ns).sum();
    awake_ns as f64 / (16 * MS) as f64
}

fn traced(naive: bool, scenario: &Scenario, name: &str, settings: &[(&str, &str)]) -> (Outcome, Vec<u8>) {
    let mut trace = Vec::new();
    let engine = if naive { run_naive } else { run_traced };
    let outcome = engine(scenario, policy(name, settings), &mut trace).unwrap();
    (outcome, trace)
}

fn engines_agree(name: &str, settings: &[(&str, &str)]) {
    let mut scenario = server(sockets(), 0.0);
    engines_agree_on(&mut scenario, name, settings, [1_000.0, 60_000.0]);
    // Also without stalls, and with a number of threads that does not divide that of the I/O threads.
    scenario = server(Sockets { client: Client { stall_gap_ns: 0, ..sockets().client }, ..sockets() }, 0.0);
    scenario.machine.network.ports = 3;
    engines_agree_on(&mut scenario, name, settings, [60_000.0, 1_000.0]);
}

#[test]
fn both_engines_agree_on_pauses() {
    let scenario = server(sockets(), 60_000.0);
    let (mut trace, mut naive) = (Vec::new(), Vec::new());
    let outcome = run_traced(&scenario, Box::new(Pauses(30_000)), &mut trace).unwrap();
    run_naive(&scenario, Box::new(Pauses(30_000)), &mut naive).unwrap();
    assert!(outcome.requests.answered > 500 && trace == naive);
}

fn engines_agree_on(scenario: &mut Scenario, name: &str, settings: &[(&str, &str)], rates: [f64; 2]) {
    for connection in &mut scenario.workload.connections {
        connection.phases = vec![
            Phase { label: 0, length_ns: 3 * MS, rate: Rate::PerSecond(rates[0]) },
            Phase { label: 1, length_ns: MS, rate: Rate::PerSecond(rates[1]) },
        ];
    }
    let traced = |naive| traced(naive, scenario, name, settings);
    let ((outcome, trace), (_, naive)) = (traced(false), traced(true));
    assert!(outcome.requests.answered > 1_000, "{name}");
    assert!(trace == naive, "{name}: traces differ");
}

#[test]
fn both_engines_agree() {
    ["static", "interrupt", "dynamic", "sandman", "hybrid-poll", "pacer", "native", "thunderbolt"]
        .into_iter()
        .for_each(|name| engines_agree(name, &[]));
    engines_agree("sandman", &[("worker_rest", "3us")]);
    engines_agree("adaptive", &QUICK);
}

/// Cores awake from 6 ms on, after requests until 3 ms.
fn cores_awake_after_a_load(name: &str, settings: &[(&str, &str)], sockets: Sockets) -> f64 {
    let mut scenario = server(sockets, 0.0);
    for connection in &mut scenario.workload.connections {
        connection.phases = vec![
            Phase { label: 0, length_ns: 3 * MS, rate: Rate::PerSecond(10_000.0) },
            Phase { label: 1, length_ns: 17 * MS, rate: Rate::Off },
        ];
    }
    let outcome = run(&scenario, policy(name, settings)).unwrap();
    let awake_ns: u64 = outcome.series.iter().skip(8).map(|stretch| stretch.awake_ns).sum();
    awake_ns as f64 / (12 * MS) as f64
}

#[test]
fn no_core_polls_after_the_last_request() {
    for name in ["interrupt", "sandman", "hybrid-poll", "pacer", "pg", "native", "ssd-apst", "thunderbolt"] {
        let awake = cores_awake_after_a_load(name, &[], sockets());
        assert!(awake < 0.015, "{name}: {awake}");
        let published = cores_awake_after_a_load(name, &[], Sockets { server_sleep_ns: 0, ..sockets() });
        assert!(name == "interrupt" || published > 0.9, "{name} on a machine of the papers: {published}");
    }
    let awake = cores_awake_after_a_load("adaptive", &QUICK, sockets());
    assert!(awake < 0.015, "{awake}");
    for (name, settings) in [("static", &[][..]), ("dynamic", &[]), ("sandman", &[("variant", "paper")])] {
        let awake = cores_awake_after_a_load(name, settings, sockets());
        assert!(awake > 0.9, "{name}: {awake}");
    }
}

#[test]
fn the_main_core_of_a_quiet_server_sleeps() {
    let awake = |server_sleep_ns| cores_awake(&server(Sockets { server_sleep_ns, ..sockets() }, 2_400.0));
    let (with, without) = (awake(12_000), awake(0));
    assert!(without > 0.99, "polls: {without}");
    assert!(with < 0.2, "sleeps: {with}");
}

/// All connections send at `rate` each for 5 ms, and nothing for 15 ms.
fn flood(sockets: Sockets, rate: f64) -> Scenario {
    let mut scenario = server(sockets, 0.0);
    for connection in &mut scenario.workload.connections {
        connection.phases = vec![
            Phase { label: 0, length_ns: 5 * MS, rate: Rate::PerSecond(rate) },
            Phase { label: 1, length_ns: 15 * MS, rate: Rate::Off },
        ];
    }
    scenario.warm_up_ns = 0;
    scenario
}

#[test]
fn a_client_keeps_its_schedule_and_its_latency_begins_when_a_request_is_due() {
    let deep = |depth| {
        let mut scenario = flood(sockets(), 60_000.0);
        scenario.workload.connections.iter_mut().for_each(|connection| connection.depth = depth);
        run(&scenario, policy("static", &[])).unwrap()
    };
    let (kept, unlimited) = (deep(1), deep(u32::MAX));
    let sum = |outcome: &Outcome| outcome.requests.issued;
    assert!((6_800..7_600).contains(&sum(&kept)), "{}", sum(&kept)); // 24 connections, 5 ms, 60,000 a second
    assert_eq!(sum(&kept), sum(&unlimited));
    assert!(kept.latency[0].1.quantile(0.5) > MS, "those that wait longest waited at the client");
}

/// Requests of each connection, of a trace.
fn requests_by_connection(trace: &[u8]) -> Vec<u64> {
    let mut requests = vec![0; 24];
    let records = trace.as_chunks().0.iter().filter_map(Record::decode);
    for record in records.filter(|record| record.kind == RecordKind::Issued) {
        requests[(record.a >> 40) as usize] += 1;
    }
    requests
}

#[test]
fn a_thread_sends_due_requests_on_its_connections_in_turn() {
    let (_, trace) = traced(false, &flood(sockets(), 20_000.0), "static", &[]);
    let requests = requests_by_connection(&trace);
    for port in 0..2 {
        let of_thread: Vec<u64> = requests.iter().skip(port).step_by(2).copied().collect();
        assert!(
            of_thread[0] > 50 && of_thread.iter().max() <= of_thread.iter().min().map(|n| n + 1).as_ref(),
            "{of_thread:?}"
        );
    }
}

fn quantile(sockets: Sockets, rate: f64, share: f64) -> u64 {
    run(&server(sockets, rate), policy("static", &[])).unwrap().latency[0].1.quantile(share)
}

#[test]
fn a_stall_of_the_client_is_seen_in_the_tail_alone() {
    let stalls = |stall_ns| {
        let sockets = Sockets { client: Client { stall_ns, ..sockets().client }, ..sockets() };
        (quantile(sockets, 40_000.0, 0.5), quantile(sockets, 40_000.0, 0.99))
    };
    let (with, without) = (stalls(100_000), stalls(0));
    assert!(with.1 > without.1 * 2 && with.0 < without.0 * 11 / 10, "{with:?} and {without:?}");
}

#[test]
fn a_busy_client_is_late() {
    let slow = Client { receive_ns: 8_000, ..sockets().client };
    let (slow, quick) = (Sockets { client: slow, ..sockets() }, sockets());
    assert!(quantile(slow, 200_000.0, 0.5) > quantile(quick, 200_000.0, 0.5) + 20_000);
}

#[test]
fn waits_that_the_host_polls_for_end_at_once_and_others_late() {
    let mean = |host_polls_ns| {
        let scenario = server(Sockets { host_polls_ns, ..sockets() }, 10_000.0);
        run(&scenario, policy("interrupt", &[])).unwrap().latency[0].1.mean()
    };
    let (polled, late) = (mean(1_000_000_000), mean(0));
    assert!(late > polled + 15_000.0 && late < polled + 25_000.0, "{late} and {polled}, mean delay 20,000 ns");
}

#[test]
fn a_wait_costs_cpu_time() {
    let awake = |wait_ns| {
        let outcome = run(&server(Sockets { wait_ns, ..sockets() }, 10_000.0), policy("interrupt", &[])).unwrap();
        let awake_ns: u64 = outcome.series.iter().map(|stretch| stretch.awake_ns).sum();
        (awake_ns, outcome.series.iter().map(|stretch| stretch.answered).sum::<u64>())
    };
    let (with, without) = (awake(4_000), awake(0));
    let more_ns = (with.0 - without.0) / with.1;
    assert!((3_000..=4_000).contains(&more_ns), "{more_ns} ns a request: some share a wait");
}

/// A policy whose cores wait and pause.
#[derive(Debug)]
struct Pauses(u64);

impl Policy for Pauses {
    fn name(&self) -> &'static str {
        "pauses"
    }
    fn wants(&self) -> Wants {
        Wants::default()
    }
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let mode = CompletionMode::Interrupt;
        out.extend((0..start.homes.len()).map(|thread| Command::Completions { thread: ThreadId(thread as u16), mode }));
        Ok(Next { pause_ns: self.0, ..Next::NEVER })
    }
}

/// Part of the time awake on one core after the warm-up, and the mean latency.
fn one_core(sockets: Sockets, rate: f64, policy: Box<dyn Policy>) -> (f64, f64) {
    let mut scenario = support::scenario(1, 1, 0.0, 20 * MS, 7);
    scenario.workload.connections = support::connections(8, 1, 1, rate);
    scenario.workload.connections.iter_mut().for_each(|connection| connection.depth = 16);
    scenario.machine.sleep.monitor = false;
    scenario.machine.sockets = sockets;
    (scenario.series_ns, scenario.warm_up_ns) = (MS, 4 * MS);
    let outcome = run(&scenario, policy).unwrap();
    let awake_ns: u64 = outcome.series.iter().skip(4).map(|stretch| stretch.awake_ns).sum();
    (awake_ns as f64 / (16 * MS) as f64, outcome.latency[0].1.mean())
}

#[test]
fn a_pause_saves_cpu_time_and_is_paid_with_latency() {
    let of = |pause_ns| one_core(sockets(), 45_000.0, Box::new(Pauses(pause_ns)));
    let ((awake, mean), (with, mean_with)) = (of(0), of(40_000));
    assert!(
        with < 0.93 * awake && mean_with > mean + 3_000.0 && mean_with < mean + 40_000.0,
        "{awake} {mean}, {with} {mean_with}"
    );
}

/// Two requests in a limit of 100 us do not set it anew: each wait would cost 4 us.
#[test]
fn a_timer_of_short_waits_is_set_once_for_several() {
    let of = |timer_ns| {
        let settings = [&QUICK[..], &[("longest_wait", "100us")]].concat();
        one_core(Sockets { timer_ns, ..sockets() }, 22_000.0, policy("adaptive", &settings)).0
    };
    let more = of(4_000) - of(0);
    assert!(more > 0.015 && more <= 0.04, "{more} of the time, 4 us of each 100 us at most");
}

#[test]
fn the_first_request_after_a_longer_wait_costs_more() {
    // CPU time a request, of requests that come alone: the gaps of a core are 1 ms and 8 ms.
    let each_ns = |rate: f64, cold_ns| {
        let mut scenario = server(Sockets { cold_ns, host_wakes_ns: 0, ..sockets() }, rate);
        scenario.duration_ns *= 20;
        let outcome = run(&scenario, policy("interrupt", &[])).unwrap();
        let awake_ns: u64 = outcome.series.iter().map(|stretch| stretch.awake_ns).sum();
        awake_ns as f64 / outcome.series.iter().map(|stretch| stretch.answered).sum::<u64>() as f64
    };
    let more_ns = |rate| each_ns(rate, 1_500) - each_ns(rate, 0);
    let (short, long) = (more_ns(4_000.0), more_ns(500.0));
    // three doublings apart; the shorter is seven above 8 us, less because gaps differ and some requests share a wait
    assert!((7_000.0..10_500.0).contains(&short), "{short} ns");
    assert!((3_500.0..5_500.0).contains(&(long - short)), "{long} and {short} ns");
}

#[test]
fn a_main_core_that_sleeps_between_requests_is_not_busy() {
    // As a share of its wake-ups its load is above the healthy threshold, and a worker would be woken to relieve it.
    let mut scenario = server(Sockets { cold_ns: 4_000, ..sockets() }, 2_400.0);
    scenario.duration_ns *= 10;
    let settings = [("guards", "recommended"), ("give_back_interval", "never"), ("coarse_interval", "20ms")];
    let outcome = run(&scenario, policy("sandman", &settings)).unwrap();
    assert_eq!(outcome.decisions.wakes, 0);
}

#[test]
fn a_worker_waits_soon_after_a_request_if_the_policy_says_so() {
    // three workers keep their threads until the first consolidation; the main core, between whose requests the gaps are short, polls
    let awake_and_waits = |rest| {
        let scenario = server(sockets(), 200_000.0);
        let settings = [("give_back_interval", "never"), ("worker_rest", rest)];
        let outcome = run(&scenario, policy("sandman", &settings)).unwrap();
        let awake_ns: u64 = outcome.series.iter().skip(4).map(|stretch| stretch.awake_ns).sum();
        (awake_ns as f64 / (16 * MS) as f64, outcome.decisions.switches)
    };
    let ((long, few), (short, many)) = (awake_and_waits("2ms"), awake_and_waits("3us"));
    assert!(long > 3.9 && few < 100, "{long} cores, {few} waits");
    assert!((1.5..3.5).contains(&short) && many > 1_000, "{short} cores, {many} waits");
}

/// Homes of I/O threads that change within half a millisecond of a flood's begin, with a rule that is armed, and one that is never met.
#[test]
fn cores_that_cannot_follow_report_it_at_once() {
    let moves = |round| {
        let mut scenario = server(sockets(), 0.0);
        for connection in &mut scenario.workload.connections {
            connection.phases = vec![
                Phase { label: 0, length_ns: 10 * MS, rate: Rate::PerSecond(500.0) },
                Phase { label: 1, length_ns: 10 * MS, rate: Rate::PerSecond(60_000.0) },
            ];
        }
        let settings = [("check_interval", "5ms"), ("hold", "1ms"), ("round", round)];
        let (_, trace) = traced(false, &scenario, "adaptive", &settings);
        let records = trace.as_chunks().0.iter().filter_map(Record::decode);
        let at = records.filter(|record| record.kind == RecordKind::Home).map(|record| record.at_ns);
        at.filter(|at_ns| (10 * MS..10 * MS + MS / 2).contains(at_ns)).count()
    };
    assert_eq!((moves("40us"), moves("1s")), (3, 0));
}

/// In a flood two of six cores have three I/O threads each, and that of the first report are divided: lone threads have long rounds too.
#[test]
fn long_rounds_of_a_lone_thread_hide_no_other_core() {
    for seed in 0..8 {
        let mut scenario = support::scenario(6, 1, 0.0, 40 * MS, seed);
        scenario.workload.connections = support::connections(24, 6, 1, 0.0);
        for connection in &mut scenario.workload.connections {
            connection.depth = 64;
            connection.phases = vec![
                Phase { label: 0, length_ns: 30 * MS, rate: Rate::PerSecond(3_500.0) },
                Phase { label: 1, length_ns: 10 * MS, rate: Rate::PerSecond(45_000.0) },
            ];
        }
        scenario.machine.sleep.monitor = false;
        scenario.machine.sockets = Sockets { connection_ns: 10_000, ..sockets() };
        let settings = [("check_interval", "10ms"), ("hold", "10ms")];
        let (_, trace) = traced(false, &scenario, "adaptive", &settings);
        let records: Vec<Record> = trace.as_chunks().0.iter().filter_map(Record::decode).collect();
        let polls = |from, to| {
            let of = |record: &&Record| record.kind == RecordKind::Polled && (from..to).contains(&record.at_ns);
            records.iter().filter(of).map(|record| record.b).collect::<std::collections::BTreeSet<u64>>().len()
        };
        assert_eq!(polls(31 * MS, 32 * MS), 6, "seed {seed}");
    }
}

#[test]
fn short_waits_are_not_ended_late() {
    let p90 = |longest| {
        let client = Client { stall_gap_ns: 0, ..sockets().client };
        let mut scenario = server(Sockets { host_wakes_ns: 200_000, client, ..sockets() }, 5_000.0);
        scenario.duration_ns *= 5;
        let settings = [("check_interval", "3ms"), ("longest_wait", longest)];
        run(&scenario, policy("adaptive", &settings)).unwrap().latency[0].1.quantile(0.9)
    };
    let (short, long) = (p90("80us"), p90("1s"));
    assert!(long > short + 100_000, "{long} and {short} ns: the host of the virtual CPU is 200 us late after 100 us");
}

#[test]
fn requests_of_a_connection_share_its_system_calls() {
    let busy = |connection_ns| {
        let scenario = server(Sockets { connection_ns, ..sockets() }, 400_000.0);
        run(&scenario, policy("interrupt", &[])).unwrap().series.iter().map(|stretch| stretch.awake_ns).sum::<u64>()
    };
    assert!(busy(1_800) > busy(0) * 11 / 10);
}
