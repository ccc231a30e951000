//! An I/O thread on a bench: no reactor, no clock, no network. For tests and the fuzzer.
//!
//! The thread is the real one, sockets and all; its peers are the other ends of socket pairs, time is what the caller says
//! it is, and a poll happens when the caller asks for one. So whatever a peer can do can be done here step by step, and
//! the same steps come to the same end.
//!
//! Every poll is a test of the waiting contract as well ([`Bench::step`]): where the thread would have waited in the
//! kernel, and where its reactor would have left the poll out, a poll must come to nothing. So its backend must not complete anything by itself, behind the caller's back.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use pilotlight_reactor::{CompletionMode, Inbox, IoThread, Polled, Sender};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use crate::backend::Backend;
use crate::caps::{Limit, LimitStats, Setter};
use crate::config::{Limits, NamespaceConfig, ServerConfig, SubsystemConfig};
use crate::departures::Clock;
use crate::message::{ConnAddr, Message, Outbox};
use crate::server::{Changes, Opener, Shared, announce};
use crate::thread::{TargetThread, ThreadParts, Usage};
use pilotlight_reactor::HistogramSnapshot;

/// The subsystem on the bench; its namespace is number 1.
pub const NQN: &str = "nqn.2014-08.org.pilotlight:bench";

/// Time that a poll takes where [`Bench::run`] says how much passes, in nanoseconds.
const POLL_NS: u64 = 1_000;

/// An I/O thread on the bench.
pub struct Bench {
    thread: TargetThread,
    /// Other I/O threads, which get no connections.
    others: Vec<TargetThread>,
    others_are_held: bool,
    inboxes: Arc<[Sender<Message>]>,
    opener: Arc<Opener>,
    inbox: Sender<Message>,
    shared: Arc<Shared>,
    now_ns: u64,
    /// Until when the I/O thread waits, if it would.
    asleep: Option<u64>,
    /// The last poll may have left something readable.
    active: bool,
}

impl Bench {
    /// An I/O thread with one namespace and `pool_bytes` of buffers. Time begins at 0.
    ///
    /// # Errors
    /// If the system has no memory or descriptor left.
    pub fn new(backend: &Arc<dyn Backend>, limits: Limits, pool_bytes: usize) -> io::Result<Self> {
        Self::with_threads(backend, limits, pool_bytes, 1)
    }

    /// The same with `threads` I/O threads. All connections are the first one's; the others are polled with it, unless they
    /// are held ([`Bench::hold_others`]).
    ///
    /// # Errors
    /// As [`Bench::new`].
    pub fn with_threads(
        backend: &Arc<dyn Backend>,
        limits: Limits,
        pool_bytes: usize,
        threads: u32,
    ) -> io::Result<Self> {
        let block_size = backend.geometry().block_size;
        let spec = "null:4KiB".parse().map_err(|_| io::ErrorKind::InvalidInput)?; // never opened
        let namespace = NamespaceConfig { nsid: 1, backend: spec, block_size, uuid: None, hosts: Vec::new() };
        let subsystem = SubsystemConfig {
            nqn: NQN.into(),
            serial: None,
            allowed_hosts: Vec::new(),
            controller_ids: None,
            namespaces: vec![namespace],
        };
        let config =
            ServerConfig { subsystems: vec![subsystem], limits, io_threads: threads, ..ServerConfig::default() };
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
                out: Outbox::new(Arc::clone(&inboxes)),
                pool_bytes,
                counters: shared.counters(usize::from(id)),
                clock: Clock::Handed,
                shared: Arc::clone(&shared),
            })
        };
        let mut others = (0..).zip(ends).map(thread).collect::<io::Result<Vec<_>>>()?;
        let mut thread = others.remove(0);
        thread.set_completions(CompletionMode::Interrupt);
        let inbox = inboxes[0].clone();
        let (now_ns, asleep, others_are_held, active) = (0, None, false, true);
        Ok(Self { thread, others, others_are_held, inboxes, opener, inbox, shared, now_ns, asleep, active })
    }

    /// Polls the other I/O threads no more, or again.
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

    /// What changes the namespaces here as a server does. Its methods wait for I/O threads: for another OS thread.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let opener = Arc::clone(&self.opener);
        let opener = Box::new(move |config: &NamespaceConfig| opener(config));
        Changes::new(Arc::clone(&self.shared), Arc::clone(&self.inboxes), opener)
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

    /// Time in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Lets `ns` pass and the I/O thread poll once; returns whether it found work.
    ///
    /// # Panics
    /// If the thread finds work, or a deadline that is due, although it has waited since the last poll, its time is not
    /// over, and nothing has made its descriptor readable; or although a reactor on which many live would not have polled it.
    pub fn step(&mut self, ns: u64) -> bool {
        self.poll(ns).busy
    }

    /// As [`Bench::step`]; returns all that the I/O thread says.
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
        assert_eq!(polled.in_progress, self.thread.usage().commands, "what is in progress after a poll");
        assert!(
            !missed || self.thread.came_to_nothing(),
            "something was to be done, and a thread that waits misses it"
        );
        assert!(
            !needless || self.thread.came_to_nothing(),
            "something was to be done, and a reactor would not have polled the thread"
        );
        self.asleep = self.thread.prepare_wait(self.now_ns);
        polled
    }

    /// Lets `ns` pass as for a thread that waits in the kernel: it is polled only when its wait is over. Returns how often
    /// it was.
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

    /// Until when the I/O thread would wait now in the kernel (`u64::MAX`: no timer), in nanoseconds; `None` if it wants to
    /// be polled on. Between two polls its bells are armed.
    #[must_use]
    pub fn asleep(&self) -> Option<u64> {
        self.asleep
    }

    /// Whether the I/O thread would need a poll after `ns` even if its descriptor were not readable.
    pub fn needs_poll(&mut self, ns: u64) -> bool {
        self.thread.needs_poll(self.now_ns + ns)
    }

    /// Whether the I/O thread's descriptor would end its wait.
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

    /// How the I/O thread learns of completions; at first by interrupts.
    pub fn set_completions(&mut self, mode: CompletionMode) {
        self.wake();
        self.thread.set_completions(mode);
        self.asleep = self.thread.prepare_wait(self.now_ns);
    }

    /// Sends the I/O thread a message that is nothing to it.
    pub fn ring(&self) {
        let nobody = ConnAddr { thread: 0, index: u32::MAX, serial: 0 };
        let _ = self.inbox.send(Message::BarrierPassed(nobody));
    }

    /// What the I/O thread holds; panics if that is more than it may be.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.thread.usage()
    }

    /// How long commands have stayed.
    #[must_use]
    pub fn latency(&self) -> HistogramSnapshot {
        self.shared.counters(0).latency.snapshot()
    }

    /// Samples latencies from the socket on.
    pub fn sample_latency(&self) {
        self.shared.latencies.watch_until(u64::MAX);
    }

    /// Connections that the barriers of hosts that came back have looked at.
    #[must_use]
    pub fn barrier_looks(&self) -> u64 {
        self.thread.barrier_looks()
    }

    /// Caps the namespace at so many bytes a second; `None` for no cap.
    pub fn set_cap(&self, bytes_per_s: Option<u64>) {
        self.shared.caps.set(&self.limit(), Setter::Operator, bytes_per_s, self.now_ns);
    }

    /// Caps the host named `nqn` over all namespaces; `None` for no cap.
    pub fn set_host_cap(&self, nqn: &str, bytes_per_s: Option<u64>) {
        self.shared.caps.set(&self.shared.host_limit(nqn), Setter::Operator, bytes_per_s, self.now_ns);
    }

    /// What the namespace's cap has done.
    #[must_use]
    pub fn cap(&self) -> LimitStats {
        self.limit().stats()
    }

    /// How long commands have waited for caps.
    #[must_use]
    pub fn cap_waits(&self) -> HistogramSnapshot {
        self.shared.counters(0).cap_waits.snapshot()
    }

    fn limit(&self) -> Arc<Limit> {
        let namespaces = self.shared.namespace_limits();
        namespaces.into_iter().next().map(|(_, limit)| limit).unwrap_or_default()
    }

    /// Bytes charged for queues, and hosts that the register knows.
    #[must_use]
    pub fn admitted(&self) -> (u64, usize) {
        (self.shared.queue_memory.used(), self.shared.register.hosts())
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
