//! Taking CPUs offline (kernel: Documentation/core-api/cpu_hotplug.rst).
//!
//! **Problem.** References to an offline CPU are lost and not restored with it: cgroups of version 1 remove it from their `cpuset.cpus`
//! (kernel: Documentation/admin-guide/cgroup-v1/cpusets.rst, section 1.4), and a thread pinned to it may run anywhere.
//!
//! **Algorithm.** The journal gets pinned threads and cpusets from the deepest up, then the CPU is taken offline. Restoring is in reverse:
//! the CPU, cpusets from the top down, affinity last. Kernels before 6.2 reset the affinity of a cpuset's threads when its list
//! changes, so with a cpuset all pinned threads are recorded, not only those on the CPU.
//!
//! **Properties.** A CPU is not taken offline if a cpuset has no other, as its threads would leave it permanently. Interrupts bound to the
//! CPU are not restored.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pilotlight_drive::{Roots, cpusets_v1};

use super::affinity::{allowed, number};
use super::cgroup::cpus;
use super::error::Error;
use super::kernel::Kernel;
use super::process;
use super::setting::{Accept, Setting};
use super::step::Step;

const CPUSET: &str = "cpuset.cpus";
/// Maximum depth of cpusets below their mount.
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
            touched.push(Setting::File { path, accept: Accept::Exact });
        }
    }
    let pinned = pinned(kernel, roots, if touched.is_empty() { Some(&all) } else { None });
    let mut steps: Vec<Step> = pinned.into_iter().chain(touched).map(Step::Keep).collect();
    let switch = |cpu| Setting::File { path: switch(roots, cpu), accept: Accept::Exact };
    steps.extend(offline.iter().map(|&cpu| Step::Set(switch(cpu), "0".into())));
    Ok(steps)
}

/// The file that switches a CPU on- and offline.
pub(crate) fn switch(roots: &Roots, cpu: u32) -> PathBuf {
    roots.sys.join(format!("devices/system/cpu/cpu{cpu}/online"))
}

/// Lists of CPUs of the cpusets of version 1, the deepest first. The kernel restores the topmost itself.
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

/// Affinity of pinned threads whose CPUs include one of `on`; of all pinned threads if `None`.
fn pinned(kernel: &mut dyn Kernel, roots: &Roots, on: Option<&BTreeSet<u32>>) -> Vec<Setting> {
    let online = kernel.read(&roots.sys.join("devices/system/cpu/online")).ok().and_then(|text| cpus(text.trim()));
    let processes = folders_in(&roots.proc).into_iter().filter(|folder| number(folder).is_some());
    let threads = processes.flat_map(|process| folders_in(&process.join("task")));
    let is_pinned = |folder: &PathBuf| {
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        let allowed = allowed(&status).and_then(cpus).unwrap_or_default();
        // Kernel threads have no VmSize; the kernel moves them itself.
        on.is_none_or(|on| !allowed.is_disjoint(on))
            && status.contains("\nVmSize:")
            && online.as_ref().is_none_or(|online| !allowed.is_superset(online))
    };
    let setting = |folder: PathBuf| {
        let start_ticks = process::start_ticks(&folder)?;
        Some(Setting::Affinity { status: folder.join("status"), start_ticks })
    };
    threads.filter(is_pinned).filter_map(setting).collect()
}
