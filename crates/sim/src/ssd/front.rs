//! Host interface and controller: a limit on commands and bytes, lanes for writes, and completions that wait for each other.

use super::model::Front as Parameters;
use crate::rng;

/// Fractions of a picosecond per byte are kept in 2^-20.
const BYTE_BITS: u32 = 20;

/// Where commands enter.
#[derive(Clone, Debug)]
pub(super) struct Front {
    command_ps: u64,
    byte_cost: u64,
    free_ps: u64,
    window: Vec<u64>,
    oldest: usize,
    lanes: Vec<u64>,
    lane_ns: u64,
}

impl Front {
    pub(super) fn new(front: &Parameters) -> Self {
        Self {
            command_ps: 1_000_000_000_000_u64.checked_div(front.max_iops).unwrap_or(0),
            byte_cost: (1_000_000_000_000_u64 << BYTE_BITS).checked_div(front.max_bytes_per_s).unwrap_or(0),
            free_ps: 0,
            window: vec![0; front.reorder_window as usize],
            oldest: 0,
            lanes: vec![0; front.write_lanes as usize],
            lane_ns: front.write_lane_ns,
        }
    }

    /// When a command of `bytes` that comes at `at` is inside.
    #[inline]
    pub(super) fn enter(&mut self, at: u64, bytes: u32) -> u64 {
        let cost = self.command_ps.max((self.byte_cost * u64::from(bytes)) >> BYTE_BITS);
        if cost == 0 {
            return at;
        }
        self.free_ps = self.free_ps.max(at * 1000) + cost;
        self.free_ps / 1000
    }

    /// When a command that is `done` can be reported: not before the one that came a window earlier.
    #[inline]
    pub(super) fn report(&mut self, done: u64) -> u64 {
        let Some(oldest) = self.window.get_mut(self.oldest) else { return done };
        *oldest = done.max(*oldest);
        let reported = *oldest;
        self.oldest += 1;
        if self.oldest == self.window.len() {
            self.oldest = 0;
        }
        reported
    }

    /// When a write that is inside since `at` has passed its lane.
    #[inline]
    pub(super) fn lane(&mut self, at: u64, drawn: u64) -> u64 {
        if self.lanes.is_empty() {
            return at;
        }
        let chosen = rng::below(drawn, self.lanes.len() as u64) as usize;
        let lane = &mut self.lanes[chosen];
        *lane = at.max(*lane) + self.lane_ns;
        *lane
    }
}
