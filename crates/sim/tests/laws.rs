//! Every [`pilotlight_sim::audit::Law`], checked by the auditor on runs of every policy.

mod support;

use pilotlight_sim::audit::{Audit, TraceAuditor};
use pilotlight_sim::jobs::{IoMethod, Job, Scheduled};
use pilotlight_sim::run_traced;
use pilotlight_sim::scenario::{Kind, Phase, Rate, Scenario, Spacing, Step};
use pilotlight_sim::ssd::DrivePower;
use support::{policy, scenario};

/// Every policy, with short intervals for short runs.
const POLICIES: [(&str, &[(&str, &str)]); 10] = [
    ("static", &[]),
    ("interrupt", &[]),
    ("governor", &[("interval", "1ms")]),
    ("dynamic", &[]),
    ("dynamic", &[("interval", "1ms")]),
    ("hybrid-poll", &[]),
    ("sandman", &[("guards", "printed"), ("coarse_interval", "2ms")]),
    ("sandman", &[("coarse_interval", "2ms"), ("guards", "recommended")]),
    ("sandman", &[("guards", "printed"), ("coarse_interval", "2ms"), ("sleep", "software"), ("detect", "load")]),
    ("sandman", &[("variant", "paper"), ("coarse_interval", "2ms"), ("sleep", "software")]),
];

fn audited(scenario: &Scenario, name: &str, settings: &[(&str, &str)]) -> Audit {
    let mut audit = TraceAuditor::new(scenario);
    let outcome = run_traced(scenario, policy(name, settings), &mut audit).unwrap();
    let violations = match audit.finish(&outcome) {
        Ok(audit) => return audit,
        Err(violations) => violations,
    };
    let lines: Vec<_> = violations.iter().take(10).map(|violation| format!("  {violation}\n")).collect();
    panic!("{name} {settings:?} breaks {} laws:\n{}", violations.len(), lines.concat());
}

/// Runs every policy on a scenario; returns the sum of their audits.
fn all_policies(scenario: &Scenario) -> Audit {
    POLICIES.iter().fold(Audit::default(), |mut sum, (name, settings)| {
        let audit = audited(scenario, name, settings);
        assert!(audit.answered > 100, "{name} {settings:?}: {audit:?}");
        sum.moves += audit.moves;
        sum.rests += audit.rests;
        sum.in_progress += audit.in_progress;
        sum
    })
}

fn bursts(cores: u16, seed: u64) -> Scenario {
    let mut scenario = scenario(cores, 2, 0.0, 20_000_000, seed);
    for connection in &mut scenario.workload.connections {
        connection.phases = vec![
            Phase { label: 0, length_ns: 3_000_000, rate: Rate::PerSecond(5_000.0) },
            Phase { label: 1, length_ns: 1_000_000, rate: Rate::PerSecond(150_000.0) },
        ];
    }
    scenario.series_ns = 2_500_000;
    scenario.warm_up_ns = 5_000_000;
    scenario
}

#[test]
fn bursts_break_no_law() {
    for seed in 0..2 {
        let sum = all_policies(&bursts(6, seed));
        assert!(sum.moves > 50 && sum.rests > 100 && sum.in_progress > 0, "nothing was put to the test: {sum:?}");
    }
}

/// A thread on its way to a core that software wakes is not polled: its requests wait for the wake-up.
#[test]
fn threads_that_leave_at_once_are_valid_and_late() {
    let mut scenario = bursts(6, 1);
    scenario.machine.sleep.software_wake_ns = 200_000;
    let worst_ns = |scenario: &Scenario| {
        let settings = [("guards", "printed"), ("coarse_interval", "2ms"), ("sleep", "software")];
        let outcome = pilotlight_sim::run(scenario, policy("sandman", &settings)).unwrap();
        outcome.latency.iter().map(|(_, times)| times.quantile(0.99)).max().unwrap()
    };
    let stays_ns = worst_ns(&scenario);
    scenario.machine.director.leaves_at_once = true;
    all_policies(&scenario);
    let leaves_ns = worst_ns(&scenario);
    assert!(leaves_ns > stays_ns + 50_000, "{stays_ns} and {leaves_ns} ns");
}

/// A fifth of all moves, sleeps and frequencies fail: no thread gets lost, no core with one sleeps, and loads are served.
#[test]
fn commands_that_fail_break_no_law() {
    for seed in 0..2 {
        let mut scenario = bursts(6, seed);
        scenario.machine.director.fails_ppm = 200_000;
        let sum = all_policies(&scenario);
        assert!(sum.moves > 50 && sum.rests > 100, "nothing was put to the test: {sum:?}");
        let outcome =
            pilotlight_sim::run(&scenario, policy("sandman", &[("guards", "printed"), ("coarse_interval", "2ms")]))
                .unwrap();
        assert!(outcome.decisions.refused > 0 && !outcome.saturated, "{:?} {:?}", outcome.decisions, outcome.requests);
    }
}

#[test]
fn light_load_and_overload_are_valid() {
    for (rate, duration_ns) in [(1_000.0, 120_000_000), (600_000.0, 8_000_000), (6_000_000.0, 2_000_000)] {
        all_policies(&scenario(4, 2, rate, duration_ns, 3));
    }
}

#[test]
fn writes_and_closed_loops_break_no_law() {
    let mut scenario = bursts(5, 4);
    for (index, connection) in scenario.workload.connections.iter_mut().enumerate() {
        connection.request = Kind::Plain { writes_ppm: 400_000, bytes: 16_384, sequential: index % 2 == 0 };
        if index % 2 == 1 {
            connection.depth = 4;
            connection.spacing = Spacing::Paced;
            connection.think_ns = 5_000;
        }
    }
    all_policies(&scenario);
}

/// RAID-5: a small write reads old data and parity, computes, writes both.
#[test]
fn raid_steps_break_no_law() {
    let mut scenario = bursts(4, 5);
    scenario.drives = vec![support::drive(); 5];
    let read = Step { reads: 2, writes: 0, bytes: 4_096, parity_kib: 0 };
    let write = Step { reads: 0, writes: 2, bytes: 4_096, parity_kib: 8 };
    let both = Step { reads: 1, writes: 2, bytes: 8_192, parity_kib: 0 };
    for (index, connection) in scenario.workload.connections.iter_mut().enumerate() {
        connection.drives = (0, 5);
        let steps = if index % 2 == 0 { vec![read, write] } else { vec![write, both, read] };
        connection.request = Kind::Steps { steps, bytes_in: 4_096, bytes_out: 0 };
    }
    all_policies(&scenario);
}

/// The opposite end of the power family: kernel idle state, package, siblings and fans.
#[test]
fn every_bound_of_the_power_family_is_valid() {
    let ends = [(0, 0, true, true), (1_000_000, 500_000, true, false), (300_000, 250_000, false, true)];
    for (package_ppm, sibling_saves_ppm, deep, exit_at_rest) in ends {
        let mut scenario = bursts(7, 6);
        let family = &mut scenario.machine.power.family;
        (family.package_ppm, family.sibling_saves_ppm, family.kernel_idles_deep) =
            (package_ppm, sibling_saves_ppm, deep);
        family.exit_at_rest = exit_at_rest;
        (family.frequency_exponent, family.others_exponent) = (3.0, 1.7);
        scenario.machine.power.physical_cores = 3;
        scenario.machine.kernel.deep_residency_ns = 20_000;
        all_policies(&scenario);
    }
}

/// Governors with short and long periods, and transitions of several lengths, with and without restart.
#[test]
fn frequencies_are_what_was_ordered() {
    for (restarts, transition_ns) in [(false, 450_000), (true, 450_000), (true, 25_000), (false, 0)] {
        let mut scenario = bursts(6, 8);
        scenario.machine.speed.transition_restarts = restarts;
        scenario.machine.speed.transition_ns = transition_ns;
        for interval in ["10us", "100us", "3ms"] {
            audited(&scenario, "governor", &[("interval", interval)]);
        }
    }
}

#[test]
fn drives_at_their_ceiling_break_no_law() {
    let mut scenario = bursts(4, 9);
    for (drive, most_load_uw) in scenario.drives.iter_mut().zip([400_000, 1_500_000]) {
        drive.power = Some(DrivePower { most_load_uw });
    }
    all_policies(&scenario);
    let outcome = pilotlight_sim::run(&scenario, policy("static", &[])).unwrap();
    let mut free = scenario.clone();
    free.drives.iter_mut().for_each(|drive| drive.power = None);
    let expected = pilotlight_sim::run(&free, policy("static", &[])).unwrap();
    let saved_uj = expected.energy.drives_uj - outcome.energy.drives_uj;
    assert!(saved_uj > 0 && saved_uj.abs_diff(outcome.capped_uj) <= outcome.series.len() as u64);
    assert_eq!((expected.capped_uj, expected.latency), (0, outcome.latency), "the ceiling costs no time");
}

/// Every I/O method of a job, besides polled connections: all waits are included in latencies.
#[test]
fn every_way_of_doing_io_obeys_littles_law() {
    let ways = [
        IoMethod::Interrupt,
        IoMethod::Classic,
        IoMethod::Hybrid,
        IoMethod::Libaio,
        IoMethod::Uring,
        IoMethod::UringPolled,
        IoMethod::PosixAio,
        IoMethod::Bypass,
    ];
    for method in ways {
        for depth in [1, 4, 32] {
            let mut scenario = scenario(6, 2, 20_000.0, 8_000_000, 5);
            scenario.threads = 4;
            scenario.workload.connections.iter_mut().for_each(|connection| connection.thread %= 4);
            let job = Job { method, depth, cores: (4, 1), helper: 5, ..Job::default() };
            scenario.machine.jobs = support::job_costs();
            scenario.scheduled = Some(Scheduled {
                first_core: 4,
                jobs: vec![job],
                quotas: Vec::new(),
                until_ns: 7_000_000,
                drive_state: 0,
                drive_autonomous: false,
            });
            let audit = audited(&scenario, "static", &[]);
            let in_progress = audit.jobs_mean_in_progress;
            let depth = if method.is_synchronous() { 1.0 } else { f64::from(depth) };
            assert!(audit.answered > 100 && in_progress > 0.4 * depth, "{method:?}: {in_progress} of {depth}");
        }
    }
}

#[test]
fn the_time_of_a_label_is_that_of_all_connections() {
    let mut scenario = scenario(2, 1, 0.0, 8_000_000, 1);
    let phase = |label, length_ns| Phase { label, length_ns, rate: Rate::PerSecond(1_000.0) };
    scenario.workload.connections[0].phases = vec![phase(0, 3_000_000), phase(1, 1_000_000)];
    scenario.workload.connections[1].phases = vec![phase(1, 2_000_000), phase(0, 2_000_000)];
    let outcome = pilotlight_sim::run(&scenario, policy("static", &[])).unwrap();
    assert_eq!((scenario.warm_up_ns, outcome.label_ns), (0, vec![(0, 8_000_000), (1, 6_000_000)]));
}
