//! Associations between hosts and controllers.
//!
//! An association begins with Connect on an admin queue and ends when that connection is lost, the controller is shut
//! down or reset, or its Keep Alive timer expires. Its I/O queues may be on other I/O threads. They share this object: an
//! identity, a flag for its end, and a flag for traffic.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use crate::ids::HostKey;
use crate::ids::{ConnAddr, PortId};
use crate::subsystems::views::ViewId;
use crate::unfinished::Unfinished;
use pilotlight_storage::lease::Lease;

/// Origin of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The host's address on the admin queue's connection.
    pub peer: SocketAddr,
    /// The listener of that connection.
    pub port: PortId,
    /// When the association began, in nanoseconds of the reactors' clock.
    pub began_ns: u64,
}

/// The association of one host with one controller.
#[derive(Debug)]
pub struct Association {
    /// Controller identifier.
    pub cntlid: u16,
    /// The host, and the subsystem that it uses.
    pub host: HostKey,
    /// The admin queue's connection.
    pub admin: ConnAddr,
    /// Its origin.
    pub origin: Origin,
    /// The connections of its I/O queues that have not stopped. Locked when a queue is added or removed, and for status.
    io_queues: Mutex<Vec<ConnAddr>>,
    /// The namespaces visible to the host, and [`CLOSED`].
    view: AtomicUsize,
    /// Why requests may not be submitted: [`ENDED`], [`WAITS`]. One word, so that an unhindered command costs one branch.
    held: AtomicU8,
    /// Requests of its host's queues that were lost before it began.
    earlier: Vec<Arc<Unfinished>>,
    /// A Connect of its host waits until its I/O queues have stopped.
    draining: AtomicBool,
    traffic: AtomicBool,
    /// [`NO_POWER_STATES`] or the controller's power state.
    power_state: AtomicU8,
}

/// The controller reports no power states.
const NO_POWER_STATES: u8 = u8::MAX;
/// The association has ended.
const ENDED: u8 = 1;
/// Some of `earlier` may be unfinished.
const WAITS: u8 = 2;
/// In the number of a view: some group of namespaces may not be accessible by its port. A view with such a number shows nothing.
const CLOSED: usize = 1 << (usize::BITS - 2);

impl Association {
    /// A new association, for [`AssociationRegister::begin`](crate::services::AssociationRegister::begin).
    pub fn new(
        cntlid: u16,
        host: HostKey,
        admin: ConnAddr,
        origin: Origin,
        view: ViewId,
        earlier: Vec<Arc<Unfinished>>,
    ) -> Self {
        Self {
            view: AtomicUsize::new(view.number()),
            cntlid,
            host,
            admin,
            origin,
            io_queues: Mutex::default(),
            held: AtomicU8::new(if earlier.is_empty() { 0 } else { WAITS }),
            earlier,
            draining: AtomicBool::new(false),
            traffic: AtomicBool::new(false),
            power_state: AtomicU8::new(NO_POWER_STATES),
        }
    }

    /// Whether it has ended: nothing may be submitted for it any more.
    #[inline]
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.held.load(Relaxed) & ENDED != 0
    }

    /// Whether requests may have to wait, or be refused.
    #[inline]
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.load(Acquire) != 0
    }

    /// Whether some group of namespaces may not be accessible by its port.
    #[inline]
    #[must_use]
    pub fn has_closed_paths(&self) -> bool {
        self.view.load(Relaxed) & CLOSED != 0
    }

    /// Sets whether some group of namespaces may not be accessible by its port.
    pub fn set_closed_paths(&self, closed: bool) {
        if closed {
            self.view.fetch_or(CLOSED, Relaxed);
        } else {
            self.view.fetch_and(!CLOSED, Relaxed);
        }
    }

    /// Whether requests of the host to this storage are unfinished, of queues that were lost before the association began.
    #[cold]
    pub fn awaits(&self, lease: &Lease) -> bool {
        if self.earlier.iter().all(|earlier| earlier.is_finished()) {
            self.held.fetch_and(!WAITS, AcqRel);
            return false;
        }
        self.earlier.iter().any(|earlier| earlier.includes(lease))
    }

    /// Ends it; returns whether it was active. Each queue notices in its next poll and sends `Detached`.
    pub fn terminate(&self) -> bool {
        self.held.fetch_or(ENDED, Relaxed) & ENDED == 0
    }

    /// Sets whether a Connect of its host waits for its I/O queues. Under the register's lock.
    pub fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Relaxed);
    }

    /// Whether a Connect of its host waits for its I/O queues.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// The namespaces visible to the host.
    #[inline]
    #[must_use]
    pub fn view(&self) -> ViewId {
        ViewId::from_number(self.view.load(Relaxed) & !CLOSED)
    }

    /// The same for an I/O command; nothing while [`Association::has_closed_paths`], so that an unhindered command costs no branch.
    #[inline]
    #[must_use]
    pub fn request_view(&self) -> ViewId {
        ViewId::from_number(self.view.load(Relaxed))
    }

    /// Sets the namespaces visible to the host. The I/O threads must know the view already.
    pub fn set_view(&self, view: ViewId) {
        let with_paths = |old: usize| Some(view.number() | old & CLOSED);
        let _ = self.view.fetch_update(Relaxed, Relaxed, with_paths); // `with_paths` never fails
    }

    /// Adds an I/O queue. Under the register's lock.
    pub fn note_queue(&self, queue: ConnAddr) {
        self.io_queues().push(queue);
    }

    /// Removes an I/O queue; returns whether none is left. Under the register's lock.
    pub fn forget_queue(&self, queue: ConnAddr) -> bool {
        let mut queues = self.io_queues();
        queues.retain(|other| *other != queue);
        queues.is_empty()
    }

    /// Whether it has I/O queues that may submit requests.
    pub fn has_queues(&self) -> bool {
        !self.io_queues().is_empty()
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

    /// Records the controller's power state for status.
    pub fn note_power_state(&self, state: Option<u8>) {
        self.power_state.store(state.unwrap_or(NO_POWER_STATES), Relaxed);
    }

    /// The controller's power state as of the last admin command; `None` if it has no power states.
    #[must_use]
    pub fn power_state(&self) -> Option<u8> {
        Some(self.power_state.load(Relaxed)).filter(|state| *state != NO_POWER_STATES)
    }

    /// Records traffic from the host. Written only on a change, so that queues on many cores share the cache line.
    #[inline]
    pub fn note_traffic(&self) {
        if !self.traffic.load(Relaxed) {
            self.traffic.store(true, Relaxed);
        }
    }

    /// Whether there was traffic since the last call.
    #[must_use]
    pub fn take_traffic(&self) -> bool {
        self.traffic.load(Relaxed) && self.traffic.swap(false, Relaxed)
    }
}
