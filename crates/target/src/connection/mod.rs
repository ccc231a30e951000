//! One NVMe/TCP connection: bytes in, answers queued, no socket.
//!
//! The I/O thread reads from the socket into memory that it owns and hands the bytes to [`Connection::on_bytes`]; what
//! the connection wants to send waits in [`Connection::tx`]. So the whole protocol can be driven without a network, by
//! tests and by a fuzzer.
//!
//! A connection begins with ICReq, becomes a queue pair with Connect, and ends by Disconnect, by the peer, with its
//! association, or by a [`Fault`]. Its parts, a file each:
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | phases; PDUs out of a stream of bytes |
//! | `data.rs` | data that R2Ts asked for |
//! | `connect.rs` | ICReq, Connect, leaving and entering associations |
//! | `refusal.rs` | why a Connect is refused |
//! | `io.rs` | commands through the backends: start, wait, complete |
//! | `admin.rs` | the admin queue: a controller and what belongs to it |
//!
//! Properties:
//! - a write reaches a backend only after all of its data has come and every digest was right;
//! - nothing is submitted for an association that has ended;
//! - a command is answered exactly once, or the connection is over; a request in a backend outlives its connection;
//! - what is held in memory is bounded by the queue size, the pool, and one capsule.

mod admin;
mod connect;
mod data;
mod io;
mod refusal;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pilotlight_nvme::digest;
use pilotlight_nvme::pdu::{CommonHeader, FatalError, Flags, PduType, TermReq};
use pilotlight_nvme::{Cqe, Sqe, Status};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use crate::admission::Admission;
use crate::association::Association;
use crate::command::Work;
use crate::departures::Departures;
use crate::memory::{Memory, Share};
use crate::message::{ConnAddr, Outbox};
use crate::moves::InProgress;
use crate::namespaces::Namespaces;
use crate::server::Shared;
use crate::slots::{Slot, Slots, State};
use crate::stats::Counters;
use crate::tx::{Framing, TxQueue};
use crate::wait::{BUSY_RETRY_NS, Wait};
use crate::wire::{self, Fault, Head, MAX_CAPSULE, Stage, field};

use admin::AdminQueue;
pub use admin::GONE;
use connect::Connecting;
pub use io::connection_of;

/// How long a connection lingers after a termination request, so that the host can read it, in nanoseconds.
const LINGER_NS: u64 = 1_000_000_000;

/// What a connection works with: everything of its I/O thread that it may touch during one call.
pub struct Cx<'a> {
    /// Monotonic time in nanoseconds.
    pub now_ns: u64,
    /// The connection's own address.
    pub me: ConnAddr,
    /// The I/O thread's buffers, and who holds how much of them.
    pub memory: &'a mut Memory,
    /// The I/O thread's namespaces.
    pub namespaces: &'a mut Namespaces,
    /// Messages to other I/O threads.
    pub out: &'a mut Outbox,
    /// What the I/O thread counts.
    pub counters: &'a Counters,
    /// Answers that have left in this poll.
    pub departures: &'a mut Departures,
    /// What all I/O threads share.
    pub shared: &'a Arc<Shared>,
}

impl Cx<'_> {
    /// Counts a failed command of the namespace at this index, at this LBA where it has one; `is_short`: its medium ends before it.
    fn note_failure(&self, (namespace, lba): (u32, Option<u64>), status: Status, is_short: bool) {
        let Some(failures) = self.namespaces.failures(namespace) else { return };
        if failures.note(status, is_short, lba) {
            self.shared.failure_bell.ring();
        }
    }
}

/// How far a connection has come.
#[derive(Debug)]
enum Phase {
    /// Waits for ICReq.
    Initialize,
    /// Waits for Connect.
    AwaitConnect,
    /// Connect has come and waits for others.
    Connecting(Box<Connecting>),
    /// Commands are served.
    Ready,
    /// A last answer or a termination request is on its way; whatever comes is thrown away.
    Closing,
    /// Over; requests in the backends may still come back.
    Dead,
}

/// What kind of queue the connection has become.
enum Role {
    None,
    Io(Arc<Association>),
    Admin(Box<AdminQueue>),
}

/// A queue pair.
struct Queue {
    qid: u16,
    size: u16,
    slots: Slots,
    /// Commands that need nothing but a backend that takes them, oldest first.
    ready: VecDeque<u16>,
    /// Commands that wait for a buffer, or for answers to leave, oldest first.
    waiting: VecDeque<u16>,
    /// Submission queue head.
    sqhd: u16,
    /// Whether the host wants to know it.
    flow_control: bool,
    /// What this queue holds of the I/O thread's memory.
    share: Share,
    /// Requests in the backends.
    in_device: usize,
    /// The queue is lost, has requests in the backends, and the register knows.
    undrained: bool,
    /// Its place and its memory, which come back when everything above is gone.
    admission: Admission,
}

/// Data of an H2CData PDU on its way in.
#[derive(Clone, Copy, Debug)]
struct Body {
    slot: u16,
    ask: usize,
    /// Bytes of data still to come.
    remaining: u32,
    /// Bytes of the data digest still to come.
    digest_left: usize,
    digest: [u8; digest::DIGEST_LEN],
    /// Digest of the data so far.
    crc: u32,
}

/// One NVMe/TCP connection.
pub struct Connection {
    /// The host's address.
    peer: SocketAddr,
    /// The local address that the host has reached.
    reached: Option<IpAddr>,
    phase: Phase,
    role: Role,
    framing: Framing,
    /// R2Ts per command that the host allows.
    max_r2t: usize,
    /// The beginning of a PDU that has not come in full.
    stash: Vec<u8>,
    body: Option<Body>,
    queue: Option<Queue>,
    /// Answers to send.
    pub tx: TxQueue,
    /// The socket takes no more at the moment.
    pub blocked: bool,
    deadline_ns: u64,
    requests: u32,
    /// Commands that may still be started in this poll.
    budget: u32,
    /// A backend was too busy for a command when those that wait were last tried.
    turned_away: bool,
    /// The server is stopping: what is in progress is finished, nothing new is taken.
    draining: bool,
}

/// Commands of one connection that are started in one poll: it bounds the loop for everyone else on the core.
const BUDGET: u32 = crate::tx::BATCH as u32;
/// Answers that may wait to be sent before Connect has succeeded.
const EARLY_ANSWERS: usize = 16;

impl Connection {
    /// A connection from `peer` that was accepted at `now_ns` on the local address `reached` and has `icreq_timeout_ns` to
    /// say something.
    #[must_use]
    pub fn new(now_ns: u64, icreq_timeout_ns: u64, peer: SocketAddr, reached: Option<IpAddr>) -> Self {
        Self {
            peer,
            reached,
            phase: Phase::Initialize,
            role: Role::None,
            framing: Framing::default(),
            max_r2t: 1,
            stash: Vec::new(),
            body: None,
            queue: None,
            tx: TxQueue::default(),
            blocked: false,
            deadline_ns: now_ns + icreq_timeout_ns,
            requests: 0,
            budget: BUDGET,
            turned_away: false,
            draining: false,
        }
    }

    /// A new poll begins: the connection may start commands again.
    pub fn refill(&mut self) {
        self.budget = BUDGET;
    }

    /// From now on commands in progress are finished and new ones are not taken.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether nothing is in progress that a draining server has to wait for. An admin queue waits for its I/O queues: its
    /// end would be theirs, whatever they have in progress.
    #[must_use]
    pub fn is_idle(&mut self) -> bool {
        if matches!(&self.role, Role::Admin(admin) if !admin.is_alone()) {
            return false;
        }
        let parked = |slot: &Slot| matches!(slot.state, State::Free | State::Parked | State::Discarding);
        let idle = self.queue.as_mut().is_none_or(|queue| queue.slots.iter_mut().all(|(_, slot)| parked(slot)));
        idle && self.tx.is_empty()
    }

    /// Asserts what the properties say about memory: for tests.
    pub(crate) fn assert_bounded(&self) {
        let stash = self.stash.len();
        assert!(stash <= MAX_CAPSULE, "{stash} bytes of a PDU are kept");
        let Some(queue) = &self.queue else {
            let answers = self.tx.len();
            return assert!(answers <= EARLY_ANSWERS + 1, "{answers} answers wait to be sent before Connect");
        };
        let (size, in_use) = (usize::from(queue.size), queue.slots.in_use());
        let waiting = queue.waiting.len() + queue.ready.len();
        let (answers, r2ts, bytes) = (self.tx.answers(), self.tx.r2ts(), self.tx.bytes());
        assert!(in_use + answers <= size + 1, "{in_use} commands and {answers} answers in a queue of {size}");
        assert!(r2ts <= size + 1, "{r2ts} R2Ts wait to be sent in a queue of {size}");
        assert!(waiting <= size + 32, "{waiting} commands wait in a queue of {size}");
        let most = queue.share.held() + (2 * size + 3) * 256; // data that is in the books, and headers
        assert!(bytes <= most, "{bytes} bytes wait to be sent, {most} are in the books");
    }

    /// What is in progress here, requests in the backends apart: for tests.
    #[must_use]
    pub fn in_progress(&self) -> InProgress {
        InProgress {
            in_backends: 0,
            partial_pdus: u64::from(!self.stash.is_empty() || self.body.is_some()),
            open_r2ts: self.queue.as_ref().map_or(0, |queue| queue.slots.open_asks() as u64),
            unfinished_sends: u64::from(self.blocked && !self.tx.is_empty()),
        }
    }

    /// When [`Connection::on_deadline`] wants to be called, in nanoseconds; `u64::MAX` for never.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Whether the socket is to be closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.phase {
            Phase::Dead => true,
            Phase::Closing => self.deadline_ns == 0,
            _ => false,
        }
    }

    /// Whether the last answer is queued, and the socket is to be shut down for sending once it is out.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing)
    }

    /// Since when the host has left something in memory waiting for it (data that it was asked for, answers that it does
    /// not take), in nanoseconds; `u64::MAX` if nothing waits.
    #[must_use]
    pub fn stalled_since_ns(&self) -> u64 {
        let asked_ns = self.queue.as_ref().map_or(u64::MAX, |queue| queue.slots.oldest_ask_ns());
        asked_ns.min(self.tx.oldest_data_ns())
    }

    /// Whether something waits for a later poll. A Connect that waits for a message does not: the message ends it.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        matches!(&self.phase, Phase::Connecting(connecting) if connecting.is_draining())
            || self.queue.as_ref().is_some_and(|q| !q.waiting.is_empty() || !q.ready.is_empty())
    }

    /// What has to happen before commands that wait can go on, as of the last time when all of them were tried. Memory
    /// and room to send come back with events.
    #[must_use]
    pub fn wait(&self, now_ns: u64) -> Wait {
        match &self.phase {
            Phase::Connecting(connecting) => connecting.wait(now_ns),
            _ if self.turned_away => Wait::Until(now_ns + BUSY_RETRY_NS),
            _ => Wait::Event,
        }
    }

    /// Commands that have arrived on an I/O queue since the last call: what an admin queue brings is no load.
    pub fn take_requests(&mut self) -> u32 {
        std::mem::take(&mut self.requests)
    }

    /// Commands that have arrived on an I/O queue and are not answered.
    #[must_use]
    pub fn requests_in_progress(&self) -> u32 {
        match (&self.role, &self.queue) {
            (Role::Io(_), Some(queue)) => queue.slots.in_use() as u32,
            _ => 0,
        }
    }

    /// The beginning of a PDU, kept from the last read; it is to stand before the bytes of the next.
    pub fn take_kept(&mut self, into: &mut [u8]) -> usize {
        let len = self.stash.len();
        into[..len].copy_from_slice(&self.stash);
        self.stash.clear();
        len
    }

    /// Keeps the beginning of a PDU until more of it comes.
    fn keep(&mut self, rest: &[u8], cx: &mut Cx) {
        if rest.len() > MAX_CAPSULE {
            // Only a host that sends commands before its Connect is answered comes here.
            self.fault(Fault::new(FatalError::Sequence), rest, cx);
            return;
        }
        self.stash.reserve_exact(rest.len()); // a queue has MAX_CAPSULE bytes set aside, and no more
        self.stash.extend_from_slice(rest);
    }

    /// Takes PDUs out of `bytes`, acts on them, and keeps the beginning of one that is not all there.
    pub fn on_bytes(&mut self, bytes: &[u8], cx: &mut Cx) {
        self.take_pdus(bytes, cx);
        self.run_waiting(cx);
    }

    fn take_pdus(&mut self, bytes: &[u8], cx: &mut Cx) {
        let mut rest = bytes;
        loop {
            match self.phase {
                Phase::Closing | Phase::Dead => return,
                Phase::Connecting(_) => return self.keep(rest, cx),
                _ => {}
            }
            let step = if self.body.is_some() { Ok(self.body_bytes(rest, cx)) } else { self.pdu(rest, cx) };
            match step {
                Ok(0) => return self.keep(rest, cx),
                Ok(used) => rest = &rest[used..],
                Err(fault) => self.fault(fault, rest, cx),
            }
        }
    }

    /// Acts on the PDU at the start of `bytes`; `Ok(0)` if it is not all there.
    fn pdu(&mut self, bytes: &[u8], cx: &mut Cx) -> Result<usize, Fault> {
        let Some(first) = bytes.first_chunk::<{ CommonHeader::LEN }>() else { return Ok(0) };
        let stage = if matches!(self.phase, Phase::Initialize) { Stage::Initialize } else { Stage::Transfer };
        let head = wire::check_head(first, stage, self.framing.digests, 0)?;
        if bytes.len() < head.needed {
            return Ok(0);
        }
        wire::check_header_digest(bytes, &head)?;
        match head.pdu_type {
            PduType::CapsuleCmd => self.capsule(bytes, &head, cx)?,
            PduType::H2CData => self.h2c_data(bytes, &head)?,
            PduType::ICReq => self.initialize(bytes, cx)?,
            _ => self.lost(cx), // H2CTermReq: the host has given up; there is nothing to answer
        }
        Ok(head.needed)
    }

    fn capsule(&mut self, bytes: &[u8], head: &Head, cx: &mut Cx) -> Result<(), Fault> {
        let capsule = wire::capsule_data(bytes, head, self.framing.digests)?;
        let sqe = Sqe::read_from_bytes(&bytes[CommonHeader::LEN..CommonHeader::LEN + size_of::<Sqe>()])
            .map_err(|_| Fault::field(field::PLEN))?;
        if self.draining {
            return Ok(()); // the host will find the connection closed and try elsewhere
        }
        if matches!(self.phase, Phase::AwaitConnect) {
            if self.tx.answers() >= EARLY_ANSWERS {
                return Err(Fault::new(FatalError::Sequence)); // there is no queue yet whose size could be a limit
            }
            self.first_command(&sqe, capsule, cx);
            return Ok(());
        }
        self.command(&sqe, capsule, cx)
    }

    /// A command on a queue that is connected.
    fn command(&mut self, sqe: &Sqe, capsule: wire::CapsuleData, cx: &mut Cx) -> Result<(), Fault> {
        let Some(queue) = &mut self.queue else { return Err(Fault::new(FatalError::Sequence)) };
        if queue.slots.in_use() + self.tx.answers() >= usize::from(queue.size) {
            return Err(Fault::new(FatalError::Sequence)); // more commands than the queue has entries
        }
        queue.sqhd = (queue.sqhd + 1) % queue.size;
        match &self.role {
            Role::Io(association) => {
                self.requests += 1;
                association.note_traffic();
                self.io_command(sqe, capsule, cx);
            }
            Role::Admin(_) => self.admin_command(sqe, capsule, cx),
            Role::None => {}
        }
        Ok(())
    }

    /// Answers a command that never got a slot.
    fn refuse(&mut self, cid: u16, status: Status, result: u64) {
        let mut cqe = Cqe::new(cid, status, result);
        if let Some(queue) = self.queue.as_ref().filter(|queue| queue.flow_control) {
            cqe.sqhd = U16::new(queue.sqhd);
        }
        self.tx.response(cqe);
    }

    /// Ends the connection with a termination request that carries the header of the offending PDU.
    fn fault(&mut self, fault: Fault, offending: &[u8], cx: &mut Cx) {
        cx.counters.add_fault();
        tracing::debug!(error = %fault.error, information = fault.information, "peer at fault");
        let copied = offending.len().min(usize::from(offending.get(2).copied().unwrap_or(0))).min(TermReq::MAX_DATA);
        let len = TermReq::LEN + copied;
        let request = TermReq {
            ch: CommonHeader::new(PduType::C2HTermReq, Flags::empty(), 0, len as u32),
            fes: U16::new(fault.error as u16),
            fei: U32::new(fault.information),
            reserved: [0; 10],
        };
        self.tx.clear_unsent(&mut cx.memory.pool);
        self.abandon(cx);
        let Some(mut buffer) = cx.memory.pool.alloc(len) else {
            self.lost(cx); // no memory for last words
            return;
        };
        buffer[..TermReq::LEN].copy_from_slice(request.as_bytes());
        buffer[TermReq::LEN..].copy_from_slice(&offending[..copied]);
        self.tx.raw(buffer);
        self.phase = Phase::Closing;
        self.deadline_ns = cx.now_ns + LINGER_NS;
    }

    /// The peer is gone, or the association has ended.
    pub fn lost(&mut self, cx: &mut Cx) {
        if matches!(self.phase, Phase::Dead) {
            return;
        }
        self.tx.clear(&mut cx.memory.pool);
        if !matches!(self.phase, Phase::Closing) {
            self.abandon(cx);
        }
        self.phase = Phase::Dead;
    }

    /// Gives up every command that is not in a backend, and the association with an admin queue.
    fn abandon(&mut self, cx: &mut Cx) {
        self.body = None;
        self.stash.clear();
        self.end_association(cx);
        let Some(queue) = &mut self.queue else { return };
        queue.ready.clear();
        queue.waiting.clear();
        let mut ended = Vec::new();
        for (index, slot) in queue.slots.iter_mut() {
            slot.asks = Default::default();
            match slot.state {
                State::Free | State::Device => {}
                State::Discarding => slot.state = State::Free,
                _ => ended.push(index),
            }
        }
        for index in ended {
            self.end_slot(index, cx);
        }
        self.note_undrained(cx);
    }

    /// Gives a command's buffers back and frees its slot.
    fn end_slot(&mut self, index: u16, cx: &mut Cx) {
        let Some(queue) = &mut self.queue else { return };
        let slot = queue.slots.get(index);
        for buffer in [slot.buffer.take(), slot.aux.take()].into_iter().flatten() {
            cx.memory.give_back(&mut queue.share, buffer);
        }
        slot.work = Work::None;
        queue.slots.end(index);
    }

    /// Whether nothing of this connection is left in a backend or, for an admin queue, in its other queues.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let queue_idle = self.queue.as_ref().is_none_or(|queue| queue.in_device == 0);
        let queues_gone = match &self.role {
            Role::Admin(admin) => admin.is_alone(),
            _ => true,
        };
        queue_idle && queues_gone
    }

    /// The connection is over and drained: tells whoever waits for that.
    pub fn on_drained(&mut self, cx: &mut Cx) {
        if let Some(queue) = &mut self.queue {
            cx.memory.close(&mut queue.share);
        }
        match std::mem::replace(&mut self.role, Role::None) {
            Role::Admin(admin) => cx.shared.register.end(admin.association.cntlid),
            Role::Io(association) => self.detach(&association, cx),
            Role::None => {}
        }
    }

    /// Notes bytes that the socket has taken.
    pub fn on_sent(&mut self, bytes: usize, cx: &mut Cx) {
        let left = |arrived_ns, count| cx.departures.left(arrived_ns, count, cx.now_ns, &cx.counters.latency);
        let freed = self.tx.advance(bytes, &mut cx.memory.pool, left);
        if let Some(queue) = &mut self.queue {
            cx.memory.release(&mut queue.share, freed);
        }
    }

    /// [`Connection::deadline_ns`] has passed.
    pub fn on_deadline(&mut self, cx: &mut Cx) {
        match self.phase {
            Phase::Closing => self.deadline_ns = 0,
            Phase::Initialize | Phase::AwaitConnect => self.lost(cx),
            Phase::Connecting(_) => self.connect_timed_out(cx),
            Phase::Ready => self.check_keep_alive(cx),
            Phase::Dead => self.deadline_ns = u64::MAX,
        }
    }
}
