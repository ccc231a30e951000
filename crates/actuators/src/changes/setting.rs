//! A setting of the machine: a file of the kernel, a cgroup, a feature of a drive. Reading, setting and comparing its value.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;
use serde::{Deserialize, Serialize};

use super::kernel::Kernel;
use super::{affinity, cgroup, feature, file};

/// The limits of a RAPL zone: the kernel numbers the longer window 0 and the shorter one 1.
pub(crate) const LONG_TERM: &str = "constraint_0_power_limit_uw";
pub(crate) const SHORT_TERM: &str = "constraint_1_power_limit_uw";

/// A setting of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Setting {
    /// A file of one line below `/sys` or `/proc`. If the line lists choices, the one in brackets is the value.
    File {
        /// The file.
        path: PathBuf,
        /// Values that are accepted in place of the written one.
        #[serde(default)]
        accept: Accept,
    },
    /// Controllers that a cgroup enables for its children: its `cgroup.subtree_control`.
    Controllers {
        /// The file.
        path: PathBuf,
    },
    /// Existence of a cgroup.
    Cgroup {
        /// Its folder.
        path: PathBuf,
    },
    /// The CPUs on which a thread may run, as a list.
    Affinity {
        /// Its file `status` in `/proc`.
        status: PathBuf,
        /// Start time in clock ticks since boot, as thread IDs are reused.
        start_ticks: u64,
    },
    /// The power state of a drive (NVMe feature 02h), as `1`, or `1/2` with the workload hint 2.
    PowerState {
        /// The character device of its controller.
        drive: PathBuf,
    },
    /// Autonomous power state transitions of a drive (NVMe feature 0Ch): `on` or `off`, then its table in hexadecimal digits.
    Transitions {
        /// The character device of its controller.
        drive: PathBuf,
    },
}

/// Values that are accepted in place of the written one: the kernel rounds some numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accept {
    /// The same value only.
    #[default]
    Exact,
    /// A number within this distance.
    Within(u64),
    /// The same, or its neighbour in this list of available values.
    Listed(Vec<u64>),
}

impl Setting {
    /// Its current value.
    pub(super) fn read(&self, kernel: &mut dyn Kernel) -> io::Result<String> {
        match self {
            Self::File { path, .. } => file::read(kernel, path),
            Self::Controllers { path } => cgroup::read_controllers(kernel, path),
            Self::Cgroup { path } => Ok(cgroup::read(kernel, path)),
            Self::Affinity { status, .. } => affinity::read(kernel, status),
            Self::PowerState { drive } => feature::read_state(kernel.drive(drive)?.as_mut()),
            Self::Transitions { drive } => feature::read_transitions(kernel.drive(drive)?.as_mut()),
        }
    }

    /// The value to restore. It differs from `read` only for a drive in a non-operational state.
    pub(super) fn before(&self, kernel: &mut dyn Kernel) -> io::Result<String> {
        match self {
            Self::PowerState { drive } => feature::state_to_return_to(kernel.drive(drive)?.as_mut()),
            _ => self.read(kernel),
        }
    }

    /// Checks that it supports this value, as far as possible without setting it.
    pub(super) fn check(&self, kernel: &mut dyn Kernel, wanted: &str) -> io::Result<()> {
        match self {
            Self::PowerState { drive } => feature::check_state(kernel.drive(drive)?.as_mut(), wanted),
            _ => Ok(()),
        }
    }

    /// Sets it.
    pub(super) fn set(&self, kernel: &mut dyn Kernel, value: &str) -> io::Result<()> {
        match self {
            Self::File { path, .. } => file::write(kernel, path, value),
            Self::Controllers { path } => cgroup::write_controllers(kernel, path, value),
            Self::Cgroup { path } => cgroup::write(kernel, path, value),
            Self::Affinity { status, .. } => affinity::write(kernel, status, value),
            Self::PowerState { drive } => feature::set_state(kernel.drive(drive)?.as_mut(), value),
            Self::Transitions { drive } => feature::set_transitions(kernel.drive(drive)?.as_mut(), value),
        }
    }

    /// Whether two values are equivalent.
    pub(super) fn same(&self, one: &str, other: &str) -> bool {
        match self {
            Self::File { .. } => file::value(one) == file::value(other),
            Self::Affinity { .. } => cgroup::cpus(one) == cgroup::cpus(other),
            _ => one == other,
        }
    }

    /// Whether `now` is an acceptable result of setting `wanted`.
    pub(super) fn satisfies(&self, now: &str, wanted: &str) -> bool {
        match self {
            Self::File { accept, .. } => accept.accepts(file::value(now), file::value(wanted)),
            Self::Transitions { .. } => feature::transitions_match(now, wanted),
            _ => self.same(now, wanted),
        }
    }

    /// Whether its value can change without being set, so that a different value does not prove a change by another process.
    pub(super) fn drifts(&self) -> bool {
        matches!(self, Self::PowerState { .. })
    }

    /// Whether it no longer exists, as an unplugged device.
    pub(super) fn is_gone(&self, kernel: &mut dyn Kernel) -> bool {
        match self {
            Self::Cgroup { .. } => false,
            Self::Affinity { status, start_ticks } => affinity::has_ended(status, *start_ticks),
            _ => !kernel.has(self.path()),
        }
    }

    /// Whether it may be changed.
    pub(super) fn is_within(&self, roots: &Roots) -> bool {
        match self {
            Self::PowerState { drive } | Self::Transitions { drive } => roots.hold_device(drive),
            Self::Cgroup { path } => roots.hold(path) && cgroup::is_ours(path),
            Self::Affinity { status, .. } => affinity::is_status(roots, status),
            Self::Controllers { path } => roots.hold(path) && path.ends_with(cgroup::SUBTREE),
            Self::File { path, .. } => roots.hold(path),
        }
    }

    /// The file, folder or device.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::File { path, .. } | Self::Controllers { path } | Self::Cgroup { path } => path,
            Self::PowerState { drive } | Self::Transitions { drive } => drive,
            Self::Affinity { status, .. } => status,
        }
    }

    /// A value for display.
    #[must_use]
    pub fn shown(&self, value: &str) -> String {
        match self {
            Self::File { .. } => file::value(value).to_owned(),
            Self::Transitions { .. } => value.split_whitespace().next().unwrap_or_default().to_owned(),
            Self::Controllers { .. } if value.is_empty() => "none".into(),
            _ => value.to_owned(),
        }
    }

    /// The remedy for an error.
    pub(super) fn help(&self, error: &io::Error) -> &'static str {
        let drive = matches!(self, Self::PowerState { .. } | Self::Transitions { .. });
        let limit = [LONG_TERM, SHORT_TERM].iter().any(|limit| self.path().ends_with(limit));
        match (error.kind(), drive) {
            (io::ErrorKind::PermissionDenied, _) if limit => {
                "run as root; if it fails as root too, the firmware has locked the limit"
            }
            (io::ErrorKind::PermissionDenied, _) => "run as root",
            (io::ErrorKind::NotFound, true) => "this NVMe controller does not exist; see /dev/nvme*",
            (io::ErrorKind::NotFound, false) => "this machine or its kernel does not have it; omit the key",
            (io::ErrorKind::InvalidInput, false) => "the kernel refuses this value",
            (io::ErrorKind::ResourceBusy, _) => "another process uses it",
            _ => "omit the key, or see the kernel's log",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path().display();
        match self {
            Self::File { .. } | Self::Controllers { .. } => write!(f, "{path}"),
            Self::Cgroup { .. } => write!(f, "cgroup {path}"),
            Self::Affinity { .. } => write!(f, "CPUs of the thread of {path}"),
            Self::PowerState { .. } => write!(f, "power state of {path}"),
            Self::Transitions { .. } => write!(f, "autonomous power state transitions of {path}"),
        }
    }
}

impl Accept {
    fn accepts(&self, now: &str, wanted: &str) -> bool {
        let numbers = now.parse::<u64>().ok().zip(wanted.parse::<u64>().ok());
        match (self, numbers) {
            _ if now == wanted => true,
            (Self::Within(distance), Some((now, wanted))) => now.abs_diff(wanted) <= *distance,
            (Self::Listed(list), Some((now, wanted))) => {
                let between = |value: &&u64| (**value > now.min(wanted)) && (**value < now.max(wanted));
                list.contains(&now) && !list.contains(&wanted) && !list.iter().any(|value| between(&value))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_may_be_rounded_to_an_available_value() {
        assert!(Accept::Exact.accepts("5", "5") && !Accept::Exact.accepts("5", "6"));
        assert!(Accept::Within(125).accepts("1000", "1100") && !Accept::Within(125).accepts("1000", "1126"));
        let listed = Accept::Listed(vec![1_500_000, 1_700_000, 2_200_000]);
        assert!(listed.accepts("1700000", "2000000") && listed.accepts("2200000", "2000000"));
        assert!(!listed.accepts("1500000", "2000000"), "the next one lies between");
        assert!(!listed.accepts("1700000", "2200000"), "the wanted value is available");
        assert!(!listed.accepts("1800000", "2000000"), "not available");
        assert!(!listed.accepts("none", "2000000"));
    }
}
