//! Options, server, load, medians and output of benchmarks of a whole target.
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `--only NAME[,NAME...]` | these cases | all |
//! | `--rounds N` | rounds, of which medians are printed | 5 |
//! | `--seconds S` | duration of each run | 1 |
//! | `--backend SPEC` | the namespace's backend | each benchmark's own |
//! | `--target-only` | only the target under `static`; one server for all cases of a round | off |
//! | `--json` | one JSON object per case and line | a table |
//! | `--against PROGRAM` | the same benchmark, built from another commit, in alternated rounds (`compare.rs`) | - |
#![allow(dead_code)] // each benchmark uses a part

pub(crate) mod compare;
#[path = "../../tests/support/servers.rs"]
pub(crate) mod servers;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pilotlight_host::ConnectOptions;
use pilotlight_host::load::{LoadSpec, Report, run};
use pilotlight_nvmf_target::{Limits, Server, ServerConfig};

pub(crate) const NQN: &str = "nqn.2014-08.org.pilotlight:bench";
pub(crate) const SERVER_CPU: usize = 0;
pub(crate) const CLIENT_CPU: usize = 1;

/// The command line.
pub(crate) struct Options {
    pub(crate) backend: String,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) only: Vec<String>,
    pub(crate) json: bool,
    pub(crate) target_only: bool,
    pub(crate) against: Option<PathBuf>,
}

impl Options {
    /// Parses the command line, or ends the program with a message. `backend` is the default.
    pub(crate) fn from_args(backend: &str) -> Self {
        let mut this = Self {
            backend: backend.into(),
            rounds: 5,
            seconds: 1.0,
            only: Vec::new(),
            json: false,
            target_only: false,
            against: None,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().unwrap_or_else(|| fail(&format!("{arg} needs a value")));
            match arg.as_str() {
                "--backend" => this.backend = value(),
                "--rounds" => this.rounds = number(&value()),
                "--seconds" => this.seconds = number(&value()),
                "--only" => this.only = value().split(',').map(str::to_owned).collect(),
                "--json" => this.json = true,
                "--target-only" => this.target_only = true,
                "--against" => this.against = Some(value().into()),
                "--bench" => {} // from cargo
                _ => fail(&format!("unknown option {arg}; the options are listed in benches/support/mod.rs")),
            }
        }
        this
    }

    pub(crate) fn run_ns(&self) -> u64 {
        (self.seconds * 1e9) as u64
    }

    /// The selected cases.
    pub(crate) fn selected<'a, T>(&self, cases: &'a [T], name: impl Fn(&T) -> &str) -> Vec<&'a T> {
        let known: Vec<&str> = cases.iter().map(&name).collect();
        if let Some(unknown) = self.only.iter().find(|only| !known.contains(&only.as_str())) {
            fail(&format!("unknown case {unknown}: use one of {}", known.join(", ")));
        }
        cases.iter().filter(|case| self.only.is_empty() || self.only.iter().any(|only| only == name(case))).collect()
    }
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| fail(&format!("{text} is not a valid number")))
}

/// Ends the program.
pub(crate) fn fail(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(2)
}

/// Whether there is a CPU for the target and one for the load. Prints a message if not.
pub(crate) fn has_two_cpus() -> bool {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cpus < 2 {
        eprintln!("SKIPPED: two CPUs are needed, one for the target and one for the load; this machine has {cpus}");
    }
    cpus >= 2
}

/// A polling target on [`SERVER_CPU`].
pub(crate) fn serve(backend: &str, io_threads: u32) -> Server {
    let backend = backend.parse().unwrap_or_else(|error| fail(&format!("{error}")));
    let namespace = servers::namespace(1, backend);
    let subsystem = servers::subsystem(NQN, vec![namespace]);
    let config = ServerConfig {
        cores: vec![SERVER_CPU as u32],
        main_core: SERVER_CPU as u32,
        io_threads,
        limits: Limits::default(),
        ..servers::config(vec![subsystem])
    };
    let server = Server::start(config).unwrap_or_else(|error| fail(&format!("the server does not start: {error}")));
    set_policy(&server, "static");
    server
}

pub(crate) fn set_policy(server: &Server, name: &str) {
    let policy = pilotlight_policy::build(name, &[]).expect("a policy");
    server.set_policy(policy).expect("a supported policy");
}

pub(crate) fn stop(server: Server) {
    server.stop(Duration::from_secs(5)).expect("the server stops");
}

pub(crate) fn options(server: &Server) -> ConnectOptions {
    ConnectOptions::new(server.local_addrs()[0], NQN)
}

/// Runs a load on [`CLIENT_CPU`].
pub(crate) fn drive(options: &ConnectOptions, spec: &LoadSpec) -> Report {
    let spec = LoadSpec { cpus: vec![CLIENT_CPU], ..spec.clone() };
    run(options, &spec, &AtomicBool::new(false), &mut |_| {}).expect("the load runs to its end")
}

/// A server with written blocks.
pub(crate) fn serve_filled(backend: &str, io_threads: u32) -> Server {
    let server = serve(backend, io_threads);
    if !backend.starts_with("null") {
        fill(&server);
    }
    server
}

/// Writes every block once, as written blocks cost more to read than unwritten ones.
fn fill(server: &Server) {
    let spec = LoadSpec { random: false, read_percent: 0, block_bytes: 131_072, depth: 16, ..LoadSpec::default() };
    drive(&options(server), &spec);
}

/// The median; NaN of no values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.get(values.len().saturating_sub(1) / 2..values.len() / 2 + 1).unwrap_or_default();
    middle.iter().sum::<f64>() / middle.len() as f64
}

/// A column of the output: key and decimal digits.
pub(crate) type Column = (&'static str, usize);

/// The columns that describe a run of the target.
pub(crate) const RUN: [Column; 5] = [("iops", 0), ("p50_us", 1), ("p99_us", 1), ("p99_9_us", 1), ("gb_per_s", 2)];

/// The medians of [`RUN`] over runs.
pub(crate) fn run_medians(reports: &[Report]) -> [f64; 5] {
    let column = |f: &dyn Fn(&Report) -> f64| median(reports.iter().map(f));
    [
        column(&|r| r.total.rate_iops),
        column(&|r| r.total.latency.p50_ns as f64 / 1e3),
        column(&|r| r.total.latency.p99_ns as f64 / 1e3),
        column(&|r| r.total.latency.p99_9_ns as f64 / 1e3),
        column(&|r| r.total.data_bytes_per_s / 1e9),
    ]
}

/// Prints a row for each case, as a table or as lines of JSON.
pub(crate) struct Output {
    columns: Vec<Column>,
    json: bool,
}

impl Output {
    /// Prints the title and the table's header.
    pub(crate) fn begin(json: bool, title: &str, columns: Vec<Column>) -> Self {
        if !json {
            println!("{title}\n");
            let keys: Vec<&str> = columns.iter().map(|(key, _)| *key).collect();
            println!("| {:18} | {} |", "case", keys.join(" | "));
            println!("|---|{}", "---|".repeat(columns.len()));
        }
        Self { columns, json }
    }

    /// Prints one case; NaN is a missing value.
    pub(crate) fn row(&self, case: &str, values: &[f64]) {
        assert_eq!(values.len(), self.columns.len());
        if self.json {
            let pairs = self.columns.iter().zip(values).map(|((key, _), &value)| ((*key).to_owned(), value.into()));
            let object: serde_json::Map<String, serde_json::Value> =
                std::iter::once(("case".to_owned(), case.into())).chain(pairs).collect();
            println!("{}", serde_json::Value::Object(object));
            return;
        }
        let cell = |(&value, (key, digits)): (&f64, &Column)| {
            let width = key.len();
            if value.is_nan() { format!("{:>width$}", "-") } else { format!("{value:>width$.digits$}") }
        };
        let cells: Vec<String> = values.iter().zip(&self.columns).map(cell).collect();
        println!("| {case:18} | {} |", cells.join(" | "));
    }
}
