//! A cgroup created for a run (kernel: Documentation/admin-guide/cgroup-v2.rst). Its limits are removed with it; the controllers that its
//! parent enables (`cgroup.subtree_control`) are a setting with a journal entry.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;

use super::kernel::Kernel;

pub(super) const SUBTREE: &str = "cgroup.subtree_control";
const PROCESSES: &str = "cgroup.procs";
/// The list of threads in version 2, and in version 1.
pub(super) const THREADS: &str = "cgroup.threads";
pub(super) const TASKS: &str = "tasks";
/// Prefix of cgroups that may be created and removed.
const PREFIX: &str = "pilotlight-";
pub(super) const PRESENT: &str = "there";
const ABSENT: &str = "absent";
/// Linux rounds limits of memory down to whole pages, of at most 64 KiB.
const PAGE: u64 = 65_536;

/// The folder of the root cgroup of version 2, also in a hybrid setup with version 1.
pub(super) fn root(kernel: &mut dyn Kernel, roots: &Roots) -> Option<PathBuf> {
    let places = [roots.sys.join("fs/cgroup"), roots.sys.join("fs/cgroup/unified")];
    places.into_iter().find(|folder| kernel.has(&folder.join("cgroup.controllers")))
}

/// The controller that a limit belongs to, such as `memory` for `memory.max`.
pub(super) fn controller(limit: &str) -> &str {
    limit.split('.').next().unwrap_or(limit)
}

/// Controllers in a list, in the order of their names.
pub(super) fn list(text: &str) -> BTreeSet<&str> {
    text.split_whitespace().collect()
}

pub(super) fn joined(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(" ")
}

pub(super) fn is_ours(folder: &Path) -> bool {
    folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX))
}

/// The folder of the cgroup with this name.
pub(super) fn folder(root: &Path, name: &str) -> PathBuf {
    root.join(format!("{PREFIX}{name}"))
}

pub(super) fn read_controllers(kernel: &mut dyn Kernel, path: &Path) -> io::Result<String> {
    Ok(joined(&list(&kernel.read(path)?)))
}

/// Adds and removes controllers one by one, as a write of several is refused as a whole.
pub(super) fn write_controllers(kernel: &mut dyn Kernel, path: &Path, wanted: &str) -> io::Result<()> {
    let text = kernel.read(path)?;
    let (now, wanted) = (list(&text), list(wanted));
    for name in wanted.difference(&now) {
        kernel.write(path, &format!("+{name}"))?;
    }
    for name in now.difference(&wanted) {
        kernel.write(path, &format!("-{name}"))?;
    }
    Ok(())
}

pub(super) fn read(kernel: &mut dyn Kernel, folder: &Path) -> String {
    if kernel.has(folder) { PRESENT.into() } else { ABSENT.into() }
}

pub(super) fn write(kernel: &mut dyn Kernel, folder: &Path, value: &str) -> io::Result<()> {
    match (value, kernel.has(folder)) {
        (PRESENT, false) => kernel.make_folder(folder),
        (PRESENT, true) => Ok(()),
        (_, true) => remove(kernel, folder),
        (_, false) => Ok(()),
    }
}

/// Moves processes to the parent first, and retries, as new processes may have been started.
fn remove(kernel: &mut dyn Kernel, folder: &Path) -> io::Result<()> {
    const TRIES: usize = 20;
    let mut last = Ok(());
    for _ in 0..TRIES {
        // Threads first: a threaded group has no readable list of processes, and in other groups single threads cannot be moved.
        [THREADS, TASKS, PROCESSES].into_iter().for_each(|list| move_out(kernel, folder, list));
        last = kernel.remove_folder(folder);
        match &last {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            _ => break,
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    last
}

fn move_out(kernel: &mut dyn Kernel, folder: &Path, list: &str) {
    let members = kernel.read(&folder.join(list)).unwrap_or_default();
    let Some(parent) = folder.parent() else { return };
    for id in members.split_whitespace() {
        // It may have ended; otherwise the removal fails.
        let _ = kernel.write(&parent.join(list), id);
    }
}

/// Whether a limit's file has the written value. The kernel rounds to pages and formats ranges of CPUs and one line per device.
pub(super) fn limit_holds(limit: &str, now: &str, wanted: &str) -> bool {
    let numbers = now.trim().parse::<u64>().ok().zip(wanted.parse::<u64>().ok());
    match (limit, numbers) {
        ("memory.max" | "memory.high", Some((now, wanted))) => now.abs_diff(wanted) < PAGE,
        ("cpuset.cpus", _) => cpus(now).is_some_and(|now| Some(now) == cpus(wanted)),
        _ => {
            let wanted: Vec<&str> = wanted.split_whitespace().collect();
            let holds = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.first() == wanted.first() && wanted.iter().all(|word| words.contains(word))
            };
            now.lines().any(holds)
        }
    }
}

/// The CPUs of a list such as `0-3,8`.
pub(crate) fn cpus(list: &str) -> Option<BTreeSet<u32>> {
    Some(pilotlight_input::cpu_list::parse(list)?.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_compared_in_the_kernel_s_format() {
        for (limit, now, wanted) in [
            ("memory.max", "1048576\n", "1050000"),
            ("memory.max", "max\n", "max"),
            ("cpuset.cpus", "0-1,3\n", "0,1,3"),
            ("cpu.max", "150000 100000\n", "150000 100000"),
            ("cpu.cfs_quota_us", "-1\n", "-1"),
            (
                "io.max",
                "7:0 rbps=max wbps=5 riops=max wiops=max\n8:0 rbps=1 wbps=2 riops=3 wiops=4\n",
                "8:0 wbps=2 rbps=1",
            ),
            ("io.weight", "default 200\n8:0 50\n", "default 200"),
            ("io.latency", "8:0 target=10000\n", "8:0 target=10000"),
        ] {
            assert!(limit_holds(limit, now, wanted), "{limit}: {now}");
        }
        for (limit, now, wanted) in [
            ("memory.max", "max\n", "1050000"),
            ("cpuset.cpus", "\n", "0"),
            ("cpu.max", "max 100000\n", "150000 100000"),
            ("io.max", "", "8:0 wbps=2"),
            ("io.max", "8:0 rbps=max wbps=2000\n", "8:0 wbps=2"),
            ("io.max", "7:0 rbps=max wbps=2\n", "8:0 wbps=2"),
        ] {
            assert!(!limit_holds(limit, now, wanted), "{limit}: {now}");
        }
    }
}
