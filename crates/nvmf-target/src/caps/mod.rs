//! Bandwidth caps: most bytes a second of a namespace, or of a host over all of its namespaces.
//!
//! # The problem
//! Commands of one namespace come in on many I/O threads, from many hosts. All of them together may not exceed the cap, no
//! host may take the share of another, and a command that nobody capped must not pay for any of this. The request path
//! takes no lock.
//!
//! # The words
//! A *cap* is a number of bytes a second, set by the operator, by the policy, or by both: then the lower one holds. A *limit*
//! is a namespace or a host, capped or not. Its *budget* is shared by all I/O threads. A *bucket* is the part of the budget
//! that an I/O thread holds, a *slice* what it takes at once. A command that a limit holds back is *throttled*. Bytes are
//! those that a command reads or writes on its namespace (Read, Write, Compare, Verify, Write Zeroes).
//!
//! # The algorithm
//! A budget is one word: the moment up to which it is spent (the generic cell rate algorithm, ITU-T I.371). A command is
//! admitted when that moment has come, and moves it by the time that its bytes take at the cap. What was not spent is worth
//! [`DEPTH_NS`] at most.
//!
//! While no command is throttled a bucket is filled by slices, which together are worth at most [`SLICES_NS`], and goes back
//! to the budget when it has not been used for a while. While one is throttled nobody takes more than the command at hand,
//! and it has to be its turn (`turns.rs`): among hosts by bytes (start-time fair queuing, Goyal et al. 1996), among the I/O
//! threads of a host by age.
//!
//! A throttled command waits in its queue pair (`queue_pair/throttle.rs`): it has been decoded, and holds data that came
//! with it, but no data has been requested for it and no backend knows of it. Its I/O thread tries it again when the
//! budget is due, at least every [`RETRY_NS`].
//!
//! # The properties
//! - Over any second at most 1.02 times the cap and one largest request are admitted, less what was given back.
//! - Whoever has enough commands waiting gets at least 0.98 times the cap.
//! - Hosts that share a namespace and have enough commands waiting get equal parts. 64 hosts are told apart; beyond, some
//!   share a part.
//! - No command waits for ever: of one host the oldest that is known goes first.
//! - What a command did not use (it was aborted, its connection was lost) goes back to the budget.
//! - Where nothing is capped, and no policy wants to know bytes a second (`meter.rs`), a command costs one branch.

mod bucket;
mod budget;
mod here;
mod knobs;
mod limit;
mod meter;
mod turns;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pilotlight_plant::Scope;

pub use bucket::Bucket;
pub use here::CapsHere;
pub use knobs::CapKnobs;
pub use limit::{Limit, LimitStats, Setter};
pub use meter::{Direction, Meter};
pub use turns::Claim;

use crate::server::Bell;

/// Caps that can be set, in bytes a second.
pub const CAPS: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;
/// Time whose bytes a budget keeps that were not spent, in nanoseconds. With [`SLICES_NS`] for what buckets hold, and as much
/// again for the slice that ends a window, 1.6 % of a second: within the promised 2 %.
pub const DEPTH_NS: u64 = 8_000_000;
/// Time whose bytes all buckets of a limit hold together at most, in nanoseconds.
pub const SLICES_NS: u64 = 4_000_000;
/// Longest time until a throttled command is tried again, in nanoseconds: a cap that was raised is noticed that late by an
/// I/O thread that waits in the kernel. Less than [`DEPTH_NS`], so that nothing is lost.
pub const RETRY_NS: u64 = 2_000_000;
/// Buckets that a host is expected to have: a slice stays small while queue pairs connect.
const HOST_BUCKETS: u32 = 8;
/// Limits that policies can set. More hosts can connect, and be capped by the operator.
const MAX_PLACES: usize = 4096;

/// A limit that policies can set.
#[derive(Debug)]
struct Place {
    scope: Scope,
    limit: Arc<Limit>,
    /// The file or device that holds the blocks of a namespace.
    path: Option<PathBuf>,
    /// The drive of that file, once somebody has asked for it.
    drive: OnceLock<Option<u16>>,
    /// Its first reading, counted from the first one of all limits.
    first_source: usize,
}

/// The limits of a server.
#[derive(Debug)]
pub struct Caps {
    /// Caps that are set: of each limit the operator's and the policy's; and one more while bytes are metered.
    set: AtomicUsize,
    /// Whether the bytes of namespaces and hosts are metered.
    metered: AtomicBool,
    /// Counts changes of caps.
    changes: AtomicU64,
    /// Filled from the front, so that the main core finds a limit without a lock.
    places: Box<[OnceLock<Place>]>,
    registry: Mutex<Registry>,
}

#[derive(Debug, Default)]
struct Registry {
    hosts: HashMap<String, Arc<Limit>>,
    places: usize,
    /// Their readings.
    sources: usize,
    /// Namespaces and hosts that have been numbered.
    namespaces: u32,
    hosts_numbered: u32,
    /// Rung at each new host.
    on_host: Option<Bell>,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            set: AtomicUsize::new(0),
            metered: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            places: (0..MAX_PLACES).map(|_| OnceLock::new()).collect(),
            registry: Mutex::default(),
        }
    }
}

impl Caps {
    /// Whether anything is capped or metered, so that commands have to be charged.
    #[must_use]
    pub fn are_in_use(&self) -> bool {
        self.set.load(Relaxed) != 0
    }

    /// Whether the bytes of namespaces and hosts are metered.
    #[must_use]
    pub fn are_metered(&self) -> bool {
        self.metered.load(Relaxed)
    }

    /// Meters the bytes of namespaces and hosts from now on, or no longer; whether that is a change.
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

    /// Sets one of the two caps of a limit; `None` takes it away. One thread at a time for each setter.
    pub fn set(&self, limit: &Limit, setter: Setter, bytes_per_s: Option<u64>, now_ns: u64) {
        let had = limit.set(setter, bytes_per_s, now_ns);
        match (had, bytes_per_s.is_some()) {
            (false, true) => _ = self.set.fetch_add(1, Relaxed),
            (true, false) => _ = self.set.fetch_sub(1, Relaxed),
            _ => {}
        }
        self.changes.fetch_add(1, Relaxed);
    }

    /// Makes the limit of a namespace in the file `path` known to policies, from which `io_threads` I/O threads take slices.
    pub(crate) fn add_namespace(&self, limit: &Arc<Limit>, path: Option<&Path>, io_threads: u32) {
        limit.add_buckets(io_threads);
        let mut registry = self.registry();
        let of = Scope::Namespace(registry.namespaces);
        registry.namespaces += 1;
        self.enlist(&mut registry, of, limit, path);
    }

    /// The namespace is gone: so are its caps.
    pub(crate) fn remove_namespace(&self, limit: &Limit, now_ns: u64) {
        limit.retire();
        for setter in [Setter::Operator, Setter::Policy] {
            self.set(limit, setter, None, now_ns);
        }
    }

    /// The limit of the host named `nqn`.
    pub(crate) fn host(&self, nqn: &str) -> Arc<Limit> {
        let mut registry = self.registry();
        if let Some(limit) = registry.hosts.get(nqn) {
            return Arc::clone(limit);
        }
        if registry.hosts.len() >= MAX_PLACES {
            // hosts that are neither connected nor capped nor known to policies
            registry.hosts.retain(|_, limit| Arc::strong_count(limit) > 1 || limit.bytes_per_s().is_some());
        }
        let limit = Arc::new(Limit::of_host(registry.hosts_numbered));
        limit.add_buckets(HOST_BUCKETS);
        registry.hosts_numbered += 1;
        registry.hosts.insert(nqn.to_owned(), Arc::clone(&limit));
        let of = Scope::Host(limit.number());
        self.enlist(&mut registry, of, &limit, None);
        registry.on_host.iter().for_each(Bell::ring);
        limit
    }

    /// From now on `bell` is rung at each new host.
    pub(crate) fn ring_at_hosts(&self, bell: Option<Bell>) {
        self.registry().on_host = bell;
    }

    /// The hosts that are or were connected, or are capped, by name.
    pub(crate) fn hosts(&self) -> Vec<(String, Arc<Limit>)> {
        let registry = self.registry();
        let mut hosts: Vec<_> = registry.hosts.iter().map(|(nqn, limit)| (nqn.clone(), Arc::clone(limit))).collect();
        hosts.sort_by(|a, b| a.0.cmp(&b.0));
        hosts
    }

    fn enlist(&self, registry: &mut Registry, scope: Scope, limit: &Arc<Limit>, path: Option<&Path>) {
        let Some(place) = self.places.get(registry.places) else { return };
        let first_source = registry.sources;
        registry.places += 1;
        registry.sources += meter::count_of(scope);
        let (limit, path) = (Arc::clone(limit), path.map(Path::to_owned));
        let _ = place.set(Place { scope, limit, path, drive: OnceLock::new(), first_source }); // under the lock: it is free
    }

    /// Limits that policies can set, those of namespaces that are gone included.
    pub(crate) fn len(&self) -> usize {
        self.places().count()
    }

    /// What policies know as this limit.
    pub(crate) fn number_of(&self, limit: &Arc<Limit>) -> Option<Scope> {
        self.places().find(|place| Arc::ptr_eq(&place.limit, limit)).map(|place| place.scope)
    }

    /// Limits that policies can set, by number.
    fn places(&self) -> impl Iterator<Item = &Place> {
        self.places.iter().map_while(OnceLock::get)
    }

    /// The namespaces that policies know, each with the number of its limit.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (usize, &Arc<Limit>)> {
        let is_namespace = |(_, place): &(usize, &Place)| matches!(place.scope, Scope::Namespace(_));
        self.places().enumerate().filter(is_namespace).map(|(at, place)| (at, &place.limit))
    }

    /// The limit to which a reading belongs, and which of its readings it is.
    fn place_of_source(&self, source: usize) -> Option<(&Place, usize)> {
        let is_before = |place: &OnceLock<Place>| place.get().is_some_and(|place| place.first_source <= source);
        let place = self.place(self.places.partition_point(is_before).checked_sub(1)?)?;
        let at = source - place.first_source;
        (at < meter::count_of(place.scope)).then_some((place, at))
    }

    /// The limit of this number.
    fn place(&self, at: usize) -> Option<&Place> {
        self.places.get(at)?.get()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
