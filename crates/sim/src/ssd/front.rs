//! Host interface and controller: slots for commands, a limit on commands and bytes, lanes for writes.

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
    entered: u64,
    slots: Vec<u64>,
    slot: usize,
    lanes: Vec<u64>,
    lane_ns: u64,
}

impl Front {
    pub(super) fn new(front: &Parameters) -> Self {
        Self {
            command_ps: 1_000_000_000_000_u64.checked_div(front.max_iops).unwrap_or(0),
            byte_cost: (1_000_000_000_000_u64 << BYTE_BITS).checked_div(front.max_bytes_per_s).unwrap_or(0),
            free_ps: 0,
            entered: 0,
            slots: vec![0; front.command_slots as usize],
            slot: 0,
            lanes: vec![0; front.write_lanes as usize],
            lane_ns: front.write_lane_ns,
        }
    }

    /// When a command of `bytes` that comes at `at` is inside.
    #[inline]
    pub(super) fn enter(&mut self, at: u64, bytes: u32) -> u64 {
        self.entered = self.entered.max(at);
        if let Some(&free) = self.slots.get(self.slot) {
            self.entered = self.entered.max(free);
        }
        let cost = self.command_ps.max((self.byte_cost * u64::from(bytes)) >> BYTE_BITS);
        if cost == 0 {
            return self.entered;
        }
        self.free_ps = self.free_ps.max(self.entered * 1000) + cost;
        self.free_ps / 1000
    }

    /// Notes when the command that entered last is done, for who gets its slot.
    #[inline]
    pub(super) fn leave(&mut self, done: u64) {
        if let Some(slot) = self.slots.get_mut(self.slot) {
            *slot = done;
            self.slot += 1;
            if self.slot == self.slots.len() {
                self.slot = 0;
            }
        }
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
