//! What I/O threads tell each other: connections to serve, queues that join or leave a controller, commands to abort,
//! namespaces that change.
//!
//! Each I/O thread has one bounded inbox. What does not fit waits in the sender's [`Outbox`] and is tried again in its
//! next poll, in order, so that nothing is lost and nobody blocks.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use pilotlight_nvme::Status;
use pilotlight_reactor::Sender;

use crate::acks::Ack;
use crate::association::{Association, HostKey};
use crate::backend::Geometry;
use crate::lease::Leased;
use crate::listing::NamespaceList;
use crate::refusals::RefusalReason;
use crate::tcp::Connection;
use crate::views::{ViewId, Views};

/// Names a connection of an I/O thread. The serial number tells it from a later one in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnAddr {
    /// Which I/O thread.
    pub thread: u16,
    /// Place in that thread's table.
    pub index: u32,
    /// Counts the connections of that thread.
    pub serial: u32,
}

/// Why a Connect command fails: the status, which parameter was wrong (Base 6.3), and the reason in words for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRefusal {
    /// The status.
    pub status: Status,
    /// The completion's result: offset of the invalid parameter, bit 16 set if it is in the data.
    pub parameter: u32,
    /// What the operator is told: the name of the parameter first, where it is one.
    pub reason: &'static str,
    /// What it counts as.
    pub counts_as: RefusalReason,
}

/// A change of a namespace.
pub enum NamespaceChange {
    /// It exists from now on; this is the I/O thread's own way to its blocks.
    Added(Geometry, Leased),
    /// Its size is different now.
    Resized(Geometry),
    /// It is gone.
    Removed,
}

/// A message to an I/O thread.
pub enum Message {
    /// Serve this connection.
    Accept(OwnedFd, SocketAddr),
    /// Serve this connection, which another I/O thread has accepted and which carries a class that is not its own.
    HandOver(OwnedFd, Box<Connection>),
    /// An I/O queue asks the controller at `admin` to be let in.
    Attach {
        /// The admin queue's connection.
        admin: ConnAddr,
        /// The queue.
        qid: u16,
        /// The I/O queue's connection.
        queue: ConnAddr,
    },
    /// The controller's answer to the queue at `queue`, with what it had asked for.
    Attached {
        /// The admin queue's connection.
        admin: ConnAddr,
        /// The queue.
        qid: u16,
        /// The I/O queue's connection.
        queue: ConnAddr,
        /// Whether it may go on.
        result: Result<(), ConnectRefusal>,
    },
    /// The I/O queue at `queue` is gone and nothing of it is in flight.
    Detached {
        /// The admin queue's connection.
        admin: ConnAddr,
        /// The queue.
        qid: u16,
        /// The I/O queue's connection.
        queue: ConnAddr,
    },
    /// The connection at `queue` is to end: its association has.
    Terminate(ConnAddr),
    /// End every connection of these associations.
    End {
        /// The associations.
        associations: Arc<[Arc<Association>]>,
        /// Dropped once this I/O thread submits nothing more for them.
        applied: Ack,
    },
    /// Abort command `cid` of the queue at `queue`; the answer goes to `admin`, for the command in `slot`.
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
        /// Whether the command was found and stopped.
        stopped: bool,
    },
    /// Look whether connections of this host have been closed by it, then answer `asker`.
    Barrier {
        /// The host.
        host: HostKey,
        /// The connection that waits.
        asker: ConnAddr,
    },
    /// This I/O thread has looked.
    BarrierPassed(ConnAddr),
    /// A namespace changes: apply it. Hosts are not told yet, and are not to see it in Identify.
    Namespace {
        /// Index of the subsystem.
        subsystem: usize,
        /// The namespace.
        nsid: u32,
        /// What happens to it.
        change: NamespaceChange,
        /// Dropped once it is applied.
        applied: Ack,
    },
    /// Hosts see other namespaces: apply it. They are not told yet, and are not to see it in Identify.
    Views {
        /// Which namespaces each host sees.
        views: Arc<Views>,
        /// Dropped once it is applied.
        applied: Ack,
    },
    /// Every I/O thread has applied what was changed: Connect, Identify and the discovery log go by this list from now on, and
    /// hosts are told.
    Listed {
        /// The subsystems and their namespaces.
        list: Arc<NamespaceList>,
        /// NSID of each that has changed, and to whom.
        changed: Arc<[(ViewId, u32)]>,
        /// Dropped once that is done.
        applied: Ack,
    },
    /// The bytes that a namespace holds have been looked at: the Identify command that asked for them can go on.
    Utilization {
        /// The admin queue's connection.
        admin: ConnAddr,
        /// Slot of the Identify command.
        slot: u16,
        /// The slot's generation.
        generation: u8,
    },
    /// Finish what is in progress, take nothing new, and end.
    Drain,
}

/// Messages on their way to other I/O threads.
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

    /// Sends `message` to I/O thread `thread`, now or in a later poll.
    pub fn send(&mut self, thread: u16, message: Message) {
        if self.waiting.is_empty() {
            if let Err(message) = self.threads[usize::from(thread)].send(message) {
                self.waiting.push_back((thread, message));
            }
            return;
        }
        self.waiting.push_back((thread, message));
    }

    /// Whether everything is on its way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Tries again to send what waits.
    pub fn flush(&mut self) {
        while let Some((thread, message)) = self.waiting.pop_front() {
            if let Err(message) = self.threads[usize::from(thread)].send(message) {
                self.waiting.push_front((thread, message));
                return;
            }
        }
    }
}
