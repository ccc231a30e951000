//! Caps on the bandwidth of namespaces and hosts: a command waits before it goes to its drive, as in the server (`nvmf-target/src/caps/`).
//!
//! **Rule.** A cap's budget is the moment up to which it is spent (generic cell rate algorithm). A command is admitted once that moment has
//! come, and moves it by the time that its bytes take at the cap; what was not spent is worth [`DEPTH_NS`] at most. A command meets the
//! cap of its host first, and then that of its namespace. Among hosts that wait for one cap, turns are by bytes (start-time fair queuing);
//! commands of one host go in their order. Waiting costs no CPU time. The server tries what waits again every 2 ms at the latest; here it
//! goes on at once.
//!
//! **Order.** Of one moment: changes of caps, commands that have waited, then commands that come.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use pilotlight_plant::Scope;

use super::floor::Submission;

/// Time whose bytes a budget keeps that were not spent, in nanoseconds, as in the server.
const DEPTH_NS: u64 = 8_000_000;

/// Whom a command is for, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Meets {
    pub(crate) host: usize,
    pub(crate) namespace: usize,
}

/// A command that waits: the least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    /// Bytes of its host before it.
    start: u64,
    since_ns: u64,
    submission: Submission,
    meets: Meets,
}

/// The cap of a namespace or a host, and who waits for it.
#[derive(Debug, Default)]
struct Limit {
    bytes_per_s: Option<u64>,
    /// Up to when its budget is spent.
    spent_ns: u64,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// The turn that was served last, and by host the end of its last turn, while anything waits.
    turn: u64,
    ends: BTreeMap<usize, u64>,
}

impl Limit {
    /// When the next of those that wait is admitted.
    fn due_ns(&self, now_ns: u64) -> u64 {
        match (self.waiting.is_empty(), self.bytes_per_s) {
            (true, _) => u64::MAX,
            (false, None) => now_ns,
            (false, Some(_)) => self.spent_ns.max(now_ns),
        }
    }

    fn spend(&mut self, now_ns: u64, bytes: u32) {
        let Some(bytes_per_s) = self.bytes_per_s else { return };
        let took_ns = u64::from(bytes) * 1_000_000_000 / bytes_per_s.max(1);
        self.spent_ns = self.spent_ns.max(now_ns.saturating_sub(DEPTH_NS)) + took_ns;
    }

    /// Whether a command is admitted that comes now; else it waits.
    fn admits(&mut self, mut waiting: Waiting, now_ns: u64) -> bool {
        if self.waiting.is_empty() && (self.bytes_per_s.is_none() || self.spent_ns <= now_ns) {
            self.spend(now_ns, waiting.submission.bytes);
            return true;
        }
        let end = self.ends.entry(waiting.meets.host).or_default();
        waiting.start = self.turn.max(*end);
        *end = waiting.start + u64::from(waiting.submission.bytes.max(1));
        self.waiting.push(Reverse(waiting));
        false
    }

    /// Admits the next that waits.
    fn take(&mut self, now_ns: u64) -> Option<Waiting> {
        let Reverse(first) = self.waiting.pop()?;
        self.turn = first.start;
        if self.waiting.is_empty() {
            self.turn = 0;
            self.ends.clear();
        }
        self.spend(now_ns, first.submission.bytes);
        Some(first)
    }
}

/// The caps of all namespaces and hosts.
#[derive(Debug)]
pub(crate) struct Caps {
    /// Namespaces, then hosts.
    limits: Vec<Limit>,
    namespaces: usize,
    /// Caps that hold from when on, in the order of time.
    orders: VecDeque<(u64, usize, Option<u64>)>,
    /// Limits with a cap, or for which something waits.
    active: Vec<usize>,
    /// What happens next, and at which limit; at none if a cap changes.
    next: (u64, Option<usize>),
    /// When something last happened.
    now_ns: u64,
}

/// A command that goes to its drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) submission: Submission,
    /// How long it has waited.
    pub(crate) waited_ns: u64,
}

impl Caps {
    pub(crate) fn new(namespaces: usize, hosts: usize) -> Self {
        Self {
            limits: (0..namespaces + hosts).map(|_| Limit::default()).collect(),
            namespaces,
            orders: VecDeque::new(),
            active: Vec::new(),
            next: (u64::MAX, None),
            now_ns: 0,
        }
    }

    /// From `at_ns` on a namespace or a host may move so many bytes a second; `None` for any. Changes come in the order of time.
    pub(crate) fn order(&mut self, at_ns: u64, scope: Scope, bytes_per_s: Option<u64>) {
        let index = match scope {
            Scope::Namespace(namespace) => namespace as usize,
            Scope::Host(host) => self.namespaces + host as usize,
            _ => return,
        };
        self.orders.push_back((at_ns, index, bytes_per_s));
        self.find_next(self.now_ns);
    }

    /// Whether anything is capped, waits, or will be capped.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        !self.active.is_empty() || !self.orders.is_empty()
    }

    /// When a cap changes, or a command that waits is admitted.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        self.next.0
    }

    fn find_next(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        let waits = self.active.iter().map(|&index| (self.limits[index].due_ns(now_ns), Some(index)));
        let order_ns = self.orders.front().map_or(u64::MAX, |&(at_ns, ..)| at_ns);
        self.next = waits.chain([(order_ns, None)]).min().unwrap_or((u64::MAX, None));
    }

    /// A command comes. `None` if it has to wait.
    pub(crate) fn enter(&mut self, submission: Submission, meets: Meets) -> Option<Admitted> {
        let now_ns = submission.at_ns;
        let waiting = Waiting { start: 0, since_ns: now_ns, submission, meets };
        let admitted = self.limits[self.namespaces + meets.host].admits(waiting, now_ns)
            && self.limits[meets.namespace].admits(waiting, now_ns);
        if !admitted {
            self.find_next(now_ns);
        }
        admitted.then_some(Admitted { submission, waited_ns: 0 })
    }

    /// What happens at [`Self::next_ns`]: a cap changes, or a command is admitted by one that held it back. The command, unless it has to
    /// wait for another.
    pub(crate) fn advance(&mut self) -> Option<Admitted> {
        let (now_ns, index) = self.next;
        let admitted = match index {
            None => {
                self.change();
                None
            }
            Some(index) => self.release(index, now_ns),
        };
        self.active.retain(|&index| {
            let limit = &self.limits[index];
            limit.bytes_per_s.is_some() || !limit.waiting.is_empty()
        });
        self.find_next(now_ns);
        admitted
    }

    fn change(&mut self) {
        let Some((_, index, bytes_per_s)) = self.orders.pop_front() else { return };
        self.limits[index].bytes_per_s = bytes_per_s;
        if !self.active.contains(&index) {
            self.active.push(index);
            self.active.sort_unstable();
        }
    }

    fn release(&mut self, index: usize, now_ns: u64) -> Option<Admitted> {
        let waiting = self.limits[index].take(now_ns)?;
        let Waiting { meets, since_ns, mut submission, .. } = waiting;
        submission.at_ns = now_ns;
        let of_host = index >= self.namespaces;
        let goes = !of_host || self.limits[meets.namespace].admits(Waiting { submission, ..waiting }, now_ns);
        goes.then_some(Admitted { submission, waited_ns: now_ns - since_ns })
    }
}

#[cfg(test)]
#[path = "caps_tests.rs"]
mod tests;
