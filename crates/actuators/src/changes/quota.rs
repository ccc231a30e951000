//! A CPU quota for some threads of this process, in a cgroup below the process's.
//!
//! **Problem.** A quota applies to a whole cgroup, but only some threads of the process must be limited. In version 2 of cgroups the threads
//! of a process may be in several groups only if these are *threaded* (kernel: Documentation/admin-guide/cgroup-v2.rst,
//! "Threads"); in version 1 any group takes any thread (Documentation/scheduler/sched-bwc.rst).
//!
//! **Properties.** The quota is removed with the group, so the journal has only the group and, in version 2, the controller that its parent
//! enables. A group without its process is empty and can be removed.

use std::io;
use std::path::{Path, PathBuf};

use pilotlight_drive::{Cgroups, Roots};

use super::cgroup;
use super::error::{CgroupError, Error};
use super::kernel::Kernel;
use super::setting::Setting;
use super::step::Step;

/// Period of the quota, in microseconds: the kernel's default and its maximum (`max_cfs_quota_period` in kernel/sched/core.c).
pub(crate) const PERIODS_US: [u64; 2] = [100_000, 1_000_000];
/// The kernel's minimum quota, in microseconds (`min_cfs_quota_period` in kernel/sched/core.c).
pub(crate) const MIN_QUOTA_US: u64 = 1_000;

/// The cgroup of this process below which its threads can have a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuGroup {
    /// Of version 1, in the hierarchy with the controller `cpu`.
    V1(PathBuf),
    /// Of version 2.
    V2(PathBuf),
}

/// CPU time per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quota {
    /// In microseconds; `None` for unlimited.
    pub(super) us: Option<u64>,
    pub(super) period_us: u64,
}

impl CpuGroup {
    /// The group of this process, or why there is none and the remedy.
    pub(crate) fn find(roots: &Roots) -> Result<Self, CgroupError> {
        let text = |name: &str| std::fs::read_to_string(roots.proc.join("self").join(name)).unwrap_or_default();
        let Cgroups { unified, cpu_v1 } = Cgroups::parse(&text("mountinfo"), &text("cgroup"));
        let own = |all: Vec<String>| all.into_iter().next().map(|folder| roots.place(Path::new(&folder)));
        let group = own(cpu_v1).map(Self::V1).or_else(|| own(unified).map(Self::V2));
        let group = group.ok_or(CgroupError::NoCpu)?;
        group.check(roots)?;
        Ok(group)
    }

    fn check(&self, roots: &Roots) -> Result<(), CgroupError> {
        let folder = self.folder();
        if !roots.hold(folder) {
            return Err(CgroupError::NotInSys(folder.to_owned()));
        }
        if let Self::V2(folder) = self {
            let controllers = std::fs::read_to_string(folder.join("cgroup.controllers"));
            let controllers = controllers.map_err(|error| CgroupError::Unreadable(folder.clone(), error))?;
            if !cgroup::list(&controllers).contains("cpu") {
                return Err(CgroupError::NotDelegated(folder.clone()));
            }
        }
        rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)
            .map_err(|error| CgroupError::Unwritable(folder.to_owned(), error.into()))
    }

    fn folder(&self) -> &Path {
        let (Self::V1(folder) | Self::V2(folder)) = self;
        folder
    }

    /// The steps that limit these threads to `quota`, in a group of this name.
    pub(super) fn steps(
        &self,
        kernel: &mut dyn Kernel,
        name: &str,
        threads: &[u32],
        quota: Quota,
    ) -> Result<Vec<Step>, Error> {
        if threads.is_empty() {
            return Err(CgroupError::NoThread.into());
        }
        let folder = cgroup::folder(self.folder(), name);
        let present = Step::Set(Setting::Cgroup { path: folder.clone() }, cgroup::PRESENT.into());
        let limit = |file: &str, value: String| Step::Limit(folder.join(file), value);
        Ok(match self {
            Self::V1(_) => {
                let period = limit("cpu.cfs_period_us", quota.period_us.to_string());
                let time = limit("cpu.cfs_quota_us", quota.us.map_or("-1".into(), |us| us.to_string()));
                let now = kernel.read(&folder.join("cpu.cfs_period_us")).unwrap_or_default();
                // Ordered so that the intermediate quota is lower: a higher one could exceed a budget or the parent's quota.
                let longer = now.trim().parse().is_ok_and(|now: u64| now < quota.period_us);
                let [first, second] = if longer || quota.us.is_none() { [period, time] } else { [time, period] };
                vec![present, first, second, Step::Threads(folder.join(cgroup::TASKS), threads.to_vec())]
            }
            Self::V2(own) => {
                let subtree = own.join(cgroup::SUBTREE);
                let enabled = kernel.read(&subtree).unwrap_or_default();
                let mut both = cgroup::list(&enabled);
                both.insert("cpu");
                let time = quota.us.map_or("max".into(), |us| us.to_string());
                vec![
                    Step::Set(Setting::Controllers { path: subtree }, cgroup::joined(&both)),
                    present,
                    limit("cgroup.type", "threaded".into()),
                    limit("cpu.max", format!("{time} {}", quota.period_us)),
                    Step::Threads(folder.join(cgroup::THREADS), threads.to_vec()),
                ]
            }
        })
    }
}

/// Moves threads to a cgroup; `path` is its list of threads.
pub(super) fn enter(kernel: &mut dyn Kernel, path: &Path, threads: &[u32]) -> Result<(), Error> {
    let setting = || path.display().to_string();
    let present = |kernel: &mut dyn Kernel| -> Result<Vec<u32>, Error> {
        let text =
            kernel.read(path).map_err(|why| Error::Read { setting: setting(), why, help: "see the kernel's log" })?;
        Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
    };
    let before = present(kernel)?;
    for thread in threads.iter().filter(|thread| !before.contains(thread)) {
        kernel.write(path, &thread.to_string()).map_err(|why| refused(&setting(), *thread, why))?;
    }
    let now = present(kernel)?;
    match threads.iter().find(|thread| !now.contains(thread)) {
        Some(thread) => {
            Err(Error::Ignored { setting: setting(), wanted: thread.to_string(), now: "without it".into() })
        }
        None => Ok(()),
    }
}

fn refused(setting: &str, thread: u32, why: io::Error) -> Error {
    let help = match why.kind() {
        io::ErrorKind::PermissionDenied => "run the server as root, or delegate the cgroup to its user",
        _ => "the process has to be in the cgroup above",
    };
    Error::Write { setting: setting.into(), wanted: thread.to_string(), why, help: help.into() }
}
