//! Goals that an operator sets for a policy.

use crate::knob::Scope;
use crate::reading::Stat;

/// A kind of goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// [`Goals::budget_uw`].
    Budget,
    /// [`Goals::tolerances`].
    Tolerance,
    /// [`Goals::priorities`].
    Priorities,
}

/// The goals in force. They can change at any time while a policy runs ([`crate::Policy::on_goals`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Goals {
    /// Power budget in microwatts; `None` for no limit.
    pub budget_uw: Option<u64>,
    /// Latency tolerances of the server and of namespaces, at most one of each; empty for no limit.
    pub tolerances: Vec<Tolerance>,
    /// Priorities: the higher the number, the later it is throttled. The default is 0.
    pub priorities: Vec<(Scope, u8)>,
    /// Minimum bandwidth of each namespace and host of a priority under a budget, in bytes per second.
    pub minimums: Vec<(u8, u64)>,
}

/// Upper bound of a latency statistic of the server or of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// [`Scope::Server`] or a [`Scope::Namespace`].
    pub scope: Scope,
    /// The bounded statistic ([`crate::Quantity::LatencyNs`]).
    pub stat: Stat,
    /// The bound.
    pub bound: Bound,
}

/// Upper bound of a latency statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Relative: millionths above the value without power saving (`plf` of PACER).
    LossPpm(u32),
    /// Absolute, in nanoseconds.
    LatencyNs(u64),
}

impl Tolerance {
    /// The tolerance of PACER: the mean latency of all requests may exceed that without power saving by `ppm` millionths.
    #[must_use]
    pub const fn mean_loss(ppm: u32) -> Self {
        Self { scope: Scope::Server, stat: Stat::Mean, bound: Bound::LossPpm(ppm) }
    }
}

/// A goal that a policy cannot reach with its knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// The goal.
    pub goal: Goal,
    /// The reachable value in the goal's unit: for a budget the power with all knobs at their lowest.
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
    /// The name for output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Drives => "drives",
        }
    }
}

/// What keeps a policy from saving more power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The load needs what is in use.
    Load,
    /// Less would exceed the latency tolerance.
    Tolerance,
    /// A power budget carries no more than what is in use.
    Budget,
    /// There is nothing more to save.
    Floor,
    /// Latency without savings is being measured.
    Measurement,
}

impl Limit {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Load, Self::Tolerance, Self::Budget, Self::Floor, Self::Measurement];

    /// The name for output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Tolerance => "tolerance",
            Self::Budget => "budget",
            Self::Floor => "floor",
            Self::Measurement => "measurement",
        }
    }
}

/// What limits a policy, and how much of the latency tolerance it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What limits it.
    pub limit: Limit,
    /// Estimated rise of latency above that without savings, in nanoseconds; [`crate::NEVER`] if it has no bound.
    pub rise_ns: u64,
    /// The rise that the tolerance allows, in nanoseconds; [`crate::NEVER`] if it has no bound.
    pub allowed_ns: u64,
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

    /// The class of a host's requests to a namespace: the lower of the two priorities, ignoring one that is not set.
    #[must_use]
    pub fn class(&self, host: Scope, namespace: Scope) -> u8 {
        [host, namespace].into_iter().filter_map(|of| self.named_priority(of)).min().unwrap_or(0)
    }

    /// Minimum bandwidth of a namespace or host of this priority, in bytes per second.
    #[must_use]
    pub fn minimum(&self, priority: u8) -> u64 {
        self.minimums.iter().find(|(named, _)| *named == priority).map_or(0, |&(_, bytes_per_s)| bytes_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_a_request_is_the_lower_configured_priority() {
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
