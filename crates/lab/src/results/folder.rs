//! The layout of a results folder.

use std::path::{Path, PathBuf};

use crate::stored::values;
use pilotlight_report::output;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::FolderError;
use crate::plan::{Key, Plan};

/// Files written before the journal, the plan last.
const FILES_AT_START: [&str; 4] = ["environment.json", "sensors.json", "experiment.toml", "plan.json"];

/// A results folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    /// The folder at this path, which need not exist.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Creates it, or opens it to resume the same run. Returns whether the run is resumed.
    ///
    /// # Errors
    /// If it holds another run or other files, or cannot be created.
    pub fn open(&self, plan: &Plan) -> Result<bool, FolderError> {
        self.open_over(plan, &[])
    }

    /// As [`Folder::open`]; the folder may contain the files in `replaced`.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn open_over(&self, plan: &Plan, replaced: &[&str]) -> Result<bool, FolderError> {
        let created = std::fs::create_dir_all(&self.root);
        created.map_err(|source| FolderError::file(&self.root, source))?;
        if !self.plan().exists() {
            return self.expect_empty(replaced).map(|()| false);
        }
        let before: Plan = self.load(&self.plan())?;
        if before.hash == plan.hash {
            return if before.share == plan.share { Ok(true) } else { Err(FolderError::OtherShare(self.root.clone())) };
        }
        Err(FolderError::Other { path: self.root.clone(), title: before.title })
    }

    /// Protects other files: only those of a run that was killed at its start may exist.
    fn expect_empty(&self, replaced: &[&str]) -> Result<(), FolderError> {
        let entries = std::fs::read_dir(&self.root).map_err(|error| FolderError::file(&self.root, error))?;
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        let is_ours = |name: &String| {
            FILES_AT_START.contains(&name.strip_suffix(".new").unwrap_or(name)) || replaced.contains(&name.as_str())
        };
        match names.into_iter().find(|name| !is_ours(name)) {
            Some(found) => Err(FolderError::NotARun { path: self.root.clone(), found }),
            None => Ok(()),
        }
    }

    /// Its path.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The experiment with its includes and overrides.
    #[must_use]
    pub fn experiment(&self) -> PathBuf {
        self.root.join("experiment.toml")
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> PathBuf {
        self.root.join("plan.json")
    }

    /// The machine.
    #[must_use]
    pub fn environment(&self) -> PathBuf {
        self.root.join("environment.json")
    }

    /// The changed machine of a resumed run, from number 2.
    #[must_use]
    pub fn environment_on_resumption(&self, number: usize) -> PathBuf {
        self.root.join(format!("environment-{number}.json"))
    }

    /// The sensors.
    #[must_use]
    pub fn sensors(&self) -> PathBuf {
        self.root.join("sensors.json")
    }

    /// Finished measurements.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.root.join("runs.jsonl")
    }

    /// Samples of a measurement, or of an idle baseline.
    #[must_use]
    pub fn samples(&self, of: &str) -> PathBuf {
        self.root.join("samples").join(of)
    }

    /// Output of a measured command.
    #[must_use]
    pub fn raw(&self, of: &str) -> PathBuf {
        self.root.join("raw").join(of)
    }

    /// The values of all runs.
    #[must_use]
    pub fn values(&self) -> PathBuf {
        self.root.join(values::FILE)
    }

    /// Results.
    #[must_use]
    pub fn results(&self) -> PathBuf {
        self.root.join("results.json")
    }

    /// Results as a table.
    #[must_use]
    pub fn table(&self) -> PathBuf {
        self.root.join("results.csv")
    }

    /// The report.
    #[must_use]
    pub fn report(&self) -> PathBuf {
        self.root.join("report.html")
    }

    /// An empty folder for tools.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn scratch(&self) -> Result<PathBuf, FolderError> {
        let path = self.root.join("scratch");
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).map_err(|source| FolderError::file(&path, source))?;
        path.canonicalize().map_err(|source| FolderError::file(&path, source))
    }

    /// Writes JSON.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, path: &Path, value: &impl Serialize) -> Result<(), FolderError> {
        let text = serde_json::to_string_pretty(value).map_err(std::io::Error::from);
        self.write(path, &(text.map_err(|source| FolderError::file(path, source))? + "\n"))
    }

    /// Writes a file atomically.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), FolderError> {
        output::write(path, text).map_err(|source| FolderError::file(path, source))
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn load<T: DeserializeOwned>(&self, path: &Path) -> Result<T, FolderError> {
        let text = std::fs::read_to_string(path).map_err(|source| FolderError::file(path, source))?;
        serde_json::from_str(&text)
            .map_err(|error| FolderError::Damaged { path: path.to_owned(), why: error.to_string() })
    }
}

/// The base name of a measurement's files: `p003-r01`.
#[must_use]
pub fn name_of(key: Key) -> String {
    format!("p{:03}-r{:02}", key.point, key.repeat)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan { hash: "h".to_owned(), ..Plan::default() }
    }

    #[test]
    fn only_an_empty_folder_or_one_of_the_same_run_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let out = Folder::new(&folder.path().join("deep/out"));
        assert!(!out.open(&plan()).unwrap(), "created");
        // The files of a run that was killed at its start.
        out.write(&out.environment(), "{}").unwrap();
        std::fs::write(out.root().join("experiment.toml.new"), "").unwrap();
        assert!(!out.open(&plan()).unwrap());
        std::fs::write(out.root().join("data.bin"), "precious").unwrap();
        let refused = out.open(&plan()).unwrap_err();
        assert!(refused.is_refusal() && refused.to_string().contains("data.bin"), "{refused}");
        assert_eq!(std::fs::read_to_string(out.root().join("data.bin")).unwrap(), "precious");
        out.save(&out.plan(), &plan()).unwrap();
        assert!(out.open(&plan()).unwrap(), "a resumed run has its data there");
        assert!(matches!(out.open(&Plan { hash: "i".into(), ..plan() }), Err(FolderError::Other { .. })));
    }
}
