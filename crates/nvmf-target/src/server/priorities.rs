//! Priorities of namespaces and hosts, and tolerances of namespaces: kept by name, told to the policy by number, and what follows from
//! priorities for I/O threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pilotlight_plant::{Goals, Scope, Tolerance};

use super::{Capped, Server, Shared};
use crate::caps::Limit;
use crate::classes::Classes;

/// Namespaces and hosts with the priorities that the operator has given them.
#[derive(Debug, Default)]
pub(super) struct Priorities {
    state: Mutex<Named>,
    classes: Mutex<Arc<Classes>>,
    /// Deals connections round robin.
    next: AtomicUsize,
}

#[derive(Debug, Default)]
struct Named {
    named: Vec<(Capped, u8)>,
    /// Tolerances of namespaces.
    tolerances: Vec<(Capped, Tolerance)>,
    /// Hosts that have a priority keep their number.
    hosts: Vec<Arc<Limit>>,
    /// The goals as they were set, without these priorities and tolerances.
    goals: Goals,
    /// The goals as the policy was told them last.
    told: Option<Goals>,
}

impl Priorities {
    fn state(&self) -> MutexGuard<'_, Named> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn classes(&self) -> MutexGuard<'_, Arc<Classes>> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// The classes of connections. Takes a lock: for Connect.
    pub(super) fn classes(&self) -> Arc<Classes> {
        Arc::clone(&self.priorities.classes())
    }

    /// The I/O thread that is to serve a connection of this host, if it is not `here`.
    pub(crate) fn other_thread(&self, hostnqn: &str, subsystem: usize, here: u16) -> Option<u16> {
        let classes = self.classes();
        let threads = classes.threads(classes.of(hostnqn, subsystem)?);
        if threads.contains(&usize::from(here)) {
            return None;
        }
        let at = threads.start + self.priorities.next.fetch_add(1, Relaxed) % threads.len().max(1);
        Some(at as u16)
    }

    /// Brings the classes of connections up to date with these names and the namespaces that there are now.
    pub(super) fn update_classes(&self, named: &[(Capped, u8)]) {
        *self.priorities.classes() = Arc::new(self.classify(named));
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

    /// Namespaces and hosts as policies know them; names of namespaces that are not there are left out.
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

    /// Tolerances of the namespaces that are there.
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
    /// Asks the policy in charge, and those after it, for this from now on. Priorities and
    /// tolerances by name ([`Server::set_priorities`], [`Server::set_tolerances`]) are added.
    pub fn set_goals(&self, goals: Goals) {
        let mut state = self.shared.priorities.state();
        state.goals = goals;
        self.tell_goals(&mut state);
    }

    /// Gives these namespaces and hosts these priorities from now on, and all others none. They need not be there yet. Connections that
    /// are there stay on their I/O threads; new ones are placed by class.
    pub fn set_priorities(&self, named: Vec<(Capped, u8)>) {
        for (of, _) in &named {
            if let Capped::Host { nqn } = of {
                self.shared.listed_hosts.add(nqn);
            }
        }
        let mut state = self.shared.priorities.state();
        state.named = named;
        self.follow_priorities(&mut state);
    }

    /// Gives these namespaces these tolerances from now on, whatever those say they are of, and all others none. They need not be there yet.
    pub fn set_tolerances(&self, named: Vec<(Capped, Tolerance)>) {
        let mut state = self.shared.priorities.state();
        state.tolerances = named;
        self.tell_goals(&mut state);
    }

    /// Namespaces have come or gone.
    pub(super) fn note_namespaces(&self) {
        self.runtime.plant_changed();
        self.follow_priorities(&mut self.shared.priorities.state());
    }

    fn follow_priorities(&self, state: &mut Named) {
        self.shared.update_classes(&state.named);
        self.tell_goals(state);
        self.notices.ring();
    }

    fn tell_goals(&self, state: &mut Named) {
        let mut goals = state.goals.clone();
        let (numbered, hosts) = self.shared.numbered(&state.named);
        goals.priorities.extend(numbered);
        goals.tolerances.extend(self.shared.numbered_tolerances(&state.tolerances));
        state.hosts = hosts;
        if state.told.as_ref() != Some(&goals) {
            state.told = Some(goals.clone());
            self.runtime.set_goals(goals);
        }
    }
}
