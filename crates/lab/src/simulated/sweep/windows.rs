//! Sampled replays, divided by their units (windows that are simulated together).
//!
//! Each share stores the outcomes of its units in `windows.jsonl`. A merge passes them to the unchanged computation of the whole replay in place
//! of simulations, so its results are equal.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use pilotlight_journal::{Durability, Lock};
use pilotlight_sim::histogram::Histogram;
use pilotlight_sim::outcome::{Decisions, Energy, Jobs, Outcome, Requests, Stretch};
use serde::{Deserialize, Serialize};

use super::{Job, SimulationError, Sweep, SweepError, build, simulator};
use crate::shard::Shard;
use crate::simulated::experiment::replay::sampled;
use crate::simulated::experiment::scenario;
use crate::simulated::parallel;
use crate::stored::values::{Results, ResultsError, RunKey};

/// Name of the file with outcomes of units.
pub const FILE: &str = "windows.jsonl";

/// Outcomes of units, by run (as text) and index.
pub type Stored = BTreeMap<(String, usize), UnitOutcome>;

/// The part of an outcome that a sampled replay uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitOutcome {
    requests: Requests,
    latency: Vec<(u8, Histogram)>,
    family: Vec<Energy>,
    capped_uj: u64,
    series: Vec<Stretch>,
    decisions: Decisions,
    saturated: bool,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    run: String,
    unit: usize,
    outcome: UnitOutcome,
}

impl From<&Outcome> for UnitOutcome {
    fn from(outcome: &Outcome) -> Self {
        Self {
            requests: outcome.requests,
            latency: outcome.latency.clone(),
            family: outcome.family.clone(),
            capped_uj: outcome.capped_uj,
            series: outcome.series.clone(),
            decisions: outcome.decisions,
            saturated: outcome.saturated,
        }
    }
}

impl From<UnitOutcome> for Outcome {
    fn from(stored: UnitOutcome) -> Self {
        let UnitOutcome { requests, latency, family, capped_uj, series, decisions, saturated } = stored;
        Self {
            measured_ns: 0,
            requests,
            latency,
            cap_waits: Histogram::default(),
            label_ns: Vec::new(),
            energy: Energy::default(),
            family,
            capped_uj,
            series,
            metered_uw: Vec::new(),
            decisions,
            view: Vec::new(),
            saturated,
            jobs: Jobs::default(),
            background: Vec::new(),
        }
    }
}

/// The run as text.
fn name(key: &RunKey) -> String {
    format!("{};{};{};{}", key.point, key.variant, key.policy, key.replication)
}

/// Parses complete lines; a truncated last line is ignored.
fn parse(path: &Path, bytes: &[u8]) -> Result<Stored, ResultsError> {
    let mut stored = Stored::new();
    for line in bytes[..pilotlight_journal::whole(bytes)].split_inclusive(|byte| *byte == b'\n') {
        let Line { run, unit, outcome } =
            serde_json::from_slice(line).map_err(|error| ResultsError::file(path, error.into()))?;
        stored.insert((run, unit), outcome);
    }
    Ok(stored)
}

/// The stored outcomes in the folder of an experiment.
///
/// # Errors
/// If the file cannot be read.
pub fn read(folder: &Path) -> Result<Stored, ResultsError> {
    let path = folder.join(FILE);
    match std::fs::read(&path) {
        Ok(bytes) => parse(&path, &bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Stored::new()),
        Err(error) => Err(ResultsError::file(&path, error)),
    }
}

impl Sweep<'_> {
    fn is_sampled(&self, job: &Job) -> bool {
        self.point(job).experiment.trace.as_ref().is_some_and(|trace| trace.sample.is_some())
    }

    /// Restricts the sweep to runs that are not sampled replays.
    #[must_use]
    pub fn without_replays(mut self) -> Self {
        let kept = self.jobs.iter().copied().filter(|job| !self.is_sampled(job)).collect();
        self.jobs = kept;
        self
    }

    /// Sampled replays, as indices of [`Sweep::list`].
    fn replays(&self) -> Vec<usize> {
        (0..self.jobs.len()).filter(|&at| self.is_sampled(&self.jobs[at])).collect()
    }

    fn key_of(&self, job: &Job) -> RunKey {
        self.key(job, &self.variants[job.variant])
    }

    /// Simulates the wanted units of a sampled replay; returns the number of units.
    fn part(
        &self,
        job: &Job,
        wanted: &dyn Fn(usize) -> bool,
        keep: &mut dyn FnMut(usize, &Outcome) -> Result<(), SimulationError>,
    ) -> Result<usize, SweepError> {
        let mut part = || {
            let (point, policy) = (self.point(job), self.policy(job));
            let scenario = self.scenario(job, job.replication, 0)?;
            let settings = scenario::settings(policy);
            let settings: Vec<(&str, &str)> = settings.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            let trace = point.experiment.trace.as_ref().ok_or(SimulationError::Absent("trace"))?;
            let sample = trace.sample.as_ref().ok_or(SimulationError::Absent("sample"))?;
            let sample = &sample.with_policies(&point.experiment.policies);
            let policy = &|| build(&policy.name, &settings, &scenario);
            let run = sampled::Run { trace, sample, scenario: &scenario, policy, engine: &simulator };
            self.replays.part(&run, wanted, keep)
        };
        part().map_err(|reason: SimulationError| self.failed(job, reason))
    }

    /// Simulates and stores the missing units of a share; returns the number of units of the share.
    ///
    /// # Errors
    /// If a unit cannot be run, or the file cannot be read or written.
    pub fn windows(&self, shard: Shard, folder: &Path, workers: NonZeroUsize) -> Result<usize, SweepError> {
        let replays = self.replays();
        if replays.is_empty() {
            return Ok(0);
        }
        let path = folder.join(FILE);
        let failed = |error| ResultsError::file(&path, error);
        let lock = Lock::at(&path).map_err(failed)?;
        let lock = lock.ok_or_else(|| ResultsError::Busy { path: path.display().to_string() })?;
        let (lines, bytes) = pilotlight_journal::Journal::read(lock).map_err(failed)?;
        let (stored, lines, count) = (parse(&path, &bytes)?, Mutex::new(lines), AtomicUsize::new(0));
        let one = |at: usize| {
            let job = &self.jobs[replays[at]];
            let run = name(&self.key_of(job));
            let wanted = |unit: usize| {
                let own = shard.has(at + unit);
                count.fetch_add(usize::from(own), Ordering::Relaxed);
                own && !stored.contains_key(&(run.clone(), unit))
            };
            let mut keep = |unit: usize, outcome: &Outcome| {
                let line = Line { run: run.clone(), unit, outcome: outcome.into() };
                let text = serde_json::to_string(&line)? + "\n";
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(lines.append(&text, Durability::Process).map_err(failed)?)
            };
            self.part(job, &wanted, &mut keep).map(drop)
        };
        parallel::each(workers, replays.len(), None, one).into_iter().flatten().collect::<Result<(), _>>()?;
        Ok(count.into_inner())
    }

    /// Adds the results of sampled replays with all units; returns the missing units as text.
    ///
    /// # Errors
    /// If a trace cannot be read.
    pub fn add_replays(&self, results: &mut Results, stored: &Stored) -> Result<Vec<String>, SweepError> {
        let cells = self.cells(&Results::default());
        let mut missing = Vec::new();
        for at in self.replays() {
            let job = &self.jobs[at];
            let run = name(&self.key_of(job));
            let units = self.part(job, &|_| false, &mut |_, _| Ok(()))?;
            let before = missing.len();
            let lacks = |unit: &usize| !stored.contains_key(&(run.clone(), *unit));
            missing
                .extend((0..units).filter(lacks).map(|unit| format!("{}, unit {unit} of {units}", self.key_of(job))));
            if missing.len() > before {
                continue;
            }
            // Units are computed in order.
            let next = AtomicUsize::new(0);
            let runs = self.run_job(job, &|_, _, _| {
                let unit = next.fetch_add(1, Ordering::Relaxed);
                stored.get(&(run.clone(), unit)).cloned().map(Outcome::from).ok_or(SimulationError::NoUnit(unit))
            })?;
            let fingerprint = |key: &RunKey| Some((key.cell(), cells.get(&key.cell())?));
            results.cells.extend(runs.iter().filter_map(|(key, _)| fingerprint(key)));
            results.runs.extend(runs);
        }
        Ok(missing)
    }
}
