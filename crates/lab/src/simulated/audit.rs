//! Audits runs of a sweep: checks every [`pilotlight_sim::audit::Law`] on the trace of the first replication of each cell. Further
//! replications and pilot runs execute the same code.

use std::sync::Mutex;

use pilotlight_plant::Policy;
use pilotlight_sim::Source;
use pilotlight_sim::audit::{TraceAuditor, Violation};
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::Scenario;

use crate::simulated::sweep::{self, SimulationError};

/// Maximum number of violations in a message.
const MAX_LISTED: usize = 5;

/// Totals of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    /// Runs.
    pub runs: u64,
    /// Trace records.
    pub records: u64,
    /// Issued requests.
    pub requests: u64,
}

impl Audited {
    /// Adds the totals of another audit.
    pub fn add(&mut self, more: Self) {
        self.runs += more.runs;
        self.records += more.records;
        self.requests += more.requests;
    }
}

/// Audits the runs of an experiment.
#[derive(Debug)]
pub struct Auditor {
    first_seed: u64,
    audited: Mutex<Audited>,
}

impl Auditor {
    /// An auditor for an experiment whose first replication has this seed.
    #[must_use]
    pub fn new(first_seed: u64) -> Self {
        Self { first_seed, audited: Mutex::default() }
    }

    /// Runs a scenario, audited if it is the first replication of a cell.
    ///
    /// # Errors
    /// If the scenario cannot be run, or the run violates a law.
    pub fn run<'a>(
        &self,
        scenario: &'a Scenario,
        policy: Box<dyn Policy>,
        source: Option<Source<'a>>,
    ) -> Result<Outcome, SimulationError> {
        let pilot = scenario.warm_up_ns == 0;
        if scenario.seed != self.first_seed || pilot {
            return sweep::simulator(scenario, policy, source);
        }
        let mut trace_auditor = TraceAuditor::new(scenario);
        let outcome = match source {
            Some(source) => pilotlight_sim::run_replay_traced(scenario, policy, source, &mut trace_auditor),
            None => pilotlight_sim::run_traced(scenario, policy, &mut trace_auditor),
        }?;
        let audit = trace_auditor.finish(&outcome).map_err(SimulationError::Laws)?;
        let mut audited = self.audited.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        audited.add(Audited { runs: 1, records: audit.records, requests: audit.issued });
        Ok(outcome)
    }

    /// The totals; no run had a violation.
    #[must_use]
    pub fn audited(&self) -> Audited {
        *self.audited.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A message about violations.
pub(crate) fn violations_message(violations: &[Violation]) -> String {
    let listed: Vec<String> = violations.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    format!("the run violates {} laws: {}", violations.len(), listed.join("; "))
}
