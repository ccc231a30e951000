//! Finds resources of this machine: the block device of a path, its NVMe controller, CPUs with cpufreq, power zones of packages.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;

use super::Reason;

/// A device of this machine, or a setting of it, was not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Neither a device nor a file is given.
    #[error("the experiment has no device or file")]
    NoPath,
    /// The path is on no block device of this machine.
    #[error("{0} is neither a block device nor on one; set a device in the experiment")]
    NotBlock(PathBuf),
    /// The block device lacks a setting.
    #[error("{0} has no {1}; omit the key")]
    NoSetting(String, String),
    /// A file or folder of the kernel cannot be read.
    #[error("cannot read {0}: {1}")]
    Unreadable(PathBuf, io::Error),
    /// The block device has no NVMe controller.
    #[error("{0} is not an NVMe drive")]
    NotNvme(String),
    /// The block device is reached through several controllers.
    #[error("{0} has several controllers ({names})", names = .1.join(", "))]
    Several(String, Vec<String>),
    /// The drive is across a network.
    #[error("{0} is not in this machine (transport {1})")]
    Remote(String, String),
    /// The transport of the drive is unknown.
    #[error("cannot read the transport of {0}: {1}")]
    Transport(String, io::Error),
    /// No CPU package has a power limit.
    #[error("{0} has no package with a limit; omit the key")]
    NoPackage(PathBuf),
}

/// The kernel's name of the whole device that `path` is, is a partition of, or lies on, such as `nvme0n1`.
pub(super) fn block(roots: &Roots, path: Option<&Path>) -> Result<String, DeviceError> {
    let path = path.ok_or(DeviceError::NoPath)?;
    let why = || DeviceError::NotBlock(path.to_owned());
    let folder = by_name(roots, path).or_else(|| by_number(roots, path)).ok_or_else(why)?;
    whole(&folder).and_then(name_of).ok_or_else(why)
}

/// The folder of the whole device, by its own or that of a partition.
fn whole(folder: &Path) -> Option<&Path> {
    if folder.join("partition").exists() { folder.parent() } else { Some(folder) }
}

/// The devices of `path` with a scheduler: with multipath its paths (`nvme0c1n1` of `nvme0n1`), not the device itself.
pub(super) fn scheduled(roots: &Roots, path: Option<&Path>) -> Result<Vec<String>, DeviceError> {
    let block = block(roots, path)?;
    if has_setting(roots, &block, "scheduler") {
        return Ok(vec![block]);
    }
    let ways = ways_with(roots, &block, "scheduler")?;
    if ways.is_empty() { Err(DeviceError::NoSetting(block, "I/O scheduler".into())) } else { Ok(ways) }
}

/// The devices of `path` with a polling setting: with multipath its paths, not the device itself.
pub(super) fn polled(roots: &Roots, path: Option<&Path>, setting: &str) -> Result<Vec<String>, DeviceError> {
    let block = block(roots, path)?;
    let ways = ways_with(roots, &block, setting)?;
    match (ways.is_empty(), has_setting(roots, &block, setting)) {
        (false, _) => Ok(ways),
        (true, true) => Ok(vec![block]),
        (true, false) => Err(DeviceError::NoSetting(block, format!("queue/{setting}"))),
    }
}

fn has_setting(roots: &Roots, block: &str, setting: &str) -> bool {
    roots.sys.join("block").join(block).join("queue").join(setting).exists()
}

fn ways_with(roots: &Roots, block: &str, setting: &str) -> Result<Vec<String>, DeviceError> {
    let mut ways = ways(roots, block)?;
    ways.retain(|way| has_setting(roots, way, setting));
    Ok(ways)
}

/// The paths of a device with NVMe multipath; empty for others.
fn ways(roots: &Roots, block: &str) -> Result<Vec<String>, DeviceError> {
    let (subsystem, namespace) = block.rsplit_once('n').unwrap_or((block, ""));
    let is_way = |name: &String| {
        let middle = name.strip_prefix(subsystem).and_then(|rest| rest.strip_suffix(&format!("n{namespace}")));
        let number = middle.and_then(|way| way.strip_prefix('c'));
        number.is_some_and(|way| !way.is_empty() && way.bytes().all(|b| b.is_ascii_digit()))
    };
    let folder = roots.sys.join("block");
    let entries = fs::read_dir(&folder).map_err(|error| DeviceError::Unreadable(folder, error))?;
    let mut ways: Vec<String> = entries.flatten().filter_map(|entry| name_of(&entry.path())).filter(is_way).collect();
    ways.sort();
    Ok(ways)
}

/// The folder below `/sys` of a device in `/dev`, also by a link.
fn by_name(roots: &Roots, path: &Path) -> Option<PathBuf> {
    let path = fs::canonicalize(roots.place(path)).unwrap_or_else(|_| roots.place(path));
    if !path.starts_with(&roots.dev) {
        return None;
    }
    fs::canonicalize(roots.sys.join("class/block").join(path.file_name()?)).ok()
}

fn by_number(roots: &Roots, path: &Path) -> Option<PathBuf> {
    // A file that the experiment creates may not exist yet, but its folder does.
    let about = fs::metadata(path).or_else(|_| fs::metadata(path.parent().unwrap_or(path))).ok()?;
    let number = if about.file_type().is_block_device() { about.rdev() } else { about.dev() };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    fs::canonicalize(roots.sys.join(format!("dev/block/{major}:{minor}"))).ok()
}

/// Its major and minor number, such as `259:0`.
pub(super) fn number(roots: &Roots, block: &str) -> Result<String, DeviceError> {
    let path = roots.sys.join("block").join(block).join("dev");
    let text = fs::read_to_string(&path).map_err(|error| DeviceError::Unreadable(path, error))?;
    Ok(text.trim().to_owned())
}

/// The NVMe controller of the device of `path`, such as `nvme0`.
pub(super) fn controller(roots: &Roots, path: Option<&Path>) -> Result<String, Reason> {
    let block = block(roots, path).map_err(Reason::NoDrive)?;
    controller_of(roots, &block).map_err(Reason::NoController)
}

/// The NVMe controller of a whole block device. With multipath a device belongs to a subsystem, which can have several.
fn controller_of(roots: &Roots, block: &str) -> Result<String, DeviceError> {
    let device = roots.sys.join("block").join(block).join("device");
    let none = || DeviceError::NotNvme(block.to_owned());
    let folder = fs::canonicalize(device).map_err(|_| none())?;
    let name = name_of(&folder).ok_or_else(none)?;
    if is_controller(&name) {
        return Ok(name);
    }
    let entries = fs::read_dir(&folder).map_err(|_| none())?.flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| name_of(&entry.path())).collect();
    names.retain(|name| is_controller(name));
    names.sort();
    match names.as_slice() {
        [] => Err(none()),
        [one] => Ok(one.clone()),
        _ => Err(DeviceError::Several(block.to_owned(), names)),
    }
}

/// The NVMe controller of this machine that a block device, or a partition of one, belongs to, such as `nvme0`, or why it has none;
/// `None` for a path that is no block device.
pub fn drive_of(roots: &Roots, path: &Path) -> Option<Result<String, DeviceError>> {
    let is_device = fs::metadata(path).is_ok_and(|about| about.file_type().is_block_device());
    let folder = by_name(roots, path).or_else(|| is_device.then(|| by_number(roots, path)).flatten())?;
    let whole = whole(&folder).and_then(name_of)?;
    Some(controller_of(roots, &whole).and_then(|drive| local(roots, drive)))
}

/// Maximum depth of stacked block devices (such as a volume on encryption on a RAID).
const MAX_LAYERS: usize = 8;

/// The drive of the file or device `path`: an NVMe controller such as `nvme0`, else a block device such as `sda`. `None` if there is none
/// (memory, a loop device, another machine) or more than one.
#[must_use]
pub fn holding_drive(roots: &Roots, path: &Path) -> Option<String> {
    let mut folder = by_name(roots, path).or_else(|| by_number(roots, path))?;
    for _ in 0..MAX_LAYERS {
        let device = whole(&folder)?;
        let name = name_of(device)?;
        if name.starts_with("nvme") {
            return controller_of(roots, &name).and_then(|drive| local(roots, drive)).ok();
        }
        let mut below = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
        folder = match (below.next(), below.next()) {
            (None, _) => return Some(name).filter(|_| !is_virtual(device)),
            (Some(one), None) => fs::canonicalize(one.path()).ok()?,
            (Some(_), Some(_)) => return None,
        };
    }
    None
}

/// Whether the block device is virtual: device mapper, RAID, loop, memory.
fn is_virtual(device: &Path) -> bool {
    device.parent().is_some_and(|parent| parent.ends_with("virtual/block"))
}

/// Checks that a controller is local, not across a network.
fn local(roots: &Roots, drive: String) -> Result<String, DeviceError> {
    let transport = fs::read_to_string(roots.sys.join("class/nvme").join(&drive).join("transport"));
    match transport {
        Ok(transport) if transport.trim() == "pcie" => Ok(drive),
        Ok(transport) => Err(DeviceError::Remote(drive, transport.trim().to_owned())),
        Err(error) => Err(DeviceError::Transport(drive, error)),
    }
}

/// Whether a name is that of a controller: `nvme` and a number.
pub(super) fn is_controller(name: &str) -> bool {
    name.strip_prefix("nvme").is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// CPUs that have cpufreq, ascending.
pub(super) fn cpus_with_frequencies(roots: &Roots) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(roots.sys.join("devices/system/cpu")) else { return Vec::new() };
    let number = |path: &Path| name_of(path)?.strip_prefix("cpu")?.parse::<u32>().ok();
    let has = entries.flatten().filter(|entry| entry.path().join("cpufreq/scaling_governor").exists());
    let mut cpus: Vec<u32> = has.filter_map(|entry| number(&entry.path())).collect();
    cpus.sort_unstable();
    cpus
}

/// Power zones of CPU packages with a limit, such as `intel-rapl:0`. A package can have a second zone (`intel-rapl-mmio`) with another
/// limit.
pub(super) fn packages(roots: &Roots) -> Result<Vec<String>, DeviceError> {
    let folder = roots.sys.join("class/powercap");
    let is_package = |zone: &Path| {
        let name = fs::read_to_string(zone.join("name")).unwrap_or_default();
        name.starts_with("package") && zone.join("constraint_0_power_limit_uw").exists()
    };
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let zones = entries.map(|entry| entry.path()).filter(|path| is_package(path));
    let mut names: Vec<String> = zones.filter_map(|zone| name_of(&zone)).collect();
    names.retain(|name| !name.contains("mmio"));
    names.sort();
    if names.is_empty() { Err(DeviceError::NoPackage(folder)) } else { Ok(names) }
}

fn name_of(path: &Path) -> Option<String> {
    path.file_name()?.to_str().map(str::to_owned)
}
