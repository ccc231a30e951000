//! Joins folders with shares of a measured experiment. Measurements of different hosts are never joined.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Finished, power_domains, write};
use crate::plan::{Key, Plan};
use crate::result_set::{differing, machine};
use crate::results::environment::Environment;
use crate::results::summary::words;
use crate::results::{Folder, FolderError, Results};
use crate::sensor_set::SensorSet;

/// Folders cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A folder cannot be read or written.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Two folders differ.
    #[error("{first} and {second} do not belong together: {what}")]
    Differ {
        /// The first folder.
        first: String,
        /// The second folder.
        second: String,
        /// What differs, with both values.
        what: String,
    },
    /// Measurements are missing.
    #[error("{} measurements are missing; add the folders of their shares, or run these again:{}", .0.len(), .0.concat())]
    Missing(Vec<String>),
    /// The output folder has files.
    #[error("{0} is not empty: specify another folder with --out")]
    NotEmpty(String),
}

/// A folder with a share.
struct Part {
    folder: Folder,
    plan: Plan,
    environment: Environment,
    sensors: SensorSet,
}

impl Part {
    fn read(path: &Path) -> Result<Self, FolderError> {
        let folder = Folder::new(path);
        Ok(Self {
            plan: folder.load(&folder.plan())?,
            environment: folder.load(&folder.environment())?,
            sensors: folder.load(&folder.sensors())?,
            folder,
        })
    }

    fn name(&self) -> String {
        self.folder.root().display().to_string()
    }

    /// What differs from another part, as text.
    fn difference(&self, other: &Self) -> Option<String> {
        if self.plan.hash != other.plan.hash {
            return Some(format!("hash of the experiment {} and {}", self.plan.hash, other.plan.hash));
        }
        let machines = differing(&machine(&self.environment), &machine(&other.environment));
        let machines: Vec<String> = machines.into_iter().map(|(key, a, b)| format!("{key} {a:?} and {b:?}")).collect();
        if !machines.is_empty() {
            return Some(machines.join("; "));
        }
        let names = |part: &Self| part.sensors.names.join(" ");
        (names(self) != names(other)).then(|| format!("sensors {:?} and {:?}", names(self), names(other)))
    }
}

/// Joins shares into an empty folder, and returns the results.
///
/// # Errors
/// If the shares are of different experiments, hosts or versions, measurements are missing, or a file cannot be read or written.
pub fn merge(folders: &[&Path], out: &Path) -> Result<Results, MergeError> {
    let parts = folders.iter().map(|folder| Part::read(folder)).collect::<Result<Vec<Part>, _>>()?;
    let Some(first) = parts.first() else { return Err(MergeError::Missing(Vec::new())) };
    for part in &parts {
        if let Some(what) = first.difference(part) {
            return Err(MergeError::Differ { first: first.name(), second: part.name(), what });
        }
    }
    let plan = Plan { share: None, ..first.plan.clone() };
    let (mut lines, mut seen) = (Vec::new(), BTreeMap::new());
    for part in &parts {
        let path = part.folder.journal();
        let bytes = std::fs::read(&path).map_err(|error| FolderError::file(&path, error))?;
        let finished = Finished::read(&path)?;
        for key in finished.runs.keys() {
            if let Some(first) = seen.insert(*key, part.name()) {
                let what = format!("both have {}", name(&plan, *key));
                return Err(MergeError::Differ { first, second: part.name(), what });
            }
        }
        lines.extend_from_slice(&bytes[..pilotlight_journal::whole(&bytes)]);
    }
    let keys = |point| (0..plan.repeats.0).map(move |repeat| Key { point, repeat });
    let missing = (0..plan.points.len()).flat_map(keys).filter(|key| !seen.contains_key(key));
    let missing: Vec<String> = missing.map(|key| format!("\n  {}", name(&plan, key))).collect();
    if !missing.is_empty() {
        return Err(MergeError::Missing(missing));
    }
    let out = &Folder::new(out);
    if out.open(&plan)? {
        return Err(MergeError::NotEmpty(out.root().display().to_string()));
    }
    Ok(put(&parts, &plan, &lines, out)?)
}

/// A measurement as text.
fn name(plan: &Plan, key: Key) -> String {
    format!("point {}, repeat {}", plan.points.get(key.point).map(words).unwrap_or_default(), key.repeat)
}

/// Writes the joined folder; the plan is last of the files that describe a run.
fn put(parts: &[Part], plan: &Plan, lines: &[u8], out: &Folder) -> Result<Results, FolderError> {
    let first = &parts[0];
    out.save(&out.environment(), &first.environment)?;
    out.save(&out.sensors(), &first.sensors)?;
    copy(&first.folder.experiment(), &out.experiment())?;
    out.save(&out.plan(), plan)?;
    for part in parts {
        for (from, to) in [(part.folder.samples(""), out.samples("")), (part.folder.raw(""), out.raw(""))] {
            copy_tree(&from, &to)?;
        }
    }
    std::fs::write(out.journal(), lines).map_err(|error| FolderError::file(&out.journal(), error))?;
    let finished = Finished::read(&out.journal())?;
    let domains = power_domains(&first.sensors, first.environment.drive.as_deref());
    let notes = vec![format!("joined from {} shares measured on {}", parts.len(), first.environment.host)];
    let results = Results { complete: true, ..Results::of(plan, &finished, &domains, notes) };
    write(out, plan, &results, &finished)?;
    Ok(results)
}

fn copy(from: &Path, to: &Path) -> Result<(), FolderError> {
    std::fs::copy(from, to).map(drop).map_err(|error| FolderError::file(from, error))
}

/// Copies a folder with its subfolders; nothing if it does not exist.
fn copy_tree(from: &Path, to: &Path) -> Result<(), FolderError> {
    let failed = |error| FolderError::file(from, error);
    if !from.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(to).map_err(failed)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let (path, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).map_err(failed)?;
        if path.is_dir() { copy_tree(&path, &to)? } else { copy(&path, &to)? }
    }
    Ok(())
}
