//! How much assumed constants shift a row.

use std::collections::BTreeMap;

use pilotlight_stats::Estimate;

use super::verdict::Verdict;

/// What draws of the assumed constants do to a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shift {
    /// Draws.
    pub draws: usize,
    /// How far the interval reaches further down, in the unit of the row; at most 0.
    pub below: f64,
    /// How far it reaches further up; at least 0.
    pub above: f64,
    /// Whether it holds in a draw, and not in the short run with the constants as they are.
    pub comes_out: bool,
    /// Whether it misses in a draw, and not in the short run with the constants as they are.
    pub misses: bool,
}

/// Shifts by claim.
pub type Shifts = BTreeMap<String, Shift>;

impl Shift {
    /// An interval that includes the constants.
    pub(super) fn widen(&self, ours: Estimate) -> Estimate {
        Estimate { low: ours.low + self.below, high: ours.high + self.above, ..ours }
    }

    /// The verdict of a statement without a number.
    pub(super) const fn judge(&self, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::ComesOut if self.misses => Verdict::Undecided,
            Verdict::Misses if self.comes_out => Verdict::Undecided,
            other => other,
        }
    }
}
