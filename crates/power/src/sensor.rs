//! The interface of a sensor: domains, each with a kind, a unit and a part of the machine, that are read on demand. A sensor can be
//! [`Missing`], or a reading can fail.
//!
//! The caller decides when to read. Values are raw: a counter with its modulus, which [`energy`](crate::energy) integrates.

use std::fmt;
use std::io;
use std::path::Path;

use pilotlight_drive::Roots;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::timing::Timing;

/// A sensor.
pub trait Sensor: Send {
    /// Its description.
    fn info(&self) -> &SensorInfo;

    /// Reads all domains that have a value.
    ///
    /// # Errors
    /// A value could not be read. The contents of `into` are then invalid.
    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError>;

    /// Domains that have no value at the last reading because of an error.
    fn failed(&self) -> &[Failed] {
        &[]
    }

    /// CPU time of the sensor's programs and threads so far, in nanoseconds.
    fn helpers_cpu_ns(&self) -> u64 {
        0
    }

    /// Its name.
    fn name(&self) -> &str {
        &self.info().name
    }

    /// Its domains.
    fn domains(&self) -> &[Domain] {
        &self.info().domains
    }
}

/// Description of an open sensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SensorInfo {
    /// Its name, such as `rapl`.
    pub name: String,
    /// Its domains, by index of readings.
    pub domains: Vec<Domain>,
    /// Update interval in nanoseconds. More frequent readings return the same values.
    pub native_interval_ns: u64,
    /// Whether a reading can take long (a network, another program, a slow bus): the sampler then uses a separate thread.
    pub slow: bool,
    /// What users should know of its values.
    pub notes: Vec<String>,
}

impl SensorInfo {
    /// A fast sensor.
    pub fn new(name: impl Into<String>, native_interval_ns: u64, domains: Vec<Domain>) -> Self {
        let (name, notes) = (name.into(), Vec::new());
        let mut info = Self { name, domains: Vec::new(), native_interval_ns, slow: false, notes };
        domains.into_iter().for_each(|domain| info.add(domain));
        info
    }

    /// Adds a domain.
    pub fn add(&mut self, domain: Domain) {
        let timing = domain.timing.or_native(self.native_interval_ns);
        self.domains.push(Domain { timing, ..domain });
    }

    /// Removes domains that cannot be read, with a note for each. Domains within a removed one are then within what contained it.
    pub fn remove(&mut self, failed: &[Failed]) {
        let all = std::mem::take(&mut self.domains);
        self.notes
            .extend(failed.iter().map(|failed| format!("{} is not read: {}", all[failed.domain].name, failed.why)));
        let is_kept = |&domain: &usize| failed.iter().all(|failed| failed.domain != domain);
        let parent = |domain: &Domain| {
            let parent = std::iter::successors(domain.parent, |&parent| all[parent].parent).find(is_kept)?;
            Some((0..parent).filter(is_kept).count())
        };
        let kept = (0..all.len()).filter(is_kept);
        self.domains = kept.map(|domain| all[domain].clone().within(parent(&all[domain]))).collect();
    }

    /// A slow sensor.
    pub fn slow(name: impl Into<String>, native_interval_ns: u64, domains: Vec<Domain>) -> Self {
        Self { slow: true, ..Self::new(name, native_interval_ns, domains) }
    }
}

/// A sensor that can be opened.
pub trait Open: Sensor + Sized {
    /// Its options.
    type Options;

    /// Opens it under `roots`.
    ///
    /// # Errors
    /// It cannot be read; with the reason and a remedy.
    fn open(roots: &Roots, options: &Self::Options) -> Result<Self, Missing>;
}

/// One value of one domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Index in [`Sensor::domains`].
    pub domain: usize,
    /// Value in the domain's unit.
    pub value: i64,
}

/// A domain without a value because of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Index in [`Sensor::domains`].
    pub domain: usize,
    /// The error.
    pub why: String,
}

/// A quantity that a sensor reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// Name within the sensor, such as `package-0/core`.
    pub name: String,
    /// Kind of the value.
    pub kind: Kind,
    /// Unit of the value.
    pub unit: Unit,
    /// The domain of the same sensor that contains this one; a sum never includes both.
    pub parent: Option<usize>,
    /// The part of the machine; a sum never includes two parts of which one contains the other.
    pub part: Part,
    /// Measured or modelled.
    pub origin: Origin,
    /// Update interval, averaging, lag and resolution.
    #[serde(default)]
    pub timing: Timing,
}

impl Domain {
    /// A measured domain without a parent.
    pub fn new(name: impl Into<String>, kind: Kind, unit: Unit, part: Part) -> Self {
        let (parent, origin) = (None, Origin::Measured);
        let timing = match kind {
            Kind::EnergyCounter(counts) => Timing::counter(counts.update_ns),
            _ => Timing::default(),
        };
        Self { name: name.into(), kind, unit, parent, part, origin, timing }
    }

    /// A power in microwatts.
    pub fn power(name: impl Into<String>, part: Part) -> Self {
        Self::new(name, Kind::Power, Unit::MicroWatt, part)
    }

    /// A gauge that is not a power.
    pub fn gauge(name: impl Into<String>, unit: Unit) -> Self {
        Self::new(name, Kind::Gauge, unit, Part::None)
    }

    /// A counter that is not an energy.
    pub fn counter(name: impl Into<String>, unit: Unit) -> Self {
        Self::new(name, Kind::Counter, unit, Part::None)
    }

    /// This domain within `parent`.
    #[must_use]
    pub fn within(self, parent: Option<usize>) -> Self {
        Self { parent, ..self }
    }

    /// This domain with `timing`.
    #[must_use]
    pub fn timed(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// The column's name, with the unit: `package-0/core_uj`.
    pub fn column(&self) -> String {
        format!("{}_{}", self.name, self.unit.suffix())
    }
}

/// Kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Cumulative energy, in microjoules.
    EnergyCounter(Counts),
    /// Power at, or shortly before, the time of reading, in microwatts.
    Power,
    /// A value that can increase and decrease.
    Gauge,
    /// A value that only increases.
    Counter,
}

/// Properties of an energy counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Counts {
    /// It wraps around at this many microjoules; `None` if it never does.
    pub modulus_uj: Option<u64>,
    /// Least mean power of an interval, in microwatts. Determines the number of wraps.
    pub min_uw: u64,
    /// Greatest mean power of an interval, in microwatts. Determines the number of wraps.
    pub max_uw: u64,
    /// Update interval of the hardware, in nanoseconds.
    pub update_ns: u64,
    /// Whether it can decrease without a wrap (a measured power that is temporarily negative).
    pub may_decrease: bool,
    /// Whether it increments whenever the machine runs; if it does not, it is not counting.
    pub always_advances: bool,
}

impl Counts {
    /// A counter that never wraps.
    pub const fn endless() -> Self {
        Self {
            modulus_uj: None,
            min_uw: 0,
            max_uw: u64::MAX,
            update_ns: 1_000_000,
            may_decrease: false,
            always_advances: true,
        }
    }
}

/// Unit of a value.
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
    /// A count.
    Count,
    /// A unit from the configuration.
    Named(String),
}

impl Unit {
    /// Suffix of columns.
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

/// A part of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The whole machine, as measured at the wall socket, by the BMC or at the battery.
    System,
    /// The platform (RAPL's `psys`): all packages, memory, and other components on the same supply, including drives (Intel SDM volume 4,
    /// MSR 64DH).
    Platform,
    /// All CPU packages.
    Cpu,
    /// One package (socket).
    Package(u32),
    /// One die of a package, if the hardware counts dies.
    Die(u32, u32),
    /// The cores of a package.
    Core(u32),
    /// RAPL's uncore of a package: the graphics.
    Uncore(u32),
    /// Memory of a package, which the package does not contain.
    Dram(u32),
    /// A drive, by name.
    Drive(String),
    /// Another component, such as a network card.
    Other(String),
    /// Unknown: may overlap with any part.
    Unknown(String),
    /// Not a power.
    None,
}

impl Part {
    /// Whether this part includes, or may include, power of `other`.
    pub fn contains(&self, other: &Self) -> bool {
        use Part::{Core, Cpu, Die, None, Package, Platform, System, Uncore, Unknown};
        match (self, other) {
            (None, _) | (_, None) => false,
            (Unknown(_) | System, _) | (_, Unknown(_)) => true,
            (Platform, part) => *part != System,
            (Cpu, part) => matches!(part, Cpu | Package(_) | Die(..) | Core(_) | Uncore(_)),
            // The die of a core is unknown.
            (Package(a) | Die(a, _), Core(b) | Uncore(b)) | (Package(a), Package(b) | Die(b, _)) => a == b,
            (a, b) => a == b,
        }
    }

    /// Whether a sum of both may count power twice.
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
            Self::Unknown(name) => write!(f, "{name} (unknown part of the machine)"),
            Self::None => f.write_str("no part"),
        }
    }
}

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Measured by an instrument or by the hardware (RAPL).
    Measured,
    /// Computed with a model, and labelled so everywhere.
    Modelled {
        /// The profile with the constants.
        profile: String,
    },
}

/// Remedy for an error of a device or its driver.
pub const SEE_LOG: &str = "the device or its driver failed: look for the cause in the kernel's log (dmesg)";

/// Why a sensor is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The machine or kernel does not have it.
    Absent,
    /// This process lacks the permission to read it.
    Denied,
    /// It returns invalid values.
    Broken,
    /// The counter does not increment.
    NotCounting,
    /// The server does not respond.
    Unreachable,
    /// A required option is not set.
    NotConfigured,
}

/// A sensor that cannot be read, with the reason and a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{sensor}: {what}; {help}")]
pub struct Missing {
    /// Name of the sensor.
    pub sensor: String,
    /// Category of the reason.
    pub why: Why,
    /// The error.
    pub what: String,
    /// The remedy.
    pub help: String,
}

impl Missing {
    /// A missing sensor.
    pub fn new(sensor: &str, why: Why, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { sensor: sensor.into(), why, what: what.into(), help: help.into() }
    }

    /// A file that could not be read. `absent` and `denied` are the remedies if it does not exist or is not readable.
    pub fn file(sensor: &str, path: &Path, error: &io::Error, absent: &str, denied: &str) -> Self {
        let what = format!("cannot read {}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::NotFound => Self::new(sensor, Why::Absent, what, absent),
            io::ErrorKind::PermissionDenied => Self::new(sensor, Why::Denied, what, denied),
            _ if is_of_device(error) => Self::new(sensor, Why::Broken, what, SEE_LOG),
            _ => Self::new(sensor, Why::Broken, what, absent),
        }
    }
}

/// Whether the device or its driver has failed.
fn is_of_device(error: &io::Error) -> bool {
    let failures = [Errno::IO, Errno::NXIO, Errno::NODATA, Errno::BUSY, Errno::TIMEDOUT, Errno::NODEV];
    Errno::from_io_error(error).is_some_and(|errno| failures.contains(&errno))
}

/// A reading that failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file.
    #[error("cannot read {what}: {source}")]
    Io {
        /// Name of the file.
        what: String,
        /// The system's error.
        r#source: io::Error,
    },
    /// Invalid content.
    #[error("{0}")]
    Content(String),
}

impl ReadError {
    /// An error of a file or device.
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
