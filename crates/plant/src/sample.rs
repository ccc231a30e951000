//! What a plant tells a policy.

use crate::reading::Reading;
use crate::topology::{CoreId, Depth, ThreadId};

/// What arrived since the last tick. A tick runs at a loop boundary of the main core, so it can be late.
#[derive(Clone, Copy, Debug)]
pub struct Tick<'a> {
    /// Monotonic time in nanoseconds: the end of the time that `counts` is about.
    pub now_ns: u64,
    /// Length of that time in nanoseconds, as it truly was. Where it does not reach back to the tick before, what is
    /// between was quiet.
    pub elapsed_ns: u64,
    /// The I/O threads that polled any request, each once, in the order of their numbers.
    pub counts: &'a [ThreadCount],
}

/// What one I/O thread polled since the last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCount {
    /// The I/O thread.
    pub thread: ThreadId,
    /// Requests that it took from the network.
    pub requests: u32,
    /// Time in poll steps that found work, in nanoseconds; 0 unless asked for ([`crate::Wants::tick_busy`]).
    pub busy_ns: u64,
}

/// What a core is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreState {
    /// It polls, or waits in the kernel for its own I/O threads.
    Awake,
    /// It owns no I/O thread and rests.
    Asleep(Depth),
}

/// One core over an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreSample {
    /// Its state at the end.
    pub state: CoreState,
    /// Time in poll steps that found work, in nanoseconds.
    pub busy_ns: u64,
    /// Time awake, in nanoseconds: busy and idle polling.
    pub awake_ns: u64,
}

impl CoreSample {
    /// A core that did nothing yet.
    #[must_use]
    pub fn new(state: CoreState) -> Self {
        Self { state, busy_ns: 0, awake_ns: 0 }
    }
}

/// One I/O thread over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSample {
    /// Where it lives at the end.
    pub home: CoreId,
    /// Requests that it took from the network.
    pub requests: u64,
    /// Time in poll steps that found work, in nanoseconds.
    pub busy_ns: u64,
    /// Requests answered; 0 unless asked for ([`crate::Wants::service`]).
    pub answered: u64,
    /// Requests in progress, integrated over the interval, in request-nanoseconds; 0 unless asked for. Divided by `answered` it
    /// is their mean service time (Little's law).
    pub in_progress_ns: u64,
    /// The highest class of the requests that it may carry ([`crate::Goals::class`]); `None` if it serves nobody, or the plant does not
    /// know whom. Another class makes no interval necessary.
    pub class: Option<u8>,
}

/// Cores and I/O threads over an interval.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Monotonic time in nanoseconds: the end of the interval.
    pub now_ns: u64,
    /// Its length in nanoseconds, as it truly was.
    pub elapsed_ns: u64,
    /// Every core, by [`CoreId`].
    pub cores: &'a [CoreSample],
    /// Every I/O thread, by [`ThreadId`].
    pub threads: &'a [ThreadSample],
    /// The readings that the policy wants, in the order of [`crate::Wants::readings`].
    pub readings: &'a [Reading],
}
