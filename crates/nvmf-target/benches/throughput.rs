//! Throughput of one target core over loopback, compared with a bare peer that makes the same system calls without NVMe.
//!
//! `cargo bench -p pilotlight-nvmf-target --bench throughput -- [--only read-4k-32,...] [--rounds 5] [--seconds 1]
//! [--backend mem:1GiB] [--json] [--target-only] [--against OTHER_BUILD]`; the options are explained in `support/mod.rs`.
//! A file on tmpfs: `--backend 'file:/dev/shm/pilotlight-bench.img?size=1GiB'` (remove it afterwards).
//!
//! The target and the load have one core each and one connection. Rounds alternate between bare peer and target. The output has medians
//! and ratios of neighbouring rounds, which cancel changes of the machine's speed.
//!
//! The *hot* bare peer sends and receives the same block, which stays in the cache: an upper bound. The *cold* one uses random blocks in
//! as much memory as the namespace has, like a target without overhead that sends and receives in place. Writes of 128 KiB wait for an
//! R2T in the target, and for a message of that size in the bare peers. Bare peers compute no digests, so the ratio of cases with digests
//! includes their cost.
//!
//! In every round the target runs under `static`, whose results are printed, and under `sandman` with the paper's settings. The last
//! column is the ratio of their rates.

mod support;

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pilotlight_host::clock::pin_to_cpu;
use pilotlight_host::load::{LoadSpec, Report};
use pilotlight_host::{ConnectOptions, Handshake};
use pilotlight_nvme::pdu::Digests;
use pilotlight_nvmf_target::Server;
use pilotlight_peers::bare::{self, BareReport, BareSpec};
use support::compare::compare;
use support::{CLIENT_CPU, Options, Output, RUN, SERVER_CPU, median};

const WARM_UP_NS: u64 = 50_000_000;
/// Memory of the cold bare peer.
const POOL: usize = 1 << 30;

struct Case {
    name: &'static str,
    read_percent: u8,
    block_bytes: u32,
    depth: u16,
    /// Header and data digests.
    digests: bool,
}

const fn case(name: &'static str, read_percent: u8, block_bytes: u32, depth: u16) -> Case {
    Case { name, read_percent, block_bytes, depth, digests: false }
}

const CASES: [Case; 9] = [
    case("read-4k-1", 100, 4096, 1),
    case("read-4k-32", 100, 4096, 32),
    case("read-4k-128", 100, 4096, 128),
    case("write-4k-32", 0, 4096, 32),
    case("mix70-4k-32", 70, 4096, 32),
    case("read-128k-16", 100, 131_072, 16),
    case("write-128k-16", 0, 131_072, 16),
    Case { digests: true, ..case("read-4k-32-digest", 100, 4096, 32) },
    Case { digests: true, ..case("write-4k-32-digest", 0, 4096, 32) },
];

impl Case {
    fn bare_spec(&self, pool: usize) -> BareSpec {
        let (block, depth) = (self.block_bytes as usize, usize::from(self.depth));
        let spec = if self.read_percent == 0 && self.block_bytes > 8192 {
            BareSpec::large_writes(block, depth)
        } else {
            BareSpec::mixed(self.read_percent, block, depth)
        };
        BareSpec { pool, ..spec }
    }

    /// A run of the bare peer with `pool` bytes of memory.
    fn bare(&self, pool: usize, run_ns: u64) -> std::io::Result<BareReport> {
        let spec = self.bare_spec(pool);
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (addr, stop) = (listener.local_addr()?, AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| pin_to_cpu(SERVER_CPU).and_then(|()| bare::serve(&listener, &spec, &stop)));
            let client = scope.spawn(|| {
                pin_to_cpu(CLIENT_CPU)?;
                bare::drive(&TcpStream::connect(addr)?, &spec, WARM_UP_NS)?; // waits until the server has allocated its memory
                bare::drive(&TcpStream::connect(addr)?, &spec, run_ns)
            });
            let report = client.join().unwrap_or_else(|_| Err(std::io::Error::other("the client panicked")));
            stop.store(true, Relaxed);
            report
        })
    }

    fn load(&self, server: &Server, run_ns: u64) -> Report {
        let digests = Digests { header: self.digests, data: self.digests };
        let handshake = Handshake { digests, ..Handshake::default() };
        let spec = LoadSpec {
            read_percent: self.read_percent,
            block_bytes: self.block_bytes,
            depth: self.depth,
            runtime_ns: Some(run_ns),
            ramp_ns: run_ns / 10,
            ..LoadSpec::default()
        };
        support::drive(&ConnectOptions { handshake, ..support::options(server) }, &spec)
    }

    /// A run of a separate target, as a polling reactor would take CPU time from the bare peer. Returns the report under `static` and the
    /// rate under `sandman`, which is first in every other round.
    fn target(&self, backend: &str, run_ns: u64, sandman_first: bool) -> (Report, f64) {
        let server = support::serve_filled(backend, 1);
        let under = |policy: &str| {
            support::set_policy(&server, policy);
            self.load(&server, run_ns)
        };
        let (report, sandman) = if sandman_first {
            let sandman = under("sandman");
            (under("static"), sandman)
        } else {
            (under("static"), under("sandman"))
        };
        support::stop(server);
        (report, sandman.total.rate_iops)
    }
}

/// The target alone, under `static`.
fn target_only(options: &Options, cases: &[&Case]) {
    let title = format!("{}; {} rounds of {} s, medians", options.backend, options.rounds, options.seconds);
    let mut reports: Vec<Vec<Report>> = cases.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        let server = support::serve_filled(&options.backend, 1);
        for (case, reports) in cases.iter().zip(&mut reports) {
            reports.push(case.load(&server, options.run_ns()));
        }
        support::stop(server);
    }
    let output = Output::begin(options.json, &title, RUN.to_vec());
    for (case, reports) in cases.iter().zip(&reports) {
        output.row(case.name, &support::run_medians(reports));
    }
}

fn beside_bare_peers(options: &Options, cases: &[&Case]) -> std::io::Result<()> {
    let title = format!(
        "{}; {} rounds of {} s, medians; ratio: the target's rate over the bare peer's in the same round",
        options.backend, options.rounds, options.seconds
    );
    let more = [("hot_iops", 0), ("hot_ratio", 3), ("cold_iops", 0), ("cold_ratio", 3), ("sandman_ratio", 3)];
    let output = Output::begin(options.json, &title, RUN.into_iter().chain(more).collect());
    let run_ns = options.run_ns();
    for case in cases {
        let (mut reports, mut hot, mut cold, mut sandman) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for round in 0..options.rounds {
            hot.push(case.bare(0, run_ns)?.rate_iops);
            let (report, under_sandman) = case.target(&options.backend, run_ns, round % 2 == 1);
            sandman.push(under_sandman / report.total.rate_iops);
            reports.push(report);
            cold.push(case.bare(POOL, run_ns)?.rate_iops);
        }
        let ratio = |bare: &[f64]| median(reports.iter().zip(bare).map(|(report, bare)| report.total.rate_iops / bare));
        let bare = [median(hot.iter().copied()), ratio(&hot), median(cold.iter().copied()), ratio(&cold)];
        let values: Vec<f64> =
            support::run_medians(&reports).into_iter().chain(bare).chain([median(sandman)]).collect();
        output.row(case.name, &values);
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let options = Options::from_args("mem:1GiB");
    if !support::has_two_cpus() {
        return Ok(());
    }
    let cases = options.selected(&CASES, |case| case.name);
    match &options.against {
        Some(other) => compare(&options, other),
        None if options.target_only => target_only(&options, &cases),
        None => return beside_bare_peers(&options, &cases),
    }
    Ok(())
}
