//! A test target: one thread per connection, blocking calls, the namespace in one `Vec`.
//!
//! It shares only the wire structures with `pilotlight-nvmf-target`, checks the host's PDUs against the specification, and can store or
//! return wrong data ([`Tamper`]). A violation by the host makes [`TestTarget::finish`] panic.

mod commands;
mod connection;
mod fast;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use pilotlight_nvme::pdu::Digests;

use connection::Connection;

type OnRead = Box<dyn Fn(u64, &mut [u8]) + Send + Sync>;
type OnWrite = Box<dyn Fn(u64, &mut [u8], &[u8]) -> bool + Send + Sync>;

/// Changes data; the arguments are the first block and the bytes. `on_write` returns whether the write is stored.
#[derive(Default)]
pub(crate) struct Tamper {
    pub(crate) on_read: Option<OnRead>,
    pub(crate) on_write: Option<OnWrite>,
}

/// Configuration of the target.
pub(crate) struct Config {
    pub(crate) blocks: u64,
    pub(crate) block_size: u32,
    pub(crate) digests: Digests,
    pub(crate) cpda: u8,
    pub(crate) max_h2c_data: u32,
    pub(crate) in_capsule: u32,
    /// Bytes per R2T.
    pub(crate) r2t_len: u32,
    /// Bytes per C2HData PDU.
    pub(crate) c2h_len: u32,
    /// Whether Connect may disable SQ flow control.
    pub(crate) grant_no_flow: bool,
    /// Reads from this block on fail.
    pub(crate) fail_from: Option<u64>,
    pub(crate) tamper: Tamper,
    /// I/O queues support only 4 KiB reads, at full speed, by a thread on this CPU.
    pub(crate) fast: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            blocks: 4096,
            block_size: 4096,
            digests: Digests { header: true, data: true },
            cpda: 0,
            max_h2c_data: 128 * 1024,
            in_capsule: 4096,
            r2t_len: 128 * 1024,
            c2h_len: 128 * 1024,
            grant_no_flow: true,
            fail_from: None,
            tamper: Tamper::default(),
            fast: None,
        }
    }
}

struct Shared {
    config: Config,
    store: Mutex<Vec<u8>>,
    cc: AtomicU32,
    stop: AtomicBool,
    violations: Mutex<Vec<String>>,
    /// Largest number of R2Ts outstanding for one command, and whether their data was out of order.
    max_outstanding_r2ts: AtomicU32,
    reordered: AtomicBool,
    h2c_pdus: AtomicU32,
    keep_alives: AtomicU32,
}

/// A running target.
pub(crate) struct TestTarget {
    pub(crate) addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl TestTarget {
    pub(crate) fn start(config: Config) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("its address");
        let store = Mutex::new(vec![0; (config.blocks * u64::from(config.block_size)) as usize]);
        let shared = Arc::new(Shared {
            config,
            store,
            cc: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            violations: Mutex::default(),
            max_outstanding_r2ts: AtomicU32::new(0),
            reordered: AtomicBool::new(false),
            h2c_pdus: AtomicU32::new(0),
            keep_alives: AtomicU32::new(0),
        });
        let acceptor_shared = shared.clone();
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if acceptor_shared.stop.load(SeqCst) {
                    return;
                }
                let shared = acceptor_shared.clone();
                let stream = stream.expect("a connection");
                std::thread::spawn(move || {
                    let mut c = Connection::new(&shared, stream);
                    if let Err(violation) = c.serve() {
                        shared.violations.lock().expect("lock").push(violation);
                    }
                });
            }
        });
        Self { addr, shared, acceptor: Some(acceptor) }
    }

    /// Panics if a host violated the protocol.
    pub(crate) fn finish(mut self) {
        self.shared.stop.store(true, SeqCst);
        drop(TcpStream::connect(self.addr)); // wakes the acceptor
        self.acceptor.take().expect("started").join().expect("the acceptor");
        let violations = self.shared.violations.lock().expect("lock");
        assert!(violations.is_empty(), "the host violated the protocol: {violations:?}");
    }

    pub(crate) fn max_outstanding_r2ts(&self) -> u32 {
        self.shared.max_outstanding_r2ts.load(SeqCst)
    }
    pub(crate) fn has_reordered_data(&self) -> bool {
        self.shared.reordered.load(SeqCst)
    }
    pub(crate) fn h2c_pdus(&self) -> u32 {
        self.shared.h2c_pdus.load(SeqCst)
    }
    pub(crate) fn keep_alives(&self) -> u32 {
        self.shared.keep_alives.load(SeqCst)
    }
    pub(crate) fn store(&self) -> Vec<u8> {
        self.shared.store.lock().expect("lock").clone()
    }
}
