//! Random reads of a block device or a file, one at a time for each thread, past the page cache: how long they take, and what they cost
//! in CPU time and context switches. Nothing is ever written; what is read is opened for reading only.
//!
//! It is there because no tool has every way in which Linux tells of a read's end: io_uring's hybrid polling
//! (IORING_SETUP_HYBRID_IOPOLL, Linux 6.13) is in no release of fio. Mechanisms that are to be compared must run through one tool.
//!
//! - [`Spec`]: what is asked for; [`Way`]: by which calls. [`run`] does it.
//! - [`Report`]: what came of it. [`Error`]: why it cannot be, and what can be done.
//! - `place`: what is read. `job`: one thread. `calls`: one read; `ring`: the same by io_uring, with most of the crate's `unsafe`.

mod calls;
mod error;
mod job;
mod place;
mod report;
mod ring;
mod usage;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

pub use calls::Way;
pub use error::Error;
pub use report::{Latency, Reads, Report, Settings, Switches};

/// The most bytes of one read: what a block device takes at once is less.
pub const MAX_BYTES: u64 = 64 << 20;
/// The most threads.
pub const MAX_JOBS: u32 = 4096;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// A block device, or a file on a file system with direct I/O.
    pub path: PathBuf,
    /// By which calls.
    pub way: Way,
    /// Bytes of a read; reads begin at multiples of it after `offset`.
    pub bytes: u64,
    /// Threads, each with one read in flight.
    pub jobs: u32,
    /// Measured time, in nanoseconds.
    pub runtime_ns: u64,
    /// Time before it in which reads are made and not counted, in nanoseconds.
    pub ramp_ns: u64,
    /// Of the places that are read.
    pub seed: u64,
    /// Where reading begins, in bytes.
    pub offset: u64,
    /// How many bytes from there on are read; all of them if `None`.
    pub size: Option<u64>,
}

/// Reads, until the time is over or `stop` is set; what was read until then is reported.
///
/// # Errors
/// What is asked for cannot be, or a read failed.
pub fn run(spec: &Spec, stop: &AtomicBool) -> Result<Report, Error> {
    job::run(spec, stop, &|_, _| ())
}

#[cfg(test)]
mod tests;
