//! sysbench's OLTP tests on a private PostgreSQL server ([`postgres`]): single-table transactions, not TPC-C.
//!
//! The tables are created once, in `prepare`. sysbench has no ramp: an unmeasured run of the same point precedes it.
//!
//! **Latency.** Of each transaction, from sysbench's histogram, whose 1,024 buckets are 1.8 % wide. sysbench prints the mean rounded to
//! 10 us; the record has the printed sum divided by the count.
//!
//! **Window.** sysbench prints its runtime and exits immediately: the window ends with the program.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::knob::{self, Knob};
use super::postgres::{self, Server};
use super::{Missing, Outcome, Point, Problem, RunContext, Step, Value, Workload, problem, program};
use crate::record::{Class, Latency, OperationKind, Record, Tool};

/// Versions that the adapter was tested with: Debian 12's.
pub const TESTED: [&str; 1] = ["1.0.20"];

const HELP: &str = "apt install sysbench, or set workload.program";
const DATABASE: &str = "sbtest";
/// Options that the adapter sets.
const RESERVED: [&str; 14] = [
    "threads",
    "time",
    "events",
    "rand-seed",
    "histogram",
    "percentile",
    "report-interval",
    "db-driver",
    "pgsql-host",
    "pgsql-user",
    "pgsql-db",
    "tables",
    "table-size",
    "table_size",
];

/// Keys of `[workload]` with `kind = "sysbench"`. A key that takes one or more values is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program; default: `sysbench`.
    #[serde(default = "default_program")]
    pub program: PathBuf,
    /// The folder of PostgreSQL's programs; default: the newest under `/usr/lib/postgresql`, else `PATH`.
    #[serde(default)]
    pub programs: Option<PathBuf>,
    /// Account of the server when the experiment runs as root; default: `postgres`.
    #[serde(default = "default_user")]
    pub user: String,
    /// One or more tests of sysbench, such as `oltp_read_write`, `oltp_point_select`, `oltp_update_index`; default: `oltp_read_write`.
    #[serde(default = "default_test")]
    pub test: Knob,
    /// One or more numbers of threads, each with a connection; default: 1.
    #[serde(default = "Knob::one")]
    pub threads: Knob,
    /// Number of tables; default: 1.
    #[serde(default = "one_table")]
    pub tables: u64,
    /// Rows of each table; default: 10,000, as in sysbench.
    #[serde(default = "default_rows")]
    pub table_size: u64,
    /// Any other option of sysbench or the test, one value or more: `options = { rate = 100, range_size = [100, 1000] }`.
    #[serde(default)]
    pub options: BTreeMap<String, Knob>,
    /// Settings of the server: `settings = { shared_buffers = "1GB" }`.
    #[serde(default)]
    pub settings: BTreeMap<String, Value>,
}

fn default_program() -> PathBuf {
    "sysbench".into()
}

fn default_user() -> String {
    "postgres".into()
}

fn default_test() -> Knob {
    Knob::word("oltp_read_write")
}

fn one_table() -> u64 {
    1
}

fn default_rows() -> u64 {
    10_000
}

/// sysbench.
#[derive(Clone, Debug)]
pub struct Sysbench {
    options: Options,
    programs: PathBuf,
}

impl Sysbench {
    /// Checks the options.
    ///
    /// # Errors
    /// A key without values, or an option that the adapter sets.
    pub fn new(options: Options) -> Result<Self, Problem> {
        knob::check_main([("test", &options.test), ("threads", &options.threads)])?;
        knob::check_others(&options.options, "workload.options", &RESERVED)?;
        if let Some(key) = options.settings.keys().find(|key| postgres::RESERVED.contains(&key.as_str())) {
            return Err(problem(format!("workload.settings.{key}"), "is set by the adapter; omit it"));
        }
        let other =
            |value: &&Value| !value.to_string().starts_with("oltp_") && !value.to_string().starts_with("select_");
        if let Some(other) = options.test.values().iter().find(other) {
            let why =
                format!("{other} is not one of sysbench's database tests, oltp_... and select_...; use fio for files");
            return Err(problem("workload.test", why));
        }
        let programs = postgres::programs(options.programs.as_deref());
        Ok(Self { options, programs })
    }

    fn server(&self, context: &RunContext) -> Result<Server, Problem> {
        Server::new(&self.programs, &self.options.user, context)
    }

    fn step(&self, server: &Server, test: &str, words: Vec<String>, command: &str, why: &str) -> Step {
        let own = [
            test.to_owned(),
            "--db-driver=pgsql".into(),
            format!("--pgsql-host={}", server.folder.display()),
            "--pgsql-user=postgres".into(),
            format!("--pgsql-db={DATABASE}"),
            format!("--tables={}", self.options.tables),
            format!("--table-size={}", self.options.table_size),
        ];
        let words = own.into_iter().chain(words).chain([command.to_owned()]);
        Step { argv: program::argv(&self.options.program, words), why: why.into(), ..Step::default() }
    }

    fn run(&self, point: &Point, context: &RunContext, seconds: f64, key: &str, why: &str) -> Result<Step, Problem> {
        let whole = seconds.ceil();
        if !(1.0..1e9).contains(&whole) {
            return Err(problem(key, "sysbench requires at least 1 s"));
        }
        let mut words = vec![
            format!("--threads={}", knob::count(point, "threads")?),
            format!("--time={whole:.0}"),
            "--events=0".into(),
            format!("--rand-seed={}", context.seed.clamp(1, i32::MAX as u64)),
            "--report-interval=0".into(),
            "--histogram=on".into(),
            "--percentile=99".into(),
        ];
        for key in self.options.options.keys() {
            words.push(match knob::at(point, key)? {
                Value::Switch(on) => format!("--{key}={}", if *on { "on" } else { "off" }),
                value => format!("--{key}={value}"),
            });
        }
        let step = self.step(&self.server(context)?, &knob::argument(point, "test")?, words, "run", why);
        Ok(Step { limit_s: whole + 600.0, ..step })
    }
}

impl Workload for Sysbench {
    fn name(&self) -> &str {
        "sysbench"
    }

    fn knobs(&self) -> Vec<(String, Vec<Value>)> {
        let main = [("test", &self.options.test), ("threads", &self.options.threads)];
        knob::listed(main, &[&self.options.options])
    }

    fn tool(&self) -> Result<Tool, Missing> {
        let output = program::output(&self.options.program, &["--version"], HELP)?;
        let version = program::version_in(&output).unwrap_or_default().to_owned();
        postgres::check_installed(&self.programs, &self.options.user, "sysbench")?;
        Ok(Tool { name: "sysbench".into(), known: TESTED.contains(&version.as_str()), version })
    }

    fn prepare(&self, context: &RunContext) -> Result<Vec<Step>, Problem> {
        let server = self.server(context)?;
        server.check()?;
        let setting = |(key, value): (&String, &Value)| (key.clone(), postgres::setting(value));
        let settings: Vec<(String, String)> = self.options.settings.iter().map(setting).collect();
        let mut steps = server.create();
        steps.extend(server.start(&settings));
        steps.push(server.client("createdb", [DATABASE.to_owned()], "creating a database"));
        // All database tests use the same tables.
        steps.push(self.step(&server, "oltp_read_write", Vec::new(), "prepare", "filling the database"));
        Ok(steps)
    }

    fn before(&self, point: &Point, context: &RunContext) -> Result<Vec<Step>, Problem> {
        let mut steps = vec![self.server(context)?.checkpoint()];
        if context.ramp_s > 0.0 {
            steps.push(self.run(point, context, context.ramp_s, "ramp", "warming up")?);
        }
        Ok(steps)
    }

    fn command(&self, point: &Point, context: &RunContext) -> Result<Step, Problem> {
        self.run(point, context, context.duration_s, "duration", "sysbench")
    }

    fn parse(&self, _: &Point, _: &RunContext, outcome: &Outcome) -> Result<Record, Problem> {
        let mut record = record(outcome)?;
        record.warnings.extend(program::untested(&record.tool, &TESTED));
        Ok(record)
    }

    fn clean_up(&self, context: &RunContext) -> Vec<Step> {
        self.server(context).map(|server| vec![server.stop(), server.remove()]).unwrap_or_default()
    }
}

/// Builds the record of one run.
fn record(outcome: &Outcome) -> Result<Record, Problem> {
    let (stdout, stderr) = (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    if outcome.status != Some(0) {
        let status = outcome.status_text();
        let fatal = |line: &&str| line.contains("FATAL") || line.contains("ALERT") || line.contains("error");
        let errors: Vec<&str> = stdout.lines().chain(stderr.lines()).filter(fatal).collect();
        return Err(problem("sysbench", format!("{status}; output: {}", errors.join("; "))));
    }
    let needed = |key: &str| {
        number(&stdout, key).ok_or_else(|| problem(format!("sysbench's report, {key}"), "is missing or not a number"))
    };
    let operations = needed("transactions:")? as u64;
    let runtime_ns = (needed("total time:")? * 1e9).round() as u64;
    let ns = |ms: f64| (ms * 1e6).round() as u64;
    let latency = Latency {
        mean_ns: (operations > 0).then_some(needed("sum:")? * 1e6 / operations as f64),
        deviation_ns: None,
        least_ns: Some(ns(needed("min:")?)),
        greatest_ns: Some(ns(needed("max:")?)),
        histogram: histogram(&stdout),
        printed: Vec::new(),
    };
    let counted: u64 = latency.histogram.iter().map(|(_, count)| count).sum();
    let mut warnings: Vec<String> = stderr.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect();
    if counted != operations {
        warnings.push(format!("sysbench reports {operations} transactions but latencies of {counted}"));
    }
    let extra = [
        ("queries_count", "queries:"),
        ("ignored_errors_count", "ignored errors:"),
        ("reconnects_count", "reconnects:"),
    ];
    let extra = extra.iter().filter_map(|(column, key)| Some(((*column).to_owned(), number(&stdout, key)?))).collect();
    let version = stdout.lines().next().and_then(program::version_in).unwrap_or_default().to_owned();
    let tool = Tool { name: "sysbench".into(), known: TESTED.contains(&version.as_str()), version };
    let class =
        Class { kind: OperationKind::Transaction, operations: Some(operations), bytes: None, runtime_ns, latency };
    let classes = if operations > 0 { vec![class] } else { Vec::new() };
    let lasted = outcome.span_ns.1.saturating_sub(outcome.span_ns.0);
    let window_ns = lasted.checked_sub(runtime_ns).map(|from| (from, lasted));
    Ok(Record { tool, classes, window_ns, extra, warnings })
}

/// The number after `key` at the start of a line.
fn number(text: &str, key: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.trim_start().strip_prefix(key))?;
    rest.split_whitespace().next()?.trim_end_matches('s').parse().ok()
}

/// Parses lines such as `0.097 |**************************************** 656`, in milliseconds. sysbench rounds to microseconds, so
/// several lines can have the same value; they are added.
fn histogram(text: &str) -> Vec<(u64, u64)> {
    let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
    for line in text.lines().skip_while(|line| !line.starts_with("Latency histogram")).skip(2) {
        let Some((value, bar)) = line.split_once('|') else { break };
        let (value, count) = (value.trim().parse::<f64>(), bar.trim_start_matches('*').trim().parse::<u64>());
        let (Ok(ms), Ok(count)) = (value, count) else { break };
        *buckets.entry((ms * 1e6).round() as u64).or_default() += count;
    }
    buckets.into_iter().collect()
}

#[cfg(test)]
mod tests;
