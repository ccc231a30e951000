//! Host interface and controller: a limit on commands and bytes, lanes for writes, and completions that wait for each other.

use super::model::Front as Parameters;
use crate::rng;

/// Fractions of a picosecond per byte are kept in 2^-20.
const BYTE_BITS: u32 = 20;

/// Where commands enter.
#[derive(Clone, Debug)]
pub(super) struct Front {
    commands: Limit,
    writes: Limit,
    byte_cost: u64,
    queues: Vec<Queue>,
    lanes: Vec<u64>,
    lane_ns: u64,
}

impl Front {
    pub(super) fn new(front: &Parameters) -> Self {
        let queues = if front.reorder_window == 0 { 0 } else { front.queues.max(1) };
        Self {
            commands: Limit::new(front.max_iops),
            writes: Limit::new(front.max_write_iops),
            byte_cost: (1_000_000_000_000_u64 << BYTE_BITS).checked_div(front.max_bytes_per_s).unwrap_or(0),
            queues: vec![Queue::new(front.reorder_window); queues as usize],
            lanes: vec![0; front.write_lanes as usize],
            lane_ns: front.write_lane_ns,
        }
    }

    /// When a command of `bytes` that comes at `at` is inside.
    #[inline]
    pub(super) fn enter(&mut self, at: u64, bytes: u32) -> u64 {
        let bytes_ps = (u128::from(self.byte_cost) * u128::from(bytes)) >> BYTE_BITS;
        self.commands.pass(at, bytes_ps as u64)
    }

    /// When a command that is `done` can be reported: not before those that came a window earlier in its queue.
    #[inline]
    pub(super) fn report(&mut self, done: u64, drawn: u64) -> u64 {
        if self.queues.is_empty() {
            return done;
        }
        let chosen = ((drawn & 0xffff) * self.queues.len() as u64) >> 16;
        self.queues[chosen as usize].report(done)
    }

    /// When a write that is inside since `at` has passed its lane.
    #[inline]
    pub(super) fn lane(&mut self, at: u64, drawn: u64) -> u64 {
        let at = self.writes.pass(at, 0);
        if self.lanes.is_empty() {
            return at;
        }
        let chosen = rng::below(drawn, self.lanes.len() as u64) as usize;
        let lane = &mut self.lanes[chosen];
        *lane = at.max(*lane) + self.lane_ns;
        *lane
    }
}

/// A stage that takes one command at a time, and for each at least so long. It counts in picoseconds, so that a limit of millions
/// per second is met; time ends after 213 days.
#[derive(Clone, Copy, Debug)]
struct Limit {
    command_ps: u64,
    free_ps: u64,
}

impl Limit {
    fn new(per_second: u64) -> Self {
        Self { command_ps: 1_000_000_000_000_u64.checked_div(per_second).unwrap_or(0), free_ps: 0 }
    }

    /// When a command that comes at `at` is through, if it needs `needed_ps` for reasons of its own.
    #[inline]
    fn pass(&mut self, at: u64, needed_ps: u64) -> u64 {
        let cost = self.command_ps.max(needed_ps);
        if cost == 0 {
            return at;
        }
        self.free_ps = self.free_ps.max(at * 1000) + cost;
        self.free_ps / 1000
    }
}

/// Commands whose completions wait for each other: a ring of what the last window of them needs.
#[derive(Clone, Debug)]
struct Queue {
    window: Vec<u64>,
    oldest: usize,
    /// The latest completion of all that came before the window.
    before: u64,
}

impl Queue {
    fn new(window: u32) -> Self {
        Self { window: vec![0; window as usize], oldest: 0, before: 0 }
    }

    #[inline]
    fn report(&mut self, done: u64) -> u64 {
        self.before = self.before.max(std::mem::replace(&mut self.window[self.oldest], done));
        self.oldest += 1;
        if self.oldest == self.window.len() {
            self.oldest = 0;
        }
        done.max(self.before)
    }
}
