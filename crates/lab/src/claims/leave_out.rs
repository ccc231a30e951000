//! Leave one figure out: what comes out where nothing was fitted on it.
//!
//! For each figure: the constants that were fitted on rows of it, and its rows that come out, with all constants and in the
//! variant `without:FIGURE` (say `without:Fig 11`), for which those constants are fitted on the other figures or, where there is
//! nothing else, stand at the middle of their range. Where no constant was fitted on a figure, leaving it out changes nothing.

use std::collections::BTreeSet;

use serde::Serialize;

use super::assess::{Assessment, Lab};
use super::calibration::Calibration;
use super::perturb::assess;
use super::report::Report;
use super::verdict::Verdict;

/// A figure of a paper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The paper.
    pub seed: String,
    /// The figure, table or section.
    pub figure: String,
    /// Rows with results.
    pub rows: usize,
    /// Those that come out (fitted ones included, with what they would be).
    pub come_out: usize,
    /// Constants that were fitted on it.
    pub fitted: Vec<String>,
    /// Rows that come out without it; `None` if that was not run.
    pub without: Option<usize>,
}

/// Every figure that has results.
#[must_use]
pub fn table(lab: &Lab<'_>, report: &Report, calibration: &Calibration) -> Vec<LeftOut> {
    let figure = |((seed, figure), rows): ((&str, &str), Vec<&Assessment>)| {
        let ids: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let on_it =
            |constant: &&super::calibration::Constant| constant.fitted_on.iter().any(|on| ids.contains(on.as_str()));
        let fitted: Vec<String> = calibration.constants.iter().filter(on_it).map(|c| c.key.clone()).collect();
        let verdicts = || rows.iter().map(|row| row.otherwise.unwrap_or(row.verdict));
        let come_out = verdicts().filter(|verdict| *verdict == Verdict::ComesOut).count();
        let without = if fitted.is_empty() { Some(come_out) } else { without(lab, figure, &ids) };
        let rows = verdicts().filter(|verdict| has_result(*verdict)).count();
        LeftOut { seed: seed.to_owned(), figure: figure.to_owned(), rows, come_out, fitted, without }
    };
    report.by_figure().into_iter().map(figure).filter(|figure| figure.rows > 0).collect()
}

fn has_result(verdict: Verdict) -> bool {
    !matches!(verdict, Verdict::NoResult | Verdict::NotMapped | Verdict::NotModelled)
}

fn without(lab: &Lab<'_>, figure: &str, ids: &BTreeSet<&str>) -> Option<usize> {
    let rows = assess(lab, &format!("without:{figure}"));
    let of_figure = || rows.values().filter(|row| ids.contains(row.id.as_str()));
    let come_out = of_figure().filter(|row| row.verdict == Verdict::ComesOut).count();
    (of_figure().count() > 0).then_some(come_out)
}

#[cfg(test)]
mod tests {
    use super::super::claim::tests::claim;
    use super::super::claim::{Claim, Kind, Printed, Relation};
    use super::super::map;
    use super::super::results::tests::store;
    use super::*;

    #[test]
    fn a_figure_that_was_fitted_on_is_asked_again_without_it() {
        let row = |id: &str, place: &str| Claim {
            place: place.to_owned(),
            ..claim(id, Kind::Predict, Some(Relation::Eq), Printed::Number(40.0))
        };
        let claims = [row("a", "Fig 3"), row("b", "Fig 4"), row("c", "Fig 5"), row("d", "Fig 6")];
        let one =
            |id: &str| format!("[[row]]\nid='{id}'\nexperiment='e'\nmetric='{id}'\npolicy='p'\ncompare='value'\n");
        let map = map::parse(&[("map".to_owned(), ["a", "b", "c", "d"].map(one).concat())]).unwrap();
        let store = store(&[
            "e,,default,p,a,W,40,40",
            "e,,default,p,b,W,40,40",
            "e,,default,p,c,W,40,40",
            "e,,without:Fig 3,p,a,W,90,90",
        ]);
        let text = "[[constant]]\nkey='x'\nfitted_on=['a']\n[[constant]]\nkey='y'\nfitted_on=['a', 'b']\n";
        let calibration = Calibration::parse(text).unwrap();
        let lab = Lab {
            claims: &claims,
            map: &map,
            store: &store,
            calibrated: &calibration.fitted_on(),
            file: &|_| None,
            parameter: &|_, _| None,
        };
        let rows = table(&lab, &Report::new(&lab, None), &calibration);
        let found: Vec<_> = rows.iter().map(|r| (r.figure.as_str(), r.come_out, r.fitted.len(), r.without)).collect();
        assert_eq!(found, [("Fig 3", 1, 2, Some(0)), ("Fig 4", 1, 1, None), ("Fig 5", 1, 0, Some(1))]);
    }
}
