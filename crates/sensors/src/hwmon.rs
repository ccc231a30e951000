//! Power of sensor chips: `/sys/class/hwmon` (Documentation/hwmon/sysfs-interface.rst of the kernel): `powerN_input` and
//! `powerN_average` (microwatts), `energyN_input` (microjoules), and current times voltage where a `currN` (milliamperes)
//! and an `inN` (millivolts) carry the same label.
//!
//! The kernel knows where a chip is, not what it feeds: without `parts` a domain can be looked at but not added to others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::roots::{self, Roots};
use crate::sensor::{Counts, Domain, Kind, Missing, Open, Part, ReadError, Reading, Sensor, Unit, Why};

const NAME: &str = "hwmon";
const HELP: &str =
    "load the driver of the board's power monitor (acpi_power_meter, ina2xx, a GPU's), or use another sensor";
const DENIED: &str = "run as root, or let a group read the files with a udev rule";

/// Which chips, and what they feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Names of chips to read; all where it is empty.
    pub chips: Vec<String>,
    /// What a domain is about, by its name (`chip/label`).
    pub parts: BTreeMap<String, Part>,
}

/// Power of sensor chips.
#[derive(Debug)]
pub struct Hwmon {
    domains: Vec<Domain>,
    channels: Vec<Channel>,
}

#[derive(Debug)]
enum Channel {
    /// A file in microwatts or microjoules.
    Micro(PathBuf),
    /// Milliamperes and millivolts.
    Product(PathBuf, PathBuf),
}

impl Open for Hwmon {
    type Options = Options;

    fn open(roots: &Roots, options: &Options) -> Result<Self, Missing> {
        let root = roots.sys.join("class/hwmon");
        let missing = |error| Missing::file(NAME, &root, &error, HELP, DENIED);
        let mut found = Self { domains: Vec::new(), channels: Vec::new() };
        for folder in roots::names(&root).map_err(missing)? {
            let folder = root.join(folder);
            let Ok(chip) = roots::text(&folder.join("name")) else { continue };
            if options.chips.is_empty() || options.chips.contains(&chip) {
                found.add_chip(&folder, &chip, options);
            }
        }
        if found.domains.is_empty() {
            let what = format!("no chip in {} measures power", root.display());
            return Err(Missing::new(NAME, Why::Absent, what, HELP));
        }
        found.read(&mut Vec::new()).map_err(|error| Missing::new(NAME, Why::Broken, error.to_string(), DENIED))?;
        Ok(found)
    }
}

impl Hwmon {
    fn add_chip(&mut self, folder: &Path, chip: &str, options: &Options) {
        let files = roots::names(folder).unwrap_or_default();
        let numbered = |prefix: &str, suffix: &str| -> Vec<String> {
            let number = |file: &String| Some(file.strip_prefix(prefix)?.strip_suffix(suffix)?.to_owned());
            files.iter().filter_map(number).filter(|n| n.bytes().all(|b| b.is_ascii_digit())).collect()
        };
        let label = |what: &str| roots::text(&folder.join(format!("{what}_label"))).unwrap_or_else(|_| what.to_owned());
        let mut powers = numbered("power", "_input");
        for n in &powers {
            let file = folder.join(format!("power{n}_input"));
            self.add(
                Domain::power(format!("{chip}/{}", label(&format!("power{n}"))), part(chip, n)),
                Channel::Micro(file),
                options,
            );
        }
        for n in numbered("power", "_average").into_iter().filter(|n| !powers.contains(n)).collect::<Vec<_>>() {
            let file = folder.join(format!("power{n}_average"));
            self.add(
                Domain::power(format!("{chip}/{}", label(&format!("power{n}"))), part(chip, &n)),
                Channel::Micro(file),
                options,
            );
            powers.push(n);
        }
        // Energy per core of amd_energy would be counted within the socket's.
        for n in numbered("energy", "_input") {
            let name = label(&format!("energy{n}"));
            let socket =
                name.strip_prefix("Esocket").and_then(|socket| socket.parse().ok()).filter(|_| chip == "amd_energy");
            if chip == "amd_energy" && socket.is_none() {
                continue;
            }
            let part = socket.map_or_else(|| part(chip, &n), Part::Package);
            let kind = Kind::EnergyCounter(Counts { always_moves: socket.is_some(), ..Counts::endless() });
            let domain = Domain::new(format!("{chip}/{name}"), kind, Unit::MicroJoule, part);
            self.add(domain, Channel::Micro(folder.join(format!("energy{n}_input"))), options);
        }
        if powers.is_empty() {
            self.add_products(folder, chip, &numbered("curr", "_input"), &numbered("in", "_input"), options);
        }
    }

    /// Current times voltage, where labels say that both are of the same rail.
    fn add_products(&mut self, folder: &Path, chip: &str, currents: &[String], voltages: &[String], options: &Options) {
        let label = |what: &str, n: &String| roots::text(&folder.join(format!("{what}{n}_label"))).ok();
        for current in currents {
            let Some(rail) = label("curr", current) else { continue };
            let Some(voltage) = voltages.iter().find(|voltage| label("in", voltage).as_ref() == Some(&rail)) else {
                continue;
            };
            let file = |what: &str, n: &String| folder.join(format!("{what}{n}_input"));
            let channel = Channel::Product(file("curr", current), file("in", voltage));
            self.add(Domain::power(format!("{chip}/{rail}"), part(chip, current)), channel, options);
        }
    }

    fn add(&mut self, mut domain: Domain, channel: Channel, options: &Options) {
        if let Some(part) = options.parts.get(&domain.name) {
            domain.part = part.clone();
        }
        self.domains.push(domain);
        self.channels.push(channel);
    }
}

/// The ACPI power meter is defined as the whole system's (ACPI 6.5, 10.4); of all others nothing is known.
fn part(chip: &str, number: &str) -> Part {
    if chip == "power_meter" { Part::System } else { Part::Unknown(format!("{chip} {number}")) }
}

impl Sensor for Hwmon {
    fn name(&self) -> &str {
        NAME
    }

    fn domains(&self) -> &[Domain] {
        &self.domains
    }

    fn native_interval_ns(&self) -> u64 {
        // Chips average over tens of milliseconds (ina2xx) to a second (power_meter).
        100_000_000
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let number = |path: &Path| roots::number::<i64>(path).map_err(|error| ReadError::io(path.display(), error));
        for (domain, channel) in self.channels.iter().enumerate() {
            let value = match channel {
                Channel::Micro(path) => number(path)?,
                Channel::Product(current, voltage) => number(current)?.saturating_mul(number(voltage)?),
            };
            into.push(Reading { domain, value });
        }
        Ok(())
    }
}
