//! What jobs do: one pattern, one size, a number of jobs of a depth, and a way of having requests done.

pub use crate::jobs::{Scheduler, Way};

/// What jobs do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// How requests are had done.
    pub way: Way,
    /// How many jobs.
    pub jobs: u32,
    /// Requests of a job in progress.
    pub depth: u32,
    /// Bytes of a request.
    pub bytes: u64,
    /// Whether requests follow each other on the drive.
    pub sequential: bool,
    /// Share of writes, in millionths.
    pub writes_ppm: u64,
    /// The order in the kernel.
    pub scheduler: Scheduler,
    /// Index of the drive's power state.
    pub state: usize,
    /// Whether the drive goes to its lowest state by itself when idle.
    pub autonomous: bool,
    /// After so many requests of a job it rests; 0 if it never does.
    pub think_after: u32,
    /// for so long,
    pub think_ns: u64,
    /// of which it keeps its processor busy for so long.
    pub think_spin_ns: u64,
    /// Unmeasured time at the start.
    pub ramp_ns: u64,
    /// Measured time.
    pub duration_ns: u64,
    /// How long the machine is looked at after that: the drive may have something left to do.
    pub after_ns: u64,
    /// Decides what is drawn.
    pub seed: u64,
}
