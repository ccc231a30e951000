//! Arrival of a command, by which its response is counted.

use crate::sample::Sample;

/// Arrival of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Time of the poll that read it, or of its admission if it was throttled, in nanoseconds. 0 if it is not counted.
    pub poll_ns: u64,
    /// Its time at the socket.
    pub sample: Sample,
}

impl Arrival {
    /// A command that is not counted.
    pub const NONE: Self = Self { poll_ns: 0, sample: Sample::NONE };
}
