//! An I/O thread's table of namespaces: geometry and channels.
//!
//! Changes arrive as messages, so that a look-up on the request path is two array accesses. A removed namespace keeps its channel
//! until the last request completes. The [`Reaper`] closes channels. Its index is used again after no command refers to it: a
//! command that waits must not reach another namespace. The I/O thread checks all of its connections for that, a few in each poll
//! ([`Namespaces::begin_check`]); no command can begin to refer to a removed namespace meanwhile.

use std::io;
use std::sync::Arc;

use pilotlight_nvmf_proto::payload::{LoanId, Loans};
use pilotlight_nvmf_proto::reservation::access::Group;
use pilotlight_nvmf_proto::reservation::published::Reservation;
use pilotlight_nvmf_proto::services::NamespaceTable;
use pilotlight_nvmf_proto::subsystems::failures::Failures;
use pilotlight_nvmf_proto::subsystems::listing::{Listed, NamespaceList};
use pilotlight_nvmf_proto::subsystems::subsystem::NamespaceInfo;
use pilotlight_nvmf_proto::subsystems::views::{ViewId, Views};
use pilotlight_reactor::CompletionMode;
use pilotlight_storage::background::upkeep::Upkeep;
use pilotlight_storage::lease::{Lease, Leased};
use pilotlight_storage::reaper::Reaper;
use pilotlight_storage::wait::{BUSY_RETRY_NS, Wait};
use pilotlight_storage::{Bell, Channel, Completion, Geometry};

use crate::caps::Limit;

/// A change of a namespace.
pub enum NamespaceChange {
    /// Added, with the I/O thread's channel, the namespace's bandwidth cap and its reservation.
    Added(Geometry, Leased, Arc<Limit>, Arc<Reservation>),
    /// Resized.
    Resized(Geometry),
    /// Removed.
    Removed,
}

/// A namespace.
struct Entry {
    subsystem: usize,
    nsid: u32,
    geometry: Geometry,
    leased: Option<Leased>,
    limit: Arc<Limit>,
    reservation: Arc<Reservation>,
    removed: bool,
    reuse: Reuse,
}

/// Whether the index of a removed namespace without a channel can be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reuse {
    /// Not known.
    Unknown,
    /// No command that refers to it has been found in the current check.
    Candidate,
    /// Yes.
    Free,
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
    /// Removed namespaces without a channel whose index is not free.
    unchecked: bool,
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
            unchecked: false,
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

    /// Replaces the list.
    pub fn set_list(&mut self, list: Arc<NamespaceList>) {
        self.list = list;
    }

    /// Ends all loans; unsent data must have been copied.
    pub fn end_loans(&mut self) {
        while let Some((index, loan)) = self.loans.pop() {
            if let Some(channel) = self.entries[index as usize].channel_mut() {
                channel.end_loan(loan);
            }
        }
    }

    /// The bandwidth cap of the namespace at `index`; `None` once it has been removed.
    #[must_use]
    pub fn limit(&self, index: u32) -> Option<&Arc<Limit>> {
        self.entries.get(index as usize).filter(|entry| !entry.removed).map(|entry| &entry.limit)
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
    pub fn add(
        &mut self,
        (subsystem, nsid): (usize, u32),
        geometry: Geometry,
        mut leased: Leased,
        (limit, reservation): (Arc<Limit>, Arc<Reservation>),
    ) {
        leased.channel.set_completions(self.completions, &self.bell);
        self.remove(subsystem, nsid);
        let (removed, reuse) = (false, Reuse::Unknown);
        let entry = Entry { subsystem, nsid, geometry, leased: Some(leased), limit, reservation, removed, reuse };
        let index = self.entries.iter().position(|entry| entry.reuse == Reuse::Free).unwrap_or(self.entries.len());
        match self.entries.get_mut(index) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        let by_nsid = self.table(subsystem);
        if by_nsid.len() < nsid as usize {
            by_nsid.resize(nsid as usize, 0);
        }
        by_nsid[nsid as usize - 1] = index as u32 + 1;
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
                self.unchecked |= entry.leased.is_none();
            }
        }
    }

    /// Whether removed namespaces have indices that commands may refer to.
    #[must_use]
    pub fn has_unchecked(&self) -> bool {
        self.unchecked
    }

    /// Begins to check which of those indices can be used again.
    pub fn begin_check(&mut self) {
        let is_retired = |entry: &&mut Entry| entry.removed && entry.leased.is_none() && entry.reuse != Reuse::Free;
        self.entries.iter_mut().filter(is_retired).for_each(|entry| entry.reuse = Reuse::Candidate);
    }

    /// Ends the check, after every command's [`Namespaces::note_reference`].
    pub fn end_check(&mut self) {
        let candidates = self.entries.iter_mut().filter(|entry| entry.reuse == Reuse::Candidate);
        candidates.for_each(|entry| entry.reuse = Reuse::Free);
        let used = self.entries.iter().rposition(|entry| entry.reuse != Reuse::Free);
        self.entries.truncate(used.map_or(0, |last| last + 1));
        let is_retired = |entry: &Entry| entry.removed && entry.leased.is_none() && entry.reuse != Reuse::Free;
        self.unchecked = self.entries.iter().any(is_retired);
    }

    /// Number of entries, which each poll may visit.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.len()
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

impl NamespaceTable for Namespaces {
    #[inline]
    fn index_of(&self, view: ViewId, nsid: u32) -> Option<u32> {
        let by_nsid = self.by_nsid.get(self.views.subsystem_showing(view, nsid)?)?;
        by_nsid.get((nsid as usize).wrapping_sub(1))?.checked_sub(1)
    }

    fn list(&self) -> &NamespaceList {
        &self.list
    }

    fn next_of(&self, view: ViewId, from: u32) -> Option<u32> {
        let is_seen = |index: &u32| self.index_of(view, self.entries[*index as usize].nsid) == Some(*index);
        (from..self.entries.len() as u32).find(is_seen)
    }

    #[inline]
    fn geometry(&self, index: u32) -> Geometry {
        self.entries[index as usize].geometry
    }

    #[inline]
    fn channel(&mut self, index: u32) -> Option<&mut dyn Channel> {
        let entry = self.entries.get_mut(index as usize).filter(|entry| !entry.removed)?;
        self.needs_poll = true; // the caller may submit
        entry.channel_mut().map(|channel| channel as &mut dyn Channel)
    }

    fn lease(&self, index: u32) -> Option<&Lease> {
        self.entries.get(index as usize)?.leased.as_ref().map(|leased| &leased.lease)
    }

    #[inline]
    fn borrow(&mut self, index: u32, lba: u64, blocks: u32) -> Option<LoanId> {
        let entry = self.entries.get_mut(index as usize).filter(|entry| !entry.removed)?;
        self.loans.borrow(index, entry.channel_mut()?, lba, blocks)
    }

    fn loans(&self) -> &Loans {
        &self.loans
    }

    fn failures(&self, index: u32) -> Option<&Failures> {
        self.info(index).map(|info| &info.failures)
    }

    #[inline]
    fn is_restricted(&self, index: u32, group: Group) -> bool {
        self.entries[index as usize].reservation.restricts(group)
    }

    fn reservation(&self, index: u32) -> Option<&Arc<Reservation>> {
        self.entries.get(index as usize).filter(|entry| !entry.removed).map(|entry| &entry.reservation)
    }

    fn note_reference(&mut self, index: u32) {
        if let Some(entry) = self.entries.get_mut(index as usize).filter(|entry| entry.reuse == Reuse::Candidate) {
            entry.reuse = Reuse::Unknown;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{self, Receiver};
    use std::time::{Duration, Instant};

    use pilotlight_storage::lease::Lease;
    use pilotlight_storage::{Backend, NullBackend, Request, Submitted};

    use super::*;

    fn add(namespaces: &mut Namespaces, nsid: u32) -> u32 {
        let backend = NullBackend::new(4096, 16).expect("a backend");
        let leased = Leased { channel: backend.open_channel(1).expect("a channel"), lease: Lease::default() };
        namespaces.add((0, nsid), backend.geometry(), leased, Default::default());
        namespaces.index_of(ViewId::whole(0), nsid).expect("added")
    }

    /// Polls until the reaper has taken the channels of removed namespaces.
    fn retire(namespaces: &mut Namespaces, reaper: &Reaper) {
        while namespaces.needs_poll() {
            namespaces.poll(0, &mut Vec::new(), reaper);
        }
    }

    #[test]
    fn entries_do_not_grow_with_the_namespaces_that_were_removed() {
        let (mut namespaces, reaper) = (Namespaces::new().expect("a bell"), Reaper::start().expect("a thread"));
        let first = add(&mut namespaces, 1);
        for _ in 0..100_000 {
            add(&mut namespaces, 2);
            namespaces.remove(0, 2);
            retire(&mut namespaces, &reaper);
            namespaces.begin_check();
            namespaces.end_check();
            assert_eq!(namespaces.entries(), 1);
        }
        assert_eq!(namespaces.index_of(ViewId::whole(0), 1), Some(first));
    }

    /// A channel that blocks while closing until the test drops the sender.
    struct Slow(Mutex<Receiver<()>>);

    impl Channel for Slow {
        fn submit(&mut self, request: Request, _now_ns: u64) -> Submitted {
            Submitted::Done(request.complete(Ok(())))
        }
        fn poll(&mut self, _now_ns: u64, _done: &mut Vec<Completion>) {}
        fn in_flight(&self) -> usize {
            0
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.get_mut().expect("no panic").recv_timeout(Duration::from_secs(60)); // bounds the time on a wrong thread
        }
    }

    /// The test would hang if another thread closed a channel.
    #[test]
    fn channels_are_kept_while_the_reaper_is_busy() {
        let reaper = Reaper::with_capacity(1).expect("a thread");
        let mut namespaces = Namespaces::new().expect("a descriptor");
        let geometry = NullBackend::new(4096, 16).expect("a backend").geometry();
        let (allow, leases): (Vec<_>, Vec<_>) = (1..=4)
            .map(|nsid| {
                let ((allow, allowed), lease) = (mpsc::channel::<()>(), Lease::default());
                let closed = lease.closed();
                let leased = Leased { channel: Box::new(Slow(allowed.into())), lease };
                namespaces.add((0, nsid), geometry, leased, Default::default());
                (allow, closed)
            })
            .unzip();
        (1..=4).for_each(|nsid| namespaces.remove(0, nsid));
        namespaces.poll(0, &mut Vec::new(), &reaper);
        // One is being closed, at most one is queued; the rest waits for a retry.
        assert!(matches!(namespaces.wait(0), Wait::Until(1..)), "{:?}", namespaces.wait(0));
        drop(allow);
        retire(&mut namespaces, &reaper);
        let until = Instant::now() + Duration::from_secs(60);
        assert!(leases.iter().all(|closed| closed.wait(until)));
        assert_eq!(namespaces.wait(0), Wait::Event);
    }

    #[test]
    fn an_index_is_not_used_again_while_a_command_refers_to_it() {
        let (mut namespaces, reaper) = (Namespaces::new().expect("a bell"), Reaper::start().expect("a thread"));
        let old = add(&mut namespaces, 1);
        namespaces.remove(0, 1);
        retire(&mut namespaces, &reaper);
        namespaces.begin_check();
        namespaces.note_reference(old);
        namespaces.end_check();
        assert!(namespaces.has_unchecked() && add(&mut namespaces, 2) != old);
        assert!(namespaces.channel(old).is_none(), "the command fails");
        namespaces.begin_check();
        namespaces.end_check();
        assert!(!namespaces.has_unchecked());
        assert_eq!(add(&mut namespaces, 3), old);
    }
}
