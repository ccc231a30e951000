//! RAPL through powercap: `/sys/class/powercap/intel-rapl:*` (Documentation/power/powercap/powercap.rst of the kernel), on
//! Intel and AMD alike. Names of zones are read, not assumed: `package-0`, `core`, `uncore`, `dram`, `psys`.
//!
//! `psys` contains packages and memory, a package its cores and uncore; memory is not part of the package, although its folder is within
//! the package's. The same counters of another driver (`intel-rapl-mmio`) are omitted. On AMD the zone `core` is a single core: the counter
//! is per core (MSR C001_029AH), and the kernel reads that of the package's lead CPU.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;

use crate::files;
use crate::sensor::{
    Counts, Domain, Failed, Kind, Missing, Open, Part, ReadError, Reading, Sensor, SensorInfo, Unit, Why,
};
use crate::sources::{Remedies, Sources};
use crate::timing::Timing;

const NAME: &str = "rapl";
/// The hardware updates its counters about once a millisecond (Intel SDM volume 3, 16.10).
pub const UPDATE_NS: u64 = 1_000_000;
/// Step of the counters: 2^-14 J, the usual energy unit (Intel SDM volume 4, MSR 606H); with some CPUs it is smaller.
pub const QUANTUM_UJ: u64 = 61;
/// Default maximum power of a package, in microwatts: 2 kW.
const GREATEST_UW: u64 = 2_000_000_000;
/// Default maximum power of a platform, in microwatts: 8 kW.
const GREATEST_PLATFORM_UW: u64 = 8_000_000_000;

/// Remedy if there are no zones.
pub const ABSENT: &str = "load the kernel module intel_rapl_msr (AMD from family 17h: Linux 5.8 or later); most \
    virtual machines have none: measure on the host";
const DENIED: &str = "run as root, give the program cap_dac_read_search, or let a group read it with a udev rule: \
    SUBSYSTEM==\"powercap\", ACTION==\"add\", RUN+=\"/bin/chgrp -R power /sys%p\", RUN+=\"/bin/chmod -R g+r /sys%p\"";
/// Remedy if a counter does not increment.
pub const NOT_COUNTING: &str = "virtual machines often show counters that stay at 0: measure on the host";

/// What is known beforehand about the power of a package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Minimum power of a package, in microwatts; determines the number of wraps of the counter.
    pub min_package_uw: u64,
    /// Maximum power of a package, in microwatts; default: 2 kW.
    pub max_package_uw: Option<u64>,
}

/// RAPL counters of all packages.
#[derive(Debug)]
pub struct Rapl {
    info: SensorInfo,
    files: Sources<(PathBuf, File)>,
}

/// A zone, as its folder describes it.
struct Zone {
    folder: String,
    name: String,
    /// A zone without it is not read.
    range_uj: Result<u64, Missing>,
}

impl Open for Rapl {
    type Options = Options;

    fn open(roots: &Roots, options: &Options) -> Result<Self, Missing> {
        let root = roots.sys.join("class/powercap");
        let zones = zones(&root)?;
        let domains = domains(&zones, options, counts_each_core(roots));
        let files = zones
            .iter()
            .map(|zone| zone.range_uj.clone().and_then(|_| open(root.join(&zone.folder).join("energy_uj"))));
        let files = files.collect();
        let mut info = SensorInfo::new(NAME, UPDATE_NS, domains);
        let files = Sources::open(&mut info, files, value, Remedies { denied: DENIED, not_counting: NOT_COUNTING })?;
        Ok(Self { info, files })
    }
}

fn open(path: PathBuf) -> Result<(PathBuf, File), Missing> {
    let file = File::open(&path).map_err(|error| Missing::file(NAME, &path, &error, ABSENT, DENIED))?;
    Ok((path, file))
}

fn zones(root: &Path) -> Result<Vec<Zone>, Missing> {
    let missing = |path: &Path, error: &io::Error| Missing::file(NAME, path, error, ABSENT, DENIED);
    let folders = files::names(root).map_err(|error| missing(root, &error))?;
    let mut zones = Vec::new();
    for folder in folders.into_iter().filter(|folder| folder.starts_with("intel-rapl:")) {
        let (name, range) = (root.join(&folder).join("name"), root.join(&folder).join("max_energy_range_uj"));
        let name = files::text(&name).map_err(|error| missing(&name, &error))?;
        let range_uj = files::number(&range).map_err(|error| missing(&range, &error));
        zones.push(Zone { folder, name, range_uj });
    }
    if zones.is_empty() {
        let what = format!("there is no intel-rapl zone in {}", root.display());
        return Err(Missing::new(NAME, Why::Absent, what, ABSENT));
    }
    Ok(zones)
}

/// Whether the core counter is per core: on AMD, and on Hygon, which has the same design.
fn counts_each_core(roots: &Roots) -> bool {
    let text = files::text(&roots.proc.join("cpuinfo")).unwrap_or_default();
    let vendor = text.lines().find_map(|line| line.strip_prefix("vendor_id")?.split(':').nth(1));
    matches!(vendor.map(str::trim), Some("AuthenticAMD" | "HygonGenuine"))
}

fn domains(zones: &[Zone], options: &Options, each_core: bool) -> Vec<Domain> {
    // Each package can have one: `psys`, `psys-1`.
    let named = |name: &str| zones.iter().position(|zone| zone.name == name);
    let psys = |package: u32| named(&format!("psys-{package}")).or_else(|| named("psys"));
    let domain = |(index, zone): (usize, &Zone)| {
        let above = zone.folder.rsplit_once(':').map_or("", |(above, _)| above);
        let above = zones.iter().position(|other| other.folder == above);
        let package = above.map_or(zone.name.as_str(), |above| zones[above].name.as_str());
        let number = package_number(package).unwrap_or(0);
        let (part, parent, moves) = match zone.name.as_str() {
            name if name == "psys" || name.starts_with("psys-") => (Part::Platform, None, true),
            "core" if each_core => (Part::Unknown(format!("one core of package {number}")), above, false),
            "core" => (Part::Core(number), above, true),
            "uncore" => (Part::Uncore(number), above, false),
            "dram" => (Part::Dram(number), psys(number), true),
            _ if package_number(&zone.name).is_some() => (package_part(&zone.name, number), psys(number), true),
            other => (Part::Unknown(other.into()), above, false),
        };
        let name = match above {
            Some(above) => format!("{}/{}", zones[above].name, zone.name),
            None => zone.name.clone(),
        };
        let kind = Kind::EnergyCounter(counts(zone, &part, moves, options));
        let domain = Domain::new(name, kind, Unit::MicroJoule, part).within(parent.filter(|&parent| parent != index));
        domain.timed(Timing::counter(UPDATE_NS).steps(QUANTUM_UJ))
    };
    zones.iter().enumerate().map(domain).collect()
}

fn counts(zone: &Zone, part: &Part, always_advances: bool, options: &Options) -> Counts {
    let package = options.max_package_uw.unwrap_or(GREATEST_UW);
    Counts {
        // The range is the maximum value of the counter.
        modulus_uj: zone.range_uj.as_ref().ok().map(|range_uj| range_uj.saturating_add(1)),
        // One of several dies can have less than the minimum of the package.
        min_uw: if matches!(part, Part::Package(_)) { options.min_package_uw } else { 0 },
        max_uw: if *part == Part::Platform { GREATEST_PLATFORM_UW.max(package) } else { package },
        update_ns: UPDATE_NS,
        may_decrease: false,
        always_advances,
    }
}

fn package_part(name: &str, package: u32) -> Part {
    let die = name.split_once("-die-").and_then(|(_, die)| die.parse().ok());
    die.map_or(Part::Package(package), |die| Part::Die(package, die))
}

/// 1 of `package-1` and of `package-1-die-0`.
fn package_number(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("package-")?;
    rest.split('-').next()?.parse().ok()
}

impl Sensor for Rapl {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        self.files.read(into)
    }

    fn failed(&self) -> &[Failed] {
        self.files.failed()
    }
}

/// The number in an open file: the kernel generates it on each read from the start.
fn value((path, file): &(PathBuf, File)) -> Result<i64, ReadError> {
    let mut buffer = [0; 32];
    let number = file.read_at(&mut buffer, 0).and_then(|length| {
        let text = std::str::from_utf8(&buffer[..length]).unwrap_or("").trim();
        text.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("holds {text:?}, not a number")))
    });
    number.map_err(|error| ReadError::io(path.display(), error))
}
