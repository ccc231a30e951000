//! Scheduled cores: closed forms of single jobs, quotas, background work, and the auditor's laws.

mod support;

use std::collections::BTreeMap;

use pilotlight_sim::audit::{Law, TraceAuditor, Violation, audit};
use pilotlight_sim::engine::run_traced;
use pilotlight_sim::histogram::Histogram;
use pilotlight_sim::jobs::{IoMethod, Job, Quota, Scheduled, Scheduler};
use pilotlight_sim::machine::ScheduledPower;
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::Scenario;
use pilotlight_sim::ssd::SsdModel;
use pilotlight_sim::trace::{Record, RecordKind};
use proptest::prelude::*;
use support::policy;

const MS: u64 = 1_000_000;

/// 4 KiB take 4,096 ns at 1 GB/s, plus 5,000 ns.
const AWAY: f64 = 9_096.0;
/// From the system call to the doorbell: 700 ns and 4 KiB at 10 ns.
const INTO: f64 = 740.0;

const DRIVE: &str = "name = 'd'\nsource = 'd'\n[front]\nread_latency_ns = 5000\nwrite_latency_ns = 6000\n\
    [flash]\ndies = 1\npage_bytes = 4096\nread_ns = 0\n\
    [controller]\ncommand_ns = 1000\nbytes_per_s = 1000000000\nmost_bytes = 1048576\n\
    [cache]\nbuffer_bytes = 1000000\ncache_bytes = 1000000000\nfull_bytes_per_s = 100000000\nmap_reads = false\n\
    gc_after_ns = 100000\n[rest]\nafter_ns = 600000\nwake_ns = 90000\nasleep_after_ns = 1000000\n\
    [[state]]\nname = 'ps0'\nwrite_bytes_per_s = 500000000\ngc_bytes_per_s = 1000000000\ngc_uw = 2000000\n\
    [energy]\nawake_uw = 2400000\nrest_uw = 1700000\nasleep_uw = 1200000\nread_pj_per_byte = 1000\nwrite_pj_per_byte = 2000\n";

fn job(method: IoMethod, depth: u32, core: u16) -> Job {
    Job { cores: (core, 1), helper: core, method, depth, ..Job::default() }
}

/// Two polling cores that serve hosts, and two scheduled cores; the hosts' rate may be 0.
fn scenario(jobs: Vec<Job>, quotas: Vec<Quota>, rate: f64) -> Scenario {
    let mut scenario = support::scenario(4, 1, rate, 20 * MS, 3);
    scenario.threads = 2;
    scenario.workload.connections = support::connections(2, 2, 1, rate);
    scenario.drives = vec![SsdModel::parse(DRIVE).unwrap()];
    scenario.series_ns = MS;
    scenario.warm_up_ns = MS;
    let kernel = &mut scenario.machine.kernel;
    (kernel.shallow_exit_ns, kernel.deep_exit_ns, kernel.deep_residency_ns) = (500, 30_000, 200_000);
    scenario.machine.speed.sibling_gain_ppm = 0;
    scenario.machine.power.scheduled =
        Some(ScheduledPower { looks_ppm: 450_000, of_all_ppm: 600_000, base_uw: 30_000_000, slope_ppm: 1_100_000 });
    scenario.machine.jobs = support::job_costs();
    scenario.scheduled =
        Some(Scheduled { first_core: 2, jobs, quotas, until_ns: 20 * MS, drive_state: 0, drive_autonomous: true });
    scenario
}

/// Runs the scenario and checks the laws.
fn run(scenario: &Scenario, name: &str) -> Outcome {
    let mut audit = TraceAuditor::new(scenario);
    let outcome = run_traced(scenario, policy(name, &[]), &mut audit).unwrap();
    audit.finish(&outcome).unwrap_or_else(|broken| panic!("{:#?}", &broken[..broken.len().min(4)]));
    outcome
}

fn close(ours: f64, expected: f64, within: f64) {
    assert!((ours - expected).abs() <= within * expected.abs().max(1e-9), "{ours}, not {expected}");
}

/// Working time and polling time per request, and latency of a single job.
fn each(method: IoMethod) -> (f64, f64, f64) {
    let outcome = run(&scenario(vec![job(method, 1, 2)], Vec::new(), 0.0), "static");
    let sum = |of: fn(&pilotlight_sim::outcome::JobStretch) -> u64| {
        outcome.jobs.series.iter().skip(1).map(of).sum::<u64>() as f64
    };
    let requests = sum(|stretch| stretch.requests);
    (sum(|stretch| stretch.work_ns) / requests, sum(|stretch| stretch.look_ns) / requests, outcome.jobs.reads.mean())
}

#[test]
fn a_job_alone_takes_the_sum_of_its_parts() {
    let (work, looks, latency) = each(IoMethod::Interrupt);
    // Half a switch away, concurrent with the drive; exit from light sleep; the interrupt; half a switch back.
    close(latency, INTO + AWAY + 500.0 + 900.0 + 300.0 + 800.0, 1e-3);
    close(work, 100.0 + INTO + 800.0 + 900.0 + 300.0 + 800.0, 1e-3);
    assert_eq!(looks, 0.0);
    let (work, looks, latency) = each(IoMethod::Classic);
    close(latency, INTO + AWAY + 40.0 + 300.0, 1e-3);
    close(work, 100.0 + INTO + 300.0, 1e-3);
    close(looks, AWAY + 40.0, 1e-3);
    let (work, looks, latency) = each(IoMethod::Hybrid);
    // Woken by the timer after half of the mean, which is the drive's.
    close(latency, INTO + 600.0 + AWAY + 40.0 + 300.0, 1e-3);
    close(looks, AWAY / 2.0 - (500.0 + 600.0 + 800.0) + 40.0, 2e-3);
    close(work, 100.0 + INTO + 600.0 + 800.0 + 600.0 + 800.0 + 300.0, 1e-3);
    let (work, looks, _) = each(IoMethod::Bypass);
    close(work, 500.0, 1e-3);
    close(looks, AWAY, 1e-2);
}

#[test]
fn jobs_that_share_a_core_take_turns() {
    let jobs = vec![job(IoMethod::Classic, 1, 2); 3];
    let outcome = run(&scenario(jobs, Vec::new(), 0.0), "static");
    let cycle = 100.0 + INTO + AWAY + 40.0 + 300.0;
    let operations = &outcome.jobs.operations;
    close(operations.iter().sum::<u64>() as f64, 19e6 / cycle, 0.01);
    assert!(operations.iter().all(|one| one.abs_diff(operations[0]) <= 1), "{operations:?}");
    close(outcome.jobs.reads.mean(), cycle - 100.0, 1e-3);
}

#[test]
fn a_client_has_the_processor_time_that_each_operation_needs() {
    let slow = Job { cpu_ns: 50_000, ..job(IoMethod::Interrupt, 1, 2) };
    let outcome = run(&scenario(vec![slow], Vec::new(), 0.0), "static");
    let cycle = 50_000.0 + 100.0 + INTO + AWAY + 500.0 + 900.0 + 300.0 + 800.0;
    close(outcome.jobs.operations[0] as f64, 19e6 / cycle, 0.01);
}

#[test]
fn a_group_gets_exactly_its_quota() {
    let busy = Job { bytes: 0, cpu_ns: 900, quota: Some(0), ..job(IoMethod::Interrupt, 1, 2) };
    let jobs = vec![busy, Job { cores: (3, 1), helper: 3, ..busy }];
    let quota = Quota { quota_ns: 500_000, period_ns: 2 * MS, slice_ns: 100_000 };
    let outcome = run(&scenario(jobs, vec![quota], 0.0), "static");
    // Half a millisecond of the four available on two cores.
    let work: u64 = outcome.jobs.series.iter().map(|stretch| stretch.work_ns).sum();
    assert_eq!(work, 10 * 500_000);
    for period in outcome.jobs.series.chunks(2) {
        assert!(period.iter().map(|stretch| stretch.work_ns).sum::<u64>() <= 500_000);
    }
}

#[test]
fn background_work_uses_idle_time_and_is_preempted() {
    let client = job(IoMethod::Interrupt, 1, 2);
    let background = Job { background: true, bytes: 0, cpu_ns: 200_000, ..client };
    let alone = run(&scenario(vec![client], Vec::new(), 0.0), "static");
    let both = run(&scenario(vec![client, background], Vec::new(), 0.0), "static");
    // The core is always awake, so the interrupt has no exit latency.
    close(both.jobs.reads.mean(), alone.jobs.reads.mean() - 500.0, 1e-3);
    let work: u64 = both.jobs.series.iter().map(|stretch| stretch.work_ns).sum();
    close(work as f64, 20e6, 1e-3);
}

#[test]
fn hosts_and_jobs_share_a_drive() {
    let alone = run(&scenario(vec![job(IoMethod::Uring, 4, 2)], Vec::new(), 0.0), "static");
    let shared = run(&scenario(vec![job(IoMethod::Uring, 4, 2)], Vec::new(), 100_000.0), "static");
    let hosts = shared.latency[0].1.count();
    close(hosts as f64, 100_000.0 * 19e-3, 0.1);
    // The controller's 244 k commands per second are shared.
    assert!(alone.jobs.operations[0] as f64 / 19e-3 > 200e3, "{:?}", alone.jobs.operations);
    let rate = (shared.jobs.operations[0] + hosts) as f64 / 19e-3;
    assert!((200e3..250e3).contains(&rate), "{rate}");
}

#[test]
fn a_policy_sets_the_speed_of_scheduled_cores_too() {
    let mut slow = scenario(vec![Job { cpu_ns: 20_000, ..job(IoMethod::Interrupt, 1, 2) }], Vec::new(), 0.0);
    slow.machine.speed.transition_ns = 10_000;
    let fast = run(&slow, "static").jobs.operations[0];
    let ordered = run(&slow, "governor").jobs.operations[0];
    assert!(ordered < fast * 3 / 4, "{ordered} {fast}");
}

#[test]
fn what_cannot_be_run_is_refused() {
    let refused = |job: Job| {
        let scenario = scenario(vec![job], Vec::new(), 0.0);
        pilotlight_sim::run(&scenario, policy("static", &[])).unwrap_err().to_string()
    };
    assert!(refused(job(IoMethod::Interrupt, 1, 1)).contains("cores"));
    assert!(refused(Job { quota: Some(0), ..job(IoMethod::Interrupt, 1, 2) }).contains("quota"));
    assert!(refused(Job { drive: 1, ..job(IoMethod::Interrupt, 1, 2) }).contains("drive"));
}

/// SANDMAN moves a surging thread to an empty core: one that runs programs is not empty, and the simulated server refuses it.
#[test]
fn no_io_thread_comes_to_a_scheduled_core() {
    let mut scenario =
        scenario(vec![job(IoMethod::Classic, 1, 3), job(IoMethod::Interrupt, 1, 2)], Vec::new(), 60_000.0);
    (scenario.seed, scenario.warm_up_ns) = (9_614_983_179_334_153_352, 0);
    assert!(run(&scenario, "sandman").decisions.refused > 0, "the seed makes a surge");
}

/// A correct trace, changed in one place, breaks the expected law.
#[test]
fn the_auditor_detects_errors_of_jobs() {
    let rests = |method, core| Job { think_after: 1, think_ns: 3 * MS, ..job(method, 1, core) };
    let scenario = scenario(vec![rests(IoMethod::Hybrid, 2), rests(IoMethod::Bypass, 3)], Vec::new(), 0.0);
    let mut trace = Vec::new();
    let outcome = run_traced(&scenario, policy("static", &[]), &mut trace).unwrap();
    let broken = |what: RecordKind, change: fn(&mut [u8])| {
        let mut trace = trace.clone();
        let of = |record: &[u8; Record::BYTES]| Record::decode(record).is_some_and(|record| record.kind == what);
        let place = trace.as_chunks::<{ Record::BYTES }>().0.iter().position(of).expect("there is such a record");
        change(&mut trace[place * Record::BYTES..(place + 1) * Record::BYTES]);
        audit(&trace[..], &scenario, &outcome).map(|_| ()).map_err(|broken| broken[0].law)
    };
    assert_eq!(broken(RecordKind::Received, |_| {}), Ok(()));
    assert_eq!(broken(RecordKind::Received, |record| record[18] ^= 1), Err(Law::Requests), "another latency");
    assert_eq!(broken(RecordKind::Submitted, |record| record[18] ^= 1), Err(Law::Requests), "another drive");
    assert_eq!(broken(RecordKind::Issued, |record| record[18] ^= 1), Err(Law::Requests), "another size");
    assert_eq!(broken(RecordKind::Core, |record| record[18] ^= 2), Err(Law::Energy), "another state");
    assert_eq!(broken(RecordKind::Drive, |record| record[20] ^= 1), Err(Law::Energy), "another length of a rest");
    let claimed = |change: fn(&mut Outcome)| {
        let mut claims = outcome.clone();
        change(&mut claims);
        audit(&trace[..], &scenario, &claims).unwrap_err()[0].law
    };
    assert_eq!(claimed(|claims| claims.jobs.requests.answered += 1), Law::Requests);
    assert_eq!(claimed(|claims| claims.jobs.series[7].requests += 1), Law::Requests);
    assert_eq!(claimed(|claims| claims.jobs.series[7].latency_ns += 1), Law::Little);
    assert_eq!(claimed(|claims| claims.jobs.reads.record(0)), Law::Requests);
}

/// Latencies that begin when the helper thread makes the call omit the wait for it; everything else is consistent.
#[test]
fn a_wait_that_is_in_no_latency_is_found() {
    let scenario = scenario(vec![job(IoMethod::PosixAio, 4, 2)], Vec::new(), 0.0);
    let mut trace = Vec::new();
    let mut outcome = run_traced(&scenario, policy("static", &[]), &mut trace).unwrap();
    assert!(audit(&trace[..], &scenario, &outcome).is_ok());
    let mut records: Vec<Record> =
        trace.as_chunks::<{ Record::BYTES }>().0.iter().map(|bytes| Record::decode(bytes).unwrap()).collect();
    let submitted: BTreeMap<u64, u64> = records
        .iter()
        .filter(|record| record.kind == RecordKind::Submitted)
        .map(|record| (record.a, record.at_ns))
        .collect();
    let begins_ns = |name: u64| submitted.get(&name).copied();
    records.retain(|record| record.kind != RecordKind::Issued || begins_ns(record.a).is_some());
    outcome.jobs.reads = Histogram::default();
    outcome.jobs.series.iter_mut().for_each(|stretch| stretch.latency_ns = 0);
    for record in &mut records {
        match record.kind {
            RecordKind::Issued => record.at_ns = begins_ns(record.a).unwrap(),
            RecordKind::Received => {
                record.b = record.at_ns - begins_ns(record.a).unwrap();
                outcome.jobs.series[(record.at_ns / MS) as usize].latency_ns += record.b;
                if record.at_ns >= MS {
                    outcome.jobs.reads.record(record.b);
                }
            }
            _ => {}
        }
    }
    records.sort_unstable();
    let dropped = outcome.jobs.requests.issued - submitted.len() as u64;
    outcome.jobs.requests.issued -= dropped;
    outcome.jobs.requests.in_progress -= dropped;
    let changed: Vec<u8> = records.iter().flat_map(bytes_of).collect();
    let broken = audit(&changed[..], &scenario, &outcome).unwrap_err();
    let waits = |violation: &Violation| {
        violation.to_string().contains("no latency includes the wait") || violation.to_string().contains("further")
    };
    assert!(broken[0].law == Law::Little && broken.iter().all(waits), "{:#?}", &broken[..2]);
}

fn bytes_of(record: &Record) -> Vec<u8> {
    let (at, what) = (record.at_ns.to_le_bytes(), (record.kind as u16).to_le_bytes());
    [&at[..], &what, &record.a.to_le_bytes(), &record.b.to_le_bytes()].concat()
}

const WAYS: [IoMethod; 8] = [
    IoMethod::Interrupt,
    IoMethod::Classic,
    IoMethod::Hybrid,
    IoMethod::Libaio,
    IoMethod::Uring,
    IoMethod::UringPolled,
    IoMethod::PosixAio,
    IoMethod::Bypass,
];

/// Method, depth, size, share of writes; sequential, background; core, think time, quota.
type Drawn = ((usize, u32, u32, u32), (bool, bool), (u16, u32, u16));

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let one = (
        (0..WAYS.len(), 1..12_u32, 9..18_u32, 0..3_u32),
        (any::<bool>(), any::<bool>()),
        (0..3_u16, 0..3_u32, 0..2_u16),
    );
    prop::collection::vec(one, 1..6).prop_map(|all| {
        let make = |((method, depth, shift, writes), (sequential, background), (place, think, quota)): Drawn| {
            let cores = if place == 2 { (2, 2) } else { (2 + place, 1) };
            Job {
                background,
                cores,
                helper: 5 - cores.0,
                quota: (quota == 1).then_some(0),
                bytes: if think == 2 { 0 } else { 1 << shift },
                sequential,
                writes_ppm: writes * 500_000,
                scheduler: [Scheduler::None, Scheduler::Kyber, Scheduler::Deadline][writes as usize],
                cpu_ns: 700,
                think_after: think * 5,
                think_ns: 300_000,
                think_spin_ns: 20_000,
                ..job(WAYS[method], depth, cores.0)
            }
        };
        all.into_iter().map(make).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any mixture of jobs and hosts, under policies that sleep and slow down.
    #[test]
    fn random_runs_are_valid_and_reproducible(
        jobs in jobs(), quota_ns in 100_000..3_000_000_u64, rate in prop_oneof![Just(0.0), Just(60_000.0)], seed in any::<u64>(), late in any::<bool>(),
        name in prop_oneof![Just("static"), Just("sandman"), Just("governor"), Just("interrupt")],
        command_bytes in prop_oneof![Just(0), Just(3_000), Just(16_384)],
    ) {
        let quota = Quota { quota_ns, period_ns: 2 * MS, slice_ns: 300_000 };
        let mut scenario = scenario(jobs, vec![quota], rate);
        scenario.seed = seed;
        scenario.machine.jobs.command_bytes = command_bytes;
        if late && let Some(scheduled) = &mut scenario.scheduled {
            scheduled.until_ns = 13 * MS + 5_500;
        }
        let outcome = run(&scenario, name);
        prop_assert_eq!(&outcome, &run(&scenario, name));
        let limited = scenario.scheduled.iter().flat_map(|scheduled| &scheduled.jobs).all(|job| job.quota.is_some() && !job.method.spins());
        // Interrupts and workers belong to no job, and are slower on slower cores. (No outcome has the number of commands.)
        if limited && name == "static" && command_bytes == 0 {
            for period in outcome.jobs.series.chunks(2) {
                let used: u64 = period.iter().map(|stretch| stretch.work_ns + stretch.look_ns).sum();
                let most = quota_ns + 1_300 * period.iter().map(|stretch| stretch.interrupts + stretch.requests).sum::<u64>() + 10_000;
                prop_assert!(used <= most, "{used} of {quota_ns}, {most}");
            }
        }
    }
}
