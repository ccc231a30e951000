//! Reads the allocated bytes of namespaces from their media.
//!
//! Reading may block (`fstat` and `lseek` take locks of the file system). So an Identify command that reports the number is parked until
//! another thread ([`super::offload`]) has read it. If the queue of requests is full, the command reports the last value.

use super::Shared;
use super::offload::{Offload, Requests};
use crate::message::{ConnAddr, Message};

/// A waiting Identify command.
#[derive(Clone, Copy, Debug)]
pub struct UtilizationRequest {
    /// Index of the subsystem.
    pub subsystem: usize,
    /// The namespace.
    pub nsid: u32,
    /// The admin queue's connection.
    pub admin: ConnAddr,
    /// The command's slot.
    pub slot: u16,
    /// The slot's generation.
    pub generation: u8,
}

impl Offload for UtilizationRequest {
    const NAME: &'static str = "utilization";

    fn queue(shared: &Shared) -> &Requests<Self> {
        &shared.utilization
    }

    fn run(self, shared: &Shared) -> (u16, Message) {
        let Self { subsystem, nsid, admin, slot, generation } = self;
        shared.read_utilization(subsystem, nsid);
        (admin.thread, Message::Utilization { admin, slot, generation })
    }
}
