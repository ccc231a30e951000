//! The tolerance in force, as the operator gave it.

use pilotlight_plant::{Bound, Goals, Of, Stat, Tolerance as Asked};

/// The paper's tolerance (V-A1), which holds where the operator gives none.
pub(super) const PLF: f64 = 0.2;

/// How long requests may take because of savings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerance {
    /// The statistic of latency that it bounds.
    pub(super) stat: Stat,
    bound: Bound,
}

impl Tolerance {
    /// That of these goals for the whole server; tolerances of namespaces are not used yet.
    pub(super) fn of(goals: &Goals) -> Self {
        let paper = Asked::mean_loss((PLF * 1e6) as u32);
        let Asked { stat, bound, .. } = goals.tolerance(Of::Server).unwrap_or(paper);
        Self { stat, bound }
    }

    /// The `plf` where requests take `baseline_ns` without savings. At 0 nothing is saved that costs latency.
    pub(super) fn plf(&self, baseline_ns: f64) -> f64 {
        match self.bound {
            Bound::LossPpm(ppm) => f64::from(ppm) / 1e6,
            Bound::LatencyNs(ns) if baseline_ns > 0.0 => (ns as f64 / baseline_ns - 1.0).max(0.0),
            Bound::LatencyNs(_) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_bound_is_the_loss_that_is_left() {
        let of = |bound| Tolerance { stat: Stat::P99, bound }.plf(80_000.0);
        assert_eq!(of(Bound::LatencyNs(100_000)), 0.25);
        assert_eq!(of(Bound::LatencyNs(70_000)), 0.0, "latency is above it without savings");
        assert_eq!(of(Bound::LossPpm(50_000)), 0.05);
        assert_eq!(Tolerance::of(&Goals::default()).plf(1.0), PLF);
    }
}
