//! DLIO, the benchmark behind MLPerf Storage: reads training data as if accelerators computed on it.
//!
//! Tried with `dlio_benchmark` 2.0.0 from PyPI with TensorFlow, its tracer replaced by one that does nothing (its own does not build
//! everywhere). The data are generated once; a run lasts as many epochs as its configuration says, whatever the experiment's duration, and there
//! is no ramp.
//!
//! What is counted are samples: files times samples in each, every epoch (DLIO leaves out a last batch that is not full). DLIO gives no latencies.
//! The window is from the begin of the first epoch to the end of the last, by DLIO's own times, which are local ones: it is started
//! with `TZ=UTC`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::knob::{self, Knob};
use super::{Missing, Outcome, Place, Point, Problem, Stage, Step, Value, Workload, problem, program, wall};
use crate::record::{Class, Latency, Record, Tool, What};

/// Versions on whose output the adapter was tried: PyPI's.
pub const TRIED: [&str; 1] = ["2.0.0"];

const HELP: &str = "python3 -m venv VENV && VENV/bin/pip install dlio_benchmark (several GB, and an MPI such as Debian's \
                    openmpi-bin), and name VENV/bin/dlio_benchmark with workload.program";
/// Where DLIO writes, in the scratch folder.
const OUTPUT: &str = "dlio";

/// What is asked of DLIO. In TOML: `kind = "dlio"`, and these keys. A key that says "one or several" is a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program; `dlio_benchmark` where it is not given.
    #[serde(default = "default_program")]
    pub program: PathBuf,
    /// DLIO's configuration, such as `unet3d_a100` or `resnet50_h100`.
    pub model: String,
    /// One or several numbers of accelerators that are simulated, a process each under `mpirun`; 1 where it is not given.
    #[serde(default = "Knob::one")]
    pub accelerators: Knob,
    /// Keys of the configuration, one value or several: `overrides = { "dataset.num_files_train" = 500, "reader.read_threads" = [1, 4] }`.
    /// Those with one value hold for the generating too.
    #[serde(default)]
    pub overrides: BTreeMap<String, Knob>,
}

fn default_program() -> PathBuf {
    "dlio_benchmark".into()
}

/// DLIO.
#[derive(Clone, Debug)]
pub struct Dlio {
    options: Options,
}

impl Dlio {
    /// With these options.
    ///
    /// # Errors
    /// A key that says nothing, or one that the adapter has to say itself.
    pub fn new(options: Options) -> Result<Self, Problem> {
        options.accelerators.check("workload.accelerators")?;
        for (key, values) in &options.overrides {
            let at = format!("workload.overrides.{key}");
            values.check(&at)?;
            if key.starts_with("workflow.") || key == "dataset.data_folder" || key == "output.folder" {
                return Err(problem(at, "this is set for every run"));
            }
        }
        Ok(Self { options })
    }

    fn step(&self, accelerators: u64, overrides: Vec<String>, output: &str, stage: &Stage) -> Result<Step, Problem> {
        let Place::Folder(folder) = &stage.place else {
            return Err(problem("target", "DLIO needs a folder for its data"));
        };
        let mut words: Vec<String> = Vec::new();
        if accelerators > 1 {
            words.extend(["mpirun".to_owned(), "-np".into(), accelerators.to_string()]);
        }
        words.push(self.options.program.display().to_string());
        words.push(format!("workload={}", self.options.model));
        words.extend(overrides.into_iter().map(|over| format!("++workload.{over}")));
        words.push(format!("++workload.dataset.data_folder={}", folder.join("dlio-data").display()));
        words.push(format!("++workload.output.folder={output}"));
        words.push(format!("hydra.run.dir={output}"));
        let mut words = words.into_iter();
        let first = words.next().unwrap_or_default();
        // It writes local times.
        Ok(Step {
            argv: program::argv(Path::new(&first), words),
            env: vec![("TZ".into(), "UTC".into())],
            ..Step::default()
        })
    }
}

fn python(value: &Value) -> String {
    match value {
        Value::Switch(on) => if *on { "True" } else { "False" }.into(),
        other => other.to_string(),
    }
}

impl Workload for Dlio {
    fn name(&self) -> &str {
        "dlio"
    }

    fn knobs(&self) -> Vec<(String, Vec<Value>)> {
        knob::listed([("accelerators", &self.options.accelerators)], &[&self.options.overrides])
    }

    fn tool(&self) -> Result<Tool, Missing> {
        // Starting it takes long, since it loads its frameworks; so it is only looked for.
        let named = self.options.program.components().count() > 1;
        let found = if named { Some(self.options.program.clone()) } else { on_path(&self.options.program) };
        let found = found.filter(|program| program.is_file());
        let why = || format!("there is no {}", self.options.program.display());
        let found = found.ok_or_else(|| Missing { tool: "DLIO".into(), why: why(), help: HELP.into() })?;
        Ok(tool(installed(&found)))
    }

    fn prepare(&self, stage: &Stage) -> Result<Vec<Step>, Problem> {
        let fixed = self.options.overrides.iter().filter_map(|(key, knob)| match knob.values() {
            [value] => Some(format!("{key}={}", python(value))),
            _ => None,
        });
        let only = ["workflow.generate_data=True".to_owned(), "workflow.train=False".into()];
        let step = self.step(1, fixed.chain(only).collect(), "dlio-generating", stage)?;
        Ok(vec![Step { why: "generating training data".into(), ..step }])
    }

    fn before(&self, _: &Point, _: &Stage) -> Result<Vec<Step>, Problem> {
        let argv = program::argv(Path::new("rm"), ["-rf".to_owned(), "--".into(), OUTPUT.into()]);
        Ok(vec![Step { argv, why: "removing the results of the point before".into(), ..Step::default() }])
    }

    fn command(&self, point: &Point, stage: &Stage) -> Result<Step, Problem> {
        let over = |key: &String| Ok(format!("{key}={}", python(knob::at(point, key)?)));
        let mut overrides = self.options.overrides.keys().map(over).collect::<Result<Vec<_>, Problem>>()?;
        overrides.extend(["workflow.generate_data=False".to_owned(), "workflow.train=True".into()]);
        let step = self.step(knob::count(point, "accelerators")?, overrides, OUTPUT, stage)?;
        Ok(Step { why: "DLIO".into(), ..step })
    }

    fn parse(&self, _: &Point, stage: &Stage, outcome: &Outcome) -> Result<Record, Problem> {
        let read = |name: &str| {
            let path = stage.scratch.join(OUTPUT).join(name);
            std::fs::read_to_string(&path).map_err(|error| failed(outcome, &format!("{}: {error}", path.display())))
        };
        if outcome.status != Some(0) {
            return Err(failed(outcome, "it failed"));
        }
        let version = self.tool().map_or_else(|_| "unknown".into(), |tool| tool.version);
        record(outcome, &read("summary.json")?, &read("per_epoch_stats.json")?, version)
    }
}

fn failed(outcome: &Outcome, why: &str) -> Problem {
    let (stdout, stderr) = (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    let last: Vec<&str> = stdout.lines().chain(stderr.lines()).filter(|line| !line.trim().is_empty()).collect();
    let said = last[last.len().saturating_sub(4)..].join("; ");
    let status = outcome.status.map_or("a signal ended it".into(), |status| format!("its exit status is {status}"));
    problem("DLIO", format!("{why}; {status}; it said: {said}"))
}

fn tool(version: String) -> Tool {
    Tool { name: "DLIO".into(), known: TRIED.contains(&version.as_str()), version }
}

fn on_path(program: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The version that Python's packages beside the program say: `lib/python3.11/site-packages/dlio_benchmark-2.0.0.dist-info`.
fn installed(program: &Path) -> String {
    let lib = program.parent().and_then(Path::parent).map(|prefix| prefix.join("lib")).unwrap_or_default();
    let inside = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let packages = inside(lib).flat_map(|python| inside(python.path().join("site-packages")));
    let version = packages.filter_map(|package| {
        let name = package.file_name().into_string().ok()?;
        Some(name.strip_prefix("dlio_benchmark-")?.strip_suffix(".dist-info")?.to_owned())
    });
    version.into_iter().next().unwrap_or_else(|| "unknown".into())
}

#[derive(Deserialize)]
struct Summary {
    num_accelerators: u64,
    num_hosts: u64,
    num_files_train: u64,
    num_samples_per_file: u64,
    #[serde(rename = "data_size_per_host_GB")]
    data_size_per_host_gib: f64,
    epochs: u64,
    #[serde(default)]
    potential_caching: Vec<u8>,
    metric: Metric,
}

#[derive(Deserialize)]
struct Metric {
    train_au_mean_percentage: f64,
    train_au_stdev_percentage: f64,
    train_throughput_mean_samples_per_second: f64,
    #[serde(rename = "train_io_mean_MB_per_second")]
    train_io_mean_mib_per_second: f64,
}

#[derive(Deserialize)]
struct Epoch {
    start: String,
    end: String,
}

fn read<'a, T: Deserialize<'a>>(text: &'a str, name: &str) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        problem(format!("DLIO's {name}, {}", error.path()), format!("cannot be read: {}", error.inner()))
    })
}

/// What came of a run.
fn record(outcome: &Outcome, summary: &str, epochs: &str, version: String) -> Result<Record, Problem> {
    let summary: Summary = read(summary, "summary.json")?;
    let epochs: BTreeMap<u64, Epoch> = read(epochs, "per_epoch_stats.json")?;
    let times = epochs.values().map(|epoch| Ok((time(&epoch.start)?, time(&epoch.end)?)));
    let times: Vec<(u64, u64)> = times.collect::<Result<_, Problem>>()?;
    let runtime_ns = times.iter().map(|(start, end)| end.saturating_sub(*start)).sum();
    let operations = summary.num_files_train * summary.num_samples_per_file * summary.epochs;
    let bytes = summary.data_size_per_host_gib * (1u64 << 30) as f64 * (summary.num_hosts * summary.epochs) as f64;
    let span = times.iter().map(|time| time.0).min().zip(times.iter().map(|time| time.1).max());
    let window_ns = span.and_then(|(from, to)| wall::window(outcome, from, to, 1_000_000));
    let class = Class {
        what: What::Operation("sample".into()),
        operations: Some(operations),
        bytes: Some(bytes.round() as u64),
        runtime_ns,
        latency: Latency::default(),
    };
    let extra = BTreeMap::from([
        ("accelerators_count".into(), summary.num_accelerators as f64),
        ("accelerator_use_mean_percent".into(), summary.metric.train_au_mean_percentage),
        ("accelerator_use_deviation_percent".into(), summary.metric.train_au_stdev_percentage),
        ("throughput_mean_samples_per_s".into(), summary.metric.train_throughput_mean_samples_per_second),
        ("data_mean_mib_per_s".into(), summary.metric.train_io_mean_mib_per_second),
    ]);
    let tool = tool(version);
    let mut warnings: Vec<String> = program::unknown(&tool, &TRIED).into_iter().collect();
    if summary.potential_caching.contains(&1) {
        warnings.push("the data are smaller than memory: after the first epoch they may have come from there".into());
    }
    warnings.extend(window_ns.is_none().then(|| wall::CLOCK.into()));
    Ok(Record { tool, classes: vec![class], window_ns, extra, warnings })
}

/// `2026-11-22T05:17:14.513586`.
fn time(text: &str) -> Result<u64, Problem> {
    let wrong = || problem("DLIO's per_epoch_stats.json", format!("{text:?} is no time"));
    let (whole, us) = text.split_once('.').ok_or_else(wrong)?;
    let parts: Option<Vec<i64>> = whole.split(['-', 'T', ':']).map(|part| part.parse().ok()).collect();
    let parts: [i64; 6] = parts.and_then(|parts| parts.try_into().ok()).ok_or_else(wrong)?;
    let us: u64 = us.parse().map_err(|_| wrong())?;
    wall::since_1970_ns(parts, us * 1_000).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fixture, outcome, points, stage, words};

    /// Five seconds before the first epoch of the recorded run.
    const BEGAN_MS: u64 = 1_795_324_629_513;

    fn recorded(change: impl Fn(String) -> String) -> Result<Record, Problem> {
        let (summary, epochs) = (fixture("dlio/summary.json"), fixture("dlio/per_epoch_stats.json"));
        record(&outcome("", BEGAN_MS), &change(summary), &change(epochs), "2.0.0".into())
    }

    #[test]
    fn a_recorded_run_is_read() {
        let record = recorded(|text| text).unwrap();
        let [class] = &record.classes[..] else { panic!() };
        // 8 files of 16 samples of 4 KiB, twice; 0.494353 s and 0.432799 s.
        assert_eq!((class.counted(), class.bytes, class.runtime_ns), (256, Some(256 * 4096), 927_152_000));
        // 05:17:14.513586 to 05:17:15.442261 is 1795324634.513586 on.
        assert_eq!(record.window_ns, Some((5_000_586_000, 5_929_261_000)));
        assert_eq!(record.extra["accelerator_use_mean_percent"], 78.6852856566828);
        assert_eq!(record.extra["throughput_mean_samples_per_s"], 281.63115933053894);
        assert!(record.tool.known && record.warnings[0].contains("smaller than memory"), "{:?}", record.warnings);
    }

    #[test]
    fn what_is_missing_is_named() {
        let without = |field: &'static str| recorded(move |text| text.replace(field, "other")).unwrap_err();
        assert!(without("\"epochs\"").at.contains("summary.json"));
        let missing = without("train_au_mean_percentage");
        assert!(missing.at.contains("metric") && missing.why.contains("train_au_mean_percentage"), "{missing}");
        assert!(recorded(|text| text.replace("05:17:14.5", "soon.5")).unwrap_err().why.contains("is no time"));
        let missing = Dlio::new(toml::from_str("model = 'x'\nprogram = '/nowhere/dlio'").unwrap()).unwrap().tool();
        assert!(missing.unwrap_err().help.contains("pip install"));
    }

    #[test]
    fn commands_are_dlio_s_own() {
        let keys = "model = 'unet3d_a100'\naccelerators = [1, 4]\noverrides = { 'reader.read_threads' = [2, 4], 'train.epochs' = 5 }";
        let dlio = Dlio::new(toml::from_str(keys).unwrap()).unwrap();
        let stage = stage(Path::new("/s"), Place::Folder("/f".into()), 0.0, 1.0);
        let generating = words(&dlio.prepare(&stage).unwrap()[0]).join(" ");
        let expected = "dlio_benchmark workload=unet3d_a100 ++workload.train.epochs=5 ++workload.workflow.generate_data=True \
            ++workload.workflow.train=False ++workload.dataset.data_folder=/f/dlio-data ++workload.output.folder=dlio-generating \
            hydra.run.dir=dlio-generating";
        assert_eq!(generating, expected);
        let run = words(&dlio.command(&points(&dlio)[3], &stage).unwrap()).join(" ");
        assert!(
            run.starts_with("mpirun -np 4 dlio_benchmark workload=unet3d_a100 ++workload.reader.read_threads=4"),
            "{run}"
        );
        let owned = Dlio::new(toml::from_str("model = 'x'\noverrides = { 'workflow.train' = true }").unwrap());
        assert_eq!(owned.unwrap_err().at, "workload.overrides.workflow.train");
    }

    #[test]
    fn the_version_stands_beside_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let packages = folder.path().join("lib/python3.11/site-packages/dlio_benchmark-2.0.0.dist-info");
        std::fs::create_dir_all(packages).unwrap();
        assert_eq!(installed(&folder.path().join("bin/dlio_benchmark")), "2.0.0");
        assert_eq!(installed(Path::new("/nowhere/bin/dlio")), "unknown");
    }
}
