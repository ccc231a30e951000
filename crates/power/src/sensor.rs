//! What a sensor is: a few domains, each with a kind, a unit and a part of the machine, read on demand. And the two ways in
//! which it can disappoint: it is [`Missing`], or a reading fails.
//!
//! A sensor has no clock and no thread to speak of; who reads it says when. What it reads it hands over as
//! it stands: a counter as a counter, with where it wraps. What that adds up to is [`energy`](crate::energy)'s business.

use std::fmt;
use std::io;
use std::path::Path;

use pilotlight_drive::Roots;
use serde::{Deserialize, Serialize};

use crate::timing::Timing;

/// What can be read again and again.
pub trait Sensor: Send {
    /// What it is.
    fn about(&self) -> &About;

    /// Reads all domains that have something to say now.
    ///
    /// # Errors
    /// What could not be read. Nothing that was put into `into` before an error counts.
    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError>;

    /// CPU time that programs started by this sensor and threads of its own have taken so far, in nanoseconds.
    fn helpers_cpu_ns(&self) -> u64 {
        0
    }

    /// Its name.
    fn name(&self) -> &str {
        &self.about().name
    }

    /// What it reads.
    fn domains(&self) -> &[Domain] {
        &self.about().domains
    }
}

/// What a sensor is; fixed from opening on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The name under which its readings are kept, such as `rapl`.
    pub name: String,
    /// What it reads. Readings name them by index.
    pub domains: Vec<Domain>,
    /// How often there is something new, in nanoseconds. Reading more often gives the same again.
    pub native_interval_ns: u64,
    /// Whether a reading can take long (a network, another program, a slow bus): the sampler then gives it a thread of its own.
    pub slow: bool,
}

impl About {
    /// One that is read in no time.
    pub fn new(name: impl Into<String>, native_interval_ns: u64, domains: Vec<Domain>) -> Self {
        let mut about = Self { name: name.into(), domains: Vec::new(), native_interval_ns, slow: false };
        domains.into_iter().for_each(|domain| about.add(domain));
        about
    }

    /// Adds a domain.
    pub fn add(&mut self, domain: Domain) {
        let timing = domain.timing.or_native(self.native_interval_ns);
        self.domains.push(Domain { timing, ..domain });
    }

    /// One whose readings can take long.
    pub fn slow(name: impl Into<String>, native_interval_ns: u64, domains: Vec<Domain>) -> Self {
        Self { slow: true, ..Self::new(name, native_interval_ns, domains) }
    }
}

/// A sensor that can be looked for.
pub trait Open: Sensor + Sized {
    /// What has to be said to find it.
    type Options;

    /// Looks for it under `roots`.
    ///
    /// # Errors
    /// Why it cannot be read on this machine, and what would help.
    fn open(roots: &Roots, options: &Self::Options) -> Result<Self, Missing>;
}

/// One value of one domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Index in [`Sensor::domains`].
    pub domain: usize,
    /// In the domain's unit.
    pub value: i64,
}

/// One thing that a sensor reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// Name within the sensor, such as `package-0/core`.
    pub name: String,
    /// What the value means.
    pub kind: Kind,
    /// What it is counted in.
    pub unit: Unit,
    /// The domain of the same sensor that contains this one: a sum never takes both.
    pub parent: Option<usize>,
    /// Which part of the machine it is about: a sum never takes two parts of which one contains the other.
    pub part: Part,
    /// Whether it was measured.
    pub origin: Origin,
    /// How closely its values follow the truth.
    #[serde(default)]
    pub timing: Timing,
}

impl Domain {
    /// A measured domain that stands alone.
    pub fn new(name: impl Into<String>, kind: Kind, unit: Unit, part: Part) -> Self {
        let (parent, origin) = (None, Origin::Measured);
        let timing = match kind {
            Kind::EnergyCounter(counts) => Timing::counter(counts.update_ns),
            _ => Timing::default(),
        };
        Self { name: name.into(), kind, unit, parent, part, origin, timing }
    }

    /// Watts, in microwatts.
    pub fn power(name: impl Into<String>, part: Part) -> Self {
        Self::new(name, Kind::Power, Unit::MicroWatt, part)
    }

    /// A value that goes up and down and has nothing to do with the power of a part.
    pub fn gauge(name: impl Into<String>, unit: Unit) -> Self {
        Self::new(name, Kind::Gauge, unit, Part::None)
    }

    /// A count that only grows.
    pub fn counter(name: impl Into<String>, unit: Unit) -> Self {
        Self::new(name, Kind::Counter, unit, Part::None)
    }

    /// This domain within `parent`.
    #[must_use]
    pub fn within(self, parent: Option<usize>) -> Self {
        Self { parent, ..self }
    }

    /// With how closely its values follow the truth.
    #[must_use]
    pub fn timed(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// The name as a column, with its unit: `package-0/core_uj`.
    pub fn column(&self) -> String {
        format!("{}_{}", self.name, self.unit.suffix())
    }
}

/// What a value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Energy since some moment, in microjoules.
    EnergyCounter(Counts),
    /// Power at, or shortly before, the moment of reading, in microwatts.
    Power,
    /// A value that goes up and down.
    Gauge,
    /// A count that only grows.
    Counter,
}

/// How a counter of energy counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Counts {
    /// It starts anew after so many microjoules; `None` where it never does.
    pub modulus_uj: Option<u64>,
    /// No interval has less power than this, in microwatts. Decides between numbers of wraps.
    pub least_uw: u64,
    /// No interval has more power than this, in microwatts. Decides between numbers of wraps.
    pub greatest_uw: u64,
    /// How often the hardware brings it up to date, in nanoseconds: by so much an interval may be wrong.
    pub update_ns: u64,
    /// Whether it can fall without a wrap (a measured power that is negative for a while).
    pub falls: bool,
    /// Whether it moves whenever the machine runs: if it does not, it is not counting.
    pub always_moves: bool,
}

impl Counts {
    /// A counter that never wraps.
    pub const fn endless() -> Self {
        Self {
            modulus_uj: None,
            least_uw: 0,
            greatest_uw: u64::MAX,
            update_ns: 1_000_000,
            falls: false,
            always_moves: true,
        }
    }
}

/// What a value is counted in. Integers throughout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Microjoules.
    MicroJoule,
    /// Watt-hours: too coarse for energy of a run.
    WattHour,
    /// Microwatts.
    MicroWatt,
    /// Kilohertz.
    KiloHertz,
    /// Nanoseconds.
    NanoSecond,
    /// Bytes.
    Byte,
    /// Thousandths of a degree Celsius.
    MilliCelsius,
    /// Thousandths, such as of the load average.
    Milli,
    /// A number of things.
    Count,
    /// As the person who configured the sensor says.
    Named(String),
}

impl Unit {
    /// How columns end.
    pub fn suffix(&self) -> &str {
        match self {
            Self::MicroJoule => "uj",
            Self::WattHour => "wh",
            Self::MicroWatt => "uw",
            Self::KiloHertz => "khz",
            Self::NanoSecond => "ns",
            Self::Byte => "bytes",
            Self::MilliCelsius => "mdegc",
            Self::Milli => "milli",
            Self::Count => "count",
            Self::Named(name) => name,
        }
    }
}

/// Which part of the machine a power is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Everything, as the wall socket, the BMC or the battery sees it.
    System,
    /// The platform as RAPL's `psys` sees it: all packages, memory, and whatever else gets its power from the same supply, drives too
    /// (Intel SDM volume 4, MSR 64DH).
    Platform,
    /// All CPU packages.
    Cpu,
    /// One package (socket).
    Package(u32),
    /// One die of a package, where the hardware counts dies.
    Die(u32, u32),
    /// The cores of a package.
    Core(u32),
    /// What RAPL calls uncore of a package: the graphics.
    Uncore(u32),
    /// Memory at a package: beside the package, not within.
    Dram(u32),
    /// A drive, by name.
    Drive(String),
    /// Something else that is known to be none of the above, such as a network card.
    Other(String),
    /// Not known: may overlap with anything.
    Unknown(String),
    /// Not about power.
    None,
}

impl Part {
    /// Whether power of `other` is, or may be, counted within this part too.
    pub fn contains(&self, other: &Self) -> bool {
        use Part::{Core, Cpu, Die, None, Package, Platform, System, Uncore, Unknown};
        match (self, other) {
            (None, _) | (_, None) => false,
            (Unknown(_) | System, _) | (_, Unknown(_)) => true,
            (Platform, part) => *part != System,
            (Cpu, part) => matches!(part, Cpu | Package(_) | Die(..) | Core(_) | Uncore(_)),
            // Which die cores are on is not told.
            (Package(a) | Die(a, _), Core(b) | Uncore(b)) | (Package(a), Package(b) | Die(b, _)) => a == b,
            (a, b) => a == b,
        }
    }

    /// Whether a sum of both could count something twice.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other) || other.contains(self)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("the whole system"),
            Self::Platform => f.write_str("the platform (psys)"),
            Self::Cpu => f.write_str("all CPU packages"),
            Self::Package(n) => write!(f, "package {n}"),
            Self::Die(package, die) => write!(f, "die {die} of package {package}"),
            Self::Core(n) => write!(f, "the cores of package {n}"),
            Self::Uncore(n) => write!(f, "the uncore of package {n}"),
            Self::Dram(n) => write!(f, "the memory at package {n}"),
            Self::Drive(name) => write!(f, "drive {name}"),
            Self::Other(name) => f.write_str(name),
            Self::Unknown(name) => write!(f, "{name} (not known which part of the machine)"),
            Self::None => f.write_str("no part"),
        }
    }
}

/// Whether a value was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// By an instrument, or by the hardware's own account (RAPL).
    Measured,
    /// Computed from something else with a model; must be labelled so wherever it is shown.
    Modelled {
        /// The profile whose constants were taken.
        profile: String,
    },
}

/// Why a sensor cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The machine or kernel has no such thing.
    Absent,
    /// It is there, but this process may not read it.
    Denied,
    /// It is there and says something that cannot be right.
    Broken,
    /// It is there, but does not count: a 0 W that would be a lie.
    NotCounting,
    /// Nobody answers.
    Unreachable,
    /// What would have to be configured is not.
    NotConfigured,
}

/// A sensor that cannot be read, and what would help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{sensor}: {what}; {help}")]
pub struct Missing {
    /// Name of the sensor.
    pub sensor: String,
    /// In one word.
    pub why: Why,
    /// What was tried and what came of it.
    pub what: String,
    /// What the reader could do.
    pub help: String,
}

impl Missing {
    /// With all that there is to say.
    pub fn new(sensor: &str, why: Why, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { sensor: sensor.into(), why, what: what.into(), help: help.into() }
    }

    /// A file that could not be read: `absent` helps where it is not there, `denied` where it may not be read.
    pub fn file(sensor: &str, path: &Path, error: &io::Error, absent: &str, denied: &str) -> Self {
        let what = format!("cannot read {}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::NotFound => Self::new(sensor, Why::Absent, what, absent),
            io::ErrorKind::PermissionDenied => Self::new(sensor, Why::Denied, what, denied),
            _ => Self::new(sensor, Why::Broken, what, absent),
        }
    }
}

/// A reading that failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file.
    #[error("cannot read {what}: {source}")]
    Io {
        /// Which.
        what: String,
        /// What the system said.
        r#source: io::Error,
    },
    /// Something answered, but not with what was asked for.
    #[error("{0}")]
    Content(String),
}

impl ReadError {
    /// Of a file or device.
    pub fn io(what: impl fmt::Display, source: io::Error) -> Self {
        Self::Io { what: what.to_string(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_contain_cores_but_not_memory() {
        use Part::{Core, Cpu, Die, Dram, Drive, Package, Platform, System, Uncore, Unknown};
        let overlapping = [
            (System, Drive("nvme0".into())),
            (Platform, Dram(1)),
            (Platform, Package(0)),
            (Platform, Drive("nvme0".into())),
            (Cpu, Core(1)),
            (Package(0), Core(0)),
            (Package(0), Uncore(0)),
            (Package(0), Package(0)),
            (Package(1), Die(1, 0)),
            (Die(1, 0), Core(1)),
            (Unknown("hwmon3".into()), Package(0)),
        ];
        let apart = [
            (Package(0), Dram(0)),
            (Die(0, 0), Die(0, 1)),
            (Die(0, 0), Package(1)),
            (Package(0), Package(1)),
            (Package(0), Core(1)),
            (Core(0), Uncore(0)),
            (Cpu, Dram(0)),
            (Drive("nvme0".into()), Drive("nvme1".into())),
            (System, Part::None),
        ];
        for (a, b) in overlapping {
            assert!(a.overlaps(&b) && b.overlaps(&a), "{a} and {b}");
        }
        assert!(System.contains(&Platform) && !Platform.contains(&System));
        for (a, b) in apart {
            assert!(!a.overlaps(&b) && !b.overlaps(&a), "{a} and {b}");
        }
    }
}
