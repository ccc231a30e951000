//! sysbench's OLTP tests on a PostgreSQL server of one's own ([`postgres`]): single-table transactions, which are not TPC-C.
//!
//! The tables are made once, in `prepare`. sysbench has no ramp: the ramp is an unmeasured run of the same point before.
//!
//! **Which latency.** That of each transaction, from sysbench's own histogram, whose 1,024 buckets are 1.8 % wide. It prints the mean
//! to 10 us; the record has the sum of all latencies, which it prints too, by their number.
//!
//! **When it was measured.** sysbench says for how long it ran, and ends at once: the window ends with the program.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::knob::{self, Knob};
use super::postgres::{self, Server};
use super::{Missing, Outcome, Point, Problem, Stage, Step, Value, Workload, problem, program};
use crate::record::{Class, Latency, Record, Tool, What};

/// Versions on whose output the adapter was tried: Debian 12's.
pub const TRIED: [&str; 1] = ["1.0.20"];

const HELP: &str = "apt install sysbench, or name another one with workload.program";
const DATABASE: &str = "sbtest";
/// What the adapter says itself.
const OWN: [&str; 14] = [
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

/// What is asked of sysbench. In TOML: `kind = "sysbench"`, and these keys. A key that says "one or several" is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program; `sysbench` where it is not given.
    #[serde(default = "default_program")]
    pub program: PathBuf,
    /// The folder of PostgreSQL's programs; where it is not given the newest under `/usr/lib/postgresql`, else the path.
    #[serde(default)]
    pub programs: Option<PathBuf>,
    /// The account under which the server runs when we are root; `postgres` where it is not given.
    #[serde(default = "default_user")]
    pub user: String,
    /// One or several tests by sysbench's names, such as `oltp_read_write`, `oltp_point_select`, `oltp_update_index`.
    #[serde(default = "default_test")]
    pub test: Knob,
    /// One or several numbers of threads, each with a connection; 1 where it is not given.
    #[serde(default = "Knob::one")]
    pub threads: Knob,
    /// Tables; 1 where it is not given.
    #[serde(default = "one_table")]
    pub tables: u64,
    /// Rows of each; 10,000 where it is not given, as in sysbench.
    #[serde(default = "default_rows")]
    pub table_size: u64,
    /// Any other option of sysbench or the test, one value or several: `options = { rate = 100, range_size = [100, 1000] }`.
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
    /// With these options.
    ///
    /// # Errors
    /// A key that says nothing, or an option that the adapter has to say itself.
    pub fn new(options: Options) -> Result<Self, Problem> {
        knob::check_main([("test", &options.test), ("threads", &options.threads)])?;
        knob::check_others(&options.options, "workload.options", &OWN)?;
        if let Some(key) = options.settings.keys().find(|key| postgres::OWN.contains(&key.as_str())) {
            return Err(problem(format!("workload.settings.{key}"), "this is set for every run"));
        }
        let other =
            |value: &&Value| !value.to_string().starts_with("oltp_") && !value.to_string().starts_with("select_");
        if let Some(other) = options.test.values().iter().find(other) {
            let why = format!(
                "{other} is none of sysbench's tests of databases, oltp_... and select_...; for files there is fio"
            );
            return Err(problem("workload.test", why));
        }
        let programs = postgres::programs(options.programs.as_deref());
        Ok(Self { options, programs })
    }

    fn server(&self, stage: &Stage) -> Result<Server, Problem> {
        Server::new(&self.programs, &self.options.user, stage)
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

    fn run(&self, point: &Point, stage: &Stage, seconds: f64, key: &str, why: &str) -> Result<Step, Problem> {
        let whole = seconds.ceil();
        if !(1.0..1e9).contains(&whole) {
            return Err(problem(key, "sysbench takes whole seconds, from 1 on"));
        }
        let mut words = vec![
            format!("--threads={}", knob::count(point, "threads")?),
            format!("--time={whole:.0}"),
            "--events=0".into(),
            format!("--rand-seed={}", stage.seed.clamp(1, i32::MAX as u64)),
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
        let step = self.step(&self.server(stage)?, &knob::argument(point, "test")?, words, "run", why);
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
        let said = program::ask(&self.options.program, &["--version"], HELP)?;
        let version = program::version_in(&said).unwrap_or_default().to_owned();
        postgres::look(&self.programs, &self.options.user, "sysbench")?;
        Ok(Tool { name: "sysbench".into(), known: TRIED.contains(&version.as_str()), version })
    }

    fn prepare(&self, stage: &Stage) -> Result<Vec<Step>, Problem> {
        let server = self.server(stage)?;
        server.check()?;
        let setting = |(key, value): (&String, &Value)| (key.clone(), postgres::setting(value));
        let settings: Vec<(String, String)> = self.options.settings.iter().map(setting).collect();
        let mut steps = server.make();
        steps.extend(server.start(&settings));
        steps.push(server.client("createdb", [DATABASE.to_owned()], "making a database"));
        // All of its tests of databases have the same tables.
        steps.push(self.step(&server, "oltp_read_write", Vec::new(), "prepare", "filling the database"));
        Ok(steps)
    }

    fn before(&self, point: &Point, stage: &Stage) -> Result<Vec<Step>, Problem> {
        let mut steps = vec![self.server(stage)?.checkpoint()];
        if stage.ramp_s > 0.0 {
            steps.push(self.run(point, stage, stage.ramp_s, "ramp", "warming up")?);
        }
        Ok(steps)
    }

    fn command(&self, point: &Point, stage: &Stage) -> Result<Step, Problem> {
        self.run(point, stage, stage.duration_s, "duration", "sysbench")
    }

    fn parse(&self, _: &Point, _: &Stage, outcome: &Outcome) -> Result<Record, Problem> {
        let mut record = record(outcome)?;
        record.warnings.extend(program::unknown(&record.tool, &TRIED));
        Ok(record)
    }

    fn clean_up(&self, stage: &Stage) -> Vec<Step> {
        self.server(stage).map(|server| vec![server.stop(), server.remove()]).unwrap_or_default()
    }
}

/// What came of a run.
fn record(outcome: &Outcome) -> Result<Record, Problem> {
    let (stdout, stderr) = (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    if outcome.status != Some(0) {
        let status = outcome.status.map_or("a signal ended it".into(), |status| format!("its exit status is {status}"));
        let fatal = |line: &&str| line.contains("FATAL") || line.contains("ALERT") || line.contains("error");
        let said: Vec<&str> = stdout.lines().chain(stderr.lines()).filter(fatal).collect();
        return Err(problem("sysbench", format!("{status}; it said: {}", said.join("; "))));
    }
    let needed = |key: &str| {
        number(&stdout, key).ok_or_else(|| problem(format!("sysbench's report, {key}"), "is not there or no number"))
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
        warnings.push(format!("sysbench says {operations} transactions and has latencies of {counted}"));
    }
    let extra = [
        ("queries_count", "queries:"),
        ("ignored_errors_count", "ignored errors:"),
        ("reconnects_count", "reconnects:"),
    ];
    let extra = extra.iter().filter_map(|(column, key)| Some(((*column).to_owned(), number(&stdout, key)?))).collect();
    let version = stdout.lines().next().and_then(program::version_in).unwrap_or_default().to_owned();
    let tool = Tool { name: "sysbench".into(), known: TRIED.contains(&version.as_str()), version };
    let class = Class { what: What::Transaction, operations: Some(operations), bytes: None, runtime_ns, latency };
    let classes = if operations > 0 { vec![class] } else { Vec::new() };
    let lasted = outcome.span_ns.1.saturating_sub(outcome.span_ns.0);
    let window_ns = lasted.checked_sub(runtime_ns).map(|from| (from, lasted));
    Ok(Record { tool, classes, window_ns, extra, warnings })
}

/// The number behind `key` at the start of a line.
fn number(text: &str, key: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.trim_start().strip_prefix(key))?;
    rest.split_whitespace().next()?.trim_end_matches('s').parse().ok()
}

/// Lines such as `0.097 |**************************************** 656`, in milliseconds. Those that begin alike when rounded
/// to a microsecond are one bucket.
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
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::Place;
    use crate::testing::{fixture, outcome, points, run, run_all, stage, there, words};

    fn configured(keys: &str) -> Sysbench {
        Sysbench::new(toml::from_str(keys).unwrap()).unwrap()
    }

    /// The histogram's quantile against the 99th percentile that sysbench prints, and all counts.
    fn assert_is_of(record: &Record, stdout: &str) {
        let behind = |key: &str| -> f64 {
            let rest = stdout.split_once(key).unwrap().1.split_whitespace().next().unwrap();
            rest.trim_end_matches('s').parse().unwrap()
        };
        let class = &record.classes[0];
        assert_eq!(
            (class.counted(), class.counted()),
            (behind("total number of events:") as u64, behind("transactions:") as u64)
        );
        assert_eq!(class.runtime_ns, (behind("total time:") * 1e9).round() as u64);
        assert!((class.latency.mean_ns.unwrap() / 1e6 - behind("avg:")).abs() < 0.01);
        let mean = behind("sum:") * 1e6 / class.counted() as f64;
        assert!((class.latency.mean_ns.unwrap() / mean - 1.0).abs() < 1e-12);
        assert_eq!(class.latency.greatest_ns, Some((behind("max:") * 1e6).round() as u64));
        let (mut seen, mut p99) = (0, 0);
        for (value, count) in &class.latency.histogram {
            seen += count;
            // sysbench looks for the count rounded half up, not down (its sb_histogram.c).
            p99 = if p99 == 0 && seen >= (class.counted() * 99 + 50) / 100 { *value } else { p99 };
        }
        assert_eq!(seen, class.counted());
        // It is printed to 0.01 ms, and the buckets to 0.001 ms.
        assert!((p99 as f64 / 1e6 - behind("99th percentile:")).abs() < 0.006, "{p99}: {stdout}");
        assert_eq!(record.extra["queries_count"], behind("queries: "));
    }

    #[test]
    fn a_real_sysbench_on_a_real_postgresql() {
        let sysbench =
            configured("test = 'oltp_read_write'\nthreads = 2\ntable_size = 500\nsettings = { fsync = false }");
        if !there(&sysbench) {
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let stage = stage(scratch.path(), Place::Folder(scratch.path().into()), 0.0, 1.0);
        let server = run_all(&sysbench.prepare(&stage).unwrap(), &stage);
        let [point] = points(&sysbench).try_into().unwrap();
        run_all(&sysbench.before(&point, &stage).unwrap(), &stage);
        let outcome = run(&sysbench.command(&point, &stage).unwrap(), &stage);
        let record = sysbench.parse(&point, &stage, &outcome).unwrap();
        assert_is_of(&record, &String::from_utf8_lossy(&outcome.stdout));
        assert_eq!(record.tool, sysbench.tool().unwrap());
        run_all(&sysbench.clean_up(&stage), &stage);
        assert!(!scratch.path().join("pilotlight-postgres").exists());
        drop(server);
    }

    #[test]
    fn a_recorded_output_is_read() {
        let text = fixture("sysbench/1.0.20.txt");
        let record = record(&outcome(&text, 0)).unwrap();
        assert_is_of(&record, &text);
        assert!(record.tool.known && record.warnings.is_empty(), "{record:?}");
        let (from, to) = record.window_ns.unwrap();
        assert_eq!((to, to - from), (100_000_000_000, record.classes[0].runtime_ns));
    }

    #[test]
    fn commands_are_sysbench_s_own() {
        let sysbench =
            configured("programs = '/pg'\nthreads = 4\ntables = 2\noptions = { rate = 50, skip_trx = true }");
        let stage = stage(Path::new("/s"), Place::Folder("/d".into()), 1.0, 9.2);
        let [point] = points(&sysbench).try_into().unwrap();
        let expected = "sysbench oltp_read_write --db-driver=pgsql --pgsql-host=/d/pilotlight-postgres --pgsql-user=postgres \
            --pgsql-db=sbtest --tables=2 --table-size=10000 --threads=4 --time=10 --events=0 --rand-seed=7 \
            --report-interval=0 --histogram=on --percentile=99 --rate=50 --skip_trx=on run";
        assert_eq!(words(&sysbench.command(&point, &stage).unwrap()).join(" "), expected);
        assert_eq!(sysbench.before(&point, &stage).unwrap().len(), 2);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name_and_what_is_missing_is_named() {
        for (keys, at) in [
            ("test = 'fileio'", "workload.test"),
            ("options = { threads = 2 }", "workload.options.threads"),
            ("settings = { port = 1 }", "workload.settings.port"),
        ] {
            assert_eq!(Sysbench::new(toml::from_str(keys).unwrap()).unwrap_err().at, at);
        }
        let text = fixture("sysbench/1.0.20.txt");
        let missing = record(&outcome(&text.replace("total time:", "time:"), 0)).unwrap_err();
        assert!(missing.at.contains("total time"), "{missing}");
        let fewer = record(&outcome(&text.replace("Latency histogram", "Histogram"), 0)).unwrap();
        assert!(fewer.warnings.iter().any(|warning| warning.contains("latencies of 0")));
        let mut ended = outcome("FATAL: Connection to database failed\n", 0);
        ended.status = Some(1);
        assert!(record(&ended).unwrap_err().why.contains("Connection to database failed"));
    }
}
