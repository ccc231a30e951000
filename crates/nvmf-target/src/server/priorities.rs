//! Priorities of namespaces and hosts, and tolerances of namespaces: stored by name, passed to the policy by number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pilotlight_plant::{Goals, Scope, Tolerance};

use super::{Capped, Server, Shared};
use crate::caps::Limit;
use crate::thread::classes::Classes;

/// The operator's priorities of namespaces and hosts.
#[derive(Debug, Default)]
pub(super) struct Priorities {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    named: Vec<(Capped, u8)>,
    /// Tolerances of namespaces.
    tolerances: Vec<(Capped, Tolerance)>,
    /// Keeps the numbers of hosts with a priority.
    hosts: Vec<Arc<Limit>>,
    /// The goals without these priorities and tolerances.
    goals: Goals,
    /// The last goals passed to the policy.
    published: Option<Goals>,
}

impl Priorities {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Updates the classes for these priorities and the current namespaces.
    pub(super) fn update_classes(&self, named: &[(Capped, u8)]) {
        self.placement.set_classes(self.classify(named));
    }

    fn classify(&self, named: &[(Capped, u8)]) -> Classes {
        let priority = |of: &Capped| named.iter().find(|(known, _)| known == of).map(|&(_, priority)| priority);
        let hosts: HashMap<_, _> = named
            .iter()
            .filter_map(|(of, priority)| match of {
                Capped::Host { nqn } => Some((nqn.clone(), *priority)),
                Capped::Namespace { .. } => None,
            })
            .collect();
        let state = self.state();
        let one = |(at, entry): (usize, &super::Entry)| {
            let of = |&nsid| Capped::Namespace { nqn: entry.subsystem.nqn().to_owned(), nsid };
            (state.directory.allowed_hosts(at), entry.namespaces.keys().map(|nsid| priority(&of(nsid))).collect())
        };
        let subsystems: Vec<_> = state.subsystems.iter().enumerate().map(one).collect();
        Classes::new(hosts, &subsystems, self.counters.len())
    }

    /// Priorities by the policies' numbers; missing namespaces are omitted.
    fn numbered(&self, named: &[(Capped, u8)]) -> (Vec<(Scope, u8)>, Vec<Arc<Limit>>) {
        let namespaces = self.namespace_limits();
        let mut hosts = Vec::new();
        let number = |(of, priority): &(Capped, u8)| {
            let limit = match of {
                Capped::Host { nqn } => {
                    hosts.push(self.host_limit(nqn));
                    hosts.last()
                }
                Capped::Namespace { .. } => namespaces.iter().find(|(known, _)| known == of).map(|(_, limit)| limit),
            };
            Some((self.caps.number_of(limit?)?, *priority))
        };
        (named.iter().filter_map(number).collect(), hosts)
    }

    /// Tolerances by the policies' numbers; missing namespaces are omitted.
    fn numbered_tolerances(&self, named: &[(Capped, Tolerance)]) -> Vec<Tolerance> {
        let namespaces = self.namespace_limits();
        let number = |(of, tolerance): &(Capped, Tolerance)| {
            let (_, limit) = namespaces.iter().find(|(known, _)| known == of)?;
            Some(Tolerance { scope: self.caps.number_of(limit)?, ..*tolerance })
        };
        named.iter().filter_map(number).collect()
    }
}

impl Server {
    /// Sets the goals of the current policy and its successors. Priorities and tolerances by name ([`Server::set_priorities`],
    /// [`Server::set_tolerances`]) are added.
    pub fn set_goals(&self, goals: Goals) {
        let mut state = self.priorities.state();
        state.goals = goals;
        self.update_goals(&mut state);
    }

    /// Replaces the priorities of namespaces and hosts, which need not exist yet. Existing connections stay on their I/O
    /// threads; new ones are placed by class.
    pub fn set_priorities(&self, named: Vec<(Capped, u8)>) {
        let host = |(of, _): &(Capped, u8)| match of {
            Capped::Host { nqn } => Some(nqn.clone()),
            Capped::Namespace { .. } => None,
        };
        self.shared.list_hosts(&named.iter().filter_map(host).collect::<Vec<_>>());
        let mut state = self.priorities.state();
        state.named = named;
        self.update_priorities(&mut state);
    }

    /// Replaces the tolerances of namespaces, which need not exist yet; the `of` fields are ignored.
    pub fn set_tolerances(&self, named: Vec<(Capped, Tolerance)>) {
        let mut state = self.priorities.state();
        state.tolerances = named;
        self.update_goals(&mut state);
    }

    /// Handles added or removed namespaces.
    pub(super) fn note_namespaces(&self) {
        self.runtime.plant_changed();
        self.update_priorities(&mut self.priorities.state());
    }

    fn update_priorities(&self, state: &mut State) {
        self.shared.update_classes(&state.named);
        self.update_goals(state);
        self.notices.notify();
    }

    fn update_goals(&self, state: &mut State) {
        let mut goals = state.goals.clone();
        let (numbered, hosts) = self.shared.numbered(&state.named);
        goals.priorities.extend(numbered);
        goals.tolerances.extend(self.shared.numbered_tolerances(&state.tolerances));
        state.hosts = hosts;
        if state.published.as_ref() != Some(&goals) {
            state.published = Some(goals.clone());
            self.runtime.set_goals(goals);
        }
    }
}
