//! Changes and their steps on this machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;

use super::Changes;
use super::error::{CgroupError, Error};
use super::kernel::Kernel;
use super::quota::{self, CpuGroup, Quota};
use super::setting::{Accept, LONG_TERM, SHORT_TERM, Setting};
use super::step::Step;
use super::{cgroup, feature, file, hotplug};

/// RAPL rounds a limit to its unit, 1/8 W on known machines.
const POWER_STEP_UW: u64 = 125_000;

/// The kernel's default (its parameter nvme_core.default_ps_max_latency_us).
const DEFAULT_TOLERANCE_US: &str = "100000";

/// A change of the machine for an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The I/O scheduler of a block device.
    Scheduler {
        /// Its name, such as `nvme0n1`.
        device: String,
        /// Such as `none` or `mq-deadline`.
        scheduler: String,
    },
    /// A number among the queue settings of a block device, such as `io_poll_delay`.
    Queue {
        /// Its name, such as `nvme0n1`.
        device: String,
        /// The file in its folder `queue`.
        attribute: String,
        /// The value to write.
        value: i64,
    },
    /// The frequency governor of a CPU.
    Governor {
        /// The CPU.
        cpu: u32,
        /// Such as `performance`.
        governor: String,
    },
    /// Frequency bounds of a CPU.
    Frequency {
        /// The CPU.
        cpu: u32,
        /// Lower bound in kHz; unchanged if `None`.
        min_khz: Option<u64>,
        /// Upper bound in kHz; unchanged if `None`.
        max_khz: Option<u64>,
    },
    /// Power limit of a CPU package for its longer window (RAPL constraint 0), or for both.
    PowerLimit {
        /// The zone below `/sys/class/powercap`, such as `intel-rapl:0`.
        zone: String,
        /// Whether the limit of the shorter window (constraint 1) is set too, if there is one.
        short_term: bool,
        /// In microwatts.
        power_uw: u64,
    },
    /// A cgroup of version 2 for started processes.
    Cgroup {
        /// Suffix of its name `pilotlight-...`.
        name: String,
        /// Files and their values, such as `memory.max`.
        limits: Vec<(String, String)>,
    },
    /// CPU quota of some threads of this process, in a cgroup.
    Quota {
        /// The cgroup of the process.
        group: CpuGroup,
        /// Suffix of the group's name `pilotlight-...`.
        name: String,
        /// Thread IDs, as of `gettid`.
        threads: Vec<u32>,
        /// Microseconds per period for all threads; `None` for no quota.
        quota_us: Option<u64>,
        /// Length of the period, in microseconds: 1 ms to 1 s.
        period_us: u64,
    },
    /// CPUs to take offline.
    Offline {
        /// Their numbers.
        cpus: Vec<u32>,
    },
    /// Any file of one line below `/sys`, `/proc/sys` or `/proc/irq`.
    File {
        /// The file.
        path: PathBuf,
        /// The value to write.
        value: String,
    },
    /// The power state of an NVMe drive (Set Features 02h).
    PowerState {
        /// Its controller, such as `nvme0`.
        drive: String,
        /// The state, 0 to 31.
        state: u8,
    },
    /// Autonomous power state transitions of an NVMe drive (feature 0Ch).
    Transitions {
        /// Its controller, such as `nvme0`.
        drive: String,
        /// Whether they are enabled.
        on: bool,
    },
}

impl Change {
    /// Its steps for the current state of the machine.
    pub(super) fn steps(&self, kernel: &mut dyn Kernel, roots: &Roots) -> Result<Vec<Step>, Error> {
        Ok(match self {
            Self::Scheduler { device, scheduler } => {
                vec![exact(roots.sys.join("block").join(device).join("queue/scheduler"), scheduler)]
            }
            Self::Queue { device, attribute, value } => {
                vec![exact(roots.sys.join("block").join(device).join("queue").join(attribute), &value.to_string())]
            }
            Self::Governor { cpu, governor } => vec![exact(cpufreq(roots, *cpu).join("scaling_governor"), governor)],
            Self::Frequency { cpu, min_khz, max_khz } => frequency(kernel, &cpufreq(roots, *cpu), *min_khz, *max_khz),
            Self::PowerLimit { zone, short_term, power_uw } => {
                power_limit(kernel, &roots.sys.join("class/powercap").join(zone), *short_term, *power_uw)
            }
            Self::Cgroup { name, limits } => in_cgroup(kernel, roots, name, limits)?,
            Self::Quota { group, name, threads, quota_us, period_us } => {
                group.steps(kernel, name, threads, Quota { us: *quota_us, period_us: *period_us })?
            }
            Self::Offline { cpus } => hotplug::steps(kernel, roots, cpus)?,
            Self::File { path, value } => vec![exact(path.clone(), value)],
            Self::PowerState { drive, state } => {
                vec![Step::Set(Setting::PowerState { drive: roots.dev.join(drive) }, state.to_string())]
            }
            Self::Transitions { drive, on } => transitions(kernel, roots, drive, *on),
        })
    }
}

impl Step {
    /// Performs a step without a journal entry; `set` performs the others, with the wanted value if the setting is set.
    pub(super) fn carry_out(
        self,
        changes: &mut Changes,
        set: impl FnOnce(&mut Changes, Setting, Option<&str>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::Set(setting, wanted) => set(changes, setting, Some(&wanted)),
            Self::Keep(setting) => set(changes, setting, None),
            Self::Limit(path, wanted) => limit(changes.kernel(), &path, &wanted),
            Self::Threads(path, threads) => quota::enter(changes.kernel(), &path, &threads),
            Self::Confirm(setting, wanted) => confirm(changes.kernel(), &setting, &wanted),
        }
    }
}

fn exact(path: PathBuf, value: &str) -> Step {
    Step::Set(Setting::File { path, accept: Accept::Exact }, value.into())
}

fn cpufreq(roots: &Roots, cpu: u32) -> PathBuf {
    roots.sys.join(format!("devices/system/cpu/cpu{cpu}/cpufreq"))
}

/// The file through which the kernel configures the transitions of a drive.
pub(crate) fn latency_tolerance(roots: &Roots, drive: &str) -> PathBuf {
    roots.sys.join("class/nvme").join(drive).join("power/pm_qos_latency_tolerance_us")
}

/// The kernel writes the drive's table according to the tolerated latency, and newer kernels (6.12.117) do not let user space set the
/// feature. The drive's state is confirmed afterwards.
fn transitions(kernel: &mut dyn Kernel, roots: &Roots, drive: &str, on: bool) -> Vec<Step> {
    let setting = Setting::Transitions { drive: roots.dev.join(drive) };
    let switch = if on { feature::ON } else { feature::OFF };
    let tolerance = latency_tolerance(roots, drive);
    let Ok(now) = kernel.read(&tolerance) else { return vec![Step::Set(setting, switch.into())] };
    let wanted = match (on, file::value(&now)) {
        (false, _) => "0",
        (true, "0") => DEFAULT_TOLERANCE_US,
        (true, other) => other,
    };
    vec![exact(tolerance, wanted), Step::Confirm(setting, switch.into())]
}

/// The lower bound must never exceed the upper one, so the order depends on the current bounds.
fn frequency(kernel: &mut dyn Kernel, folder: &Path, min_khz: Option<u64>, max_khz: Option<u64>) -> Vec<Step> {
    let available = numbers(&kernel.read(&folder.join("scaling_available_frequencies")).unwrap_or_default());
    let accept = if available.is_empty() { Accept::Exact } else { Accept::Listed(available) };
    let now = numbers(&kernel.read(&folder.join("scaling_max_freq")).unwrap_or_default()).first().copied();
    let upwards = min_khz.is_some_and(|min| now.is_some_and(|now| min > now));
    let step = |name: &str, khz: Option<u64>| {
        let setting = Setting::File { path: folder.join(name), accept: accept.clone() };
        khz.map(|khz| Step::Set(setting, khz.to_string()))
    };
    let (min, max) = (step("scaling_min_freq", min_khz), step("scaling_max_freq", max_khz));
    if upwards { [max, min] } else { [min, max] }.into_iter().flatten().collect()
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Also enables the limit if it is not.
fn power_limit(kernel: &mut dyn Kernel, zone: &Path, short_term: bool, power_uw: u64) -> Vec<Step> {
    let mut limits = vec![zone.join(LONG_TERM)];
    limits.extend(Some(zone.join(SHORT_TERM)).filter(|limit| short_term && kernel.has(limit)));
    let setting = |path| Setting::File { path, accept: Accept::Within(POWER_STEP_UW) };
    let mut steps: Vec<Step> = limits.into_iter().map(|path| Step::Set(setting(path), power_uw.to_string())).collect();
    if kernel.read(&zone.join("enabled")).is_ok_and(|text| file::value(&text) == "0") {
        steps.push(exact(zone.join("enabled"), "1"));
    }
    steps
}

fn in_cgroup(
    kernel: &mut dyn Kernel,
    roots: &Roots,
    name: &str,
    limits: &[(String, String)],
) -> Result<Vec<Step>, Error> {
    let root = cgroup::root(kernel, roots).ok_or(CgroupError::NoV2)?;
    if name.is_empty() || name.contains(['/', '.', '\n']) {
        return Err(CgroupError::Name(name.to_owned()).into());
    }
    let needed: BTreeSet<&str> = limits.iter().map(|(limit, _)| cgroup::controller(limit)).collect();
    let available = kernel.read(&root.join("cgroup.controllers")).unwrap_or_default();
    if let Some(lacks) = needed.difference(&cgroup::list(&available)).next() {
        return Err(CgroupError::NoController((*lacks).to_owned(), root).into());
    }
    let subtree = root.join(cgroup::SUBTREE);
    let enabled = kernel.read(&subtree).unwrap_or_default();
    let both = cgroup::joined(&cgroup::list(&enabled).union(&needed).copied().collect());
    let folder = cgroup::folder(&root, name);
    let mut steps = vec![
        Step::Set(Setting::Controllers { path: subtree }, both),
        Step::Set(Setting::Cgroup { path: folder.clone() }, cgroup::PRESENT.into()),
    ];
    steps.extend(limits.iter().map(|(limit, value)| Step::Limit(folder.join(limit), value.clone())));
    Ok(steps)
}

/// Checks that a setting has a value.
fn confirm(kernel: &mut dyn Kernel, setting: &Setting, wanted: &str) -> Result<(), Error> {
    let now = match setting.read(kernel) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported && wanted == feature::OFF => return Ok(()),
        now => now.map_err(|source| super::unreadable(setting, source))?,
    };
    if setting.satisfies(&now, wanted) {
        return Ok(());
    }
    Err(Error::Ignored { setting: setting.to_string(), wanted: wanted.into(), now: setting.shown(&now) })
}

/// Sets a limit of a cgroup created here, and reads it back.
fn limit(kernel: &mut dyn Kernel, path: &Path, wanted: &str) -> Result<(), Error> {
    let setting = path.display().to_string();
    let help = "the kernel lacks this limit or refuses the value; omit it";
    kernel.write(path, wanted).map_err(|source| Error::Write {
        setting: setting.clone(),
        wanted: wanted.into(),
        why: source,
        help: help.into(),
    })?;
    let now = kernel.read(path).map_err(|why| Error::Read { setting: setting.clone(), why, help })?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match cgroup::limit_holds(name, &now, wanted) {
        true => Ok(()),
        false => Err(Error::Ignored { setting, wanted: wanted.into(), now: now.trim().into() }),
    }
}
