//! How much assumed constants shift a row.

use std::collections::BTreeMap;

use pilotlight_stats::Estimate;

use super::verdict::Verdict;

/// The effect of the draws on a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shift {
    /// Number of draws.
    pub draws: usize,
    /// Extension of the interval downwards, in the unit of the row; at most 0.
    pub below: f64,
    /// Extension upwards; at least 0.
    pub above: f64,
    /// Whether it holds in a draw, but not in the nominal short run.
    pub reproduced: bool,
    /// Whether it misses in a draw, but not in the nominal short run.
    pub misses: bool,
}

/// Shifts by claim.
pub type Shifts = BTreeMap<String, Shift>;

impl Shift {
    /// Widens an interval.
    pub(super) fn widen(&self, ours: Estimate) -> Estimate {
        Estimate { low: ours.low + self.below, high: ours.high + self.above, ..ours }
    }

    /// The verdict of a statement without a number.
    pub(super) const fn judge(&self, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Reproduced if self.misses => Verdict::Undecided,
            Verdict::Misses if self.reproduced => Verdict::Undecided,
            other => other,
        }
    }
}
