//! pgbench: transactions on a PostgreSQL server of one's own ([`postgres`]). Its built-in `tpcb-like` is like TPC-B; `tpcc` is our own
//! and like TPC-C ([`tpcc`]).
//!
//! The server is started once, in `prepare`; where a setting of the server is varied, before each point instead. There is a
//! database for each scale. pgbench has no ramp: the ramp is an unmeasured run of the same point before, on the same server,
//! after a checkpoint.
//!
//! **Which latency.** That of each transaction, from pgbench's log (`--log`), in microseconds; with a rate it counts from when
//! the transaction was due. At a great many transactions a second writing the log costs something: `sampling = 0.01` logs
//! every hundredth; the counts are then still pgbench's, mean and deviation those that it prints, and the histogram that of the
//! sample.
//!
//! **When it was measured.** From the begin of the first logged transaction to the end of the last.

mod output;
#[cfg(test)]
mod tests;
pub mod tpcc;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::knob::{self, Knob};
use super::postgres::{self, HELP, Server};
use super::{Missing, Outcome, Point, Problem, Stage, Step, Value, Workload, problem, program};
use crate::record::{Record, Tool, What};

/// Major versions on whose output the adapter was tried: Debian 12's.
pub const TRIED: [&str; 1] = ["15"];

/// What the adapter says itself.
const OWN: [&str; 16] = [
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

/// What is asked of pgbench. In TOML: `kind = "pgbench"`, and these keys. A key that says "one or several" is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The folder of PostgreSQL's programs; where it is not given the newest under `/usr/lib/postgresql`, else the path.
    #[serde(default)]
    pub programs: Option<PathBuf>,
    /// The account under which the server runs when we are root; `postgres` where it is not given.
    #[serde(default = "default_user")]
    pub user: String,
    /// One or several scripts: pgbench's `tpcb-like`, `simple-update`, `select-only`, our [`tpcc`], or a file (a word with a
    /// `/`); `tpcb-like` where it is not given.
    #[serde(default = "default_script")]
    pub script: Knob,
    /// One or several scales: 100,000 accounts each, with `tpcc` a warehouse each; 1 where it is not given.
    #[serde(default = "Knob::one")]
    pub scale: Knob,
    /// One or several numbers of clients; 1 where it is not given.
    #[serde(default = "Knob::one")]
    pub clients: Knob,
    /// One or several numbers of pgbench's threads; 1 where it is not given.
    #[serde(default = "Knob::one")]
    pub jobs: Knob,
    /// Any other long option of pgbench, one value or several: `options = { protocol = "prepared", rate = [1000, 2000] }`.
    #[serde(default)]
    pub options: BTreeMap<String, Knob>,
    /// Any setting of the server, one value or several: `settings = { shared_buffers = ["128MB", "1GB"] }`. Where one has
    /// several, the server is started anew before each point.
    #[serde(default)]
    pub settings: BTreeMap<String, Knob>,
    /// Which share of the transactions is logged, above 0 and at most 1; all where it is not given.
    #[serde(default)]
    pub sampling: Option<f64>,
    /// How large a warehouse of `tpcc` is; as in the specification where it is not given.
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
    /// With these options.
    ///
    /// # Errors
    /// A key that says nothing, or an option that the adapter has to say itself.
    pub fn new(options: Options) -> Result<Self, Problem> {
        knob::check_main(main_knobs(&options))?;
        knob::check_others(&options.options, "workload.options", &OWN)?;
        knob::check_others(&options.settings, "workload.settings", &postgres::OWN)?;
        options.tpcc.check()?;
        if options.sampling.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
            return Err(problem("workload.sampling", "is a share above 0 and at most 1"));
        }
        let programs = postgres::programs(options.programs.as_deref());
        Ok(Self { options, programs })
    }

    fn server(&self, stage: &Stage) -> Result<Server, Problem> {
        Server::new(&self.programs, &self.options.user, stage)
    }

    fn settings_vary(&self) -> bool {
        self.options.settings.values().any(|knob| knob.values().len() > 1)
    }

    /// The server's settings at a point; without one, those that are always the same.
    fn settings(&self, point: Option<&Point>) -> Vec<(String, String)> {
        let value = |key: &String, knob: &Knob| match point {
            Some(point) => point.get(key).cloned(),
            None => {
                if let [only] = knob.values() {
                    Some(only.clone())
                } else {
                    None
                }
            }
        };
        let settings = self.options.settings.iter();
        settings.filter_map(|(key, knob)| Some((key.clone(), postgres::setting(&value(key, knob)?)))).collect()
    }

    /// Scripts and scales, every combination.
    fn tables(&self) -> Vec<(Value, Value)> {
        let with = |script: &Value| {
            let scales = self.options.scale.values().iter();
            scales.map(|scale| (script.clone(), scale.clone())).collect::<Vec<_>>()
        };
        self.options.script.values().iter().flat_map(with).collect()
    }

    /// A database for these points.
    fn fill(&self, server: &Server, point: &Point, stage: &Stage) -> Result<[Step; 2], Problem> {
        let (name, scale) = (database(point)?, knob::count(point, "scale")?);
        let make = server.client("createdb", [name.clone()], "making a database");
        let (why, name) = ("filling the database", [name]);
        if !is_tpcc(point)? {
            let words = ["--initialize".to_owned(), "--quiet".into(), format!("--scale={scale}")];
            return Ok([make, server.client("pgbench", words.into_iter().chain(name), why)]);
        }
        let (files, words) = tpcc::load(&stage.scratch, scale, &self.options.tpcc);
        Ok([make, Step { files, ..server.client("psql", words.into_iter().chain(name), why) }])
    }

    /// A run of this point for so many seconds.
    fn run(&self, point: &Point, seconds: u64, stage: &Stage) -> Result<Vec<String>, Problem> {
        let mut words = match knob::argument(point, "script")?.as_str() {
            tpcc::NAME => tpcc::words(knob::count(point, "scale")?),
            script if script.contains('/') => vec![own_script(script)?],
            builtin => vec![format!("--builtin={builtin}")],
        };
        words.push(format!("--client={}", knob::count(point, "clients")?));
        words.push(format!("--jobs={}", knob::count(point, "jobs")?));
        words.push(format!("--time={seconds}"));
        words.push(format!("--random-seed={}", stage.seed));
        for key in self.options.options.keys() {
            words.extend(match knob::at(point, key)? {
                Value::Switch(on) => on.then(|| format!("--{key}")),
                value => Some(format!("--{key}={value}")),
            });
        }
        Ok(words)
    }
}

/// The scripts that a point needs beside pgbench.
fn files(point: &Point, stage: &Stage) -> Result<Vec<(PathBuf, String)>, Problem> {
    Ok(if is_tpcc(point)? { tpcc::scripts(&stage.scratch) } else { Vec::new() })
}

fn main_knobs(options: &Options) -> [(&'static str, &Knob); 4] {
    [("script", &options.script), ("scale", &options.scale), ("clients", &options.clients), ("jobs", &options.jobs)]
}

/// A file that is named from where the experiment was started.
fn own_script(script: &str) -> Result<String, Problem> {
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

/// In the scratch folder, which steps are started in.
const LOG: &str = "pgbench-log";

/// pgbench counts whole seconds.
fn whole(seconds: f64, key: &str) -> Result<u64, Problem> {
    let whole = seconds.ceil();
    (1.0..1e9)
        .contains(&whole)
        .then_some(whole as u64)
        .ok_or_else(|| problem(key, "pgbench takes whole seconds, from 1 on"))
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
        let said = program::ask(&self.programs.join("pgbench"), &["--version"], HELP)?;
        let version = program::version_in(&said).unwrap_or_default().to_owned();
        postgres::look(&self.programs, &self.options.user, "pgbench")?;
        Ok(Tool { name: "pgbench".into(), known: output::is_known(&version), version })
    }

    fn prepare(&self, stage: &Stage) -> Result<Vec<Step>, Problem> {
        let server = self.server(stage)?;
        server.check()?;
        let mut steps = server.make();
        steps.extend(server.start(&self.settings(None)));
        let mut filled = BTreeSet::new();
        for (script, scale) in self.tables() {
            let point = Point::from([("script".to_owned(), script), ("scale".to_owned(), scale)]);
            if filled.insert(database(&point)?) {
                steps.extend(self.fill(&server, &point, stage)?);
            }
        }
        if self.settings_vary() {
            steps.push(server.stop());
        }
        Ok(steps)
    }

    fn before(&self, point: &Point, stage: &Stage) -> Result<Vec<Step>, Problem> {
        let server = self.server(stage)?;
        let mut steps = vec![
            simple("rm", &["-rf", "--", LOG], "removing the log of the point before"),
            simple("mkdir", &["--", LOG], "a folder for the log"),
        ];
        if self.settings_vary() {
            steps.extend(server.start(&self.settings(Some(point))));
        }
        steps.push(server.checkpoint());
        if stage.ramp_s > 0.0 {
            let mut words = self.run(point, whole(stage.ramp_s, "ramp")?, stage)?;
            words.push(database(point)?);
            steps.push(Step { files: files(point, stage)?, ..server.client("pgbench", words, "warming up") });
        }
        Ok(steps)
    }

    fn command(&self, point: &Point, stage: &Stage) -> Result<Step, Problem> {
        let (server, seconds) = (self.server(stage)?, whole(stage.duration_s, "duration")?);
        let mut words = self.run(point, seconds, stage)?;
        // The ramp has vacuumed already.
        words.extend((stage.ramp_s > 0.0 && !is_tpcc(point)?).then(|| "--no-vacuum".into()));
        // Else pgbench computes the mean that it prints from the duration, and no deviation. No report comes before a day is over.
        words.push("--progress=86400".into());
        words.push("--log".into());
        words.push(format!("--log-prefix={LOG}/log"));
        words.extend(self.options.sampling.map(|share| format!("--sampling-rate={share}")));
        words.push(database(point)?);
        let step = server.client("pgbench", words, "pgbench");
        Ok(Step { limit_s: stage.duration_s + 600.0, files: files(point, stage)?, ..step })
    }

    fn parse(&self, point: &Point, stage: &Stage, outcome: &Outcome) -> Result<Record, Problem> {
        let mut log = output::Log::default();
        let folder = stage.scratch.join(LOG);
        let unread = |error: std::io::Error| problem("pgbench's log", format!("{}: {error}", folder.display()));
        let entries: Result<Vec<_>, _> = std::fs::read_dir(&folder).map_err(unread)?.collect();
        for entry in entries.map_err(unread)? {
            log.read(std::io::BufReader::new(std::fs::File::open(entry.path()).map_err(unread)?))?;
        }
        let kinds = if is_tpcc(point)? { tpcc::kinds() } else { Vec::new() };
        let mut record = output::record(outcome, log, self.options.sampling.is_some_and(|share| share < 1.0), &kinds)?;
        if let Some(class) = record.classes.iter().find(|class| class.what == What::TransactionKind("new-order".into()))
        {
            let per_minute = tpcc::per_minute(class.counted(), class.runtime_ns);
            record.extra.insert("new_orders_per_minute".into(), per_minute);
        }
        record.warnings.extend(self.options.tpcc.doubt().filter(|_| !kinds.is_empty()));
        record.warnings.extend(program::unknown(&record.tool, &TRIED));
        Ok(record)
    }

    fn clean_up(&self, stage: &Stage) -> Vec<Step> {
        self.server(stage).map(|server| vec![server.stop(), server.remove()]).unwrap_or_default()
    }
}
