//! Samples that a plant passes to a policy.

use crate::reading::Reading;
use crate::topology::{CoreId, Depth, ThreadId};

/// Requests since the last tick. A tick runs at a loop boundary of the main core, so it can be late.
#[derive(Clone, Copy, Debug)]
pub struct Tick<'a> {
    /// Monotonic time in nanoseconds: the end of the counted period.
    pub now_ns: u64,
    /// Actual length of that period in nanoseconds. If it does not reach back to the previous tick, there were no requests in between.
    pub elapsed_ns: u64,
    /// The I/O threads that received requests, in order.
    pub counts: &'a [ThreadCount],
}

/// Requests of an I/O thread since the last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCount {
    /// The I/O thread.
    pub thread: ThreadId,
    /// Requests received.
    pub requests: u32,
    /// Time in poll steps that found work, in nanoseconds; 0 unless requested ([`crate::Wants::tick_busy`]).
    pub busy_ns: u64,
}

/// State of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreState {
    /// Polling, or waiting in the kernel for its own I/O threads.
    Awake,
    /// Asleep, without I/O threads.
    Asleep(Depth),
}

/// One core over an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreSample {
    /// Its state at the end.
    pub state: CoreState,
    /// Time in poll steps that found work, in nanoseconds.
    pub busy_ns: u64,
    /// Time awake, in nanoseconds: busy and idle polling, and rests in the kernel for want of requests that no command asked for.
    pub awake_ns: u64,
}

impl CoreSample {
    /// A core without activity.
    #[must_use]
    pub fn new(state: CoreState) -> Self {
        Self { state, busy_ns: 0, awake_ns: 0 }
    }
}

/// One I/O thread over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSample {
    /// Its core at the end.
    pub home: CoreId,
    /// Requests received.
    pub requests: u64,
    /// Time in poll steps that found work, in nanoseconds.
    pub busy_ns: u64,
    /// Requests answered; 0 unless requested ([`crate::Wants::service`]).
    pub answered: u64,
    /// Requests in progress, integrated over the interval, in request-nanoseconds; 0 unless asked for. Divided by `answered` it
    /// is their mean service time (Little's law).
    pub in_progress_ns: u64,
    /// The highest class of the requests that it may serve ([`crate::Goals::class`]); `None` without hosts, or if they are unknown. A
    /// change of class does not trigger an interval.
    pub class: Option<u8>,
}

/// Cores and I/O threads over an interval.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Monotonic time in nanoseconds: the end of the interval.
    pub now_ns: u64,
    /// Its actual length in nanoseconds.
    pub elapsed_ns: u64,
    /// Every core, by [`CoreId`].
    pub cores: &'a [CoreSample],
    /// Every I/O thread, by [`ThreadId`].
    pub threads: &'a [ThreadSample],
    /// The selected readings, in the order of [`crate::Wants::readings`].
    pub readings: &'a [Reading],
}
