//! The register of associations, and of the queues that each host has.
//!
//! # The problem
//! A host that comes back must not be let in while a write of its earlier association can still land. Its earlier
//! association may look alive: the packet that ends the admin queue can be lost while those that end the I/O queues arrive.
//! So it is queues that count, not associations.
//!
//! # The algorithm
//! The register is indexed by host. For each host it holds the addresses of its queues, the number of associations that have
//! ended and are not drained, and the number of queues that are lost and have requests in a backend. A Connect on an admin
//! queue asks the I/O threads that serve queues of its host to look for closed connections (a barrier), and then waits until
//! both numbers are 0. Queues that are in use do not count: the second path of a multipath host must not wait for the
//! commands of the first.
//!
//! # The properties
//! - An association leaves the register only after every one of its queues is gone with nothing in flight.
//! - A host that is not draining has no request in a backend from a queue whose end has been seen.
//! - No operation looks at other hosts: many hosts that reconnect at once cost each of them the same.
//!
//! The register is behind a lock and is used for Connect and for the end of queues and associations only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::association::{Association, HostKey, Origin};
use crate::config::ControllerIds;
use crate::message::ConnAddr;
use crate::server::Bell;
use crate::views::Views;

/// Every association of the server, and every queue of a host.
#[derive(Debug, Default)]
pub struct Register {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    associations: HashMap<u16, Arc<Association>>,
    hosts: HashMap<HostKey, Host>,
    /// Which namespaces each host sees.
    views: Arc<Views>,
    /// Ranges that subsystems have for themselves.
    reserved: Vec<ControllerIds>,
    /// The identifier that was given last, of each range.
    last: HashMap<ControllerIds, u16>,
    /// Rung when queues come and go.
    on_queue: Option<Bell>,
}

/// What the register holds for a host.
#[derive(Debug, Default)]
struct Host {
    /// Connections that are queues of this host, or wait in Connect.
    queues: Vec<ConnAddr>,
    /// Associations that have ended and are not drained.
    dead: u32,
    /// Queues that are lost and have requests in a backend.
    undrained: u32,
}

impl Host {
    fn is_draining(&self) -> bool {
        self.dead > 0 || self.undrained > 0
    }

    fn is_unused(&self) -> bool {
        self.queues.is_empty() && !self.is_draining()
    }
}

impl Register {
    /// Notes a queue of `host`; `false`, and nothing is noted, if the host has `most` queues already.
    #[must_use]
    pub fn enter(&self, host: &HostKey, queue: ConnAddr, most: u32) -> bool {
        let mut inner = self.lock();
        let queues = inner.hosts.get(host).map_or(0, |host| host.queues.len());
        if queues >= most as usize {
            return false;
        }
        inner.host(host).queues.push(queue);
        inner.on_queue.iter().for_each(Bell::ring);
        true
    }

    /// Forgets a queue of `host`.
    pub fn leave(&self, host: &HostKey, queue: ConnAddr) {
        let mut inner = self.lock();
        inner.change(host, |host| host.queues.retain(|other| *other != queue));
        inner.on_queue.iter().for_each(Bell::ring);
    }

    /// From now on `bell` is rung when queues come and go.
    pub(crate) fn ring_at_queues(&self, bell: Option<Bell>) {
        self.lock().on_queue = bell;
    }

    /// The highest class of the queues that each of `threads` I/O threads serves. Looks at every queue.
    pub(crate) fn classes(&self, threads: usize, class: impl Fn(&HostKey) -> Option<u8>) -> Vec<Option<u8>> {
        let mut classes = vec![None; threads];
        for (host, held) in &self.lock().hosts {
            let Some(class) = class(host) else { continue };
            for queue in &held.queues {
                let known: &mut Option<u8> = &mut classes[usize::from(queue.thread)];
                *known = (*known).max(Some(class));
            }
        }
        classes
    }

    /// I/O threads that serve queues of `host` other than `queue`, each once.
    #[must_use]
    pub fn threads_of(&self, host: &HostKey, queue: ConnAddr) -> Vec<u16> {
        let inner = self.lock();
        let queues = inner.hosts.get(host).map_or(&[][..], |host| &host.queues);
        let mut threads: Vec<u16> = queues.iter().filter(|other| **other != queue).map(|other| other.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    /// The queues of `host` that I/O thread `thread` serves.
    #[must_use]
    pub fn queues_on(&self, host: &HostKey, thread: u16) -> Vec<ConnAddr> {
        let inner = self.lock();
        let queues = inner.hosts.get(host).map_or(&[][..], |host| &host.queues);
        queues.iter().filter(|queue| queue.thread == thread).copied().collect()
    }

    /// The queues of the hosts that `chosen` names, those included that wait in Connect.
    #[must_use]
    pub fn queues_where(&self, chosen: impl Fn(&HostKey) -> bool) -> Vec<ConnAddr> {
        let inner = self.lock();
        let hosts = inner.hosts.iter().filter(|(host, _)| chosen(host));
        hosts.flat_map(|(_, held)| held.queues.iter().copied()).collect()
    }

    /// From now on hosts see the namespaces of these views, which every I/O thread knows already.
    pub(crate) fn set_views(&self, views: Arc<Views>) {
        let mut inner = self.lock();
        for association in inner.associations.values() {
            association.set_view(views.of(association.host.subsystem, &association.host.hostnqn));
        }
        inner.views = views;
    }

    /// From now on only the subsystems that have these ranges give identifiers of them.
    pub(crate) fn reserve(&self, ranges: Vec<ControllerIds>) {
        self.lock().reserved = ranges;
    }

    /// Begins an association whose controller has an identifier of `ids`, or for `None` one that nobody has reserved; `None` when every
    /// one is taken.
    #[must_use]
    pub fn begin(
        &self,
        host: HostKey,
        admin: ConnAddr,
        origin: Origin,
        ids: Option<ControllerIds>,
    ) -> Option<Arc<Association>> {
        let mut inner = self.lock();
        let cntlid = inner.free_id(ids)?;
        let view = inner.views.of(host.subsystem, &host.hostnqn);
        let association = Arc::new(Association::new(cntlid, host, admin, origin, view));
        inner.associations.insert(cntlid, Arc::clone(&association));
        Some(association)
    }

    /// The association of controller `cntlid`.
    #[must_use]
    pub fn get(&self, cntlid: u16) -> Option<Arc<Association>> {
        self.lock().associations.get(&cntlid).cloned()
    }

    /// Ends an association: nothing more is submitted for it. Its host is draining until [`Register::end`].
    pub fn kill(&self, association: &Association) {
        let mut inner = self.lock();
        if association.kill() {
            inner.host(&association.host).dead += 1;
        }
    }

    /// Forgets the association of `cntlid`: nothing of it is in flight.
    pub fn end(&self, cntlid: u16) {
        let mut inner = self.lock();
        let Some(association) = inner.associations.remove(&cntlid) else { return };
        if association.is_dead() {
            inner.change(&association.host, |host| host.dead -= 1);
        }
    }

    /// A queue of `host` is lost and has requests in a backend.
    pub fn queue_lost(&self, host: &HostKey) {
        self.lock().host(host).undrained += 1;
    }

    /// The last request of a queue for which [`Register::queue_lost`] was called is back.
    pub fn queue_drained(&self, host: &HostKey) {
        self.lock().change(host, |host| host.undrained -= 1);
    }

    /// Whether a queue of `host` that is lost, or one of an association that has ended, can have a request in a backend.
    #[must_use]
    pub fn is_draining(&self, host: &HostKey) -> bool {
        self.lock().hosts.get(host).is_some_and(Host::is_draining)
    }

    /// Controllers that show power states, each with the one that it is in, in the order of their identifiers.
    #[must_use]
    pub fn power_states(&self) -> Vec<(u16, u8)> {
        let inner = self.lock();
        let living = inner.associations.values().filter(|association| !association.is_dead());
        let mut states: Vec<(u16, u8)> = living.filter_map(|one| Some((one.cntlid, one.power_state()?))).collect();
        states.sort_unstable();
        states
    }

    /// The associations of the hosts that `chosen` names, in the order of their identifiers.
    #[must_use]
    pub fn associations(&self, chosen: impl Fn(&HostKey) -> bool) -> Vec<Arc<Association>> {
        let inner = self.lock();
        let found = inner.associations.values().filter(|association| chosen(&association.host));
        let mut found: Vec<_> = found.cloned().collect();
        found.sort_unstable_by_key(|association| association.cntlid);
        found
    }

    /// Whether an association has not left the register: something of it may be in flight.
    #[must_use]
    pub fn holds(&self, association: &Arc<Association>) -> bool {
        self.get(association.cntlid).is_some_and(|held| Arc::ptr_eq(&held, association))
    }

    /// Number of associations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().associations.len()
    }

    /// Number of hosts that have a queue, or something in flight.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.lock().hosts.len()
    }

    /// Whether there are no associations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// An identifier that no controller has: the next one, so that none is used again at once.
    fn free_id(&mut self, ids: Option<ControllerIds>) -> Option<u16> {
        let range = ids.unwrap_or(ControllerIds::ALL);
        let last = self.last.get(&range).copied().unwrap_or(range.first - 1);
        let is_reserved = |id| ids.is_none() && self.reserved.iter().any(|range| range.contains(id));
        let is_free = |id: &u16| !self.associations.contains_key(id) && !is_reserved(*id);
        let id = (last + 1..=range.last).chain(range.first..=last).find(is_free)?;
        self.last.insert(range, id);
        Some(id)
    }

    fn host(&mut self, host: &HostKey) -> &mut Host {
        self.hosts.entry(host.clone()).or_default()
    }

    /// Changes what is held for `host`, and forgets the host if nothing is left.
    fn change(&mut self, host: &HostKey, change: impl FnOnce(&mut Host)) {
        let Some(found) = self.hosts.get_mut(host) else { return };
        change(found);
        if found.is_unused() {
            self.hosts.remove(host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(id: u8) -> HostKey {
        HostKey { subsystem: 0, hostid: [id; 16], hostnqn: "nqn.2014-08.org.example:h".into() }
    }

    fn begin(register: &Register, id: u8, admin: ConnAddr) -> Arc<Association> {
        let origin = Origin { peer: ([127, 0, 0, 1], 1).into(), began_ns: 0 };
        register.begin(host(id), admin, origin, None).expect("free")
    }

    fn queue(thread: u16, index: u32) -> ConnAddr {
        ConnAddr { thread, index, serial: index }
    }

    #[test]
    fn a_host_is_draining_until_its_dead_associations_end() {
        let register = Register::default();
        let first = begin(&register, 1, queue(0, 0));
        let second = begin(&register, 1, queue(0, 1));
        assert_ne!(first.cntlid, second.cntlid);
        assert!(!register.is_draining(&host(1)));
        register.kill(&first);
        register.kill(&first);
        assert!(register.is_draining(&host(1)) && !register.is_draining(&host(2)));
        register.end(first.cntlid);
        assert!(!register.is_draining(&host(1)));
        register.end(second.cntlid);
        assert_eq!((register.len(), register.hosts()), (0, 0));
    }

    #[test]
    fn a_host_is_draining_until_its_lost_queues_are_drained() {
        let register = Register::default();
        let association = begin(&register, 1, queue(0, 0));
        assert!(register.enter(&host(1), queue(0, 0), 3) && register.enter(&host(1), queue(1, 0), 3));
        assert!(!register.is_draining(&host(1)), "queues in use do not count");
        register.queue_lost(&host(1));
        register.queue_lost(&host(1));
        register.queue_drained(&host(1));
        assert!(register.is_draining(&host(1)) && !association.is_dead());
        register.queue_drained(&host(1));
        assert!(!register.is_draining(&host(1)));
    }

    #[test]
    fn a_host_has_so_many_queues_and_no_more() {
        let register = Register::default();
        assert!(register.enter(&host(1), queue(0, 0), 2) && register.enter(&host(1), queue(3, 1), 2));
        assert!(!register.enter(&host(1), queue(0, 2), 2));
        assert!(register.enter(&host(2), queue(3, 3), 2), "another host");
        assert_eq!(register.threads_of(&host(1), queue(0, 0)), [3]);
        assert_eq!(register.queues_on(&host(1), 3), [queue(3, 1)]);
        register.leave(&host(1), queue(3, 1));
        assert!(register.threads_of(&host(1), queue(0, 0)).is_empty());
        assert!(register.enter(&host(1), queue(0, 2), 2));
        for index in [0, 2] {
            register.leave(&host(1), queue(0, index));
        }
        register.leave(&host(2), queue(3, 3));
        assert_eq!(register.hosts(), 0);
    }

    #[test]
    fn identifiers_are_not_reused_at_once() {
        let register = Register::default();
        let first = begin(&register, 1, queue(0, 0)).cntlid;
        register.end(first);
        assert_ne!(begin(&register, 1, queue(0, 0)).cntlid, first);
    }

    #[test]
    fn a_range_of_identifiers_is_one_subsystems_alone_and_ends() {
        let register = Register::default();
        let ids = ControllerIds { first: 1, last: 3 };
        register.reserve(vec![ids]);
        let origin = Origin { peer: ([127, 0, 0, 1], 1).into(), began_ns: 0 };
        let of_range = || register.begin(host(2), queue(0, 0), origin, Some(ids)).map(|association| association.cntlid);
        assert_eq!(begin(&register, 1, queue(0, 0)).cntlid, 4, "of the others");
        assert_eq!([of_range(), of_range(), of_range(), of_range()], [Some(1), Some(2), Some(3), None]);
        register.end(2);
        assert_eq!((of_range(), of_range()), (Some(2), None));
    }
}
