//! For tests: the state of an I/O thread.

use pilotlight_nvmf_proto::tcp::InProgress;

use super::TargetThread;

/// Resource usage of an I/O thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Connections, including ended ones with requests in the backends.
    pub connections: u32,
    /// I/O commands in progress.
    pub commands: u32,
    /// Outstanding buffers.
    pub buffers: usize,
    /// Bytes charged to queues.
    pub charged: usize,
    /// Requests in the backends.
    pub in_backends: usize,
}

impl TargetThread {
    /// Current resource usage, checked against its bounds.
    pub(crate) fn usage(&self) -> Usage {
        self.sockets.iter().flatten().for_each(|socket| socket.conn.assert_bounded());
        let memory = &self.resources.memory;
        let in_backends = self.resources.namespaces.in_flight();
        let commands = self.sockets.iter().flatten().map(|socket| socket.conn.pair.requests_in_progress()).sum();
        assert_eq!(self.in_progress, commands, "the counter of commands in progress");
        let buffers = memory.pool.outstanding();
        Usage { connections: self.open, commands, buffers, charged: memory.charged(), in_backends }
    }

    /// Whether a message waits for this thread.
    pub(crate) fn has_messages(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Entries of namespaces.
    pub(crate) fn namespace_entries(&self) -> usize {
        self.resources.namespaces.entries()
    }

    /// Connections checked by barriers.
    pub(crate) fn barrier_checks(&self) -> u64 {
        self.barrier_checks
    }

    /// Whether the last poll found no work and no due deadline.
    pub(crate) fn was_idle(&self) -> bool {
        self.idle
    }

    /// Work in progress.
    pub(crate) fn in_progress(&self) -> InProgress {
        let mut sum = InProgress { in_backends: self.resources.namespaces.in_flight() as u64, ..InProgress::default() };
        self.sockets.iter().flatten().for_each(|socket| sum += socket.conn.in_progress());
        sum
    }
}
