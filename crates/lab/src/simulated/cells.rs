//! Which values the cells of an experiment have today, and which results are of them.
//!
//! A *cell* is a point, a variant of the machine and a policy. Results name the fingerprint of each cell; those whose cell has another
//! one today are *stale*, and no others. A cell whose name is gone while one new name has its values was renamed.

use std::collections::BTreeMap;

use toml::Value;

use crate::simulated::experiment::Bench;
use crate::simulated::experiment::schema::PolicySpec;
use crate::simulated::fingerprint::{self, Fingerprint, scenario};
use crate::simulated::oracle;
use crate::simulated::variant::{self, Variant};
use pilotlight_results::values::{Cell, Results, RunKey};

/// Today's cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells(BTreeMap<Cell, Fingerprint>);

/// Results by whether they are of today's cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sorted {
    /// Those that are, with today's names.
    pub current: Results,
    /// Those that are not.
    pub stale: Results,
}

/// Fingerprints of machines, by what is changed in them.
type Machines = BTreeMap<String, Option<Fingerprint>>;

impl Cells {
    /// The cells of an experiment under these variants. One that cannot be run is not among them.
    #[must_use]
    pub fn of(bench: &Bench, variants: &[Variant]) -> Self {
        let (mut cells, mut machines) = (BTreeMap::new(), Machines::new());
        for point in &bench.points {
            for policy in &point.experiment.policies {
                let Ok(asked) = scenario::of_point(&point.experiment, policy, &bench.drives, &bench.contents) else {
                    continue;
                };
                for variant in variants {
                    let changes = variant.with(&point.changes, policy);
                    let Some(machine) = machine(bench, &changes, &mut machines) else { continue };
                    let fingerprint = fingerprint::of(&(machine, asked));
                    let cell = |variant: &str| Cell {
                        point: point.name.clone(),
                        variant: variant.to_owned(),
                        policy: policy.label.clone(),
                    };
                    cells.insert(cell(&variant.name), fingerprint);
                    if variant.name == variant::DEFAULT {
                        cells.insert(cell(oracle::VARIANT), fingerprint);
                    }
                }
            }
        }
        Self(cells)
    }

    /// Of names and fingerprints that are known.
    #[must_use]
    pub fn known(cells: BTreeMap<Cell, Fingerprint>) -> Self {
        Self(cells)
    }

    /// The fingerprint of a cell.
    #[must_use]
    pub fn get(&self, cell: &Cell) -> Option<Fingerprint> {
        self.0.get(cell).copied()
    }

    /// The name that a cell of results has today; `None` if it is stale. `there` are all cells of these results.
    fn name_of(&self, cell: &Cell, there: &BTreeMap<Cell, Fingerprint>) -> Option<Cell> {
        let fingerprint = there.get(cell)?;
        if let Some(today) = self.0.get(cell) {
            return (today == fingerprint).then(|| cell.clone());
        }
        let alike = |(name, today): &(&Cell, &Fingerprint)| {
            *today == fingerprint && !there.contains_key(name) && kind(&name.variant) == kind(&cell.variant)
        };
        let found: Vec<&Cell> = self.0.iter().filter(alike).map(|(name, _)| name).collect();
        // two cells may have the same values, such as a constant that is 0 moved by a percentage
        let renamed = |name: &&&Cell| found.len() == 1 || parts(name, cell) == 2;
        let mut renamed = found.iter().filter(renamed);
        renamed.next().filter(|_| renamed.next().is_none()).map(|name| (*name).clone())
    }

    /// The cells of results that are stale, by name.
    #[must_use]
    pub fn stale<'a>(&self, there: &'a BTreeMap<Cell, Fingerprint>) -> Vec<&'a Cell> {
        there.keys().filter(|cell| self.name_of(cell, there).is_none()).collect()
    }

    /// Sorts results. Those without fingerprints, of an earlier version of this program, are stale.
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

    /// Results as if each run had the values of the cell of its name today; `None` if a name is gone. Whoever calls it has computed runs
    /// of them again.
    #[must_use]
    pub fn stamp(&self, results: &Results) -> Option<Results> {
        let stamp = |key: &RunKey| Some((key.cell(), self.get(&key.cell())?));
        let cells = results.runs.keys().map(stamp).collect::<Option<_>>()?;
        Some(Results { cells, ..results.clone() })
    }
}

/// How many parts of a name two cells share.
fn parts(a: &Cell, b: &Cell) -> usize {
    [a.point == b.point, a.variant == b.variant, a.policy == b.policy].into_iter().filter(|same| *same).count()
}

/// What a variant's name begins with.
fn kind(variant: &str) -> &str {
    variant.split(':').next().unwrap_or_default()
}

fn machine(bench: &Bench, changes: &[(String, Value)], known: &mut Machines) -> Option<Fingerprint> {
    *known.entry(format!("{changes:?}")).or_insert_with(|| {
        let machine = bench.machine.machine(changes).ok()?;
        Some(fingerprint::of(&machine))
    })
}

impl Variant {
    /// What is changed in the machine at a point under a policy: by the variant, then by the point, then by the policy.
    #[must_use]
    pub fn with(&self, point: &[(String, Value)], policy: &PolicySpec) -> Vec<(String, Value)> {
        let by_policy = policy.machine.iter().map(|(key, value)| (key.clone(), value.clone()));
        self.changes.iter().chain(point).cloned().chain(by_policy).collect()
    }
}

#[cfg(test)]
mod tests;
