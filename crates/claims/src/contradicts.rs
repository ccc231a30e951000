//! Rows that contradict other figures of the same paper, each proven by inequalities of printed figures. A row is accepted only if all of
//! them hold.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::Problem;
use super::formula::{self, FormulaError, Name};

/// A contradiction to the paper's own figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Contradiction {
    /// The derivation in words.
    pub because: String,
    /// `LEFT < RIGHT` or `LEFT > RIGHT`, each side a formula of claims and numbers.
    pub inequalities: Vec<String>,
}

/// An inequality that proves nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum ContradictionError {
    #[error("{0:?} is not written LEFT < RIGHT or LEFT > RIGHT")]
    NoSign(String),
    #[error("{0:?} names no claim")]
    NoClaim(String),
    #[error("{0:?} does not hold: {1}")]
    False(String, String),
    #[error(transparent)]
    Formula(#[from] FormulaError),
}

/// The table `[[contradicts]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    because: String,
    inequality: Inequalities,
}

/// One inequality or several.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an inequality, or a list of them")]
enum Inequalities {
    One(String),
    Several(Vec<String>),
}

pub(super) fn read(raw: Raw) -> Result<Contradiction, Problem> {
    let inequalities = match raw.inequality {
        Inequalities::One(one) => vec![one],
        Inequalities::Several(several) => several,
    };
    if inequalities.is_empty() {
        return Err(("inequality", "there is none".to_owned()));
    }
    if raw.because.split_whitespace().count() < 3 {
        return Err(("because", "explain the derivation in a sentence".to_owned()));
    }
    Ok(Contradiction { because: raw.because, inequalities })
}

impl Contradiction {
    /// Each inequality with both sides evaluated, for the note of a row.
    ///
    /// # Errors
    /// If an inequality is malformed or does not hold.
    pub fn evaluate(&self, printed: &BTreeMap<&str, f64>) -> Result<String, ContradictionError> {
        let each: Vec<String> =
            self.inequalities.iter().map(|text| side_by_side(text, printed)).collect::<Result<_, _>>()?;
        Ok(each.join("; "))
    }
}

/// `395.3 < 412`, if it holds.
fn side_by_side(text: &str, printed: &BTreeMap<&str, f64>) -> Result<String, ContradictionError> {
    let at = text.find(['<', '>']).ok_or_else(|| ContradictionError::NoSign(text.to_owned()))?;
    let (left, sign, right) = (&text[..at], &text[at..=at], &text[at + 1..]);
    if !text.contains('[') {
        return Err(ContradictionError::NoClaim(text.to_owned()));
    }
    let look_up = |name: Name<'_>| match name {
        Name::Claim(id) => printed.get(id).copied(),
        Name::Parameter(_) => None, // ours, not the paper's
    };
    let value = |side: &str| formula::value(side.trim(), &look_up);
    let (left, right) = (value(left)?, value(right)?);
    let holds = if sign == "<" { left < right } else { left > right };
    let sides = format!("{left:.4} {sign} {right:.4}");
    if holds { Ok(sides) } else { Err(ContradictionError::False(text.to_owned(), sides)) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::claim::tests::claim;
    use super::super::claim::{Kind, Printed, Relation};
    use super::super::lab::Lab;
    use super::super::map;
    use super::super::report::Report;
    use super::super::results::tests::store;
    use super::super::verdict::Verdict;
    use super::*;

    fn evaluate(inequality: &str) -> Result<String, String> {
        let text = format!("because = 'idle draws more than that'\ninequality = {inequality}");
        let raw: Raw = toml::from_str(&text).map_err(|error| error.to_string())?;
        let contradiction = read(raw).map_err(|(key, problem)| format!("{key}: {problem}"))?;
        let printed = BTreeMap::from([("idle", 412.0), ("share", 55.2)]);
        contradiction.evaluate(&printed).map_err(|error| error.to_string())
    }

    #[test]
    fn both_sides_are_printed_if_all_inequalities_hold() {
        assert_eq!(evaluate("'716 * [share] / 100 < [idle]'").unwrap(), "395.2320 < 412.0000");
        assert_eq!(evaluate("['[idle] > 411', '[idle] < 413']").unwrap(), "412.0000 > 411.0000; 412.0000 < 413.0000");
    }

    #[test]
    fn false_or_unprinted_inequalities_are_refused() {
        for (inequality, part) in [
            ("'716 * [share] / 100 > [idle]'", "does not hold: 395.2320 > 412.0000"),
            ("'[idle] < 412'", "does not hold"),
            ("['[idle] < 413', '[idle] < 411']", "does not hold"),
            ("'[idle] = 412'", "is not written LEFT < RIGHT"),
            ("'1 < 2'", "names no claim"),
            ("'[load] > 1'", "load is nothing"),
            ("'[idle] > {sandman.z}'", "sandman.z is nothing"),
            ("[]", "inequality: there is none"),
        ] {
            let refused = evaluate(inequality).unwrap_err();
            assert!(refused.contains(part), "{inequality}: {refused}");
        }
    }

    const MAP: &str = "\
[[row]]
id = 'saving'
experiment = 'e'
metric = 'w'
policy = 'sandman'
versus = 'static'
compare = 'reduction %'
[[row]]
id = 'alone'
experiment = 'e'
metric = 'w'
policy = 'sandman'
versus = 'static'
compare = 'reduction %'
[[row]]
id = 'elsewhere'
experiment = 'f'
metric = 'w'
policy = 'sandman'
compare = 'value'
";

    #[test]
    fn contradicted_rows_differ_from_fitted_ones() {
        let contradicts = "[[contradicts]]\nid='ID'\nbecause='idle draws more than that'\ninequality='[saving] < 41'\n";
        let with = |id: &str| {
            let map = map::parse(&[("map".to_owned(), MAP.to_owned() + &contradicts.replace("ID", id))]).unwrap();
            let number = |id: &str| claim(id, Kind::Predict, Some(Relation::Eq), Printed::Number(40.0));
            let claims = ["saving", "alone", "elsewhere", "unmapped"].map(number);
            let store = store(&["e,,default,sandman,w,W,60,61,62", "e,,default,static,w,W,100,101,102"]);
            let nothing = |_: &str| None;
            let calibrated = BTreeSet::from(["saving".to_owned()]);
            let lab = Lab {
                claims: &claims,
                map: &map,
                store: &store,
                calibrated: &calibrated,
                file: &nothing,
                parameter: &|_, _| None,
                constants: None,
            };
            let report = Report::new(&lab, None);
            let row = report.rows.iter().find(|row| row.id == id).unwrap();
            (row.verdict, row.otherwise, row.contradiction.clone().unwrap(), report.overruled)
        };
        let (verdict, otherwise, why, overruled) = with("saving");
        assert_eq!((verdict, otherwise), (Verdict::Contradicts, Some(Verdict::Reproduced)), "fitted as well");
        assert_eq!(why, "idle draws more than that (40.0000 < 41.0000)");
        assert_eq!(overruled[&Verdict::Contradicts][&Verdict::Reproduced], 1);
        let (verdict, otherwise, ..) = with("alone");
        assert_eq!((verdict, otherwise), (Verdict::Contradicts, Some(Verdict::Reproduced)), "not fitted");
        assert_eq!(with("unmapped").0, Verdict::Contradicts);
        assert_eq!(with("elsewhere").0, Verdict::NoResult);
    }
}
