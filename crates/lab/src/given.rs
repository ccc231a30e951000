//! A folder of results as it is read again, by whoever compares, advises or reports.

use std::collections::BTreeMap;
use std::path::Path;

use pilotlight_results::metric::SATURATED;
use pilotlight_results::values;
use pilotlight_sensors::{Domain, Part};
use serde_json::Value as Json;

use crate::results::environment::Environment;
use crate::results::{Folder, FolderError, Results, simulated};
use crate::run::Senses;

/// What a folder of results says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    /// How people call it: its path.
    pub name: String,
    /// Its figures.
    pub results: Results,
    /// Its machine; `None` if the folder does not hold it.
    pub environment: Option<Environment>,
    /// What was asked; `None` if the folder does not hold it.
    pub experiment: Option<toml::Table>,
    /// The part of the machine of each domain, by sensor and domain; empty if the folder does not hold its sensors.
    pub parts: BTreeMap<String, Part>,
}

impl Given {
    /// Reads a folder of results, measured or simulated.
    ///
    /// # Errors
    /// If it holds no results, or a file in it is damaged.
    pub fn read(path: &Path) -> Result<Self, FolderError> {
        let folder = Folder::new(path);
        if let Some(numbers) = numbers(&folder)? {
            return Ok(Self {
                name: path.display().to_string(),
                results: simulated::summary(&numbers),
                environment: Some(simulated::environment(&numbers.about)),
                experiment: Some(asked(&numbers.about)),
                parts: BTreeMap::new(),
            });
        }
        let results = folder.load(&folder.results())?;
        let environment = if folder.environment().exists() { Some(folder.load(&folder.environment())?) } else { None };
        let text = std::fs::read_to_string(folder.experiment()).ok();
        let experiment = text.and_then(|text| text.parse().ok());
        let senses: Senses =
            if folder.sensors().exists() { folder.load(&folder.sensors())? } else { Senses::default() };
        let part = |(sensor, domain): (String, Domain)| (format!("{sensor}/{}", domain.name), domain.part);
        let parts = senses.domains.into_iter().map(part).collect();
        Ok(Self { name: path.display().to_string(), results, environment, experiment, parts })
    }

    /// What was asked, as one value for each dotted key, without title and description.
    #[must_use]
    pub fn asked(&self) -> Vec<(String, String)> {
        let table = self.experiment.as_ref().and_then(|table| serde_json::to_value(table).ok());
        let mut flat = flat(&table.unwrap_or_default());
        flat.retain(|(key, _)| key != "title" && key != "about");
        flat
    }

    /// The machine, as one value for each dotted key, without what differs from run to run by itself.
    #[must_use]
    pub fn machine(&self) -> Vec<(String, String)> {
        self.environment.as_ref().map(machine).unwrap_or_default()
    }
}

/// The numbers of a folder that holds nothing else: of a simulated server, or what is committed of an experiment. Runs that a sweep has not
/// finished are left out.
///
/// # Errors
/// If they cannot be read.
pub fn numbers(folder: &Folder) -> Result<Option<values::Results>, FolderError> {
    if folder.plan().exists() {
        return Ok(None);
    }
    let Some(results) = values::read_whole(&folder.values())? else { return Ok(None) };
    let is_swept = results.runs.values().any(|run| run.get(SATURATED).is_some());
    Ok(Some(if is_swept { results.finished() } else { results }))
}

/// The experiment's file, and what was set beside it.
fn asked(about: &values::About) -> toml::Table {
    let mut table = toml::Table::new();
    table.insert("file".into(), about.file.clone().into());
    for (key, value) in &about.asked.set {
        table.insert(key.clone(), value.clone().into());
    }
    table
}

/// A machine as one value for each dotted key, without what differs from run to run by itself.
#[must_use]
pub fn machine(environment: &Environment) -> Vec<(String, String)> {
    let mut flat = flat(&serde_json::to_value(environment).unwrap_or_default());
    flat.retain(|(key, _)| !["at_unix_s", "load", "memory_bytes"].iter().any(|own| key.starts_with(own)));
    flat
}

/// Every value of a tree with its dotted key, in the order of keys. Items of a list that have a name go by it.
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

/// What differs between two lists of keys and values: key, first value, second value; "-" where it is not there.
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
    fn trees_become_keys_and_only_differences_are_told() {
        let tree = |governor: &str| serde_json::json!({"frequency": {"governor": governor}, "tools": [{"name": "fio", "version": "3.39"}], "x": null});
        let (a, b) = (flat(&tree("performance")), flat(&tree("powersave")));
        assert_eq!(a[1], ("tools.fio.name".to_owned(), "fio".to_owned()));
        let expected = [("frequency.governor".to_owned(), "performance".to_owned(), "powersave".to_owned())];
        assert_eq!(differing(&a, &b), expected);
        assert_eq!(differing(&a[..1], &[])[0].2, "-");
    }
}
