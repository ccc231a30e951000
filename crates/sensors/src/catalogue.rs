//! All sensors by name, for configurations and for a survey of this machine.

use pilotlight_drive::Roots;
use serde::{Deserialize, Serialize};

use crate::files;
use crate::live::Live;
use crate::sensor::{Domain, Missing, Open, Sensor, SensorInfo};
use crate::{
    battery, command, cputime, diskstats, frequency, hwmon, idle, ipmi, kernel, modelled, netio, nvme, powersensor3,
    rapl, rapl_perf, redfish, target,
};

/// A sensor in a configuration. In TOML: `sensor = "rapl"` with the options of that sensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "sensor", rename_all = "kebab-case")]
pub enum Config {
    /// [`rapl`].
    Rapl(rapl::Options),
    /// [`rapl_perf`].
    RaplPerf {},
    /// [`ipmi`].
    Ipmi {
        /// Access to the BMC.
        #[serde(default)]
        from: ipmi::Options,
    },
    /// [`redfish`].
    Redfish(redfish::Options),
    /// [`hwmon`].
    Hwmon(hwmon::Options),
    /// [`nvme`].
    Nvme(nvme::Options),
    /// [`powersensor3`].
    #[serde(rename = "powersensor3")]
    PowerSensor3(powersensor3::Options),
    /// [`netio`].
    Netio(netio::Options),
    /// [`battery`].
    Battery {},
    /// [`command`].
    Command(command::Options),
    /// [`diskstats`].
    Diskstats(diskstats::Options),
    /// [`frequency`].
    Frequency {},
    /// [`idle`].
    Idle {},
    /// [`cputime`].
    Cputime {},
    /// [`kernel`].
    Kernel {},
    /// [`target`].
    Target(target::Options),
    /// [`modelled`].
    Modelled(modelled::Options),
}

impl Config {
    /// Its name in a configuration.
    pub fn name(&self) -> &str {
        match self {
            Self::Rapl(_) => "rapl",
            Self::RaplPerf {} => "rapl-perf",
            Self::Ipmi { .. } => "ipmi",
            Self::Redfish(_) => "redfish",
            Self::Hwmon(_) => "hwmon",
            Self::Nvme(_) => "nvme",
            Self::PowerSensor3(_) => "powersensor3",
            Self::Netio(_) => "netio",
            Self::Battery {} => "battery",
            Self::Command(options) => &options.name,
            Self::Diskstats(_) => "diskstats",
            Self::Frequency {} => "frequency",
            Self::Idle {} => "idle",
            Self::Cputime {} => "cputime",
            Self::Kernel {} => "kernel",
            Self::Target(_) => "target",
            Self::Modelled(_) => "modelled",
        }
    }

    /// The sensor `name` with its default options; a [`command`] has no defaults.
    pub fn by_name(name: &str) -> Option<Self> {
        let others = [Self::Target(target::Options::default()), Self::Modelled(modelled::Options::default())];
        all().into_iter().chain(others).find(|config| config.name() == name)
    }

    /// Whether the workload starts the server that it reads.
    #[must_use]
    pub const fn with_workload(&self) -> bool {
        matches!(self, Self::Target(target::Options { with_workload: true, .. }))
    }

    /// Opens it.
    ///
    /// # Errors
    /// It cannot be read; with the reason and a remedy.
    pub fn open(&self, roots: &Roots) -> Result<Box<dyn Sensor>, Missing> {
        match self {
            Self::Rapl(options) => open::<rapl::Rapl>(roots, options),
            Self::RaplPerf {} => open::<rapl_perf::RaplPerf>(roots, &()),
            Self::Ipmi { from } => open::<ipmi::Ipmi>(roots, from),
            Self::Redfish(options) => open::<redfish::Redfish>(roots, options),
            Self::Hwmon(options) => open::<hwmon::Hwmon>(roots, options),
            Self::Nvme(options) => open::<nvme::Nvme>(roots, options),
            Self::PowerSensor3(options) => open::<powersensor3::PowerSensor3>(roots, options),
            Self::Netio(options) => open::<netio::Netio>(roots, options),
            Self::Battery {} => open::<battery::Battery>(roots, &()),
            Self::Command(options) => open::<command::Command>(roots, options),
            Self::Diskstats(options) => open::<diskstats::Diskstats>(roots, options),
            Self::Frequency {} => open::<frequency::Frequency>(roots, &()),
            Self::Idle {} => open::<idle::Idle>(roots, &()),
            Self::Cputime {} => open::<cputime::CpuTime>(roots, &()),
            Self::Kernel {} => open::<kernel::Kernel>(roots, &()),
            Self::Target(options) => open::<target::Target>(roots, options),
            Self::Modelled(options) => open::<modelled::Modelled>(roots, options),
        }
    }
}

fn open<S: Open + 'static>(roots: &Roots, options: &S::Options) -> Result<Box<dyn Sensor>, Missing> {
    Ok(Box::new(S::open(roots, options)?))
}

/// All sensors of the survey with their default options, those of power first.
pub fn all() -> Vec<Config> {
    vec![
        Config::Rapl(rapl::Options::default()),
        Config::RaplPerf {},
        Config::Ipmi { from: ipmi::Options::default() },
        Config::Redfish(redfish::Options::default()),
        Config::Hwmon(hwmon::Options::default()),
        Config::Nvme(nvme::Options::default()),
        Config::PowerSensor3(powersensor3::Options::default()),
        Config::Netio(netio::Options::default()),
        Config::Battery {},
        Config::Diskstats(diskstats::Options::default()),
        Config::Frequency {},
        Config::Idle {},
        Config::Cputime {},
        Config::Kernel {},
    ]
}

/// A sensor that can be read on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Its name.
    pub sensor: String,
    /// Its domains.
    pub domains: Vec<Domain>,
    /// Update interval in nanoseconds.
    pub native_interval_ns: u64,
}

impl Found {
    /// Whether it measures power or energy of a part of the machine.
    pub fn is_power(&self) -> bool {
        self.domains.iter().any(|domain| domain.part != crate::Part::None)
    }
}

/// Looks for all sensors, for NVMe for each drive. Ports and servers that are not configured are not accessed; a BMC is read once.
pub fn survey(roots: &Roots) -> Vec<Result<Found, Missing>> {
    open_all(roots).into_iter().map(|sensor| Ok(found(sensor?.info().clone()))).collect()
}

/// The sensors of this machine, and the reasons for missing ones.
#[must_use]
pub fn open_live(roots: &Roots) -> (Live, Vec<Missing>) {
    let (mut sensors, mut missing) = (Vec::new(), Vec::new());
    for sensor in open_all(roots) {
        match sensor {
            Ok(sensor) => sensors.push(sensor),
            Err(reason) => missing.push(reason),
        }
    }
    (Live::of(sensors), missing)
}

/// Opens the sensors of [`survey`].
fn open_all(roots: &Roots) -> Vec<Result<Box<dyn Sensor>, Missing>> {
    all().into_iter().flat_map(|config| each_drive(roots, config)).map(|config| config.open(roots)).collect()
}

fn each_drive(roots: &Roots, config: Config) -> Vec<Config> {
    let Config::Nvme(options) = &config else { return vec![config] };
    let is_drive = |name: &String| name.strip_prefix("nvme").is_some_and(|number| number.parse::<u32>().is_ok());
    let drives: Vec<String> = files::names(&roots.dev).unwrap_or_default().into_iter().filter(is_drive).collect();
    if drives.is_empty() {
        return vec![config];
    }
    let of = |drive| Config::Nvme(nvme::Options { drive, ..options.clone() });
    drives.into_iter().map(of).collect()
}

fn found(SensorInfo { name, domains, native_interval_ns, .. }: SensorInfo) -> Found {
    Found { sensor: name, domains, native_interval_ns }
}
