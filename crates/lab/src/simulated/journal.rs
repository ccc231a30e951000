//! Storage of finished runs during a sweep, safe against interruption.
//!
//! The *packed* file `values.csv.zst` has the runs of completed sweeps, the *journal* `values.csv` those finished since. Each finished run is one
//! write to the journal. At the end of a sweep both are merged into a new packed file, which replaces the old one atomically, and the journal is
//! removed. *Properties.* After `kill -9` at any time both files together have every finished run; a truncated run is ignored, a run in both
//! counts once. The packed bytes depend only on the runs. `.values.csv.lock` is locked during a sweep.

use std::path::{Path, PathBuf};

use pilotlight_journal::{Durability, Lock};
use pilotlight_report::output;

use crate::simulated::cells::{Cells, Sorted};
use crate::simulated::machine;
use crate::stored::values::{Provenance, Results, ResultsError, Run, RunKey, read, rows, write};

/// The results of an experiment.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// The lock of the results.
    _lock: Lock,
    /// Opened at the first write.
    lines: Option<pilotlight_journal::Journal>,
    /// The current cells.
    cells: Cells,
    /// The stored results.
    pub results: Results,
}

impl Journal {
    /// Opens `values.csv`. Stale runs are moved to `values.stale-HASH.csv.zst`.
    ///
    /// # Errors
    /// If it cannot be read or written, or is locked by another process.
    pub fn open(path: &Path, about: &Provenance, current: &dyn Fn(&Results) -> Cells) -> Result<Self, ResultsError> {
        let lock = lock(path)?;
        let stored = read(path)?.unwrap_or_default();
        let cells = current(&stored);
        let renamed = |sorted: &Sorted| sorted.current.cells != stored.cells;
        let mut sorted = cells.sort(stored.clone());
        sorted.current.about = about.clone();
        if !stored.runs.is_empty() && (!sorted.stale.runs.is_empty() || renamed(&sorted)) {
            set_aside(path, &sorted.stale)?;
            write(path, &sorted.current)?;
        }
        Ok(Self { path: path.to_owned(), _lock: lock, lines: None, cells, results: sorted.current })
    }

    /// Adds finished runs in one write.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add(&mut self, runs: Vec<(RunKey, Run)>) -> Result<(), ResultsError> {
        let mut text = String::new();
        for (key, run) in &runs {
            let cell = key.cell();
            if let Some(fingerprint) = self.cells.get(&cell) {
                text += &cell.line(fingerprint);
                self.results.cells.insert(cell, fingerprint);
            }
            text += &rows(&self.results.about.experiment, key, run);
        }
        let path = self.path.clone();
        let appended = self.lines()?.append(&text, Durability::Process);
        appended.map_err(|error| ResultsError::file(&path, error))?;
        self.results.runs.extend(runs);
        Ok(())
    }

    fn lines(&mut self) -> Result<&mut pilotlight_journal::Journal, ResultsError> {
        let lines = match self.lines.take() {
            Some(lines) => lines,
            None => self.begin()?,
        };
        Ok(self.lines.insert(lines))
    }

    /// The journal without unfinished runs.
    fn begin(&self) -> Result<pilotlight_journal::Journal, ResultsError> {
        let about = self.results.about.clone();
        let stored = if self.path.exists() { Results::read(&self.path)? } else { Results::default() };
        replace(&self.path, Results { about, ..stored }.text().as_bytes())?;
        let lines = locked(&self.path, &self.path).and_then(|lock| {
            pilotlight_journal::Journal::read(lock).map_err(|error| ResultsError::file(&self.path, error))
        });
        Ok(lines?.0)
    }

    /// Merges the journal into the packed file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self) -> Result<Results, ResultsError> {
        if self.path.exists() {
            write(&self.path, &self.results)?;
        }
        Ok(self.results)
    }
}

fn lock(place: &Path) -> Result<Lock, ResultsError> {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    locked(&place.with_file_name(format!(".{name}.lock")), place)
}

fn locked(path: &Path, place: &Path) -> Result<Lock, ResultsError> {
    let lock = Lock::at(path).map_err(|error| ResultsError::file(path, error))?;
    lock.ok_or_else(|| ResultsError::Busy { path: place.display().to_string() })
}

/// Stores stale results beside the current ones, under a name by content.
fn set_aside(place: &Path, stale: &Results) -> Result<(), ResultsError> {
    if stale.runs.is_empty() {
        return Ok(());
    }
    let text = stale.text();
    let hash = machine::hash([text.as_str()]);
    write(&place.with_extension(format!("stale-{hash}.csv")), stale)
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), ResultsError> {
    output::write(path, bytes).map_err(|error| ResultsError::file(path, error))
}
