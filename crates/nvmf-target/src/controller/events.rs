//! Asynchronous events: what has happened, what the host wants to hear of, and the requests that wait for it
//! (Base 5.2).

use std::collections::{BTreeSet, VecDeque};

use pilotlight_nvme::Status;
use pilotlight_nvme::feature::{DISCOVERY_CHANGED, NAMESPACE_CHANGED, async_event};

/// Async Event Requests that may be outstanding (AERL + 1).
pub(super) const LIMIT: usize = 4;
/// Entries of the changed namespace list.
const CHANGED_LIMIT: usize = 1024;

/// Bytes that events allocate at most: the parked commands, and a tree of changed namespaces whose nodes of 11 entries are
/// half full at least.
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
}

/// One kind of event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Notice {
    #[default]
    Quiet,
    /// It has happened and the host has not been told.
    Pending,
    /// The host has been told and has not read the log page; nothing more is said until then.
    Told,
}

impl Notice {
    fn happen(&mut self) {
        if *self == Self::Quiet {
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
        self.namespaces.happen();
    }

    pub(super) fn discovery_changed(&mut self) {
        self.discovery.happen();
    }

    /// The changed namespaces; `None` if there are more than the list holds.
    pub(super) fn changed(&self) -> Option<impl Iterator<Item = u32> + '_> {
        (self.changed.len() <= CHANGED_LIMIT).then(|| self.changed.iter().copied())
    }

    /// The host has read the changed namespace list.
    pub(super) fn changed_read(&mut self) {
        self.changed.clear();
        self.namespaces = Notice::Quiet;
    }

    /// The host has read the discovery log.
    pub(super) fn discovery_read(&mut self) {
        self.discovery = Notice::Quiet;
    }

    pub(super) fn take(&mut self) -> Option<(u16, u32)> {
        let kinds = [
            (async_event::NAMESPACE_ATTRIBUTE, NAMESPACE_CHANGED, &mut self.namespaces),
            (async_event::DISCOVERY_CHANGE, DISCOVERY_CHANGED, &mut self.discovery),
        ];
        for (enabled, result, notice) in kinds {
            if self.mask & enabled != 0 && *notice == Notice::Pending {
                let cid = self.parked.pop_front()?;
                *notice = Notice::Told;
                return Some((cid, result));
            }
        }
        None
    }
}
