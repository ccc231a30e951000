//! What a queue pair asks of the transport beneath it: answers out, the host's data in.
//!
//! The queue pair owns its transport and calls it; the transport hands commands and data to the queue pair
//! ([`QueuePair::on_command`](super::QueuePair::on_command), [`QueuePair::on_data`](super::QueuePair::on_data)). A transport
//! knows command identifiers and lengths, and nothing of what a command does. TCP fetches data with R2Ts; RDMA would read
//! from the host's memory.

use pilotlight_nvme::Cqe;

use crate::buffer::BufferPool;
use crate::latency::Arrival;
use crate::payload::{Loans, Payload};

/// Most bytes of data that may come with a command (IOCCSZ), whatever the transport.
pub const IN_CAPSULE: usize = 8192;

/// Data that came with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InCapsule<'a> {
    /// The data.
    pub bytes: &'a [u8],
    /// Whether it came undamaged, as far as the transport can tell.
    pub intact: bool,
}

/// Data for the host, and how its command ends.
#[derive(Debug)]
pub struct Data {
    /// The command.
    pub cid: u16,
    /// The data.
    pub payload: Payload,
    /// The completion that follows the data; `None` for a successful one that says nothing else.
    pub end: Option<Cqe>,
    /// When the command came.
    pub arrival: Arrival,
}

/// A way to one host, with room for what one queue pair can have under way.
pub trait Transport {
    /// Bytes of memory that [`Transport::reserve`] sets aside.
    fn bytes(size: u16, slots: usize) -> usize
    where
        Self: Sized;

    /// Sets aside what a queue of `size` entries needs whose commands are in slots below `slots`, so that nothing is allocated
    /// later. Nothing is fetched before.
    fn reserve(&mut self, size: u16, slots: usize);

    /// Ends the command that came at `arrival`.
    fn respond(&mut self, cqe: Cqe, arrival: Arrival);

    /// Sends data, and ends its command. It is queued at `now_ns` nanoseconds. What is on loan among `loans` has to be sent
    /// or copied before they end.
    fn send(&mut self, data: Data, loans: &Loans, now_ns: u64);

    /// Fetches the `len` bytes of data of command `cid`, which is in `slot`, or goes on with it: into
    /// [`QueuePair::data_buffer`](super::QueuePair::data_buffer). Returns whether data is on its way; if not, there is no room to
    /// request it now, and the queue pair tries again. When all of it has come the transport calls
    /// [`QueuePair::on_data`](super::QueuePair::on_data), once; where some has come and none is on its way,
    /// [`QueuePair::on_fetch_stuck`](super::QueuePair::on_fetch_stuck).
    fn fetch(&mut self, slot: u16, cid: u16, len: u32) -> bool;

    /// The command in `slot` has ended before all of its data came: its buffer is gone, and what still comes is thrown away.
    fn cancel(&mut self, slot: u16);

    /// Bytes that wait to be sent.
    fn unsent_bytes(&self) -> usize;

    /// Answers that wait to be sent.
    fn unsent_answers(&self) -> usize;

    /// Since when the oldest data has been waiting to be sent, in nanoseconds; `u64::MAX` if none does.
    fn oldest_data_ns(&self) -> u64;

    /// Takes nothing more from the host, not even what has come in part.
    fn stop_receiving(&mut self);

    /// Forgets everything that waits to be sent.
    fn clear(&mut self, pool: &mut BufferPool);
}
