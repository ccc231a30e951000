//! Does what an experiment asks, and leaves nothing behind.
//!
//! *Order.* Sensors and tools are looked for before anything is changed. Then: precondition the device, prepare the workload, and for
//! each measurement: change the machine, settle, do what the workload wants done before, measure, write a line, put the machine back, rest. The
//! idle machine is measured in each round before the first point of each setting ([`crate::plan::steps`]). *Properties.* Whatever way this is left (end, error, Ctrl-C, panic): every program that
//! was started is ended, the workload has cleaned up, and the machine is as it was; after a `kill -9` the journal of changes says
//! what to put back. A measurement is in the journal as a whole or not at all, and a run that goes on visits the points that are left in the order
//! in which it would have.

mod again;
mod bind;
pub mod computed;
pub mod machine;
mod measure;
mod precondition;
pub mod preview;
pub mod process;
pub mod sense;
mod stop;
pub mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use pilotlight_actuators::Changes;
use pilotlight_actuators::changes::Error as ChangeError;
use pilotlight_actuators::machine::KeyError;
use pilotlight_input::ReadError;
use pilotlight_results::values::About;
use pilotlight_sensors::clock::now_ns;
use pilotlight_sensors::sampler::{Failure, StartError};
use pilotlight_sensors::{Missing as MissingSensor, Roots};

pub use pilotlight_workloads::program::find;
pub use process::StepError;
pub use sense::Senses;
pub use stop::StopFlag;

use crate::experiment::Loaded;
use crate::experiment::schema::{OnFailure, Stop};
use crate::metrics::power::Taken;
use crate::plan::steps::Settling;
use crate::plan::{self, Key, Plan};
use crate::results::entry::{DomainEnergy, Entry};
use crate::results::environment::Environment;
use crate::results::journal::Journal;
use crate::results::samples::Format;
use crate::results::summary::{self, Results};
use crate::results::{Folder, FolderError, values};
use crate::study::ran::Tried;
use pilotlight_workloads::Mechanism;
use pilotlight_workloads::record::Tool;
use pilotlight_workloads::{Missing, Point, Problem, RunContext, Step, Target};
use process::Running;

/// How a run is done, beside what the experiment says.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where everything goes.
    pub folder: Folder,
    /// The device that the person has named as one that may be overwritten.
    pub may_overwrite: Option<PathBuf>,
    /// How samples are written.
    pub format: Format,
    /// Where the kernel's files are.
    pub roots: Roots,
    /// Where it is on record what was changed on the machine; where `pilotlab restore` looks if not given.
    pub changes: Option<PathBuf>,
}

/// What happens, for whoever watches.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Something is done that is not measured.
    Step(String),
    /// So many seconds are waited, until the effects of filling, of changed settings or of a workload are over.
    Settling(f64),
    /// The idle machine is measured.
    Baseline,
    /// A measurement begins.
    Measuring {
        /// Which.
        key: Key,
        /// How many measurements are finished.
        finished: usize,
        /// How many there are, as far as is known.
        of: usize,
        /// About how long everything still takes, in seconds.
        left_s: f64,
    },
    /// A measurement failed, and the run goes on.
    Failed(Key, String),
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A person or the system wanted it to end.
    #[error("ended by signal {0}")]
    Stopped(i32),
    /// A sensor that is needed cannot be read.
    #[error("a sensor that is needed cannot be read (mark it as optional to go on without it)")]
    Sensor(#[from] MissingSensor),
    /// A sensor that is needed failed.
    #[error(transparent)]
    SensorFailed(#[from] Failure),
    /// Sampling cannot begin.
    #[error(transparent)]
    Sampler(#[from] StartError),
    /// A tool is not there.
    #[error(transparent)]
    Tool(#[from] Missing),
    /// The workload cannot do what is asked, or its output cannot be read.
    #[error(transparent)]
    Workload(#[from] Problem),
    /// A program cannot be started or failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The machine cannot be set as asked.
    #[error(transparent)]
    Machine(#[from] KeyError),
    /// A setting of the machine cannot be changed, or not be put back.
    #[error(transparent)]
    Changes(#[from] ChangeError),
    /// A setting of the machine is not as it should be.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The stop rule names no metric.
    #[error("stop.metric: there is no metric {asked:?} in what was measured{meant}")]
    NoMetric {
        /// What the rule names.
        asked: String,
        /// What was probably meant.
        meant: String,
    },
}

/// Runs what is missing of an experiment, and summarises what is there.
///
/// # Errors
/// Why it ended early. What was finished until then is kept, and the machine is as it was.
pub fn run(
    loaded: &Loaded,
    plan: &Plan,
    senses: &Senses,
    settings: &Settings,
    stop: &StopFlag,
    watch: &mut dyn FnMut(Event),
) -> Result<Results, RunError> {
    let mut runner = Runner::new(loaded, plan, senses, settings, stop, watch)?;
    let outcome = runner.everything();
    let left = runner.leave();
    let outcome = outcome.and(left);
    let results = runner.results(outcome.is_ok());
    settings.folder.save(&settings.folder.results(), &results)?;
    let notes = results.notes.clone();
    settings.folder.write(&settings.folder.table(), &results.table().csv(&notes))?;
    let about = about(plan, &settings.folder.load::<Environment>(&settings.folder.environment())?.host);
    let numbers = (plan, &runner.journal.finished, &runner.taken);
    values::write(&settings.folder, &about, BTreeMap::new(), numbers)?;
    crate::report::write(settings.folder.root())?;
    outcome.map(|()| results)
}

/// The domains that make up SSD, CPU and system, of these sensors on this place.
#[must_use]
pub fn taken(senses: &Senses, drive: Option<&str>) -> Taken {
    let stub = |(sensor, domain): &(String, pilotlight_sensors::Domain)| DomainEnergy {
        name: format!("{sensor}/{}", domain.name),
        part: domain.part.clone(),
        origin: domain.origin.clone(),
        uj: Err(String::new()),
    };
    let with_energy = senses.domains.iter().filter(|(_, domain)| crate::metrics::observed::is_energy(domain));
    Taken::of(&with_energy.map(stub).collect::<Vec<_>>(), drive)
}

/// A run under way.
struct Runner<'a> {
    loaded: &'a Loaded,
    plan: &'a Plan,
    senses: &'a Senses,
    settings: &'a Settings,
    stop: &'a StopFlag,
    watch: &'a mut dyn FnMut(Event),
    journal: Journal,
    taken: Taken,
    scratch: PathBuf,
    place: Target,
    changes: Changes,
    /// What the machine has been brought to: keys that are varied, and what a mechanism of completion takes.
    setting: Option<(Point, Option<Mechanism>)>,
    /// What was tried for that mechanism.
    tried: Vec<Tried>,
    /// Programs that go on in the background, in the order in which they were started.
    background: Vec<Running>,
    /// Whether the workload has been asked to prepare, so that it must clean up.
    prepared: bool,
    /// What failed in this run is not tried again in it.
    failed: BTreeSet<Key>,
    /// The stop rule's metric, of every measurement that has it.
    by_rule: BTreeMap<Key, f64>,
    /// How long measurements took, with what belongs to them, but without waits and idle baselines: nanoseconds, and how many.
    took: (u64, u32),
    /// What happened since the last wait.
    settling: Settling,
    /// Time of waits and idle baselines so far, in nanoseconds.
    waited_ns: u64,
    /// Those that are planned, in seconds, with the measurement that each comes before.
    waits: Vec<(Key, f64)>,
}

/// Of a panic: who watches may be the cause, and is not asked again.
impl Drop for Runner<'_> {
    fn drop(&mut self) {
        let _ = self.put_in_order(&mut |_| ());
    }
}

impl<'a> Runner<'a> {
    fn new(
        loaded: &'a Loaded,
        plan: &'a Plan,
        senses: &'a Senses,
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
        let taken = taken(senses, drive.as_deref());
        if resumed {
            again::look(settings, now_s(), tool, drive)?;
        } else {
            describe(loaded, plan, senses, settings, tool, drive)?;
        }
        let journal = Journal::open(&folder.journal())?;
        let changes = machine::begin(&settings.roots, settings.changes.as_deref())?;
        let (background, failed) = (Vec::new(), BTreeSet::new());
        let scratch = folder.scratch()?;
        let mut runner = Self {
            loaded,
            plan,
            senses,
            settings,
            stop,
            watch,
            journal,
            taken,
            scratch,
            place,
            changes,
            setting: None,
            tried: Vec::new(),
            background,
            failed,
            prepared: false,
            by_rule: BTreeMap::new(),
            took: (0, 0),
            settling: Settling::default(),
            waited_ns: 0,
            waits: plan.clone().with_sensors(&loaded.experiment, senses.has_energy()).waits(plan.repeats.0),
        };
        let finished: Vec<Key> = runner.journal.finished.runs.keys().copied().collect();
        finished.into_iter().try_for_each(|key| runner.look_up(key).map(drop))?;
        Ok(runner)
    }

    fn everything(&mut self) -> Result<(), RunError> {
        let Some(first) = self.next_round(0) else { return Ok(()) };
        self.precondition()?;
        // What the workload starts now is to live in the cgroup that its points need.
        self.set_machine(&self.plan.points[first.point].clone())?;
        self.prepare()?;
        for round in 0..self.plan.repeats.1 {
            while let Some(key) = self.next_round(round) {
                self.one(key)?;
            }
        }
        Ok(())
    }

    /// The first measurement that is missing in this round or a later one.
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

    /// Whether the repeats before this one are enough for the stop rule.
    fn is_enough(&self, key: Key) -> bool {
        let Some(rule) = &self.loaded.experiment.stop else { return false };
        let before = (0..key.repeat).filter_map(|repeat| self.by_rule.get(&Key { repeat, ..key }));
        let values: Vec<f64> = before.copied().collect();
        plan::enough(&values, rule.within.0, rule.at_least, rule.at_most)
    }

    fn one(&mut self, key: Key) -> Result<(), RunError> {
        let (finished, left) = (self.journal.finished.runs.len() + self.failed.len(), self.left());
        let left_s = self.left_s(left);
        (self.watch)(Event::Measuring { key, finished, of: finished + left, left_s });
        // Waits and idle baselines are planned for separately.
        let (began_ns, waited_ns) = (now_ns(), self.waited_ns);
        let outcome = self.measure(key);
        let waited_ns = self.waited_ns - waited_ns;
        let took_ns = now_ns().saturating_sub(began_ns + waited_ns) + self.loaded.experiment.cool_down.0;
        self.took = (self.took.0 + took_ns, self.took.1 + 1);
        match outcome {
            Ok(()) => self.check_rule(key)?,
            Err(error) if self.goes_on(&error) => {
                let why = error.to_string();
                self.failed.insert(key);
                self.journal.add(Entry::Failed { key, why: why.clone() })?;
                (self.watch)(Event::Failed(key, why));
            }
            Err(error) => return Err(error),
        }
        let more = self.next_round(0).is_some();
        if more { self.rest(self.loaded.experiment.cool_down.0) } else { Ok(()) }
    }

    /// Only what the workload did wrong may be passed over.
    fn goes_on(&self, error: &RunError) -> bool {
        let of_workload = matches!(error, RunError::Workload(_) | RunError::Step(_));
        of_workload && self.loaded.experiment.on_failure == OnFailure::Continue
    }

    /// Measurements that are missing, if rules stop as early as they may.
    fn left(&self) -> usize {
        let is_missing = |key: Key| !self.journal.finished.runs.contains_key(&key) && !self.failed.contains(&key);
        let (least, most) = self.plan.repeats;
        let of_point = |point: usize| {
            let key = |repeat| Key { point, repeat };
            let certain = (0..least).filter(|repeat| is_missing(key(*repeat))).count();
            let one_more = (least..most).map(key).find(|key| is_missing(*key)).is_some_and(|key| !self.is_enough(key));
            certain + usize::from(certain == 0 && one_more)
        };
        (0..self.plan.points.len()).map(of_point).sum::<usize>().max(1)
    }

    /// How long so many measurements take: each as long as those before, with the waits and idle baselines that are still to come.
    fn left_s(&self, left: usize) -> f64 {
        let (ns, count) = self.took;
        let each_s = if count == 0 { self.plan.each_s } else { ns as f64 / 1e9 / f64::from(count) };
        let is_missing = |key: &Key| !self.journal.finished.runs.contains_key(key) && !self.failed.contains(key);
        let waits_s: f64 = self.waits.iter().filter(|(key, _)| is_missing(key)).map(|(_, seconds)| seconds).sum();
        left as f64 * each_s + waits_s
    }

    /// Keeps what the stop rule wants to know of a measurement; why there is nothing.
    fn look_up(&mut self, key: Key) -> Result<Option<String>, RunError> {
        let Some(rule) = &self.loaded.experiment.stop else { return Ok(None) };
        let Some(run) = self.journal.finished.runs.get(&key) else { return Ok(None) };
        let metrics = summary::metrics_of(run, &self.journal.finished, &self.taken);
        let Some(metric) = metrics.iter().find(|metric| metric.key == rule.metric) else {
            let known: Vec<&str> = metrics.iter().map(|metric| metric.key.as_str()).collect();
            let meant = pilotlight_input::file::nearest(&rule.metric, &known);
            let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
            return Err(RunError::NoMetric { asked: rule.metric.clone(), meant });
        };
        match &metric.value {
            Ok(value) => self.by_rule.insert(key, *value),
            Err(why) => return Ok(Some(why.clone())),
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

    fn prepare(&mut self) -> Result<(), RunError> {
        let stage = self.stage(Key { point: 0, repeat: 0 });
        self.prepared = true;
        for step in self.loaded.workload.prepare(&stage)? {
            if !step.background {
                self.settling.disturb();
            }
            let running = self.step(&step)?;
            self.background.extend(running);
        }
        Ok(())
    }

    fn bound(&self, step: Step) -> Step {
        machine::within(bind::bound(step, &self.loaded.experiment.bind), self.changes.cgroup())
    }

    /// Does a step; one that goes on in the background is returned once it is ready.
    fn step(&mut self, step: &Step) -> Result<Option<Running>, RunError> {
        (self.watch)(Event::Step(if step.why.is_empty() { process::title(step) } else { step.why.clone() }));
        let step = self.bound(step.clone());
        let mut running = Running::start(&step, &self.scratch)?;
        if step.background {
            self.until_ready(&step, running).map(Some)
        } else {
            let limit = limit(&step);
            running.wait(|| self.stop.signal().map(RunError::Stopped).or_else(|| limit(&running_title(&step))))?;
            process::expect_success(&step, &running.outcome())?;
            Ok(None)
        }
    }

    fn until_ready(&self, step: &Step, mut running: Running) -> Result<Running, RunError> {
        let Some(ready) = &step.ready else { return Ok(running) };
        let limit = limit(&Step { limit_s: if step.limit_s > 0.0 { step.limit_s } else { 60.0 }, ..step.clone() });
        while !ready.exists() {
            if running.has_ended() {
                let outcome = running.outcome();
                process::expect_success(step, &outcome)?;
                let what = process::title(step);
                let (how, said) = (format!("ended before there was {}", ready.display()), String::new());
                return Err(StepError::Failed { what, how, said }.into());
            }
            if let Some(error) = self.stop.signal().map(RunError::Stopped).or_else(|| limit(&running_title(step))) {
                running.end();
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }

    /// Waits, unless a signal comes.
    fn rest(&self, ns: u64) -> Result<(), RunError> {
        let until_ns = now_ns() + ns;
        loop {
            if let Some(signal) = self.stop.signal() {
                return Err(RunError::Stopped(signal));
            }
            let left_ns = until_ns.saturating_sub(now_ns());
            if left_ns == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_nanos(left_ns.min(50_000_000)));
        }
    }

    /// Ends what goes on, lets the workload clean up, and puts the machine back.
    fn leave(&mut self) -> Result<(), RunError> {
        let mut said = Vec::new();
        let left = self.put_in_order(&mut |event| said.push(event));
        said.into_iter().for_each(|event| (self.watch)(event));
        left
    }

    fn put_in_order(&mut self, tell: &mut dyn FnMut(Event)) -> Result<(), RunError> {
        if std::mem::take(&mut self.prepared) {
            let steps = self.loaded.workload.clean_up(&self.stage(Key { point: 0, repeat: 0 }));
            for step in steps {
                let done = Running::start(&step, &self.scratch).and_then(|mut running| {
                    let limit =
                        limit(&Step { limit_s: if step.limit_s > 0.0 { step.limit_s } else { 60.0 }, ..step.clone() });
                    let _ = running.wait(|| limit(""));
                    process::expect_success(&step, &running.outcome())
                });
                if let Err(error) = done {
                    tell(Event::Step(format!("cleaning up: {error}")));
                }
            }
        }
        while let Some(mut running) = self.background.pop() {
            running.end();
        }
        if self.loaded.experiment.target.is_default() {
            let _ = std::fs::remove_file(self.settings.folder.root().join(target::DEFAULT_FILE));
        }
        let _ = std::fs::remove_dir_all(&self.scratch);
        self.changes.restore()?;
        Ok(())
    }

    fn results(&self, complete: bool) -> Results {
        let mut notes: Vec<String> = self.senses.missing.iter().map(|missing| format!("not read: {missing}")).collect();
        let unread = &self.senses.unread;
        if !unread.is_empty() {
            notes.push(format!("no watts are measured: the experiment does not read {}", unread.join(", ")));
        } else if !self.senses.has_measured_power() {
            notes.push("no power sensor could be read on this machine: there are no measured watts".into());
            notes.extend(self.senses.survey.iter().map(|missing| format!("no watts from {missing}")));
        }
        if let Some(rule) = self.loaded.experiment.stop.as_ref().filter(|_| self.by_rule.is_empty()) {
            let Stop { metric, at_most, .. } = rule;
            notes.push(format!(
                "stop.metric: {metric} has no value anywhere, so each point is measured {at_most} times"
            ));
        }
        notes.extend(again::notes(&self.settings.folder).unwrap_or_default());
        let complete = complete && self.failed.is_empty();
        Results { complete, ..Results::of(self.plan, &self.journal.finished, &self.taken, notes) }
    }
}

/// What measured results say of themselves.
fn about(plan: &Plan, host: &str) -> About {
    let word = |text: &str| text.replace(|c: char| c.is_whitespace() || c == ',', "-");
    let host = if host.is_empty() { "unknown".to_owned() } else { word(host) };
    let hash = plan.hash.chars().take(10).collect();
    About { experiment: word(&plan.title), host, hash, ..About::default() }
}

/// Writes what a reader needs to understand or repeat the run.
fn describe(
    loaded: &Loaded,
    plan: &Plan,
    senses: &Senses,
    settings: &Settings,
    tool: Tool,
    drive: Option<String>,
) -> Result<(), RunError> {
    let folder = &settings.folder;
    folder.save(&folder.environment(), &Environment::read(&settings.roots, now_s(), vec![tool], drive))?;
    folder.save(&folder.sensors(), senses)?;
    folder.write(&folder.experiment(), &loaded.table.to_string())?;
    // Last: a folder with a plan has everything else.
    folder.save(&folder.plan(), plan)?;
    Ok(())
}

/// Seconds since 1970.
fn now_s() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// Says when a step has taken too long.
fn limit(step: &Step) -> impl Fn(&str) -> Option<RunError> + use<> {
    let (limit_s, began_ns) = (step.limit_s, now_ns());
    move |title: &str| {
        let gone_s = now_ns().saturating_sub(began_ns) as f64 / 1e9;
        (limit_s > 0.0 && gone_s > limit_s).then(|| {
            let (how, said) = (format!("was ended after {limit_s} s"), "it timed out".to_owned());
            StepError::Failed { what: title.to_owned(), how, said }.into()
        })
    }
}

fn running_title(step: &Step) -> String {
    process::title(step)
}

/// The knobs that are the workload's.
pub(crate) fn own(point: &Point) -> Point {
    point
        .iter()
        .filter(|(name, _)| !name.starts_with("machine."))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
