//! Stale results with the reason: machine, drives, experiment, or parameters of a policy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::simulated::cells::Cells;
use crate::simulated::experiment::{self, Bench, LoadError, Request};
use crate::simulated::host;
use crate::simulated::variant::{self, Choice, Variant};
use crate::stored::folders;
use crate::stored::values::{Cell, Fingerprints, Provenance};

/// Maximum number of cells in a message.
const MAX_LISTED: usize = 5;

/// Results have no current cells.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum NotCurrent {
    #[error("its comment lines name no experiment")]
    NoExperiment,
    #[error("{0} cannot be run now ({1})")]
    Simulated(String, Box<LoadError>),
    #[error("its experiment cannot be run ({0})")]
    Host(Box<dyn std::error::Error>),
}

/// The current experiment of results; `None` if unknown. A moved file is found by the name of the experiment.
///
/// # Errors
/// If it cannot be loaded.
pub fn current_experiment(about: &Provenance, home: &Path) -> Result<Option<Bench>, LoadError> {
    if about.file.is_empty() {
        return Ok(None);
    }
    let request = Request { set: about.overrides.set.clone(), smoke: about.overrides.smoke, repeats: None };
    experiment::load(&file_of(about, home), &request).map(Some)
}

/// The current file of the experiment of results: that in the results, or one of its name if it moved.
#[must_use]
pub fn file_of(about: &Provenance, home: &Path) -> PathBuf {
    let path = home.join(&about.file);
    if path.is_file() { path } else { moved(about, home).unwrap_or(path) }
}

/// The file of an experiment of this name, or of the name of its file in its folder.
fn moved(about: &Provenance, home: &Path) -> Option<PathBuf> {
    let below = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let folders: Vec<PathBuf> = folders::EXPERIMENTS.iter().flat_map(|folder| below(&home.join(folder))).collect();
    let files = folders.iter().filter(|path| path.is_dir()).flat_map(|folder| below(folder));
    let mut files = files.chain(folders.iter().filter(|path| path.is_file()).cloned());
    let named = |path: &PathBuf| {
        let table = std::fs::read_to_string(path).ok().and_then(|text| text.parse::<toml::Table>().ok());
        let own = table.map(|table| table.get("name").and_then(toml::Value::as_str).map(str::to_owned));
        own.is_some_and(|own| own.unwrap_or_else(|| host::name_of(path)) == about.experiment)
    };
    files.find(|path| path.extension().is_some_and(|ending| ending == "toml") && named(path))
}

/// The kinds of variants in results, without those that leave a figure out.
#[must_use]
pub fn choice_of<'n>(names: impl Iterator<Item = &'n str>) -> (Choice, bool) {
    let (mut choice, mut leaves_out) = (Choice::default(), false);
    for name in names {
        let (kind, rest) = name.split_once(':').unwrap_or((name, ""));
        match kind {
            "family" => choice.family = true,
            "perturb" => {
                let percent = || rest.rsplit_once(':')?.1.get(1..)?.parse().ok();
                choice.perturb = choice.perturb.or_else(percent);
            }
            "lhs" => {
                let draws = rest.rsplit_once('/').and_then(|(_, of)| of.parse().ok()).unwrap_or(0);
                choice.draws = choice.draws.max(draws);
            }
            "without" => leaves_out = true,
            _ => {}
        }
    }
    (choice, leaves_out)
}

/// The current variants of the kinds of these names, the default first.
#[must_use]
pub fn variants_of<'n>(bench: &Bench, names: impl Iterator<Item = &'n str>) -> Vec<Variant> {
    let (mut choice, leaves_out) = choice_of(names);
    if leaves_out {
        choice.without.clone_from(&bench.fitted);
    }
    variant::variants(&bench.machine.calibration, &choice).unwrap_or_default()
}

/// The constants of the random draws in results, by variant; none if there are none or the experiment is unknown.
#[must_use]
pub fn draws(about: &Provenance, there: &Fingerprints, home: &Path) -> BTreeMap<String, BTreeMap<String, f64>> {
    let draws = choice_of(there.keys().map(|cell| cell.variant.as_str())).0.draws;
    if draws == 0 {
        return BTreeMap::new();
    }
    let bench = current_experiment(about, home).ok().flatten();
    let choice = Choice { draws, ..Choice::default() };
    let variants = bench.and_then(|bench| variant::variants(&bench.machine.calibration, &choice).ok());
    variant::drawn_constants(&variants.unwrap_or_default())
}

/// The current cells of the experiment of results, including variants in the results.
///
/// # Errors
/// If it cannot be loaded.
pub fn current_cells(about: &Provenance, there: &Fingerprints, home: &Path) -> Result<Cells, NotCurrent> {
    match current_experiment(about, home) {
        Ok(None) => Err(NotCurrent::NoExperiment),
        Ok(Some(bench)) => {
            let variants = variants_of(&bench, there.keys().map(|cell| cell.variant.as_str()));
            Ok(Cells::new(&bench, &variants))
        }
        Err(error) => Err(NotCurrent::Simulated(about.file.clone(), Box::new(error))),
    }
}

/// The reason why results are stale, or the stale cells; `None` if none are. `there` are their cells, `current` the current ones.
#[must_use]
pub fn reason(there: &Fingerprints, current: &Result<Cells, NotCurrent>) -> Option<String> {
    if there.is_empty() {
        return Some("all of it is stale: it has no input values, as results of earlier versions".to_owned());
    }
    match current {
        Err(reason) => Some(format!("all of it is stale: {reason}")),
        Ok(current) => {
            let stale = current.stale(there);
            (!stale.is_empty()).then(|| {
                let (count, of) = (stale.len(), there.len());
                format!("{count} of {of} cells are stale, computed from other values: {}", cell_list(&stale))
            })
        }
    }
}

/// Cells by policy and point, with the number of variants.
fn cell_list(stale: &[&Cell]) -> String {
    let mut places: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for Cell { point, variant, policy } in stale {
        places.entry((policy, point)).or_default().push(variant);
    }
    let place = |((policy, point), variants): (&(&str, &str), &Vec<&str>)| {
        let point = if *point == "-" { String::new() } else { format!(" at {point}") };
        match variants.as_slice() {
            [variant] => format!("{policy}{point} ({variant})"),
            more => format!("{policy}{point} ({} variants)", more.len()),
        }
    };
    let mut words: Vec<String> = places.iter().take(MAX_LISTED).map(place).collect();
    if places.len() > MAX_LISTED {
        words.push(format!("and {} more", places.len() - MAX_LISTED));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests;
