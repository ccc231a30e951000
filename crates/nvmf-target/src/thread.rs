//! An I/O thread of the target: its sockets, its own epoll descriptor, timers, inbox, buffers and channels, in one box
//! that a reactor polls and that can move to another reactor between two polls.
//!
//! One poll: messages, what the sockets have, what the backends have finished, commands that wait, and then one send for
//! each connection that has something to say. Connections share one large read buffer; only the beginning of an
//! incomplete PDU is kept with its connection, so a silent connection costs little. Between two polls it can wait in the
//! kernel instead (`thread/wait.rs`).

mod background;
mod end;
mod hand_over;
mod link;
mod poll;
mod wait;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use pilotlight_reactor::{CompletionMode, Inbox, IoThread, Polled};
use rustix::event::epoll;

use crate::association::{Association, HostKey};
use crate::backend::Completion;
use crate::background::tasks::Tasks;
use crate::buffer::BufferPool;
use crate::caps::CapsHere;
use crate::departures::{Clock, Departures};
use crate::latency::Sampler;
use crate::listing::NamespaceList;
use crate::memory::Memory;
use crate::message::{ConnAddr, Message, NamespaceChange, Outbox};
use crate::moves::InProgress;
use crate::namespaces::Namespaces;
use crate::queue_pair::{Cx, GONE};
use crate::server::Shared;
use crate::stats::Counters;
use crate::tcp::Connection;
use crate::views::ViewId;
use link::{Link, Resources, SCRATCH, readable};

/// Completions collected in one poll.
const COMPLETIONS: usize = 256;
/// Connections of an I/O thread up to which its reactor may watch its descriptor: registering it takes 9 us then.
const WATCHED_CONNECTIONS: u32 = 128;

const NO_WAIT: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };

/// An I/O thread of the target.
pub struct TargetThread {
    id: u16,
    inbox: Inbox<Message>,
    resources: Resources,
    links: Vec<Option<Box<Link>>>,
    /// Each link's deadline, side by side so that looking at ten thousand is quick.
    deadlines: Vec<u64>,
    free: Vec<u32>,
    serial: u32,
    done: Vec<Completion>,
    /// Links with waiting commands.
    waiting: Vec<u32>,
    waiting_now: Vec<u32>,
    next_tick_ns: u64,
    next_relief_ns: u64,
    open: u32,
    /// I/O commands that have arrived and are not answered, of all links.
    in_progress: u32,
    draining: bool,
    /// Connections that barriers have looked at: for tests.
    barrier_looks: u64,
    /// Where it was last polled, and when.
    polled_at: usize,
    polled_ns: u64,
    /// The last poll came to nothing: every command that waits has been tried since anything changed.
    quiet: bool,
    /// Something is to be polled for: neither a message nor a socket nor a timer brings it on.
    in_hand: bool,
}

/// What an I/O thread holds.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Connections, those included that are over and have requests in the backends.
    pub connections: u32,
    /// I/O commands that have arrived and are not answered.
    pub commands: u32,
    /// Buffers that are out of the pool.
    pub buffers: usize,
    /// Bytes that queues hold, as the books have it.
    pub booked: usize,
    /// Requests in the backends.
    pub in_backends: usize,
}

/// What an I/O thread is made of.
pub struct ThreadParts {
    /// Its number.
    pub id: u16,
    /// Its inbox.
    pub inbox: Inbox<Message>,
    /// Where its messages go.
    pub out: Outbox,
    /// Bytes of its buffers.
    pub pool_bytes: usize,
    /// What it counts.
    pub counters: Arc<Counters>,
    /// What its latencies are measured with.
    pub clock: Clock,
    /// What all share.
    pub shared: Arc<Shared>,
}

impl TargetThread {
    /// An I/O thread without connections.
    ///
    /// # Errors
    /// If the system has no memory or descriptor left.
    pub fn new(parts: ThreadParts) -> std::io::Result<Self> {
        let thread = Self {
            id: parts.id,
            inbox: parts.inbox,
            resources: Resources {
                out: parts.out,
                memory: Memory::new(BufferPool::new(parts.pool_bytes)?),
                namespaces: Namespaces::new()?,
                caps: CapsHere::default(),
                counters: parts.counters,
                departures: Departures::new(parts.clock),
                sampler: Sampler::default(),
                shared: parts.shared,
                epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
                scratch: vec![0; SCRATCH].into_boxed_slice(),
                tasks: Tasks::default(),
            },
            links: Vec::new(),
            deadlines: Vec::new(),
            free: Vec::new(),
            serial: 0,
            done: Vec::with_capacity(COMPLETIONS),
            waiting: Vec::new(),
            waiting_now: Vec::new(),
            next_tick_ns: 0,
            next_relief_ns: 0,
            open: 0,
            in_progress: 0,
            draining: false,
            barrier_looks: 0,
            polled_at: 0,
            polled_ns: 0,
            quiet: false,
            in_hand: true,
        };
        thread.watch_bells()?;
        Ok(thread)
    }

    /// What this I/O thread holds now: for tests. Checks that it is bounded as the files say.
    #[doc(hidden)]
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.links.iter().flatten().for_each(|link| link.conn.assert_bounded());
        let memory = &self.resources.memory;
        let in_backends = self.resources.namespaces.in_flight();
        let commands = self.links.iter().flatten().map(|link| link.conn.pair.requests_in_progress()).sum();
        assert_eq!(self.in_progress, commands, "commands in progress are counted as they come and go");
        let buffers = memory.pool.outstanding();
        Usage { connections: self.open, commands, buffers, booked: memory.booked(), in_backends }
    }

    /// Whether a message waits for this thread: for tests.
    pub(crate) fn has_messages(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Connections that barriers have looked at so far: for tests.
    pub(crate) fn barrier_looks(&self) -> u64 {
        self.barrier_looks
    }

    /// Whether the last poll came to nothing, deadlines included: for tests.
    pub(crate) fn came_to_nothing(&self) -> bool {
        self.quiet
    }

    /// What is in progress now: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn in_progress(&self) -> InProgress {
        let mut sum = InProgress { in_backends: self.resources.namespaces.in_flight() as u64, ..InProgress::default() };
        for one in self.links.iter().flatten().map(|link| link.conn.in_progress()) {
            sum.partial_pdus += one.partial_pdus;
            sum.open_r2ts += one.open_r2ts;
            sum.unfinished_sends += one.unfinished_sends;
        }
        sum
    }

    /// The first poll on another OS thread.
    #[cold]
    fn note_move(&mut self, here: usize, now_ns: u64) {
        if self.polled_at != 0 {
            let found = self.resources.shared.looks_at_moves().then(|| self.in_progress());
            self.resources.counters.moves.moved(now_ns.saturating_sub(self.polled_ns), found);
        }
        self.polled_at = here;
    }

    fn on_message(&mut self, message: Message, now_ns: u64) {
        match message {
            Message::Accept(socket, peer) => self.accept(socket, peer, now_ns),
            Message::HandOver(socket, conn) => self.take_over(socket, conn, now_ns),
            Message::Attach { admin, qid, queue } => {
                let known = self.with(admin, now_ns, |link, cx| link.conn.pair.on_attach(qid, queue, cx));
                let result = known.unwrap_or(Err(GONE));
                self.resources.out.send(queue.thread, Message::Attached { admin, qid, queue, result });
            }
            Message::Attached { admin, qid, queue, result } => {
                let waited = self.with(queue, now_ns, |link, cx| link.conn.pair.on_attached(admin, qid, result, cx));
                if waited != Some(true) && result.is_ok() {
                    // It is closed, at fault, or has given up waiting: what was granted is given back.
                    self.resources.out.send(admin.thread, Message::Detached { admin, qid, queue });
                }
            }
            Message::Detached { admin, qid, queue } => {
                self.with(admin, now_ns, |link, cx| link.conn.pair.on_detached(qid, queue, cx));
            }
            Message::Terminate(queue) => {
                self.with(queue, now_ns, |link, cx| link.conn.pair.lost(cx));
            }
            Message::End { associations, applied } => {
                self.end_connections(&associations, now_ns);
                drop(applied);
            }
            Message::Abort { queue, cid, admin, slot } => {
                let stopped = self.with(queue, now_ns, |link, cx| link.conn.pair.abort(cid, cx)).unwrap_or(false);
                // The aborted command's answer is sent before the Abort command's.
                self.settle(queue.index, now_ns);
                self.resources.out.send(admin.thread, Message::Aborted { admin, slot, stopped });
            }
            Message::Aborted { admin, slot, stopped } => {
                self.with(admin, now_ns, |link, cx| link.conn.pair.on_aborted(slot, stopped, cx));
            }
            Message::Barrier { host, asker } => self.on_barrier(&host, asker, now_ns),
            Message::BarrierPassed(asker) => {
                self.with(asker, now_ns, |link, _| link.conn.pair.on_barrier_passed());
            }
            Message::Namespace { subsystem, nsid, change, applied } => {
                self.on_namespace(subsystem, nsid, change, now_ns);
                drop(applied);
            }
            Message::Views { views, applied } => {
                self.resources.namespaces.set_views(&views);
                drop(applied);
            }
            Message::Listed { list, changed, applied } => {
                self.on_listed(list, &changed, now_ns);
                drop(applied);
            }
            Message::Utilization { admin, slot, generation } => {
                self.with(admin, now_ns, |link, cx| link.conn.pair.on_utilization(slot, generation, cx));
            }
            Message::Drain => {
                self.draining = true;
                self.each(now_ns, |link, _| link.conn.pair.drain());
            }
        }
    }

    /// Looks which connections `host` has closed; connections of other hosts are not looked at.
    fn on_barrier(&mut self, host: &HostKey, asker: ConnAddr, now_ns: u64) {
        let queues = self.resources.shared.register.queues_on(host, self.id);
        for queue in queues.into_iter().filter(|queue| *queue != asker) {
            self.barrier_looks += 1;
            self.with(queue, now_ns, |link, cx| {
                if link.is_hung_up() {
                    link.conn.pair.lost(cx);
                }
            });
        }
        self.resources.out.send(asker.thread, Message::BarrierPassed(asker));
    }

    fn on_namespace(&mut self, subsystem: usize, nsid: u32, change: NamespaceChange, now_ns: u64) {
        let namespaces = &mut self.resources.namespaces;
        match change {
            NamespaceChange::Added(geometry, leased) => {
                namespaces.add(subsystem, nsid, geometry, leased);
                self.each(now_ns, |link, cx| link.conn.pair.count_on(subsystem, nsid, cx));
            }
            NamespaceChange::Resized(geometry) => namespaces.resize(subsystem, nsid, geometry),
            NamespaceChange::Removed => {
                if let Some(index) = namespaces.index_of(ViewId::whole(subsystem), nsid) {
                    self.resources.caps.remove(index);
                }
                namespaces.remove(subsystem, nsid);
            }
        }
    }

    /// Every I/O thread has applied a change: hosts see it from now on.
    fn on_listed(&mut self, list: Arc<NamespaceList>, changed: &[(ViewId, u32)], now_ns: u64) {
        let before = Arc::clone(self.resources.namespaces.directory());
        self.resources.namespaces.set_list(list);
        if !Arc::ptr_eq(&before, self.resources.namespaces.directory()) {
            self.each(now_ns, |link, cx| link.conn.pair.on_directory_changed(cx));
        }
        self.update_tasks(now_ns);
        if !changed.is_empty() {
            // also of queues that have connected since the namespaces were added here
            self.each(now_ns, |link, cx| link.conn.pair.count_on_listed(cx));
        }
        for &(view, nsid) in changed {
            self.each(now_ns, |link, cx| link.conn.pair.on_namespace_changed(view, nsid, cx));
        }
    }

    fn accept(&mut self, socket: OwnedFd, peer: SocketAddr, now_ns: u64) {
        if self.draining {
            return;
        }
        let reached = rustix::net::getsockname(&socket).ok().and_then(|name| SocketAddr::try_from(name).ok());
        let timeout_ns = self.resources.shared.limits.icreq_timeout_ns;
        let conn = Connection::new(now_ns, timeout_ns, peer, reached.map(|address| address.ip()));
        self.serve(socket, conn);
    }

    /// Gives a connection a place; its address.
    fn serve(&mut self, socket: OwnedFd, conn: Connection) -> Option<ConnAddr> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.deadlines.push(u64::MAX);
            self.links.len() as u32 - 1
        });
        let data = epoll::EventData::new_u64(u64::from(index));
        if let Err(error) = epoll::add(&self.resources.epoll, &socket, data, readable()) {
            let reason = "its socket cannot be watched";
            tracing::warn!(peer = %conn.pair.peer(), reason, %error, "connection refused");
            self.free.push(index);
            self.resources.shared.connection_closed();
            return None;
        }
        self.serial = self.serial.wrapping_add(1);
        let address = ConnAddr { thread: self.id, index, serial: self.serial };
        self.deadlines[index as usize] = conn.pair.deadline_ns();
        self.links[index as usize] = Some(Box::new(Link {
            socket: Some(socket),
            conn,
            address,
            interest: readable(),
            listed: false,
            shut: false,
            counted: 0,
            is_stamping: false,
        }));
        self.open += 1;
        self.resources.counters.set_connections(u64::from(self.open));
        Some(address)
    }

    /// Calls `f` on the connection at `address`, if it is still the same, and deals with what follows.
    fn with<R>(&mut self, address: ConnAddr, now_ns: u64, f: impl FnOnce(&mut Link, &mut Cx) -> R) -> Option<R> {
        let link = self.links.get_mut(address.index as usize)?.as_mut().filter(|link| link.address == address)?;
        let result = f(link, &mut self.resources.cx(now_ns, address));
        self.settle(address.index, now_ns);
        Some(result)
    }

    /// Ends every connection of these associations.
    fn end_connections(&mut self, associations: &[Arc<Association>], now_ns: u64) {
        let of_these = self.links.iter().flatten().filter(|link| link.conn.pair.is_of(associations));
        let ended: Vec<ConnAddr> = of_these.map(|link| link.address).collect();
        for address in ended {
            self.with(address, now_ns, |link, cx| link.conn.pair.lost(cx));
        }
    }

    /// Calls `f` on every connection.
    fn each(&mut self, now_ns: u64, mut f: impl FnMut(&mut Link, &mut Cx)) {
        for index in 0..self.links.len() {
            let Some(link) = &mut self.links[index] else { continue };
            let address = link.address;
            f(link, &mut self.resources.cx(now_ns, address));
            self.settle(index as u32, now_ns);
        }
    }

    /// After a connection was touched: sends what it has to say, notes what it waits for, and buries it if it is over.
    fn settle(&mut self, index: u32, now_ns: u64) {
        let at = index as usize;
        let Some(link) = self.links.get_mut(at).and_then(Option::as_mut) else { return };
        if let Some(to) = link.conn.pair.handed_to() {
            return self.hand_over(index, to);
        }
        // A socket that takes no more says when it does.
        if !link.conn.blocked && (!link.conn.pair.transport.tx.is_empty() || link.conn.pair.is_closing()) {
            link.flush(&mut self.resources, now_ns);
        }
        link.end_loans(&mut self.resources);
        if self.draining && link.socket.is_some() && link.conn.pair.is_idle() {
            let address = link.address;
            link.conn.pair.lost(&mut self.resources.cx(now_ns, address));
        }
        self.deadlines[at] = link.conn.pair.deadline_ns();
        let (now, before) = link.recount();
        self.in_progress = self.in_progress + now - before;
        if link.conn.pair.is_over() {
            self.bury(index, now_ns);
        } else if link.conn.pair.has_waiting() && !link.listed {
            link.listed = true;
            self.waiting.push(index);
        }
    }

    /// Closes the socket of a connection that is over, and forgets it once nothing of it is in flight.
    fn bury(&mut self, index: u32, now_ns: u64) {
        let Some(link) = self.links.get_mut(index as usize).and_then(Option::as_mut) else { return };
        let address = link.address;
        let mut cx = self.resources.cx(now_ns, address);
        link.conn.pair.lost(&mut cx);
        let (now, before) = link.recount();
        self.in_progress = self.in_progress + now - before;
        if link.socket.take().is_some() {
            self.resources.shared.connection_closed();
        }
        if !link.conn.pair.is_drained() {
            return;
        }
        link.conn.pair.on_drained(&mut self.resources.cx(now_ns, address));
        self.links[index as usize] = None;
        self.deadlines[index as usize] = u64::MAX;
        self.free.push(index);
        self.open -= 1;
        self.resources.counters.set_connections(u64::from(self.open));
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
        let needs = self.in_hand || now_ns >= due_ns || !self.inbox.is_empty();
        if !needs {
            self.polled_ns = now_ns; // a poll would have come to nothing
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
        self.polled_ns = u64::MAX; // how long it was away says nothing
    }
}
