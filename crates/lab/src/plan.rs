//! The plan of a run: points, their order, and the expected time.
//!
//! A *point* is one combination of knobs, a *repeat* one measurement of it, a *round* one repeat of every point that still needs one. Points
//! are the cartesian product of the knobs; the last knob varies fastest. Each round visits its points once, in a random order that depends
//! only on seed and round: drift (heat, a drive that fills) is spread over all points, and a resumed run has the same order.

use std::collections::BTreeSet;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub mod steps;

use crate::experiment::{Experiment, Loaded};
use crate::shard::Shard;
use pilotlight_workloads::{Point, RunContext, Value};

/// Estimated time to start and end a command, in seconds.
const OVERHEAD_S: f64 = 0.3;

/// A plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Plan {
    /// The experiment's title.
    pub title: String,
    /// Names of the knobs, in order.
    pub knobs: Vec<String>,
    /// The points.
    pub points: Vec<Point>,
    /// Minimum and maximum repeats of each point. They differ with a stop rule.
    pub repeats: (u32, u32),
    /// Seed of the order.
    pub seed: u64,
    /// Hash of the experiment and its points, without title, description and displayed metrics.
    pub hash: String,
    /// Time of one measurement, in seconds: warm-up, duration, cool-down and start.
    pub each_s: f64,
    /// Time of one idle baseline, in seconds: one for each setting of the machine in each round. 0: none.
    pub baseline_s: f64,
    /// Settling time, in seconds.
    pub settle_s: f64,
    /// Whether a device is preconditioned.
    pub preconditions: bool,
    /// Whether the workload prepares data, such as its file.
    pub prepares: bool,
    /// The settings of the machine for each point: equal numbers are equal settings, `None`: no settings.
    pub machine: Vec<Option<usize>>,
    /// Metrics that tables and charts show first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics_first: Vec<String>,
    /// The measurements of a share; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<BTreeSet<Key>>,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Index of the point.
    pub point: usize,
    /// Number of the repeat, from 0.
    pub repeat: u32,
}

impl Plan {
    /// The plan of an experiment.
    #[must_use]
    pub fn new(loaded: &Loaded) -> Self {
        let Loaded { experiment, workload, vary, .. } = loaded;
        let knobs: Vec<(String, Vec<Value>)> = workload.knobs().into_iter().chain(vary.iter().cloned()).collect();
        let points = product(&knobs);
        let repeats = experiment
            .stop
            .as_ref()
            .map_or((experiment.repeats, experiment.repeats), |stop| (stop.at_least, stop.at_most));
        Self {
            title: experiment.title.clone(),
            knobs: knobs.into_iter().map(|(name, _)| name).collect(),
            repeats,
            seed: experiment.seed,
            hash: hash(experiment, &points),
            each_s: each_s(experiment),
            baseline_s: experiment.idle_baseline(true).seconds(),
            settle_s: experiment.settle.seconds(),
            preconditions: experiment.precondition.is_some_and(|spec| spec.format || spec.fill > 0),
            prepares: prepares(loaded),
            machine: machine(loaded, &points),
            metrics_first: experiment.metrics.clone(),
            share: None,
            points,
        }
    }

    /// The plan without idle baselines if no sensor reads energy.
    #[must_use]
    pub fn with_sensors(self, experiment: &Experiment, has_energy: bool) -> Self {
        Self { baseline_s: experiment.idle_baseline(has_energy).seconds(), ..self }
    }

    /// The points of a round for which `wanted` holds, in their order.
    pub fn round(&self, round: u32, wanted: impl Fn(usize) -> bool) -> Vec<usize> {
        let own = |point: &usize| self.has(Key { point: *point, repeat: round }) && wanted(*point);
        order(self.seed, round, self.points.len()).into_iter().filter(own).collect()
    }

    /// Whether a measurement is in the share.
    #[must_use]
    pub fn has(&self, key: Key) -> bool {
        self.share.as_ref().is_none_or(|share| share.contains(&key))
    }

    /// The plan of a share. Measurements are dealt in turn; with a stop rule points are, because it needs all repeats of a point.
    #[must_use]
    pub fn shared(self, shard: Shard) -> Self {
        let (points, rounds) = (self.points.len(), self.repeats.1 as usize);
        let by_rule = self.repeats.0 != self.repeats.1;
        let number = |key: &Key| if by_rule { key.point } else { key.repeat as usize * points + key.point };
        let keys = (0..points).flat_map(|point| (0..rounds as u32).map(move |repeat| Key { point, repeat }));
        let share = keys.filter(|key| shard.has(number(key))).collect();
        Self { share: Some(share), ..self }
    }

    /// Minimum and maximum time, in seconds.
    #[must_use]
    pub fn time_s(&self) -> (f64, f64) {
        let all = |repeats: u32| self.waits(repeats).iter().map(|(_, wait_s)| wait_s + self.each_s).sum();
        (all(self.repeats.0), all(self.repeats.1))
    }

    /// Seed of the tool in a measurement.
    #[must_use]
    pub fn seed_of(&self, key: Key) -> u64 {
        let seed = self.seed ^ ((key.point as u64) << 20) ^ u64::from(key.repeat);
        // 31 bits: tools read seeds as signed or 32-bit numbers.
        SplitMix64::seed_from_u64(seed).next_u64() >> 33
    }
}

/// The knobs of the machine at a point.
#[must_use]
pub fn machine_knobs(point: &Point) -> Point {
    select(point, |name| name.starts_with("machine."))
}

/// The knobs of the workload at a point.
#[must_use]
pub fn workload_knobs(point: &Point) -> Point {
    select(point, |name| !name.starts_with("machine."))
}

fn select(point: &Point, is_kept: fn(&str) -> bool) -> Point {
    point.clone().into_iter().filter(|(name, _)| is_kept(name)).collect()
}

/// Whether the workload prepares data before the first point. Background processes do not count.
fn prepares(loaded: &Loaded) -> bool {
    let folder = std::path::Path::new("results");
    let place = loaded.experiment.target.unchecked(folder);
    let stage = RunContext { scratch: folder.join("scratch"), target: place, ramp_s: 0.0, duration_s: 0.0, seed: 1 };
    loaded.workload.prepare(&stage).is_ok_and(|steps| steps.iter().any(|step| !step.background))
}

/// The settings of the machine for each point, as numbers.
fn machine(loaded: &Loaded, points: &[Point]) -> Vec<Option<usize>> {
    let mut known: Vec<(Point, Option<String>)> = Vec::new();
    let number = |point: &Point| {
        let (setting, mechanism) = (machine_knobs(point), loaded.workload.mechanism(&workload_knobs(point)));
        let sets_mechanism = mechanism.is_some_and(|mechanism| !mechanism.settings().is_empty());
        if loaded.experiment.machine.is_empty() && setting.is_empty() && !sets_mechanism {
            return None;
        }
        let wanted = (setting, mechanism.map(|mechanism| mechanism.to_string()));
        Some(known.iter().position(|other| *other == wanted).unwrap_or_else(|| {
            known.push(wanted);
            known.len() - 1
        }))
    };
    points.iter().map(number).collect()
}

fn each_s(experiment: &Experiment) -> f64 {
    let duration_s = experiment.duration.map_or(0.0, |duration| duration.seconds());
    experiment.warm_up().seconds() + duration_s + experiment.cool_down.seconds() + OVERHEAD_S
}

/// All combinations; the last knob varies fastest.
#[must_use]
pub fn product(knobs: &[(String, Vec<Value>)]) -> Vec<Point> {
    knobs.iter().fold(vec![Point::new()], |points, (name, values)| {
        let with = |point: &Point, value: &Value| {
            let mut point = point.clone();
            point.insert(name.clone(), value.clone());
            point
        };
        points.iter().flat_map(|point| values.iter().map(move |value| with(point, value))).collect()
    })
}

/// A random permutation of the numbers below `count` by seed and round (Fisher-Yates).
#[must_use]
pub fn order(seed: u64, round: u32, count: usize) -> Vec<usize> {
    let mut random = SplitMix64::seed_from_u64(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ u64::from(round));
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        let drawn = (u128::from(random.next_u64()) * (last as u128 + 1)) >> 64;
        order.swap(last, drawn as usize);
    }
    order
}

fn hash(experiment: &Experiment, points: &[Point]) -> String {
    let experiment =
        Experiment { title: String::new(), about: String::new(), metrics: Vec::new(), ..experiment.clone() };
    let text = serde_json::to_string(&(experiment, points)).unwrap_or_default();
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a stop rule is satisfied by the `values` of its metric.
#[must_use]
pub fn enough(values: &[f64], within: f64, at_least: u32, at_most: u32) -> bool {
    if values.len() < at_least as usize {
        return false;
    }
    if values.len() >= at_most as usize {
        return true;
    }
    let estimate = pilotlight_stats::mean::mean(values, pilotlight_stats::CONFIDENCE);
    estimate.is_some_and(|estimate| (estimate.high - estimate.low) / 2.0 <= within * estimate.value.abs())
}

#[cfg(test)]
mod tests;
