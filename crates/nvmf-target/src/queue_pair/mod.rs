//! A queue pair: commands in, answers out, above a transport that it knows by a trait only.
//!
//! A queue pair begins when its host has been let in with Connect, and ends by Disconnect, by the peer, with its association,
//! or because its transport says so. There is no PDU, no socket and no clock here: bytes are the business of the
//! [`Transport`], time is an argument. Its parts, a file each:
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | how far a queue pair has come; its end |
//! | `transport.rs` | what it asks of the transport |
//! | `cx.rs` | what it may touch of its I/O thread |
//! | `connect.rs` | Connect, leaving and entering associations |
//! | `refusal.rs` | why a Connect is refused |
//! | `hand_over.rs` | connections that another I/O thread is to serve |
//! | `io.rs` | commands: accepted, made to wait, completed |
//! | `expect.rs` | which reads the backend is told of before they start |
//! | `step.rs` | what a command does next |
//! | `submit.rs` | requests to the backends, and what comes back |
//! | `throttle.rs` | commands that wait for a bandwidth cap |
//! | `slots.rs` | the commands in progress |
//! | `admin.rs` | the admin queue: a controller and what belongs to it |
//!
//! Properties:
//! - a write reaches a backend only after all of its data has come undamaged;
//! - nothing is submitted for an association that has ended;
//! - a command is answered exactly once, or the queue pair is over; a request in a backend outlives it;
//! - what is held in memory is bounded by the queue size and the pool.

mod admin;
mod connect;
mod counted;
mod cx;
mod expect;
mod hand_over;
mod io;
mod refusal;
pub mod slots;
mod step;
mod submit;
mod throttle;
pub mod transport;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pilotlight_nvme::{Cqe, Sqe, Status};
use zerocopy::little_endian::U16;

use crate::admission::Admission;
use crate::association::Association;
use crate::command::Work;
use crate::latency::Arrival;
use crate::memory::Share;
use crate::wait::{BUSY_RETRY_NS, Wait};

use admin::AdminQueue;
pub use admin::GONE;
use connect::Connecting;
use counted::Counted;
pub use cx::Cx;
use hand_over::HandOver;
use slots::{Slot, Slots, State};
pub use submit::connection_of;
use throttle::Throttled;
pub use transport::{InCapsule, Transport};

/// How long a connection lingers after its last answer, so that the host can read it, in nanoseconds.
const LINGER_NS: u64 = 1_000_000_000;
/// Commands of one queue pair that are started in one poll: it bounds the loop for everyone else on the core
/// (`design.md`, section 6).
pub const BUDGET: u32 = 32;
/// Answers that may wait to be sent before Connect has succeeded.
pub(crate) const EARLY_ANSWERS: usize = 16;

/// How far a queue pair has come.
#[derive(Debug)]
enum Phase {
    /// Waits for Connect; the transport may not be ready yet.
    AwaitConnect,
    /// Connect has come, and another I/O thread is to act on it.
    HandingOver(Box<HandOver>),
    /// Connect has come and waits for others.
    Connecting(Box<Connecting>),
    /// Commands are served.
    Ready,
    /// The last answer is on its way; whatever comes is thrown away.
    Closing,
    /// Over; requests in the backends may still come back.
    Dead,
}

/// What kind of queue it has become.
enum Role {
    None,
    Io(Arc<Association>),
    Admin(Box<AdminQueue>),
}

impl Role {
    /// Whether it belonged to an association that has ended.
    fn has_ended(&self) -> bool {
        matches!(self, Self::Io(association) if association.is_dead())
    }
}

/// What a queue pair has from Connect on.
struct Queue {
    qid: u16,
    size: u16,
    slots: Slots,
    /// Commands that need nothing but a backend that takes them, oldest first.
    ready: VecDeque<u16>,
    /// Commands that wait for a buffer, or for answers to leave, oldest first.
    waiting: VecDeque<u16>,
    /// Commands that wait for a bandwidth cap, oldest first.
    throttled: Throttled,
    /// Submission queue head.
    sqhd: u16,
    /// Whether the host wants to know it.
    flow_control: bool,
    /// What this queue holds of the I/O thread's memory.
    share: Share,
    /// Requests in the backends.
    in_device: usize,
    /// The queue is lost, has requests in the backends, and the register knows.
    undrained: bool,
    /// Where its commands are counted.
    counted: Counted,
    /// Its place and its memory, which come back when everything above is gone.
    admission: Admission,
}

/// What a transport does with what comes from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// Hands it over.
    Now,
    /// Keeps it: Connect is not answered yet.
    Later,
    /// Throws it away: the queue pair is at its end.
    Never,
}

/// The host has sent more commands than the queue has entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more commands than the queue has entries")]
pub struct Overrun;

/// A queue pair above a transport.
pub struct QueuePair<T> {
    /// The transport beneath.
    pub transport: T,
    /// The host's address.
    peer: SocketAddr,
    /// The local address that the host has reached.
    reached: Option<IpAddr>,
    phase: Phase,
    role: Role,
    queue: Option<Queue>,
    deadline_ns: u64,
    requests: u32,
    /// Commands that may still be started in this poll.
    budget: u32,
    /// A backend was too busy for a command when those that wait were last tried.
    turned_away: bool,
    /// The server is stopping: what is in progress is finished, nothing new is taken.
    draining: bool,
}

impl<T: Transport> QueuePair<T> {
    /// A queue pair of the host at `peer`, which has reached us on the local address `reached` and is to send Connect until
    /// `deadline_ns`.
    #[must_use]
    pub fn new(transport: T, deadline_ns: u64, peer: SocketAddr, reached: Option<IpAddr>) -> Self {
        Self {
            transport,
            peer,
            reached,
            phase: Phase::AwaitConnect,
            role: Role::None,
            queue: None,
            deadline_ns,
            requests: 0,
            budget: BUDGET,
            turned_away: false,
            draining: false,
        }
    }

    /// The host's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The transport is ready: the host has the time that it may take until Connect.
    pub fn await_connect(&mut self, cx: &Cx) {
        self.deadline_ns = cx.now_ns + cx.shared.limits.connect_timeout_ns;
    }

    /// What the transport is to do with what comes from the host.
    #[must_use]
    pub fn intake(&self) -> Intake {
        match self.phase {
            Phase::AwaitConnect | Phase::Ready => Intake::Now,
            Phase::Connecting(_) | Phase::HandingOver(_) => Intake::Later,
            Phase::Closing | Phase::Dead => Intake::Never,
        }
    }

    /// A new poll begins: the queue pair may start commands again.
    pub fn refill(&mut self) {
        self.budget = BUDGET;
    }

    /// From now on commands in progress are finished and new ones are not taken.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether nothing is in progress that a draining server has to wait for, answers that wait to be sent included. An admin
    /// queue waits for its I/O queues: its end would be theirs, whatever they have in progress.
    #[must_use]
    pub fn is_idle(&mut self) -> bool {
        if matches!(&self.role, Role::Admin(admin) if !admin.is_alone()) {
            return false;
        }
        let parked = |slot: &Slot| matches!(slot.state, State::Free | State::Parked);
        let idle = self.queue.as_mut().is_none_or(|queue| queue.slots.iter_mut().all(|(_, slot)| parked(slot)));
        idle && self.transport.unsent_bytes() == 0
    }

    /// Asserts what the properties say about memory: for tests. Returns how many bytes the queue holds, and how many entries it
    /// has; `None` before Connect.
    pub(crate) fn assert_bounded(&self) -> Option<(usize, usize)> {
        let answers = self.transport.unsent_answers();
        let Some(queue) = &self.queue else {
            assert!(answers <= EARLY_ANSWERS + 1, "{answers} answers wait to be sent before Connect");
            return None;
        };
        let (size, in_use) = (usize::from(queue.size), queue.slots.in_use());
        let waiting = queue.waiting.len() + queue.ready.len() + queue.throttled.len();
        assert!(in_use + answers <= size + 1, "{in_use} commands and {answers} answers in a queue of {size}");
        assert!(waiting <= Slots::count(queue.size), "{waiting} commands wait in a queue of {size}");
        Some((queue.share.held(), size))
    }

    /// When [`QueuePair::on_deadline`] wants to be called, in nanoseconds; `u64::MAX` for never.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Whether the connection is to be closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.phase {
            Phase::Dead => true,
            Phase::Closing => self.deadline_ns == 0,
            _ => false,
        }
    }

    /// Whether the last answer is queued, after which nothing more will be sent.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing)
    }

    /// Since when the host has left something in memory waiting for it (data that it was asked for, answers that it does
    /// not take), in nanoseconds; `u64::MAX` if nothing waits.
    #[must_use]
    pub fn stalled_since_ns(&self) -> u64 {
        let fetching_ns = self.queue.as_ref().map_or(u64::MAX, |queue| queue.slots.oldest_fetch_ns());
        fetching_ns.min(self.transport.oldest_data_ns())
    }

    /// Whether something waits for a later poll. A Connect that waits for a message does not: the message ends it.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        matches!(&self.phase, Phase::Connecting(connecting) if connecting.is_draining())
            || self.queue.as_ref().is_some_and(|q| !q.waiting.is_empty() || !q.ready.is_empty())
    }

    /// What has to happen before commands that wait can go on, as of the last time when all of them were tried. Memory
    /// and room to send come back with events.
    #[must_use]
    pub fn wait(&self, now_ns: u64) -> Wait {
        match &self.phase {
            Phase::Connecting(connecting) => connecting.wait(now_ns),
            _ if self.turned_away => Wait::Until(now_ns + BUSY_RETRY_NS),
            _ => Wait::Event,
        }
    }

    /// Commands that have arrived on an I/O queue since the last call: what an admin queue brings is no load.
    pub fn take_requests(&mut self) -> u32 {
        std::mem::take(&mut self.requests)
    }

    /// Commands that have arrived on an I/O queue and are not answered.
    #[must_use]
    pub fn requests_in_progress(&self) -> u32 {
        match (&self.role, &self.queue) {
            (Role::Io(_), Some(queue)) => queue.slots.in_use() as u32,
            _ => 0,
        }
    }

    /// A command has come.
    ///
    /// # Errors
    /// The host has sent more commands than the queue has entries; the transport ends the connection.
    pub fn on_command(&mut self, sqe: &Sqe, data: InCapsule, cx: &mut Cx) -> Result<(), Overrun> {
        if self.draining {
            return Ok(()); // the host will find the connection closed and try elsewhere
        }
        let unsent = self.transport.unsent_answers();
        let Some(queue) = &mut self.queue else {
            if unsent >= EARLY_ANSWERS {
                return Err(Overrun); // there is no queue yet whose size could be a limit
            }
            self.first_command(sqe, data, cx);
            return Ok(());
        };
        if queue.slots.in_use() + unsent >= usize::from(queue.size) {
            return Err(Overrun);
        }
        queue.sqhd = (queue.sqhd + 1) % queue.size;
        match &self.role {
            Role::Io(association) => {
                self.requests += 1;
                association.note_traffic();
                self.io_command(sqe, data, cx);
            }
            Role::Admin(_) => self.admin_command(sqe, data, cx),
            Role::None => {}
        }
        Ok(())
    }

    /// Answers a command that never got a slot.
    fn refuse(&mut self, cid: u16, status: Status, result: u64) {
        let mut cqe = Cqe::new(cid, status, result);
        if let Some(queue) = self.queue.as_ref().filter(|queue| queue.flow_control) {
            cqe.sqhd = U16::new(queue.sqhd);
        }
        self.transport.respond(cqe, Arrival::NONE);
    }

    /// Ends the connection once what is queued has been sent.
    pub(crate) fn close_after_answer(&mut self, cx: &mut Cx) {
        self.abandon(cx);
        self.phase = Phase::Closing;
        self.deadline_ns = cx.now_ns + LINGER_NS;
    }

    /// The peer is gone, or the association has ended.
    pub fn lost(&mut self, cx: &mut Cx) {
        if matches!(self.phase, Phase::Dead) {
            return;
        }
        self.transport.clear(&mut cx.memory.pool);
        if !matches!(self.phase, Phase::Closing) {
            self.abandon(cx);
        }
        self.phase = Phase::Dead;
    }

    /// Gives up every command that is not in a backend, and the association with an admin queue.
    fn abandon(&mut self, cx: &mut Cx) {
        self.transport.stop_receiving();
        self.end_association(cx);
        let Some(queue) = &mut self.queue else { return };
        queue.ready.clear();
        queue.waiting.clear();
        self.give_up_throttled(cx);
        let Some(queue) = &mut self.queue else { return };
        let given_up = |slot: &Slot| !matches!(slot.state, State::Free | State::Device);
        let ended: Vec<u16> =
            queue.slots.iter_mut().filter(|(_, slot)| given_up(slot)).map(|(index, _)| index).collect();
        for index in ended {
            self.give_up_charge(index, cx);
            self.end_slot(index, cx);
        }
        self.note_undrained(cx);
    }

    /// Gives a command's buffers back and frees its slot.
    fn end_slot(&mut self, index: u16, cx: &mut Cx) {
        let Some(queue) = &mut self.queue else { return };
        let slot = queue.slots.get(index);
        if let Some(buffer) = slot.buffer.take() {
            cx.memory.give_back(&mut queue.share, buffer);
        }
        if let Some(buffer) = slot.aux.take() {
            cx.memory.give_back(&mut queue.share, buffer);
        }
        if std::mem::take(&mut slot.missing) {
            self.transport.cancel(index);
        }
        slot.work = Work::None;
        queue.slots.end(index);
    }

    /// Whether nothing of it is left in a backend or, for an admin queue, in its other queues.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let queues_gone = match &self.role {
            Role::Admin(admin) => admin.is_alone(),
            _ => true,
        };
        !self.is_in_backend() && queues_gone
    }

    /// Whether a backend has commands of it, and so its buffers.
    #[must_use]
    pub fn is_in_backend(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.in_device > 0)
    }

    /// It is over and drained: tells whoever waits for that.
    pub fn on_drained(&mut self, cx: &mut Cx) {
        if let Some(queue) = &mut self.queue {
            cx.memory.close(&mut queue.share);
        }
        match std::mem::replace(&mut self.role, Role::None) {
            Role::Admin(admin) => cx.shared.register.end(admin.association.cntlid),
            Role::Io(association) => self.detach(&association, cx),
            Role::None => {}
        }
    }

    /// Answers have left, and with them buffers of `bytes` bytes.
    pub fn on_sent(&mut self, bytes: usize, cx: &mut Cx) {
        if let Some(queue) = &mut self.queue {
            cx.memory.release(&mut queue.share, bytes);
        }
    }

    /// [`QueuePair::deadline_ns`] has passed.
    pub fn on_deadline(&mut self, cx: &mut Cx) {
        match self.phase {
            Phase::Closing => self.deadline_ns = 0,
            Phase::AwaitConnect | Phase::HandingOver(_) => {
                let reason = "no Connect in time (limits.icreq_timeout)";
                tracing::warn!(peer = %self.peer, reason, "connection refused");
                self.lost(cx);
            }
            Phase::Connecting(_) => self.connect_timed_out(cx),
            Phase::Ready => self.check_keep_alive(cx),
            Phase::Dead => self.deadline_ns = u64::MAX,
        }
    }
}
