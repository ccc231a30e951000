//! Printed ranges: "11 to 12 %" is one statement with one verdict.
//!
//! # The problem
//! All values of the paper lie in a printed range. The claims have a row for each end (or for one). A single end is a bound that a value far
//! outside the range can meet: 4.9 % is not above 12 %.
//!
//! # Terms
//! An *end* is a claim with the relation `range-lo` or `range-hi`. Its map row names the *other end*: its row, which names this one, or its
//! value if it has no row.
//!
//! # The algorithm
//! The minimum and maximum of our values over all points are compared with the lower and upper end as bounds. Both rows get the worse
//! verdict.
//!
//! # The properties
//! An end without its other end is refused. Two rows form a range only if they have the same quotation and the same selection; a number is
//! an end only if it occurs in the quotation. Both rows always have the same verdict.

use std::fmt;

use pilotlight_stats::Estimate;

use super::claim::{Claim, Relation};
use super::map::{Check, Map};
use super::quantity::{OtherEnd, Quantity};
use super::verdict::{self, Verdict};

/// A printed range.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    low: End,
    high: End,
    /// The id of the other end, where it has a row.
    pub with: Option<String>,
}

/// An end, and the value of a trivial policy.
#[derive(Clone, Copy, Debug, PartialEq)]
struct End {
    paper: f64,
    null: Option<f64>,
}

impl Range {
    /// The range of a claim; `None` if the claim is not an end.
    ///
    /// # Errors
    /// If its other end is missing or not printed in the paper.
    pub fn of(claim: &Claim, quantity: &Quantity, claims: &[Claim], map: &Map) -> Result<Option<Self>, String> {
        let opposite = match claim.relation {
            Some(Relation::RangeLo) => Relation::RangeHi,
            Some(Relation::RangeHi) => Relation::RangeLo,
            _ if quantity.range.is_some() => {
                return Err("range does not go with a claim that is no end of one".to_owned());
            }
            _ => return Ok(None),
        };
        let own = End { paper: claim.value.number().ok_or("the end of a range is no number")?, null: claim.null };
        let said = quantity.range.as_ref().ok_or("the claim is one end of a printed range; say range = the other")?;
        let is_end =
            |other: &Claim| other.relation == Some(opposite) && other.unit == claim.unit && other.quote == claim.quote;
        let (other, with) = match said {
            OtherEnd::Row(id) => {
                let other = claims.iter().find(|other| other.id == *id && is_end(other));
                let other = other.ok_or_else(|| format!("{id} is not printed as the other end of the same range"))?;
                if !is_mapped_alike(&claim.id, quantity, id, map) {
                    return Err(format!("{id} is not looked up in the same place, with range = {:?}", claim.id));
                }
                let paper = other.value.number().ok_or("the other end of a range is no number")?;
                (End { paper, null: other.null.or(claim.null) }, Some(id.clone()))
            }
            OtherEnd::Printed(value) => {
                if let Some(row) = claims.iter().find(|other| is_end(other)) {
                    return Err(format!("the other end has a row: say range = {:?}", row.id));
                }
                if !numbers(&claim.quote).any(|number| number == *value) {
                    return Err(format!("{value} is not in the paper's words: {:?}", claim.quote));
                }
                (End { paper: *value, null: claim.null }, None)
            }
        };
        let (low, high) = if opposite == Relation::RangeHi { (own, other) } else { (other, own) };
        if low.paper > high.paper {
            return Err(format!("{} to {} is no range", low.paper, high.paper));
        }
        Ok(Some(Self { low, high, with }))
    }

    /// The best and worst verdict for the intervals of our minimum and maximum.
    #[must_use]
    pub fn grades(&self, lowest: Estimate, highest: Estimate) -> (Verdict, Verdict) {
        let grades = |relation, end: End, ours| verdict::grades(relation, end.paper, end.null, ours);
        let low = grades(Relation::RangeLo, self.low, lowest);
        let high = grades(Relation::RangeHi, self.high, highest);
        let worse = |(low, high): ((Verdict, Verdict), (Verdict, Verdict))| (low.0.max(high.0), low.1.max(high.1));
        low.zip(high).map_or((Verdict::Reproduced, Verdict::Misses), worse)
    }

    /// The larger error of both ends, relative to `|paper - null|`.
    #[must_use]
    pub fn error(&self, lowest: f64, highest: f64) -> f64 {
        let error = |relation, end: End, ours| verdict::error(relation, end.paper, end.null, ours).unwrap_or(0.0);
        error(Relation::RangeLo, self.low, lowest).max(error(Relation::RangeHi, self.high, highest))
    }

    /// Whether the value of a trivial policy lies in the range, so that meeting it is no evidence.
    #[must_use]
    pub fn trivial_meets(&self) -> bool {
        let meets = |relation, end: End| verdict::trivial_meets(relation, end.paper, end.null);
        meets(Relation::RangeLo, self.low) && meets(Relation::RangeHi, self.high)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "all of ours within {} to {}", self.low.paper, self.high.paper)?;
        self.with.iter().try_for_each(|id| write!(f, ", one verdict with {id}"))
    }
}

/// Whether the row of the other end names this one, and is otherwise equal.
fn is_mapped_alike(id: &str, quantity: &Quantity, other: &str, map: &Map) -> bool {
    let back = Some(OtherEnd::Row(id.to_owned()));
    let wanted = Check::Quantity(Quantity { range: back, ..quantity.clone() });
    // both ends of a range with alternative policies are in `alternatives`
    [&map.rows, &map.alternatives].iter().any(|rows| rows.get(other).is_some_and(|row| row.check == wanted))
}

/// The numbers in a text.
fn numbers(text: &str) -> impl Iterator<Item = f64> {
    let parts = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    parts.filter_map(|part| part.trim_matches('.').parse().ok())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::claim::tests::claim;
    use super::super::claim::{Kind, Printed};
    use super::super::lab::{Assessment, Lab};
    use super::super::map;
    use super::super::results::tests::store;
    use super::*;

    fn end(id: &str, relation: Relation, value: f64) -> Claim {
        let row = claim(id, Kind::Predict, Some(relation), Printed::Number(value));
        Claim { null: Some(0.0), quote: "draws 11 - 12 W in every case".to_owned(), ..row }
    }

    fn claims() -> [Claim; 2] {
        [end("lo", Relation::RangeLo, 11.0), end("hi", Relation::RangeHi, 12.0)]
    }

    fn row(id: &str, rest: &str) -> String {
        format!("[[row]]\nid='{id}'\nexperiment='e'\nmetric='w'\npolicy='p'\ncompare='value'\n{rest}\n")
    }

    /// What is said of claims whose values are these at two points.
    fn assessed(claims: &[Claim], rows: &str, values: [f64; 2]) -> Vec<Assessment> {
        let map = map::parse(&[("map".to_owned(), rows.to_owned())]).unwrap();
        let line = |(rate, value): (u32, f64)| format!("e,rate={rate},default,p,w,W,{value},{value}");
        let lines = [line((1, values[0])), line((2, values[1]))];
        let (store, calibrated) = (store(&lines.each_ref().map(String::as_str)), BTreeSet::new());
        let lab = Lab {
            claims,
            map: &map,
            store: &store,
            calibrated: &calibrated,
            file: &|_| None,
            parameter: &|_, _| None,
            constants: None,
        };
        lab.assess_all()
    }

    fn both(values: [f64; 2]) -> Vec<Assessment> {
        assessed(&claims(), &(row("lo", "range='hi'") + &row("hi", "range='lo'")), values)
    }

    #[test]
    fn both_ends_get_the_verdict_of_the_range() {
        for (values, expected) in [
            ([11.0, 12.0], Verdict::Reproduced),
            ([11.4, 11.5], Verdict::Reproduced),
            ([10.0, 11.5], Verdict::Near), // the upper end alone would be reproduced
            ([11.5, 13.0], Verdict::Near), // and here the lower
            ([4.9, 4.9], Verdict::Misses),
            ([11.0, 99.0], Verdict::Misses),
            ([4.9, 99.0], Verdict::Misses),
        ] {
            let rows = both(values);
            assert_eq!(rows.iter().map(|row| row.verdict).collect::<Vec<_>>(), [expected; 2], "{values:?}");
            let values_of_rows: Vec<f64> = rows.iter().map(|row| row.ours.unwrap().value).collect();
            assert_eq!(values_of_rows, values, "each row shows its end");
            assert_eq!(rows[0].with.as_deref(), Some("hi"));
            assert_eq!(rows[0].error_percent, rows[1].error_percent);
            assert!(rows[1].note.contains("within 11 to 12, one verdict with lo"), "{}", rows[1].note);
        }
    }

    #[test]
    fn an_end_without_a_row_uses_the_printed_value() {
        let alone = |rest: &str| assessed(&claims()[1..], &row("hi", rest), [4.9, 4.9]).remove(0);
        let judged = alone("range=11");
        assert_eq!((judged.verdict, judged.with), (Verdict::Misses, None));
        assert!((judged.error_percent.unwrap() - 100.0 * 6.1 / 11.0).abs() < 1e-9);
        for (rest, part) in [
            ("", "one end of a printed range"),
            ("range=10", "10 is not in the paper's words"),
            ("range=1", "1 is not in"),
            ("range='lo'", "lo is not printed as the other end"),
        ] {
            let refused = alone(rest);
            assert_eq!(refused.verdict, Verdict::NoResult, "{rest}");
            assert!(refused.note.contains(part), "{rest}: {}", refused.note);
        }
    }

    #[test]
    fn two_rows_are_one_range_only_if_paper_and_map_say_so() {
        let refused = |claims: &[Claim], rows: &str, part: &str| {
            let found = assessed(claims, rows, [11.0, 12.0]).remove(0);
            assert!(found.verdict == Verdict::NoResult && found.note.contains(part), "{part}: {}", found.note);
        };
        let named = row("lo", "range='hi'");
        let back = row("hi", "range='lo'");
        let [lo, hi] = claims();
        let with = |hi: Claim| [lo.clone(), hi];
        refused(&claims(), &(named.clone() + &row("hi", "range=11")), "not looked up in the same place");
        refused(&claims(), &(named.clone() + &row("hi", "range='lo'\npoint='rate=2'")), "not looked up in the same");
        refused(&claims(), &(row("lo", "range=12") + &back), "the other end has a row");
        let rows = named + &back;
        refused(&with(Claim { quote: "11 to 12".to_owned(), ..hi.clone() }), &rows, "hi is not printed");
        refused(&with(Claim { unit: "%".to_owned(), ..hi.clone() }), &rows, "hi is not printed");
        refused(&with(Claim { relation: Some(Relation::Le), ..hi.clone() }), &rows, "hi is not printed");
        refused(&with(Claim { value: Printed::Number(3.0), ..hi }), &rows, "11 to 3 is no range");
        let bound = [Claim { relation: Some(Relation::Ge), ..lo.clone() }];
        refused(&bound, &row("lo", "range=12"), "no end of one");
    }

    #[test]
    fn a_range_with_the_trivial_value_is_no_evidence() {
        let with = |null| {
            let rows = claims().map(|claim| Claim { null: Some(null), ..claim });
            let found = assessed(&rows, &(row("lo", "range='hi'") + &row("hi", "range='lo'")), [11.0, 12.0]);
            [found[0].evidence, found[1].evidence]
        };
        assert_eq!(with(11.5), [false; 2]);
        assert_eq!(with(0.0), [true; 2], "it meets the upper end alone");
        assert_eq!(with(50.0), [true; 2]);
    }

    #[test]
    fn every_mapped_range_has_its_other_end() {
        let text = include_str!("../../../experiments/claims.toml").to_owned();
        let claims = super::super::claim::parse(&[("claims.toml".to_owned(), text)]).unwrap();
        let map = map::parse(&map::of_project()).unwrap();
        let mut ranges = Vec::new();
        for claim in &claims {
            let Some(Check::Quantity(quantity)) = map.rows.get(&claim.id).map(|row| &row.check) else { continue };
            match Range::of(claim, quantity, &claims, &map) {
                Ok(range) => ranges.extend(range.map(|_| claim.id.as_str())),
                Err(error) => panic!("{}: {error}", claim.id),
            }
        }
        assert!(ranges.len() > 3, "{ranges:?}");
    }

    fn interval(low: f64, width: f64) -> Estimate {
        Estimate { value: low + width / 2.0, low, high: low + width, n: 10 }
    }

    proptest! {
        /// A range is reproduced only where each end alone is, and misses where either does.
        #[test]
        fn a_range_is_no_milder_than_either_end(
            ends in prop::array::uniform2(1.0_f64..50.0), null in prop::option::of(-50.0_f64..0.5),
            lowest in -10.0_f64..60.0, spread in 0.0_f64..30.0, width in 0.0_f64..5.0,
        ) {
            let end = |paper| End { paper, null };
            let range = Range { low: end(ends[0].min(ends[1])), high: end(ends[0].max(ends[1])), with: None };
            let (lowest, highest) = (interval(lowest, width), interval(lowest + spread, width));
            let alone = [
                verdict::numeric(Relation::RangeLo, range.low.paper, null, lowest).unwrap(),
                verdict::numeric(Relation::RangeHi, range.high.paper, null, highest).unwrap(),
            ];
            let judged = verdict::between(range.grades(lowest, highest));
            prop_assert_eq!(judged == Verdict::Reproduced, alone == [Verdict::Reproduced; 2]);
            if alone.contains(&Verdict::Misses) {
                prop_assert_eq!(judged, Verdict::Misses);
            }
            if width == 0.0 {
                prop_assert_eq!(judged, alone[0].max(alone[1]));
            }
        }
    }
}
