//! `pilotlab read`: random reads with one outstanding read per job and any completion mechanism, including io_uring's hybrid polling,
//! which no release of fio supports. An experiment can thus compare all mechanisms with one tool.
//!
//! **Latency.** Of each read in the window, from just before the call to just after it; a histogram of three significant digits.
//!
//! **Window.** From the end of the last read of a job's ramp to the end of its last read; context switches are counted in the same
//! window. `read` reports its start on the wall clock.
//!
//! `rw = "randread"` and `options = { direct = true }` are accepted, so that an experiment for fio's mechanisms runs with this `kind`.

mod output;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::knob::{self, Knob};
use super::{Missing, Outcome, Point, Problem, RunContext, Step, Target, Value, Workload, own, problem, program};
use crate::Mechanism;
use crate::record::{Record, Tool};

/// The program.
const PROGRAM: &str = "pilotlab";

/// Keys of `[workload]` with `kind = "read"`. A key that takes one or more values is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program `pilotlab`; default: the one in the folder of this program.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// One or more completion mechanisms; default: `interrupt`.
    #[serde(default = "interrupt")]
    pub mechanism: Knob,
    /// One or more sizes of a read; default: `4k`.
    #[serde(default = "Knob::block_4k")]
    pub bs: Knob,
    /// One or more numbers of jobs, each with one outstanding read; default: 1.
    #[serde(default = "Knob::one")]
    pub numjobs: Knob,
    /// Start of the region that is read; default: 0.
    #[serde(default)]
    pub offset: Option<Value>,
    /// Size of the region; default: up to the end.
    #[serde(default)]
    pub size: Option<Value>,
    /// Whether a file is written completely before the first point; default: `true`. A device is never written.
    #[serde(default = "yes")]
    pub fill: bool,
    /// Accepted for compatibility with fio: `"randread"`.
    #[serde(default)]
    pub rw: Option<String>,
    /// Accepted for compatibility with fio: `direct = true`, `thread = true`.
    #[serde(default)]
    pub options: BTreeMap<String, Knob>,
}

fn interrupt() -> Knob {
    Knob::word("interrupt")
}

fn yes() -> bool {
    true
}

/// `pilotlab read`.
#[derive(Debug)]
pub struct Read {
    options: Options,
    program: PathBuf,
    /// The version that the program printed.
    version: OnceLock<String>,
}

impl Read {
    /// Checks the options.
    ///
    /// # Errors
    /// A key without values, or an option that `read` does not support.
    pub fn new(options: Options) -> Result<Self, Problem> {
        options.mechanism.values().iter().try_for_each(|value| mechanism(value).map(drop))?;
        if let Some(other) = options.rw.as_ref().filter(|rw| *rw != "randread") {
            let why = format!("{other}: only randread is supported; use kind = \"fio\" for others");
            return Err(problem("workload.rw", why));
        }
        options.options.iter().try_for_each(|(key, knob)| check_compatible(key, knob))?;
        let program = options.program.clone().unwrap_or_else(|| own::beside(PROGRAM));
        let read = Self { options, program, version: OnceLock::new() };
        knob::check_main(read.all())?;
        Ok(read)
    }

    fn all(&self) -> [(&'static str, &Knob); 3] {
        [("mechanism", &self.options.mechanism), ("bs", &self.options.bs), ("numjobs", &self.options.numjobs)]
    }
}

fn mechanism(value: &Value) -> Result<Mechanism, Problem> {
    Mechanism::read(&value.to_string()).map_err(|why| problem("workload.mechanism", why.to_string()))
}

/// Accepts options of fio that `read` always implements.
fn check_compatible(key: &str, knob: &Knob) -> Result<(), Problem> {
    let at = || format!("workload.options.{key}");
    if !matches!(key, "direct" | "thread") {
        return Err(problem(at(), "unknown option of read; its keys belong under [workload]"));
    }
    let is_on = knob.values().iter().all(|value| matches!(value, Value::Switch(true) | Value::Integer(1)));
    if is_on { Ok(()) } else { Err(problem(at(), "cannot be disabled; omit it or set it to true")) }
}

/// The file or device to read.
fn target(context: &RunContext) -> Result<&Path, Problem> {
    match &context.target {
        Target::File(path, _) | Target::Device(path) => Ok(path),
        Target::Folder(_) | Target::None => {
            Err(problem("target", "read needs a file or a device; set target.file or target.device"))
        }
    }
}

/// Seconds in whole microseconds, for `read`.
fn time(seconds: f64, key: &str) -> Result<String, Problem> {
    let us = (seconds * 1e6).round();
    let is_time = (0.0..1e15).contains(&us);
    if is_time { Ok(format!("{us:.0}us")) } else { Err(problem(key, format!("{seconds} s is not a valid time"))) }
}

impl Workload for Read {
    fn name(&self) -> &str {
        "read"
    }

    fn knobs(&self) -> Vec<(String, Vec<Value>)> {
        knob::listed(self.all(), &[])
    }

    fn tool(&self) -> Result<Tool, Missing> {
        let version = own::version(&self.program, PROGRAM)?;
        let version = self.version.get_or_init(|| version).clone();
        Ok(Tool { name: output::NAME.into(), version, known: true })
    }

    /// Fills the file with `dd`, as `read` never writes. The bytes are random because drives may optimize zeroes.
    fn prepare(&self, context: &RunContext) -> Result<Vec<Step>, Problem> {
        let Target::File(path, bytes) = &context.target else { return target(context).map(|_| Vec::new()) };
        if !self.options.fill {
            return Ok(Vec::new());
        }
        let mut of = std::ffi::OsString::from("of=");
        of.push(path);
        let rest = format!("bs=1M count={bytes} iflag=count_bytes,fullblock conv=fsync");
        let argv = ["dd".into(), "if=/dev/urandom".into(), of].into_iter().chain(rest.split(' ').map(Into::into));
        Ok(vec![Step { argv: argv.collect(), why: "filling the file".into(), ..Step::default() }])
    }

    fn command(&self, point: &Point, context: &RunContext) -> Result<Step, Problem> {
        if context.duration_s <= 0.0 {
            return Err(problem("duration", "must be above 0"));
        }
        let mut words = vec!["--json".to_owned(), format!("--mechanism={}", knob::at(point, "mechanism")?)];
        for key in ["bs", "numjobs"] {
            words.push(format!("--{key}={}", knob::argument(point, key)?));
        }
        words.push(format!("--runtime={}", time(context.duration_s, "duration")?));
        words.push(format!("--ramp_time={}", time(context.ramp_s, "ramp")?));
        words.push(format!("--randseed={}", context.seed));
        let range = [("offset", &self.options.offset), ("size", &self.options.size)];
        words.extend(range.into_iter().filter_map(|(key, value)| Some(format!("--{key}={}", value.as_ref()?))));
        let mut argv = program::argv(&self.program, std::iter::once("read".to_owned()));
        argv.push(target(context)?.into());
        argv.extend(words.into_iter().map(Into::into));
        let limit_s = context.ramp_s + context.duration_s + 300.0;
        Ok(Step { argv, limit_s, why: output::NAME.into(), ..Step::default() })
    }

    fn mechanism(&self, point: &Point) -> Option<Mechanism> {
        mechanism(point.get("mechanism")?).ok()
    }

    fn parse(&self, _: &Point, _: &RunContext, outcome: &Outcome) -> Result<Record, Problem> {
        output::record(outcome, self.version.get().cloned().unwrap_or_default())
    }
}
