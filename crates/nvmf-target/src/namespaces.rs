//! An I/O thread's table of namespaces: geometry and channels.
//!
//! Changes arrive as messages, so that a look-up on the request path is two array accesses. An index is never reused: a
//! removed namespace keeps its entry (some 60 bytes), and its channel until the last request completes, so that a waiting
//! command does not reach another namespace. The [`Reaper`] closes channels.

use std::io;
use std::sync::Arc;

use pilotlight_reactor::CompletionMode;

use crate::backend::{Bell, Channel, Completion, Geometry};
use crate::background::upkeep::Upkeep;
use crate::caps::Limit;
use crate::directory::Directory;
use crate::failures::Failures;
use crate::lease::{Lease, Leased};
use crate::listing::{Listed, NamespaceList};
use crate::payload::{LoanId, Loans};
use crate::reaper::Reaper;
use crate::subsystem::NamespaceInfo;
use crate::views::{ViewId, Views};
use crate::wait::{BUSY_RETRY_NS, Wait};

/// A namespace.
struct Entry {
    subsystem: usize,
    nsid: u32,
    geometry: Geometry,
    leased: Option<Leased>,
    removed: bool,
}

impl Entry {
    /// Passes the channel to the reaper unless requests are in flight or the reaper's queue is full.
    fn retire(&mut self, reaper: &Reaper) {
        let Some(leased) = self.leased.take_if(|leased| leased.channel.in_flight() == 0) else { return };
        self.leased = reaper.retire(leased).err();
    }

    fn channel(&self) -> Option<&dyn Channel> {
        self.leased.as_ref().map(|leased| &*leased.channel)
    }

    fn channel_mut(&mut self) -> Option<&mut (dyn Channel + 'static)> {
        self.leased.as_mut().map(|leased| &mut *leased.channel)
    }
}

/// The namespaces of every subsystem on one I/O thread.
pub struct Namespaces {
    completions: CompletionMode,
    bell: Arc<Bell>,
    entries: Vec<Entry>,
    /// For each subsystem, indexed by NSID minus one: the index of the entry plus one; 0 for none.
    by_nsid: Vec<Vec<u32>>,
    /// The namespaces visible to each host.
    views: Arc<Views>,
    /// The list for Identify. Replaced after the entries of every I/O thread have changed.
    list: Arc<NamespaceList>,
    loans: Loans,
    /// A channel may have requests in flight, or has to be passed to the reaper.
    needs_poll: bool,
}

impl Namespaces {
    /// An empty table in polling mode.
    ///
    /// # Errors
    /// If no descriptor is available.
    pub fn new() -> io::Result<Self> {
        let bell = Arc::new(Bell::new()?);
        Ok(Self {
            completions: CompletionMode::default(),
            bell,
            entries: Vec::new(),
            by_nsid: Vec::new(),
            views: Arc::default(),
            list: Arc::default(),
            loans: Loans::default(),
            needs_poll: false,
        })
    }

    /// Rung for completions in interrupt mode.
    #[must_use]
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Sets how completions of later requests are signalled.
    pub fn set_completions(&mut self, completions: CompletionMode) {
        self.completions = completions;
        for channel in self.entries.iter_mut().filter_map(Entry::channel_mut) {
            channel.set_completions(completions, &self.bell);
        }
    }

    /// The event before which [`Namespaces::poll`] has no work, with the bell armed.
    #[must_use]
    pub fn wait(&self, now_ns: u64) -> Wait {
        let one = |entry: &Entry| match entry.channel() {
            None => Wait::Event,
            Some(channel) if channel.in_flight() > 0 => match self.completions {
                CompletionMode::Poll | CompletionMode::Hybrid { .. } => Wait::Poll,
                CompletionMode::Interrupt => channel.wait(now_ns),
            },
            Some(_) if entry.removed => Wait::Until(now_ns + BUSY_RETRY_NS), // the reaper's queue was full
            Some(_) => Wait::Event,
        };
        self.entries.iter().map(one).min().unwrap_or(Wait::Event)
    }

    /// The index of namespace `nsid`, if it is in the view.
    #[must_use]
    pub fn index_of(&self, view: ViewId, nsid: u32) -> Option<u32> {
        let by_nsid = self.by_nsid.get(self.views.subsystem_showing(view, nsid)?)?;
        by_nsid.get((nsid as usize).wrapping_sub(1))?.checked_sub(1)
    }

    /// The listed namespaces of a view.
    #[must_use]
    pub fn listed(&self, view: ViewId) -> Listed<'_> {
        self.list.of(view)
    }

    /// The list.
    #[must_use]
    pub fn list(&self) -> &NamespaceList {
        &self.list
    }

    /// The subsystems.
    #[must_use]
    pub fn directory(&self) -> &Arc<Directory> {
        self.list.directory()
    }

    /// Replaces the list.
    pub fn set_list(&mut self, list: Arc<NamespaceList>) {
        self.list = list;
    }

    /// The first namespace of the view at or after index `from`.
    #[must_use]
    pub fn next_of(&self, view: ViewId, from: u32) -> Option<u32> {
        let is_seen = |index: &u32| self.index_of(view, self.entries[*index as usize].nsid) == Some(*index);
        (from..self.entries.len() as u32).find(is_seen)
    }

    /// Geometry of the namespace at `index`.
    #[must_use]
    pub fn geometry(&self, index: u32) -> Geometry {
        self.entries[index as usize].geometry
    }

    /// The channel of the namespace at `index`; `None` once it has been removed.
    pub fn channel(&mut self, index: u32) -> Option<&mut dyn Channel> {
        let entry = &mut self.entries[index as usize];
        if entry.removed {
            return None;
        }
        self.needs_poll = true; // the caller may submit
        entry.channel_mut().map(|channel| channel as &mut dyn Channel)
    }

    /// The lease of the storage of the namespace at `index`, as long as its channel exists.
    #[must_use]
    pub fn lease(&self, index: u32) -> Option<&Lease> {
        self.entries.get(index as usize)?.leased.as_ref().map(|leased| &leased.lease)
    }

    /// Borrows blocks of the namespace at `index` for a zero-copy read, if possible.
    pub fn borrow(&mut self, index: u32, lba: u64, blocks: u32) -> Option<LoanId> {
        let entry = self.entries.get_mut(index as usize).filter(|entry| !entry.removed)?;
        self.loans.borrow(index, entry.channel_mut()?, lba, blocks)
    }

    /// The outstanding loans.
    #[must_use]
    pub fn loans(&self) -> &Loans {
        &self.loans
    }

    /// Ends all loans; unsent data must have been copied.
    pub fn end_loans(&mut self) {
        while let Some((index, loan)) = self.loans.pop() {
            if let Some(channel) = self.entries[index as usize].channel_mut() {
                channel.end_loan(loan);
            }
        }
    }

    /// Failure counters of the namespace at `index`; `None` once it has been removed.
    #[must_use]
    pub fn failures(&self, index: u32) -> Option<&Failures> {
        self.info(index).map(|info| &info.failures)
    }

    /// The bandwidth cap of the namespace at `index`; `None` once it has been removed.
    #[must_use]
    pub fn limit(&self, index: u32) -> Option<&Arc<Limit>> {
        self.info(index).map(|info| &info.limit)
    }

    /// The background work of every listed namespace, by index.
    pub fn upkeeps(&self) -> impl Iterator<Item = (u32, &Arc<Upkeep>)> {
        let subsystems = 0..self.list.subsystems();
        let all = subsystems.flat_map(|at| self.list.whole(at).iter().map(move |one| (ViewId::whole(at), one)));
        all.filter_map(|(whole, (nsid, info))| Some((self.index_of(whole, *nsid)?, &info.upkeep)))
    }

    /// The background work of the namespace at `index`; `None` once it has been removed.
    #[must_use]
    pub fn upkeep(&self, index: u32) -> Option<&Arc<Upkeep>> {
        self.info(index).map(|info| &info.upkeep)
    }

    fn info(&self, index: u32) -> Option<&NamespaceInfo> {
        let entry = self.entries.get(index as usize).filter(|entry| !entry.removed)?;
        Listed::whole(self.list.whole(entry.subsystem)).find(entry.nsid)
    }

    /// Adds a namespace.
    pub fn add(&mut self, subsystem: usize, nsid: u32, geometry: Geometry, mut leased: Leased) {
        leased.channel.set_completions(self.completions, &self.bell);
        self.remove(subsystem, nsid);
        self.entries.push(Entry { subsystem, nsid, geometry, leased: Some(leased), removed: false });
        let entries = self.entries.len() as u32;
        let by_nsid = self.table(subsystem);
        if by_nsid.len() < nsid as usize {
            by_nsid.resize(nsid as usize, 0);
        }
        by_nsid[nsid as usize - 1] = entries;
    }

    /// Replaces the views.
    pub fn set_views(&mut self, views: &Arc<Views>) {
        self.views = Arc::clone(views);
    }

    fn table(&mut self, subsystem: usize) -> &mut Vec<u32> {
        if self.by_nsid.len() <= subsystem {
            self.by_nsid.resize_with(subsystem + 1, Vec::new);
        }
        &mut self.by_nsid[subsystem]
    }

    /// Sets a namespace's geometry.
    pub fn resize(&mut self, subsystem: usize, nsid: u32, geometry: Geometry) {
        if let Some(index) = self.index_of(ViewId::whole(subsystem), nsid) {
            self.entries[index as usize].geometry = geometry;
        }
    }

    /// Removes a namespace: no more requests are submitted to it.
    pub fn remove(&mut self, subsystem: usize, nsid: u32) {
        let Some(index) = self.index_of(ViewId::whole(subsystem), nsid) else { return };
        self.table(subsystem)[nsid as usize - 1] = 0;
        self.entries[index as usize].removed = true;
        self.needs_poll = true;
    }

    /// Polls every channel. Idle channels of removed namespaces are passed to `reaper`.
    pub fn poll(&mut self, now_ns: u64, done: &mut Vec<Completion>, reaper: &Reaper) {
        if !self.needs_poll {
            return;
        }
        self.needs_poll = false;
        for entry in &mut self.entries {
            let Some(channel) = entry.channel_mut() else { continue };
            if channel.in_flight() > 0 {
                channel.poll(now_ns, done);
                self.needs_poll |= channel.in_flight() > 0 || entry.removed;
            } else if entry.removed {
                entry.retire(reaper);
                self.needs_poll |= entry.leased.is_some();
            }
        }
    }

    /// Whether [`Namespaces::poll`] may have work.
    #[must_use]
    pub fn needs_poll(&self) -> bool {
        self.needs_poll
    }

    /// At the end of the I/O thread: passes every idle channel to `reaper`. Returns whether no channel is left.
    pub fn retire_all(&mut self, reaper: &Reaper) -> bool {
        self.entries.iter_mut().for_each(|entry| entry.retire(reaper));
        self.entries.iter().all(|entry| entry.leased.is_none())
    }

    /// Leaks the remaining channels: the kernel may still write to buffers of their requests. Returns subsystem, NSID and
    /// number of requests of each.
    pub fn abandon(&mut self) -> Vec<(usize, u32, usize)> {
        let mut abandoned = Vec::new();
        for entry in &mut self.entries {
            let Some(leased) = entry.leased.take() else { continue };
            let requests = leased.channel.in_flight();
            if requests > 0 {
                abandoned.push((entry.subsystem, entry.nsid, requests));
            }
            Box::leak(Box::new(leased));
        }
        abandoned
    }

    /// Requests in the backends.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.entries.iter().filter_map(Entry::channel).map(Channel::in_flight).sum()
    }
}
