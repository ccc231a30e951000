//! Requests split into several commands: costs and wake-ups, against hand-computed values.

mod support;

use pilotlight_plant::Topology;
use pilotlight_sim::audit::TraceAuditor;
use pilotlight_sim::engine::run_traced;
use pilotlight_sim::jobs::{IoMethod, Job, Scheduled, Scheduler};
use pilotlight_sim::outcome::{JobStretch, Outcome};
use pilotlight_sim::scenario::{Scenario, Workload};
use pilotlight_sim::ssd::SsdModel;
use support::policy;

const MS: u64 = 1_000_000;

/// 4 KiB take 4,096 ns at 1 GB/s, plus 5,000 ns after the last.
const DRIVE: &str = "name = 'd'\nsource = 'd'\n[front]\nread_latency_ns = 5000\nwrite_latency_ns = 5000\n\
    [flash]\ndies = 1\npage_bytes = 4096\nread_ns = 0\n\
    [controller]\ncommand_ns = 1000\nbytes_per_s = 1000000000\nmost_bytes = 1048576\n";

/// From the system call to the first doorbell, of 16 KiB: 700 ns and 16 KiB at 10 ns. Each further command takes 700 ns.
const INTO: f64 = 860.0;
/// Drive time of four commands of 4 KiB.
const AWAY: f64 = 4.0 * 4_096.0 + 5_000.0;

/// One job that reads 16 KiB at a time, in commands of at most `command_bytes`.
fn cut(job: Job, command_bytes: u32) -> Scenario {
    let mut scenario = support::scenario(4, 1, 0.0, 20 * MS, 3);
    (scenario.threads, scenario.workload) = (0, Workload::default());
    scenario.topology = Topology::flat(2).unwrap();
    scenario.drives = vec![SsdModel::parse(DRIVE).unwrap()];
    (scenario.series_ns, scenario.warm_up_ns) = (MS, MS);
    let kernel = &mut scenario.machine.kernel;
    (kernel.shallow_exit_ns, kernel.deep_exit_ns, kernel.deep_residency_ns) = (500, 30_000, 200_000);
    scenario.machine.speed.sibling_gain_ppm = 0;
    scenario.machine.jobs = support::job_costs();
    scenario.machine.jobs.command_bytes = command_bytes;
    scenario.scheduled = Some(Scheduled {
        first_core: 0,
        jobs: vec![Job { bytes: 16_384, helper: 1, ..job }],
        quotas: Vec::new(),
        until_ns: 20 * MS,
        drive_state: 0,
        drive_autonomous: false,
    });
    scenario
}

fn by(method: IoMethod, depth: u32) -> Job {
    Job { method, depth, ..Job::default() }
}

/// Runs the scenario and checks the laws.
fn run(scenario: &Scenario) -> Outcome {
    let mut audit = TraceAuditor::new(scenario);
    let outcome = run_traced(scenario, policy("static", &[]), &mut audit).unwrap();
    audit.finish(&outcome).unwrap_or_else(|broken| panic!("{:#?}", &broken[..broken.len().min(4)]));
    outcome
}

/// Mean per request over the measured 19 ms.
fn each(outcome: &Outcome, of: fn(&JobStretch) -> u64) -> f64 {
    let sum = |of: fn(&JobStretch) -> u64| outcome.jobs.series.iter().skip(1).map(of).sum::<u64>() as f64;
    sum(of) / sum(|stretch| stretch.requests)
}

fn close(ours: f64, expected: f64, within: f64) {
    assert!((ours - expected).abs() <= within * expected, "{ours}, not {expected}");
}

#[test]
fn commands_end_together_with_one_interrupt() {
    let outcome = run(&cut(Job::default(), 4_096));
    // The last ends after four times 4,096 ns; an interrupt takes 900 ns, the exit from light sleep, and 300 ns for each command.
    close(outcome.jobs.reads.mean(), INTO + AWAY + 500.0 + 900.0 + 4.0 * 300.0 + 800.0, 1e-3);
    close(each(&outcome, |stretch| stretch.interrupts), 1.0, 0.01);
    close(each(&outcome, |stretch| stretch.switches), 1.0, 0.01);
    let work = 100.0 + INTO + 3.0 * 700.0 + 800.0 + 900.0 + 4.0 * 300.0 + 800.0;
    close(each(&outcome, |stretch| stretch.work_ns), work, 0.01);
}

#[test]
fn polling_finds_a_request_with_its_last_command() {
    let outcome = run(&cut(by(IoMethod::Classic, 1), 4_096));
    close(outcome.jobs.reads.mean(), INTO + AWAY + 40.0 + 4.0 * 300.0, 1e-3);
}

#[test]
fn a_request_within_the_limit_is_not_cut() {
    for method in [IoMethod::Interrupt, IoMethod::Classic, IoMethod::UringPolled] {
        assert_eq!(run(&cut(by(method, 4), 16_384)), run(&cut(by(method, 4), 0)), "{method:?}");
    }
}

/// Every I/O method, with and without a scheduler's lock: the auditor checks commands, bytes and time.
#[test]
fn cut_requests_obey_the_laws_in_every_way() {
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
        for (scheduler, lock_sleeps) in [(Scheduler::None, false), (Scheduler::Kyber, false), (Scheduler::Kyber, true)]
        {
            let mut scenario = cut(Job { scheduler, writes_ppm: 500_000, ..by(method, 4) }, 6_000);
            scenario.machine.jobs.lock_sleeps = lock_sleeps;
            let outcome = run(&scenario);
            assert!(outcome.jobs.reads.count() > 0 && outcome.jobs.writes.count() > 0, "{method:?}");
        }
    }
}
