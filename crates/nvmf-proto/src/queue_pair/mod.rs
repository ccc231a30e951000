//! A queue pair above an abstract transport.
//!
//! It begins with Connect and ends by Disconnect, by the peer, with its association, or by its transport. It has no PDUs, no
//! socket and no clock: the [`Transport`] handles bytes, time is an argument. The files:
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | phases of a queue pair; its end |
//! | `transport.rs` | the transport trait |
//! | `cx.rs` | context of a call |
//! | `login.rs` | a connection until it is admitted |
//! | `connect.rs` | Connect |
//! | `refusal.rs` | refusals of Connect |
//! | `hand_over.rs` | connections for other I/O threads |
//! | `io.rs` | life of a command |
//! | `prefetch.rs` | prefetch hints for reads |
//! | `step.rs` | steps of a command |
//! | `submit.rs` | backend requests and completions |
//! | `fused.rs` | fused Compare and Write |
//! | `throttle.rs` | commands throttled by a bandwidth cap |
//! | `reservation.rs`, `preempt.rs` | reservation commands; the end of a preempted host's commands |
//! | `usage.rs` | usage counters |
//! | `slots.rs` | commands in progress |
//! | `admin.rs`, `rate.rs` | the admin queue; commands beyond the host's rate |
//! | `authentication.rs`, `exchange.rs` | in-band authentication |
//!
//! Properties:
//! - a write reaches a backend only after all of its data has arrived intact;
//! - nothing is submitted for an association that has ended;
//! - a command is completed exactly once, unless the queue pair ends; a request in a backend may outlive it;
//! - memory is bounded by the queue size and the pool.

mod admin;
mod authentication;
mod busy;
mod connect;
mod cx;
mod exchange;
mod fused;
mod hand_over;
mod hold;
mod io;
mod login;
pub mod message;
mod preempt;
mod prefetch;
mod rate;
mod refusal;
mod reservation;
pub mod slots;
mod step;
mod submit;
#[cfg(feature = "testing")]
mod testing;
mod throttle;
pub mod transport;
mod usage;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pilotlight_nvme::{Cqe, Sqe, Status};
use zerocopy::little_endian::U16;

use crate::arrival::Arrival;
use crate::association::Association;
use crate::command::Work;
use crate::memory::QueueQuota;
pub use crate::payload::BUDGET;
use crate::services::{AssociationRegister, Services};
use crate::unfinished::Unfinished;
use pilotlight_storage::wait::{BUSY_RETRY_NS, Wait};

use admin::AdminQueue;
pub use admin::CONTROLLER_ENDED;
use authentication::Authentication;
use connect::Connecting;
pub use cx::Cx;
use hand_over::HandOver;
use hold::Hold;
use login::Login;
use slots::{Slot, Slots, State};
pub use submit::connection_of;
use throttle::Throttled;
pub use transport::{InCapsule, Transport};
use usage::QueueUsage;

/// Time that a connection stays open after its last response, so that the host can read it, in nanoseconds.
const LINGER_NS: u64 = 1_000_000_000;
/// Maximum unsent responses before Connect has succeeded.
pub(crate) const MAX_EARLY_RESPONSES: usize = 16;

/// Phase of a queue pair.
enum Phase<S: Services> {
    /// Waits for Connect; the transport may not be ready yet.
    AwaitConnect,
    /// Connect has arrived; another I/O thread must handle it.
    HandingOver(Box<HandOver>),
    /// Connect waits.
    Connecting(Box<Connecting<S>>),
    /// Commands are served.
    Ready,
    /// The last response is being sent; received bytes are discarded.
    Closing,
    /// Ended; requests may still be in the backends.
    Ended,
}

/// Which commands a queue serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// All.
    Open,
    /// Those of authentication: the host is not authenticated yet.
    Authenticate,
    /// All, but the first command of a fused operation, in this slot, waits for its second.
    Pair(u16),
    /// None: the server is stopping. Commands in progress are finished.
    Drain,
}

/// Kind of queue.
enum Role {
    None,
    Io(Arc<Association>),
    Admin(Box<AdminQueue>),
}

/// State from Connect on.
struct Queue<S: Services> {
    qid: u16,
    size: u16,
    slots: Slots,
    /// Commands that only need a backend, oldest first.
    ready: VecDeque<u16>,
    /// Commands that need a buffer or space to send, oldest first.
    waiting: VecDeque<u16>,
    /// Commands throttled by a bandwidth cap, oldest first.
    throttled: Throttled,
    /// Submission queue head.
    sqhd: u16,
    /// Whether the host uses it.
    flow_control: bool,
    /// The memory charged to this queue.
    quota: QueueQuota,
    /// Requests in the backends.
    in_device: usize,
    /// The requests that the lost queue has in the backends, as registered.
    unfinished: Option<Arc<Unfinished>>,
    /// Its usage counters.
    usage: QueueUsage<S::Account>,
    /// Its admission, released last.
    admission: S::Admission,
}

impl<S: Services> Queue<S> {
    /// Counts a command that has arrived, with `unsent` responses queued.
    #[inline]
    fn take_entry(&mut self, unsent: usize) -> Result<(), Overrun> {
        if self.slots.in_use() + unsent >= usize::from(self.size) {
            return Err(Overrun);
        }
        self.sqhd = (self.sqhd + 1) % self.size;
        Ok(())
    }
}

/// Handling of received bytes by the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// Deliver them.
    Deliver,
    /// Keep them: Connect is not completed yet.
    Keep,
    /// Discard them: the queue pair is ending.
    Discard,
}

/// The host has exceeded the queue size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more commands than the queue has entries")]
pub struct Overrun;

/// A queue pair above a transport.
pub struct QueuePair<T, S: Services> {
    /// The transport.
    pub transport: T,
    /// The host's address.
    peer: SocketAddr,
    /// The local address of the connection.
    local: Option<IpAddr>,
    phase: Phase<S>,
    role: Role,
    queue: Option<Queue<S>>,
    deadline_ns: u64,
    requests: u32,
    /// Commands that may be started in the rest of this poll.
    budget: u32,
    /// A backend was busy when waiting commands were last retried.
    was_busy: bool,
    /// When commands that wait for earlier requests are looked at again, if there are any, and the pause after that.
    held_until_ns: Option<u64>,
    held_pause_ns: u64,
    gate: Gate,
    /// Authentication of a host that has a secret.
    authentication: Option<Box<Authentication>>,
    login: Login<S>,
    /// Counts an I/O queue on its I/O thread.
    count: Option<S::QueueCount>,
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// A queue pair of the host at `peer`, accepted at `began_ns` on the local address `local`, with `deadline_ns` for
    /// its first PDU.
    #[must_use]
    pub fn new(transport: T, began_ns: u64, deadline_ns: u64, peer: SocketAddr, local: Option<IpAddr>) -> Self {
        Self {
            transport,
            peer,
            local,
            phase: Phase::AwaitConnect,
            role: Role::None,
            queue: None,
            deadline_ns,
            requests: 0,
            budget: BUDGET,
            was_busy: false,
            held_until_ns: None,
            held_pause_ns: 0,
            gate: Gate::Open,
            authentication: None,
            login: Login::new(began_ns, deadline_ns),
            count: None,
        }
    }

    /// The host's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Handling of received bytes by the transport.
    #[must_use]
    pub fn intake(&self) -> Intake {
        match self.phase {
            Phase::AwaitConnect | Phase::Ready => Intake::Deliver,
            Phase::Connecting(_) | Phase::HandingOver(_) => Intake::Keep,
            Phase::Closing | Phase::Ended => Intake::Discard,
        }
    }

    /// Resets the number of commands that may be started, for a new poll.
    pub fn refill(&mut self) {
        self.budget = BUDGET;
    }

    /// Finishes commands in progress and accepts no new ones.
    pub fn drain(&mut self) {
        self.gate = Gate::Drain;
        self.hurry_delayed_commands();
    }

    /// Whether a draining server need not wait for it: no commands in progress, no unsent responses. An admin queue waits for
    /// its I/O queues, which would end with it.
    #[must_use]
    pub fn is_idle(&mut self) -> bool {
        if matches!(&self.role, Role::Admin(admin) if !admin.is_alone()) {
            return false;
        }
        let parked = |slot: &Slot| match slot.state {
            State::Free => true,
            State::Parked => !matches!(slot.work, Work::AwaitRate(_) | Work::AwaitReservation),
            _ => false,
        };
        let idle = self.queue.as_mut().is_none_or(|queue| queue.slots.iter_mut().all(|(_, slot)| parked(slot)));
        idle && self.transport.unsent_bytes() == 0
    }

    /// Time for [`QueuePair::on_deadline`], in nanoseconds; `u64::MAX` for never.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Whether the connection must be closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.phase {
            Phase::Ended => true,
            Phase::Closing => self.deadline_ns == 0,
            _ => false,
        }
    }

    /// Whether the last response is queued.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing)
    }

    /// Start of the oldest wait for the host (requested data, unsent responses), in nanoseconds; `u64::MAX` for none.
    #[must_use]
    pub fn stalled_since_ns(&self) -> u64 {
        let fetching_ns = self.queue.as_ref().map_or(u64::MAX, |queue| queue.slots.oldest_fetch_ns());
        fetching_ns.min(self.transport.oldest_data_ns())
    }

    /// Whether it needs a later poll. A Connect that waits for a message does not.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        matches!(&self.phase, Phase::Connecting(connecting) if connecting.is_draining())
            || self.held_until_ns.is_some()
            || self.queue.as_ref().is_some_and(|q| !q.waiting.is_empty() || !q.ready.is_empty())
    }

    /// The event for waiting commands, as of their last retry. Memory and space to send are freed by events.
    #[must_use]
    pub fn wait(&self, now_ns: u64) -> Wait {
        match &self.phase {
            Phase::Connecting(connecting) => connecting.wait(now_ns),
            _ if self.was_busy => Wait::Until(now_ns + BUSY_RETRY_NS),
            _ => self.held_until_ns.map_or(Wait::Event, Wait::Until),
        }
    }

    /// Commands that have arrived on an I/O queue since the last call; admin commands do not count as load.
    pub fn take_requests(&mut self) -> u32 {
        std::mem::take(&mut self.requests)
    }

    /// Commands in progress on an I/O queue.
    #[must_use]
    pub fn requests_in_progress(&self) -> u32 {
        match (&self.role, &self.queue) {
            (Role::Io(_), Some(queue)) => queue.slots.in_use() as u32,
            _ => 0,
        }
    }

    /// Handles a command.
    ///
    /// # Errors
    /// The host has exceeded the queue size; the transport ends the connection.
    pub fn on_command(&mut self, sqe: &Sqe, data: InCapsule, cx: &mut Cx<S>) -> Result<(), Overrun> {
        if self.gate != Gate::Open
            && let Some(handled) = self.gated_command(sqe, data, cx)
        {
            return handled;
        }
        let unsent = self.transport.unsent_responses();
        let Some(queue) = &mut self.queue else {
            if unsent >= MAX_EARLY_RESPONSES {
                return Err(Overrun); // without a queue its size is not the limit
            }
            self.first_command(sqe, data, cx);
            return Ok(());
        };
        queue.take_entry(unsent)?;
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

    /// Completes a command without a slot.
    fn refuse(&mut self, cid: u16, status: Status, result: u64) {
        let mut cqe = Cqe::new(cid, status, result);
        if let Some(queue) = self.queue.as_ref().filter(|queue| queue.flow_control) {
            cqe.sqhd = U16::new(queue.sqhd);
        }
        self.transport.respond(cqe, Arrival::NONE);
    }

    /// Ends the connection after queued responses have been sent.
    pub(crate) fn close_after_response(&mut self, cx: &mut Cx<S>) {
        self.abandon(cx);
        self.phase = Phase::Closing;
        self.deadline_ns = cx.now_ns + LINGER_NS;
    }

    /// Ends the queue pair: the peer is lost, or the association has ended.
    pub fn lost(&mut self, cx: &mut Cx<S>) {
        if matches!(self.phase, Phase::Ended) {
            return;
        }
        self.transport.clear(&mut cx.memory.pool);
        self.login.pending = None;
        if !matches!(self.phase, Phase::Closing) {
            self.abandon(cx);
        }
        self.phase = Phase::Ended;
    }

    /// Drops every command that is not in a backend, and ends an admin queue's association.
    fn abandon(&mut self, cx: &mut Cx<S>) {
        self.transport.stop_receiving();
        self.count = None;
        self.end_association(cx);
        let Some(queue) = &mut self.queue else { return };
        queue.ready.clear();
        queue.waiting.clear();
        self.clear_throttled(cx);
        let Some(queue) = &mut self.queue else { return };
        let is_dropped = |slot: &Slot| !matches!(slot.state, State::Free | State::Device);
        let ended: Vec<u16> =
            queue.slots.iter_mut().filter(|(_, slot)| is_dropped(slot)).map(|(index, _)| index).collect();
        for index in ended {
            self.return_charge(index, cx);
            self.end_slot(index, cx);
        }
        self.note_unfinished(cx);
    }

    /// Frees a command's buffers and its slot.
    fn end_slot(&mut self, index: u16, cx: &mut Cx<S>) {
        let Some(queue) = &mut self.queue else { return };
        let slot = queue.slots.get(index);
        if let Some(buffer) = slot.buffer.take() {
            cx.memory.free(&mut queue.quota, buffer);
        }
        if let Some(buffer) = slot.aux.take() {
            cx.memory.free(&mut queue.quota, buffer);
        }
        if std::mem::take(&mut slot.missing) {
            self.transport.cancel(index);
        }
        slot.work = Work::None;
        queue.slots.end(index);
    }

    /// Whether no request is in a backend and, for an admin queue, no I/O queue is left.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let has_no_queues = match &self.role {
            Role::Admin(admin) => admin.is_alone(),
            _ => true,
        };
        !self.is_in_backend() && has_no_queues
    }

    /// Whether requests, and so buffers, are in a backend.
    #[must_use]
    pub fn is_in_backend(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.in_device > 0)
    }

    /// Notifies the register or the controller that the queue pair has ended and is drained.
    pub fn on_drained(&mut self, cx: &mut Cx<S>) {
        if let Some(queue) = &mut self.queue {
            cx.memory.close(&mut queue.quota);
        }
        match std::mem::replace(&mut self.role, Role::None) {
            Role::Admin(admin) => cx.services.associations().remove(admin.association.cntlid),
            Role::Io(association) => self.detach(&association, cx),
            Role::None => {}
        }
    }

    /// Releases `bytes` bytes of buffers of sent responses.
    pub fn on_sent(&mut self, bytes: usize, cx: &mut Cx<S>) {
        if let Some(queue) = &mut self.queue {
            cx.memory.release(&mut queue.quota, bytes);
        }
    }

    /// Handles [`QueuePair::deadline_ns`].
    pub fn on_deadline(&mut self, cx: &mut Cx<S>) {
        match self.phase {
            Phase::Closing => self.deadline_ns = 0,
            Phase::AwaitConnect | Phase::HandingOver(_) => {
                let reason = "no first PDU (limits.icreq_timeout), or no Connect, in time";
                tracing::warn!(peer = %self.peer, reason, "connection refused");
                self.lost(cx);
            }
            Phase::Connecting(_) => self.connect_timed_out(cx),
            Phase::Ready => {
                if !self.check_authentication(cx) {
                    self.check_keep_alive(cx);
                }
            }
            Phase::Ended => self.deadline_ns = u64::MAX,
        }
    }
}
