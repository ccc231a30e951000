//! Commands: accepted, made to wait, completed.
//!
//! [`QueuePair::drive`] moves a command as far as it can go now. What stops it puts it at the end of one of the queue's
//! two lists, which every poll tries again from the front: *ready* for those that need nothing but a backend, *waiting* for
//! those that need a buffer, or answers to leave. So a command that has its data never stands behind one that waits for
//! the host, and what it holds comes back whatever the host does. A command of many steps gives way after each.

use std::collections::VecDeque;

use pilotlight_nvme::command::opcode;
use pilotlight_nvme::fabrics::fctype;
use pilotlight_nvme::{Cqe, Sqe, Status};
use zerocopy::little_endian::U16;

use super::slots::{Charged, NoSlot, Slot, State};
use super::transport::{Data, InCapsule};
use super::{Cx, Phase, Queue, QueuePair, Role, Transport};
use crate::command::{Direction, Place, Plan, Work, check_sgl, decode_io, operation_of};
use crate::latency::{Arrival, Sample};
use crate::payload::Payload;
use crate::usage::Operation;

/// Bytes waiting to be sent above which no read is started. More in one call is faster (128 KiB reads, depth 16, one connection:
/// 22 k with 256 KiB, 34 k with 512 KiB, 37 k with 768 KiB and with 1 MiB) and holds up everyone else on the core for longer.
pub(super) const TX_BUDGET: usize = 768 * 1024;

/// How far a command got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is answered, in a backend, or waits for the host.
    Gone,
    /// It cannot go on before memory is given back or answers have left.
    Stuck,
    /// The backend does not take it now.
    Busy,
    /// It can go on, after others had their turn.
    Later,
}

impl<T: Transport> QueuePair<T> {
    /// A command on an I/O queue.
    pub(super) fn io_command(&mut self, sqe: &Sqe, capsule: InCapsule, cx: &mut Cx) {
        let Role::Io(association) = &self.role else { return };
        if sqe.opcode == opcode::FABRICS {
            self.fabrics_on_io_queue(sqe, cx);
            return;
        }
        let view = association.view();
        let plan = decode_io(sqe, view, cx.namespaces);
        if let Err(status) = plan
            && let Some(namespace) = cx.namespaces.index_of(view, sqe.nsid.get())
        {
            cx.note_failure(operation_of(sqe), (namespace, Some(sqe.slba())), status, false);
        }
        self.accept(sqe, plan, capsule, cx);
    }

    fn fabrics_on_io_queue(&mut self, sqe: &Sqe, cx: &mut Cx) {
        let cid = sqe.cid.get();
        match sqe.fctype() {
            fctype::DISCONNECT => {
                let idle = self.queue.as_ref().is_some_and(|queue| queue.slots.in_use() == 0);
                if !idle {
                    self.refuse(cid, Status::COMMAND_SEQUENCE.dnr(), 0);
                    return;
                }
                self.refuse(cid, Status::SUCCESS, 0);
                self.close_after_answer(cx);
            }
            fctype::CONNECT => self.refuse(cid, Status::COMMAND_SEQUENCE.dnr(), 0),
            _ => self.refuse(cid, Status::INVALID_FIELD.dnr(), 0),
        }
    }

    /// Gives a command its slot and its first step, or refuses it.
    pub(super) fn accept(&mut self, sqe: &Sqe, plan: Result<Plan, Status>, capsule: InCapsule, cx: &mut Cx) {
        let cid = sqe.cid.get();
        let Some(queue) = &mut self.queue else { return };
        let index = match queue.slots.take(cid) {
            Ok(index) => index,
            Err(NoSlot::Conflict) => return self.refuse(cid, Status::CID_CONFLICT.dnr(), 0),
            Err(NoSlot::Full) => return self.refuse(cid, Status::INTERNAL, 0),
        };
        let checked = plan.and_then(|plan| Ok((plan, check_sgl(sqe, &plan, capsule.bytes.len())?)));
        let slot = queue.slots.get(index);
        slot.len = 0;
        slot.nsid = sqe.nsid.get();
        slot.missing = false;
        slot.expected = false;
        slot.work = Work::None;
        slot.charged = Charged::NOTHING;
        slot.arrived_ns = cx.now_ns;
        slot.sample = cx.sample;
        match checked {
            Err(status) => slot.fail(status),
            Ok(_) if !capsule.intact => slot.fail(Status::TRANSIENT_TRANSPORT),
            Ok((plan, place)) => {
                slot.work = plan.work;
                slot.len = plan.len;
                slot.missing = plan.direction == Direction::FromHost && plan.len > 0 && place != Place::InCapsule;
                if cx.shared.caps.are_in_use() && self.is_throttled(index, cx) {
                    if place == Place::InCapsule {
                        self.keep_data(index, capsule.bytes, cx);
                    }
                    return;
                }
                if place == Place::InCapsule {
                    if self.write_now(index, capsule.bytes, cx) {
                        return;
                    }
                    self.keep_data(index, capsule.bytes, cx);
                }
            }
        }
        self.make_wait(index, false);
    }

    /// Copies data that came with the command in `index` into a buffer.
    fn keep_data(&mut self, index: u16, data: &[u8], cx: &mut Cx) {
        let Some(queue) = &mut self.queue else { return };
        let slot = queue.slots.get(index);
        slot.buffer = cx.memory.take_at_once(&mut queue.share, data.len());
        if let Work::Compare(_) = slot.work {
            slot.aux = cx.memory.take_at_once(&mut queue.share, data.len());
        }
        match &mut slot.buffer {
            Some(buffer) if slot.aux.is_some() || !matches!(slot.work, Work::Compare(_)) => {
                buffer.copy_from_slice(data)
            }
            // so much at once that the memory for it is used up: it may be tried again
            _ => slot.fail(Status::INTERNAL),
        }
    }

    /// Moves the command in `index` on as far as it goes.
    pub(super) fn drive(&mut self, index: u16, cx: &mut Cx) {
        if self.step(index, cx) != Step::Gone {
            self.make_wait(index, false);
        }
    }

    pub(super) fn make_wait(&mut self, index: u16, first: bool) {
        if let Some(queue) = &mut self.queue {
            queue.make_wait(index, first);
        }
    }

    /// Tries the commands that wait, each at most once, from both lists in turn, each until its first is stuck. Returns
    /// whether anything moved: a command that waits for its host is no work.
    pub fn run_waiting(&mut self, cx: &mut Cx) -> bool {
        if matches!(self.phase, Phase::Connecting(_)) {
            return self.poll_connecting(cx);
        }
        let budget = self.budget;
        self.turned_away = false;
        self.expect_reads(cx);
        let Some(queue) = &self.queue else { return false };
        let (mut ready, mut waiting) = (queue.ready.len(), queue.waiting.len());
        while self.budget > 0 && ready + waiting > 0 {
            ready = self.try_next(ready, |queue| &mut queue.ready, cx);
            waiting = self.try_next(waiting, |queue| &mut queue.waiting, cx);
        }
        self.budget < budget
    }

    /// Tries the first command of a list; returns how many of `left` are still to be tried.
    fn try_next(&mut self, left: usize, list: fn(&mut Queue) -> &mut VecDeque<u16>, cx: &mut Cx) -> usize {
        if left == 0 || self.budget == 0 {
            return left;
        }
        let Some(index) = self.queue.as_mut().and_then(|queue| list(queue).pop_front()) else { return 0 };
        let step = self.step(index, cx);
        self.budget -= u32::from(matches!(step, Step::Gone | Step::Later));
        match step {
            Step::Gone => left - 1,
            Step::Later => {
                self.make_wait(index, false);
                left - 1
            }
            Step::Stuck | Step::Busy => {
                self.turned_away |= step == Step::Busy;
                self.make_wait(index, true);
                0
            }
        }
    }

    /// Answers the command in `index` and frees its slot.
    pub(super) fn complete(&mut self, index: u16, result: u64, cx: &mut Cx) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Gone };
        let slot = queue.slots.get(index);
        if slot.internal {
            let flushed = slot.status.is_success();
            self.end_slot(index, cx);
            self.on_internal_done(flushed, cx);
            return Step::Gone;
        }
        let mut cqe = Cqe::new(slot.cid, slot.status, result);
        if queue.flow_control {
            cqe.sqhd = U16::new(queue.sqhd);
        }
        let to_host =
            matches!(slot.work, Work::Read(_) | Work::Admin(_) | Work::Utilization(_)) && slot.status.is_success();
        let mut arrival = Arrival { poll_ns: slot.arrived_ns, sample: Sample::NONE };
        match &slot.work {
            Work::Read(_) => {
                cx.counters.add_read(u64::from(slot.len));
                arrival.sample = queue.counted.count(slot, Operation::Read);
            }
            Work::Write { .. } => {
                cx.counters.add_write(u64::from(slot.len));
                arrival.sample = queue.counted.count(slot, Operation::Write);
            }
            work => {
                arrival = Arrival::NONE;
                if let Some(operation) = work.operation() {
                    queue.counted.row.count_other(slot.nsid, operation);
                }
            }
        }
        match slot.buffer.take() {
            Some(buffer) if to_host && !slot.missing && slot.len > 0 => {
                let payload = match slot.loan.take() {
                    Some(loan) => Payload::lent(loan, buffer, slot.len),
                    None => Payload::new(buffer, slot.len),
                };
                let success = (!queue.flow_control && result == 0).then_some(());
                let cqe = if success.is_some() { None } else { Some(cqe) };
                let data = Data { cid: slot.cid, payload, end: cqe, arrival };
                self.transport.send(data, cx.namespaces.loans(), cx.now_ns);
            }
            other => {
                slot.buffer = other;
                self.transport.respond(cqe, arrival);
            }
        }
        self.end_slot(index, cx);
        Step::Gone
    }

    /// Where the data that the transport fetches for the command in `slot` belongs.
    pub fn data_buffer(&mut self, slot: u16) -> Option<&mut [u8]> {
        self.queue.as_mut()?.slots.get(slot).buffer.as_deref_mut()
    }

    /// All data of the command in `slot` has come; `intact`: undamaged, as far as the transport can tell.
    pub fn on_data(&mut self, slot: u16, intact: bool, cx: &mut Cx) {
        let Some(queue) = &mut self.queue else { return };
        let command = queue.slots.get(slot);
        command.missing = false;
        if !intact {
            command.fail(Status::TRANSIENT_TRANSPORT);
            self.give_up_charge(slot, cx);
        }
        self.drive(slot, cx);
    }

    /// Data of the command in `slot` has come, and there is no room to ask for the rest now.
    pub fn on_fetch_stuck(&mut self, slot: u16) {
        self.make_wait(slot, false);
    }

    /// Stops command `cid` if no backend has it: answers it as aborted. Its answer is queued before this returns.
    pub fn abort(&mut self, cid: u16, cx: &mut Cx) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        let Some(index) = queue.slots.find(cid) else { return false };
        let slot = queue.slots.get(index);
        if !matches!(slot.state, State::Waiting | State::Throttled | State::Receiving | State::Parked)
            || matches!(slot.work, Work::AwaitAbort)
        {
            return false;
        }
        slot.fail(Status::ABORT_REQUESTED);
        queue.ready.retain(|&waiting| waiting != index);
        queue.waiting.retain(|&waiting| waiting != index);
        self.give_up_charge(index, cx);
        self.complete(index, 0, cx);
        true
    }
}

impl Queue {
    /// Puts the command in `index` into the list that it belongs to.
    #[inline]
    pub(super) fn make_wait(&mut self, index: u16, first: bool) {
        let slot = self.slots.get(index);
        slot.state = State::Waiting;
        let list = if needs_room(slot) { &mut self.waiting } else { &mut self.ready };
        if first {
            list.push_front(index);
        } else {
            list.push_back(index);
        }
    }
}

/// Whether a command needs a buffer, or answers to leave, before it can go on.
fn needs_room(slot: &Slot) -> bool {
    let work_does = matches!(slot.work, Work::Read(_) | Work::Verify { .. } | Work::Admin(_) | Work::Utilization(_));
    slot.status.is_success() && (work_does || slot.missing)
}
