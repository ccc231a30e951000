//! Where finished runs go while a sweep is under way, so that it can be interrupted at any moment.
//!
//! *Words.* The *packed* file `NAME.csv.zst` holds what sweeps that came to their end have left; the *journal* `NAME.csv` beside
//! it what has been finished since. *Rules.* A finished run is one write to the journal. When a sweep ends, both become a new packed
//! file, which takes the place of the old one in one step, and then the journal goes. *Properties.* Whatever the moment of a
//! `kill -9`, the two files together hold every finished run: a torn last run is not counted, and one that is in both counts once.
//! The packed bytes depend on the runs alone, not on their order, the number of workers, or interruptions. One process at a time has a place:
//! `.NAME.csv.lock` is locked meanwhile, and stays.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use pilotlight_report::output;

use crate::results::{self, About, PACKED, Results, ResultsError, Run, RunKey, rows};
use crate::variant;

/// An experiment's place for results: what is there, and where more goes.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// Held as long as this is.
    _lock: Lock,
    /// Open once there is something to write.
    file: Option<fs::File>,
    /// Whether runs that are packed are to go.
    dropped: bool,
    /// What is there.
    pub results: Results,
}

impl Journal {
    /// Opens the place `NAME.csv`. Results of another machine or question are set aside as `NAME.HASH-QUESTION.csv` and `.csv.zst`.
    ///
    /// # Errors
    /// If it cannot be read, written or set aside, or another process has it open.
    pub fn open(path: &Path, about: &About) -> Result<Self, ResultsError> {
        let lock = lock(path)?;
        let mut results = Results { about: about.clone(), runs: BTreeMap::new() };
        for file in [packed(path), path.to_owned()] {
            if !file.exists() {
                continue;
            }
            let before = Results::read(&file)?;
            if before.about.same(about) {
                results.runs.extend(before.runs);
            } else {
                set_aside(&file, path, &before.about)?;
            }
        }
        Ok(Self { path: path.to_owned(), _lock: lock, file: None, dropped: false, results })
    }

    /// Adds finished runs, in one write.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add(&mut self, runs: Vec<(RunKey, Run)>) -> Result<(), ResultsError> {
        let experiment = &self.results.about.experiment;
        let text: String = runs.iter().map(|(key, run)| rows(experiment, key, run)).collect();
        let path = self.path.clone();
        self.file()?.write_all(text.as_bytes()).map_err(|error| ResultsError::file(&path, error))?;
        self.results.runs.extend(runs);
        Ok(())
    }

    /// Drops the runs of members of the family that are not `known`: the calibration has them no more.
    pub fn keep_members(&mut self, known: &dyn Fn(&str) -> bool) {
        let before = self.results.runs.len();
        self.results.runs.retain(|key, _| key.variant.strip_prefix(variant::MEMBER).is_none_or(known));
        self.dropped |= self.results.runs.len() < before;
    }

    fn file(&mut self) -> Result<&mut fs::File, ResultsError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => self.begin()?,
        };
        Ok(self.file.insert(file))
    }

    /// The journal, without what an interruption has left half written.
    fn begin(&self) -> Result<fs::File, ResultsError> {
        let about = self.results.about.clone();
        let runs = if self.path.exists() { Results::read(&self.path)?.runs } else { BTreeMap::new() };
        replace(&self.path, Results { about, runs }.text().as_bytes())?;
        OpenOptions::new().append(true).open(&self.path).map_err(|error| ResultsError::file(&self.path, error))
    }

    /// Packs everything; what is packed already stays as it is.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self) -> Result<Results, ResultsError> {
        let failed = |error| ResultsError::file(&self.path, error);
        let more = self.path.exists();
        if more || self.dropped {
            let bytes = results::packed(&self.results.text()).map_err(failed)?;
            replace(&packed(&self.path), &bytes)?;
        }
        if more {
            fs::remove_file(&self.path).map_err(failed)?;
        }
        Ok(self.results)
    }
}

/// What is at a place `NAME.csv`, packed or not; `None` if nothing is.
///
/// # Errors
/// If a file cannot be read, or a line is no row.
pub fn read(path: &Path) -> Result<Option<Results>, ResultsError> {
    let mut found: Option<Results> = None;
    for file in [packed(path), path.to_owned()] {
        if file.exists() {
            let more = Results::read(&file)?;
            match &mut found {
                Some(results) if results.about.same(&more.about) => results.runs.extend(more.runs),
                Some(_) => {}
                None => found = Some(more),
            }
        }
    }
    Ok(found)
}

/// Removes what is at a place.
///
/// # Errors
/// If it cannot be removed.
pub fn forget(path: &Path) -> Result<(), ResultsError> {
    for file in [packed(path), path.to_owned()] {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(ResultsError::file(&file, error)),
            _ => {}
        }
    }
    Ok(())
}

/// `NAME.csv.zst` beside `NAME.csv`.
#[must_use]
pub fn packed(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PACKED);
    name.into()
}

/// A locked file.
#[derive(Debug)]
struct Lock(fs::File);

/// Closing the file is not enough: a child that another thread has just forked holds a copy of it until it runs its program.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn lock(place: &Path) -> Result<Lock, ResultsError> {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let path = place.with_file_name(format!(".{name}.lock"));
    let open = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = open.map_err(|error| ResultsError::file(&path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(fs::TryLockError::WouldBlock) => Err(ResultsError::Busy { path: place.display().to_string() }),
        Err(fs::TryLockError::Error(error)) => Err(ResultsError::file(&path, error)),
    }
}

fn set_aside(file: &Path, place: &Path, about: &About) -> Result<(), ResultsError> {
    let kept = place.with_extension(format!("{}-{}.csv", about.hash, about.question));
    let kept = if file == place { kept } else { packed(&kept) };
    fs::rename(file, &kept).map_err(|error| ResultsError::file(file, error))
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), ResultsError> {
    output::write(path, bytes).map_err(|error| ResultsError::file(path, error))
}
