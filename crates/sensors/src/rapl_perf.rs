//! RAPL through perf: the PMU `power` of `/sys/bus/event_source/devices`, whose events, scale and unit are read from there
//! (Documentation/ABI/testing/sysfs-bus-event_source-devices-events). The kernel extends the counters to 64 bits.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;

use crate::files;
use crate::rapl::{ABSENT, NOT_COUNTING, QUANTUM_UJ, UPDATE_NS};
use crate::sensor::{
    Counts, Domain, Failed, Kind, Missing, Open, Part, ReadError, Reading, Sensor, SensorInfo, Unit, Why,
};
use crate::sys::perf;
use crate::timing::Timing;
use pilotlight_power::sources::{Remedies, Sources};

const NAME: &str = "rapl-perf";
const DENIED: &str = "run as root, give the program cap_perfmon, or set kernel.perf_event_paranoid to 0";

/// RAPL counters of all packages, through perf.
#[derive(Debug)]
pub struct RaplPerf {
    info: SensorInfo,
    counters: Sources<Counter>,
}

#[derive(Debug)]
struct Counter {
    file: File,
    /// Of its event.
    name: String,
    scale: Scale,
}

/// An event in sysfs.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    /// Such as `energy-pkg`.
    name: String,
    config: u64,
    scale: Scale,
}

/// Energy of one count.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    /// 2^-n joules.
    Binary(u32),
    /// Joules.
    Joules(f64),
}

impl Scale {
    fn parse(text: &str) -> Option<Self> {
        let joules: f64 = text.parse().ok().filter(|&joules: &f64| joules > 0.0)?;
        let exponent = -joules.log2();
        let binary = exponent.fract() == 0.0 && (0.0..64.0).contains(&exponent);
        Some(if binary { Self::Binary(exponent as u32) } else { Self::Joules(joules) })
    }

    /// Whole microjoules of a count.
    fn microjoules(self, count: u64) -> i64 {
        match self {
            Self::Binary(digits) => ((u128::from(count) * 1_000_000) >> digits) as i64,
            Self::Joules(joules) => (count as f64 * joules * 1e6) as i64,
        }
    }
}

impl Open for RaplPerf {
    type Options = ();

    fn open(roots: &Roots, (): &()) -> Result<Self, Missing> {
        let pmu = roots.sys.join("bus/event_source/devices/power");
        let missing = |path: PathBuf| move |error: io::Error| Missing::file(NAME, &path, &error, ABSENT, DENIED);
        let kind = files::number(&pmu.join("type")).map_err(missing(pmu.join("type")))?;
        let events = events(&pmu.join("events")).map_err(missing(pmu.join("events")))?;
        let cpus = files::text(&pmu.join("cpumask")).map_err(missing(pmu.join("cpumask")))?;
        let cpus = pilotlight_input::cpu_list::parse_known(&cpus);
        let scopes = scopes(roots, &cpus).map_err(|(path, error)| missing(path)(error))?;
        let mut counters = Vec::new();
        for cpu in cpus {
            for event in &events {
                let file = perf::open(kind, event.config, cpu).map_err(missing(pmu.join("events").join(&event.name)));
                counters.push(file.map(|file| Counter { file, name: event.name.clone(), scale: event.scale }));
            }
        }
        let mut info = SensorInfo::new(NAME, UPDATE_NS, domains(&scopes, &events));
        if info.domains.is_empty() {
            return Err(Missing::new(NAME, Why::Absent, "the power PMU has no energy event", ABSENT));
        }
        let remedies = Remedies { denied: DENIED, not_counting: NOT_COUNTING };
        let counters = Sources::open(&mut info, counters, value, remedies)?;
        Ok(Self { info, counters })
    }
}

/// The scope of a CPU in the PMU's mask: a package, or one of several dies of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scope {
    package: u32,
    die: Option<u32>,
}

/// The scopes of these CPUs. An error has the file that could not be read.
fn scopes(roots: &Roots, cpus: &[u32]) -> Result<Vec<Scope>, (PathBuf, io::Error)> {
    let number = |cpu: u32, what: &str| {
        let file = roots.sys.join(format!("devices/system/cpu/cpu{cpu}/topology/{what}"));
        files::number::<u32>(&file).map_err(|error| (file, error))
    };
    let packages = cpus.iter().map(|&cpu| number(cpu, "physical_package_id")).collect::<Result<Vec<_>, _>>()?;
    let scope = |(&cpu, &package): (&u32, &u32)| {
        let several = packages.iter().filter(|other| **other == package).count() > 1;
        Ok(Scope { package, die: several.then(|| number(cpu, "die_id")).transpose()? })
    };
    cpus.iter().zip(&packages).map(scope).collect()
}

/// The events of energy in a folder of events.
fn events(folder: &Path) -> io::Result<Vec<Event>> {
    let names = files::names(folder)?;
    let is_event = |name: &&String| name.starts_with("energy-") && !name.contains('.');
    let mut events = Vec::new();
    for name in names.iter().filter(is_event) {
        let wrong = |what: &str, text: &str| {
            io::Error::new(io::ErrorKind::InvalidData, format!("unknown {what} of {name}: {text:?}"))
        };
        let config = files::text(&folder.join(name))?;
        let scale = files::text(&folder.join(format!("{name}.scale")))?;
        let unit = files::text(&folder.join(format!("{name}.unit")))?;
        if unit != "Joules" {
            return Err(wrong("unit", &unit));
        }
        events.push(Event {
            name: name.clone(),
            config: config_of(&config).ok_or_else(|| wrong("configuration", &config))?,
            scale: Scale::parse(&scale).ok_or_else(|| wrong("scale", &scale))?,
        });
    }
    Ok(events)
}

/// Parses `event=0x05`.
fn config_of(text: &str) -> Option<u64> {
    let hex = text.strip_prefix("event=")?.strip_prefix("0x")?;
    u64::from_str_radix(hex, 16).ok()
}

/// All events of all scopes, with the names of powercap's zones.
fn domains(scopes: &[Scope], events: &[Event]) -> Vec<Domain> {
    let all = scopes.iter().flat_map(|&scope| events.iter().map(move |event| domain(event, scope)));
    let mut domains: Vec<Domain> = all.collect();
    let names: Vec<String> = domains.iter().map(|domain| domain.name.clone()).collect();
    let named = |name: &str| names.iter().position(|other| other == name);
    for (domain, scope) in domains.iter_mut().zip(scopes.iter().flat_map(|scope| vec![*scope; events.len()])) {
        domain.parent = match domain.part {
            Part::Platform => None,
            Part::Package(_) | Part::Die(..) | Part::Dram(_) => named(&psys(scope.package)).or_else(|| named("psys")),
            _ => domain.name.split_once('/').and_then(|(package, _)| named(package)),
        };
    }
    domains
}

fn psys(package: u32) -> String {
    if package == 0 { "psys".into() } else { format!("psys-{package}") }
}

fn domain(event: &Event, Scope { package, die }: Scope) -> Domain {
    let base = die.map_or(format!("package-{package}"), |die| format!("package-{package}-die-{die}"));
    let whole = die.map_or(Part::Package(package), |die| Part::Die(package, die));
    let (name, part, always_advances) = match event.name.as_str() {
        "energy-pkg" => (base, whole, true),
        "energy-cores" => (format!("{base}/core"), Part::Core(package), true),
        "energy-gpu" => (format!("{base}/uncore"), Part::Uncore(package), false),
        "energy-ram" => (format!("{base}/dram"), Part::Dram(package), true),
        "energy-psys" => (psys(package), Part::Platform, true),
        other => (format!("{base}/{other}"), Part::Unknown(other.into()), false),
    };
    let kind = Kind::EnergyCounter(Counts { always_advances, update_ns: UPDATE_NS, ..Counts::endless() });
    Domain::new(name, kind, Unit::MicroJoule, part).timed(Timing::counter(UPDATE_NS).steps(QUANTUM_UJ))
}

impl Sensor for RaplPerf {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        self.counters.read(into)
    }

    fn failed(&self) -> &[Failed] {
        self.counters.failed()
    }
}

fn value(counter: &Counter) -> Result<i64, ReadError> {
    let mut count = [0; 8];
    (&counter.file).read_exact(&mut count).map_err(|error| ReadError::io(&counter.name, error))?;
    Ok(counter.scale.microjoules(u64::from_ne_bytes(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_the_hardware_is_exact() {
        let scale = Scale::parse("2.3283064365386962890625e-10").unwrap();
        assert_eq!(scale, Scale::Binary(32));
        assert_eq!(scale.microjoules(1 << 32), 1_000_000);
        // 4 GJ and one count, where floating point has steps of several counts.
        assert_eq!(scale.microjoules((4_000_000_000 << 32) + (1 << 31)), 4_000_000_000_500_000);
        assert_eq!(Scale::parse("6.1e-5"), Some(Scale::Joules(6.1e-5)));
        assert_eq!(Scale::parse("0"), None);
        assert_eq!(Scale::parse("x"), None);
    }

    fn events(names: &[&str]) -> Vec<Event> {
        let event = |name: &&str| Event { name: (*name).into(), config: 1, scale: Scale::Binary(32) };
        names.iter().map(event).collect()
    }

    fn shape(scopes: &[Scope], names: &[&str]) -> Vec<(String, Part, Option<usize>)> {
        let domains = domains(scopes, &events(names));
        domains.into_iter().map(|domain| (domain.name, domain.part, domain.parent)).collect()
    }

    #[test]
    fn packages_are_named_and_nested_as_powercap_has_them() {
        let scopes = [Scope { package: 0, die: None }, Scope { package: 1, die: None }];
        let names = ["energy-cores", "energy-pkg", "energy-psys", "energy-ram"];
        let expected = [
            ("package-0/core", Part::Core(0), Some(1)),
            ("package-0", Part::Package(0), Some(2)),
            ("psys", Part::Platform, None),
            ("package-0/dram", Part::Dram(0), Some(2)),
            ("package-1/core", Part::Core(1), Some(5)),
            ("package-1", Part::Package(1), Some(6)),
            ("psys-1", Part::Platform, None),
            ("package-1/dram", Part::Dram(1), Some(6)),
        ];
        assert_eq!(shape(&scopes, &names), expected.map(|(name, part, parent)| (name.to_owned(), part, parent)));
    }

    #[test]
    fn dies_of_a_package_have_counters_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        for (cpu, package, die) in [(0, 0, 0), (8, 0, 1), (16, 1, 0)] {
            let topology = folder.path().join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
            std::fs::create_dir_all(&topology).unwrap();
            std::fs::write(topology.join("physical_package_id"), package.to_string()).unwrap();
            std::fs::write(topology.join("die_id"), die.to_string()).unwrap();
        }
        let scopes = scopes(&roots, &[0, 8, 16]).unwrap();
        let expected = [
            ("package-0-die-0", Part::Die(0, 0), None),
            ("package-0-die-1", Part::Die(0, 1), None),
            ("package-1", Part::Package(1), None),
        ];
        assert_eq!(
            shape(&scopes, &["energy-pkg"]),
            expected.map(|(name, part, parent)| (name.to_owned(), part, parent))
        );
        // A package that is not known is no package 0.
        assert!(
            super::scopes(&roots, &[0, 9]).is_err_and(|(file, _)| file.ends_with("cpu9/topology/physical_package_id"))
        );
    }

    #[test]
    fn configurations_are_read() {
        assert_eq!(config_of("event=0x05"), Some(5));
        assert_eq!(config_of("event=5"), None);
    }
}
