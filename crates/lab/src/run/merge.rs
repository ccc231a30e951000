//! Joins folders with shares of a measured experiment. Measurements of different hosts are joined only if the host is a parameter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pilotlight_workloads::{Point, Value};

use super::{power_domains, write};
use crate::plan::{Key, Plan};
use crate::record::Entry;
use crate::result_set::{differing, machine};
use crate::results::environment::Environment;
use crate::results::folder::name_of;
use crate::results::journal::{self, Journal};
use crate::results::summary::point_text;
use crate::results::{Folder, FolderError, Results};
use crate::sensor_set::SensorSet;

/// The host as a parameter.
const HOST: &str = "host";

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
    /// Index of its first point in the joined plan.
    offset: usize,
}

impl Part {
    fn read(path: &Path) -> Result<Self, FolderError> {
        let folder = Folder::new(path);
        Ok(Self {
            plan: folder.load(&folder.plan())?,
            environment: folder.load(&folder.environment())?,
            sensors: folder.load(&folder.sensors())?,
            offset: 0,
            folder,
        })
    }

    fn name(&self) -> String {
        self.folder.root().display().to_string()
    }

    /// The entries of its journal at the points of its host. `seen` has the measurements of parts before it, with their folders.
    fn entries(
        &self,
        plan: &Plan,
        host: Option<&str>,
        seen: &mut BTreeMap<Key, String>,
    ) -> Result<Vec<Entry>, MergeError> {
        let mut entries = Vec::new();
        for entry in journal::entries(&self.folder.journal())? {
            let entry = moved(entry, self.offset, host);
            let key = if let Entry::Run(run) = &entry { Some(run.key) } else { None };
            if let Some((key, first)) = key.and_then(|key| Some((key, seen.insert(key, self.name())?))) {
                return Err(MergeError::Differ {
                    first,
                    second: self.name(),
                    what: format!("both have {}", name(plan, key)),
                });
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// What differs from another part, as text. With `by_host` hosts may differ in everything but the version of this program.
    fn difference(&self, other: &Self, by_host: bool) -> Option<String> {
        if self.plan.hash != other.plan.hash {
            return Some(format!("hash of the experiment {} and {}", self.plan.hash, other.plan.hash));
        }
        let mut machines = differing(&machine(&self.environment), &machine(&other.environment));
        let is_other_host = by_host && self.environment.host != other.environment.host;
        machines.retain(|(key, ..)| !is_other_host || key == "pilotlight");
        let machines: Vec<String> = machines.into_iter().map(|(key, a, b)| format!("{key} {a:?} and {b:?}")).collect();
        if !machines.is_empty() {
            return Some(machines.join("; "));
        }
        let names = |part: &Self| part.sensors.names.join(" ");
        (names(self) != names(other)).then(|| format!("sensors {:?} and {:?}", names(self), names(other)))
    }
}

/// Joins shares into an empty folder, and returns the results. With `by_host` the host is a parameter, and each must have all measurements.
///
/// # Errors
/// If the shares are of different experiments, hosts or versions, measurements are missing, or a file cannot be read or written.
pub fn merge(folders: &[&Path], out: &Path, by_host: bool) -> Result<Results, MergeError> {
    let mut parts = folders.iter().map(|folder| Part::read(folder)).collect::<Result<Vec<Part>, _>>()?;
    let Some(first) = parts.first() else { return Err(MergeError::Missing(Vec::new())) };
    belong_together(&parts, by_host)?;
    let hosts: BTreeSet<String> = parts.iter().map(|part| part.environment.host.clone()).collect();
    let hosts: Vec<String> = hosts.into_iter().collect();
    let (whole, points) = (Plan { share: None, ..first.plan.clone() }, first.plan.points.len());
    let plan = if by_host { with_hosts(&whole, &hosts) } else { whole };
    let (mut entries, mut seen) = (Vec::new(), BTreeMap::new());
    for part in &mut parts {
        let host = hosts.iter().position(|host| by_host && *host == part.environment.host);
        part.offset = host.unwrap_or(0) * points;
        entries.extend(part.entries(&plan, host.map(|host| &hosts[host][..]), &mut seen)?);
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
    Ok(join(&parts, &plan, entries, &hosts.join("+"), out)?)
}

/// Compares each part with those before it.
fn belong_together(parts: &[Part], by_host: bool) -> Result<(), MergeError> {
    for (at, part) in parts.iter().enumerate() {
        let difference = |other: &Part| other.difference(part, by_host).map(|what| (other.name(), what));
        if let Some((first, what)) = parts[..at].iter().find_map(difference) {
            return Err(MergeError::Differ { first, second: part.name(), what });
        }
    }
    Ok(())
}

/// The plan with the host as the first parameter. Its hash differs, so that `--resume` refuses the folder.
fn with_hosts(plan: &Plan, hosts: &[String]) -> Plan {
    let at_host = |host: &String| {
        let with = |point: &Point| {
            let mut point = point.clone();
            point.insert(HOST.to_owned(), Value::Word(host.clone()));
            point
        };
        plan.points.iter().map(with).collect::<Vec<_>>()
    };
    Plan {
        knobs: std::iter::once(HOST.to_owned()).chain(plan.knobs.iter().cloned()).collect(),
        points: hosts.iter().flat_map(at_host).collect(),
        machine: hosts.iter().flat_map(|_| plan.machine.clone()).collect(),
        hash: format!("{}+{}", plan.hash, hosts.join("+")),
        ..plan.clone()
    }
}

/// An entry of the journal at the points of its host.
fn moved(entry: Entry, offset: usize, host: Option<&str>) -> Entry {
    let at = |key: Key| Key { point: key.point + offset, ..key };
    match entry {
        Entry::Run(mut run) => {
            run.key = at(run.key);
            run.knobs.extend(host.map(|host| (HOST.to_owned(), Value::Word(host.to_owned()))));
            Entry::Run(run)
        }
        Entry::Failed { key, why } => Entry::Failed { key: at(key), why },
        Entry::Baseline(baseline) => Entry::Baseline(baseline),
    }
}

/// A measurement as text.
fn name(plan: &Plan, key: Key) -> String {
    format!("point {}, repeat {}", plan.points.get(key.point).map(point_text).unwrap_or_default(), key.repeat)
}

/// Writes the joined folder; the plan is last of the files that describe a run. `host` names all hosts.
fn join(parts: &[Part], plan: &Plan, entries: Vec<Entry>, host: &str, out: &Folder) -> Result<Results, FolderError> {
    let first = &parts[0];
    out.save(&out.environment(), &Environment { host: host.to_owned(), ..first.environment.clone() })?;
    out.save(&out.sensors(), &first.sensors)?;
    copy(&first.folder.experiment(), &out.experiment())?;
    out.save(&out.plan(), plan)?;
    for (at, part) in parts.iter().enumerate() {
        let rename = |name: &str| renamed(name, at, part);
        for (from, to) in [(part.folder.samples(""), out.samples("")), (part.folder.raw(""), out.raw(""))] {
            copy_tree(&from, &to, &rename)?;
        }
    }
    let mut journal = Journal::open(&out.journal())?;
    entries.into_iter().try_for_each(|entry| journal.add(entry))?;
    let domains = power_domains(&first.sensors, first.environment.drive.as_deref());
    let notes = vec![format!("joined from {} shares measured on {host}", parts.len())];
    let results = Results { complete: true, ..Results::new(plan, &journal.finished, &domains, notes) };
    write(out, plan, &results, &journal.finished)?;
    Ok(results)
}

/// The name of a folder of samples in the joined folder: of a measurement its key, of others the number of the share as a prefix.
fn renamed(name: &str, at: usize, part: &Part) -> String {
    let keys =
        (0..part.plan.points.len()).flat_map(|point| (0..part.plan.repeats.1).map(move |repeat| Key { point, repeat }));
    let key = keys.into_iter().find(|key| name_of(*key) == name);
    let own = |key: Key| name_of(Key { point: key.point + part.offset, ..key });
    key.map_or_else(|| format!("share{}-{name}", at + 1), own)
}

fn copy(from: &Path, to: &Path) -> Result<(), FolderError> {
    std::fs::copy(from, to).map(drop).map_err(|error| FolderError::file(from, error))
}

/// Copies a folder with its subfolders under new names; nothing if it does not exist.
fn copy_tree(from: &Path, to: &Path, rename: &dyn Fn(&str) -> String) -> Result<(), FolderError> {
    let failed = |error| FolderError::file(from, error);
    if !from.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(to).map_err(failed)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, to) = (entry.path(), to.join(rename(&entry.file_name().to_string_lossy())));
        if path.is_dir() { copy_tree(&path, &to, &|name| name.to_owned())? } else { copy(&path, &to)? }
    }
    Ok(())
}
