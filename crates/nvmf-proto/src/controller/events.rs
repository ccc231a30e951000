//! Asynchronous events and the requests that wait for them (Base 5.2).

use std::collections::{BTreeSet, VecDeque};

use pilotlight_nvme::Status;
use pilotlight_nvme::feature::{
    ANA_CHANGED, DISCOVERY_CHANGED, NAMESPACE_CHANGED, RESERVATION_LOG_AVAILABLE, async_event,
};

/// Maximum outstanding Async Event Requests (AERL + 1).
pub(super) const LIMIT: usize = 4;
/// Entries of the changed namespace list.
const CHANGED_LIMIT: usize = 1024;

/// Maximum allocation: the parked commands, and a tree of changed namespaces with nodes of 11 entries, at least half full.
pub(super) const HEAP_BYTES: usize = 2 * LIMIT * size_of::<u16>() + (CHANGED_LIMIT + 1) * 16;

/// A controller's events.
#[derive(Debug, Default)]
pub(super) struct Events {
    parked: VecDeque<u16>,
    /// The asynchronous event configuration feature.
    pub(super) mask: u32,
    changed: BTreeSet<u32>,
    namespaces: Notice,
    discovery: Notice,
    paths: Notice,
    /// Needs no bit of the mask: each kind of notification has its own.
    reservations: Notice,
}

/// State of a kind of event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Notice {
    #[default]
    Idle,
    /// It has occurred and has not been reported.
    Pending,
    /// It has been reported; the next report waits until the host has read the log page.
    Reported,
}

impl Notice {
    fn occur(&mut self) {
        if *self == Self::Idle {
            *self = Self::Pending;
        }
    }
}

impl Events {
    pub(super) fn park(&mut self, cid: u16) -> Result<(), Status> {
        if self.parked.len() == LIMIT {
            return Err(Status::AER_LIMIT);
        }
        self.parked.push_back(cid);
        Ok(())
    }

    pub(super) fn forget(&mut self, cid: u16) {
        self.parked.retain(|&parked| parked != cid);
    }

    pub(super) fn namespace_changed(&mut self, nsid: u32) {
        if self.changed.len() <= CHANGED_LIMIT {
            self.changed.insert(nsid);
        }
        self.namespaces.occur();
    }

    pub(super) fn discovery_changed(&mut self) {
        self.discovery.occur();
    }

    pub(super) fn paths_changed(&mut self) {
        self.paths.occur();
    }

    pub(super) fn reservation_notified(&mut self) {
        self.reservations.occur();
    }

    /// The host has read a notification; `left`: others are unread.
    pub(super) fn reservation_read(&mut self, left: bool) {
        self.reservations = if left { Notice::Pending } else { Notice::Idle };
    }

    /// The changed namespaces; `None` if they exceed the list.
    pub(super) fn changed(&self) -> Option<impl Iterator<Item = u32> + '_> {
        (self.changed.len() <= CHANGED_LIMIT).then(|| self.changed.iter().copied())
    }

    /// The host has read the changed namespace list.
    pub(super) fn changed_read(&mut self) {
        self.changed.clear();
        self.namespaces = Notice::Idle;
    }

    /// The host has read the ANA log.
    pub(super) fn paths_read(&mut self) {
        self.paths = Notice::Idle;
    }

    /// The host has read the discovery log.
    pub(super) fn discovery_read(&mut self) {
        self.discovery = Notice::Idle;
    }

    pub(super) fn take(&mut self) -> Option<(u16, u32)> {
        let kinds = [
            (u32::MAX, RESERVATION_LOG_AVAILABLE, &mut self.reservations),
            (async_event::NAMESPACE_ATTRIBUTE, NAMESPACE_CHANGED, &mut self.namespaces),
            (async_event::DISCOVERY_CHANGE, DISCOVERY_CHANGED, &mut self.discovery),
            (async_event::ANA_CHANGE, ANA_CHANGED, &mut self.paths),
        ];
        for (enabled, result, notice) in kinds {
            if (enabled == u32::MAX || self.mask & enabled != 0) && *notice == Notice::Pending {
                let cid = self.parked.pop_front()?;
                *notice = Notice::Reported;
                return Some((cid, result));
            }
        }
        None
    }
}
