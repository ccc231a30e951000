//! Runs an experiment on a simulated machine, with the same file, plan, journal, folder, metrics and report as on a real one.
//!
//! No clock is read, so results are byte-identical between runs. Power is labelled as modelled. Sensors of the experiment are ignored: the
//! machine has its own. Samples are kept of the first repeat of each point.

pub mod host;

use std::path::Path;

use crate::stored::fingerprint::Fingerprint;
use crate::stored::values::{self, Fingerprints, Provenance};
use pilotlight_actuators::Machine;
use pilotlight_sensors::energy::Window;
use pilotlight_sensors::{Domain, Recording};

use super::{Event, RunError, StopFlag};
use crate::experiment::Loaded;
use crate::experiment::machine::machine;
use crate::metrics::power::PowerDomains;
use crate::plan::{Key, Plan, machine_knobs, workload_knobs};
use crate::record::{Baseline, Entry, Run, Sensed};
use crate::result_set::{self, differing};
use crate::results::environment::Environment;
use crate::results::folder::name_of;
use crate::results::journal::Journal;
use crate::results::samples::{self, Format};
use crate::results::simulated;
use crate::results::summary::Results;
use crate::results::{Folder, FolderError};
use crate::sensor_set::SensorSet;
use pilotlight_workloads::client::Client;
use pilotlight_workloads::record::Record;
use pilotlight_workloads::{Point, Problem, RunContext, Target};

/// A simulated machine.
pub trait Computed {
    /// Provenance of its results.
    fn provenance(&self) -> Provenance;

    /// Fingerprint of the inputs of a measurement.
    ///
    /// # Errors
    /// As [`Computed::measure`].
    fn fingerprint(&self, request: &Request<'_>) -> Result<Fingerprint, Problem>;

    /// Domains of its sensors, with the name of the sensor.
    fn domains(&self) -> Vec<(String, Domain)>;

    /// Simulates a measurement.
    ///
    /// # Errors
    /// An unsupported tool or setting; the message names the key and what is supported.
    fn measure(&mut self, request: &Request<'_>) -> Result<Measurement, Problem>;

    /// Simulates the idle machine.
    ///
    /// # Errors
    /// An unsupported setting.
    fn idle(&mut self, machine: &Machine, length_ns: u64) -> Result<Recording, Problem>;
}

/// A measurement to simulate.
#[derive(Debug)]
pub struct Request<'a> {
    /// The kind of workload, such as `fio`.
    pub workload: &'a str,
    /// Its knobs.
    pub point: &'a Point,
    /// The clients, if the workload is a model of an application.
    pub client: Option<&'a Client>,
    /// Times and seed. The target is ignored: the machine has one drive.
    pub stage: &'a RunContext,
    /// Settings of the machine.
    pub machine: &'a Machine,
    /// Idle time afterwards, in nanoseconds.
    pub cool_down_ns: u64,
}

/// A simulated measurement. Time starts at 0.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The results of the workload.
    pub record: Record,
    /// Samples of the sensors, including the idle time afterwards.
    pub recording: Recording,
    /// End of the workload.
    pub end_ns: u64,
    /// The measured window.
    pub window: Window,
}

/// Simulates the missing measurements of an experiment and summarises all.
///
/// # Errors
/// If it stops early. Finished measurements are kept.
pub fn run(
    loaded: &Loaded,
    plan: &Plan,
    computed: &mut dyn Computed,
    folder: &Folder,
    format: Format,
    stop: &StopFlag,
    watch: &mut dyn FnMut(Event),
) -> Result<Results, RunError> {
    let sensors = SensorSet { domains: computed.domains(), ..SensorSet::default() };
    // The committed values of an earlier run are reproduced.
    let numbers = format!("{}{}", values::FILE, values::PACKED);
    if folder.open_over(plan, &[&numbers])? {
        expect_same(folder, &environment(computed))?;
    } else {
        folder.save(&folder.environment(), &environment(computed))?;
        folder.save(&folder.sensors(), &sensors)?;
        folder.write(&folder.experiment(), &loaded.table.to_string())?;
        folder.save(&folder.plan(), plan)?;
    }
    let (journal, power_domains) = (Journal::open(&folder.journal())?, super::power_domains(&sensors, None));
    let mut runner = Runner { loaded, plan, computed, folder, format, journal };
    let outcome = runner.measure_all(stop, watch);
    let results = runner.results(&power_domains, outcome.is_ok());
    folder.save(&folder.results(), &results)?;
    folder.write(&folder.table(), &results.table().csv())?;
    let cells = cells(loaded, plan, runner.computed);
    crate::results::values::write(
        folder,
        &runner.computed.provenance(),
        cells?,
        (plan, &runner.journal.finished, &power_domains),
    )?;
    crate::report::write(folder.root())?;
    outcome.map(|()| results)
}

fn environment(computed: &dyn Computed) -> Environment {
    Environment { pilotlight: env!("CARGO_PKG_VERSION").into(), ..simulated::environment(&computed.provenance()) }
}

/// Checks that earlier measurements are of this machine.
fn expect_same(folder: &Folder, now: &Environment) -> Result<(), FolderError> {
    let before: Environment = folder.load(&folder.environment())?;
    let differing = differing(&result_set::machine(&before), &result_set::machine(now));
    let Some((key, was, is)) = differing.first() else { return Ok(()) };
    let differing = format!("{key} changed from {was} to {is}");
    Err(FolderError::OtherMachine { path: folder.root().to_owned(), differing })
}

/// The cells of an experiment on a machine, with the fingerprint of their first repeat.
///
/// # Errors
/// As [`each_request`].
pub fn cells(loaded: &Loaded, plan: &Plan, computed: &dyn Computed) -> Result<Fingerprints, RunError> {
    let about = computed.provenance();
    let one = |point: &Point, request: &Request<'_>| {
        Ok((crate::results::values::cell(plan, point, &about), computed.fingerprint(request)?))
    };
    Ok(each_request(loaded, plan, one)?.into_iter().collect())
}

/// Calls `visit` for each point with the request of its first repeat.
///
/// # Errors
/// If the settings of a point are invalid, or `visit` fails.
pub fn each_request<T>(
    loaded: &Loaded,
    plan: &Plan,
    mut visit: impl FnMut(&Point, &Request<'_>) -> Result<T, Problem>,
) -> Result<Vec<T>, RunError> {
    let mut all = Vec::new();
    for (at, point) in plan.points.iter().enumerate() {
        let machine = machine(&loaded.experiment.machine, &machine_knobs(point), &loaded.file)?;
        let stage = stage(loaded, plan, Key { point: at, repeat: 0 }, Path::new(""));
        all.push(visit(point, &request(loaded, &workload_knobs(point), &stage, &machine))?);
    }
    Ok(all)
}

fn request<'a>(loaded: &'a Loaded, point: &'a Point, stage: &'a RunContext, machine: &'a Machine) -> Request<'a> {
    let cool_down_ns = loaded.experiment.cool_down.0;
    let (workload, client) = (loaded.workload.name(), loaded.workload.client());
    Request { workload, point, client, stage, machine, cool_down_ns }
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
    /// Stop rules are ignored: every point is repeated up to the maximum.
    fn measure_all(&mut self, stop: &StopFlag, watch: &mut dyn FnMut(Event)) -> Result<(), RunError> {
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
                    self.measure_point(key)?;
                }
            }
        }
        Ok(())
    }

    fn measure_point(&mut self, key: Key) -> Result<(), RunError> {
        let point = &self.plan.points[key.point];
        let machine = machine(&self.loaded.experiment.machine, &machine_knobs(point), &self.loaded.file)?;
        self.baseline(&machine_knobs(point), &machine)?;
        let (stage, own) = (stage(self.loaded, self.plan, key, self.folder.root()), workload_knobs(point));
        let Measurement { record, recording, end_ns, window } =
            self.computed.measure(&request(self.loaded, &own, &stage, &machine))?;
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
            sensed: Sensed::from_recording(&recording, window),
            completion: None,
        };
        Ok(self.journal.add(Entry::Run(Box::new(run)))?)
    }

    /// Once for all rounds, because the simulated idle machine is deterministic, and only if the experiment sets a length.
    fn baseline(&mut self, setting: &Point, machine: &Machine) -> Result<(), RunError> {
        let length_ns = self.loaded.experiment.idle_baseline.map_or(0, |length| length.0);
        if length_ns == 0 || self.journal.finished.baselines.iter().any(|baseline| baseline.setting == *setting) {
            return Ok(());
        }
        let recording = self.computed.idle(machine, length_ns)?;
        let window = Window { from_ns: 0, to_ns: length_ns };
        let (setting, sensed) = (setting.clone(), Sensed::from_recording(&recording, window));
        let baseline = Baseline { setting, round: 0, own_programs: true, window, sensed };
        Ok(self.journal.add(Entry::Baseline(Box::new(baseline)))?)
    }

    fn results(&self, power_domains: &PowerDomains, complete: bool) -> Results {
        let results = Results::new(
            self.plan,
            &self.journal.finished,
            power_domains,
            vec![simulated::nothing_measured(&self.computed.provenance())],
        );
        Results { complete, ..results }
    }
}
