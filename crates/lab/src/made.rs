//! For tests: results whose truth is known.

use crate::given::Given;
use crate::plan;
use crate::results::Results;
use crate::results::summary::{About, PointResult, Spread};
use pilotlight_workloads::{Point, Value};

/// Random numbers that follow from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().max(1e-300).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// A knob with words for values.
pub(crate) fn knob(name: &str, values: &[&str]) -> (String, Vec<Value>) {
    (name.to_owned(), values.iter().map(|value| Value::Word((*value).to_owned())).collect())
}

/// A knob's value at a point, as text.
pub(crate) fn at(point: &Point, name: &str) -> String {
    point.get(name).map(ToString::to_string).unwrap_or_default()
}

pub(crate) fn about(key: &str, unit: &str) -> About {
    About { key: key.into(), title: key.replace('_', " "), unit: unit.into(), modelled: false }
}

/// Results over the product of the knobs: `draw` gives each metric's value of a repeat.
pub(crate) fn results(
    knobs: &[(String, Vec<Value>)],
    repeats: usize,
    metrics: &[(&str, &str)],
    mut draw: impl FnMut(&Point) -> Vec<f64>,
) -> Given {
    let point = |(at, knobs): (usize, Point)| {
        let rows: Vec<Vec<f64>> = (0..repeats).map(|_| draw(&knobs)).collect();
        let spread = |index: usize| Spread::of(&rows.iter().map(|row| row[index]).collect::<Vec<_>>());
        let values =
            metrics.iter().enumerate().filter_map(|(index, (key, _))| Some(((*key).to_owned(), spread(index)?)));
        PointResult { point: at, values: values.collect(), knobs, repeats, ..PointResult::default() }
    };
    let results = Results {
        title: "made up".into(),
        complete: true,
        knobs: knobs.iter().map(|(name, _)| name.clone()).collect(),
        metrics: metrics.iter().map(|(key, unit)| about(key, unit)).collect(),
        points: plan::product(knobs).into_iter().enumerate().map(point).collect(),
        ..Results::default()
    };
    Given { name: "made".into(), results, ..Given::default() }
}
