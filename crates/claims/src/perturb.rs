//! Sensitivity of verdicts to each free constant.
//!
//! Results have variants `perturb:NAME:+20` and `perturb:NAME:-20` for a constant changed by 20 %. A constant that affects rows of a single
//! figure is suspect: it may have been chosen for that figure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::lab::{Assessment, Lab, Scope};
use super::results::DEFAULT;
use super::verdict::Verdict;

/// Sensitivity to a constant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The constant.
    pub constant: String,
    /// Number of compared rows.
    pub compared: usize,
    /// Rows whose verdict changes.
    pub changes: Vec<Change>,
    /// Whether they are all of one figure.
    pub suspect: bool,
}

/// A verdict that changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The claim.
    pub id: String,
    /// Its paper and figure.
    pub figure: String,
    /// The change of the constant, for example `+20`.
    pub by: String,
    /// The verdict before.
    pub from: Verdict,
    /// The verdict after.
    pub to: Verdict,
}

/// The sensitivity to each constant.
#[must_use]
pub fn sensitivities(lab: &Lab<'_>) -> Vec<Sensitivity> {
    let base = assess(lab, DEFAULT);
    let mut by_constant: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for variant in lab.store.variants("perturb:", None) {
        let Some((constant, by)) = variant.trim_start_matches("perturb:").rsplit_once(':') else { continue };
        by_constant.entry(constant).or_default().push((by, variant));
    }
    by_constant.into_iter().map(|(constant, moves)| compare(lab, &base, constant, &moves)).collect()
}

fn compare(lab: &Lab<'_>, base: &BTreeMap<String, Assessment>, constant: &str, moves: &[(&str, &str)]) -> Sensitivity {
    let mut compared = BTreeSet::new();
    let mut changed = Vec::new();
    for (by, variant) in moves {
        let after = assess(lab, variant);
        compared.extend(after.keys().filter(|id| base.contains_key(*id)).cloned());
        changed.extend(changes(base, &after, by));
    }
    let figures: BTreeSet<&str> = changed.iter().map(|change| change.figure.as_str()).collect();
    let suspect = figures.len() == 1;
    Sensitivity { constant: constant.to_owned(), compared: compared.len(), suspect, changes: changed }
}

/// The verdicts that change from one set of results to another.
pub(super) fn changes(
    base: &BTreeMap<String, Assessment>,
    after: &BTreeMap<String, Assessment>,
    by: &str,
) -> Vec<Change> {
    let changed = |(id, after): (&String, &Assessment)| {
        let before = base.get(id).filter(|before| before.verdict != after.verdict)?;
        let figure = format!("{} {}", after.seed, after.figure);
        Some(Change { id: id.clone(), figure, by: by.to_owned(), from: before.verdict, to: after.verdict })
    };
    after.iter().filter_map(changed).collect()
}

/// Assessments for a single variant, by id, with verdicts before overriding.
pub(super) fn assess(lab: &Lab<'_>, variant: &str) -> BTreeMap<String, Assessment> {
    let printed = lab.printed();
    let results = lab.claims.iter().filter(|claim| claim.kind.is_result() && lab.map.rows.contains_key(&claim.id));
    let mut assessed = BTreeMap::new();
    for claim in results {
        let mut row = lab.assess(claim, Scope::Variant(variant), &printed);
        row.verdict = row.otherwise.unwrap_or(row.verdict);
        // inputs do not depend on results
        if row.verdict != Verdict::NoResult && row.given.is_none() {
            assessed.insert(claim.id.clone(), row);
        }
    }
    assessed
}

#[cfg(test)]
mod tests {
    use super::super::claim::tests::claim;
    use super::super::claim::{Claim, Kind, Printed, Relation};
    use super::super::map;
    use super::super::results::tests::store;
    use super::*;

    fn row(id: &str, figure: &str) -> Claim {
        let row = claim(id, Kind::Predict, Some(Relation::Eq), Printed::Number(40.0));
        Claim { place: figure.to_owned(), ..row }
    }

    #[test]
    fn a_constant_that_affects_one_figure_is_suspect() {
        let claims = [row("a", "Fig 3"), row("b", "Fig 4")];
        let one = |id: &str, metric: &str| {
            format!("[[row]]\nid='{id}'\nexperiment='e'\nmetric='{metric}'\npolicy='p'\ncompare='value'\n")
        };
        let map = map::parse(&[("map".to_owned(), one("a", "w") + &one("b", "v"))]).unwrap();
        let store = store(&[
            "e,,default,p,w,W,40,40",
            "e,,default,p,v,W,40,40",
            "e,,perturb:sim.loop_ns:+20,p,w,W,40,40",
            "e,,perturb:sim.loop_ns:+20,p,v,W,50,50",
            "e,,perturb:sim.batch:+20,p,w,W,10,10",
            "e,,perturb:sim.batch:-20,p,v,W,10,10",
            "e,,perturb:sim.idle:-20,p,w,W,41,41",
        ]);
        let (calibrated, nothing) = (BTreeSet::from(["a".to_owned()]), |_: &str| None);
        let lab = Lab {
            claims: &claims,
            map: &map,
            store: &store,
            calibrated: &calibrated,
            file: &nothing,
            parameter: &|_, _| None,
            constants: None,
        };
        let found: Vec<(String, bool, usize, usize)> =
            sensitivities(&lab).into_iter().map(|m| (m.constant, m.suspect, m.compared, m.changes.len())).collect();
        let expected = [
            ("sim.batch".to_owned(), false, 2, 2), // both figures
            ("sim.idle".to_owned(), false, 1, 0),
            ("sim.loop_ns".to_owned(), true, 2, 1),
        ];
        assert_eq!(found, expected);
    }
}
