//! Parameters that were varied and change no metric.

use std::collections::BTreeMap;

use pilotlight_stats::inert::{self, Inert, Measured};

use super::knobs::varied;
use crate::results::summary::{PointResult, Results};

/// The varied parameters that change nothing, with their values.
#[must_use]
pub fn inert(results: &Results) -> Vec<Inert> {
    let known = varied(results);
    let measured: Vec<Measured> = results.points.iter().filter(|point| point.repeats > 0).map(measured).collect();
    known.iter().filter_map(|(parameter, _)| inert::inert(parameter, &measured, false)).collect()
}

fn measured(point: &PointResult) -> Measured {
    let at: BTreeMap<String, String> =
        point.knobs.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
    let metrics = point.values.iter().map(|(key, spread)| (key.clone(), spread.values.clone())).collect();
    Measured { at, metrics }
}
