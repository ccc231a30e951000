//! Pilotlight's own `load` over NVMe/TCP: against a target that is there, or against one that is started for each point, with
//! its policy as a knob ([`serve`]).
//!
//! **Which latency.** From when a command is submitted, or was due with a rate or schedule, to its completion. `load` prints
//! quantiles of a histogram with three significant digits; there are no buckets in a record.
//!
//! **When it was measured.** `load` says for how long it counted, and ends at once after the last completion (not with
//! `verify`, which reads everything back): the window ends with the program.

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
use super::{Missing, Outcome, Point, Problem, Stage, Step, Value, Workload, own, problem, program};
use crate::record::{Record, Tool};

/// The program that has the command.
const PROGRAM: &str = "pilotlight";
/// What the adapter says itself.
const OWN: [&str; 15] = [
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

/// What is asked of `pilotlight load`. In TOML: `kind = "load"`, and these keys. A key that says "one or several" is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program `pilotlight`; the one beside this program where it is not given.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// A target that is there, `ADDR:PORT`. Either this or `serve`.
    #[serde(default)]
    pub target: Option<String>,
    /// Its subsystem; where it is not given the only one that it has.
    #[serde(default)]
    pub nqn: Option<String>,
    /// A target of one's own for each point. Either this or `target`.
    #[serde(default)]
    pub serve: Option<serve::Options>,
    /// One or several patterns, for mixed ones perhaps with reads and writes in percent, as in `"randrw 70/30"`; `randread`
    /// where it is not given.
    #[serde(default = "default_pattern")]
    pub rw: Knob,
    /// One or several block sizes; `4k` where it is not given.
    #[serde(default = "Knob::block_4k")]
    pub bs: Knob,
    /// One or several numbers of commands in flight per connection; where it is not given 1, or 128 with a rate or schedule.
    #[serde(default)]
    pub iodepth: Option<Knob>,
    /// One or several numbers of connections; 1 where it is not given.
    #[serde(default = "Knob::one")]
    pub numjobs: Knob,
    /// Any other option of `load`, one value or several, per connection as there:
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
    /// As the program says it, once it was asked.
    version: OnceLock<String>,
}

impl Load {
    /// With these options.
    ///
    /// # Errors
    /// A key that says nothing, or no target or two.
    pub fn new(options: Options) -> Result<Self, Problem> {
        if options.serve.is_some() == options.target.is_some() {
            let why = "give either workload.target, where a target listens, or [workload.serve], to have one started";
            return Err(problem("workload.target", why));
        }
        options.rw.values().iter().try_for_each(|value| Pattern::read(value, "workload.rw").map(drop))?;
        if let Some(key) = options.options.keys().find(|key| OWN.contains(&key.as_str())) {
            let at = format!("workload.options.{key}");
            return Err(problem(at, "this is set for every run; is there a key of its own for it?"));
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

    /// The program, and where it finds its target.
    fn words(&self) -> Vec<String> {
        let target = self.options.target.as_deref();
        let target = target.or_else(|| self.serve.as_ref().map(Serve::listens)).unwrap_or_default();
        let mut words = vec!["load".to_owned(), format!("--target={target}")];
        words.extend(self.options.nqn.iter().map(|nqn| format!("--nqn={nqn}")));
        words
    }

    fn step(&self, words: Vec<String>, limit_s: f64, why: &str) -> Step {
        Step { argv: program::argv(&self.program, words), limit_s, why: why.into(), ..Step::default() }
    }
}

/// Seconds as `load` takes them, in whole microseconds.
fn time(seconds: f64, key: &str) -> Result<String, Problem> {
    let us = (seconds * 1e6).round();
    (0.0..1e15)
        .contains(&us)
        .then(|| format!("{us:.0}us"))
        .ok_or_else(|| problem(key, format!("{seconds} s is no time")))
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

    fn before(&self, point: &Point, stage: &Stage) -> Result<Vec<Step>, Problem> {
        let Some(serve) = &self.serve else { return Ok(Vec::new()) };
        let mut steps = serve.start(point, stage)?;
        if serve.fills() {
            let mut words = self.words();
            words.extend(["--rw=write", "--bs=128k", "--iodepth=16"].map(str::to_owned));
            steps.push(self.step(words, 0.0, "filling the namespace"));
        }
        steps.push(serve.watch());
        Ok(steps)
    }

    fn command(&self, point: &Point, stage: &Stage) -> Result<Step, Problem> {
        let mut words = self.words();
        words.push("--json".into());
        words.extend(Pattern::read(knob::at(point, "rw")?, "rw")?.arguments());
        for key in ["bs", "iodepth", "numjobs"].into_iter().filter(|key| point.contains_key(*key)) {
            words.push(format!("--{key}={}", knob::argument(point, key)?));
        }
        words.push(format!("--runtime={}", time(stage.duration_s, "duration")?));
        words.push(format!("--ramp_time={}", time(stage.ramp_s, "ramp")?));
        words.push(format!("--randseed={}", stage.seed));
        for key in self.options.options.keys() {
            words.extend(match knob::at(point, key)? {
                Value::Switch(on) => on.then(|| format!("--{key}")),
                value => Some(format!("--{key}={value}")),
            });
        }
        Ok(self.step(words, stage.ramp_s + stage.duration_s + 300.0, "pilotlight load"))
    }

    fn parse(&self, _: &Point, stage: &Stage, outcome: &Outcome) -> Result<Record, Problem> {
        let version = self.version.get().cloned().unwrap_or_default();
        let mut record = output::record(outcome, version)?;
        if let Some(window) = record.window_ns.filter(|_| self.serve.is_some()) {
            match serve::counters(&stage.scratch.join(serve::STATUS), outcome.began_wall_ns, window) {
                Ok(counters) => record.extra.extend(counters),
                Err(problem) => record.warnings.push(format!("the target's counters: {problem}")),
            }
        }
        Ok(record)
    }
}

/// Where a name leads that is given to a step: steps are started in the scratch folder.
fn scratch(stage: &Stage, name: &str) -> PathBuf {
    let path = Path::new(name);
    if path.is_absolute() { path.to_owned() } else { stage.scratch.join(path) }
}
