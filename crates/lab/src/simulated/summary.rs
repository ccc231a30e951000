//! Results as values with intervals: one for each point, policy and metric.
//!
//! Over replications: mean and 95 % interval of the default machine; of events that are counted, such as bursts, the exact interval. A cell with a saturated run has no values at all, only the
//! count of saturated runs: what grows with the length of a run is no average. Over other variants: the hull of their means.

use std::collections::BTreeMap;

use pilotlight_stats::{CONFIDENCE, Estimate, mean};

use crate::simulated::experiment::{Coordinate, Point};
use crate::simulated::metrics::{self, COUNTED, SATURATED};
use crate::simulated::oracle;
use crate::simulated::variant;
use pilotlight_results::values::{Results, Run, RunKey};

/// What came out at a point under a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The point's place on each axis.
    pub coordinates: Vec<Coordinate>,
    /// The point's name.
    pub point: String,
    /// The policy's label.
    pub policy: String,
    /// The metrics, in the order of the file: name, unit, value.
    pub values: Vec<Measured>,
    /// Replications.
    pub runs: usize,
    /// Of them, how many could not keep up.
    pub saturated: usize,
}

/// A metric of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Its name.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Its mean over replications, with its interval; of a saturated cell: nothing.
    pub estimate: Option<Estimate>,
    /// The least and the largest mean over members of the family, the default included, where there are others.
    pub family: Option<(f64, f64)>,
    /// The same over draws of all constants: the values between which 95 % of the draws lie.
    pub drawn: Option<(f64, f64)>,
}

impl Cell {
    /// A metric.
    #[must_use]
    pub fn get(&self, metric: &str) -> Option<&Measured> {
        self.values.iter().find(|value| value.metric == metric)
    }
}

/// Everything there is, by point and policy, in the order of the points and of their policies.
#[must_use]
pub fn summarise(points: &[Point], results: &Results) -> Vec<Cell> {
    let index = Index::new(results);
    let of_point = |point: &Point| -> Vec<Cell> {
        let policies = point.experiment.policies.iter();
        policies.filter_map(|policy| cell(point, &policy.label, &index)).collect()
    };
    points.iter().flat_map(of_point).collect()
}

/// Runs by point and policy, then by variant.
struct Index<'a> {
    runs: BTreeMap<(&'a str, &'a str), BTreeMap<&'a str, Vec<&'a Run>>>,
}

impl<'a> Index<'a> {
    fn new(results: &'a Results) -> Self {
        let mut runs: BTreeMap<_, BTreeMap<_, Vec<_>>> = BTreeMap::new();
        for (RunKey { point, variant, policy, .. }, run) in &results.runs {
            let by_variant = runs.entry((point.as_str(), policy.as_str())).or_default();
            by_variant.entry(variant.as_str()).or_default().push(run);
        }
        Self { runs }
    }
}

fn cell(point: &Point, policy: &str, index: &Index<'_>) -> Option<Cell> {
    let variants = index.runs.get(&(point.name.as_str(), policy))?;
    let runs = variants.get(variant::DEFAULT)?;
    let saturated = runs.iter().filter(|run| run.saturated()).count();
    let bounds = variants.get(oracle::VARIANT).and_then(|runs| runs.first()).into_iter().flat_map(|run| &run.values);
    let bounds = bounds.filter(|value| value.metric != SATURATED).map(|value| Measured {
        metric: value.metric.clone(),
        unit: value.unit.clone(),
        estimate: Some(Estimate::unbounded(value.value, 1)),
        family: None,
        drawn: None,
    });
    let values = runs[0].values.iter().map(|first| {
        let estimate = if saturated == 0 { estimate(runs, &first.metric) } else { None };
        Measured {
            metric: first.metric.clone(),
            unit: first.unit.clone(),
            estimate,
            family: family(variants, &first.metric),
            drawn: drawn(variants, &first.metric),
        }
    });
    Some(Cell {
        coordinates: point.coordinates.clone(),
        point: point.name.clone(),
        policy: policy.to_owned(),
        values: values.chain(bounds).collect(),
        runs: runs.len(),
        saturated,
    })
}

/// Over replications: of events that are counted the exact interval of their share, of all else Student's.
fn estimate(runs: &[&Run], metric: &str) -> Option<Estimate> {
    let [counted, hits, events] = COUNTED;
    let sum = |metric: &str| column(runs, metric).iter().sum::<f64>();
    let share = || metrics::of_events(sum(hits), sum(events));
    let own = || mean::mean(&column(runs, metric), CONFIDENCE);
    if metric == counted { share().or_else(own) } else { own() }
}

fn column(runs: &[&Run], metric: &str) -> Vec<f64> {
    runs.iter().filter_map(|run| run.get(metric)).collect()
}

/// The mean over replications; nothing where a run is saturated.
fn level(runs: &[&Run], metric: &str) -> Option<f64> {
    if runs.iter().any(|run| run.saturated()) { None } else { mean::average(&column(runs, metric)) }
}

fn levels(variants: &BTreeMap<&str, Vec<&Run>>, prefix: &str, metric: &str) -> Vec<f64> {
    let chosen = variants.iter().filter(|(name, _)| name.starts_with(prefix));
    chosen.filter_map(|(_, runs)| level(runs, metric)).collect()
}

fn family(variants: &BTreeMap<&str, Vec<&Run>>, metric: &str) -> Option<(f64, f64)> {
    let members = levels(variants, "family:", metric);
    if members.is_empty() {
        return None;
    }
    let own = variants.get(variant::DEFAULT).and_then(|runs| level(runs, metric));
    let all = members.into_iter().chain(own);
    Some(all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value))))
}

fn drawn(variants: &BTreeMap<&str, Vec<&Run>>, metric: &str) -> Option<(f64, f64)> {
    let mut draws = levels(variants, "lhs:", metric);
    draws.sort_unstable_by(f64::total_cmp);
    let last = draws.len().checked_sub(1)?;
    let at = |share: f64| draws[(share * last as f64).round() as usize];
    Some((at(0.025), at(0.975)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# profile=p hash=h\n# experiment=e question=q\n\
        experiment,point,variant,policy,replication,seed,metric,unit,value\n\
        e,-,default,a,0,1,system_power_w,W,10\ne,-,default,a,0,1,saturated,1,0\n\
        e,-,default,a,1,2,system_power_w,W,14\ne,-,default,a,1,2,saturated,1,0\n\
        e,-,family:f,a,0,1,system_power_w,W,20\ne,-,family:f,a,0,1,saturated,1,0\n\
        e,-,default,b,0,1,system_power_w,W,30\ne,-,default,b,0,1,saturated,1,1\n\
        e,-,default,b,1,2,system_power_w,W,31\ne,-,default,b,1,2,saturated,1,0\n";

    fn points() -> Vec<Point> {
        let text = "name='e'\nfigure=''\ntitle=''\nmachine={profile='p'}\nduration='1s'\nwarm_up='0s'\nrepeats=2\n\
            topology={cores=1,siblings=false,threads=1}\ndrive=[]\npolicy=[{label='a',name='static'},{label='b',name='static'}]";
        crate::simulated::experiment::expand(&text.parse().unwrap(), &[], "e").unwrap()
    }

    fn cell(policy: &str) -> Cell {
        let cells = summarise(&points(), &Results::parse(FILE).unwrap());
        cells.into_iter().find(|cell| cell.policy == policy).unwrap()
    }

    #[test]
    fn replications_are_averaged_and_the_family_is_an_interval() {
        let cell = cell("a");
        let power = cell.get("system_power_w").unwrap();
        let estimate = power.estimate.unwrap();
        // Two values, 10 and 14: s = 2.828, half-width 12.706 x 2.828 / sqrt(2).
        assert!((estimate.value - 12.0).abs() < 1e-9 && (estimate.high - 37.41).abs() < 0.02, "{estimate:?}");
        assert_eq!(power.family, Some((12.0, 20.0)));
        assert_eq!((cell.runs, cell.saturated), (2, 0));
    }

    #[test]
    fn counted_events_have_their_exact_interval() {
        let lines = |metric: &str, values: [u32; 2]| {
            let line = |(at, value)| format!("e,-,default,a,{at},1,{metric},1,{value}\n");
            values.into_iter().enumerate().map(line).collect::<String>()
        };
        let header = "# profile=p hash=h\n# experiment=e question=q\n\
            experiment,point,variant,policy,replication,seed,metric,unit,value\n";
        let rest =
            lines("phases_detected", [5, 5]) + &lines("accuracy_percent", [100, 100]) + &lines("saturated", [0, 0]);
        let accuracy = |phases: &str| {
            let text = format!("{header}{phases}{rest}");
            let cells = summarise(&points(), &Results::parse(&text).unwrap());
            cells[0].get("accuracy_percent").unwrap().estimate.unwrap()
        };
        let all = accuracy(&lines("phases", [5, 5]));
        // 10 of 10: from 0.025^(1/10) on
        assert!((all.low - 69.15).abs() < 0.01 && (all.value, all.high, all.n) == (100.0, 100.0, 10), "{all:?}");
        let of_ticks = accuracy("");
        assert_eq!((of_ticks.low, of_ticks.n), (100.0, 2), "what is not counted has an interval over replications");
    }

    #[test]
    fn what_is_saturated_is_never_averaged() {
        let cell = cell("b");
        assert_eq!((cell.runs, cell.saturated), (2, 1));
        assert!(cell.values.iter().all(|value| value.estimate.is_none()));
    }
}
