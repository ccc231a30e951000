//! The register of associations and of each host's queues.
//!
//! # The problem
//! Writes of a host's earlier association must not land after commands of its next one. But a request in a backend may take
//! long, or never end, and must not keep the host from its other namespaces. That association may still seem active: the packet
//! that closes the admin queue can be lost while those of the I/O queues arrive. So queues count, not associations.
//!
//! # The algorithm
//! The register is indexed by host. For each host it has the addresses of its queues, the number of ended associations with
//! I/O queues that have not *stopped*, and the requests that its lost queues have in the backends. A queue that is lost first
//! registers those, and then stops: it submits nothing more. A Connect on an admin queue makes the I/O threads with queues of
//! its host check for closed connections (a barrier), and then waits until the queues of ended associations have stopped, which
//! takes one message to their I/O threads. The association that begins then takes the list of unfinished requests: its commands to
//! their namespaces wait as for a busy backend. Queues in use do not count: the second path of a multipath host must not wait
//! for the commands of the first.
//!
//! What a lost queue holds counts for its host until its requests end ([`crate::hosts::admission`]). It has at most one such queue for each
//! namespace and path: what waits is not in a backend, and ends with its connection.
//!
//! Only what is proved counts: the queues of a peer that claims to be the host and has not authenticated submit nothing, so nothing waits
//! for them, nor for the end of an association whose admin queue is such a claim.
//!
//! # The properties
//! - An association leaves the register only after all of its queues have ended with nothing in flight.
//! - A host that is not draining has no closed queue that may submit requests.
//! - An association submits nothing to a storage that has unfinished requests of queues lost before it began.
//! - The cost of an operation does not depend on other hosts.
//!
//! The register has a lock. It is used only for Connect and for the end of queues and associations.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pilotlight_nvmf_proto::association::{Association, Origin};
use pilotlight_nvmf_proto::ids::{ConnAddr, HostKey};
use pilotlight_nvmf_proto::services::AssociationRegister;
use pilotlight_nvmf_proto::subsystems::views::Views;
use pilotlight_nvmf_proto::unfinished::Unfinished;
use pilotlight_reactor::housekeeping::Waker;

use crate::config::ControllerIds;

/// All associations, and the queues of all hosts.
#[derive(Debug, Default)]
pub struct Associations {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    associations: HashMap<u16, Arc<Association>>,
    hosts: HashMap<HostKey, Host>,
    /// The namespaces visible to each host.
    views: Arc<Views>,
    /// Reserved ranges of subsystems.
    reserved: Vec<ControllerIds>,
    /// The last assigned identifier of each range.
    last: HashMap<ControllerIds, u16>,
    /// Woken by added and removed queues.
    on_queue: Waker,
}

/// State of a host.
#[derive(Debug, Default)]
struct Host {
    /// Its queues, including those waiting in Connect.
    queues: Vec<ConnAddr>,
    /// Queues of peers that claim to be this host and have not authenticated.
    claimed: Vec<ConnAddr>,
    /// Ended associations with I/O queues that have not stopped, and whose admin queue was proved.
    ended: u32,
    /// Requests of lost queues in the backends.
    unfinished: Vec<Arc<Unfinished>>,
}

impl Host {
    fn is_unused(&self) -> bool {
        self.queues.is_empty() && self.claimed.is_empty() && self.ended == 0 && self.unfinished.is_empty()
    }
}

impl Associations {
    /// Adds a queue of a peer that claims to be `host` and has not authenticated: it does not count for the host.
    pub fn claim(&self, host: &HostKey, queue: ConnAddr) {
        self.lock().host(host).claimed.push(queue);
    }

    /// The claim is proved: the queue counts for the host from now on. Returns `false`, without effect, if the host already has `most` queues.
    #[must_use]
    pub fn prove(&self, host: &HostKey, queue: ConnAddr, most: u32) -> bool {
        let mut inner = self.lock();
        let held = inner.host(host);
        if held.queues.len() >= most as usize {
            return false;
        }
        held.claimed.retain(|other| *other != queue);
        held.queues.push(queue);
        inner.on_queue.wake();
        true
    }

    /// Removes a queue of `host`, or of a peer that claims to be it.
    pub fn leave(&self, host: &HostKey, queue: ConnAddr) {
        let mut inner = self.lock();
        inner.change(host, |host| {
            host.queues.retain(|other| *other != queue);
            host.claimed.retain(|other| *other != queue);
        });
        inner.on_queue.wake();
    }

    /// Sets what added and removed queues wake.
    pub(crate) fn notify_on_queues(&self, waker: Waker) {
        self.lock().on_queue = waker;
    }

    /// The highest class of the queues of each of `threads` I/O threads. Iterates over all queues.
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

    /// The queues of `host` on I/O thread `thread`.
    #[must_use]
    pub fn queues_on(&self, host: &HostKey, thread: u16) -> Vec<ConnAddr> {
        let inner = self.lock();
        let queues = inner.hosts.get(host).map_or(&[][..], |host| &host.queues);
        queues.iter().filter(|queue| queue.thread == thread).copied().collect()
    }

    /// The queues of the selected hosts, including those waiting in Connect.
    #[must_use]
    pub fn queues_where(&self, selected: impl Fn(&HostKey) -> bool) -> Vec<ConnAddr> {
        let inner = self.lock();
        let hosts = inner.hosts.iter().filter(|(host, _)| selected(host));
        hosts.flat_map(|(_, held)| held.queues.iter().chain(&held.claimed).copied()).collect()
    }

    /// The requests that lost queues of the selected hosts have in the backends.
    #[must_use]
    pub(crate) fn unfinished_where(&self, selected: impl Fn(&HostKey) -> bool) -> Vec<Arc<Unfinished>> {
        let inner = self.lock();
        let hosts = inner.hosts.iter().filter(|(host, _)| selected(host));
        hosts.flat_map(|(_, held)| held.unfinished.iter().cloned()).collect()
    }

    /// Sets the views of all associations. Every I/O thread must know them already.
    pub(crate) fn set_views(&self, views: Arc<Views>) {
        let mut inner = self.lock();
        for association in inner.associations.values() {
            association.set_view(views.view_of(association.host.subsystem, &association.host.hostnqn));
        }
        inner.views = views;
    }

    /// Sets the reserved ranges of identifiers.
    pub(crate) fn reserve(&self, ranges: Vec<ControllerIds>) {
        let mut inner = self.lock();
        inner.last.retain(|range, _| *range == ControllerIds::ALL || ranges.contains(range));
        inner.reserved = ranges;
    }

    /// Controllers with power states, and their states, in the order of their identifiers.
    #[must_use]
    pub fn power_states(&self) -> Vec<(u16, u8)> {
        let inner = self.lock();
        let active = inner.associations.values().filter(|association| !association.has_ended());
        let mut states: Vec<(u16, u8)> = active.filter_map(|one| Some((one.cntlid, one.power_state()?))).collect();
        states.sort_unstable();
        states
    }

    /// The selected associations, in the order of their identifiers.
    #[must_use]
    pub fn associations(&self, selected: impl Fn(&Association) -> bool) -> Vec<Arc<Association>> {
        let inner = self.lock();
        let found = inner.associations.values().filter(|association| selected(association));
        let mut found: Vec<_> = found.cloned().collect();
        found.sort_unstable_by_key(|association| association.cntlid);
        found
    }

    /// Whether an association is in the register: it may have requests in flight.
    #[must_use]
    pub fn holds(&self, association: &Arc<Association>) -> bool {
        self.get(association.cntlid).is_some_and(|held| Arc::ptr_eq(&held, association))
    }

    /// Number of associations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().associations.len()
    }

    /// Number of hosts with a queue or requests in flight.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.lock().hosts.len()
    }

    /// The subsystems with a queue, an association, or requests in flight.
    pub(crate) fn subsystems(&self) -> HashSet<usize> {
        let inner = self.lock();
        let of_associations = inner.associations.values().map(|association| &association.host);
        of_associations.chain(inner.hosts.keys()).map(|host| host.subsystem).collect()
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

impl AssociationRegister for Associations {
    fn threads_of(&self, host: &HostKey, queue: ConnAddr) -> Vec<u16> {
        let inner = self.lock();
        let queues = inner.hosts.get(host).map_or(&[][..], |host| &host.queues);
        let mut threads: Vec<u16> = queues.iter().filter(|other| **other != queue).map(|other| other.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    fn begin(
        &self,
        host: HostKey,
        admin: ConnAddr,
        origin: Origin,
        ids: Option<ControllerIds>,
    ) -> Option<Arc<Association>> {
        let mut inner = self.lock();
        let cntlid = inner.free_id(ids)?;
        let view = inner.views.view_of(host.subsystem, &host.hostnqn);
        let earlier = inner.hosts.get(&host).map(|host| host.unfinished.clone()).unwrap_or_default();
        let association = Arc::new(Association::new(cntlid, host, admin, origin, view, earlier));
        inner.associations.insert(cntlid, Arc::clone(&association));
        Some(association)
    }

    fn get(&self, cntlid: u16) -> Option<Arc<Association>> {
        self.lock().associations.get(&cntlid).cloned()
    }

    fn attach(&self, association: &Association, queue: ConnAddr) -> bool {
        let _register = self.lock();
        let is_active = !association.has_ended();
        if is_active {
            association.note_queue(queue);
        }
        is_active
    }

    fn queue_stopped(&self, association: &Association, queue: ConnAddr) {
        let mut inner = self.lock();
        if association.forget_queue(queue) {
            inner.end_draining(association);
        }
    }

    /// Ends an association: nothing more is submitted for it. Its host is draining until its I/O queues have stopped, unless the
    /// admin queue is still a claim: such an association has submitted nothing.
    fn terminate(&self, association: &Association) {
        let mut inner = self.lock();
        let is_proved = inner.hosts.get(&association.host).is_some_and(|host| host.queues.contains(&association.admin));
        if association.terminate() && is_proved && association.has_queues() {
            association.set_draining(true);
            inner.host(&association.host).ended += 1;
        }
    }

    fn remove(&self, cntlid: u16) {
        let mut inner = self.lock();
        let Some(association) = inner.associations.remove(&cntlid) else { return };
        inner.end_draining(&association);
    }

    fn queue_lost(&self, host: &HostKey, requests: Arc<Unfinished>) {
        self.lock().host(host).unfinished.push(requests);
    }

    fn queue_drained(&self, host: &HostKey, requests: &Arc<Unfinished>) {
        self.lock().change(host, |host| host.unfinished.retain(|other| !Arc::ptr_eq(other, requests)));
    }

    fn is_draining(&self, host: &HostKey) -> bool {
        self.lock().hosts.get(host).is_some_and(|host| host.ended > 0)
    }
}

impl Inner {
    /// The next free identifier, so that none is reused at once.
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

    /// A Connect of its host does not wait for this association any more.
    fn end_draining(&mut self, association: &Association) {
        if association.is_draining() {
            association.set_draining(false);
            self.change(&association.host, |host| host.ended -= 1);
        }
    }

    /// Changes the state of `host`, and removes it if it is unused.
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
    use pilotlight_nvmf_proto::ids::PortId;

    use super::*;

    impl Associations {
        fn enter(&self, host: &HostKey, queue: ConnAddr, most: u32) -> bool {
            self.claim(host, queue);
            let is_proved = self.prove(host, queue, most);
            if !is_proved {
                self.leave(host, queue);
            }
            is_proved
        }
    }
    use pilotlight_storage::lease::Lease;

    fn host(id: u8) -> HostKey {
        HostKey { subsystem: 0, hostid: [id; 16], hostnqn: "nqn.2014-08.org.example:h".into() }
    }

    fn begin(register: &Associations, id: u8, admin: ConnAddr) -> Arc<Association> {
        let origin = Origin { peer: ([127, 0, 0, 1], 1).into(), port: PortId::default(), began_ns: 0 };
        register.begin(host(id), admin, origin, None).expect("free")
    }

    fn queue(thread: u16, index: u32) -> ConnAddr {
        ConnAddr { thread, index, serial: index }
    }

    #[test]
    fn a_host_is_draining_until_the_queues_of_its_ended_associations_have_stopped() {
        let register = Associations::default();
        let (admin, io) = (queue(0, 0), queue(1, 0));
        assert!(register.enter(&host(1), admin, 2) && register.enter(&host(1), io, 2));
        let first = begin(&register, 1, admin);
        assert!(register.attach(&first, io));
        register.terminate(&first);
        register.terminate(&first);
        assert!(register.is_draining(&host(1)) && !register.is_draining(&host(2)));
        assert!(!register.attach(&first, queue(1, 1)), "the association has ended");
        register.queue_stopped(&first, io);
        assert!(!register.is_draining(&host(1)) && register.get(first.cntlid).is_some(), "it may have requests");
        register.queue_stopped(&first, io);
        register.remove(first.cntlid);
        [admin, io].iter().for_each(|queue| register.leave(&host(1), *queue));
        assert_eq!((register.len(), register.hosts()), (0, 0));
    }

    #[test]
    fn ended_associations_of_claims_do_not_make_their_host_wait() {
        let register = Associations::default();
        register.claim(&host(1), queue(0, 0));
        let claimed = begin(&register, 1, queue(0, 0));
        assert!(register.attach(&claimed, queue(0, 3)), "which no queue does today before the proof");
        register.terminate(&claimed);
        assert!(claimed.has_ended() && !register.is_draining(&host(1)));
        assert!(register.prove(&host(1), queue(0, 0), 1), "a proof that comes too late");
        register.remove(claimed.cntlid);
        assert!(!register.is_draining(&host(1)));
        register.leave(&host(1), queue(0, 0));
        register.claim(&host(1), queue(0, 1));
        let proved = begin(&register, 1, queue(0, 1));
        assert!(register.attach(&proved, queue(0, 2)));
        assert!(register.prove(&host(1), queue(0, 1), 1));
        register.terminate(&proved);
        assert!(register.is_draining(&host(1)), "after the proof");
        register.remove(proved.cntlid);
        register.leave(&host(1), queue(0, 1));
        assert_eq!((register.len(), register.hosts()), (0, 0));
    }

    #[test]
    fn an_association_awaits_requests_that_were_unfinished_when_it_began() {
        let register = Associations::default();
        let leases = [Lease::default(), Lease::default(), Lease::default()];
        let lost = |leases: &[&Lease]| {
            let requests = Arc::new(Unfinished::new(leases.iter().copied(), leases.len()));
            register.queue_lost(&host(1), Arc::clone(&requests));
            requests
        };
        let first = lost(&[&leases[0], &leases[1], &leases[0]]);
        let next = begin(&register, 1, queue(0, 0));
        let later = lost(&[&leases[2]]);
        let awaits = || leases.each_ref().map(|lease| next.awaits(lease));
        assert_eq!((awaits(), next.is_held()), ([true, true, false], true));
        first.end_one(&leases[0]);
        first.end_one(&leases[1]);
        assert_eq!(awaits(), [true, false, false]);
        first.end_one(&leases[0]);
        assert_eq!((awaits(), next.is_held()), ([false; 3], false), "later ones do not count");
        register.queue_drained(&host(1), &first);
        assert_eq!(register.hosts(), 1);
        register.queue_drained(&host(1), &later);
        assert!(!begin(&register, 1, queue(0, 0)).is_held());
        assert_eq!(register.hosts(), 0);
    }

    #[test]
    fn the_queues_of_a_host_are_limited() {
        let register = Associations::default();
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
    fn claims_do_not_count_until_they_are_proved() {
        let register = Associations::default();
        (0..5).for_each(|index| register.claim(&host(1), queue(0, index)));
        assert!(register.enter(&host(1), queue(1, 0), 2), "the host gets in");
        assert!(register.threads_of(&host(1), queue(1, 0)).is_empty(), "nothing waits for claims");
        assert!(register.prove(&host(1), queue(0, 0), 2) && !register.prove(&host(1), queue(0, 1), 2));
        assert_eq!(register.queues_where(|_| true).len(), 6);
        (0..5).for_each(|index| register.leave(&host(1), queue(0, index)));
        register.leave(&host(1), queue(1, 0));
        assert_eq!(register.hosts(), 0);
    }

    #[test]
    fn identifiers_are_not_reused_at_once() {
        let register = Associations::default();
        let first = begin(&register, 1, queue(0, 0)).cntlid;
        register.remove(first);
        assert_ne!(begin(&register, 1, queue(0, 0)).cntlid, first);
    }

    #[test]
    fn reserved_identifiers_are_exclusive_and_limited() {
        let register = Associations::default();
        let ids = ControllerIds { first: 1, last: 3 };
        register.reserve(vec![ids]);
        let origin = Origin { peer: ([127, 0, 0, 1], 1).into(), port: PortId::default(), began_ns: 0 };
        let of_range = || register.begin(host(2), queue(0, 0), origin, Some(ids)).map(|association| association.cntlid);
        assert_eq!(begin(&register, 1, queue(0, 0)).cntlid, 4, "not reserved");
        assert_eq!([of_range(), of_range(), of_range(), of_range()], [Some(1), Some(2), Some(3), None]);
        register.remove(2);
        assert_eq!((of_range(), of_range()), (Some(2), None));
    }
}
