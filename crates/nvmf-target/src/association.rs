//! Associations between hosts and controllers.
//!
//! An association begins with Connect on an admin queue and ends when that connection is lost, the controller is shut
//! down or reset, or the host falls silent. Its I/O queues may live on other I/O threads; what they share is this small
//! object: an identity, a flag that says it is over, and a flag that says something has been heard.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::message::ConnAddr;
use crate::views::ViewId;

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

/// Where an association comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The host's address, as the admin queue's connection has it.
    pub peer: SocketAddr,
    /// When the association began, in nanoseconds of the reactors' clock.
    pub began_ns: u64,
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
    /// Where it comes from.
    pub origin: Origin,
    /// The connections of its I/O queues. Locked when a queue comes or goes, and by those who ask from outside.
    io_queues: Mutex<Vec<ConnAddr>>,
    /// Which namespaces the host sees.
    view: AtomicUsize,
    dead: AtomicBool,
    traffic: AtomicBool,
    /// [`NO_POWER_STATES`] or the controller's power state.
    power_state: AtomicU8,
}

/// The controller shows its host no power states.
const NO_POWER_STATES: u8 = u8::MAX;

impl Association {
    /// A new association, for [`Register::begin`](crate::register::Register::begin).
    pub(crate) fn new(cntlid: u16, host: HostKey, admin: ConnAddr, origin: Origin, view: ViewId) -> Self {
        Self {
            view: AtomicUsize::new(view.number()),
            cntlid,
            host,
            admin,
            origin,
            io_queues: Mutex::default(),
            dead: AtomicBool::new(false),
            traffic: AtomicBool::new(false),
            power_state: AtomicU8::new(NO_POWER_STATES),
        }
    }

    /// Whether it has ended: nothing more may be submitted for it.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Relaxed)
    }

    /// Ends it; returns whether it was alive. Each queue notices in its next poll; `Detached` messages say when.
    pub(crate) fn kill(&self) -> bool {
        !self.dead.swap(true, Relaxed)
    }

    /// Which namespaces the host sees.
    #[must_use]
    pub fn view(&self) -> ViewId {
        ViewId::from_number(self.view.load(Relaxed))
    }

    /// From now on the host sees these. I/O threads know them already.
    pub(crate) fn set_view(&self, view: ViewId) {
        self.view.store(view.number(), Relaxed);
    }

    /// Notes a new I/O queue.
    pub(crate) fn note_queue(&self, queue: ConnAddr) {
        self.io_queues().push(queue);
    }

    /// Notes the end of an I/O queue.
    pub(crate) fn forget_queue(&self, queue: ConnAddr) {
        self.io_queues().retain(|other| *other != queue);
    }

    /// The number of its I/O queues, and the I/O threads that serve them in ascending order.
    #[must_use]
    pub fn queues(&self) -> (usize, Vec<u16>) {
        let queues = self.io_queues();
        let mut threads: Vec<u16> = queues.iter().map(|queue| queue.thread).collect();
        let number = queues.len();
        drop(queues);
        threads.sort_unstable();
        threads.dedup();
        (number, threads)
    }

    fn io_queues(&self) -> MutexGuard<'_, Vec<ConnAddr>> {
        self.io_queues.lock().unwrap_or_else(PoisonError::into_inner)
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
