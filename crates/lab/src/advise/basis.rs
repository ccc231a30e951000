//! What efficiency is counted by: work per joule of what was measured, else of what was modelled; without power work per CPU time; without
//! that speed. Always more is better.

use pilotlight_results::metric;

use super::work::Points;
use crate::given::Given;
use crate::results::summary::PointResult;
use crate::shown::{self, SCOPES};

/// What efficiency is counted by.
pub(super) struct Basis {
    /// In words.
    pub(super) words: String,
    pub(super) modelled: bool,
    pub(super) is_energy: bool,
    how: How,
}

enum How {
    /// A metric as it is.
    Metric(String),
    /// One metric over another, repeat by repeat.
    Over(String, String),
    /// One over a metric.
    Inverse(String),
}

impl Basis {
    /// The value of each repeat; empty where it is not known.
    pub(super) fn values(&self, point: &PointResult) -> Vec<f64> {
        let of = |key: &String| point.values.get(key).map(|spread| spread.values.as_slice()).unwrap_or_default();
        match &self.how {
            How::Metric(key) => of(key).to_vec(),
            How::Inverse(key) => of(key).iter().map(|value| 1.0 / value).collect(),
            How::Over(over, under) if of(over).len() == of(under).len() => {
                of(over).iter().zip(of(under)).map(|(over, under)| over / under).collect()
            }
            How::Over(..) => Vec::new(),
        }
    }
}

/// The first that at least half of the points have.
pub(super) fn choose(given: &Given, work: &Points<'_>, scope: Option<&str>) -> Option<Basis> {
    let has = |basis: &Basis| {
        let with = work.any_size.iter().filter(|point| !basis.values(point).is_empty()).count();
        with > 0 && 2 * with >= work.any_size.iter().filter(|point| point.repeats > 0).count()
    };
    candidates(given, work, scope).into_iter().find(has)
}

fn candidates(given: &Given, work: &Points<'_>, scope: Option<&str>) -> Vec<Basis> {
    let stem = if work.by_bytes { shown::byte_stem(work.family) } else { work.family.to_owned() };
    let rate = metric::rate(&stem);
    let unit = match work.family {
        _ if work.by_bytes => "bytes",
        "io" => "I/Os",
        "transaction" => "transactions",
        _ => "operations",
    };
    let mut found: Vec<Basis> = Vec::new();
    for name in SCOPES.into_iter().filter(|name| scope.is_none_or(|scope| scope == *name)) {
        let Some(about) = shown::find(&given.results, &format!("{stem}_per_j_{name}")) else { continue };
        let how = How::Metric(about.key.clone());
        found.push(Basis { words: about.title.clone(), modelled: about.modelled, is_energy: true, how });
    }
    found.sort_by_key(|basis| basis.modelled);
    let other = |words: String, how| Basis { words, modelled: false, is_energy: false, how };
    let busy = "cpu_busy_cores".to_owned();
    found.push(other(format!("{unit} per second of CPU time, for want of power"), How::Over(rate.clone(), busy)));
    found.push(match work.by_bytes {
        true => other("bytes per second, for want of power and CPU time".into(), How::Metric(rate)),
        false => {
            let latency = metric::latency(work.family, "mean");
            other("mean latency, for want of power and CPU time".into(), How::Inverse(latency))
        }
    });
    found
}
