//! What a namespace stores its blocks in.
//!
//! A [`Backend`] is shared by all I/O threads; each I/O thread opens a [`Channel`] of its own to it and is the only one
//! to use it. A channel never blocks: it answers at once, later through [`Channel::poll`], or hands the request back as
//! [`Submitted::Busy`] to be tried again in a later poll.
//!
//! Properties that every backend keeps (the conformance suite checks them):
//! - a request that was accepted completes exactly once, with its tag and its buffer;
//! - one logical block is atomic: a read sees all of a write to that block or nothing of it, from any thread;
//! - what was never written, and what was written with zeroes, reads as zeroes; so does what was deallocated where
//!   [`Geometry::deallocated_reads_zero`] says so;
//! - a completed read has overwritten all of the request's bytes in its buffer (which held another host's data), or it
//!   reports an error;
//! - after a completed flush, or a completed write with `fua`, the data survives power loss as far as the medium can;
//! - blocks on loan do not change, and a write without a buffer is like one with;
//! - nothing is allocated on the way of a read or a write.
//!
//! The backends: [`mem`], [`mod@file`], [`null`]; for tests [`delay`] and [`frozen`]. [`spec`] makes them from what an
//! operator writes, [`conformance`] is the suite that each passes.
//!
//! A request may be busy because an overlapping one is in flight, perhaps in another thread's channel; that one is over
//! when its own channel is polled, or its loan has ended. So a thread that has requests in flight goes on polling, or waits as its channels say
//! ([`Channel::wait`]); one whose request was busy tries again after a while.

mod aio;
pub(crate) mod blocking;
mod budget;
pub mod conformance;
pub mod delay;
pub mod file;
pub mod frozen;
mod guard;
mod loan;
pub mod mem;
pub mod null;
mod random;
mod size;
pub mod spec;

use std::io;
use std::ops::Range;
use std::sync::Arc;

pub use budget::MemoryBudget;
pub use delay::{DelayBackend, Delays};
pub use file::{FileBackend, FileError, FileOptions, logical_block_size};
pub use frozen::FrozenBackend;
pub use loan::Loan;
pub use mem::MemoryBackend;
pub use null::NullBackend;
pub use random::Random;
pub use size::{SizeError, format_size, parse_size};
pub use spec::{BackendSpec, OpenError, SpecError, open};

pub use pilotlight_reactor::Bell;
use pilotlight_reactor::CompletionMode;

use crate::background::sums::tracker::Tracker;
use crate::buffer::Buffer;
use crate::wait::Wait;

/// What a namespace looks like to a host.
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
}

/// One namespace's storage.
pub trait Backend: Send + Sync {
    /// Size and properties, as of now: the number of blocks may change with [`Backend::resize`].
    fn geometry(&self) -> Geometry;

    /// Bytes that really hold data: what a sparse backend takes from memory or disk.
    fn allocated_bytes(&self) -> io::Result<u64>;

    /// Opens an I/O thread's own way to the storage. `depth` is the number of requests it may have in flight at once.
    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>>;

    /// Changes the capacity to `blocks`, or for `None` to what the medium has grown or shrunk to by itself.
    /// Returns the geometry that holds from now on. What lies beyond a new end is gone for good: it reads as zeroes if the
    /// namespace grows again. May block, waiting for requests of other threads: not for reactors.
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry>;

    /// Has the next read of these bytes come from the medium, as far as that is possible: drops what is cached of them and
    /// written. May block.
    fn drop_cache(&self, _bytes: Range<u64>) {}

    /// What is tracked of the ranges, where background work needs it.
    fn tracker(&self) -> Option<&Arc<Tracker>> {
        None
    }
}

/// Names a request; chosen by the caller, returned with its completion.
pub type Tag = u64;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads into the buffer.
    Read,
    /// Writes from the buffer; with `fua` the data is on the medium before the completion.
    Write {
        /// Force Unit Access.
        fua: bool,
    },
    /// Every write completed before is on the medium before the completion.
    Flush,
    /// Sets the blocks to zero; with `deallocate` the space may be given back.
    WriteZeroes {
        /// Force Unit Access.
        fua: bool,
        /// The space may be given back.
        deallocate: bool,
    },
    /// The content of the blocks is no longer needed.
    Deallocate,
}

/// A request to a channel. The range has been checked against [`Geometry::blocks`] by the caller.
#[derive(Debug)]
pub struct Request {
    /// Returned with the completion.
    pub tag: Tag,
    /// What to do.
    pub op: Op,
    /// First logical block.
    pub lba: u64,
    /// Number of logical blocks; 0 for [`Op::Flush`].
    pub blocks: u32,
    /// For reads and writes a buffer of at least `blocks * block_size` bytes (a smaller one is a mistake, and panics);
    /// `None` otherwise.
    pub buffer: Option<Buffer>,
}

/// Why the storage refused or failed a request.
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
    /// The data is not what its checksum says.
    #[error("the data does not match its checksum")]
    Checksum,
    /// The backend cannot do this operation at all.
    #[error("the backend cannot do this operation")]
    Unsupported,
}

impl Request {
    /// The end of this request.
    pub fn complete(self, result: Result<(), IoError>) -> Completion {
        Completion { tag: self.tag, result, buffer: self.buffer }
    }

    /// Where the request lies, for blocks of `block_size` bytes that have been checked with [`Request::check_end`].
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

    /// Refuses what does not end within `blocks`; a flush has no range.
    fn check_end(&self, blocks: u64) -> Result<(), IoError> {
        if self.op == Op::Flush {
            return Ok(());
        }
        check_range(self.lba, self.blocks, blocks)
    }
}

/// Refuses what does not end within `end` blocks.
pub(crate) fn check_range(lba: u64, blocks: u32, end: u64) -> Result<(), IoError> {
    let behind = lba.checked_add(u64::from(blocks));
    if behind.is_some_and(|behind| behind <= end) { Ok(()) } else { Err(IoError::OutOfRange) }
}

/// The end of a request.
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: Tag,
    /// Whether it succeeded.
    pub result: Result<(), IoError>,
    /// The request's buffer, given back.
    pub buffer: Option<Buffer>,
}

/// How a channel took a request.
#[derive(Debug)]
#[must_use]
pub enum Submitted {
    /// It is done.
    Done(Completion),
    /// It will come out of [`Channel::poll`].
    Pending,
    /// Not now (the queue is full, a block is held by another request): try again in a later poll. It has had no effect.
    Busy(Request),
}

/// One I/O thread's way to a backend. It moves between cores with its I/O thread.
///
/// Before a channel is dropped it is polled until nothing is in flight, and its loans are ended. One that is dropped earlier
/// waits (blocking) for what the device still does to its buffers, and then panics, because the buffers and answers in it
/// would be lost.
pub trait Channel: Send {
    /// A hint that a read of this range will be submitted within microseconds: memory can be on its way to the cache by
    /// then. The range has been checked as for a [`Request`].
    fn expect_read(&self, _lba: u64, _blocks: u32) {}

    /// Lends the blocks of a read, to be read from where they lie. `None` if these blocks cannot be lent now, whatever the
    /// reason: the read is to be submitted. Loans are short: writes to their blocks are busy meanwhile.
    fn lend(&mut self, _lba: u64, _blocks: u32) -> Option<Loan> {
        None
    }

    /// Takes a loan of this channel back. All are back before the channel is dropped.
    fn end_loan(&mut self, loan: Loan) {
        drop(loan); // which panics: this channel has lent nothing
    }

    /// Writes `data`, which is `blocks` whole blocks, from where it lies. `None` if that cannot be done at once: it has had
    /// no effect, and the write is to be submitted with a buffer.
    fn write_now(&mut self, _lba: u64, _blocks: u32, _fua: bool, _data: &[u8]) -> Option<Result<(), IoError>> {
        None
    }

    /// Takes a request. `now_ns` is monotonic time in nanoseconds.
    fn submit(&mut self, request: Request, now_ns: u64) -> Submitted;

    /// As [`Channel::submit`], for a read that scrubbing makes: blocks that are known to be bad are read like others.
    fn submit_scrub(&mut self, request: Request, now_ns: u64) -> Submitted {
        self.submit(request, now_ns)
    }

    /// Hands batched submissions to the device and collects what has completed into `done`; at most
    /// `done.capacity() - done.len()` completions, so that nothing is allocated.
    fn poll(&mut self, now_ns: u64, done: &mut Vec<Completion>);

    /// Requests accepted and not yet returned.
    fn in_flight(&self) -> usize;

    /// How the I/O thread learns of completions of what it submits from now on: by polling, or by `bell`.
    fn set_completions(&mut self, _mode: CompletionMode, _bell: &Arc<Bell>) {}

    /// What has to happen before [`Channel::poll`] has anything to do, for a thread that has armed the bell and would like
    /// to wait: [`Wait::Event`] if the bell rings, or nothing is in flight. Whatever was in flight when the answer was
    /// given must keep to it. A channel that makes progress in `poll`, or cannot ring, has to be polled.
    fn wait(&self, _now_ns: u64) -> Wait {
        if self.in_flight() == 0 { Wait::Event } else { Wait::Poll }
    }
}

/// Refuses block sizes other than 512 and 4096, empty namespaces, and those of more than 2^63 bytes.
fn check_geometry(block_size: u32, blocks: u64) -> io::Result<()> {
    if block_size != 512 && block_size != 4096 {
        let message = format!("a block size of {block_size} bytes: use 512 or 4096");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let bytes = blocks.checked_mul(u64::from(block_size)).filter(|&bytes| bytes > 0 && bytes <= i64::MAX as u64);
    if bytes.is_none() {
        let message = format!("{blocks} blocks of {block_size} bytes: a namespace has from one block to 8 EiB");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}
