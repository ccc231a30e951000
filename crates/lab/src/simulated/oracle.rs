//! Bounds on the energy of optimal sleep for open loops, for the first replication of each cell.
//!
//! A *bracket* ([`pilotlight_sim::oracle`]) belongs to a scenario: cells with equal scenario and warm-up share it. In results it is the variant
//! `oracle` of each cell: bounds with the policy's sleep states and with all states, both minima, and the policy's energy above them. Cells without
//! a bracket are listed with the reason.

use std::num::NonZeroUsize;
use std::path::Path;

use crate::stored::metric;
use pilotlight_sim::machine::Machine;
use pilotlight_sim::oracle::{Bracket, BracketOptions, OracleError, States, bracket_of};
use pilotlight_sim::scenario::Scenario;

use crate::simulated::cost;
use crate::simulated::experiment::schema::{Experiment, PolicySpec};
use crate::simulated::journal::Journal;
use crate::simulated::metrics::SATURATED;
use crate::simulated::parallel;
use crate::simulated::sweep::{SimulationError, Sweep};
use crate::simulated::variant;
use crate::stored::values::{self, Results, ResultsError, Run, RunKey, Value};

/// Policies that only use sleep states. Others change frequencies, quotas, power limits or drives, so they can be below the bounds.
const SLEEP_ONLY: [&str; 7] = ["static", "native", "interrupt", "dynamic", "hybrid-poll", "sandman", "pg"];

/// A cell without a bracket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unbounded {
    /// The point's name.
    pub point: String,
    /// The policy's label.
    pub policy: String,
    /// The reason.
    pub reason: String,
}

/// A cell to bound.
struct Question<'a> {
    key: RunKey,
    run: &'a Run,
    /// Scenarios with the policy's states and with all states.
    scenarios: [(Scenario, States); 2],
}

/// Computes missing brackets of runs with at most a number of requests and adds them to the results; returns all results and the cells without
/// a bracket. Calls `watcher` with the numbers of finished and all brackets.
///
/// # Errors
/// If the file cannot be read or written.
pub fn add(
    sweep: &Sweep<'_>,
    path: &Path,
    most_requests: f64,
    workers: NonZeroUsize,
    watcher: &(dyn Fn(usize, usize) + Sync),
) -> Result<(Results, Vec<Unbounded>), ResultsError> {
    let mut journal = Journal::open(path, &sweep.provenance(), &|there| sweep.cells(there))?;
    let results = journal.results.clone();
    let (questions, mut unbounded) = questions(sweep, &results, most_requests);
    let scenarios: Vec<&(Scenario, States)> = questions.iter().flat_map(|question| &question.scenarios).collect();
    let firsts = firsts(&scenarios);
    let different: Vec<usize> = (0..scenarios.len()).filter(|&at| firsts[at] == at).collect();
    let brackets = parallel::each(workers, different.len(), None, |at| {
        let (scenario, states) = scenarios[different[at]];
        let bracket = bracket_of(scenario, BracketOptions::new(*states));
        watcher(at + 1, different.len());
        bracket
    });
    let bracket = |at: usize| {
        let place = different.iter().position(|&first| first == firsts[at])?;
        brackets[place].as_ref()
    };
    let mut runs = Vec::new();
    for (at, question) in questions.iter().enumerate() {
        match (bracket(2 * at), bracket(2 * at + 1)) {
            (Some(Ok(own)), Some(Ok(all))) => runs.push((question.key.clone(), question.answer(own, all))),
            (Some(Err(reason)), _) | (_, Some(Err(reason))) => unbounded.push(question.without(reason)),
            _ => {}
        }
    }
    if !runs.is_empty() {
        journal.add(runs)?;
    }
    Ok((journal.finish()?, unbounded))
}

/// For each scenario the first equal one.
fn firsts(scenarios: &[&(Scenario, States)]) -> Vec<usize> {
    let names: Vec<String> = scenarios.iter().map(|(scenario, states)| format!("{scenario:?} {states:?}")).collect();
    names.iter().map(|name| names.iter().position(|other| other == name).unwrap_or(0)).collect()
}

fn questions<'a>(sweep: &Sweep<'_>, results: &'a Results, most_requests: f64) -> (Vec<Question<'a>>, Vec<Unbounded>) {
    let (mut questions, mut unbounded) = (Vec::new(), Vec::new());
    let firsts = sweep.list().filter(|(_, key, _)| key.replication == 0 && key.variant == variant::DEFAULT);
    for (job, key, _) in firsts {
        let Some(run) = results.runs.get(&key) else { continue };
        let (experiment, policy) = sweep.experiment_of(job);
        let RunKey { point, policy: label, .. } = key.clone();
        let name = RunKey { variant: variant::ORACLE.to_owned(), ..key };
        let reason = refusal(experiment, policy, run, most_requests);
        let question = reason.map_or_else(|| question(sweep, job, &name, run).map_err(|error| error.to_string()), Err);
        match question {
            Ok(_) if results.runs.contains_key(&name) => {}
            Ok(question) => questions.push(question),
            Err(reason) => unbounded.push(Unbounded { point, policy: label, reason }),
        }
    }
    (questions, unbounded)
}

/// The reason why a cell has no bracket.
fn refusal(experiment: &Experiment, policy: &PolicySpec, run: &Run, most_requests: f64) -> Option<String> {
    let requests = cost::requests(experiment);
    let reason = if experiment.trace.is_some() {
        "its requests come from a trace, and the oracle runs a scenario several times"
    } else if !SLEEP_ONLY.contains(&policy.name.as_str()) {
        "it does more than put cores to sleep, and the oracle bounds sleep alone"
    } else if run.saturated() {
        "it could not keep up"
    } else if run.get("system_power_w").is_none() {
        "system_power_w is not among the output's metrics"
    } else if requests > most_requests {
        return Some(format!(
            "{requests:.2e} requests per run are more than the requested {most_requests:.1e} (--oracle)"
        ));
    } else {
        return None;
    };
    Some(reason.to_owned())
}

fn question<'a>(sweep: &Sweep<'_>, job: usize, key: &RunKey, run: &'a Run) -> Result<Question<'a>, SimulationError> {
    let (_, policy) = sweep.experiment_of(job);
    let warm_up_ns = (run.get("warm_up_ms").unwrap_or(0.0) * 1e6).round() as u64;
    let mut own = sweep.scenario_of(job, warm_up_ns)?;
    own.family.clear();
    let mut all = own.clone();
    all.machine.power.family.kernel_idles_deep = true; // so that a schedule can select deep sleep
    let states = states(&policy.name, &own.machine);
    let scenarios = [(own, states), (all, States { deep: true, ..states })];
    Ok(Question { key: key.clone(), run, scenarios })
}

/// The sleep states of a policy.
fn states(policy: &str, machine: &Machine) -> States {
    let kernel = policy == "interrupt";
    States { deep: kernel && machine.power.family.kernel_idles_deep, main_rests: kernel || policy == "hybrid-poll" }
}

impl Question<'_> {
    fn answer(&self, own: &Bracket, all: &Bracket) -> Run {
        let joules = |uj: u64| uj as f64 / 1e6;
        let measured_s = own.measured_ns as f64 / 1e9;
        let burnt_j = self.run.get("system_power_w").unwrap_or(0.0) * measured_s;
        let numbers = [
            ("oracle_lower_j", joules(own.lower_uj)),
            ("oracle_upper_j", joules(own.upper_uj)),
            ("oracle_all_states_lower_j", joules(all.lower_uj)),
            ("oracle_all_states_upper_j", joules(all.upper_uj)),
            ("c1_floor_j", joules(own.floor_shallow_uj)),
            ("deep_floor_j", joules(own.floor_deep_uj)),
            ("joules_above_c1_floor", burnt_j - joules(own.floor_shallow_uj)),
            ("joules_above_deep_floor", burnt_j - joules(own.floor_deep_uj)),
        ];
        let value = |(name, value): (&str, f64)| Value {
            metric: name.to_owned(),
            unit: metric::unit(name).to_owned(),
            value: values::nine_digits(value),
        };
        let mut values: Vec<Value> = numbers.into_iter().map(value).collect();
        values.push(Value { metric: SATURATED.to_owned(), unit: "1".to_owned(), value: 0.0 });
        Run { seed: self.run.seed, values }
    }

    fn without(&self, reason: &OracleError) -> Unbounded {
        let RunKey { point, policy, .. } = self.key.clone();
        Unbounded { point, policy, reason: reason.to_string() }
    }
}

/// A line for each reason with its cells.
#[must_use]
pub fn unbounded_lines(unbounded: &[Unbounded]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for Unbounded { point, policy, reason } in unbounded {
        let who = if point == "-" { policy.clone() } else { format!("{policy} at {point}") };
        match reasons.iter_mut().find(|(known, _)| *known == reason.as_str()) {
            Some((_, names)) => names.push(who),
            None => reasons.push((reason, vec![who])),
        }
    }
    reasons.into_iter().map(|(reason, names)| format!("not bounded: {} ({reason})", names.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_listed_once_with_their_cells() {
        let of = |point: &str, policy: &str, reason: &str| Unbounded {
            point: point.into(),
            policy: policy.into(),
            reason: reason.into(),
        };
        let all = [of("rate=1", "a", "x"), of("-", "b", "y"), of("rate=2", "a", "x")];
        assert_eq!(unbounded_lines(&all), ["not bounded: a at rate=1, a at rate=2 (x)", "not bounded: b (y)"]);
    }

    #[test]
    fn states_are_those_of_the_policy() {
        let files = crate::simulated::machine::MachineFiles::parse(
            include_str!("../../../../profiles/sandman-epyc-9454p.toml"),
            include_str!("../../../../profiles/calibration/sandman-epyc-9454p.toml"),
        );
        let mut machine = files.unwrap().machine(&[]).unwrap();
        machine.power.family.kernel_idles_deep = true;
        assert_eq!(states("sandman", &machine), States::SHALLOW);
        assert_eq!(states("interrupt", &machine), States { deep: true, main_rests: true });
        machine.power.family.kernel_idles_deep = false;
        assert_eq!(states("interrupt", &machine), States { deep: false, main_rests: true });
    }
}
