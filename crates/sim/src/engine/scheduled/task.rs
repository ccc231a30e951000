//! Tasks and CPUs as [`super::dispatch`] has them.

use std::collections::VecDeque;

/// What a task is, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Interrupt,
    Worker,
    Client,
    Background,
}

/// What a task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// It works in the kernel, for so long at full speed: interrupts wait.
    Work(u64),
    /// It computes, for so long at full speed: interrupts come at once.
    Compute(u64),
    /// It looks until what it looks for is there (`u64::MAX`: not known yet), and then for so long.
    Look { found_ns: u64, more_ns: u64 },
}

/// What a CPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuActivity {
    Works,
    Spins,
    IdlesShallow,
    IdlesDeep,
}

/// From when on a CPU does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) at_ns: u64,
    pub(crate) cpu: usize,
    pub(crate) activity: CpuActivity,
}

/// A time in which a CPU worked or looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) task: usize,
    pub(crate) looks: bool,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

/// A piece has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended<T> {
    pub(crate) at_ns: u64,
    pub(crate) cpu: usize,
    pub(crate) task: usize,
    pub(crate) then: T,
}

/// How CPUs rest and what siblings do to each other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hardware {
    pub(crate) light_exit_ns: u64,
    pub(crate) deep_exit_ns: u64,
    /// By how much work takes longer on a CPU whose sibling is busy when it begins, in millionths.
    pub(crate) sibling_slows_ppm: u64,
}

/// A group of tasks that share a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) quota_ns: u64,
    pub(crate) period_ns: u64,
    /// Most that a CPU takes at a time.
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
    /// Where it may run: from, number.
    pub(super) cpus: (usize, usize),
    pub(super) group: Option<usize>,
    pub(super) spins: bool,
    pub(super) pieces: VecDeque<(Piece, T)>,
    pub(super) state: State,
    pub(super) turn: u64,
    pub(super) last: usize,
    /// Whether the CPU was told early enough to be out of its rest when the task is woken.
    pub(super) early: bool,
}

impl<T> Task<T> {
    /// Who has the least is served first; spinning is for when nobody else is there.
    pub(super) fn rank(&self) -> u8 {
        if self.pieces.is_empty() { 4 } else { self.class as u8 }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) task: usize,
    /// It comes out of its rest until then.
    pub(super) begins_ns: u64,
    /// When its piece ends; `u64::MAX` if that is not known.
    pub(super) ends_ns: u64,
    /// When its grant ends.
    pub(super) granted_ns: u64,
    /// Until when its time is counted.
    pub(super) counted_ns: u64,
    pub(super) looks: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    No,
    /// Since when; how deep is not known yet.
    Undecided(u64),
    Light,
    Deep,
}

#[derive(Clone, Debug)]
pub(super) struct Cpu {
    pub(super) running: Option<Running>,
    /// A piece has ended, and its owner has not let it go on.
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
