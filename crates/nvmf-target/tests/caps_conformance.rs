//! Conformance of the live target's bandwidth caps.

#[path = "support/servers.rs"]
mod servers;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pilotlight_conformance::cap_suite;
use pilotlight_conformance::caps::{Admitted, Storage};
use pilotlight_conformance::script::Board;
use pilotlight_host::ConnectOptions;
use pilotlight_host::load::{LoadSpec, run};
use pilotlight_nvmf_target::{Server, ServerConfig};
use pilotlight_plant::{KnobId, Policy, ReadingId};
use pilotlight_reactor::clock;
use pilotlight_storage::BackendSpec;

const NQN: &str = "nqn.2026-01.test:caps-conformance";
const TIMEOUT: Duration = Duration::from_secs(120);
const BLOCK_BYTES: u32 = 16_384;

struct Live;

/// A namespace in memory, on two reactors that share CPUs.
fn server() -> Server {
    let backend = BackendSpec::Memory(64 << 20);
    let namespaces = vec![servers::namespace(1, backend)];
    let subsystem = servers::subsystem(NQN, namespaces);
    let listeners = vec![(Ipv4Addr::LOCALHOST, 0).into()];
    let config = ServerConfig { listeners, subsystems: vec![subsystem], io_threads: 2, ..ServerConfig::default() };
    servers::start(config, 2)
}

/// Reads until `stop` is set.
fn load(server: &Server, stop: &AtomicBool) {
    let mut options = ConnectOptions::new(server.local_addrs()[0], NQN);
    options.timeout_ms = TIMEOUT.as_millis() as u64;
    let spec = LoadSpec {
        jobs: 2,
        depth: 8,
        block_bytes: BLOCK_BYTES,
        read_percent: 100,
        yield_when_idle: true,
        timeout_ms: TIMEOUT.as_millis() as u64,
        runtime_ns: Some(10 * TIMEOUT.as_nanos() as u64),
        ..LoadSpec::default()
    };
    let report = run(&options, &spec, stop, &mut |_| {}).expect("the run ends well");
    assert!(report.is_clean(), "{:?}", report.faults);
}

fn admitted(server: &Server) -> Admitted {
    let before_ns = clock::now_ns();
    let bytes = server.stats().caps.iter().map(|cap| cap.stats.bytes).sum();
    Admitted { before_ns, after_ns: clock::now_ns(), bytes }
}

impl Storage for Live {
    fn interval_ns(&self) -> u64 {
        20_000_000
    }

    fn largest_bytes(&self) -> u64 {
        BLOCK_BYTES.into()
    }

    /// The machine has no knobs, and the namespace is the first limit.
    fn cap(&self) -> KnobId {
        KnobId(0)
    }

    /// The machine has no sources, and the server has three of its latency.
    fn rate(&self) -> ReadingId {
        ReadingId(3)
    }

    fn run(&mut self, policy: Box<dyn Policy>, board: &Board) -> Vec<Admitted> {
        let (server, stop, mut all) = (server(), AtomicBool::new(false), Vec::new());
        server.set_policy(policy).expect("it needs nothing");
        std::thread::scope(|scope| {
            let load = scope.spawn(|| load(&server, &stop));
            let until = Instant::now() + TIMEOUT;
            while !board.is_done() && Instant::now() < until && !load.is_finished() {
                all.push(admitted(&server));
                std::thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Relaxed);
            load.join().expect("no panic");
        });
        server.stop(TIMEOUT).expect("it stops");
        all
    }
}

cap_suite!(Live);
