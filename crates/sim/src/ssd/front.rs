//! Host interface and controller: limits on commands and bytes, lanes for writes, and in-order completions.

use super::model::Front as Parameters;
use crate::rng;

/// Fractional bits of picoseconds per byte.
const BYTE_BITS: u32 = 20;

/// The entry stage of commands.
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

    /// Returns when a command of `bytes` that arrives at `at` has passed the front.
    #[inline]
    pub(super) fn enter(&mut self, at: u64, bytes: u32) -> u64 {
        let bytes_ps = (u128::from(self.byte_cost) * u128::from(bytes)) >> BYTE_BITS;
        self.commands.pass(at, bytes_ps as u64)
    }

    /// Returns when a command that is `done` can be reported: not before those a window earlier in its queue.
    #[inline]
    pub(super) fn report(&mut self, done: u64, drawn: u64) -> u64 {
        if self.queues.is_empty() {
            return done;
        }
        let chosen = ((drawn & 0xffff) * self.queues.len() as u64) >> 16;
        self.queues[chosen as usize].report(done)
    }

    /// Returns when a write that passed the front at `at` has passed its lane.
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

/// A stage that processes one command at a time, each for a minimum time. It counts in picoseconds, so that rates of millions per second are
/// accurate; time is limited to 213 days.
#[derive(Clone, Copy, Debug)]
struct Limit {
    command_ps: u64,
    free_ps: u64,
}

impl Limit {
    fn new(per_second: u64) -> Self {
        Self { command_ps: 1_000_000_000_000_u64.checked_div(per_second).unwrap_or(0), free_ps: 0 }
    }

    /// Returns when a command that arrives at `at` has passed, if it needs at least `needed_ps`.
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

/// A queue with in-order completions: a ring of the last window's completion times.
#[derive(Clone, Debug)]
struct Queue {
    window: Vec<u64>,
    oldest: usize,
    /// The latest completion before the window.
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
