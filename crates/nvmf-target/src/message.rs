//! Messages between I/O threads: connections, queues of controllers, aborts, changes of namespaces.
//!
//! Each I/O thread has one bounded inbox. When it is full, messages wait in the sender's [`Outbox`] and are retried in order
//! in its next poll, so that nothing is lost and nothing blocks.

use std::collections::VecDeque;
use std::sync::Arc;

use pilotlight_nvme::Status;
use pilotlight_reactor::Sender;

use crate::acks::Ack;
use crate::association::Association;
use crate::authentication::Checked;
pub use crate::ids::ConnAddr;
use crate::ids::HostKey;
use crate::listing::NamespaceList;
use crate::refusals::RefusalReason;
use crate::stream::{Accepted, Stream};
use crate::tcp::Connection;
use crate::views::{ViewId, Views};
use pilotlight_storage::Geometry;
use pilotlight_storage::lease::Leased;

/// Refusal of a Connect command: status, invalid parameter (Base 6.3), and a reason for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRefusal {
    /// The status.
    pub status: Status,
    /// The completion's result: offset of the invalid parameter, bit 16 set if it is in the data.
    pub parameter: u32,
    /// Reason for the log, starting with the name of the invalid parameter, if any.
    pub reason: &'static str,
    /// Its counter.
    pub counter: RefusalReason,
}

/// A change of a namespace.
pub enum NamespaceChange {
    /// Added, with the I/O thread's channel.
    Added(Geometry, Leased),
    /// Resized.
    Resized(Geometry),
    /// Removed.
    Removed,
}

/// A namespace of whose change hosts are notified.
#[derive(Clone, Debug)]
pub struct ChangedNamespace {
    /// Index of the subsystem.
    pub subsystem: usize,
    /// The namespace.
    pub nsid: u32,
    /// The previous views, if only its visibility has changed.
    pub before: Option<Arc<Views>>,
}

impl ChangedNamespace {
    /// Whether the change concerns hosts with this view, now one of `views`.
    #[must_use]
    pub fn affects(&self, view: ViewId, views: &Views) -> bool {
        let is_visible = views.contains(view, self.nsid);
        self.before.as_ref().map_or(is_visible, |before| before.contains(view, self.nsid) != is_visible)
    }
}

/// A message to an I/O thread.
pub enum Message {
    /// Serve this connection.
    Accept(Accepted),
    /// Serve this connection, accepted by another I/O thread that does not serve its class or has more I/O queues.
    HandOver(Stream, Box<Connection>),
    /// An I/O queue requests to join the controller at `admin`.
    Attach {
        /// The admin queue's connection.
        admin: ConnAddr,
        /// The queue.
        qid: u16,
        /// The I/O queue's connection.
        queue: ConnAddr,
    },
    /// The controller's reply to the queue at `queue`.
    Attached {
        /// The admin queue's connection.
        admin: ConnAddr,
        /// The queue.
        qid: u16,
        /// The I/O queue's connection.
        queue: ConnAddr,
        /// Whether it has joined.
        result: Result<(), ConnectRefusal>,
    },
    /// The I/O queue at `queue` has ended with nothing in flight.
    Detached {
        /// The admin queue's connection.
        admin: ConnAddr,
        /// The queue.
        qid: u16,
        /// The I/O queue's connection.
        queue: ConnAddr,
    },
    /// End the connection at `queue`: its association has ended.
    Terminate(ConnAddr),
    /// End every connection of these associations.
    End {
        /// The associations.
        associations: Arc<[Arc<Association>]>,
        /// Dropped when this I/O thread submits nothing more for them.
        applied: Ack,
    },
    /// Abort command `cid` of the queue at `queue`; reply to `admin`, for the command in `slot`.
    Abort {
        /// The queue's connection.
        queue: ConnAddr,
        /// The command.
        cid: u16,
        /// The admin queue's connection.
        admin: ConnAddr,
        /// Slot of the Abort command.
        slot: u16,
    },
    /// Whether the command was aborted.
    Aborted {
        /// The admin queue's connection.
        admin: ConnAddr,
        /// Slot of the Abort command.
        slot: u16,
        /// Whether it was found and aborted.
        stopped: bool,
    },
    /// Check for connections closed by this host, then reply to `requester`.
    Barrier {
        /// The host.
        host: HostKey,
        /// The connection that waits.
        requester: ConnAddr,
    },
    /// Reply to `Barrier`.
    BarrierPassed(ConnAddr),
    /// Apply a change of a namespace. It is not visible in Identify yet, and hosts are not notified yet.
    Namespace {
        /// Index of the subsystem.
        subsystem: usize,
        /// The namespace.
        nsid: u32,
        /// The change.
        change: NamespaceChange,
        /// Dropped once it is applied.
        applied: Ack,
    },
    /// Hosts see other namespaces: apply it. They get no event yet, and Identify does not report it yet.
    Views {
        /// The namespaces visible to each host.
        views: Arc<Views>,
        /// Dropped once it is applied.
        applied: Ack,
    },
    /// Every I/O thread has applied the change: use this list for Connect, Identify and the discovery log, and notify hosts.
    Listed {
        /// The subsystems and their namespaces.
        list: Arc<NamespaceList>,
        /// The changed namespaces.
        changed: Arc<[ChangedNamespace]>,
        /// Dropped once that is done.
        applied: Ack,
    },
    /// The allocated bytes of a namespace have been read: resume the Identify command.
    Utilization {
        /// The admin queue's connection.
        admin: ConnAddr,
        /// Slot of the Identify command.
        slot: u16,
        /// The slot's generation.
        generation: u8,
    },
    /// A message of the host has been checked: resume its Authentication Send.
    AuthenticationChecked {
        /// The queue's connection.
        queue: ConnAddr,
        /// Slot of the command, and its generation.
        slot: (u16, u8),
        /// The result.
        checked: Checked,
        /// When the command may be completed, in nanoseconds.
        at_ns: u64,
    },
    /// Finish commands in progress, accept no new ones, and end.
    Drain,
}

/// Messages to other I/O threads.
pub struct Outbox {
    threads: Arc<[Sender<Message>]>,
    waiting: VecDeque<(u16, Message)>,
}

impl Outbox {
    /// An outbox to `threads`, in the order of their numbers.
    #[must_use]
    pub fn new(threads: Arc<[Sender<Message>]>) -> Self {
        Self { threads, waiting: VecDeque::new() }
    }

    /// Number of I/O threads.
    #[must_use]
    pub fn threads(&self) -> u16 {
        self.threads.len() as u16
    }

    /// Sends a message, now or in a later poll.
    pub fn send(&mut self, thread: u16, message: Message) {
        if self.waiting.is_empty() {
            if let Err(message) = self.threads[usize::from(thread)].send(message) {
                self.waiting.push_back((thread, message));
            }
            return;
        }
        self.waiting.push_back((thread, message));
    }

    /// Whether all messages have been sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Retries waiting messages.
    pub fn flush(&mut self) {
        while let Some((thread, message)) = self.waiting.pop_front() {
            if let Err(message) = self.threads[usize::from(thread)].send(message) {
                self.waiting.push_front((thread, message));
                return;
            }
        }
    }
}
