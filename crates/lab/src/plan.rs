//! What is measured, in which order, and how long that takes.
//!
//! *Words.* A *point* is one combination of knobs; a *repeat* is one measurement of it; a *round* is one repeat of every point that
//! still needs one. *Properties.* The points are the cartesian product of the knobs, the last knob varying fastest. Each round
//! visits each of its points once, in an order that follows from the seed and the round alone: so what drifts with time (heat, a drive that
//! fills) is spread over all points, and an interrupted run goes on as it would have gone.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub mod steps;

use crate::experiment::{Experiment, Loaded};
use crate::results::summary::setting;
use crate::run::target;
use pilotlight_workloads::{Point, RunContext, Value};

/// A command needs about so long to start and end, in seconds.
const OVERHEAD_S: f64 = 0.3;

/// What is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Plan {
    /// The experiment's title.
    pub title: String,
    /// Names of the knobs, in order.
    pub knobs: Vec<String>,
    /// Every point.
    pub points: Vec<Point>,
    /// Repeats of each point: at least and at most. They differ where a rule decides.
    pub repeats: (u32, u32),
    /// Decides the order.
    pub seed: u64,
    /// Names what is asked: the experiment without its title and what it shows, and its points.
    pub hash: String,
    /// Time of one measurement, in seconds: ramp, duration, cool-down and what starting takes.
    pub each_s: f64,
    /// Time of one idle baseline, in seconds: one for each setting of the machine in each round. 0 if there are none.
    pub baseline_s: f64,
    /// Wait after filling and changing settings, and before an idle baseline that follows a measurement, in seconds.
    pub settle_s: f64,
    /// Whether a device is formatted or filled before anything else.
    pub preconditions: bool,
    /// Whether the workload prepares something, such as its file.
    pub prepares: bool,
    /// For each point which settings of the machine it needs: equal numbers are equal settings, `None` if nothing is set.
    pub machine: Vec<Option<usize>>,
    /// Metrics that are shown first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub show: Vec<String>,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Index of the point.
    pub point: usize,
    /// Which repeat of it, from 0.
    pub repeat: u32,
}

impl Plan {
    /// Of an experiment.
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
            preconditions: experiment.precondition.is_some_and(|what| what.format || what.fill > 0),
            prepares: prepares(loaded),
            machine: machine(loaded, &points),
            show: experiment.metrics.clone(),
            points,
        }
    }

    /// As it is run with these sensors: without idle baselines if nothing reads energy.
    #[must_use]
    pub fn with_sensors(self, experiment: &Experiment, has_energy: bool) -> Self {
        Self { baseline_s: experiment.idle_baseline(has_energy).seconds(), ..self }
    }

    /// The points of a round, of those for which `wanted` holds, in the order in which they are visited.
    pub fn round(&self, round: u32, wanted: impl Fn(usize) -> bool) -> Vec<usize> {
        order(self.seed, round, self.points.len()).into_iter().filter(|point| wanted(*point)).collect()
    }

    /// How long it takes, in seconds: at least and at most.
    #[must_use]
    pub fn takes_s(&self) -> (f64, f64) {
        let all = |repeats: u32| self.waits(repeats).iter().map(|(_, wait_s)| wait_s + self.each_s).sum();
        (all(self.repeats.0), all(self.repeats.1))
    }

    /// Seed for what a tool draws in a measurement.
    #[must_use]
    pub fn seed_of(&self, key: Key) -> u64 {
        let seed = self.seed ^ ((key.point as u64) << 20) ^ u64::from(key.repeat);
        // Tools read seeds as signed or as 32-bit numbers.
        SplitMix64::seed_from_u64(seed).next_u64() >> 33
    }
}

/// Whether the workload has something to write before the first point; what it only starts in the background does not count.
fn prepares(loaded: &Loaded) -> bool {
    let folder = std::path::Path::new("results");
    let place = target::unchecked(&loaded.experiment.target, folder);
    let stage = RunContext { scratch: folder.join("scratch"), target: place, ramp_s: 0.0, duration_s: 0.0, seed: 1 };
    loaded.workload.prepare(&stage).is_ok_and(|steps| steps.iter().any(|step| !step.background))
}

/// Which settings of the machine each point needs, as numbers.
fn machine(loaded: &Loaded, points: &[Point]) -> Vec<Option<usize>> {
    let mut known: Vec<(Point, Option<String>)> = Vec::new();
    let number = |point: &Point| {
        let (setting, mechanism) = (setting(point), loaded.workload.mechanism(&crate::run::own(point)));
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

/// Every combination; the last knob varies fastest.
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

/// The numbers below `count` in a random order that follows from seed and round (Fisher and Yates).
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

/// Whether a point has been repeated often enough for a rule: `values` are those of its metric so far.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn knob(name: &str, values: &[i64]) -> (String, Vec<Value>) {
        (name.to_owned(), values.iter().map(|&value| Value::Integer(value)).collect())
    }

    #[test]
    fn points_are_the_product_and_the_last_knob_is_fastest() {
        let points = product(&[knob("a", &[1, 2]), knob("b", &[3, 4, 5])]);
        let pairs: Vec<String> = points.iter().map(|point| format!("{}{}", point["a"], point["b"])).collect();
        assert_eq!(pairs, ["13", "14", "15", "23", "24", "25"]);
        assert_eq!(product(&[]), [Point::new()]);
    }

    #[test]
    fn the_rule_looks_at_the_half_width() {
        // mean 100, s = 1, t(2) = 4.3027: half width 2.484
        let values = [99.0, 100.0, 101.0];
        assert!(enough(&values, 0.025, 3, 10));
        assert!(!enough(&values, 0.0248, 3, 10));
        assert!(!enough(&values, 0.5, 4, 10), "at least four");
        assert!(enough(&values, 0.0, 2, 3), "at most three");
        assert!(!enough(&[0.0, 1.0, -1.0], 0.05, 3, 10), "a mean of zero is never narrow");
    }

    /// Who stops when an interval is narrow stops more often when it is so by chance: the interval holds the truth a little less often
    /// than it says. docs/measure.md says by how much.
    #[test]
    fn intervals_after_the_rule_hold_the_truth_in_nine_of_ten_cases_at_least() {
        let mut dice = crate::made::Dice::new(1);
        for (deviation, within) in [(1.0, 0.05), (3.0, 0.02), (5.0, 0.05), (8.0, 0.05)] {
            let holds = (0..4_000).filter(|_| {
                let mut values = Vec::new();
                while !enough(&values, within, 3, 10) {
                    values.push(100.0 + deviation * dice.normal());
                }
                pilotlight_stats::mean::mean(&values, pilotlight_stats::CONFIDENCE).unwrap().contains(100.0)
            });
            let share = holds.count() as f64 / 4_000.0;
            assert!((0.885..0.965).contains(&share), "{deviation} {within}: {share}");
        }
    }

    #[test]
    fn rounds_differ_and_so_do_seeds() {
        assert_ne!(order(1, 0, 20), order(1, 1, 20));
        assert_ne!(order(1, 0, 20), order(2, 0, 20));
    }

    proptest! {
        #[test]
        fn every_round_visits_each_point_once_in_an_order_that_repeats(seed: u64, round in 0..100_u32, count in 0..50_usize) {
            let visited = order(seed, round, count);
            prop_assert_eq!(&visited, &order(seed, round, count));
            let mut sorted = visited;
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..count).collect::<Vec<_>>());
        }
    }

    /// Each point comes first about as often as any other.
    #[test]
    fn orders_favour_nobody() {
        let mut first = [0_u32; 5];
        (0..5_000).for_each(|seed| first[order(seed, 0, 5)[0]] += 1);
        assert!(first.iter().all(|&times| (900..1_100).contains(&times)), "{first:?}");
    }

    fn loaded(text: &str) -> Loaded {
        let text =
            format!("{text}{}", if text.contains("[workload]") || text.contains("workload =") { "" } else { COMMAND });
        let table = pilotlight_input::file::parse("e.toml", &text).unwrap();
        let merged = pilotlight_input::Merged::single("e.toml", table);
        crate::experiment::from_merged(merged, &crate::experiment::Asked::default()).unwrap()
    }

    fn planned(text: &str) -> Plan {
        Plan::new(&loaded(text))
    }

    const COMMAND: &str = "workload = { kind = 'command', argv = ['true'] }\n";

    const TIMES: &str = "title = 't'\nwarm_up = '1s'\nduration = '4s'\ncool_down = '2s'\nidle_baseline = '10s'\nsettle = '0s'\nrepeats = 3\n\
                         target = { nothing = true }\nparameter = [{ key = 'machine.scheduler', values = ['none', 'kyber'] }]\n\
                         workload = { kind = 'command', argv = ['true'], knobs = { a = [1, 2] } }\n";

    #[test]
    fn times_are_those_of_a_calculation_by_hand() {
        // 4 points, 3 times, of 1 + 4 + 2 s and 0.3 s beside it; the idle machine under two settings in each round
        let plan = planned(TIMES);
        let all_s = 4.0 * 3.0 * 7.3 + 3.0 * 20.0;
        assert!(
            (plan.takes_s().0 - all_s).abs() < 1e-9 && plan.takes_s().0 == plan.takes_s().1,
            "{:?}",
            plan.takes_s()
        );
        let ruled = planned(&format!("stop = {{ metric = 'x', within = '5%', at_least = 2, at_most = 5 }}\n{TIMES}"));
        let (least_s, most_s) = ruled.takes_s();
        assert!((least_s - (4.0 * 2.0 * 7.3 + 40.0)).abs() < 1e-9 && (most_s - (4.0 * 5.0 * 7.3 + 100.0)).abs() < 1e-9);
        let without = plan.with_sensors(&loaded("title = 't'\nduration = '4s'\n").experiment, false);
        assert!((without.takes_s().0 - 4.0 * 3.0 * 7.3).abs() < 1e-9, "no idle machine is measured");
    }

    #[test]
    fn titles_do_not_make_another_question_and_times_do() {
        let plan = planned(TIMES);
        let other = planned(&format!("about = 'more'\nmetrics = ['x']\n{}", TIMES.replace("'t'", "'another'")));
        assert_eq!(plan.hash, other.hash);
        assert_ne!(plan.hash, planned(&TIMES.replace("'4s'", "'5s'")).hash);
    }

    #[test]
    fn tools_draw_anew_in_each_measurement_and_alike_in_the_same_one() {
        let plan = planned(TIMES);
        let keys = (0..4).flat_map(|point| (0..3).map(move |repeat| Key { point, repeat }));
        let mut seeds: Vec<u64> = keys.map(|key| plan.seed_of(key)).collect();
        assert_eq!(seeds[5], plan.seed_of(Key { point: 1, repeat: 2 }));
        assert!(seeds.iter().all(|seed| *seed < 1 << 31));
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 12);
    }
}
