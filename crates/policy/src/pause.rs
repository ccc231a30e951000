//! When a knob is set again that the plant has refused: after 10 s, then after twice as long each time.

use pilotlight_plant::{NEVER, Refusal};

/// The first pause, and the longest, in nanoseconds; chosen.
const FIRST_NS: u64 = 10_000_000_000;
const LONGEST_NS: u64 = 640_000_000_000;

/// Until when a knob is left alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    until_ns: u64,
    /// Length of the next one.
    next_ns: u64,
}

impl Default for Pause {
    /// None.
    fn default() -> Self {
        Self { until_ns: 0, next_ns: FIRST_NS }
    }
}

impl Pause {
    /// When it ends; [`NEVER`] for a knob that cannot be set at all.
    pub(crate) fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// Whether the knob may be set.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        self.until_ns <= now_ns
    }

    /// The plant has refused the knob.
    pub(crate) fn refused(&mut self, now_ns: u64, refusal: Refusal) {
        if refusal != Refusal::Failed {
            self.until_ns = NEVER;
            return;
        }
        if self.until_ns.saturating_add(LONGEST_NS) < now_ns {
            self.next_ns = FIRST_NS; // it worked for long
        }
        self.until_ns = now_ns.saturating_add(self.next_ns);
        self.next_ns = (2 * self.next_ns).min(LONGEST_NS);
    }
}
