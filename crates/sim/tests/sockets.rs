//! A server on sockets: both engines agree, and each mechanism has its effect.

mod support;

use pilotlight_sim::engine::{run, run_naive, run_traced};
use pilotlight_sim::machine::Sockets;
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::{Phase, Rate, Scenario};
use support::policy;

const MS: u64 = 1_000_000;

fn sockets() -> Sockets {
    Sockets {
        memory: true,
        connection_ns: 1_800,
        between_polls: true,
        server_sleep_ns: 12_000,
        keeps_schedule: true,
        late_ppm: 20_000,
        late_ns: 35_000,
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

fn cores_awake(scenario: &Scenario) -> f64 {
    let outcome = run(scenario, policy("sandman", &[])).unwrap();
    let awake_ns: u64 = outcome.series.iter().skip(4).map(|stretch| stretch.awake_ns).sum();
    awake_ns as f64 / (16 * MS) as f64
}

fn traced(naive: bool, scenario: &Scenario, name: &str) -> (Outcome, Vec<u8>) {
    let mut trace = Vec::new();
    let engine = if naive { run_naive } else { run_traced };
    let outcome = engine(scenario, policy(name, &[]), &mut trace).unwrap();
    (outcome, trace)
}

fn engines_agree(name: &str) {
    let mut scenario = server(sockets(), 0.0);
    for connection in &mut scenario.workload.connections {
        connection.phases = vec![
            Phase { label: 0, length_ns: 3 * MS, rate: Rate::PerSecond(1_000.0) },
            Phase { label: 1, length_ns: MS, rate: Rate::PerSecond(60_000.0) },
        ];
    }
    let ((outcome, trace), (_, naive)) = (traced(false, &scenario, name), traced(true, &scenario, name));
    assert!(outcome.requests.answered > 1_000, "{name}");
    assert!(trace == naive, "{name}: traces differ");
}

#[test]
fn both_engines_agree() {
    ["static", "interrupt", "dynamic", "sandman", "hybrid-poll", "pacer", "native", "thunderbolt"]
        .into_iter()
        .for_each(engines_agree);
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

#[test]
fn hosts_that_keep_their_schedule_send_all_and_wait_from_when_it_was_due() {
    let flood = |keeps_schedule| {
        let mut scenario = server(Sockets { keeps_schedule, ..sockets() }, 0.0);
        for connection in &mut scenario.workload.connections {
            connection.phases = vec![
                Phase { label: 0, length_ns: 5 * MS, rate: Rate::PerSecond(500_000.0) },
                Phase { label: 1, length_ns: 15 * MS, rate: Rate::Off },
            ];
        }
        scenario.warm_up_ns = 0;
        run(&scenario, policy("static", &[])).unwrap().requests.answered
    };
    let (kept, not_kept) = (flood(true), flood(false));
    assert!(kept > not_kept * 2, "{kept} and {not_kept}");
}

#[test]
fn requests_of_a_connection_share_its_system_calls() {
    let busy = |connection_ns| {
        let scenario = server(Sockets { connection_ns, ..sockets() }, 400_000.0);
        run(&scenario, policy("interrupt", &[])).unwrap().series.iter().map(|stretch| stretch.awake_ns).sum::<u64>()
    };
    assert!(busy(1_800) > busy(0) * 11 / 10);
}
