//! The tolerance in force, as the operator gave it.

use pilotlight_plant::{Goals, Stat};

/// The paper's tolerance (V-A1), which holds where the operator gives none.
pub(super) const PLF: f64 = 0.2;

/// How much longer requests may take because of savings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerance {
    /// The statistic of latency that it bounds.
    pub(super) stat: Stat,
    /// The bound.
    pub(super) bound: Bound,
}

/// The highest value of a statistic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    /// Relative to latency without savings: the paper's `plf`.
    Loss(f64),
}

impl Tolerance {
    /// That of these goals.
    pub(super) fn of(goals: &Goals) -> Self {
        let loss = goals.tolerance_ppm.map_or(PLF, |ppm| f64::from(ppm) / 1e6);
        Self { stat: Stat::Mean, bound: Bound::Loss(loss) }
    }

    /// The `plf` where requests take `baseline_ns` without savings. At 0 nothing is saved that costs latency.
    pub(super) fn plf(&self, _baseline_ns: f64) -> f64 {
        match self.bound {
            Bound::Loss(loss) => loss,
        }
    }
}
