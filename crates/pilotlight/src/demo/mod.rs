//! `pilotlight demo`: the main job in under a minute. Serves a namespace in memory over real NVMe/TCP connections,
//! writes and verifies it, measures it, and says how to go on.
//!
//! The target has one core and the load another. CPU per I/O is the time that the target's reactor was busy, divided by
//! the I/Os; a polling reactor is scheduled all the time, so what it cost the machine is printed beside it.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use pilotlight_host::ConnectOptions;
use pilotlight_host::load::{LoadSpec, Report, run as run_load};
use pilotlight_reactor::{Idle, RuntimeOptions};
use pilotlight_target::backend::{BackendSpec, MemoryBudget, open};
use pilotlight_target::{NamespaceConfig, Server, ServerConfig, SubsystemConfig};
use serde_json::{Value, json};

const NQN: &str = "nqn.2014-08.org.pilotlight:demo";
const NAMESPACE_BYTES: u64 = 1 << 30;
const VERIFIED_BYTES: u64 = 64 << 20;
/// How long the drain may take at the end.
const DRAIN: Duration = Duration::from_secs(5);

const ABOUT: &str = "\
Serve 1 GiB of memory over NVMe/TCP, write and verify it, and measure it: in under a minute, on two cores.

Needs no root, no drive and no configuration. The figures are this machine's, as busy as it is.";

const EXAMPLES: &str = "\
Examples:
  pilotlight demo
  pilotlight demo --seconds 1 --json

Exit codes:
  0  everything was served and every block held what it must
  1  it could not start, or a block was wrong";

/// Options of `pilotlight demo`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES)]
#[command(after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct DemoArgs {
    /// Seconds for each row of the table
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,

    /// Print the result as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// What a row measures.
struct Row {
    name: &'static str,
    read_percent: u8,
    block_bytes: u32,
    depth: u16,
}

const ROWS: [Row; 6] = [
    Row { name: "4 KiB random read", read_percent: 100, block_bytes: 4096, depth: 1 },
    Row { name: "4 KiB random read", read_percent: 100, block_bytes: 4096, depth: 32 },
    Row { name: "4 KiB random read", read_percent: 100, block_bytes: 4096, depth: 128 },
    Row { name: "4 KiB random write", read_percent: 0, block_bytes: 4096, depth: 32 },
    Row { name: "128 KiB random read", read_percent: 100, block_bytes: 131_072, depth: 16 },
    Row { name: "128 KiB random write", read_percent: 0, block_bytes: 131_072, depth: 16 },
];

/// A row's result.
struct Measured {
    report: Report,
    /// Reactor time spent on work, in nanoseconds.
    busy_ns: u64,
    /// Reactor time in all, in nanoseconds.
    total_ns: u64,
}

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let cpus = allowed_cpus();
    let server = serve(&cpus).context("the demo's server does not start")?;
    let address = server.local_addrs()[0];
    let load_cpu = cpus.get(1).map(|&cpu| cpu as usize);
    if !args.json {
        println!("Serving 1 GiB of memory at {address}: the target on core {}, {}.", cpus[0], load_place(load_cpu));
    }
    let verified = load(address, load_cpu, verify_spec()).context("verifying")?;
    if !args.json {
        tell_verified(&verified);
    }
    let mut rows = Vec::new();
    if verified.is_clean() {
        fill(address, load_cpu)?;
        if !args.json {
            println!("\n{}", header());
        }
        for row in &ROWS {
            let measured = measure(&server, address, load_cpu, row, args.seconds)?;
            if !args.json {
                println!("{}", line(row, &measured));
            }
            rows.push((row, measured));
        }
    }
    let clean = verified.is_clean() && rows.iter().all(|(_, measured)| measured.report.is_clean());
    server.stop(DRAIN).context("stopping the demo's server")?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&as_json(&verified, &rows, load_cpu.is_some()))?);
    } else {
        print!("{}", closing(load_cpu.is_some()));
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The CPUs that this process may run on.
fn allowed_cpus() -> Vec<u32> {
    let set = rustix::thread::sched_getaffinity(None);
    let Ok(set) = set else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u32).collect()
}

fn load_place(cpu: Option<usize>) -> String {
    match cpu {
        Some(cpu) => format!("the load on core {cpu}"),
        None => "and the load on the same, since there is no other".to_owned(),
    }
}

fn serve(cpus: &[u32]) -> anyhow::Result<Server> {
    let backend = BackendSpec::Memory(NAMESPACE_BYTES);
    let namespace = NamespaceConfig { nsid: 1, backend, block_size: 4096, uuid: None };
    let config = ServerConfig {
        listeners: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        subsystems: vec![SubsystemConfig {
            nqn: NQN.to_owned(),
            serial: None,
            allowed_hosts: Vec::new(),
            namespaces: vec![namespace],
        }],
        cores: vec![cpus[0]],
        main_core: cpus[0],
        ..ServerConfig::default()
    };
    // With one CPU a reactor that spins would leave the load nothing.
    let idle = if cpus.len() > 1 { Idle::Spin } else { Idle::Yield };
    let budget = std::sync::Arc::new(MemoryBudget::unlimited());
    let opener = move |ns: &NamespaceConfig| open(&ns.backend, ns.block_size, &budget);
    let options = RuntimeOptions::new(vec![Some(cpus[0])], idle);
    Ok(Server::start_with(config, options, Box::new(opener))?)
}

fn load(address: SocketAddr, cpu: Option<usize>, spec: LoadSpec) -> anyhow::Result<Report> {
    let options = ConnectOptions::new(address, NQN);
    let spec = LoadSpec { cpus: cpu.into_iter().collect(), ..spec };
    Ok(run_load(&options, &spec, &AtomicBool::new(false), &mut |_| {})?)
}

fn verify_spec() -> LoadSpec {
    LoadSpec {
        read_percent: 50,
        trim_percent: 5,
        depth: 32,
        jobs: 2,
        size_bytes: Some(VERIFIED_BYTES),
        runtime_ns: Some(3_000_000_000),
        verify: true,
        ..LoadSpec::default()
    }
}

/// Writes the whole namespace once, so that reads find data rather than holes.
fn fill(address: SocketAddr, cpu: Option<usize>) -> anyhow::Result<()> {
    let spec = LoadSpec {
        random: false,
        read_percent: 0,
        block_bytes: 131_072,
        depth: 16,
        runtime_ns: None,
        ..Default::default()
    };
    load(address, cpu, spec).context("filling the namespace")?;
    Ok(())
}

fn measure(
    server: &Server,
    address: SocketAddr,
    cpu: Option<usize>,
    row: &Row,
    seconds: f64,
) -> anyhow::Result<Measured> {
    let spec = LoadSpec {
        read_percent: row.read_percent,
        block_bytes: row.block_bytes,
        depth: row.depth,
        runtime_ns: Some((seconds * 1e9) as u64),
        ..LoadSpec::default()
    };
    let before = reactor(server);
    let report = load(address, cpu, spec).with_context(|| format!("measuring {} at depth {}", row.name, row.depth))?;
    let after = reactor(server);
    let busy_ns = after.0 - before.0;
    Ok(Measured { report, busy_ns, total_ns: busy_ns + after.1 - before.1 })
}

fn reactor(server: &Server) -> (u64, u64) {
    server.stats().runtime.reactors.first().map_or((0, 0), |reactor| (reactor.busy_ns, reactor.idle_ns))
}

impl Measured {
    fn per_io_us(&self, ns: u64) -> f64 {
        ns as f64 / 1e3 / (self.report.total.ios.max(1)) as f64
    }
}

fn tell_verified(report: &Report) {
    let Some(verify) = &report.verify else { return };
    println!(
        "Wrote and verified: {} commands, {} blocks checked while running and {} at the end, {} wrong.",
        report.total.ios, verify.blocks_checked, verify.blocks_read_back, verify.mismatches
    );
    for fault in &report.faults {
        println!("  {fault}");
    }
}

fn header() -> String {
    format!(
        "{:22} {:>5} {:>10} {:>7} {:>8} {:>8} {:>8}  {:>18}\n{:22} {:>5} {:>10} {:>7} {:>8} {:>8} {:>8}  {:>18}",
        "",
        "queue",
        "IOPS",
        "GB/s",
        "p50",
        "p99",
        "p99.9",
        "target CPU per I/O",
        "",
        "depth",
        "",
        "",
        "us",
        "us",
        "us",
        "active / scheduled"
    )
}

fn line(row: &Row, measured: &Measured) -> String {
    let total = &measured.report.total;
    let us = |ns: u64| ns as f64 / 1e3;
    format!(
        "{:22} {:>5} {:>10.0} {:>7.2} {:>8.1} {:>8.1} {:>8.1}  {:>7.2} / {:.2} us",
        row.name,
        row.depth,
        total.rate_iops,
        total.data_bytes_per_s / 1e9,
        us(total.latency.p50_ns),
        us(total.latency.p99_ns),
        us(total.latency.p99_9_ns),
        measured.per_io_us(measured.busy_ns),
        measured.per_io_us(measured.total_ns),
    )
}

fn as_json(verified: &Report, rows: &[(&Row, Measured)], two_cpus: bool) -> Value {
    let row = |(row, measured): &(&Row, Measured)| {
        json!({
            "name": row.name,
            "read_percent": row.read_percent,
            "block_bytes": row.block_bytes,
            "queue_depth": row.depth,
            "target_active_us_per_io": measured.per_io_us(measured.busy_ns),
            "target_scheduled_us_per_io": measured.per_io_us(measured.total_ns),
            "load": measured.report,
        })
    };
    json!({
        "policy": "static",
        "own_core_for_the_load": two_cpus,
        "verified": verified,
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn closing(two_cpus: bool) -> String {
    let shared = if two_cpus { "" } else { "\nTarget and load shared one CPU: the figures say little.\n" };
    format!(
        "{shared}\nThe target polled all the time (policy static): what it was scheduled for beyond what it was active for is \
         what sleeping cores are to save.\n\n\
         To go on, start a server that stays, and connect a Linux host to it:\n  \
         pilotlight serve --nqn {NQN}\n  \
         nvme connect -t tcp -a 127.0.0.1 -s 4420 -n {NQN}\n"
    )
}
