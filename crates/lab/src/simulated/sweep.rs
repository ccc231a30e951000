//! Runs all simulations of an experiment in parallel.
//!
//! A *cell* is a point, a variant and a policy; a *run* is a cell and a replication. A variant that differs from the default only in power
//! *rides* on the default's run, which computes its energy too. Threads take runs from a list. The seed depends on the replication only (common
//! random numbers). A run depends only on itself and its cell's warm-up, so results are independent of the number of workers and of
//! interruptions. Finished runs are stored immediately. Values have nine significant digits. Of riding variants only power is stored; of series
//! only the default.

mod shard;
pub mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use pilotlight_plant::Policy;
use pilotlight_policy::BuildError;
use pilotlight_sim::audit::Violation;
use pilotlight_sim::histogram::Histogram;
use pilotlight_sim::machine::{Machine, PollCosts};
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::Scenario;
use pilotlight_sim::{RunError, Source};
use pilotlight_stats::warmup;
use pilotlight_trace::sampling::Unmeasured;

use crate::simulated::audit;
use crate::simulated::cells::Cells;
use crate::simulated::cost;
use crate::simulated::experiment::replay::{self, Replays, SampledReplay, TraceError};
use crate::simulated::experiment::scenario::ScenarioError;
use crate::simulated::experiment::schema::{Experiment, PolicySpec, WarmUp};
use crate::simulated::experiment::{Bench, Point, scenario};
use crate::simulated::hold::{self, Hold, HoldError};
use crate::simulated::journal::Journal;
use crate::simulated::machine::MachineError;
use crate::simulated::metrics::{self, Context};
use crate::simulated::stale;
use crate::simulated::variant::{self, Variant};
use crate::stored::values::{self, Provenance, Results, ResultsError, Run, RunKey, Value};

/// Runs a scenario under a policy, with the requests of a trace if any.
pub type Engine<'e> =
    dyn for<'a> Fn(&'a Scenario, Box<dyn Policy>, Option<Source<'a>>) -> Result<Outcome, SimulationError> + Sync + 'e;

/// The simulator.
///
/// # Errors
/// If the scenario cannot be run.
pub fn simulator<'a>(
    scenario: &'a Scenario,
    policy: Box<dyn Policy>,
    source: Option<Source<'a>>,
) -> Result<Outcome, SimulationError> {
    Ok(match source {
        Some(source) => pilotlight_sim::run_replay(scenario, policy, source),
        None => pilotlight_sim::run(scenario, policy),
    }?)
}

/// A run cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum SimulationError {
    #[error("no {0}")]
    Absent(&'static str),
    #[error("the experiment has no {0}")]
    Lacks(&'static str),
    #[error("no unit {0}")]
    NoUnit(usize),
    #[error("the experiment's warm_up has to be a time")]
    NoTime,
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Policy(#[from] BuildError),
    #[error(transparent)]
    Hold(#[from] HoldError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Estimate(#[from] Unmeasured),
    #[error("{}", audit::violations_message(.0))]
    Laws(Vec<Violation>),
    #[error(transparent)]
    Results(#[from] ResultsError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// A finished run.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The run.
    pub run: &'a RunKey,
    /// Number of finished runs, including earlier ones.
    pub finished: usize,
    /// Number of all runs.
    pub of: usize,
    /// Estimated CPU time of the run, in seconds ([`cost`]).
    pub cost_s: f64,
}

/// Called after each run.
pub type Watcher<'a> = dyn Fn(&Progress<'_>) + Sync + 'a;

/// Errors of a sweep. Finished runs are stored.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The results file.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// A run failed.
    #[error("{policy} at {point} ({variant}): {reason}")]
    Run {
        /// The policy.
        policy: String,
        /// The point.
        point: String,
        /// The variant.
        variant: String,
        /// The error, which the runs of a cell share.
        reason: Arc<SimulationError>,
    },
}

/// A run of the list.
#[derive(Clone, Copy, Debug)]
struct Job {
    point: usize,
    policy: usize,
    variant: usize,
    replication: u32,
    cell: usize,
}

/// All runs of an experiment.
#[derive(Debug)]
pub struct Sweep<'a> {
    bench: &'a Bench,
    variants: &'a [Variant],
    jobs: Vec<Job>,
    warm_ups: Vec<OnceLock<Result<u64, Arc<SimulationError>>>>,
    replays: Replays,
}

/// The outcome of a run, with that of a sampled replay.
struct RunResult {
    outcome: Outcome,
    sampled: Option<SampledReplay>,
    /// Polling intervals, if they are a metric.
    polls: Option<Histogram>,
}

/// Builds the policy of a point. Random numbers of a policy differ between replications.
fn build(name: &str, settings: &[(&str, &str)], scenario: &Scenario) -> Result<Box<dyn Policy>, SimulationError> {
    if name == hold::NAME {
        return Ok(Box::new(Hold::read(settings, &pilotlight_sim::engine::capabilities(scenario))?));
    }
    let seed = scenario.seed.to_string();
    let entry = pilotlight_policy::registry::by_name(name);
    let draws = entry.is_some_and(|entry| (entry.parameters)(&[]).iter().any(|parameter| parameter.key == "seed"));
    let is_set = settings.iter().any(|(key, _)| *key == "seed");
    let own = Some(("seed", seed.as_str())).filter(|_| draws && !is_set);
    let settings: Vec<(&str, &str)> = settings.iter().copied().chain(own).collect();
    Ok(pilotlight_policy::build(name, &settings)?)
}

impl<'a> Sweep<'a> {
    /// The list: by point, policy, variant, replication.
    #[must_use]
    pub fn new(bench: &'a Bench, variants: &'a [Variant]) -> Self {
        let mut jobs = Vec::new();
        let mut cells = 0;
        for (point, at) in bench.points.iter().enumerate() {
            for policy in 0..at.experiment.policies.len() {
                let spec = &at.experiment.policies[policy];
                for variant in (0..variants.len()).filter(|&variant| !variants[variant].rides_under(spec)) {
                    let replications = 0..at.experiment.repeats;
                    jobs.extend(replications.map(|replication| Job {
                        point,
                        policy,
                        variant,
                        replication,
                        cell: cells,
                    }));
                    cells += 1;
                }
            }
        }
        let warm_ups = std::iter::repeat_with(OnceLock::new).take(cells).collect();
        Self { bench, variants, jobs, warm_ups, replays: Replays::default() }
    }

    /// Restricts the sweep to points by index. Results of other points are kept.
    #[must_use]
    pub fn only(mut self, points: &BTreeSet<usize>) -> Self {
        self.jobs.retain(|job| points.contains(&job.point));
        self
    }

    /// Number of runs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there is nothing to run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Estimated CPU time of runs missing in these results, in seconds.
    #[must_use]
    pub fn missing_s(&self, results: &Results) -> f64 {
        self.missing(results).into_iter().map(|job| self.cost_s(job)).sum()
    }

    fn missing(&self, results: &Results) -> Vec<&Job> {
        let stored = |key: &RunKey| results.runs.contains_key(key);
        self.jobs.iter().filter(|job| !self.keys(job).iter().all(stored)).collect()
    }

    fn cost_s(&self, job: &Job) -> f64 {
        cost::run_s(&self.point(job).experiment, self.policy(job))
    }

    /// Keys of a job's results and of variants that ride on it.
    fn keys(&self, job: &Job) -> Vec<RunKey> {
        let own = std::iter::once(&self.variants[job.variant]);
        own.chain(self.riders(job)).map(|variant| self.key(job, variant)).collect()
    }

    fn riders(&self, job: &Job) -> impl Iterator<Item = &'a Variant> {
        let carries = self.variants[job.variant].name == variant::DEFAULT;
        let policy = self.policy(job);
        self.variants.iter().filter(move |variant| carries && variant.rides_under(policy))
    }

    fn key(&self, job: &Job, variant: &Variant) -> RunKey {
        RunKey {
            point: self.point(job).name.clone(),
            variant: variant.name.clone(),
            policy: self.policy(job).label.clone(),
            replication: job.replication,
        }
    }

    fn point(&self, job: &Job) -> &Point {
        &self.bench.points[job.point]
    }

    fn policy(&self, job: &Job) -> &PolicySpec {
        &self.point(job).experiment.policies[job.policy]
    }

    /// All runs: index, key (without riding variants), and estimated CPU time in seconds including the pilot run.
    pub fn list(&self) -> impl Iterator<Item = (usize, RunKey, f64)> {
        let entry = |(at, job): (usize, &Job)| {
            let experiment = &self.point(job).experiment;
            let policy = self.policy(job);
            let pilots = f64::from(u8::from(matches!(policy.warm_up(experiment), WarmUp::Mser5 { .. })));
            let once_s = cost::once_s(experiment, policy);
            (at, self.key(job, &self.variants[job.variant]), once_s * (1.0 + pilots))
        };
        self.jobs.iter().enumerate().map(entry)
    }

    /// A run of [`Sweep::list`] as text.
    #[must_use]
    pub fn name(&self, job: usize) -> String {
        let RunKey { point, variant, policy, replication } =
            self.key(&self.jobs[job], &self.variants[self.jobs[job].variant]);
        format!("at {point}, {policy}, {variant}, replication {replication}")
    }

    /// Keys of the results of a run of [`Sweep::list`], including riding variants.
    #[must_use]
    pub fn results_of(&self, job: usize) -> Vec<RunKey> {
        self.keys(&self.jobs[job])
    }

    /// The experiment at its point and the policy of a run.
    #[must_use]
    pub fn experiment_of(&self, job: usize) -> (&Experiment, &PolicySpec) {
        (&self.point(&self.jobs[job]).experiment, self.policy(&self.jobs[job]))
    }

    /// The scenario of a run.
    ///
    /// # Errors
    /// If the point cannot be run.
    pub fn scenario_of(&self, job: usize, warm_up_ns: u64) -> Result<Scenario, SimulationError> {
        self.scenario(&self.jobs[job], self.jobs[job].replication, warm_up_ns)
    }

    /// Provenance of its results.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        self.bench.provenance()
    }

    /// Current cells of this sweep's variants and of others in the results.
    #[must_use]
    pub fn cells(&self, stored: &Results) -> Cells {
        let mut variants = stale::variants_of(self.bench, stored.cells.keys().map(|cell| cell.variant.as_str()));
        variants.retain(|variant| !self.variants.iter().any(|own| own.name == variant.name));
        variants.extend(self.variants.iter().cloned());
        Cells::new(self.bench, &variants)
    }

    /// Stored results that are not stale.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_current(&self, path: &Path) -> Result<Results, ResultsError> {
        let stored = values::read(path)?.unwrap_or_default();
        Ok(self.cells(&stored).sort(stored).current)
    }

    /// Recomputes a run and the variants that ride on it.
    ///
    /// # Errors
    /// If it fails.
    pub fn recompute(&self, job: usize, engine: &Engine<'_>) -> Result<Vec<(RunKey, Run)>, SweepError> {
        self.run_job(&self.jobs[job], engine)
    }

    /// Runs missing runs and returns all results.
    ///
    /// # Errors
    /// If a run fails, or the file cannot be read or written.
    pub fn run(
        &self,
        path: &Path,
        workers: NonZeroUsize,
        engine: &Engine<'_>,
        watcher: &Watcher<'_>,
    ) -> Result<Results, SweepError> {
        let journal = Journal::open(path, &self.provenance(), &|stored| self.cells(stored))?;
        let missing = self.missing(&journal.results);
        let shared = Shared {
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            done: AtomicUsize::new(self.jobs.len() - missing.len()),
            journal: Mutex::new(journal),
            failed: Mutex::new(BTreeMap::new()),
        };
        std::thread::scope(|scope| {
            for _ in 0..workers.get().min(missing.len()) {
                scope.spawn(|| self.run_worker(&missing, &shared, engine, watcher));
            }
        });
        let journal = shared.journal.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let failed = shared.failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        match failed.into_values().next() {
            Some(error) => Err(error),
            None => Ok(journal.finish()?),
        }
    }

    fn run_worker(&self, missing: &[&Job], shared: &Shared, engine: &Engine<'_>, watcher: &Watcher<'_>) {
        while !shared.stop.load(Ordering::Relaxed) {
            let at = shared.next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = missing.get(at) else { return };
            let key = self.key(job, &self.variants[job.variant]);
            let added = self.run_job(job, engine).and_then(|runs| shared.add(runs));
            match added {
                Ok(()) => watcher(&Progress {
                    run: &key,
                    finished: shared.done.fetch_add(1, Ordering::Relaxed) + 1,
                    of: self.jobs.len(),
                    cost_s: self.cost_s(job),
                }),
                Err(error) => shared.fail(at, error),
            }
        }
    }

    fn run_job(&self, job: &Job, engine: &Engine<'_>) -> Result<Vec<(RunKey, Run)>, SweepError> {
        let variant = &self.variants[job.variant];
        let warm_up = self.warm_ups[job.cell].get_or_init(|| Ok(self.warm_up(job, engine)?));
        let warm_up = warm_up.clone().map_err(|reason| self.failed(job, reason))?;
        let ran = self.simulate(job, job.replication, warm_up, engine);
        let mut ran = ran.map_err(|reason| self.failed(job, reason))?;
        let energies = std::mem::take(&mut ran.outcome.family);
        let measured = |ran: &RunResult, variant: &Variant| {
            let run = self.measure(job, ran, variant, warm_up);
            run.map(|run| (self.key(job, variant), run)).map_err(|reason| self.failed(job, reason))
        };
        let mut runs = vec![measured(&ran, variant)?];
        for (rider, energy) in self.riders(job).zip(energies) {
            ran.outcome.energy = energy;
            runs.push(measured(&ran, rider)?);
        }
        Ok(runs)
    }

    fn failed(&self, job: &Job, reason: impl Into<Arc<SimulationError>>) -> SweepError {
        let RunKey { point, variant, policy, .. } = self.key(job, &self.variants[job.variant]);
        SweepError::Run { policy, point, variant, reason: reason.into() }
    }

    /// The values of a run.
    fn measure(&self, job: &Job, ran: &RunResult, variant: &Variant, warm_up_ns: u64) -> Result<Run, SimulationError> {
        let experiment = &self.point(job).experiment;
        let labels = scenario::labels(experiment);
        let cores = self.policy(job).topology.unwrap_or(experiment.topology);
        let machine = self.machine(job, &self.variants[job.variant])?;
        let PollCosts { receive_ns, submit_ns, complete_ns, respond_ns, .. } = machine.poll;
        let request_ns = receive_ns + submit_ns + complete_ns + respond_ns;
        let context = Context { experiment, labels: &labels, cores, warm_up_ns, request_ns };
        let value = |metric: metrics::Metric| Value {
            metric: metric.name,
            unit: metric.unit.to_owned(),
            value: values::nine_digits(metric.value),
        };
        let mut all = metrics::metrics(&ran.outcome, ran.sampled.as_ref(), &context);
        if let Some(polls) = &ran.polls {
            let value = polls.quantile(0.99) as f64 / 1e3;
            all.insert(0, metrics::Metric::new(metrics::POLLING_INTERVAL, value));
        }
        all.retain(|metric| metrics::kept_of(variant, &metric.name));
        let values = all.into_iter().map(value).collect();
        Ok(Run { seed: seed(experiment.seed, job.replication), values })
    }

    /// The machine with changes of variant, point and policy, in this order.
    fn machine(&self, job: &Job, variant: &Variant) -> Result<Machine, MachineError> {
        self.bench.machine.machine(&variant.with(&self.point(job).changes, self.policy(job)))
    }

    fn simulate(
        &self,
        job: &Job,
        replication: u32,
        warm_up_ns: u64,
        engine: &Engine<'_>,
    ) -> Result<RunResult, SimulationError> {
        let (point, policy) = (self.point(job), self.policy(job));
        let scenario = self.scenario(job, replication, warm_up_ns)?;
        let settings = scenario::settings(policy);
        let settings: Vec<(&str, &str)> = settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let build = || build(&policy.name, &settings, &scenario);
        let trace = point.experiment.trace.as_ref();
        if let Some((trace, sample)) = trace.and_then(|trace| Some((trace, trace.sample.as_ref()?))) {
            let sample = &sample.with_policies(&point.experiment.policies);
            let run = replay::sampled::Run { trace, sample, scenario: &scenario, policy: &build, engine };
            let (outcome, sampled) = self.replays.run(&run)?;
            return Ok(RunResult { outcome, sampled: Some(sampled), polls: None });
        }
        let drives = scenario.drives.len() as u16;
        let source =
            trace.map(|trace| replay::source(trace, drives, scenario.duration_ns, scenario.seed)).transpose()?;
        if point.experiment.metrics.iter().any(|metric| metric == metrics::POLLING_INTERVAL) {
            let ran = pilotlight_sim::run_polls(&scenario, build()?)?;
            return Ok(RunResult { outcome: ran.0, sampled: None, polls: Some(ran.1) });
        }
        Ok(RunResult { outcome: engine(&scenario, build()?, source)?, sampled: None, polls: None })
    }

    fn scenario(&self, job: &Job, replication: u32, warm_up_ns: u64) -> Result<Scenario, SimulationError> {
        let (point, policy) = (self.point(job), self.policy(job));
        let machine = self.machine(job, &self.variants[job.variant])?;
        let seed = seed(point.experiment.seed, replication);
        let mut scenario = scenario::build(&point.experiment, policy, machine, &self.bench.drives, seed)?;
        scenario.warm_up_ns = warm_up_ns;
        let family = self.riders(job).map(|rider| Ok(self.machine(job, rider)?.power));
        scenario.family = family.collect::<Result<_, MachineError>>()?;
        Ok(scenario)
    }

    /// The warm-up of all runs of a cell.
    fn warm_up(&self, job: &Job, engine: &Engine<'_>) -> Result<u64, SimulationError> {
        let experiment = &self.point(job).experiment;
        if experiment.trace.as_ref().is_some_and(|trace| trace.sample.is_some()) {
            return Ok(0); // each window has its own run-in
        }
        let (min, max) = match self.policy(job).warm_up(experiment) {
            WarmUp::Fixed { time } => return Ok(time.0),
            WarmUp::Mser5 { min, max } => (min, max),
        };
        let pilot = self.simulate(job, 0, 0, engine)?.outcome;
        let series = experiment.series.0;
        let power = pilot.series.iter().map(|stretch| stretch.energy.system_uj() as f64);
        let latency = pilot.series.iter().map(|stretch| stretch.latency_ns as f64 / stretch.answered.max(1) as f64);
        let cut =
            [power.collect::<Vec<_>>(), latency.collect()].map(|series| warmup::mser5(&series).cut).into_iter().max();
        Ok((cut.unwrap_or(0) as u64 * series).clamp(min.0, max.0.max(min.0)))
    }
}

/// The seed of a replication, equal for all points, policies and variants.
#[must_use]
pub fn seed(first: u64, replication: u32) -> u64 {
    first.wrapping_add(u64::from(replication))
}

/// State shared by workers.
struct Shared {
    next: AtomicUsize,
    stop: AtomicBool,
    done: AtomicUsize,
    journal: Mutex<Journal>,
    failed: Mutex<BTreeMap<usize, SweepError>>,
}

impl Shared {
    fn add(&self, runs: Vec<(RunKey, Run)>) -> Result<(), SweepError> {
        Ok(self.journal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(runs)?)
    }

    fn fail(&self, at: usize, error: SweepError) {
        self.stop.store(true, Ordering::Relaxed);
        self.failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(at, error);
    }
}
