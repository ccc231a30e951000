//! `db_bench`: RocksDB's benchmarks, in a folder.
//!
//! The database is loaded once for each value size (`fillseq` of `num` keys). Benchmarks whose names begin with `fill` create their
//! own database. `db_bench` has no ramp: an unmeasured run of the same benchmark precedes it in another process. It warms the page
//! cache and the database, but not RocksDB's block cache.
//!
//! **Latency.** `db_bench` counts whole microseconds in buckets up to half as wide as their value. The record therefore has no
//! histogram; its quantiles are those that `db_bench` prints, interpolated within the buckets.
//!
//! **Window.** RocksDB logs the shutdown of the database after the benchmark in `LOG`, in the folder of the database. The window ends
//! there and is as long as `db_bench` prints.

mod output;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::knob::{self, Knob};
use super::{Missing, Outcome, Point, Problem, RunContext, Step, Target, Value, Workload, problem, program};
use crate::record::{Record, Tool};

/// Versions with whose output the adapter was tested: Debian 12's and 13's.
pub const TESTED: [&str; 2] = ["7.8.3", "9.10.0"];

const HELP: &str = "apt install rocksdb-tools, or set workload.program";
/// Options that the adapter sets.
const RESERVED: [&str; 11] = [
    "benchmarks",
    "db",
    "use_existing_db",
    "num",
    "value_size",
    "threads",
    "duration",
    "seed",
    "histogram",
    "wal_dir",
    "key_size",
];

/// Keys of `[workload]` with `kind = "db-bench"`. A key that takes one or more values is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program; default: `db_bench`.
    #[serde(default = "default_program")]
    pub program: PathBuf,
    /// One or more benchmarks by RocksDB's names, such as `readrandom`, `overwrite`, `readrandomwriterandom`.
    pub benchmark: Knob,
    /// One or more sizes of values, in bytes; default: 100, as in `db_bench`.
    #[serde(default = "default_value_size")]
    pub value_size: Knob,
    /// One or more numbers of threads; default: 1.
    #[serde(default = "Knob::one")]
    pub threads: Knob,
    /// Keys in the database; default: 1,000,000, as in `db_bench`.
    #[serde(default = "default_keys")]
    pub num: u64,
    /// Bytes of a key; default: 16, as in `db_bench`.
    #[serde(default = "default_key_size")]
    pub key_size: u64,
    /// Whether the database is loaded again before every point; default: `false`, so that a point uses the database as the points before
    /// it left it.
    #[serde(default)]
    pub reload: bool,
    /// Any other option of `db_bench`, one value or more: `options = { use_direct_reads = true, cache_size = [0, 8388608] }`.
    /// Options with one value also apply to loading. With `statistics = true` the record has RocksDB's counters.
    #[serde(default)]
    pub options: BTreeMap<String, Knob>,
}

fn default_program() -> PathBuf {
    "db_bench".into()
}

fn default_value_size() -> Knob {
    Knob::integer(100)
}

fn default_keys() -> u64 {
    1_000_000
}

fn default_key_size() -> u64 {
    16
}

/// `db_bench`.
#[derive(Clone, Debug)]
pub struct DbBench {
    options: Options,
}

impl DbBench {
    /// Checks the options.
    ///
    /// # Errors
    /// A key without values, or an option that the adapter sets.
    pub fn new(options: Options) -> Result<Self, Problem> {
        knob::check_main(main_knobs(&options))?;
        knob::check_others(&options.options, "workload.options", &RESERVED)?;
        let one = |value: &&Value| value.to_string().contains([',', '[', ' ']);
        if let Some(several) = options.benchmark.values().iter().find(one) {
            let why =
                format!("{several} is not one benchmark; write several as a list, and use `repeats` of the experiment");
            return Err(problem("workload.benchmark", why));
        }
        Ok(Self { options })
    }

    /// Arguments common to loading and measuring.
    fn words(&self, benchmark: &str, folder: &str, value_size: u64, context: &RunContext) -> Vec<String> {
        let Options { num, key_size, .. } = &self.options;
        vec![
            format!("--benchmarks={benchmark}"),
            format!("--db={folder}"),
            format!("--use_existing_db={}", u8::from(!creates_database(benchmark))),
            format!("--num={num}"),
            format!("--key_size={key_size}"),
            format!("--value_size={value_size}"),
            format!("--seed={}", context.seed.max(1)),
        ]
    }

    fn step(&self, words: Vec<String>, limit_s: f64, why: &str) -> Step {
        let argv = program::argv(&self.options.program, words);
        // RocksDB logs in local time.
        Step { argv, env: vec![("TZ".into(), "UTC".into())], limit_s, why: why.into(), ..Step::default() }
    }

    fn load(&self, value_size: u64, context: &RunContext) -> Result<Step, Problem> {
        let mut words = self.words("fillseq", &folder(context, &value_size.to_string())?, value_size, context);
        let fixed = self.options.options.iter().filter_map(|(key, knob)| Some((key, only(knob)?)));
        words.extend(fixed.map(|(key, value)| format!("--{key}={value}")));
        Ok(self.step(words, 0.0, "loading the database"))
    }

    fn measure(&self, point: &Point, context: &RunContext, seconds: f64, why: &str) -> Result<Step, Problem> {
        let (benchmark, value_size) = (knob::argument(point, "benchmark")?, knob::count(point, "value_size")?);
        let folder = database(point, context)?;
        let mut words = self.words(&benchmark, &folder, value_size, context);
        words.push(format!("--threads={}", knob::count(point, "threads")?));
        words.push(format!("--duration={seconds}"));
        words.push("--histogram=1".into());
        for key in self.options.options.keys() {
            words.push(format!("--{key}={}", knob::argument(point, key)?));
        }
        Ok(self.step(words, seconds + 600.0, why))
    }

    fn loads(&self) -> bool {
        self.options.benchmark.values().iter().any(|value| !creates_database(&value.to_string()))
    }
}

fn main_knobs(options: &Options) -> [(&'static str, &Knob); 3] {
    [("benchmark", &options.benchmark), ("value_size", &options.value_size), ("threads", &options.threads)]
}

fn only(knob: &Knob) -> Option<String> {
    let [value] = knob.values() else { return None };
    Some(if let Value::Switch(on) = value { u8::from(*on).to_string() } else { value.to_string() })
}

/// Benchmarks that start with an empty database.
fn creates_database(benchmark: &str) -> bool {
    benchmark.starts_with("fill")
}

fn folder(context: &RunContext, which: &str) -> Result<String, Problem> {
    let Target::Folder(folder) = &context.target else {
        return Err(problem("target", "db_bench needs a folder for its databases"));
    };
    let path = folder.join(format!("db_bench-{which}"));
    Ok(path.to_str().ok_or_else(|| problem("target", "the folder's name must be UTF-8"))?.to_owned())
}

fn database(point: &Point, context: &RunContext) -> Result<String, Problem> {
    let fills = creates_database(&knob::argument(point, "benchmark")?);
    let which = if fills { "fill".into() } else { knob::count(point, "value_size")?.to_string() };
    folder(context, &which)
}

/// `db_bench` accepts whole seconds only.
fn whole(seconds: f64, key: &str) -> Result<f64, Problem> {
    let whole = seconds.ceil();
    (1.0..1e9).contains(&whole).then_some(whole).ok_or_else(|| problem(key, "db_bench requires at least 1 s"))
}

impl Workload for DbBench {
    fn name(&self) -> &str {
        "db-bench"
    }

    fn knobs(&self) -> Vec<(String, Vec<Value>)> {
        knob::listed(main_knobs(&self.options), &[&self.options.options])
    }

    fn tool(&self) -> Result<Tool, Missing> {
        let output = program::output(&self.options.program, &["--version"], HELP)?;
        let version = program::version_in(&output).filter(|_| output.contains("version")).map(str::to_owned);
        let why = || format!("--version prints {:?}", output.trim());
        let version = version.ok_or_else(|| Missing { tool: "db_bench".into(), why: why(), help: HELP.into() })?;
        Ok(Tool { name: "db_bench".into(), known: TESTED.contains(&version.as_str()), version })
    }

    fn prepare(&self, context: &RunContext) -> Result<Vec<Step>, Problem> {
        if !self.loads() || self.options.reload {
            return folder(context, "fill").map(|_| Vec::new());
        }
        let number = |value: &Value| knob::count(&Point::from([("value_size".into(), value.clone())]), "value_size");
        let sizes: BTreeSet<u64> = self.options.value_size.values().iter().map(number).collect::<Result<_, _>>()?;
        sizes.into_iter().map(|size| self.load(size, context)).collect()
    }

    fn before(&self, point: &Point, context: &RunContext) -> Result<Vec<Step>, Problem> {
        let mut steps = Vec::new();
        if creates_database(&knob::argument(point, "benchmark")?) {
            return Ok(steps);
        }
        if self.options.reload {
            steps.push(self.load(knob::count(point, "value_size")?, context)?);
        }
        if context.ramp_s > 0.0 {
            steps.push(self.measure(point, context, whole(context.ramp_s, "ramp")?, "warming up")?);
        }
        Ok(steps)
    }

    fn command(&self, point: &Point, context: &RunContext) -> Result<Step, Problem> {
        self.measure(point, context, whole(context.duration_s, "duration")?, "db_bench")
    }

    fn parse(&self, point: &Point, context: &RunContext, outcome: &Outcome) -> Result<Record, Problem> {
        let benchmark = knob::argument(point, "benchmark")?;
        let log = std::fs::read_to_string(PathBuf::from(database(point, context)?).join("LOG")).unwrap_or_default();
        let mut record = output::record(&benchmark, outcome, &log)?;
        if let Some(class) = record.classes.first()
            && (class.runtime_ns as f64) < 0.9e9 * context.duration_s
        {
            record.warnings.push(format!("{benchmark} ended before the requested duration"));
        }
        record.tool.known = TESTED.contains(&record.tool.version.as_str());
        record.warnings.extend(program::untested(&record.tool, &TESTED));
        Ok(record)
    }
}
