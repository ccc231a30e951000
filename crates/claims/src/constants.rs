//! Widens the intervals of rows by the uncertainty of assumed constants.
//!
//! *Problem.* Draws of all free constants (variants `lhs:N`) are affordable only as short runs, but intervals are of full runs.
//! *Algorithm.* From the short runs, compute how far the middle 95 % of the draws reaches below and above the run with nominal constants
//! ([`Shift`]), and widen the interval of the full runs by that. A statement without a number is undecided if a draw decides it differently
//! from the nominal run. *Property.* An interval only grows, and a verdict only becomes undecided.

use super::lab::{Assessment, Lab};
use super::perturb::assess;
use super::results::DEFAULT;
use super::shift::{Shift, Shifts};
use super::uncertainty::{at_share, drawn};
use super::verdict::Verdict;

/// The shift of each row that has draws.
#[must_use]
pub fn shifts(lab: &Lab<'_>) -> Shifts {
    let base = assess(lab, DEFAULT);
    let of = |(id, rows): (String, Vec<(&str, Assessment)>)| Some((id.clone(), shift(base.get(&id)?, &rows)));
    drawn(lab).into_iter().filter_map(of).collect()
}

fn shift(base: &Assessment, drawn: &[(&str, Assessment)]) -> Shift {
    let drawn = || drawn.iter().map(|(_, row)| row);
    let value = |row: &Assessment| row.ours.map(|ours| ours.value);
    let base_value = value(base).filter(|value| value.is_finite());
    if value(base).is_some() && base_value.is_none() {
        return Shift::default(); // no nominal value
    }
    let by = |row: &Assessment| Some(value(row)? - base_value?); // unbounded for a saturated draw
    let mut by: Vec<f64> = drawn().filter_map(by).collect();
    by.sort_by(f64::total_cmp);
    let holds = |row: &Assessment| row.verdict.is_reproduced();
    let misses = |row: &Assessment| row.verdict == Verdict::Misses;
    Shift {
        draws: drawn().count(),
        below: at_share(&by, 0.025).unwrap_or(0.0).min(0.0),
        above: at_share(&by, 0.975).unwrap_or(0.0).max(0.0),
        reproduced: drawn().any(holds) && !holds(base),
        misses: drawn().any(misses) && !misses(base),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pilotlight_stats::Estimate;

    use super::super::claim::tests::claim;
    use super::super::claim::{Claim, Kind, Printed, Relation};
    use super::super::map;
    use super::super::results::Store;
    use super::super::results::tests::store;
    use super::*;

    const MAP: &str = "[[row]]\nid='w'\nexperiment='e'\nmetric='w'\npolicy='p'\ncompare='value'\n\
                       [[row]]\nid='order'\nexperiment='e'\nmetric='w'\nholds=['p < q']\n";

    fn with_lab<R>(results: &Store, constants: Option<&Shifts>, then: impl FnOnce(&Lab<'_>) -> R) -> R {
        let claims: [Claim; 2] = [
            claim("w", Kind::Predict, Some(Relation::Eq), Printed::Number(100.0)),
            claim("order", Kind::Order, Some(Relation::Order), Printed::Text("p < q".to_owned())),
        ];
        let map = map::parse(&[("map".to_owned(), MAP.to_owned())]).unwrap();
        let calibrated = BTreeSet::new();
        let (file, parameter) = (|_: &str| None, |_: &str, _: &str| None);
        let (map, calibrated) = (&map, &calibrated);
        then(&Lab { claims: &claims, map, store: results, calibrated, file: &file, parameter: &parameter, constants })
    }

    fn verdicts(short: &[&str]) -> (Vec<Verdict>, Estimate) {
        let whole = store(&["e,,default,p,w,W,100,100,100", "e,,default,q,w,W,110,110,110"]);
        let shifts = with_lab(&store(short), None, shifts);
        with_lab(&whole, Some(&shifts), |lab| {
            let rows: Vec<_> =
                lab.claims.iter().map(|claim| lab.assess(claim, crate::lab::Scope::Family, &lab.printed())).collect();
            assert!(rows.iter().all(|row| row.verdict == Verdict::Reproduced), "of what is printed they say nothing");
            let robust = rows.iter().map(|row| row.robust.as_ref());
            let verdicts = robust.map(|robust| robust.map_or(Verdict::Reproduced, |robust| robust.verdict)).collect();
            (verdicts, rows[0].robust.as_ref().map_or(rows[0].ours, |robust| robust.ours).unwrap())
        })
    }

    const SHORT: [&str; 2] = ["e,,default,p,w,W,50,50", "e,,default,q,w,W,60,60"];

    #[test]
    fn the_interval_includes_the_spread_of_the_draws() {
        let drawn =
            ["e,,lhs:1/2,p,w,W,45,45", "e,,lhs:1/2,q,w,W,60,60", "e,,lhs:2/2,p,w,W,52,52", "e,,lhs:2/2,q,w,W,60,60"];
        let (verdicts, ours) = verdicts(&[&SHORT[..], &drawn[..]].concat());
        assert_eq!((ours.low, ours.value, ours.high), (95.0, 100.0, 102.0));
        assert_eq!(verdicts, [Verdict::Reproduced; 2], "it stays within 10 %");
    }

    #[test]
    fn a_draw_with_another_verdict_makes_it_undecided() {
        let drawn = ["e,,lhs:1/1,p,w,W,65,65", "e,,lhs:1/1,q,w,W,60,60"];
        assert_eq!(verdicts(&[&SHORT[..], &drawn[..]].concat()).0, [Verdict::Size, Verdict::Undecided]);
        assert_eq!(verdicts(&SHORT).0, [Verdict::Reproduced; 2], "nothing was drawn");
    }
}
