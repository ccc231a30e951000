//! A command or file as a sensor: a number in a text, in a configured unit.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pilotlight_drive::Roots;
use regex::Regex;

use crate::decimal;
use crate::http::number_at;
use crate::sensor::{Counts, Domain, Kind, Missing, Open, Part, ReadError, Reading, Sensor, SensorInfo, Unit, Why};
use crate::sys::child;

const TIMEOUT_MS: u64 = 5_000;

/// Options of the sensor.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Name of the sensor and of its domain.
    pub name: String,
    /// Source of the text.
    pub from: Source,
    /// Location of the number in the text.
    #[serde(default)]
    pub pick: Pick,
    /// Unit of the number.
    pub unit: ValueUnit,
    /// The part of the machine; for powers and energies only.
    #[serde(default)]
    pub part: Option<Part>,
    /// The smallest step of the number, in `unit`; default: unknown.
    #[serde(default)]
    #[schemars(with = "Option<f64>")]
    pub step: Option<serde_json::Number>,
    /// Update interval, in milliseconds; default: 1,000.
    #[serde(default)]
    pub interval_ms: Option<u64>,
    /// Timeout of a command, in milliseconds; default: 5,000.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// Source of a text.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The standard output of a program with its arguments, without a shell.
    Command(Vec<String>),
    /// A file.
    File(PathBuf),
}

/// Location of a number in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pick {
    /// The whole text.
    #[default]
    Whole,
    /// The first group of the first match of a regular expression.
    Regex(String),
    /// A pointer (RFC 6901) into JSON, such as `/power/0/watts`.
    Pointer(String),
}

/// Unit of a number in the text.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ValueUnit {
    /// Power in kilowatts.
    #[serde(rename = "kW")]
    KiloWatt,
    /// Power in watts.
    #[serde(rename = "W")]
    Watt,
    /// Power in milliwatts.
    #[serde(rename = "mW")]
    MilliWatt,
    /// Power in microwatts.
    #[serde(rename = "uW")]
    MicroWatt,
    /// Energy counter, in kilowatt-hours.
    #[serde(rename = "kWh")]
    KiloWattHour,
    /// Energy counter, in watt-hours.
    #[serde(rename = "Wh")]
    WattHour,
    /// Energy counter, in joules.
    #[serde(rename = "J")]
    Joule,
    /// Energy counter, in millijoules.
    #[serde(rename = "mJ")]
    MilliJoule,
    /// Energy counter, in microjoules.
    #[serde(rename = "uJ")]
    MicroJoule,
    /// An integer gauge in this unit.
    Gauge(String),
    /// An integer counter in this unit.
    Counter(String),
}

impl ValueUnit {
    /// Kind and unit of the domain, decimal digits to shift by, and the factor applied afterwards.
    fn conversion(&self) -> (Kind, Unit, i32, i64) {
        let power = |digits| (Kind::Power, Unit::MicroWatt, digits, 1);
        let energy = |digits, factor| (Kind::EnergyCounter(Counts::endless()), Unit::MicroJoule, digits, factor);
        match self {
            Self::KiloWatt => power(9),
            Self::Watt => power(6),
            Self::MilliWatt => power(3),
            Self::MicroWatt => power(0),
            Self::KiloWattHour => energy(11, 36),
            Self::WattHour => energy(8, 36),
            Self::Joule => energy(6, 1),
            Self::MilliJoule => energy(3, 1),
            Self::MicroJoule => energy(0, 1),
            Self::Gauge(unit) => (Kind::Gauge, Unit::Named(unit.clone()), 0, 1),
            Self::Counter(unit) => (Kind::Counter, Unit::Named(unit.clone()), 0, 1),
        }
    }
}

/// A number in a text.
#[derive(Debug)]
pub struct Command {
    options: Options,
    regex: Option<Regex>,
    info: SensorInfo,
    digits: i32,
    factor: i64,
    helpers_cpu_ns: u64,
}

impl Open for Command {
    type Options = Options;

    fn open(_: &Roots, options: &Options) -> Result<Self, Missing> {
        let regex = match &options.pick {
            Pick::Regex(pattern) => Some(Regex::new(pattern).map_err(|error| {
                let what = format!("{pattern:?} is not a valid regular expression: {error}");
                Missing::new(&options.name, Why::NotConfigured, what, "correct pick.regex")
            })?),
            _ => None,
        };
        let (kind, unit, digits, factor) = options.unit.conversion();
        let about_power = matches!(kind, Kind::Power | Kind::EnergyCounter(_));
        let unknown = if about_power { Part::Unknown(options.name.clone()) } else { Part::None };
        let part = options.part.clone().filter(|_| about_power).unwrap_or(unknown);
        let interval_ns = options.interval_ms.unwrap_or(1_000).saturating_mul(1_000_000);
        // Slow: a program, or a file on a network.
        let info = SensorInfo::slow(&*options.name, interval_ns, vec![Domain::new(&*options.name, kind, unit, part)]);
        let mut command = Self { options: options.clone(), regex, info, digits, factor, helpers_cpu_ns: 0 };
        let broken = |error: ReadError| {
            let help = "run the command or read the file manually, and check pick";
            Missing::new(&options.name, Why::Broken, error.to_string(), help)
        };
        let text = command.text().map_err(broken)?;
        command.value(&text).map_err(broken)?;
        command.info.domains[0].timing.quantum = command.quantum()?;
        Ok(command)
    }
}

impl Command {
    fn text(&mut self) -> Result<String, ReadError> {
        match &self.options.from {
            Source::File(path) => read(path).map_err(|error| ReadError::io(path.display(), error)),
            Source::Command(arguments) => {
                let timeout = Duration::from_millis(self.options.timeout_ms.unwrap_or(TIMEOUT_MS));
                let ended = child::run(arguments, timeout);
                let ended =
                    ended.map_err(|error| ReadError::io(format!("the output of {}", arguments.join(" ")), error))?;
                self.helpers_cpu_ns += ended.cpu_ns;
                if !ended.status.success() {
                    return Err(ReadError::Content(format!("{} failed with {}", arguments.join(" "), ended.status)));
                }
                Ok(ended.stdout)
            }
        }
    }

    /// The configured step, in the domain's unit.
    fn quantum(&self) -> Result<Option<u64>, Missing> {
        let Some(step) = &self.options.step else { return Ok(None) };
        let shifted = decimal::scaled(&step.to_string(), self.digits).and_then(|step| step.checked_mul(self.factor));
        let quantum = shifted.and_then(|step| u64::try_from(step).ok()).filter(|step| *step > 0).ok_or_else(|| {
            let unit = self.info.domains[0].unit.suffix();
            let what = format!("step {step} is not a positive number of {unit}");
            Missing::new(&self.options.name, Why::NotConfigured, what, "set step in the sensor's unit")
        })?;
        Ok(Some(quantum))
    }

    fn number(&self, text: &str) -> Option<i64> {
        let shifted = match (&self.options.pick, &self.regex) {
            (Pick::Pointer(pointer), _) => number_at(&serde_json::from_str(text).ok()?, pointer, self.digits)?,
            (_, Some(regex)) => decimal::scaled(regex.captures(text)?.get(1)?.as_str(), self.digits)?,
            _ => decimal::scaled(text, self.digits)?,
        };
        shifted.checked_mul(self.factor)
    }
}

impl Command {
    fn value(&self, text: &str) -> Result<i64, ReadError> {
        self.number(text).ok_or_else(|| {
            let start: String = text.chars().take(80).collect();
            ReadError::Content(format!("pick finds no number in {start:?}"))
        })
    }
}

/// The text of a file. A pipe without a writer is empty; reading does not block.
fn read(path: &Path) -> io::Result<String> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    io::read_to_string(OpenOptions::new().read(true).custom_flags(flags).open(path)?)
}

impl Sensor for Command {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        let text = self.text()?;
        into.push(Reading { domain: 0, value: self.value(&text)? });
        Ok(())
    }

    fn helpers_cpu_ns(&self) -> u64 {
        self.helpers_cpu_ns
    }
}
