//! Unsent PDUs of a connection, in order.
//!
//! Each entry is one response: a header, padding up to the host's data offset, data in a [`Payload`], and a tail (data
//! digest, response capsule). The entry owns its buffer until the kernel has accepted the last byte. Entries are gathered
//! into one `sendmsg`; a short send is recorded as an offset into the first entry.
//!
//! Properties: bytes are sent in order, each once; the queue does not exceed the capacity of [`TxQueue::reserve`], so that a
//! push does not allocate; every buffer is freed.

use std::collections::VecDeque;
use std::io::IoSlice;

use pilotlight_nvme::Cqe;
use pilotlight_nvme::digest::{DIGEST_LEN, digest};
use pilotlight_nvme::pdu::{C2HData, CapsuleResp, Digests, Flags, PduType, R2T, data_offset};
use pilotlight_storage::buffer::{Buffer, BufferPool};
use zerocopy::IntoBytes;

use crate::arrival::Arrival;
use crate::payload::{Loans, Payload};
use crate::queue_pair::transport::Data;

const HEAD: usize = 28;
const TAIL: usize = DIGEST_LEN + size_of::<CapsuleResp>() + DIGEST_LEN;
/// Responses per `sendmsg`: enough to amortize the call, few enough to keep a loop under 40 us.
pub const BATCH: usize = crate::payload::BUDGET as usize;
/// Slices of one response: header, padding, data, tail.
const PARTS: usize = 4;
/// Responses whose slices fit in the small array of [`TxQueue::gather`].
const FEW: usize = 4;

static PADDING: [u8; 128] = [0; 128];

#[derive(Debug)]
struct Entry {
    head: [u8; HEAD],
    tail: [u8; TAIL],
    head_len: u8,
    pad_len: u8,
    tail_len: u8,
    ends_command: bool,
    payload: Option<Payload>,
    /// Time when data was queued, in nanoseconds; 0 without data.
    since_ns: u64,
    /// Arrival of the command.
    arrival: Arrival,
}

/// Framing of data and capsules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Framing {
    /// Digests in use.
    pub digests: Digests,
    /// The host's data alignment (HPDA).
    pub hpda: u8,
}

/// The queue of unsent PDUs.
#[derive(Debug, Default)]
pub struct TxQueue {
    entries: VecDeque<Entry>,
    /// Bytes of the first entry that have been sent.
    sent: usize,
    /// Bytes of all entries, including sent ones of the first.
    queued: usize,
    /// Entries that end a command: all but R2Ts.
    responses: usize,
    framing: Framing,
}

impl Entry {
    #[inline]
    fn new(header: &[u8], header_digest: bool) -> Self {
        let mut head = [0; HEAD];
        let head_len = put(&mut head, 0, header, header_digest) as u8;
        Self { head, head_len, ..Self::EMPTY }
    }

    const EMPTY: Self = Self {
        head: [0; HEAD],
        tail: [0; TAIL],
        head_len: 0,
        pad_len: 0,
        tail_len: 0,
        ends_command: true,
        payload: None,
        since_ns: 0,
        arrival: Arrival::NONE,
    };

    #[inline(always)] // as a call it costs 36 instructions a response
    fn parts<'a>(&'a self, loans: &'a Loans) -> [&'a [u8]; PARTS] {
        [
            &self.head[..usize::from(self.head_len)],
            &PADDING[..usize::from(self.pad_len)],
            self.payload.as_ref().map_or(&[], |payload| payload.bytes(loans)),
            &self.tail[..usize::from(self.tail_len)],
        ]
    }

    #[inline]
    fn len(&self) -> usize {
        let payload_len = self.payload.as_ref().map_or(0, Payload::len) as usize;
        usize::from(self.head_len) + usize::from(self.pad_len) + payload_len + usize::from(self.tail_len)
    }
}

/// Writes `bytes`, with an optional digest, at `at`; returns their end.
#[inline]
fn put(into: &mut [u8], at: usize, bytes: &[u8], with_digest: bool) -> usize {
    let mut end = at + bytes.len();
    into[at..end].copy_from_slice(bytes);
    if with_digest {
        into[end..end + DIGEST_LEN].copy_from_slice(&digest(bytes));
        end += DIGEST_LEN;
    }
    end
}

impl TxQueue {
    /// Sets the framing of later responses.
    pub fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// Bytes that [`TxQueue::reserve`] allocates for `responses` responses.
    #[must_use]
    pub const fn bytes_of(responses: usize) -> usize {
        responses * size_of::<Entry>()
    }

    /// Allocates space for `responses` responses.
    pub fn reserve(&mut self, responses: usize) {
        self.entries.reserve_exact(responses.saturating_sub(self.entries.len()));
    }

    /// Unsent entries that end a command.
    #[inline]
    #[must_use]
    pub fn responses(&self) -> usize {
        self.responses
    }

    /// Unsent R2Ts.
    #[must_use]
    pub fn r2ts(&self) -> usize {
        self.entries.len() - self.responses
    }

    /// Whether everything has been sent.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Unsent bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.queued - self.sent
    }

    /// Queues a response capsule for a command with this arrival.
    #[inline]
    pub fn response(&mut self, cqe: Cqe, arrival: Arrival) {
        let digests = self.framing.digests;
        let mut entry = Entry::new(CapsuleResp::new(cqe, digests).as_bytes(), digests.header);
        entry.arrival = arrival;
        self.push(entry);
    }

    /// Queues an R2T for `len` bytes at `offset` of command `cid`'s data.
    #[inline]
    pub fn r2t(&mut self, cid: u16, ttag: u16, offset: u32, len: u32) {
        let digests = self.framing.digests;
        let mut entry = Entry::new(R2T::new(cid, ttag, offset, len, digests).as_bytes(), digests.header);
        entry.ends_command = false;
        self.push(entry);
    }

    /// Queues the data of a command and its completion; without one the data PDU has the SUCCESS flag.
    #[inline]
    pub fn data(&mut self, data: Data, loans: &Loans, now_ns: u64) {
        let Data { cid, payload, end: cqe, arrival } = data;
        let Framing { digests, hpda } = self.framing;
        let pdo = data_offset(PduType::C2HData, digests, hpda);
        let mut flags = Flags::LAST_PDU;
        flags.set(Flags::SUCCESS, cqe.is_none());
        let header = C2HData::new(cid, 0, payload.len(), pdo, flags, digests);
        // filled in place: an entry built elsewhere is copied twice, 38 instructions
        let at = self.entries.len();
        self.entries.push_back(Entry::EMPTY);
        let entry = &mut self.entries[at];
        entry.head_len = put(&mut entry.head, 0, header.as_bytes(), digests.header) as u8;
        entry.pad_len = pdo - entry.head_len;
        let mut tail_len = 0;
        if digests.data {
            let sum = digest(payload.bytes(loans));
            tail_len = put(&mut entry.tail, 0, &sum, false);
        }
        if let Some(cqe) = cqe {
            tail_len = put(&mut entry.tail, tail_len, CapsuleResp::new(cqe, digests).as_bytes(), digests.header);
        }
        entry.tail_len = tail_len as u8;
        entry.payload = Some(payload);
        entry.since_ns = now_ns;
        entry.arrival = arrival;
        self.queued += entry.len();
        self.responses += 1;
    }

    /// Time when the oldest unsent data was queued, in nanoseconds; `u64::MAX` for none.
    #[inline]
    #[must_use]
    pub fn oldest_data_ns(&self) -> u64 {
        self.entries.iter().find(|entry| entry.payload.is_some()).map_or(u64::MAX, |entry| entry.since_ns)
    }

    /// Queues a complete PDU in `buffer`.
    pub fn raw(&mut self, buffer: Buffer) {
        let mut entry = Entry::new(&[], false);
        let len = buffer.len() as u32;
        entry.payload = Some(Payload::new(buffer, len));
        self.push(entry);
    }

    #[inline]
    fn push(&mut self, entry: Entry) {
        self.queued += entry.len();
        self.responses += usize::from(entry.ends_command);
        self.entries.push_back(entry);
    }

    /// Passes the unsent responses, at most [`BATCH`], to `send`. An array for all of them is filled with about 370 instructions, so
    /// that a few responses use a small one.
    #[inline]
    pub fn gather<R>(&self, loans: &Loans, send: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        if self.entries.len() <= FEW {
            let mut slices = [IoSlice::new(&[]); FEW * PARTS];
            let used = self.fill(loans, &mut slices);
            send(&slices[..used])
        } else {
            let mut slices = [IoSlice::new(&[]); BATCH * PARTS];
            let used = self.fill(loans, &mut slices);
            send(&slices[..used])
        }
    }

    /// Fills `slices`, four for a response, and returns their number.
    fn fill<'a, const N: usize>(&'a self, loans: &'a Loans, slices: &mut [IoSlice<'a>; N]) -> usize {
        let mut used = 0;
        let mut skip = self.sent;
        for entry in self.entries.iter().take(N / PARTS) {
            for part in entry.parts(loans) {
                let skipped = skip.min(part.len());
                skip -= skipped;
                if skipped < part.len() {
                    slices[used] = IoSlice::new(&part[skipped..]);
                    used += 1;
                }
            }
        }
        used
    }

    /// Copies loaned data to buffers before the loans end.
    #[inline]
    pub fn keep(&mut self, loans: &Loans) {
        for payload in self.entries.iter_mut().filter_map(|entry| entry.payload.as_mut()) {
            payload.keep(loans);
        }
    }

    /// Records `bytes` sent bytes, and frees the buffers of sent responses; returns the freed bytes of the pool. Calls
    /// `on_responses` with the arrival and the number of each run of sent responses with the same arrival.
    #[inline]
    pub fn advance(
        &mut self,
        bytes: usize,
        pool: &mut BufferPool,
        mut on_responses: impl FnMut(Arrival, u64),
    ) -> usize {
        self.sent += bytes;
        let mut freed = 0;
        let mut run = (Arrival::NONE, 0);
        while let Some(front) = self.entries.front() {
            let len = front.len();
            if self.sent < len {
                break;
            }
            self.sent -= len;
            self.queued -= len;
            freed += front.payload.as_ref().map_or(0, Payload::capacity);
            if front.arrival != run.0 {
                on_responses(run.0, run.1);
                run = (front.arrival, 0);
            }
            run.1 += 1;
            self.pop(pool);
        }
        debug_assert!(!self.entries.is_empty() || self.sent == 0, "more was sent than was queued");
        on_responses(run.0, run.1);
        freed
    }

    /// Drops every entry that has not been started, so that the next PDU starts at a PDU boundary.
    pub fn clear_unsent(&mut self, pool: &mut BufferPool) {
        let sent = self.sent;
        let begun = if sent > 0 { self.entries.pop_front() } else { None };
        self.clear(pool);
        if let Some(entry) = begun {
            self.push(entry);
            self.sent = sent;
        }
    }

    /// Drops all entries.
    pub fn clear(&mut self, pool: &mut BufferPool) {
        while !self.entries.is_empty() {
            self.pop(pool);
        }
        (self.sent, self.queued, self.responses) = (0, 0, 0);
    }

    #[inline]
    fn pop(&mut self, pool: &mut BufferPool) {
        let Some(entry) = self.entries.pop_front() else { return };
        self.responses -= usize::from(entry.ends_command);
        if let Some(payload) = entry.payload {
            pool.free(payload.into_buffer());
        }
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_nvme::Status;
    use pilotlight_storage::{Backend, MemoryBackend, MemoryBudget};
    use proptest::prelude::*;

    use super::*;

    fn data(cid: u16, buffer: Buffer, len: u32, end: Option<Cqe>) -> Data {
        Data { cid, payload: Payload::new(buffer, len), end, arrival: Arrival::NONE }
    }

    /// Sends at most `chunk` bytes.
    fn send(tx: &mut TxQueue, loans: &Loans, pool: &mut BufferPool, chunk: usize) -> Vec<u8> {
        let all: Vec<u8> =
            tx.gather(loans, |slices| slices.iter().flat_map(|s| s.iter().copied()).take(chunk).collect());
        tx.advance(all.len(), pool, |_, _| {});
        all
    }

    fn collect(tx: &mut TxQueue, pool: &mut BufferPool, chunk: usize) -> Vec<u8> {
        let (mut out, loans) = (Vec::new(), Loans::default());
        while !tx.is_empty() {
            out.extend(send(tx, &loans, pool, chunk));
        }
        out
    }

    #[test]
    fn a_successful_read_is_one_data_pdu() {
        let mut pool = BufferPool::new(1 << 20).expect("memory");
        let mut tx = TxQueue::default();
        let mut buffer = pool.alloc(512).expect("room");
        buffer.fill(0xab);
        tx.data(data(5, buffer, 512, None), &Loans::default(), 0);
        let bytes = collect(&mut tx, &mut pool, usize::MAX);
        assert_eq!(bytes[..16], [0x07, 0x0c, 24, 24, 0x18, 2, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[24..], [0xab; 512]);
        assert_eq!(pool.outstanding(), 0);
    }

    #[test]
    fn offsets_of_padding_digests_and_completion() {
        let mut pool = BufferPool::new(1 << 20).expect("memory");
        let mut tx = TxQueue::default();
        tx.set_framing(Framing { digests: Digests { header: true, data: true }, hpda: 15 });
        let mut buffer = pool.alloc(512).expect("room");
        buffer.fill(7);
        tx.data(data(9, buffer, 512, Some(Cqe::new(9, Status::SUCCESS, 0))), &Loans::default(), 0);
        let bytes = collect(&mut tx, &mut pool, usize::MAX);
        assert_eq!(bytes[..4], [0x07, 0x07, 24, 64]);
        assert_eq!(bytes[24..28], digest(&bytes[..24]));
        assert_eq!(bytes[28..64], [0; 36]);
        assert_eq!(bytes[64 + 512..64 + 516], digest(&[7; 512]));
        assert_eq!(bytes[580..584], [0x05, 0x01, 24, 0]);
        assert_eq!(bytes[580 + 24..], digest(&bytes[580..604]));
    }

    proptest! {
        /// Short sends do not change the bytes, and no buffer is lost.
        #[test]
        fn short_sends_change_nothing(lens in prop::collection::vec(0usize..9000, 1..50), chunk in 1usize..20_000) {
            let mut pool = BufferPool::new(4 << 20).expect("memory");
            let mut reference = Vec::new();
            for chunk in [usize::MAX, chunk] {
                let (mut tx, loans) = (TxQueue::default(), Loans::default());
                for (cid, &len) in lens.iter().enumerate() {
                    if len == 0 {
                        tx.response(Cqe::new(cid as u16, Status::SUCCESS, 0), Arrival::NONE);
                    } else {
                        let mut buffer = pool.alloc(len).expect("room");
                        buffer.fill(cid as u8);
                        tx.data(data(cid as u16, buffer, len as u32, (len % 2 == 0).then(Cqe::default)), &loans, 0);
                    }
                }
                let total = tx.bytes();
                let out = collect(&mut tx, &mut pool, chunk);
                prop_assert_eq!(out.len(), total);
                prop_assert_eq!(tx.bytes(), 0);
                if reference.is_empty() { reference = out } else { prop_assert_eq!(&reference, &out) }
            }
            prop_assert_eq!(pool.outstanding(), 0);
        }

        /// Loaned data is sent unchanged, even if the loans end after a short send.
        #[test]
        fn loans_end_after_the_first_send(
            lens in prop::collection::vec(1u32..17, 1..20),
            first in 0usize..120_000,
            digests: bool,
        ) {
            let budget = std::sync::Arc::new(MemoryBudget::unlimited());
            let backend = MemoryBackend::new(512, 1024, budget).expect("memory");
            let mut channel = backend.open_channel(1).expect("a channel");
            let mut pool = BufferPool::new(4 << 20).expect("memory");
            let (mut tx, mut copied, mut loans) = (TxQueue::default(), TxQueue::default(), Loans::default());
            for tx in [&mut tx, &mut copied] {
                tx.set_framing(Framing { digests: Digests { header: digests, data: digests }, hpda: 0 });
            }
            for (n, &blocks) in (0u16..).zip(&lens) {
                let (lba, bytes) = (u64::from(n) * 40, vec![n as u8; blocks as usize * 512]);
                if n % 3 > 0 {
                    channel.write_now(lba, blocks, false, &bytes).expect("free").expect("room");
                }
                let (buffer, mut reference) = (pool.alloc(bytes.len()).expect("room"), pool.alloc(bytes.len()).expect("room"));
                reference.fill(if n % 3 > 0 { n as u8 } else { 0 });
                let id = loans.borrow(0, &mut *channel, lba, blocks).expect("a loan");
                let payload = Payload::lent(id, buffer, bytes.len() as u32);
                tx.data(Data { cid: n, payload, end: None, arrival: Arrival::NONE }, &loans, 0);
                copied.data(data(n, reference, bytes.len() as u32, None), &loans, 0);
            }
            let mut out = send(&mut tx, &loans, &mut pool, first);
            tx.keep(&loans);
            while let Some((_, loan)) = loans.pop() {
                channel.end_loan(loan);
            }
            channel.write_now(0, 1024, false, &vec![0xee; 512 << 10]).expect("free").expect("room");
            out.extend(collect(&mut tx, &mut pool, usize::MAX));
            prop_assert!(out == collect(&mut copied, &mut pool, usize::MAX));
            prop_assert_eq!(pool.outstanding(), 0);
        }
    }
}
