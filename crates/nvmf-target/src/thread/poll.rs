//! One poll of an I/O thread: messages, sockets, backends, commands that wait, deadlines.

use std::mem::MaybeUninit;

use pilotlight_reactor::Polled;
use rustix::event::epoll;

use super::link::Resources;
use super::wait::{BELL, DOORBELL};
use super::{NO_WAIT, TargetThread};
use crate::background::tasks::is_background;
use crate::moves::here;
use crate::queue_pair::connection_of;

/// Socket events taken in one poll.
const EVENTS: usize = 128;
/// Messages taken out of the inbox in one poll: a storm of them must not keep sockets and backends waiting. A new connection
/// costs a few microseconds.
const MESSAGES: usize = 32;
/// Time between two looks at the deadlines, in nanoseconds.
const TICK_NS: u64 = 10_000_000;

/// How long a host may let data wait in memory while others get none, in nanoseconds.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Time between two looks for such hosts, in nanoseconds.
const RELIEF_NS: u64 = 100_000_000;

impl TargetThread {
    /// One poll; leaves the sockets out if none of them has anything.
    pub(super) fn step(&mut self, now_ns: u64, sockets: bool) -> Polled {
        let here = here();
        if here != self.polled_at {
            self.note_move(here, now_ns);
        }
        self.polled_ns = now_ns;
        let mut busy = false;
        for _ in 0..MESSAGES {
            let Some(message) = self.inbox.take() else { break };
            self.on_message(message, now_ns);
            busy = true;
        }
        let (events, requests) = if sockets { self.poll_sockets(now_ns) } else { (false, 0) };
        busy |= events;
        busy |= self.poll_backends(now_ns);
        busy |= self.resources.caps.has_throttled() && self.poll_throttled(now_ns);
        busy |= self.poll_waiting(now_ns);
        busy |= self.resources.shared.background.is_used() && self.poll_background(now_ns, requests);
        let due = self.tick(now_ns);
        assert!(self.resources.namespaces.loans().is_empty(), "what a poll borrows it gives back");
        self.quiet = !busy && !due;
        self.resources.out.flush();
        let Resources { departures, counters, namespaces, .. } = &mut self.resources;
        departures.record(now_ns, counters, namespaces);
        let over = self.draining && self.open == 0 && self.inbox.is_empty() && self.resources.out.is_empty();
        let finished = over && self.resources.retire_channels();
        self.in_hand = (self.in_hand || !self.quiet) && self.has_in_hand();
        Polled { requests, in_progress: self.in_progress, busy, finished }
    }

    /// Whether there is something that polls have to bring on: commands in progress or waiting, messages for others that had no
    /// room, requests in the backends, the end.
    fn has_in_hand(&self) -> bool {
        self.in_progress > 0
            || !self.waiting.is_empty()
            || self.resources.caps.has_throttled()
            || self.draining
            || !self.resources.out.is_empty()
            || self.resources.namespaces.needs_poll()
    }

    fn poll_sockets(&mut self, now_ns: u64) -> (bool, u32) {
        let mut room = [const { MaybeUninit::uninit() }; EVENTS];
        let Ok((events, _)) = epoll::wait(&self.resources.epoll, &mut room, Some(&NO_WAIT)) else {
            return (true, 0); // interrupted by a signal: the next poll looks again
        };
        let (mut busy, mut requests) = (false, 0);
        for event in events.iter() {
            let what = event.data.u64();
            if what == DOORBELL || what == BELL {
                continue; // it has ended a wait; inbox and backends are looked at in every poll
            }
            requests += self.on_socket_event(what as u32, event.flags, now_ns);
            busy = true;
        }
        (busy, requests)
    }

    fn on_socket_event(&mut self, index: u32, flags: epoll::EventFlags, now_ns: u64) -> u32 {
        let Some(link) = self.links.get_mut(index as usize).and_then(Option::as_mut) else { return 0 };
        link.conn.pair.refill();
        let over = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(over) {
            // What a host sent before it closed the connection is not carried out: it does not wait for it.
            let address = link.address;
            link.conn.pair.lost(&mut self.resources.cx(now_ns, address));
        } else if flags.contains(epoll::EventFlags::IN) {
            link.read(&mut self.resources, now_ns);
        }
        if flags.contains(epoll::EventFlags::OUT) {
            link.flush(&mut self.resources, now_ns);
        }
        let requests = link.conn.pair.take_requests();
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
            let Some(link) = self.links.get_mut(index as usize).and_then(Option::as_mut) else {
                unreachable!("a connection stays until its last request is back")
            };
            let address = link.address;
            link.conn.pair.on_completion(completion, &mut self.resources.cx(now_ns, address));
            self.dirty(index);
        }
        self.done = done;
        busy
    }

    /// Has the connection settled at the end of this poll: one send for many completions.
    fn dirty(&mut self, index: u32) {
        if let Some(link) = self.links[index as usize].as_mut().filter(|link| !link.listed) {
            link.listed = true;
            self.waiting.push(index);
        }
    }

    /// Tries commands again that a bandwidth cap has held back, if it is time.
    #[cold]
    fn poll_throttled(&mut self, now_ns: u64) -> bool {
        let Resources { caps, shared, .. } = &mut self.resources;
        let Some(due) = caps.take_due(&shared.caps, now_ns) else { return false };
        let mut admitted = false;
        for &index in &due {
            let Some(link) = self.links[index as usize].as_mut() else { continue };
            let address = link.address;
            if link.conn.pair.run_throttled(&mut self.resources.cx(now_ns, address)) {
                self.dirty(index);
                admitted = true;
            }
        }
        self.resources.caps.return_list(due);
        admitted
    }

    fn poll_waiting(&mut self, now_ns: u64) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.waiting, &mut self.waiting_now);
        let mut moved = false;
        for at in 0..self.waiting_now.len() {
            let index = self.waiting_now[at];
            let Some(link) = self.links[index as usize].as_mut() else { continue };
            link.listed = false;
            link.conn.pair.refill();
            let address = link.address;
            moved |= link.conn.pair.run_waiting(&mut self.resources.cx(now_ns, address));
            self.settle(index, now_ns);
        }
        self.waiting_now.clear();
        moved
    }

    /// Looks at the deadlines if it is time; returns whether any was due.
    fn tick(&mut self, now_ns: u64) -> bool {
        if now_ns < self.next_tick_ns {
            return false;
        }
        self.next_tick_ns = now_ns + TICK_NS;
        self.resources.caps.empty_idle(now_ns);
        self.resources.sampler.tick();
        let mut due = false;
        for index in 0..self.deadlines.len() {
            if self.deadlines[index] > now_ns {
                continue;
            }
            let Some(address) = self.links[index].as_ref().map(|link| link.address) else { continue };
            self.with(address, now_ns, |link, cx| link.conn.pair.on_deadline(cx));
            due = true;
        }
        if now_ns >= self.next_relief_ns && self.resources.memory.take_refusal() {
            self.next_relief_ns = now_ns + RELIEF_NS;
            self.end_stalled(now_ns);
            due = true;
        }
        due
    }

    /// There are queues that hold nothing and get nothing: ends the connections of hosts that have let something wait in
    /// memory for too long.
    fn end_stalled(&mut self, now_ns: u64) {
        self.each(now_ns, |link, cx| {
            if link.conn.pair.stalled_since_ns().saturating_add(PATIENCE_NS) < now_ns {
                let (host, peer) = (link.conn.pair.host().map(|host| host.hostnqn.as_str()), link.conn.pair.peer());
                tracing::warn!(host, %peer, reason = "memory is short and it takes or sends nothing", "connection ended");
                link.conn.pair.lost(cx);
            }
        });
    }
}
