//! The transport trait for NVMe/TCP: responses become PDUs, data is fetched with R2Ts.

use pilotlight_nvme::Cqe;
use pilotlight_storage::buffer::BufferPool;

use super::inbound::Inbound;
use super::transfers::{Progress, Transfers};
use super::tx::TxQueue;
use crate::arrival::Arrival;
use crate::payload::Loans;
use crate::queue_pair::MAX_EARLY_RESPONSES;
use crate::queue_pair::transport::{Data, Transport};

/// Capacity for responses of a queue of `size` entries: a response and an R2T per entry, and those before Connect.
const fn response_capacity(size: u16) -> usize {
    2 * size as usize + MAX_EARLY_RESPONSES
}

/// The sending side of a connection, its transfers, and its partially received PDU.
#[derive(Debug, Default)]
pub struct Tcp {
    /// Unsent PDUs.
    pub tx: TxQueue,
    pub(super) transfers: Transfers,
    pub(super) inbound: Inbound,
    /// Entries of the queue.
    size: usize,
}

impl Tcp {
    /// Whether there is a queue, which can request data.
    #[inline]
    pub(super) fn may_fetch(&self) -> bool {
        self.size > 0
    }

    /// Queues the possible R2Ts of transfer `at`; returns whether data is outstanding.
    #[inline]
    fn request(&mut self, at: u16) -> bool {
        while self.tx.r2ts() < self.size {
            let Some(request) = self.transfers.next_request(at) else { break };
            self.tx.r2t(request.cid, request.tag, request.offset, request.len);
        }
        self.transfers.is_open(at)
    }

    /// Handles the end of an H2CData PDU of transfer `at`, `intact` or not, and requests more data.
    #[inline]
    pub(super) fn end_pdu(&mut self, at: u16, intact: bool) -> Progress {
        self.transfers.end_pdu(at, intact);
        if self.transfers.get(at).slot().is_some() {
            self.request(at);
        }
        self.transfers.progress(at)
    }
}

impl Transport for Tcp {
    fn bytes(size: u16, slots: usize) -> usize {
        TxQueue::bytes_of(response_capacity(size)) + Transfers::bytes(size, slots) + Inbound::BYTES
    }

    fn reserve(&mut self, size: u16, slots: usize) {
        self.size = usize::from(size);
        self.tx.reserve(response_capacity(size));
        self.transfers.reserve(size, slots);
        self.inbound.reserve();
    }

    #[inline]
    fn respond(&mut self, cqe: Cqe, arrival: Arrival) {
        self.tx.response(cqe, arrival);
    }

    #[inline]
    fn send(&mut self, data: Data, loans: &Loans, now_ns: u64) {
        self.tx.data(data, loans, now_ns);
    }

    #[inline]
    fn fetch(&mut self, slot: u16, cid: u16, len: u32) -> bool {
        self.transfers.begin_or_get(slot, cid, len).is_some_and(|at| self.request(at))
    }

    #[inline]
    fn cancel(&mut self, slot: u16) {
        self.transfers.cancel(slot);
    }

    #[inline]
    fn unsent_bytes(&self) -> usize {
        self.tx.bytes()
    }

    #[inline]
    fn unsent_responses(&self) -> usize {
        self.tx.responses()
    }

    #[inline]
    fn oldest_data_ns(&self) -> u64 {
        self.tx.oldest_data_ns()
    }

    fn stop_receiving(&mut self) {
        self.inbound.clear();
    }

    fn clear(&mut self, pool: &mut BufferPool) {
        self.tx.clear(pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsent_r2ts_are_limited_by_the_queue_size() {
        let mut tcp = Tcp::default();
        tcp.reserve(2, 2);
        tcp.transfers.set_max_r2t(4);
        assert!(tcp.fetch(0, 7, 131_072));
        assert_eq!(tcp.tx.r2ts(), 2);
        assert!(!tcp.fetch(1, 8, 4096), "it cannot be requested now");
        let mut pool = BufferPool::new(4096).expect("memory");
        let _ = tcp.tx.advance(tcp.tx.bytes(), &mut pool, |_, _| {});
        assert!(tcp.fetch(1, 8, 4096));
        assert_eq!(tcp.tx.r2ts(), 1);
    }
}
