//! Why nothing was read, and what can be done about it.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::Way;

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What is asked for contradicts itself or what is there.
    #[error("{0}")]
    Asked(String),
    /// It cannot be opened.
    #[error("{path}: {why}", path = path.display())]
    Open {
        /// What was to be read.
        path: PathBuf,
        /// Why, and what can be done.
        why: String,
    },
    /// The kernel makes no such ring, or starts no thread.
    #[error("{way}: {why}")]
    Way {
        /// By which calls.
        way: Way,
        /// Why, and what can be done.
        why: String,
    },
    /// A read failed.
    #[error("{path}, {bytes} bytes at {offset} by {way}: {why}", path = path.display())]
    Read {
        /// What was read.
        path: PathBuf,
        /// By which calls.
        way: Way,
        /// How much.
        bytes: u64,
        /// Where, in bytes.
        offset: u64,
        /// Why, and what can be done.
        why: String,
    },
}

impl Error {
    /// Whether something else must be asked for: trying again as it is is in vain.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        matches!(self, Self::Asked(_))
    }

    pub(crate) fn open(path: &Path, error: &io::Error) -> Self {
        let why = match Errno::from_io_error(error) {
            Some(Errno::ACCESS | Errno::PERM) => {
                format!("{error}: read it as root, or as one of the group of the device")
            }
            Some(Errno::INVAL) => format!(
                "{error}: its file system has no direct I/O (O_DIRECT; memory file systems often have not): name a device or a file on a disk"
            ),
            _ => error.to_string(),
        };
        Self::Open { path: path.to_owned(), why }
    }

    /// Of making what reads need.
    pub(crate) fn way(way: Way, error: &io::Error) -> Self {
        let why = match (Errno::from_io_error(error), way) {
            (Some(Errno::INVAL), Way::UringHybrid) => format!(
                "this kernel does not have it: io_uring's hybrid polling needs Linux 6.13, and this is {}",
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
            (Some(Errno::NOMEM), _) => format!("{error}: raise the limit of locked memory (ulimit -l)"),
            _ => error.to_string(),
        };
        Self::Way { way, why }
    }
}

/// Why a read failed.
pub(crate) fn of_read(way: Way, error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::OPNOTSUPP) if way.polls() => format!(
            "{error}: it cannot be polled: its driver has no poll queues (boot with nvme.poll_queues=N, or what another driver has), or its \
             file system does not poll"
        ),
        Some(Errno::INVAL) if matches!(way, Way::Preadv2 | Way::Preadv2Polled) => {
            format!("{error}: is the size of a read a multiple of the logical block size? Try 4k")
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
