//! Accounting of reactors and I/O threads.
//!
//! Each cell has one writer at a time and is written with plain loads and stores. All time is accounted: a reactor is busy (a poll
//! step with work), idle (one without) or asleep at some depth. Scheduled CPU time is separate, and read from the kernel: it
//! contains sleep in a wait instruction (`umwait`), during which the core is scheduled.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

use Ordering::{Acquire, Relaxed};
use pilotlight_plant::{CompletionMode, CoreId, CoreState, Depth};

use crate::clock;
pub use crate::counter::add;
use crate::histogram::{Histogram, HistogramSnapshot};
use crate::io_thread::Polled;
use crate::resting::Resting;
pub use crate::sleep_clock::SLEEPS;
use crate::sleep_clock::{SleepClock, depth_index};

/// A reactor's cell.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ReactorCell {
    pub(crate) loops: AtomicU64,
    pub(crate) busy_ns: AtomicU64,
    pub(crate) idle_ns: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) io_threads: AtomicU64,
    pub(crate) moves_out: AtomicU64,
    pub(crate) moves_in: AtomicU64,
    /// Whether it waits in the kernel although it may get requests.
    pub(crate) rests: Resting,
    /// Idle timeout of a worker, after which it waits in the kernel; 0 if it never does. Written by the director.
    pub(crate) idle_timeout_ns: AtomicU64,
    /// Length of a round that it reports, in nanoseconds; 0 for never. Written by the director.
    pub(crate) round_ns: AtomicU64,
    /// Longest wait in the kernel with I/O threads here, in nanoseconds; 0 for no limit. Written by the director.
    pub(crate) wait_ns: AtomicU64,
    /// Time after requests in which it rests instead of waiting for more, in nanoseconds; 0 for none. Written by the director.
    pub(crate) pause_ns: AtomicU64,
    /// Time in such waits for want of requests that have ended, and when the current one began; 0 for none.
    pub(crate) rested_ns: AtomicU64,
    pub(crate) rests_since_ns: AtomicU64,
    sleep: SleepClock,
    wakes: [AtomicU64; 3],
    wake_latency: [Histogram; 3],
    /// Number of the OS thread, for its CPU time.
    pub(crate) tid: AtomicU32,
}

/// Statistics of a reactor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReactorStats {
    /// Awake, or asleep and how deep.
    pub state: CoreState,
    /// Loops.
    pub loops: u64,
    /// Time in poll steps that found work, in nanoseconds.
    pub busy_ns: u64,
    /// Time in poll steps that found none, in nanoseconds.
    pub idle_ns: u64,
    /// Time asleep in nanoseconds, and sleeps that ended, by depth as in [`SLEEPS`].
    pub asleep: [SleepStats; 3],
    /// CPU time of the OS thread as accounted by the kernel, in nanoseconds; 0 if unknown.
    pub cpu_ns: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// I/O threads on this reactor.
    pub io_threads: u64,
    /// I/O threads handed over to other reactors.
    pub moves_out: u64,
    /// I/O threads received, with those of the start.
    pub moves_in: u64,
}

/// Sleeps of a reactor at one depth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SleepStats {
    /// Time in nanoseconds, with the current sleep.
    pub ns: u64,
    /// Sleeps that have ended.
    pub wakes: u64,
    /// Time from a wake-up by another core to its receipt.
    pub latency: HistogramSnapshot,
}

impl ReactorCell {
    pub(crate) fn fall_asleep(&self, depth: Depth, now_ns: u64) {
        self.sleep.fall_asleep(depth, now_ns);
    }

    pub(crate) fn wake(&self, now_ns: u64) {
        if let Some(index) = self.sleep.wake(now_ns) {
            add(&self.wakes[index], 1);
        }
    }

    pub(crate) fn woken_by(&self, depth: Depth, sent_ns: u64, now_ns: u64) {
        if let Some(index) = depth_index(depth) {
            self.wake_latency[index].record(now_ns.saturating_sub(sent_ns), 1);
        }
    }

    pub(crate) fn state(&self) -> CoreState {
        self.sleep.state()
    }

    pub(crate) fn stats(&self) -> ReactorStats {
        let (state, slept) = self.sleep.slept(clock::now_ns);
        let asleep = |index: usize| SleepStats {
            ns: slept[index],
            wakes: self.wakes[index].load(Relaxed),
            latency: self.wake_latency[index].snapshot(),
        };
        ReactorStats {
            state,
            loops: self.loops.load(Relaxed),
            busy_ns: self.busy_ns.load(Relaxed),
            idle_ns: self.idle_ns.load(Relaxed),
            asleep: [asleep(0), asleep(1), asleep(2)],
            cpu_ns: clock::cpu_ns_of(self.tid.load(Relaxed)),
            requests: self.requests.load(Relaxed),
            io_threads: self.io_threads.load(Relaxed),
            moves_out: self.moves_out.load(Relaxed),
            moves_in: self.moves_in.load(Relaxed),
        }
    }
}

/// An I/O thread's cell, written by its reactor, except `completions`, which the director writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ThreadCell {
    pub(crate) requests: AtomicU64,
    pub(crate) busy_ns: AtomicU64,
    pub(crate) idle_ns: AtomicU64,
    sleep: SleepClock,
    pub(crate) moves: AtomicU64,
    pub(crate) home: AtomicU16,
    pub(crate) finished: AtomicBool,
    /// Completion mode: `POLL`, `INTERRUPT`, or `HYBRID` with two rests.
    completions: AtomicU64,
    /// Whether the policy wants service times.
    pub(crate) service: AtomicBool,
    /// Completed requests; this and the following are only counted while wanted.
    pub(crate) answered: AtomicU64,
    /// Requests in progress, integrated over time, in request-nanoseconds.
    pub(crate) in_progress_ns: AtomicU64,
    /// Requests in progress after the last poll.
    pub(crate) in_progress: AtomicU32,
}

/// Values of `completions` for polling and for waiting in the kernel.
const POLL: u64 = 0;
const INTERRUPT: u64 = 1;
/// Flag beside two rests of 31 bits each.
const HYBRID: u64 = 1 << 63;
/// The longest rest, about 2 s.
const LONGEST: u32 = u32::MAX >> 1;

/// Statistics of an I/O thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoThreadStats {
    /// Its core, or its last one.
    pub home: CoreId,
    /// Whether it has ended.
    pub finished: bool,
    /// Requests from the network.
    pub requests: u64,
    /// Time in poll steps that found work, in nanoseconds.
    pub busy_ns: u64,
    /// Time in poll steps that found none, in nanoseconds.
    pub idle_ns: u64,
    /// Time of its reactor's waits with it, in nanoseconds, by depth as in [`SLEEPS`], with the current wait.
    pub asleep_ns: [u64; 3],
    /// Number of moves.
    pub moves: u64,
}

impl ThreadCell {
    /// Its reactor falls asleep.
    pub(crate) fn fall_asleep(&self, depth: Depth, now_ns: u64) {
        self.sleep.fall_asleep(depth, now_ns);
    }

    /// Its reactor is awake again.
    pub(crate) fn wake(&self, now_ns: u64) {
        self.sleep.wake(now_ns);
    }

    pub(crate) fn completions(&self) -> CompletionMode {
        match self.completions.load(Relaxed) {
            POLL => CompletionMode::Poll,
            INTERRUPT => CompletionMode::Interrupt,
            rests => {
                CompletionMode::Hybrid { idle_ns: (rests >> 31) as u32 & LONGEST, rest_ns: rests as u32 & LONGEST }
            }
        }
    }

    pub(crate) fn set_completions(&self, mode: CompletionMode) {
        let word = match mode {
            CompletionMode::Poll => POLL,
            CompletionMode::Interrupt => INTERRUPT,
            CompletionMode::Hybrid { idle_ns, rest_ns } => {
                HYBRID | u64::from(idle_ns.min(LONGEST)) << 31 | u64::from(rest_ns.min(LONGEST))
            }
        };
        self.completions.store(word, Relaxed);
    }

    /// Counts a poll from `begin_ns` to `end_ns`; `before` is the end of the poll before and its requests in progress. A request
    /// counts from the beginning of the poll that took it to the end of the one that completed it.
    pub(crate) fn served(&self, before: (u64, u32), polled: &Polled, begin_ns: u64, end_ns: u64) {
        let (before_ns, waited) = (before.0, u64::from(before.1));
        let held = waited + u64::from(polled.requests);
        let between_ns = begin_ns.saturating_sub(before_ns);
        add(&self.in_progress_ns, waited * between_ns + held * (end_ns - begin_ns));
        add(&self.answered, held.saturating_sub(u64::from(polled.in_progress)));
        self.in_progress.store(polled.in_progress, Relaxed);
    }

    pub(crate) fn home(&self) -> CoreId {
        CoreId(self.home.load(Acquire))
    }

    pub(crate) fn stats(&self) -> IoThreadStats {
        IoThreadStats {
            home: self.home(),
            finished: self.finished.load(Acquire),
            requests: self.requests.load(Relaxed),
            busy_ns: self.busy_ns.load(Relaxed),
            idle_ns: self.idle_ns.load(Relaxed),
            asleep_ns: self.sleep.slept(clock::now_ns).1,
            moves: self.moves.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_of_a_thread_survives_a_round_trip() {
        let cell = ThreadCell::default();
        assert_eq!(cell.completions(), CompletionMode::Poll);
        for (idle_ns, rest_ns) in [(0, 0), (0, 1), (1, 0), (10_000, 40_000), (LONGEST, 3), (3, LONGEST)] {
            for how in [CompletionMode::Interrupt, CompletionMode::Hybrid { idle_ns, rest_ns }, CompletionMode::Poll] {
                cell.set_completions(how);
                assert_eq!(cell.completions(), how);
            }
        }
        cell.set_completions(CompletionMode::Hybrid { idle_ns: u32::MAX, rest_ns: u32::MAX });
        assert_eq!(cell.completions(), CompletionMode::Hybrid { idle_ns: LONGEST, rest_ns: LONGEST });
    }

    /// Little's law: the integral is the sum of the times that requests were there.
    #[test]
    fn service_times_add_up() {
        let cell = ThreadCell::default();
        let polled = |requests, in_progress| Polled { requests, in_progress, ..Polled::default() };
        cell.served((0, 0), &polled(2, 2), 10, 13); // two come at 10
        cell.served((13, 2), &polled(1, 1), 20, 24); // one comes at 20, two are answered until 24
        cell.served((24, 1), &polled(0, 0), 30, 31);
        assert_eq!(cell.in_progress_ns.load(Relaxed), 2 * (24 - 10) + (31 - 20));
        assert_eq!((cell.answered.load(Relaxed), cell.in_progress.load(Relaxed)), (3, 0));
        cell.served((31, 0), &polled(4, 0), 40, 42);
        assert_eq!(cell.in_progress_ns.load(Relaxed), 39 + 4 * 2, "answered in the poll that took them");
    }
}
