//! What a queue needs before it may connect: a place among the queues of its host, and memory for its state.
//!
//! # The problem
//! The state of a queue (slots, lists, answers to send, the beginning of a PDU) is set aside when it connects, so that the
//! request path allocates nothing. A queue of 1,024 entries takes about 420 KiB, and thousands may connect: without a bound
//! that is more than the machine has, and a failed allocation ends the process.
//!
//! # The algorithm
//! Connect asks for an [`Admission`] before anything is allocated. It counts the queue for its host and charges its bytes to
//! a part of the server's memory that is kept for queues. The queue holds its admission as long as it exists, after the
//! loss of its connection too; dropped, the admission gives back both.
//!
//! # The properties
//! - The bytes charged are never below those that the queue takes (`tests/queue_memory.rs` counts them).
//! - When every queue is gone nothing is charged and no host is counted.
//! - What cannot be admitted leaves nothing behind, and may be tried again.

use std::sync::Arc;

use crate::association::{Association, HostKey};
use crate::message::ConnAddr;
use crate::server::Shared;

/// Bytes that a queue takes in the tables of the server: its host and its association in the register (keys, values, and
/// room that a growing table keeps free), its connection in its I/O thread's lists.
const TABLES: usize = 512;
/// Copies of a host NQN that a queue holds: the register's, the association's, the controller's, and the admission's own.
const NQNS: usize = 4 * pilotlight_nvme::fabrics::MAX_NQN;

/// Why a queue may not connect now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Its host has as many queues as it may have.
    Host,
    /// The memory for queues is used up.
    Memory,
}

/// A queue's place and memory.
pub struct Admission {
    shared: Arc<Shared>,
    host: HostKey,
    queue: ConnAddr,
    bytes: u64,
}

impl Admission {
    /// A place for the connection `queue` among the queues of `host`, and `bytes` of memory beside the entries in tables.
    ///
    /// # Errors
    /// What is used up.
    pub fn new(shared: &Arc<Shared>, host: HostKey, queue: ConnAddr, bytes: usize) -> Result<Self, Full> {
        if !shared.register.enter(&host, queue, shared.limits.max_host_queues) {
            return Err(Full::Host);
        }
        let mut admission = Self { shared: Arc::clone(shared), host, queue, bytes: 0 };
        let bytes = (bytes + TABLES + NQNS + size_of::<Association>()) as u64;
        if !shared.queue_memory.try_take(bytes) {
            return Err(Full::Memory); // the place is given back
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
        self.shared.queue_memory.give_back(self.bytes);
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").field("host", &self.host).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
