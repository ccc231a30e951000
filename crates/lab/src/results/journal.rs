//! `runs.jsonl`: a line for each measurement that came to its end, written at once. A line that a crash has torn is cut off when the
//! journal is opened again; what it was about is measured again.

use std::collections::BTreeMap;
use std::path::Path;

use pilotlight_journal::{Durability, Lock, whole};

use super::FolderError;
use super::entry::{Baseline, Entry, Run};
use super::summary::setting;
use crate::plan::Key;
use pilotlight_workloads::Point;

/// What is finished, and where more goes.
#[derive(Debug)]
pub struct Journal {
    path: std::path::PathBuf,
    lines: pilotlight_journal::Journal,
    /// What is there.
    pub finished: Finished,
    /// How many idle baselines were there when it was opened.
    earlier: usize,
}

/// Everything that came to its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finished {
    /// Measurements.
    pub runs: BTreeMap<Key, Run>,
    /// Measurements that failed and were not repeated with success, and why.
    pub failed: BTreeMap<Key, String>,
    /// Idle baselines, in the order of the journal: one for each setting of the machine in each round, and again after a run was resumed.
    pub baselines: Vec<Baseline>,
    /// Which of them each measurement is compared with.
    pub(crate) paired: BTreeMap<Key, usize>,
}

impl Finished {
    /// Adds what a line of the journal says. The lines come in the order in which they were written.
    pub fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Run(run) => {
                self.failed.remove(&run.key);
                let setting = setting(&run.knobs);
                let idle = self.baselines.iter().rposition(|baseline| baseline.setting == setting);
                self.paired.extend(idle.map(|at| (run.key, at)));
                self.runs.insert(run.key, *run);
            }
            Entry::Failed { key, why } => drop(self.failed.insert(key, why)),
            Entry::Baseline(baseline) => self.baselines.push(*baseline),
        }
    }

    /// The idle machine that a measurement is compared with: the last one before it under its setting.
    #[must_use]
    pub fn baseline(&self, key: Key) -> Option<&Baseline> {
        self.baselines.get(*self.paired.get(&key)?)
    }

    /// Reads a journal as it stands, without touching it.
    ///
    /// # Errors
    /// If it cannot be read, or a line before the last is none.
    pub fn read(path: &Path) -> Result<Self, FolderError> {
        let bytes = std::fs::read(path).map_err(|source| FolderError::file(path, source))?;
        parse(path, &bytes[..whole(&bytes)])
    }
}

/// What the whole lines of a journal hold.
fn parse(path: &Path, lines: &[u8]) -> Result<Finished, FolderError> {
    let mut finished = Finished::default();
    for (at, line) in lines.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let entry = serde_json::from_slice(line);
        let damaged = |error: serde_json::Error| FolderError::Damaged {
            path: path.to_owned(),
            why: format!("line {}: {error}", at + 1),
        };
        finished.add(entry.map_err(damaged)?);
    }
    Ok(finished)
}

impl Journal {
    /// Opens a journal, or begins one.
    ///
    /// # Errors
    /// If it cannot be read or written, another run has it open, or it is damaged elsewhere than at its end.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let failed = |source| FolderError::file(path, source);
        let lock = Lock::at(path).map_err(failed)?.ok_or_else(|| FolderError::InUse(path.to_owned()))?;
        let (lines, bytes) = pilotlight_journal::Journal::read(lock).map_err(failed)?;
        let finished = parse(path, &bytes)?;
        let earlier = finished.baselines.len();
        Ok(Self { path: path.to_owned(), lines, finished, earlier })
    }

    /// Whether the idle machine was measured under a setting in a round since the journal was opened.
    #[must_use]
    pub fn has_baseline(&self, setting: &Point, round: u32) -> bool {
        let baselines = self.finished.baselines.iter().skip(self.earlier);
        baselines.into_iter().any(|baseline| baseline.setting == *setting && baseline.round == round)
    }

    /// Adds a line, which is on the disk when this returns.
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
    use crate::results::entry::Sensed;
    use pilotlight_sensors::energy::Window;
    use pilotlight_workloads::Value;

    fn failed(point: usize, why: &str) -> Entry {
        Entry::Failed { key: Key { point, repeat: 0 }, why: why.to_owned() }
    }

    #[test]
    fn a_torn_line_is_cut_off_and_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let mut journal = Journal::open(&path).unwrap();
        journal.add(failed(0, "a")).unwrap();
        journal.add(failed(1, "µs")).unwrap();
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        // Wherever it was torn: the first line is kept as long as it is whole, and the journal goes on.
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
    fn two_runs_do_not_write_into_one_folder() {
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
    fn damage_in_the_middle_is_said() {
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
    fn a_failure_is_forgotten_once_the_measurement_succeeds() {
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
        Entry::Baseline(Box::new(Baseline { setting: under(state), round, window, sensed: Sensed::default() }))
    }

    #[test]
    fn a_measurement_is_compared_with_the_idle_machine_before_it_under_its_setting() {
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
    fn a_journal_that_is_opened_again_asks_for_new_baselines() {
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
