//! What every backend must do: one suite for all of them, to be run by each backend's tests.
//!
//! [`check`] takes a way to make fresh backends and runs every case of [`CASES`] at both block sizes; a case panics, saying
//! what went wrong. Backends are compared with a naive oracle (a vector of bytes), with requests at random over one or two
//! channels, at the edges of blocks, pages and the namespace, and under many threads. Every other read and write goes without a
//! buffer where the backend can do that.
//!
//! Not checked here: that flushed data survives power loss. It takes a medium that forgets (`frozen`), or a real one that
//! is recorded.

mod bells;
mod cases;
mod driver;
mod loans;
mod threads;

use std::sync::Arc;

pub use driver::Driver;

use super::{Backend, IoError};

/// What is to be checked.
pub struct Subject<'a> {
    /// Makes a fresh backend of so many blocks of this size, reading as zeroes.
    pub create: &'a (dyn Fn(u32, u64) -> Arc<dyn Backend> + Sync),
    /// Whether it stores anything. The null backend does not.
    pub stores: bool,
    /// Whether its size can be changed.
    pub resizes: bool,
    /// Whether [`Backend::allocated_bytes`] follows what is written and deallocated. A block device cannot tell.
    pub counts_space: bool,
    /// How many requests the random cases make: fewer for slow media.
    pub requests: u32,
    /// Seeds the random cases.
    pub seed: u64,
}

/// One case: its name, and what it does with a subject at a block size.
pub type Case = (&'static str, fn(&Subject<'_>, u32));

/// All cases.
pub const CASES: &[Case] = &[
    ("a fresh namespace reads as zeroes and holds nothing", cases::fresh),
    ("what was written is read", cases::round_trips),
    ("requests stay within their blocks and their buffers", cases::edges),
    ("write zeroes and deallocate", cases::zeroes),
    ("requests without data may be large", cases::large_zeroes),
    ("flush and forced unit access are answered", cases::flushes),
    ("the end is checked", cases::out_of_range),
    ("blocks on loan do not change, and whoever wants to change them is busy without effect", loans::keep_writers_out),
    ("what is lent is what a read returns", loans::are_reads),
    ("what does not fit into the queue comes back unchanged, the rest completes exactly once", cases::exactly_once),
    ("poll fills the vector up to its capacity", cases::bounded_poll),
    ("a channel may move between threads", cases::moves),
    ("random requests agree with an oracle", cases::random),
    ("a namespace grows with zeroes and shrinks for good", cases::resizes),
    ("a thread that waits is woken by its bell, or told for how long to wait", bells::ring),
    ("one block is atomic under many threads", threads::atomic_blocks),
];

/// Runs every case at both block sizes.
///
/// # Panics
/// If the backend does not conform.
pub fn check(subject: &Subject<'_>) {
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
