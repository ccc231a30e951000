//! fio: any of its engines and options, on a file, a folder or a device.
//!
//! One time-based command per point with an unmeasured ramp, one row per job, and the histograms of `json+`; [`output`] parses them.
//!
//! **Latency.** fio reports `slat` (until submission), `clat` (from submission to completion) and `lat` (from creation to completion).
//! The record has `lat` (`latency = "total"`): only it has the same meaning for engines that submit and complete in one call and for
//! others. `latency = "completion"` selects `clat`.
//!
//! **Window.** fio 3.36 and later print the start of each job's measurement (`job_start`, in ms since 1970; measured with 3.39: it is
//! reset at the end of the ramp, and with the job's runtime was within 4 ms of the last request in two runs of three, 155 ms off in the
//! third). With older versions the window ends when fio wrote its result (`timestamp_ms`, with 3.33 0 to 35 ms after the last request)
//! and is as long as the printed runtime.

mod completion;
mod output;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pilotlight_input::quantity;
use serde::{Deserialize, Serialize};

use super::knob::{self, Knob, Named, Pattern};
use super::{Missing, Outcome, Point, Problem, RunContext, Step, Target, Value, Workload, problem, program};
use crate::Mechanism;
use crate::record::{Record, Tool};

/// Versions with whose output the adapter was tested: Debian 12's and 13's.
pub const TESTED: [&str; 2] = ["3.33", "3.39"];

/// The first version with latencies in nanoseconds is 3.0.
const MIN_MAJOR: u32 = 3;

const HELP: &str = "apt install fio, or set workload.program";
/// Engines that need no file.
const FILELESS: [&str; 12] =
    ["null", "cpuio", "net", "netsplice", "rdma", "rados", "rbd", "http", "gfapi", "gfapi_async", "nbd", "exec"];
/// Options that the adapter sets, with the key to use instead, if any.
const RESERVED: [(&str, &str); 26] = [
    ("ioengine", "ioengine"),
    ("rw", "rw"),
    ("readwrite", "rw"),
    ("rwmixread", "rw, as in \"randrw 70/30\""),
    ("rwmixwrite", "rw, as in \"randrw 70/30\""),
    ("bs", "bs"),
    ("blocksize", "bs"),
    ("iodepth", "iodepth"),
    ("numjobs", "numjobs"),
    ("size", "size"),
    ("filesize", "size"),
    ("clat_percentiles", "latency"),
    ("lat_percentiles", "latency"),
    ("runtime", "the experiment's duration"),
    ("timeout", "the experiment's duration"),
    ("time_based", "the experiment's duration"),
    ("ramp_time", "the experiment's ramp"),
    ("randseed", "the experiment's seed"),
    ("name", ""),
    ("filename", "the experiment's target"),
    ("directory", "the experiment's target"),
    ("group_reporting", ""),
    ("unified_rw_reporting", ""),
    ("output", ""),
    ("output-format", ""),
    ("eta", ""),
];

/// Keys of `[workload]` with `kind = "fio"`. A key that takes one or more values is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program; default: `fio`.
    #[serde(default = "default_program")]
    pub program: PathBuf,
    /// One or more engines as `fio --enghelp` lists them, optionally with options of the engine, as in `"io_uring hipri=1 fixedbufs=1"`;
    /// default: `psync`, as in fio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ioengine: Option<Knob>,
    /// One or more completion mechanisms instead of engines: [`mechanism::WORDS`](crate::mechanism::WORDS). Each selects its engine and
    /// sets the device's `io_poll` and `io_poll_delay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Knob>,
    /// One or more access patterns of fio, for mixed ones optionally with reads and writes in percent, as in `"randrw 70/30"`; default:
    /// `read`, as in fio.
    #[serde(default = "default_pattern")]
    pub rw: Knob,
    /// One or more block sizes, in bytes or in fio's notation; default: `4k`, as in fio.
    #[serde(default = "Knob::block_4k")]
    pub bs: Knob,
    /// One or more queue depths: outstanding requests of a job; default: 1, as in fio.
    #[serde(default = "Knob::one")]
    pub iodepth: Knob,
    /// One or more numbers of jobs; default: 1, as in fio.
    #[serde(default = "Knob::one")]
    pub numjobs: Knob,
    /// Any other option of fio, one value or more: `options = { direct = true, hipri = [false, true], rate_iops = 1000 }`.
    #[serde(default)]
    pub options: BTreeMap<String, Knob>,
    /// Size of the region used, in bytes or in fio's notation; default: all of a file or device. Required with a folder.
    #[serde(default)]
    pub size: Option<Value>,
    /// Whether a file is written completely before the first point, so that reads return data; default: `true`.
    #[serde(default = "yes")]
    pub fill: bool,
    /// The latency in the record.
    #[serde(default)]
    pub latency: Kind,
}

/// A latency of fio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `lat`: from creation to completion of a request.
    #[default]
    Total,
    /// `clat`: from submission to completion.
    Completion,
}

fn default_program() -> PathBuf {
    "fio".into()
}

fn default_pattern() -> Knob {
    Knob::word("read")
}

fn yes() -> bool {
    true
}

/// fio.
#[derive(Clone, Debug)]
pub struct Fio {
    options: Options,
}

impl Fio {
    /// Checks the options.
    ///
    /// # Errors
    /// A key without values, or an option that the adapter sets.
    pub fn new(options: Options) -> Result<Self, Problem> {
        for (key, values) in main_knobs(&options) {
            values.check(&format!("workload.{key}"))?;
        }
        completion::check(&options)?;
        for (key, values) in &options.options {
            values.check(&format!("workload.options.{key}"))?;
            allowed(key)?;
        }
        options.rw.values().iter().try_for_each(|value| Pattern::read(value, "workload.rw").map(drop))?;
        let fio = Self { options };
        fio.engines()?;
        Ok(fio)
    }

    fn engines(&self) -> Result<Vec<Named>, Problem> {
        match &self.options.mechanism {
            Some(mechanisms) => {
                mechanisms.values().iter().map(|value| Ok(completion::engine(completion::read(value)?))).collect()
            }
            None => engine_knob(&self.options).values().iter().map(engine).collect(),
        }
    }

    /// The engine of a point.
    fn engine_of(&self, point: &Point) -> Result<Named, Problem> {
        match completion::at(point)? {
            Some(mechanism) => completion::engine_of_fio(&self.options.program, mechanism),
            None => engine(knob::at(point, "ioengine")?),
        }
    }

    fn target_arguments(&self, context: &RunContext, engine: &str) -> Result<Vec<String>, Problem> {
        let size = self.options.size.as_ref().map(|size| format!("--size={}", size_in_bytes(size)));
        let file = |path: &Path| Ok(format!("--filename={}", escaped_path(path)?));
        Ok(match &context.target {
            Target::File(path, bytes) => vec![file(path)?, size.unwrap_or_else(|| format!("--size={bytes}"))],
            Target::Device(path) => std::iter::once(file(path)?).chain(size).collect(),
            Target::Folder(path) => {
                let missing = || problem("workload.size", "missing; with a folder, set it to the size of fio's file");
                vec![file(&path.join("fio.data"))?, size.ok_or_else(missing)?]
            }
            Target::None if FILELESS.contains(&engine) => size.into_iter().collect(),
            Target::None => {
                let why = format!("the engine {engine} needs a target: a file, folder or device");
                return Err(problem("target", &why));
            }
        })
    }

    /// Whether reads may be served from the page cache.
    fn may_be_cached(&self, point: &Point, context: &RunContext) -> bool {
        let value = |key: &str| point.get(key).map(ToString::to_string).unwrap_or_default();
        let engine = value("ioengine"); // absent with a mechanism, where reads are direct
        let engine = engine.split(' ').next().unwrap_or_default();
        let reads = value("rw").contains("read") || value("rw").contains("rw");
        let direct = !matches!(value("direct").as_str(), "" | "0" | "false");
        reads && !direct && context.target != Target::None && !FILELESS.contains(&engine)
    }
}

/// The engines of an experiment without mechanisms.
fn engine_knob(options: &Options) -> Cow<'_, Knob> {
    options.ioengine.as_ref().map_or_else(|| Cow::Owned(Knob::word("psync")), Cow::Borrowed)
}

fn main_knobs(options: &Options) -> [(&'static str, Cow<'_, Knob>); 5] {
    let borrowed = Cow::Borrowed;
    let engines = ("ioengine", engine_knob(options));
    [
        options.mechanism.as_ref().map_or(engines, |knob| ("mechanism", borrowed(knob))),
        ("rw", borrowed(&options.rw)),
        ("bs", borrowed(&options.bs)),
        ("iodepth", borrowed(&options.iodepth)),
        ("numjobs", borrowed(&options.numjobs)),
    ]
}

/// Parses an engine with its options.
fn engine(value: &Value) -> Result<Named, Problem> {
    let engine = Named::read(value, "workload.ioengine")?;
    engine.options.iter().try_for_each(|(key, _)| allowed(key))?;
    Ok(engine)
}

fn allowed(key: &str) -> Result<(), Problem> {
    let Some((_, instead)) = RESERVED.iter().find(|(own, _)| *own == key) else { return Ok(()) };
    let instead = if instead.is_empty() { "omit it".into() } else { format!("use {instead}") };
    Err(problem(format!("workload.options.{key}"), format!("is set by the adapter; {instead}")))
}

/// A size for fio, in bytes: by default fio parses `4kB` as 4,096 and `4KiB` as 4,000 bytes (`kb_base`). Ranges and percentages
/// (`4k-16k`, `50%`) are passed unchanged.
fn size_in_bytes(size: &Value) -> String {
    let text = size.to_string();
    let bytes = quantity::storage_bytes(&text);
    bytes.map_or(text, |bytes| bytes.to_string())
}

/// A path for fio, to which `:` separates file names.
fn escaped_path(path: &Path) -> Result<String, Problem> {
    let text = path.to_str().ok_or_else(|| problem("target", "the path must be UTF-8"))?;
    Ok(text.replace('\\', "\\\\").replace(':', "\\:"))
}

/// Seconds in whole microseconds, which fio parses exactly.
fn time(seconds: f64, key: &str) -> Result<String, Problem> {
    let us = (seconds * 1e6).round();
    if !(0.0..1e15).contains(&us) {
        return Err(problem(key, format!("{seconds} s is not a valid time")));
    }
    Ok(format!("{us:.0}us"))
}

impl Workload for Fio {
    fn name(&self) -> &str {
        "fio"
    }

    fn knobs(&self) -> Vec<(String, Vec<Value>)> {
        let of_key = |(key, knob): (&str, Cow<'_, Knob>)| (key.to_owned(), knob.values().to_vec());
        let others = self.options.options.iter().map(|(key, knob)| (key.as_str(), Cow::Borrowed(knob)));
        main_knobs(&self.options).into_iter().chain(others).map(of_key).collect()
    }

    fn tool(&self) -> Result<Tool, Missing> {
        let output = program::output(&self.options.program, &["--version"], HELP)?;
        let missing = |why: String, help: &str| Missing { tool: "fio".into(), why, help: help.into() };
        let version = program::version_in(&output).filter(|_| output.starts_with("fio-")).map(str::to_owned);
        let version =
            version.ok_or_else(|| missing(format!("it is not fio: --version prints {:?}", output.trim()), HELP))?;
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < MIN_MAJOR) {
            let why = format!("the output of fio {version} cannot be read: its latencies are not in nanoseconds");
            return Err(missing(why, "install fio 3.8 or later, or set workload.program"));
        }
        let engines = program::output(&self.options.program, &["--enghelp"], HELP)?;
        let engines: Vec<&str> = engines.lines().skip(1).map(str::trim).collect();
        let has = |engine: &String| engine.contains(['/', ':']) || engines.contains(&engine.as_str());
        let wanted = self.engines().unwrap_or_default();
        if let Some(unknown) = wanted.iter().find(|engine| !has(&engine.name)) {
            let why = format!("fio {version} has no engine {}", unknown.name);
            return Err(missing(why, &format!("set workload.ioengine to one of {}", engines.join(", "))));
        }
        Ok(Tool { name: "fio".into(), known: TESTED.contains(&version.as_str()), version })
    }

    fn prepare(&self, context: &RunContext) -> Result<Vec<Step>, Problem> {
        let is_file = matches!(context.target, Target::File(..) | Target::Folder(_));
        if !is_file || !self.options.fill {
            return Ok(Vec::new());
        }
        let words = "--name=fill --ioengine=psync --rw=write --bs=1m --end_fsync=1 --eta=never".split(' ');
        let mut words: Vec<String> = words.map(str::to_owned).collect();
        words.push(format!("--randseed={}", context.seed));
        words.extend(self.target_arguments(context, "psync")?);
        let argv = program::argv(&self.options.program, words);
        Ok(vec![Step { argv, why: "filling the file".into(), ..Step::default() }])
    }

    fn command(&self, point: &Point, context: &RunContext) -> Result<Step, Problem> {
        if context.duration_s <= 0.0 {
            return Err(problem("duration", "must be above 0"));
        }
        let engine = self.engine_of(point)?;
        let (total, completion) = if self.options.latency == Kind::Total { (1, 0) } else { (0, 1) };
        let mut words = vec!["--output-format=json+".into(), "--eta=never".into(), "--name=job".into()];
        words.push(format!("--ioengine={}", engine.name));
        words.extend(engine.options.iter().map(|(key, value)| format!("--{key}={value}")));
        words.extend(self.target_arguments(context, &engine.name)?);
        words.extend(Pattern::read(knob::at(point, "rw")?, "rw")?.arguments());
        words.push(format!("--bs={}", size_in_bytes(knob::at(point, "bs")?)));
        for key in ["iodepth", "numjobs"] {
            words.push(format!("--{key}={}", knob::argument(point, key)?));
        }
        words.push("--time_based=1".into());
        words.push(format!("--runtime={}", time(context.duration_s, "duration")?));
        words.push(format!("--ramp_time={}", time(context.ramp_s, "ramp")?));
        words.push(format!("--randseed={}", context.seed));
        words.push(format!("--lat_percentiles={total}"));
        words.push(format!("--clat_percentiles={completion}"));
        for key in self.options.options.keys() {
            words.push(format!("--{key}={}", knob::argument(point, key)?));
        }
        let argv = program::argv(&self.options.program, words);
        Ok(Step { argv, limit_s: context.ramp_s + context.duration_s + 300.0, why: "fio".into(), ..Step::default() })
    }

    fn mechanism(&self, point: &Point) -> Option<Mechanism> {
        completion::at(point).ok().flatten()
    }

    fn parse(&self, point: &Point, context: &RunContext, outcome: &Outcome) -> Result<Record, Problem> {
        let mut record = output::record(outcome, self.options.latency)?;
        record.warnings.extend(program::untested(&record.tool, &TESTED));
        if self.may_be_cached(point, context) {
            let why = "reads may have been served from the page cache; set options.direct = true to reach the device";
            record.warnings.push(why.into());
        }
        Ok(record)
    }
}
