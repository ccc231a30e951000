//! Hosts of a cluster, a backend that holds writes, and records of reservations in memory.

use std::collections::HashMap;
use std::io as std_io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, HostError, QueueSpec};
use pilotlight_nvme::command::opcode::{admin, io};
use pilotlight_nvme::command::{DsmRange, dsm};
use pilotlight_nvme::{Sqe, Status};
use pilotlight_nvmf_target::{NamespaceConfig, ReservationStore, Server};
use pilotlight_reactor::{Idle, RuntimeOptions};
use pilotlight_storage::{
    Backend, BackendSpec, Channel, Completion, Geometry, MemoryBackend, MemoryBudget, Op, Request, Submitted,
};
use zerocopy::IntoBytes;

use crate::host_support::servers::{config, subsystem};
use crate::host_support::{NQN, Target, target};

pub(crate) const CONFLICT: Status = Status::RESERVATION_CONFLICT.dnr();
/// RREGA.
pub(crate) const REGISTER: u32 = 0;
pub(crate) const UNREGISTER: u32 = 1;
/// RACQA.
pub(crate) const ACQUIRE: u32 = 0;
pub(crate) const PREEMPT: u32 = 1;
pub(crate) const PREEMPT_AND_ABORT: u32 = 2;
/// RRELA.
pub(crate) const RELEASE: u32 = 0;
pub(crate) const CLEAR: u32 = 1;

type Result = std::result::Result<u64, HostError>;

/// The status of a command.
pub(crate) fn status_of(result: Result) -> Status {
    match result {
        Ok(_) => Status::SUCCESS,
        Err(HostError::Status { status, .. }) => status,
        Err(other) => panic!("{other}"),
    }
}

/// A host with a controller and an I/O queue.
pub(crate) struct Member {
    pub(crate) controller: Controller,
    pub(crate) queue: Connection,
}

impl Member {
    /// The options of host `number`.
    pub(crate) fn options(options: ConnectOptions, number: u8) -> ConnectOptions {
        ConnectOptions { hostid: [number; 16], hostnqn: format!("nqn.2026-01.test:{number}"), ..options }
    }

    pub(crate) fn join(options: ConnectOptions, number: u8) -> Self {
        Self::join_as(Self::options(options, number))
    }

    pub(crate) fn join_as(options: ConnectOptions) -> Self {
        let controller = Controller::connect(options).expect("a controller");
        let spec = QueueSpec { qid: 1, depth: 16, max_io: 16_384, buffers: Buffers::PerCommand };
        let queue = controller.open_queue(&spec).expect("an I/O queue");
        Self { controller, queue }
    }

    fn keys(first: u64, second: u64) -> [u8; 16] {
        let mut data = [0; 16];
        data[..8].copy_from_slice(&first.to_le_bytes());
        data[8..].copy_from_slice(&second.to_le_bytes());
        data
    }

    pub(crate) fn register(&mut self, cdw10: u32, key: u64, new_key: u64) -> Result {
        let sqe = Sqe::new(io::RESERVATION_REGISTER, 1).with_cdw(10, cdw10);
        self.queue.execute("Register", sqe, &Self::keys(key, new_key), &mut [])
    }

    pub(crate) fn acquire(&mut self, action: u32, kind: u8, key: u64, preempted: u64) -> Result {
        let cid = self.start_acquire(action, kind, key, preempted);
        let completed = self.queue.wait(cid, "Acquire", &mut [])?;
        let status = completed.status;
        if status.is_success() { Ok(completed.result) } else { Err(HostError::Status { what: "Acquire", status }) }
    }

    pub(crate) fn start_acquire(&mut self, action: u32, kind: u8, key: u64, preempted: u64) -> u16 {
        let sqe = Sqe::new(io::RESERVATION_ACQUIRE, 1).with_cdw(10, action | u32::from(kind) << 8);
        self.queue.submit(sqe, &Self::keys(key, preempted), 0).expect("sent")
    }

    pub(crate) fn release(&mut self, action: u32, kind: u8, key: u64) -> Result {
        let sqe = Sqe::new(io::RESERVATION_RELEASE, 1).with_cdw(10, action | u32::from(kind) << 8);
        self.queue.execute("Release", sqe, &key.to_le_bytes(), &mut [])
    }

    pub(crate) fn report(&mut self, len: u32) -> Vec<u8> {
        let sqe = Sqe::new(io::RESERVATION_REPORT, 1).with_cdw(10, len / 4 - 1).with_cdw(11, 1);
        let mut data = vec![0xee; len as usize];
        self.queue.execute("Report", sqe, &[], &mut data).expect("a report");
        data
    }

    /// Starts a write of a block with this byte.
    pub(crate) fn write(&mut self, lba: u64, byte: u8) -> u16 {
        self.queue.submit(Sqe::block_io(io::WRITE, 1, lba, 1), &[byte; 4096], 0).expect("sent")
    }

    pub(crate) fn finish_write(&mut self, lba: u64) -> Result {
        self.queue.execute("a write", Sqe::block_io(io::WRITE, 1, lba, 1), &[0x5a; 4096], &mut [])
    }

    /// The first byte of a block.
    pub(crate) fn read(&mut self, lba: u64) -> u8 {
        let mut data = [0; 4096];
        self.queue.execute("a read", Sqe::block_io(io::READ, 1, lba, 1), &[], &mut data).expect("read");
        data[0]
    }

    /// Executes a command with `data` from the host, or for a Read to it.
    pub(crate) fn run(&mut self, sqe: Sqe, data: &[u8]) -> Status {
        let mut into = vec![0; if sqe.opcode == io::READ { 4096 } else { 0 }];
        status_of(self.queue.execute("a command", sqe, data, &mut into))
    }

    /// Reads a notification: count, kind, further ones, namespace.
    pub(crate) fn notification(&mut self) -> (u64, u8, u8, u8) {
        self.log(false)
    }

    /// The same, and retains it.
    pub(crate) fn peek(&mut self) -> (u64, u8, u8, u8) {
        self.log(true)
    }

    fn log(&mut self, retain: bool) -> (u64, u8, u8, u8) {
        let mut page = [0xee; 64];
        let sqe = Sqe::new(admin::GET_LOG_PAGE, 0).with_cdw(10, 0x80 | 15 << 16 | u32::from(retain) << 15);
        self.controller.admin().execute("Get Log Page", sqe, &[], &mut page).expect("the log page");
        (u64::from_le_bytes(*page.first_chunk().expect("8 bytes")), page[8], page[9], page[12])
    }
}

/// Each command with blocks, whether it writes, and its data.
pub(crate) fn block_commands() -> Vec<(bool, Sqe, Vec<u8>)> {
    let range = DsmRange { attributes: 0.into(), blocks: 1.into(), slba: 1.into() }.as_bytes().to_vec();
    let zeroes = vec![0; 4096];
    vec![
        (true, Sqe::block_io(io::WRITE_ZEROES, 1, 0, 1), Vec::new()),
        (false, Sqe::block_io(io::READ, 1, 0, 1), Vec::new()),
        (false, Sqe::block_io(io::COMPARE, 1, 0, 1), zeroes.clone()),
        (false, Sqe::block_io(io::VERIFY, 1, 0, 1), Vec::new()),
        (true, Sqe::block_io(io::WRITE, 1, 0, 1), zeroes),
        (true, Sqe::new(io::DATASET_MANAGEMENT, 1).with_cdw(11, dsm::AD), range.clone()),
        (true, Sqe::new(io::DATASET_MANAGEMENT, 1).with_cdw(11, dsm::IDR), range),
        (true, Sqe::new(io::FLUSH, 1), Vec::new()),
        (true, Sqe::new(io::FLUSH, u32::MAX), Vec::new()),
    ]
}

/// Holds writes while it is closed.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_closed: AtomicBool,
    waiting: AtomicUsize,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.is_closed.store(true, SeqCst);
    }

    pub(crate) fn open(&self) {
        self.is_closed.store(false, SeqCst);
    }

    /// Writes that it holds.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }
}

/// A target with two reactors, and a namespace behind `gate`.
pub(crate) fn gated(gate: &Arc<Gate>) -> Target {
    let gate = Arc::clone(gate);
    target(2, 64, 4096, move |inner| Arc::new(Gated { inner, gate: Arc::clone(&gate) }))
}

struct Gated {
    inner: Arc<dyn Backend>,
    gate: Arc<Gate>,
}

impl Backend for Gated {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn allocated_bytes(&self) -> std_io::Result<u64> {
        self.inner.allocated_bytes()
    }
    fn open_channel(&self, depth: u32) -> std_io::Result<Box<dyn Channel>> {
        let inner = self.inner.open_channel(depth)?;
        Ok(Box::new(GatedChannel { inner, gate: Arc::clone(&self.gate), held: Vec::new() }))
    }
    fn resize(&self, blocks: Option<u64>) -> std_io::Result<Geometry> {
        self.inner.resize(blocks)
    }
}

struct GatedChannel {
    inner: Box<dyn Channel>,
    gate: Arc<Gate>,
    held: Vec<Request>,
}

impl Channel for GatedChannel {
    fn submit(&mut self, request: Request, now_ns: u64) -> Submitted {
        if matches!(request.op, Op::Write { .. }) && self.gate.is_closed.load(SeqCst) {
            self.held.push(request);
            self.gate.waiting.fetch_add(1, SeqCst);
            return Submitted::Pending;
        }
        self.inner.submit(request, now_ns)
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<Completion>) {
        if self.gate.is_closed.load(SeqCst) {
            return;
        }
        for request in self.held.drain(..) {
            let Submitted::Done(completion) = self.inner.submit(request, now_ns) else {
                panic!("memory completes at once")
            };
            done.push(completion);
            self.gate.waiting.fetch_sub(1, SeqCst);
        }
    }

    fn in_flight(&self) -> usize {
        self.held.len()
    }
}

/// Records in memory, which outlive a server.
#[derive(Debug, Default)]
pub(crate) struct Records {
    by_uuid: Mutex<HashMap<[u8; 16], String>>,
    fails: AtomicBool,
}

impl Records {
    pub(crate) fn len(&self) -> usize {
        self.by_uuid.lock().expect("no panic").len()
    }

    /// Makes changes fail.
    pub(crate) fn fail(&self, fails: bool) {
        self.fails.store(fails, SeqCst);
    }

    fn check(&self) -> std_io::Result<()> {
        if self.fails.load(SeqCst) { Err(std_io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl ReservationStore for Records {
    fn load(&self, uuid: &[u8; 16]) -> std_io::Result<Option<String>> {
        Ok(self.by_uuid.lock().expect("no panic").get(uuid).cloned())
    }

    fn save(&self, uuid: &[u8; 16], record: &str) -> std_io::Result<()> {
        self.check()?;
        self.by_uuid.lock().expect("no panic").insert(*uuid, record.to_owned());
        Ok(())
    }

    fn remove(&self, uuid: &[u8; 16]) -> std_io::Result<()> {
        self.check()?;
        self.by_uuid.lock().expect("no panic").remove(uuid);
        Ok(())
    }
}

/// The namespace of [`server`].
pub(crate) fn namespace() -> NamespaceConfig {
    NamespaceConfig::new(1, BackendSpec::Memory(64 * 4096), 4096)
}

/// A server with a namespace in memory, and with `records`.
pub(crate) fn server(records: Option<&Arc<Records>>) -> Server {
    let config = config(vec![subsystem(NQN, vec![namespace()])]);
    let opener = |ns: &NamespaceConfig| {
        let memory = MemoryBackend::new(ns.block_size, 64, Arc::new(MemoryBudget::unlimited())).expect("memory");
        Ok(Arc::new(memory) as Arc<dyn Backend>)
    };
    let store = records.map(|records| Arc::clone(records) as Arc<dyn ReservationStore>);
    let options = RuntimeOptions::new(vec![None], Idle::Yield);
    Server::start_with_store(config, options, Box::new(opener), store).expect("the server starts")
}
