//! Where finished runs go while a sweep is under way, so that it can be interrupted at any moment.
//!
//! *Words.* The *packed* file `values.csv.zst` holds what sweeps that came to their end have left; the *journal* `values.csv` beside
//! it what has been finished since. *Rules.* A finished run is one write to the journal. When a sweep ends, both become a new packed
//! file, which takes the place of the old one in one step, and then the journal goes. *Properties.* Whatever the moment of a
//! `kill -9`, the two files together hold every finished run: a torn last run is not counted, and one that is in both counts once.
//! The packed bytes depend on the runs alone, not on their order, the number of workers, or interruptions. One process at a time has a place:
//! `.values.csv.lock` is locked meanwhile, and stays.

use std::path::{Path, PathBuf};

use pilotlight_journal::{Durability, Lock};
use pilotlight_report::output;

use crate::simulated::cells::{Cells, Sorted};
use crate::simulated::machine;
use pilotlight_results::values::{About, Results, ResultsError, Run, RunKey, put, read, rows};

/// An experiment's place for results: what is there, and where more goes.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// Held as long as this is.
    _lock: Lock,
    /// Open once there is something to write.
    lines: Option<pilotlight_journal::Journal>,
    /// Today's cells.
    cells: Cells,
    /// What is there.
    pub results: Results,
}

impl Journal {
    /// Opens the place `values.csv`. Runs of other values than those of `today`'s cells are set aside as `values.stale-HASH.csv.zst`.
    ///
    /// # Errors
    /// If it cannot be read, written or set aside, or another process has it open.
    pub fn open(path: &Path, about: &About, today: &dyn Fn(&Results) -> Cells) -> Result<Self, ResultsError> {
        let lock = lock(path)?;
        let there = read(path)?.unwrap_or_default();
        let cells = today(&there);
        let renamed = |sorted: &Sorted| sorted.current.cells != there.cells;
        let mut sorted = cells.sort(there.clone());
        sorted.current.about = about.clone();
        if !there.runs.is_empty() && (!sorted.stale.runs.is_empty() || renamed(&sorted)) {
            set_aside(path, &sorted.stale)?;
            put(path, &sorted.current)?;
        }
        Ok(Self { path: path.to_owned(), _lock: lock, lines: None, cells, results: sorted.current })
    }

    /// Adds finished runs, in one write.
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

    /// The journal, without runs that an interruption has left unfinished.
    fn begin(&self) -> Result<pilotlight_journal::Journal, ResultsError> {
        let about = self.results.about.clone();
        let there = if self.path.exists() { Results::read(&self.path)? } else { Results::default() };
        replace(&self.path, Results { about, ..there }.text().as_bytes())?;
        let lines = locked(&self.path, &self.path).and_then(|lock| {
            pilotlight_journal::Journal::read(lock).map_err(|error| ResultsError::file(&self.path, error))
        });
        Ok(lines?.0)
    }

    /// Packs everything; what is packed already stays as it is.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self) -> Result<Results, ResultsError> {
        if self.path.exists() {
            put(&self.path, &self.results)?;
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

/// Keeps stale results beside those of a place; the same ones under the same name.
fn set_aside(place: &Path, stale: &Results) -> Result<(), ResultsError> {
    if stale.runs.is_empty() {
        return Ok(());
    }
    let text = stale.text();
    let hash = machine::hash([text.as_str()]);
    put(&place.with_extension(format!("stale-{hash}.csv")), stale)
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), ResultsError> {
    output::write(path, bytes).map_err(|error| ResultsError::file(path, error))
}
