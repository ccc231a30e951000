//! A target in this process for our own host, with a backend that can store or return wrong data.
#![allow(dead_code)] // each test file uses a part

#[path = "../support/servers.rs"]
pub(crate) mod servers;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use pilotlight_host::load::{LoadSpec, Report, run};
use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, QueueSpec};
use pilotlight_nvmf_target::{Limits, NamespaceConfig, Server, ServerConfig};
use pilotlight_reactor::{Idle, RuntimeOptions};
use pilotlight_storage::{
    Backend, BackendSpec, Channel, Completion, Geometry, MemoryBackend, MemoryBudget, Op, Request, Submitted,
};

pub(crate) const NQN: &str = "nqn.2026-01.test:target";
pub(crate) const MS: u64 = 1_000_000;

/// A running target with one namespace in memory.
pub(crate) struct Target {
    pub(crate) server: Server,
    pub(crate) addr: SocketAddr,
}

/// A target of `reactors` unpinned reactors, `blocks` blocks of `block_size` bytes, its backend wrapped by `wrap`.
pub(crate) fn target(
    reactors: u32,
    blocks: u64,
    block_size: u32,
    wrap: impl Fn(Arc<dyn Backend>) -> Arc<dyn Backend> + Send + Sync + 'static,
) -> Target {
    target_with(Limits::default(), reactors, blocks, block_size, wrap)
}

/// The same, with `limits`.
pub(crate) fn target_with(
    limits: Limits,
    reactors: u32,
    blocks: u64,
    block_size: u32,
    wrap: impl Fn(Arc<dyn Backend>) -> Arc<dyn Backend> + Send + Sync + 'static,
) -> Target {
    let backend = BackendSpec::Memory(blocks * u64::from(block_size));
    let namespace = NamespaceConfig::new(1, backend, block_size);
    let subsystem = servers::subsystem(NQN, vec![namespace]);
    let config = ServerConfig { io_threads: reactors, limits, ..servers::config(vec![subsystem]) };
    let runtime = RuntimeOptions::new(vec![None; reactors as usize], Idle::Yield);
    let opener = Box::new(move |_: &NamespaceConfig| {
        let memory = MemoryBackend::new(block_size, blocks, Arc::new(MemoryBudget::unlimited())).expect("memory");
        Ok(wrap(Arc::new(memory)))
    });
    let server = Server::start_with(config, runtime, opener).expect("the server starts");
    let addr = server.local_addrs()[0];
    Target { server, addr }
}

/// A target with a backend in memory.
pub(crate) fn memory_target() -> Target {
    target(1, 4096, 4096, |memory| memory)
}

impl Target {
    pub(crate) fn options(&self) -> ConnectOptions {
        ConnectOptions::new(self.addr, NQN)
    }

    pub(crate) fn load(&self, spec: &LoadSpec) -> Report {
        load(&self.options(), spec)
    }

    /// A controller and an I/O queue with a buffer of `max_io` bytes for each command.
    pub(crate) fn queue(&self, options: ConnectOptions, depth: u16, max_io: u32) -> (Controller, Connection) {
        let controller = Controller::connect(options).expect("a controller");
        let spec = QueueSpec { qid: 1, depth, max_io, buffers: Buffers::PerCommand };
        let queue = controller.open_queue(&spec).expect("an I/O queue");
        (controller, queue)
    }

    pub(crate) fn stop(self) {
        self.server.stop(Duration::from_secs(10)).expect("the server stops in time");
    }
}

pub(crate) fn load(options: &ConnectOptions, spec: &LoadSpec) -> Report {
    run(options, spec, &std::sync::atomic::AtomicBool::new(false), &mut |_| {}).expect("the run ends well")
}

/// A closed loop of reads that leaves the CPU to others while it waits.
pub(crate) fn base() -> LoadSpec {
    LoadSpec { yield_when_idle: true, ..LoadSpec::default() }
}

/// Writes and reads in equal parts, verified.
pub(crate) fn verify_spec() -> LoadSpec {
    LoadSpec { read_percent: 50, verify: true, depth: 16, jobs: 2, ios: Some(2000), ..base() }
}

type OnRead = Box<dyn Fn(u64, &mut [u8]) + Send + Sync>;
type OnWrite = Box<dyn Fn(u64, &mut [u8]) -> bool + Send + Sync>;

/// Hooks that change data; arguments are the first block and the bytes. `on_write` returns whether the write is stored; it is
/// always acknowledged.
#[derive(Default)]
pub(crate) struct Tamper {
    pub(crate) on_read: Option<OnRead>,
    pub(crate) on_write: Option<OnWrite>,
}

/// A backend that completes at once, with [`Tamper`].
pub(crate) struct TamperBackend {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) tamper: Arc<Tamper>,
}

impl Backend for TamperBackend {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.inner.allocated_bytes()
    }
    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        let inner = self.inner.open_channel(depth)?;
        Ok(Box::new(TamperChannel { inner, tamper: Arc::clone(&self.tamper) }))
    }
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        self.inner.resize(blocks)
    }
}

struct TamperChannel {
    inner: Box<dyn Channel>,
    tamper: Arc<Tamper>,
}

impl Channel for TamperChannel {
    fn submit(&mut self, mut request: Request, now_ns: u64) -> Submitted {
        let (op, lba) = (request.op, request.lba);
        if let (Op::Write { .. }, Some(on_write), Some(data)) = (op, &self.tamper.on_write, &mut request.buffer)
            && !on_write(lba, data)
        {
            return Submitted::Done(request.complete(Ok(())));
        }
        let mut submitted = self.inner.submit(request, now_ns);
        assert!(!matches!(submitted, Submitted::Pending), "only for backends that complete at once");
        if let (Op::Read, Some(on_read), Submitted::Done(Completion { buffer: Some(data), .. })) =
            (op, &self.tamper.on_read, &mut submitted)
        {
            on_read(lba, data);
        }
        submitted
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<Completion>) {
        self.inner.poll(now_ns, done);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

/// Forwards one connection to `to`, and flips a bit of byte `at` that the target sends.
pub(crate) fn flipping_proxy(to: SocketAddr, at: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        let (host, _) = listener.accept().expect("a connection");
        let target = TcpStream::connect(to).expect("the target");
        let (host2, target2) = (host.try_clone().expect("a copy"), target.try_clone().expect("a copy"));
        std::thread::spawn(move || pump(host2, target2, usize::MAX));
        pump(target, host, at);
    });
    addr
}

fn pump(mut from: TcpStream, mut to: TcpStream, at: usize) {
    use std::io::{Read, Write};
    let (mut buffer, mut passed) = (vec![0; 65536], 0);
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if (passed..passed + n).contains(&at) {
            buffer[at - passed] ^= 0x10;
        }
        passed += n;
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both); // it may be closed already
}
