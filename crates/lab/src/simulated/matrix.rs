//! Lists of experiments (`papers/all.toml`), in passes.
//!
//! A pass runs its experiments with common variants of the machine and repeats. Passes over the same experiment add to the same results, so a
//! later pass can have more variants with fewer repeats.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::simulated::experiment::{self, Bench, LoadError, Request};
use crate::simulated::variant::Choice;
use pilotlight_input::file::{self as read, ReadError};

/// A list of experiments.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// The passes, in order.
    #[serde(rename = "pass")]
    pub passes: Vec<Pass>,
}

/// Experiments with common options.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pass {
    /// Its name.
    pub name: String,
    /// Files of experiments relative to the list. A folder means all its files not named in the pass.
    pub experiments: Vec<PathBuf>,
    /// Whether to run every member of the family.
    #[serde(default)]
    pub family: bool,
    /// Percentage of changes of every free constant, up and down.
    #[serde(default)]
    pub perturb: Option<u32>,
    /// Number of random sets of all free constants.
    #[serde(default)]
    pub lhs: usize,
    /// A machine for each figure with fitted constants, without those constants.
    #[serde(default)]
    pub leave_out: bool,
    /// Compute bounds of the oracle for runs of at most this number of requests.
    #[serde(default)]
    pub oracle: Option<f64>,
    /// Repeats of each point.
    #[serde(default)]
    pub repeats: Option<u32>,
    /// Whether to apply `--smoke`.
    #[serde(default)]
    pub smoke: bool,
    /// A subfolder of the results, separate from other passes.
    #[serde(default)]
    pub out: PathBuf,
}

/// A list cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum MatrixError {
    /// The file cannot be read.
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
    /// An experiment of it cannot be run.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// An experiment of a pass, ready to be run.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The pass.
    pub pass: String,
    /// The experiment.
    pub bench: Bench,
    /// The variants.
    pub choice: Choice,
    /// Compute bounds for runs of at most this number of requests.
    pub oracle: Option<f64>,
    /// The subfolder of the results.
    pub out: PathBuf,
}

impl Matrix {
    /// Whether a file is a list of experiments.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn is_one(path: &Path) -> Result<bool, MatrixError> {
        Ok(read::parse(&path.display().to_string(), &text(path)?)?.contains_key("pass"))
    }

    /// Reads a list.
    ///
    /// # Errors
    /// If it cannot be read or is invalid.
    pub fn read(path: &Path) -> Result<Self, MatrixError> {
        let name = path.display().to_string();
        Ok(read::table(read::parse(&name, &text(path)?)?, &name)?)
    }

    /// All experiments in order, with additional variants (`beside`). A smoke test runs each experiment once. `leave_out`: as of every pass.
    ///
    /// # Errors
    /// If one cannot be run; then none is.
    pub fn entries(
        &self,
        list: &Path,
        request: &Request,
        beside: &Choice,
        leave_out: bool,
    ) -> Result<Vec<Entry>, MatrixError> {
        let folder = list.parent().unwrap_or(Path::new("."));
        let mut entries: Vec<Entry> = Vec::new();
        for pass in &self.passes {
            for file in pass.files(folder)? {
                let entry = pass.entry(&file, request, beside, leave_out)?;
                let known = |other: &Entry| other.bench.file == entry.bench.file;
                if !(request.smoke && entries.iter().any(known)) {
                    entries.push(entry);
                }
            }
        }
        Ok(entries)
    }
}

impl Pass {
    fn files(&self, folder: &Path) -> Result<Vec<PathBuf>, MatrixError> {
        let mut files: Vec<PathBuf> = Vec::new();
        for path in self.experiments.iter().map(|path| folder.join(path)) {
            let more = if path.is_dir() { experiments_in(&path)? } else { vec![path] };
            for file in more {
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        Ok(files)
    }

    fn choice(&self, beside: &Choice) -> Choice {
        Choice {
            family: self.family || beside.family,
            perturb: beside.perturb.or(self.perturb),
            draws: self.lhs.max(beside.draws),
            without: beside.without.clone(),
        }
    }

    fn entry(&self, file: &Path, request: &Request, beside: &Choice, leave_out: bool) -> Result<Entry, LoadError> {
        let asked = Request {
            smoke: request.smoke || self.smoke,
            repeats: request.repeats.or(self.repeats.filter(|_| !request.smoke)),
            ..request.clone()
        };
        let bench = experiment::load(file, &asked)?;
        let mut choice = if request.smoke { beside.clone() } else { self.choice(beside) };
        if leave_out || (self.leave_out && !request.smoke) {
            choice.without.clone_from(&bench.fitted);
        }
        let out = if request.smoke { PathBuf::new() } else { self.out.clone() };
        let (pass, oracle) = (self.name.clone(), self.oracle.filter(|_| !request.smoke));
        Ok(Entry { pass, bench, choice, oracle, out })
    }
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> MatrixError + '_ {
    |error| MatrixError::File { path: path.display().to_string(), error }
}

fn text(path: &Path) -> Result<String, MatrixError> {
    std::fs::read_to_string(path).map_err(failed(path))
}

/// The experiments in a folder, by name.
fn experiments_in(folder: &Path) -> Result<Vec<PathBuf>, MatrixError> {
    let entries = std::fs::read_dir(folder).map_err(failed(folder))?;
    let files = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
    let mut files = files.map_err(failed(folder))?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/all.toml")
    }

    #[test]
    fn the_committed_list_has_every_experiment() {
        let matrix = Matrix::read(&list()).unwrap();
        assert!(Matrix::is_one(&list()).unwrap());
        assert!(!Matrix::is_one(&list().with_file_name("sandman/fig3.toml")).unwrap());
        let entries = matrix.entries(&list(), &Request::default(), &Choice::default(), false).unwrap();
        let files = std::fs::read_dir(list().with_file_name("sandman")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        for file in names.filter(|name| name.ends_with(".toml")) {
            let path = format!("papers/sandman/{file}");
            assert!(
                entries.iter().any(|entry| entry.bench.file == path && entry.choice.family),
                "{path} is not listed"
            );
        }
    }

    #[test]
    fn a_smoke_test_runs_each_experiment_once() {
        let matrix = Matrix::read(&list()).unwrap();
        let request = Request { smoke: true, ..Request::default() };
        let entries = matrix.entries(&list(), &request, &Choice::default(), false).unwrap();
        let mut names: Vec<&str> = entries.iter().map(|entry| entry.bench.experiment.name.as_str()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(entries.iter().all(|entry| entry.choice == Choice::default() && entry.bench.experiment.repeats == 2));
    }

    #[test]
    fn mistakes_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("all.toml");
        std::fs::write(&file, "[[pass]]\nname = 'p'\nexperiments = []\nfamilly = true\n").unwrap();
        let message = Matrix::read(&file).unwrap_err().to_string();
        assert!(message.contains("all.toml") && message.contains("familly"), "{message}");
    }
}
