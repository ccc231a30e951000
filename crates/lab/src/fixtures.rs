//! Synthetic results for tests.

use crate::plan;
use crate::result_set::ResultSet;
use crate::results::Results;
use crate::results::summary::{MetricInfo, PointResult, Spread};
use pilotlight_workloads::{Point, Value};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// Normally distributed random numbers.
pub(crate) struct Noise(SplitMix64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normal with mean 0 and deviation 1 (Box-Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().max(1e-300).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// A knob with words as values.
pub(crate) fn knob(name: &str, values: &[&str]) -> (String, Vec<Value>) {
    (name.to_owned(), values.iter().map(|value| Value::Word((*value).to_owned())).collect())
}

/// A knob's value at a point, as text.
pub(crate) fn at(point: &Point, name: &str) -> String {
    point.get(name).map(ToString::to_string).unwrap_or_default()
}

pub(crate) fn metric_info(key: &str, unit: &str) -> MetricInfo {
    MetricInfo { key: key.into(), title: key.replace('_', " "), unit: unit.into(), modelled: false }
}

/// Results over the product of the knobs; `draw` returns the values of the metrics of a repeat.
pub(crate) fn results(
    knobs: &[(String, Vec<Value>)],
    repeats: usize,
    metrics: &[(&str, &str)],
    mut draw: impl FnMut(&Point) -> Vec<f64>,
) -> ResultSet {
    let point = |(at, knobs): (usize, Point)| {
        let rows: Vec<Vec<f64>> = (0..repeats).map(|_| draw(&knobs)).collect();
        let spread = |index: usize| Spread::new(&rows.iter().map(|row| row[index]).collect::<Vec<_>>());
        let values =
            metrics.iter().enumerate().filter_map(|(index, (key, _))| Some(((*key).to_owned(), spread(index)?)));
        PointResult { point: at, values: values.collect(), knobs, repeats, ..PointResult::default() }
    };
    let results = Results {
        title: "synthetic".into(),
        complete: true,
        knobs: knobs.iter().map(|(name, _)| name.clone()).collect(),
        metrics: metrics.iter().map(|(key, unit)| metric_info(key, unit)).collect(),
        points: plan::product(knobs).into_iter().enumerate().map(point).collect(),
        ..Results::default()
    };
    ResultSet { name: "synthetic".into(), results, ..ResultSet::default() }
}
