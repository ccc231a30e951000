//! Current fingerprints of the cells of an experiment, and which results match them.
//!
//! A *cell* is a point, a variant of the machine and a policy. Results store the fingerprint of each cell; a result is *stale* if the current
//! fingerprint of its cell differs. A missing cell was renamed if exactly one new cell has its fingerprint.

use std::collections::BTreeMap;

use toml::Value;

use crate::simulated::experiment::Bench;
use crate::simulated::experiment::schema::PolicySpec;
use crate::simulated::fingerprint::{self, Fingerprint, scenario};
use crate::simulated::variant::{self, Variant};
use crate::stored::values::{Cell, Fingerprints, Results, RunKey};

/// Current cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells(Fingerprints);

/// Results, separated into current and stale ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sorted {
    /// Current results, with current names.
    pub current: Results,
    /// Stale results.
    pub stale: Results,
}

/// Fingerprints of machines, by their changes.
type Machines = BTreeMap<String, Option<Fingerprint>>;

impl Cells {
    /// The cells of an experiment under these variants, without those that cannot be run.
    #[must_use]
    pub fn new(bench: &Bench, variants: &[Variant]) -> Self {
        let (mut cells, mut machines) = (BTreeMap::new(), Machines::new());
        for point in &bench.points {
            for policy in &point.experiment.policies {
                let Ok(inputs) = scenario::of_point(&point.experiment, policy, &bench.drives, &bench.contents) else {
                    continue;
                };
                for variant in variants {
                    let changes = variant.with(&point.changes, policy);
                    let Some(machine) = machine(bench, &changes, &mut machines) else { continue };
                    let fingerprint = fingerprint::digest(&(machine, inputs));
                    let cell = |variant: &str| Cell {
                        point: point.name.clone(),
                        variant: variant.to_owned(),
                        policy: policy.label.clone(),
                    };
                    cells.insert(cell(&variant.name), fingerprint);
                    if variant.name == variant::DEFAULT {
                        cells.insert(cell(variant::ORACLE), fingerprint);
                    }
                }
            }
        }
        Self(cells)
    }

    /// Cells with known fingerprints.
    #[must_use]
    pub fn known(cells: Fingerprints) -> Self {
        Self(cells)
    }

    /// The fingerprint of a cell.
    #[must_use]
    pub fn get(&self, cell: &Cell) -> Option<Fingerprint> {
        self.0.get(cell).copied()
    }

    /// The current name of a cell of results; `None` if it is stale. `all` are the cells of these results.
    fn name_of(&self, cell: &Cell, all: &Fingerprints) -> Option<Cell> {
        let fingerprint = all.get(cell)?;
        if let Some(current) = self.0.get(cell) {
            return (current == fingerprint).then(|| cell.clone());
        }
        let matches = |(name, current): &(&Cell, &Fingerprint)| {
            *current == fingerprint && !all.contains_key(name) && kind(&name.variant) == kind(&cell.variant)
        };
        let found: Vec<&Cell> = self.0.iter().filter(matches).map(|(name, _)| name).collect();
        // two cells may have equal fingerprints, for example a constant of 0 changed by a percentage
        let renamed = |name: &&&Cell| found.len() == 1 || parts(name, cell) == 2;
        let mut renamed = found.iter().filter(renamed);
        renamed.next().filter(|_| renamed.next().is_none()).map(|name| (*name).clone())
    }

    /// The cells of results that are stale, by name.
    #[must_use]
    pub fn stale<'a>(&self, all: &'a Fingerprints) -> Vec<&'a Cell> {
        all.keys().filter(|cell| self.name_of(cell, all).is_none()).collect()
    }

    /// Separates results. Those without fingerprints are stale.
    #[must_use]
    pub fn sort(&self, results: Results) -> Sorted {
        let Results { about, cells, runs } = results;
        let names: BTreeMap<Cell, Cell> =
            cells.keys().filter_map(|cell| Some((cell.clone(), self.name_of(cell, &cells)?))).collect();
        let of = |runs| Results { about: about.clone(), cells: BTreeMap::new(), runs };
        let mut sorted = Sorted { current: of(BTreeMap::new()), stale: of(BTreeMap::new()) };
        for (key, run) in runs {
            let cell = key.cell();
            match names.get(&cell) {
                Some(name) => {
                    let Cell { point, variant, policy } = name.clone();
                    sorted.current.cells.extend(self.get(name).map(|fingerprint| (name.clone(), fingerprint)));
                    sorted.current.runs.insert(RunKey { point, variant, policy, ..key }, run);
                }
                None => {
                    sorted.stale.cells.extend(cells.get(&cell).map(|fingerprint| (cell, *fingerprint)));
                    sorted.stale.runs.insert(key, run);
                }
            }
        }
        sorted
    }

    /// Results with the current fingerprints; `None` if a cell no longer exists. The caller has recomputed a sample of the runs.
    #[must_use]
    pub fn stamp(&self, results: &Results) -> Option<Results> {
        let stamp = |key: &RunKey| Some((key.cell(), self.get(&key.cell())?));
        let cells = results.runs.keys().map(stamp).collect::<Option<_>>()?;
        Some(Results { cells, ..results.clone() })
    }
}

/// Number of equal parts of the names of two cells.
fn parts(a: &Cell, b: &Cell) -> usize {
    [a.point == b.point, a.variant == b.variant, a.policy == b.policy].into_iter().filter(|same| *same).count()
}

/// The prefix of a variant's name.
fn kind(variant: &str) -> &str {
    variant.split(':').next().unwrap_or_default()
}

fn machine(bench: &Bench, changes: &[(String, Value)], known: &mut Machines) -> Option<Fingerprint> {
    *known.entry(format!("{changes:?}")).or_insert_with(|| {
        let machine = bench.machine.machine(changes).ok()?;
        Some(fingerprint::digest(&machine))
    })
}

impl Variant {
    /// Changes of the machine at a point under a policy, in order: variant, point, policy.
    #[must_use]
    pub fn with(&self, point: &[(String, Value)], policy: &PolicySpec) -> Vec<(String, Value)> {
        let by_policy = policy.machine.iter().map(|(key, value)| (key.clone(), value.clone()));
        self.changes.iter().chain(point).cloned().chain(by_policy).collect()
    }
}

#[cfg(test)]
mod tests;
