//! The journal of a profile's measurements, from which an interrupted profile continues.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pilotlight_journal::{Durability, Journal, Lock};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Measurements of one kind under equal conditions.
pub(super) struct Record<T> {
    journal: Journal,
    path: PathBuf,
    /// The measurements.
    pub(super) all: Vec<T>,
}

impl<T: Serialize + DeserializeOwned> Record<T> {
    /// The journal beside a profile. `conditions` are all inputs of measurements; a journal with others is refused, or discarded with `fresh`.
    pub(super) fn open(profile: &Path, of: &str, conditions: &impl Serialize, fresh: bool) -> anyhow::Result<Self> {
        let mut path = profile.as_os_str().to_owned();
        path.push(format!(".{of}.jsonl"));
        let path = PathBuf::from(path);
        let shown = path.display();
        let lock = Lock::at(&path).with_context(|| format!("cannot open {shown}"))?;
        let lock = lock.with_context(|| format!("another process is writing {shown}"))?;
        if fresh {
            lock.file().set_len(0).with_context(|| format!("cannot write {shown}"))?;
        }
        let (mut journal, bytes) = Journal::read(lock).with_context(|| format!("cannot read {shown}"))?;
        let head = serde_json::to_string(conditions)? + "\n";
        let text = String::from_utf8(bytes).with_context(|| format!("{shown} is not a record of measurements"))?;
        if text.is_empty() {
            journal.append(&head, Durability::Process).with_context(|| format!("cannot write {shown}"))?;
            return Ok(Self { journal, path, all: Vec::new() });
        }
        let lines = text.strip_prefix(&head).with_context(|| {
            format!(
                "{shown} was measured with other options or on another machine; --fresh forgets it, or choose another --out"
            )
        })?;
        let one = |line: &str| serde_json::from_str(line).with_context(|| format!("{shown}: {line}"));
        let all = lines.lines().map(one).collect::<anyhow::Result<_>>()?;
        Ok(Self { journal, path, all })
    }

    /// Adds a measurement.
    pub(super) fn add(&mut self, one: T) -> anyhow::Result<()> {
        let line = serde_json::to_string(&one)? + "\n";
        let written = self.journal.append(&line, Durability::Process);
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.all.push(one);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_continues_under_equal_conditions_only() {
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path().join("own.toml");
        let open = |conditions: &str, fresh| Record::<u32>::open(&profile, "cpu", &conditions, fresh);
        let mut record = open("5 s", false).unwrap();
        record.add(7).unwrap();
        assert!(open("5 s", false).is_err(), "it is locked");
        drop(record);
        assert_eq!(open("5 s", false).unwrap().all, [7]);
        let error = open("9 s", false).err().unwrap().to_string();
        assert!(error.contains("--fresh"), "{error}");
        assert_eq!(open("9 s", true).unwrap().all, [0_u32; 0]);
        assert_eq!(open("9 s", false).unwrap().all, [0_u32; 0]);
    }

    #[test]
    fn a_truncated_line_is_measured_again() {
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path().join("own.toml");
        let mut record = Record::<u32>::open(&profile, "cpu", &1, false).unwrap();
        (1..4).for_each(|one| record.add(one).unwrap());
        drop(record);
        let path = folder.path().join("own.toml.cpu.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 1]).unwrap();
        assert_eq!(Record::<u32>::open(&profile, "cpu", &1, false).unwrap().all, [1, 2]);
    }
}
