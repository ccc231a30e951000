//! Files of secrets: permissions checked on the open file, one secret a line.
//!
//! ```text
//! # NQN of the host         kind              secret
//! nqn.2014-08.example:a     dhchap_key        DHHC-1:00:...:
//! nqn.2014-08.example:a     dhchap_ctrl_key   DHHC-1:00:...:
//! nqn.2014-08.example:a     tls_key           NVMeTLSkey-1:01:...:
//! ```
//!
//! The kinds have the names that Linux and nvme-cli give them: `dhchap_key` authenticates the host, `dhchap_ctrl_key` the
//! controller towards that host. Empty lines and lines that begin with `#` are ignored.
//!
//! A file must be a regular file, belong to root or to the server's user, and no other user may access it. In the credentials
//! directory of systemd, which is closed itself, its group may read it: systemd makes credentials readable to the service's user
//! with an access control list, which shows as mode 0440.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::interchange::FormatError;
use crate::secret::Secret;
use crate::tls::ConfiguredPsk;

/// The longest file in bytes: some ten thousand hosts.
pub const MAX_BYTES: u64 = 4 << 20;
/// The longest NQN in bytes (Base 4.7).
const MAX_NQN: usize = 223;

/// The secrets of one host.
#[derive(Clone, Debug, Default)]
pub struct HostSecrets {
    /// `dhchap_key`: authenticates the host.
    pub host: Option<Secret>,
    /// `dhchap_ctrl_key`: authenticates the controller towards this host.
    pub controller: Option<Secret>,
    /// `tls_key`: the configured PSK.
    pub tls: Option<ConfiguredPsk>,
}

/// A file of secrets was refused. No message quotes a secret.
#[derive(Debug, Error)]
#[error("{}: {cause}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub cause: Cause,
}

/// Why a file of secrets was refused.
#[derive(Debug, Error)]
pub enum Cause {
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Io(io::Error),
    /// The last component of the path is a symbolic link.
    #[error("is a symbolic link: name the file that it points to")]
    Link,
    /// Not a regular file.
    #[error("is not a regular file: put the secrets into a regular file")]
    NotRegular,
    /// Another user owns it, who can change it.
    #[error("belongs to user {0}: chown it to root or to the user of the server")]
    Owner(u32),
    /// Others can access it.
    #[error("is accessible to other users (mode {0:04o}): chmod 600")]
    Mode(u32),
    /// Longer than [`MAX_BYTES`].
    #[error("is longer than {MAX_BYTES} bytes: is it a file of secrets?")]
    TooLong,
    /// Not text.
    #[error("is not text")]
    NotText,
    /// A line is wrong.
    #[error("line {0}: {1}")]
    Line(usize, LineError),
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Why a line was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// Not three words.
    #[error("expected: HOSTNQN dhchap_key|dhchap_ctrl_key|tls_key SECRET")]
    Words,
    /// The first word is no NQN.
    #[error("the first word must be the NQN of a host: it begins with nqn. and has at most {MAX_NQN} bytes")]
    Nqn,
    /// The second word is no kind.
    #[error("the second word must be dhchap_key, dhchap_ctrl_key or tls_key")]
    Kind,
    /// The secret is malformed.
    #[error(transparent)]
    Secret(#[from] FormatError),
    /// The host has a secret of this kind already.
    #[error("the host has a secret of this kind in an earlier line: remove one of them")]
    Twice,
}

/// Reads a file of the secrets of several hosts, by the NQN of the host. `credentials` is `$CREDENTIALS_DIRECTORY`.
///
/// # Errors
/// The file cannot be read, is not kept secret, or has a malformed line.
pub fn load(path: &Path, credentials: Option<&Path>) -> Result<BTreeMap<String, HostSecrets>, FileError> {
    load_by(path, credentials, open_file)
}

/// [`load`] with another function that opens the file, such as one that asks a process with more rights.
///
/// # Errors
/// As [`load`].
pub fn load_by(
    path: &Path,
    credentials: Option<&Path>,
    open: impl FnOnce(&Path) -> io::Result<OwnedFd>,
) -> Result<BTreeMap<String, HostSecrets>, FileError> {
    let text = read_by(path, credentials, open)?;
    parse(&text).map_err(|(line, error)| FileError { path: path.to_owned(), cause: Cause::Line(line, error) })
}

/// The text of a file that is kept secret, of any form.
///
/// # Errors
/// The file cannot be read, is not kept secret, or is not text.
pub fn read_by(
    path: &Path,
    credentials: Option<&Path>,
    open: impl FnOnce(&Path) -> io::Result<OwnedFd>,
) -> Result<Zeroizing<String>, FileError> {
    let text = read(path, credentials, open)
        .and_then(|bytes| Ok(Zeroizing::new(std::str::from_utf8(&bytes).map_err(|_| Cause::NotText)?.to_owned())));
    text.map_err(|cause| FileError { path: path.to_owned(), cause })
}

/// Parses the text of a file of the secrets of several hosts.
///
/// # Errors
/// A line, counted from 1, is malformed.
pub fn parse(text: &str) -> Result<BTreeMap<String, HostSecrets>, (usize, LineError)> {
    let mut hosts = BTreeMap::new();
    for (number, line) in lines(text) {
        parse_line(line, &mut hosts).map_err(|error| (number, error))?;
    }
    Ok(hosts)
}

fn parse_line(line: &str, hosts: &mut BTreeMap<String, HostSecrets>) -> Result<(), LineError> {
    let mut words = line.split_ascii_whitespace();
    let (Some(nqn), Some(kind), Some(secret), None) = (words.next(), words.next(), words.next(), words.next()) else {
        return Err(LineError::Words);
    };
    if !nqn.starts_with("nqn.") || nqn.len() > MAX_NQN {
        return Err(LineError::Nqn);
    }
    let host = hosts.entry(nqn.to_owned()).or_default();
    match kind {
        "dhchap_key" => set(&mut host.host, Secret::parse(secret)?),
        "dhchap_ctrl_key" => set(&mut host.controller, Secret::parse(secret)?),
        "tls_key" => set(&mut host.tls, ConfiguredPsk::parse(secret)?),
        _ => Err(LineError::Kind),
    }
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), LineError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(LineError::Twice),
    }
}

/// The lines that are neither empty nor comments, counted from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_ascii()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// Opens a file of secrets, which must not be a symbolic link.
///
/// # Errors
/// As of open(2).
pub fn open_file(path: &Path) -> io::Result<OwnedFd> {
    // NONBLOCK: opening a named pipe would wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

/// Reads a file after checking the open descriptor, so that it cannot be replaced in between.
fn read(
    path: &Path,
    credentials: Option<&Path>,
    open: impl FnOnce(&Path) -> io::Result<OwnedFd>,
) -> Result<Zeroizing<Vec<u8>>, Cause> {
    let file = open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => Cause::Link,
        _ => Cause::Io(error),
    })?;
    let stat = fstat(&file).map_err(io::Error::from)?;
    let is_credential = credentials.is_some_and(|directory| path.parent() == Some(directory));
    check(stat.st_mode, stat.st_uid, rustix::process::geteuid().as_raw(), is_credential)?;
    let len = u64::try_from(stat.st_size).unwrap_or(0);
    if len > MAX_BYTES {
        return Err(Cause::TooLong);
    }
    // One byte more than the file, so that a buffer that grows, and leaves a copy behind, is one of a file that grows.
    let mut bytes = Zeroizing::new(Vec::with_capacity(len as usize + 1));
    std::fs::File::from(file).take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES { Err(Cause::TooLong) } else { Ok(bytes) }
}

/// Checks that the file is regular, belongs to root or `user`, and is closed to others.
fn check(mode: u32, owner: u32, user: u32, is_credential: bool) -> Result<(), Cause> {
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return Err(Cause::NotRegular);
    }
    if owner != 0 && owner != user {
        return Err(Cause::Owner(owner));
    }
    let permissions = mode & 0o7777;
    let is_closed = permissions & 0o077 == 0 || is_credential && permissions == 0o440;
    if is_closed { Ok(()) } else { Err(Cause::Mode(permissions)) }
}

#[cfg(test)]
#[path = "secrets_file_tests.rs"]
mod tests;
