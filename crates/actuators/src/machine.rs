//! The section `[machine]` of an experiment: settings during the run. [`Machine::changes`] converts it to changes of this machine.

mod find;
mod units;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;
use serde::{Deserialize, Serialize};

use crate::changes::{Change, cpus};
pub use find::{DeviceError, drive_of, holding_drive};

/// Settings of the machine; omitted ones are not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Machine {
    /// CPUs of `governor` and the frequencies, such as `0-3,8`; default: all with cpufreq.
    pub cpus: Option<String>,
    /// The frequency governor, such as `performance`.
    pub governor: Option<String>,
    /// Lower frequency bound, such as `1.2GHz`.
    pub frequency_min: Option<String>,
    /// Upper frequency bound, such as `2.1GHz`.
    pub frequency_max: Option<String>,
    /// Power limit of each CPU package, such as `15W` (RAPL).
    pub power_limit: Option<String>,
    /// The I/O scheduler of the device, such as `none`.
    pub scheduler: Option<String>,
    /// Whether the kernel may poll the device's queues (`queue/io_poll`).
    pub io_poll: Option<bool>,
    /// Sleep before polling, in microseconds: -1 for none, 0 for half of the mean service time (`queue/io_poll_delay`).
    pub io_poll_delay: Option<i64>,
    /// The NVMe power state of the drive.
    pub power_state: Option<u8>,
    /// Autonomous power state transitions of the drive (APST).
    pub apst: Option<bool>,
    /// Controller of `power_state` and `apst`, such as `nvme0`; default: that of the device.
    pub drive: Option<String>,
    /// Files of one line below `/sys`, `/proc/sys` or `/proc/irq` and their values, in the order of their paths.
    pub files: BTreeMap<PathBuf, Text>,
    /// Limits of started processes.
    pub cgroup: Option<Cgroup>,
}

/// Limits of started processes: a cgroup of version 2 that is created for the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cgroup {
    /// CPUs, such as `0-1`.
    pub cpus: Option<String>,
    /// CPU time in percent of one CPU, such as `150%`.
    pub cpu_time: Option<String>,
    /// Memory, such as `2GiB`.
    pub memory: Option<String>,
    /// I/O weight, 1 to 10,000; the kernel's default is 100.
    pub io_weight: Option<u16>,
    /// I/O latency target, such as `10ms`.
    pub io_latency: Option<String>,
    /// Limit of the read rate, such as `500MB/s`.
    pub read: Option<String>,
    /// Limit of the write rate, such as `500MB/s`.
    pub write: Option<String>,
    /// Limit of reads per second.
    pub read_iops: Option<u64>,
    /// Limit of writes per second.
    pub write_iops: Option<u64>,
}

/// Value of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Text {
    /// A number.
    Number(i64),
    /// A text of one line.
    Word(String),
}

/// An invalid key, or one that this machine does not support.
#[derive(Debug, thiserror::Error)]
#[error("machine.{key}: {why}")]
pub struct KeyError {
    /// The key below `machine`, such as `cgroup.read`.
    pub key: String,
    /// The error and the remedy.
    pub why: Reason,
}

/// Why a key cannot be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The value breaks a rule.
    #[error("{0}")]
    Rule(&'static str),
    /// The value is not such a thing.
    #[error("`{0}` is not {1}")]
    Not(String, &'static str),
    /// The CPU has no frequencies.
    #[error("CPU {0} has no cpufreq")]
    NoCpufreq(u32),
    /// The device does not support it.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device is unknown, and with it its controller.
    #[error("{0}, or {CONTROLLER}")]
    NoDrive(DeviceError),
    /// The controller of the device is unknown.
    #[error("{0}; {CONTROLLER}")]
    NoController(DeviceError),
}

const CONTROLLER: &str = "set its controller with machine.drive, such as drive = \"nvme0\"";
const CPU_LIST: &str = "a list of CPUs such as 0-3,8";

impl KeyError {
    fn rule(key: &str, rule: &'static str) -> Self {
        Self::new(key, Reason::Rule(rule))
    }

    fn new(key: &str, why: impl Into<Reason>) -> Self {
        Self { key: key.into(), why: why.into() }
    }
}

/// The kernel's name of the whole block device that `path` is, is a partition of, or lies on, such as `nvme0n1`.
///
/// # Errors
/// There is none.
pub fn block_device(roots: &Roots, path: Option<&Path>) -> Result<String, DeviceError> {
    find::block(roots, path)
}

/// The block devices of `path` whose queues have this setting (`io_poll`, `io_poll_delay`): its paths with NVMe multipath.
///
/// # Errors
/// There is none.
pub fn polled_devices(roots: &Roots, path: Option<&Path>, setting: &str) -> Result<Vec<String>, DeviceError> {
    find::polled(roots, path, setting)
}

/// The kernel's default period of `cpu.max`, in microseconds.
const PERIOD_US: u64 = 100_000;

impl Machine {
    /// Whether there are no settings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Changes in order of application: the drive first, the cgroup last. `device` is the target of the experiment: a block device or a file
    /// on one. `name` becomes part of the cgroup's name, such as the PID.
    ///
    /// # Errors
    /// A key cannot be applied.
    pub fn changes(&self, roots: &Roots, device: Option<&Path>, name: &str) -> Result<Vec<Change>, KeyError> {
        let mut all = self.of_drive(roots, device)?;
        if let Some(scheduler) = &self.scheduler {
            let devices = find::scheduled(roots, device).map_err(|why| KeyError::new("scheduler", why))?;
            all.extend(devices.into_iter().map(|device| Change::Scheduler { device, scheduler: scheduler.clone() }));
        }
        all.extend(self.of_polling(roots, device)?);
        all.extend(self.of_cpus(roots)?);
        if let Some(power) = &self.power_limit {
            let power_uw = units::power_uw(power).map_err(|why| KeyError::new("power_limit", why))?;
            let zones = find::packages(roots).map_err(|why| KeyError::new("power_limit", why))?;
            all.extend(zones.into_iter().map(|zone| Change::PowerLimit { zone, short_term: false, power_uw }));
        }
        for (path, text) in &self.files {
            all.push(file(roots, path, text)?);
        }
        if let Some(cgroup) = &self.cgroup {
            all.push(Change::Cgroup { name: name.into(), limits: cgroup.limits(roots, device)? });
        }
        Ok(all)
    }

    fn of_drive(&self, roots: &Roots, device: Option<&Path>) -> Result<Vec<Change>, KeyError> {
        let key = match (self.apst, self.power_state) {
            (Some(_), _) => "apst",
            (None, Some(_)) => "power_state",
            (None, None) => return Ok(Vec::new()),
        };
        if self.power_state.is_some_and(|state| state > 31) {
            return Err(KeyError::rule("power_state", "a drive has at most the states 0 to 31"));
        }
        let drive = match &self.drive {
            Some(drive) if find::is_controller(drive) => drive.clone(),
            Some(drive) => {
                let why = Reason::Not(drive.clone(), "a controller; use a name such as nvme0");
                return Err(KeyError::new("drive", why));
            }
            None => find::controller(roots, device).map_err(|why| KeyError::new(key, why))?,
        };
        let transitions = self.apst.map(|on| Change::Transitions { drive: drive.clone(), on });
        let state = self.power_state.map(|state| Change::PowerState { drive, state });
        Ok(transitions.into_iter().chain(state).collect())
    }

    fn of_polling(&self, roots: &Roots, device: Option<&Path>) -> Result<Vec<Change>, KeyError> {
        if self.io_poll_delay.is_some_and(|us| us < -1) {
            return Err(KeyError::rule("io_poll_delay", "must be -1, 0 or a time in microseconds"));
        }
        let poll = self.io_poll.map(|on| ("io_poll", i64::from(on)));
        let delay = self.io_poll_delay.map(|us| ("io_poll_delay", us));
        let mut all = Vec::new();
        for (key, value) in poll.into_iter().chain(delay) {
            let devices = find::polled(roots, device, key).map_err(|why| KeyError::new(key, why))?;
            let attribute = key.to_owned();
            all.extend(devices.into_iter().map(|device| Change::Queue { device, attribute: attribute.clone(), value }));
        }
        Ok(all)
    }

    fn of_cpus(&self, roots: &Roots) -> Result<Vec<Change>, KeyError> {
        let khz = |key: &str, text: &Option<String>| {
            text.as_deref().map(units::khz).transpose().map_err(|why| KeyError::new(key, why))
        };
        let (min_khz, max_khz) =
            (khz("frequency_min", &self.frequency_min)?, khz("frequency_max", &self.frequency_max)?);
        if min_khz.zip(max_khz).is_some_and(|(min, max)| min > max) {
            return Err(KeyError::rule("frequency_min", "is above frequency_max"));
        }
        let bounds = min_khz.or(max_khz).is_some();
        if self.governor.is_none() && !bounds {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        for cpu in self.chosen_cpus(roots)? {
            let governor = |governor: &String| Change::Governor { cpu, governor: governor.clone() };
            all.extend(self.governor.as_ref().map(governor));
            all.extend(bounds.then_some(Change::Frequency { cpu, min_khz, max_khz }));
        }
        Ok(all)
    }

    fn chosen_cpus(&self, roots: &Roots) -> Result<Vec<u32>, KeyError> {
        let has = find::cpus_with_frequencies(roots);
        let Some(text) = &self.cpus else {
            let key = if self.governor.is_some() { "governor" } else { "frequency_max" };
            let why = "no CPU has cpufreq, as in most virtual machines; omit the key";
            return if has.is_empty() { Err(KeyError::rule(key, why)) } else { Ok(has) };
        };
        let wanted = cpus(text).ok_or_else(|| KeyError::new("cpus", Reason::Not(text.clone(), CPU_LIST)))?;
        match wanted.iter().find(|cpu| !has.contains(cpu)) {
            Some(cpu) => Err(KeyError::new("cpus", Reason::NoCpufreq(*cpu))),
            None => Ok(wanted.into_iter().collect()),
        }
    }
}

fn file(roots: &Roots, path: &Path, text: &Text) -> Result<Change, KeyError> {
    let wrong = |why| Err(KeyError::rule(&format!("files.{:?}", path.display().to_string()), why));
    let place = roots.place(path);
    let value = match text {
        Text::Number(number) => number.to_string(),
        Text::Word(word) => word.clone(),
    };
    if !roots.hold(&place) {
        return wrong("only files below /sys, /proc/sys and /proc/irq, without `..`, can be set");
    }
    if value.trim().is_empty() || value.trim() != value || value.contains('\n') {
        return wrong("must be one line without leading and trailing spaces");
    }
    Ok(Change::File { path: place, value })
}

impl Cgroup {
    /// The files of the cgroup and their values.
    fn limits(&self, roots: &Roots, device: Option<&Path>) -> Result<Vec<(String, String)>, KeyError> {
        let mut all = Vec::new();
        let mut add = |file: &str, text: String| all.push((file.to_owned(), text));
        if let Some(list) = &self.cpus {
            cpus(list).ok_or_else(|| KeyError::new("cgroup.cpus", Reason::Not(list.clone(), CPU_LIST)))?;
            add("cpuset.cpus", list.clone());
        }
        if let Some(text) = &self.cpu_time {
            let permille = units::permille(text).map_err(|why| KeyError::new("cgroup.cpu_time", why))?;
            add("cpu.max", format!("{} {PERIOD_US}", permille * (PERIOD_US / 1_000)));
        }
        if let Some(text) = &self.memory {
            add("memory.max", units::bytes(text).map_err(|why| KeyError::new("cgroup.memory", why))?.to_string());
        }
        if let Some(weight) = self.io_weight {
            if !(1..=10_000).contains(&weight) {
                return Err(KeyError::rule("cgroup.io_weight", "must be 1 to 10000"));
            }
            add("io.weight", format!("default {weight}"));
        }
        if let Some(text) = &self.io_latency {
            let us = units::microseconds(text).map_err(|why| KeyError::new("cgroup.io_latency", why))?;
            add("io.latency", format!("{} target={us}", number(roots, device, "cgroup.io_latency")?));
        }
        let most = self.most()?;
        if let Some((key, ..)) = most.first() {
            let number = number(roots, device, key)?;
            let words: Vec<String> = most.iter().map(|(_, word, value)| format!("{word}={value}")).collect();
            add("io.max", format!("{number} {}", words.join(" ")));
        }
        Ok(all)
    }

    /// Key, word in `io.max`, and value of each limit of the device.
    fn most(&self) -> Result<Vec<(&'static str, &'static str, u64)>, KeyError> {
        let rate = |key: &str, text: &Option<String>| {
            text.as_deref().map(units::bytes_per_s).transpose().map_err(|why| KeyError::new(key, why))
        };
        let all = [
            ("cgroup.read", "rbps", rate("cgroup.read", &self.read)?),
            ("cgroup.write", "wbps", rate("cgroup.write", &self.write)?),
            ("cgroup.read_iops", "riops", self.read_iops),
            ("cgroup.write_iops", "wiops", self.write_iops),
        ];
        let set = all.into_iter().filter_map(|(key, word, value)| value.map(|value| (key, word, value)));
        set.map(|limit| match limit {
            (key, _, 0) => Err(KeyError::rule(key, "must be at least 1")),
            limit => Ok(limit),
        })
        .collect()
    }
}

/// Major and minor number of the device.
fn number(roots: &Roots, device: Option<&Path>, key: &str) -> Result<String, KeyError> {
    find::block(roots, device).and_then(|name| find::number(roots, &name)).map_err(|why| KeyError::new(key, why))
}
