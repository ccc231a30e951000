//! Knobs of this machine, which a policy sets while the server runs.
//!
//! **Problem.** A policy sets values of cores, packages and drives; some files of the kernel belong to several cores. All settings must be
//! restored at the end, also after `kill -9`.
//!
//! **Algorithm.** Knobs of one *resource* are combined: cores that share a clock get the highest wanted frequency. The old value is written
//! to the journal before the first change ([`Changes::vary`]), and restored when no knob of the resource is set.
//!
//! **Properties.** A knob that cannot be written is reported as [`Missing`] with the reason. Nothing is changed before the first value. A
//! value that the kernel refuses is an error with the file.

mod frequency;
mod online;
mod power_limit;
mod power_state;
mod quota;
mod wake_limit;

use std::io;
use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;
use pilotlight_plant::{CoreId, Kind, Knob, KnobId};

use crate::changes::{CgroupError, Change, Changes, CpuGroup, Error, Kernel, Linux};

/// Knobs to look for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The CPU of each reactor, by [`CoreId`]; `None` for one that is not pinned.
    pub cpus: Vec<Option<u32>>,
    /// Reactors whose CPUs may be taken offline, without the main core's.
    pub hotplug: Vec<CoreId>,
    /// The NVMe controllers that it serves, such as `nvme0`, by device number.
    pub drives: Vec<String>,
}

/// A knob that is not available.
#[derive(Debug)]
pub struct Missing {
    /// The knob, such as `frequency of core 0`.
    pub what: String,
    /// The reason and the remedy.
    pub why: Why,
}

/// Why a knob is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// No reactor is pinned.
    #[error("the reactors are not pinned; set their cores in the configuration")]
    NotPinned,
    /// The CPU has no cpufreq.
    #[error("the kernel has no cpufreq for it, as on most virtual machines")]
    NoCpufreq,
    /// The CPU is offline.
    #[error("it is offline")]
    Offline,
    /// The CPU cannot be taken offline.
    #[error("{0}: {1}; the boot CPU has no switch, nor has a kernel without CONFIG_HOTPLUG_CPU")]
    NoSwitch(PathBuf, io::Error),
    /// No package has power limits.
    #[error("there is no intel-rapl zone in {0}: no driver for RAPL, or a virtual machine")]
    NoZone(PathBuf),
    /// The zone, by its name, is a part of a package.
    #[error("it is {0}, not a whole package")]
    Part(String),
    /// The power limit is locked.
    #[error("cannot write {0}: {1}; firmware (BIOS) locks it, or the run has no right to")]
    Locked(PathBuf, io::Error),
    /// The drive does not report its power states.
    #[error("cannot read the drive's power states: {0}{help}", help = as_root(.0, "; run the server as root"))]
    States(io::Error),
    /// The drive has no choice of power states.
    #[error("the drive has one operational state")]
    OneState,
    /// The drive has no transitions.
    #[error("the drive has no autonomous power state transitions (APST)")]
    NoTransitions,
    /// The drive does not report how long transitions take.
    #[error("the drive does not report exit latencies of its idle states")]
    NoLatencies,
    /// The kernel does not configure transitions.
    #[error("there is no {0}: the kernel has no autonomous power state transitions for this drive")]
    NoTolerance(PathBuf),
    /// No reactor may be limited.
    #[error("the server has only the main core, which must not be limited; add cores (--cores)")]
    OneCore,
    /// The workers cannot have a cgroup.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    Unreadable(PathBuf, io::Error),
    /// A file cannot be written.
    #[error("cannot write {0}: {1}{help}", help = as_root(.1, "; run the server as root, or grant write access"))]
    Unwritable(PathBuf, io::Error),
    /// The text in a file is not of this kind.
    #[error("{0} holds {1:?}, not {2}")]
    Holds(PathBuf, String, &'static str),
}

/// The remedy if root may do more.
fn as_root(error: &io::Error, help: &'static str) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied { help } else { "" }
}

/// A resource of the machine that one or several knobs set.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Resource {
    /// Both frequency bounds of a CPU.
    Frequency { cpu: u32 },
    /// Both power limits of a package.
    PowerLimit { zone: String },
    /// The power state of a drive.
    PowerState { drive: String },
    /// The longest wake-up time of a drive's autonomous idle states.
    WakeLimit { file: PathBuf, limits: Vec<wake_limit::Limit> },
    /// The CPU time of the worker reactors, and its period.
    Quota { group: CpuGroup },
    /// Whether a CPU is online.
    Online { cpu: u32 },
}

/// Owner of all offline CPUs.
const HOTPLUG: u32 = u32::MAX;

/// A knob with its resource.
#[derive(Debug)]
struct Placed {
    knob: Knob,
    /// Index of its resource.
    resource: usize,
    /// Wanted value.
    wanted: Option<u64>,
}

/// The knobs of this machine. All settings are restored when dropped.
pub struct Knobs {
    entries: Vec<Placed>,
    resources: Vec<Resource>,
    changes: Changes,
    /// CPUs that are offline.
    offline: Vec<u32>,
    /// The OS threads of the worker reactors.
    workers: Vec<u32>,
}

/// Knobs found so far.
#[derive(Debug, Default)]
struct Found {
    entries: Vec<Placed>,
    resources: Vec<Resource>,
    missing: Vec<Missing>,
}

impl Knobs {
    /// Looks for knobs; returns those of this machine and the missing ones. Changes nothing: power limits are written back as they are.
    ///
    /// # Errors
    /// An earlier process was killed ([`Error::LeftBehind`]): its changes must be restored first.
    pub fn find(roots: &Roots, journal: &Path, wanted: &Wanted) -> Result<(Self, Vec<Missing>), Error> {
        Ok(Self::find_with(roots, wanted, Changes::begin(journal, roots.clone())?))
    }

    /// [`Knobs::find`] with unused changes.
    #[must_use]
    pub fn find_with(roots: &Roots, wanted: &Wanted, mut changes: Changes) -> (Self, Vec<Missing>) {
        let mut found = Found::on(roots, changes.kernel(), wanted);
        power_limit::drop_locked(roots, &mut changes, &mut found);
        let Found { entries, resources, missing } = found;
        (Self { entries, resources, changes, offline: Vec::new(), workers: Vec::new() }, missing)
    }

    /// The knobs, by [`KnobId`].
    #[must_use]
    pub fn list(&self) -> Vec<Knob> {
        self.entries.iter().map(|one| one.knob.clone()).collect()
    }

    /// As [`Changes::keep_limits`].
    pub fn keep_limits(&mut self) {
        self.changes.keep_limits();
    }

    /// As [`Changes::note_killed`].
    pub fn note_killed(&mut self) {
        self.changes.note_killed();
    }

    /// Sets the OS threads (`gettid`) of the worker reactors, without which their CPU time cannot be set.
    pub fn set_workers(&mut self, workers: &[u32]) {
        self.workers = workers.to_vec();
    }

    /// Sets a knob to the nearest supported value and reads it back; `None` restores it. Other knobs of its resource are combined.
    ///
    /// # Errors
    /// The kernel refuses or ignores the value; the journal cannot be written; or a setting could not be restored and stays in the journal.
    pub fn set(&mut self, knob: KnobId, value: Option<u64>) -> Result<(), Error> {
        let Some(one) = self.entries.get_mut(knob.index()) else { return Ok(()) };
        let wanted = value.and_then(|value| one.knob.values.nearest(value));
        let (resource, before) = (one.resource, std::mem::replace(&mut one.wanted, wanted));
        let set = self.set_resource(resource);
        if set.is_err() {
            self.entries[knob.index()].wanted = before; // a refused value is not combined later
        }
        set
    }

    fn set_resource(&mut self, resource: usize) -> Result<(), Error> {
        if matches!(self.resources[resource], Resource::Online { .. }) {
            return self.set_online();
        }
        let of_resource = self.entries.iter().filter(|one| one.resource == resource);
        let wanted: Vec<(Kind, u64)> = of_resource.filter_map(|one| Some((one.knob.kind, one.wanted?))).collect();
        match self.resources[resource].change(&wanted, &self.workers) {
            Some(change) => self.changes.vary(resource as u32, &change),
            None => self.changes.restore_of(resource as u32).map(drop),
        }
    }

    /// Restores all CPUs together, because cpusets and affinity refer to several; CPUs that must stay offline are then taken offline again.
    fn set_online(&mut self) -> Result<(), Error> {
        let cpu = |one: &Placed| match self.resources[one.resource] {
            Resource::Online { cpu } if one.wanted == Some(0) => Some(cpu),
            _ => None,
        };
        let wanted: Vec<u32> = self.entries.iter().filter_map(cpu).collect();
        if self.offline.iter().any(|cpu| !wanted.contains(cpu)) {
            self.changes.restore_of(HOTPLUG)?;
            self.offline.clear();
        }
        if wanted == self.offline {
            return Ok(());
        }
        let set = self.changes.vary(HOTPLUG, &Change::Offline { cpus: wanted.clone() });
        match &set {
            Ok(()) => self.offline = wanted,
            Err(_) if self.offline.is_empty() => drop(self.changes.restore_of(HOTPLUG)),
            Err(_) => {}
        }
        set
    }
}

impl Resource {
    /// The change to the wanted value of its knobs; `None` if no knob is set.
    fn change(&self, wanted: &[(Kind, u64)], workers: &[u32]) -> Option<Change> {
        let of = |kind: Kind| wanted.iter().filter(|(wanted, _)| *wanted == kind).map(|&(_, value)| value).max();
        Some(match self {
            Self::Frequency { cpu } => {
                let khz = of(Kind::FrequencyKhz)?;
                Change::Frequency { cpu: *cpu, min_khz: Some(khz), max_khz: Some(khz) }
            }
            Self::PowerLimit { zone } => {
                Change::PowerLimit { zone: zone.clone(), short_term: true, power_uw: of(Kind::LimitUw)? }
            }
            Self::PowerState { drive } => {
                Change::PowerState { drive: drive.clone(), state: of(Kind::PowerState)? as u8 }
            }
            Self::WakeLimit { file, limits } => wake_limit::change(file, limits, of(Kind::WakeLimitNs)?)?,
            Self::Quota { group } => quota::change(group, of(Kind::QuotaPpm)?, of(Kind::QuotaPeriodNs), workers),
            Self::Online { .. } => return None, // handled with all other CPUs
        })
    }
}

/// The knobs of this machine as in [`Knobs::find`], also while another process sets them. Writes nothing, so that locked limits are among them.
#[must_use]
pub fn list(roots: &Roots, wanted: &Wanted) -> Vec<Knob> {
    Found::on(roots, &mut Linux, wanted).entries.into_iter().map(|one| one.knob).collect()
}

impl Found {
    fn on(roots: &Roots, kernel: &mut dyn Kernel, wanted: &Wanted) -> Self {
        let mut found = Self::default();
        frequency::find(roots, &wanted.cpus, &mut found);
        power_limit::find(roots, &mut found);
        power_state::find(roots, kernel, &wanted.drives, &mut found);
        wake_limit::find(roots, kernel, &wanted.drives, &mut found);
        quota::find(roots, wanted.cpus.len(), &mut found);
        online::find(roots, &wanted.cpus, &wanted.hotplug, &mut found);
        found
    }

    fn add(&mut self, knob: Knob, resource: Resource) {
        let known = self.resources.iter().position(|other| *other == resource);
        let resource = known.unwrap_or_else(|| {
            self.resources.push(resource);
            self.resources.len() - 1
        });
        self.entries.push(Placed { knob, resource, wanted: None });
    }

    fn misses(&mut self, what: impl Into<String>, why: Why) {
        self.missing.push(Missing { what: what.into(), why });
    }
}

/// The number in a file of the kernel.
fn number(path: &Path) -> Result<u64, Why> {
    let text = std::fs::read_to_string(path).map_err(|error| Why::Unreadable(path.to_owned(), error))?;
    text.trim().parse().map_err(|_| Why::Holds(path.to_owned(), text.trim().to_owned(), "a number"))
}

/// Whether a file of the kernel may be written.
fn writable(path: &Path) -> Result<(), Why> {
    let opened = std::fs::OpenOptions::new().write(true).open(path);
    opened.map(drop).map_err(|error| Why::Unwritable(path.to_owned(), error))
}

/// The reactors that are pinned, with their CPUs.
fn pinned(cpus: &[Option<u32>]) -> impl Iterator<Item = (CoreId, u32)> + '_ {
    (0..).map(CoreId).zip(cpus).filter_map(|(core, cpu)| cpu.map(|cpu| (core, cpu)))
}
