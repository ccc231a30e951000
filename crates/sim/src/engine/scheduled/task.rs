//! Tasks and CPUs of [`super::dispatch`].

use std::collections::VecDeque;

/// Class of a task, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Interrupt,
    Worker,
    Client,
    Background,
}

/// A piece of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Work in the kernel, nanoseconds at full speed; interrupts wait.
    Work(u64),
    /// Computation, nanoseconds at full speed; interrupts preempt it.
    Compute(u64),
    /// Polls until `found_ns` (`u64::MAX`: not known yet), and then for `more_ns`.
    Look { found_ns: u64, more_ns: u64 },
}

/// Activity of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuActivity {
    Works,
    Spins,
    IdlesShallow,
    IdlesDeep,
}

/// Start of an activity of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) at_ns: u64,
    pub(crate) cpu: usize,
    pub(crate) activity: CpuActivity,
}

/// A time span in which a CPU worked or polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) task: usize,
    pub(crate) looks: bool,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

/// An ended piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended<T> {
    pub(crate) at_ns: u64,
    pub(crate) cpu: usize,
    pub(crate) task: usize,
    pub(crate) then: T,
}

/// Idle states of CPUs and interference of siblings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hardware {
    pub(crate) light_exit_ns: u64,
    pub(crate) deep_exit_ns: u64,
    /// Slow-down of work on a CPU whose sibling is busy when it begins, in millionths.
    pub(crate) sibling_slows_ppm: u64,
}

/// A group of tasks that share a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) quota_ns: u64,
    pub(crate) period_ns: u64,
    /// Time that a CPU takes at a time.
    pub(crate) slice_ns: u64,
    pub(super) left_ns: u64,
    pub(super) ends_ns: u64,
}

impl Group {
    pub(crate) fn new(quota_ns: u64, period_ns: u64, slice_ns: u64) -> Self {
        Self { quota_ns, period_ns, slice_ns: slice_ns.max(1), left_ns: quota_ns, ends_ns: period_ns }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Asleep,
    Ready,
    Runs(usize),
    /// Its group has no time left.
    Throttled,
}

#[derive(Clone, Debug)]
pub(super) struct Task<T> {
    pub(super) class: Class,
    /// Allowed CPUs: first, number.
    pub(super) cpus: (usize, usize),
    pub(super) group: Option<usize>,
    pub(super) spins: bool,
    pub(super) pieces: VecDeque<(Piece, T)>,
    pub(super) state: State,
    pub(super) turn: u64,
    pub(super) last: usize,
    /// Whether the CPU exits idle early enough to be awake when the task is woken.
    pub(super) early: bool,
}

impl<T> Task<T> {
    /// Lowest is served first; spinning has the lowest priority.
    pub(super) fn rank(&self) -> u8 {
        if self.pieces.is_empty() { 4 } else { self.class as u8 }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) task: usize,
    /// End of its exit from idle.
    pub(super) begins_ns: u64,
    /// End of its piece; `u64::MAX` if unknown.
    pub(super) ends_ns: u64,
    /// End of its grant.
    pub(super) granted_ns: u64,
    /// End of its accounted time.
    pub(super) counted_ns: u64,
    pub(super) looks: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    No,
    /// Start of idle; the state is not yet decided.
    Undecided(u64),
    Light,
    Deep,
}

#[derive(Clone, Debug)]
pub(super) struct Cpu {
    pub(super) running: Option<Running>,
    /// Task whose piece has ended, until its owner releases the CPU.
    pub(super) held: Option<usize>,
    pub(super) rest: Rest,
    pub(super) activity: Option<CpuActivity>,
    pub(super) factor: u32,
    pub(super) sibling: Option<usize>,
}

impl Cpu {
    pub(super) fn next_ns(&self) -> u64 {
        self.running.map_or(u64::MAX, |running| running.ends_ns.min(running.granted_ns))
    }

    pub(super) fn is_free(&self) -> bool {
        self.running.is_none() && self.held.is_none()
    }
}
