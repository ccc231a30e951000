//! Effect of scrubbing on the mean latency of hosts: a load with scrubbing, and the same load with scrubbing paused, in turn.
//!
//! `cargo bench -p pilotlight-nvmf-target --bench scrub -- [--only file-500,...] [--rounds N] [--seconds S]`; the file is in cargo's folder for temporary files
//! (`target/tmp`).
//!
//! One target core (CPU 0) under `static`; one thread (CPU 1) polls one connection. Namespace 1 is a file with checksums, scrubbed at the
//! default rate (100 MB/s); namespace 2 is memory. 4 KiB random reads of one of them with Poisson arrivals, or at depth 1 (`closed`). The
//! output has medians of the mean latency; the ratio with / without scrubbing with its 95 % interval (paired over rounds, Fieller); the
//! scrub rate; and, for background I/Os that overlap a request, the time from the poll that received the first request to the end of the
//! I/O (p99 and maximum).

mod support;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pilotlight_host::load::{LoadSpec, OpenLoop, run};
use pilotlight_host::schedule::{Process, Schedule};
use pilotlight_nvmf_target::{Server, ServerConfig};
use pilotlight_reactor::HistogramSnapshot;
use pilotlight_stats::paired::ratio;
use pilotlight_storage::background::control::Class;
use pilotlight_storage::background::sums::file::{SumsFile, open_file};
use pilotlight_storage::background::sums::format::Pass;
use support::{CLIENT_CPU, NQN, Options, SERVER_CPU, fail, has_two_cpus, median, servers, set_policy, stop};

const BYTES: u64 = 512 << 20;
/// Uncounted time at the start of a run.
const RAMP_NS: u64 = 100_000_000;

struct Case {
    name: &'static str,
    nsid: u32,
    /// Requests per second; `None` for depth 1.
    rate: Option<f64>,
}

const CASES: [Case; 8] = [
    Case { name: "file-100", nsid: 1, rate: Some(100.0) },
    Case { name: "file-1000", nsid: 1, rate: Some(1e3) },
    Case { name: "file-5000", nsid: 1, rate: Some(5e3) },
    Case { name: "file-closed", nsid: 1, rate: None },
    Case { name: "mem-100", nsid: 2, rate: Some(100.0) },
    Case { name: "mem-1000", nsid: 2, rate: Some(1e3) },
    Case { name: "mem-10000", nsid: 2, rate: Some(1e4) },
    Case { name: "mem-closed", nsid: 2, rate: None },
];

/// Results of a case.
#[derive(Default)]
struct Results {
    /// Mean latencies in microseconds: without scrubbing, and with.
    means: [Vec<f64>; 2],
    read_bytes: u64,
    overlaps: HistogramSnapshot,
}

fn path() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("scrub-bench")
}

fn serve() -> Server {
    let file = format!("checked:file:{}?size={BYTES}B", path().display());
    let namespace = |(nsid, backend): (u32, &str)| {
        let backend = backend.parse().unwrap_or_else(|error| fail(&format!("{error}")));
        servers::namespace(nsid, backend)
    };
    let namespaces = [(1, file.as_str()), (2, "mem:256MiB")].map(namespace).to_vec();
    let subsystem = servers::subsystem(NQN, namespaces);
    let config = ServerConfig {
        cores: vec![SERVER_CPU as u32],
        main_core: SERVER_CPU as u32,
        io_threads: 1,
        ..servers::config(vec![subsystem])
    };
    let server = Server::start(config).unwrap_or_else(|error| fail(&format!("the server does not start: {error}")));
    set_policy(&server, "static");
    server
}

/// Makes the next server begin a pass.
fn forget_pass() {
    let mut sums = path().into_os_string();
    sums.push(".sums");
    let storage = open_file(sums.as_ref()).unwrap_or_else(|error| fail(&error.to_string()));
    let opened = SumsFile::open(Box::new(storage), BYTES).and_then(|(file, _)| file.note(Pass::default(), true));
    opened.unwrap_or_else(|error| fail(&error.to_string()));
}

/// Writes both namespaces, and waits until the file has all checksums.
fn fill() {
    let server = serve();
    for nsid in [1, 2] {
        let spec = LoadSpec {
            nsid,
            random: false,
            read_percent: 0,
            block_bytes: 131_072,
            depth: 16,
            cpus: vec![CLIENT_CPU],
            ..LoadSpec::default()
        };
        load(&server, &spec);
    }
    while server.stats().upkeeps.iter().any(|upkeep| upkeep.dirty_bytes > 0) {
        std::thread::sleep(Duration::from_millis(10));
    }
    stop(server);
}

fn load(server: &Server, spec: &LoadSpec) -> f64 {
    let report = run(&support::options(server), spec, &AtomicBool::new(false), &mut |_| {});
    report.unwrap_or_else(|error| fail(&error.to_string())).total.latency.mean_ns / 1e3
}

fn measure(server: &Server, case: &Case, scrubs: bool, options: &Options, seed: u64, into: &mut Results) {
    server.set_paused(Class::Scrub, !scrubs);
    let open = case.rate.map(|rate| {
        let schedule = Schedule::constant(rate).unwrap_or_else(|error| fail(&error.to_string()));
        OpenLoop { schedule, process: Process::Poisson }
    });
    let spec = LoadSpec {
        nsid: case.nsid,
        depth: if open.is_some() { 64 } else { 1 },
        open,
        ramp_ns: RAMP_NS,
        runtime_ns: Some(options.run_ns()),
        cpus: vec![CLIENT_CPU],
        seed,
        ..LoadSpec::default()
    };
    let before = server.stats();
    into.means[usize::from(scrubs)].push(load(server, &spec));
    let after = server.stats();
    let read =
        |stats: &pilotlight_nvmf_target::ServerStats| stats.upkeeps.iter().map(|upkeep| upkeep.read_bytes).sum::<u64>();
    into.read_bytes += read(&after) - read(&before);
    into.overlaps += &after.background_overlaps.since(&before.background_overlaps);
}

fn main() {
    let options = Options::from_args("");
    if !has_two_cpus() {
        return;
    }
    fill();
    println!("case         us without  us with  with / without        scrubbed MB/s  I/Os met  p99 us  longest us");
    for case in options.selected(&CASES, |case| case.name) {
        let mut results = Results::default();
        for round in 0..options.rounds {
            forget_pass();
            let server = serve();
            for scrubs in [round % 2 == 0, round % 2 != 0] {
                measure(&server, case, scrubs, &options, round as u64 + 1, &mut results);
            }
            stop(server);
        }
        let Results { means: [without, with], read_bytes, overlaps } = &results;
        let ratio = ratio(with, without, 0.95)
            .map_or("-".into(), |one| format!("{:.3} ({:.3} to {:.3})", one.value, one.low, one.high));
        let rate = *read_bytes as f64 / 1e6 / (options.rounds as f64 * (options.seconds + RAMP_NS as f64 / 1e9));
        let us = |ns: u64| ns as f64 / 1e3;
        println!(
            "{:11}  {:10.1}  {:7.1}  {ratio:20}  {rate:13.1}  {:8}  {:6.0}  {:10.0}",
            case.name,
            median(without.iter().copied()),
            median(with.iter().copied()),
            overlaps.count(),
            us(overlaps.percentile_ns(0.99)),
            us(overlaps.max_ns())
        );
    }
    let _ = (std::fs::remove_file(path()), std::fs::remove_file(path().with_extension("sums")));
}
