//! For tests: bounds of memory, and work in progress.

use super::{Connection, MAX_CAPSULE};
use crate::services::Services;

/// Work in progress of a connection, or of an I/O thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
    /// Requests in the backends.
    pub in_backends: u64,
    /// Connections with a partially received PDU.
    pub partial_pdus: u64,
    /// R2Ts with outstanding data.
    pub open_r2ts: u64,
    /// Connections with unsent data that the socket does not accept.
    pub unfinished_sends: u64,
}

impl std::ops::AddAssign for InProgress {
    fn add_assign(&mut self, other: Self) {
        self.in_backends += other.in_backends;
        self.partial_pdus += other.partial_pdus;
        self.open_r2ts += other.open_r2ts;
        self.unfinished_sends += other.unfinished_sends;
    }
}

impl<S: Services> Connection<S> {
    /// Asserts the bounds of memory.
    pub fn assert_bounded(&self) {
        let tcp = &self.pair.transport;
        let stash = tcp.inbound.stash.len();
        assert!(stash <= MAX_CAPSULE, "{stash} kept bytes of a PDU");
        let Some((held, size)) = self.pair.assert_bounded() else { return };
        let most = held + (2 * size + 3) * 256; // charged data, and headers
        let (r2ts, bytes) = (tcp.tx.r2ts(), tcp.tx.bytes());
        assert!(r2ts <= size + 1, "{r2ts} unsent R2Ts in a queue of {size}");
        assert!(bytes <= most, "{bytes} unsent bytes, {most} are charged");
    }

    /// Work in progress, without requests in the backends.
    #[must_use]
    pub fn in_progress(&self) -> InProgress {
        let tcp = &self.pair.transport;
        InProgress {
            in_backends: 0,
            partial_pdus: u64::from(tcp.inbound.is_partial()),
            open_r2ts: tcp.transfers.outstanding() as u64,
            unfinished_sends: u64::from(self.blocked && !tcp.tx.is_empty()),
        }
    }
}
