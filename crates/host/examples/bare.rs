//! Measures the bare peer: `cargo run --release -p pilotlight-host --example bare -- [SERVER_CPU CLIENT_CPU]`.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pilotlight_host::bare::{BareSpec, drive, serve};
use pilotlight_host::clock::pin_to_cpu;

fn main() -> std::io::Result<()> {
    let cpus: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let (server_cpu, client_cpu) = (cpus.first().copied().unwrap_or(0), cpus.get(1).copied().unwrap_or(1));
    for (depth, pool) in [(1, 4096), (32, 4096), (128, 4096), (128, 1 << 28)] {
        let spec = BareSpec { depth, pool, ..BareSpec::default() };
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (addr, stop) = (listener.local_addr()?, AtomicBool::new(false));
        std::thread::scope(|scope| -> std::io::Result<()> {
            let server = scope.spawn(|| pin_to_cpu(server_cpu).and_then(|()| serve(&listener, &spec, &stop)));
            pin_to_cpu(client_cpu)?;
            let report = drive(&TcpStream::connect(addr)?, &spec, 1_000_000_000);
            stop.store(true, Relaxed);
            let (report, l) = report.map(|r| (r, r.latency))?;
            println!(
                "depth {depth:4} pool {pool:10} B: {:9.0} answers/s, p50 {:.1} us, p99 {:.1} us",
                report.rate_iops,
                l.p50_ns as f64 / 1e3,
                l.p99_ns as f64 / 1e3
            );
            server.join().unwrap_or(Ok(()))
        })?;
    }
    Ok(())
}
