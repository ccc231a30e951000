//! Opens files with the rights of this process, or else by its helper.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use pilotlight_nvmf_target::backend::{DirectOpener, FileOpener, Opened, logical_block_size};
use rustix::fs::OFlags;

use super::client::helper;
use super::message::Purpose;

/// The text of a file.
///
/// # Errors
/// As of reading a file.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    io::read_to_string(open_text(path)?)
}

/// A file to read. Opening does not wait, also where it is a pipe.
///
/// # Errors
/// As of open(2).
pub(crate) fn open_text(path: &Path) -> io::Result<File> {
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    let direct = File::options().read(true).custom_flags(nonblock).open(path);
    or_by_helper(direct, || open(path, Purpose::Text))
}

/// A file to read, where this process lacks the right and has a helper; else what `direct` is.
///
/// # Errors
/// As of open(2).
pub(crate) fn or_text_by_helper(direct: io::Result<OwnedFd>, path: &Path) -> io::Result<OwnedFd> {
    or_by_helper(direct, || open(path, Purpose::Text).map(OwnedFd::from))
}

/// Storage for reading and writing, not exclusively.
///
/// # Errors
/// As of open(2).
pub(crate) fn look(path: &Path) -> io::Result<File> {
    or_by_helper(File::options().read(true).write(true).open(path), || open(path, Purpose::Look))
}

/// The metadata of storage.
///
/// # Errors
/// As of stat(2).
pub(crate) fn metadata(path: &Path) -> io::Result<Metadata> {
    or_by_helper(fs::metadata(path), || open(path, Purpose::Look)?.metadata())
}

/// Bytes in a sector of the device at a path, or under a file at it.
pub(crate) fn sector_size(path: &Path) -> Option<u32> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let file = open(path, Purpose::Look).ok()?;
            logical_block_size(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))
        }
        _ => logical_block_size(path),
    }
}

/// Whether a helper process opens files that this one may not.
pub(crate) fn has_helper() -> bool {
    helper().is_some()
}

/// Opens the files and devices of namespaces.
pub(crate) struct Files;

impl FileOpener for Files {
    fn file_type(&self, path: &Path) -> io::Result<FileType> {
        metadata(path).map(|metadata| metadata.file_type())
    }

    fn open(&self, path: &Path, opened: Opened) -> io::Result<File> {
        let purpose = match opened {
            Opened::File => Purpose::File,
            Opened::Device => Purpose::Device,
            Opened::NewFile => Purpose::NewFile,
        };
        or_by_helper(DirectOpener.open(path, opened), || open(path, purpose))
    }
}

fn open(path: &Path, purpose: Purpose) -> io::Result<File> {
    helper().ok_or(ErrorKind::PermissionDenied)?.open(path, purpose)
}

/// The second try, where there is a helper and this process lacks a right.
fn or_by_helper<T>(direct: io::Result<T>, by_helper: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match direct {
        Err(error) if error.kind() == ErrorKind::PermissionDenied && has_helper() => by_helper(),
        direct => direct,
    }
}
