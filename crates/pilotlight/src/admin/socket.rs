//! The control socket as a file: at no time can another user connect, and one server uses it at a time.
//!
//! A Unix socket accepts connections as soon as it listens, from every user who may write to its file. So its mode is restricted
//! after `bind` and before `listen`; until then the kernel refuses every connection.
//!
//! Between those two calls the socket of a running server looks like that of a killed one. Servers therefore
//! take turns, by a lock on the directory (flock(2)) that the kernel drops with the process.

use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::group::Group;
use rustix::fs::{Access, FlockOperation, access, flock};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::geteuid;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;
/// Tries for the directory's lock, and the time between two: a server holds it for less than a millisecond.
const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// A listening control socket; dropping it removes the file.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    fd: OwnedFd,
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
    /// The group whose members may read.
    read_group: Option<Group>,
}

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    /// A server answers there.
    #[error(
        "a server{} answers on {path} already: stop it, or give this one a control socket of its own \
         (--admin-socket PATH, or none)", process(*pid)
    )]
    Live {
        /// The socket.
        path: String,
        /// The server's process.
        pid: Option<i32>,
    },
    /// Something else has that name.
    #[error("{0} is there and is no socket: remove it, or choose another path (--admin-socket PATH, or none)")]
    NotASocket(String),
    /// Others could put a socket of theirs in its place.
    #[error(
        "others may replace files in {0}: a control socket needs a directory that only its owner may change (chmod go-w {0}) \
         or that is sticky (--admin-socket PATH chooses another, none does without)"
    )]
    OpenDirectory(String),
    /// The system refused.
    #[error("cannot make the control socket {path} (--admin-socket PATH chooses another, none does without): {source}")]
    System {
        /// The socket.
        path: String,
        /// The error.
        r#source: io::Error,
    },
}

fn process(pid: Option<i32>) -> String {
    pid.map_or(String::new(), |pid| format!(" (process {pid})"))
}

impl ControlSocket {
    /// The group whose members may read.
    pub(crate) fn read_group(&self) -> Option<&Group> {
        self.read_group.as_ref()
    }

    /// Creates the socket, and replaces that of a killed server. Members of `read_group` can connect too.
    ///
    /// # Errors
    /// If a server answers there, or the place is not fit for it.
    pub(crate) fn bind(path: &Path, read_group: Option<&Group>) -> Result<Self, BindError> {
        let refused = |source: io::Error| BindError::System { path: path.display().to_string(), source };
        let parent = parent(path);
        make_directory(parent, read_group).map_err(refused)?;
        check_directory(&fs::metadata(parent).map_err(refused)?, parent)?;
        if let Some(closed) = read_group.and_then(|group| closed_to(parent, group)) {
            tracing::warn!("{closed}");
        }
        let _turn = take_turn(parent).map_err(refused)?;
        clear(path)?;
        Self::listen_at(path, read_group).map_err(refused)
    }

    /// Looks whether [`Self::bind`] would succeed, and changes nothing.
    ///
    /// # Errors
    /// As of [`Self::bind`].
    pub(crate) fn check(path: &Path) -> Result<(), BindError> {
        let refused = |source: io::Error| BindError::System { path: path.display().to_string(), source };
        SocketAddrUnix::new(path).map_err(|errno| refused(errno.into()))?;
        let parent = parent(path);
        let (existing, meta) = writable_ancestor(parent).map_err(refused)?;
        if existing != parent {
            return Ok(()); // the rest is made, and is then the server's own
        }
        check_directory(&meta, parent)?;
        is_dead(path).map(drop)
    }

    fn listen_at(path: &Path, read_group: Option<&Group>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bind(&fd, &SocketAddrUnix::new(path)?)?;
        let narrowed = fs::set_permissions(path, Permissions::from_mode(0o600)).and_then(|()| {
            read_group.map_or(Ok(()), |group| give_to(path, group, 0o660))?;
            listen(&fd, BACKLOG)?;
            fs::symlink_metadata(path)
        });
        match narrowed {
            Ok(meta) => Ok(Self { fd, path: path.to_owned(), file: identity(&meta), read_group: read_group.cloned() }),
            Err(error) => {
                let _ = fs::remove_file(path);
                Err(error)
            }
        }
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for ControlSocket {
    /// Removes the file, unless another one has taken its place.
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|meta| identity(&meta) == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// Creates a directory and its missing parents, for its owner; the last one also for the group.
fn make_directory(path: &Path, read_group: Option<&Group>) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    read_group.map_or(Ok(()), |group| give_to(path, group, 0o750))
}

/// A warning if members of a group cannot search a directory or one of its parents.
fn closed_to(directory: &Path, group: &Group) -> Option<String> {
    let directory = fs::canonicalize(directory).ok()?;
    let is_closed = |folder: &&Path| {
        let search = |meta: Metadata| meta.mode() & if meta.gid() == group.gid { 0o010 } else { 0o001 };
        fs::metadata(folder).is_ok_and(|meta| search(meta) == 0)
    };
    let (folder, name) = (directory.ancestors().find(is_closed)?.display(), &group.name);
    Some(format!(
        "members of the group {name} cannot reach the control socket: they may not search {folder}; \
         `chgrp {name} {folder} && chmod g+x {folder}` lets them, or choose another directory (--admin-socket PATH)"
    ))
}

/// Gives a file to a group, with this mode.
fn give_to(path: &Path, group: &Group, mode: u32) -> io::Result<()> {
    std::os::unix::fs::chown(path, None, Some(group.gid)).map_err(|error| {
        let what =
            format!("cannot change its group to {} ({error}): only root and members of the group can", group.name);
        io::Error::new(error.kind(), what)
    })?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Whether only this user or root can create files in a directory.
fn check_directory(meta: &Metadata, path: &Path) -> Result<(), BindError> {
    const STICKY: u32 = 0o1000;
    const WRITABLE_BY_OTHERS: u32 = 0o022; // by the group too
    let owned = meta.uid() == geteuid().as_raw() || meta.uid() == 0;
    let closed = meta.mode() & WRITABLE_BY_OTHERS == 0 || meta.mode() & STICKY != 0;
    if owned && closed { Ok(()) } else { Err(BindError::OpenDirectory(path.display().to_string())) }
}

/// Locks a directory until the file is dropped.
fn take_turn(directory: &Path) -> io::Result<File> {
    let file = File::open(directory)?;
    for _ in 0..TRIES {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(BETWEEN_TRIES),
            other => return other.map(|()| file).map_err(io::Error::from),
        }
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "another program keeps its directory locked"))
}

/// Removes the socket of a killed server.
fn clear(path: &Path) -> Result<(), BindError> {
    if !is_dead(path)? {
        return Ok(());
    }
    fs::remove_file(path).map_err(|source| BindError::System { path: path.display().to_string(), source })
}

/// Whether the socket of a killed server is there; `false` if nothing is there. Everything else is an error.
fn is_dead(path: &Path) -> Result<bool, BindError> {
    let name = || path.display().to_string();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(BindError::System { path: name(), source }),
        Ok(meta) if !meta.file_type().is_socket() => return Err(BindError::NotASocket(name())),
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(stream) => {
            let pid = socket_peercred(&stream).ok().map(|peer| peer.pid.as_raw_pid());
            Err(BindError::Live { path: name(), pid })
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        // its queue is full
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(BindError::Live { path: name(), pid: None }),
        Err(source) => Err(BindError::System { path: name(), source }),
    }
}

/// A directory, or its nearest parent that is there; this process can create files in it.
pub(crate) fn writable_ancestor(directory: &Path) -> io::Result<(&Path, Metadata)> {
    let mut ancestors = directory.ancestors().map(or_current);
    let existing = ancestors.find(|folder| fs::symlink_metadata(folder).is_ok()).ok_or(Errno::NOENT)?;
    let meta = fs::metadata(existing)?;
    if !meta.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    access(existing, Access::WRITE_OK | Access::EXEC_OK)?;
    Ok((existing, meta))
}

/// The directory of a file.
fn parent(path: &Path) -> &Path {
    or_current(path.parent().unwrap_or(Path::new("")))
}

fn or_current(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

#[cfg(test)]
mod tests;
