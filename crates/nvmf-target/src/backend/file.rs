//! A namespace in a file or on a block device.
//!
//! # The problem
//! A reactor must never wait in a system call, a completed flush must mean that the medium has the data, and a block must
//! be atomic, whatever the medium and the file system below are.
//!
//! # The words: three ways
//! - *Direct*: O_DIRECT through Linux AIO, past the page cache. Buffers are aligned to 4 KiB, which is enough for every
//!   medium; blocks must be at least as large as the medium's unit (`STATX_DIOALIGN`).
//! - *Inline*: on tmpfs there is no medium to wait for, so a plain `pread` or `pwrite` by the reactor is the fastest way.
//!   (A page that was swapped out makes it wait all the same.)
//! - *Threads*: where neither works (no O_DIRECT, or no `RWF_NOWAIT`), plain calls by threads of the backend's own.
//!
//! # The algorithm
//! Reads and writes of the direct way carry `RWF_NOWAIT`: where the kernel would wait (an extent to be allocated, a page
//! to be evicted) it says EAGAIN instead, and the request goes to a thread, as does anything transferred in part. A flush
//! is `fdatasync` on a thread; a write with Force Unit Access is a write and then the same, or one command to a device that
//! executes Force Unit Access itself. Zeroes and deallocation are `fallocate` (`ZERO_RANGE`,
//! `PUNCH_HOLE`) or `BLKDISCARD`, always on a thread and slice by slice, so that even a whole device holds up nobody.
//! What the file system cannot do is done by writing zeroes.
//!
//! # Atomic blocks
//! The kernel does not promise that a read sees all or nothing of an overlapping write: reads of the page cache copy
//! without the inode's lock, overlapping direct requests reach the device in any order and may be split at extents, and a
//! virtual disk need not be atomic at all. So a request holds guards (see `guard.rs`) for all of its blocks from before it
//! reaches the kernel until it has completed; overlapping requests are [`Submitted::Busy`](super::Submitted::Busy) meanwhile. A table of 2^20
//! words serves all blocks; blocks that share a word exclude each other needlessly and rarely.
//!
//! # When the medium fails
//! A failed `fdatasync` may have lost writes that were completed long ago, and the kernel reports that once. So from then
//! on every flush fails, until the backend is opened anew. A write that fails has lost itself alone, and nothing else fails
//! because of it. `sync.rs` says how the two are told apart.

mod channel;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod faults;
mod medium;
mod open;
mod queue;
mod sync;

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use channel::FileChannel;
use medium::{Job, Medium};
pub use open::FileError;
use open::Limits;
pub use queue::logical_block_size;

use super::blocking::BlockingPool;
use super::{Backend, Channel, Geometry};

/// Threads for calls that may block, for each backend: a slow medium holds up no other.
const THREADS: usize = 4;

/// Which file, and how it is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// A regular file or a block device.
    pub path: PathBuf,
    /// Logical block size in bytes: 512 or 4096.
    pub block_size: u32,
    /// Creates a sparse file of so many bytes if there is none; one that exists must have this size.
    pub size: Option<u64>,
}

/// A namespace in a file or on a block device.
pub struct FileBackend {
    medium: Arc<Medium>,
    threads: Arc<BlockingPool<Job>>,
    resizing: Mutex<()>,
}

impl FileBackend {
    /// Opens a file or device for this process alone, and starts the threads for what blocks (on the cores that the
    /// caller may run on: so before it is pinned to one).
    ///
    /// # Errors
    /// Says which file cannot be had, why, and what helps.
    pub fn open(options: &FileOptions) -> Result<Self, FileError> {
        Self::open_within(options, Limits::default())
    }

    fn open_within(options: &FileOptions, limits: Limits) -> Result<Self, FileError> {
        let medium = Arc::new(open::open(options, limits)?);
        let threads =
            BlockingPool::start(THREADS).map_err(|source| FileError::System { path: options.path.clone(), source })?;
        Ok(Self { medium, threads: Arc::new(threads), resizing: Mutex::new(()) })
    }
}

impl Backend for FileBackend {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }

    /// For a block device its size: it does not tell what it holds.
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.medium.allocated_bytes()
    }

    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(FileChannel::open(Arc::clone(&self.medium), Arc::clone(&self.threads), depth)?))
    }

    /// Makes a file longer or shorter; a block device only follows its medium (`None`). Before a file is cut, requests in
    /// flight beyond the new end are waited for: so not for a thread that has such requests in a channel of its own.
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        let _one_at_a_time = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        match blocks {
            None => self.medium.follow_size()?,
            Some(blocks) => self.medium.set_blocks(blocks)?,
        }
        Ok(self.medium.geometry())
    }

    fn drop_cache(&self, bytes: Range<u64>) {
        self.medium.drop_cache(bytes);
    }
}

#[cfg(test)]
mod tests;
