//! Swept parameters without an effect: the operating point is not where the mechanism acts.
//!
//! Each pair of values of a parameter is compared in each metric, with all other parameters equal. *Identical*: every number of every
//! replication is the same. *Within noise*: no difference is significant at 95 % over all comparisons together (Bonferroni); this needs
//! at least [`MIN_REPLICATIONS`] replications.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::{CONFIDENCE, compare, paired};

/// Fewer replications cannot show a difference.
const MIN_REPLICATIONS: usize = 5;

/// The measurements of one setting of all parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The parameters.
    pub at: BTreeMap<String, String>,
    /// Each metric, by replication.
    pub metrics: BTreeMap<String, Vec<f64>>,
}

/// Size of a parameter's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// All numbers are equal.
    Identical,
    /// No difference is significant.
    WithinNoise,
}

/// A parameter without an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inert {
    /// Its name.
    pub parameter: String,
    /// The compared values.
    pub values: Vec<String>,
    /// The size of its effect.
    pub effect: Effect,
}

impl fmt::Display for Inert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parameter, values, effect } = self;
        let what = match effect {
            Effect::Identical => "changes no metric in any replication",
            Effect::WithinNoise => "changes no metric beyond noise",
        };
        let values = values.join(", ");
        write!(f, "{parameter} ({values}) {what}: the operating point is not where the mechanism acts")
    }
}

/// The parameter, if it has no effect; `None` if it has one, or was not swept with all else equal. With `same_seeds` the i-th
/// replications of two settings use the same random numbers.
#[must_use]
pub fn inert(parameter: &str, measured: &[Measured], same_seeds: bool) -> Option<Inert> {
    let mut groups: BTreeMap<BTreeMap<&str, &str>, Vec<(&str, &Measured)>> = BTreeMap::new();
    for one in measured {
        let Some(value) = one.at.get(parameter) else { continue };
        let others = one.at.iter().filter(|(key, _)| *key != parameter);
        let others = others.map(|(key, value)| (key.as_str(), value.as_str())).collect();
        groups.entry(others).or_default().push((value, one));
    }
    let pairs: Vec<[&Measured; 2]> = groups.values().flat_map(|group| pairs(group)).collect();
    let effect = effect(&pairs, same_seeds)?;
    let mut values: Vec<String> = Vec::new();
    for (value, _) in groups.values().filter(|group| group.len() > 1).flatten() {
        if !values.iter().any(|known| known == value) {
            values.push((*value).to_owned());
        }
    }
    Some(Inert { parameter: parameter.to_owned(), values, effect })
}

fn pairs<'m>(group: &[(&str, &'m Measured)]) -> Vec<[&'m Measured; 2]> {
    let after = |at: usize| group[at + 1..].iter().map(move |(_, other)| [group[at].1, *other]);
    (0..group.len()).flat_map(after).collect()
}

fn effect(pairs: &[[&Measured; 2]], same_seeds: bool) -> Option<Effect> {
    if pairs.is_empty() {
        return None;
    }
    if pairs.iter().all(|[a, b]| a.metrics == b.metrics) {
        return Some(Effect::Identical);
    }
    let comparisons: usize = pairs.iter().map(|[a, _]| a.metrics.len()).sum();
    let confidence = 1.0 - (1.0 - CONFIDENCE) / comparisons.max(1) as f64;
    let alike = |[a, b]: &[&Measured; 2]| {
        let same_metrics = a.metrics.keys().eq(b.metrics.keys());
        let mut both = a.metrics.iter().zip(b.metrics.values());
        same_metrics && both.all(|((_, a), b)| is_noise(a, b, confidence, same_seeds))
    };
    pairs.iter().all(alike).then_some(Effect::WithinNoise)
}

fn is_noise(a: &[f64], b: &[f64], confidence: f64, same_seeds: bool) -> bool {
    if a == b {
        return true;
    }
    if a.len().min(b.len()) < MIN_REPLICATIONS {
        return false;
    }
    let difference = if same_seeds {
        paired::difference(a, b, confidence)
    } else {
        compare::welch(a, b, confidence).map(|comparison| comparison.difference)
    };
    difference.is_some_and(|difference| difference.contains(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(at: &[(&str, &str)], watts: &[f64]) -> Measured {
        let at = at.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let constant = vec![7.0; watts.len()];
        Measured { at, metrics: [("watts".to_owned(), watts.to_vec()), ("iops".to_owned(), constant)].into() }
    }

    fn swept(watts: [[f64; 5]; 2]) -> Vec<Measured> {
        let at = |rate: &'static str, z: usize| {
            let more: Vec<f64> = watts[z].iter().map(|watts| watts + if rate == "low" { 0.0 } else { 9.0 }).collect();
            measured(&[("rate", rate), ("z", ["one", "two"][z])], &more)
        };
        vec![at("low", 0), at("low", 1), at("high", 0), at("high", 1)]
    }

    #[test]
    fn only_parameters_without_effect_are_inert() {
        let same = swept([[1.0, 2.0, 3.0, 4.0, 5.0]; 2]);
        let found = inert("z", &same, true).unwrap();
        assert_eq!(
            (found.effect, found.values.as_slice()),
            (Effect::Identical, ["one".to_owned(), "two".into()].as_slice())
        );
        assert!(found.to_string().contains("z (one, two) changes no metric in any replication: the operating point"));
        assert_eq!(inert("rate", &same, true), None);
        assert_eq!(inert("depth", &same, true), None, "it was not swept");
        let mut once = same;
        once[3].metrics.get_mut("watts").unwrap()[2] += 1e-6;
        assert_eq!(inert("z", &once, true).unwrap().effect, Effect::WithinNoise, "one number of one replication");
        once[3].metrics.remove("iops");
        assert_eq!(inert("z", &once, true), None, "a metric that only one has");
    }

    #[test]
    fn equal_seeds_allow_a_paired_test() {
        let first = [1.0, 2.0, 3.0, 4.0, 5.0];
        let shifted = swept([first, [1.5001, 2.5, 3.4999, 4.5, 5.5]]);
        assert_eq!(inert("z", &shifted, true), None, "the same shift in every replication");
        assert_eq!(inert("z", &shifted, false).unwrap().effect, Effect::WithinNoise);
        let far = swept([first, [101.0, 102.0, 103.0, 104.0, 105.0]]);
        assert_eq!(inert("z", &far, false), None);
    }

    #[test]
    fn few_replications_do_not_prove_the_absence_of_an_effect() {
        let pair = |watts: [f64; 2]| [measured(&[("z", "1")], &[1.0, 2.0]), measured(&[("z", "2")], &watts)];
        assert_eq!(inert("z", &pair([1.0, 2.1]), true), None);
        assert_eq!(inert("z", &pair([1.0, 2.0]), true).unwrap().effect, Effect::Identical);
    }
}
