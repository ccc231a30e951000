//! A server with several namespaces in memory whose media can fail, withhold completions, or block.

#[path = "../support/servers.rs"]
mod servers;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, QueueSpec};
use pilotlight_nvmf_target::{NamespaceConfig, Server, ServerConfig};
use pilotlight_reactor::{Idle, RuntimeOptions};
use pilotlight_storage::{
    Backend, BackendSpec, Channel, Completion, Geometry, IoError, MemoryBudget, Op, Request, Submitted, open,
};

pub(crate) const NQN: &str = "nqn.2026-01.test:lifecycle";
/// Timeout of a test.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Blocks threads while it is shut.
#[derive(Default)]
pub(crate) struct Gate {
    shut: Mutex<bool>,
    changed: Condvar,
    pub(crate) reached: AtomicBool,
}

impl Gate {
    pub(crate) fn set(&self, shut: bool) {
        *self.shut.lock().unwrap_or_else(PoisonError::into_inner) = shut;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let shut = self.shut.lock().unwrap_or_else(PoisonError::into_inner);
        if *shut {
            self.reached.store(true, SeqCst);
        }
        drop(self.changed.wait_timeout_while(shut, 2 * TIMEOUT, |shut| *shut));
    }
}

/// Behaviour of a medium, set by the test, and counters.
#[derive(Default)]
pub(crate) struct Medium {
    /// Attempts to open it.
    pub(crate) opened: AtomicU32,
    pub(crate) fail_flushes: AtomicBool,
    /// Flushes are accepted and never complete.
    pub(crate) keep_flushes: AtomicBool,
    /// Writes are accepted and never complete.
    pub(crate) keep_writes: AtomicBool,
    pub(crate) kept: Mutex<Vec<Request>>,
    /// Flushes that succeeded.
    pub(crate) flushed: AtomicU32,
    /// In [`Channel::submit`].
    pub(crate) submitting: Gate,
    /// When a channel is dropped.
    pub(crate) dropping: Gate,
    /// Names of the OS threads on which channels were dropped.
    pub(crate) dropped_on: Mutex<Vec<String>>,
}

struct Faulty {
    inner: Arc<dyn Backend>,
    medium: Arc<Medium>,
}

impl Backend for Faulty {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.inner.allocated_bytes()
    }
    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        let inner = self.inner.open_channel(depth)?;
        Ok(Box::new(FaultyChannel { inner, medium: Arc::clone(&self.medium), kept: 0 }))
    }
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        self.inner.resize(blocks)
    }
}

struct FaultyChannel {
    inner: Box<dyn Channel>,
    medium: Arc<Medium>,
    kept: usize,
}

impl FaultyChannel {
    fn keep(&mut self, request: Request) -> Submitted {
        self.medium.kept.lock().expect("no panic").push(request);
        self.kept += 1;
        Submitted::Pending
    }
}

impl Channel for FaultyChannel {
    fn submit(&mut self, request: Request, now_ns: u64) -> Submitted {
        self.medium.submitting.pass();
        match request.op {
            Op::Flush if self.medium.fail_flushes.load(SeqCst) => {
                return Submitted::Done(request.complete(Err(IoError::Medium(5))));
            }
            Op::Flush if self.medium.keep_flushes.load(SeqCst) => return self.keep(request),
            Op::Write { .. } if self.medium.keep_writes.load(SeqCst) => return self.keep(request),
            Op::Flush => drop(self.medium.flushed.fetch_add(1, SeqCst)),
            _ => {}
        }
        self.inner.submit(request, now_ns)
    }
    fn poll(&mut self, now_ns: u64, done: &mut Vec<Completion>) {
        self.inner.poll(now_ns, done);
    }
    fn in_flight(&self) -> usize {
        self.kept + self.inner.in_flight()
    }
}

impl Drop for FaultyChannel {
    fn drop(&mut self) {
        let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
        self.medium.dropped_on.lock().expect("no panic").push(thread);
        self.medium.dropping.pass();
    }
}

/// A running server.
pub(crate) struct Target {
    pub(crate) server: Server,
    address: SocketAddr,
    /// The media of namespaces 1, 2 and so on.
    pub(crate) media: Vec<Arc<Medium>>,
}

/// A namespace of 64 blocks in a new file.
pub(crate) fn in_file(nsid: u32, path: &Path) -> NamespaceConfig {
    let backend = BackendSpec::File { path: path.to_owned(), size: Some(64 * 4096) };
    servers::namespace(nsid, backend)
}

/// A server with one reactor, one I/O thread and this number of namespaces of 64 blocks.
pub(crate) fn target(namespaces: u32) -> Target {
    let media: Vec<Arc<Medium>> = (0..namespaces).map(|_| Arc::default()).collect();
    let backend = BackendSpec::Memory(64 * 4096);
    let namespace = |nsid| servers::namespace(nsid, backend.clone());
    let namespaces = (1..=namespaces).map(namespace).collect();
    let subsystem = servers::subsystem(NQN, namespaces);
    let config = ServerConfig { io_threads: 1, ..servers::config(vec![subsystem]) };
    let opened = media.clone();
    let opener = Box::new(move |namespace: &NamespaceConfig| {
        let medium = Arc::clone(&opened[namespace.nsid as usize - 1]);
        let inner = open(&namespace.backend, 4096, &Arc::new(MemoryBudget::unlimited()));
        medium.opened.fetch_add(1, SeqCst);
        Ok(Arc::new(Faulty { inner: inner?, medium }) as Arc<dyn Backend>)
    });
    let server = Server::start_with(config, RuntimeOptions::new(vec![None], Idle::Yield), opener).expect("it starts");
    let address = server.local_addrs()[0];
    Target { server, address, media }
}

/// A server with two reactors, `io_threads` and these namespaces.
pub(crate) fn target_in(namespaces: Vec<NamespaceConfig>, io_threads: u32) -> Target {
    let subsystem = servers::subsystem(NQN, namespaces);
    let server = servers::start(ServerConfig { io_threads, ..servers::config(vec![subsystem]) }, 2);
    let address = server.local_addrs()[0];
    Target { server, address, media: Vec::new() }
}

impl Target {
    pub(crate) fn controller(&self) -> Controller {
        let options =
            ConnectOptions { timeout_ms: TIMEOUT.as_millis() as u64, ..ConnectOptions::new(self.address, NQN) };
        Controller::connect(options).expect("a controller")
    }

    pub(crate) fn queue(&self) -> (Controller, Connection) {
        let mut controller = self.controller();
        controller.set_queue_count(1).expect("a queue");
        let spec = QueueSpec { qid: 1, depth: 8, max_io: 4096, buffers: Buffers::PerCommand };
        let queue = controller.open_queue(&spec).expect("an I/O queue");
        (controller, queue)
    }

    pub(crate) fn medium(&self, nsid: usize) -> &Medium {
        &self.media[nsid - 1]
    }
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < until, "{what} was not observed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Stops a server within `within` and returns the message.
///
/// # Panics
/// If the stop does not return.
pub(crate) fn stop(server: Server, within: Duration) -> String {
    let (result, results) = std::sync::mpsc::channel();
    std::thread::spawn(move || result.send(server.stop(within)));
    match results.recv_timeout(TIMEOUT).expect("the stop is bounded") {
        Ok(()) => "stopped".to_owned(),
        Err(error) => error.to_string(),
    }
}
