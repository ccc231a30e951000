//! An I/O thread without reactor, clock and network, for tests and the fuzzer.
//!
//! The thread is the real one with real sockets; its peers are the other ends of socket pairs, and the caller controls time
//! and polls. So any behaviour of a peer can be reproduced step by step.
//!
//! Every poll also tests the waiting contract ([`Bench::step`]): if the thread would have waited in the kernel, or its
//! reactor would have skipped the poll, the poll must find no work. So the backend must not complete requests by itself.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use pilotlight_nvmf_proto::ids::ConnAddr;
use pilotlight_nvmf_proto::ids::PortId;
use pilotlight_nvmf_proto::queue_pair::message::QueueMessage;
use pilotlight_reactor::HistogramSnapshot;
use pilotlight_reactor::{CompletionMode, Inbox, IoThread, Polled, Sender};
use pilotlight_storage::Backend;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use crate::caps::{Limit, LimitStats, Setter};
use crate::config::Security;
use crate::config::{Limits, NamespaceConfig, ServerConfig, SubsystemConfig};
use crate::latency_batch::Clock;
use crate::server::reservations::Executor;
use crate::server::{Changes, Opener, announce};
use crate::shared::Shared;
use crate::thread::message::Message;
use crate::thread::message::ThreadOutbox;
use crate::thread::stream::Accepted;
use crate::thread::{TargetThread, ThreadParts};

pub use crate::thread::testing::Usage;

/// The subsystem, with namespace 1.
pub const NQN: &str = "nqn.2014-08.org.pilotlight:bench";

/// Duration of a poll in [`Bench::run`], in nanoseconds.
const POLL_NS: u64 = 1_000;

/// The test bench of an I/O thread.
pub struct Bench {
    thread: TargetThread,
    /// Other I/O threads, without connections.
    others: Vec<TargetThread>,
    others_are_held: bool,
    inboxes: Arc<[Sender<Message>]>,
    opener: Arc<Opener>,
    inbox: Sender<Message>,
    shared: Arc<Shared>,
    now_ns: u64,
    /// End of the I/O thread's wait, if it waits.
    asleep: Option<u64>,
    /// The descriptor may be readable since the last poll.
    active: bool,
    executor: Executor,
}

impl Bench {
    /// An I/O thread with one namespace and `pool_bytes` of buffers, at time 0.
    ///
    /// # Errors
    /// If there is no memory or descriptor.
    pub fn new(backend: &Arc<dyn Backend>, limits: Limits, pool_bytes: usize) -> io::Result<Self> {
        Self::with_threads(backend, limits, pool_bytes, 1)
    }

    /// As [`Self::new`], with `threads` I/O threads.
    ///
    /// # Errors
    /// As [`Bench::new`].
    pub fn with_threads(
        backend: &Arc<dyn Backend>,
        limits: Limits,
        pool_bytes: usize,
        threads: u32,
    ) -> io::Result<Self> {
        Self::with_config(backend, ServerConfig { limits, io_threads: threads, ..ServerConfig::default() }, pool_bytes)
    }

    /// As [`Self::new`], with the I/O threads, limits and secrets of `config`. The first I/O thread accepts all connections; the others are
    /// polled with it, unless held ([`Bench::hold_others`]). Nothing checks messages of authentication.
    ///
    /// # Errors
    /// As [`Bench::new`].
    pub fn with_config(backend: &Arc<dyn Backend>, config: ServerConfig, pool_bytes: usize) -> io::Result<Self> {
        let block_size = backend.geometry().block_size;
        let spec = "null:4KiB".parse().map_err(|_| io::ErrorKind::InvalidInput)?; // never opened
        let namespace = NamespaceConfig::new(1, spec, block_size);
        let subsystem = SubsystemConfig::new(NQN, vec![namespace]);
        let threads = config.io_threads;
        let config = ServerConfig { subsystems: vec![subsystem], ..config };
        let backend = Arc::clone(backend);
        let opener: Arc<Opener> = Arc::new(move |_: &NamespaceConfig| Ok(Arc::clone(&backend)));
        let shared = Arc::new(Shared::for_tests(config, &*opener).map_err(io::Error::other)?);
        let ends: Vec<Inbox<Message>> = (0..threads).map(|_| Inbox::new(256)).collect();
        let inboxes: Arc<[Sender<Message>]> = ends.iter().map(Inbox::sender).collect();
        announce(&shared, &inboxes).map_err(io::Error::other)?;
        let thread = |(id, inbox)| {
            TargetThread::new(ThreadParts {
                id,
                inbox,
                out: ThreadOutbox::new(Arc::clone(&inboxes)),
                pool_bytes,
                counters: shared.counters(usize::from(id)),
                clock: Clock::Simulated,
                shared: Arc::clone(&shared),
            })
        };
        let mut others = (0..).zip(ends).map(thread).collect::<io::Result<Vec<_>>>()?;
        let mut thread = others.remove(0);
        thread.set_completions(CompletionMode::Interrupt);
        let inbox = inboxes[0].clone();
        let (now_ns, asleep, others_are_held, active) = (0, None, false, true);
        shared.reservations.set_thread(std::thread::current()); // `poll` executes the commands
        let executor = Executor::default();
        Ok(Self { thread, others, others_are_held, inboxes, opener, inbox, shared, now_ns, asleep, active, executor })
    }

    /// Stops or resumes polling the other I/O threads.
    pub fn hold_others(&mut self, held: bool) {
        self.others_are_held = held;
    }

    fn others_would_work(&self) -> bool {
        !self.others_are_held && self.others_have_messages()
    }

    /// Whether a message waits for one of the other I/O threads.
    #[must_use]
    pub fn others_have_messages(&self) -> bool {
        self.others.iter().any(TargetThread::has_messages)
    }

    /// Changes of namespaces as on a server. The methods wait for I/O threads: call them on another OS thread.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let opener = Arc::clone(&self.opener);
        let opener = Box::new(move |config: &NamespaceConfig| opener(config));
        Changes::new(Arc::clone(&self.shared), Arc::clone(&self.inboxes), opener)
    }

    /// A new connection. With `narrow` the thread's socket accepts few bytes at a time.
    ///
    /// # Errors
    /// If there is no descriptor.
    pub fn connect(&mut self, narrow: bool) -> io::Result<Peer> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        if narrow {
            rustix::net::sockopt::set_socket_send_buffer_size(&theirs, 1)?;
        }
        if self.shared.connection_opened() {
            let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            let accepted = Accepted {
                stream: theirs.into(),
                peer: from,
                accepted_ns: self.now_ns,
                port: PortId::default(),
                security: Security::Plain,
                pending: None,
                session_memory: None,
            };
            self.inbox.send(Message::Accept(accepted)).map_err(|_| io::ErrorKind::QuotaExceeded)?;
        }
        Ok(Peer { socket: ours })
    }

    /// Time in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Advances time by `ns` and polls the I/O thread once; returns whether it found work.
    ///
    /// # Panics
    /// If the thread finds work or a due deadline although it should still be waiting (its time has not passed, and its
    /// descriptor is not readable), or although a reactor with many I/O threads would not have polled it.
    pub fn step(&mut self, ns: u64) -> bool {
        self.poll(ns).busy
    }

    /// As [`Bench::step`]; returns the whole result.
    ///
    /// # Panics
    /// As [`Bench::step`].
    pub fn poll(&mut self, ns: u64) -> Polled {
        let rung = self.is_readable();
        let missed = self.wake().is_some_and(|limit_ns| self.now_ns + ns < limit_ns) && !rung;
        self.now_ns += ns;
        let readable = rung || self.active;
        let needless = !readable && !self.thread.needs_poll(self.now_ns);
        let polled =
            if readable || needless { self.thread.poll(self.now_ns) } else { self.thread.poll_unreadable(self.now_ns) };
        self.active = polled.busy;
        for other in self.others.iter_mut().filter(|_| !self.others_are_held) {
            other.poll(self.now_ns);
        }
        self.execute_reservations();
        assert_eq!(polled.in_progress, self.thread.usage().commands, "commands in progress after a poll");
        assert!(!missed || self.thread.was_idle(), "a waiting thread would have missed work");
        assert!(!needless || self.thread.was_idle(), "a reactor would have skipped a poll with work");
        self.asleep = self.thread.prepare_wait(self.now_ns);
        polled
    }

    /// Does what a server's thread for commands on reservations does.
    fn execute_reservations(&mut self) {
        let inboxes = Arc::clone(&self.inboxes);
        let mut send = |to: u16, message| assert!(inboxes[usize::from(to)].send(message).is_ok(), "the inbox has room");
        while let Some(request) = self.shared.reservations.take() {
            self.executor.execute(request, &self.shared, &mut send, self.now_ns);
        }
        self.executor.finish(&mut send, self.now_ns);
    }

    /// Advances time by `ns` as for a thread that waits in the kernel: polls only at the end of its waits. Returns the number
    /// of polls.
    pub fn run(&mut self, ns: u64) -> u32 {
        let end_ns = self.now_ns + ns;
        for polls in 0.. {
            let rest_ns = match self.asleep {
                Some(limit_ns) if !self.is_readable() && !self.others_would_work() => {
                    limit_ns.saturating_sub(self.now_ns)
                }
                _ => POLL_NS,
            };
            if rest_ns > end_ns - self.now_ns {
                self.now_ns = end_ns;
                return polls;
            }
            self.poll(rest_ns);
        }
        unreachable!("time passes")
    }

    /// End of the I/O thread's wait (`u64::MAX`: no timer), in nanoseconds; `None` if it needs polling. Between polls its bells
    /// are armed.
    #[must_use]
    pub fn asleep(&self) -> Option<u64> {
        self.asleep
    }

    /// Whether the I/O thread would need a poll after `ns` without a readable descriptor.
    pub fn needs_poll(&mut self, ns: u64) -> bool {
        self.thread.needs_poll(self.now_ns + ns)
    }

    /// Whether the I/O thread's descriptor is readable.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let Some(fd) = self.thread.wait_fd() else { return false };
        let mut polled = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
    }

    fn wake(&mut self) -> Option<u64> {
        let limit_ns = self.asleep.take();
        if limit_ns.is_some() {
            self.thread.end_wait();
        }
        limit_ns
    }

    /// Sets the completion mode, initially interrupts.
    pub fn set_completions(&mut self, mode: CompletionMode) {
        self.wake();
        self.thread.set_completions(mode);
        self.asleep = self.thread.prepare_wait(self.now_ns);
    }

    /// Sends the I/O thread a message without effect.
    pub fn ring(&self) {
        let nobody = ConnAddr { thread: 0, index: u32::MAX, serial: 0 };
        let _ = self.inbox.send(Message::Queue(QueueMessage::BarrierPassed(nobody)));
    }

    /// The I/O thread's resource usage; panics if it exceeds its bounds.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.thread.usage()
    }

    /// Latencies of commands.
    #[must_use]
    pub fn latency(&self) -> HistogramSnapshot {
        self.shared.counters(0).latency.snapshot()
    }

    /// Samples latencies from the socket.
    pub fn sample_latency(&self) {
        self.shared.latencies.watch_until(u64::MAX);
    }

    /// Connections checked by barriers of reconnecting hosts.
    #[must_use]
    pub fn barrier_checks(&self) -> u64 {
        self.thread.barrier_checks()
    }

    /// Entries of namespaces that the I/O thread visits in a poll.
    #[must_use]
    pub fn namespace_entries(&self) -> usize {
        self.thread.namespace_entries()
    }

    /// Sets the namespace's cap in bytes per second; `None` for no cap.
    pub fn set_cap(&self, bytes_per_s: Option<u64>) {
        self.shared.caps.set(&self.limit(), Setter::Operator, bytes_per_s, self.now_ns);
    }

    /// Sets the cap of host `nqn`; `None` for no cap.
    pub fn set_host_cap(&self, nqn: &str, bytes_per_s: Option<u64>) {
        self.shared.caps.set(&self.shared.host_limit(nqn), Setter::Operator, bytes_per_s, self.now_ns);
    }

    /// Statistics of the namespace's cap.
    #[must_use]
    pub fn cap(&self) -> LimitStats {
        self.limit().stats()
    }

    /// Waits of commands for caps.
    #[must_use]
    pub fn cap_waits(&self) -> HistogramSnapshot {
        self.shared.counters(0).cap_waits.snapshot()
    }

    fn limit(&self) -> Arc<Limit> {
        let namespaces = self.shared.namespace_limits();
        namespaces.into_iter().next().map(|(_, limit)| limit).unwrap_or_default()
    }

    /// Bytes charged for queues, and hosts in the register.
    #[must_use]
    pub fn admitted(&self) -> (u64, usize) {
        (self.shared.hosts.queue_memory.used(), self.shared.hosts.associations.hosts())
    }

    /// Number of associations.
    #[must_use]
    pub fn associations(&self) -> usize {
        self.shared.hosts.associations.len()
    }

    /// Drains and ends the I/O thread.
    pub fn drain(&mut self) {
        let _ = self.inbox.send(Message::Drain);
    }
}

/// The other end of a connection; non-blocking.
pub struct Peer {
    socket: OwnedFd,
}

impl Peer {
    /// Sends as much as the socket accepts; returns the number of bytes, 0 also for a closed connection.
    pub fn send(&self, bytes: &[u8]) -> usize {
        rustix::net::send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).unwrap_or(0)
    }

    /// Receives available bytes; `None` at the end of the connection.
    pub fn receive(&self, into: &mut [u8]) -> Option<usize> {
        match rustix::net::recv(&self.socket, into, RecvFlags::DONTWAIT) {
            Ok((0, _)) => None,
            Ok((bytes, _)) => Some(bytes),
            Err(rustix::io::Errno::AGAIN) => Some(0),
            Err(_) => None,
        }
    }

    /// Shuts down the sending side.
    pub fn finish(&self) {
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
    }
}
