//! The target of a workload: the file, folder or device of the experiment, with the checks that protect data.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::experiment::schema::{DEFAULT_FILE, DEFAULT_SIZE, TargetSpec};
use pilotlight_workloads::{Problem, Target};

/// The target, checked. `may_overwrite` is the device on the command line; `folder` holds the default file.
///
/// # Errors
/// If the target is of another kind, or a device is not named on the command line too.
pub fn resolve(spec: &TargetSpec, folder: &Path, may_overwrite: Option<&Path>) -> Result<Target, Problem> {
    let size = spec.size.map_or(DEFAULT_SIZE, |size| size.0);
    match spec {
        TargetSpec { nothing: true, .. } => Ok(Target::None),
        TargetSpec { device: Some(device), .. } => checked_device(device, may_overwrite).map(Target::Device),
        TargetSpec { folder: Some(folder), .. } => checked_folder(folder).map(Target::Folder),
        TargetSpec { file: Some(file), .. } => checked_file(file).map(|file| Target::File(file, size)),
        _ => Ok(Target::File(folder.join(DEFAULT_FILE), size)),
    }
}

fn problem(key: &str, why: String) -> Problem {
    Problem { at: format!("target.{key}"), why }
}

fn checked_folder(folder: &Path) -> Result<PathBuf, Problem> {
    let unusable = |error: std::io::Error| problem("folder", format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(unusable)?;
    folder.canonicalize().map_err(unusable)
}

fn checked_file(file: &Path) -> Result<PathBuf, Problem> {
    let kind = file.metadata().map(|metadata| metadata.file_type()).ok();
    if kind.is_some_and(|kind| !kind.is_file()) {
        let why = format!("{} is not a regular file; for a device use target.device", file.display());
        return Err(problem("file", why));
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unusable = |error: std::io::Error| problem("file", format!("folder {}: {error}", folder.display()));
    let folder = folder.canonicalize().map_err(unusable)?;
    Ok(folder.join(file.file_name().unwrap_or_default()))
}

/// Checks that the command line names the same block device and that nothing else uses it.
///
/// # Errors
/// If a check fails; the message has a remedy.
pub fn checked_device(device: &Path, may_overwrite: Option<&Path>) -> Result<PathBuf, Problem> {
    let wrong = |why: String| problem("device", why);
    let name = device.display();
    let real = device.canonicalize().map_err(|error| wrong(format!("{name}: {error}")))?;
    if !real.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        return Err(wrong(format!("{name} is not a block device; for a file use target.file")));
    }
    let named = may_overwrite.and_then(|named| named.canonicalize().ok());
    match named {
        None => {
            return Err(wrong(format!("all data on {name} would be lost; to confirm, add --i-may-overwrite {name}")));
        }
        Some(named) if named != real => {
            let named = named.display();
            return Err(wrong(format!(
                "--i-may-overwrite names {named}, the experiment {name}: they must be the same"
            )));
        }
        Some(_) => {}
    }
    // O_EXCL fails on a device that is mounted or part of a RAID or volume group.
    let exclusive =
        OpenOptions::new().read(true).write(true).custom_flags(rustix::fs::OFlags::EXCL.bits() as i32).open(&real);
    exclusive.map_err(|error| wrong(format!("{name}: {error}; is it mounted, or part of a RAID or LVM?")))?;
    Ok(real)
}

/// The drive of a target by its name in sensors, such as `nvme0` or `sda`.
#[must_use]
pub fn drive_of(place: &Target, sys: &Path) -> Option<String> {
    let device = match place {
        Target::Device(device) => device.metadata().ok()?.rdev(),
        Target::File(path, _) | Target::Folder(path) => {
            path.ancestors().find_map(|path| path.metadata().ok()).map(|metadata| metadata.dev())?
        }
        Target::None => return None,
    };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let link = sys.join(format!("dev/block/{major}:{minor}")).canonicalize().ok()?;
    let names: Vec<String> = link.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let at = names.iter().position(|name| name == "block").map(|at| at + 1);
    let controller = names.iter().rev().find(|name| is_controller(name));
    controller.or_else(|| names.get(at?)).map(|name| controller_of(name))
}

/// `nvme0`, not `nvme0n1` nor `nvme-subsys0`.
fn is_controller(name: &str) -> bool {
    name.strip_prefix("nvme").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// `nvme0` of `nvme0n1` (a namespace with several paths); other names unchanged.
fn controller_of(name: &str) -> String {
    let number =
        name.strip_prefix("nvme").map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    number.filter(|number| !number.is_empty()).map_or_else(|| name.to_owned(), |number| format!("nvme{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotlight_input::Size;

    #[test]
    fn a_device_must_be_named_twice_and_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, "precious").unwrap();
        let spec = TargetSpec { device: Some(file.clone()), ..TargetSpec::default() };
        let refused = resolve(&spec, folder.path(), Some(&file)).unwrap_err();
        assert!(refused.why.contains("not a block device"), "{refused}");
        let missing = TargetSpec { device: Some("/dev/no-such-drive".into()), ..TargetSpec::default() };
        assert!(resolve(&missing, folder.path(), None).is_err());
    }

    #[test]
    fn files_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        let default = resolve(&TargetSpec::default(), folder.path(), None).unwrap();
        assert_eq!(default, Target::File(folder.path().join("data.bin"), 1 << 30));
        let file = TargetSpec { file: Some(folder.path().join("x")), size: Some(Size(5)), ..TargetSpec::default() };
        let real = folder.path().canonicalize().unwrap();
        assert_eq!(resolve(&file, folder.path(), None).unwrap(), Target::File(real.join("x"), 5));
        let device = TargetSpec { file: Some("/dev/null".into()), size: Some(Size(5)), ..TargetSpec::default() };
        assert!(resolve(&device, folder.path(), None).unwrap_err().why.contains("is not a regular file"));
        let made = TargetSpec { folder: Some(folder.path().join("new")), ..TargetSpec::default() };
        assert_eq!(resolve(&made, folder.path(), None).unwrap(), Target::Folder(real.join("new")));
    }

    #[test]
    fn controllers_are_named_as_sensors_name_them() {
        assert_eq!(
            [controller_of("nvme12n1"), controller_of("sda"), controller_of("nvme-x")],
            ["nvme12", "sda", "nvme-x"]
        );
        assert!(is_controller("nvme0") && !is_controller("nvme0n1") && !is_controller("nvme-subsys0"));
    }
}
