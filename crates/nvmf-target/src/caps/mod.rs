//! Bandwidth caps of namespaces, and of hosts over all of their namespaces.
//!
//! # The problem
//! Commands of one namespace arrive on many I/O threads, from many hosts. Together they must not exceed the cap, hosts must
//! share it fairly, and uncapped commands must not pay for it. The request path takes no lock.
//!
//! # Terms
//! A *cap* is a rate in bytes per second, set by the operator, the policy, or both: then the lower one applies. A *limit* is
//! a namespace or a host, capped or not. Its *budget* is shared by all I/O threads. A *bucket* is an I/O thread's part of
//! the budget, filled in *slices*. A command delayed by a limit is *throttled*. Bytes are those that a command reads or
//! writes in its namespace (Read, Write, Compare, Verify, Write Zeroes).
//!
//! # The algorithm
//! A budget is one word: the time up to which it is spent (the generic cell rate algorithm, ITU-T I.371). A command is
//! admitted once that time has passed, and advances it by its bytes at the cap. Unspent time is kept up to [`DEPTH_NS`].
//!
//! While no command is throttled, buckets are filled by slices of at most [`SLICES_NS`] in total, and return idle bytes to
//! the budget. While one is throttled, a command takes only its own bytes, and only in its turn (`turns.rs`): among hosts by
//! bytes (start-time fair queuing, Goyal et al. 1996), among the I/O threads of a host by age.
//!
//! A throttled command waits in its queue pair (`queue_pair/throttle.rs`): it has been decoded and keeps in-capsule data,
//! but no R2T has been sent and no backend request submitted. Its I/O thread retries it when the budget is due, at least
//! every [`RETRY_NS`].
//!
//! # The properties
//! - In any second at most 1.02 times the cap and one largest request are admitted, without returned bytes.
//! - With enough waiting commands at least 0.98 times the cap are admitted.
//! - Hosts of a namespace with enough waiting commands get equal parts. 64 hosts are distinguished; more share a part.
//! - No command starves: the oldest known one of a host goes first.
//! - Unused bytes of aborted commands and lost connections return to the budget.
//! - Without caps and bandwidth readings (`meter.rs`) a command costs one branch.

mod bucket;
mod budget;
mod knobs;
mod limit;
pub(crate) mod meter;
mod metered;
mod thread;
mod turns;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwapOption;
use pilotlight_plant::Scope;
use pilotlight_reactor::clock;
use pilotlight_reactor::housekeeping::Waker;

pub use bucket::Bucket;
pub use knobs::CapKnobs;
pub use limit::{Limit, LimitStats, Setter};
pub use metered::Direction;
pub use thread::ThreadCaps;
pub use turns::Claim;

/// Valid caps in bytes per second.
pub const CAPS: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;
/// Unspent time that a budget keeps, in nanoseconds. With [`SLICES_NS`] for the buckets, and as much again for the slice
/// that ends a window, 1.6 % of a second: within the promised 2 %.
pub const DEPTH_NS: u64 = 8_000_000;
/// Time whose bytes the buckets of a limit hold together at most, in nanoseconds.
pub const SLICES_NS: u64 = 4_000_000;
/// Maximum interval of retries of a throttled command, in nanoseconds: the delay of a raised cap on a sleeping I/O thread.
/// Less than [`DEPTH_NS`], so that no budget is lost.
pub const RETRY_NS: u64 = 2_000_000;
/// Expected buckets of a host: keeps slices small while queue pairs connect.
const HOST_BUCKETS: u32 = 8;
/// Limits that policies can set at once. More hosts can connect and be capped by the operator.
const MAX_ENTRIES: usize = 4096;
/// Hosts of which those that are neither connected nor capped by the operator are forgotten.
const MANY_HOSTS: usize = MAX_ENTRIES / 2;

/// A limit that policies can set.
#[derive(Debug)]
struct Entry {
    scope: Scope,
    limit: Arc<Limit>,
    /// The file or device of a namespace.
    path: Option<PathBuf>,
    /// The drive of that file, looked up on first use.
    drive: OnceLock<Option<u16>>,
    /// Its first reading among those of all limits.
    first_source: usize,
}

/// The limits of a server.
#[derive(Debug)]
pub struct Caps {
    /// Number of caps set, counting operator and policy, plus one while bytes are metered.
    set: AtomicUsize,
    /// Whether the bytes of namespaces and hosts are metered.
    metered: AtomicBool,
    /// Counts changes of caps.
    changes: AtomicU64,
    /// Filled in order, so that the main core finds a limit without a lock. The place of a limit that has ended is used again for one of the
    /// same kind, once policies have been told that it has ended ([`Caps::list`]).
    entries: Box<[ArcSwapOption<Entry>]>,
    registry: Mutex<Registry>,
}

#[derive(Debug, Default)]
struct Registry {
    hosts: HashMap<String, HostLimit>,
    /// Hosts at which ended ones are looked for.
    forget_at: usize,
    entries: usize,
    /// Places of limits that have ended, not yet listed as such.
    ended: Vec<usize>,
    /// Places to use again, of namespaces and of hosts.
    free: [Vec<usize>; 2],
    /// Their readings.
    sources: usize,
    /// Next numbers of namespaces and hosts.
    namespaces: u32,
    hosts_numbered: u32,
    /// Woken for each new host.
    on_host: Waker,
}

/// The limit of a host, and its place if it has one.
#[derive(Debug)]
struct HostLimit {
    limit: Arc<Limit>,
    place: Option<usize>,
}

impl HostLimit {
    /// Whether others than the registry and the place refer to it, or the operator caps it.
    fn is_used(&self) -> bool {
        let own = 1 + usize::from(self.place.is_some());
        Arc::strong_count(&self.limit) > own || self.limit.cap_of(Setter::Operator).is_some()
    }
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            set: AtomicUsize::new(0),
            metered: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            entries: (0..MAX_ENTRIES).map(|_| ArcSwapOption::empty()).collect(),
            registry: Mutex::default(),
        }
    }
}

impl Caps {
    /// Whether anything is capped or metered, so that commands must be charged.
    #[must_use]
    pub fn are_in_use(&self) -> bool {
        self.set.load(Relaxed) != 0
    }

    /// Whether the bytes of namespaces and hosts are metered.
    #[must_use]
    pub fn are_metered(&self) -> bool {
        self.metered.load(Relaxed)
    }

    /// Starts or stops metering bytes. Returns whether that is a change.
    pub(crate) fn set_metered(&self, metered: bool) -> bool {
        let was = self.metered.swap(metered, Relaxed);
        match (was, metered) {
            (false, true) => _ = self.set.fetch_add(1, Relaxed),
            (true, false) => _ = self.set.fetch_sub(1, Relaxed),
            _ => {}
        }
        was != metered
    }

    /// Counts changes of caps.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// Sets or removes one of the two caps of a limit. One thread at a time per setter.
    pub fn set(&self, limit: &Limit, setter: Setter, bytes_per_s: Option<u64>, now_ns: u64) {
        let had = limit.set(setter, bytes_per_s, now_ns);
        match (had, bytes_per_s.is_some()) {
            (false, true) => _ = self.set.fetch_add(1, Relaxed),
            (true, false) => _ = self.set.fetch_sub(1, Relaxed),
            _ => {}
        }
        self.changes.fetch_add(1, Relaxed);
    }

    /// Adds the limit of a namespace in the file `path`, with a bucket for each of `io_threads` I/O threads.
    pub(crate) fn add_namespace(&self, limit: &Arc<Limit>, path: Option<&Path>, io_threads: u32) {
        limit.add_buckets(io_threads);
        let mut registry = self.registry();
        let scope = Scope::Namespace(registry.namespaces);
        registry.namespaces += 1;
        self.add_entry(&mut registry, scope, limit, path);
    }

    /// Removes a namespace with its caps.
    pub(crate) fn remove_namespace(&self, limit: &Limit, now_ns: u64) {
        self.end(limit, now_ns);
        let place = self.entries().position(|entry| std::ptr::eq(Arc::as_ptr(&entry.limit), limit));
        self.registry().ended.extend(place);
    }

    /// Ends a limit with its caps.
    fn end(&self, limit: &Limit, now_ns: u64) {
        limit.retire();
        for setter in [Setter::Operator, Setter::Policy] {
            self.set(limit, setter, None, now_ns);
        }
    }

    /// Forgets hosts that are neither connected nor capped by the operator, if there are many.
    fn forget_hosts(&self, registry: &mut Registry) {
        if registry.hosts.len() < registry.forget_at.max(MANY_HOSTS) {
            return;
        }
        let now_ns = clock::now_ns();
        for (_, host) in registry.hosts.extract_if(|_, host| !host.is_used()) {
            self.end(&host.limit, now_ns);
            registry.ended.extend(host.place);
        }
        registry.forget_at = 2 * registry.hosts.len();
    }

    /// The limit of the host named `nqn`.
    pub(crate) fn host(&self, nqn: &str) -> Arc<Limit> {
        let mut registry = self.registry();
        if let Some(host) = registry.hosts.get(nqn) {
            return Arc::clone(&host.limit);
        }
        self.forget_hosts(&mut registry);
        let limit = Arc::new(Limit::of_host(registry.hosts_numbered));
        limit.add_buckets(HOST_BUCKETS);
        registry.hosts_numbered += 1;
        let scope = Scope::Host(limit.number());
        let place = self.add_entry(&mut registry, scope, &limit, None);
        registry.hosts.insert(nqn.to_owned(), HostLimit { limit: Arc::clone(&limit), place });
        registry.on_host.wake();
        limit
    }

    /// Whether a host is connected, capped by the operator, or has a priority.
    pub(crate) fn uses_host(&self, nqn: &str) -> bool {
        self.registry().hosts.get(nqn).is_some_and(HostLimit::is_used)
    }

    /// Sets what each new host wakes.
    pub(crate) fn notify_on_hosts(&self, waker: Waker) {
        self.registry().on_host = waker;
    }

    /// The hosts that were connected or capped, by name.
    pub(crate) fn hosts(&self) -> Vec<(String, Arc<Limit>)> {
        let registry = self.registry();
        let mut hosts: Vec<_> =
            registry.hosts.iter().map(|(nqn, host)| (nqn.clone(), Arc::clone(&host.limit))).collect();
        hosts.sort_by(|a, b| a.0.cmp(&b.0));
        hosts
    }

    /// Returns the place of the new entry, if one is left.
    fn add_entry(
        &self,
        registry: &mut Registry,
        scope: Scope,
        limit: &Arc<Limit>,
        path: Option<&Path>,
    ) -> Option<usize> {
        let of_kind = usize::from(matches!(scope, Scope::Host(_)));
        let freed = registry.free[of_kind].pop();
        let at = freed.unwrap_or(registry.entries);
        let place = self.entries.get(at)?;
        let first_source = place.load().as_ref().map_or(registry.sources, |ended| ended.first_source);
        if freed.is_none() {
            registry.entries += 1;
            registry.sources += metered::count_of(scope);
        }
        let (limit, path) = (Arc::clone(limit), path.map(Path::to_owned));
        place.store(Some(Arc::new(Entry { scope, limit, path, drive: OnceLock::new(), first_source })));
        Some(at)
    }

    /// What `knob` makes of each limit, for policies. Places that it gets as ended are then free.
    fn list<T>(&self, knob: impl Fn(&Entry) -> T) -> Vec<T> {
        let ended = std::mem::take(&mut self.registry().ended);
        let all = self.entries().map(|entry| knob(&entry)).collect();
        let mut registry = self.registry();
        for at in ended {
            let of_kind = self.entry(at).map(|entry| usize::from(matches!(entry.scope, Scope::Host(_))));
            of_kind.into_iter().for_each(|of_kind| registry.free[of_kind].push(at));
        }
        all
    }

    /// Number of limits ever added.
    pub(crate) fn added(&self) -> u64 {
        let registry = self.registry();
        u64::from(registry.namespaces) + u64::from(registry.hosts_numbered)
    }

    /// The policies' name of this limit.
    pub(crate) fn number_of(&self, limit: &Arc<Limit>) -> Option<Scope> {
        self.entries().find(|entry| Arc::ptr_eq(&entry.limit, limit)).map(|entry| entry.scope)
    }

    /// Limits that policies can set, by number, with those that have ended.
    fn entries(&self) -> impl Iterator<Item = Arc<Entry>> {
        self.entries.iter().map_while(ArcSwapOption::load_full)
    }

    /// The namespaces known to policies, with their numbers.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (u32, Arc<Limit>)> {
        self.entries().filter_map(|entry| match entry.scope {
            Scope::Namespace(number) => Some((number, Arc::clone(&entry.limit))),
            _ => None,
        })
    }

    /// The limit of a reading, and the reading's index within it.
    fn entry_of_source(&self, source: usize) -> Option<(Arc<Entry>, usize)> {
        let is_before =
            |place: &ArcSwapOption<Entry>| place.load().as_ref().is_some_and(|entry| entry.first_source <= source);
        let entry = self.entry(self.entries.partition_point(is_before).checked_sub(1)?)?;
        let at = source - entry.first_source;
        (at < metered::count_of(entry.scope)).then_some((entry, at))
    }

    /// The limit of this number.
    fn entry(&self, at: usize) -> Option<Arc<Entry>> {
        self.entries.get(at)?.load_full()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
