//! Checks whether a file or block device can hold a namespace, without changing or locking it.

use std::fmt::Display;
use std::fs::Metadata;
use std::io::{self, ErrorKind, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use pilotlight_storage::{BackendSpec, MISSING_DEVICE, format_size, names_device, size_remedy};
use rustix::fs::{Access, access};

use crate::privileges::files;

/// Names a file or a device, whatever path leads to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// A regular file: device and inode.
    File(u64, u64),
    /// A block device: its number.
    Device(u64),
    /// A file that the start will create: its directory's canonical path, and its name.
    New(PathBuf),
}

/// A file or device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Storage {
    /// Which file or device it is.
    pub(crate) medium: Medium,
    /// Its size in bytes.
    pub(crate) size: u64,
}

/// Why a path cannot hold a namespace, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    pub(crate) what: String,
    pub(crate) help: Option<String>,
}

impl Unusable {
    fn new(path: &Path, what: impl Display) -> Self {
        Self { what: format!("{}: {what}", path.display()), help: None }
    }

    fn from_error(path: &Path, error: &io::Error) -> Self {
        let name = path.display();
        let help = match error.kind() {
            ErrorKind::PermissionDenied => Some(format!(
                "it must be readable by the user that runs Pilotlight, and writable unless it is file:{name}?read-only"
            )),
            ErrorKind::ReadOnlyFilesystem => Some(format!("to serve it as it is: file:{name}?read-only")),
            _ => None,
        };
        Self { help, ..Self::new(path, cause(error)) }
    }

    fn help(self, help: String) -> Self {
        Self { help: Some(help), ..self }
    }
}

/// Looks at the file or block device of a backend at `path`: that it is there, may be opened, and holds at least a block. With a size it may
/// also be missing, if it can be created; an existing one must have that size.
pub(crate) fn inspect(spec: &BackendSpec, path: &Path, block_size: u32) -> Result<Storage, Unusable> {
    let wanted = spec.size();
    let meta = match (files::metadata(path), wanted) {
        (Ok(meta), _) => meta,
        (Err(error), _) if error.kind() == ErrorKind::NotFound && names_device(path) => {
            return Err(Unusable::new(path, "no such device").help(MISSING_DEVICE.to_owned()));
        }
        (Err(error), Some(size)) if error.kind() == ErrorKind::NotFound => return check_creation(path, size),
        (Err(error), None) if error.kind() == ErrorKind::NotFound => {
            let name = path.display();
            let help = format!("create it: `truncate -s 1G {name}`, or let the start do so: file:{name}?size=1GiB");
            return Err(Unusable::from_error(path, &error).help(help));
        }
        (Err(error), _) => return Err(Unusable::from_error(path, &error)),
    };
    let kind = meta.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(Unusable::new(path, "it is neither a file nor a block device"));
    }
    let size = size_of(spec, path).map_err(|error| Unusable::from_error(path, &error))?;
    check_size(path, size, wanted, block_size)?;
    Ok(Storage { medium: medium_of(&meta), size })
}

/// Which file or device has these metadata.
pub(crate) fn medium_of(meta: &Metadata) -> Medium {
    if meta.file_type().is_block_device() { Medium::Device(meta.rdev()) } else { Medium::File(meta.dev(), meta.ino()) }
}

/// Whether two paths lead to one file or device.
pub(crate) fn is_same_medium(a: &Path, b: &Path) -> bool {
    let medium = |path: &Path| files::metadata(path).ok().map(|meta| medium_of(&meta));
    a == b || medium(a).is_some_and(|found| medium(b) == Some(found))
}

/// Looks whether a file can be created.
fn check_creation(path: &Path, size: u64) -> Result<Storage, Unusable> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = parent.canonicalize().map_err(|error| Unusable::from_error(parent, &error))?;
    let allowed = if files::has_helper() { Ok(()) } else { access(&directory, Access::WRITE_OK | Access::EXEC_OK) };
    allowed.map_err(|error| Unusable::new(path, format_args!("it cannot be created: {}", cause(&error.into()))))?;
    let name = path.file_name().ok_or_else(|| Unusable::new(path, "it names no file"))?;
    Ok(Storage { medium: Medium::New(directory.join(name)), size })
}

/// The size of a backend's file or device at `path` in bytes; a block device's metadata have none: its end has.
fn size_of(spec: &BackendSpec, path: &Path) -> io::Result<u64> {
    let open = if spec.is_read_only() { files::open_read_only } else { files::open_shared };
    open(path)?.seek(SeekFrom::End(0))
}

/// The size of a backend's file or device in bytes, if it has one that can be opened.
pub(crate) fn file_size(spec: &BackendSpec) -> Option<u64> {
    size_of(spec, spec.path()?).ok()
}

fn check_size(path: &Path, size: u64, wanted: Option<u64>, block_size: u32) -> Result<(), Unusable> {
    if let Some(wanted) = wanted.filter(|wanted| *wanted != size) {
        let what = format!("it has {}, and ?size= is {}", format_size(size), format_size(wanted));
        return Err(Unusable::new(path, what).help(format!("omit ?size=, or {}", size_remedy(path, wanted))));
    }
    if size < u64::from(block_size) {
        let what = format!("it has {size} bytes, less than one block of {block_size}");
        return Err(Unusable::new(path, what).help(size_remedy(path, "1G")));
    }
    Ok(())
}

/// An error without the number that `Display` adds.
pub(crate) fn cause(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Inspects a file with an optional size.
    fn inspect(path: &Path, size: Option<u64>, block_size: u32) -> Result<Storage, Unusable> {
        super::inspect(&BackendSpec::File { path: path.to_owned(), size }, path, block_size)
    }

    #[test]
    fn a_file_with_blocks_is_usable_and_identified_by_every_name() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("disk"), dir.path().join("link"));
        fs::write(&path, vec![0; 8192]).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let found = inspect(&path, None, 4096).unwrap();
        assert_eq!(found.size, 8192);
        assert_eq!(inspect(&link, Some(8192), 4096).unwrap(), found);
    }

    #[test]
    fn a_file_that_can_be_created_is_usable_and_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let found = inspect(&dir.path().join("new"), Some(8192), 4096).unwrap();
        assert_eq!(found.size, 8192);
        assert_eq!(inspect(&dir.path().join(".").join("new"), Some(8192), 4096).unwrap(), found);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let nowhere = inspect(&dir.path().join("none/new"), Some(8192), 4096).unwrap_err();
        assert!(nowhere.what.ends_with("none: no such file or directory"), "{nowhere:?}");
    }

    #[test]
    fn unusable_paths_have_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let small = dir.path().join("small");
        fs::write(&small, [0; 100]).unwrap();
        let what = |path: &Path, wanted| inspect(path, wanted, 512).unwrap_err().what;
        assert!(what(&small, None).ends_with("it has 100 bytes, less than one block of 512"));
        assert!(what(&small, Some(1024)).ends_with("it has 100B, and ?size= is 1KiB"));
        assert!(what(dir.path(), None).ends_with("it is neither a file nor a block device"));
        let missing = inspect(&dir.path().join("none"), None, 512).unwrap_err();
        assert!(missing.what.ends_with("none: no such file or directory"), "{missing:?}");
        assert!(missing.help.unwrap().contains("truncate"));
    }
}
