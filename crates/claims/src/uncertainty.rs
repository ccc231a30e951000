//! Sensitivity of results to unpublished constants: draws of all free constants over their ranges.
//!
//! Results have variants `lhs:1/50`, `lhs:2/50`, ... (Latin hypercube), whose constants follow from the calibration of the experiment's
//! machine. Each row gets the middle 95 % of the draws and the constant with the strongest partial rank correlation, marked if it is not
//! significant at 5 % over the number of constants (Bonferroni). A saturated draw counts among the highest.

use std::collections::BTreeMap;
use std::fmt;

use pilotlight_stats::rank;
use serde::Serialize;

use super::check::selections;
use super::claim::Printed;
use super::lab::{Assessment, Lab};
use super::map::Map;
use super::perturb::assess;
use super::verdict::Verdict;

/// Draws of a machine by variant: values by constant.
pub type Draws = BTreeMap<String, BTreeMap<String, f64>>;

/// The spread of a row over the draws.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The claim.
    pub id: String,
    /// Its paper and figure.
    pub figure: String,
    /// The printed value.
    pub paper: Printed,
    /// The unit of numbers.
    pub unit: String,
    /// Draws with results.
    pub draws: usize,
    /// Lower end of the middle 95 %; `None` for orders.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Share of draws in which the row is reproduced.
    pub reproduced: f64,
    /// The most influential constant.
    pub most: Option<Strongest>,
}

/// The constant with the strongest rank correlation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Strongest {
    /// Its key.
    pub constant: String,
    /// The correlation, from -1 to 1.
    pub correlation: f64,
    /// Whether it is not significant.
    pub by_chance: bool,
}

impl fmt::Display for Strongest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { constant, correlation, by_chance } = self;
        match by_chance {
            true => write!(f, "not distinguishable from chance ({constant}, {correlation:+.2})"),
            false => write!(f, "{constant} ({correlation:+.2})"),
        }
    }
}

/// Every result that has draws; `draws` are those of each experiment. A row over experiments of several machines has no influential constant.
#[must_use]
pub fn spreads(lab: &Lab<'_>, draws: &BTreeMap<String, Draws>) -> Vec<Spread> {
    drawn(lab).into_iter().filter_map(|(id, drawn)| spread(&drawn, &draws_of_row(lab.map, draws, &id))).collect()
}

/// The draws of a row's machine; none if its experiments are of several.
fn draws_of_row(map: &Map, draws: &BTreeMap<String, Draws>, id: &str) -> Draws {
    let selections = map.rows.get(id).map(|row| selections(&row.check)).unwrap_or_default();
    let mut machines = selections.iter().map(|of| draws.get(&of.experiment));
    let first = machines.next().flatten();
    first.filter(|first| machines.all(|other| other == Some(first))).cloned().unwrap_or_default()
}

/// Each row in each draw, by id.
pub(super) fn drawn<'a>(lab: &Lab<'a>) -> BTreeMap<String, Vec<(&'a str, Assessment)>> {
    let mut rows: BTreeMap<String, Vec<(&str, Assessment)>> = BTreeMap::new();
    for variant in lab.store.variants("lhs:", None) {
        for (id, row) in assess(lab, variant) {
            rows.entry(id).or_default().push((variant, row));
        }
    }
    rows
}

fn spread(drawn: &[(&str, Assessment)], draws: &Draws) -> Option<Spread> {
    let (_, first) = drawn.first()?;
    let mut values: Vec<f64> = drawn.iter().filter_map(|(_, row)| row.ours.map(|ours| ours.value)).collect();
    let reproduced = drawn.iter().filter(|(_, row)| row.verdict == Verdict::Reproduced).count();
    // for an order: whether it holds
    let of =
        |row: &Assessment| row.ours.map_or(f64::from(u8::from(row.verdict == Verdict::Reproduced)), |ours| ours.value);
    let outputs: Vec<(&str, f64)> = drawn.iter().map(|(variant, row)| (*variant, of(row))).collect();
    values.sort_by(f64::total_cmp);
    Some(Spread {
        id: first.id.clone(),
        figure: format!("{} {}", first.seed, first.figure),
        paper: first.paper.clone(),
        unit: first.unit.clone(),
        draws: drawn.len(),
        low: at_share(&values, 0.025),
        high: at_share(&values, 0.975),
        reproduced: reproduced as f64 / drawn.len() as f64,
        most: strongest(&outputs, draws),
    })
}

/// The quantile `share` of sorted values.
pub(super) fn at_share(sorted: &[f64], share: f64) -> Option<f64> {
    let place = (share * (sorted.len().checked_sub(1)?) as f64).round() as usize;
    sorted.get(place).copied()
}

/// Significance level.
const LEVEL: f64 = 0.05;

/// The constant with the strongest rank correlation: partial if there are enough draws.
fn strongest(outputs: &[(&str, f64)], draws: &Draws) -> Option<Strongest> {
    let known: Vec<(&BTreeMap<String, f64>, f64)> =
        outputs.iter().filter_map(|(variant, value)| Some((draws.get(*variant)?, *value))).collect();
    let names: Vec<&String> = known.first()?.0.keys().collect();
    let column =
        |name: &&String| -> Option<Vec<f64>> { known.iter().map(|(draw, _)| draw.get(*name).copied()).collect() };
    let columns: Vec<Vec<f64>> = names.iter().map(column).collect::<Option<_>>()?;
    let output: Vec<f64> = known.iter().map(|(_, value)| *value).collect();
    let alone = || columns.iter().map(|column| rank::spearman(column, &output).unwrap_or(0.0)).collect();
    let (strengths, others): (Vec<f64>, usize) =
        rank::partial(&columns, &output).map_or_else(|| (alone(), 0), |partial| (partial, names.len() - 1));
    let (name, correlation) = names.iter().zip(strengths).max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()))?;
    let chance = rank::p_value(correlation, output.len(), others).unwrap_or(1.0);
    let by_chance = chance * names.len() as f64 > LEVEL;
    (correlation != 0.0).then(|| Strongest { constant: (*name).clone(), correlation, by_chance })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::claim::tests::claim;
    use super::super::claim::{Kind, Relation};
    use super::super::map;
    use super::super::results::tests::store;
    use super::*;

    #[test]
    fn the_influential_constant_and_the_interval_are_found() {
        let row = claim("a", Kind::Predict, Some(Relation::Eq), Printed::Number(40.0));
        let text = "[[row]]\nid='a'\nexperiment='e'\nmetric='w'\npolicy='p'\ncompare='value'\n";
        let map = map::parse(&[("map".to_owned(), text.to_owned())]).unwrap();
        let lines: Vec<String> = (0..20).map(|i| format!("e,,lhs:{i},p,w,W,{v},{v}", v = 30 + i)).collect();
        let of = |i: i32| {
            [("cause", 100 - i), ("noise", (i * 7) % 20)].map(|(key, value)| (key.to_owned(), f64::from(value)))
        };
        let draws: Draws = (0..20).map(|i| (format!("lhs:{i}"), of(i).into())).collect();
        let store = store(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let lab = Lab {
            claims: &[row],
            map: &map,
            store: &store,
            calibrated: &BTreeSet::new(),
            file: &|_| None,
            parameter: &|_, _| None,
            constants: None,
        };
        let spread = spreads(&lab, &BTreeMap::from([("e".to_owned(), draws.clone())])).pop().unwrap();
        assert_eq!((spread.draws, spread.low, spread.high), (20, Some(30.0), Some(49.0)));
        assert_eq!(spread.reproduced, 7.0 / 20.0); // 37 to 43
        let most = spread.most.unwrap();
        assert!(most.constant == "cause" && most.correlation < -0.9 && !most.by_chance, "{most}");
        let two =
            "[[row]]\nid='a'\nexperiment='e'\nmetric='w'\nholds=['p < q']\nterms={q={experiment='f', policy='p'}}\n";
        let two = map::parse(&[("map".to_owned(), two.to_owned())]).unwrap();
        let of_two = |other: &Draws| {
            let machines = [("e".to_owned(), draws.clone()), ("f".to_owned(), other.clone())];
            draws_of_row(&two, &BTreeMap::from(machines), "a").len()
        };
        let mut other = draws.clone();
        assert_eq!(of_two(&other), 20, "of one machine");
        other.get_mut("lhs:3").unwrap().insert("cause".to_owned(), 7.0);
        assert_eq!(of_two(&other), 0, "of two machines");
    }

    #[test]
    fn a_chance_correlation_is_marked() {
        // 15 columns that have nothing to do with the output, but for the last
        let mut draws = Draws::new();
        let names: Vec<String> = (0..16).map(|draw| format!("lhs:{draw}")).collect();
        for (draw, name) in names.iter().enumerate() {
            let noise = |constant: usize| ((draw * (2 * constant + 3) + constant * constant) % 17) as f64;
            let mut values: BTreeMap<String, f64> = (0..15).map(|at| (format!("noise{at}"), noise(at))).collect();
            values.insert("cause".to_owned(), draw as f64);
            draws.insert(name.clone(), values);
        }
        let outputs_of = |of: &dyn Fn(usize) -> f64| -> Vec<(&str, f64)> {
            names.iter().enumerate().map(|(draw, name)| (name.as_str(), of(draw))).collect()
        };
        let caused = strongest(&outputs_of(&|draw| (draw as f64).powi(3)), &draws).unwrap();
        assert!(caused.constant == "cause" && !caused.by_chance, "{caused}");
        let mixed = [7, 2, 13, 0, 9, 4, 15, 11, 1, 6, 14, 3, 10, 5, 12, 8];
        let chance = strongest(&outputs_of(&|draw| f64::from(mixed[draw])), &draws).unwrap();
        assert!(chance.by_chance && chance.to_string().starts_with("not distinguishable from chance"), "{chance}");
    }
}
