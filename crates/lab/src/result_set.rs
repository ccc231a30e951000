//! A results folder, read for comparisons, advice and reports.

use std::collections::BTreeMap;
use std::path::Path;

use crate::stored::metric::SATURATED;
use crate::stored::values;
use pilotlight_sensors::{Domain, Part};
use serde_json::Value as Json;

use crate::results::environment::Environment;
use crate::results::{Folder, FolderError, Results, simulated};
use crate::sensor_set::SensorSet;

/// The content of a results folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultSet {
    /// Its path.
    pub name: String,
    /// Its results.
    pub results: Results,
    /// Its machine; `None` if not recorded.
    pub environment: Option<Environment>,
    /// Its experiment; `None` if not recorded.
    pub experiment: Option<toml::Table>,
    /// The part of the machine of each domain, by `SENSOR/DOMAIN`; empty if not recorded.
    pub parts: BTreeMap<String, Part>,
}

impl ResultSet {
    /// Reads a results folder, measured or simulated.
    ///
    /// # Errors
    /// If it holds no results or a file is damaged.
    pub fn read(path: &Path) -> Result<Self, FolderError> {
        let folder = Folder::new(path);
        if let Some(values) = committed(&folder)? {
            return Ok(Self {
                name: path.display().to_string(),
                results: simulated::summary(&values),
                environment: Some(simulated::environment(&values.about)),
                experiment: Some(overrides(&values.about)),
                parts: BTreeMap::new(),
            });
        }
        let results = folder.load(&folder.results())?;
        let environment = if folder.environment().exists() { Some(folder.load(&folder.environment())?) } else { None };
        let text = std::fs::read_to_string(folder.experiment()).ok();
        let experiment = text.and_then(|text| text.parse().ok());
        let sensors: SensorSet =
            if folder.sensors().exists() { folder.load(&folder.sensors())? } else { SensorSet::default() };
        let part = |(sensor, domain): (String, Domain)| (format!("{sensor}/{}", domain.name), domain.part);
        let parts = sensors.domains.into_iter().map(part).collect();
        Ok(Self { name: path.display().to_string(), results, environment, experiment, parts })
    }

    /// The experiment as dotted keys with values, without title and description.
    #[must_use]
    pub fn experiment_keys(&self) -> Vec<(String, String)> {
        let table = self.experiment.as_ref().and_then(|table| serde_json::to_value(table).ok());
        let mut flat = flat(&table.unwrap_or_default());
        flat.retain(|(key, _)| key != "title" && key != "about");
        flat
    }

    /// As [`machine`].
    #[must_use]
    pub fn machine(&self) -> Vec<(String, String)> {
        self.environment.as_ref().map(machine).unwrap_or_default()
    }
}

/// The values of a folder without a plan: of a simulated server, or committed results. Unfinished runs of a sweep are left out.
///
/// # Errors
/// If they cannot be read.
pub fn committed(folder: &Folder) -> Result<Option<values::Results>, FolderError> {
    if folder.plan().exists() {
        return Ok(None);
    }
    let Some(results) = values::read_whole(&folder.values())? else { return Ok(None) };
    let is_swept = results.runs.values().any(|run| run.get(SATURATED).is_some());
    Ok(Some(if is_swept { results.finished() } else { results }))
}

/// The experiment's file and its overrides.
fn overrides(about: &values::Provenance) -> toml::Table {
    let mut table = toml::Table::new();
    table.insert("file".into(), about.file.clone().into());
    for (key, value) in &about.overrides.set {
        table.insert(key.clone(), value.clone().into());
    }
    table
}

/// A machine as dotted keys with values, without those that differ between any two runs.
#[must_use]
pub fn machine(environment: &Environment) -> Vec<(String, String)> {
    let mut flat = flat(&serde_json::to_value(environment).unwrap_or_default());
    flat.retain(|(key, _)| !["at_unix_s", "load", "memory_bytes"].iter().any(|own| key.starts_with(own)));
    flat
}

/// All values of a tree with their dotted keys, sorted. Named items of a list have their name as key.
fn flat(tree: &Json) -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk("", tree, &mut found);
    found.sort();
    found
}

fn walk(key: &str, tree: &Json, found: &mut Vec<(String, String)>) {
    let below = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    match tree {
        Json::Object(map) => map.iter().for_each(|(name, value)| walk(&below(name), value, found)),
        Json::Array(items) if items.iter().any(Json::is_object) => {
            for (at, item) in items.iter().enumerate() {
                let name = ["name", "sensor"].iter().find_map(|name| item.get(name)?.as_str());
                walk(&below(name.unwrap_or(&at.to_string())), item, found);
            }
        }
        Json::Null => {}
        Json::String(text) => found.push((key.to_owned(), text.clone())),
        other => found.push((key.to_owned(), other.to_string())),
    }
}

/// Differences between two lists of keys and values: key, first value, second value; "-" if missing.
#[must_use]
pub fn differing(a: &[(String, String)], b: &[(String, String)]) -> Vec<(String, String, String)> {
    let of = |list: &[(String, String)], key: &str| {
        list.iter().find(|(name, _)| name == key).map_or_else(|| "-".to_owned(), |(_, value)| value.clone())
    };
    let mut keys: Vec<&String> = a.iter().chain(b).map(|(key, _)| key).collect();
    keys.sort();
    keys.dedup();
    let both = keys.into_iter().map(|key| (key.clone(), of(a, key), of(b, key)));
    both.filter(|(_, first, second)| first != second).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_flattened_and_compared_by_key() {
        let tree = |governor: &str| serde_json::json!({"frequency": {"governor": governor}, "tools": [{"name": "fio", "version": "3.39"}], "x": null});
        let (a, b) = (flat(&tree("performance")), flat(&tree("powersave")));
        assert_eq!(a[1], ("tools.fio.name".to_owned(), "fio".to_owned()));
        let expected = [("frequency.governor".to_owned(), "performance".to_owned(), "powersave".to_owned())];
        assert_eq!(differing(&a, &b), expected);
        assert_eq!(differing(&a[..1], &[])[0].2, "-");
    }
}
