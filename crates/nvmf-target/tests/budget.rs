//! `pass` keeps a running server within a power budget by bandwidth caps, over loopback: the lowest priority is capped first, and
//! no cap remains without a budget.
//!
//! The sensor is simulated: its watts follow from the bytes transferred, with another slope than the policy's profile. An operator's
//! cap makes the load of each host steady, so that the test does not depend on the machine's speed.

#[path = "support/servers.rs"]
mod servers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pilotlight_host::ConnectOptions;
use pilotlight_host::load::{LoadSpec, run};
use pilotlight_nvmf_target::{Capped, Server, ServerConfig};
use pilotlight_plant::{Cost, Goals, Quantity, ReadingId, Scope, Source, Window};
use pilotlight_reactor::{Idle, ReadingBoard, RuntimeOptions, clock};
use pilotlight_storage::BackendSpec;

const NQN: &str = "nqn.2026-01.test:budget";
const TIMEOUT: Duration = Duration::from_secs(60);
/// Idle power of the server in microwatts. Load adds 1 W for 1 MB/s.
const IDLE_UW: u64 = 10_000_000;
/// Load of each host in bytes per second. The first has the lower priority.
const OFFERED: [u64; 2] = [60_000_000, 20_000_000];
/// Lowest cap of the drive in bytes per second.
const MIN_CAP: u64 = 4_000_000;

/// A drive that draws 1.15 W for 1 MB/s, and a CPU with constant power.
fn profile() -> String {
    format!(
        "name = \"test\"\ncpu.rows = [{{ power_uw = 5_000_000, cores = 1, quota_ppm = 1_000_000, limit_uw = 0, p99_interval = 1.0 }}]\n\
         others.most_uw = 5_000_000\n[ssd]\ndrives = 1\nidle_uw = 1\nread_uw = 1_150_000\nread_bytes_per_s = 1_000_000\n\
         written_uw = 1_150_000\nwritten_bytes_per_s = 1_000_000\nfloor_bytes_per_s = {MIN_CAP}\n"
    )
}

fn server(board: &Arc<ReadingBoard>) -> Server {
    let namespace = servers::namespace(1, BackendSpec::Memory(16 << 20));
    let subsystem = servers::subsystem(NQN, vec![namespace]);
    let config = ServerConfig { io_threads: 2, ..servers::config(vec![subsystem]) };
    let options =
        RuntimeOptions { readings: Some(Arc::clone(board) as _), ..RuntimeOptions::new(vec![None], Idle::Yield) };
    Server::start_on(config, options).expect("the server starts")
}

fn host(host: u8) -> Capped {
    Capped::Host { nqn: format!("nqn.2026-01.test:host-{host}") }
}

fn load(server: &Server, host: u8, stop: &AtomicBool) {
    let mut options = ConnectOptions::new(server.local_addrs()[0], NQN);
    (options.hostnqn, options.hostid) = (format!("nqn.2026-01.test:host-{host}"), [host; 16]);
    options.timeout_ms = TIMEOUT.as_millis() as u64;
    let spec = LoadSpec {
        block_bytes: 8192,
        depth: 8,
        yield_when_idle: true,
        timeout_ms: options.timeout_ms,
        runtime_ns: Some(10 * TIMEOUT.as_nanos() as u64),
        ..LoadSpec::default()
    };
    let report = run(&options, &spec, stop, &mut |_| {}).expect("the run ends well");
    assert!(report.is_clean(), "{:?}", report.faults);
}

/// Writes watts every 100 ms.
fn measure(server: &Server, board: &ReadingBoard, stop: &AtomicBool) {
    let (mut before, mut since) = (server.stats().totals, Instant::now());
    while !stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        let (now, elapsed_s) = (server.stats().totals, since.elapsed().as_secs_f64());
        let bytes = now.read_bytes + now.written_bytes - before.read_bytes - before.written_bytes;
        (before, since) = (now, Instant::now());
        let value = Some(IDLE_UW + (bytes as f64 / elapsed_s) as u64);
        board.put(ReadingId(0), Window { ended_ns: clock::now_ns(), value });
    }
}

/// Stops the loads, also when the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn the_lower_priority_is_capped_first_and_nothing_is_capped_without_a_budget() {
    let source =
        Source { scope: Scope::Server, quantity: Quantity::PowerUw, window_ns: 100_000_000, lag: Cost::Assumed(0) };
    let board = Arc::new(ReadingBoard::new(vec![source]));
    let server = server(&board);
    server.set_priorities(vec![(host(1), 1), (host(2), 5)]);
    for (at, rate) in (1..).zip(OFFERED) {
        server.set_cap(&host(at), Some(rate)).expect("a cap");
    }
    let text = profile();
    let settings = [("domain", "server"), ("profile", text.as_str()), ("interval", "200ms"), ("start", "full")];
    server.set_policy(pilotlight_policy::build("pass", &settings).expect("a policy")).expect("a supported policy");
    let cap = |of: &Capped| server.stats().caps.into_iter().find(|cap| cap.of == *of).and_then(|cap| cap.stats.policy);
    let watts = || board_watts(&board);
    let eventually = |what: &str, holds: &dyn Fn() -> bool| {
        let until = Instant::now() + TIMEOUT;
        while !holds() {
            let seen = || format!("{:.1} W, {:#?}\n{:#?}", watts(), server.stats().caps, server.policy());
            assert!(Instant::now() < until, "{what} was not observed within {TIMEOUT:?}: {}", seen());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let set_budget = |watts: Option<u64>| {
        server.set_goals(Goals { budget_uw: watts.map(|watts| watts * 1_000_000), ..Goals::default() });
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ending = StopOnDrop(&stop);
        scope.spawn(|| measure(&server, &board, &stop));
        for host in [1, 2] {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || load(server, host, stop));
        }
        eventually("full power", &|| watts() > 85.0);
        set_budget(Some(60));
        eventually("power within the budget", &|| watts() < 60.0 * 1.02 && cap(&host(1)).is_some());
        assert_eq!(cap(&host(2)), None, "the higher priority is not capped");
        assert!(cap(&host(1)) > Some(MIN_CAP));
        set_budget(Some(25));
        eventually("a cap of the higher priority", &|| cap(&host(2)).is_some());
        eventually("the lowest cap of the lower priority", &|| cap(&host(1)) == Some(MIN_CAP));
        eventually("power within the lower budget", &|| watts() < 25.0 * 1.02);
        set_budget(None);
        eventually("no caps", &|| server.stats().caps.iter().all(|cap| cap.stats.policy.is_none()));
        eventually("full power again", &|| watts() > 85.0);
        let operator =
            |of: &Capped| server.stats().caps.iter().find(|cap| cap.of == *of).and_then(|cap| cap.stats.operator);
        assert_eq!([1, 2].map(|at| operator(&host(at))), OFFERED.map(Some), "the operator's caps stay");
        drop(ending);
    });
    server.stop(TIMEOUT).expect("it stops");
}

fn board_watts(board: &ReadingBoard) -> f64 {
    use pilotlight_reactor::Readings as _;
    board.last(ReadingId(0)).and_then(|window| window.value).map_or(0.0, |uw| uw as f64 / 1e6)
}
