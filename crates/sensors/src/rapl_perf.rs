//! RAPL through perf: the PMU `power` of `/sys/bus/event_source/devices`, whose events, scale and unit are read from there
//! (Documentation/ABI/testing/sysfs-bus-event_source-devices-events). The kernel widens the counters to 64 bits and minds
//! their wraps.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pilotlight_drive::Roots;

use crate::files;
use crate::rapl::{ABSENT, NOT_COUNTING, UPDATE_NS};
use crate::sensor::{Counts, Domain, Kind, Missing, Open, Part, ReadError, Reading, Sensor, Unit, Why};
use crate::sys::perf;

const NAME: &str = "rapl-perf";
const DENIED: &str = "run as root, give the program cap_perfmon, or set kernel.perf_event_paranoid to 0";
const PATIENCE_MS: u64 = 50;

/// RAPL counters of all packages, through perf.
#[derive(Debug)]
pub struct RaplPerf {
    domains: Vec<Domain>,
    counters: Vec<Counter>,
}

#[derive(Debug)]
struct Counter {
    file: File,
    scale: Scale,
}

/// An event as sysfs describes it.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    /// Such as `energy-pkg`.
    name: String,
    config: u64,
    scale: Scale,
}

/// What one count is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    /// 2^-n joules.
    Binary(u32),
    /// So many joules.
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
        let cpus = files::cpu_list(&cpus).unwrap_or_default();
        let mut found = Self { domains: Vec::new(), counters: Vec::new() };
        for &cpu in &cpus {
            let package = package(roots, cpu);
            for event in &events {
                let file = perf::open(kind, event.config, cpu).map_err(|error| {
                    Missing::file(NAME, &pmu.join("events").join(&event.name), &error, ABSENT, DENIED)
                })?;
                found.domains.push(domain(event, package));
                found.counters.push(Counter { file, scale: event.scale });
            }
        }
        found.set_parents();
        found.check_that_it_counts()
    }
}

fn package(roots: &Roots, cpu: u32) -> u32 {
    let file = roots.sys.join(format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id"));
    files::number(&file).unwrap_or(0)
}

/// The events of energy in a folder of events.
fn events(folder: &Path) -> io::Result<Vec<Event>> {
    let names = files::names(folder)?;
    let is_event = |name: &&String| name.starts_with("energy-") && !name.contains('.');
    let mut events = Vec::new();
    for name in names.iter().filter(is_event) {
        let wrong = |what: &str, text: &str| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{what} of {name} is {text:?}, which is not understood"))
        };
        let config = files::text(&folder.join(name))?;
        let scale = files::text(&folder.join(format!("{name}.scale")))?;
        let unit = files::text(&folder.join(format!("{name}.unit")))?;
        if unit != "Joules" {
            return Err(wrong("the unit", &unit));
        }
        events.push(Event {
            name: name.clone(),
            config: config_of(&config).ok_or_else(|| wrong("the configuration", &config))?,
            scale: Scale::parse(&scale).ok_or_else(|| wrong("the scale", &scale))?,
        });
    }
    Ok(events)
}

/// 5 of `event=0x05`.
fn config_of(text: &str) -> Option<u64> {
    let hex = text.strip_prefix("event=")?.strip_prefix("0x")?;
    u64::from_str_radix(hex, 16).ok()
}

fn domain(event: &Event, package: u32) -> Domain {
    let (name, part, always_moves) = match event.name.as_str() {
        "energy-pkg" => (format!("package-{package}"), Part::Package(package), true),
        "energy-cores" => (format!("package-{package}/core"), Part::Core(package), true),
        "energy-gpu" => (format!("package-{package}/uncore"), Part::Uncore(package), false),
        "energy-ram" => (format!("package-{package}/dram"), Part::Dram(package), true),
        "energy-psys" => ("psys".into(), Part::Platform, true),
        other => (format!("package-{package}/{other}"), Part::Unknown(other.into()), false),
    };
    let kind = Kind::EnergyCounter(Counts { always_moves, update_ns: UPDATE_NS, ..Counts::endless() });
    Domain::new(name, kind, Unit::MicroJoule, part)
}

impl RaplPerf {
    fn set_parents(&mut self) {
        let of = |part: &Part, domains: &[Domain]| domains.iter().position(|domain| domain.part == *part);
        for index in 0..self.domains.len() {
            let parent = match self.domains[index].part {
                Part::Core(n) | Part::Uncore(n) => of(&Part::Package(n), &self.domains),
                Part::Package(_) | Part::Dram(_) => of(&Part::Platform, &self.domains),
                _ => None,
            };
            self.domains[index].parent = parent;
        }
    }

    fn check_that_it_counts(mut self) -> Result<Self, Missing> {
        if self.domains.is_empty() {
            return Err(Missing::new(NAME, Why::Absent, "the power PMU has no event of energy", ABSENT));
        }
        let mut first = Vec::new();
        for _ in 0..PATIENCE_MS {
            let mut readings = Vec::new();
            self.read(&mut readings).map_err(|error| Missing::new(NAME, Why::Broken, error.to_string(), ABSENT))?;
            if !first.is_empty() && first != readings {
                return Ok(self);
            }
            first = readings;
            thread::sleep(Duration::from_millis(1));
        }
        let what = "the counters of the power PMU can be opened but do not move";
        Err(Missing::new(NAME, Why::NotCounting, what, NOT_COUNTING))
    }
}

impl Sensor for RaplPerf {
    fn name(&self) -> &str {
        NAME
    }

    fn domains(&self) -> &[Domain] {
        &self.domains
    }

    fn native_interval_ns(&self) -> u64 {
        UPDATE_NS
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        for (domain, counter) in self.counters.iter_mut().enumerate() {
            let mut count = [0; 8];
            let read = counter.file.read_exact(&mut count);
            read.map_err(|error| ReadError::io(&self.domains[domain].name, error))?;
            into.push(Reading { domain, value: counter.scale.microjoules(u64::from_ne_bytes(count)) });
        }
        Ok(())
    }
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

    #[test]
    fn configurations_are_read() {
        assert_eq!(config_of("event=0x05"), Some(5));
        assert_eq!(config_of("event=5"), None);
    }
}
