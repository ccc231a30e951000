//! Admission control of queues: a limit per host, and a budget of memory for queue state.
//!
//! # The problem
//! The state of a queue (slots, lists, responses to send, a partial PDU) is allocated when it connects, so that the
//! request path allocates nothing. A queue of 1,024 entries takes about 420 KiB, and thousands may connect. Without a
//! bound the machine runs out of memory, and a failed allocation ends the process.
//!
//! # The algorithm
//! Connect takes an [`Admission`] before anything is allocated. It counts the queue for its host and charges its bytes to
//! the server's memory budget for queues. A queue of a host that still has to authenticate is a claim: it counts for its address alone
//! ([`crate::addresses`]), and claims take half of the budget at most,
//! those of one address an eighth. The queue holds its admission as long as it exists, also after its connection is
//! lost. Dropping the admission returns both.
//!
//! # The properties
//! - The bytes charged are never fewer than the queue allocates (`tests/queue_memory.rs` counts them).
//! - When no queue exists, nothing is charged and no host is counted.
//! - A refused admission has no effect and can be retried.

use std::net::IpAddr;
use std::sync::Arc;

use crate::accounts::AdminRate;
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
    /// Its host has reached its limit of memory.
    HostMemory,
    /// The memory for queues of hosts that have not authenticated is exhausted, in total or for this address.
    Claims,
    /// The memory budget for queues is exhausted.
    Memory,
}

/// A queue's entry in its host's count, and its memory.
pub struct Admission {
    shared: Arc<Shared>,
    host: HostKey,
    queue: ConnAddr,
    bytes: u64,
    /// Where a claim comes from; `None` once it is proved.
    claimant: Option<IpAddr>,
    /// The host's rate of admin commands; `None` for a claim.
    rate: Option<Arc<AdminRate>>,
}

impl Admission {
    /// Admits the connection `queue` of `host`, with `bytes` of memory in addition to its table entries. It is a claim, from the
    /// address `claimant`, if the host has to authenticate.
    ///
    /// # Errors
    /// The exhausted limit.
    pub fn new(
        shared: &Arc<Shared>,
        host: HostKey,
        queue: ConnAddr,
        bytes: usize,
        claimant: Option<IpAddr>,
    ) -> Result<Self, Full> {
        let bytes = (bytes + TABLES + NQNS + size_of::<Association>()) as u64;
        if claimant.is_some_and(|address| !shared.addresses.claim(address, bytes)) {
            return Err(Full::Claims);
        }
        shared.register.claim(&host, queue);
        let mut admission = Self { shared: Arc::clone(shared), host, queue, bytes, claimant, rate: None };
        if !shared.queue_memory.try_take(bytes) {
            admission.give_up();
            return Err(Full::Memory);
        }
        if claimant.is_some() {
            return Ok(admission);
        }
        let proved = admission.take_host();
        if let Err(full) = proved {
            shared.queue_memory.release(bytes);
            admission.give_up();
            return Err(full);
        }
        Ok(admission)
    }

    /// Returns what a refused admission has, so that dropping it does nothing.
    fn give_up(&mut self) {
        self.end_claim();
        self.shared.register.leave(&self.host, self.queue);
        self.bytes = 0;
    }

    /// Counts the queue for its host.
    fn take_host(&mut self) -> Result<(), Full> {
        let Some(rate) = self.shared.accounts.enter(&self.host.hostnqn, self.bytes) else {
            return Err(Full::HostMemory);
        };
        if !self.shared.register.prove(&self.host, self.queue, self.shared.limits.max_host_queues) {
            self.shared.accounts.leave(&self.host.hostnqn, self.bytes);
            return Err(Full::Host);
        }
        self.rate = Some(rate);
        Ok(())
    }

    /// The host has authenticated: the queue counts for it from now on.
    ///
    /// # Errors
    /// The exhausted limit; the queue is still a claim then.
    pub fn prove(&mut self) -> Result<(), Full> {
        if self.rate.is_some() {
            return Ok(());
        }
        self.take_host()?;
        self.end_claim();
        Ok(())
    }

    fn end_claim(&mut self) {
        if let Some(address) = self.claimant.take() {
            self.shared.addresses.unclaim(address, self.bytes);
        }
    }

    /// The host's rate of admin commands; `None` before it has authenticated.
    #[must_use]
    pub fn rate(&self) -> Option<&AdminRate> {
        self.rate.as_deref()
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &HostKey {
        &self.host
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return; // it was refused
        }
        self.shared.register.leave(&self.host, self.queue);
        self.shared.queue_memory.release(self.bytes);
        self.end_claim();
        if self.rate.is_some() {
            self.shared.accounts.leave(&self.host.hostnqn, self.bytes);
        }
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").field("host", &self.host).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
