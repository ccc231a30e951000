//! Conformance suite, run by the tests of each backend.
//!
//! [`check`] takes a constructor of backends and runs every case of [`CASES`] at both block sizes; a case panics on failure.
//! Backends are compared with an oracle (a vector of bytes): random requests over one or two channels, the edges of blocks,
//! pages and the namespace, and concurrent threads. Every other read and write uses no buffer where the backend supports
//! that.
//!
//! Not checked here: that flushed data survives a power failure (see `frozen`).

mod bells;
mod cases;
mod compare;
mod driver;
mod loans;
mod threads;

use std::sync::Arc;

pub(crate) use driver::Driver;

use super::{Backend, IoError};

/// The backend under test.
pub(crate) struct Subject<'a> {
    /// Creates an empty backend from a block size and a number of blocks.
    pub(crate) create: &'a (dyn Fn(u32, u64) -> Arc<dyn Backend> + Sync),
    /// Whether it stores data. The null backend does not.
    pub(crate) stores: bool,
    /// Whether its size can be changed.
    pub(crate) resizes: bool,
    /// Whether [`Backend::allocated_bytes`] follows writes and deallocation. It does not for block devices.
    pub(crate) counts_space: bool,
    /// Requests of each random case: fewer for slow media.
    pub(crate) requests: u32,
    /// Seed of the random cases.
    pub(crate) seed: u64,
}

/// One case: its name, and its function for a subject and a block size.
pub(crate) type Case = (&'static str, fn(&Subject<'_>, u32));

/// All cases.
pub(crate) const CASES: &[Case] = &[
    ("a fresh namespace reads as zeroes and holds nothing", cases::fresh),
    ("reads return written data", cases::round_trips),
    ("requests stay within their blocks and their buffers", cases::edges),
    ("write zeroes and deallocate", cases::zeroes),
    ("requests without data may be large", cases::large_zeroes),
    ("flush and force unit access complete", cases::flushes),
    ("compare-and-write writes if the blocks are equal", compare::writes_if_equal),
    ("requests beyond the end fail", cases::out_of_range),
    ("writes to blocks on loan are busy and have no effect", loans::exclude_writers),
    ("a loan has the same bytes as a read", loans::equal_reads),
    ("a full queue returns requests unchanged, and accepted ones complete exactly once", cases::exactly_once),
    ("poll fills the vector up to its capacity", cases::bounded_poll),
    ("a channel may move between threads", cases::moves),
    ("random requests agree with an oracle", cases::random),
    ("a namespace grows with zeroes, and cut blocks stay zero", cases::resizes),
    ("wait() ends by the bell or by its time", bells::ring),
    ("one block is atomic under many threads", threads::atomic_blocks),
    ("a counter incremented by compare-and-write loses no increment", compare::counts),
    ("a value is replaced by one compare-and-write at most", compare::replaces_once),
];

/// Runs every case at both block sizes.
///
/// # Panics
/// If the backend does not conform.
pub(crate) fn check(subject: &Subject<'_>) {
    for &(name, case) in CASES {
        for block_size in [512, 4096] {
            println!("conformance: {name}, {block_size} bytes");
            case(subject, block_size);
        }
    }
}

/// The result of a request that must succeed.
fn ok<T>(result: Result<T, IoError>) -> T {
    result.unwrap_or_else(|error| panic!("a request failed: {error}"))
}
