//! Runs that that are audited: every [`pilotlight_sim::audit::Law`], on what is run anyway.
//!
//! The trace of a run goes to [`pilotlight_sim::audit::TraceAuditor`] as it is written. Only the first replication of each cell is
//! audited, and not the pilot that looks for the warm-up: the same code runs in all.

use std::sync::Mutex;

use pilotlight_plant::Policy;
use pilotlight_sim::Source;
use pilotlight_sim::audit::{TraceAuditor, Violation};
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::Scenario;

use crate::simulated::sweep;

/// Violations that a message shows.
const SHOWN: usize = 5;

/// What has been audited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    /// Runs.
    pub runs: u64,
    /// Records of their traces.
    pub records: u64,
    /// Requests that were issued in them.
    pub requests: u64,
}

impl Audited {
    /// Adds what has been audited elsewhere.
    pub fn add(&mut self, more: Self) {
        self.runs += more.runs;
        self.records += more.records;
        self.requests += more.requests;
    }
}

/// Watches the runs of an experiment.
#[derive(Debug)]
pub struct Auditor {
    first_seed: u64,
    audited: Mutex<Audited>,
}

impl Auditor {
    /// Of an experiment whose first replication has this seed.
    #[must_use]
    pub fn new(first_seed: u64) -> Self {
        Self { first_seed, audited: Mutex::default() }
    }

    /// The simulator, with an accountant beside it for the first replication of each cell.
    ///
    /// # Errors
    /// In words, if the scenario cannot be run, or the run breaks a law.
    pub fn run<'a>(
        &self,
        scenario: &'a Scenario,
        policy: Box<dyn Policy>,
        source: Option<Source<'a>>,
    ) -> Result<Outcome, String> {
        let pilot = scenario.warm_up_ns == 0;
        if scenario.seed != self.first_seed || pilot {
            return sweep::simulator(scenario, policy, source);
        }
        let mut trace_auditor = TraceAuditor::new(scenario);
        let outcome = match source {
            Some(source) => pilotlight_sim::run_replay_traced(scenario, policy, source, &mut trace_auditor),
            None => pilotlight_sim::run_traced(scenario, policy, &mut trace_auditor),
        };
        let outcome = outcome.map_err(|error| error.to_string())?;
        let audit = trace_auditor.finish(&outcome).map_err(|violations| words(&violations))?;
        let mut audited = self.audited.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        audited.add(Audited { runs: 1, records: audit.records, requests: audit.issued });
        Ok(outcome)
    }

    /// What has been audited, all of it without a violation.
    #[must_use]
    pub fn audited(&self) -> Audited {
        *self.audited.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Broken laws in words.
pub(crate) fn words(violations: &[Violation]) -> String {
    let shown: Vec<String> = violations.iter().take(SHOWN).map(ToString::to_string).collect();
    format!("the run breaks {} laws: {}", violations.len(), shown.join("; "))
}
