//! A backend with a *gate*: while it is shut, writes are accepted and not completed, so that a test controls the requests in flight.
#![allow(dead_code)] // each test file uses a part

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use pilotlight_host::{Buffers, Connection, Controller, QueueSpec};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::io as io_opcode;
use pilotlight_storage::{Backend, Channel, Completion, Geometry, Op, Request, Submitted};

use crate::host_support::{Target, target};

pub(crate) const BLOCK: usize = 4096;

/// State shared by the test and the backend.
#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) shut: AtomicBool,
    /// If not 0, a shut gate holds only writes of blocks that begin with this byte.
    pub(crate) only: AtomicU8,
    /// Whether a shut gate holds flushes of namespace 1.
    pub(crate) holds_flushes: AtomicBool,
    /// Opened namespaces.
    opened: AtomicUsize,
    /// Completed writes.
    pub(crate) landed: AtomicUsize,
    /// While set, writes are refused as busy.
    pub(crate) busy: AtomicBool,
    /// Accepted writes.
    pub(crate) taken: AtomicUsize,
    /// While set, a resize waits.
    pub(crate) resize_waits: AtomicBool,
    /// A resize has begun.
    pub(crate) resizing: AtomicBool,
}

impl Gate {
    /// From now on a shut gate holds only writes of blocks that begin with `byte`.
    pub(crate) fn shut_only_for(&self, byte: u8) {
        self.only.store(byte, SeqCst);
    }

    fn holds(&self, request: &Request) -> bool {
        if request.op == Op::Flush {
            return self.shut.load(SeqCst) && self.holds_flushes.load(SeqCst);
        }
        let only = self.only.load(SeqCst);
        let first = request.buffer.as_ref().map_or(0, |buffer| buffer[0]);
        self.shut.load(SeqCst) && (only == 0 || first == only)
    }
}

/// Opens the gate when the test ends, also after a failure, because the server waits for its backends.
pub(crate) struct Opener(Arc<Gate>);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.shut.store(false, SeqCst);
        self.0.busy.store(false, SeqCst);
    }
}

impl std::ops::Deref for Opener {
    type Target = Gate;
    fn deref(&self) -> &Gate {
        &self.0
    }
}

struct Gated {
    inner: Arc<dyn Backend>,
    gate: Arc<Gate>,
    is_first: bool,
}

struct GatedChannel {
    inner: Box<dyn Channel>,
    gate: Arc<Gate>,
    is_first: bool,
    held: Vec<Request>,
}

impl Backend for Gated {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.inner.allocated_bytes()
    }
    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        let inner = self.inner.open_channel(depth)?;
        let (gate, is_first) = (Arc::clone(&self.gate), self.is_first);
        Ok(Box::new(GatedChannel { inner, gate, is_first, held: Vec::new() }))
    }
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        self.gate.resizing.store(true, SeqCst);
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.gate.resize_waits.load(SeqCst) {
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::yield_now();
        }
        self.inner.resize(blocks)
    }
}

impl Channel for GatedChannel {
    fn submit(&mut self, request: Request, now_ns: u64) -> Submitted {
        let is_held = match request.op {
            Op::Write { .. } => true,
            Op::Flush => self.is_first && self.gate.holds(&request),
            _ => false,
        };
        if !is_held {
            return self.inner.submit(request, now_ns);
        }
        if self.gate.busy.load(SeqCst) {
            return Submitted::Busy(request);
        }
        self.gate.taken.fetch_add(usize::from(request.op != Op::Flush), SeqCst);
        self.held.push(request);
        Submitted::Pending
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<Completion>) {
        let gate = Arc::clone(&self.gate);
        for request in self.held.extract_if(.., |request| !gate.holds(request)) {
            gate.landed.fetch_add(1, SeqCst);
            match self.inner.submit(request, now_ns) {
                Submitted::Done(completion) => done.push(completion),
                other => panic!("memory completes at once, got {other:?}"),
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.held.len() + self.inner.in_flight()
    }
}

pub(crate) fn gated(reactors: u32) -> (Target, Opener) {
    let gate = Arc::new(Gate::default());
    let inside = Arc::clone(&gate);
    let target = target(reactors, 256, BLOCK as u32, move |inner| {
        let is_first = inside.opened.fetch_add(1, SeqCst) == 0;
        Arc::new(Gated { inner, gate: Arc::clone(&inside), is_first }) as Arc<dyn Backend>
    });
    (target, Opener(gate))
}

pub(crate) fn queue(controller: &Controller, qid: u16) -> Connection {
    let spec = QueueSpec { qid, depth: 512, max_io: 128 * 1024, buffers: Buffers::PerCommand };
    controller.open_queue(&spec).expect("an I/O queue")
}

pub(crate) fn read(connection: &mut Connection, lba: u64) -> Vec<u8> {
    let mut data = vec![0; BLOCK];
    connection.execute("read", Sqe::block_io(io_opcode::READ, 1, lba, 1), &[], &mut data).expect("a read");
    data
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "timed out after 60 s: {what}");
        std::thread::yield_now();
    }
}
