//! Attributes of the request queue of a block device (sysfs), and of the device below a file.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Logical block size of the device at `path` or below the file at `path`, which need not exist yet: the unit that a power
/// failure leaves whole. `None` if unknown: file systems in memory, on a network, on several devices.
#[must_use]
pub fn logical_block_size(path: &Path) -> Option<u32> {
    logical_block_size_by(Path::new("/sys"), path)
}

fn logical_block_size_by(sys: &Path, path: &Path) -> Option<u32> {
    let parent = || path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let metadata = fs::metadata(path).or_else(|_| fs::metadata(parent())).ok()?;
    attribute(sys, device_of(&metadata), "logical_block_size").parse().ok()
}

/// The device of a device node or below a file.
fn device_of(metadata: &Metadata) -> u64 {
    if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() }
}

/// An attribute of a block device's queue; empty if it is missing.
pub(super) fn queue_attribute(file: &File, name: &str) -> String {
    let Ok(metadata) = file.metadata() else { return String::new() };
    attribute(Path::new("/sys"), metadata.rdev(), name)
}

/// Whether the system refuses writes to a block device.
pub(super) fn is_read_only(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| is_read_only_by(Path::new("/sys"), metadata.rdev()))
}

fn is_read_only_by(sys: &Path, device: u64) -> bool {
    fs::read_to_string(directory_of(sys, device).join("ro")).is_ok_and(|text| text.trim() == "1")
}

/// Whether a block device executes Force Unit Access itself. Below a stacked driver (device-mapper, md, loop) a device may
/// emulate it by a write and a flush, whose failures are indistinguishable; so only a device with its own hardware counts.
pub(super) fn executes_force_unit_access(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| executes_fua_by(Path::new("/sys"), metadata.rdev()))
}

fn executes_fua_by(sys: &Path, device: u64) -> bool {
    let base = directory_of(sys, device);
    let has_hardware = base.join("device").exists() || base.join("../device").exists();
    has_hardware && attribute(sys, device, "fua") == "1"
}

fn directory_of(sys: &Path, device: u64) -> PathBuf {
    sys.join(format!("dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device)))
}

fn attribute(sys: &Path, device: u64, name: &str) -> String {
    let base = directory_of(sys, device);
    // A partition uses the queue of its disk.
    let read = |queue: &str| fs::read_to_string(base.join(queue).join(name)).ok();
    read("queue").or_else(|| read("../queue")).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A `/sys` in which the device below `on_it` is a partition of a disk with this sector size.
    fn sys_with(root: &Path, on_it: &Path, sector: &str) {
        let device = fs::metadata(on_it).expect("it is there").dev();
        fs::create_dir_all(root.join("devices/disk/queue")).expect("a directory");
        fs::create_dir_all(root.join("devices/disk/part")).expect("a directory");
        fs::create_dir_all(root.join("dev/block")).expect("a directory");
        fs::write(root.join("devices/disk/queue/logical_block_size"), sector).expect("a file");
        let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        symlink(root.join("devices/disk/part"), root.join("dev/block").join(number)).expect("a link");
    }

    #[test]
    fn only_hardware_with_the_attribute_executes_force_unit_access() {
        let dir = tempfile::tempdir().expect("a directory");
        let device = fs::metadata(dir.path()).expect("it is there").dev();
        assert!(!executes_fua_by(dir.path(), device), "no attribute");
        sys_with(dir.path(), dir.path(), "512\n");
        fs::write(dir.path().join("devices/disk/queue/fua"), "1\n").expect("a file");
        assert!(!executes_fua_by(dir.path(), device), "a device without hardware");
        fs::create_dir(dir.path().join("devices/disk/device")).expect("a directory");
        assert!(executes_fua_by(dir.path(), device), "a partition of a disk");
        fs::write(dir.path().join("devices/disk/queue/fua"), "0\n").expect("a file");
        assert!(!executes_fua_by(dir.path(), device), "a disk without support");
    }

    #[test]
    fn a_file_has_the_block_size_of_its_device() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("disk.img");
        fs::write(&file, "x").expect("a file");
        assert_eq!(logical_block_size_by(dir.path(), &file), None, "no attribute");
        sys_with(dir.path(), &file, "4096\n");
        assert_eq!(logical_block_size_by(dir.path(), &file), Some(4096));
        assert_eq!(logical_block_size_by(dir.path(), &dir.path().join("new.img")), Some(4096));
        assert_eq!(logical_block_size_by(dir.path(), &dir.path().join("no/new.img")), None);
        assert_eq!(logical_block_size_by(dir.path(), Path::new("/proc/version")), None, "on no device");
    }
}
