//! Which goals are in force: those set manually, over the schedule, over the configuration.

use pilotlight_nvmf_target::Capped;
use pilotlight_plant::{Goals, Scope};
use serde::{Deserialize, Serialize};

use crate::config::{BudgetDomain, BudgetRequest, LatencyBound, NamespaceTolerance, Operation, Priority, Schedule};

/// Goals of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct Configured {
    pub(in crate::serve) goals: Goals,
    pub(in crate::serve) priorities: Vec<Priority>,
    /// Scope namespaces.
    pub(in crate::serve) tolerances: Vec<NamespaceTolerance>,
    pub(in crate::serve) domain: Option<BudgetDomain>,
    pub(in crate::serve) schedule: Option<Schedule>,
}

/// Goals set over the control socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::serve) struct GoalOverrides {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) budget: Option<BudgetOverride>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) domain: Option<BudgetDomain>,
    /// Scope the server where nothing is named; `None` is `off`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::serve) tolerances: Vec<(Option<Named>, Option<LatencyBound>)>,
    /// Scope namespaces and hosts; `None`: it has none.
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
        }
    }
}

impl Configured {
    /// Scope what was read.
    pub(in crate::serve) fn of(operation: &Operation) -> Self {
        let Operation { goals, priorities, tolerances, domain, schedule, .. } = operation;
        let (priorities, tolerances) = (priorities.clone(), tolerances.clone());
        Self { goals: goals.clone(), priorities, tolerances, domain: *domain, schedule: schedule.clone() }
    }

    /// Whether there is, or will be, a budget.
    pub(in crate::serve) fn has_budget(&self) -> bool {
        self.goals.budget_uw.is_some() || self.schedule.is_some()
    }

    /// The budget in force at a moment.
    pub(in crate::serve) fn budget(&self, overrides: &GoalOverrides, now_s: u64) -> InForce {
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
            tolerances: self.tolerance(overrides).into_iter().map(|bound| bound.of(Scope::Server)).collect(),
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
mod tests {
    use pilotlight_plant::Tolerance;

    use super::*;
    use crate::config::parse_tolerance;

    const W: u64 = 1_000_000;

    fn configured(schedule: Option<&str>) -> Configured {
        let goals = Goals { budget_uw: Some(400 * W), ..Goals::default() };
        Configured {
            goals,
            priorities: Vec::new(),
            tolerances: Vec::new(),
            domain: None,
            schedule: schedule.map(|text| Schedule::parse(text).unwrap()),
        }
    }

    fn overrides(budget_uw: Option<u64>, until_s: Option<u64>) -> GoalOverrides {
        GoalOverrides { budget: Some(BudgetOverride { budget_uw, until_s }), ..GoalOverrides::default() }
    }

    #[test]
    fn the_hand_is_over_the_schedule_and_that_over_the_configuration() {
        let configured = configured(Some("1970-01-01T00:01Z 300W\n1970-01-01T00:02Z default\n1970-01-01T00:03Z off"));
        let at = |now_s| configured.budget(&GoalOverrides::default(), now_s);
        let conf = |until_s| InForce { budget_uw: Some(400 * W), origin: Origin::Configuration, until_s };
        assert_eq!(at(0), conf(Some(60)));
        assert_eq!(at(60), InForce { budget_uw: Some(300 * W), origin: Origin::Schedule, until_s: Some(120) });
        assert_eq!(at(120), conf(Some(180)));
        assert_eq!(at(180), InForce { budget_uw: None, origin: Origin::Schedule, until_s: None });
        let hand = |hand: &GoalOverrides, now_s| configured.budget(hand, now_s);
        let limited = overrides(Some(200 * W), Some(100));
        assert_eq!(
            hand(&limited, 99),
            InForce { budget_uw: Some(200 * W), origin: Origin::Manual, until_s: Some(100) }
        );
        assert_eq!(hand(&limited, 100), at(100), "it has ended");
        assert_eq!(hand(&overrides(None, None), 0), InForce { budget_uw: None, origin: Origin::Manual, until_s: None });
    }

    #[test]
    fn an_expired_budget_is_dropped_once() {
        let mut hand = overrides(Some(W), Some(100));
        assert!(!hand.expire(99) && hand.budget.is_some());
        assert!(hand.expire(100) && hand == GoalOverrides::default());
        assert!(!hand.expire(101));
    }

    #[test]
    fn priorities_and_minimums_by_hand_are_over_those_of_the_configuration() {
        let host = |name: &str| Capped::Host { nqn: name.to_owned() };
        let goals = Goals { minimums: vec![(5, 100), (6, 200)], ..Goals::default() };
        let priorities = vec![(host("a"), 5), (host("b"), 6)];
        let configured = Configured { goals, priorities, ..Configured::default() };
        let named = |name: &str| Named::from(host(name));
        let priorities = vec![(named("a"), Some(1)), (named("b"), None), (named("c"), Some(9))];
        let hand = GoalOverrides { priorities, minimums: vec![(5, None), (7, Some(300))], ..GoalOverrides::default() };
        assert_eq!(configured.priorities(&hand), [(host("a"), 1), (host("c"), 9)]);
        assert_eq!(configured.goals(&hand, 0).minimums, [(6, 200), (7, 300)]);
        assert_eq!(configured.priorities(&GoalOverrides::default()), configured.priorities);
    }

    #[test]
    fn a_tolerance_by_hand_is_one_also_if_it_is_off() {
        let bound = |text: &str| parse_tolerance(text).unwrap();
        let goals = Goals { tolerances: vec![Tolerance::mean_loss(7)], ..Goals::default() };
        let configured = Configured { goals, ..Configured::default() };
        let tolerances = |overrides: Option<&str>| {
            let tolerances = overrides.map(|text| (None, bound(text))).into_iter().collect();
            configured.goals(&GoalOverrides { tolerances, ..GoalOverrides::default() }, 0).tolerances
        };
        let (before, after) = (Tolerance::mean_loss(7), bound("500us p99").unwrap().of(Scope::Server));
        assert_eq!([None, Some("off"), Some("500us p99")].map(tolerances), [vec![before], vec![], vec![after]]);
        let namespace = |nsid| Capped::Namespace { nqn: "a".to_owned(), nsid };
        let configured = Configured { tolerances: vec![(namespace(1), bound("20%").unwrap())], ..configured };
        let tolerances =
            vec![(None, None), (Some(namespace(1).into()), None), (Some(namespace(2).into()), bound("1ms"))];
        let overrides = GoalOverrides { tolerances, ..GoalOverrides::default() };
        assert_eq!(configured.tolerances(&overrides), [(namespace(2), bound("1ms").unwrap())]);
        assert_eq!(configured.tolerances(&GoalOverrides::default()), configured.tolerances);
    }
}
