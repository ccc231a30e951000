//! Queue settings and names of interrupts of a block device.

use std::path::Path;

use pilotlight_actuators::Roots;
use pilotlight_actuators::machine::{block_device, polled_devices};

/// A queue setting of the device at `path`; of a multipath device, if all paths agree.
#[must_use]
pub fn setting(roots: &Roots, path: Option<&Path>, name: &str) -> Option<i64> {
    let devices = polled_devices(roots, path, name).ok()?;
    let read = |device: &String| {
        let file = roots.sys.join("block").join(device).join("queue").join(name);
        std::fs::read_to_string(file).ok()?.trim().parse::<i64>().ok()
    };
    let values: Option<Vec<i64>> = devices.iter().map(read).collect();
    let values = values?;
    values.first().copied().filter(|first| values.iter().all(|value| value == first))
}

/// Prefixes of the names of the drive's interrupts in `/proc/interrupts`.
///
/// # Errors
/// If they are unknown.
pub fn interrupts(roots: &Roots, path: Option<&Path>) -> Result<Vec<String>, String> {
    let block = block_device(roots, path).map_err(|error| error.to_string())?;
    let unknown = || format!("the interrupts of {block} are unknown: supported are NVMe and virtio drives");
    let folder = std::fs::canonicalize(roots.sys.join("block").join(&block).join("device")).map_err(|_| unknown())?;
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if numbered(&name, "virtio") {
        return Ok(vec![format!("{name}-req.")]);
    }
    if numbered(&name, "nvme") {
        return Ok(vec![format!("{name}q")]);
    }
    // A multipath device belongs to a subsystem with controllers.
    let entries = std::fs::read_dir(&folder).map_err(|_| unknown())?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut all: Vec<String> = names.filter(|name| numbered(name, "nvme")).map(|name| format!("{name}q")).collect();
    all.sort();
    if all.is_empty() { Err(unknown()) } else { Ok(all) }
}

fn numbered(name: &str, begins: &str) -> bool {
    name.strip_prefix(begins).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree in which `/sys/block/NAME/device` links to `target`, and `/dev` has the device.
    fn tree(name: &str, target: &str) -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let block = format!("sys/devices/block/{name}");
        std::fs::create_dir_all(at(&format!("{block}/queue"))).unwrap();
        std::fs::create_dir_all(at(&format!("sys/devices/{target}"))).unwrap();
        for path in ["sys/block", "sys/class/block", "dev"] {
            std::fs::create_dir_all(at(path)).unwrap();
        }
        std::fs::write(at(&format!("dev/{name}")), "").unwrap();
        let link = |from: String, to: &str| std::os::unix::fs::symlink(at(to), at(&from)).unwrap();
        link(format!("sys/block/{name}"), &block);
        link(format!("sys/class/block/{name}"), &block);
        link(format!("{block}/device"), &format!("sys/devices/{target}"));
        let roots = Roots::below(folder.path());
        (folder, roots)
    }

    #[test]
    fn interrupts_are_named_after_the_controllers() {
        let (folder, roots) = tree("nvme0n1", "nvme7");
        let device = folder.path().join("dev/nvme0n1");
        assert_eq!(interrupts(&roots, Some(&device)), Ok(vec!["nvme7q".into()]));
        let (folder, roots) = tree("vda", "virtio1");
        assert_eq!(interrupts(&roots, Some(&folder.path().join("dev/vda"))), Ok(vec!["virtio1-req.".into()]));
        let (folder, roots) = tree("nvme0n1", "nvme-subsys0");
        for controller in ["nvme0", "nvme1"] {
            std::fs::create_dir(folder.path().join("sys/devices/nvme-subsys0").join(controller)).unwrap();
        }
        let both = interrupts(&roots, Some(&folder.path().join("dev/nvme0n1")));
        assert_eq!(both, Ok(vec!["nvme0q".into(), "nvme1q".into()]));
        let (folder, roots) = tree("sda", "0:0:0:0");
        assert!(interrupts(&roots, Some(&folder.path().join("dev/sda"))).unwrap_err().contains("sda"));
    }

    #[test]
    fn settings_are_read_as_numbers() {
        let (folder, roots) = tree("vda", "virtio1");
        let (device, queue) = (folder.path().join("dev/vda"), folder.path().join("sys/block/vda/queue"));
        assert_eq!(setting(&roots, Some(&device), "io_poll_delay"), None);
        std::fs::write(queue.join("io_poll_delay"), "-1\n").unwrap();
        assert_eq!(setting(&roots, Some(&device), "io_poll_delay"), Some(-1));
    }
}
