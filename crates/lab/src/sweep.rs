//! All runs of an experiment as one list, on all cores.
//!
//! *Words.* A *cell* is a point, a variant and a policy; a *run* is a cell and a replication. *Rules.* One run per thread, taken
//! from the list in turn. A run's seed follows from its replication alone, so that all cells meet the same random numbers. A run
//! depends on nothing but itself and its cell's warm-up, which depends on the cell alone; so results do not depend on the number
//! of workers, nor on interruptions. What has been finished is in the file at once, and is not run again.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use pilotlight_plant::Policy;
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::Scenario;
use pilotlight_stats::warmup;

use crate::experiment::schema::{PolicySpec, WarmUp};
use crate::experiment::{Bench, Point, scenario};
use crate::metrics::{self, Context};
use crate::results::{About, Journal, Results, ResultsError, Run, RunKey, Value};
use crate::variant::Variant;

/// What runs a scenario under a policy.
pub type Engine = dyn Fn(&Scenario, Box<dyn Policy>) -> Result<Outcome, String> + Sync;

/// Told after each run: finished and all runs.
pub type Watcher<'a> = dyn Fn(usize, usize, &RunKey) + Sync + 'a;

/// Why a sweep ended early. What was finished before is in the file.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The file of results.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// A run could not be made or failed.
    #[error("{policy} at {point} ({variant}): {reason}")]
    Run {
        /// The policy.
        policy: String,
        /// The point.
        point: String,
        /// The variant.
        variant: String,
        /// Why.
        reason: String,
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
    warm_ups: Vec<OnceLock<Result<u64, String>>>,
}

impl<'a> Sweep<'a> {
    /// The list: by point, policy, variant, replication.
    #[must_use]
    pub fn new(bench: &'a Bench, variants: &'a [Variant]) -> Self {
        let mut jobs = Vec::new();
        let mut cells = 0;
        for (point, at) in bench.points.iter().enumerate() {
            for policy in 0..at.experiment.policies.len() {
                for variant in 0..variants.len() {
                    let replications = 0..at.experiment.replications;
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
        Self { bench, variants, jobs, warm_ups }
    }

    /// How many runs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there is nothing to run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Every run, in the order of the file.
    #[must_use]
    pub fn order(&self) -> Vec<RunKey> {
        self.jobs.iter().map(|job| self.key(job)).collect()
    }

    fn key(&self, job: &Job) -> RunKey {
        RunKey {
            point: self.point(job).name.clone(),
            variant: self.variants[job.variant].name.clone(),
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

    /// Runs what is not in the file yet, and returns all of it.
    ///
    /// # Errors
    /// If a run cannot be made or fails, or the file cannot be read or written.
    pub fn run(
        &self,
        path: &Path,
        workers: NonZeroUsize,
        engine: &Engine,
        watcher: &Watcher<'_>,
    ) -> Result<Results, SweepError> {
        let journal = Journal::open(path, &about(self.bench))?;
        let missing: Vec<&Job> =
            self.jobs.iter().filter(|job| !journal.results.runs.contains_key(&self.key(job))).collect();
        let shared = Shared {
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            done: AtomicUsize::new(self.jobs.len() - missing.len()),
            journal: Mutex::new(journal),
            failed: Mutex::new(BTreeMap::new()),
        };
        std::thread::scope(|scope| {
            for _ in 0..workers.get().min(missing.len()) {
                scope.spawn(|| self.work(&missing, &shared, engine, watcher));
            }
        });
        let journal = shared.journal.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let failed = shared.failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let results = journal.finish(&self.order())?;
        failed.into_values().next().map_or(Ok(results), Err)
    }

    fn work(&self, missing: &[&Job], shared: &Shared, engine: &Engine, watcher: &Watcher<'_>) {
        while !shared.stop.load(Ordering::Relaxed) {
            let at = shared.next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = missing.get(at) else { return };
            let key = self.key(job);
            let added = self.one(job, engine).and_then(|run| shared.add(&key, run));
            match added {
                Ok(()) => watcher(shared.done.fetch_add(1, Ordering::Relaxed) + 1, self.jobs.len(), &key),
                Err(error) => shared.fail(at, error),
            }
        }
    }

    fn one(&self, job: &Job, engine: &Engine) -> Result<Run, SweepError> {
        let failed = |reason: String| {
            let RunKey { point, variant, policy, .. } = self.key(job);
            SweepError::Run { policy, point, variant, reason }
        };
        let warm_up = self.warm_ups[job.cell].get_or_init(|| self.warm_up(job, engine));
        let warm_up = warm_up.clone().map_err(failed)?;
        let outcome = self.simulate(job, job.replication, warm_up, engine).map_err(failed)?;
        let experiment = &self.point(job).experiment;
        let labels = scenario::labels(experiment);
        let cores = self.policy(job).topology.unwrap_or(experiment.topology).cores;
        let context = Context { experiment, labels: &labels, cores, warm_up_ns: warm_up };
        let value =
            |metric: metrics::Metric| Value { metric: metric.name, unit: metric.unit.to_owned(), value: metric.value };
        let values = metrics::metrics(&outcome, &context).into_iter().map(value).collect();
        Ok(Run { seed: seed(experiment.seed, job.replication), values })
    }

    fn simulate(&self, job: &Job, replication: u32, warm_up_ns: u64, engine: &Engine) -> Result<Outcome, String> {
        let (point, policy) = (self.point(job), self.policy(job));
        let by_policy = policy.machine.iter().map(|(key, value)| (key.clone(), value.clone()));
        let changes: Vec<_> =
            self.variants[job.variant].changes.iter().chain(&point.changes).cloned().chain(by_policy).collect();
        let machine = self.bench.machine.machine(&changes).map_err(|error| error.to_string())?;
        let seed = seed(point.experiment.seed, replication);
        let mut scenario = scenario::build(&point.experiment, policy, machine, &self.bench.drives, seed)
            .map_err(|error| error.to_string())?;
        scenario.warm_up_ns = warm_up_ns;
        let settings = scenario::settings(policy);
        let settings: Vec<(&str, &str)> = settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let policy = pilotlight_policy::build(&policy.name, &settings).map_err(|error| error.to_string())?;
        engine(&scenario, policy)
    }

    /// The time that is cut off in every run of a cell.
    fn warm_up(&self, job: &Job, engine: &Engine) -> Result<u64, String> {
        let experiment = &self.point(job).experiment;
        let (least, most) = match experiment.warm_up {
            WarmUp::Fixed { time } => return Ok(time.0),
            WarmUp::Mser5 { least, most } => (least, most),
        };
        let pilot = self.simulate(job, 0, 0, engine)?;
        let series = experiment.series.0;
        let power = pilot.series.iter().map(|stretch| stretch.energy.system_uj() as f64);
        let latency = pilot.series.iter().map(|stretch| stretch.latency_ns as f64 / stretch.answered.max(1) as f64);
        let cut =
            [power.collect::<Vec<_>>(), latency.collect()].map(|series| warmup::mser5(&series).cut).into_iter().max();
        Ok((cut.unwrap_or(0) as u64 * series).clamp(least.0, most.0.max(least.0)))
    }
}

/// The seed of a replication: the same for every point, policy and variant.
#[must_use]
pub fn seed(first: u64, replication: u32) -> u64 {
    first.wrapping_add(u64::from(replication))
}

fn about(bench: &Bench) -> About {
    About {
        experiment: bench.experiment.name.clone(),
        profile: bench.machine.name.clone(),
        hash: bench.hash.clone(),
        question: bench.question.clone(),
    }
}

/// What workers share.
struct Shared {
    next: AtomicUsize,
    stop: AtomicBool,
    done: AtomicUsize,
    journal: Mutex<Journal>,
    failed: Mutex<BTreeMap<usize, SweepError>>,
}

impl Shared {
    fn add(&self, key: &RunKey, run: Run) -> Result<(), SweepError> {
        let mut journal = self.journal.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(journal.add(key.clone(), run)?)
    }

    fn fail(&self, at: usize, error: SweepError) {
        self.stop.store(true, Ordering::Relaxed);
        self.failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(at, error);
    }
}
