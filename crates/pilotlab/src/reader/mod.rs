//! Random direct reads of a block device or a file with one outstanding read per thread: latency, CPU time and context switches. Devices and
//! files are opened read-only.
//!
//! It exists because no release of fio supports io_uring's hybrid polling (IORING_SETUP_HYBRID_IOPOLL, Linux 6.13), and completion
//! mechanisms can be compared only within one tool.
//!
//! - [`Spec`]: parameters of a run; [`Method`]: system call and completion; [`run`] performs it.
//! - [`Report`]: results. [`Error`]: errors with remedies.
//! - `range`: the device or file. `job`: the threads; `part`: their statistics. `calls`: one read; `ring`: io_uring, with most of the crate's `unsafe`.

mod buffer;
mod calls;
mod error;
mod job;
mod part;
mod range;
mod report;
mod ring;
mod usage;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

pub(crate) use calls::Method;
pub(crate) use error::Error;
pub(crate) use report::Report;

/// Largest read in bytes, above the limit of block devices.
pub(crate) const MAX_BYTES: u64 = 64 << 20;
/// Most threads.
pub(crate) const MAX_JOBS: u32 = 4096;

/// Parameters of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    /// A block device, or a file on a file system with direct I/O.
    pub(crate) path: PathBuf,
    /// System call and completion.
    pub(crate) method: Method,
    /// Size of a read in bytes; reads are aligned to it relative to `offset`.
    pub(crate) bytes: u64,
    /// Threads, each with one outstanding read.
    pub(crate) jobs: u32,
    /// Measured time, in nanoseconds.
    pub(crate) runtime_ns: u64,
    /// Unmeasured time before it, in nanoseconds.
    pub(crate) ramp_ns: u64,
    /// Seed of the random offsets.
    pub(crate) seed: u64,
    /// Start of the region, in bytes.
    pub(crate) offset: u64,
    /// Size of the region in bytes; up to the end if `None`.
    pub(crate) size: Option<u64>,
}

/// Reads until the time is over or `stop` is set, and reports the reads so far.
///
/// # Errors
/// The specification is invalid, or a read failed.
pub(crate) fn run(spec: &Spec, stop: &AtomicBool) -> Result<Report, Error> {
    job::run(spec, stop, &|_, _| ())
}

#[cfg(test)]
mod tests;
