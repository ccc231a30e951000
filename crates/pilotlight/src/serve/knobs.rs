//! The knobs of the server's machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pilotlight_actuators::Roots;
use pilotlight_actuators::changes::{self, Error, Options};
use pilotlight_actuators::knobs::{Knobs as Found, Wanted, list};
use pilotlight_actuators::machine::{DeviceError, drive_of};
use pilotlight_nvmf_target::config::ServerConfig;
use pilotlight_plant::{CoreId, Kind, Knob, KnobId, Refusal, Scope};
use pilotlight_reactor::{Actuation, Knobs, Machine};
use tracing::{debug, info, warn};

use super::drives::KnobsAndDrives;
use crate::config::Operation;
use crate::status::report::NameAndValue;

/// This machine, by its knobs.
struct ThisMachine {
    found: Found,
    /// Knobs whose last setting was refused, logged once.
    refused: BTreeSet<KnobId>,
    settings: Settings,
}

/// The knobs that are set, and their values; shared with reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(Arc<Mutex<BTreeMap<KnobId, (Knob, u64)>>>);

impl Settings {
    pub(crate) fn note(&self, id: KnobId, setting: Option<(Knob, u64)>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match setting {
            Some(setting) => all.insert(id, setting),
            None => all.remove(&id),
        };
    }

    /// The knobs that are set below what was found.
    pub(super) fn throttled(&self) -> Vec<NameAndValue> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().filter_map(|(knob, value)| throttled(knob, *value)).collect()
    }
}

fn throttled(knob: &Knob, value: u64) -> Option<NameAndValue> {
    let of = match knob.scope {
        Scope::Core(core) => format!(" of core {}", core.0),
        Scope::Package(package) => format!(" of package {package}"),
        Scope::Device(device) => format!(" of drive {device}"),
        Scope::Namespace(namespace) => format!(" of namespace {namespace}"),
        Scope::Host(host) => format!(" of host {host}"),
        Scope::Background(class) => format!(" of background class {class}"),
        Scope::Server => String::new(),
    };
    let is_below = match knob.kind {
        Kind::PowerState => value > knob.initial, // the higher the slower
        Kind::QuotaPeriodNs => false,             // limits nothing by itself
        Kind::WakeLimitNs => false,               // a lower limit saves less
        _ => value < knob.initial,
    };
    let percent = |ppm: u64| ppm as f64 / 1e4;
    let (name, value) = match knob.kind {
        Kind::FrequencyKhz => ("frequency", format!("{} MHz of {} MHz", value / 1000, knob.initial / 1000)),
        Kind::LimitUw => ("power limit", format!("{:.1} W of {:.1} W", value as f64 / 1e6, knob.initial as f64 / 1e6)),
        Kind::QuotaPpm => {
            ("CPU quota of the worker cores", format!("{:.1} % of {:.0} %", percent(value), percent(knob.initial)))
        }
        Kind::QuotaPeriodNs => ("period of the CPU quota", format!("{} ms", value / 1_000_000)),
        Kind::Online => ("online", "no".to_owned()),
        Kind::PowerState => ("power state", format!("PS{value}")),
        Kind::WakeLimitNs => ("wake-up limit", format!("{} us", value / 1_000)),
        Kind::BytesPerS => ("bandwidth cap", format!("{:.1} MB/s", value as f64 / 1e6)),
        Kind::RatePpm => ("rate", format!("{:.1} %", percent(value))),
    };
    is_below.then(|| NameAndValue { name: format!("{name}{of}"), value })
}

impl Machine for ThisMachine {
    fn knobs(&self) -> Vec<Knob> {
        self.found.list()
    }

    fn set_workers(&mut self, workers: &[u32]) {
        self.found.set_workers(workers);
    }

    fn note_killed(&mut self) {
        self.found.note_killed();
    }

    fn set(&mut self, knob: KnobId, value: Option<u64>) -> Result<(), Refusal> {
        match self.found.set(knob, value) {
            Ok(()) => {
                self.refused.remove(&knob);
                let known = self.found.list().into_iter().nth(knob.index());
                self.settings.note(knob, known.zip(value));
                Ok(())
            }
            Err(error) => {
                if self.refused.insert(knob) {
                    warn!("{error}");
                }
                Err(Refusal::Failed)
            }
        }
    }
}

/// The knobs that a server may set, and its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnobAccess {
    pub(super) roots: Roots,
    /// The folder of journals.
    journals: PathBuf,
    /// Reactors whose CPUs may be taken offline.
    hotplug: Vec<CoreId>,
    /// Power limits stay when the server is killed.
    keeps_limits: bool,
}

impl KnobAccess {
    /// All but taking CPUs offline.
    pub(crate) fn this_machine() -> Self {
        Self { roots: Roots::default(), journals: changes::folder(), hotplug: Vec::new(), keeps_limits: false }
    }

    pub(crate) fn from_operation(operation: &Operation) -> Self {
        let workers = operation.reactors.topology.workers();
        let hotplug = workers.filter(|_| operation.hotplug).collect();
        let roots = operation.roots.as_ref();
        Self {
            roots: roots.map_or_else(Roots::default, Roots::below),
            journals: roots.map_or_else(changes::folder, changes::folder_below),
            hotplug,
            keeps_limits: operation.keep_limits,
        }
    }
}

/// The knobs for the reactors on these CPUs. Nothing is written.
pub(crate) fn find(config: &ServerConfig, cores: &[Option<u32>], reach: &KnobAccess) -> Vec<Knob> {
    list(&reach.roots, &wanted_by(config, cores, reach))
}

/// The knobs that [`machine`] finds.
pub(crate) fn found(config: &ServerConfig, cores: &[Option<u32>], reach: &KnobAccess) -> Vec<Knob> {
    let found = Found::find(&reach.roots, &changes::fresh_in(&reach.journals), &wanted_by(config, cores, reach));
    found.map_or_else(|_| Vec::new(), |(found, _)| found.list())
}

fn wanted_by(config: &ServerConfig, cores: &[Option<u32>], reach: &KnobAccess) -> Wanted {
    let drives = drives(&reach.roots, config).into_iter().filter_map(|(_, drive)| drive.ok()).collect();
    Wanted { hotplug: reach.hotplug.clone(), ..wanted(cores, drives) }
}

/// Starts setting knobs for the reactors on these CPUs, and for the drives of the namespaces ([`machine`]).
pub(crate) fn open(
    config: &ServerConfig,
    cores: &[Option<u32>],
    reach: &KnobAccess,
    settings: &Settings,
) -> Arc<dyn Knobs> {
    open_on(machine(config, cores, reach, settings), config, cores, &reach.roots)
}

/// [`open`] for a given machine, where it has knobs.
pub(super) fn open_on(
    machine: Option<Box<dyn Machine>>,
    config: &ServerConfig,
    cores: &[Option<u32>],
    roots: &Roots,
) -> Arc<dyn Knobs> {
    let known = drives(roots, config).into_iter().filter_map(|(_, drive)| drive.ok()).collect();
    Arc::new(KnobsAndDrives::new(machine.and_then(|machine| actuate(machine, cores)), roots.clone(), known))
}

/// The machine with the knobs for the reactors on these CPUs, and for the drives of the namespaces, if it has any. Missing knobs are
/// logged at debug level, as most policies need none. Settings that a killed process has left are restored first.
pub(crate) fn machine(
    config: &ServerConfig,
    cores: &[Option<u32>],
    reach: &KnobAccess,
    settings: &Settings,
) -> Option<Box<dyn Machine>> {
    let KnobAccess { roots, journals, hotplug, keeps_limits } = reach;
    let mut wanted = Wanted { hotplug: hotplug.clone(), ..wanted(cores, Vec::new()) };
    for (path, drive) in drives(roots, config) {
        match drive {
            Ok(drive) => wanted.drives.push(drive),
            Err(why) => info!("the power state of {} cannot be set: {why}", path.display()),
        }
    }
    machine_in((roots, &changes::fresh_in(journals)), &wanted, *keeps_limits, settings)
}

/// The NVMe drives that hold namespaces, each once, and the block devices that are none, with the reason.
fn drives(roots: &Roots, config: &ServerConfig) -> Vec<(PathBuf, Result<String, DeviceError>)> {
    let namespaces = config.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
    let text = |drive: &Result<String, DeviceError>| drive.as_ref().map_or_else(ToString::to_string, Clone::clone);
    let mut drives: Vec<(PathBuf, Result<String, DeviceError>)> = Vec::new();
    for path in namespaces.filter_map(|namespace| namespace.backend.path()) {
        let Some(drive) = drive_of(roots, path) else { continue };
        if !drives.iter().any(|(_, known)| text(known) == text(&drive)) {
            drives.push((path.to_owned(), drive));
        }
    }
    drives
}

fn machine_in(
    (roots, journal): (&Roots, &Path),
    wanted: &Wanted,
    keeps_limits: bool,
    settings: &Settings,
) -> Option<Box<dyn Machine>> {
    put_leftovers_back(roots, journal.parent()?);
    let mut found = match find_and_log_missing(roots, journal, wanted) {
        Ok(found) => found,
        Err(error) => {
            warn!("nothing of this machine will be set: {error}");
            return None;
        }
    };
    if found.list().is_empty() {
        return None;
    }
    if keeps_limits {
        found.keep_limits();
    }
    Some(Box::new(ThisMachine { found, refused: BTreeSet::new(), settings: settings.clone() }))
}

fn actuate(machine: Box<dyn Machine>, cores: &[Option<u32>]) -> Option<Arc<dyn Knobs>> {
    match Actuation::start(machine, cores) {
        Ok(actuation) => Some(Arc::new(actuation)),
        Err(error) => {
            warn!("nothing of this machine will be set: cannot start a thread for it: {error}");
            None
        }
    }
}

fn find_and_log_missing(roots: &Roots, journal: &Path, wanted: &Wanted) -> Result<Found, Error> {
    let (found, missing) = Found::find(roots, journal, wanted)?;
    missing.iter().for_each(|missing| debug!("{} cannot be set: {}", missing.what, missing.why));
    Ok(found)
}

fn wanted(cores: &[Option<u32>], drives: Vec<String>) -> Wanted {
    Wanted { cpus: cores.to_vec(), drives, ..Wanted::default() }
}

/// Restores settings of killed processes. Settings that cannot be restored stay in their journal.
fn put_leftovers_back(roots: &Roots, folder: &Path) {
    for journal in left_behind(folder) {
        match changes::restore(&journal, roots, Options::default()) {
            Ok(all) => all.iter().for_each(|back| info!("left behind by a process that was killed: {back}")),
            Err(Error::Lives { .. } | Error::Foreign { .. }) => {} // another process's; no journal
            Err(error) => warn!("{error}"),
        }
    }
}

fn left_behind(folder: &Path) -> Vec<PathBuf> {
    changes::find(folder).unwrap_or_else(|error| {
        warn!("{error}");
        Vec::new()
    })
}

#[cfg(test)]
mod tests;
