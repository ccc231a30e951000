//! Latencies of the live target include sleep of its core.

#[path = "support/servers.rs"]
mod servers;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pilotlight_conformance::latency::{Served, a_rest_is_part_of_the_latency};
use pilotlight_conformance::script::Board;
use pilotlight_host::ConnectOptions;
use pilotlight_host::load::{LoadSpec, run};
use pilotlight_nvmf_target::{Server, ServerConfig};
use pilotlight_plant::{Policy, ReadingId};
use pilotlight_storage::BackendSpec;

const NQN: &str = "nqn.2026-01.test:latency-conformance";
const TIMEOUT: Duration = Duration::from_secs(120);

/// A server with one reactor on shared CPUs.
struct Live;

fn server() -> Server {
    let backend = BackendSpec::Memory(16 << 20);
    let namespaces = vec![servers::namespace(1, backend)];
    let subsystem = servers::subsystem(NQN, namespaces);
    let listeners = vec![(Ipv4Addr::LOCALHOST, 0).into()];
    let config = ServerConfig { listeners, subsystems: vec![subsystem], io_threads: 1, ..ServerConfig::default() };
    servers::start(config, 1)
}

/// Reads one block at a time until `stop` is set.
fn load(server: &Server, stop: &AtomicBool) {
    let mut options = ConnectOptions::new(server.local_addrs()[0], NQN);
    options.timeout_ms = TIMEOUT.as_millis() as u64;
    let spec = LoadSpec {
        jobs: 1,
        depth: 1,
        read_percent: 100,
        yield_when_idle: true,
        timeout_ms: TIMEOUT.as_millis() as u64,
        runtime_ns: Some(10 * TIMEOUT.as_nanos() as u64),
        ..LoadSpec::default()
    };
    let report = run(&options, &spec, stop, &mut |_| {}).expect("the run ends well");
    assert!(report.is_clean(), "{:?}", report.faults);
}

impl Served for Live {
    fn interval_ns(&self) -> u64 {
        100_000_000
    }

    /// The machine has no sources. The first are mean, median and p99 of the server.
    fn median(&self) -> ReadingId {
        ReadingId(1)
    }

    fn rest_ns(&self) -> u32 {
        1_000_000
    }

    fn is_alone(&self) -> bool {
        false
    }

    fn run(&mut self, policy: Box<dyn Policy>, board: &Board) {
        let (server, stop) = (server(), AtomicBool::new(false));
        server.set_policy(policy).expect("it needs nothing");
        std::thread::scope(|scope| {
            let load = scope.spawn(|| load(&server, &stop));
            let until = Instant::now() + TIMEOUT;
            while !board.is_done() && Instant::now() < until && !load.is_finished() {
                std::thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Relaxed);
            load.join().expect("no panic");
        });
        server.stop(TIMEOUT).expect("it stops");
    }
}

#[test]
fn latency_includes_sleep_of_the_core() {
    a_rest_is_part_of_the_latency(&mut Live);
}
