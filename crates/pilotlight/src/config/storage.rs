//! Whether a file or block device can hold a namespace, looked at without changing or locking it.

use std::fs::{self, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Names a file or a device, whatever path leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Medium {
    /// A regular file: device and inode.
    File(u64, u64),
    /// A block device: its number.
    Device(u64),
}

/// What was found at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Which file or device it is.
    pub(crate) medium: Medium,
    /// Its size in bytes.
    pub(crate) size: u64,
}

/// Why a path cannot hold a namespace, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    pub(crate) what: String,
    pub(crate) help: Option<String>,
}

/// Looks at the file or block device at `path`: that it is there, may be read and written, and holds at least a block.
pub(crate) fn look_at(path: &Path, block_size: u32) -> Result<Found, Unfit> {
    let unfit = |what: String, help: Option<String>| Unfit { what, help };
    let shown = path.display();
    let meta =
        fs::metadata(path).map_err(|error| unfit(format!("{shown}: {}", cause(&error)), advice(&error, path)))?;
    let kind = meta.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(unfit(format!("{shown} is neither a file nor a block device"), None));
    }
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|error| unfit(format!("{shown}: {}", cause(&error)), advice(&error, path)))?;
    // a block device's metadata have no size: its end has
    let size = file.seek(SeekFrom::End(0)).map_err(|error| unfit(format!("{shown}: {}", cause(&error)), None))?;
    if size < u64::from(block_size) {
        let help = format!("give it a size first: truncate -s 1G {shown}");
        return Err(unfit(format!("{shown} has {size} bytes, less than one block of {block_size}"), Some(help)));
    }
    let medium =
        if kind.is_block_device() { Medium::Device(meta.rdev()) } else { Medium::File(meta.dev(), meta.ino()) };
    Ok(Found { medium, size })
}

/// An error without the number that `Display` adds.
pub(crate) fn cause(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

fn advice(error: &std::io::Error, path: &Path) -> Option<String> {
    let path = path.display();
    match error.kind() {
        std::io::ErrorKind::NotFound => Some(format!("create it first, for example: truncate -s 1G {path}")),
        std::io::ErrorKind::PermissionDenied => {
            Some("it must be readable and writable by the user that runs Pilotlight".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_blocks_is_fit_and_known_under_every_name() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("disk"), dir.path().join("link"));
        fs::write(&path, vec![0; 8192]).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let found = look_at(&path, 4096).unwrap();
        assert_eq!(found.size, 8192);
        assert_eq!(look_at(&link, 4096).unwrap(), found);
    }

    #[test]
    fn what_is_unfit_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let small = dir.path().join("small");
        fs::write(&small, [0; 100]).unwrap();
        assert!(look_at(&small, 512).unwrap_err().what.ends_with("has 100 bytes, less than one block of 512"));
        assert!(look_at(dir.path(), 512).unwrap_err().what.ends_with("is neither a file nor a block device"));
        let missing = look_at(&dir.path().join("none"), 512).unwrap_err();
        assert!(missing.what.ends_with("none: no such file or directory"), "{missing:?}");
        assert!(missing.help.unwrap().contains("truncate"));
    }
}
