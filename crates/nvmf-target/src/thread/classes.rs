//! Priority classes of connections, and their I/O threads.
//!
//! **Class.** A request has the lower priority of its host and its namespace, if both have one. A connection reaches every
//! namespace of its subsystem, so it has the highest class of its requests.
//! **I/O threads.** The I/O threads are divided equally among the possible classes. With more classes than I/O threads the
//! highest classes have one each, and the others share the first. So an I/O thread serves one class, and the policy can
//! keep critical classes on separate cores (PASS, section 5.4). Within a class each new I/O queue goes to the I/O thread with
//! the fewest: hosts with one I/O queue each would else all have it on one core, and their admin queues on the other.
//! All I/O queues count alike, as their load is not known. By host ([`QueuePlacement::Host`]) the I/O queues of a host follow its first one.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::config::{QueuePlacement, allows};

/// Priorities and the classes derived from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Classes {
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
    pub(crate) fn new(
        hosts: HashMap<String, u8>,
        subsystems: &[(AllowedHosts, Vec<Option<u8>>)],
        io_threads: usize,
    ) -> Self {
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
    pub(crate) fn class_of(&self, hostnqn: &str, subsystem: usize) -> Option<u8> {
        self.of_priority(self.hosts.get(hostnqn).copied(), subsystem)
    }

    fn of_priority(&self, host: Option<u8>, subsystem: usize) -> Option<u8> {
        let namespaces = self.subsystems.get(subsystem)?;
        let class = |namespace: Option<u8>| [host, namespace].into_iter().flatten().min().unwrap_or(0);
        Some(namespaces.iter().map(|&namespace| class(namespace)).max().unwrap_or_else(|| class(None)))
    }

    /// The I/O threads of a class; all of them if it is the only one.
    #[must_use]
    pub(crate) fn threads(&self, class: u8) -> Range<usize> {
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
#[derive(Debug)]
pub(crate) struct Placement {
    assigned: Mutex<Assigned>,
    /// The I/O queues of each I/O thread. Added to while `assigned` is locked.
    io_queues: Arc<[AtomicU32]>,
    /// Distributes admin queues round robin.
    next: AtomicUsize,
}

/// A host's NQN and the class of its connections.
type HostOfClass = (String, u8);

/// What decides where a connection belongs.
#[derive(Debug, Default)]
struct Assigned {
    classes: Arc<Classes>,
    /// By host: the I/O thread of each host with I/O queues of a class, and what these queues hold. `None`: by queue.
    hosts: Option<HashMap<HostOfClass, (u16, Weak<()>)>>,
}

/// Where a connection belongs.
#[derive(Debug)]
pub(crate) struct Place {
    /// The I/O thread.
    pub(crate) thread: u16,
    /// Of an I/O queue.
    pub(crate) count: Option<QueueCount>,
}

/// Counts an I/O queue on its I/O thread until dropped.
#[derive(Debug)]
pub struct QueueCount {
    io_queues: Arc<[AtomicU32]>,
    thread: u16,
    /// Held by each I/O queue of a host, so that the host is known as long as it has one.
    of_host: Option<Arc<()>>,
}

impl Drop for QueueCount {
    fn drop(&mut self) {
        self.io_queues[usize::from(self.thread)].fetch_sub(1, Relaxed);
    }
}

impl Placement {
    /// For this number of I/O threads.
    pub(crate) fn new(io_threads: usize, by: QueuePlacement) -> Self {
        let io_queues = (0..io_threads).map(|_| AtomicU32::new(0)).collect();
        let hosts = (by == QueuePlacement::Host).then(HashMap::new);
        let assigned = Mutex::new(Assigned { hosts, ..Assigned::default() });
        Self { assigned, io_queues, next: AtomicUsize::new(0) }
    }

    /// The classes of connections. Takes a lock: for Connect.
    pub(crate) fn classes(&self) -> Arc<Classes> {
        Arc::clone(&self.lock().classes)
    }

    /// Replaces the classes.
    pub(crate) fn set_classes(&self, classes: Classes) {
        self.lock().classes = Arc::new(classes);
    }

    /// The place of a connection of this host that is `here`: it stays there if `here` serves its class, an I/O queue only if no
    /// other I/O thread of the class has fewer I/O queues. `None` if there is no such subsystem.
    pub(crate) fn place(&self, hostnqn: &str, subsystem: usize, is_io: bool, here: u16) -> Option<Place> {
        let mut assigned = self.lock();
        let Assigned { classes, hosts } = &mut *assigned;
        let class = classes.class_of(hostnqn, subsystem)?;
        let threads = classes.threads(class);
        let is_served_here = threads.contains(&usize::from(here));
        if !is_io {
            let next = || (threads.start + self.next.fetch_add(1, Relaxed) % threads.len().max(1)) as u16;
            return Some(Place { thread: if is_served_here { here } else { next() }, count: None });
        }
        let queues =
            |&thread: &usize| (self.io_queues[thread].load(Relaxed), !is_served_here || thread != usize::from(here));
        let fewest = |threads: Range<usize>| threads.min_by_key(queues).map(|thread| thread as u16);
        let Some(hosts) = hosts else {
            let thread = fewest(threads)?;
            return Some(Place { thread, count: Some(self.count(thread)) });
        };
        hosts.retain(|_, (_, queues)| queues.strong_count() > 0);
        let key = (hostnqn.to_owned(), class);
        let known = hosts.get(&key).filter(|(thread, _)| threads.contains(&usize::from(*thread)));
        let (thread, of_host) = match known.and_then(|(thread, queues)| Some((*thread, queues.upgrade()?))) {
            Some(known) => known,
            None => (fewest(threads)?, Arc::default()),
        };
        hosts.insert(key, (thread, Arc::downgrade(&of_host)));
        let mut count = self.count(thread);
        count.of_host = Some(of_host);
        Some(Place { thread, count: Some(count) })
    }

    /// Counts an I/O queue on this I/O thread, where it stays whoever its host is.
    pub(crate) fn count(&self, thread: u16) -> QueueCount {
        self.io_queues[usize::from(thread)].fetch_add(1, Relaxed);
        QueueCount { io_queues: Arc::clone(&self.io_queues), thread, of_host: None }
    }

    fn lock(&self) -> MutexGuard<'_, Assigned> {
        self.assigned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn classes(hosts: &[(&str, u8)], namespaces: &[Option<u8>], io_threads: usize) -> Classes {
        let hosts = hosts.iter().map(|&(host, priority)| (host.to_owned(), priority)).collect();
        Classes::new(hosts, &[(Some(&[]), namespaces.to_vec())], io_threads)
    }

    #[test]
    fn a_connection_has_the_highest_class_of_its_requests() {
        let of = |hosts, namespaces: &[Option<u8>]| classes(hosts, namespaces, 1).class_of("h", 0);
        assert_eq!(of(&[], &[]), Some(0));
        assert_eq!(of(&[], &[Some(3), None]), Some(3));
        assert_eq!(of(&[("h", 2)], &[Some(3), Some(1)]), Some(2));
        assert_eq!(of(&[("h", 9)], &[Some(3), Some(1)]), Some(3));
        assert_eq!(of(&[("h", 9)], &[Some(3), None]), Some(9), "a namespace without a priority");
        assert_eq!(of(&[("h", 9)], &[]), Some(9));
        assert_eq!(classes(&[], &[], 1).class_of("h", 7), None);
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

    #[test]
    fn io_queues_go_to_the_thread_with_the_fewest() {
        let placement = Placement::new(4, QueuePlacement::Queue);
        placement.set_classes(classes(&[("a", 5)], &[None], 4));
        let place = |host, is_io, here| placement.place(host, 0, is_io, here).expect("a place");
        let at = |place: &Place| place.thread;
        let admin = [place("a", false, 3), place("a", false, 0), place("a", false, 1)];
        assert_eq!(
            admin.each_ref().map(at),
            [3, 2, 3],
            "an admin queue stays, or moves to a thread of its class in turn"
        );
        let one = place("a", true, 3);
        assert_eq!(at(&one), 3, "of equal ones the one that accepted it");
        let others = [place("a", true, 3), place("a", true, 0), place("b", true, 1)];
        assert_eq!(others.each_ref().map(at), [2, 2, 1]);
        drop(one);
        assert_eq!(at(&place("a", true, 2)), 3, "the end of an I/O queue counts");
        assert!(placement.place("a", 7, true, 0).is_none());
    }

    #[test]
    fn by_host_its_io_queues_follow_the_first_one() {
        let placement = Placement::new(3, QueuePlacement::Host);
        placement.set_classes(classes(&[], &[None], 3));
        let place = |host, here| placement.place(host, 0, true, here).expect("a place");
        let threads = |places: &[Place]| places.iter().map(|place| place.thread).collect::<Vec<_>>();
        let a = [place("a", 1), place("a", 2), place("a", 0)];
        let b = [place("b", 0), place("b", 1)];
        assert_eq!((threads(&a), threads(&b)), (vec![1; 3], vec![0; 2]));
        drop(a);
        assert_eq!(place("a", 1).thread, 1, "without I/O queues it has no thread, and takes one with none");
        let c = place("c", 0);
        assert_eq!((c.thread, place("b", 2).thread), (1, 0));
        // each class has its own threads, and so a thread of the host
        let two = Classes::new([("b".to_owned(), 5)].into(), &[(Some(&[]), vec![Some(0)]), (Some(&[]), vec![None])], 3);
        placement.set_classes(two);
        let of = |subsystem| placement.place("b", subsystem, true, 0).expect("a place");
        let mixed = [of(0), of(1), of(0), of(1)];
        assert_eq!(threads(&mixed), [0, 2, 0, 2], "thread 1 has a queue of c");
        drop(mixed);
        drop((b, c));
        assert!(placement.io_queues.iter().all(|queues| queues.load(Relaxed) == 0));
    }

    proptest! {
        /// Whatever thread accepts them, the I/O queues of a class are divided evenly among its threads.
        #[test]
        fn threads_of_a_class_differ_by_one_io_queue(accepted in prop::collection::vec((0..2u8, any::<bool>(), 0..5u16), 1..60)) {
            let placement = Placement::new(5, QueuePlacement::Queue);
            placement.set_classes(classes(&[("a", 5)], &[None], 5));
            let mut places = Vec::new();
            for (host, is_io, here) in accepted {
                places.extend(placement.place(if host == 0 { "a" } else { "b" }, 0, is_io, here));
            }
            let queues: Vec<u32> = placement.io_queues.iter().map(|queues| queues.load(Relaxed)).collect();
            for threads in [0..2, 2..5] {
                let of_class = &queues[threads];
                prop_assert!(of_class.iter().max().unwrap() - of_class.iter().min().unwrap() <= 1, "{queues:?}");
            }
            drop(places);
            prop_assert!(placement.io_queues.iter().all(|queues| queues.load(Relaxed) == 0));
        }
    }
}
