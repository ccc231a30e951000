//! Connections and Connect commands that the server refused, counted by reason: a few, so that each can be a series of its own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why a connection or a Connect command was refused. The log has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// As many connections as there may be (`limits.max_connections`), or I/O threads that are behind.
    TooManyConnections,
    /// The host is not on the subsystem's list.
    HostNotAllowed,
    /// There is no such subsystem.
    NoSuchSubsystem,
    /// The host has as many queues as it may have (`limits.max_host_queues`).
    TooManyQueues,
    /// The memory for queues is used up (`limits.queue_memory`).
    NoQueueMemory,
    /// Requests of the host's earlier queues were in the backends for too long.
    NotDrained,
    /// Another parameter of Connect, or the command itself, is not valid.
    InvalidConnect,
    /// Something else that may be better later.
    Busy,
}

impl RefusalReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::TooManyConnections,
        Self::HostNotAllowed,
        Self::NoSuchSubsystem,
        Self::TooManyQueues,
        Self::NoQueueMemory,
        Self::NotDrained,
        Self::InvalidConnect,
        Self::Busy,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooManyConnections => "too-many-connections",
            Self::HostNotAllowed => "host-not-allowed",
            Self::NoSuchSubsystem => "no-such-subsystem",
            Self::TooManyQueues => "too-many-queues",
            Self::NoQueueMemory => "no-queue-memory",
            Self::NotDrained => "not-drained",
            Self::InvalidConnect => "invalid-connect",
            Self::Busy => "busy",
        }
    }
}

/// Refusals so far.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; RefusalReason::ALL.len()]);

impl Refusals {
    /// There is another one.
    pub(crate) fn note(&self, reason: RefusalReason) {
        self.0[reason as usize].fetch_add(1, Relaxed);
    }

    /// How many there were, by reason.
    #[must_use]
    pub fn counts(&self) -> [(RefusalReason, u64); RefusalReason::ALL.len()] {
        RefusalReason::ALL.map(|reason| (reason, self.0[reason as usize].load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_counted_by_itself() {
        let refusals = Refusals::default();
        for (at, reason) in RefusalReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
            (0..=at).for_each(|_| refusals.note(reason));
        }
        assert!((1..).zip(refusals.counts()).all(|(expected, (_, count))| count == expected));
    }
}
