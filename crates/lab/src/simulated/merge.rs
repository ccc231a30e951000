//! Joins the folders of shares: what is stored beside the results of a share, and whether shares belong together.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::stored::values::{self, Results, ResultsError, RunKey, Schema};
use pilotlight_report::output;

/// Name of the file beside the results of a share.
pub const FILE: &str = "shard.json";

/// The program, with its version.
pub const PROGRAM: &str = concat!("pilotlab ", env!("CARGO_PKG_VERSION"));

/// Where the results of a share come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The program that computed them.
    pub program: String,
    /// Version of the results' format.
    pub schema: Schema,
    /// [`crate::simulated::sweep::Sweep::identity`] of the whole sweep.
    pub scenario: String,
    /// The share.
    pub shard: String,
    /// Arguments of `pilotlab run`, without those of the share.
    pub command: Vec<String>,
}

/// The folder of a share.
#[derive(Clone, Debug)]
pub struct Part {
    /// The folder of the experiment.
    pub folder: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
}

/// Folders cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A manifest cannot be read or written.
    #[error("{path}: {reason}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: std::io::Error,
    },
    /// A folder has several shares.
    #[error("{0}: has {1} experiments: name the folder of one")]
    SeveralShares(PathBuf, usize),
    /// A folder has no share.
    #[error("{0} has no {FILE}: expected a folder of `pilotlab run FILE --shard K/N --out DIR`")]
    NoShare(PathBuf),
    /// Two folders differ in their origin.
    #[error(
        "{first} and {second} do not belong together: {what} {of_first} and {of_second}; compute one of them again"
    )]
    Differ {
        /// The first folder.
        first: String,
        /// The second folder, or this program.
        second: String,
        /// What differs.
        what: &'static str,
        /// Its value in the first.
        of_first: String,
        /// Its value in the second.
        of_second: String,
    },
    /// Two folders have different values for one run.
    #[error("{first} and {second} have different values of {run}: remove one of them")]
    Conflict {
        /// The first folder.
        first: String,
        /// The second folder.
        second: String,
        /// The run.
        run: String,
    },
    /// Results cannot be read.
    #[error(transparent)]
    Results(#[from] ResultsError),
}

impl Manifest {
    /// Reads the manifest in the folder of an experiment; `None` without one.
    ///
    /// # Errors
    /// If it cannot be read, or has another format.
    pub fn read(folder: &Path) -> Result<Option<Self>, MergeError> {
        let path = folder.join(FILE);
        let failed = |reason| MergeError::Manifest { path: path.clone(), reason };
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(error.into())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), MergeError> {
        let path = folder.join(FILE);
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::from);
        let written = text.and_then(|text| output::write(&path, (text + "\n").as_bytes()));
        written.map_err(|reason| MergeError::Manifest { path, reason })
    }

    /// What differs from a manifest of the same sweep: its name and both values.
    fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let fields = |one: &Self| {
            [
                ("program", one.program.clone()),
                ("scenario hash", one.scenario.clone()),
                ("arguments", one.command.join(" ")),
            ]
        };
        let pairs = fields(self).into_iter().zip(fields(other));
        pairs.filter(|(a, b)| a != b).map(|((what, a), (_, b))| (what, a, b)).next()
    }
}

/// Checks that the results of one origin may be added to those of another.
///
/// # Errors
/// If program, scenario or arguments differ.
pub fn belong_together(first: (&str, &Manifest), second: (&str, &Manifest)) -> Result<(), MergeError> {
    first.1.difference(second.1).map_or(Ok(()), |(what, of_first, of_second)| {
        let (first, second) = (first.0.to_owned(), second.0.to_owned());
        Err(MergeError::Differ { first, second, what, of_first, of_second })
    })
}

/// The share in a folder of `--out`, or in that of its experiment.
///
/// # Errors
/// If it has none or several, or the manifest cannot be read.
pub fn part(out: &Path) -> Result<Part, MergeError> {
    let failed = |reason| MergeError::Manifest { path: out.to_owned(), reason };
    let entries = std::fs::read_dir(out).map_err(failed)?;
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    folders.insert(0, out.to_owned());
    folders.retain(|folder| folder.join(FILE).is_file());
    match folders.as_slice() {
        [folder] => {
            let manifest = Manifest::read(folder)?.ok_or_else(|| MergeError::NoShare(out.to_owned()))?;
            Ok(Part { folder: folder.clone(), manifest })
        }
        [] => Err(MergeError::NoShare(out.to_owned())),
        several => Err(MergeError::SeveralShares(out.to_owned(), several.len())),
    }
}

/// Joins the results of parts that belong together.
///
/// # Errors
/// If they do not, two have different values for a run, or a file cannot be read.
pub fn join(parts: &[Part]) -> Result<Results, MergeError> {
    let name = |part: &Part| part.folder.display().to_string();
    let mut all = Results::default();
    for (at, part) in parts.iter().enumerate() {
        belong_together((&name(&parts[0]), &parts[0].manifest), (&name(part), &part.manifest))?;
        let results = values::read(&part.folder.join(values::FILE))?.unwrap_or_default();
        if let Some(run) = conflict(&all, &results) {
            let has = |other: &&Part| {
                values::read(&other.folder.join(values::FILE)).ok().flatten().is_some_and(|r| r.runs.contains_key(run))
            };
            let first = parts[..at].iter().find(has).map(name).unwrap_or_default();
            return Err(MergeError::Conflict { first, second: name(part), run: run.to_string() });
        }
        all.add(results);
    }
    Ok(all)
}

/// A run with different values or fingerprints.
fn conflict<'a>(all: &Results, more: &'a Results) -> Option<&'a RunKey> {
    let differs = |(key, run): &(&RunKey, &values::Run)| {
        let cell = key.cell();
        let fingerprints = all.cells.get(&cell).zip(more.cells.get(&cell));
        let known = all.runs.get(*key);
        known.is_some_and(|known| known != *run) || fingerprints.is_some_and(|(a, b)| a != b)
    };
    more.runs.iter().find(differs).map(|(key, _)| key)
}
