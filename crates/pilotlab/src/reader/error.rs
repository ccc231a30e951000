//! Errors of reading, with their remedies.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::reader::Method;

/// Error of reading.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The specification is invalid for this device or file.
    #[error("{0}")]
    Invalid(String),
    /// It cannot be opened.
    #[error("{path}: {why}", path = path.display())]
    Open {
        /// The device or file.
        path: PathBuf,
        /// The error and the remedy.
        why: String,
    },
    /// The ring or a thread cannot be created.
    #[error("{method}: {why}")]
    Method {
        /// The method.
        method: Method,
        /// The error and the remedy.
        why: String,
    },
    /// A read failed.
    #[error("{path}, {bytes} bytes at {offset} by {method}: {why}", path = path.display())]
    Read {
        /// The device or file.
        path: PathBuf,
        /// The method.
        method: Method,
        /// Size of the read, in bytes.
        bytes: u64,
        /// Offset, in bytes.
        offset: u64,
        /// The error and the remedy.
        why: String,
    },
}

impl Error {
    /// Whether the specification must change; a retry cannot succeed.
    #[must_use]
    pub(crate) fn is_invalid_request(&self) -> bool {
        matches!(self, Self::Invalid(_))
    }

    pub(crate) fn open(path: &Path, error: &io::Error) -> Self {
        let why = match Errno::from_io_error(error) {
            Some(Errno::ACCESS | Errno::PERM) => {
                format!("{error}; run as root or in the device's group")
            }
            Some(Errno::INVAL) => format!(
                "{error}: its file system has no direct I/O (O_DIRECT; memory file systems often have not): name a device or a file on a disk"
            ),
            _ => error.to_string(),
        };
        Self::Open { path: path.to_owned(), why }
    }

    /// An error of creating a ring.
    pub(crate) fn method(method: Method, error: &io::Error) -> Self {
        let why = match (Errno::from_io_error(error), method) {
            (Some(Errno::INVAL), Method::UringHybrid) => format!(
                "this kernel does not have it: io_uring's hybrid polling needs Linux 6.13, this is {}",
                kernel()
            ),
            (Some(Errno::INVAL | Errno::NOSYS), _) => {
                format!(
                    "{error}: this kernel does not have it: it needs Linux 5.6 with io_uring, and this is {}",
                    kernel()
                )
            }
            (Some(Errno::PERM | Errno::ACCESS), _) => format!(
                "{error}: io_uring is forbidden here: see the sysctl kernel.io_uring_disabled, or what confines this process (seccomp)"
            ),
            (Some(Errno::NOMEM), _) => format!("{error}; raise the limit of locked memory (ulimit -l)"),
            _ => error.to_string(),
        };
        Self::Method { method, why }
    }
}

/// The error of a read.
pub(crate) fn of_read(method: Method, error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::OPNOTSUPP) if method.polls() => format!(
            "{error}: it cannot be polled: its driver has no poll queues (boot with nvme.poll_queues=N, or what another driver has), or its \
             file system does not poll"
        ),
        Some(Errno::INVAL) if matches!(method, Method::Preadv2 | Method::Preadv2Polled) => {
            format!("{error}; the size of a read must be a multiple of the logical block size, such as 4k")
        }
        Some(Errno::INVAL) => format!(
            "{error}: is the size of a read a multiple of the logical block size (try 4k), and does this kernel know the request (Linux 5.6)?"
        ),
        _ => error.to_string(),
    }
}

/// The kernel's release.
fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}
