//! Bandwidth caps of namespaces and hosts: commands wait before they go to the drive, as in the server (`nvmf-target/src/caps/`).
//!
//! **Rule.** Generic cell rate algorithm: a command is admitted once the theoretical arrival time has passed, and advances it by the time of
//! its bytes at the cap; unused time is limited to [`DEPTH_NS`]. A command passes the cap of its host first, then that of its namespace.
//! Hosts that wait for one cap are served by start-time fair queuing, commands of a host in order. Waiting costs no CPU time. The server
//! retries waiting commands at least every 2 ms; here they continue at once.
//!
//! **Order** at equal times: changes of caps, waiting commands, arriving commands.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use pilotlight_plant::Scope;

use super::request::Submission;

/// Burst tolerance in nanoseconds, as in the server.
const DEPTH_NS: u64 = 8_000_000;

/// Host and namespace of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CommandOwner {
    pub(crate) host: usize,
    pub(crate) namespace: usize,
}

/// A waiting command; the smallest is admitted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    /// Start tag of fair queuing.
    start: u64,
    since_ns: u64,
    submission: Submission,
    owner: CommandOwner,
}

/// The cap of a namespace or host, and its waiting commands.
#[derive(Debug, Default)]
struct Limit {
    bytes_per_s: Option<u64>,
    /// Theoretical arrival time.
    spent_ns: u64,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Start tag of the last admitted command, and the finish tag of each host, while commands wait.
    turn: u64,
    ends: BTreeMap<usize, u64>,
}

impl Limit {
    /// Admission time of the next waiting command.
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

    /// Admits a command now, or queues it.
    fn admits(&mut self, mut waiting: Waiting, now_ns: u64) -> bool {
        if self.waiting.is_empty() && (self.bytes_per_s.is_none() || self.spent_ns <= now_ns) {
            self.spend(now_ns, waiting.submission.bytes);
            return true;
        }
        let end = self.ends.entry(waiting.owner.host).or_default();
        waiting.start = self.turn.max(*end);
        *end = waiting.start + u64::from(waiting.submission.bytes.max(1));
        self.waiting.push(Reverse(waiting));
        false
    }

    /// Admits the next waiting command.
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
    /// Pending changes of caps, in order of time.
    orders: VecDeque<(u64, usize, Option<u64>)>,
    /// Limits with a cap or waiting commands.
    active: Vec<usize>,
    /// Time and limit of the next event; `None` for a change of a cap.
    next: (u64, Option<usize>),
    /// Time of the last event.
    now_ns: u64,
}

/// An admitted command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) submission: Submission,
    /// Its waiting time.
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

    /// Sets the cap of a namespace or host from `at_ns` on; `None` removes it. Calls are in order of time.
    pub(crate) fn order(&mut self, at_ns: u64, scope: Scope, bytes_per_s: Option<u64>) {
        let index = match scope {
            Scope::Namespace(namespace) => namespace as usize,
            Scope::Host(host) => self.namespaces + host as usize,
            _ => return,
        };
        self.orders.push_back((at_ns, index, bytes_per_s));
        self.find_next(self.now_ns);
    }

    /// Whether there are caps, waiting commands or pending changes.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        !self.active.is_empty() || !self.orders.is_empty()
    }

    /// Time of the next event.
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

    /// A command arrives; `None` if it must wait.
    pub(crate) fn enter(&mut self, submission: Submission, owner: CommandOwner) -> Option<Admitted> {
        let now_ns = submission.at_ns;
        let waiting = Waiting { start: 0, since_ns: now_ns, submission, owner };
        let admitted = self.limits[self.namespaces + owner.host].admits(waiting, now_ns)
            && self.limits[owner.namespace].admits(waiting, now_ns);
        if !admitted {
            self.find_next(now_ns);
        }
        admitted.then_some(Admitted { submission, waited_ns: 0 })
    }

    /// Processes the event at [`Self::next_ns`]; returns a command that passed all caps.
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
        let Waiting { owner, since_ns, mut submission, .. } = waiting;
        submission.at_ns = now_ns;
        let of_host = index >= self.namespaces;
        let goes = !of_host || self.limits[owner.namespace].admits(Waiting { submission, ..waiting }, now_ns);
        goes.then_some(Admitted { submission, waited_ns: now_ns - since_ns })
    }
}

#[cfg(test)]
#[path = "caps_tests.rs"]
mod tests;
