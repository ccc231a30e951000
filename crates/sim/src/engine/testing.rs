//! For tests: runs by the naive engine, to compare with, and what a run has skipped.

use std::io::Write;

use pilotlight_plant::Policy;

use super::plain::PlainMeter;
use super::{Policies, RunError, ScenarioError, Simulation, naive, window};
use crate::outcome::Outcome;
use crate::scenario::Scenario;

/// As [`run_in_turn`], by the naive engine, for comparison only.
///
/// # Errors
/// As [`run_in_turn`].
pub fn run_naive_in_turn(scenario: &Scenario, policies: Policies, out: &mut dyn Write) -> Result<Outcome, RunError> {
    if scenario.scheduled.is_some() {
        return Err(RunError::Scenario(ScenarioError::Rule("only cores that poll can be run in the plain order")));
    }
    Simulation::with_meter(scenario, policies, Some(out), Box::new(PlainMeter::new(scenario)))?.run(naive::run)
}

/// As [`run_traced`], by the naive engine, for comparison only.
///
/// # Errors
/// As [`run_traced`].
pub fn run_naive(scenario: &Scenario, policy: Box<dyn Policy>, out: &mut dyn Write) -> Result<Outcome, RunError> {
    run_naive_in_turn(scenario, vec![(0, policy)], out)
}

/// Number of checks for a policy call in a run, without skipped ticks.
///
/// # Errors
/// As [`run`].
pub fn policy_checks(scenario: &Scenario, policy: Box<dyn Policy>) -> Result<u64, RunError> {
    let mut sim = Simulation::new(scenario, policy, None)?;
    window::run(&mut sim);
    Ok(sim.director.checks)
}
