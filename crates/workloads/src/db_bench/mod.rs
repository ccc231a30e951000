//! `db_bench`: RocksDB's own benchmarks, in a folder.
//!
//! The database is loaded once for each value size (`fillseq` of `num` keys). Benchmarks whose names begin with `fill` make a
//! database of their own instead. `db_bench` has no ramp: the ramp is an unmeasured run of the same benchmark before, in a
//! process of its own, so that it warms the kernel's cache and the database, and not RocksDB's block cache.
//!
//! **Which latency.** `db_bench` counts in whole microseconds and prints buckets that are up to half as wide as their value, so
//! that a record has no histogram; its quantiles are those that `db_bench` prints, interpolated within the buckets.
//!
//! **When it was measured.** RocksDB writes into `LOG`, in the database's folder, when the database is shut down after the
//! benchmark; the window ends there and is as long as `db_bench` says.

mod output;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::knob::{self, Knob};
use super::{Missing, Outcome, Place, Point, Problem, Stage, Step, Value, Workload, problem, program};
use crate::record::{Record, Tool};

/// Versions on whose output the adapter was tried: Debian 12's and 13's.
pub const TRIED: [&str; 2] = ["7.8.3", "9.10.0"];

const HELP: &str = "apt install rocksdb-tools, or name another one with workload.program";
/// What the adapter says itself.
const OWN: [&str; 11] = [
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

/// What is asked of `db_bench`. In TOML: `kind = "db-bench"`, and these keys. A key that says "one or several" is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program; `db_bench` where it is not given.
    #[serde(default = "default_program")]
    pub program: PathBuf,
    /// One or several benchmarks by RocksDB's names, such as `readrandom`, `overwrite`, `readrandomwriterandom`.
    pub benchmark: Knob,
    /// One or several sizes of values, in bytes; 100 where it is not given, as in `db_bench`.
    #[serde(default = "default_value_size")]
    pub value_size: Knob,
    /// One or several numbers of threads; 1 where it is not given.
    #[serde(default = "Knob::one")]
    pub threads: Knob,
    /// Keys in the database; 1,000,000 where it is not given, as in `db_bench`.
    #[serde(default = "default_keys")]
    pub num: u64,
    /// Bytes of a key; 16 where it is not given, as in `db_bench`.
    #[serde(default = "default_key_size")]
    pub key_size: u64,
    /// Whether the database is loaded again before every point; `false` where it is not given: points then find what those
    /// before them left.
    #[serde(default)]
    pub reload: bool,
    /// Any other option of `db_bench`, one value or several: `options = { use_direct_reads = true, cache_size = [0, 8388608] }`.
    /// Those with one value hold for the loading too. With `statistics = true` the record has RocksDB's own counters.
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
    /// With these options.
    ///
    /// # Errors
    /// A key that says nothing, or an option that the adapter has to say itself.
    pub fn new(options: Options) -> Result<Self, Problem> {
        knob::check_main(main_knobs(&options))?;
        knob::check_others(&options.options, "workload.options", &OWN)?;
        let one = |value: &&Value| value.to_string().contains([',', '[', ' ']);
        if let Some(several) = options.benchmark.values().iter().find(one) {
            let why =
                format!("{several} is not one benchmark: write several as a list, and repeats as the experiment's");
            return Err(problem("workload.benchmark", why));
        }
        Ok(Self { options })
    }

    /// The words that are the same for loading and measuring.
    fn words(&self, benchmark: &str, folder: &str, value_size: u64, stage: &Stage) -> Vec<String> {
        let Options { num, key_size, .. } = &self.options;
        vec![
            format!("--benchmarks={benchmark}"),
            format!("--db={folder}"),
            format!("--use_existing_db={}", u8::from(!makes_its_own(benchmark))),
            format!("--num={num}"),
            format!("--key_size={key_size}"),
            format!("--value_size={value_size}"),
            format!("--seed={}", stage.seed.max(1)),
        ]
    }

    fn step(&self, words: Vec<String>, limit_s: f64, why: &str) -> Step {
        let argv = program::argv(&self.options.program, words);
        // RocksDB logs local time.
        Step { argv, env: vec![("TZ".into(), "UTC".into())], limit_s, why: why.into(), ..Step::default() }
    }

    fn load(&self, value_size: u64, stage: &Stage) -> Result<Step, Problem> {
        let mut words = self.words("fillseq", &folder(stage, &value_size.to_string())?, value_size, stage);
        let fixed = self.options.options.iter().filter_map(|(key, knob)| Some((key, only(knob)?)));
        words.extend(fixed.map(|(key, value)| format!("--{key}={value}")));
        Ok(self.step(words, 0.0, "loading the database"))
    }

    fn measure(&self, point: &Point, stage: &Stage, seconds: f64, why: &str) -> Result<Step, Problem> {
        let (benchmark, value_size) = (knob::argument(point, "benchmark")?, knob::count(point, "value_size")?);
        let folder = database(point, stage)?;
        let mut words = self.words(&benchmark, &folder, value_size, stage);
        words.push(format!("--threads={}", knob::count(point, "threads")?));
        words.push(format!("--duration={seconds}"));
        words.push("--histogram=1".into());
        for key in self.options.options.keys() {
            words.push(format!("--{key}={}", knob::argument(point, key)?));
        }
        Ok(self.step(words, seconds + 600.0, why))
    }

    fn loads(&self) -> bool {
        self.options.benchmark.values().iter().any(|value| !makes_its_own(&value.to_string()))
    }
}

fn main_knobs(options: &Options) -> [(&'static str, &Knob); 3] {
    [("benchmark", &options.benchmark), ("value_size", &options.value_size), ("threads", &options.threads)]
}

fn only(knob: &Knob) -> Option<String> {
    let [value] = knob.values() else { return None };
    Some(if let Value::Switch(on) = value { u8::from(*on).to_string() } else { value.to_string() })
}

/// Benchmarks that begin with an empty database.
fn makes_its_own(benchmark: &str) -> bool {
    benchmark.starts_with("fill")
}

fn folder(stage: &Stage, which: &str) -> Result<String, Problem> {
    let Place::Folder(folder) = &stage.place else {
        return Err(problem("target", "db_bench needs a folder, in which it makes its databases"));
    };
    let path = folder.join(format!("db_bench-{which}"));
    Ok(path.to_str().ok_or_else(|| problem("target", "its name has to be UTF-8"))?.to_owned())
}

fn database(point: &Point, stage: &Stage) -> Result<String, Problem> {
    let fills = makes_its_own(&knob::argument(point, "benchmark")?);
    let which = if fills { "fill".into() } else { knob::count(point, "value_size")?.to_string() };
    folder(stage, &which)
}

/// `db_bench` counts whole seconds.
fn whole(seconds: f64, key: &str) -> Result<f64, Problem> {
    let whole = seconds.ceil();
    (1.0..1e9).contains(&whole).then_some(whole).ok_or_else(|| problem(key, "db_bench takes whole seconds, from 1 on"))
}

impl Workload for DbBench {
    fn name(&self) -> &str {
        "db-bench"
    }

    fn knobs(&self) -> Vec<(String, Vec<Value>)> {
        knob::listed(main_knobs(&self.options), &[&self.options.options])
    }

    fn tool(&self) -> Result<Tool, Missing> {
        let said = program::ask(&self.options.program, &["--version"], HELP)?;
        let version = program::version_in(&said).filter(|_| said.contains("version")).map(str::to_owned);
        let why = || format!("--version says {:?}", said.trim());
        let version = version.ok_or_else(|| Missing { tool: "db_bench".into(), why: why(), help: HELP.into() })?;
        Ok(Tool { name: "db_bench".into(), known: TRIED.contains(&version.as_str()), version })
    }

    fn prepare(&self, stage: &Stage) -> Result<Vec<Step>, Problem> {
        if !self.loads() || self.options.reload {
            return folder(stage, "fill").map(|_| Vec::new());
        }
        let number = |value: &Value| knob::count(&Point::from([("value_size".into(), value.clone())]), "value_size");
        let sizes: BTreeSet<u64> = self.options.value_size.values().iter().map(number).collect::<Result<_, _>>()?;
        sizes.into_iter().map(|size| self.load(size, stage)).collect()
    }

    fn before(&self, point: &Point, stage: &Stage) -> Result<Vec<Step>, Problem> {
        let mut steps = Vec::new();
        if makes_its_own(&knob::argument(point, "benchmark")?) {
            return Ok(steps);
        }
        if self.options.reload {
            steps.push(self.load(knob::count(point, "value_size")?, stage)?);
        }
        if stage.ramp_s > 0.0 {
            steps.push(self.measure(point, stage, whole(stage.ramp_s, "ramp")?, "warming up")?);
        }
        Ok(steps)
    }

    fn command(&self, point: &Point, stage: &Stage) -> Result<Step, Problem> {
        self.measure(point, stage, whole(stage.duration_s, "duration")?, "db_bench")
    }

    fn parse(&self, point: &Point, stage: &Stage, outcome: &Outcome) -> Result<Record, Problem> {
        let benchmark = knob::argument(point, "benchmark")?;
        let log = std::fs::read_to_string(PathBuf::from(database(point, stage)?).join("LOG")).unwrap_or_default();
        let mut record = output::record(&benchmark, outcome, &log)?;
        if let Some(class) = record.classes.first()
            && (class.runtime_ns as f64) < 0.9e9 * stage.duration_s
        {
            record.warnings.push(format!("{benchmark} ended by itself before the time that was asked for"));
        }
        record.tool.known = TRIED.contains(&record.tool.version.as_str());
        record.warnings.extend(program::unknown(&record.tool, &TRIED));
        Ok(record)
    }
}
