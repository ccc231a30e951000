//! Associations between hosts and controllers, and the register of them.
//!
//! An association begins with Connect on an admin queue and ends when that connection is lost, the controller is shut
//! down or reset, or the host falls silent. Its I/O queues may live on other I/O threads; what they share is this small
//! object: an identity, a flag that says it is over, and a flag that says something has been heard.
//!
//! Property: an association leaves the register only after every one of its queues is gone with nothing in flight, so a
//! host that finds none of its own dead associations there can be sure that nothing of them is still to be written.
//! The register is behind a lock and is used for Connect and the end of associations only.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::message::ConnAddr;

/// Who a host is, to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostKey {
    /// Index of the subsystem; [`crate::server::DISCOVERY`] for the discovery service.
    pub subsystem: usize,
    /// Host identifier.
    pub hostid: [u8; 16],
    /// Host NQN.
    pub hostnqn: String,
}

/// One host's tie to one controller.
#[derive(Debug)]
pub struct Association {
    /// Controller identifier.
    pub cntlid: u16,
    /// The host, and the subsystem that it uses.
    pub host: HostKey,
    /// The admin queue's connection.
    pub admin: ConnAddr,
    dead: AtomicBool,
    traffic: AtomicBool,
    /// [`NO_POWER_STATES`] or the controller's power state.
    power_state: AtomicU8,
}

/// The controller shows its host no power states.
const NO_POWER_STATES: u8 = u8::MAX;

impl Association {
    /// Whether it has ended: nothing more may be submitted for it.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Relaxed)
    }

    /// Ends it. Each queue notices in its next poll; `Detached` messages say when.
    pub fn kill(&self) {
        self.dead.store(true, Relaxed);
    }

    /// Notes the controller's power state, for whoever looks from outside.
    pub fn note_power_state(&self, state: Option<u8>) {
        self.power_state.store(state.unwrap_or(NO_POWER_STATES), Relaxed);
    }

    /// The controller's power state as it was when its host last sent an admin command; `None` where it shows none.
    #[must_use]
    pub fn power_state(&self) -> Option<u8> {
        Some(self.power_state.load(Relaxed)).filter(|state| *state != NO_POWER_STATES)
    }

    /// Notes that something was heard from the host. Written only when it changes anything, so that queues on many cores
    /// share the line.
    pub fn note_traffic(&self) {
        if !self.traffic.load(Relaxed) {
            self.traffic.store(true, Relaxed);
        }
    }

    /// Whether something was heard since the last call.
    #[must_use]
    pub fn take_traffic(&self) -> bool {
        self.traffic.load(Relaxed) && self.traffic.swap(false, Relaxed)
    }
}

/// Every association of the server.
#[derive(Debug, Default)]
pub struct Register {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    associations: HashMap<u16, Arc<Association>>,
    last: u16,
}

/// Controller identifiers above this are reserved (Base 6.3).
const MAX_CNTLID: u16 = 0xffef;

impl Register {
    /// Begins an association; `None` when every controller identifier is taken.
    #[must_use]
    pub fn begin(&self, host: HostKey, admin: ConnAddr) -> Option<Arc<Association>> {
        let mut inner = self.lock();
        let free = |id: &u16| !inner.associations.contains_key(id);
        let cntlid = (inner.last + 1..=MAX_CNTLID).chain(1..=inner.last).find(free)?;
        inner.last = cntlid % MAX_CNTLID;
        let association = Arc::new(Association {
            cntlid,
            host,
            admin,
            dead: AtomicBool::new(false),
            traffic: AtomicBool::new(false),
            power_state: AtomicU8::new(NO_POWER_STATES),
        });
        inner.associations.insert(cntlid, Arc::clone(&association));
        Some(association)
    }

    /// The association of controller `cntlid`.
    #[must_use]
    pub fn get(&self, cntlid: u16) -> Option<Arc<Association>> {
        self.lock().associations.get(&cntlid).cloned()
    }

    /// Forgets the association of `cntlid`: nothing of it is in flight.
    pub fn end(&self, cntlid: u16) {
        self.lock().associations.remove(&cntlid);
    }

    /// Whether `host` has associations, living or dead.
    #[must_use]
    pub fn knows(&self, host: &HostKey) -> bool {
        self.lock().associations.values().any(|a| a.host == *host)
    }

    /// Whether `host` has associations that have ended and still have something in flight.
    #[must_use]
    pub fn is_draining(&self, host: &HostKey) -> bool {
        self.lock().associations.values().any(|a| a.is_dead() && a.host == *host)
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

    /// Number of associations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().associations.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_association_is_draining_until_it_ends() {
        let register = Register::default();
        let host = HostKey { subsystem: 0, hostid: [1; 16], hostnqn: "nqn.2014-08.org.example:h".into() };
        let admin = ConnAddr { thread: 0, index: 0, serial: 0 };
        let first = register.begin(host.clone(), admin).expect("free");
        let second = register.begin(host.clone(), admin).expect("free");
        assert_ne!(first.cntlid, second.cntlid);
        assert!(!register.is_draining(&host));
        first.kill();
        assert!(register.is_draining(&host));
        register.end(first.cntlid);
        assert!(!register.is_draining(&host));
        assert!(register.knows(&host));
    }

    #[test]
    fn identifiers_are_not_reused_at_once() {
        let register = Register::default();
        let host = HostKey { subsystem: 0, hostid: [1; 16], hostnqn: "h".into() };
        let admin = ConnAddr { thread: 0, index: 0, serial: 0 };
        let first = register.begin(host.clone(), admin).expect("free").cntlid;
        register.end(first);
        assert_ne!(register.begin(host, admin).expect("free").cntlid, first);
    }
}
