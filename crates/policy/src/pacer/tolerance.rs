//! The tolerances in force.

use pilotlight_plant::{Bound, Goals, Scope, Stat, Tolerance as ToleranceGoal};

/// The paper's tolerance (V-A1), the default.
pub(super) const PLF: f64 = 0.2;

/// Allowed latency of the server or of a namespace under savings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerance {
    pub(super) scope: Scope,
    /// The bounded statistic of latency.
    pub(super) stat: Stat,
    bound: Bound,
}

impl Tolerance {
    /// The tolerances of these goals: the server's, by default the paper's, then those of namespaces.
    pub(super) fn all(goals: &Goals) -> impl Iterator<Item = Self> {
        let paper = ToleranceGoal::mean_loss((PLF * 1e6) as u32);
        let server = goals.tolerance(Scope::Server).unwrap_or(paper);
        let of_namespaces = goals.tolerances.iter().filter(|tolerance| matches!(tolerance.scope, Scope::Namespace(_)));
        [server].into_iter().chain(of_namespaces.copied()).map(|ToleranceGoal { scope, stat, bound }| Self {
            scope,
            stat,
            bound,
        })
    }

    /// Statistic and object, for display.
    pub(super) fn name(&self) -> String {
        let stat = self.stat.name();
        match self.scope {
            Scope::Namespace(id) => format!("{stat} of namespace {id}"),
            _ => format!("{stat} of the server"),
        }
    }

    /// Whether it is a bound below `baseline_ns`, which no policy can reach.
    pub(super) fn is_unreachable(&self, baseline_ns: f64) -> bool {
        matches!(self.bound, Bound::LatencyNs(ns) if (ns as f64) < baseline_ns)
    }

    /// The `plf` at this baseline. At 0 nothing that costs latency is saved.
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
    fn an_absolute_bound_becomes_a_relative_loss() {
        let of = |bound| Tolerance { scope: Scope::Server, stat: Stat::P99, bound }.plf(80_000.0);
        assert_eq!(of(Bound::LatencyNs(100_000)), 0.25);
        assert_eq!(of(Bound::LatencyNs(70_000)), 0.0, "latency is above it without savings");
        assert_eq!(of(Bound::LossPpm(50_000)), 0.05);
    }

    #[test]
    fn the_paper_tolerance_is_the_default_of_the_server() {
        let one = ToleranceGoal { scope: Scope::Namespace(7), stat: Stat::P50, bound: Bound::LossPpm(50_000) };
        let goals = Goals { tolerances: vec![one], ..Goals::default() };
        let all: Vec<_> = Tolerance::all(&goals).map(|tolerance| (tolerance.scope, tolerance.plf(1.0))).collect();
        assert_eq!(all, [(Scope::Server, PLF), (Scope::Namespace(7), 0.05)]);
    }
}
