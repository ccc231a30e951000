//! CPUs that are taken out of the system (kernel: Documentation/core-api/cpu_hotplug.rst).
//!
//! **Problem.** With a CPU goes what names it, and does not come back with it: cgroups of version 1 lose it from their `cpuset.cpus`
//! (kernel: Documentation/admin-guide/cgroup-v1/cpusets.rst, section 1.4), and a thread that was pinned to it may run anywhere.
//!
//! **Algorithm.** First all of these go on record as they are: threads that are pinned, cpusets from the lowest up, then the CPU is taken
//! offline. Back it goes in reverse: the CPU, cpusets from the top down, affinity at last. Kernels before 6.2 reset the affinity of a
//! cpuset's threads when its list changes, so that with a cpuset all threads that are pinned count, not only those on the CPU.
//!
//! **Properties.** A CPU is not taken offline if a cpuset has no other: its threads would leave it for good. Interrupts that were bound to
//! the CPU are not put back.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pilotlight_drive::{Roots, cpusets_v1};

use super::cgroup::cpus;
use super::change::Step;
use super::error::Error;
use super::kernel::Kernel;
use super::place::{Accept, Place};
use super::process;

const CPUSET: &str = "cpuset.cpus";
/// How deep cpusets are looked for below their mount.
const DEPTH: usize = 16;

/// The steps that take these CPUs offline.
pub(super) fn steps(kernel: &mut dyn Kernel, roots: &Roots, offline: &[u32]) -> Result<Vec<Step>, Error> {
    let all = BTreeSet::from_iter(offline.iter().copied());
    let mut touched = Vec::new();
    for path in cpusets(roots) {
        let Some(list) = kernel.read(&path).ok().and_then(|text| cpus(text.trim())) else { continue };
        if !list.is_empty() && list.is_subset(&all) {
            return Err(Error::Cpuset { path, cpus: offline.to_vec() });
        }
        if !list.is_disjoint(&all) {
            touched.push(Place::File { path, accept: Accept::Exact });
        }
    }
    let pinned = pinned(kernel, roots, if touched.is_empty() { Some(&all) } else { None });
    let mut steps: Vec<Step> = pinned.into_iter().chain(touched).map(Step::Keep).collect();
    let switch = |cpu| Place::File { path: switch(roots, cpu), accept: Accept::Exact };
    steps.extend(offline.iter().map(|&cpu| Step::Set(switch(cpu), "0".into())));
    Ok(steps)
}

/// The file that says whether a CPU is online.
pub(crate) fn switch(roots: &Roots, cpu: u32) -> PathBuf {
    roots.sys.join(format!("devices/system/cpu/cpu{cpu}/online"))
}

/// Lists of CPUs of the cpusets of version 1, the deepest first. The topmost gets a CPU back by itself.
fn cpusets(roots: &Roots) -> Vec<PathBuf> {
    let mountinfo = fs::read_to_string(roots.proc.join("self/mountinfo")).unwrap_or_default();
    let mut folders: Vec<PathBuf> =
        cpusets_v1(&mountinfo).map(|folder| roots.place(Path::new(folder))).into_iter().collect();
    let (mut from, mut depth) = (0, 0);
    while from < folders.len() && depth < DEPTH {
        let below: Vec<PathBuf> = folders[from..].iter().flat_map(|folder| folders_in(folder)).collect();
        (from, depth) = (folders.len(), depth + 1);
        folders.extend(below);
    }
    folders.into_iter().rev().map(|folder| folder.join(CPUSET)).collect()
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut below: Vec<PathBuf> =
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect();
    below.sort();
    below
}

/// Affinity of the threads of all processes that may run on some of the CPUs only, among them one of `on`; `None`: whichever.
fn pinned(kernel: &mut dyn Kernel, roots: &Roots, on: Option<&BTreeSet<u32>>) -> Vec<Place> {
    let online = kernel.read(&roots.sys.join("devices/system/cpu/online")).ok().and_then(|text| cpus(text.trim()));
    let processes = folders_in(&roots.proc).into_iter().filter(|folder| number(folder).is_some());
    let threads = processes.flat_map(|process| folders_in(&process.join("task")));
    let is_pinned = |folder: &PathBuf| {
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        let allowed = allowed(&status).and_then(cpus).unwrap_or_default();
        // The kernel moves its own threads, which have no memory, itself.
        on.is_none_or(|on| !allowed.is_disjoint(on))
            && status.contains("\nVmSize:")
            && online.as_ref().is_none_or(|online| !allowed.is_superset(online))
    };
    let place = |folder: PathBuf| {
        let start_ticks = process::start_ticks(&folder)?;
        Some(Place::Affinity { status: folder.join("status"), start_ticks })
    };
    threads.filter(is_pinned).filter_map(place).collect()
}

fn number(folder: &Path) -> Option<u32> {
    folder.file_name()?.to_str()?.parse().ok()
}

/// The list of CPUs in a thread's `status`.
fn allowed(status: &str) -> Option<&str> {
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim)
}

/// The CPUs on which a thread may run, by the path of its `status`.
pub(super) fn read_affinity(kernel: &mut dyn Kernel, status: &Path) -> io::Result<String> {
    let text = kernel.read(status)?;
    allowed(&text)
        .map(str::to_owned)
        .ok_or_else(|| io::Error::other("it does not say on which CPUs the thread may run"))
}

pub(super) fn write_affinity(kernel: &mut dyn Kernel, status: &Path, list: &str) -> io::Result<()> {
    let thread = status.parent().and_then(number).zip(cpus(list));
    let (thread, cpus) = thread.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    kernel.set_affinity(thread, &cpus)
}

/// Whether the thread has ended, or its number is another's now.
pub(super) fn has_ended(status: &Path, start_ticks: u64) -> bool {
    status.parent().and_then(process::start_ticks) != Some(start_ticks)
}

/// Whether a path is that of a thread's `status`.
pub(super) fn is_status(roots: &Roots, path: &Path) -> bool {
    let below: Vec<&str> =
        path.strip_prefix(&roots.proc).ok().into_iter().flatten().filter_map(|part| part.to_str()).collect();
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    matches!(below[..], [process, "task", thread, "status"] if is_number(process) && is_number(thread))
}
