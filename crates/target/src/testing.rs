//! An I/O thread on a bench: no reactor, no clock, no network. For tests and the fuzzer.
//!
//! The thread is the real one, sockets and all; its peers are the other ends of socket pairs, time is what the caller says
//! it is, and a poll happens when the caller asks for one. So whatever a peer can do can be done here step by step, and
//! the same steps come to the same end.
//!
//! Every poll is a test of the waiting contract as well ([`Bench::step`]): where the thread would have waited in the
//! kernel, a poll must come to nothing. So its backend must not complete anything by itself, behind the caller's back.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use pilotlight_reactor::{Completions, Inbox, IoThread, Polled, Sender};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use crate::backend::Backend;
use crate::config::{Limits, NamespaceConfig, ServerConfig, SubsystemConfig};
use crate::message::{Message, Outbox};
use crate::server::Shared;
use crate::thread::{TargetThread, ThreadParts, Usage};

/// The subsystem on the bench; its namespace is number 1.
pub const NQN: &str = "nqn.2014-08.org.pilotlight:bench";

/// Time that a poll takes where [`Bench::run`] says how much passes, in nanoseconds.
const POLL_NS: u64 = 1_000;

/// An I/O thread on the bench.
pub struct Bench {
    thread: TargetThread,
    inbox: Sender<Message>,
    shared: Arc<Shared>,
    now_ns: u64,
}

impl Bench {
    /// An I/O thread with one namespace and `pool_bytes` of buffers. Time begins at 0.
    ///
    /// # Errors
    /// If the system has no memory or descriptor left.
    pub fn new(backend: &Arc<dyn Backend>, limits: Limits, pool_bytes: usize) -> io::Result<Self> {
        let block_size = backend.geometry().block_size;
        let spec = "null:4KiB".parse().map_err(|_| io::ErrorKind::InvalidInput)?; // never opened
        let namespace = NamespaceConfig { nsid: 1, backend: spec, block_size, uuid: None };
        let subsystem =
            SubsystemConfig { nqn: NQN.into(), serial: None, allowed_hosts: Vec::new(), namespaces: vec![namespace] };
        let config = ServerConfig { subsystems: vec![subsystem], limits, ..ServerConfig::default() };
        let backend = Arc::clone(backend);
        let shared = Shared::for_tests(config, &move |_: &NamespaceConfig| Ok(Arc::clone(&backend)));
        let shared = Arc::new(shared.map_err(io::Error::other)?);
        let inbox = Inbox::new(256);
        let sender = inbox.sender();
        shared.announcements().map_err(io::Error::other)?.into_iter().for_each(|message| drop(sender.send(message)));
        let mut thread = TargetThread::new(ThreadParts {
            id: 0,
            inbox,
            out: Outbox::new(Arc::new([sender.clone()])),
            pool_bytes,
            counters: shared.counters(0),
            shared: Arc::clone(&shared),
        })?;
        thread.set_completions(Completions::Interrupt);
        Ok(Self { thread, inbox: sender, shared, now_ns: 0 })
    }

    /// A new connection, as the acceptor would hand it over. With `narrow` the thread's socket takes few bytes at a time.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn connect(&mut self, narrow: bool) -> io::Result<Peer> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        if narrow {
            rustix::net::sockopt::set_socket_send_buffer_size(&theirs, 1)?;
        }
        if self.shared.connection_opened() {
            let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            self.inbox.send(Message::Accept(theirs, from)).map_err(|_| io::ErrorKind::QuotaExceeded)?;
        }
        Ok(Peer { socket: ours })
    }

    /// Monotonic time in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Lets `ns` pass and the I/O thread poll once; returns whether it found work.
    ///
    /// # Panics
    /// If the thread finds work, or a deadline that is due, although it would have waited at the beginning, nothing has
    /// made its descriptor readable since, and its time is not over.
    pub fn step(&mut self, ns: u64) -> bool {
        self.poll(ns).busy
    }

    /// As [`Bench::step`]; returns all that the I/O thread says.
    ///
    /// # Panics
    /// As [`Bench::step`].
    pub fn poll(&mut self, ns: u64) -> Polled {
        let limit_ns = self.thread.prepare_wait(self.now_ns);
        let slept = limit_ns.is_some_and(|limit_ns| self.now_ns + ns < limit_ns) && !self.is_readable();
        if limit_ns.is_some() {
            self.thread.end_wait();
        }
        self.now_ns += ns;
        let polled = self.thread.poll(self.now_ns);
        assert!(!slept || self.thread.came_to_nothing(), "something was to be done, and a thread that waits misses it");
        polled
    }

    /// Lets `ns` pass as for a thread that waits in the kernel: it is polled only when its wait is over. Returns how often
    /// it was.
    pub fn run(&mut self, ns: u64) -> u32 {
        let end_ns = self.now_ns + ns;
        let mut polls = 0;
        while self.now_ns < end_ns {
            if let Some(limit_ns) = self.prepare_wait() {
                let readable = self.is_readable();
                self.thread.end_wait();
                self.now_ns = if readable { self.now_ns } else { limit_ns.min(end_ns) };
                if self.now_ns == end_ns && limit_ns > end_ns {
                    break;
                }
            }
            self.thread.poll(self.now_ns);
            self.now_ns += POLL_NS;
            polls += 1;
        }
        polls
    }

    /// The I/O thread is about to wait: see [`IoThread::prepare_wait`].
    pub fn prepare_wait(&mut self) -> Option<u64> {
        self.thread.prepare_wait(self.now_ns)
    }

    /// The wait is over.
    pub fn end_wait(&mut self) {
        self.thread.end_wait();
    }

    /// Whether a thread that waits would be woken by its descriptor.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let Some(fd) = self.thread.wait_fd() else { return false };
        let mut polled = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
    }

    /// How the I/O thread learns of completions; at first by interrupts.
    pub fn set_completions(&mut self, how: Completions) {
        self.thread.set_completions(how);
    }

    /// Sends the I/O thread a message that is nothing to it.
    pub fn ring(&self) {
        let _ = self.inbox.send(Message::DiscoveryChanged);
    }

    /// What the I/O thread holds; panics if that is more than it may be.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.thread.usage()
    }

    /// Associations that exist.
    #[must_use]
    pub fn associations(&self) -> usize {
        self.shared.register.len()
    }

    /// Tells the I/O thread to finish what is in progress and to end.
    pub fn drain(&mut self) {
        let _ = self.inbox.send(Message::Drain);
    }
}

/// The other end of a connection. Nothing here waits.
pub struct Peer {
    socket: OwnedFd,
}

impl Peer {
    /// Sends what the socket takes; returns how much that was, 0 if the connection is at an end too.
    pub fn send(&self, bytes: &[u8]) -> usize {
        rustix::net::send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).unwrap_or(0)
    }

    /// Receives what there is; `None` at the end of the connection.
    pub fn receive(&self, into: &mut [u8]) -> Option<usize> {
        match rustix::net::recv(&self.socket, into, RecvFlags::DONTWAIT) {
            Ok((0, _)) => None,
            Ok((bytes, _)) => Some(bytes),
            Err(rustix::io::Errno::AGAIN) => Some(0),
            Err(_) => None,
        }
    }

    /// Sends nothing more.
    pub fn finish(&self) {
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
    }
}
