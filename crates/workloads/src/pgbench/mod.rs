//! pgbench: transactions on a private PostgreSQL server ([`postgres`]). Its built-in `tpcb-like` resembles TPC-B; `tpcc` is part of this
//! crate and resembles TPC-C ([`tpcc`]).
//!
//! The server is started once in `prepare`, or before each point if one of its settings has several values. Each scale has a database.
//! pgbench has no ramp: an unmeasured run of the same point precedes it on the same server, after a checkpoint.
//!
//! **Latency.** Of each transaction, in microseconds, from pgbench's log (`--log`); with a rate from its due time. Writing the log costs
//! CPU time at high rates: `sampling = 0.01` logs one transaction in a hundred. Counts, mean and deviation are then those that pgbench
//! prints, and the histogram is that of the sample.
//!
//! **Window.** From the start of the first logged transaction to the end of the last.

mod output;
#[cfg(test)]
mod tests;
pub mod tpcc;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::knob::{self, Knob};
use super::postgres::{self, HELP, Server};
use super::{Missing, Outcome, Point, Problem, RunContext, Step, Value, Workload, problem, program};
use crate::record::{OperationKind, Record, Tool};

/// Major versions that the adapter was tested with: Debian 12's.
pub const TESTED: [&str; 1] = ["15"];

/// Options that the adapter sets.
const RESERVED: [&str; 16] = [
    "builtin",
    "file",
    "client",
    "jobs",
    "scale",
    "time",
    "transactions",
    "log",
    "log-prefix",
    "sampling-rate",
    "random-seed",
    "host",
    "username",
    "no-vacuum",
    "aggregate-interval",
    "progress",
];

/// Keys of `[workload]` with `kind = "pgbench"`. A key that takes one or more values is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The folder of PostgreSQL's programs; default: the newest under `/usr/lib/postgresql`, else `PATH`.
    #[serde(default)]
    pub programs: Option<PathBuf>,
    /// Account of the server when the experiment runs as root; default: `postgres`.
    #[serde(default = "default_user")]
    pub user: String,
    /// One or more scripts: pgbench's `tpcb-like`, `simple-update`, `select-only`, the built-in [`tpcc`], or a file (a word with a `/`);
    /// default: `tpcb-like`.
    #[serde(default = "default_script")]
    pub script: Knob,
    /// One or more scales, in units of 100,000 accounts, or of a warehouse with `tpcc`; default: 1.
    #[serde(default = "Knob::one")]
    pub scale: Knob,
    /// One or more numbers of clients; default: 1.
    #[serde(default = "Knob::one")]
    pub clients: Knob,
    /// One or more numbers of pgbench's threads; default: 1.
    #[serde(default = "Knob::one")]
    pub jobs: Knob,
    /// Any other long option of pgbench, one value or more: `options = { protocol = "prepared", rate = [1000, 2000] }`.
    #[serde(default)]
    pub options: BTreeMap<String, Knob>,
    /// Any setting of the server, one value or more: `settings = { shared_buffers = ["128MB", "1GB"] }`. If a setting has several, the
    /// server is restarted before each point.
    #[serde(default)]
    pub settings: BTreeMap<String, Knob>,
    /// Fraction of the transactions that are logged, above 0 and at most 1; default: all.
    #[serde(default)]
    pub sampling: Option<f64>,
    /// Size of a warehouse of `tpcc`; default: the specification's.
    #[serde(default)]
    pub tpcc: tpcc::Size,
}

fn default_user() -> String {
    "postgres".into()
}

fn default_script() -> Knob {
    Knob::word("tpcb-like")
}

/// pgbench.
#[derive(Clone, Debug)]
pub struct Pgbench {
    options: Options,
    programs: PathBuf,
}

impl Pgbench {
    /// Checks the options.
    ///
    /// # Errors
    /// A key without values, or an option that the adapter sets.
    pub fn new(options: Options) -> Result<Self, Problem> {
        knob::check_main(main_knobs(&options))?;
        knob::check_others(&options.options, "workload.options", &RESERVED)?;
        knob::check_others(&options.settings, "workload.settings", &postgres::RESERVED)?;
        options.tpcc.check()?;
        if options.sampling.is_some_and(|fraction| !(fraction > 0.0 && fraction <= 1.0)) {
            return Err(problem("workload.sampling", "must be above 0 and at most 1"));
        }
        let programs = postgres::programs(options.programs.as_deref());
        Ok(Self { options, programs })
    }

    fn server(&self, context: &RunContext) -> Result<Server, Problem> {
        Server::new(&self.programs, &self.options.user, context)
    }

    fn settings_vary(&self) -> bool {
        self.options.settings.values().any(|knob| knob.values().len() > 1)
    }

    /// The server's settings of a point; without a point, the settings with one value.
    fn settings(&self, point: Option<&Point>) -> Vec<(String, String)> {
        let value = |key: &String, knob: &Knob| match point {
            Some(point) => point.get(key).cloned(),
            None => match knob.values() {
                [value] => Some(value.clone()),
                _ => None,
            },
        };
        let settings = self.options.settings.iter();
        settings.filter_map(|(key, knob)| Some((key.clone(), postgres::setting(&value(key, knob)?)))).collect()
    }

    /// Combinations of scripts and scales.
    fn tables(&self) -> Vec<(Value, Value)> {
        let with = |script: &Value| {
            let scales = self.options.scale.values().iter();
            scales.map(|scale| (script.clone(), scale.clone())).collect::<Vec<_>>()
        };
        self.options.script.values().iter().flat_map(with).collect()
    }

    /// Creates and fills the database of a point.
    fn fill(&self, server: &Server, point: &Point, context: &RunContext) -> Result<[Step; 2], Problem> {
        let (name, scale) = (database(point)?, knob::count(point, "scale")?);
        let make = server.client("createdb", [name.clone()], "creating a database");
        let (why, name) = ("filling the database", [name]);
        if !is_tpcc(point)? {
            let words = ["--initialize".to_owned(), "--quiet".into(), format!("--scale={scale}")];
            return Ok([make, server.client("pgbench", words.into_iter().chain(name), why)]);
        }
        let (files, words) = tpcc::load(&context.scratch, scale, &self.options.tpcc);
        Ok([make, Step { files, ..server.client("psql", words.into_iter().chain(name), why) }])
    }

    /// Arguments of a run of this point.
    fn run(&self, point: &Point, seconds: u64, context: &RunContext) -> Result<Vec<String>, Problem> {
        let mut words = match knob::argument(point, "script")?.as_str() {
            tpcc::NAME => tpcc::words(knob::count(point, "scale")?),
            script if script.contains('/') => vec![script_file(script)?],
            builtin => vec![format!("--builtin={builtin}")],
        };
        words.push(format!("--client={}", knob::count(point, "clients")?));
        words.push(format!("--jobs={}", knob::count(point, "jobs")?));
        words.push(format!("--time={seconds}"));
        words.push(format!("--random-seed={}", context.seed));
        for key in self.options.options.keys() {
            words.extend(match knob::at(point, key)? {
                Value::Switch(on) => on.then(|| format!("--{key}")),
                value => Some(format!("--{key}={value}")),
            });
        }
        Ok(words)
    }
}

/// The script files of a point.
fn files(point: &Point, context: &RunContext) -> Result<Vec<(PathBuf, String)>, Problem> {
    Ok(if is_tpcc(point)? { tpcc::scripts(&context.scratch) } else { Vec::new() })
}

fn main_knobs(options: &Options) -> [(&'static str, &Knob); 4] {
    [("script", &options.script), ("scale", &options.scale), ("clients", &options.clients), ("jobs", &options.jobs)]
}

/// A script file, relative to the current folder.
fn script_file(script: &str) -> Result<String, Problem> {
    let path = std::path::absolute(script).map_err(|error| problem("workload.script", format!("{script}: {error}")))?;
    Ok(format!("--file={}", path.display()))
}

/// The name of a point's database.
fn database(point: &Point) -> Result<String, Problem> {
    let tables = if is_tpcc(point)? { tpcc::NAME } else { "pgbench" };
    Ok(format!("{tables}_{}", knob::count(point, "scale")?))
}

fn is_tpcc(point: &Point) -> Result<bool, Problem> {
    Ok(knob::argument(point, "script")? == tpcc::NAME)
}

/// Folder of the log in the scratch folder, the working directory of steps.
const LOG: &str = "pgbench-log";

/// pgbench accepts whole seconds only.
fn whole(seconds: f64, key: &str) -> Result<u64, Problem> {
    let whole = seconds.ceil();
    (1.0..1e9).contains(&whole).then_some(whole as u64).ok_or_else(|| problem(key, "pgbench requires at least 1 s"))
}

fn simple(program: &str, words: &[&str], why: &str) -> Step {
    let words = words.iter().map(|word| (*word).to_owned());
    Step { argv: program::argv(Path::new(program), words), why: why.into(), ..Step::default() }
}

impl Workload for Pgbench {
    fn name(&self) -> &str {
        "pgbench"
    }

    fn knobs(&self) -> Vec<(String, Vec<Value>)> {
        knob::listed(main_knobs(&self.options), &[&self.options.options, &self.options.settings])
    }

    fn tool(&self) -> Result<Tool, Missing> {
        let output = program::output(&self.programs.join("pgbench"), &["--version"], HELP)?;
        let version = program::version_in(&output).unwrap_or_default().to_owned();
        postgres::check_installed(&self.programs, &self.options.user, "pgbench")?;
        Ok(Tool { name: "pgbench".into(), known: output::is_known(&version), version })
    }

    fn prepare(&self, context: &RunContext) -> Result<Vec<Step>, Problem> {
        let server = self.server(context)?;
        server.check()?;
        let mut steps = server.create();
        steps.extend(server.start(&self.settings(None)));
        let mut filled = BTreeSet::new();
        for (script, scale) in self.tables() {
            let point = Point::from([("script".to_owned(), script), ("scale".to_owned(), scale)]);
            if filled.insert(database(&point)?) {
                steps.extend(self.fill(&server, &point, context)?);
            }
        }
        if self.settings_vary() {
            steps.push(server.stop());
        }
        Ok(steps)
    }

    fn before(&self, point: &Point, context: &RunContext) -> Result<Vec<Step>, Problem> {
        let server = self.server(context)?;
        let mut steps = vec![
            simple("rm", &["-rf", "--", LOG], "removing the log of the point before"),
            simple("mkdir", &["--", LOG], "creating a folder for the log"),
        ];
        if self.settings_vary() {
            steps.extend(server.start(&self.settings(Some(point))));
        }
        steps.push(server.checkpoint());
        if context.ramp_s > 0.0 {
            let mut words = self.run(point, whole(context.ramp_s, "ramp")?, context)?;
            words.push(database(point)?);
            steps.push(Step { files: files(point, context)?, ..server.client("pgbench", words, "warming up") });
        }
        Ok(steps)
    }

    fn command(&self, point: &Point, context: &RunContext) -> Result<Step, Problem> {
        let (server, seconds) = (self.server(context)?, whole(context.duration_s, "duration")?);
        let mut words = self.run(point, seconds, context)?;
        // The ramp has already vacuumed.
        words.extend((context.ramp_s > 0.0 && !is_tpcc(point)?).then(|| "--no-vacuum".into()));
        // Without --progress pgbench derives the mean from the duration and prints no deviation. The period of a day suppresses reports.
        words.push("--progress=86400".into());
        words.push("--log".into());
        words.push(format!("--log-prefix={LOG}/log"));
        words.extend(self.options.sampling.map(|fraction| format!("--sampling-rate={fraction}")));
        words.push(database(point)?);
        let step = server.client("pgbench", words, "pgbench");
        Ok(Step { limit_s: context.duration_s + 600.0, files: files(point, context)?, ..step })
    }

    fn parse(&self, point: &Point, context: &RunContext, outcome: &Outcome) -> Result<Record, Problem> {
        let mut log = output::Log::default();
        let folder = context.scratch.join(LOG);
        let unread = |error: std::io::Error| problem("pgbench's log", format!("{}: {error}", folder.display()));
        let entries: Result<Vec<_>, _> = std::fs::read_dir(&folder).map_err(unread)?.collect();
        for entry in entries.map_err(unread)? {
            log.read(std::io::BufReader::new(std::fs::File::open(entry.path()).map_err(unread)?))?;
        }
        let kinds = if is_tpcc(point)? { tpcc::kinds() } else { Vec::new() };
        let mut record =
            output::record(outcome, log, self.options.sampling.is_some_and(|fraction| fraction < 1.0), &kinds)?;
        if let Some(class) =
            record.classes.iter().find(|class| class.kind == OperationKind::TransactionKind("new-order".into()))
        {
            let per_minute = tpcc::per_minute(class.counted(), class.runtime_ns);
            record.extra.insert("new_orders_per_minute".into(), per_minute);
        }
        record.warnings.extend(self.options.tpcc.warning().filter(|_| !kinds.is_empty()));
        record.warnings.extend(program::untested(&record.tool, &TESTED));
        Ok(record)
    }

    fn clean_up(&self, context: &RunContext) -> Vec<Step> {
        self.server(context).map(|server| vec![server.stop(), server.remove()]).unwrap_or_default()
    }
}
