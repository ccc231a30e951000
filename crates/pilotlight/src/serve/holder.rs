//! Selects the active policy: the chosen one, or, while there is a budget that it does not use, one that wraps it and holds the budget.
//! `adaptive` holds budgets itself, so that it goes on with what it has learnt.
//!
//! **Rule.** With a profile of this machine `pass` holds the budget, with CPU and drives. Without one `rapl-only` does, with the limits of the CPU
//! packages, the best mechanism alone (PASS, Figure 6); where they cannot be set, `cpu-bandwidth` with the CPU quota. Neither needs a model.
//! Without a quota and with a budget of the whole server, `pass` with the built-in profile does: its models are of another machine, and its
//! controller corrects them by the sensor. If none is available, the chosen policy is active alone, and nothing holds the budget.

use anyhow::{anyhow, bail};
use pilotlight_plant::Goal;
use tracing::{info, warn};

use super::budget;
use super::running::Running;
use super::state::State;
use crate::config::{Operation, format_budget};
use crate::policies::{BudgetDomain, PolicyChoice};

const PASS: &str = "pass";
const RAPL_ONLY: &str = "rapl-only";
const CPU_BANDWIDTH: &str = "cpu-bandwidth";
/// A hint for a better controller.
pub(super) const PROFILE_HELP: &str = "`pilotlab profile --out FILE DRIVE` makes a profile of this machine, and --budget-profile FILE has pass hold budgets by it, with CPU and drives";

/// The candidates for the active policy, the best first; the last is the chosen one alone.
pub(super) fn candidates(operation: &Operation, domain: BudgetDomain) -> Vec<PolicyChoice> {
    let chosen = &operation.policy.with_profile(operation.profile.as_deref());
    let with_domain = |choice: &PolicyChoice| choice.with_domain(domain, operation.domain.is_some());
    let mut all = Vec::new();
    if operation.goals.budget_uw.is_some() && !chosen.uses(Goal::Budget) {
        match &operation.profile {
            Some(profile) => all.push(around(chosen, PASS, Some(profile))),
            None => all.extend([RAPL_ONLY, CPU_BANDWIDTH].map(|name| around(chosen, name, None))),
        }
        if operation.profile.is_none() && domain == BudgetDomain::Server {
            all.push(around(chosen, PASS, None));
        }
    }
    all.push(chosen.clone());
    all.iter().map(with_domain).collect()
}

/// A policy that holds a budget around the chosen one.
fn around(chosen: &PolicyChoice, name: &str, profile: Option<&String>) -> PolicyChoice {
    let own = [("inner", &chosen.name)].into_iter().chain(profile.map(|profile| ("profile", profile)));
    let own = own.map(|(key, value)| (key.to_owned(), value.clone()));
    let inner = chosen.parameters.iter().map(|(key, value)| (format!("inner_{key}"), value.clone()));
    PolicyChoice { name: name.to_owned(), parameters: own.chain(inner).collect() }
}

/// The mechanism of the active policy and why it is that one, if it is not the chosen policy.
pub(super) fn reason(active_policy: &PolicyChoice, operation: &Operation) -> Option<&'static str> {
    if active_policy.name == operation.policy.name {
        return None;
    }
    Some(match (&*active_policy.name, &operation.profile) {
        (RAPL_ONLY, _) => "by the limits of the CPU packages, the best mechanism without a profile",
        (CPU_BANDWIDTH, _) => "by the CPU quota, as no limit of a CPU package can be set",
        (_, Some(_)) => "by CPU and drives, with the profile of this machine",
        (_, None) => "by another machine's profile, as neither a limit of the CPU packages nor a CPU quota can be set",
    })
}

/// The reason and a hint, if the active policy is not the chosen one.
pub(super) fn help(active_policy: &PolicyChoice, operation: &Operation) -> Option<String> {
    let reason = reason(active_policy, operation)?;
    let hint = if operation.profile.is_none() { format!("; {PROFILE_HELP}") } else { String::new() };
    Some(format!("it is held {reason}{hint}"))
}

/// Lets the first decide that this machine can have; which one that is.
///
/// # Errors
/// Why none can be activated, of each; then nothing has changed.
pub(super) fn activate_first(
    candidates: &[PolicyChoice],
    operation: &Operation,
    set: impl Fn(&PolicyChoice) -> anyhow::Result<()>,
) -> anyhow::Result<PolicyChoice> {
    let mut why = Vec::new();
    for (at, choice) in candidates.iter().enumerate() {
        match set(choice) {
            Ok(()) => {
                log_active(choice, candidates, operation, (&joined(why), at));
                return Ok(choice.clone());
            }
            Err(error) => why.push(error.to_string()),
        }
    }
    bail!(joined(why))
}

/// Reasons of several candidates, each once.
pub(super) fn joined(mut reasons: Vec<String>) -> String {
    reasons.dedup();
    reasons.join("; ")
}

fn log_active(choice: &PolicyChoice, candidates: &[PolicyChoice], operation: &Operation, (why, at): (&str, usize)) {
    let Some(chosen) = candidates.last().filter(|_| candidates.len() > 1) else { return };
    if at + 1 == candidates.len() {
        return warn!("nothing holds the budget: policy {} does not use it, and {why}", chosen.name);
    }
    let help = help(choice, operation).map_or(String::new(), |help| format!("; {help}"));
    info!("policy {} holds the budget, inner policy {}{help}", choice.name, chosen.name);
}

/// Has a running server's policy replaced.
pub(super) fn set(server: &dyn Running) -> impl Fn(&PolicyChoice) -> anyhow::Result<()> {
    |choice| {
        let policy = choice.build().map_err(|unfit| anyhow!(unfit.what))?;
        Ok(server.set_policy(policy)?)
    }
}

/// Another policy is chosen.
///
/// # Errors
/// Why it cannot decide: then nothing has changed.
pub(super) fn choose(state: &mut State, choice: &PolicyChoice, server: &dyn Running) -> anyhow::Result<()> {
    let operation = Operation { policy: choice.clone(), ..state.operation.clone() };
    let candidates = candidates_for(&operation, server);
    state.active_policy = activate_first(&candidates, &operation, set(server))?;
    (state.candidates, state.operation) = (candidates, operation);
    Ok(())
}

/// The candidates for the active policy of a running server.
pub(super) fn candidates_for(operation: &Operation, server: &dyn Running) -> Vec<PolicyChoice> {
    candidates(operation, budget::domain(operation.domain, &server.sources()))
}

/// Activates the policy for the goals in force, if it has changed.
///
/// # Errors
/// Why not: the previous policy stays active, and the change is not retried for these goals.
fn follow_goals(state: &mut State, server: &dyn Running) -> anyhow::Result<()> {
    let candidates = candidates_for(&state.operation, server);
    if candidates == state.candidates {
        return Ok(());
    }
    state.candidates.clone_from(&candidates);
    state.active_policy = activate_first(&candidates, &state.operation, set(server))?;
    Ok(())
}

/// Passes changed goals to the server, and activates the policy for them.
///
/// # Errors
/// As [`follow_goals`].
pub(super) fn refresh(state: &mut State, server: &dyn Running, now_s: u64) -> anyhow::Result<()> {
    state.operation.domain = state.goal_overrides.domain.or(state.configured.domain);
    set_goals_in_force(state, server, now_s);
    follow_goals(state, server)
}

fn set_goals_in_force(state: &mut State, server: &dyn Running, now_s: u64) {
    let priorities = state.configured.priorities(&state.goal_overrides);
    if priorities != state.operation.priorities {
        server.set_priorities(priorities.clone());
        state.operation.priorities = priorities;
    }
    let tolerances = state.configured.tolerances(&state.goal_overrides);
    if tolerances != state.operation.tolerances {
        server.set_tolerances(&tolerances);
        state.operation.tolerances = tolerances;
    }
    let goals = state.configured.goals(&state.goal_overrides, now_s);
    if goals == state.operation.goals {
        return;
    }
    if goals.budget_uw != state.operation.goals.budget_uw {
        let origin = state.configured.budget(&state.goal_overrides, now_s).origin.name();
        info!("budget {} ({origin})", format_budget(goals.budget_uw));
    }
    server.set_goals(goals.clone());
    state.operation.goals = goals;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::reload::tests::operation;

    fn names(operation: &Operation, domain: BudgetDomain) -> Vec<String> {
        let inner = |choice: &PolicyChoice| choice.parameters.iter().find(|(key, _)| key == "inner").cloned();
        let name = |choice: &PolicyChoice| match inner(choice) {
            Some((_, inner)) => format!("{} {inner}", choice.name),
            None => choice.name.clone(),
        };
        candidates(operation, domain).iter().map(name).collect()
    }

    fn under_budget(policy: &str) -> Operation {
        let mut operation = operation(policy);
        operation.goals.budget_uw = Some(1);
        operation
    }

    #[test]
    fn a_policy_that_ignores_budgets_is_wrapped_during_one() {
        assert_eq!(names(&operation("sandman"), BudgetDomain::Cpu), ["sandman"]);
        assert_eq!(
            names(&under_budget("sandman"), BudgetDomain::Cpu),
            ["rapl-only sandman", "cpu-bandwidth sandman", "sandman"]
        );
        let both = ["rapl-only static", "cpu-bandwidth static", "pass static", "static"];
        assert_eq!(names(&under_budget("static"), BudgetDomain::Server), both);
        assert_eq!(names(&under_budget("rapl-only"), BudgetDomain::Server), ["rapl-only"]);
        let profile = Some("a profile".to_owned());
        let with_profile = Operation { profile, ..under_budget("sandman") };
        assert_eq!(names(&with_profile, BudgetDomain::Server), ["pass sandman", "sandman"]);
    }

    /// Nothing of what it has learnt is lost by a budget.
    #[test]
    fn adaptive_is_not_exchanged_for_a_budget() {
        let profile = Some(include_str!("../../../../profiles/pass-xeon-gold-6430.toml").to_owned());
        for profile in [None, profile] {
            let without = Operation { profile: profile.clone(), ..operation("adaptive") };
            let under = Operation { profile: profile.clone(), ..under_budget("adaptive") };
            let all = [without, under].map(|operation| candidates(&operation, BudgetDomain::Server));
            assert_eq!(all[0], all[1]);
            assert_eq!(all[0].len(), 1);
            assert_eq!(all[0][0].parameters.iter().any(|(key, _)| key == "profile"), profile.is_some());
            assert!(all[0][0].build().is_ok());
        }
    }

    #[test]
    fn wrapped_policies_keep_their_parameters() {
        for name in pilotlight_policy::NAMES {
            let all = candidates(&under_budget(name), BudgetDomain::Server);
            assert!(all.iter().all(|choice| choice.build().is_ok()), "{name}");
        }
        let mut operation = under_budget("sandman");
        operation.policy.parameters = vec![("window".to_owned(), "64".to_owned())];
        let wrapped = &candidates(&operation, BudgetDomain::Cpu)[0];
        assert!(wrapped.parameters.contains(&("inner_window".to_owned(), "64".to_owned())), "{wrapped:?}");
    }

    #[test]
    fn the_first_supported_policy_is_used() {
        let operation = under_budget("static");
        let all = candidates(&operation, BudgetDomain::Server);
        let without = |refused: &'static [&'static str]| {
            let set = move |choice: &PolicyChoice| match refused.contains(&&choice.name[..]) {
                true => Err(anyhow!(choice.name.clone())),
                false => Ok(()),
            };
            activate_first(&all, &operation, set)
        };
        let chosen = |refused| {
            let choice = without(refused).unwrap();
            (choice.name.clone(), reason(&choice, &operation).unwrap_or("it uses none"))
        };
        for (refused, name, why) in [
            (&[][..], "rapl-only", "limits of the CPU packages"),
            (&["rapl-only"], "cpu-bandwidth", "as no limit of a CPU package can be set"),
            (&["rapl-only", "cpu-bandwidth"], "pass", "another machine's profile"),
            (&["rapl-only", "cpu-bandwidth", "pass"], "static", "it uses none"),
        ] {
            let chosen = chosen(refused);
            assert!(chosen.0 == name && chosen.1.contains(why), "{chosen:?}");
        }
        let none = without(&["rapl-only", "cpu-bandwidth", "pass", "static"]).unwrap_err();
        assert_eq!(none.to_string(), "rapl-only; cpu-bandwidth; pass; static");
    }
}
