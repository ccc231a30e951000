//! Moves that hurt if wrong: I/O threads change their home under verified load, in the middle of whatever they do, and the
//! old home sleeps at once.
//!
//! The target is the real one, sockets and all, with two I/O threads, a file (O_DIRECT, Linux AIO) and a backend that is
//! late and out of order; its hosts send PDUs in pieces and have small socket buffers. The I/O threads count for themselves
//! what was in progress when they were moved. There must be no error, no lost or doubled completion (the host would find
//! one), and every block has to hold what was written.
//!
//! `PILOTLIGHT_MOVES_SECONDS` says for how long, 10 by default.

#[path = "moves/homes.rs"]
mod homes;

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use homes::{Homes, Mover};
use pilotlight_host::load::{LoadSpec, Report, run};
use pilotlight_host::{ConnectOptions, Narrow};
use pilotlight_nvme::pdu::Digests;
use pilotlight_reactor::{Completions, IoThread};
use pilotlight_target::backend::{
    Backend, DelayBackend, Delays, FileBackend, FileOptions, MemoryBackend, MemoryBudget, OpenError, Random,
};
use pilotlight_target::moves::Moves;
use pilotlight_target::testing::Detached;
use pilotlight_target::{NamespaceConfig, ServerConfig, SubsystemConfig};

const NQN: &str = "nqn.2026-01.test:moves";
const BLOCK: u32 = 4096;
const BYTES: u64 = 16 << 20;
/// The two namespaces.
const FILE: u32 = 1;
const LATE: u32 = 2;
/// Moves with each kind of thing in progress, in ten seconds.
const LEAST: u64 = 1_000;
/// Time between two changes of how homes without work wait.
const CHANGE: Duration = Duration::from_millis(100);

fn seconds() -> u64 {
    std::env::var("PILOTLIGHT_MOVES_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10)
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

fn start(path: &Path) -> (Detached, Vec<Box<dyn IoThread>>) {
    let spec: pilotlight_target::backend::BackendSpec = "null:4KiB".parse().expect("a backend"); // never opened
    let namespace = |nsid| NamespaceConfig { nsid, backend: spec.clone(), block_size: BLOCK, uuid: None };
    let subsystem = SubsystemConfig {
        nqn: NQN.into(),
        serial: None,
        allowed_hosts: Vec::new(),
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
    let (server, threads) = Detached::start(config, &opener).expect("the server starts");
    (server, threads.into_iter().map(|thread| Box::new(thread) as Box<dyn IoThread>).collect())
}

fn host(server: &Detached, nsid: u32) -> ConnectOptions {
    let mut options = ConnectOptions::new(server.local_addrs()[0], NQN);
    options.hostid = [nsid as u8; 16];
    options
}

/// Loads a namespace for `seconds`, from an OS thread of its own.
fn load(server: &Detached, nsid: u32, seconds: u64) -> JoinHandle<Report> {
    let mut options = host(server, nsid);
    options.narrow = Narrow {
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
        runtime_ns: Some(seconds * 1_000_000_000),
        timeout_ms: 120_000, // the machine may be busy with other things
        yield_when_idle: true,
        ..LoadSpec::default()
    };
    std::thread::spawn(move || {
        run(&options, &spec, &AtomicBool::new(false), &mut |_| {}).expect("no connection is lost")
    })
}

/// Moves at random moments until the loads have ended; how homes wait changes from time to time.
fn move_under(loads: &[JoinHandle<Report>], mover: &mut impl Mover) {
    let mut random = Random::new(1);
    let (mut how, mut since) = (Completions::Poll, Instant::now());
    while loads.iter().any(|load| !load.is_finished()) {
        mover.move_all(1 + random.below(20));
        if since.elapsed() >= CHANGE {
            how = if how == Completions::Poll { Completions::Interrupt } else { Completions::Poll };
            mover.set_completions(how);
            since = Instant::now();
        }
    }
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

#[test]
fn moves_hurt_nobody() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    if let Some(error) = no_direct(dir.path()) {
        println!("SKIPPED moves under load: {} has no O_DIRECT ({error})", dir.path().display());
        return;
    }
    let seconds = seconds();
    let (mut server, threads) = start(&dir.path().join("blocks"));
    let mut homes = Homes::start(threads, Completions::Poll);
    let loads = [FILE, LATE].map(|nsid| load(&server, nsid, seconds));
    move_under(&loads, &mut homes);
    let reports = loads.map(|load| load.join().expect("the load ends"));
    let moves = server.stats().into_iter().map(|thread| thread.moves).fold(Moves::default(), |a, b| a + b);
    server.drain();
    homes.finish();
    tell(&moves, &reports);
    for report in &reports {
        assert!(report.is_clean(), "{report}");
        assert!(report.verify.is_some_and(|verify| verify.blocks_read_back > 100), "{report}");
    }
    let with = moves.with;
    let least = [with.in_backends, with.partial_pdus, with.open_r2ts, with.unfinished_sends].into_iter().min();
    assert!(least >= Some(LEAST * seconds.min(10) / 10), "too few moves of one kind: {moves:?}");
}

/// One command at a time: a wake-up that is lost is the end of the load, as nothing else wakes the home.
#[test]
fn a_home_that_waits_in_the_kernel_loses_no_wake_up() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (mut server, threads) = start(&dir.path().join("blocks"));
    let homes = Homes::start(threads, Completions::Interrupt);
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
    server.drain();
    homes.finish();
}
