//! Opens files with the rights of the server's user, or else those that only root can have put where they are.
//!
//! **Problem.** Whoever controls the server's user can put links and pipes where the configuration names a file. Root must not read
//! what they lead to, in no process: neither the server before it has given its privileges up, nor its helper, nor `--check`.
//!
//! **Algorithm.** From the time that the user is known ([`as_user`]), root opens a file with that user's rights to files, as the server will
//! later. Where these do not suffice, it follows the path as the helper does ([`walk`]). After the privileges are gone, the first
//! is what the process can do itself, and the second is a request to the helper. Opening never waits, and a text must be in a regular file.

use std::cell::RefCell;
use std::fs::{self, File, FileType, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use pilotlight_storage::{DirectOpener, FileOpener, Opened, logical_block_size, names_device};
use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::account::Account;
use super::client::helper;
use super::message::Purpose;
use super::surrender;
use super::walk::{self, WalkError};
use crate::seccomp;

thread_local! {
    /// Of this thread, as the checks of a configuration open files in many places.
    static LIMIT: RefCell<Option<Limit>> = const { RefCell::new(None) };
}

/// The user whose rights root uses; `None` where there is no such user.
type Limit = Option<Account>;

/// Ends the limit of [`as_user`].
#[must_use]
pub(crate) struct LimitGuard(Option<Limit>);

impl Drop for LimitGuard {
    fn drop(&mut self) {
        LIMIT.set(self.0.take());
    }
}

/// Until the end of the result, root opens files in this thread as described above. `None` for a user that is not known, and any behind a
/// seccomp filter, which does not let root become another user: then only those that nobody but root can replace.
pub(crate) fn as_user(account: Option<Account>) -> LimitGuard {
    LimitGuard(LIMIT.replace(Some(account.filter(|_| !seccomp::is_installed()))))
}

/// The limit of this thread, if this is root.
fn limit() -> Option<Limit> {
    LIMIT.with_borrow(Clone::clone).filter(|_| geteuid().is_root())
}

/// The text of a regular file.
///
/// # Errors
/// As of reading a file.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    text_in(open_text(path)?)
}

/// The text of a regular file of the process itself, which root opens for nobody.
///
/// # Errors
/// As of reading a file.
pub(crate) fn read_own_text(path: &Path) -> io::Result<String> {
    text_in(options().read(true).open(path)?)
}

fn text_in(file: File) -> io::Result<String> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    io::read_to_string(file)
}

/// A file to read.
///
/// # Errors
/// As of open(2).
pub(crate) fn open_text(path: &Path) -> io::Result<File> {
    or_by_root(|| options().read(true).open(path), path, Purpose::Text, Ok)
}

/// A file to read, which `direct` opens where the rights suffice.
///
/// # Errors
/// As of open(2).
pub(crate) fn open_text_with(path: &Path, direct: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<OwnedFd> {
    or_by_root(direct, path, Purpose::Text, |file| Ok(file.into()))
}

/// Storage for reading and writing, not exclusively; a device that cannot be written for reading.
///
/// # Errors
/// As of open(2).
pub(crate) fn open_shared(path: &Path) -> io::Result<File> {
    let direct = || match options().read(true).write(true).open(path) {
        Err(error)
            if error.kind() == ErrorKind::ReadOnlyFilesystem && (names_device(path) || is_block_device(path)) =>
        {
            options().read(true).open(path)
        }
        result => result,
    };
    or_by_root(direct, path, Purpose::Look, Ok)
}

/// Storage for reading alone.
///
/// # Errors
/// As of open(2).
pub(crate) fn open_read_only(path: &Path) -> io::Result<File> {
    or_by_root(|| options().read(true).open(path), path, Purpose::ReadOnly, Ok)
}

/// Whether it is one, also through a link.
fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
}

/// The metadata of storage.
///
/// # Errors
/// As of stat(2).
pub(crate) fn metadata(path: &Path) -> io::Result<Metadata> {
    or_by_root(|| fs::metadata(path), path, Purpose::Look, |file| file.metadata())
}

/// Bytes in a sector of the device at a path, or under a file at it.
pub(crate) fn sector_size(path: &Path) -> Option<u32> {
    let direct = || fs::metadata(path).map(|_| logical_block_size(path));
    let of_open = |file: File| Ok(logical_block_size(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))));
    or_by_root(direct, path, Purpose::Look, of_open).ok().flatten()
}

/// Opening a pipe does not wait, and a terminal does not become this process's.
fn options() -> fs::OpenOptions {
    let mut options = File::options();
    options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32);
    options
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
            Opened::ReadOnlyFile => Purpose::ReadOnly,
            Opened::ReadOnlyDevice => Purpose::ReadOnlyDevice,
        };
        or_by_root(|| DirectOpener.open(path, opened), path, purpose, Ok)
    }
}

fn error_of(error: WalkError) -> io::Error {
    match error {
        WalkError::Untrusted => io::Error::new(
            ErrorKind::PermissionDenied,
            "the server's user may not open it, and root does not, as others can change a folder on the way: let the user open it, or \
             move it below folders that only root can change",
        ),
        WalkError::System(_) => error.into(),
    }
}

/// The result of `direct`, or `of` a file that root opens where the user lacks a right.
fn or_by_root<T>(
    direct: impl FnOnce() -> io::Result<T>,
    path: &Path,
    purpose: Purpose,
    of: impl FnOnce(File) -> io::Result<T>,
) -> io::Result<T> {
    let limit = limit();
    let result = match &limit {
        None => direct(),
        Some(Some(account)) => surrender::with_rights_of(account, direct),
        Some(None) => Err(ErrorKind::PermissionDenied.into()),
    };
    match (result, helper()) {
        (Err(error), _) if error.kind() == ErrorKind::PermissionDenied && limit.is_some() => {
            of(walk::open(path, purpose.flags()).map_err(error_of)?)
        }
        (Err(error), Some(helper)) if error.kind() == ErrorKind::PermissionDenied => of(helper.open(path, purpose)?),
        (result, _) => result,
    }
}
