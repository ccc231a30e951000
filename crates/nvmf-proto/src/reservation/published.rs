//! The reservation of a namespace: its state behind a lock, and what I/O threads read of it without one.
//!
//! Only the thread of the reservation commands changes it (`nvmf-target/src/server/reservations.rs`). An I/O thread reads one flag for each
//! request, and the rights of hosts only where that flag says that some hosts are excluded.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use pilotlight_nvme::Status;

use super::access::{Access, Group};
use super::{Command, Effects, Identity, State};
use crate::ids::HostKey;

/// The reservation of a namespace.
#[derive(Debug)]
pub struct Reservation {
    /// UUID of the namespace.
    uuid: [u8; 16],
    /// Whether it can outlive the server.
    can_persist: bool,
    state: Mutex<Inner>,
    /// A bit for each group of commands that some hosts are refused.
    restricted: AtomicU8,
    access: ArcSwap<Access>,
    persists: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    state: State,
    has_ended: bool,
}

impl Default for Reservation {
    /// Without registrants; it ends with the server.
    fn default() -> Self {
        Self::new([0; 16], false, State::default())
    }
}

impl Reservation {
    /// Of the namespace with this UUID, with this state.
    #[must_use]
    pub fn new(uuid: [u8; 16], can_persist: bool, state: State) -> Self {
        let access = Access::from_state(&state);
        Self {
            uuid,
            can_persist,
            restricted: AtomicU8::new(access.restricted()),
            access: ArcSwap::from_pointee(access),
            persists: AtomicBool::new(state.persists()),
            state: Mutex::new(Inner { state, has_ended: false }),
        }
    }

    /// UUID of the namespace.
    #[must_use]
    pub fn uuid(&self) -> &[u8; 16] {
        &self.uuid
    }

    /// Whether it can outlive the server.
    #[must_use]
    pub fn can_persist(&self) -> bool {
        self.can_persist
    }

    /// The Persist Through Power Loss state.
    #[must_use]
    pub fn persists(&self) -> bool {
        self.persists.load(Relaxed)
    }

    /// Whether some hosts are refused commands of the group.
    #[inline]
    #[must_use]
    pub fn restricts(&self, group: Group) -> bool {
        self.restricted.load(Acquire) & group as u8 != 0
    }

    /// Whether `host` is refused commands of the group.
    #[cold]
    #[must_use]
    pub fn excludes(&self, host: &HostKey, group: Group) -> bool {
        let access = self.access.load();
        access.restricted() & group as u8 != 0 && !access.admits(host)
    }

    /// Executes a command of `host`. `save` gets a change first if the new state or the old one outlives the server.
    ///
    /// # Errors
    /// The status to complete it with; nothing has changed then. Internal Error if `save` fails.
    pub fn execute(
        &self,
        host: &Identity,
        command: &Command,
        save: impl FnOnce(&State) -> Result<(), Status>,
    ) -> Result<Effects, Status> {
        let mut inner = self.lock();
        if inner.has_ended {
            return Err(Status::INVALID_NAMESPACE.dnr());
        }
        let state = &mut inner.state;
        let mut next = state.clone();
        let effects = next.execute(host, command, self.can_persist)?;
        if next == *state {
            return Ok(effects);
        }
        if next.persists() || state.persists() {
            save(&next)?;
        }
        *state = next;
        let access = Access::from_state(state);
        let restricted = access.restricted();
        self.persists.store(state.persists(), Relaxed);
        self.access.store(access.into());
        self.restricted.store(restricted, Release);
        Ok(effects)
    }

    /// The data of a Report, with the controllers of each host.
    #[must_use]
    pub fn report(&self, controllers: impl Fn(&Identity) -> Vec<u16>) -> Vec<u8> {
        self.lock().state.report(controllers)
    }

    /// The namespace has been removed: later commands fail, and do not change its record.
    pub fn end(&self) {
        self.lock().has_ended = true;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
