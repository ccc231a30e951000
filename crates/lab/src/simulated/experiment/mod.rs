//! Reads experiments that simulate a server and expands them to points and scenarios.

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
use crate::simulated::fitted::{Fitted, fitted};
use crate::simulated::host::CALIBRATIONS;
use crate::simulated::machine::{MachineError, MachineFiles, calibration_of};
use crate::stored::folders::RESULTS;
use crate::stored::values::{Overrides, Provenance};
use pilotlight_input::file::{self as read, ReadError};
use pilotlight_sim::ssd::{SsdModel, SsdModelError};

/// An experiment with all inputs of its runs.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The experiment.
    pub experiment: Experiment,
    /// Its points.
    pub points: Vec<Point>,
    /// The machine's files.
    pub machine: MachineFiles,
    /// Models of drives, by name of the profile.
    pub drives: Vec<(String, SsdModel)>,
    /// Contents of replayed trace files.
    pub contents: Contents,
    /// Fingerprint of the machine and its drives.
    pub hash: String,
    /// The figures with fitted constants.
    pub fitted: Fitted,
    /// The file relative to the project folder ([`home`]).
    pub file: String,
    /// The default folder of results: `results` beside the file if there is one, otherwise in the current folder.
    pub results: PathBuf,
    /// Overrides on the command line.
    pub overrides: Overrides,
}

impl Bench {
    /// Sets the number of replications.
    #[must_use]
    pub fn with_replications(mut self, count: u32) -> Self {
        self.points.iter_mut().for_each(|point| point.experiment.repeats = count);
        self
    }

    /// Provenance of its results.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        Provenance {
            experiment: self.experiment.name.clone(),
            host: String::new(),
            profile: self.machine.name.clone(),
            hash: self.hash.clone(),
            file: self.file.clone(),
            overrides: self.overrides.clone(),
        }
    }
}

/// Options of the command line that override the file.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `--set KEY=VALUE`, in order; keys of the machine begin with `machine.`.
    pub set: Vec<(String, String)>,
    /// Whether the file's `smoke` keys apply.
    pub smoke: bool,
    /// Number of repeats.
    pub repeats: Option<u32>,
}

/// An experiment cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// Its path.
        path: String,
        /// The error.
        error: std::io::Error,
    },
    /// No parent folder contains `profiles/calibration`.
    #[error("{0}: no parent folder contains profiles/calibration: experiments must be below such a folder")]
    Home(String),
    /// A file is invalid.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The parameters are invalid.
    #[error(transparent)]
    Points(#[from] PointsError),
    /// The machine is invalid.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A drive's profile is invalid.
    #[error("profiles/ssd/{name}.toml: {reason}")]
    Drive {
        /// Its name.
        name: String,
        /// The reason.
        reason: SsdModelError,
    },
}

/// Reads an experiment with all its files.
///
/// # Errors
/// If a file cannot be read or is invalid; the message names file and key.
pub fn load(path: &Path, request: &Request) -> Result<Bench, LoadError> {
    let home = home(path)?;
    let merged = include::load(path)?;
    let bench = load_table(&path.display().to_string(), merged.table, request, &|name| file(&home.join(name)))?;
    let fitted = fitted(&home, &bench.machine.calibration)?;
    let beside = path.with_file_name(RESULTS);
    let results = if beside.is_dir() { beside } else { bench.results };
    Ok(Bench { file: relative_path(path, &home), results, fitted, ..bench })
}

/// Reads an experiment from its text; `name` is for messages. `files` returns other files by their path in the repository:
/// `profiles/NAME.toml`, its calibration, `profiles/ssd/NAME.toml`.
///
/// # Errors
/// As [`load`].
pub fn load_text(name: &str, text: &str, request: &Request, files: &Files<'_>) -> Result<Bench, LoadError> {
    load_table(name, read::parse(name, text)?, request, files)
}

fn load_table(name: &str, mut table: Table, request: &Request, files: &Files<'_>) -> Result<Bench, LoadError> {
    let set = overrides(&table, request);
    points::set_all(&mut table, &set, name)?;
    let experiment: Experiment = read::table(table.clone(), name)?;
    let profile = files(&format!("profiles/{}.toml", experiment.machine.profile))?;
    let calibration = files(&calibration_of(&profile)?)?;
    let machine = MachineFiles::parse(&profile, &calibration)?;
    let points = expand(&table, &set, name)?;
    let drives = drives(files, &points)?;
    let contents = contents(&points)?;
    let models: Vec<&SsdModel> = drives.iter().map(|(_, model)| model).collect();
    let hash = fingerprint::digest(&(fingerprint::digest(&machine.machine(&[])?), models)).to_string();
    let overrides = Overrides { set: request.set.clone(), smoke: request.smoke };
    let (file, results, fitted) = (name.to_owned(), RESULTS.into(), Fitted::new());
    Ok(Bench { experiment, points, machine, drives, contents, hash, fitted, file, results, overrides })
}

/// A file's path from a folder above it, with `/` between its parts.
fn relative_path(path: &Path, home: &Path) -> String {
    let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = absolute.strip_prefix(home).unwrap_or(&absolute);
    path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// Returns the text of a file of an experiment.
pub type Files<'f> = dyn Fn(&str) -> Result<String, LoadError> + 'f;

/// Descriptive keys of an experiment, which do not affect runs.
pub const ABOUT: [&str; 4] = ["figure", "title", "about", "printed"];

/// Whether a folder is that of a project: it contains profiles and their calibrations.
#[must_use]
pub fn is_home(folder: &Path) -> bool {
    folder.join("profiles").join(CALIBRATIONS).is_dir()
}

/// The parent folder with profiles and calibrations.
///
/// # Errors
/// If there is none.
pub fn home(path: &Path) -> Result<PathBuf, LoadError> {
    let absolute = path.canonicalize().map_err(|error| unreadable(path, error))?;
    let folder = absolute.ancestors().skip(1).find(|folder| is_home(folder));
    folder.map(Path::to_path_buf).ok_or_else(|| LoadError::Home(path.display().to_string()))
}

fn unreadable(path: &Path, error: std::io::Error) -> LoadError {
    LoadError::File { path: path.display().to_string(), error }
}

fn file(path: &Path) -> Result<String, LoadError> {
    std::fs::read_to_string(path).map_err(|error| unreadable(path, error))
}

/// Overrides as dotted keys; they take precedence over the file and its parameters.
fn overrides(table: &Table, request: &Request) -> Vec<(String, toml::Value)> {
    let mut keys = Vec::new();
    if request.smoke {
        let smoke = table.get("smoke").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        keys.push(("repeats".to_owned(), 2.into()));
        keys.extend(smoke);
    }
    keys.extend(request.set.iter().map(|(key, text)| (key.clone(), pilotlight_input::dotted::value(text))));
    keys.extend(request.repeats.map(|count| ("repeats".to_owned(), i64::from(count).into())));
    keys
}

fn drives(files: &Files<'_>, points: &[Point]) -> Result<Vec<(String, SsdModel)>, LoadError> {
    let mut names: Vec<String> =
        points.iter().flat_map(|point| &point.experiment.drives).map(|drives| drives.profile.clone()).collect();
    names.sort();
    names.dedup();
    let mut models = Vec::new();
    for name in names {
        let model = SsdModel::parse(&files(&format!("profiles/ssd/{name}.toml"))?);
        let model = model.map_err(|reason| LoadError::Drive { name: name.clone(), reason })?;
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
