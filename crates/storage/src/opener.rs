//! Opens the files and devices of namespaces: directly, or with the help of a process that has more rights.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What is opened: for reading and writing, except where it says otherwise, and for a device whose driver refuses that (`EROFS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// An existing file.
    File,
    /// A block device, without other exclusive users; mounted file systems are such users.
    Device,
    /// A file that does not exist yet, for its owner only.
    NewFile,
    /// An existing file, for reading alone.
    ReadOnlyFile,
    /// A block device as [`Self::Device`], for reading alone.
    ReadOnlyDevice,
}

impl Opened {
    const fn is_device(self) -> bool {
        matches!(self, Self::Device | Self::ReadOnlyDevice)
    }

    const fn is_read_only(self) -> bool {
        matches!(self, Self::ReadOnlyFile | Self::ReadOnlyDevice)
    }
}

/// Opens files and devices.
pub trait FileOpener: Send + Sync {
    /// The type of the file at `path`; symbolic links are followed.
    ///
    /// # Errors
    /// As of stat(2).
    fn file_type(&self, path: &Path) -> io::Result<FileType>;

    /// Opens the file or device at `path`; symbolic links are followed, except for a new file.
    ///
    /// # Errors
    /// As of open(2).
    fn open(&self, path: &Path, opened: Opened) -> io::Result<File>;
}

/// Opens files and devices with the rights of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectOpener;

impl FileOpener for DirectOpener {
    fn file_type(&self, path: &Path) -> io::Result<FileType> {
        std::fs::metadata(path).map(|metadata| metadata.file_type())
    }

    fn open(&self, path: &Path, opened: Opened) -> io::Result<File> {
        let mut open = OpenOptions::new();
        open.read(true).write(!opened.is_read_only()).mode(0o600).create_new(opened == Opened::NewFile);
        // Without O_CREAT, O_EXCL on a device excludes other exclusive users, mounted file systems included.
        open.custom_flags(if opened.is_device() { libc::O_EXCL } else { 0 });
        match open.open(path) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem && opened == Opened::Device => {
                open.write(false).open(path)
            }
            result => result,
        }
    }
}
