//! Runs an experiment on this machine.
//!
//! *Order.* Sensors and tools are checked before anything is changed. Then the device is preconditioned and the workload prepared. Each measurement:
//! apply settings, settle, run the workload's own preparation, measure, write a line to the journal, pause. The idle machine is measured in
//! each round before the first point of each setting ([`crate::plan::steps`]). *Properties.* At the end of a run, on errors, signals and panics, all
//! programs are ended, the workload cleans up and settings are restored; after `kill -9` the record of changes allows `pilotlab restore`. A
//! measurement is in the journal completely or not at all, and a resumed run keeps the order of points.

mod bind;
pub mod computed;
mod error;
pub mod machine;
mod measure;
pub mod merge;
mod precondition;
pub mod preview;
pub mod process;
mod resumed;
mod steps;
mod stop;
pub mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::stored::values::Provenance;
use pilotlight_actuators::Changes;
use pilotlight_sensors::Roots;
use pilotlight_sensors::clock::now_ns;

pub use error::RunError;
pub use pilotlight_workloads::program::find;
pub use process::StepError;
pub use stop::StopFlag;

use crate::experiment::Loaded;
use crate::experiment::schema::{OnFailure, Stop};
use crate::metrics::power::PowerDomains;
use crate::plan::steps::Settling;
use crate::plan::{self, Key, Plan};
use crate::record::{DomainEnergy, Entry};
use crate::results::environment::Environment;
use crate::results::journal::{Finished, Journal};
use crate::results::samples::Format;
use crate::results::summary::{self, Results};
use crate::results::{Folder, FolderError, values};
use crate::sensor_set::SensorSet;
use crate::study::verify::AppliedSetting;
use pilotlight_workloads::Mechanism;
use pilotlight_workloads::record::Tool;
use pilotlight_workloads::{Point, RunContext, Target};
use process::Running;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The results folder.
    pub folder: Folder,
    /// The device on the command line that may be overwritten.
    pub may_overwrite: Option<PathBuf>,
    /// File format of samples.
    pub format: Format,
    /// Roots of `/sys` and `/proc`.
    pub roots: Roots,
    /// The record of changes of the machine. Default: that of `pilotlab restore`.
    pub changes: Option<PathBuf>,
}

/// Progress of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An unmeasured step.
    Step(String),
    /// A settling time, in seconds.
    Settling(f64),
    /// Measurement of the idle machine.
    Baseline,
    /// Start of a measurement.
    Measuring {
        /// Its point and repeat.
        key: Key,
        /// Number of finished measurements.
        finished: usize,
        /// Expected number of measurements.
        of: usize,
        /// Estimated remaining time, in seconds.
        left_s: f64,
    },
    /// A failed measurement; the run continues.
    Failed(Key, String),
}

/// Runs the missing measurements of an experiment and summarises all.
///
/// # Errors
/// If it stops early. Finished measurements are kept, and the machine is restored.
pub fn run(
    loaded: &Loaded,
    plan: &Plan,
    sensors: &SensorSet,
    settings: &Settings,
    stop: &StopFlag,
    watch: &mut dyn FnMut(Event),
) -> Result<Results, RunError> {
    let mut runner = Runner::new(loaded, plan, sensors, settings, stop, watch)?;
    let outcome = runner.measure_all();
    let left = runner.clean_up();
    let outcome = outcome.and(left);
    let results = runner.results(outcome.is_ok());
    write(&settings.folder, plan, &results, &runner.journal.finished)?;
    outcome.map(|()| results)
}

/// Writes the results of a folder: as JSON, as a table, the values of all runs, and the report.
fn write(folder: &Folder, plan: &Plan, results: &Results, finished: &Finished) -> Result<(), FolderError> {
    folder.save(&folder.results(), results)?;
    folder.write(&folder.table(), &results.table().csv())?;
    let about = provenance(plan, &folder.load::<Environment>(&folder.environment())?.host);
    values::write(folder, &about, BTreeMap::new(), (plan, finished, &results.power_domains))?;
    crate::report::write(folder.root())
}

/// The domains of SSD, CPU and system among these sensors, for a target on this drive.
#[must_use]
pub fn power_domains(sensors: &SensorSet, drive: Option<&str>) -> PowerDomains {
    let stub = |(sensor, domain): &(String, pilotlight_sensors::Domain)| DomainEnergy {
        name: format!("{sensor}/{}", domain.name),
        part: domain.part.clone(),
        origin: domain.origin.clone(),
        uj: Err(String::new()),
    };
    let with_energy = sensors.domains.iter().filter(|(_, domain)| crate::observed::is_energy(domain));
    PowerDomains::from_domains(&with_energy.map(stub).collect::<Vec<_>>(), drive)
}

/// A run in progress.
struct Runner<'a> {
    loaded: &'a Loaded,
    plan: &'a Plan,
    sensors: &'a SensorSet,
    settings: &'a Settings,
    stop: &'a StopFlag,
    watch: &'a mut dyn FnMut(Event),
    journal: Journal,
    power_domains: PowerDomains,
    scratch: PathBuf,
    place: Target,
    changes: Changes,
    /// The applied settings: varied keys, and those of a completion mechanism.
    setting: Option<(Point, Option<Mechanism>)>,
    /// Effects of the settings of that mechanism.
    applied: Vec<AppliedSetting>,
    /// Background programs in order of their start.
    background: Vec<Running>,
    /// Whether the workload was prepared and must clean up.
    prepared: bool,
    /// Failed measurements, which are not repeated in this run.
    failed: BTreeSet<Key>,
    /// Values of the stop rule's metric.
    by_rule: BTreeMap<Key, f64>,
    /// Total time of measurements in nanoseconds, without waits and idle baselines, and their number.
    elapsed: (u64, u32),
    /// Whether a wait is due.
    settling: Settling,
    /// Total time of waits and idle baselines, in nanoseconds.
    waited_ns: u64,
    /// Planned waits and idle baselines in seconds, with the measurement that they precede.
    waits: Vec<(Key, f64)>,
}

/// For panics. `watch` may be the cause, so it is not called.
impl Drop for Runner<'_> {
    fn drop(&mut self) {
        let _ = self.restore(&mut |_| ());
    }
}

impl<'a> Runner<'a> {
    fn new(
        loaded: &'a Loaded,
        plan: &'a Plan,
        sensors: &'a SensorSet,
        settings: &'a Settings,
        stop: &'a StopFlag,
        watch: &'a mut dyn FnMut(Event),
    ) -> Result<Self, RunError> {
        let tool = loaded.workload.tool()?;
        bind::check(&loaded.experiment.bind)?;
        let folder = &settings.folder;
        let resumed = folder.open(plan)?;
        let root = folder.root().canonicalize().map_err(|source| FolderError::file(folder.root(), source))?;
        let place = target::resolve(&loaded.experiment.target, &root, settings.may_overwrite.as_deref())?;
        let drive = target::drive_of(&place, &settings.roots.sys);
        let power_domains = power_domains(sensors, drive.as_deref());
        if resumed {
            resumed::record(settings, now_s(), tool, drive)?;
        } else {
            describe(loaded, plan, sensors, settings, tool, drive)?;
        }
        let journal = Journal::open(&folder.journal())?;
        let changes = machine::begin(&settings.roots, settings.changes.as_deref())?;
        let (background, failed) = (Vec::new(), BTreeSet::new());
        let scratch = folder.scratch()?;
        let mut runner = Self {
            loaded,
            plan,
            sensors,
            settings,
            stop,
            watch,
            journal,
            power_domains,
            scratch,
            place,
            changes,
            setting: None,
            applied: Vec::new(),
            background,
            failed,
            prepared: false,
            by_rule: BTreeMap::new(),
            elapsed: (0, 0),
            settling: Settling::default(),
            waited_ns: 0,
            waits: plan.clone().with_sensors(&loaded.experiment, sensors.has_energy()).waits(plan.repeats.0),
        };
        let finished: Vec<Key> = runner.journal.finished.runs.keys().copied().collect();
        finished.into_iter().try_for_each(|key| runner.look_up(key).map(drop))?;
        Ok(runner)
    }

    fn measure_all(&mut self) -> Result<(), RunError> {
        let Some(first) = self.next_round(0) else { return Ok(()) };
        self.precondition()?;
        // Background programs start in the cgroup of the first point.
        self.set_machine(&self.plan.points[first.point].clone())?;
        self.prepare()?;
        for round in 0..self.plan.repeats.1 {
            while let Some(key) = self.next_round(round) {
                self.measure_point(key)?;
            }
        }
        Ok(())
    }

    /// The first missing measurement in this round or a later one.
    fn next_round(&self, round: u32) -> Option<Key> {
        (round..self.plan.repeats.1).find_map(|round| self.next(round))
    }

    fn next(&self, round: u32) -> Option<Key> {
        let key = |point| Key { point, repeat: round };
        let missing = |point| {
            let key = key(point);
            !self.journal.finished.runs.contains_key(&key) && !self.failed.contains(&key) && !self.is_enough(key)
        };
        self.plan.round(round, missing).first().map(|point| key(*point))
    }

    /// Whether the repeats before this one satisfy the stop rule.
    fn is_enough(&self, key: Key) -> bool {
        let Some(rule) = &self.loaded.experiment.stop else { return false };
        let before = (0..key.repeat).filter_map(|repeat| self.by_rule.get(&Key { repeat, ..key }));
        let values: Vec<f64> = before.copied().collect();
        plan::enough(&values, rule.within.0, rule.at_least, rule.at_most)
    }

    fn measure_point(&mut self, key: Key) -> Result<(), RunError> {
        let (finished, left) = (self.journal.finished.runs.len() + self.failed.len(), self.missing_count());
        let left_s = self.left_s(left);
        (self.watch)(Event::Measuring { key, finished, of: finished + left, left_s });
        // Waits and idle baselines are estimated separately.
        let (began_ns, waited_ns) = (now_ns(), self.waited_ns);
        let outcome = self.measure(key);
        let waited_ns = self.waited_ns - waited_ns;
        let took_ns = now_ns().saturating_sub(began_ns + waited_ns) + self.loaded.experiment.cool_down.0;
        self.elapsed = (self.elapsed.0 + took_ns, self.elapsed.1 + 1);
        match outcome {
            Ok(()) => self.check_rule(key)?,
            Err(error) if self.continues_after(&error) => {
                let why = error.to_string();
                self.failed.insert(key);
                self.journal.add(Entry::Failed { key, why: why.clone() })?;
                (self.watch)(Event::Failed(key, why));
            }
            Err(error) => return Err(error),
        }
        let more = self.next_round(0).is_some();
        if more { self.wait(self.loaded.experiment.cool_down.0) } else { Ok(()) }
    }

    /// Only errors of the workload can be skipped.
    fn continues_after(&self, error: &RunError) -> bool {
        let of_workload = matches!(error, RunError::Workload(_) | RunError::Step(_));
        of_workload && self.loaded.experiment.on_failure == OnFailure::Continue
    }

    /// Number of missing measurements, if rules stop as early as possible.
    fn missing_count(&self) -> usize {
        let is_missing = |key: Key| {
            self.plan.has(key) && !self.journal.finished.runs.contains_key(&key) && !self.failed.contains(&key)
        };
        let (min, max) = self.plan.repeats;
        let of_point = |point: usize| {
            let key = |repeat| Key { point, repeat };
            let certain = (0..min).filter(|repeat| is_missing(key(*repeat))).count();
            let one_more = (min..max).map(key).find(|key| is_missing(*key)).is_some_and(|key| !self.is_enough(key));
            certain + usize::from(certain == 0 && one_more)
        };
        (0..self.plan.points.len()).map(of_point).sum::<usize>().max(1)
    }

    /// Estimated time of the remaining measurements, waits and idle baselines.
    fn left_s(&self, left: usize) -> f64 {
        let (ns, count) = self.elapsed;
        let each_s = if count == 0 { self.plan.each_s } else { ns as f64 / 1e9 / f64::from(count) };
        let is_missing = |key: &Key| !self.journal.finished.runs.contains_key(key) && !self.failed.contains(key);
        let waits_s: f64 = self.waits.iter().filter(|(key, _)| is_missing(key)).map(|(_, seconds)| seconds).sum();
        left as f64 * each_s + waits_s
    }

    /// Stores the stop rule's metric of a measurement; returns the reason if it has no value.
    fn look_up(&mut self, key: Key) -> Result<Option<String>, RunError> {
        let Some(rule) = &self.loaded.experiment.stop else { return Ok(None) };
        let Some(run) = self.journal.finished.runs.get(&key) else { return Ok(None) };
        let metrics = summary::metrics_of(run, &self.journal.finished, &self.power_domains);
        let Some(metric) = metrics.iter().find(|metric| metric.key == rule.metric) else {
            let known: Vec<&str> = metrics.iter().map(|metric| metric.key.as_str()).collect();
            let nearest = pilotlight_input::file::nearest(&rule.metric, &known);
            let hint = nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
            return Err(RunError::NoMetric { name: rule.metric.clone(), hint });
        };
        match &metric.value {
            Ok(value) => self.by_rule.insert(key, *value),
            Err(why) => return Ok(Some(why.to_string())),
        };
        Ok(None)
    }

    fn check_rule(&mut self, key: Key) -> Result<(), RunError> {
        if let Some(why) = self.look_up(key)? {
            (self.watch)(Event::Step(format!("stop.metric has no value here: {why}")));
        }
        Ok(())
    }

    fn stage(&self, key: Key) -> RunContext {
        let experiment = &self.loaded.experiment;
        RunContext {
            scratch: self.scratch.clone(),
            target: self.place.clone(),
            ramp_s: experiment.warm_up().seconds(),
            duration_s: experiment.duration.map_or(0.0, |duration| duration.seconds()),
            seed: self.plan.seed_of(key),
        }
    }

    fn results(&self, complete: bool) -> Results {
        let mut notes: Vec<String> =
            self.sensors.missing.iter().map(|missing| format!("not read: {missing}")).collect();
        notes.extend(self.sensors.notes.iter().cloned());
        let unused = &self.sensors.unused;
        if !unused.is_empty() {
            notes.push(format!("no power is measured: the experiment does not use {}", unused.join(", ")));
        } else if !self.sensors.has_measured_power() {
            notes.push("no power is measured: no power sensor of this machine can be read".into());
            notes.extend(self.sensors.survey.iter().map(|missing| format!("no power from {missing}")));
        }
        if let Some(rule) = self.loaded.experiment.stop.as_ref().filter(|_| self.by_rule.is_empty()) {
            let Stop { metric, at_most, .. } = rule;
            notes.push(format!("stop.metric: {metric} has no values, so each point is measured {at_most} times"));
        }
        notes.extend(resumed::notes(&self.settings.folder).unwrap_or_default());
        let complete = complete && self.failed.is_empty();
        Results { complete, ..Results::new(self.plan, &self.journal.finished, &self.power_domains, notes) }
    }
}

/// Provenance of measured results.
fn provenance(plan: &Plan, host: &str) -> Provenance {
    let word = |text: &str| text.replace(|c: char| c.is_whitespace() || c == ',', "-");
    let host = if host.is_empty() { "unknown".to_owned() } else { word(host) };
    let hash = plan.hash.chars().take(10).collect();
    Provenance { experiment: word(&plan.title), host, hash, ..Provenance::default() }
}

/// Writes the environment, sensors, experiment and plan.
fn describe(
    loaded: &Loaded,
    plan: &Plan,
    sensors: &SensorSet,
    settings: &Settings,
    tool: Tool,
    drive: Option<String>,
) -> Result<(), RunError> {
    let folder = &settings.folder;
    folder.save(&folder.environment(), &Environment::read(&settings.roots, now_s(), vec![tool], drive))?;
    folder.save(&folder.sensors(), sensors)?;
    folder.write(&folder.experiment(), &loaded.table.to_string())?;
    // The plan is last: a folder with a plan is complete.
    folder.save(&folder.plan(), plan)?;
    Ok(())
}

/// Seconds since 1970.
fn now_s() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}
