//! Identify commands that report the allocated bytes of a namespace, which another thread reads (`server/utilization.rs`).

use crate::ids::ConnAddr;

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
