//! Priorities and minimums of a running server, set over the control socket.

use anyhow::anyhow;
use pilotlight_nvmf_target::Capped;

use super::Admin;
use super::namespaces::find_target;
use crate::admin::refusal::Refusal;
use crate::admin::request::{MinimumRequest, PriorityRequest, Target};
use crate::config::{parse_minimum, parse_priority};
use crate::serve::budget::{self, Named};
use crate::serve::state::State;
use crate::status::measure;
use crate::status::report::PrioritiesReport;

/// Restores the value of the configuration.
const DEFAULT: &str = "default";

impl Admin {
    /// Gives a namespace or a host another priority.
    pub(super) fn set_priority(&self, request: &PriorityRequest) -> Result<PrioritiesReport, Refusal> {
        let priority =
            parsed(&request.priority, parse_priority).map_err(|what| Refusal::for_field("priority", what))?;
        let mut state = self.state();
        let target = request.target()?;
        let of = find_target(&state, target).or_else(|refusal| removed_namespace(&state, target).ok_or(refusal))?;
        put(&mut state.goal_overrides.priorities, &Named::from(of), priority);
        Ok(self.priorities_have_changed(&mut state))
    }

    /// Lets each namespace and each host of a priority keep another bandwidth under a budget.
    pub(super) fn set_minimum(&self, request: &MinimumRequest) -> Result<PrioritiesReport, Refusal> {
        let minimum = parsed(&request.min_bytes_per_s, parse_minimum)
            .map_err(|what| Refusal::for_field("min_bytes_per_s", what))?;
        let class = u8::try_from(request.priority).map_err(|_| {
            Refusal::for_field("priority", format!("{} is not a priority", request.priority)).help("use 0 to 255")
        })?;
        let mut state = self.state();
        put(&mut state.goal_overrides.minimums, &class, minimum);
        Ok(self.priorities_have_changed(&mut state))
    }

    fn priorities_have_changed(&self, state: &mut State) -> PrioritiesReport {
        self.follow(state, budget::now_s());
        self.keep(state);
        self.goals_have_changed();
        priorities(state)
    }
}

/// Priorities in force, those of namespaces that are not there included.
pub(super) fn priorities(state: &State) -> PrioritiesReport {
    let is_manual = |of: &Capped| {
        let set = |(named, _): &(Named, Option<u8>)| Capped::from(named.clone()) == *of;
        state.goal_overrides.priorities.iter().any(set)
    };
    let named = state.operation.priorities.iter().map(|(of, priority)| (of, *priority, is_manual(of)));
    measure::priorities(named, &state.operation.goals, &state.active_policy)
}

/// A removed namespace that has a priority, configured or set manually.
fn removed_namespace(state: &State, target: Target<'_>) -> Option<Capped> {
    let Target::Namespace { nqn: subsystem, nsid: number } = target else { return None };
    let overridden = state.goal_overrides.priorities.iter().map(|(of, _)| Capped::from(of.clone()));
    let mut all = state.operation.priorities.iter().map(|(of, _)| of.clone()).chain(overridden);
    all.find(|of| match of {
        Capped::Namespace { nqn, nsid } => {
            i64::from(*nsid) == number && subsystem.is_none_or(|subsystem| subsystem == nqn)
        }
        Capped::Host { .. } => false,
    })
}

/// The requested value; `None` for `default`.
fn parsed<T>(text: &str, parse: impl Fn(&str) -> anyhow::Result<Option<T>>) -> anyhow::Result<Option<Option<T>>> {
    match text {
        DEFAULT => Ok(None),
        _ => parse(text).map(Some).map_err(|what| anyhow!("{what}, or {DEFAULT} for that of the configuration")),
    }
}

/// Sets an override; `None` removes it.
fn put<K: Clone + PartialEq, V>(all: &mut Vec<(K, Option<V>)>, key: &K, value: Option<Option<V>>) {
    all.retain(|(known, _)| known != key);
    all.extend(value.map(|value| (key.clone(), value)));
}
