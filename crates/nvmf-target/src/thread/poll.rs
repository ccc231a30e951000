//! One poll of an I/O thread: messages, sockets, backends, waiting commands, deadlines.

use std::mem::MaybeUninit;

use pilotlight_nvmf_proto::queue_pair::connection_of;
use pilotlight_nvmf_proto::services::NamespaceTable as _;
use pilotlight_reactor::Polled;
use rustix::event::epoll;

use super::socket::Resources;
use super::tasks::is_background;
use super::wait::{BELL, DOORBELL};
use super::{NO_WAIT, TargetThread};
use crate::thread::moves::os_thread_id;

/// Socket events taken in one poll.
const EVENTS: usize = 128;
/// Messages taken in one poll: bounds the delay of sockets and backends. A new connection costs a few microseconds.
const MESSAGES: usize = 32;
/// Interval of deadline checks, in nanoseconds.
const TICK_NS: u64 = 10_000_000;

/// Time after which a stalled host is disconnected while others get no memory, in nanoseconds.
const STALL_TIMEOUT_NS: u64 = 2_000_000_000;
/// Interval of checks for stalled hosts, in nanoseconds.
const STALL_CHECK_NS: u64 = 100_000_000;

impl TargetThread {
    /// One poll; skips the sockets if none is ready.
    pub(super) fn step(&mut self, now_ns: u64, sockets: bool) -> Polled {
        let os_thread = os_thread_id();
        if os_thread != self.os_thread {
            self.note_move(os_thread, now_ns);
        }
        self.polled_ns = now_ns;
        let mut busy = false;
        for _ in 0..MESSAGES {
            let Some(message) = self.inbox.take() else { break };
            self.on_message(message, now_ns);
            busy = true;
        }
        busy |= !self.sweeps.is_empty() && self.poll_sweeps(now_ns);
        let (events, mut requests) = if sockets { self.poll_sockets(now_ns) } else { (false, 0) };
        busy |= events;
        busy |= self.poll_backends(now_ns);
        if !self.preempting.is_empty() {
            self.poll_preempting();
        }
        busy |= self.resources.accounting.caps.has_throttled() && self.poll_throttled(now_ns);
        let (moved, buffered) = self.poll_waiting(now_ns);
        busy |= moved;
        requests += buffered;
        busy |= self.resources.shared.background.is_used() && self.poll_background(now_ns, requests);
        if self.resources.namespaces.has_unchecked() {
            self.check_references(now_ns);
        }
        let due = self.tick(now_ns);
        assert!(self.resources.namespaces.loans().is_empty(), "loans end within a poll");
        self.idle = !busy && !due;
        self.resources.out.flush();
        let Resources { accounting, namespaces, .. } = &mut self.resources;
        accounting.latency_batch.record(now_ns, &accounting.counters, namespaces);
        let over = self.draining && self.open == 0 && self.inbox.is_empty() && self.resources.out.is_empty();
        let finished = over && self.resources.retire_channels();
        self.has_work = (self.has_work || !self.idle) && self.needs_polling();
        Polled { requests, in_progress: self.in_progress, busy, finished }
    }

    /// Whether there is work that needs polling: commands in progress or waiting, unsent messages, requests in the backends,
    /// draining.
    fn needs_polling(&self) -> bool {
        self.in_progress > 0
            || !self.waiting.is_empty()
            || self.resources.accounting.caps.has_throttled()
            || self.draining
            || !self.sweeps.is_empty()
            || !self.resources.out.is_empty()
            || self.resources.namespaces.needs_poll()
    }

    fn poll_sockets(&mut self, now_ns: u64) -> (bool, u32) {
        let mut room = [const { MaybeUninit::uninit() }; EVENTS];
        let Ok((events, _)) = epoll::wait(&self.resources.epoll, &mut room, Some(&NO_WAIT)) else {
            return (true, 0); // interrupted by a signal: retried in the next poll
        };
        let (mut busy, mut requests) = (false, 0);
        for event in events.iter() {
            let token = event.data.u64();
            if token == DOORBELL || token == BELL {
                continue; // it only ends a wait: inbox and backends are checked in every poll
            }
            requests += self.on_socket_event(token as u32, event.flags, now_ns);
            busy = true;
        }
        (busy, requests)
    }

    fn on_socket_event(&mut self, index: u32, flags: epoll::EventFlags, now_ns: u64) -> u32 {
        let Some(socket) = self.sockets.get_mut(index as usize).and_then(Option::as_mut) else { return 0 };
        socket.conn.pair.refill();
        let over = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(over) {
            // Commands sent before the host closed the connection are not executed: the host does not wait for them.
            let address = socket.address;
            socket.conn.pair.lost(&mut self.resources.cx(now_ns, address));
        } else if flags.contains(epoll::EventFlags::IN) {
            socket.read(&mut self.resources, now_ns);
        }
        if flags.contains(epoll::EventFlags::OUT) {
            socket.flush(&mut self.resources, now_ns);
        }
        let requests = socket.conn.pair.take_requests();
        self.settle(index, now_ns);
        requests
    }

    pub(super) fn poll_backends(&mut self, now_ns: u64) -> bool {
        let mut done = std::mem::take(&mut self.done);
        self.resources.namespaces.poll(now_ns, &mut done, &self.resources.shared.reaper);
        let busy = !done.is_empty();
        for completion in done.drain(..) {
            let index = connection_of(completion.tag);
            if is_background(completion.tag) {
                self.resources.end_background(completion, now_ns);
                continue;
            }
            let Some(socket) = self.sockets.get_mut(index as usize).and_then(Option::as_mut) else {
                unreachable!("a connection exists until its last request completes")
            };
            let address = socket.address;
            socket.conn.pair.on_completion(completion, &mut self.resources.cx(now_ns, address));
            self.settle_later(index);
        }
        self.done = done;
        busy
    }

    /// Settles the connection at the end of this poll: one send for many completions.
    fn settle_later(&mut self, index: u32) {
        if let Some(socket) = self.sockets[index as usize].as_mut().filter(|socket| !socket.listed) {
            socket.listed = true;
            self.waiting.push(index);
        }
    }

    /// Retries commands throttled by a bandwidth cap, if due.
    #[cold]
    fn poll_throttled(&mut self, now_ns: u64) -> bool {
        let Resources { accounting, shared, .. } = &mut self.resources;
        let Some(due) = accounting.caps.take_due(&shared.caps, now_ns) else { return false };
        let mut admitted = false;
        for &index in &due {
            let Some(socket) = self.sockets[index as usize].as_mut() else { continue };
            let address = socket.address;
            if socket.conn.pair.run_throttled(&mut self.resources.cx(now_ns, address)) {
                self.settle_later(index);
                admitted = true;
            }
        }
        self.resources.accounting.caps.return_list(due);
        admitted
    }

    /// Whether any advanced, and the commands that were received.
    fn poll_waiting(&mut self, now_ns: u64) -> (bool, u32) {
        if self.waiting.is_empty() {
            return (false, 0);
        }
        std::mem::swap(&mut self.waiting, &mut self.waiting_now);
        let (mut moved, mut requests) = (false, 0);
        for at in 0..self.waiting_now.len() {
            let index = self.waiting_now[at];
            let Some(socket) = self.sockets[index as usize].as_mut() else { continue };
            socket.listed = false;
            socket.conn.pair.refill();
            if socket.has_buffered() {
                moved |= socket.read_encrypted(&mut self.resources, now_ns);
                requests += socket.conn.pair.take_requests();
            }
            let address = socket.address;
            moved |= socket.conn.pair.run_waiting(&mut self.resources.cx(now_ns, address));
            self.settle(index, now_ns);
        }
        self.waiting_now.clear();
        (moved, requests)
    }

    /// Checks the deadlines if due; returns whether any has passed.
    fn tick(&mut self, now_ns: u64) -> bool {
        if now_ns < self.next_tick_ns {
            return false;
        }
        self.next_tick_ns = now_ns + TICK_NS;
        self.resources.accounting.caps.empty_idle(now_ns);
        self.resources.sampler.tick();
        let mut due = false;
        for index in 0..self.deadlines.len() {
            if self.deadlines[index] > now_ns {
                continue;
            }
            let Some(address) = self.sockets[index].as_ref().map(|socket| socket.address) else { continue };
            self.with(address, now_ns, |socket, cx| socket.conn.pair.on_deadline(cx));
            due = true;
        }
        if now_ns >= self.next_stall_check_ns && self.resources.memory.take_refusal() {
            self.next_stall_check_ns = now_ns + STALL_CHECK_NS;
            self.end_stalled(now_ns);
            due = true;
        }
        due
    }

    /// Ends the connections of stalled hosts, because queues without memory were refused.
    fn end_stalled(&mut self, now_ns: u64) {
        self.each(now_ns, |socket, cx| {
            if socket.conn.pair.stalled_since_ns().saturating_add(STALL_TIMEOUT_NS) < now_ns {
                let (host, peer) = (socket.conn.pair.host().map(|host| host.hostnqn.as_str()), socket.conn.pair.peer());
                tracing::warn!(host, %peer, reason = "stalled while memory is short", "connection ended");
                socket.conn.pair.lost(cx);
            }
        });
    }
}
