//! `pilotlight load` over NVMe/TCP, against a running target or a target that is started for each point with its policy as a knob
//! ([`serve`]).
//!
//! **Latency.** From submission of a command, or from its due time with a rate or schedule, to its completion. `load` prints quantiles
//! of a histogram with three significant digits; the record has no buckets.
//!
//! **Window.** `load` prints its measured time and exits after the last completion: the window ends with the program. With `verify`,
//! which reads all data back, the window is unknown.

mod output;
mod serve;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serve::Serve;

use super::knob::{self, Knob, Pattern};
use super::{Missing, Outcome, Point, Problem, RunContext, Step, Value, Workload, own, problem, program};
use crate::record::{Record, Tool};

/// The program.
const PROGRAM: &str = "pilotlight";
/// Options that the adapter sets.
const RESERVED: [&str; 15] = [
    "target",
    "nqn",
    "rw",
    "readwrite",
    "rwmixread",
    "bs",
    "blocksize",
    "iodepth",
    "numjobs",
    "runtime",
    "ramp_time",
    "ramp-time",
    "randseed",
    "seed",
    "json",
];

/// Keys of `[workload]` with `kind = "load"`. A key that takes one or more values is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program `pilotlight`; default: the one in the folder of this program.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// Address of a running target, `ADDR:PORT`. Either this or `serve`.
    #[serde(default)]
    pub target: Option<String>,
    /// NQN of its subsystem; default: its only subsystem.
    #[serde(default)]
    pub nqn: Option<String>,
    /// A target that is started for each point. Either this or `target`.
    #[serde(default)]
    pub serve: Option<serve::Options>,
    /// One or more access patterns, for mixed ones optionally with reads and writes in percent, as in `"randrw 70/30"`; default:
    /// `randread`.
    #[serde(default = "default_pattern")]
    pub rw: Knob,
    /// One or more block sizes; default: `4k`.
    #[serde(default = "Knob::block_4k")]
    pub bs: Knob,
    /// One or more queue depths: outstanding commands per connection; default: 1, or 128 with a rate or schedule.
    #[serde(default)]
    pub iodepth: Option<Knob>,
    /// One or more numbers of connections; default: 1.
    #[serde(default = "Knob::one")]
    pub numjobs: Knob,
    /// Any other option of `load`, one value or more, per connection:
    /// `options = { rate_iops = ["50k", "100k"], schedule = "5%:1s,100%:100ms", rate_process = "poisson", cpu = "3" }`.
    #[serde(default)]
    pub options: BTreeMap<String, Knob>,
}

fn default_pattern() -> Knob {
    Knob::word("randread")
}

/// `pilotlight load`.
#[derive(Debug)]
pub struct Load {
    options: Options,
    program: PathBuf,
    serve: Option<Serve>,
    /// The version that the program printed.
    version: OnceLock<String>,
}

impl Load {
    /// Checks the options.
    ///
    /// # Errors
    /// A key without values, or not exactly one of `target` and `serve`.
    pub fn new(options: Options) -> Result<Self, Problem> {
        if options.serve.is_some() == options.target.is_some() {
            let why = "set either workload.target, the address of a running target, or [workload.serve], to start one";
            return Err(problem("workload.target", why));
        }
        options.rw.values().iter().try_for_each(|value| Pattern::read(value, "workload.rw").map(drop))?;
        if let Some(key) = options.options.keys().find(|key| RESERVED.contains(&key.as_str())) {
            let at = format!("workload.options.{key}");
            return Err(problem(at, "is set by the adapter; use the key of [workload] for it, if there is one"));
        }
        let program = options.program.clone().unwrap_or_else(|| own::beside(PROGRAM));
        let serve = options.serve.clone().map(|serve| Serve::new(serve, &program)).transpose()?;
        let load = Self { options, program, serve, version: OnceLock::new() };
        load.all().into_iter().try_for_each(|(key, knob)| knob.check(&format!("workload.{key}")))?;
        Ok(load)
    }

    fn all(&self) -> Vec<(&str, &Knob)> {
        let mut knobs = vec![("rw", &self.options.rw), ("bs", &self.options.bs), ("numjobs", &self.options.numjobs)];
        knobs.extend(self.options.iodepth.as_ref().map(|knob| ("iodepth", knob)));
        knobs.extend(self.options.options.iter().map(|(key, knob)| (key.as_str(), knob)));
        knobs.extend(self.serve.iter().flat_map(Serve::knobs));
        knobs
    }

    /// The subcommand and its target.
    fn target_words(&self) -> Vec<String> {
        let target = self.options.target.as_deref();
        let target = target.or_else(|| self.serve.as_ref().map(Serve::listen_address)).unwrap_or_default();
        let mut words = vec!["load".to_owned(), format!("--target={target}")];
        words.extend(self.options.nqn.iter().map(|nqn| format!("--nqn={nqn}")));
        words
    }

    fn step(&self, words: Vec<String>, limit_s: f64, why: &str) -> Step {
        Step { argv: program::argv(&self.program, words), limit_s, why: why.into(), ..Step::default() }
    }
}

/// Seconds in whole microseconds, for `load`.
fn time(seconds: f64, key: &str) -> Result<String, Problem> {
    let us = (seconds * 1e6).round();
    (0.0..1e15)
        .contains(&us)
        .then(|| format!("{us:.0}us"))
        .ok_or_else(|| problem(key, format!("{seconds} s is not a valid time")))
}

impl Workload for Load {
    fn name(&self) -> &str {
        "load"
    }

    fn knobs(&self) -> Vec<(String, Vec<Value>)> {
        self.all().into_iter().map(|(key, knob)| (key.to_owned(), knob.values().to_vec())).collect()
    }

    fn tool(&self) -> Result<Tool, Missing> {
        let version = own::version(&self.program, PROGRAM)?;
        let version = self.version.get_or_init(|| version).clone();
        Ok(Tool { name: "pilotlight load".into(), version, known: true })
    }

    fn before(&self, point: &Point, context: &RunContext) -> Result<Vec<Step>, Problem> {
        let Some(serve) = &self.serve else { return Ok(Vec::new()) };
        let mut steps = serve.start(point, context)?;
        if serve.fills() {
            let mut words = self.target_words();
            words.extend(["--rw=write", "--bs=128k", "--iodepth=16"].map(str::to_owned));
            steps.push(self.step(words, 0.0, "filling the namespace"));
        }
        steps.push(serve.monitor());
        Ok(steps)
    }

    fn command(&self, point: &Point, context: &RunContext) -> Result<Step, Problem> {
        let mut words = self.target_words();
        words.push("--json".into());
        words.extend(Pattern::read(knob::at(point, "rw")?, "rw")?.arguments());
        for key in ["bs", "iodepth", "numjobs"].into_iter().filter(|key| point.contains_key(*key)) {
            words.push(format!("--{key}={}", knob::argument(point, key)?));
        }
        words.push(format!("--runtime={}", time(context.duration_s, "duration")?));
        words.push(format!("--ramp_time={}", time(context.ramp_s, "ramp")?));
        words.push(format!("--randseed={}", context.seed));
        for key in self.options.options.keys() {
            words.extend(match knob::at(point, key)? {
                Value::Switch(on) => on.then(|| format!("--{key}")),
                value => Some(format!("--{key}={value}")),
            });
        }
        Ok(self.step(words, context.ramp_s + context.duration_s + 300.0, "pilotlight load"))
    }

    fn parse(&self, _: &Point, context: &RunContext, outcome: &Outcome) -> Result<Record, Problem> {
        let version = self.version.get().cloned().unwrap_or_default();
        let mut record = output::record(outcome, version)?;
        if let Some(window) = record.window_ns.filter(|_| self.serve.is_some()) {
            match serve::counters(&context.scratch.join(serve::STATUS), outcome.began_wall_ns, window) {
                Ok(counters) => record.extra.extend(counters),
                Err(problem) => record.warnings.push(format!("the target's counters: {problem}")),
            }
        }
        Ok(record)
    }
}

/// Resolves a path of a step, whose working directory is the scratch folder.
fn in_scratch(context: &RunContext, name: &str) -> PathBuf {
    let path = Path::new(name);
    if path.is_absolute() { path.to_owned() } else { context.scratch.join(path) }
}
