//! Storage of namespaces.
//!
//! A [`Backend`] is shared by all I/O threads; each I/O thread opens its own [`Channel`]. A channel never blocks: a request
//! completes at once, later in [`Channel::poll`], or is returned as [`Submitted::Busy`] for a retry in a later poll.
//!
//! Properties of every backend (checked by the conformance suite):
//! - an accepted request completes exactly once, with its tag and its buffer;
//! - a logical block is atomic: a read sees all of a write to that block or nothing of it, from any thread;
//! - unwritten blocks and blocks written with zeroes read as zeroes, and so do deallocated ones if
//!   [`Geometry::deallocated_reads_zero`] is set;
//! - a completed read has overwritten all of the request's bytes in its buffer (which may hold another host's data), or it
//!   reports an error;
//! - after a completed flush, or a completed write with `fua`, the data survives a power failure as far as the medium can;
//! - a compare-and-write is atomic: no other write to its blocks takes effect between its comparison and its own write;
//! - blocks on loan do not change, and a write without a buffer is equivalent to one with a buffer;
//! - reads and writes do not allocate.
//!
//! The backends: `mem`, `file`, `null`; for tests `delay` and, with the feature `testing`, `frozen`. `spec` parses and opens them,
//! `conformance` is their test suite.
//!
//! A request may be busy because an overlapping one is in flight, perhaps in another thread's channel; that one ends when
//! its channel is polled, or with its loan. So a thread with requests in flight keeps polling, or waits as its channels
//! require ([`Channel::wait`]); a busy request is retried after a while.

mod aio;
pub mod background;
mod blocking;
mod budget;
pub mod buffer;
#[cfg(test)]
mod conformance;
mod delay;
mod file;
#[cfg(any(test, feature = "testing"))]
pub mod frozen;
mod guard;
pub mod lease;
mod loan;
mod mapping;
mod mem;
mod null;
mod opener;
mod random;
pub mod reaper;
mod size;
mod spec;
pub mod wait;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

pub use budget::MemoryBudget;
pub use delay::{DelayBackend, Delays};
pub use file::{FileBackend, FileError, FileOptions, MISSING_DEVICE, logical_block_size, names_device, size_remedy};
#[cfg(any(test, feature = "testing"))]
pub use frozen::FrozenBackend;
pub use loan::Loan;
pub use mem::MemoryBackend;
pub use null::NullBackend;
pub use opener::{DirectOpener, FileOpener, Opened};
pub use random::Random;
pub use size::{SizeError, format_size, parse_size};
pub use spec::{BackendSpec, OpenError, SpecError, open, open_by};

pub use pilotlight_reactor::Bell;
use pilotlight_reactor::CompletionMode;

use crate::background::sums::tracker::Tracker;
use crate::buffer::Buffer;
use crate::wait::Wait;

/// Maximum requests of one I/O thread in one namespace's backend: more than keep a drive busy, and little of what the system
/// allows (`fs.aio-max-nr`).
pub const CHANNEL_DEPTH: u32 = 256;

/// Properties of a namespace visible to hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Logical block size in bytes: 512 or 4096.
    pub block_size: u32,
    /// Capacity in logical blocks.
    pub blocks: u64,
    /// Whether completed writes may still be volatile until a flush.
    pub volatile_write_cache: bool,
    /// Whether deallocated blocks read as zeroes.
    pub deallocated_reads_zero: bool,
    /// Whether writes are refused.
    pub is_read_only: bool,
}

/// How the requests of a namespace reach its medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// As asynchronous requests (Linux AIO).
    Asynchronous {
        /// Requests at once of each I/O thread.
        per_io_thread: u32,
    },
    /// By threads that block.
    Threads {
        /// Requests at once.
        most: u32,
        /// The system has refused asynchronous requests to an I/O thread at least (`fs.aio-max-nr`, `max_memory`). Otherwise the
        /// medium has none that never block (`RWF_NOWAIT`).
        limited: bool,
    },
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asynchronous { per_io_thread } => write!(f, "{per_io_thread} an I/O thread"),
            Self::Threads { most, limited: false } => write!(f, "{most}, by threads"),
            Self::Threads { most, limited: true } => write!(f, "{most}, by threads (fs.aio-max-nr)"),
        }
    }
}

/// One namespace's storage.
pub trait Backend: Send + Sync {
    /// Current size and properties: the number of blocks may change with [`Backend::resize`].
    fn geometry(&self) -> Geometry;

    /// Allocated bytes of memory or disk.
    fn allocated_bytes(&self) -> io::Result<u64>;

    /// How requests reach a medium, and how many at once; `None` where they do not wait for one.
    fn access(&self) -> Option<Access> {
        None
    }

    /// Opens a channel for one I/O thread. `depth` is its maximum number of requests in flight.
    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>>;

    /// Changes the capacity to `blocks`, or for `None` to the current size of the medium. Returns the new geometry. Data beyond
    /// a new end is lost: it reads as zeroes if the namespace grows again. May block on requests of other threads: not for
    /// reactors.
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry>;

    /// Drops clean cached data of these bytes, so that the next read comes from the medium if possible. May block.
    fn drop_cache(&self, _bytes: Range<u64>) {}

    /// The state of ranges for background work, if any.
    fn tracker(&self) -> Option<&Arc<Tracker>> {
        None
    }
}

/// Identifies a request; chosen by the caller, returned with its completion.
pub type Tag = u64;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads into the buffer.
    Read,
    /// Writes from the buffer; with `fua` the data is on the medium before the completion.
    Write {
        /// Force Unit Access.
        fua: bool,
    },
    /// Compares the blocks with the first half of the buffer, and if they are equal writes the second half; with `fua` the data is on the
    /// medium before the completion. Fails with [`IoError::Miscompare`] and changes nothing if they differ.
    CompareAndWrite {
        /// Force Unit Access.
        fua: bool,
    },
    /// Every write completed before is on the medium before the completion.
    Flush,
    /// Zeroes the blocks; with `deallocate` their space may be freed.
    WriteZeroes {
        /// Force Unit Access.
        fua: bool,
        /// The space may be freed.
        deallocate: bool,
    },
    /// The content of the blocks is no longer needed.
    Deallocate,
    /// As [`Op::Deallocate`], where [`Geometry::deallocated_reads_zero`] is set; their space is freed only if they cannot read as zeroes
    /// without that. Never writes zeroes.
    Clear,
}

/// A request to a channel. The range has been checked against [`Geometry::blocks`] by the caller.
#[derive(Debug)]
pub struct Request {
    /// Returned with the completion.
    pub tag: Tag,
    /// The operation.
    pub op: Op,
    /// First logical block.
    pub lba: u64,
    /// Number of logical blocks; 0 for [`Op::Flush`].
    pub blocks: u32,
    /// For reads and writes a buffer of at least `blocks * block_size` bytes, for [`Op::CompareAndWrite`] of twice as many (a smaller one
    /// panics); otherwise `None`.
    pub buffer: Option<Buffer>,
}

/// Error of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// The range lies beyond the end (the namespace has shrunk).
    #[error("beyond the end of the namespace")]
    OutOfRange,
    /// No space left on the medium.
    #[error("no space left on the medium")]
    NoSpace,
    /// The medium cannot be written.
    #[error("the medium is read-only")]
    ReadOnly,
    /// The medium failed; the system's error number.
    #[error("the medium failed with error number {0}")]
    Medium(i32),
    /// The data does not match its checksum.
    #[error("the data does not match its checksum")]
    Checksum,
    /// The blocks differ from the data to compare.
    #[error("the blocks differ from the data to compare")]
    Miscompare,
    /// The medium failed to read blocks to compare; the system's error number.
    #[error("the medium failed to read blocks to compare, with error number {0}")]
    UnreadMedium(i32),
    /// The backend does not support this operation.
    #[error("the backend does not support this operation")]
    Unsupported,
}

impl Request {
    /// Completes this request.
    #[inline]
    pub fn complete(self, result: Result<(), IoError>) -> Completion {
        Completion { tag: self.tag, result, buffer: self.buffer }
    }

    /// The request's byte range; [`Request::check_end`] must have accepted it.
    fn bytes(&self, block_size: usize) -> Range<u64> {
        let block_size = block_size as u64;
        self.lba * block_size..(self.lba + u64::from(self.blocks)) * block_size
    }

    /// The bytes to read into or write from.
    ///
    /// # Panics
    /// If the caller gave no buffer, or one that is too small.
    fn data(&mut self, block_size: usize) -> &mut [u8] {
        let len = self.blocks as usize * block_size;
        let buffer = self.buffer.as_mut().expect("a read or write has a buffer");
        &mut buffer[..len]
    }

    /// The bytes to compare with, and those to write.
    ///
    /// # Panics
    /// As [`Request::data`].
    fn compare_and_write_data(&self, block_size: usize) -> (&[u8], &[u8]) {
        let len = self.blocks as usize * block_size;
        let buffer = self.buffer.as_ref().expect("a compare-and-write has a buffer");
        buffer[..2 * len].split_at(len)
    }

    /// Refuses a range that does not end within `blocks`; a flush has no range.
    fn check_end(&self, blocks: u64) -> Result<(), IoError> {
        if self.op == Op::Flush {
            return Ok(());
        }
        check_range(self.lba, self.blocks, blocks)
    }
}

/// Refuses a range that does not end within `end` blocks.
pub(crate) fn check_range(lba: u64, blocks: u32, end: u64) -> Result<(), IoError> {
    let behind = lba.checked_add(u64::from(blocks));
    if behind.is_some_and(|behind| behind <= end) { Ok(()) } else { Err(IoError::OutOfRange) }
}

/// Completion of a request.
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: Tag,
    /// Whether it succeeded.
    pub result: Result<(), IoError>,
    /// The request's buffer.
    pub buffer: Option<Buffer>,
}

/// Result of a submission.
#[derive(Debug)]
#[must_use]
pub enum Submitted {
    /// It is complete.
    Done(Completion),
    /// [`Channel::poll`] will return its completion.
    Pending,
    /// Refused without effect (full queue, a block held by another request): retry in a later poll.
    Busy(Request),
}

/// One I/O thread's channel to a backend. It moves between cores with its I/O thread.
///
/// Poll a channel until nothing is in flight and end its loans before dropping it. Otherwise the drop blocks until the
/// device has released its buffers, and then panics, because buffers and completions would be lost.
pub trait Channel: Send {
    /// A hint that a read of this range follows within microseconds: memory can be prefetched. The range has been checked as
    /// for a [`Request`].
    fn prefetch_read(&self, _lba: u64, _blocks: u32) {}

    /// Lends the blocks of a read for a zero-copy transfer. `None` if that is not possible now: submit the read instead.
    /// Writes to the blocks are busy during the loan.
    fn lend(&mut self, _lba: u64, _blocks: u32) -> Option<Loan> {
        None
    }

    /// Ends a loan of this channel. All must end before the channel is dropped.
    fn end_loan(&mut self, loan: Loan) {
        drop(loan); // panics: this channel has lent nothing
    }

    /// Writes `data` (`blocks` whole blocks) without a buffer. `None` if that is not possible now: it had no effect; submit
    /// the write with a buffer instead.
    fn write_now(&mut self, _lba: u64, _blocks: u32, _fua: bool, _data: &[u8]) -> Option<Result<(), IoError>> {
        None
    }

    /// Submits a request. `now_ns` is monotonic time in nanoseconds.
    fn submit(&mut self, request: Request, now_ns: u64) -> Submitted;

    /// As [`Channel::submit`], for requests of scrubbing: blocks known to be bad are read.
    fn submit_scrub(&mut self, request: Request, now_ns: u64) -> Submitted {
        self.submit(request, now_ns)
    }

    /// Submits batched requests to the device and adds completions to `done`, at most `done.capacity() - done.len()`, so that
    /// nothing is allocated.
    fn poll(&mut self, now_ns: u64, done: &mut Vec<Completion>);

    /// Requests in flight.
    fn in_flight(&self) -> usize;

    /// Sets how later requests signal their completion: by polling, or by `bell`.
    fn set_completions(&mut self, _mode: CompletionMode, _bell: &Arc<Bell>) {}

    /// The event before which [`Channel::poll`] has no work, for a thread that has armed the bell and is about to wait:
    /// [`Wait::Event`] if the bell rings, or nothing is in flight. It must hold for all requests in flight. A channel that
    /// makes progress in `poll`, or cannot ring, returns [`Wait::Poll`].
    fn wait(&self, _now_ns: u64) -> Wait {
        if self.in_flight() == 0 { Wait::Event } else { Wait::Poll }
    }
}

/// Refuses block sizes other than 512 and 4096, empty namespaces, and those of more than 2^63 bytes.
fn check_geometry(block_size: u32, blocks: u64) -> io::Result<()> {
    if block_size != 512 && block_size != 4096 {
        let message = format!("unsupported block size of {block_size} bytes: use 512 or 4096");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let bytes = blocks.checked_mul(u64::from(block_size)).filter(|&bytes| bytes > 0 && bytes <= i64::MAX as u64);
    if bytes.is_none() {
        let message = format!("{blocks} blocks of {block_size} bytes: a namespace has from one block to 8 EiB");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}
