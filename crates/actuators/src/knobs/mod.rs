//! The knobs of this machine: what a policy may set while the server runs.
//!
//! **Problem.** A policy says what a core, a package or a drive is to have; the kernel has files of which some belong to several
//! cores. Whatever a policy has set must come back when it ends, also after `kill -9`.
//!
//! **Algorithm.** Knobs of one *place* are served together: cores that share a clock get the highest of what they are to have. What
//! a place was goes on record before its first value ([`Changes::vary`]); with none of its knobs set any more it is put back.
//!
//! **Properties.** A knob that cannot be written is not offered, and [`Missing`] says why. Nothing is changed before the first
//! setting. What the kernel does not take is an error that names the file.

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

use crate::changes::{Change, Changes, CpuGroup, Error, Kernel, Linux};

/// What a server wants to set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The CPU of each reactor, by [`CoreId`]; `None` for one that is not pinned.
    pub cpus: Vec<Option<u32>>,
    /// Reactors whose CPUs may be taken offline; none of them is the main core's.
    pub hotplug: Vec<CoreId>,
    /// The NVMe controllers that it serves, such as `nvme0`, by device number.
    pub drives: Vec<String>,
}

/// Why a kind of knob is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What cannot be set, such as `frequency of core 0`.
    pub what: String,
    /// Why, and what would bring it.
    pub why: String,
}

/// One thing of the machine that one knob, or several together, set.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// The bounds of the frequency of a CPU, both of which get the value.
    Frequency { cpu: u32 },
    /// Both limits of a package, which get the value.
    PowerLimit { zone: String },
    /// The power state of a drive.
    PowerState { drive: String },
    /// The longest wake-up time of the idle states that a drive enters by itself.
    WakeLimit { file: PathBuf, limits: Vec<wake_limit::Limit> },
    /// The CPU time of the worker reactors, and its period.
    Quota { group: CpuGroup },
    /// Whether a CPU is online.
    Online { cpu: u32 },
}

/// For whom CPUs are taken offline: all of them together.
const HOTPLUG: u32 = u32::MAX;

/// A knob with its place.
#[derive(Debug)]
struct Placed {
    knob: Knob,
    /// Index of its place.
    place: usize,
    /// What it is to have.
    wanted: Option<u64>,
}

/// The knobs of this machine. At the end of their life everything is put back.
pub struct Knobs {
    placed: Vec<Placed>,
    places: Vec<Place>,
    changes: Changes,
    /// CPUs that are offline.
    offline: Vec<u32>,
    /// The OS threads of the worker reactors.
    workers: Vec<u32>,
}

/// What is found, before it can be set.
#[derive(Debug, Default)]
struct Found {
    placed: Vec<Placed>,
    places: Vec<Place>,
    missing: Vec<Missing>,
}

impl Knobs {
    /// What this machine has of what is wanted, and what is missing. Changes nothing.
    ///
    /// # Errors
    /// An earlier process left its changes behind ([`Error::LeftBehind`]): put those back first.
    pub fn find(roots: &Roots, journal: &Path, wanted: &Wanted) -> Result<(Self, Vec<Missing>), Error> {
        Ok(Self::find_with(roots, wanted, Changes::begin(journal, roots.clone())?))
    }

    /// [`Knobs::find`] with these changes, of which nothing is made yet.
    #[must_use]
    pub fn find_with(roots: &Roots, wanted: &Wanted, mut changes: Changes) -> (Self, Vec<Missing>) {
        let Found { placed, places, missing } = Found::on(roots, changes.kernel(), wanted);
        (Self { placed, places, changes, offline: Vec::new(), workers: Vec::new() }, missing)
    }

    /// The knobs, by [`KnobId`].
    #[must_use]
    pub fn list(&self) -> Vec<Knob> {
        self.placed.iter().map(|one| one.knob.clone()).collect()
    }

    /// The worker reactors run, as these OS threads (`gettid`). Before that their CPU time cannot be set.
    pub fn set_workers(&mut self, workers: &[u32]) {
        self.workers = workers.to_vec();
    }

    /// Sets a knob to the nearest value that it takes, and reads it back; `None` puts it back. The other knobs of its place count too.
    ///
    /// # Errors
    /// The kernel refuses the value, or takes it and does nothing; the change cannot be put on record; or, putting back, something
    /// did not come back, and stays in the journal.
    pub fn set(&mut self, knob: KnobId, value: Option<u64>) -> Result<(), Error> {
        let Some(one) = self.placed.get_mut(knob.index()) else { return Ok(()) };
        let wanted = value.and_then(|value| one.knob.values.nearest(value));
        let (place, before) = (one.place, std::mem::replace(&mut one.wanted, wanted));
        let set = self.set_place(place);
        if set.is_err() {
            self.placed[knob.index()].wanted = before; // what is refused is not wanted of the place any more
        }
        set
    }

    fn set_place(&mut self, place: usize) -> Result<(), Error> {
        if matches!(self.places[place], Place::Online { .. }) {
            return self.set_online();
        }
        let of_place = self.placed.iter().filter(|one| one.place == place);
        let wanted: Vec<(Kind, u64)> = of_place.filter_map(|one| Some((one.knob.kind, one.wanted?))).collect();
        match self.places[place].change(&wanted, &self.workers) {
            Some(change) => self.changes.vary(place as u32, &change),
            None => self.changes.put_back_of(place as u32).map(drop),
        }
    }

    /// CPUs come back all together, as cpusets and affinity name several of them: what is still to be offline then goes again.
    fn set_online(&mut self) -> Result<(), Error> {
        let cpu = |one: &Placed| match self.places[one.place] {
            Place::Online { cpu } if one.wanted == Some(0) => Some(cpu),
            _ => None,
        };
        let wanted: Vec<u32> = self.placed.iter().filter_map(cpu).collect();
        if self.offline.iter().any(|cpu| !wanted.contains(cpu)) {
            self.changes.put_back_of(HOTPLUG)?;
            self.offline.clear();
        }
        if wanted == self.offline {
            return Ok(());
        }
        let set = self.changes.vary(HOTPLUG, &Change::Offline { cpus: wanted.clone() });
        match &set {
            Ok(()) => self.offline = wanted,
            Err(_) if self.offline.is_empty() => drop(self.changes.put_back_of(HOTPLUG)),
            Err(_) => {}
        }
        set
    }
}

impl Place {
    /// What makes it as its knobs want it; `None` if it is to be as it was found.
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
            Self::Online { .. } => return None, // together with all others
        })
    }
}

/// The knobs of this machine as [`Knobs::find`] lists them, also while another process sets them. Changes nothing.
#[must_use]
pub fn list(roots: &Roots, wanted: &Wanted) -> Vec<Knob> {
    Found::on(roots, &mut Linux, wanted).placed.into_iter().map(|one| one.knob).collect()
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

    fn add(&mut self, knob: Knob, place: Place) {
        let known = self.places.iter().position(|other| *other == place);
        let place = known.unwrap_or_else(|| {
            self.places.push(place);
            self.places.len() - 1
        });
        self.placed.push(Placed { knob, place, wanted: None });
    }

    fn misses(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.missing.push(Missing { what: what.into(), why: why.into() });
    }
}

/// The number in a file of the kernel.
fn number(path: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    text.trim().parse().map_err(|_| format!("{} holds {:?}, not a number", path.display(), text.trim()))
}

/// Whether a file of the kernel may be written.
fn writable(path: &Path) -> Result<(), String> {
    let opened = std::fs::OpenOptions::new().write(true).open(path);
    let why = |error: io::Error| {
        let help = if error.kind() == io::ErrorKind::PermissionDenied {
            "; run the server as root, or give it the right"
        } else {
            ""
        };
        format!("cannot write {}: {error}{help}", path.display())
    };
    opened.map(drop).map_err(why)
}

/// The reactors that are pinned, with their CPUs.
fn pinned(cpus: &[Option<u32>]) -> impl Iterator<Item = (CoreId, u32)> + '_ {
    (0..).map(CoreId).zip(cpus).filter_map(|(core, cpu)| cpu.map(|cpu| (core, cpu)))
}
