//! fio: any of its engines and options, on a file, a folder or a device.
//!
//! One command a point, time-based, with the ramp unmeasured, one row per job, and the histograms of `json+`. Numbers are
//! read in [`output`].
//!
//! **Which latency.** fio knows three: `slat` until a request is submitted, `clat` from there until it is complete, `lat` from
//! its making to its completion, and a histogram for each that is asked for. A record holds `lat` (`latency = "total"`): it
//! is the only one that means the same for engines that submit and complete in one call and for those that do not.
//! `latency = "completion"` asks for `clat` instead.
//!
//! **When it was measured.** From 3.36 on fio says when each job began to count (`job_start`, in ms since 1970; measured with
//! 3.39: it is set again at the end of the ramp, and with the job's runtime was within 4 ms of the last request in two runs
//! of three, 155 ms off in the third). Before, the window ends when fio wrote its result (`timestamp_ms`), which with 3.33
//! was 0 to 35 ms after the last request, and is as long as fio counted.

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
use super::{Missing, Outcome, Place, Point, Problem, Stage, Step, Value, Workload, problem, program};
use crate::Mechanism;
use crate::record::{Record, Tool};

/// Versions on whose output the adapter was tried: Debian 12's and 13's.
pub const TRIED: [&str; 2] = ["3.33", "3.39"];

const HELP: &str = "apt install fio, or name another one with workload.program";
/// Engines that need no file.
const FILELESS: [&str; 12] =
    ["null", "cpuio", "net", "netsplice", "rdma", "rados", "rbd", "http", "gfapi", "gfapi_async", "nbd", "exec"];
/// What the adapter says itself, and the key to use instead, if there is one.
const OWN: [(&str, &str); 26] = [
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
    ("filename", "the experiment's place"),
    ("directory", "the experiment's place"),
    ("group_reporting", ""),
    ("unified_rw_reporting", ""),
    ("output", ""),
    ("output-format", ""),
    ("eta", ""),
];

/// What is asked of fio. In TOML: `kind = "fio"`, and these keys. A key that says "one or several" is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program; `fio` where it is not given.
    #[serde(default = "default_program")]
    pub program: PathBuf,
    /// One or several engines, as `fio --enghelp` names them, each perhaps with options that only it has, as in
    /// `"io_uring hipri=1 fixedbufs=1"`; `psync` where it is not given, as in fio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ioengine: Option<Knob>,
    /// One or several mechanisms of completion, instead of engines: [`mechanism::WORDS`](crate::mechanism::WORDS). Each
    /// chooses its engine, and sets the device's `io_poll` and `io_poll_delay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Knob>,
    /// One or several patterns: fio's words, and for mixed ones perhaps the reads and writes in percent, as in
    /// `"randrw 70/30"`; `read` where it is not given, as in fio.
    #[serde(default = "default_pattern")]
    pub rw: Knob,
    /// One or several block sizes, in bytes or as fio writes them; `4k` where it is not given, as in fio.
    #[serde(default = "Knob::block_4k")]
    pub bs: Knob,
    /// One or several depths: requests of a job in flight; 1 where it is not given, as in fio.
    #[serde(default = "Knob::one")]
    pub iodepth: Knob,
    /// One or several numbers of jobs; 1 where it is not given, as in fio.
    #[serde(default = "Knob::one")]
    pub numjobs: Knob,
    /// Any other option of fio, one value or several: `options = { direct = true, hipri = [false, true], rate_iops = 1000 }`.
    #[serde(default)]
    pub options: BTreeMap<String, Knob>,
    /// How much of the place is used, in bytes or as fio writes it; all of a file or device where it is not given. A folder
    /// needs it.
    #[serde(default)]
    pub size: Option<Value>,
    /// Whether a file is written whole before the first point, so that reads find data; `true` where it is not given.
    #[serde(default = "yes")]
    pub fill: bool,
    /// Which latency the record holds.
    #[serde(default)]
    pub latency: Kind,
}

/// Which of fio's latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `lat`: from the making of a request to its completion.
    #[default]
    Total,
    /// `clat`: from its submission to its completion.
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
    /// With these options.
    ///
    /// # Errors
    /// A key that says nothing, or an option that the adapter has to say itself.
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
            Some(mechanism) => completion::asked(&self.options.program, mechanism),
            None => engine(knob::at(point, "ioengine")?),
        }
    }

    fn place(&self, stage: &Stage, engine: &str) -> Result<Vec<String>, Problem> {
        let size = self.options.size.as_ref().map(|size| format!("--size={}", size_in_bytes(size)));
        let file = |path: &Path| Ok(format!("--filename={}", fios_path(path)?));
        Ok(match &stage.place {
            Place::File(path, bytes) => vec![file(path)?, size.unwrap_or_else(|| format!("--size={bytes}"))],
            Place::Device(path) => std::iter::once(file(path)?).chain(size).collect(),
            Place::Folder(path) => {
                let missing = || problem("workload.size", "a folder needs it: how large is fio's file to be there?");
                vec![file(&path.join("fio.data"))?, size.ok_or_else(missing)?]
            }
            Place::Nothing if FILELESS.contains(&engine) => size.into_iter().collect(),
            Place::Nothing => {
                let why = format!("the engine {engine} works on something: name a file, folder or device as its place");
                return Err(problem("target", &why));
            }
        })
    }

    /// Reads of a file that the kernel may answer from memory.
    fn cached(&self, point: &Point, stage: &Stage) -> bool {
        let said = |key: &str| point.get(key).map(ToString::to_string).unwrap_or_default();
        let engine = said("ioengine"); // with a mechanism there is none, and reads are direct
        let engine = engine.split(' ').next().unwrap_or_default();
        let reads = said("rw").contains("read") || said("rw").contains("rw");
        let direct = !matches!(said("direct").as_str(), "" | "0" | "false");
        reads && !direct && stage.place != Place::Nothing && !FILELESS.contains(&engine)
    }
}

/// The engines, where they are not those of mechanisms.
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

/// An engine, and what is said to it alone.
fn engine(value: &Value) -> Result<Named, Problem> {
    let engine = Named::read(value, "workload.ioengine")?;
    engine.options.iter().try_for_each(|(key, _)| allowed(key))?;
    Ok(engine)
}

fn allowed(key: &str) -> Result<(), Problem> {
    let Some((_, instead)) = OWN.iter().find(|(own, _)| *own == key) else { return Ok(()) };
    let instead = if instead.is_empty() { "omit it".into() } else { format!("use {instead}") };
    Err(problem(format!("workload.options.{key}"), format!("this is set for every run; {instead}")))
}

/// A size as fio is to read it. fio's default reads `4kB` as 4,096 and `4KiB` as 4,000 bytes (`kb_base`), so a size is passed in bytes.
/// What is not one size (`4k-16k`, `50%`) is passed as it is.
fn size_in_bytes(size: &Value) -> String {
    let text = size.to_string();
    let bytes = quantity::storage_bytes(&text);
    bytes.map_or(text, |bytes| bytes.to_string())
}

/// fio takes `:` for the end of a name.
fn fios_path(path: &Path) -> Result<String, Problem> {
    let text = path.to_str().ok_or_else(|| problem("target", "fio takes only names in UTF-8"))?;
    Ok(text.replace('\\', "\\\\").replace(':', "\\:"))
}

/// Seconds as fio reads them exactly: in whole microseconds.
fn time(seconds: f64, key: &str) -> Result<String, Problem> {
    let us = (seconds * 1e6).round();
    if !(0.0..1e15).contains(&us) {
        return Err(problem(key, format!("{seconds} s is no time")));
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
        let said = program::ask(&self.options.program, &["--version"], HELP)?;
        let missing = |why: String, help: &str| Missing { tool: "fio".into(), why, help: help.into() };
        let version = program::version_in(&said).filter(|_| said.starts_with("fio-")).map(str::to_owned);
        let version =
            version.ok_or_else(|| missing(format!("--version says {:?}, which is no fio", said.trim()), HELP))?;
        let engines = program::ask(&self.options.program, &["--enghelp"], HELP)?;
        let engines: Vec<&str> = engines.lines().skip(1).map(str::trim).collect();
        let has = |engine: &String| engine.contains(['/', ':']) || engines.contains(&engine.as_str());
        let wanted = self.engines().unwrap_or_default();
        if let Some(unknown) = wanted.iter().find(|engine| !has(&engine.name)) {
            let why = format!("fio {version} has no engine {}", unknown.name);
            return Err(missing(why, &format!("in workload.ioengine name one of {}", engines.join(", "))));
        }
        Ok(Tool { name: "fio".into(), known: TRIED.contains(&version.as_str()), version })
    }

    fn prepare(&self, stage: &Stage) -> Result<Vec<Step>, Problem> {
        let is_file = matches!(stage.place, Place::File(..) | Place::Folder(_));
        if !is_file || !self.options.fill {
            return Ok(Vec::new());
        }
        let words = "--name=fill --ioengine=psync --rw=write --bs=1m --end_fsync=1 --eta=never".split(' ');
        let mut words: Vec<String> = words.map(str::to_owned).collect();
        words.push(format!("--randseed={}", stage.seed));
        words.extend(self.place(stage, "psync")?);
        let argv = program::argv(&self.options.program, words);
        Ok(vec![Step { argv, why: "filling the file".into(), ..Step::default() }])
    }

    fn command(&self, point: &Point, stage: &Stage) -> Result<Step, Problem> {
        if stage.duration_s <= 0.0 {
            return Err(problem("duration", "fio would run without end: it needs a time above 0"));
        }
        let engine = self.engine_of(point)?;
        let (total, completion) = if self.options.latency == Kind::Total { (1, 0) } else { (0, 1) };
        let mut words = vec!["--output-format=json+".into(), "--eta=never".into(), "--name=job".into()];
        words.push(format!("--ioengine={}", engine.name));
        words.extend(engine.options.iter().map(|(key, value)| format!("--{key}={value}")));
        words.extend(self.place(stage, &engine.name)?);
        words.extend(Pattern::read(knob::at(point, "rw")?, "rw")?.arguments());
        words.push(format!("--bs={}", size_in_bytes(knob::at(point, "bs")?)));
        for key in ["iodepth", "numjobs"] {
            words.push(format!("--{key}={}", knob::argument(point, key)?));
        }
        words.push("--time_based=1".into());
        words.push(format!("--runtime={}", time(stage.duration_s, "duration")?));
        words.push(format!("--ramp_time={}", time(stage.ramp_s, "ramp")?));
        words.push(format!("--randseed={}", stage.seed));
        words.push(format!("--lat_percentiles={total}"));
        words.push(format!("--clat_percentiles={completion}"));
        for key in self.options.options.keys() {
            words.push(format!("--{key}={}", knob::argument(point, key)?));
        }
        let argv = program::argv(&self.options.program, words);
        Ok(Step { argv, limit_s: stage.ramp_s + stage.duration_s + 300.0, why: "fio".into(), ..Step::default() })
    }

    fn mechanism(&self, point: &Point) -> Option<Mechanism> {
        completion::at(point).ok().flatten()
    }

    fn parse(&self, point: &Point, stage: &Stage, outcome: &Outcome) -> Result<Record, Problem> {
        let mut record = output::record(outcome, self.options.latency)?;
        record.warnings.extend(program::unknown(&record.tool, &TRIED));
        if self.cached(point, stage) {
            let why = "reads may have come from the page cache: set options.direct = true to reach the device";
            record.warnings.push(why.into());
        }
        Ok(record)
    }
}
