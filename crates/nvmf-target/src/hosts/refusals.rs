//! Refused connections and Connect commands, counted by reason. There are few reasons, each a metric series.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Reason of a refusal. The log has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// Limit of connections (`limits.max_connections`), in total or for hosts without a secret or a TLS key, or full inboxes of I/O threads.
    TooManyConnections,
    /// The host is not allowed.
    HostNotAllowed,
    /// No such subsystem.
    NoSuchSubsystem,
    /// The host's limit of queues (`limits.max_host_queues`).
    TooManyQueues,
    /// Limit of connections that are not admitted yet (`limits.max_pending`, `limits.max_address_pending`).
    TooManyPending,
    /// The memory for queues is exhausted (`limits.queue_memory`).
    NoQueueMemory,
    /// Timeout of the drain of the host's earlier queues.
    NotDrained,
    /// Another invalid parameter of Connect, or an invalid command.
    InvalidConnect,
    /// A failed TLS handshake.
    TlsHandshake,
    /// Another temporary condition.
    Busy,
}

impl RefusalReason {
    /// All values in order.
    pub const ALL: [Self; 10] = [
        Self::TooManyConnections,
        Self::HostNotAllowed,
        Self::NoSuchSubsystem,
        Self::TooManyQueues,
        Self::TooManyPending,
        Self::NoQueueMemory,
        Self::NotDrained,
        Self::InvalidConnect,
        Self::TlsHandshake,
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
            Self::TooManyPending => "too-many-pending",
            Self::NoQueueMemory => "no-queue-memory",
            Self::NotDrained => "not-drained",
            Self::InvalidConnect => "invalid-connect",
            Self::TlsHandshake => "tls-handshake",
            Self::Busy => "busy",
        }
    }
}

/// Counters of refusals.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; RefusalReason::ALL.len()]);

impl Refusals {
    /// Counts a refusal.
    pub(crate) fn note(&self, reason: RefusalReason) {
        self.0[reason as usize].fetch_add(1, Relaxed);
    }

    /// The counters by reason.
    #[must_use]
    pub fn counts(&self) -> [(RefusalReason, u64); RefusalReason::ALL.len()] {
        RefusalReason::ALL.map(|reason| (reason, self.0[reason as usize].load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_counter() {
        let refusals = Refusals::default();
        for (at, reason) in RefusalReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
            (0..=at).for_each(|_| refusals.note(reason));
        }
        assert!((1..).zip(refusals.counts()).all(|(expected, (_, count))| count == expected));
    }
}
