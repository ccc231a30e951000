//! CPU affinity of threads.

use std::io;
use std::path::Path;

use pilotlight_drive::Roots;

use super::cgroup::cpus;
use super::kernel::Kernel;
use super::process;

pub(super) fn number(folder: &Path) -> Option<u32> {
    folder.file_name()?.to_str()?.parse().ok()
}

/// The list of CPUs in a thread's `status`.
pub(super) fn allowed(status: &str) -> Option<&str> {
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim)
}

/// The CPUs of a thread, by the path of its `status`.
pub(super) fn read(kernel: &mut dyn Kernel, status: &Path) -> io::Result<String> {
    let text = kernel.read(status)?;
    allowed(&text).map(str::to_owned).ok_or_else(|| io::Error::other("it has no list of CPUs"))
}

pub(super) fn write(kernel: &mut dyn Kernel, status: &Path, list: &str) -> io::Result<()> {
    let thread = status.parent().and_then(number).zip(cpus(list));
    let (thread, cpus) = thread.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    kernel.set_affinity(thread, &cpus)
}

/// Whether the thread has ended, possibly with its ID reused.
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
