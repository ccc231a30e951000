//! One thing of the machine that has a value: a file of the kernel, a cgroup, a feature of a drive. How its value is read,
//! set and compared; nothing here remembers anything.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;
use serde::{Deserialize, Serialize};

use super::change::{LONG_TERM, SHORT_TERM};
use super::kernel::Kernel;
use super::{cgroup, feature, file, hotplug};

/// Something that has a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Place {
    /// A file of one line below `/sys` or `/proc`; where the line lists choices with the one in force in brackets, that one
    /// is the value.
    File {
        /// The file.
        path: PathBuf,
        /// What is as good as the value that was written.
        #[serde(default)]
        accept: Accept,
    },
    /// Which controllers a cgroup hands to those in it: its `cgroup.subtree_control`.
    Controllers {
        /// The file.
        path: PathBuf,
    },
    /// A cgroup: it is there or not.
    Cgroup {
        /// Its folder.
        path: PathBuf,
    },
    /// The CPUs on which a thread may run, as a list.
    Affinity {
        /// Its file `status` in `/proc`.
        status: PathBuf,
        /// When it was started, in clock ticks since the machine was: numbers of threads come again.
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

/// What is as good as the value that was written: the kernel rounds some numbers to what the hardware has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accept {
    /// The very same.
    #[default]
    Exact,
    /// A number at most so far from it.
    Within(u64),
    /// The same, or the neighbour of it in this list of what there is.
    Listed(Vec<u64>),
}

impl Place {
    /// Its value now.
    pub(super) fn read(&self, kernel: &mut dyn Kernel) -> io::Result<String> {
        match self {
            Self::File { path, .. } => file::read(kernel, path),
            Self::Controllers { path } => cgroup::read_controllers(kernel, path),
            Self::Cgroup { path } => Ok(cgroup::read(kernel, path)),
            Self::Affinity { status, .. } => hotplug::read_affinity(kernel, status),
            Self::PowerState { drive } => feature::read_state(kernel.drive(drive)?.as_mut()),
            Self::Transitions { drive } => feature::read_transitions(kernel.drive(drive)?.as_mut()),
        }
    }

    /// What to come back to, if it is changed now. Differs from `read` only for a drive that rests.
    pub(super) fn before(&self, kernel: &mut dyn Kernel) -> io::Result<String> {
        match self {
            Self::PowerState { drive } => feature::state_to_return_to(kernel.drive(drive)?.as_mut()),
            _ => self.read(kernel),
        }
    }

    /// Whether it can have this value at all, as far as that can be said without setting it.
    pub(super) fn check(&self, kernel: &mut dyn Kernel, wanted: &str) -> io::Result<()> {
        match self {
            Self::PowerState { drive } => feature::check_state(kernel.drive(drive)?.as_mut(), wanted),
            _ => Ok(()),
        }
    }

    /// Gives it a value.
    pub(super) fn set(&self, kernel: &mut dyn Kernel, value: &str) -> io::Result<()> {
        match self {
            Self::File { path, .. } => file::write(kernel, path, value),
            Self::Controllers { path } => cgroup::write_controllers(kernel, path, value),
            Self::Cgroup { path } => cgroup::write(kernel, path, value),
            Self::Affinity { status, .. } => hotplug::write_affinity(kernel, status, value),
            Self::PowerState { drive } => feature::set_state(kernel.drive(drive)?.as_mut(), value),
            Self::Transitions { drive } => feature::set_transitions(kernel.drive(drive)?.as_mut(), value),
        }
    }

    /// Whether two values mean the same.
    pub(super) fn same(&self, one: &str, other: &str) -> bool {
        match self {
            Self::File { .. } => file::value(one) == file::value(other),
            Self::Affinity { .. } => cgroup::cpus(one) == cgroup::cpus(other),
            _ => one == other,
        }
    }

    /// Whether `now` is what one gets who asks for `wanted`.
    pub(super) fn obeys(&self, now: &str, wanted: &str) -> bool {
        match self {
            Self::File { accept, .. } => accept.takes(file::value(now), file::value(wanted)),
            Self::Transitions { .. } => feature::transitions_obey(now, wanted),
            _ => self.same(now, wanted),
        }
    }

    /// Whether its value can change although nobody sets it, so that another value says nothing about other hands.
    pub(super) fn drifts(&self) -> bool {
        matches!(self, Self::PowerState { .. })
    }

    /// Whether it is gone: a device that was unplugged, a cgroup that somebody removed.
    pub(super) fn is_gone(&self, kernel: &mut dyn Kernel) -> bool {
        match self {
            Self::Cgroup { .. } => false,
            Self::Affinity { status, start_ticks } => hotplug::has_ended(status, *start_ticks),
            _ => !kernel.has(self.path()),
        }
    }

    /// Whether it is one of those that may be changed at all.
    pub(super) fn is_within(&self, roots: &Roots) -> bool {
        match self {
            Self::PowerState { drive } | Self::Transitions { drive } => roots.hold_device(drive),
            Self::Cgroup { path } => roots.hold(path) && cgroup::is_ours(path),
            Self::Affinity { status, .. } => hotplug::is_status(roots, status),
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

    /// A value as a person reads it.
    #[must_use]
    pub fn shown(&self, value: &str) -> String {
        match self {
            Self::File { .. } => file::value(value).to_owned(),
            Self::Transitions { .. } => value.split_whitespace().next().unwrap_or_default().to_owned(),
            Self::Controllers { .. } if value.is_empty() => "none".into(),
            _ => value.to_owned(),
        }
    }

    /// What would help if the system says this of it.
    pub(super) fn help(&self, error: &io::Error) -> &'static str {
        let drive = matches!(self, Self::PowerState { .. } | Self::Transitions { .. });
        let limit = [LONG_TERM, SHORT_TERM].iter().any(|limit| self.path().ends_with(limit));
        match (error.kind(), drive) {
            (io::ErrorKind::PermissionDenied, _) if limit => {
                "run as root; to root the kernel says so where the firmware has locked the limit"
            }
            (io::ErrorKind::PermissionDenied, _) => "run as root",
            (io::ErrorKind::NotFound, true) => "this machine has no such NVMe controller: see /dev/nvme*",
            (io::ErrorKind::NotFound, false) => "this machine or its kernel does not have it: leave the key out",
            (io::ErrorKind::InvalidInput, false) => "the kernel does not take this value",
            (io::ErrorKind::ResourceBusy, _) => "something else holds it",
            _ => "leave the key out, or see the kernel's log",
        }
    }
}

impl fmt::Display for Place {
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
    fn takes(&self, now: &str, wanted: &str) -> bool {
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
    fn a_number_may_be_rounded_to_what_there_is() {
        assert!(Accept::Exact.takes("5", "5") && !Accept::Exact.takes("5", "6"));
        assert!(Accept::Within(125).takes("1000", "1100") && !Accept::Within(125).takes("1000", "1126"));
        let listed = Accept::Listed(vec![1_500_000, 1_700_000, 2_200_000]);
        assert!(listed.takes("1700000", "2000000") && listed.takes("2200000", "2000000"));
        assert!(!listed.takes("1500000", "2000000"), "the next one lies between");
        assert!(!listed.takes("1700000", "2200000"), "what was asked for is there");
        assert!(!listed.takes("1800000", "2000000"), "there is no such");
        assert!(!listed.takes("none", "2000000"));
    }
}
