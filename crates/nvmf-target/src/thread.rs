//! An I/O thread of the target: sockets, epoll descriptor, timers, inbox, buffers and channels. A reactor polls it, and it
//! can move to another reactor between two polls.
//!
//! One poll handles messages, readable sockets, backend completions and waiting commands, and then makes one send per
//! connection with unsent responses. Connections share one large read buffer; only an incomplete PDU is kept per connection,
//! so an idle connection costs little. Between polls it can wait in the kernel (`thread/wait.rs`).

pub(crate) mod acks;
mod background;
pub(crate) mod classes;
mod encrypted;
mod end;
mod hand_over;
pub(crate) mod message;
pub(crate) mod moves;
mod poll;
pub(crate) mod preempt;
mod queue_messages;
mod socket;
pub(crate) mod stream;
mod sweep;
mod tasks;
#[cfg(feature = "testing")]
pub(crate) mod testing;
mod wait;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pilotlight_nvmf_proto::association::Association;
use pilotlight_nvmf_proto::ids::ConnAddr;
use pilotlight_nvmf_proto::memory::Memory;
use pilotlight_nvmf_proto::queue_pair::Cx;
use pilotlight_nvmf_proto::services::NamespaceTable as _;
use pilotlight_nvmf_proto::subsystems::listing::NamespaceList;
use pilotlight_nvmf_proto::subsystems::views::ChangedNamespace;
use pilotlight_nvmf_proto::subsystems::views::ViewId;
use pilotlight_nvmf_proto::tcp::Connection;
use pilotlight_nvmf_proto::tls_peer::TlsPeer;
use pilotlight_reactor::{CompletionMode, Inbox, IoThread, Polled};
use pilotlight_storage::Completion;
use pilotlight_storage::buffer::BufferPool;
use rustix::event::epoll;
use socket::{Resources, SCRATCH, Socket, readable};
use sweep::{Change, Check, Sweep};
use tasks::Tasks;

use crate::accounting::ThreadAccounting;
use crate::latency::Sampler;
use crate::latency_batch::{Clock, LatencyBatch};
use crate::namespaces::NamespaceChange;
use crate::namespaces::Namespaces;
use crate::shared::Shared;
use crate::stats::Counters;
use crate::thread::acks::Ack;
use crate::thread::message::Message;
use crate::thread::message::ThreadOutbox;
use crate::thread::preempt::Preempting;
use crate::thread::stream::{Accepted, Stream};

/// Completions collected in one poll.
const COMPLETIONS: usize = 256;
/// Maximum connections of an I/O thread for its reactor to watch its descriptor: registering it takes 9 us then.
const WATCHED_CONNECTIONS: u32 = 128;

const NO_WAIT: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };

/// An I/O thread of the target.
pub(crate) struct TargetThread {
    id: u16,
    inbox: Inbox<Message>,
    resources: Resources,
    sockets: Vec<Option<Box<Socket>>>,
    /// The deadlines of all sockets, in one array for fast checks.
    deadlines: Vec<u64>,
    free: Vec<u32>,
    serial: u32,
    done: Vec<Completion>,
    /// Sockets with waiting commands.
    waiting: Vec<u32>,
    waiting_now: Vec<u32>,
    next_tick_ns: u64,
    next_stall_check_ns: u64,
    open: u32,
    /// I/O commands in progress of all sockets.
    in_progress: u32,
    draining: bool,
    /// Work on every connection.
    sweeps: VecDeque<Sweep>,
    check: Check,
    /// Preempted commands in the backends.
    preempting: Vec<Preempting>,
    /// Connections checked by barriers.
    #[cfg(feature = "testing")]
    barrier_checks: u64,
    /// OS thread and time of the last poll.
    os_thread: usize,
    polled_ns: u64,
    /// The last poll found no work: every waiting command has been retried since the last change.
    idle: bool,
    /// There is work that needs polling: no message, socket or timer signals it.
    has_work: bool,
}

/// Parameters of an I/O thread.
pub(crate) struct ThreadParts {
    /// Its number.
    pub id: u16,
    /// Its inbox.
    pub inbox: Inbox<Message>,
    /// Its outbox.
    pub out: ThreadOutbox,
    /// Size of its buffer pool.
    pub pool_bytes: usize,
    /// Its counters.
    pub counters: Arc<Counters>,
    /// Its clock for latencies.
    pub clock: Clock,
    /// The shared state.
    pub shared: Arc<Shared>,
}

impl TargetThread {
    /// An I/O thread without connections.
    ///
    /// # Errors
    /// If there is no memory or descriptor.
    pub(crate) fn new(parts: ThreadParts) -> std::io::Result<Self> {
        let thread = Self {
            id: parts.id,
            inbox: parts.inbox,
            resources: Resources {
                out: parts.out,
                memory: Memory::new(BufferPool::new(parts.pool_bytes)?),
                namespaces: Namespaces::new()?,
                accounting: ThreadAccounting::new(parts.counters, LatencyBatch::new(parts.clock)),
                sampler: Sampler::default(),
                shared: parts.shared,
                epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
                scratch: vec![0; SCRATCH].into_boxed_slice(),
                tasks: Tasks::default(),
            },
            sockets: Vec::new(),
            deadlines: Vec::new(),
            free: Vec::new(),
            serial: 0,
            done: Vec::with_capacity(COMPLETIONS),
            waiting: Vec::new(),
            waiting_now: Vec::new(),
            next_tick_ns: 0,
            next_stall_check_ns: 0,
            open: 0,
            in_progress: 0,
            draining: false,
            sweeps: VecDeque::new(),
            check: Check::default(),
            preempting: Vec::new(),
            #[cfg(feature = "testing")]
            barrier_checks: 0,
            os_thread: 0,
            polled_ns: 0,
            idle: false,
            has_work: true,
        };
        thread.watch_bells()?;
        Ok(thread)
    }

    /// Records the first poll on another OS thread.
    #[cold]
    fn note_move(&mut self, os_thread: usize, now_ns: u64) {
        if self.os_thread != 0 {
            let moves = &self.resources.accounting.counters.moves;
            moves.moved(now_ns.saturating_sub(self.polled_ns));
            #[cfg(feature = "testing")]
            if self.resources.shared.records_moves() {
                moves.note_work(self.in_progress());
            }
        }
        self.os_thread = os_thread;
    }

    fn on_message(&mut self, message: Message, now_ns: u64) {
        match message {
            Message::Accept(accepted) => self.accept(accepted, now_ns),
            Message::HandOver(stream, conn) => self.take_over(stream, conn, now_ns),
            Message::Queue(message) => self.on_queue_message(message, now_ns),
            Message::End { associations, applied } => {
                self.end_connections(&associations, now_ns);
                drop(applied);
            }
            Message::Count { associations, commands, applied } => {
                let sockets = self.sockets.iter().flatten();
                let busy = sockets.map(|socket| socket.conn.pair.commands_of(&associations)).sum();
                commands.fetch_add(busy, Relaxed);
                drop(applied);
            }
            Message::Namespace { subsystem, nsid, change, applied } => {
                self.on_namespace(subsystem, nsid, change, applied);
            }
            Message::Views { views, applied } => {
                self.resources.namespaces.set_views(&views);
                drop(applied);
            }
            Message::Listed { list, changed, applied } => {
                self.on_listed(list, changed, applied, now_ns);
            }
            Message::Utilization { admin, slot, generation } => {
                self.with(admin, now_ns, |socket, cx| socket.conn.pair.on_utilization(slot, generation, cx));
            }
            Message::Reservation { queue, slot, status, data } => {
                self.with(queue, now_ns, |socket, cx| socket.conn.pair.on_reservation(slot, status, &data, cx));
            }
            Message::Preempt(preempted) => self.on_preempted(preempted, now_ns),
            Message::AuthenticationChecked { queue, slot, checked, at_ns } => {
                self.with(queue, now_ns, |socket, cx| socket.conn.pair.on_checked(slot, *checked, at_ns, cx));
            }
            Message::Drain => {
                self.draining = true;
                self.each(now_ns, |socket, _| socket.conn.pair.drain());
            }
        }
    }

    fn on_namespace(&mut self, subsystem: usize, nsid: u32, change: NamespaceChange, applied: Ack) {
        let namespaces = &mut self.resources.namespaces;
        match change {
            NamespaceChange::Added(geometry, leased, limit, reservation) => {
                namespaces.add((subsystem, nsid), geometry, leased, (limit, reservation));
                self.sweep_later(Sweep::new(Change::Added { subsystem, nsid }, applied));
            }
            NamespaceChange::Resized(geometry) => namespaces.resize(subsystem, nsid, geometry),
            NamespaceChange::Removed => {
                if let Some(index) = namespaces.index_of(ViewId::whole(subsystem), nsid) {
                    self.resources.accounting.caps.remove(index);
                }
                namespaces.remove(subsystem, nsid);
            }
        }
    }

    /// Publishes a change that every I/O thread has applied, and notifies hosts.
    fn on_listed(&mut self, list: Arc<NamespaceList>, changed: Arc<[ChangedNamespace]>, applied: Ack, now_ns: u64) {
        let directory = !Arc::ptr_eq(list.directory(), self.resources.namespaces.directory());
        self.resources.namespaces.set_list(list);
        if self.resources.shared.background.is_used() {
            self.update_tasks(now_ns);
        }
        if directory || !changed.is_empty() {
            self.sweep_later(Sweep::new(Change::Listed { directory, changed }, applied));
        }
    }

    fn accept(&mut self, accepted: Accepted, now_ns: u64) {
        if self.draining {
            return self.resources.shared.connection_closed();
        }
        let Accepted { stream, peer, accepted_ns, port, security, pending, session_memory } = accepted;
        let local = rustix::net::getsockname(&stream.fd).ok().and_then(|name| SocketAddr::try_from(name).ok());
        let timeout_ns = self.resources.shared.limits.icreq_timeout_ns;
        let mut conn = Connection::new(accepted_ns, timeout_ns, peer, local.map(|address| address.ip()));
        conn.pair.set_pending(pending);
        let tls = stream.tls.as_ref().map(|session| TlsPeer::parse(session.identity()));
        conn.pair.set_listener(port, security);
        let tls = tls.map(|peer| peer.expect("the key was found by the NQNs in its identity"));
        conn.pair.set_tls(tls, session_memory);
        if let Some(address) = self.serve(stream, conn) {
            self.settle(address.index, now_ns); // bytes may have arrived with the end of the TLS handshake
        }
    }

    /// Adds a connection; returns its address.
    fn serve(&mut self, stream: Stream, conn: Connection<Shared>) -> Option<ConnAddr> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.sockets.push(None);
            self.deadlines.push(u64::MAX);
            self.sockets.len() as u32 - 1
        });
        let data = epoll::EventData::new_u64(u64::from(index));
        if let Err(error) = epoll::add(&self.resources.epoll, &stream.fd, data, readable()) {
            let reason = "cannot add its socket to epoll";
            tracing::warn!(peer = %conn.pair.peer(), reason, %error, "connection refused");
            self.free.push(index);
            self.resources.shared.connection_closed();
            return None;
        }
        self.serial = self.serial.wrapping_add(1);
        let address = ConnAddr { thread: self.id, index, serial: self.serial };
        self.deadlines[index as usize] = conn.pair.deadline_ns();
        self.sockets[index as usize] = Some(Box::new(Socket {
            fd: Some(stream.fd),
            tls: stream.tls,
            conn,
            address,
            interest: readable(),
            listed: false,
            shut: false,
            counted: 0,
            is_stamping: false,
        }));
        self.open += 1;
        self.resources.accounting.counters.set_connections(u64::from(self.open));
        Some(address)
    }

    /// Calls `f` on the connection at `address`, if it still exists, and settles it.
    fn with<R>(
        &mut self,
        address: ConnAddr,
        now_ns: u64,
        f: impl FnOnce(&mut Socket, &mut Cx<Shared>) -> R,
    ) -> Option<R> {
        let socket =
            self.sockets.get_mut(address.index as usize)?.as_mut().filter(|socket| socket.address == address)?;
        let result = f(socket, &mut self.resources.cx(now_ns, address));
        self.settle(address.index, now_ns);
        Some(result)
    }

    /// Ends every connection of these associations.
    fn end_connections(&mut self, associations: &[Arc<Association>], now_ns: u64) {
        let of_these = self.sockets.iter().flatten().filter(|socket| socket.conn.pair.is_of(associations));
        let ended: Vec<ConnAddr> = of_these.map(|socket| socket.address).collect();
        for address in ended {
            self.with(address, now_ns, |socket, cx| socket.conn.pair.lost(cx));
        }
    }

    /// Calls `f` on every connection.
    fn each(&mut self, now_ns: u64, mut f: impl FnMut(&mut Socket, &mut Cx<Shared>)) {
        for index in 0..self.sockets.len() {
            let Some(socket) = &mut self.sockets[index] else { continue };
            let address = socket.address;
            f(socket, &mut self.resources.cx(now_ns, address));
            self.settle(index as u32, now_ns);
        }
    }

    /// After a call on a connection: sends its responses, records its waits, and reaps it if it has ended.
    fn settle(&mut self, index: u32, now_ns: u64) {
        let at = index as usize;
        let Some(socket) = self.sockets.get_mut(at).and_then(Option::as_mut) else { return };
        if let Some(to) = socket.conn.pair.handed_to() {
            return self.hand_over(index, to);
        }
        // A blocked socket signals when it is writable.
        if !socket.conn.blocked && (!socket.conn.pair.transport.tx.is_empty() || socket.conn.pair.is_closing()) {
            socket.flush(&mut self.resources, now_ns);
        }
        socket.end_loans(&mut self.resources);
        if self.draining && socket.fd.is_some() && !socket.conn.blocked && socket.conn.pair.is_idle() {
            let address = socket.address;
            socket.conn.pair.lost(&mut self.resources.cx(now_ns, address));
        }
        self.deadlines[at] = socket.conn.pair.deadline_ns();
        let (now, before) = socket.recount();
        self.in_progress = self.in_progress + now - before;
        if socket.conn.pair.is_over() {
            self.reap(index, now_ns);
        } else if (socket.conn.pair.has_waiting() || socket.has_buffered()) && !socket.listed {
            socket.listed = true;
            self.waiting.push(index);
        }
    }

    /// Closes the socket of an ended connection, and removes it once nothing of it is in flight.
    fn reap(&mut self, index: u32, now_ns: u64) {
        let Some(socket) = self.sockets.get_mut(index as usize).and_then(Option::as_mut) else { return };
        let address = socket.address;
        let mut cx = self.resources.cx(now_ns, address);
        socket.conn.pair.lost(&mut cx);
        let (now, before) = socket.recount();
        self.in_progress = self.in_progress + now - before;
        if socket.fd.take().is_some() {
            socket.tls = None;
            self.resources.shared.connection_closed();
        }
        if !socket.conn.pair.is_drained() {
            return;
        }
        socket.conn.pair.on_drained(&mut self.resources.cx(now_ns, address));
        self.sockets[index as usize] = None;
        self.deadlines[index as usize] = u64::MAX;
        self.free.push(index);
        self.open -= 1;
        self.resources.accounting.counters.set_connections(u64::from(self.open));
    }
}

impl IoThread for TargetThread {
    fn id(&self) -> u32 {
        u32::from(self.id)
    }

    fn poll(&mut self, now_ns: u64) -> Polled {
        self.step(now_ns, true)
    }

    fn needs_poll(&mut self, now_ns: u64) -> bool {
        let due_ns = self.next_tick_ns.min(self.resources.tasks.due_ns());
        let needs = self.has_work || now_ns >= due_ns || !self.inbox.is_empty();
        if !needs {
            self.polled_ns = now_ns; // a poll would have found no work
        }
        needs
    }

    fn poll_unreadable(&mut self, now_ns: u64) -> Polled {
        self.step(now_ns, false)
    }

    fn set_completions(&mut self, mode: CompletionMode) {
        self.resources.namespaces.set_completions(mode);
    }

    fn prepare_wait(&mut self, now_ns: u64) -> Option<u64> {
        self.prepare(now_ns)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.resources.epoll.as_fd())
    }

    fn watch_fd(&self) -> Option<BorrowedFd<'_>> {
        if self.open <= WATCHED_CONNECTIONS { self.wait_fd() } else { None }
    }

    fn end_wait(&mut self) {
        self.disarm();
        self.polled_ns = u64::MAX; // do not count the wait as a gap
    }
}
