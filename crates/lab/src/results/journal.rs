//! `runs.jsonl`: one line for each finished measurement, written immediately. A line truncated by a crash is removed when the journal is
//! opened, and its measurement is repeated.

use std::collections::BTreeMap;
use std::path::Path;

use pilotlight_journal::{Durability, Lock, whole};

use super::FolderError;
use crate::plan::{Key, machine_knobs};
use crate::record::{Baseline, Entry, Run};
use pilotlight_workloads::Point;

/// The journal of a run.
#[derive(Debug)]
pub struct Journal {
    path: std::path::PathBuf,
    lines: pilotlight_journal::Journal,
    /// Its content.
    pub finished: Finished,
    /// Number of idle baselines when it was opened.
    earlier: usize,
}

/// The content of a journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finished {
    /// Measurements.
    pub runs: BTreeMap<Key, Run>,
    /// Failed measurements without a successful repetition, with their errors.
    pub failed: BTreeMap<Key, String>,
    /// Idle baselines in the order of the journal: one for each setting of the machine in each round, and again in a resumed run.
    pub baselines: Vec<Baseline>,
    /// The index of the baseline of each measurement.
    pub(crate) paired: BTreeMap<Key, usize>,
}

impl Finished {
    /// Adds a line; lines must be in the order of the journal.
    pub fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Run(run) => {
                self.failed.remove(&run.key);
                let setting = machine_knobs(&run.knobs);
                let idle = self.baselines.iter().rposition(|baseline| baseline.setting == setting);
                self.paired.extend(idle.map(|at| (run.key, at)));
                self.runs.insert(run.key, *run);
            }
            Entry::Failed { key, why } => drop(self.failed.insert(key, why)),
            Entry::Baseline(baseline) => self.baselines.push(*baseline),
        }
    }

    /// The baseline of a measurement: the last one before it at its settings.
    #[must_use]
    pub fn baseline(&self, key: Key) -> Option<&Baseline> {
        self.baselines.get(*self.paired.get(&key)?)
    }

    /// Reads a journal without changing it.
    ///
    /// # Errors
    /// If it cannot be read, or a line before the last is damaged.
    pub fn read(path: &Path) -> Result<Self, FolderError> {
        let bytes = std::fs::read(path).map_err(|source| FolderError::file(path, source))?;
        parse(path, &bytes[..whole(&bytes)])
    }
}

/// Parses the complete lines of a journal.
fn parse(path: &Path, lines: &[u8]) -> Result<Finished, FolderError> {
    let mut finished = Finished::default();
    parse_entries(path, lines)?.into_iter().for_each(|entry| finished.add(entry));
    Ok(finished)
}

/// The complete lines of a journal, without changing it.
///
/// # Errors
/// If it cannot be read, or a line before the last is damaged.
pub fn entries(path: &Path) -> Result<Vec<Entry>, FolderError> {
    let bytes = std::fs::read(path).map_err(|source| FolderError::file(path, source))?;
    parse_entries(path, &bytes[..whole(&bytes)])
}

fn parse_entries(path: &Path, lines: &[u8]) -> Result<Vec<Entry>, FolderError> {
    let damaged = |at: usize, error: &serde_json::Error| FolderError::Damaged {
        path: path.to_owned(),
        why: format!("line {}: {error}", at + 1),
    };
    let lines = lines.split_inclusive(|byte| *byte == b'\n').enumerate();
    lines.map(|(at, line)| serde_json::from_slice(line).map_err(|error| damaged(at, &error))).collect()
}

impl Journal {
    /// Opens or creates a journal.
    ///
    /// # Errors
    /// If it cannot be read or written, is locked by another run, or is damaged before its end.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let failed = |source| FolderError::file(path, source);
        let lock = Lock::at(path).map_err(failed)?.ok_or_else(|| FolderError::InUse(path.to_owned()))?;
        let (lines, bytes) = pilotlight_journal::Journal::read(lock).map_err(failed)?;
        let finished = parse(path, &bytes)?;
        let earlier = finished.baselines.len();
        Ok(Self { path: path.to_owned(), lines, finished, earlier })
    }

    /// Whether a baseline was added for a setting in a round since the journal was opened.
    #[must_use]
    pub fn has_baseline(&self, setting: &Point, round: u32) -> bool {
        let baselines = self.finished.baselines.iter().skip(self.earlier);
        baselines.into_iter().any(|baseline| baseline.setting == *setting && baseline.round == round)
    }

    /// Adds a line durably.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, entry: Entry) -> Result<(), FolderError> {
        let failed = |source| FolderError::file(&self.path, source);
        let line = serde_json::to_string(&entry).map_err(|error| failed(error.into()))? + "\n";
        self.lines.append(&line, Durability::Medium).map_err(failed)?;
        self.finished.add(entry);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Sensed;
    use pilotlight_sensors::energy::Window;
    use pilotlight_workloads::Value;

    fn failed(point: usize, why: &str) -> Entry {
        Entry::Failed { key: Key { point, repeat: 0 }, why: why.to_owned() }
    }

    #[test]
    fn a_truncated_line_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let mut journal = Journal::open(&path).unwrap();
        journal.add(failed(0, "a")).unwrap();
        journal.add(failed(1, "µs")).unwrap();
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        // At any length complete lines are kept, and the journal can be appended.
        for cut in 0..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let mut journal = Journal::open(&path).unwrap();
            let whole = bytes[..cut].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(journal.finished.failed.len(), whole);
            journal.add(failed(2, "c")).unwrap();
            assert_eq!(Finished::read(&path).unwrap().failed.len(), whole + 1);
        }
    }

    #[test]
    fn a_journal_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let mut first = Journal::open(&path).unwrap();
        first.add(failed(0, "a")).unwrap();
        let refused = Journal::open(&path).unwrap_err().to_string();
        assert!(refused.contains("another run") && refused.contains("--out"), "{refused}");
        drop(first);
        assert_eq!(Journal::open(&path).unwrap().finished.failed.len(), 1);
    }

    #[test]
    fn damage_before_the_end_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        std::fs::write(&path, "{\"failed\":{}}\n\n").unwrap();
        let error = Journal::open(&path).unwrap_err().to_string();
        assert!(error.contains("runs.jsonl") && error.contains("line 1"), "{error}");
    }

    fn measured(key: Key, knobs: Point) -> Entry {
        let window = Window { from_ns: 0, to_ns: 1 };
        Entry::Run(Box::new(Run {
            key,
            knobs,
            began_wall_ns: 0,
            span: window,
            window,
            record: pilotlight_workloads::record::Record::default(),
            sensed: Sensed::default(),
            completion: None,
        }))
    }

    #[test]
    fn a_failure_is_removed_once_the_measurement_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let mut journal = Journal::open(&path).unwrap();
        journal.add(failed(0, "a")).unwrap();
        journal.add(failed(1, "b")).unwrap();
        journal.add(measured(Key { point: 0, repeat: 0 }, Point::new())).unwrap();
        let read = Finished::read(&path).unwrap();
        assert_eq!(read, journal.finished);
        assert_eq!(
            (read.runs.len(), read.failed.into_keys().collect::<Vec<_>>()),
            (1, vec![Key { point: 1, repeat: 0 }])
        );
    }

    fn under(state: i64) -> Point {
        Point::from([("machine.power_state".to_owned(), Value::Integer(state))])
    }

    fn idle(state: i64, round: u32, to_ns: u64) -> Entry {
        let window = Window { from_ns: 0, to_ns };
        Entry::Baseline(Box::new(Baseline {
            setting: under(state),
            round,
            own_programs: false,
            window,
            sensed: Sensed::default(),
        }))
    }

    #[test]
    fn the_baseline_of_a_measurement_is_the_last_before_it_at_its_settings() {
        let of = |point, repeat| Key { point, repeat };
        let mut finished = Finished::default();
        let lines = [
            idle(0, 0, 1),
            measured(of(0, 0), under(0)),
            idle(1, 0, 2),
            measured(of(1, 0), under(0)),
            measured(of(2, 0), under(1)),
            measured(of(3, 0), under(2)),
            idle(0, 0, 3), // resumed
            measured(of(4, 0), under(0)),
            idle(0, 1, 4),
            measured(of(0, 1), under(0)),
        ];
        lines.into_iter().for_each(|line| finished.add(line));
        let length = |key| finished.baseline(key).map(|baseline| baseline.window.to_ns);
        assert_eq!([length(of(0, 0)), length(of(1, 0)), length(of(2, 0))], [Some(1), Some(1), Some(2)]);
        assert_eq!([length(of(3, 0)), length(of(4, 0)), length(of(0, 1))], [None, Some(3), Some(4)]);
    }

    #[test]
    fn a_reopened_journal_needs_new_baselines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let mut journal = Journal::open(&path).unwrap();
        journal.add(idle(0, 0, 1)).unwrap();
        let has = |journal: &Journal| {
            [(0, 0), (0, 1), (1, 0)].map(|(state, round)| journal.has_baseline(&under(state), round))
        };
        assert_eq!(has(&journal), [true, false, false]);
        drop(journal);
        let mut journal = Journal::open(&path).unwrap();
        assert_eq!(has(&journal), [false; 3]);
        journal.add(idle(0, 0, 2)).unwrap();
        assert_eq!(has(&journal), [true, false, false]);
    }
}
