//! Work on every connection after a change of namespaces or subsystems, a few connections in each poll.
//!
//! # The problem
//! A host is notified by its admin queue, and a queue counts commands for each namespace. On an I/O thread with thousands of
//! connections, all of them at once would delay other hosts for milliseconds.
//!
//! # The properties
//! - A poll visits at most [`CONNECTIONS`] connections.
//! - A change is acknowledged after all connections have been visited; the next one is not sent before that.
//! - A connection that connects meanwhile knows the change already.

use std::sync::Arc;

use pilotlight_nvmf_proto::queue_pair::{Cx, QueuePair, Transport};
use pilotlight_nvmf_proto::services::Services;
use pilotlight_nvmf_proto::subsystems::views::ChangedNamespace;

use super::TargetThread;
use crate::thread::acks::Ack;

/// Connections visited in one poll: some 5 us for each one that is sent an event.
pub(super) const CONNECTIONS: usize = 16;

/// Interval of checks for commands of removed namespaces, in nanoseconds.
const RECHECK_NS: u64 = 10_000_000;

/// Work on every connection.
pub(super) struct Sweep {
    change: Change,
    /// The next connection.
    next: usize,
    /// Dropped at the end.
    _applied: Ack,
}

/// What has changed.
pub(super) enum Change {
    /// A namespace has been added.
    Added { subsystem: usize, nsid: u32 },
    /// The list of namespaces, and possibly the directory.
    Listed { directory: bool, changed: Arc<[ChangedNamespace]> },
}

impl Sweep {
    pub(super) fn new(change: Change, applied: Ack) -> Self {
        Self { change, next: 0, _applied: applied }
    }
}

impl Change {
    fn apply<T: Transport, S: Services>(&self, pair: &mut QueuePair<T, S>, cx: &mut Cx<S>) {
        match self {
            Self::Added { subsystem, nsid } => pair.count_on(*subsystem, *nsid, cx),
            Self::Listed { directory, changed } => {
                if *directory {
                    pair.on_directory_changed(cx);
                }
                if !changed.is_empty() {
                    pair.count_on_listed(cx); // also for queues that have connected since the namespaces were added
                }
                changed.iter().for_each(|one| pair.on_namespace_changed(one, cx));
            }
        }
    }
}

/// A check of all connections for commands of removed namespaces, whose indices can then be used again.
#[derive(Default)]
pub(super) struct Check {
    /// The next connection, if a check is in progress.
    next: Option<usize>,
    /// When the next check may begin, in nanoseconds.
    due_ns: u64,
}

impl TargetThread {
    /// Checks the next connections. What is still referred to is checked again after a while.
    #[cold]
    pub(super) fn check_references(&mut self, now_ns: u64) {
        if self.check.next.is_none() {
            if now_ns < self.check.due_ns {
                return;
            }
            self.resources.namespaces.begin_check();
        }
        let next = self.check.next.unwrap_or(0);
        let end = self.sockets.len().min(next + CONNECTIONS);
        for socket in self.sockets[next.min(end)..end].iter_mut().flatten() {
            socket.conn.pair.note_references(&mut self.resources.namespaces);
        }
        self.check.next = (end < self.sockets.len()).then_some(end);
        if self.check.next.is_none() {
            self.resources.namespaces.end_check();
            self.check.due_ns = if self.resources.namespaces.has_unchecked() { now_ns + RECHECK_NS } else { 0 };
        }
    }

    pub(super) fn sweep_later(&mut self, sweep: Sweep) {
        self.sweeps.push_back(sweep);
    }

    /// Visits the next connections; returns whether there was a change.
    pub(super) fn poll_sweeps(&mut self, now_ns: u64) -> bool {
        let mut left = CONNECTIONS;
        let busy = !self.sweeps.is_empty();
        while let Some(mut sweep) = self.sweeps.pop_front() {
            let end = self.sockets.len().min(sweep.next + left);
            left -= end.saturating_sub(sweep.next);
            for index in sweep.next..end {
                let Some(socket) = &mut self.sockets[index] else { continue };
                let address = socket.address;
                sweep.change.apply(&mut socket.conn.pair, &mut self.resources.cx(now_ns, address));
                self.settle(index as u32, now_ns);
            }
            if end < self.sockets.len() {
                sweep.next = end;
                self.sweeps.push_front(sweep);
                break;
            }
        }
        busy
    }
}
