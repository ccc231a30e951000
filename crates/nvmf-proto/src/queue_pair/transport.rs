//! The transport below a queue pair.
//!
//! The queue pair owns its transport and calls it; the transport delivers commands and data
//! ([`QueuePair::on_command`](super::QueuePair::on_command), [`QueuePair::on_data`](super::QueuePair::on_data)). It handles
//! command identifiers and lengths but does not interpret commands. `tcp/transport.rs` implements it, and, without PDUs,
//! `Recorder` in `nvmf-target/src/queue_pair_tests.rs`. TCP fetches data with R2Ts; RDMA would read the host's
//! memory.

use pilotlight_nvme::Cqe;

use crate::arrival::Arrival;
use crate::payload::{Loans, Payload};
use pilotlight_storage::buffer::BufferPool;
pub use pilotlight_storage::buffer::IN_CAPSULE;

/// In-capsule data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InCapsule<'a> {
    /// The data.
    pub bytes: &'a [u8],
    /// Whether its digest matches.
    pub intact: bool,
}

/// Data for the host, with its completion.
#[derive(Debug)]
pub struct Data {
    /// The command.
    pub cid: u16,
    /// The data.
    pub payload: Payload,
    /// The completion after the data; `None` for plain success.
    pub end: Option<Cqe>,
    /// Arrival of the command.
    pub arrival: Arrival,
}

/// The transport of one queue pair.
pub trait Transport {
    /// Bytes that [`Transport::reserve`] allocates.
    fn bytes(size: u16, slots: usize) -> usize
    where
        Self: Sized;

    /// Allocates memory for a queue of `size` entries with `slots` slots, so that nothing is allocated later. No data is
    /// fetched before.
    fn reserve(&mut self, size: u16, slots: usize);

    /// Sends the completion of the command with this arrival.
    fn respond(&mut self, cqe: Cqe, arrival: Arrival);

    /// Sends data and its completion, queued at `now_ns` nanoseconds. Loaned data must be sent or copied before the loans end.
    fn send(&mut self, data: Data, loans: &Loans, now_ns: u64);

    /// Starts or continues fetching the `len` bytes of data of command `cid` in `slot` into
    /// [`QueuePair::data_buffer`](super::QueuePair::data_buffer). Returns whether data is outstanding; if not, it cannot be
    /// requested now, and the queue pair retries. The transport calls [`QueuePair::on_data`](super::QueuePair::on_data) once when
    /// all of it has arrived, and [`QueuePair::on_fetch_blocked`](super::QueuePair::on_fetch_blocked) when the rest cannot be
    /// requested.
    fn fetch(&mut self, slot: u16, cid: u16, len: u32) -> bool;

    /// Cancels the fetch of the command in `slot`: its buffer is freed, and late data is discarded.
    fn cancel(&mut self, slot: u16);

    /// Unsent bytes.
    fn unsent_bytes(&self) -> usize;

    /// Unsent responses.
    fn unsent_responses(&self) -> usize;

    /// Time when the oldest unsent data was queued, in nanoseconds; `u64::MAX` for none.
    fn oldest_data_ns(&self) -> u64;

    /// Discards partially received and later bytes.
    fn stop_receiving(&mut self);

    /// Drops all unsent responses.
    fn clear(&mut self, pool: &mut BufferPool);
}
