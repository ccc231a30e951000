//! Moves of I/O threads under verified load, with requests, PDUs and sends in progress. The data stays correct, and the previous
//! cores sleep at once.
//!
//! The target has two I/O threads, a file (O_DIRECT, Linux AIO) and a backend that completes late and out of order. The hosts send
//! PDUs in pieces and have small socket buffers. The I/O threads count operations in progress at each move. The hosts verify all
//! completions and data.
//!
//! A load runs for `PILOTLIGHT_MOVES_SECONDS` (default 1) and until there were enough moves. One test runs at a time.

#[path = "moves/counter.rs"]
mod counter;
#[path = "moves/park.rs"]
mod park;
#[path = "moves/reserve.rs"]
mod reserve;
#[path = "support/servers.rs"]
mod servers;
#[path = "moves/shuttle.rs"]
mod shuttle;

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use park::ParkWorkers;
use pilotlight_host::load::{LoadSpec, OpenLoop, Report, run};
use pilotlight_host::schedule::{Process, Schedule};
use pilotlight_host::{ConnectOptions, SocketLimits};
use pilotlight_nvme::Status;
use pilotlight_nvme::pdu::Digests;
use pilotlight_nvmf_target::Moves;
use pilotlight_nvmf_target::{NamespaceConfig, Server, ServerConfig};
use pilotlight_plant::{Goals, Policy, Tolerance};
use pilotlight_reactor::{Idle, RuntimeOptions};
use pilotlight_storage::{
    Backend, DelayBackend, Delays, FileBackend, FileOptions, MemoryBackend, MemoryBudget, OpenError,
};
use shuttle::Shuttle;

const NQN: &str = "nqn.2026-01.test:moves";
const BLOCK: u32 = 4096;
const BYTES: u64 = 16 << 20;
/// The two namespaces.
const FILE: u32 = 1;
const LATE: u32 = 2;
/// Minimum number of moves with each kind of operation in progress.
const MIN_MOVES: u64 = 1_000;
/// Timeout, long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Time between two policy changes.
const CHANGE: Duration = Duration::from_millis(100);

/// One test at a time.
static MACHINE: Mutex<()> = Mutex::new(());

/// Minimum duration of a load.
fn duration() -> Duration {
    Duration::from_secs(std::env::var("PILOTLIGHT_MOVES_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1))
}

/// The error of direct I/O in `dir`, if it is not supported.
fn direct_io_error(dir: &Path) -> Option<std::io::Error> {
    let mut open = std::fs::OpenOptions::new();
    open.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
    open.open(dir.join("probe")).err()
}

fn file(path: &Path) -> Result<Arc<dyn Backend>, OpenError> {
    let options = FileOptions { path: path.to_owned(), block_size: BLOCK, size: Some(BYTES), is_read_only: false };
    Ok(Arc::new(FileBackend::open(&options)?))
}

fn late() -> Arc<dyn Backend> {
    let budget = Arc::new(MemoryBudget::unlimited());
    let memory = MemoryBackend::new(BLOCK, BYTES / u64::from(BLOCK), budget).expect("memory");
    let delays = Delays { shortest_ns: 10_000, longest_ns: 1_000_000, seed: 1 };
    Arc::new(DelayBackend::new(Arc::new(memory), delays))
}

/// A main core, two workers, and two I/O threads.
fn start(path: &Path) -> Server {
    let spec: pilotlight_storage::BackendSpec = "null:4KiB".parse().expect("a backend"); // not opened
    let namespace = |nsid| NamespaceConfig::new(nsid, spec.clone(), BLOCK);
    let subsystem = servers::subsystem(NQN, vec![namespace(FILE), namespace(LATE)]);
    let config = ServerConfig { io_threads: 2, ..servers::config(vec![subsystem]) };
    let path = path.to_owned();
    let opener = move |ns: &NamespaceConfig| if ns.nsid == FILE { file(&path) } else { Ok(late()) };
    let options = RuntimeOptions::new(vec![None; 3], Idle::Yield);
    let server = Server::start_with(config, options, Box::new(opener)).expect("the server starts");
    server.record_moves();
    server
}

fn host(server: &Server, nsid: u32) -> ConnectOptions {
    let mut options = ConnectOptions::new(server.local_addrs()[0], NQN);
    options.hostid = [nsid as u8; 16];
    options
}

/// Loads a namespace until `stop`, on a separate OS thread.
fn load(server: &Server, nsid: u32, stop: &Arc<AtomicBool>) -> JoinHandle<Report> {
    let mut options = host(server, nsid);
    options.socket_limits = SocketLimits {
        send_buffer: Some(8192),
        receive_buffer: Some(8192),
        segment: Some(1400),
        piece: Some(if nsid == FILE { 3000 } else { 12_000 }),
    };
    options.handshake.max_r2t = 3;
    options.handshake.digests = Digests { header: nsid == FILE, data: nsid == FILE };
    options.disable_sq_flow = nsid == FILE;
    let spec = LoadSpec {
        nsid,
        read_percent: if nsid == FILE { 50 } else { 70 },
        trim_percent: 5,
        flush_every: 100,
        verify: true,
        // More data than a socket accepts.
        block_bytes: if nsid == FILE { 16_384 } else { 131_072 },
        depth: if nsid == FILE { 16 } else { 32 },
        jobs: 2,
        runtime_ns: Some(u64::MAX / 4), // until it is stopped
        timeout_ms: 120_000,            // the machine may be busy
        yield_when_idle: true,
        ..LoadSpec::default()
    };
    let stop = Arc::clone(stop);
    std::thread::spawn(move || run(&options, &spec, &stop, &mut |_| {}).expect("no connection is lost"))
}

fn moves(server: &Server) -> Moves {
    server.stats().threads.into_iter().map(|thread| thread.moves).fold(Moves::default(), |a, b| a + b)
}

fn print_moves(moves: &Moves, reports: &[Report]) {
    let with = moves.with;
    println!(
        "{} moves: {} with a request in a backend, {} with a PDU in part, {} with an R2T outstanding, {} with an unfinished \
         send; a move took at most {:.1} us",
        moves.moves,
        with.in_backends,
        with.partial_pdus,
        with.open_r2ts,
        with.unfinished_sends,
        moves.longest_gap_ns as f64 / 1e3
    );
    for report in reports {
        println!("{report}");
    }
}

/// Loads both namespaces until there were `enough` moves, and calls `disturb` repeatedly. All requests must succeed with correct data.
fn under_load(name: &str, disturb: impl Fn(&Server), enough: impl Fn(&Moves) -> bool) {
    let _alone = MACHINE.lock();
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    if let Some(error) = direct_io_error(dir.path()) {
        println!("SKIPPED {name}: {} has no O_DIRECT ({error})", dir.path().display());
        return;
    }
    let server = start(&dir.path().join("blocks"));
    let (stop, begin) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let loads = [FILE, LATE].map(|nsid| load(&server, nsid, &stop));
    while begin.elapsed() < duration() || !enough(&moves(&server)) {
        assert!(begin.elapsed() < TIMEOUT + duration(), "{name}: too few moves: {:?}", moves(&server));
        assert!(!loads.iter().any(JoinHandle::is_finished), "{name}: a load ended early");
        disturb(&server);
        std::thread::sleep(CHANGE);
    }
    stop.store(true, Relaxed);
    let reports = loads.map(|load| load.join().expect("the load ends"));
    let moves = moves(&server);
    server.stop(Duration::from_secs(20)).expect("the server stops");
    println!("{name}:");
    print_moves(&moves, &reports);
    for report in &reports {
        assert!(report.is_clean(), "{report}");
        assert!(report.verify.is_some_and(|verify| verify.blocks_read_back > 100), "{report}");
    }
}

#[test]
fn moves_do_not_disturb_a_verified_load() {
    let set = AtomicBool::new(false);
    let shuttle = |server: &Server| {
        if !set.swap(true, Relaxed) {
            server.set_policy(Box::new(Shuttle::new())).expect("a supported policy");
        }
    };
    under_load("moved back and forth", shuttle, |Moves { with, .. }| {
        [with.in_backends, with.partial_pdus, with.open_r2ts, with.unfinished_sends]
            .iter()
            .all(|&moves| moves >= MIN_MOVES)
    });
}

/// Each load's host holds a reservation, so that each of its requests is checked; writes of another host would be found in the data.
#[test]
fn reservations_hold_while_threads_move() {
    let set = AtomicBool::new(false);
    let disturb = |server: &Server| {
        for nsid in [FILE, LATE] {
            if !set.load(Relaxed) {
                reserve::reserve(&host(server, nsid), nsid).expect("nothing is reserved yet");
            }
            let other =
                ConnectOptions { hostid: [9; 16], timeout_ms: TIMEOUT.as_millis() as u64, ..host(server, nsid) };
            let status = reserve::write(&other, nsid).expect("an answer");
            assert_eq!(status, Status::RESERVATION_CONFLICT.dnr(), "namespace {nsid}");
        }
        if !set.swap(true, Relaxed) {
            server.set_policy(Box::new(Shuttle::new())).expect("a supported policy");
        }
    };
    under_load("with reservations", disturb, |moves| moves.with.in_backends >= MIN_MOVES);
}

/// Three hosts of a namespace, on two I/O threads, whose requests are in the backends when the threads move.
#[test]
fn fused_operations_are_atomic_across_queues_and_moves() {
    const HOSTS: u8 = 3;
    let _alone = MACHINE.lock();
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    if let Some(error) = direct_io_error(dir.path()) {
        println!("SKIPPED fused operations: {} has no O_DIRECT ({error})", dir.path().display());
        return;
    }
    let server = start(&dir.path().join("blocks"));
    server.set_policy(Box::new(Shuttle::new())).expect("a supported policy");
    let (stop, begin) = (AtomicBool::new(false), Instant::now());
    for nsid in [FILE, LATE] {
        let before = moves(&server).with.in_backends;
        stop.store(false, Relaxed);
        let counts: Vec<counter::Counts> = std::thread::scope(|scope| {
            let stopping = Stop(&stop);
            let hosts: Vec<_> = (1..=HOSTS)
                .map(|number| {
                    let timeout_ms = TIMEOUT.as_millis() as u64;
                    let options = ConnectOptions { hostid: [number; 16], timeout_ms, ..host(&server, nsid) };
                    let stop = &stop;
                    scope.spawn(move || counter::increment(&options, nsid, stop).expect("no connection is lost"))
                })
                .collect();
            while moves(&server).with.in_backends < before + MIN_MOVES {
                assert!(begin.elapsed() < TIMEOUT, "too few moves: {:?}", moves(&server));
                assert!(!hosts.iter().any(|host| host.is_finished()), "a host ended early");
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(stopping);
            hosts.into_iter().map(|host| host.join().expect("a host ends")).collect()
        });
        println!("namespace {nsid}: {counts:?}");
        let value = counter::value(&host(&server, nsid), nsid).expect("the counter");
        assert_eq!(value, counts.iter().map(|counts| counts.incremented).sum::<u64>(), "namespace {nsid}");
        assert!(counts.iter().any(|counts| counts.lost > 0), "the hosts never met: {counts:?}");
    }
    server.stop(Duration::from_secs(20)).expect("the server stops");
}

/// Number of ended sleeps of worker cores.
fn sleeps(server: &Server) -> u64 {
    let stats = server.stats().runtime;
    stats.reactors[1..].iter().flat_map(|reactor| &reactor.asleep).map(|sleep| sleep.wakes).sum()
}

#[test]
fn sleep_and_wake_up_of_cores_do_not_disturb_a_verified_load() {
    let (set, slept) = (AtomicBool::new(false), AtomicU64::new(0));
    let least = MIN_MOVES / 10;
    let park = |server: &Server| {
        if !set.swap(true, Relaxed) {
            server.set_policy(Box::new(ParkWorkers::default())).expect("a supported policy");
        }
        slept.store(sleeps(server), Relaxed);
    };
    under_load("cores sleep and wake up", park, |moves| moves.moves > least && slept.load(Relaxed) > least);
    println!("{} sleeps of worker cores", slept.into_inner());
}

/// Whether the policy (`pg` or `pacer`) lets all cores be awake. Their states do not tell: cores also rest without a command.
fn is_all_awake(server: &Server) -> bool {
    let view = server.policy().map_or(Vec::new(), |(_, view)| view);
    let cores = view.iter().find(|(name, _)| *name == "cores").and_then(|(_, cores)| cores.parse().ok());
    cores == Some(server.stats().runtime.reactors.len())
}

/// Waits until all cores may be awake, or some may not.
fn wait(server: &Server, what: &str, all_awake: bool) {
    let until = Instant::now() + TIMEOUT;
    while is_all_awake(server) != all_awake {
        assert!(
            Instant::now() < until,
            "timed out after {TIMEOUT:?}: {what}; view of the policy: {:#?}",
            server.policy()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Stops a load, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// `pg` parks and unparks cores of a server that is idle in turns.
#[test]
#[ignore = "slow: .ci/run test runs it"]
fn pg_parks_and_unparks_cores_without_an_error() {
    let _alone = MACHINE.lock();
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let server = start(&dir.path().join("blocks"));
    let settings = [("interval", "5ms"), ("window", "5ms"), ("idle_after", "20ms")];
    server.set_policy(pilotlight_policy::build("pg", &settings).expect("settings")).expect("a supported policy");
    for round in 0..20 {
        wait(&server, &format!("round {round}: a core of the idle server sleeps"), false);
        let spec = LoadSpec {
            nsid: if round % 2 == 0 { FILE } else { LATE },
            read_percent: 50,
            verify: true,
            depth: 8,
            jobs: 2,
            ios: Some(1_000),
            timeout_ms: TIMEOUT.as_millis() as u64,
            yield_when_idle: true,
            ..LoadSpec::default()
        };
        let report = run(&host(&server, spec.nsid), &spec, &AtomicBool::new(false), &mut |_| {});
        let report = report.unwrap_or_else(|error| panic!("round {round}: {error}: {:#?}", server.stats()));
        assert!(report.is_clean(), "{report}");
    }
    let moves: u64 = server.stats().threads.into_iter().map(|thread| thread.moves.moves).sum();
    println!("{} sleeps of worker cores ended, {moves} moves", sleeps(&server));
    assert!(sleeps(&server) > 10 && moves > 10, "{} sleeps ended, {moves} moves", sleeps(&server));
    server.stop(TIMEOUT).expect("the server stops");
}

/// `pacer` with thresholds that no latency of a busy machine exceeds: cores sleep whenever the tolerance allows it.
fn pacer() -> Box<dyn Policy> {
    let settings = [
        ("interval", "5ms"),
        ("window", "5ms"),
        ("windows", "2"),
        ("min_requests", "1"),
        ("stable_threshold", "99%"),
        ("unstable_threshold", "100%"),
        ("burst_threshold", "100%"),
        ("busy_threshold", "100%"),
        ("use_limit", "99%"),
        ("beta", "1"),
        ("forecast", "0"),
    ];
    pilotlight_policy::build("pacer", &settings).expect("settings")
}

/// The tolerance changes between 0 and the maximum under verified load: cores sleep, and all wake up again.
#[test]
#[ignore = "slow: .ci/run test runs it"]
fn pacer_parks_and_unparks_cores_under_load_without_an_error() {
    const ROUNDS: u64 = 20;
    let _alone = MACHINE.lock();
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let server = start(&dir.path().join("blocks"));
    server.set_policy(pacer()).expect("a supported policy");
    let stop = AtomicBool::new(false);
    let load = |nsid| {
        let schedule = Schedule::constant(500.0).expect("a rate");
        let spec = LoadSpec {
            nsid,
            read_percent: 50,
            verify: true,
            depth: 8,
            jobs: 2,
            open: Some(OpenLoop { schedule, process: Process::Poisson }),
            runtime_ns: Some(u64::MAX / 4), // until it is stopped
            timeout_ms: TIMEOUT.as_millis() as u64,
            yield_when_idle: true,
            ..LoadSpec::default()
        };
        run(&host(&server, nsid), &spec, &stop, &mut |_| {}).expect("no connection is lost")
    };
    let reports = std::thread::scope(|scope| {
        let loads = [FILE, LATE].map(|nsid| scope.spawn(move || load(nsid)));
        let stopping = Stop(&stop);
        let began = Instant::now();
        let has_moved = || server.stats().threads.into_iter().any(|thread| thread.moves.moves > 0);
        // a thread that returns before its new core has polled it does not count as moved
        for round in
            (0..).take_while(|&round| round < ROUNDS || !has_moved() && began.elapsed() < Duration::from_secs(60))
        {
            for (ppm, what, all_awake) in [(u32::MAX, "a core sleeps", false), (0, "all cores are awake", true)] {
                server.set_goals(Goals { tolerances: vec![Tolerance::mean_loss(ppm)], ..Goals::default() });
                wait(&server, &format!("round {round}: {what}"), all_awake);
            }
        }
        drop(stopping);
        loads.map(|load| load.join().expect("no panic"))
    });
    let moves: u64 = server.stats().threads.into_iter().map(|thread| thread.moves.moves).sum();
    println!("{} sleeps of worker cores ended, {moves} moves", sleeps(&server));
    for report in &reports {
        println!("{report}");
        assert!(report.is_clean(), "{report}");
        assert!(report.verify.is_some_and(|verify| verify.blocks_read_back > 0), "{report}");
    }
    assert!(sleeps(&server) >= ROUNDS && moves > 0, "{} sleeps ended, {moves} moves", sleeps(&server));
    server.stop(TIMEOUT).expect("the server stops");
}

#[test]
fn policy_changes_do_not_disturb_a_verified_load() {
    let turn = AtomicUsize::new(0);
    let change = |server: &Server| {
        let sandman = |guards| {
            let settings = [("coarse_interval", "20ms"), ("guards", guards)];
            pilotlight_policy::build("sandman", &settings).expect("settings")
        };
        let policy: Box<dyn Policy> = match turn.fetch_add(1, Relaxed) % 5 {
            0 | 3 => Box::new(Shuttle::new()),
            1 => sandman("printed"),
            2 => pilotlight_policy::build("interrupt", &[]).expect("settings"),
            _ => pilotlight_policy::build("static", &[]).expect("settings"),
        };
        server.set_policy(policy).expect("a supported policy");
    };
    under_load("under changing policies", change, |moves| moves.moves > 100);
}

/// One command at a time: after a lost wake-up the load would time out, as nothing else wakes the core.
#[test]
fn no_wake_up_of_a_waiting_core_is_lost() {
    let _alone = MACHINE.lock();
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let server = start(&dir.path().join("blocks"));
    server.set_policy(pilotlight_policy::build("interrupt", &[]).expect("settings")).expect("a supported policy");
    for (nsid, depth) in [(FILE, 1), (LATE, 1), (FILE, 3), (LATE, 3)] {
        let spec = LoadSpec {
            nsid,
            read_percent: 50,
            flush_every: 20,
            verify: true,
            depth,
            ios: Some(1500),
            timeout_ms: 120_000,
            yield_when_idle: true,
            ..LoadSpec::default()
        };
        let report =
            run(&host(&server, nsid), &spec, &AtomicBool::new(false), &mut |_| {}).expect("no wake-up is lost");
        assert!(report.is_clean(), "{report}");
    }
    server.stop(Duration::from_secs(20)).expect("the server stops");
}
