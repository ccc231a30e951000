//! What an operator asks of a policy.

use crate::knob::Scope;
use crate::reading::Stat;

/// What an operator can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// [`Goals::budget_uw`].
    Budget,
    /// [`Goals::tolerances`].
    Tolerance,
    /// [`Goals::priorities`].
    Priorities,
}

/// What holds until it is changed, at any moment, without another policy ([`crate::Policy::on_goals`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Goals {
    /// Most power that may be drawn, in microwatts; `None` for no limit.
    pub budget_uw: Option<u64>,
    /// How long requests may take, of the server or of a namespace; at most one of each. Without any it does not matter.
    pub tolerances: Vec<Tolerance>,
    /// What matters more than the rest: the higher the number, the later it is throttled. What is not named has 0.
    pub priorities: Vec<(Scope, u8)>,
    /// Bandwidth that each namespace and each host of a priority keeps under a budget, in bytes a second.
    pub minimums: Vec<(u8, u64)>,
}

/// How long the requests of the server or of a namespace may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// Whose requests: [`Scope::Server`] or an [`Scope::Namespace`].
    pub scope: Scope,
    /// The statistic of their latency that the bound is for ([`crate::Quantity::LatencyNs`]).
    pub stat: Stat,
    /// The highest value it may have.
    pub bound: Bound,
}

/// The highest value of a latency statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Relative: so many millionths above the value without saving (the `plf` of PACER).
    LossPpm(u32),
    /// Absolute, in nanoseconds.
    LatencyNs(u64),
}

impl Tolerance {
    /// The form of PACER: the mean latency of all requests may exceed that without saving by so many millionths.
    #[must_use]
    pub const fn mean_loss(ppm: u32) -> Self {
        Self { scope: Scope::Server, stat: Stat::Mean, bound: Bound::LossPpm(ppm) }
    }
}

/// A goal that a policy does not reach with all that it may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Which.
    pub goal: Goal,
    /// What is reached instead, in the goal's unit: for a budget the power that is drawn with everything at its lowest.
    pub reached: u64,
}

/// A component of the server whose power a policy can limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The CPU packages.
    Cpu,
    /// The drives.
    Drives,
}

impl Component {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Drives => "drives",
        }
    }
}

impl Goals {
    /// The tolerance of the server or of a namespace.
    #[must_use]
    pub fn tolerance(&self, scope: Scope) -> Option<Tolerance> {
        self.tolerances.iter().copied().find(|tolerance| tolerance.scope == scope)
    }

    /// The priority of a host, a namespace or a class of background work.
    #[must_use]
    pub fn priority(&self, scope: Scope) -> u8 {
        self.named_priority(scope).unwrap_or(0)
    }

    fn named_priority(&self, scope: Scope) -> Option<u8> {
        self.priorities.iter().find(|(named, _)| *named == scope).map(|&(_, priority)| priority)
    }

    /// The class of a host's requests to a namespace: the lower priority of both; one that is not named says nothing.
    #[must_use]
    pub fn class(&self, host: Scope, namespace: Scope) -> u8 {
        [host, namespace].into_iter().filter_map(|of| self.named_priority(of)).min().unwrap_or(0)
    }

    /// Bandwidth that a namespace or a host of this priority keeps, in bytes a second.
    #[must_use]
    pub fn minimum(&self, priority: u8) -> u64 {
        self.minimums.iter().find(|(named, _)| *named == priority).map_or(0, |&(_, bytes_per_s)| bytes_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_a_request_is_the_lower_priority_of_what_is_named() {
        let (host, namespace) = (Scope::Host(1), Scope::Namespace(1));
        let class = |priorities: &[(Scope, u8)]| {
            Goals { priorities: priorities.to_vec(), ..Goals::default() }.class(host, namespace)
        };
        assert_eq!(class(&[]), 0);
        assert_eq!(class(&[(namespace, 3)]), 3);
        assert_eq!(class(&[(host, 2), (namespace, 3)]), 2);
        assert_eq!(class(&[(host, 2), (Scope::Host(2), 9)]), 2);
    }
}
