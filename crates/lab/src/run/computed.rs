//! Runs an experiment on a machine that is computed: the same file, plan, journal, folder, metrics and report as on a real one, with
//! nothing started, read or changed.
//!
//! *Properties.* No clock is read, so the same experiment on the same machine leaves the same bytes. Everything that is about power is
//! labelled as modelled by whoever computes the machine. Sensors that the experiment lists are not looked for: the machine brings its own.
//! Samples are kept of the first repeat of each point.

pub mod host;

use std::collections::BTreeMap;
use std::path::Path;

use pilotlight_actuators::Machine;
use pilotlight_results::fingerprint::Fingerprint;
use pilotlight_results::values::{self, About, Cell};
use pilotlight_sensors::energy::Window;
use pilotlight_sensors::{Domain, Recording};

use super::{Event, RunError, Senses, StopFlag, machine, own};
use crate::experiment::Loaded;
use crate::given::{self, differing};
use crate::metrics::power::Taken;
use crate::plan::{Key, Plan};
use crate::results::entry::{Baseline, Entry, Run, Sensed};
use crate::results::environment::Environment;
use crate::results::folder::name_of;
use crate::results::journal::Journal;
use crate::results::samples::{self, Format};
use crate::results::simulated;
use crate::results::summary::{Results, setting};
use crate::results::{Folder, FolderError};
use pilotlight_workloads::client::Client;
use pilotlight_workloads::record::Record;
use pilotlight_workloads::{Point, Problem, RunContext, Target};

/// A machine that is computed.
pub trait Computed {
    /// What its results say of themselves.
    fn about(&self) -> About;

    /// Names the values that a measurement depends on.
    ///
    /// # Errors
    /// As [`Computed::measure`].
    fn fingerprint(&self, ask: &Ask<'_>) -> Result<Fingerprint, Problem>;

    /// Domains of its sensors, with the sensor's name.
    fn domains(&self) -> Vec<(String, Domain)>;

    /// Does what is asked.
    ///
    /// # Errors
    /// The machine has no such tool or setting: the key and what it has.
    fn measure(&mut self, ask: &Ask<'_>) -> Result<Observed, Problem>;

    /// The idle machine for so long.
    ///
    /// # Errors
    /// The machine has no such setting.
    fn idle(&mut self, machine: &Machine, length_ns: u64) -> Result<Recording, Problem>;
}

/// What a machine is asked to do.
#[derive(Debug)]
pub struct Ask<'a> {
    /// The kind of workload, such as `fio`.
    pub workload: &'a str,
    /// Its knobs.
    pub point: &'a Point,
    /// What clients do, where the workload is a model of an application.
    pub client: Option<&'a Client>,
    /// Times and seed. There is no place: the machine has one drive.
    pub stage: &'a RunContext,
    /// How it is set.
    pub machine: &'a Machine,
    /// How long it rests afterwards, in nanoseconds.
    pub cool_down_ns: u64,
}

/// What came of it. Time begins at 0.
#[derive(Clone, Debug)]
pub struct Observed {
    /// What the workload says.
    pub record: Record,
    /// What sensors say, the rest afterwards included.
    pub recording: Recording,
    /// When the workload ended.
    pub end_ns: u64,
    /// What figures are of.
    pub window: Window,
}

/// Computes what is missing of an experiment, and summarises what is there.
///
/// # Errors
/// Why it ended early. What was finished until then is kept.
pub fn run(
    loaded: &Loaded,
    plan: &Plan,
    computed: &mut dyn Computed,
    folder: &Folder,
    format: Format,
    stop: &StopFlag,
    watch: &mut dyn FnMut(Event),
) -> Result<Results, RunError> {
    let senses = Senses { domains: computed.domains(), ..Senses::default() };
    // Numbers of an earlier run of it, as they are committed, come out again.
    let numbers = format!("{}{}", values::FILE, values::PACKED);
    if folder.open_over(plan, &[&numbers])? {
        expect_same(folder, &environment(computed))?;
    } else {
        folder.save(&folder.environment(), &environment(computed))?;
        folder.save(&folder.sensors(), &senses)?;
        folder.write(&folder.experiment(), &loaded.table.to_string())?;
        folder.save(&folder.plan(), plan)?;
    }
    let (journal, taken) = (Journal::open(&folder.journal())?, super::taken(&senses, None));
    let mut runner = Runner { loaded, plan, computed, folder, format, journal };
    let outcome = runner.everything(stop, watch);
    let results = runner.results(&taken, outcome.is_ok());
    folder.save(&folder.results(), &results)?;
    folder.write(&folder.table(), &results.table().csv(&results.notes))?;
    let cells = cells(loaded, plan, runner.computed);
    crate::results::values::write(folder, &runner.computed.about(), cells?, (plan, &runner.journal.finished, &taken))?;
    crate::report::write(folder.root())?;
    outcome.map(|()| results)
}

fn environment(computed: &dyn Computed) -> Environment {
    Environment { pilotlight: env!("CARGO_PKG_VERSION").into(), ..simulated::environment(&computed.about()) }
}

/// What was computed before must be of this machine.
fn expect_same(folder: &Folder, now: &Environment) -> Result<(), FolderError> {
    let before: Environment = folder.load(&folder.environment())?;
    let differing = differing(&given::machine(&before), &given::machine(now));
    let Some((key, was, is)) = differing.first() else { return Ok(()) };
    let differing = format!("{key} was {was} and is {is}");
    Err(FolderError::OtherMachine { path: folder.root().to_owned(), differing })
}

/// The cells of an experiment on a machine, each with what names its values in its first repeat.
///
/// # Errors
/// As [`asked`].
pub fn cells(loaded: &Loaded, plan: &Plan, computed: &dyn Computed) -> Result<BTreeMap<Cell, Fingerprint>, RunError> {
    let about = computed.about();
    let one = |point: &Point, ask: &Ask<'_>| {
        Ok((crate::results::values::cell(plan, point, &about), computed.fingerprint(ask)?))
    };
    Ok(asked(loaded, plan, one)?.into_iter().collect())
}

/// What a machine is asked at each point in its first repeat; `answer` is told the point too.
///
/// # Errors
/// If a point's settings of the machine are not as they should be, or `answer` refuses.
pub fn asked<T>(
    loaded: &Loaded,
    plan: &Plan,
    mut answer: impl FnMut(&Point, &Ask<'_>) -> Result<T, Problem>,
) -> Result<Vec<T>, RunError> {
    let mut answers = Vec::new();
    for (at, point) in plan.points.iter().enumerate() {
        let machine = machine::machine(&loaded.experiment.machine, &setting(point), &loaded.file)?;
        let stage = stage(loaded, plan, Key { point: at, repeat: 0 }, Path::new(""));
        answers.push(answer(point, &ask(loaded, &own(point), &stage, &machine))?);
    }
    Ok(answers)
}

fn ask<'a>(loaded: &'a Loaded, point: &'a Point, stage: &'a RunContext, machine: &'a Machine) -> Ask<'a> {
    let cool_down_ns = loaded.experiment.cool_down.0;
    let (workload, client) = (loaded.workload.name(), loaded.workload.client());
    Ask { workload, point, client, stage, machine, cool_down_ns }
}

fn stage(loaded: &Loaded, plan: &Plan, key: Key, scratch: &Path) -> RunContext {
    let experiment = &loaded.experiment;
    RunContext {
        scratch: scratch.to_owned(),
        target: Target::None,
        ramp_s: experiment.warm_up().seconds(),
        duration_s: experiment.duration.map_or(0.0, |duration| duration.seconds()),
        seed: plan.seed_of(key),
    }
}

struct Runner<'a> {
    loaded: &'a Loaded,
    plan: &'a Plan,
    computed: &'a mut dyn Computed,
    folder: &'a Folder,
    format: Format,
    journal: Journal,
}

impl Runner<'_> {
    /// A stop rule is not asked: computing is cheap, so every point is repeated as often as it may be.
    fn everything(&mut self, stop: &StopFlag, watch: &mut dyn FnMut(Event)) -> Result<(), RunError> {
        let of = self.plan.points.len() * self.plan.repeats.1 as usize;
        for repeat in 0..self.plan.repeats.1 {
            for point in self.plan.round(repeat, |_| true) {
                let key = Key { point, repeat };
                if let Some(signal) = stop.signal() {
                    return Err(RunError::Stopped(signal));
                }
                if !self.journal.finished.runs.contains_key(&key) {
                    let finished = self.journal.finished.runs.len();
                    watch(Event::Measuring { key, finished, of, left_s: 0.0 });
                    self.one(key)?;
                }
            }
        }
        Ok(())
    }

    fn one(&mut self, key: Key) -> Result<(), RunError> {
        let point = &self.plan.points[key.point];
        let machine = machine::machine(&self.loaded.experiment.machine, &setting(point), &self.loaded.file)?;
        self.baseline(&setting(point), &machine)?;
        let (stage, own) = (stage(self.loaded, self.plan, key, self.folder.root()), own(point));
        let Observed { record, recording, end_ns, window } =
            self.computed.measure(&ask(self.loaded, &own, &stage, &machine))?;
        if key.repeat == 0 {
            samples::write(&recording, 0, &self.folder.samples(&name_of(key)), self.format)?;
        }
        let run = Run {
            key,
            knobs: point.clone(),
            began_wall_ns: 0,
            span: Window { from_ns: 0, to_ns: end_ns },
            window,
            record,
            sensed: Sensed::of(&recording, window),
            completion: None,
        };
        Ok(self.journal.add(Entry::Run(Box::new(run)))?)
    }

    /// Once for all rounds, because the computed idle machine is the same in each; and only where the experiment names a length.
    fn baseline(&mut self, setting: &Point, machine: &Machine) -> Result<(), RunError> {
        let length_ns = self.loaded.experiment.idle_baseline.map_or(0, |length| length.0);
        if length_ns == 0 || self.journal.finished.baselines.iter().any(|baseline| baseline.setting == *setting) {
            return Ok(());
        }
        let recording = self.computed.idle(machine, length_ns)?;
        let window = Window { from_ns: 0, to_ns: length_ns };
        let baseline = Baseline { setting: setting.clone(), round: 0, window, sensed: Sensed::of(&recording, window) };
        Ok(self.journal.add(Entry::Baseline(Box::new(baseline)))?)
    }

    fn results(&self, taken: &Taken, complete: bool) -> Results {
        let results = Results::of(
            self.plan,
            &self.journal.finished,
            taken,
            vec![simulated::nothing_measured(&self.computed.about())],
        );
        Results { complete, ..results }
    }
}
