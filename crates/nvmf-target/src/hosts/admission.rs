//! Admission control of queues: a limit per host, and a budget of memory for queue state.
//!
//! # The problem
//! The state of a queue (slots, lists, responses to send, a partial PDU) is allocated when it connects, so that the
//! request path allocates nothing. A queue of 1,024 entries takes about 420 KiB, and thousands may connect. Without a
//! bound the machine runs out of memory, and a failed allocation ends the process.
//!
//! # The algorithm
//! Connect takes an [`Admission`] before anything is allocated. It counts the queue for its host and charges its bytes to
//! the server's memory budget for queues. A queue whose host has not proved who it is also counts for its address
//! ([`crate::hosts::addresses`]); if the host still has to authenticate, the queue is a claim, which does not count for the host. The
//! queue holds its admission as long as it exists, also after its connection is lost. Dropping the admission returns all.
//!
//! # The properties
//! - The bytes charged are never fewer than the queue allocates (`tests/queue_memory.rs` counts them).
//! - When no queue exists, nothing is charged and no host is counted.
//! - A refused admission has no effect and can be retried.

use std::net::IpAddr;
use std::sync::Arc;

use pilotlight_nvmf_proto::association::Association;
use pilotlight_nvmf_proto::ids::{ConnAddr, HostKey};
use pilotlight_nvmf_proto::services::{self, Full, Standing};
use pilotlight_tls::SESSION_BYTES;

use crate::hosts::Hosts;
use crate::hosts::accounts::AdminRate;

/// Bytes that a queue takes in the server's tables: its host and association in the register (keys, values, spare
/// capacity) and its connection in the lists of its I/O thread.
const TABLES: usize = 512;
/// Copies of a host NQN that a queue holds: the register's, the association's, the controller's, and the admission's own.
const NQNS: usize = 4 * pilotlight_nvme::fabrics::MAX_NQN;

/// The memory of a TLS session from before its handshake until a queue on it is admitted, which includes that memory, or the connection
/// ends. It counts as a claim of its address: a handshake takes memory before the peer has shown a key.
pub struct SessionMemory {
    hosts: Arc<Hosts>,
    address: IpAddr,
}

impl SessionMemory {
    /// Takes the memory of a session with `address`.
    ///
    /// # Errors
    /// The exhausted limit.
    pub(crate) fn new(hosts: &Arc<Hosts>, address: IpAddr) -> Result<Self, Full> {
        hosts.take_address(Standing::Claim(address), SESSION_BYTES as u64)?;
        if !hosts.queue_memory.try_take(SESSION_BYTES as u64) {
            hosts.addresses.give(Standing::Claim(address), SESSION_BYTES as u64);
            return Err(Full::Memory);
        }
        Ok(Self { hosts: Arc::clone(hosts), address })
    }
}

impl Drop for SessionMemory {
    fn drop(&mut self) {
        self.hosts.queue_memory.release(SESSION_BYTES as u64);
        self.hosts.addresses.give(Standing::Claim(self.address), SESSION_BYTES as u64);
    }
}

impl std::fmt::Debug for SessionMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionMemory").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A queue's entry in its host's count, and its memory.
pub struct Admission {
    hosts: Arc<Hosts>,
    host: HostKey,
    queue: ConnAddr,
    bytes: u64,
    standing: Standing,
    /// The host's rate of admin commands; `None` for a claim.
    rate: Option<Arc<AdminRate>>,
}

impl Admission {
    /// Admits the connection `queue` of `host`, with `bytes` of memory in addition to its table entries.
    ///
    /// # Errors
    /// The exhausted limit.
    pub fn new(
        hosts: &Arc<Hosts>,
        host: HostKey,
        queue: ConnAddr,
        bytes: usize,
        standing: Standing,
    ) -> Result<Self, Full> {
        let bytes = (bytes + TABLES + NQNS + size_of::<Association>()) as u64;
        hosts.take_address(standing, bytes)?;
        hosts.associations.claim(&host, queue);
        let mut admission = Self { hosts: Arc::clone(hosts), host, queue, bytes, standing, rate: None };
        if !hosts.queue_memory.try_take(bytes) {
            admission.give_up();
            return Err(Full::Memory);
        }
        if matches!(standing, Standing::Claim(_)) {
            return Ok(admission);
        }
        let counted = admission.take_host();
        if let Err(full) = counted {
            hosts.queue_memory.release(bytes);
            admission.give_up();
            return Err(full);
        }
        Ok(admission)
    }

    /// Returns what a refused admission has, so that dropping it does nothing.
    fn give_up(&mut self) {
        self.hosts.addresses.give(self.standing, self.bytes);
        self.hosts.associations.leave(&self.host, self.queue);
        self.bytes = 0;
    }

    /// Counts the queue for its host.
    fn take_host(&mut self) -> Result<(), Full> {
        let Some(rate) = self.hosts.accounts.enter(&self.host.hostnqn, self.bytes) else {
            return Err(Full::HostMemory);
        };
        if !self.hosts.associations.prove(&self.host, self.queue, self.hosts.max_host_queues) {
            self.hosts.accounts.leave(&self.host.hostnqn, self.bytes);
            return Err(Full::Host);
        }
        self.rate = Some(rate);
        Ok(())
    }
}

impl services::Admission for Admission {
    fn host(&self) -> &HostKey {
        &self.host
    }

    fn admit(&mut self, standing: Standing) -> Result<(), Full> {
        let is_changed = standing != self.standing;
        if is_changed {
            self.hosts.take_address(standing, self.bytes)?;
        }
        if self.rate.is_none()
            && let Err(full) = self.take_host()
        {
            if is_changed {
                self.hosts.addresses.give(standing, self.bytes);
            }
            return Err(full);
        }
        if is_changed {
            self.hosts.addresses.give(std::mem::replace(&mut self.standing, standing), self.bytes);
        }
        Ok(())
    }

    fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    fn take_command(&self, now_ns: u64) -> Result<(), u64> {
        self.rate.as_ref().map_or(Ok(()), |rate| rate.take(now_ns))
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return; // it was refused
        }
        self.hosts.associations.leave(&self.host, self.queue);
        self.hosts.queue_memory.release(self.bytes);
        self.hosts.addresses.give(self.standing, self.bytes);
        if self.rate.is_some() {
            self.hosts.accounts.leave(&self.host.hostnqn, self.bytes);
        }
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").field("host", &self.host).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
