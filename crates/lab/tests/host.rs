//! Hosts with one drive: closed-form results, invariants, and determinism.

use std::path::PathBuf;

use pilotlight_lab::simulated::host::{self, Host, Load};
use pilotlight_sim::audit::TraceAuditor;
use pilotlight_sim::jobs::{IoMethod, Job, Scheduler};
use pilotlight_sim::outcome::{JobStretch, Outcome};
use pilotlight_sim::ssd::{Op, Request, Ssd, SsdModel};
use proptest::prelude::*;

fn machine(name: &str) -> Host {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    host::load(&root.join(format!("profiles/{name}.toml"))).unwrap()
}

#[test]
fn a_value_above_its_limit_is_refused_with_its_key() {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let text = |folder: &str| std::fs::read_to_string(root.join(folder).join("poll-optane-900p.toml")).unwrap();
    let (profile, free) = (text("profiles"), text("profiles/calibration"));
    for (key, cores, figure) in [
        ("host.cores", "cores = 4", "cores = 0"),
        ("host.threads_per_core", "threads_per_core = 2", "threads_per_core = 3"),
    ] {
        assert!(profile.contains(cores), "{cores}");
        let refused = host::parse(&profile.replace(cores, figure), &free).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{key} is ")) && refused.contains("must be 1 to"), "{refused}");
    }
}

fn thesis() -> Host {
    machine("thesis-980pro")
}

fn polling() -> Host {
    machine("poll-optane-900p")
}

fn load(method: IoMethod, jobs: u16, depth: u32, bytes: u32) -> Load {
    Load {
        job: Job { method, depth, bytes, ..Job::default() },
        jobs,
        beside: Vec::new(),
        drive_state: 0,
        drive_autonomous: false,
        ramp_ns: 2_000_000,
        duration_ns: 20_000_000,
        after_ns: 0,
        seed: 1,
    }
}

/// 1 MiB sequential writes at depth 32, without warm-up.
fn writes(state: usize, duration_ns: u64, after_ns: u64) -> Load {
    let load = Load { drive_state: state, ramp_ns: 0, duration_ns, after_ns, ..load(IoMethod::Uring, 1, 32, 1 << 20) };
    Load { job: Job { sequential: true, writes_ppm: 1_000_000, ..load.job }, ..load }
}

fn run(host: &Host, load: &Load) -> Outcome {
    let policy = pilotlight_policy::registry::build("static", &[]).unwrap();
    pilotlight_sim::run(&host.scenario(load), policy).unwrap()
}

/// A sum over the measured time.
fn sum(host: &Host, load: &Load, of: fn(&JobStretch) -> u64) -> f64 {
    let first = load.ramp_ns / host.scenario(load).series_ns;
    run(host, load).jobs.series.iter().skip(first as usize).map(of).sum::<u64>() as f64
}

#[test]
fn the_latency_of_a_polling_job_is_the_sum_of_its_parts() {
    let mut host = polling();
    let controller = host.drive.controller.as_mut().unwrap();
    controller.random_ppm = 0;
    let command_ns = (4_096 * 1_000_000_000 / controller.bytes_per_s).max(controller.command_ns);
    let load = load(IoMethod::Classic, 1, 1, 4_096);
    let costs = host.costs;
    let submit_ns = costs.submit_ns + costs.page_ns_per_kib * 4;
    let latency_ns = submit_ns + command_ns + host.drive.front.read_latency_ns + costs.look_ns / 2 + costs.complete_ns;
    let reads = run(&host, &load).jobs.reads;
    assert!((reads.mean() - latency_ns as f64).abs() < 1.0, "{} {latency_ns}", reads.mean());
    assert!((reads.count() as f64 - 20e6 / (latency_ns + costs.job_ns) as f64).abs() < 2.0);
}

#[test]
fn the_paper_s_order_of_mechanisms_at_one_thread() {
    let host = polling();
    let mean = |method| run(&host, &load(method, 1, 1, 4_096)).jobs.reads.mean();
    let (classic, hybrid, interrupt) = (mean(IoMethod::Classic), mean(IoMethod::Hybrid), mean(IoMethod::Interrupt));
    assert!(classic < hybrid && hybrid < interrupt, "{classic} {hybrid} {interrupt}");
}

#[test]
fn waiting_requests_cause_one_switch_and_polling_ones_none() {
    let host = polling();
    let per_io = |method| {
        let load = load(method, 4, 1, 4_096);
        sum(&host, &load, |stretch| stretch.switches) / sum(&host, &load, |stretch| stretch.requests)
    };
    assert_eq!(per_io(IoMethod::Classic), 0.0);
    assert!((per_io(IoMethod::Interrupt) - 1.0).abs() < 0.01 && (per_io(IoMethod::Hybrid) - 1.0).abs() < 0.01);
}

#[test]
fn hybrid_polling_sleeps_half_of_the_mean() {
    let mut host = polling();
    // Only sleep and polling: no exit latency, context switches or timers.
    (host.processors.light_exit_ns, host.costs.switch_ns, host.costs.timer_ns) = (0, 0, 0);
    let controller = host.drive.controller.as_mut().unwrap();
    controller.random_ppm = 0;
    host.drive.front.read_latency_ns = 8_000 - controller.command_ns;
    let load = load(IoMethod::Hybrid, 1, 1, 512);
    let looks_ns = sum(&host, &load, |stretch| stretch.look_ns) / sum(&host, &load, |stretch| stretch.requests);
    assert!((looks_ns - 4_050.0).abs() < 20.0, "4 us of 8 us, and half a look: {looks_ns}");
}

#[test]
fn the_buffer_absorbs_a_gibibyte_and_flash_the_rest() {
    let host = thesis();
    for (state, rates) in host.drive.state.iter().enumerate() {
        let jobs = run(&host, &writes(state, 15_000_000_000, 0)).jobs;
        let written = jobs.writes.count() << 20;
        let allowed = rates.write_bytes_per_s * 15 + host.drive.cache.unwrap().buffer_bytes;
        assert!(written.abs_diff(allowed) < 200 << 20, "state {state}: {written} {allowed}");
        let owed_ns = u128::from(written) * 1_000_000_000 / u128::from(rates.gc_bytes_per_s);
        assert!((jobs.to_move_ns as f64 / owed_ns as f64 - 1.0).abs() < 0.02, "state {state}");
    }
}

/// Mean latency of random reads of 4 KiB, one per 50 us, while 256 MiB are written from the buffer to flash (127 ms).
fn read_beside_writes_ns(drive: &SsdModel) -> u64 {
    let mut ssd = Ssd::new(drive);
    let request = |at_ns: u64, op, bytes, sequential| {
        let draw = (at_ns + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Request { at_ns, op, offset: 0, bytes, draw, sequential }
    };
    for _ in 0..512 {
        ssd.submit(&request(0, Op::Write, 1 << 19, true));
    }
    // All writes have passed the controller after 76 ms.
    let times: Vec<u64> = (80_000_000..120_000_000).step_by(50_000).collect();
    let wait_ns = |&at_ns: &u64| ssd.submit(&request(at_ns, Op::Read, 4096, false)) - at_ns;
    times.iter().map(wait_ns).sum::<u64>() / times.len() as u64
}

#[test]
fn programs_of_writes_delay_reads_of_the_thesis_s_drive() {
    let with = thesis().drive;
    let mut without = with.clone();
    without.cache.as_mut().unwrap().programs = false;
    let program = without.program.take().unwrap();
    let unit_ns =
        u64::from(with.flash.dies) * u64::from(program.program_bytes) * 1_000_000_000 / with.state[0].write_bytes_per_s;
    assert!(
        program.program_ns < unit_ns,
        "flash programs as fast as the buffer empties: {} {unit_ns}",
        program.program_ns
    );
    // A read suspends a running program.
    let expected_ns = program.suspend_ns.unwrap() * program.program_ns / unit_ns;
    let longer_ns = read_beside_writes_ns(&with) - read_beside_writes_ns(&without);
    assert!((expected_ns * 7 / 10..expected_ns * 13 / 10).contains(&longer_ns), "{longer_ns} {expected_ns}");
}

#[test]
fn an_idle_drive_empties_its_buffer_and_then_sleeps() {
    let host = thesis();
    let load = writes(0, 1_000_000_000, 3_000_000_000);
    let (step_ns, outcome) = (host.scenario(&load).series_ns, run(&host, &load));
    let watts: Vec<f64> =
        outcome.series.iter().map(|stretch| stretch.energy.drives_uj as f64 * 1e3 / step_ns as f64).collect();
    let energy = host.drive.energy.unwrap();
    let (rest, moves) = (energy.rest_uw as f64 / 1e6, (energy.awake_uw + host.drive.state[0].gc_uw) as f64 / 1e6);
    assert_eq!(watts.last().map(|watts| (watts * 1e3).round()), Some(rest * 1e3));
    let moving = watts.iter().filter(|watts| (**watts - moves).abs() < 1e-3).count() as f64 * step_ns as f64;
    let expected = outcome.jobs.to_move_ns as f64;
    assert!((moving - expected).abs() <= 2.0 * step_ns as f64, "{moving} {expected}");
}

#[test]
fn a_sleeping_drive_adds_its_exit_latency() {
    let host = thesis();
    let greatest = |think_ns| {
        let load = load(IoMethod::Uring, 1, 1, 16_384);
        let job = Job { think_after: 1, think_ns, ..load.job };
        run(&host, &Load { job, duration_ns: 2_000_000_000, ..load }).jobs.reads.max()
    };
    assert_eq!(greatest(100_000_000) - greatest(30_000_000), host.drive.rest.unwrap().wake_ns);
}

#[test]
fn a_lock_serializes_requests() {
    let host = thesis();
    let load = load(IoMethod::Uring, 64, 1, 4_096);
    let load = Load { job: Job { scheduler: Scheduler::Deadline, ..load.job }, ..load };
    let per_s = run(&host, &load).jobs.reads.count() as f64 / 20e-3;
    assert!(per_s <= 1.01e9 / host.costs.deadline_ns as f64, "{per_s}");
}

#[test]
fn siblings_are_used_only_if_all_cores_have_a_job() {
    let cores = |host: &Host, load: &Load| host.scenario(load).topology.len();
    assert_eq!(cores(&polling(), &load(IoMethod::Classic, 3, 1, 4_096)), 3);
    assert_eq!(cores(&polling(), &load(IoMethod::UringPolled, 3, 1, 4_096)), 8);
    assert_eq!(cores(&polling(), &load(IoMethod::Classic, 64, 1, 4_096)), 8);
    assert_eq!(cores(&thesis(), &load(IoMethod::Uring, 64, 1, 4_096)), 20);
    assert_eq!(cores(&thesis(), &Load { jobs: 0, ..load(IoMethod::Uring, 1, 1, 4_096) }), 1);
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

fn any_load() -> impl Strategy<Value = Load> {
    let what = (0..WAYS.len(), 1_u16..24, 1_u32..40, 9_u32..20, any::<bool>(), 0_u32..3, 0_usize..3, any::<u64>());
    what.prop_map(|(method, jobs, depth, shift, sequential, writes, drive_state, seed)| {
        let load = Load { drive_state, seed, duration_ns: 10_000_000, ..load(WAYS[method], jobs, depth, 1 << shift) };
        Load { job: Job { sequential, writes_ppm: writes * 500_000, ..load.job }, ..load }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_run_obeys_the_laws(load in any_load(), of_thesis in any::<bool>()) {
        let host = if of_thesis { thesis() } else { polling() };
        // The polling paper's drive has one state and does not write.
        let load = if of_thesis { load } else { Load { drive_state: 0, job: Job { writes_ppm: 0, ..load.job }, ..load } };
        let scenario = host.scenario(&load);
        let mut audit = TraceAuditor::new(&scenario);
        let policy = pilotlight_policy::registry::build("static", &[]).unwrap();
        let outcome = pilotlight_sim::engine::run_traced(&scenario, policy, &mut audit).unwrap();
        prop_assert!(audit.finish(&outcome).is_ok());
        prop_assert_eq!(&outcome, &run(&host, &load), "the same twice");
        // Little's law: requests in progress do not exceed the limit of the jobs.
        let (reads, writes) = (&outcome.jobs.reads, &outcome.jobs.writes);
        let most = f64::from(load.jobs) * f64::from(if load.job.method.is_synchronous() { 1 } else { load.job.depth });
        let slack = most * reads.max().max(writes.max()) as f64;
        prop_assert!((reads.sum() + writes.sum()) as f64 <= most * load.duration_ns as f64 + slack);
        // Throughput does not exceed that of the link.
        let bytes: u64 = outcome.jobs.series.iter().map(|stretch| stretch.read_bytes + stretch.written_bytes).sum();
        let link = host.drive.controller.unwrap().bytes_per_s as f64 * scenario.duration_ns as f64 / 1e9;
        // Random times vary around the link's.
        let link = link * if host.drive.controller.unwrap().random_ppm > 0 { 1.2 } else { 1.0 };
        prop_assert!(bytes as f64 <= link + most * f64::from(load.job.bytes), "{bytes} {link}");
    }
}
