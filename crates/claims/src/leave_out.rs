//! Leave-one-figure-out validation.
//!
//! For each figure: the constants fitted on its rows, and how many of its results are reproduced with and without them. In the variant
//! `without:PAPER/FIGURE` (such as `without:sandman/Table 3`) these constants are at the middle of their ranges. If none was fitted on the
//! figure, or all are at the middle already, nothing changes. Also listed: results of other figures whose verdict changes. For one machine,
//! without the family.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::claim::Claim;
use super::lab::{Assessment, Lab};
use super::perturb::{Change, assess, changes};
use super::report::figure_order;
use super::results::DEFAULT;
use super::verdict::Verdict;
use pilotlight_lab::simulated::calibration::{Calibration, Constant};
use pilotlight_lab::simulated::fitted;
use pilotlight_lab::simulated::variant::WITHOUT;

/// A figure of a paper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    /// The paper.
    pub seed: String,
    /// The figure, table or section.
    pub figure: String,
    /// Number of its compared results.
    pub rows: usize,
    /// Number reproduced (for fitted ones by the verdict before overriding).
    pub reproduced: usize,
    /// Constants fitted on it.
    pub fitted: Vec<String>,
    /// Whether leaving it out changes a constant.
    pub moves: bool,
    /// Number reproduced without it; `None` if not run for all of them.
    pub without: Option<usize>,
    /// Results of other figures whose verdict changes; `None` if none was run.
    pub elsewhere: Option<Vec<Change>>,
}

/// The name of a figure in variants.
fn name(claim: &Claim) -> String {
    fitted::name(&claim.seed, &claim.place)
}

/// Every figure with compared results or fitted constants.
#[must_use]
pub fn table(lab: &Lab<'_>, calibration: &Calibration) -> Vec<LeftOut> {
    let base = assess(lab, DEFAULT);
    let rows = lab.claims.iter().map(|claim| (claim.id.as_str(), claim.seed.as_str(), claim.place.as_str()));
    let fitted = fitted::by_figure(rows, calibration);
    let mut figures: BTreeMap<String, &Claim> = BTreeMap::new();
    for claim in lab.claims.iter().filter(|claim| base.contains_key(&claim.id) || fitted.contains_key(&name(claim))) {
        figures.entry(name(claim)).or_insert(claim);
    }
    let one = |(figure, claim): (&String, &&Claim)| {
        let keys = fitted.get(figure).cloned().unwrap_or_default();
        of_figure(lab, &base, calibration, (figure, claim), keys)
    };
    let mut rows: Vec<LeftOut> = figures.iter().map(one).collect();
    rows.sort_by(|a, b| (&a.seed, figure_order(&a.figure)).cmp(&(&b.seed, figure_order(&b.figure))));
    rows
}

fn of_figure(
    lab: &Lab<'_>,
    base: &BTreeMap<String, Assessment>,
    calibration: &Calibration,
    (figure, claim): (&str, &Claim),
    fitted: Vec<String>,
) -> LeftOut {
    let ids: BTreeSet<&str> =
        lab.claims.iter().filter(|claim| name(claim) == *figure).map(|claim| claim.id.as_str()).collect();
    let own = |rows: &BTreeMap<String, Assessment>| -> (usize, usize) {
        let own = rows.values().filter(|row| ids.contains(row.id.as_str()));
        own.fold((0, 0), |(all, out), row| (all + 1, out + usize::from(row.verdict == Verdict::Reproduced)))
    };
    let (rows, reproduced) = own(base);
    let moves = fitted.iter().filter_map(|key| calibration.constant(key)).any(moved);
    let (without, elsewhere) = if moves {
        let after = assess(lab, &format!("{WITHOUT}{figure}"));
        let elsewhere = changes(base, &after, "without").into_iter().filter(|change| !ids.contains(change.id.as_str()));
        let (run, out) = own(&after);
        ((run == rows).then_some(out), (!after.is_empty()).then(|| elsewhere.collect()))
    } else {
        (Some(reproduced), Some(Vec::new()))
    };
    let (seed, figure) = (claim.seed.clone(), claim.figure());
    LeftOut { seed, figure, rows, reproduced, fitted, moves, without, elsewhere }
}

/// Whether leaving out what a constant was fitted on moves it.
fn moved(constant: &Constant) -> bool {
    constant.middle().is_some_and(|middle| middle != constant.value)
}

#[cfg(test)]
mod tests {
    use super::super::claim::tests::claim;
    use super::super::claim::{Kind, Printed, Relation};
    use super::super::map;
    use super::super::results::tests::store;
    use super::*;

    fn row(id: &str, place: &str) -> Claim {
        Claim { place: place.to_owned(), ..claim(id, Kind::Predict, Some(Relation::Eq), Printed::Number(40.0)) }
    }

    fn calibration() -> Calibration {
        let constant = |key: &str, rest: &str| format!("[[constant]]\nkey='{key}'\nsource='s'\n{rest}\n");
        let text = constant("x", "value=1\nlow=1\nhigh=9\nfitted_on=['a', 'f.csv']")
            + &constant("y", "value=1\nlow=1\nhigh=9\nfitted_on=['a', 'b']")
            + &constant("z", "value=5\nlow=1\nhigh=9\nfitted_on=['e']")
            + &constant("free", "value=1\nfitted_on=[]");
        Calibration::parse(&text).unwrap()
    }

    #[test]
    fn fitted_figures_are_evaluated_without_their_constants() {
        let input = Claim { kind: Kind::Input, ..row("e", "Table 1") };
        let put_in = row("g", "Fig 6");
        let claims = [row("a", "Fig 3"), row("b", "Fig 4"), row("c", "Fig 5"), put_in, input, row("f", "Fig 10")];
        let one =
            |id: &str| format!("[[row]]\nid='{id}'\nexperiment='e'\nmetric='{id}'\npolicy='p'\ncompare='value'\n");
        let formula = "[[row]]\nid='g'\nformula='40'\n"; // the same whatever was run
        let map = map::parse(&[("map".to_owned(), ["a", "b", "c", "f"].map(one).concat() + formula)]).unwrap();
        let store = store(&[
            "e,,default,p,a,W,40,40",
            "e,,default,p,b,W,40,40",
            "e,,default,p,c,W,40,40",
            "e,,default,p,f,W,90,90",
            "e,,without:sandman/Fig 3,p,a,W,90,90",
            "e,,without:sandman/Fig 3,p,c,W,10,10",
            "e,,without:sandman/Fig 3,p,f,W,91,91",
        ]);
        let calibration = calibration();
        let lab = Lab {
            claims: &claims,
            map: &map,
            store: &store,
            calibrated: &calibration.fitted_on(),
            file: &|_| None,
            parameter: &|_, _| None,
            constants: None,
        };
        let rows = table(&lab, &calibration);
        let changed = |row: &LeftOut| -> Option<Vec<String>> {
            row.elsewhere.as_ref().map(|all| all.iter().map(|c| c.id.clone()).collect())
        };
        let summary = |row: &LeftOut| (row.figure.clone(), row.reproduced, row.fitted.len(), row.without, changed(row));
        let found: Vec<_> = rows.iter().map(summary).collect();
        let expected = [
            ("Table 1", 0, 1, Some(0), Some(vec![])), // z is in the middle of its range
            ("Fig 3", 1, 2, Some(0), Some(vec!["c".to_owned()])),
            ("Fig 4", 1, 1, None, None), // not run
            ("Fig 5", 1, 0, Some(1), Some(vec![])),
            ("Fig 10", 0, 0, Some(0), Some(vec![])),
        ];
        assert_eq!(
            found,
            expected.map(|(figure, here, fitted, out, moved)| (figure.to_owned(), here, fitted, out, moved))
        );
        assert!(rows[1].moves && !rows[0].moves);
    }

    #[test]
    fn fitted_figures_have_their_constants() {
        let claims = [row("a", "Fig 3"), row("b", "s5; Fig 3(b)"), row("e", "Table 1")];
        let rows = claims.iter().map(|claim| (claim.id.as_str(), claim.seed.as_str(), claim.place.as_str()));
        let found = fitted::by_figure(rows, &calibration());
        let expected = [("sandman/Fig 3", vec!["x", "y"]), ("sandman/Table 1", vec!["z"])];
        let expected: BTreeMap<String, Vec<String>> =
            expected.map(|(figure, keys)| (figure.to_owned(), keys.into_iter().map(str::to_owned).collect())).into();
        assert_eq!(found, expected);
    }
}
