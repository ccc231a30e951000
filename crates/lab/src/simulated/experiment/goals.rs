//! The goals of an experiment: tolerance, power budgets over time, priorities and minimum bandwidth.

use pilotlight_plant::{Goals, Scope, Tolerance};

use super::schema::Experiment;

/// The goals with their start times in ascending order; empty if the experiment has none.
#[must_use]
pub fn goals(experiment: &Experiment) -> Vec<(u64, Goals)> {
    let tolerance_ppm = experiment.tolerance.map(|share| (share.max(0.0) * 1e6).round() as u32);
    let fixed = Goals {
        budget_uw: None,
        tolerances: tolerance_ppm.map(Tolerance::mean_loss).into_iter().collect(),
        priorities: priorities(experiment),
        minimums: experiment.minimums.iter().map(|one| (one.priority, u64::from(one.bytes_per_s.0))).collect(),
    };
    let mut goals: Vec<(u64, Goals)> = budgets(experiment)
        .into_iter()
        .map(|(at_ns, budget_uw)| (at_ns, Goals { budget_uw, ..fixed.clone() }))
        .collect();
    if goals.first().is_none_or(|(at_ns, _)| *at_ns > 0) && fixed != Goals::default() {
        goals.insert(0, (0, fixed));
    }
    goals
}

/// Budgets in microwatts with their start times, in ascending order.
#[must_use]
pub fn budgets(experiment: &Experiment) -> Vec<(u64, Option<u64>)> {
    let uw = |watts: u32| u64::from(watts) * 1_000_000;
    let first = experiment.budget_w.map(|watts| (0, Some(uw(watts))));
    let steps = experiment.budget_steps.iter().map(|step| (step.at.0, step.watts.map(uw)));
    let mut all: Vec<_> = first.into_iter().chain(steps).collect();
    all.sort_by_key(|(at_ns, _)| *at_ns);
    // Of two at the same time the later in the file applies.
    all.reverse();
    all.dedup_by_key(|(at_ns, _)| *at_ns);
    all.reverse();
    all
}

/// Drives are namespaces and connections are hosts, by number.
fn priorities(experiment: &Experiment) -> Vec<(Scope, u8)> {
    let mut all = Vec::new();
    let mut first = 0_u32;
    for drives in &experiment.drives {
        let own = first..first + u32::from(drives.count);
        first = own.end;
        all.extend(
            drives
                .priority
                .into_iter()
                .flat_map(|priority| own.clone().map(move |at| (Scope::Namespace(at), priority))),
        );
    }
    // Connections of a trace come before those of the workload.
    let traced = experiment.trace.as_ref();
    let mut first = traced.map_or(0, |trace| u32::from(trace.client_sets) * u32::from(trace.threads_per_client));
    for group in &experiment.workload {
        let own = first..first + group.connections;
        first = own.end;
        all.extend(
            group.priority.into_iter().flat_map(|priority| own.clone().map(move |at| (Scope::Host(at), priority))),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::experiment::points::expand;
    use pilotlight_input::file as read;

    const BASE: &str = r#"
        name = "t"
        figure = "none"
        title = "a test"
        machine = { profile = "p" }
        duration = "1s"
        warm_up = "100ms"
        repeats = 2
        topology = { cores = 4, siblings = true, threads = 4 }
        policy = [{ label = "a", name = "static" }]
    "#;
    const LOAD: &str = "[[workload]]\nname = 'hosts'\nconnections = 2\ndepth = 8\nrate = 100\nrequest = { kind = 'plain', size = '4KiB' }\n\
                        [[workload]]\nname = 'more'\nconnections = 2\ndepth = 8\nrate = 100\nrequest = { kind = 'plain', size = '4KiB' }\n";
    const DRIVES: &str = "[[drive]]\nprofile = 'd'\ncount = 2\n[[drive]]\nprofile = 'd'\ncount = 1\n";

    fn experiment(top: &str, drives: &str, load: &str) -> Experiment {
        let table = read::parse("t.toml", &format!("{BASE}\n{top}\n{drives}{load}")).unwrap();
        expand(&table, &[], "t.toml").unwrap()[0].experiment.clone()
    }

    #[test]
    fn steps_are_sorted_and_the_last_of_one_time_applies() {
        let top =
            "budget_w = 400\nbudget_steps = [{ at = '20s' }, { at = '10s', watts = 350 }, { at = '0s', watts = 390 }]";
        let experiment = experiment(top, DRIVES, LOAD);
        let second = 1_000_000_000;
        let expected = [(0, Some(390_000_000)), (10 * second, Some(350_000_000)), (20 * second, None)];
        assert_eq!(budgets(&experiment), expected);
        let goals = goals(&experiment);
        assert_eq!(goals.iter().map(|(at_ns, goals)| (*at_ns, goals.budget_uw)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn drives_and_connections_have_consecutive_numbers() {
        let drives = DRIVES.replacen("count = 1", "count = 1\npriority = 3", 1);
        let load = LOAD.replacen("name = 'more'", "name = 'more'\npriority = 2", 1);
        let top = "minimums = [{ priority = 3, bytes_per_s = '20MiB' }]";
        let goals = goals(&experiment(top, &drives, &load));
        assert_eq!(goals.len(), 1);
        let (at_ns, goals) = &goals[0];
        let named = [(Scope::Namespace(2), 3), (Scope::Host(2), 2), (Scope::Host(3), 2)];
        assert_eq!((*at_ns, goals.priorities.as_slice(), goals.minimum(3)), (0, &named[..], 20 << 20));
    }

    #[test]
    fn an_experiment_without_goals_has_none() {
        assert!(goals(&experiment("", DRIVES, LOAD)).is_empty());
    }
}
