//! Reasons of refused connections and Connect commands. There are few, each a metric series.

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
