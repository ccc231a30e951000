//! Messages of queue pairs to queue pairs of other I/O threads: queues of controllers, aborts, closed connections.

use pilotlight_nvme::Status;
use pilotlight_nvme::reservation::Notification;

use crate::ids::{ConnAddr, HostKey};
use crate::refusal_reason::RefusalReason;

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

/// A message to a queue pair of another I/O thread, or to all of a host.
pub enum QueueMessage {
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
    /// A notification of the reservation of namespace `nsid` for the controller at `admin`.
    Reservation {
        /// The admin queue's connection.
        admin: ConnAddr,
        /// The namespace.
        nsid: u32,
        /// The kind.
        kind: Notification,
    },
    /// Reply to `Barrier`.
    BarrierPassed(ConnAddr),
}

/// Sends messages to I/O threads without blocking.
pub trait Outbox {
    /// Number of I/O threads.
    fn threads(&self) -> u16;

    /// Sends a message, now or in a later poll; those to one I/O thread arrive in order.
    fn send(&mut self, thread: u16, message: QueueMessage);
}
