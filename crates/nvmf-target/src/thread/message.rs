//! Messages between I/O threads: connections, queues of controllers, aborts, changes of namespaces.
//!
//! Each I/O thread has one bounded inbox. When it is full, messages wait in the sender's [`ThreadOutbox`] and are retried in order
//! in its next poll, so that nothing is lost and nothing blocks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use pilotlight_nvme::Status;
use pilotlight_nvmf_proto::association::Association;
pub(crate) use pilotlight_nvmf_proto::ids::ConnAddr;
use pilotlight_nvmf_proto::queue_pair::message::{Outbox, QueueMessage};
use pilotlight_nvmf_proto::subsystems::listing::NamespaceList;
use pilotlight_nvmf_proto::subsystems::views::{ChangedNamespace, Views};
use pilotlight_nvmf_proto::tcp::Connection;
use pilotlight_reactor::Sender;

use crate::hosts::authentication::Checked;
use crate::namespaces::NamespaceChange;
use crate::shared::Shared;
use crate::thread::acks::Ack;
use crate::thread::preempt::Preempted;
use crate::thread::stream::{Accepted, Stream};

/// A message to an I/O thread.
pub enum Message {
    /// Of a queue pair.
    Queue(QueueMessage),
    /// Serve this connection.
    Accept(Accepted),
    /// Serve this connection, accepted by another I/O thread that does not serve its class or has more I/O queues.
    HandOver(Stream, Box<Connection<Shared>>),
    /// End every connection of these associations.
    End {
        /// The associations.
        associations: Arc<[Arc<Association>]>,
        /// Dropped when this I/O thread submits nothing more for them.
        applied: Ack,
    },
    /// Count the commands in progress on I/O queues of these associations.
    Count {
        /// The associations.
        associations: Arc<[Arc<Association>]>,
        /// Their number is added here.
        commands: Arc<AtomicUsize>,
        /// Dropped when that is done.
        applied: Ack,
    },
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
    /// A command on reservations has been executed: complete it.
    Reservation {
        /// The queue's connection.
        queue: ConnAddr,
        /// Slot of the command, and its generation.
        slot: (u16, u8),
        /// Its status.
        status: Status,
        /// The data of a Report.
        data: Vec<u8>,
    },
    /// Abort the commands of these queues to a storage.
    Preempt(Preempted),
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
pub(crate) struct ThreadOutbox {
    threads: Arc<[Sender<Message>]>,
    waiting: VecDeque<(u16, Message)>,
}

impl ThreadOutbox {
    /// An outbox to `threads`, in the order of their numbers.
    #[must_use]
    pub(crate) fn new(threads: Arc<[Sender<Message>]>) -> Self {
        Self { threads, waiting: VecDeque::new() }
    }

    /// Sends a message, now or in a later poll.
    pub(crate) fn send_message(&mut self, thread: u16, message: Message) {
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
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Retries waiting messages.
    pub(crate) fn flush(&mut self) {
        while let Some((thread, message)) = self.waiting.pop_front() {
            if let Err(message) = self.threads[usize::from(thread)].send(message) {
                self.waiting.push_front((thread, message));
                return;
            }
        }
    }
}

impl Outbox for ThreadOutbox {
    fn threads(&self) -> u16 {
        self.threads.len() as u16
    }

    fn send(&mut self, thread: u16, message: QueueMessage) {
        self.send_message(thread, Message::Queue(message));
    }
}
