//! One target core with many connections, many I/O threads, or a file on tmpfs, each compared with a simpler case in the same round.
//!
//! `cargo bench -p pilotlight-nvmf-target --bench connections -- [--only conns-16-8,...] [--rounds 5] [--seconds 1]
//! [--backend mem:256MiB] [--json] [--target-only] [--against OTHER_BUILD]`; the options are explained in `support/mod.rs`.
//!
//! | case | workload | compared with |
//! |---|---|---|
//! | `conns-N-D` | 4 KiB random reads on N connections, D in flight on each, one I/O thread | one connection with as many in flight, at most 128 |
//! | `threads-2` | two connections with 16 reads in flight each, one on each of two I/O threads | the same on one I/O thread |
//! | `threads-48-D` | one connection with D reads in flight; 47 further I/O threads without connections | the same without these |
//! | `tmpfs-...` | a file in `/dev/shm` as backend, one connection | the backend in memory |
//!
//! The target polls on one core, and the load uses the other. With hundreds of connections the load is the bottleneck, as it polls
//! them in turn. `ratio` is the rate over that of the reference; `p50_ratio` and `p99_ratio` compare latencies (lower is better).

mod support;

use pilotlight_host::load::{LoadSpec, Report};
use pilotlight_nvmf_target::Server;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::compare::compare;
use support::{Options, Output, RUN, median};

/// Maximum number of I/O queues of a controller.
const QUEUES_PER_HOST: u16 = 128;
const DEEPEST: u16 = 128;
/// Open files other than connections.
const OTHER_FILES: u64 = 500;
/// Size of the file on tmpfs, equal to the default backend.
const FILE_SIZE: &str = "256MiB";

#[derive(Clone, Copy)]
enum Medium {
    /// The backend from the command line.
    Given,
    /// A file in `/dev/shm`, which is removed afterwards.
    Tmpfs,
}

#[derive(Clone, Copy)]
struct Setup {
    io_threads: u32,
    medium: Medium,
    jobs: u16,
    depth: u16,
    read_percent: u8,
    block_bytes: u32,
}

/// One connection of 4 KiB reads to one I/O thread.
const PLAIN: Setup =
    Setup { io_threads: 1, medium: Medium::Given, jobs: 1, depth: 32, read_percent: 100, block_bytes: 4096 };

struct Case {
    name: &'static str,
    setup: Setup,
    beside: Setup,
}

const fn connections(name: &'static str, jobs: u16, depth: u16) -> Case {
    let all = jobs * depth;
    let beside = Setup { depth: if all < DEEPEST { all } else { DEEPEST }, ..PLAIN };
    Case { name, setup: Setup { jobs, depth, ..PLAIN }, beside }
}

const fn threads(name: &'static str, io_threads: u32, jobs: u16, depth: u16) -> Case {
    let beside = Setup { jobs, depth, ..PLAIN };
    Case { name, setup: Setup { io_threads, ..beside }, beside }
}

const fn tmpfs(name: &'static str, read_percent: u8, block_bytes: u32, depth: u16) -> Case {
    let beside = Setup { read_percent, block_bytes, depth, ..PLAIN };
    Case { name, setup: Setup { medium: Medium::Tmpfs, ..beside }, beside }
}

const CASES: [Case; 13] = [
    connections("conns-16-1", 16, 1),
    connections("conns-16-8", 16, 8),
    connections("conns-128-1", 128, 1),
    connections("conns-128-8", 128, 8),
    connections("conns-1024-1", 1024, 1),
    connections("conns-1024-8", 1024, 8),
    threads("threads-2", 2, 2, 16),
    threads("threads-48-1", 48, 1, 1),
    threads("threads-48-32", 48, 1, 32),
    tmpfs("tmpfs-read-4k-32", 100, 4096, 32),
    tmpfs("tmpfs-write-4k-32", 0, 4096, 32),
    tmpfs("tmpfs-read-128k-16", 100, 131_072, 16),
    tmpfs("tmpfs-write-128k-16", 0, 131_072, 16),
];

/// A file that is removed when this is dropped.
struct TmpfsFile(String);

impl TmpfsFile {
    fn new() -> Self {
        Self(format!("/dev/shm/pilotlight-bench-{}.img", std::process::id()))
    }

    fn backend(&self) -> String {
        format!("file:{}?size={FILE_SIZE}", self.0)
    }
}

impl Drop for TmpfsFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // removed after a failed run, too
    }
}

impl Setup {
    /// A run on a separate server.
    fn run(&self, options: &Options) -> Report {
        let file = TmpfsFile::new();
        let backend = match self.medium {
            Medium::Given => options.backend.clone(),
            Medium::Tmpfs => file.backend(),
        };
        let server = support::serve_filled(&backend, self.io_threads);
        let report = self.load(&server, options.run_ns());
        support::stop(server);
        report
    }

    fn load(&self, server: &Server, run_ns: u64) -> Report {
        let spec = LoadSpec {
            jobs: self.jobs,
            hosts: self.jobs.div_ceil(QUEUES_PER_HOST),
            depth: self.depth,
            read_percent: self.read_percent,
            block_bytes: self.block_bytes,
            runtime_ns: Some(run_ns),
            ramp_ns: run_ns / 10,
            ..LoadSpec::default()
        };
        support::drive(&support::options(server), &spec)
    }

    /// Raises the limit on open files to what the connections need: both ends are in this process.
    fn raise_open_files(&self) -> Result<(), String> {
        let files = 2 * u64::from(self.jobs) + OTHER_FILES;
        let limit = getrlimit(Resource::Nofile);
        if limit.current.is_none_or(|current| current >= files) {
            return Ok(());
        }
        let maximum = limit.maximum.map(|maximum| maximum.max(files));
        setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum })
            .map_err(|error| format!("the limit on open files is {limit:?} and cannot be raised to {files}: {error}"))
    }
}

/// Runs of a case and of its reference, which is first in every other round.
fn rounds(case: &Case, options: &Options) -> (Vec<Report>, Vec<Report>) {
    let (mut runs, mut beside) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        if !options.target_only && round % 2 == 0 {
            beside.push(case.beside.run(options));
        }
        runs.push(case.setup.run(options));
        if !options.target_only && round % 2 == 1 {
            beside.push(case.beside.run(options));
        }
    }
    (runs, beside)
}

fn measure(options: &Options, cases: &[&Case]) {
    let title = format!("{}; {} rounds of {} s, medians", options.backend, options.rounds, options.seconds);
    let mut columns = RUN.to_vec();
    if !options.target_only {
        columns.extend([("beside_iops", 0), ("ratio", 3), ("beside_p50_us", 1), ("p50_ratio", 3), ("p99_ratio", 3)]);
    }
    let output = Output::begin(options.json, &title, columns);
    for case in cases {
        if let Err(why) = case.setup.raise_open_files() {
            eprintln!("SKIPPED {}: {why}", case.name);
            continue;
        }
        let (runs, beside) = rounds(case, options);
        let mut values = support::run_medians(&runs).to_vec();
        if !options.target_only {
            let ratio = |f: fn(&Report) -> f64| median(runs.iter().zip(&beside).map(|(run, other)| f(run) / f(other)));
            let [beside_iops, beside_p50_us, ..] = support::run_medians(&beside);
            let p50_ratio = ratio(|report| report.total.latency.p50_ns as f64);
            let p99_ratio = ratio(|report| report.total.latency.p99_ns as f64);
            values.extend([beside_iops, ratio(|report| report.total.rate_iops), beside_p50_us, p50_ratio, p99_ratio]);
        }
        output.row(case.name, &values);
    }
}

fn main() {
    let options = Options::from_args("mem:256MiB");
    if !support::has_two_cpus() {
        return;
    }
    let cases = options.selected(&CASES, |case| case.name);
    match &options.against {
        Some(other) => compare(&options, other),
        None => measure(&options, &cases),
    }
}
