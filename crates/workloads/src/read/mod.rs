//! Pilotlight's own `read`: random reads, one at a time for each job, by any mechanism of completion, io_uring's hybrid polling
//! included, which no release of fio has. An experiment that compares mechanisms with it runs all of them through one tool.
//!
//! **Which latency.** From just before the call to just after it, of each read of the window; a histogram of three significant digits.
//!
//! **When it was measured.** Each job's window begins with the end of its ramp's last read and ends with its last read, so that all that is
//! counted, context switches too, lies within. `read` tells the begin by the wall clock.
//!
//! `rw = "randread"` and `options = { direct = true }` are taken, as nothing else is done: an experiment for fio's mechanisms runs
//! with another `kind`.

mod output;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::knob::{self, Knob};
use super::{Missing, Outcome, Place, Point, Problem, Stage, Step, Value, Workload, own, problem, program};
use crate::Mechanism;
use crate::record::{Record, Tool};

/// The program that has the command.
const PROGRAM: &str = "pilotlab";

/// What is asked of `pilotlab read`. In TOML: `kind = "read"`, and these keys. A key that says "one or several" is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program `pilotlab`; the one beside this program where it is not given.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// One or several mechanisms of completion, as in docs/measure.md; `interrupt` where it is not given.
    #[serde(default = "interrupt")]
    pub mechanism: Knob,
    /// One or several sizes of a read; `4k` where it is not given.
    #[serde(default = "Knob::block_4k")]
    pub bs: Knob,
    /// One or several numbers of jobs, each with one read in flight; 1 where it is not given.
    #[serde(default = "Knob::one")]
    pub numjobs: Knob,
    /// Where reading begins; at the start where it is not given.
    #[serde(default)]
    pub offset: Option<Value>,
    /// How much from there on is read from; all of it where it is not given.
    #[serde(default)]
    pub size: Option<Value>,
    /// Whether a file is written whole before the first point; it is where it is not given. A device never is.
    #[serde(default = "yes")]
    pub fill: bool,
    /// What `read` always does, for experiments that say it: `"randread"`.
    #[serde(default)]
    pub rw: Option<String>,
    /// The same: `direct = true`, `thread = true`.
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
    /// As the program says it, once it was asked.
    version: OnceLock<String>,
}

impl Read {
    /// With these options.
    ///
    /// # Errors
    /// A key that says nothing, or that asks for what `read` does not do.
    pub fn new(options: Options) -> Result<Self, Problem> {
        options.mechanism.values().iter().try_for_each(|value| mechanism(value).map(drop))?;
        if let Some(other) = options.rw.as_ref().filter(|rw| *rw != "randread") {
            let why = format!("{other}: read does random reads only; kind = \"fio\" does others");
            return Err(problem("workload.rw", why));
        }
        options.options.iter().try_for_each(|(key, knob)| always(key, knob))?;
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
    Mechanism::read(&value.to_string()).map_err(|why| problem("workload.mechanism", why))
}

/// Options of fio that say what is done anyway.
fn always(key: &str, knob: &Knob) -> Result<(), Problem> {
    let at = || format!("workload.options.{key}");
    if !matches!(key, "direct" | "thread") {
        return Err(problem(at(), "read has no such option; its keys stand under [workload] itself"));
    }
    let is_on = knob.values().iter().all(|value| matches!(value, Value::Switch(true) | Value::Integer(1)));
    if is_on { Ok(()) } else { Err(problem(at(), "read always does that: leave it out, or set it to true")) }
}

/// What is read.
fn target(stage: &Stage) -> Result<&Path, Problem> {
    match &stage.place {
        Place::File(path, _) | Place::Device(path) => Ok(path),
        Place::Folder(_) | Place::Nothing => {
            Err(problem("target", "read works on a file or a device: name one, target.file or target.device"))
        }
    }
}

/// Seconds as `read` takes them, in whole microseconds.
fn time(seconds: f64, key: &str) -> Result<String, Problem> {
    let us = (seconds * 1e6).round();
    let is_time = (0.0..1e15).contains(&us);
    if is_time { Ok(format!("{us:.0}us")) } else { Err(problem(key, format!("{seconds} s is no time"))) }
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

    /// `read` itself writes nothing, so `dd` does: random bytes, as drives may take zeroes for nothing.
    fn prepare(&self, stage: &Stage) -> Result<Vec<Step>, Problem> {
        let Place::File(path, bytes) = &stage.place else { return target(stage).map(|_| Vec::new()) };
        if !self.options.fill {
            return Ok(Vec::new());
        }
        let mut of = std::ffi::OsString::from("of=");
        of.push(path);
        let rest = format!("bs=1M count={bytes} iflag=count_bytes,fullblock conv=fsync");
        let argv = ["dd".into(), "if=/dev/urandom".into(), of].into_iter().chain(rest.split(' ').map(Into::into));
        Ok(vec![Step { argv: argv.collect(), why: "filling the file".into(), ..Step::default() }])
    }

    fn command(&self, point: &Point, stage: &Stage) -> Result<Step, Problem> {
        if stage.duration_s <= 0.0 {
            return Err(problem("duration", "it needs a time above 0"));
        }
        let mut words = vec!["--json".to_owned(), format!("--mechanism={}", knob::at(point, "mechanism")?)];
        for key in ["bs", "numjobs"] {
            words.push(format!("--{key}={}", knob::argument(point, key)?));
        }
        words.push(format!("--runtime={}", time(stage.duration_s, "duration")?));
        words.push(format!("--ramp_time={}", time(stage.ramp_s, "ramp")?));
        words.push(format!("--randseed={}", stage.seed));
        let range = [("offset", &self.options.offset), ("size", &self.options.size)];
        words.extend(range.into_iter().filter_map(|(key, value)| Some(format!("--{key}={}", value.as_ref()?))));
        let mut argv = program::argv(&self.program, std::iter::once("read".to_owned()));
        argv.push(target(stage)?.into());
        argv.extend(words.into_iter().map(Into::into));
        let limit_s = stage.ramp_s + stage.duration_s + 300.0;
        Ok(Step { argv, limit_s, why: output::NAME.into(), ..Step::default() })
    }

    fn mechanism(&self, point: &Point) -> Option<Mechanism> {
        mechanism(point.get("mechanism")?).ok()
    }

    fn parse(&self, _: &Point, _: &Stage, outcome: &Outcome) -> Result<Record, Problem> {
        output::record(outcome, self.version.get().cloned().unwrap_or_default())
    }
}
