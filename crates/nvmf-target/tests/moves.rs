//! Moves that hurt if wrong: a policy moves I/O threads under verified load, in the middle of whatever they do, and their
//! old homes sleep at once.
//!
//! The target is the real one, reactors, sockets and all, with two I/O threads, a file (O_DIRECT, Linux AIO) and a backend
//! that is late and out of order; its hosts send PDUs in pieces and have small socket buffers. The I/O threads count for
//! themselves what was in progress when they were moved. There must be no error, no lost or doubled completion (the host
//! would find one), and every block has to hold what was written.
//!
//! A load ends when it has run for `PILOTLIGHT_MOVES_SECONDS` (default 1) and enough has been moved. Each test wants the machine for itself.

#[path = "moves/leave.rs"]
mod leave;
#[path = "moves/shuttle.rs"]
mod shuttle;

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use leave::Leave;
use pilotlight_host::load::{LoadSpec, OpenLoop, Report, run};
use pilotlight_host::schedule::{Process, Schedule};
use pilotlight_host::{ConnectOptions, SocketLimits};
use pilotlight_nvme::pdu::Digests;
use pilotlight_nvmf_target::backend::{
    Backend, DelayBackend, Delays, FileBackend, FileOptions, MemoryBackend, MemoryBudget, OpenError,
};
use pilotlight_nvmf_target::moves::Moves;
use pilotlight_nvmf_target::{NamespaceConfig, Server, ServerConfig, SubsystemConfig};
use pilotlight_plant::{CoreState, Goals, Policy, Tolerance};
use pilotlight_reactor::{Idle, ReactorStats, RuntimeOptions};
use shuttle::Shuttle;

const NQN: &str = "nqn.2026-01.test:moves";
const BLOCK: u32 = 4096;
const BYTES: u64 = 16 << 20;
/// The two namespaces.
const FILE: u32 = 1;
const LATE: u32 = 2;
/// Moves with each kind of thing in progress.
const LEAST: u64 = 1_000;
/// How long anything may take, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(300);
/// Time between two changes of policy.
const CHANGE: Duration = Duration::from_millis(100);

/// One test at a time.
static MACHINE: Mutex<()> = Mutex::new(());

/// The shortest time of a load.
fn duration() -> Duration {
    Duration::from_secs(std::env::var("PILOTLIGHT_MOVES_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1))
}

/// Why direct transfers do not work in `dir`, if they do not.
fn no_direct(dir: &Path) -> Option<std::io::Error> {
    let mut open = std::fs::OpenOptions::new();
    open.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
    open.open(dir.join("probe")).err()
}

fn file(path: &Path) -> Result<Arc<dyn Backend>, OpenError> {
    let options = FileOptions { path: path.to_owned(), block_size: BLOCK, size: Some(BYTES) };
    Ok(Arc::new(FileBackend::open(&options)?))
}

fn late() -> Arc<dyn Backend> {
    let budget = Arc::new(MemoryBudget::unlimited());
    let memory = MemoryBackend::new(BLOCK, BYTES / u64::from(BLOCK), budget).expect("memory");
    let delays = Delays { shortest_ns: 10_000, longest_ns: 1_000_000, seed: 1 };
    Arc::new(DelayBackend::new(Arc::new(memory), delays))
}

/// A main core, and two workers for the two I/O threads to go to and fro.
fn start(path: &Path) -> Server {
    let spec: pilotlight_nvmf_target::backend::BackendSpec = "null:4KiB".parse().expect("a backend"); // never opened
    let namespace =
        |nsid| NamespaceConfig { nsid, backend: spec.clone(), block_size: BLOCK, uuid: None, hosts: Vec::new() };
    let subsystem = SubsystemConfig {
        nqn: NQN.into(),
        serial: None,
        allowed_hosts: Vec::new(),
        controller_ids: None,
        namespaces: vec![namespace(FILE), namespace(LATE)],
    };
    let config = ServerConfig {
        listeners: vec![([127, 0, 0, 1], 0).into()],
        subsystems: vec![subsystem],
        io_threads: 2,
        ..ServerConfig::default()
    };
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

/// Loads a namespace until `stop`, from an OS thread of its own.
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
        // The answers to so many long reads are more than a socket takes.
        block_bytes: if nsid == FILE { 16_384 } else { 131_072 },
        depth: if nsid == FILE { 16 } else { 32 },
        jobs: 2,
        runtime_ns: Some(u64::MAX / 4), // until it is stopped
        timeout_ms: 120_000,            // the machine may be busy with other things
        yield_when_idle: true,
        ..LoadSpec::default()
    };
    let stop = Arc::clone(stop);
    std::thread::spawn(move || run(&options, &spec, &stop, &mut |_| {}).expect("no connection is lost"))
}

fn moves(server: &Server) -> Moves {
    server.stats().threads.into_iter().map(|thread| thread.moves).fold(Moves::default(), |a, b| a + b)
}

fn tell(moves: &Moves, reports: &[Report]) {
    let with = moves.with;
    println!(
        "{} moves: {} with a request in a backend, {} with a PDU in part, {} with an R2T outstanding, {} with an unfinished \
         send; a thread was without a home for at most {:.1} us",
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

/// Loads both namespaces while `meanwhile` does something to the server, until there have been `enough` moves. No request fails, and all
/// data is right.
fn under_load(name: &str, meanwhile: impl Fn(&Server), enough: impl Fn(&Moves) -> bool) {
    let _alone = MACHINE.lock();
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    if let Some(error) = no_direct(dir.path()) {
        println!("SKIPPED {name}: {} has no O_DIRECT ({error})", dir.path().display());
        return;
    }
    let server = start(&dir.path().join("blocks"));
    let (stop, begin) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let loads = [FILE, LATE].map(|nsid| load(&server, nsid, &stop));
    while begin.elapsed() < duration() || !enough(&moves(&server)) {
        assert!(begin.elapsed() < PATIENCE + duration(), "{name}: too few moves: {:?}", moves(&server));
        assert!(!loads.iter().any(JoinHandle::is_finished), "{name}: a load has ended by itself");
        meanwhile(&server);
        std::thread::sleep(CHANGE);
    }
    stop.store(true, Relaxed);
    let reports = loads.map(|load| load.join().expect("the load ends"));
    let moves = moves(&server);
    server.stop(Duration::from_secs(20)).expect("everything is back");
    println!("{name}:");
    tell(&moves, &reports);
    for report in &reports {
        assert!(report.is_clean(), "{report}");
        assert!(report.verify.is_some_and(|verify| verify.blocks_read_back > 100), "{report}");
    }
}

#[test]
fn moves_hurt_nobody() {
    let set = AtomicBool::new(false);
    let shuttle = |server: &Server| {
        if !set.swap(true, Relaxed) {
            server.set_policy(Box::new(Shuttle::new())).expect("it needs nothing");
        }
    };
    under_load("moved to and fro", shuttle, |Moves { with, .. }| {
        [with.in_backends, with.partial_pdus, with.open_r2ts, with.unfinished_sends].iter().all(|&moves| moves >= LEAST)
    });
}

/// Sleeps of the worker cores that ended.
fn sleeps(server: &Server) -> u64 {
    let stats = server.stats().runtime;
    stats.reactors[1..].iter().flat_map(|reactor| &reactor.asleep).map(|sleep| sleep.wakes).sum()
}

#[test]
fn cores_leave_and_return_under_load_and_hurt_nobody() {
    let (set, slept) = (AtomicBool::new(false), AtomicU64::new(0));
    let least = LEAST / 10;
    let leave = |server: &Server| {
        if !set.swap(true, Relaxed) {
            server.set_policy(Box::new(Leave::default())).expect("it needs nothing");
        }
        slept.store(sleeps(server), Relaxed);
    };
    under_load("cores leave and return", leave, |moves| moves.moves > least && slept.load(Relaxed) > least);
    println!("{} sleeps of worker cores", slept.into_inner());
}

fn is_all_awake(workers: &[ReactorStats]) -> bool {
    workers.iter().all(|worker| worker.state == CoreState::Awake)
}

/// Waits until the worker cores are as wanted.
fn wait(server: &Server, what: &str, wanted: impl Fn(&[ReactorStats]) -> bool) {
    let until = Instant::now() + PATIENCE;
    while !wanted(&server.stats().runtime.reactors[1..]) {
        assert!(Instant::now() < until, "{what}: not seen; the policy sees {:#?}", server.policy());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Has a load stop, also when a test fails meanwhile.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The policy of the paper that has cores alone, on a server that is idle in turns.
#[test]
fn pg_takes_cores_and_brings_them_back_without_an_error() {
    let _alone = MACHINE.lock();
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let server = start(&dir.path().join("blocks"));
    let settings = [("interval", "5ms"), ("window", "5ms"), ("idle_after", "20ms")];
    server.set_policy(pilotlight_policy::build("pg", &settings).expect("settings")).expect("it can move I/O threads");
    for round in 0..20 {
        wait(&server, &format!("round {round}: a core leaves an idle server"), |workers| !is_all_awake(workers));
        let spec = LoadSpec {
            nsid: if round % 2 == 0 { FILE } else { LATE },
            read_percent: 50,
            verify: true,
            depth: 8,
            jobs: 2,
            ios: Some(1_000),
            timeout_ms: PATIENCE.as_millis() as u64,
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
    server.stop(PATIENCE).expect("everything is back");
}

/// `pacer` with thresholds that no latency of a busy machine exceeds: cores leave whenever the tolerance lets them.
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

/// Verified load goes on while the tolerance changes between all and nothing: cores leave, and all of them are back.
#[test]
fn pacer_takes_cores_and_brings_them_back_under_load_without_an_error() {
    const ROUNDS: u64 = 20;
    let _alone = MACHINE.lock();
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let server = start(&dir.path().join("blocks"));
    server.set_policy(pacer()).expect("it can move I/O threads");
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
            timeout_ms: PATIENCE.as_millis() as u64,
            yield_when_idle: true,
            ..LoadSpec::default()
        };
        run(&host(&server, nsid), &spec, &stop, &mut |_| {}).expect("no connection is lost")
    };
    let reports = std::thread::scope(|scope| {
        let loads = [FILE, LATE].map(|nsid| scope.spawn(move || load(nsid)));
        let stopping = Stop(&stop);
        for round in 0..ROUNDS {
            for (ppm, what, is_left) in [(u32::MAX, "a core leaves", true), (0, "all cores are back", false)] {
                server.set_goals(Goals { tolerances: vec![Tolerance::mean_loss(ppm)], ..Goals::default() });
                wait(&server, &format!("round {round}: {what}"), |workers| is_all_awake(workers) != is_left);
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
    // a thread that is back before anybody has polled it elsewhere has not moved
    assert!(sleeps(&server) >= ROUNDS && moves > 0, "{} sleeps ended, {moves} moves", sleeps(&server));
    server.stop(PATIENCE).expect("everything is back");
}

#[test]
fn policies_change_under_load_and_hurt_nobody() {
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
        server.set_policy(policy).expect("they need nothing that is not here");
    };
    under_load("under changing policies", change, |moves| moves.moves > 100);
}

/// One command at a time: a wake-up that is lost is the end of the load, as nothing else wakes the home.
#[test]
fn a_home_that_waits_in_the_kernel_loses_no_wake_up() {
    let _alone = MACHINE.lock();
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let server = start(&dir.path().join("blocks"));
    server.set_policy(pilotlight_policy::build("interrupt", &[]).expect("settings")).expect("it can wait");
    for (nsid, depth) in [(FILE, 1), (LATE, 1), (FILE, 3), (LATE, 3)] {
        let spec = LoadSpec {
            nsid,
            read_percent: 50,
            flush_every: 20,
            verify: true,
            depth,
            ios: Some(1500),
            timeout_ms: 20_000,
            yield_when_idle: true,
            ..LoadSpec::default()
        };
        let report =
            run(&host(&server, nsid), &spec, &AtomicBool::new(false), &mut |_| {}).expect("no wake-up is lost");
        assert!(report.is_clean(), "{report}");
    }
    server.stop(Duration::from_secs(20)).expect("everything is back");
}
