//! Counters of an I/O thread, written by it with plain loads and stores, readable by all threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pilotlight_nvmf_proto::services::Totals;
use pilotlight_reactor::{Histogram, cells::add};

use crate::hosts::usage::Rows;
use crate::latency::coarse::BySubsystem;
use crate::latency::socket::SocketLatency;
use crate::thread::moves::MoveCounters;

/// One I/O thread's counters.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    connections: AtomicU64,
    faults: AtomicU64,
    /// Latency of reads and writes: from the poll that read the command to the end of the poll that wrote the last byte of its
    /// response.
    pub latency: Histogram,
    /// Sampled latency from the arrival at the socket.
    pub from_socket: SocketLatency,
    /// Wait for bandwidth caps; not part of the latency.
    pub cap_waits: Histogram,
    /// Moves to other reactors.
    pub moves: MoveCounters,
    /// Requests and bytes by host, namespace and operation.
    pub usage: Rows,
    /// `latency` by subsystem and operation.
    pub by_subsystem: BySubsystem,
}

impl Counters {
    /// Drops the counters of a subsystem without connections.
    pub(crate) fn forget_subsystem(&self, at: usize) {
        self.usage.forget(|(_, subsystem)| subsystem == at);
        self.by_subsystem.forget(at);
    }

    pub(crate) fn add_read(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.read_bytes, bytes);
    }

    pub(crate) fn add_write(&self, bytes: u64) {
        add(&self.writes, 1);
        add(&self.written_bytes, bytes);
    }

    pub(crate) fn add_fault(&self) {
        add(&self.faults, 1);
    }

    pub(crate) fn set_connections(&self, open: u64) {
        self.connections.store(open, Relaxed);
    }

    /// A copy.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            connections: self.connections.load(Relaxed),
            faults: self.faults.load(Relaxed),
        }
    }
}
