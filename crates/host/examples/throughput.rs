//! Rate of the host with a minimal target and of the bare peer, in turn:
//! `cargo run --release -p pilotlight-host --example throughput -- [SERVER_CPU CLIENT_CPU [ROUNDS]]`.

#[path = "../tests/support/mod.rs"]
#[allow(dead_code)]
mod support;

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pilotlight_host::ConnectOptions;
use pilotlight_host::clock::pin_to_cpu;
use pilotlight_host::load::{LoadSpec, Report, run};
use pilotlight_peers::bare::{BareReport, BareSpec, drive, serve};
use support::{Config, TestTarget};

const RUN_NS: u64 = 500_000_000;

fn bare(server_cpu: usize, client_cpu: usize, depth: usize) -> std::io::Result<BareReport> {
    let spec = BareSpec::reads(4096, depth);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (addr, stop) = (listener.local_addr()?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| pin_to_cpu(server_cpu).and_then(|()| serve(&listener, &spec, &stop)));
        let client =
            scope.spawn(|| pin_to_cpu(client_cpu).and_then(|()| drive(&TcpStream::connect(addr)?, &spec, RUN_NS)));
        let report = client.join().unwrap_or_else(|_| Err(std::io::Error::other("the client panicked")));
        stop.store(true, Relaxed);
        report
    })
}

fn host(server_cpu: usize, client_cpu: usize, depth: u16) -> Report {
    let target = TestTarget::start(Config { fast: Some(server_cpu), ..Config::default() });
    let spec = LoadSpec { depth, cpus: vec![client_cpu], runtime_ns: Some(RUN_NS), ..LoadSpec::default() };
    let options = ConnectOptions::new(target.addr, "nqn.2026-01.test:toy");
    run(&options, &spec, &AtomicBool::new(false), &mut |_| {}).expect("the run ends well")
}

fn main() -> std::io::Result<()> {
    let arg = |n, default| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (server_cpu, client_cpu, rounds) = (arg(1, 0), arg(2, 1), arg(3, 3));
    for depth in [1u16, 32, 128] {
        for _ in 0..rounds {
            let b = bare(server_cpu, client_cpu, usize::from(depth))?;
            let h = host(server_cpu, client_cpu, depth);
            println!(
                "depth {depth:3}: bare {:8.0}/s p50 {:5.1} us p99 {:5.1} us | host {:8.0}/s p50 {:5.1} us p99 {:5.1} us | {:.3}",
                b.rate_iops,
                b.latency.p50_ns as f64 / 1e3,
                b.latency.p99_ns as f64 / 1e3,
                h.total.rate_iops,
                h.total.latency.p50_ns as f64 / 1e3,
                h.total.latency.p99_ns as f64 / 1e3,
                h.total.rate_iops / b.rate_iops,
            );
        }
    }
    Ok(())
}
