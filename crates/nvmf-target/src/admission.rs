//! Admission control of queues: a limit per host, and a budget of memory for queue state.
//!
//! # The problem
//! The state of a queue (slots, lists, responses to send, a partial PDU) is allocated when it connects, so that the
//! request path allocates nothing. A queue of 1,024 entries takes about 420 KiB, and thousands may connect. Without a
//! bound the machine runs out of memory, and a failed allocation ends the process.
//!
//! # The algorithm
//! Connect takes an [`Admission`] before anything is allocated. It counts the queue for its host and charges its bytes to
//! the server's memory budget for queues. The queue holds its admission as long as it exists, also after its connection is
//! lost. Dropping the admission returns both.
//!
//! # The properties
//! - The bytes charged are never fewer than the queue allocates (`tests/queue_memory.rs` counts them).
//! - When no queue exists, nothing is charged and no host is counted.
//! - A refused admission has no effect and can be retried.

use std::sync::Arc;

use crate::association::Association;
use crate::ids::{ConnAddr, HostKey};
use crate::shared::Shared;

/// Bytes that a queue takes in the server's tables: its host and association in the register (keys, values, spare
/// capacity) and its connection in the lists of its I/O thread.
const TABLES: usize = 512;
/// Copies of a host NQN that a queue holds: the register's, the association's, the controller's, and the admission's own.
const NQNS: usize = 4 * pilotlight_nvme::fabrics::MAX_NQN;

/// Why a queue is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Its host has reached its limit of queues.
    Host,
    /// The memory budget for queues is exhausted.
    Memory,
}

/// A queue's entry in its host's count, and its memory.
pub struct Admission {
    shared: Arc<Shared>,
    host: HostKey,
    queue: ConnAddr,
    bytes: u64,
}

impl Admission {
    /// Admits the connection `queue` of `host`, with `bytes` of memory in addition to its table entries.
    ///
    /// # Errors
    /// The exhausted limit.
    pub fn new(shared: &Arc<Shared>, host: HostKey, queue: ConnAddr, bytes: usize) -> Result<Self, Full> {
        if !shared.register.enter(&host, queue, shared.limits.max_host_queues) {
            return Err(Full::Host);
        }
        let mut admission = Self { shared: Arc::clone(shared), host, queue, bytes: 0 };
        let bytes = (bytes + TABLES + NQNS + size_of::<Association>()) as u64;
        if !shared.queue_memory.try_take(bytes) {
            return Err(Full::Memory); // dropping `admission` leaves the host
        }
        admission.bytes = bytes;
        Ok(admission)
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &HostKey {
        &self.host
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.shared.register.leave(&self.host, self.queue);
        self.shared.queue_memory.release(self.bytes);
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").field("host", &self.host).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
