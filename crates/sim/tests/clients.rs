//! Clients: operations without requests, and the backlog of their writes, against hand-computed values.

mod support;

use pilotlight_plant::Topology;
use pilotlight_sim::audit::TraceAuditor;
use pilotlight_sim::engine::run_traced;
use pilotlight_sim::jobs::{Job, Scheduled};
use pilotlight_sim::outcome::{Jobs, Outcome};
use pilotlight_sim::scenario::{Scenario, Workload};
use pilotlight_sim::ssd::SsdModel;
use proptest::prelude::*;
use support::policy;

const MS: u64 = 1_000_000;

/// 4 KiB take 4,096 ns at 1 GB/s, plus 5,000 ns.
const DRIVE: &str = "name = 'd'\nsource = 'd'\n[front]\nread_latency_ns = 5000\nwrite_latency_ns = 5000\n\
    [flash]\ndies = 1\npage_bytes = 4096\nread_ns = 0\n\
    [controller]\ncommand_ns = 1000\nbytes_per_s = 1000000000\nmost_bytes = 1048576\n";

/// Two cores; the first millisecond is not measured.
fn scenario(jobs: Vec<Job>) -> Scenario {
    let mut scenario = support::scenario(4, 1, 0.0, 20 * MS, 3);
    (scenario.threads, scenario.workload) = (0, Workload::default());
    scenario.topology = Topology::flat(2).unwrap();
    scenario.drives = vec![SsdModel::parse(DRIVE).unwrap()];
    (scenario.series_ns, scenario.warm_up_ns) = (MS, MS);
    let kernel = &mut scenario.machine.kernel;
    (kernel.shallow_exit_ns, kernel.deep_exit_ns, kernel.deep_residency_ns) = (500, 30_000, 200_000);
    scenario.machine.speed.sibling_gain_ppm = 0;
    scenario.machine.jobs = support::job_costs();
    scenario.scheduled = Some(Scheduled {
        first_core: 0,
        jobs,
        quotas: Vec::new(),
        until_ns: 20 * MS,
        drive_state: 0,
        drive_autonomous: false,
    });
    scenario
}

/// Runs the scenario and checks the laws.
fn run(jobs: Vec<Job>) -> Jobs {
    let scenario = scenario(jobs);
    let mut audit = TraceAuditor::new(&scenario);
    let outcome: Outcome = run_traced(&scenario, policy("static", &[]), &mut audit).unwrap();
    audit.finish(&outcome).unwrap_or_else(|broken| panic!("{:#?}", &broken[..broken.len().min(4)]));
    outcome.jobs
}

fn refused(jobs: Vec<Job>) -> String {
    pilotlight_sim::run(&scenario(jobs), policy("static", &[])).unwrap_err().to_string()
}

fn close(ours: f64, expected: f64, within: f64) {
    assert!((ours - expected).abs() <= within * expected, "{ours}, not {expected}");
}

/// A client with a hit ratio of 1.
fn cached() -> Job {
    Job { hits_ppm: 1_000_000, write_hits_ppm: 1_000_000, cpu_ns: 9_900, ..Job::default() }
}

/// A write-only client that adds 1,000 bytes per write.
fn writer() -> Job {
    Job { writes_ppm: 1_000_000, adds: 1_000, ..cached() }
}

/// A worker that processes `ppm` of the added bytes, on the other core.
fn worker(ppm: u32) -> Job {
    Job { cores: (1, 1), bytes: 4_096, writes_ppm: 1_000_000, sequential: true, backlog_ppm: ppm, ..Job::default() }
}

/// Bytes of requests over the whole run.
fn done_bytes(jobs: &Jobs) -> u64 {
    jobs.series.iter().map(|stretch| stretch.written_bytes + stretch.read_bytes).sum()
}

#[test]
fn with_all_data_cached_only_cpu_time_counts() {
    let jobs = run(vec![cached()]);
    // 9,900 ns and 100 ns of the generator.
    close(jobs.operations[0] as f64, 19e6 / 10_000.0, 1e-3);
    close(jobs.client_reads.mean(), 10_000.0, 1e-3);
    assert_eq!((jobs.requests.issued, jobs.client_writes.count(), jobs.added_bytes), (0, 0, 0));
    let two = run(vec![cached(); 2]);
    close(two.client_reads.mean(), 20_000.0, 0.01);
    assert_eq!(two.operations[0].abs_diff(two.operations[1]), 0, "{:?}", two.operations);
}

#[test]
fn reads_that_miss_take_a_request_and_hits_none() {
    let jobs = run(vec![Job { hits_ppm: 750_000, ..cached() }]);
    let (operations, requests) = (jobs.operations[0] as f64, jobs.reads.count() as f64);
    close(requests / operations, 0.25, 0.1);
    let miss = jobs.reads.mean();
    close(jobs.client_reads.mean(), 10_000.0 + miss * requests / operations, 0.01);
}

#[test]
fn writes_have_their_own_time_and_optional_reads() {
    let write = Job { writes_ppm: 500_000, write_cpu_ns: Some(29_900), ..cached() };
    let jobs = run(vec![write]);
    close(jobs.client_writes.mean(), 30_000.0, 1e-3);
    close(jobs.client_reads.mean(), 10_000.0, 1e-3);
    let misses = Job { write_hits_ppm: 0, hits_ppm: 1_000_000, ..write };
    let (writes, fetches) = (run(vec![misses]), run(vec![Job { fetches: true, ..misses }]));
    assert!(writes.writes.count() > 100 && writes.reads.count() == 0);
    assert!(fetches.reads.count() > 100 && fetches.writes.count() == 0);
    assert_eq!(fetches.reads.count(), fetches.client_writes.count());
}

#[test]
fn background_work_is_a_multiple_of_what_was_added() {
    let jobs = run(vec![writer(), worker(2_000_000)]);
    close(jobs.added_bytes as f64, 20e6 / 10_000.0 * 1_000.0, 0.01);
    let (due, left) = (2 * jobs.added_bytes, jobs.left_bytes[1]);
    assert!(left < 2 * 4_096, "a worker that is fast enough leaves less than what comes in a request's time: {left}");
    let about_to = due - left - done_bytes(&jobs);
    assert!(about_to <= 4_096, "{about_to}");
    assert_eq!(jobs.left_bytes[0], 0);
}

#[test]
fn without_a_backlog_nothing_is_done_in_the_background() {
    for client in [cached(), Job { adds: 0, ..writer() }] {
        let jobs = run(vec![client, worker(2_000_000)]);
        assert_eq!((done_bytes(&jobs), jobs.operations[1], jobs.added_bytes), (0, 0, 0));
    }
}

/// A worker that takes 100 us for 4,096 bytes, while 1,000 bytes arrive every 10 us.
#[test]
fn a_slow_worker_stays_behind_unless_writers_wait_for_it() {
    let slow = Job { cpu_ns: 100_000, ..worker(1_000_000) };
    let free = run(vec![writer(), slow]);
    assert!(free.left_bytes[1] > 1_000_000, "{}", free.left_bytes[1]);
    let held = run(vec![Job { stalls_bytes: 50_000, ..writer() }, slow]);
    assert!((45_000..=51_000).contains(&held.left_bytes[1]), "{}", held.left_bytes[1]);
    let each = held.writes.count() as f64 * 4_096.0 / 1_000.0;
    close(held.client_writes.count() as f64, each, 0.02);
    // Reads do not wait.
    let reads = run(vec![Job { stalls_bytes: 50_000, writes_ppm: 0, ..writer() }, slow]);
    close(reads.operations[0] as f64, 19e6 / 10_000.0, 1e-3);
}

#[test]
fn what_cannot_be_is_refused() {
    assert!(refused(vec![Job { think_after: 1, ..cached() }]).contains("rests"));
    assert!(refused(vec![worker(1), Job { stalls_bytes: 5_000, ..writer() }]).contains("less than a request"));
    assert!(refused(vec![Job { bytes: 0, ..worker(1) }]).contains("needs requests"));
    assert!(refused(vec![Job { adds: 1, ..worker(1) }]).contains("adds nothing"));
    let polls = Job { method: pilotlight_sim::jobs::IoMethod::Bypass, ..worker(1) };
    assert!(refused(vec![polls]).contains("never sleeps"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// All laws hold, and each worker's backlog adds up, for any clients and workers.
    #[test]
    fn backlogs_add_up(
        writes_ppm in 0_u32..1_000_000,
        hits in (0_u32..=1_000_000, 0_u32..=1_000_000),
        adds in 1_u32..10_000,
        (ppm, cpu_ns, mixed) in (1_u32..4_000_000, 0_u64..50_000, any::<bool>()),
        (clients, workers) in (1_usize..5, 1_usize..4),
        (stalls, fetches) in (any::<bool>(), any::<bool>()),
    ) {
        let stalls_bytes = if stalls { 4_096 * 1_000_000 / u64::from(ppm) + 20_000 } else { 0 };
        let client = Job {
            writes_ppm, hits_ppm: hits.0, write_hits_ppm: hits.1, adds, fetches, stalls_bytes, cpu_ns: 5_000, ..Job::default()
        };
        let anywhere = Job { cores: (0, 2), cpu_ns, ..worker(ppm) };
        let anywhere = if mixed { Job { writes_ppm: 500_000, ..anywhere } } else { anywhere };
        let on = |at: usize, job: Job| Job { cores: ((at % 2) as u16, 1), ..job };
        let all = (0..clients).map(|at| on(at, client)).chain((0..workers).map(|_| anywhere)).collect();
        let jobs = run(all);
        let due = jobs.added_bytes * u64::from(ppm) / 1_000_000;
        let left: u64 = jobs.left_bytes[clients..].iter().sum();
        let taken = due * workers as u64 - left;
        prop_assert!(taken.is_multiple_of(4_096), "{taken}");
        if stalls {
            prop_assert!(left <= workers as u64 * (u64::from(ppm) * (stalls_bytes + 4 * u64::from(adds)) / 1_000_000 + 1));
        }
    }
}
