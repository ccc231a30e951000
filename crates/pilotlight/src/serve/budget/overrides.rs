//! Which goals are in force: those set manually, over the schedule, over the configuration.

use pilotlight_nvmf_target::Capped;
use pilotlight_plant::{Goals, Scope};
use serde::{Deserialize, Serialize};

use crate::config::{BudgetRequest, LatencyBound, NamespaceTolerance, Operation, Priority, Schedule};
use crate::policies::BudgetDomain;

/// Goals of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct Configured {
    pub(in crate::serve) goals: Goals,
    pub(in crate::serve) priorities: Vec<Priority>,
    /// Of namespaces.
    pub(in crate::serve) tolerances: Vec<NamespaceTolerance>,
    pub(in crate::serve) domain: Option<BudgetDomain>,
    pub(in crate::serve) schedule: Option<Schedule>,
    /// The limit that has a deadline, in microwatts, which no budget exceeds; at first the floor. `None` without a floor.
    pub(in crate::serve) limit_uw: Option<u64>,
}

/// Goals set over the control socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::serve) struct GoalOverrides {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) budget: Option<BudgetOverride>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) domain: Option<BudgetDomain>,
    /// By scope; without a name: of the server; `None` is `off`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::serve) tolerances: Vec<(Option<Named>, Option<LatencyBound>)>,
    /// Of namespaces and hosts; `None`: no priority.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::serve) priorities: Vec<(Named, Option<u8>)>,
    /// By priority, in bytes a second; `None`: there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::serve) minimums: Vec<(u8, Option<u64>)>,
}

/// A namespace or a host, as the state file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(in crate::serve) enum Named {
    Namespace { nqn: String, nsid: u32 },
    Host { host: String },
}

impl From<Capped> for Named {
    fn from(of: Capped) -> Self {
        match of {
            Capped::Namespace { nqn, nsid } => Self::Namespace { nqn, nsid },
            Capped::Host { nqn } => Self::Host { host: nqn },
        }
    }
}

impl From<Named> for Capped {
    fn from(of: Named) -> Self {
        match of {
            Named::Namespace { nqn, nsid } => Self::Namespace { nqn, nsid },
            Named::Host { host } => Self::Host { nqn: host },
        }
    }
}

/// A budget that was set manually.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::serve) struct BudgetOverride {
    /// In microwatts; `None` is `off`.
    pub(in crate::serve) budget_uw: Option<u64>,
    /// When it ends, in seconds since 1970; `None`: when another is set.
    pub(in crate::serve) until_s: Option<u64>,
}

/// The source of the budget in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Origin {
    Configuration,
    Schedule,
    Manual,
    Limit,
}

/// The budget in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) struct InForce {
    /// In microwatts.
    pub(in crate::serve) budget_uw: Option<u64>,
    pub(in crate::serve) origin: Origin,
    /// When the budget may change, in seconds since 1970.
    pub(in crate::serve) until_s: Option<u64>,
}

impl Origin {
    /// For people.
    pub(in crate::serve) fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Schedule => "schedule",
            Self::Manual => "manual",
            Self::Limit => "limit",
        }
    }
}

impl Configured {
    /// Values of the configuration file.
    pub(in crate::serve) fn from_operation(operation: &Operation) -> Self {
        let Operation { goals, priorities, tolerances, domain, schedule, floor_uw, .. } = operation;
        let limit_uw = *floor_uw;
        let (priorities, tolerances) = (priorities.clone(), tolerances.clone());
        Self { goals: goals.clone(), priorities, tolerances, domain: *domain, schedule: schedule.clone(), limit_uw }
    }

    /// Whether there is, or will be, a budget.
    pub(in crate::serve) fn has_budget(&self) -> bool {
        self.goals.budget_uw.is_some() || self.schedule.is_some() || self.limit_uw.is_some()
    }

    /// The budget in force at a moment: the operator's, or the limit if that is lower.
    pub(in crate::serve) fn budget(&self, overrides: &GoalOverrides, now_s: u64) -> InForce {
        let own = self.own_budget(overrides, now_s);
        match self.limit_uw {
            Some(limit_uw) if own.budget_uw.is_none_or(|own_uw| limit_uw < own_uw) => {
                InForce { budget_uw: Some(limit_uw), origin: Origin::Limit, until_s: own.until_s }
            }
            _ => own,
        }
    }

    fn own_budget(&self, overrides: &GoalOverrides, now_s: u64) -> InForce {
        if let Some(hand) = overrides.budget.filter(|hand| hand.is_in_force(now_s)) {
            return InForce { budget_uw: hand.budget_uw, origin: Origin::Manual, until_s: hand.until_s };
        }
        let until_s = self.schedule.as_ref().and_then(|schedule| schedule.next(now_s)).map(|next| next.at_s);
        let (budget_uw, origin) = match self.schedule.as_ref().and_then(|schedule| schedule.at(now_s)) {
            Some(BudgetRequest::Power(uw)) => (Some(uw), Origin::Schedule),
            Some(BudgetRequest::Off) => (None, Origin::Schedule),
            Some(BudgetRequest::Default) | None => (self.goals.budget_uw, Origin::Configuration),
        };
        InForce { budget_uw, origin, until_s }
    }

    /// All goals in force at a moment.
    pub(in crate::serve) fn goals(&self, overrides: &GoalOverrides, now_s: u64) -> Goals {
        Goals {
            budget_uw: self.budget(overrides, now_s).budget_uw,
            tolerances: self.tolerance(overrides).into_iter().map(|bound| bound.in_scope(Scope::Server)).collect(),
            priorities: Vec::new(), // by name: `priorities`
            minimums: over(&self.goals.minimums, &overrides.minimums),
        }
    }

    /// Tolerances of namespaces in force.
    pub(in crate::serve) fn tolerances(&self, overrides: &GoalOverrides) -> Vec<NamespaceTolerance> {
        let named = overrides.tolerances.iter().filter_map(|(of, bound)| Some((of.clone()?.into(), *bound)));
        over(&self.tolerances, &named.collect::<Vec<_>>())
    }

    /// The tolerance of the server.
    fn tolerance(&self, overrides: &GoalOverrides) -> Option<LatencyBound> {
        let set = overrides.tolerances.iter().find(|(of, _)| of.is_none());
        set.map_or_else(|| self.goals.tolerance(Scope::Server).map(LatencyBound::from), |(_, bound)| *bound)
    }

    /// Priorities in force.
    pub(in crate::serve) fn priorities(&self, overrides: &GoalOverrides) -> Vec<Priority> {
        let set: Vec<_> = overrides.priorities.iter().map(|(of, priority)| (of.clone().into(), *priority)).collect();
        over(&self.priorities, &set)
    }
}

/// Overrides merged into configured values; in order, so that equal results compare equal.
fn over<K: Clone + PartialEq, V: Copy>(configured: &[(K, V)], overrides: &[(K, Option<V>)]) -> Vec<(K, V)> {
    let is_set = |key: &K| overrides.iter().any(|(set, _)| set == key);
    let kept = configured.iter().filter(|(key, _)| !is_set(key)).cloned();
    kept.chain(overrides.iter().filter_map(|(key, value)| Some((key.clone(), (*value)?)))).collect()
}

impl GoalOverrides {
    /// Without a budget that has ended, and its domain; whether there was one.
    pub(in crate::serve) fn expire(&mut self, now_s: u64) -> bool {
        let has_ended = self.budget.take_if(|hand| !hand.is_in_force(now_s)).is_some();
        self.domain.take_if(|_| has_ended);
        has_ended
    }
}

impl BudgetOverride {
    fn is_in_force(&self, now_s: u64) -> bool {
        self.until_s.is_none_or(|until_s| now_s < until_s)
    }
}

#[cfg(test)]
mod tests;
