//! A namespace in a file or on a block device.
//!
//! # The problem
//! A reactor must not block in a system call, a completed flush must mean that the data is on the medium, and a block must
//! be atomic, on any medium and file system.
//!
//! # Access methods
//! - *Aio*: O_DIRECT through Linux AIO, past the page cache. Buffers are aligned to 4 KiB, which is enough for every
//!   medium; blocks must be at least as large as the medium's unit (`STATX_DIOALIGN`). Also on tmpfs, whose transfers
//!   are complete when they are submitted.
//! - *Threads*: `pread` and `pwrite` by the backend's thread pool, without O_DIRECT or `RWF_NOWAIT`.
//!
//! # System calls of a channel
//!
//! | call | by | can it wait? |
//! |---|---|---|
//! | `io_submit` to a block device | the reactor | no: `RWF_NOWAIT` reaches the device's requests, which fail with EAGAIN |
//! | `io_submit` to a file | a thread | yes: a frozen file system, no free tag, on tmpfs memory (`aio/submission.rs`) |
//! | `io_setup` | a thread | yes: memory |
//! | `io_getevents`, only where the ring's layout is unknown | the reactor | no: its timeout is 0 |
//! | `futex` to wake a thread, `write` to a bell | the reactor | no |
//! | `pread`, `pwrite`, `fdatasync`, `fallocate`, `BLKDISCARD` | a thread | yes: the medium, locks of the file |
//! | `io_destroy`, `close` | the reaper (`reaper.rs`) | yes: requests in flight |
//!
//! # The algorithm
//! Direct reads and writes carry `RWF_NOWAIT` (not on tmpfs): where the kernel would block (extent allocation, page eviction) it returns
//! EAGAIN, and the request goes to a thread, as does a partial transfer. A flush is `fdatasync` on a thread. A write with
//! Force Unit Access is a write followed by a sync, or one command to a device that executes Force Unit Access itself.
//! A compare-and-write is a read and a write on a thread, between which its blocks stay held.
//! Zeroing and deallocation are `fallocate` (`ZERO_RANGE`, `PUNCH_HOLE`) or `BLKDISCARD`, on a thread and in slices, so
//! that a large range does not delay other requests; at most two slices run at once, so that threads are left for the
//! rest. If the file system supports neither, zeroing writes zeroes; deallocation never does.
//!
//! # Atomic blocks
//! The kernel does not guarantee that a read sees all or nothing of an overlapping write: reads of the page cache copy
//! without the inode's lock, overlapping direct requests reach the device in any order and may be split at extents, and a
//! virtual disk need not be atomic at all. So a request holds guards (see `guard.rs`) for all of its blocks until it has
//! completed, or of a larger deallocation for its last block, where blocks are freed as a whole; overlapping requests are [`Submitted::Busy`](super::Submitted::Busy) meanwhile. A table of 2^20 words
//! serves all blocks; blocks that share a word exclude each other, which is rare.
//!
//! # Medium errors
//! A failed `fdatasync` may have lost writes that completed long before, and the kernel reports that once. From then on
//! every flush fails until the backend is reopened. A failed write affects only itself. `sync.rs` distinguishes the two.

mod channel;
mod compare;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod faults;
mod medium;
mod open;
mod queue;
mod sync;
mod work;

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use channel::FileChannel;
use medium::{AccessMethod, Medium};
use open::Limits;
pub use open::{FileError, MISSING_DEVICE, names_device, size_remedy};
pub use queue::logical_block_size;
use work::{Job, LongJobs};

use super::blocking::BlockingPool;
use super::opener::{DirectOpener, FileOpener};
use super::{Access, Backend, CHANNEL_DEPTH, Channel, Geometry, MemoryBudget};

/// Threads per backend for blocking calls at most: a slow medium does not delay others.
const THREADS: usize = 64;
/// The most of them that zero or deallocate: the others remain for flushes, reads and writes.
const LONG_JOBS: usize = 2;

/// Options of a namespace in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// A regular file or a block device.
    pub path: PathBuf,
    /// Logical block size in bytes: 512 or 4096.
    pub block_size: u32,
    /// Size in bytes: a missing file is created (sparse), an existing one must have this size.
    pub size: Option<u64>,
    /// Opened for reading alone, so that no right to write is needed.
    pub is_read_only: bool,
}

/// A namespace in a file or on a block device.
pub struct FileBackend {
    medium: Arc<Medium>,
    threads: Arc<BlockingPool<Job>>,
    long_jobs: Arc<LongJobs>,
    resizing: Mutex<()>,
}

impl FileBackend {
    /// Opens a file or device exclusively and starts threads for blocking calls. They, and those that start later, inherit
    /// the caller's CPU affinity: call this before it is pinned.
    ///
    /// # Errors
    /// The file, the reason, and a remedy.
    pub fn open(options: &FileOptions) -> Result<Self, FileError> {
        Self::open_by(options, &DirectOpener, Arc::new(MemoryBudget::unlimited()))
    }

    /// [`FileBackend::open`] with another opener; the memory of threads and channels is charged to `budget`.
    ///
    /// # Errors
    /// As [`FileBackend::open`].
    pub fn open_by(
        options: &FileOptions,
        opener: &dyn FileOpener,
        budget: Arc<MemoryBudget>,
    ) -> Result<Self, FileError> {
        Self::open_with(options, Limits::default(), opener, budget)
    }

    #[cfg(test)]
    fn open_within(options: &FileOptions, limits: Limits) -> Result<Self, FileError> {
        Self::open_with(options, limits, &DirectOpener, Arc::new(MemoryBudget::unlimited()))
    }

    fn open_with(
        options: &FileOptions,
        limits: Limits,
        opener: &dyn FileOpener,
        budget: Arc<MemoryBudget>,
    ) -> Result<Self, FileError> {
        let medium = Arc::new(open::open(options, limits, opener, Arc::clone(&budget))?);
        let threads = BlockingPool::start(THREADS, budget)
            .map_err(|source| FileError::System { path: options.path.clone(), source })?;
        if medium.method() == AccessMethod::Threads {
            let path = options.path.display();
            tracing::info!(
                "{path}: the medium has no requests that never block: threads serve up to {THREADS} at once"
            );
        }
        let long_jobs = Arc::new(LongJobs::new(LONG_JOBS));
        Ok(Self { medium, threads: Arc::new(threads), long_jobs, resizing: Mutex::new(()) })
    }
}

impl Backend for FileBackend {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }

    /// For a block device its size: its allocation is unknown.
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.medium.allocated_bytes()
    }

    fn access(&self) -> Option<Access> {
        Some(match self.medium.method() {
            AccessMethod::Aio if !self.medium.is_limited() => Access::Asynchronous { per_io_thread: CHANNEL_DEPTH },
            method => Access::Threads { most: THREADS as u32, limited: method == AccessMethod::Aio },
        })
    }

    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        let (medium, threads) = (Arc::clone(&self.medium), Arc::clone(&self.threads));
        Ok(Box::new(FileChannel::open(medium, threads, Arc::clone(&self.long_jobs), depth)?))
    }

    /// Resizes a file; a block device only follows its medium (`None`). Shrinking waits for requests beyond the new end: do
    /// not call it on a thread that has such requests in its own channel.
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
