//! Hosts without polling cores: latencies of several jobs, and sharing of work and power, against hand-computed values.

mod support;

use pilotlight_plant::{CoreId, Topology};
use pilotlight_sim::audit::TraceAuditor;
use pilotlight_sim::engine::run_traced;
use pilotlight_sim::jobs::{IoMethod, Job, Scheduled, Scheduler};
use pilotlight_sim::machine::ScheduledPower;
use pilotlight_sim::outcome::{JobStretch, Outcome};
use pilotlight_sim::scenario::{Scenario, Workload};
use pilotlight_sim::ssd::SsdModel;
use support::policy;

const MS: u64 = 1_000_000;

/// 4 KiB take 4,096 ns at 1 GB/s, plus 5,000 ns.
const AWAY: f64 = 9_096.0;
/// From the system call to the doorbell: 700 ns and 4 KiB at 10 ns.
const INTO: f64 = 740.0;

const DRIVE: &str = "name = 'd'\nsource = 'd'\n[front]\nread_latency_ns = 5000\nwrite_latency_ns = 6000\n\
    [flash]\ndies = 1\npage_bytes = 4096\nread_ns = 0\n\
    [controller]\ncommand_ns = 1000\nbytes_per_s = 1000000000\nmost_bytes = 1048576\n\
    [cache]\nbuffer_bytes = 1073741824\ncache_bytes = 1099511627776\nfull_bytes_per_s = 100000000\nmap_reads = false\n\
    gc_after_ns = 10000000\n[[state]]\nname = 'ps0'\nwrite_bytes_per_s = 500000000\ngc_bytes_per_s = 1000000000\n\
    [[state]]\nname = 'ps1'\nread_bytes_per_s = 100000000\nwrite_bytes_per_s = 50000000\ngc_bytes_per_s = 10000000\n";

/// Two physical cores with two threads each; siblings are two apart, so that jobs fill both physical cores first.
fn threads() -> Topology {
    Topology::new(CoreId(0), [2, 3, 0, 1].map(|sibling| Some(CoreId(sibling))).to_vec()).unwrap()
}

/// `count` equal jobs on consecutive cores.
fn host(topology: Topology, physical_cores: u32, count: u16, job: Job) -> Scenario {
    let cores = topology.len() as u16;
    let mut scenario = support::scenario(4, 1, 0.0, 20 * MS, 3);
    (scenario.threads, scenario.workload, scenario.topology) = (0, Workload::default(), topology);
    scenario.drives = vec![SsdModel::parse(DRIVE).unwrap()];
    (scenario.series_ns, scenario.warm_up_ns) = (MS, MS);
    let machine = &mut scenario.machine;
    let kernel = &mut machine.kernel;
    (kernel.shallow_exit_ns, kernel.deep_exit_ns, kernel.deep_residency_ns) = (500, 30_000, 200_000);
    machine.speed.sibling_gain_ppm = 0;
    machine.power.physical_cores = physical_cores;
    machine.power.family.sibling_saves_ppm = 0;
    machine.power.scheduled =
        Some(ScheduledPower { looks_ppm: 500_000, of_all_ppm: 1_000_000, base_uw: 0, slope_ppm: 1_000_000 });
    machine.jobs = support::job_costs();
    let one = |at: u16| Job { cores: (at % cores, 1), helper: (count + at) % cores, ..job };
    scenario.scheduled = Some(Scheduled {
        first_core: 0,
        jobs: (0..count).map(one).collect(),
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

/// Removes the controller.
fn without_controller(scenario: &mut Scenario) {
    scenario.drives[0].controller = None;
}

/// Runs the scenario and checks the laws.
fn run(scenario: &Scenario) -> Outcome {
    let mut audit = TraceAuditor::new(scenario);
    let outcome = run_traced(scenario, policy("static", &[]), &mut audit).unwrap();
    audit.finish(&outcome).unwrap_or_else(|broken| panic!("{:#?}", &broken[..broken.len().min(4)]));
    outcome
}

/// Sum over the measured 19 ms.
fn sum(outcome: &Outcome, of: fn(&JobStretch) -> u64) -> f64 {
    outcome.jobs.series.iter().skip(1).map(of).sum::<u64>() as f64
}

fn watts(outcome: &Outcome) -> f64 {
    outcome.energy.cpu_uj as f64 / 19e3
}

fn close(ours: f64, expected: f64, within: f64) {
    assert!((ours - expected).abs() <= within * expected.abs().max(1e-9), "{ours}, not {expected}");
}

#[test]
fn what_each_engine_takes_of_its_processor() {
    // CPU time of a request, at a depth that keeps the CPU busy.
    let busy = |method| {
        let mut scenario = host(threads(), 2, 1, by(method, 64));
        without_controller(&mut scenario);
        19e6 / sum(&run(&scenario), |stretch| stretch.requests)
    };
    // An interrupt also handles requests that complete during its handler.
    let (libaio, uring) = (busy(IoMethod::Libaio), busy(IoMethod::Uring));
    assert!((1_190.0..=2_090.0).contains(&libaio), "{libaio}");
    assert!((1_200.0..=2_100.0).contains(&uring), "{uring}");
    close(busy(IoMethod::Bypass), 500.0, 0.01);
    // Of the two threads of polled io_uring, the kernel thread has more work.
    close(busy(IoMethod::UringPolled), INTO + 300.0, 0.01);
    // A helper thread alone: the call, the hand-over, the drive, the exit from light sleep, the interrupt and the switch back.
    let helped = run(&host(threads(), 2, 1, by(IoMethod::PosixAio, 1)));
    close(helped.jobs.reads.mean(), INTO + 1_500.0 + AWAY + 500.0 + 900.0 + 300.0 + 800.0, 1e-3);
}

#[test]
fn as_many_requests_are_in_progress_as_the_depth() {
    for method in [IoMethod::Libaio, IoMethod::Uring, IoMethod::UringPolled, IoMethod::PosixAio, IoMethod::Bypass] {
        for depth in [4, 32] {
            let outcome = run(&host(threads(), 2, 1, by(method, depth)));
            // Little: rate x latency. Waits for helpers and controllers count; the program's time between two requests does not.
            let rate = sum(&outcome, |stretch| stretch.requests) / 19e6;
            let in_progress = rate * outcome.jobs.reads.mean();
            close(in_progress, f64::from(depth), 0.1);
        }
    }
}

#[test]
fn a_core_with_two_threads_draws_power_once() {
    let outcome = |jobs| run(&host(threads(), 2, jobs, by(IoMethod::Classic, 1)));
    let (two, four) = (outcome(2), outcome(4));
    let awake = |outcome: &Outcome| sum(outcome, |stretch| stretch.work_ns + stretch.look_ns);
    close(awake(&two), 2.0 * 19e6, 1e-3);
    close(awake(&four), 4.0 * 19e6, 1e-3);
    // Four threads work a larger share of the time than two, and two always working cores draw 244 W.
    assert!(watts(&two) < watts(&four) && watts(&four) < 244.0, "{} {}", watts(&two), watts(&four));
    // A slow drive: all cores are in light sleep nearly all the time.
    let slow = |jobs| {
        let mut scenario = host(threads(), 2, jobs, Job::default());
        scenario.drives[0].front.read_latency_ns = 150_000;
        watts(&run(&scenario))
    };
    assert!(slow(4) - slow(2) < 0.05 * slow(2), "{} W, then {} W", slow(2), slow(4));
}

#[test]
fn cores_draw_for_the_time_out_of_the_deep_state() {
    let watts = |read_latency_ns| {
        let mut scenario = host(Topology::flat(2).unwrap(), 2, 1, Job::default());
        scenario.drives[0].front.read_latency_ns = read_latency_ns;
        let outcome = run(&scenario);
        (watts(&outcome), 19e6 / sum(&outcome, |stretch| stretch.requests))
    };
    let work = 100.0 + INTO + 800.0 + 900.0 + 300.0 + 800.0;
    // The package draws half of shallow minus deep, each of the two cores a quarter: 41 W and 20.5 W; a working core draws 55 W more.
    let expected = |not_deep: f64, cycle: f64| 52.0 + (41.0 + 20.5) * not_deep / cycle + 55.0 * work / cycle;
    let (light, cycle) = watts(150_000);
    close(light, expected(cycle, cycle), 2e-3);
    // In deep sleep except for its work and the exit.
    let (deep, cycle) = watts(400_000);
    close(cycle, 100.0 + INTO + 4_096.0 + 400_000.0 + 30_000.0 + 900.0 + 300.0 + 800.0, 0.03);
    close(deep, expected(work + 30_000.0, cycle), 0.01);
}

#[test]
fn siblings_slow_each_other_down_and_others_do_not() {
    let requests = |jobs| {
        let mut scenario = host(threads(), 2, jobs, by(IoMethod::Bypass, 64));
        without_controller(&mut scenario);
        scenario.machine.jobs.sibling_slows_ppm = 500_000;
        sum(&run(&scenario), |stretch| stretch.requests)
    };
    let one = requests(1);
    close(requests(2), 2.0 * one, 0.01);
    close(requests(3), one + 2.0 * one / 1.5, 0.01);
    close(requests(4), 4.0 * one / 1.5, 0.01);
}

#[test]
fn an_interrupt_takes_further_completions_with_it() {
    let interrupts = |depth| {
        let mut scenario = host(Topology::flat(1).unwrap(), 1, 1, by(IoMethod::Uring, depth));
        without_controller(&mut scenario);
        scenario.drives[0].front.read_latency_ns = 50_000;
        let outcome = run(&scenario);
        sum(&outcome, |stretch| stretch.interrupts) / sum(&outcome, |stretch| stretch.requests)
    };
    close(interrupts(1), 1.0, 1e-9);
    // They are submitted 900 ns apart without interruption, and an interrupt takes 1,200 ns.
    assert!((0.5..0.9).contains(&interrupts(8)), "{}", interrupts(8));
}

#[test]
fn a_lock_is_held_as_long_as_its_scheduler_says() {
    for (scheduler, hold_ns) in
        [(Scheduler::None, 1_000.0), (Scheduler::Kyber, 2_000.0), (Scheduler::Deadline, 3_000.0)]
    {
        let mut scenario = host(Topology::flat(16).unwrap(), 16, 16, Job { scheduler, ..Job::default() });
        scenario.drives[0].controller.as_mut().unwrap().bytes_per_s = 1 << 50;
        let outcome = run(&scenario);
        let requests = sum(&outcome, |stretch| stretch.requests);
        close(19e6 / requests, hold_ns, 0.02);
        // Fifteen spin for the lock, which counts as work.
        let waits = if scheduler == Scheduler::None { 0.0 } else { hold_ns };
        let work = sum(&outcome, |stretch| stretch.work_ns) / requests;
        assert!(work >= 100.0 + INTO + 1_600.0 + 300.0 + waits, "{work}");
    }
}

/// The same throughput with requests in the scheduler's queue: no job works longer than the lock is held for its own request.
#[test]
fn a_request_queued_in_the_scheduler_uses_no_cpu() {
    let job = Job { scheduler: Scheduler::Kyber, ..Job::default() };
    let mut scenario = host(Topology::flat(16).unwrap(), 16, 16, job);
    scenario.drives[0].controller.as_mut().unwrap().bytes_per_s = 1 << 50;
    let spins = run(&scenario);
    scenario.machine.jobs.lock_sleeps = true;
    let sleeps = run(&scenario);
    let requests = |outcome: &Outcome| sum(outcome, |stretch| stretch.requests);
    close(requests(&sleeps), requests(&spins), 0.01);
    let work = sum(&sleeps, |stretch| stretch.work_ns) / requests(&sleeps);
    close(work, 100.0 + INTO + 2_000.0 + 800.0 + 900.0 + 300.0 + 800.0, 0.02);
    assert!(sum(&spins, |stretch| stretch.work_ns) > 3.0 * sum(&sleeps, |stretch| stretch.work_ns));
}

#[test]
fn rests_begin_when_a_burst_is_back() {
    let rests = Job { think_after: 3, think_ns: MS, ..by(IoMethod::Classic, 1) };
    let outcome = run(&host(threads(), 2, 1, rests));
    let each = 100.0 + INTO + AWAY + 40.0 + 300.0;
    let requests = sum(&outcome, |stretch| stretch.requests);
    close(requests, 3.0 * 19e6 / (3.0 * each + 1e6), 0.06);
    // Spinning is a part of the think time, as in fio.
    let spins = run(&host(threads(), 2, 1, Job { think_spin_ns: MS / 4, ..rests }));
    close(sum(&spins, |stretch| stretch.requests), requests, 1e-9);
    assert!(sum(&spins, |stretch| stretch.work_ns) > 0.2 * 19e6);
}

#[test]
fn a_lower_drive_state_limits_bandwidth() {
    for (writes_ppm, rate) in [(0, 100e6), (1_000_000, 50e6)] {
        let mut scenario = host(threads(), 2, 1, Job { writes_ppm, ..by(IoMethod::Uring, 16) });
        scenario.drives[0].cache.as_mut().unwrap().buffer_bytes = 0;
        scenario.scheduled.as_mut().unwrap().drive_state = 1;
        let outcome = run(&scenario);
        close(sum(&outcome, |stretch| stretch.read_bytes + stretch.written_bytes) / 19e-3, rate, 0.15);
    }
}

#[test]
fn latency_and_writes_count_in_the_measured_time() {
    let mut scenario = host(threads(), 2, 1, Job { writes_ppm: 250_000, ..by(IoMethod::Classic, 1) });
    scenario.warm_up_ns = 10 * MS;
    let outcome = run(&scenario);
    let (reads, writes) = (outcome.jobs.reads.count() as f64, outcome.jobs.writes.count() as f64);
    let all = sum(&outcome, |stretch| stretch.requests);
    close((reads + writes) / all, 10.0 / 19.0, 0.01);
    close(writes / (reads + writes), 0.25, 0.15);
    close(sum(&outcome, |stretch| stretch.written_bytes) / all / 4_096.0, writes / (reads + writes), 0.1);
}

/// A drive with zero write time, as for a paper without writes.
#[test]
fn reads_alone_are_simulated_in_windows_of_reads() {
    let mut scenario = host(Topology::flat(1).unwrap(), 1, 1, Job::default());
    scenario.drives[0].front.write_latency_ns = 0;
    scenario.drives[0].controller.as_mut().unwrap().random_ppm = 1_000_000;
    let outcome = run(&scenario);
    close(outcome.jobs.reads.mean(), INTO + AWAY + 500.0 + 900.0 + 300.0 + 800.0, 0.05);
}
