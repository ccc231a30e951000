//! Throughput of one target core over loopback, beside a bare peer that makes the same system calls and knows no NVMe.
//!
//! `cargo bench -p pilotlight-target --bench throughput -- [--backend mem:1GiB] [--rounds 5] [--seconds 1] [--only read-4k-32]`
//!
//! The target has one core, the load the other, one connection. Rounds alternate between bare peer and target; medians
//! and the ratio of neighbouring rounds are printed: absolute figures drift with the machine, the ratio does not.
//!
//! There are two bare peers for reads. The *hot* one sends the same payload again and again, from the cache: the bound
//! that no target can pass whose data is larger than the cache. The *cold* one takes its payload at random from as much
//! memory as the namespace has: what a target without any cost of its own would do if it sent straight from there.
//!
//! In every round the target is measured under `static`, whose figures are printed, and under `sandman` as printed in the
//! paper, in turn; the last column is the ratio of their rates.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pilotlight_host::ConnectOptions;
use pilotlight_host::bare::{BareReport, BareSpec, drive, serve};
use pilotlight_host::clock::pin_to_cpu;
use pilotlight_host::load::{LoadSpec, Report, run};
use pilotlight_target::{Limits, NamespaceConfig, Server, ServerConfig, SubsystemConfig};

const NQN: &str = "nqn.2014-08.org.pilotlight:bench";
const SERVER_CPU: usize = 0;
const CLIENT_CPU: usize = 1;
const WARM_UP_NS: u64 = 50_000_000;
/// Memory that the cold bare peer takes its payload from.
const POOL: usize = 1 << 30;

struct Case {
    name: &'static str,
    read_percent: u8,
    block_bytes: u32,
    depth: u16,
}

const CASES: [Case; 6] = [
    Case { name: "read-4k-1", read_percent: 100, block_bytes: 4096, depth: 1 },
    Case { name: "read-4k-32", read_percent: 100, block_bytes: 4096, depth: 32 },
    Case { name: "read-4k-128", read_percent: 100, block_bytes: 4096, depth: 128 },
    Case { name: "write-4k-32", read_percent: 0, block_bytes: 4096, depth: 32 },
    Case { name: "read-128k-16", read_percent: 100, block_bytes: 131_072, depth: 16 },
    Case { name: "write-128k-16", read_percent: 0, block_bytes: 131_072, depth: 16 },
];

/// A run of the bare peer, which takes its payload from `pool` bytes of memory.
fn bare(case: &Case, pool: usize, run_ns: u64) -> std::io::Result<BareReport> {
    let (payload, depth) = (case.block_bytes as usize, usize::from(case.depth));
    let spec = if case.read_percent == 100 {
        BareSpec { pool: pool.max(payload), ..BareSpec::reads(payload, depth) }
    } else {
        BareSpec::writes(payload, depth)
    };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (addr, stop) = (listener.local_addr()?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| pin_to_cpu(SERVER_CPU).and_then(|()| serve(&listener, &spec, &stop)));
        let client = scope.spawn(|| {
            pin_to_cpu(CLIENT_CPU)?;
            drive(&TcpStream::connect(addr)?, &spec, WARM_UP_NS)?; // waits until the server has its memory
            drive(&TcpStream::connect(addr)?, &spec, run_ns)
        });
        let report = client.join().unwrap_or_else(|_| Err(std::io::Error::other("the client panicked")));
        stop.store(true, Relaxed);
        report
    })
}

/// A run of the target, started for it alone: a reactor that polls would take half of its core from the bare peer.
/// Returns what it did under `static` and its rate under `sandman`, which comes first in every other round.
fn target(backend: &str, case: &Case, run_ns: u64, sandman_first: bool) -> (Report, f64) {
    let server = serve_backend(backend);
    let options = ConnectOptions::new(server.local_addrs()[0], NQN);
    let drive =
        |spec: &LoadSpec| run(&options, spec, &AtomicBool::new(false), &mut |_| {}).expect("the load runs to its end");
    if !backend.starts_with("null") {
        // Blocks that hold data cost more to read than blocks that never did.
        let fill = LoadSpec { random: false, read_percent: 0, block_bytes: 131_072, depth: 16, ..LoadSpec::default() };
        drive(&LoadSpec { cpus: vec![CLIENT_CPU], runtime_ns: None, ..fill });
    }
    let under = |policy: &str| {
        let policy = pilotlight_policy::build(policy, &[]).expect("a policy");
        server.set_policy(policy).expect("it needs nothing that is not here");
        drive(&LoadSpec {
            read_percent: case.read_percent,
            block_bytes: case.block_bytes,
            depth: case.depth,
            cpus: vec![CLIENT_CPU],
            runtime_ns: Some(run_ns),
            ramp_ns: run_ns / 10,
            ..LoadSpec::default()
        })
    };
    let (report, sandman) = if sandman_first {
        let sandman = under("sandman");
        (under("static"), sandman)
    } else {
        (under("static"), under("sandman"))
    };
    server.stop(std::time::Duration::from_secs(5)).expect("the server stops");
    (report, sandman.total.rate_iops)
}

fn serve_backend(backend: &str) -> Server {
    let namespace =
        NamespaceConfig { nsid: 1, backend: backend.parse().expect("a backend"), block_size: 4096, uuid: None };
    let subsystem =
        SubsystemConfig { nqn: NQN.into(), serial: None, allowed_hosts: Vec::new(), namespaces: vec![namespace] };
    let config = ServerConfig {
        listeners: vec![([127, 0, 0, 1], 0).into()],
        subsystems: vec![subsystem],
        cores: vec![SERVER_CPU as u32],
        main_core: SERVER_CPU as u32,
        limits: Limits::default(),
        ..ServerConfig::default()
    };
    Server::start(config).expect("the server starts")
}

impl Case {
    /// The bare peer has no R2T: writes larger than a capsule have nothing to be compared with.
    fn is_comparable(&self) -> bool {
        self.read_percent == 100 || self.block_bytes <= 8192
    }
}

/// A bare peer's rate and the target's ratio to it.
fn beside((rates, ratios): (Vec<f64>, Vec<f64>)) -> String {
    if rates.is_empty() {
        return "-".to_owned();
    }
    format!("{:.0} {:.3}", median(rates), median(ratios))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn arg(name: &str) -> Option<String> {
    let mut args = std::env::args().skip_while(|a| a != name);
    args.next().and_then(|_| args.next())
}

fn main() -> std::io::Result<()> {
    let cpus = std::thread::available_parallelism()?.get();
    if cpus < 2 {
        println!(
            "SKIPPED: throughput needs two CPUs, one for the target and one for the load; this machine has {cpus}"
        );
        return Ok(());
    }
    let backend = arg("--backend").unwrap_or_else(|| "mem:1GiB".into());
    let rounds: usize = arg("--rounds").and_then(|a| a.parse().ok()).unwrap_or(5);
    let seconds: f64 = arg("--seconds").and_then(|a| a.parse().ok()).unwrap_or(1.0);
    let only = arg("--only");
    let run_ns = (seconds * 1e9) as u64;
    println!(
        "{backend}; {rounds} rounds of {seconds} s, medians; ratio: the target's rate over the bare peer's in the same round"
    );
    println!(
        "{:14} {:>9} {:>8} {:>8} {:>8} {:>6}  {:>17} {:>17} {:>15}",
        "case",
        "IOPS",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "GB/s",
        "hot bare/s ratio",
        "cold bare/s ratio",
        "sandman/static"
    );
    for case in CASES.iter().filter(|case| only.as_ref().is_none_or(|only| only == case.name)) {
        let mut rows = Vec::new();
        let mut sandman = Vec::new();
        for round in 0..rounds {
            let hot = if case.is_comparable() { Some(bare(case, 0, run_ns)?.rate_iops) } else { None };
            let (report, under_sandman) = target(&backend, case, run_ns, round % 2 == 1);
            sandman.push(under_sandman / report.total.rate_iops);
            let cold = if case.read_percent == 100 { Some(bare(case, POOL, run_ns)?.rate_iops) } else { None };
            rows.push((hot, report, cold));
        }
        let column = |f: &dyn Fn(&Report) -> f64| median(rows.iter().map(|(_, r, _)| f(r)).collect());
        let rate = |r: &Report| r.total.rate_iops;
        let hot = rows.iter().filter_map(|(hot, r, _)| hot.map(|hot| (hot, rate(r) / hot))).unzip();
        let cold = rows.iter().filter_map(|(_, r, cold)| cold.map(|cold| (cold, rate(r) / cold))).unzip();
        println!(
            "{:14} {:>9.0} {:>8.1} {:>8.1} {:>8.1} {:>6.2}  {:>17} {:>17} {:>15.3}",
            case.name,
            column(&rate),
            column(&|r| r.total.latency.p50_ns as f64 / 1e3),
            column(&|r| r.total.latency.p99_ns as f64 / 1e3),
            column(&|r| r.total.latency.p99_9_ns as f64 / 1e3),
            column(&|r| r.total.data_bytes_per_s / 1e9),
            beside(hot),
            beside(cold),
            median(sandman),
        );
    }
    Ok(())
}
