//! The measure of efficiency: work per joule, measured before modelled; without power, work per CPU time; without that, speed. Higher is
//! better.

use crate::stored::metric;

use super::work::Points;
use crate::displayed::{self, SCOPES};
use crate::result_set::ResultSet;
use crate::results::summary::PointResult;

/// A measure of efficiency.
pub(super) struct Basis {
    /// Its name.
    pub(super) name: String,
    pub(super) modelled: bool,
    /// The scope of a measure of energy; `None` for CPU time or speed.
    pub(super) scope: Option<&'static str>,
    formula: Formula,
}

enum Formula {
    /// A metric.
    Metric(String),
    /// The ratio of two metrics, for each repeat.
    Ratio(String, String),
    /// The reciprocal of a metric.
    Inverse(String),
}

impl Basis {
    /// The value of each repeat; empty if unknown.
    pub(super) fn values(&self, point: &PointResult) -> Vec<f64> {
        let of = |key: &String| point.values.get(key).map(|spread| spread.values.as_slice()).unwrap_or_default();
        match &self.formula {
            Formula::Metric(key) => of(key).to_vec(),
            Formula::Inverse(key) => of(key).iter().map(|value| 1.0 / value).collect(),
            Formula::Ratio(over, under) if of(over).len() == of(under).len() => {
                of(over).iter().zip(of(under)).map(|(over, under)| over / under).collect()
            }
            Formula::Ratio(..) => Vec::new(),
        }
    }
}

/// The first measure that at least half of the points have.
pub(super) fn choose(result_set: &ResultSet, work: &Points<'_>, scope: Option<&str>) -> Option<Basis> {
    let has = |basis: &Basis| {
        let with = work.any_size.iter().filter(|point| !basis.values(point).is_empty()).count();
        with > 0 && 2 * with >= work.any_size.iter().filter(|point| point.repeats > 0).count()
    };
    candidates(result_set, work, scope).into_iter().find(has)
}

fn candidates(result_set: &ResultSet, work: &Points<'_>, scope: Option<&str>) -> Vec<Basis> {
    let stem = if work.by_bytes { displayed::byte_stem(work.family) } else { work.family.to_owned() };
    let rate = metric::rate(&stem);
    let unit = match work.family {
        _ if work.by_bytes => "bytes",
        "io" => "I/Os",
        "transaction" => "transactions",
        _ => "operations",
    };
    let mut found: Vec<Basis> = Vec::new();
    for name in SCOPES.into_iter().filter(|name| scope.is_none_or(|scope| scope == *name)) {
        let Some(about) = result_set.results.find(&format!("{stem}_per_j_{name}")) else { continue };
        let formula = Formula::Metric(about.key.clone());
        found.push(Basis { name: about.title.clone(), modelled: about.modelled, scope: Some(name), formula });
    }
    found.sort_by_key(|basis| basis.modelled);
    let other = |name: String, formula| Basis { name, modelled: false, scope: None, formula };
    let busy = "cpu_busy_cores".to_owned();
    found.push(other(format!("{unit} per second of CPU time (power is unknown)"), Formula::Ratio(rate.clone(), busy)));
    found.push(match work.by_bytes {
        true => other("bytes per second (power and CPU time are unknown)".into(), Formula::Metric(rate)),
        false => {
            let latency = metric::latency(work.family, "mean");
            other("mean latency (power and CPU time are unknown)".into(), Formula::Inverse(latency))
        }
    });
    found
}
