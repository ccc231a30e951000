//! Queue pairs above a recording transport, without PDUs and sockets.

mod fused;
mod prefetch;
mod reconnect;

use std::io;
use std::sync::Arc;

use pilotlight_nvme::command::{Sgl, opcode};
use pilotlight_nvme::fabrics::{CNTLID_DYNAMIC, ConnectCmd, ConnectData, PropertyCmd, cc, property};
use pilotlight_nvme::{Cqe, Sqe, Status};
use pilotlight_nvmf_proto::arrival::Arrival;
use pilotlight_nvmf_proto::ids::ConnAddr;
use pilotlight_nvmf_proto::memory::Memory;
use pilotlight_nvmf_proto::payload::Loans;
use pilotlight_nvmf_proto::queue_pair::message::QueueMessage;
use pilotlight_nvmf_proto::queue_pair::transport::Data;
use pilotlight_nvmf_proto::queue_pair::{Cx, InCapsule, Intake, Overrun, QueuePair, Transport};
use pilotlight_nvmf_proto::sample::Sample;
use pilotlight_nvmf_proto::services::NamespaceTable as _;
use pilotlight_reactor::Inbox;
use pilotlight_storage::buffer::BufferPool;
use pilotlight_storage::{Backend, Channel, Geometry, MemoryBackend, MemoryBudget};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U16;

use crate::accounting::ThreadAccounting;
use crate::config::{NamespaceConfig, ServerConfig, SubsystemConfig};
use crate::latency_batch::{Clock, LatencyBatch};
use crate::namespaces::NamespaceChange;
use crate::namespaces::Namespaces;
use crate::shared::Shared;
use crate::thread::message::Message;
use crate::thread::message::ThreadOutbox;

const NQN: &str = "nqn.2014-08.org.pilotlight:queue-pair";
const BLOCK: usize = 4096;
const NO_DATA: InCapsule = InCapsule { bytes: &[], intact: true };

/// A transport that records its calls.
#[derive(Default)]
struct Recorder {
    responses: Vec<Cqe>,
    sent: Vec<Data>,
    fetches: Vec<(u16, u16, u32)>,
    cancelled: Vec<u16>,
    is_full: bool,
}

impl Transport for Recorder {
    fn bytes(_size: u16, _slots: usize) -> usize {
        0
    }

    fn reserve(&mut self, _size: u16, _slots: usize) {}

    fn respond(&mut self, cqe: Cqe, _arrival: Arrival) {
        self.responses.push(cqe);
    }

    fn send(&mut self, mut data: Data, loans: &Loans, _now_ns: u64) {
        data.payload.keep(loans);
        self.sent.push(data);
    }

    fn fetch(&mut self, slot: u16, cid: u16, len: u32) -> bool {
        if !self.is_full {
            self.fetches.push((slot, cid, len));
        }
        !self.is_full
    }

    fn cancel(&mut self, slot: u16) {
        self.cancelled.push(slot);
    }

    fn unsent_bytes(&self) -> usize {
        0
    }

    fn unsent_responses(&self) -> usize {
        0
    }

    fn oldest_data_ns(&self) -> u64 {
        u64::MAX
    }

    fn stop_receiving(&mut self) {}

    fn clear(&mut self, _pool: &mut BufferPool) {}
}

/// A backend of 16 blocks, whose channels are clones of this one.
struct ClonedChannel<C>(C);

impl<C: Channel + Clone + Sync + 'static> Backend for ClonedChannel<C> {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: BLOCK as u32,
            blocks: 16,
            volatile_write_cache: false,
            deallocated_reads_zero: true,
            is_read_only: false,
        }
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn open_channel(&self, _depth: u32) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(self.0.clone()))
    }

    fn resize(&self, _blocks: Option<u64>) -> io::Result<Geometry> {
        Ok(self.geometry())
    }
}

/// State of an I/O thread.
struct ThreadState {
    shared: Arc<Shared>,
    memory: Memory,
    namespaces: Namespaces,
    accounting: ThreadAccounting,
    out: ThreadOutbox,
    inbox: Inbox<Message>,
}

type Pair = QueuePair<Recorder, Shared>;

/// An admin queue and an I/O queue of one host.
struct Queues {
    thread: ThreadState,
    admin: Pair,
    io: Pair,
}

const ADMIN: ConnAddr = ConnAddr { thread: 0, index: 0, serial: 0 };
const IO: ConnAddr = ConnAddr { thread: 0, index: 1, serial: 1 };

impl ThreadState {
    /// A subsystem whose namespaces 1 and 2 are in `backend`, opened once for each.
    fn new(backend: Arc<dyn Backend>) -> Self {
        let spec = "null:4KiB".parse().expect("a backend"); // never opened
        let first = NamespaceConfig::new(1, spec, BLOCK as u32);
        let second = NamespaceConfig { nsid: 2, ..first.clone() };
        let subsystem = SubsystemConfig::new(NQN, vec![first, second]);
        let config = ServerConfig { subsystems: vec![subsystem], io_threads: 1, ..ServerConfig::default() };
        let shared = Arc::new(Shared::for_tests(config, &move |_| Ok(Arc::clone(&backend))).expect("shared state"));
        let mut namespaces = Namespaces::new().expect("a bell");
        for message in shared.announcements().expect("channels") {
            match message {
                Message::Namespace {
                    subsystem,
                    nsid,
                    change: NamespaceChange::Added(geometry, leased, limit, reservation),
                    ..
                } => {
                    namespaces.add((subsystem, nsid), geometry, leased, (limit, reservation));
                }
                Message::Listed { list, .. } => namespaces.set_list(list),
                _ => {}
            }
        }
        let inbox = Inbox::new(16);
        let out = ThreadOutbox::new(Arc::from([inbox.sender()]));
        let memory = Memory::new(BufferPool::new(4 << 20).expect("memory"));
        let accounting = ThreadAccounting::new(shared.counters(0), LatencyBatch::new(Clock::Simulated));
        Self { shared, memory, namespaces, accounting, out, inbox }
    }

    fn cx(&mut self, me: ConnAddr) -> Cx<'_, Shared> {
        Cx {
            now_ns: 1,
            sample: Sample::NONE,
            me,
            memory: &mut self.memory,
            namespaces: &mut self.namespaces,
            accounting: &mut self.accounting,
            out: &mut self.out,
            services: &self.shared,
        }
    }
}

/// A queue pair that has received Connect for queue `qid` of `entries` entries.
fn connecting(thread: &mut ThreadState, me: ConnAddr, (qid, entries): (u16, u16), cntlid: u16) -> Pair {
    let cmd = ConnectCmd { recfmt: 0, qid, sqsize: entries - 1, cattr: ConnectCmd::DISABLE_SQ_FLOW, kato_ms: 0 };
    let data = ConnectData::new([1; 16], cntlid, NQN, "nqn.2014-08.org.nvmexpress:uuid:host");
    let mut pair = QueuePair::new(Recorder::default(), 0, u64::MAX, ([127, 0, 0, 1], 1).into(), None);
    let data = InCapsule { bytes: data.as_bytes(), intact: true };
    pair.on_command(&cmd.encode(), data, &mut thread.cx(me)).expect("the first command");
    pair
}

/// The controller identifier in the completion of Connect.
fn connected(pair: &mut Pair) -> u16 {
    let cqe = pair.transport.responses.pop().expect("a completion");
    assert!(cqe.status().is_success(), "{}", cqe.status());
    cqe.result.get() as u16
}

impl Queues {
    /// Queues with a namespace of 16 blocks in memory, an I/O queue of eight entries.
    fn new() -> Self {
        Self::of_entries(8)
    }

    fn of_entries(entries: u16) -> Self {
        let budget = Arc::new(MemoryBudget::unlimited());
        Self::with(Arc::new(MemoryBackend::new(BLOCK as u32, 16, budget).expect("memory")), entries)
    }

    /// An enabled controller with an I/O queue of `entries` entries.
    fn with(backend: Arc<dyn Backend>, entries: u16) -> Self {
        let mut thread = ThreadState::new(backend);
        let mut admin = connecting(&mut thread, ADMIN, (0, 8), CNTLID_DYNAMIC);
        let cntlid = connected(&mut admin);
        let enable = PropertyCmd::set(property::CC, cc::EN | cc::IOSQES_IOCQES);
        admin.on_command(&enable, NO_DATA, &mut thread.cx(ADMIN)).expect("room");
        let mut io = connecting(&mut thread, IO, (1, entries), cntlid);
        assert_eq!(io.intake(), Intake::Keep, "the join request is outstanding");
        let Some(Message::Queue(QueueMessage::Attach { qid, queue, .. })) = thread.inbox.take() else {
            panic!("no join request")
        };
        let result = admin.on_attach(qid, queue, &thread.cx(ADMIN));
        assert!(io.on_attached(ADMIN, qid, result, &mut thread.cx(IO)));
        connected(&mut io);
        Self { thread, admin, io }
    }

    /// Submits a command of the first `blocks` blocks, without in-capsule data.
    fn submit(&mut self, opcode: u8, cid: u16, blocks: u32) {
        let sgl = Sgl::transport(blocks * BLOCK as u32);
        let sqe = Sqe { sgl, cid: U16::new(cid), ..Sqe::block_io(opcode, 1, 0, blocks) };
        self.io.refill();
        self.io.on_command(&sqe, NO_DATA, &mut self.thread.cx(IO)).expect("room");
        self.io.run_waiting(&mut self.thread.cx(IO));
    }

    /// Submits a flush of a namespace. As a write whose data has arrived, it needs only the backend.
    fn flush(&mut self, nsid: u32, cid: u16) {
        let sqe = Sqe { cid: U16::new(cid), ..Sqe::block_io(opcode::io::FLUSH, nsid, 0, 1) };
        self.io.refill();
        self.io.on_command(&sqe, NO_DATA, &mut self.thread.cx(IO)).expect("room");
        self.io.run_waiting(&mut self.thread.cx(IO));
    }

    /// Submits a write of the first block with in-capsule data.
    fn write_in_capsule(&mut self, cid: u16, byte: u8) {
        let sgl = Sgl::in_capsule(BLOCK as u32);
        let sqe = Sqe { sgl, cid: U16::new(cid), ..Sqe::block_io(opcode::io::WRITE, 1, 0, 1) };
        self.io.refill();
        let data = InCapsule { bytes: &[byte; BLOCK], intact: true };
        self.io.on_command(&sqe, data, &mut self.thread.cx(IO)).expect("room");
        self.io.run_waiting(&mut self.thread.cx(IO));
    }

    /// Delivers all data of the command in `slot`.
    fn deliver_data(&mut self, slot: u16, byte: u8, intact: bool) {
        self.io.data_buffer(slot).expect("a buffer").fill(byte);
        self.io.on_data(slot, intact, &mut self.thread.cx(IO));
        self.io.run_waiting(&mut self.thread.cx(IO));
    }

    /// The status of the only completion since the last call.
    fn completion_status(&mut self) -> Status {
        let cqe = self.io.transport.responses.pop().expect("a completion");
        assert!(self.io.transport.responses.is_empty(), "one completion: {:?}", self.io.transport.responses);
        cqe.status()
    }

    /// The content of the first `blocks` blocks.
    fn content(&mut self, blocks: u32) -> Vec<u8> {
        self.submit(opcode::io::READ, 99, blocks);
        let data = self.io.transport.sent.pop().expect("data");
        assert_eq!((data.cid, data.payload.len() as usize, data.end.is_none()), (99, blocks as usize * BLOCK, true));
        self.thread.namespaces.end_loans();
        let bytes = data.payload.bytes(self.thread.namespaces.loans()).to_vec();
        self.mark_sent(data);
        bytes
    }

    /// Marks data as sent.
    fn mark_sent(&mut self, data: Data) {
        let freed = data.payload.capacity();
        self.thread.memory.pool.free(data.payload.into_buffer());
        self.io.on_sent(freed, &mut self.thread.cx(IO));
    }
}

impl Drop for Queues {
    /// Checks that nothing is left after both queues are lost.
    fn drop(&mut self) {
        for (pair, me) in [(&mut self.io, IO), (&mut self.admin, ADMIN)] {
            pair.lost(&mut self.thread.cx(me));
            if me == IO {
                assert!(pair.is_drained());
                pair.on_drained(&mut self.thread.cx(me));
            }
        }
        if !std::thread::panicking() {
            assert_eq!((self.thread.memory.charged(), self.thread.memory.pool.outstanding()), (0, 0));
        }
    }
}

#[test]
fn a_write_waits_for_its_data() {
    let mut queues = Queues::new();
    queues.submit(opcode::io::WRITE, 3, 2);
    let &[(slot, 3, 8192)] = &queues.io.transport.fetches[..] else { panic!("{:?}", queues.io.transport.fetches) };
    assert!(queues.io.transport.responses.is_empty() && queues.content(2).iter().all(|&byte| byte == 0));
    queues.deliver_data(slot, 7, true);
    assert!(queues.completion_status().is_success());
    assert!(queues.content(2).iter().all(|&byte| byte == 7));
}

#[test]
fn damaged_data_never_reaches_a_backend() {
    let mut queues = Queues::new();
    queues.submit(opcode::io::WRITE, 3, 1);
    let slot = queues.io.transport.fetches[0].0;
    queues.deliver_data(slot, 7, false);
    assert_eq!(queues.completion_status(), Status::TRANSIENT_TRANSPORT);
    assert!(queues.content(1).iter().all(|&byte| byte == 0));
}

#[test]
fn in_capsule_data_needs_a_buffer_only_for_blocks_on_loan() {
    let mut queues = Queues::new();
    let pool = &mut queues.thread.memory.pool;
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc(BLOCK)).collect();
    queues.write_in_capsule(3, 7);
    assert!(queues.completion_status().is_success(), "no buffer is left");
    all.into_iter().for_each(|buffer| queues.thread.memory.pool.free(buffer));
    let _ = queues.thread.namespaces.borrow(0, 0, 1).expect("it is lent");
    queues.write_in_capsule(4, 8);
    assert!(queues.io.transport.responses.is_empty() && queues.io.has_waiting(), "a reader has the block");
    queues.thread.namespaces.end_loans();
    assert!(queues.content(1).iter().all(|&byte| byte == 8), "the write precedes the read");
    assert!(queues.completion_status().is_success());
}

#[test]
fn a_busy_namespace_delays_no_command_of_another() {
    let mut queues = Queues::new();
    queues.write_in_capsule(2, 6); // unwritten blocks are not on loan
    assert!(queues.completion_status().is_success());
    let _ = queues.thread.namespaces.borrow(0, 0, 1).expect("it is lent");
    queues.write_in_capsule(3, 7);
    queues.write_in_capsule(4, 8);
    for cid in [5, 6] {
        queues.flush(2, cid);
        assert!(queues.completion_status().is_success(), "namespace 2 is free");
    }
    queues.write_in_capsule(7, 9);
    assert!(queues.io.transport.responses.is_empty(), "behind the writes of its namespace");
    queues.thread.namespaces.end_loans();
    queues.io.refill();
    queues.io.run_waiting(&mut queues.thread.cx(IO));
    let order: Vec<u16> = queues.io.transport.responses.drain(..).map(|cqe| cqe.cid.get()).collect();
    assert_eq!(order, [3, 4, 7], "commands of a busy namespace keep their order");
    assert!(queues.content(1).iter().all(|&byte| byte == 9));
}

#[test]
fn a_round_passes_over_a_bounded_number_of_commands_of_a_busy_namespace() {
    const MOST: u16 = 128;
    let mut queues = Queues::of_entries(2 * MOST);
    queues.write_in_capsule(2, 6);
    assert!(queues.completion_status().is_success());
    let _ = queues.thread.namespaces.borrow(0, 0, 1).expect("it is lent");
    (10..10 + MOST).for_each(|cid| queues.write_in_capsule(cid, 7));
    queues.flush(2, 3);
    assert!(queues.completion_status().is_success(), "behind {MOST}");
    queues.write_in_capsule(10 + MOST, 7);
    queues.flush(2, 4);
    assert!(queues.io.transport.responses.is_empty(), "behind one more");
    queues.thread.namespaces.end_loans();
    while queues.io.has_waiting() {
        queues.io.refill();
        queues.io.run_waiting(&mut queues.thread.cx(IO));
    }
    let order: Vec<u16> = queues.io.transport.responses.drain(..).map(|cqe| cqe.cid.get()).collect();
    assert_eq!(order, (10..=10 + MOST).chain([4]).collect::<Vec<_>>());
}

#[test]
fn commands_of_an_ended_association_are_aborted() {
    let mut queues = Queues::new();
    queues.admin.lost(&mut queues.thread.cx(ADMIN));
    queues.write_in_capsule(3, 7);
    assert_eq!(queues.completion_status(), Status::ABORTED_SQ_DELETION);
    queues.submit(opcode::io::READ, 4, 1);
    assert_eq!((queues.completion_status(), queues.io.transport.sent.len()), (Status::ABORTED_SQ_DELETION, 0));
    let channel = queues.thread.namespaces.channel(0).expect("a channel");
    let loan = channel.lend(0, 1).expect("it is lent");
    assert!(loan.bytes().iter().all(|&byte| byte == 0));
    channel.end_loan(loan);
}

#[test]
fn an_aborted_command_cancels_its_transfer() {
    let mut queues = Queues::new();
    queues.submit(opcode::io::WRITE, 3, 1);
    let slot = queues.io.transport.fetches[0].0;
    assert!(queues.io.abort(3, &mut queues.thread.cx(IO)));
    assert_eq!(
        (queues.completion_status(), &queues.io.transport.cancelled[..]),
        (Status::ABORT_REQUESTED, &[slot][..])
    );
    assert!(queues.io.data_buffer(slot).is_none());
}

#[test]
fn fetches_are_retried_when_the_transport_is_full() {
    let mut queues = Queues::new();
    queues.io.transport.is_full = true;
    queues.submit(opcode::io::WRITE, 3, 1);
    assert!(queues.io.has_waiting() && queues.io.transport.fetches.is_empty());
    queues.io.transport.is_full = false;
    queues.io.run_waiting(&mut queues.thread.cx(IO));
    let &[(slot, 3, 4096)] = &queues.io.transport.fetches[..] else { panic!("{:?}", queues.io.transport.fetches) };
    queues.deliver_data(slot, 5, true);
    assert!(queues.completion_status().is_success());
}

#[test]
fn exceeding_the_queue_size_is_an_overrun() {
    let mut queues = Queues::new();
    for cid in 0..8 {
        queues.submit(opcode::io::WRITE, cid, 1);
    }
    let sqe = Sqe { cid: U16::new(8), ..Sqe::block_io(opcode::io::WRITE, 1, 0, 1) };
    assert_eq!(queues.io.on_command(&sqe, NO_DATA, &mut queues.thread.cx(IO)), Err(Overrun));
}
