//! Exponential backoff for knobs that the plant refuses: 10 s, doubled with each refusal.

use pilotlight_plant::{NEVER, Refusal};

/// The first and the longest backoff, in nanoseconds; chosen.
const FIRST_NS: u64 = 10_000_000_000;
const LONGEST_NS: u64 = 640_000_000_000;

/// Time until which a knob is not set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    until_ns: u64,
    /// Length of the next backoff.
    next_ns: u64,
}

impl Default for Backoff {
    /// No backoff.
    fn default() -> Self {
        Self { until_ns: 0, next_ns: FIRST_NS }
    }
}

impl Backoff {
    /// When it ends; [`NEVER`] for a knob that the plant does not support.
    pub(crate) fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// Whether the knob may be set.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        self.until_ns <= now_ns
    }

    /// Starts a backoff after a refusal.
    pub(crate) fn on_refused(&mut self, now_ns: u64, refusal: Refusal) {
        if refusal != Refusal::Failed {
            self.until_ns = NEVER;
            return;
        }
        if self.until_ns.saturating_add(LONGEST_NS) < now_ns {
            self.next_ns = FIRST_NS; // the knob worked for a long time
        }
        self.until_ns = now_ns.saturating_add(self.next_ns);
        self.next_ns = (2 * self.next_ns).min(LONGEST_NS);
    }
}
