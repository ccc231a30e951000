//! Power of sensor chips: `/sys/class/hwmon` (Documentation/hwmon/sysfs-interface.rst of the kernel): `powerN_input` and `powerN_average`
//! (microwatts), `energyN_input` (microjoules), and current times voltage if a `currN` (milliamperes) and an `inN` (millivolts) belong to
//! one rail. Disabled channels (`*_enable`) are omitted.
//!
//! Channels that cannot be read are removed, with a note ([`sources`](crate::sources)).
//!
//! The kernel does not report what a chip supplies: without `parts` a domain is shown but not added to others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;

use crate::sensor::{
    Counts, Domain, Failed, Kind, Missing, Open, Part, ReadError, Reading, Sensor, SensorInfo, Unit, Why,
};
use crate::sources::{Remedies, Sources};
use crate::timing::Timing;
use crate::{checked, files};

const NAME: &str = "hwmon";
/// Update interval in nanoseconds. Chips average over tens of milliseconds (ina2xx) to a second (power_meter).
pub const INTERVAL_NS: u64 = 100_000_000;
const HELP: &str =
    "load the driver of the board's power monitor (acpi_power_meter, ina2xx, a GPU's), or use another sensor";
const REMEDIES: Remedies = Remedies {
    denied: "run as root, or let a group read the files with a udev rule",
    not_counting: "use another sensor",
};

/// Chips to read, and the parts of the machine that their domains measure.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Names of chips; default: all. `name@hwmonN` selects one of several with the same name.
    pub chips: Vec<String>,
    /// Parts of the machine by domain (`chip/label`).
    pub parts: BTreeMap<String, Part>,
}

/// Power of sensor chips.
#[derive(Debug)]
pub struct Hwmon {
    info: SensorInfo,
    channels: Sources<Channel>,
}

/// The channels that are found.
struct Found {
    info: SensorInfo,
    channels: Vec<Channel>,
}

#[derive(Debug)]
enum Channel {
    /// A file, in microwatts or microjoules.
    Micro(PathBuf),
    /// Two files, in milliamperes and millivolts.
    Product(PathBuf, PathBuf),
}

impl Open for Hwmon {
    type Options = Options;

    fn open(roots: &Roots, options: &Options) -> Result<Self, Missing> {
        let root = roots.sys.join("class/hwmon");
        let missing = |error| Missing::file(NAME, &root, &error, HELP, REMEDIES.denied);
        // Chips on a slow bus and firmware meters can be slow.
        let mut found = Found { info: SensorInfo::slow(NAME, INTERVAL_NS, Vec::new()), channels: Vec::new() };
        for chip in chips(&root).map_err(missing)? {
            if options.chips.is_empty() || options.chips.contains(&chip.driver) || options.chips.contains(&chip.name) {
                found.add_powers(&chip, options);
                found.add_energies(&chip, options);
            }
        }
        if found.info.domains.is_empty() {
            let what = format!("no chip in {} measures power", root.display());
            return Err(Missing::new(NAME, Why::Absent, what, HELP));
        }
        let Found { mut info, channels } = found;
        let channels = channels.into_iter().map(Ok).collect();
        let channels = Sources::open(&mut info, channels, value, REMEDIES)?;
        let mut hwmon = Self { info, channels };
        let read = checked::read(&mut hwmon, &mut Vec::new());
        read.map_err(|error| Missing::new(NAME, Why::Broken, error.to_string(), "use another sensor"))?;
        Ok(hwmon)
    }
}

/// A chip's folder.
struct Chip {
    folder: PathBuf,
    /// The driver's name.
    driver: String,
    /// The same, with the folder's name if several chips have it.
    name: String,
    files: Vec<String>,
}

fn chips(root: &Path) -> std::io::Result<Vec<Chip>> {
    let mut chips = Vec::new();
    for name in files::names(root)? {
        let folder = root.join(&name);
        let Ok(driver) = files::text(&folder.join("name")) else { continue };
        let files = files::names(&folder).unwrap_or_default();
        chips.push(Chip { name: format!("{driver}@{name}"), folder, driver, files });
    }
    let drivers: Vec<String> = chips.iter().map(|chip| chip.driver.clone()).collect();
    for chip in &mut chips {
        if drivers.iter().filter(|driver| **driver == chip.driver).count() == 1 {
            chip.name.clone_from(&chip.driver);
        }
    }
    Ok(chips)
}

impl Chip {
    /// The numbers of files such as `power1_input`.
    fn numbers(&self, prefix: &str, suffix: &str) -> Vec<String> {
        let number = |file: &String| Some(file.strip_prefix(prefix)?.strip_suffix(suffix)?.to_owned());
        self.files.iter().filter_map(number).filter(|n| n.bytes().all(|b| b.is_ascii_digit())).collect()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Whether a channel is enabled: a disabled one returns an error.
    fn is_on(&self, channel: &str) -> bool {
        !files::text(&self.file(&format!("{channel}_enable"))).is_ok_and(|text| text == "0")
    }

    /// The rail of the current with this number, and the channel of its voltage: that with the same label; or, on an INA3221, which
    /// labels voltages only, that with the same number (Documentation/hwmon/ina3221.rst; its fourth current is a sum).
    fn rail(&self, n: &str) -> Option<(String, String)> {
        let (current, same) = (format!("curr{n}"), format!("in{n}"));
        let voltages = self.numbers("in", "_input").into_iter().map(|n| format!("in{n}"));
        let mut voltages = voltages.filter(|voltage| self.is_on(voltage) && self.is_on(&current));
        let rail = match self.label(&current) {
            Some(rail) => (rail.clone(), voltages.find(|voltage| self.label(voltage).as_ref() == Some(&rail))?),
            None if self.driver == "ina3221" && ["1", "2", "3"].contains(&n) => {
                (self.label(&same).unwrap_or(current.clone()), voltages.find(|voltage| *voltage == same)?)
            }
            None => return None,
        };
        Some(rail)
    }

    /// Averaging interval of a channel; drivers report milliseconds.
    fn averaging(&self, channel: &str) -> Timing {
        let ms = files::number::<u64>(&self.file(&format!("{channel}_average_interval"))).ok();
        Timing { averaging_ns: ms.map(|ms| ms.saturating_mul(1_000_000)), ..Timing::default() }
    }

    fn label(&self, channel: &str) -> Option<String> {
        files::text(&self.file(&format!("{channel}_label"))).ok()
    }

    fn domain_name(&self, channel: &str) -> String {
        format!("{}/{}", self.name, self.label(channel).unwrap_or_else(|| channel.to_owned()))
    }

    /// The ACPI power meter is defined as the whole system's (ACPI 6.5, 10.4); the part of all others is unknown.
    fn part(&self, domain: &str) -> Part {
        if self.driver == "power_meter" { Part::System } else { Part::Unknown(domain.into()) }
    }
}

impl Found {
    /// Powers; products of current and voltage if a chip has none.
    fn add_powers(&mut self, chip: &Chip, options: &Options) {
        let before = self.info.domains.len();
        let inputs = chip.numbers("power", "_input");
        let averages =
            chip.numbers("power", "_average").into_iter().filter(|n| !inputs.contains(n)).map(|n| (n, "average"));
        let all = inputs.iter().map(|n| (n.clone(), "input")).chain(averages);
        for (channel, what) in all.map(|(n, what)| (format!("power{n}"), what)).filter(|(n, _)| chip.is_on(n)) {
            let name = chip.domain_name(&channel);
            let file = chip.file(&format!("{channel}_{what}"));
            let timing = if what == "average" { chip.averaging(&channel) } else { Timing::default() };
            self.add(Domain::power(&*name, chip.part(&name)).timed(timing), Channel::Micro(file), options);
        }
        if self.info.domains.len() == before {
            self.add_products(chip, options);
        }
    }

    /// Energies. Cores of `amd_energy` are omitted, as the socket includes them.
    fn add_energies(&mut self, chip: &Chip, options: &Options) {
        let all = chip.numbers("energy", "_input").into_iter().map(|n| format!("energy{n}"));
        for channel in all.filter(|channel| chip.is_on(channel)) {
            let name = chip.domain_name(&channel);
            let socket = chip.label(&channel).and_then(|label| label.strip_prefix("Esocket")?.parse().ok());
            let part = match (chip.driver.as_str(), socket) {
                ("amd_energy", Some(socket)) => Part::Package(socket),
                ("amd_energy", None) => continue,
                _ => chip.part(&name),
            };
            let kind = Kind::EnergyCounter(Counts { always_advances: socket.is_some(), ..Counts::endless() });
            let domain = Domain::new(name, kind, Unit::MicroJoule, part);
            self.add(domain, Channel::Micro(chip.file(&format!("{channel}_input"))), options);
        }
    }

    /// Current times voltage, if both are known to be of one rail.
    fn add_products(&mut self, chip: &Chip, options: &Options) {
        for n in chip.numbers("curr", "_input") {
            let Some((rail, voltage)) = chip.rail(&n) else { continue };
            let file = |channel: &str| chip.file(&format!("{channel}_input"));
            let (name, channel) =
                (format!("{}/{rail}", chip.name), Channel::Product(file(&format!("curr{n}")), file(&voltage)));
            self.add(Domain::power(&*name, chip.part(&name)), channel, options);
        }
    }

    /// Several channels of a chip can have one label (`NC`): the second and later ones get a number.
    fn add(&mut self, mut domain: Domain, channel: Channel, options: &Options) {
        let numbered = format!("{}#", domain.name);
        let alike = |other: &&Domain| other.name == domain.name || other.name.starts_with(&numbered);
        let alike = self.info.domains.iter().filter(|other| other.unit == domain.unit).filter(alike).count();
        if alike > 0 {
            domain.name = format!("{numbered}{}", alike + 1);
        }
        if let Some(part) = options.parts.get(&domain.name) {
            domain.part = part.clone();
        }
        self.info.add(domain);
        self.channels.push(channel);
    }
}

impl Sensor for Hwmon {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        self.channels.read(into)
    }

    fn failed(&self) -> &[Failed] {
        self.channels.failed()
    }
}

fn value(channel: &Channel) -> Result<i64, ReadError> {
    let number = |path: &Path| files::number::<i64>(path).map_err(|error| ReadError::io(path.display(), error));
    Ok(match channel {
        Channel::Micro(path) => number(path)?,
        Channel::Product(current, voltage) => number(current)?.saturating_mul(number(voltage)?),
    })
}
