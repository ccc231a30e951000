//! Power for policies and `pilotlight status`: one sensor, read by a thread of its own.
//!
//! **Properties.** No reactor waits for a sensor. A missing value is not 0 W: the window then has no value. Power that is
//! modelled carries the name of its profile. A reading that cannot be true ([`pilotlight_power::plausible`]) is a missing one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{anyhow, bail};
use pilotlight_plant::{Cost, Depth, PowerProfile, ProfileError, Quantity, Reading, ReadingId, Scope, Source, Window};
use pilotlight_power::cputime::Busy;
use pilotlight_power::live::{Live, LiveReading, Value};
use pilotlight_power::plausible::{Plausibility, Refused};
use pilotlight_power::{Domain, Kind, Open, Origin, Part, Roots, Sensor, hwmon, modelled, rapl};
use pilotlight_reactor::{ReadingBoard, Readings, clock, keep_off};
use tracing::{info, warn};

mod published;

use super::budget;
use crate::config::{SensorChoice, place_in};
use crate::metrics::{PowerFacts, ZoneFacts};
use crate::policies::BudgetDomain;
use crate::privileges::files::read_text;
use crate::status::report::{PowerReading, PowerReport};
use published::{Published, Publisher, Spent};

/// Time between two readings, and the length of a window where the sensor itself averages over none that is longer: shorter than the second
/// of policies (PASS 3.1), long enough for counters of 10 ms.
const WINDOW: Duration = Duration::from_millis(500);
/// The driver of the firmware's power meter (acpi_power_meter), which measures the whole system.
const FIRMWARE: &str = "power_meter";
/// Readings in a row after which a source is good again, so that one at the edge does not fill the log.
const GOOD_AGAIN: u8 = 10;
/// A platform zone can be of less than all packages; it is then refused at each reading.
const CPU_ONLY: &str = "; where it measures only a part, `domain = \"cpu\"` in [goals] has budgets be of the packages";
/// The zone of the whole machine.
pub(crate) const SYSTEM: &str = "system";
/// What is said where no source is of the whole server.
pub(crate) const PACKAGES_ONLY: &str = "only the CPU packages: a budget leaves out the drives and caps none of them";
/// The profile that is built in.
const PROFILE: &str = include_str!("../../../../profiles/sandman-epyc-9454p.toml");

/// A sensor that can be read.
pub(crate) struct Meter {
    sensor: Box<dyn Sensor>,
    /// Sources, each with the domains that add up to it.
    parts: Vec<(Scope, Vec<usize>)>,
    /// Power of the CPU packages below which it never reads, where that is known, in microwatts.
    floor_uw: Option<u64>,
    /// Measures the CPU packages where `sensor` measures the server only, to check it.
    witness: Option<Box<dyn Sensor>>,
    /// The load, to check a sensor that measures.
    busy: Option<Busy>,
}

/// Which readings are used.
struct Check {
    /// Of each source.
    of: Vec<Plausibility>,
    /// How many good readings of each source in a row have its next refusal logged.
    until_logged: Vec<u8>,
}

/// A sensor that is read periodically, until this is dropped.
pub(crate) struct Power {
    board: Arc<ReadingBoard>,
    published: Arc<Published>,
    /// The sensor itself gives power.
    gives_watts: bool,
    sensor: String,
    modelled: Option<String>,
    floor_uw: Option<u64>,
    /// Until the end.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The sensor that was chosen, or why it cannot be read; `None` where none was, or `auto` finds none.
pub(crate) fn open(choice: &SensorChoice, roots: &Roots) -> anyhow::Result<Option<Meter>> {
    let firmware = || Meter::hwmon(roots, FIRMWARE);
    match choice {
        SensorChoice::None => Ok(None),
        // A package without a value leaves a budget of the packages without one.
        SensorChoice::Auto => match Meter::rapl(roots) {
            Ok(meter) if meter.sensor.failed().is_empty() => Ok(Some(meter)),
            rapl => Ok(firmware().or(rapl).ok()),
        },
        SensorChoice::Rapl => Meter::rapl(roots).map(Some),
        SensorChoice::Hwmon(None) => firmware().map(|meter| Some(meter.beside_packages(roots))),
        SensorChoice::Hwmon(Some(chip)) => Meter::hwmon(roots, chip).map(|meter| Some(meter.beside_packages(roots))),
        SensorChoice::Modelled(file) => {
            let text = file.as_ref().map(|file| {
                let text = read_text(file).map_err(|error| anyhow!("cannot read {}: {error}", file.display()))?;
                check_profile(&text).map_err(|why| anyhow!("{}: {why}", file.display()))?;
                anyhow::Ok(text)
            });
            Meter::modelled(roots, text.transpose()?.as_deref().unwrap_or(PROFILE)).map(Some)
        }
    }
}

/// Says where a profile is wrong, without a word of it: the error itself quotes the line.
fn check_profile(text: &str) -> anyhow::Result<()> {
    match PowerProfile::parse(text) {
        Err(ProfileError::Syntax(error)) => {
            let place = place_in(text, error.span().map_or(0, |span| span.start));
            bail!("{place}: this is no profile of power; profiles/ has examples")
        }
        _ => Ok(()), // other errors have no place
    }
}

/// Logs why `auto` finds none, once, when a server starts.
pub(super) fn log_missing_sensor(choice: &SensorChoice, roots: &Roots) {
    if !matches!(choice, SensorChoice::Auto) {
        return;
    }
    if let (Err(rapl), Err(firmware)) = (Meter::rapl(roots), Meter::hwmon(roots, FIRMWARE)) {
        info!("power is not measured: {rapl}; {firmware}");
    }
}

impl Meter {
    fn rapl(roots: &Roots) -> anyhow::Result<Self> {
        let of = |domain: &Domain| match domain.part {
            Part::Package(package) | Part::Die(package, _) => Some(Scope::Package(package as u16)),
            Part::Platform => Some(Scope::Server),
            _ => None,
        };
        let sensor = rapl::Rapl::open(roots, &rapl::Options::default())?;
        Ok(Self { busy: Some(Busy::of(roots)), ..Self::new(sensor, of)? })
    }

    fn hwmon(roots: &Roots, chip: &str) -> anyhow::Result<Self> {
        let options = hwmon::Options { chips: vec![chip.to_owned()], ..hwmon::Options::default() };
        let sensor = hwmon::Hwmon::open(roots, &options)?;
        if let Some(note) = sensor.info().notes.first() {
            bail!("{chip}: {note}, so that the sum of its channels is unknown");
        }
        let has_power = sensor.domains().iter().any(|domain| domain.kind == Kind::Power);
        let meter = Self::new(sensor, |domain| match domain.part {
            Part::Package(package) => Some(Scope::Package(package as u16)),
            _ => (domain.kind == Kind::Power || !has_power).then_some(Scope::Server),
        })?;
        Ok(Self { busy: Some(Busy::of(roots)), ..meter })
    }

    /// The model with the built-in profile, but as much of the machine as this one has cores: on two of 48 cores the rest of the package
    /// would hide what a budget does.
    pub(crate) fn modelled_share(roots: &Roots) -> anyhow::Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::modelled_of(roots, PROFILE, Some(cpus as u64))
    }

    /// The model has no drives and no memory, so it is a source for the CPU packages only.
    fn modelled(roots: &Roots, profile: &str) -> anyhow::Result<Self> {
        Self::modelled_of(roots, profile, None)
    }

    /// Scaled to this number of the profile's cores.
    fn modelled_of(roots: &Roots, profile: &str, share: Option<u64>) -> anyhow::Result<Self> {
        let profile = PowerProfile::parse(profile)?;
        let cores = u64::from(profile.cores);
        let (deep_uw, share) = (profile.cpu_uw.deep, share.filter(|&share| share < cores));
        let (idle_core_uw, busy_core_uw) = (profile.core_uw(Depth::MonitorWait), profile.core_uw(Depth::Poll));
        let name = profile.name;
        let options = modelled::Options {
            profile: share.map_or(name.clone(), |share| format!("{name}, the share of {share} of {cores} cores")),
            base_uw: share.map_or(deep_uw, |share| deep_uw * share / cores),
            idle_core_uw,
            busy_core_uw,
        };
        let sensor = modelled::Modelled::open(roots, &options)?;
        let floor_uw = Some(sensor.lowest_uw());
        Ok(Self { floor_uw, ..Self::new(sensor, |_| Some(Scope::Package(0)))? })
    }

    fn new(sensor: impl Sensor + 'static, of: impl Fn(&Domain) -> Option<Scope>) -> anyhow::Result<Self> {
        let mut parts: Vec<(Scope, Vec<usize>)> = Vec::new();
        for (index, domain) in sensor.domains().iter().enumerate() {
            let Some(of) = of(domain) else { continue };
            match parts.iter_mut().find(|(known, _)| *known == of) {
                Some((_, domains)) => domains.push(index),
                None => parts.push((of, vec![index])),
            }
        }
        if parts.is_empty() {
            bail!("{} measures neither a CPU package nor the whole system", sensor.name());
        }
        Ok(Self { sensor: Box::new(sensor), parts, floor_uw: None, witness: None, busy: None })
    }

    /// With RAPL's packages as a witness, if there are any and this sensor has none itself.
    fn beside_packages(self, roots: &Roots) -> Self {
        let has_packages = self.parts.iter().any(|(scope, _)| is_package(*scope));
        let rapl = || rapl::Rapl::open(roots, &rapl::Options::default()).ok();
        let witness = if has_packages { None } else { rapl().map(|rapl| Box::new(rapl) as Box<dyn Sensor>) };
        Self { witness, ..self }
    }

    /// Why a budget of this sensor does not include all of the server; `None` if it does.
    pub(super) fn lacks_server(&self) -> Option<&'static str> {
        let has_server = self.parts.iter().any(|(scope, _)| *scope == Scope::Server);
        (!has_server).then_some(PACKAGES_ONLY)
    }

    /// The sources for a policy.
    pub(super) fn sources(&self) -> Vec<Source> {
        self.parts.iter().map(|(of, domains)| self.source(*of, domains)).collect()
    }

    fn source(&self, scope: Scope, domains: &[usize]) -> Source {
        let timings = || domains.iter().map(|&domain| self.sensor.domains()[domain].timing);
        let lag_ns = timings().map(|timing| timing.lag_ns.unwrap_or(timing.update_ns)).max().unwrap_or(0);
        let averaging_ns = timings().filter_map(|timing| timing.averaging_ns).max().unwrap_or(0);
        let window_ns = averaging_ns.max(WINDOW.as_nanos() as u64);
        Source { scope, quantity: Quantity::PowerUw, window_ns, lag: Cost::Assumed(lag_ns) }
    }

    /// The profile, where it is none that measures.
    fn profile(&self) -> Option<String> {
        self.sensor.domains().iter().find_map(|domain| match &domain.origin {
            Origin::Modelled { profile } => Some(profile.clone()),
            Origin::Measured => None,
        })
    }

    /// Reads it from now on, on other CPUs than these where it may use any.
    pub(crate) fn start(self, reactors: &[Option<u32>]) -> io::Result<Power> {
        let board = Arc::new(ReadingBoard::new(self.sources()));
        let (sensor, modelled, floor_uw) = (self.sensor.name().to_owned(), self.profile(), self.floor_uw);
        match &modelled {
            Some(profile) => info!("power is modelled from CPU time, not measured (profile {profile})"),
            None => info!("power is measured by {sensor}"),
        }
        self.sensor.info().notes.iter().for_each(|note| warn!("{sensor}: {note}"));
        self.lacks_server().iter().for_each(|why| warn!("the sensor of power measures {why}"));
        let cpus: Vec<u32> = reactors.iter().flatten().copied().collect();
        let published = Arc::new(Published::new(self.sources()));
        let gives_watts = self.gives_watts();
        let ((stop, stopped), written) = (channel(), Arc::clone(&board));
        let publisher = Publisher::new(Arc::clone(&published), clock::now_ns());
        let thread = std::thread::Builder::new().name("power".into()).spawn(move || {
            keep_off(&cpus);
            self.read_until(&stopped, &written, publisher);
        })?;
        Ok(Power { board, published, gives_watts, sensor, modelled, floor_uw, stop: Some(stop), thread: Some(thread) })
    }

    fn gives_watts(&self) -> bool {
        self.sensor.domains().iter().any(|domain| domain.kind == Kind::Power)
    }

    fn read_until(mut self, stopped: &Receiver<()>, board: &ReadingBoard, mut publisher: Publisher) {
        let gives_watts = self.gives_watts();
        let mut check = Check::new(&board.sources());
        let mut live = Live::of(vec![self.sensor]);
        let mut witness = Live::of(self.witness.into_iter().collect());
        let mut fails = false;
        let mut last_ns = clock::now_ns();
        loop {
            let beside_uw = witness.read(clock::now_ns).first().and_then(packages_uw);
            check.note_busy(clock::now_ns(), self.busy.as_mut().and_then(Busy::permille));
            for said in live.read(clock::now_ns) {
                let failed = said.values.as_ref().err().or(said.failed.first().map(|failed| &failed.why));
                failed.filter(|_| !fails).iter().for_each(|why| warn!("power cannot be read: {why}"));
                fails = failed.is_some();
                let now_ns = clock::now_ns();
                let elapsed_ns = now_ns.saturating_sub(last_ns);
                if said.values.is_ok() || gives_watts {
                    last_ns = now_ns; // after a failed reading the growth of a counter is of all the time since the last good one
                }
                put((board, &self.parts), &said, (&mut check, beside_uw), (&mut publisher, elapsed_ns));
            }
            if stopped.recv_timeout(WINDOW) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}

impl Check {
    fn new(sources: &[Source]) -> Self {
        let check = |source: &Source| Plausibility::new(source.window_ns, source.lag.ns());
        Self { of: sources.iter().map(check).collect(), until_logged: vec![0; sources.len()] }
    }

    /// The part of all CPU time that was in use since the last call, in thousandths.
    fn note_busy(&mut self, now_ns: u64, permille: Option<u64>) {
        self.of.iter_mut().for_each(|check| check.note_busy(now_ns, permille));
    }

    /// The powers of these sources that are plausible, and what is to be logged. `beside_uw` is the packages' power by another sensor.
    fn plausible(
        &mut self,
        now_ns: u64,
        read: &[(Scope, Option<u64>)],
        beside_uw: Option<u64>,
    ) -> (Vec<Option<u64>>, Vec<String>) {
        let packages: Option<u64> = read.iter().filter(|(scope, _)| is_package(*scope)).map(|(_, uw)| *uw).sum();
        let has_packages = read.iter().any(|(scope, _)| is_package(*scope));
        let packages_uw = if has_packages { packages } else { beside_uw };
        let mut said = Vec::new();
        let checked = self.of.iter_mut().zip(&mut self.until_logged).zip(read);
        let checked = checked.map(|((check, until_logged), (scope, uw))| {
            if !is_package(*scope) {
                check.note_packages(now_ns, packages_uw);
            }
            let checked = check.check(now_ns, (*uw)?);
            match &checked {
                Ok(_) => *until_logged = until_logged.saturating_sub(1),
                Err(why) => {
                    if std::mem::replace(until_logged, GOOD_AGAIN) == 0 {
                        let help =
                            if has_packages && matches!(why, Refused::BelowPackages { .. }) { CPU_ONLY } else { "" };
                        said.push(format!("power of {scope:?} is not used: {why}{help}"));
                    }
                }
            }
            checked.ok()
        });
        (checked.collect(), said)
    }
}

fn is_package(scope: Scope) -> bool {
    matches!(scope, Scope::Package(_))
}

/// The sum of all packages of a sensor; `None` if one is unknown or there is none.
fn packages_uw(said: &LiveReading) -> Option<u64> {
    let values = said.values.as_ref().ok()?;
    let packages = || values.iter().filter(|(domain, _)| matches!(domain.part, Part::Package(_) | Part::Die(..)));
    let watts: Option<f64> = packages().map(|(_, value)| watts(value.as_ref())).sum();
    watts.filter(|_| packages().next().is_some()).map(|watts| (watts * 1e6).round() as u64)
}

fn watts(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Watts(watts) => Some(*watts),
        _ => None,
    }
}

/// Writes the plausible values of each part, and publishes them in time.
fn put(
    (board, parts): (&ReadingBoard, &[(Scope, Vec<usize>)]),
    said: &LiveReading,
    (check, beside_uw): (&mut Check, Option<u64>),
    (publisher, elapsed_ns): (&mut Publisher, u64),
) {
    let ended_ns = clock::now_ns();
    let domain = |domain: &usize| watts(said.values.as_ref().ok()?.get(*domain)?.1.as_ref());
    let read = parts.iter().map(|(scope, domains)| {
        let sum: Option<f64> = domains.iter().map(domain).sum();
        let uw = sum.map(|watts| (watts * 1e6).round()).filter(|&uw| uw >= 0.0); // a chip can report negative power
        (*scope, uw.map(|uw| uw as u64))
    });
    let read: Vec<_> = read.collect();
    let (plausible, said) = check.plausible(ended_ns, &read, beside_uw);
    said.iter().for_each(|said| warn!("{said}"));
    for (id, value) in (0..).map(ReadingId).zip(plausible) {
        board.put(id, Window { ended_ns, value });
        if let Some(uw) = value {
            publisher.add(usize::from(id.0), uw, elapsed_ns);
        }
    }
    publisher.publish(ended_ns);
}

impl Power {
    /// For the reactors.
    pub(crate) fn readings(&self) -> Arc<dyn Readings> {
        Arc::clone(&self.board) as _
    }

    /// The sources.
    pub(crate) fn sources(&self) -> Vec<Source> {
        self.board.sources()
    }

    /// As of [`super::running::Running::window`].
    pub(crate) fn window(&self, domain: BudgetDomain) -> Option<(u64, u64, u64)> {
        window_on(&self.board, domain)
    }

    /// As of [`super::running::Running::published_window`].
    pub(super) fn published_window(&self, domain: BudgetDomain) -> Option<(u64, u64, u64)> {
        window_on(&self.published.board, domain)
    }

    /// As of [`super::running::Running::floor_uw`].
    pub(super) fn floor_uw(&self, domain: BudgetDomain) -> Option<u64> {
        self.floor_uw.filter(|_| domain == BudgetDomain::Cpu)
    }

    /// For metrics.
    pub(crate) fn facts(&self) -> PowerFacts {
        let report = self.report();
        let zone = |(reading, spent): (PowerReading, &Spent)| ZoneFacts {
            name: reading.of,
            read_ns: spent.read_ns.load(Relaxed), // first: energy may be of one reading more, never of one less
            energy_uj: spent.energy_uj.load(Relaxed),
            power_uw: reading.power_uw,
        };
        PowerFacts {
            zones: report.readings.into_iter().zip(&self.published.spent).map(zone).collect(),
            sensor: report.sensor,
            model: report.modelled,
            gives_watts: self.gives_watts && self.modelled.is_none(),
        }
    }

    /// For people.
    pub(crate) fn report(&self) -> PowerReport {
        let (board, now_ns) = (&self.published.board, clock::now_ns());
        let reading = |(id, source): (ReadingId, Source)| {
            let reading = source.reading(id, board.last(id), now_ns);
            let of = match source.scope {
                Scope::Package(_) if self.modelled.is_some() => "CPU packages".to_owned(),
                Scope::Package(package) => format!("package {package}"),
                _ => SYSTEM.to_owned(),
            };
            let age_ns = Some(reading.age_ns).filter(|&age_ns| age_ns != u64::MAX);
            PowerReading { of, power_uw: reading.value, age_ns }
        };
        let readings = (0..).map(ReadingId).zip(board.sources()).map(reading).collect();
        PowerReport { sensor: self.sensor.clone(), modelled: self.modelled.clone(), readings }
    }
}

/// The last window of a domain on a board: when it began and ended, and its power; not one that is stale.
fn window_on(board: &ReadingBoard, domain: BudgetDomain) -> Option<(u64, u64, u64)> {
    let now_ns = clock::now_ns();
    let mut whole: Option<(u64, u64, u64)> = None;
    for (id, source) in (0..).map(ReadingId).zip(board.sources()) {
        if !budget::belongs(&source, domain) {
            continue;
        }
        let Reading { value, age_ns, .. } = source.reading(id, board.last(id), now_ns);
        let ended_ns = now_ns.saturating_sub(age_ns);
        let (_, other_ns, sum_uw) = whole.unwrap_or((0, u64::MAX, 0));
        let ended_ns = ended_ns.min(other_ns);
        whole = Some((ended_ns.saturating_sub(source.window_ns), ended_ns, sum_uw + value?));
    }
    whole
}

impl Drop for Power {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
