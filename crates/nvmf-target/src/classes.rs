//! Priority classes of connections, and their I/O threads.
//!
//! **Class.** A request has the lower priority of its host and its namespace, if both have one. A connection reaches every
//! namespace of its subsystem, so it has the highest class of its requests.
//! **I/O threads.** The I/O threads are divided equally among the possible classes. With more classes than I/O threads the
//! highest classes have one each, and the others share the first. So an I/O thread serves one class, and the policy can
//! keep critical classes on separate cores (PASS, section 5.4).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::allows;

/// Priorities and the classes derived from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    hosts: HashMap<String, u8>,
    /// The priorities of the namespaces of each subsystem.
    subsystems: Vec<Vec<Option<u8>>>,
    /// The possible classes in ascending order.
    all: Vec<u8>,
    io_threads: usize,
}

/// The hosts that may use a subsystem (any if empty); `None`: it is removed.
type AllowedHosts<'a> = Option<&'a [String]>;

impl Classes {
    /// From the priorities of `hosts` and of the namespaces of `subsystems`.
    #[must_use]
    pub fn new(hosts: HashMap<String, u8>, subsystems: &[(AllowedHosts, Vec<Option<u8>>)], io_threads: usize) -> Self {
        let mut classes = Self { hosts, subsystems: Vec::new(), all: Vec::new(), io_threads: io_threads.max(1) };
        classes.subsystems = subsystems.iter().map(|(_, namespaces)| namespaces.clone()).collect();
        let mut all = Vec::new();
        for (at, (allowed, _)) in subsystems.iter().enumerate() {
            let Some(allowed) = allowed else { continue };
            let others = allowed.iter().any(|host| !classes.hosts.contains_key(host));
            if others || allowed.is_empty() {
                all.extend(classes.of_priority(None, at));
            }
            let named = classes.hosts.iter().filter(|(host, _)| allows(allowed, host));
            all.extend(named.filter_map(|(_, &priority)| classes.of_priority(Some(priority), at)));
        }
        all.sort_unstable();
        all.dedup();
        classes.all = all;
        classes
    }

    /// The class of a host's connections to the subsystem of this index; `None` if there is no such subsystem.
    #[must_use]
    pub fn of(&self, hostnqn: &str, subsystem: usize) -> Option<u8> {
        self.of_priority(self.hosts.get(hostnqn).copied(), subsystem)
    }

    fn of_priority(&self, host: Option<u8>, subsystem: usize) -> Option<u8> {
        let namespaces = self.subsystems.get(subsystem)?;
        let class = |namespace: Option<u8>| [host, namespace].into_iter().flatten().min().unwrap_or(0);
        Some(namespaces.iter().map(|&namespace| class(namespace)).max().unwrap_or_else(|| class(None)))
    }

    /// The I/O threads of a class; all of them if it is the only one.
    #[must_use]
    pub fn threads(&self, class: u8) -> Range<usize> {
        let many = self.all.len().max(1);
        let rank = self.all.partition_point(|&known| known < class).min(many - 1);
        if many <= self.io_threads {
            return rank * self.io_threads / many..(rank + 1) * self.io_threads / many;
        }
        let at = self.io_threads - (many - rank).min(self.io_threads);
        at..at + 1
    }
}

/// The current classes of a server, and the distribution of connections over the I/O threads of a class.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    classes: Mutex<Arc<Classes>>,
    /// Distributes connections round robin.
    next: AtomicUsize,
}

impl Placement {
    /// The classes of connections. Takes a lock: for Connect.
    pub(crate) fn classes(&self) -> Arc<Classes> {
        Arc::clone(&self.lock())
    }

    /// Replaces the classes.
    pub(crate) fn set_classes(&self, classes: Classes) {
        *self.lock() = Arc::new(classes);
    }

    /// The I/O thread for a connection of this host, if it is not `here`.
    pub(crate) fn other_thread(&self, hostnqn: &str, subsystem: usize, here: u16) -> Option<u16> {
        let classes = self.classes();
        let threads = classes.threads(classes.of(hostnqn, subsystem)?);
        if threads.contains(&usize::from(here)) {
            return None;
        }
        let at = threads.start + self.next.fetch_add(1, Relaxed) % threads.len().max(1);
        Some(at as u16)
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Classes>> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(hosts: &[(&str, u8)], namespaces: &[Option<u8>], io_threads: usize) -> Classes {
        let hosts = hosts.iter().map(|&(host, priority)| (host.to_owned(), priority)).collect();
        Classes::new(hosts, &[(Some(&[]), namespaces.to_vec())], io_threads)
    }

    #[test]
    fn a_connection_has_the_highest_class_of_its_requests() {
        let of = |hosts, namespaces: &[Option<u8>]| classes(hosts, namespaces, 1).of("h", 0);
        assert_eq!(of(&[], &[]), Some(0));
        assert_eq!(of(&[], &[Some(3), None]), Some(3));
        assert_eq!(of(&[("h", 2)], &[Some(3), Some(1)]), Some(2));
        assert_eq!(of(&[("h", 9)], &[Some(3), Some(1)]), Some(3));
        assert_eq!(of(&[("h", 9)], &[Some(3), None]), Some(9), "a namespace without a priority");
        assert_eq!(of(&[("h", 9)], &[]), Some(9));
        assert_eq!(classes(&[], &[], 1).of("h", 7), None);
    }

    #[test]
    fn io_threads_are_divided_among_classes() {
        let threads = |hosts, io_threads| {
            let classes = classes(hosts, &[None], io_threads);
            [0, 5, 9].map(|class| classes.threads(class))
        };
        assert_eq!(threads(&[], 4), [0..4, 0..4, 0..4], "one class");
        assert_eq!(threads(&[("a", 5), ("b", 9)], 7), [0..2, 2..4, 4..7]);
        assert_eq!(threads(&[("a", 5), ("b", 9)], 3), [0..1, 1..2, 2..3]);
        assert_eq!(threads(&[("a", 5), ("b", 9)], 2), [0..1, 0..1, 1..2]);
        assert_eq!(threads(&[("a", 5), ("b", 9)], 1), [0..1, 0..1, 0..1]);
    }

    #[test]
    fn impossible_classes_get_no_io_thread() {
        let hosts = || [("a".to_owned(), 5)].into();
        let names = ["a".to_owned(), "b".to_owned()];
        let closed = Classes::new(hosts(), &[(Some(&names[..1]), vec![None])], 4);
        assert_eq!(closed.threads(5), 0..4);
        let open = Classes::new(hosts(), &[(Some(&names), vec![None])], 4);
        assert_eq!([0, 5].map(|class| open.threads(class)), [0..2, 2..4]);
        let removed = Classes::new(hosts(), &[(Some(&names[..1]), vec![None]), (None, vec![])], 4);
        assert_eq!(removed.threads(5), 0..4);
    }
}
