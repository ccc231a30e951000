//! filebench: its personalities, in a folder.
//!
//! **Untested against the tool.** Debian has no package of it, and it could not be installed where this was written; its summary is read in the
//! two forms that versions 1.4 and 1.5 print as far as is known. Every record says so.
//!
//! A personality is copied without its `run`, followed by the knobs as `set $name=value` and by `run` for the experiment's
//! duration. filebench 1.5 does not run with address space randomisation: it is started with `setarch --addr-no-randomize`.
//! filebench makes its files before it counts and has no ramp; its window is not known better than by the duration asked for,
//! up to the end of the program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::knob::{self, Knob};
use super::{Missing, Outcome, Place, Point, Problem, Stage, Step, Value, Workload, problem, program};
use crate::record::{Class, Latency, Record, Tool, What};

const HELP: &str = "build it from https://github.com/filebench/filebench, and name it with workload.program";
const MINE: &str = "filebench.f";

/// What is asked of filebench. In TOML: `kind = "filebench"`, and these keys. A key that says "one or several" is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program; `filebench` where it is not given.
    #[serde(default = "default_program")]
    pub program: PathBuf,
    /// One or several files of personalities, such as `/usr/local/share/filebench/workloads/fileserver.f`.
    pub personality: Knob,
    /// Variables of the personality, one value or several: `variables = { nthreads = [1, 50], nfiles = 10000 }`. `dir` is the
    /// experiment's folder.
    #[serde(default)]
    pub variables: BTreeMap<String, Knob>,
}

fn default_program() -> PathBuf {
    "filebench".into()
}

/// filebench.
#[derive(Clone, Debug)]
pub struct Filebench {
    options: Options,
}

impl Filebench {
    /// With these options.
    ///
    /// # Errors
    /// A key that says nothing.
    pub fn new(options: Options) -> Result<Self, Problem> {
        options.personality.check("workload.personality")?;
        for (key, values) in &options.variables {
            values.check(&format!("workload.variables.{key}"))?;
            if key == "dir" {
                return Err(problem("workload.variables.dir", "this is the experiment's folder: give it as its place"));
            }
        }
        Ok(Self { options })
    }

    /// The personality with this point's variables and duration.
    fn text(&self, point: &Point, folder: &Path, seconds: f64) -> Result<String, Problem> {
        let file = knob::argument(point, "personality")?;
        let text = std::fs::read_to_string(&file)
            .map_err(|error| problem("workload.personality", format!("{file}: {error}")))?;
        let other = |line: &&str| line.trim() != "run" && !line.trim_start().starts_with("run ");
        let mut lines: Vec<String> = text.lines().filter(other).map(str::to_owned).collect();
        lines.push(format!("set $dir={}", folder.display()));
        for key in self.options.variables.keys() {
            lines.push(format!("set ${key}={}", knob::argument(point, key)?));
        }
        lines.push(format!("run {:.0}\n", seconds.ceil().max(1.0)));
        Ok(lines.join("\n"))
    }
}

impl Workload for Filebench {
    fn name(&self) -> &str {
        "filebench"
    }

    fn knobs(&self) -> Vec<(String, Vec<Value>)> {
        knob::listed([("personality", &self.options.personality)], &[&self.options.variables])
    }

    fn tool(&self) -> Result<Tool, Missing> {
        program::ask(&self.options.program, &["-h"], HELP)?;
        program::ask(Path::new("setarch"), &["--version"], "apt install util-linux")?;
        Ok(tool(""))
    }

    fn command(&self, point: &Point, stage: &Stage) -> Result<Step, Problem> {
        let Place::Folder(folder) = &stage.place else {
            return Err(problem("target", "filebench needs a folder, in which it makes its files"));
        };
        let program = self.options.program.display().to_string();
        let words = ["--addr-no-randomize".to_owned(), program, "-f".into(), MINE.into()];
        Ok(Step {
            argv: program::argv(Path::new("setarch"), words),
            files: vec![(stage.scratch.join(MINE), self.text(point, folder, stage.duration_s)?)],
            why: "filebench".into(),
            ..Step::default()
        })
    }

    fn parse(&self, _: &Point, stage: &Stage, outcome: &Outcome) -> Result<Record, Problem> {
        record(outcome, stage.duration_s)
    }
}

fn tool(stdout: &str) -> Tool {
    let line = stdout.lines().find(|line| line.contains("Filebench Version") || line.contains("filebench"));
    let version = line.and_then(program::version_in).unwrap_or("unknown").to_owned();
    Tool { name: "filebench".into(), version, known: false }
}

/// What came of a run.
fn record(outcome: &Outcome, duration_s: f64) -> Result<Record, Problem> {
    let (stdout, stderr) = (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    let summary = stdout.lines().rev().find_map(|line| line.split_once("IO Summary:")).map(|(_, summary)| summary);
    let (Some(0), Some(summary)) = (outcome.status, summary) else {
        let status = outcome.status.map_or("a signal ended it".into(), |status| format!("its exit status is {status}"));
        let last: Vec<&str> = stdout.lines().chain(stderr.lines()).filter(|line| !line.is_empty()).collect();
        let said = last[last.len().saturating_sub(3)..].join("; ");
        return Err(problem(
            "filebench, IO Summary",
            format!("is missing or not to be trusted; {status}; it said: {said}"),
        ));
    };
    let needed = |unit: &str| {
        before(summary, unit)
            .ok_or_else(|| problem(format!("filebench, IO Summary, {unit}"), format!("is not in {summary:?}")))
    };
    let (operations, rate) = (needed("ops")? as u64, needed("ops/s")?);
    let mean_ms = before(summary, "ms/op").or_else(|| before(summary, "ms latency"));
    let runtime_ns = if rate > 0.0 { (operations as f64 / rate * 1e9).round() as u64 } else { 0 };
    let latency = Latency { mean_ns: mean_ms.map(|ms| ms * 1e6), ..Latency::default() };
    let class = Class {
        what: What::Operation("filebench".into()),
        operations: Some(operations),
        bytes: None,
        runtime_ns,
        latency,
    };
    let tool = tool(&stdout);
    let warnings = program::unknown(&tool, &[]).into_iter().collect();
    let extra = before(summary, "mb/s").map(|rate| ("data_mib_per_s".to_owned(), rate)).into_iter().collect();
    let lasted = outcome.span_ns.1.saturating_sub(outcome.span_ns.0);
    let asked = if runtime_ns > 0 { runtime_ns } else { (duration_s * 1e9) as u64 };
    let window_ns = lasted.checked_sub(asked).map(|from| (from, lasted));
    Ok(Record { tool, classes: vec![class], window_ns, extra, warnings })
}

/// The number before a unit, with or without a space or a comma: `20.9 ops/s`, `1.2mb/s`, `1254 ops,`.
fn before(summary: &str, unit: &str) -> Option<f64> {
    let ends = |at: usize| !summary[at + unit.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '/');
    let (at, _) = summary.match_indices(unit).find(|(at, _)| ends(*at))?;
    let number = summary[..at].trim_end();
    let begins = number.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |at| at + 1);
    number[begins..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{outcome, points, stage, words};

    /// In the forms of 1.4 and 1.5; the numbers are made up.
    const OLD: &str = "60.5: IO Summary: 3122155 ops, 52033.115 ops/s, (4730/9461 r/w), 1214.5mb/s,    196us cpu/op,   1.6ms latency\n";
    const NEW: &str = "61.003: IO Summary: 1254 ops 20.900 ops/s 10/10 rd/wr   1.2mb/s 47.7ms/op\n";

    #[test]
    fn both_forms_of_the_summary_are_read() {
        for (text, operations, rate, mean_ns, mib) in
            [(OLD, 3_122_155, 52_033.115, 1_600_000.0, 1214.5), (NEW, 1254, 20.9, 47_700_000.0, 1.2)]
        {
            let record = record(&outcome(text, 0), 60.0).unwrap();
            let [class] = &record.classes[..] else { panic!() };
            assert_eq!((class.counted(), class.latency.mean_ns), (operations, Some(mean_ns)));
            assert!((operations as f64 * 1e9 / class.runtime_ns as f64 / rate - 1.0).abs() < 1e-6);
            assert_eq!(record.extra["data_mib_per_s"], mib);
            assert!(!record.tool.known && record.warnings[0].contains("not tried"));
            assert_eq!(record.window_ns, Some((100_000_000_000 - class.runtime_ns, 100_000_000_000)));
        }
    }

    #[test]
    fn a_personality_gets_the_knobs_and_the_duration() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own.f");
        std::fs::write(&own, "set $dir=/tmp\nset $nthreads=50\ndefine fileset name=x,path=$dir\nrun 60\n").unwrap();
        let keys = format!("personality = '{}'\nvariables = {{ nthreads = [1, 2] }}", own.display());
        let filebench = Filebench::new(toml::from_str(&keys).unwrap()).unwrap();
        let stage = stage(folder.path(), Place::Folder("/f".into()), 0.0, 9.5);
        let step = filebench.command(&points(&filebench)[1], &stage).unwrap();
        assert_eq!(words(&step).join(" "), "setarch --addr-no-randomize filebench -f filebench.f");
        let expected =
            "set $dir=/tmp\nset $nthreads=50\ndefine fileset name=x,path=$dir\nset $dir=/f\nset $nthreads=2\nrun 10\n";
        assert_eq!(step.files, [(folder.path().join("filebench.f"), expected.to_owned())]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let read = |text: &str| record(&outcome(text, 0), 1.0).unwrap_err();
        assert!(read("nothing").why.contains("it said: nothing"));
        assert!(read(&NEW.replace(" ops/s", "")).at.contains("ops/s"));
        let dir = Filebench::new(toml::from_str("personality = 'x'\nvariables = { dir = '/x' }").unwrap());
        assert_eq!(dir.unwrap_err().at, "workload.variables.dir");
    }
}
