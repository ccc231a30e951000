//! SANDMAN in a running server: cores sleep without load and wake up for a burst, a stable load causes few moves, and an idle
//! server uses almost no CPU time.
//!
//! Eight reactors share the CPUs, with virtual siblings, and yield between loops: events are asserted, their timing is only
//! printed. One test at a time, because each needs the machine. `PILOTLIGHT_LIVE_SECONDS` sets the duration of the stable load
//! (default 6 s; 60 for the promise).

#[path = "support/servers.rs"]
mod servers;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pilotlight_host::load::{LoadSpec, OpenLoop, Report, run};
use pilotlight_host::schedule::{Process, Schedule};
use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, QueueSpec};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::io;
use pilotlight_nvmf_target::{Server, ServerConfig};
use pilotlight_plant::{CoreId, CoreState, Topology};
use pilotlight_reactor::{Idle, RuntimeOptions, RuntimeStats};
use pilotlight_storage::BackendSpec;

const NQN: &str = "nqn.2026-01.test:live";
const CORES: u16 = 8;
const TIMEOUT: Duration = Duration::from_secs(30);

/// One test at a time.
static MACHINE: Mutex<()> = Mutex::new(());

struct Live {
    server: Server,
    address: SocketAddr,
}

fn serve(cores: u16, settings: &[(&str, &str)]) -> Live {
    let namespace = servers::namespace(1, BackendSpec::Memory(64 << 20));
    let subsystem = servers::subsystem(NQN, vec![namespace]);
    let config = ServerConfig { io_threads: u32::from(cores), ..servers::config(vec![subsystem]) };
    let mut options = RuntimeOptions::new(vec![None; usize::from(cores)], Idle::Yield);
    options.topology = Topology::paired(cores).expect("cores");
    let server = servers::start_on(config, options);
    let settings = [&[("guards", "printed")], settings].concat();
    server.set_policy(pilotlight_policy::build("sandman", &settings).expect("settings")).expect("a policy");
    let address = server.local_addrs()[0];
    Live { server, address }
}

/// Settings for reactors that share CPUs, whose threads poll every 1 ms and irregularly instead of every 10 us: a surge needs few
/// ticks, and the coarse interval is short.
const QUICK: [(&str, &str); 5] = [
    ("spread", "deviation"),
    ("min_requests", "3"),
    ("exempt_alone", "true"),
    ("fine_interval", "1ms"),
    ("coarse_interval", "100ms"),
];
/// The paper's coarse interval.
const STEADY: &[(&str, &str)] = QUICK.split_at(4).0;

impl Live {
    fn options(&self) -> ConnectOptions {
        ConnectOptions::new(self.address, NQN)
    }

    fn stats(&self) -> RuntimeStats {
        self.server.stats().runtime
    }

    fn load(&self, spec: &LoadSpec, stop: &AtomicBool) -> Report {
        let report = run(&self.options(), spec, stop, &mut |_| {}).expect("the load runs");
        assert!(report.is_clean(), "{:?}", report.faults);
        report
    }

    fn asleep(&self) -> Vec<CoreId> {
        let stats = self.stats();
        let asleep = |core: &u16| stats.reactors[usize::from(*core)].state != CoreState::Awake;
        (0..CORES).filter(asleep).map(CoreId).collect()
    }

    /// An I/O queue of a host that keeps itself alive for `kato_ms`.
    fn queue(&self, kato_ms: u32) -> (Controller, Connection) {
        let controller = Controller::connect(ConnectOptions { kato_ms, ..self.options() }).expect("a controller");
        let spec = QueueSpec { qid: 1, depth: 4, max_io: 4096, buffers: Buffers::PerCommand };
        let queue = controller.open_queue(&spec).expect("an I/O queue");
        (controller, queue)
    }
}

fn steady(rate_iops: f64, seconds: f64) -> LoadSpec {
    LoadSpec {
        depth: 16,
        jobs: CORES,
        runtime_ns: Some((seconds * 1e9) as u64),
        open: Some(OpenLoop { schedule: Schedule::constant(rate_iops).expect("a rate"), process: Process::Linear }),
        yield_when_idle: true,
        ..LoadSpec::default()
    }
}

/// Sleep of each core as a share of the time between two readings.
fn shares(before: &RuntimeStats, after: &RuntimeStats, elapsed: Duration) -> Vec<f64> {
    let asleep = |stats: &RuntimeStats, core: usize| stats.reactors[core].asleep.iter().map(|s| s.ns).sum::<u64>();
    let share = |core| (asleep(after, core) - asleep(before, core)) as f64 / elapsed.as_nanos() as f64;
    (0..before.reactors.len()).map(share).collect()
}

#[test]
fn workers_sleep_at_low_load_and_all_cores_without_load() {
    let _alone = MACHINE.lock();
    // Surges are disabled: on a busy machine requests arrive in clusters, which look like a surge.
    let live = serve(CORES, &[&QUICK[..], &[("min_requests", "4096")]].concat());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| live.load(&steady(400.0, 60.0), &stop));
        servers::eventually("sleep of all workers", || live.asleep().len() >= usize::from(CORES - 1));
        let (before, began) = (live.stats(), Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        let shares = shares(&before, &live.stats(), began.elapsed());
        stop.store(true, Relaxed);
        println!("asleep under 400 IOPS: {shares:.3?}");
        assert!(shares[1..].iter().all(|&share| share >= 0.9), "{shares:?}");
        assert!(load.join().expect("no panic").total.ios > 0);
    });
    servers::eventually("sleep of the whole server", || live.asleep().len() == usize::from(CORES));
    let (before, began) = (live.stats(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let shares = shares(&before, &live.stats(), began.elapsed());
    println!("asleep without load: {shares:.3?}");
    assert!(shares.iter().all(|&share| share >= 0.9), "{shares:?}");
}

#[test]
fn a_burst_wakes_workers_within_a_bounded_number_of_ticks() {
    const TICKS: u64 = 1_000;
    let _alone = MACHINE.lock();
    let live = serve(CORES, &QUICK);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Light load keeps the main core polling, so that there are ticks to count.
        let light = scope.spawn(|| live.load(&steady(400.0, 60.0), &stop));
        servers::eventually("sleep of all workers", || live.asleep().len() >= usize::from(CORES - 1));
        let before = live.stats().director;
        // Longer than the timeout: without a limit the load ends after one pass through the namespace.
        let runtime_ns = Some((2 * TIMEOUT).as_nanos() as u64);
        let burst = LoadSpec { depth: 32, jobs: CORES, runtime_ns, yield_when_idle: true, ..LoadSpec::default() };
        let burst = scope.spawn({
            let (live, stop) = (&live, &stop);
            move || live.load(&burst, stop)
        });
        servers::eventually("the connections of the burst", || live.server.stats().totals.connections >= 18);
        let first = live.stats().director;
        servers::eventually("workers awake", || live.asleep().len() < usize::from(CORES) - 4);
        let awake = live.stats().director;
        println!(
            "a burst: {} ticks from its last connection until four workers were awake ({} since the light load); {} moves",
            awake.ticks - first.ticks,
            awake.ticks - before.ticks,
            awake.moves - before.moves
        );
        assert!(awake.ticks - first.ticks <= TICKS, "{} ticks", awake.ticks - first.ticks);
        stop.store(true, Relaxed);
        light.join().expect("no panic");
        burst.join().expect("no panic");
    });
    servers::eventually("sleep again", || live.asleep().len() == usize::from(CORES));
}

#[test]
fn siblings_sleep_together() {
    let _alone = MACHINE.lock();
    let live = serve(CORES, &QUICK);
    let topology = Topology::paired(CORES).expect("cores");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| live.load(&steady(20_000.0, 60.0), &stop));
        // At least one core sleeps, and at most one pair without the main core is half awake.
        let joined = || {
            let asleep = live.asleep();
            let halves = asleep.iter().filter(|&&core| topology.sibling(core).is_some_and(|s| !asleep.contains(&s)));
            let without_main = halves.filter(|core| core.index() > 1).count();
            !asleep.is_empty() && without_main <= 1
        };
        servers::eventually("sleep of whole pairs", joined);
        stop.store(true, Relaxed);
        load.join().expect("no panic");
    });
}

#[test]
fn a_stable_load_causes_few_moves() {
    // Two moves for each thread and coarse interval: reactors that share CPUs poll irregularly, which looks like load.
    const MOVES_A_MINUTE: f64 = 2.0 * 60.0 * CORES as f64;
    let _alone = MACHINE.lock();
    let seconds = std::env::var("PILOTLIGHT_LIVE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6.0);
    let live = serve(CORES, STEADY);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| live.load(&steady(4_000.0, seconds + 3.0), &stop));
        std::thread::sleep(Duration::from_secs(3)); // the first consolidation, and a second one
        let (before, began) = (live.stats().director, Instant::now());
        load.join().expect("no panic");
        let a_minute = (live.stats().director.moves - before.moves) as f64 * 60.0 / began.elapsed().as_secs_f64();
        println!("stable load of 4,000 IOPS for {seconds} s: {a_minute:.0} moves a minute (bound {MOVES_A_MINUTE})");
        assert!(a_minute <= MOVES_A_MINUTE, "{a_minute} moves a minute");
    });
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn an_idle_server_with_a_hundred_hosts_uses_almost_no_cpu_time() {
    const KATO_MS: u32 = 2_000;
    const PAUSE: Duration = Duration::from_millis(9);
    const WATCHED: Duration = Duration::from_secs(4);
    let _alone = MACHINE.lock();
    let live = serve(CORES, &QUICK);
    let mut hosts: Vec<_> = (0..100).map(|_| live.queue(KATO_MS)).collect();
    servers::eventually("sleep of the whole server", || live.asleep().len() == usize::from(CORES));
    let cpu_ns = || live.stats().reactors.iter().map(|reactor| reactor.cpu_ns).sum::<u64>();
    let (cpu_before, began) = (cpu_ns(), Instant::now());
    let mut kept = 0;
    while began.elapsed() < WATCHED {
        for (controller, _) in &mut hosts {
            controller.keep_alive().expect("a response");
            kept += 1;
            // Absolute times: a hundred late pauses would exceed the keep-alive timeout.
            std::thread::sleep((PAUSE * kept).saturating_sub(began.elapsed()));
        }
    }
    let share = (cpu_ns() - cpu_before) as f64 / began.elapsed().as_nanos() as f64;
    println!("100 hosts, {kept} keep-alives in {:.1?}: {:.3} % of one core", began.elapsed(), 100.0 * share);
    // A polling server uses 100 %. The promise is 1 %; the cost of a wake-up depends on the machine (PROMISES.md).
    assert!(share < 0.05, "{:.3} % of one core", 100.0 * share);
    // A silent host is disconnected although no core polls.
    let connections = || live.server.stats().totals.connections;
    let before = connections();
    let (mut silent, began) = (hosts.pop().expect("a host"), Instant::now());
    servers::eventually("the end of the silent host", || {
        hosts.iter_mut().for_each(|(controller, _)| controller.keep_alive().expect("a response"));
        connections() < before
    });
    println!("a silent host (KATO {KATO_MS} ms) was disconnected after {:.2?}", began.elapsed());
    assert!(silent.0.keep_alive().is_err(), "its connection is closed");
}

#[test]
fn the_first_request_after_an_idle_time_completes() {
    let _alone = MACHINE.lock();
    let live = serve(CORES, &QUICK);
    let (_controller, mut queue) = live.queue(0);
    let mut latencies = Vec::new();
    for _ in 0..5 {
        servers::eventually("sleep of the whole server", || live.asleep().len() == usize::from(CORES));
        std::thread::sleep(Duration::from_secs(1));
        let began = Instant::now();
        queue.execute("a read", Sqe::block_io(io::READ, 1, 0, 1), &[], &mut [0; 4096]).expect("it succeeds");
        latencies.push(began.elapsed());
    }
    latencies.sort_unstable();
    println!("first read after one idle second: {latencies:?}");
}
