//! Swept parameters of an experiment that change nothing in its results: axes, and settings in which policies of one program differ.

use std::collections::{BTreeMap, BTreeSet};

use pilotlight_stats::inert::{Inert, Measured, inert};
use toml::Value;

use crate::experiment::schema::{Experiment, PolicySpec};
use crate::results::Results;
use crate::variant::DEFAULT;

/// What results call the policy, as a parameter.
const POLICY: &str = "policy";

/// Axes that change nothing, and the settings of policies that do; of the default machine. Without an experiment (of a machine that does its
/// own I/O) what results call the policy is a parameter too.
#[must_use]
pub fn of_results(results: &Results, experiment: Option<&Experiment>) -> Vec<Inert> {
    let all = measured(results);
    let axes: BTreeSet<&String> = all.iter().flat_map(|one| one.at.keys()).filter(|key| *key != POLICY).collect();
    let same_seeds = experiment.is_some();
    let mut found: Vec<Inert> = axes.iter().filter_map(|axis| inert(axis, &all, same_seeds)).collect();
    let Some(experiment) = experiment else {
        found.extend(inert(POLICY, &all, same_seeds));
        return found;
    };
    for swept in swept(&experiment.policies) {
        let labels: BTreeSet<&str> = swept.iter().map(|policy| policy.label.as_str()).collect();
        let of: Vec<Measured> = all.iter().filter(|one| labels.contains(one.at[POLICY].as_str())).cloned().collect();
        let parameter = format!("{} of {}", differing(&swept).join(" and "), swept[0].name);
        found.extend(inert(POLICY, &of, same_seeds).map(|inert| Inert { parameter, ..inert }));
    }
    found
}

/// Runs of the default machine, as settings with their metrics.
fn measured(results: &Results) -> Vec<Measured> {
    let mut all: BTreeMap<(&str, &str), Measured> = BTreeMap::new();
    for (key, run) in results.runs.iter().filter(|(key, _)| key.variant == DEFAULT) {
        let one = all.entry((&key.point, &key.policy)).or_default();
        if one.at.is_empty() {
            let axes = key.point.split(';').filter_map(|pair| pair.split_once('='));
            one.at = axes.map(|(axis, value)| (axis.to_owned(), value.to_owned())).collect();
            one.at.insert(POLICY.to_owned(), key.policy.clone());
        }
        for value in &run.values {
            one.metrics.entry(value.metric.clone()).or_default().push(value.value);
        }
    }
    all.into_values().collect()
}

/// Policies of one program that differ in settings alone, where there are several.
fn swept(policies: &[PolicySpec]) -> Vec<Vec<&PolicySpec>> {
    let mut groups: Vec<Vec<&PolicySpec>> = Vec::new();
    let alike = |a: &PolicySpec, b: &PolicySpec| {
        (&a.name, &a.topology, &a.exact_time, &a.machine) == (&b.name, &b.topology, &b.exact_time, &b.machine)
    };
    for policy in policies {
        match groups.iter_mut().find(|group| alike(group[0], policy)) {
            Some(group) => group.push(policy),
            None => groups.push(vec![policy]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// Keys of settings that are not the same in all.
fn differing(policies: &[&PolicySpec]) -> Vec<String> {
    let keys: BTreeSet<&String> = policies.iter().flat_map(|policy| policy.settings.keys()).collect();
    let values = |key: &str| policies.iter().map(|policy| policy.settings.get(key)).collect::<Vec<Option<&Value>>>();
    let differs = |key: &&&String| values(key).windows(2).any(|pair| pair[0] != pair[1]);
    keys.iter().filter(differs).map(|key| (*key).clone()).collect()
}
