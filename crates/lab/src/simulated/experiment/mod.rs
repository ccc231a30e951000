//! Experiments: files in, points out, and a scenario for each run.

pub mod goals;
pub mod points;
pub mod replay;
pub mod scenario;
pub mod schema;

use std::path::{Path, PathBuf};

use pilotlight_input::include;
use toml::Table;

pub use points::{Coordinate, Point, PointsError, expand};
pub use schema::Experiment;

use crate::simulated::fingerprint;
use crate::simulated::fingerprint::contents::Contents;
use crate::simulated::fitted::fitted;
use crate::simulated::machine::{MachineError, MachineFiles, calibration_of};
use crate::simulated::matrix::Fitted;
use pilotlight_input::file::{self as read, ReadError};
use pilotlight_results::values::{About, Asked};
use pilotlight_sim::ssd::SsdModel;

/// An experiment with everything that its runs need.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The experiment as it stands in its file.
    pub experiment: Experiment,
    /// Its points.
    pub points: Vec<Point>,
    /// The machine's files.
    pub machine: MachineFiles,
    /// Models of drives, by name of the profile.
    pub drives: Vec<(String, SsdModel)>,
    /// What the trace files that are replayed hold.
    pub contents: Contents,
    /// The fingerprint of the machine and its drives as the files have them.
    pub hash: String,
    /// The figures that constants were fitted on.
    pub fitted: Fitted,
    /// The file, from the folder that holds `calibration.toml`.
    pub file: String,
    /// What was set beside it.
    pub asked: Asked,
}

impl Bench {
    /// The same with so many replications at each point.
    #[must_use]
    pub fn with_replications(mut self, count: u32) -> Self {
        self.points.iter_mut().for_each(|point| point.experiment.repeats = count);
        self
    }

    /// What its results say of themselves.
    #[must_use]
    pub fn about(&self) -> About {
        About {
            experiment: self.experiment.name.clone(),
            host: String::new(),
            profile: self.machine.name.clone(),
            hash: self.hash.clone(),
            file: self.file.clone(),
            asked: self.asked.clone(),
        }
    }
}

/// What is asked beside the file.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `--set KEY=VALUE`, in order; keys of the machine begin with `machine.`.
    pub set: Vec<(String, String)>,
    /// Whether the file's `smoke` keys hold.
    pub smoke: bool,
    /// Repeats, where not the file's.
    pub repeats: Option<u32>,
}

/// Why an experiment cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// No folder above the file holds `calibration.toml`.
    #[error("{0}: no folder above it holds calibration.toml and profiles/: keep experiments beside them")]
    Home(String),
    /// A file is not written as it should be.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The experiment does not expand.
    #[error(transparent)]
    Points(#[from] PointsError),
    /// There is no such machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A drive's profile is not written as it should be.
    #[error("profiles/ssd/{name}.toml: {reason}")]
    Drive {
        /// Which.
        name: String,
        /// Why.
        reason: String,
    },
}

/// Reads an experiment with all that it names.
///
/// # Errors
/// If a file cannot be read or is not written as it should be; the message names file and key.
pub fn load(path: &Path, request: &Request) -> Result<Bench, LoadError> {
    let home = home(path)?;
    let merged = include::load(path)?;
    let bench = load_table(&path.display().to_string(), merged.table, request, &|name| file(&home.join(name)))?;
    let fitted = fitted(&home, &bench.machine.calibration)?;
    Ok(Bench { file: below(path, &home), fitted, ..bench })
}

/// Reads an experiment from its text, which messages call `name`. What it names comes from `files`, by its path in the repository:
/// `profiles/NAME.toml`, `calibration.toml` or what that names, `profiles/ssd/NAME.toml`.
///
/// # Errors
/// As [`load`].
pub fn load_text(name: &str, text: &str, request: &Request, files: &Files<'_>) -> Result<Bench, LoadError> {
    load_table(name, read::parse(name, text)?, request, files)
}

fn load_table(name: &str, mut table: Table, request: &Request, files: &Files<'_>) -> Result<Bench, LoadError> {
    let asked = asked(&table, request);
    points::set_all(&mut table, &asked, name)?;
    let experiment: Experiment = read::table(table.clone(), name)?;
    let profile = files(&format!("profiles/{}.toml", experiment.machine.profile))?;
    let calibration = files(&calibration_of(&profile)?)?;
    let machine = MachineFiles::parse(&profile, &calibration)?;
    let points = expand(&table, &asked, name)?;
    let drives = drives(files, &points)?;
    let contents = contents(&points)?;
    let models: Vec<&SsdModel> = drives.iter().map(|(_, model)| model).collect();
    let hash = fingerprint::of(&(fingerprint::of(&machine.machine(&[])?), models)).to_string();
    let asked = Asked { set: request.set.clone(), smoke: request.smoke };
    let (file, fitted) = (name.to_owned(), Fitted::new());
    Ok(Bench { experiment, points, machine, drives, contents, hash, fitted, file, asked })
}

/// A file's path from a folder above it, with `/` between its parts.
fn below(path: &Path, home: &Path) -> String {
    let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = absolute.strip_prefix(home).unwrap_or(&absolute);
    path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// The text of a file that an experiment names.
pub type Files<'f> = dyn Fn(&str) -> Result<String, LoadError> + 'f;

/// Keys of an experiment that say what it shows, and are no part of its runs.
pub const ABOUT: [&str; 4] = ["figure", "title", "about", "printed"];

/// The folder that holds profiles and calibration.
///
/// # Errors
/// If no folder above holds them.
pub fn home(path: &Path) -> Result<PathBuf, LoadError> {
    let absolute = path.canonicalize().map_err(|error| unreadable(path, error))?;
    let folder = absolute.ancestors().skip(1).find(|folder| folder.join("calibration.toml").is_file());
    folder.map(Path::to_path_buf).ok_or_else(|| LoadError::Home(path.display().to_string()))
}

fn unreadable(path: &Path, error: std::io::Error) -> LoadError {
    LoadError::File { path: path.display().to_string(), error }
}

fn file(path: &Path) -> Result<String, LoadError> {
    std::fs::read_to_string(path).map_err(|error| unreadable(path, error))
}

/// What is asked beside the file, as dotted keys; it wins over the file and over axes.
fn asked(table: &Table, request: &Request) -> Vec<(String, toml::Value)> {
    let mut asked = Vec::new();
    if request.smoke {
        let smoke = table.get("smoke").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        asked.push(("repeats".to_owned(), 2.into()));
        asked.extend(smoke);
    }
    asked.extend(request.set.iter().map(|(key, text)| (key.clone(), pilotlight_input::dotted::value(text))));
    asked.extend(request.repeats.map(|count| ("repeats".to_owned(), i64::from(count).into())));
    asked
}

fn drives(files: &Files<'_>, points: &[Point]) -> Result<Vec<(String, SsdModel)>, LoadError> {
    let mut names: Vec<String> =
        points.iter().flat_map(|point| &point.experiment.drives).map(|drives| drives.profile.clone()).collect();
    names.sort();
    names.dedup();
    let mut models = Vec::new();
    for name in names {
        let model = SsdModel::parse(&files(&format!("profiles/ssd/{name}.toml"))?);
        let model = model.map_err(|error| LoadError::Drive { name: name.clone(), reason: error.to_string() })?;
        models.push((name, model));
    }
    Ok(models)
}

fn contents(points: &[Point]) -> Result<Contents, LoadError> {
    let mut contents = Contents::default();
    for trace in points.iter().filter_map(|point| point.experiment.trace.as_ref()) {
        for path in trace.files() {
            contents.add(path).map_err(|error| unreadable(Path::new(path), error))?;
        }
    }
    Ok(contents)
}
