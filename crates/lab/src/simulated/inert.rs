//! Parameters of an experiment without effect: parameters, and settings in which variants of one policy differ.

use std::collections::{BTreeMap, BTreeSet};

use pilotlight_stats::inert::{Inert, Measured, inert};
use toml::Value;

use crate::simulated::experiment::schema::{Experiment, PolicySpec};
use crate::simulated::variant::DEFAULT;
use crate::stored::values::Results;

/// Name of the policy as a parameter.
const POLICY: &str = "policy";

/// Parameters and settings without effect on the default machine. Without an experiment (hosts with one drive) the policy is a parameter too.
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

/// Runs of the default machine with settings and metrics.
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

/// Policies that differ only in settings.
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

/// Keys of settings with different values.
fn differing(policies: &[&PolicySpec]) -> Vec<String> {
    let keys: BTreeSet<&String> = policies.iter().flat_map(|policy| policy.settings.keys()).collect();
    let values = |key: &str| policies.iter().map(|policy| policy.settings.get(key)).collect::<Vec<Option<&Value>>>();
    let differs = |key: &&&String| values(key).windows(2).any(|pair| pair[0] != pair[1]);
    keys.iter().filter(differs).map(|key| (*key).clone()).collect()
}

#[cfg(test)]
mod tests {
    use pilotlight_stats::inert::Effect;

    use super::*;

    fn policy(text: &str) -> PolicySpec {
        toml::from_str(text).unwrap()
    }

    /// Results with a value for each point, policy and replication of the default machine.
    fn results(value: impl Fn(&str, &str, u32) -> f64, variant: &str) -> Results {
        let head = "experiment,point,variant,policy,replication,seed,metric,unit,value\n";
        let mut text = head.to_owned();
        for point in ["rate=1;size=4", "rate=2;size=4", "rate=1;size=8", "rate=2;size=8"] {
            for policy in ["a", "b", "other"] {
                for replication in 0..2 {
                    let value = value(point, policy, replication);
                    text += &format!("e,{point},{variant},{policy},{replication},1,iops,1/s,{value}\n");
                    text += &format!("e,{point},{variant},{policy},{replication},1,saturated,1,0\n");
                }
            }
        }
        Results::parse(&text).unwrap()
    }

    fn experiment() -> Experiment {
        let text = include_str!("../../../../papers/sandman/fig3.toml");
        let mut experiment: Experiment = pilotlight_input::file::table(text.parse().unwrap(), "fig3.toml").unwrap();
        experiment.policies = vec![
            policy("label = 'a'\nname = 'sandman'\nsettings = { z = 3 }"),
            policy("label = 'b'\nname = 'sandman'\nsettings = { z = 4 }"),
            policy("label = 'other'\nname = 'static'"),
        ];
        experiment
    }

    fn found(results: &Results, experiment: Option<&Experiment>) -> Vec<(String, Vec<String>, Effect)> {
        of_results(results, experiment).into_iter().map(|one| (one.parameter, one.values, one.effect)).collect()
    }

    /// Values that depend on rate, size and policy.
    fn number(point: &str, by: [f64; 2]) -> f64 {
        let [rate, size] = by;
        1.0 + f64::from(u8::from(point.contains("rate=2"))) * rate
            + f64::from(u8::from(point.contains("size=8"))) * size
    }

    #[test]
    fn a_parameter_without_effect_is_found() {
        let by_policy = |policy: &str| if policy == "a" { 10.0 } else { 0.0 };
        let only_rate = results(|point, policy, _| number(point, [1.0, 0.0]) + by_policy(policy), DEFAULT);
        let size = ("size".to_owned(), vec!["4".to_owned(), "8".to_owned()], Effect::Identical);
        assert_eq!(found(&only_rate, Some(&experiment())), [size]);
        let both = results(|point, policy, _| number(point, [1.0, 2.0]) + by_policy(policy), DEFAULT);
        assert_eq!(found(&both, Some(&experiment())), []);
        let of_others = results(|_, _, _| 1.0, "family:x");
        assert_eq!(found(&of_others, Some(&experiment())), [], "only the default machine counts");
    }

    #[test]
    fn a_setting_without_effect_is_found_with_its_policy() {
        let same =
            results(|point, policy, _| number(point, [1.0, 2.0]) + if policy == "other" { 9.0 } else { 0.0 }, DEFAULT);
        let z = ("z of sandman".to_owned(), vec!["a".to_owned(), "b".to_owned()], Effect::Identical);
        assert_eq!(found(&same, Some(&experiment())), [z], "static polling is another program");
        let differ = results(
            |point, policy, _| number(point, [1.0, 2.0]) + f64::from(policy.len() as u32 + u32::from(policy == "a")),
            DEFAULT,
        );
        assert_eq!(found(&differ, Some(&experiment())), []);
    }

    #[test]
    fn without_an_experiment_the_policy_is_a_parameter() {
        let same = results(|point, _, _| number(point, [1.0, 2.0]), DEFAULT);
        let parameters: Vec<String> = found(&same, None).into_iter().map(|(parameter, ..)| parameter).collect();
        assert_eq!(parameters, ["policy"]);
    }
}
