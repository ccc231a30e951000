//! Sentinels: exact reference values of short runs (`papers/sentinels.toml`).
//!
//! The simulator is deterministic, so any change of engine, policies or lab shows as a changed value. After an intended change the values are
//! updated (`--bless`) and reviewed in the diff.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use pilotlight_report::output;
use serde::Deserialize;

use crate::simulated::experiment::{self, Bench, LoadError, Request};
use crate::simulated::sweep::{Engine, Sweep, SweepError};
use crate::simulated::variant::{self, Choice};
use crate::stored::values::{Run, RunKey};
use pilotlight_input::file::{self as read, ReadError};

/// The file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    sentinel: Vec<Sentinel>,
}

/// A reference value of the default machine, replication 0, under `--smoke`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sentinel {
    /// The experiment's file, relative to the list.
    pub experiment: String,
    /// The point's name.
    pub point: String,
    /// The policy's label.
    pub policy: String,
    /// The metric.
    pub metric: String,
    /// The value; any for a new sentinel, until `--bless`.
    pub value: f64,
}

/// Sentinels cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum SentinelError {
    /// The file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// The error.
        error: std::io::Error,
    },
    /// It is invalid.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An experiment cannot be run.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A run failed.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// A sentinel with an unknown name.
    #[error("{0}")]
    Unknown(String),
}

/// A sentinel with its current value.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The sentinel.
    pub sentinel: Sentinel,
    /// The current value.
    pub now: f64,
}

impl Finding {
    /// Whether the values are equal.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.sentinel.value == self.now
    }
}

/// Reads the file.
///
/// # Errors
/// If it cannot be read or is invalid.
pub fn read(path: &Path) -> Result<Vec<Sentinel>, SentinelError> {
    let name = path.display().to_string();
    let file: File = read::table(read::parse(&name, &text(path)?)?, &name)?;
    Ok(file.sentinel)
}

fn text(path: &Path) -> Result<String, SentinelError> {
    std::fs::read_to_string(path).map_err(|error| failed(path, error))
}

fn failed(path: &Path, error: std::io::Error) -> SentinelError {
    SentinelError::File { path: path.display().to_string(), error }
}

/// A run with sentinels.
pub struct Watched {
    bench: Bench,
    run: RunKey,
    sentinels: Vec<Sentinel>,
}

/// The runs of all sentinels, each once.
///
/// # Errors
/// If an experiment cannot be read.
pub fn watched(list: &Path, sentinels: &[Sentinel]) -> Result<Vec<Watched>, SentinelError> {
    let folder = list.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    let mut runs: BTreeMap<(&str, &str, &str), Vec<Sentinel>> = BTreeMap::new();
    for sentinel in sentinels {
        let Sentinel { experiment, point, policy, .. } = sentinel;
        runs.entry((experiment, point, policy)).or_default().push(sentinel.clone());
    }
    let watch = |((file, point, policy), sentinels): ((&str, &str, &str), Vec<Sentinel>)| {
        let bench = experiment::load(&folder.join(file), &Request { smoke: true, ..Request::default() })?;
        let run = RunKey {
            point: point.to_owned(),
            variant: variant::DEFAULT.to_owned(),
            policy: policy.to_owned(),
            replication: 0,
        };
        Ok(Watched { bench, run, sentinels })
    };
    runs.into_iter().map(watch).collect()
}

impl Watched {
    /// Runs it.
    ///
    /// # Errors
    /// If the run fails, or a sentinel has an unknown point, policy or metric.
    pub fn run(&self, engine: &Engine<'_>) -> Result<Vec<Finding>, SentinelError> {
        let variants = variant::variants(&self.bench.machine.calibration, &Choice::default())
            .map_err(|error| SentinelError::Unknown(error.to_string()))?;
        let sweep = Sweep::new(&self.bench, &variants);
        let found = sweep.list().find(|(_, key, _)| *key == self.run);
        let unknown = |what: &str| SentinelError::Unknown(format!("{}: there is no {what}", self.bench.file));
        let RunKey { point, policy, .. } = &self.run;
        let (job, ..) = found.ok_or_else(|| unknown(&format!("point {point} with a policy {policy}")))?;
        let (_, run) = sweep.recompute(job, engine)?.into_iter().next().ok_or_else(|| unknown("run"))?;
        let finding = |sentinel: &Sentinel| {
            let now =
                Run::get(&run, &sentinel.metric).ok_or_else(|| unknown(&format!("metric {}", sentinel.metric)))?;
            Ok(Finding { sentinel: sentinel.clone(), now })
        };
        self.sentinels.iter().map(finding).collect()
    }
}

/// Writes the file with current values in the same order; text before the first sentinel is kept.
///
/// # Errors
/// If it cannot be read or written.
pub fn bless(path: &Path, findings: &[Finding]) -> Result<(), SentinelError> {
    let before = text(path)?;
    let head = before.find("[[sentinel]]").map_or(before.as_str(), |at| &before[..at]);
    let mut after = head.trim_end().to_owned();
    for sentinel in read(path)? {
        let same = |finding: &&Finding| {
            let Finding { sentinel: other, .. } = finding;
            let name = |of: &Sentinel| [&of.experiment, &of.point, &of.policy, &of.metric].map(String::clone);
            name(other) == name(&sentinel)
        };
        let value = findings.iter().find(same).map_or(sentinel.value, |finding| finding.now);
        let Sentinel { experiment, point, policy, metric, .. } = sentinel;
        let _ = write!(
            after,
            "\n\n[[sentinel]]\nexperiment = {experiment:?}\npoint = {point:?}\npolicy = {policy:?}\nmetric = {metric:?}\nvalue = {value:?}"
        );
    }
    output::write(path, after + "\n").map_err(|error| failed(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blessing_changes_values_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sentinels.toml");
        let row = |metric: &str, value: &str| {
            format!(
                "\n[[sentinel]]\nexperiment = \"e.toml\"\npoint = \"-\"\npolicy = \"p\"\nmetric = \"{metric}\"\nvalue = {value}\n"
            )
        };
        let file = |a: &str, b: &str| format!("# What this is.\n{}{}", row("a", a), row("b", b));
        std::fs::write(&path, file("1.5", "0.0")).unwrap();
        let sentinels = read(&path).unwrap();
        let finding = |at: usize, now: f64| Finding { sentinel: sentinels[at].clone(), now };
        assert!(finding(0, 1.5).holds() && !finding(0, 1.500000001).holds());
        bless(&path, &[finding(1, 7.25e-3), finding(0, 1.5)]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), file("1.5", "0.00725"));
        assert_eq!(read(&path).unwrap()[1].value, 7.25e-3);
    }

    #[test]
    fn names_of_committed_sentinels_exist() {
        let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/sentinels.toml");
        let sentinels = read(&list).unwrap();
        assert!((18..=30).contains(&sentinels.len()), "{}", sentinels.len());
        for watched in watched(&list, &sentinels).unwrap() {
            let point = watched.bench.points.iter().find(|point| point.name == watched.run.point);
            let point = point.unwrap_or_else(|| panic!("{}: no point {}", watched.bench.file, watched.run.point));
            let policies = &point.experiment.policies;
            assert!(policies.iter().any(|policy| policy.label == watched.run.policy), "{}", watched.run.policy);
        }
    }
}
