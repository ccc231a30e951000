//! Commands on their way through the backends: accepted, started, made to wait, completed.
//!
//! [`Connection::drive`] moves a command as far as it can go now. What stops it puts it at the end of one of the queue's
//! two lists, which every poll tries again from the front: *ready* for those that need nothing but a backend, *waiting* for
//! those that need a buffer, or answers to leave. So a command that has its data never stands behind one that waits for
//! the host, and what it holds comes back whatever the host does. A command of many steps gives way after each.

use std::collections::VecDeque;

use pilotlight_nvme::command::{DsmRange, opcode};
use pilotlight_nvme::fabrics::fctype;
use pilotlight_nvme::{Cqe, Sqe, Status};
use zerocopy::FromBytes;
use zerocopy::little_endian::U16;

use super::{Connection, Cx, Phase, Queue, Role};
use crate::backend::{Completion, IoError, Op, Request, Submitted, Tag};
use crate::buffer::{Buffer, MAX_BUFFER};
use crate::command::{Direction, Place, Plan, Range, Work, check_sgl, decode_io};
use crate::slots::{Ask, NoSlot, Slot, State};
use crate::wire::CapsuleData;

/// Bytes waiting to be sent above which no read is started.
pub(super) const TX_BUDGET: usize = 512 * 1024;
/// Bytes that one step of Write Zeroes sets, so that a reactor is not held up.
const ZERO_STEP: u64 = 1 << 20;
/// Bytes that one step of a deallocation gives back.
const DEALLOCATE_STEP: u64 = 16 << 20;

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

impl Connection {
    /// A command on an I/O queue.
    pub(super) fn io_command(&mut self, sqe: &Sqe, capsule: CapsuleData, cx: &mut Cx) {
        let Role::Io(association) = &self.role else { return };
        if sqe.opcode == opcode::FABRICS {
            self.fabrics_on_io_queue(sqe, cx);
            return;
        }
        let subsystem = association.host.subsystem;
        let plan = decode_io(sqe, subsystem, cx.namespaces);
        if let Err(status) = plan
            && let Some(namespace) = cx.namespaces.index_of(subsystem, sqe.nsid.get())
        {
            cx.note_failure((namespace, Some(sqe.slba())), status, false);
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

    /// Ends the connection once what is queued has been sent.
    pub(super) fn close_after_answer(&mut self, cx: &mut Cx) {
        self.abandon(cx);
        self.phase = Phase::Closing;
        self.deadline_ns = cx.now_ns + super::LINGER_NS;
    }

    /// Gives a command its slot and its first step, or refuses it.
    pub(super) fn accept(&mut self, sqe: &Sqe, plan: Result<Plan, Status>, capsule: CapsuleData, cx: &mut Cx) {
        let cid = sqe.cid.get();
        let Some(queue) = &mut self.queue else { return };
        let index = match queue.slots.take(cid) {
            Ok(index) => index,
            Err(NoSlot::Conflict) => return self.refuse(cid, Status::CID_CONFLICT.dnr(), 0),
            Err(NoSlot::Full) => return self.refuse(cid, Status::INTERNAL, 0),
        };
        let checked = plan.and_then(|plan| Ok((plan, check_sgl(sqe, &plan, capsule.data.len())?)));
        let slot = queue.slots.get(index);
        slot.len = 0;
        slot.work = Work::None;
        match checked {
            Err(status) => slot.fail(status),
            Ok(_) if !capsule.intact => slot.fail(Status::TRANSIENT_TRANSPORT),
            Ok((plan, place)) => {
                slot.work = plan.work;
                slot.len = plan.len;
                slot.asked = if plan.direction == Direction::FromHost { 0 } else { plan.len };
                if place == Place::InCapsule {
                    slot.asked = plan.len;
                    slot.buffer = cx.memory.take_at_once(&mut queue.share, capsule.data.len());
                    if let Work::Compare(_) = slot.work {
                        slot.aux = cx.memory.take_at_once(&mut queue.share, capsule.data.len());
                    }
                    match &mut slot.buffer {
                        Some(buffer) if slot.aux.is_some() || !matches!(slot.work, Work::Compare(_)) => {
                            buffer.copy_from_slice(capsule.data);
                        }
                        // so much at once that the memory for it is used up: it may be tried again
                        _ => slot.fail(Status::INTERNAL),
                    }
                }
            }
        }
        queue.slots.get(index).arrived_ns = cx.now_ns;
        // It starts when everything that came with it has been looked at: by then its memory is on the way to the cache.
        if let Work::Read(range) = queue.slots.get(index).work
            && let Some(channel) = cx.namespaces.channel(range.namespace)
        {
            channel.expect_read(range.lba, range.blocks);
        }
        self.make_wait(index, false);
    }

    /// Moves the command in `index` on as far as it goes.
    pub(super) fn drive(&mut self, index: u16, cx: &mut Cx) {
        if self.step(index, cx) != Step::Gone {
            self.make_wait(index, false);
        }
    }

    fn make_wait(&mut self, index: u16, first: bool) {
        let Some(queue) = &mut self.queue else { return };
        let slot = queue.slots.get(index);
        slot.state = State::Waiting;
        let list = if needs_room(slot) { &mut queue.waiting } else { &mut queue.ready };
        if first {
            list.push_front(index);
        } else {
            list.push_back(index);
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

    fn step(&mut self, index: u16, cx: &mut Cx) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Gone };
        let slot = queue.slots.get(index);
        if !slot.status.is_success() {
            return self.complete(index, 0, cx);
        }
        if slot.asked < slot.len || slot.open_asks() > 0 {
            return self.ask(index, cx);
        }
        match slot.work {
            Work::Read(range) => {
                if self.tx.bytes() >= TX_BUDGET {
                    return Step::Stuck;
                }
                self.read_step(index, range, cx)
            }
            Work::Compare(range) => {
                let buffer = slot.aux.take();
                self.submit(index, Op::Read, range, buffer, cx)
            }
            Work::Verify { range, done } => self.verify_step(index, range, done, cx),
            Work::Write { range, fua } => {
                let buffer = slot.buffer.take();
                self.submit(index, Op::Write { fua }, range, buffer, cx)
            }
            Work::Flush { namespace } => {
                self.submit(index, Op::Flush, Range { namespace, lba: 0, blocks: 0 }, None, cx)
            }
            Work::FlushAll { next, failed } => self.flush_all_step(index, next, failed, cx),
            Work::Zero { range, fua, deallocate, done } => {
                let chunk = chunk(cx, range.namespace, ZERO_STEP, range.blocks - done);
                let part = Range { lba: range.lba + u64::from(done), blocks: chunk, ..range };
                self.submit(index, Op::WriteZeroes { fua, deallocate }, part, None, cx)
            }
            Work::Deallocate { namespace, ranges, done, offset } => {
                self.deallocate_step(index, namespace, ranges, done, offset, cx)
            }
            Work::Admin(sqe) => self.admin_step(index, &sqe, cx),
            Work::Utilization(sqe) => self.execute_admin(index, &sqe, cx),
            Work::None | Work::AwaitAbort | Work::AwaitEvent => self.complete(index, 0, cx),
        }
    }

    /// Asks the host for a command's data, in as many R2Ts at once as it allows.
    fn ask(&mut self, index: u16, cx: &mut Cx) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Gone };
        let slot = queue.slots.get(index);
        if slot.buffer.is_none() {
            let len = slot.len as usize;
            let Some(buffer) = cx.memory.take(&mut queue.share, len) else { return Step::Stuck };
            if let Work::Compare(_) = slot.work {
                // Both at once: who holds one and waits for the other may wait for ever.
                slot.aux = cx.memory.take(&mut queue.share, len);
                if slot.aux.is_none() {
                    cx.memory.give_back(&mut queue.share, buffer);
                    return Step::Stuck;
                }
            }
            slot.buffer = Some(buffer);
            slot.asked_ns = cx.now_ns;
        }
        let slot = queue.slots.get(index);
        let piece = (slot.len / self.max_r2t as u32).next_multiple_of(4096).max(4096);
        for ask in 0..self.max_r2t {
            let slot = queue.slots.get(index);
            if slot.asks[ask].open() || slot.asked == slot.len {
                continue;
            }
            if self.tx.r2ts() >= usize::from(queue.size) {
                break;
            }
            let len = if self.max_r2t == 1 { slot.len } else { piece.min(slot.len - slot.asked) };
            let offset = slot.asked;
            slot.asks[ask] = Ask { start: offset, next: offset, end: offset + len };
            slot.asked += len;
            let cid = slot.cid;
            let tag = queue.slots.transfer_tag(index, ask);
            self.tx.r2t(cid, tag, offset, len);
        }
        let slot = queue.slots.get(index);
        if slot.open_asks() == 0 {
            return Step::Stuck;
        }
        slot.state = State::Receiving;
        Step::Gone
    }

    fn read_step(&mut self, index: u16, range: Range, cx: &mut Cx) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Gone };
        let len = queue.slots.get(index).len as usize;
        let Some(buffer) = cx.memory.take(&mut queue.share, len) else { return Step::Stuck };
        self.submit(index, Op::Read, range, Some(buffer), cx)
    }

    fn verify_step(&mut self, index: u16, range: Range, done: u32, cx: &mut Cx) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Gone };
        let blocks = chunk(cx, range.namespace, MAX_BUFFER as u64, range.blocks - done);
        let len = blocks as usize * cx.namespaces.geometry(range.namespace).block_size as usize;
        let Some(buffer) = cx.memory.take(&mut queue.share, len) else { return Step::Stuck };
        let part = Range { lba: range.lba + u64::from(done), blocks, ..range };
        self.submit(index, Op::Read, part, Some(buffer), cx)
    }

    /// Flushes the next namespace; after the last, answers with the first failure.
    fn flush_all_step(&mut self, index: u16, next: u32, failed: Status, cx: &mut Cx) -> Step {
        let subsystem = match &self.role {
            Role::Io(association) => association.host.subsystem,
            Role::Admin(admin) => admin.association.host.subsystem,
            Role::None => return Step::Gone,
        };
        let Some(queue) = &mut self.queue else { return Step::Gone };
        let slot = queue.slots.get(index);
        let Some(namespace) = cx.namespaces.next_of(subsystem, next) else {
            slot.fail(failed);
            return self.complete(index, 0, cx);
        };
        slot.work = Work::FlushAll { next: namespace, failed };
        self.submit(index, Op::Flush, Range { namespace, lba: 0, blocks: 0 }, None, cx)
    }

    fn deallocate_step(
        &mut self,
        index: u16,
        namespace: u32,
        ranges: u32,
        done: u32,
        offset: u32,
        cx: &mut Cx,
    ) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Gone };
        let slot = queue.slots.get(index);
        let blocks = cx.namespaces.geometry(namespace).blocks;
        let Some(table) = slot.buffer.as_deref() else { return self.complete(index, 0, cx) };
        if done == 0 && offset == 0 && !ranges_fit(table, ranges, blocks) {
            slot.fail(Status::LBA_OUT_OF_RANGE.dnr());
            cx.note_failure((namespace, None), Status::LBA_OUT_OF_RANGE, false);
            return self.complete(index, 0, cx);
        }
        if done == ranges {
            return self.complete(index, 0, cx);
        }
        let range = dsm_range(table, done);
        if range.blocks.get() == offset {
            slot.work = Work::Deallocate { namespace, ranges, done: done + 1, offset: 0 };
            return Step::Later;
        }
        let part = Range {
            namespace,
            lba: range.slba.get() + u64::from(offset),
            blocks: chunk(cx, namespace, DEALLOCATE_STEP, range.blocks.get() - offset),
        };
        slot.work = Work::Deallocate { namespace, ranges, done, offset: offset + part.blocks };
        let step = self.submit(index, Op::Deallocate, part, None, cx);
        if step == Step::Busy
            && let Some(queue) = &mut self.queue
        {
            // the backend did not take it: the same part is to be tried again
            queue.slots.get(index).work = Work::Deallocate { namespace, ranges, done, offset };
        }
        step
    }

    /// Hands a request to the backend. Nothing is submitted for an association that has ended.
    fn submit(&mut self, index: u16, op: Op, range: Range, buffer: Option<Buffer>, cx: &mut Cx) -> Step {
        let ended = matches!(&self.role, Role::Io(association) if association.is_dead());
        let Some(queue) = &mut self.queue else { return Step::Gone };
        let tag = tag(cx.me.index, index, queue.slots.get(index).generation);
        let refusal = if ended { Status::ABORTED_SQ_DELETION } else { Status::INVALID_NAMESPACE.dnr() };
        let Some(channel) = cx.namespaces.channel(range.namespace).filter(|_| !ended) else {
            let slot = queue.slots.get(index);
            slot.fail(refusal);
            if let Some(buffer) = buffer {
                cx.memory.give_back(&mut queue.share, buffer);
            }
            return self.complete(index, 0, cx);
        };
        let request = Request { tag, op, lba: range.lba, blocks: range.blocks, buffer };
        match channel.submit(request, cx.now_ns) {
            Submitted::Done(completion) => self.returned(index, completion, cx),
            Submitted::Pending => {
                queue.slots.get(index).state = State::Device;
                queue.in_device += 1;
                Step::Gone
            }
            Submitted::Busy(request) => {
                if let Some(buffer) = request.buffer {
                    let slot = queue.slots.get(index);
                    match slot.work {
                        Work::Write { .. } => slot.buffer = Some(buffer),
                        Work::Compare(_) => slot.aux = Some(buffer),
                        _ => cx.memory.give_back(&mut queue.share, buffer),
                    }
                }
                Step::Busy
            }
        }
    }

    /// A request has come back from a backend that had answered [`Submitted::Pending`].
    pub fn on_completion(&mut self, completion: Completion, cx: &mut Cx) {
        let (_, index, generation) = untag(completion.tag);
        let Some(queue) = &mut self.queue else {
            unreachable!("a backend completed a request of a connection that has no queue")
        };
        queue.in_device -= 1;
        debug_assert!(queue.slots.get_if(index, generation).is_some(), "a backend completed a request twice");
        if matches!(self.phase, Phase::Dead | Phase::Closing) {
            if let Some(buffer) = completion.buffer {
                cx.memory.give_back(&mut queue.share, buffer);
            }
            self.end_slot(index, cx);
            self.note_drained(cx);
            return;
        }
        match self.returned(index, completion, cx) {
            Step::Gone => {}
            Step::Later | Step::Stuck | Step::Busy => self.make_wait(index, false),
        }
    }

    /// Goes on after the backend has answered.
    fn returned(&mut self, index: u16, completion: Completion, cx: &mut Cx) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Gone };
        let slot = queue.slots.get(index);
        if let Work::FlushAll { next, failed } = slot.work {
            let status = completion.result.err().map_or(Status::SUCCESS, |error| status_of(error, &slot.work));
            if !status.is_success() {
                cx.note_failure((next, None), status, false);
            }
            let failed = if failed.is_success() { status } else { failed };
            slot.work = Work::FlushAll { next: next + 1, failed };
            return Step::Later;
        }
        if let Err(error) = completion.result {
            let status = status_of(error, &slot.work);
            slot.fail(status);
            if let Some(place) = slot.work.place() {
                cx.note_failure(place, status, error == IoError::OutOfRange);
            }
            if let Some(buffer) = completion.buffer {
                cx.memory.give_back(&mut queue.share, buffer);
            }
            return self.complete(index, 0, cx);
        }
        match &mut slot.work {
            Work::Read(_) | Work::Write { .. } => {
                slot.buffer = completion.buffer;
                self.complete(index, 0, cx)
            }
            Work::Compare(_) => {
                let equal = slot.buffer.as_deref() == completion.buffer.as_deref();
                slot.aux = completion.buffer;
                if !equal {
                    slot.fail(Status::COMPARE_FAILURE.dnr());
                }
                self.complete(index, 0, cx)
            }
            Work::Verify { range, done } => {
                *done += chunk(cx, range.namespace, MAX_BUFFER as u64, range.blocks - *done);
                let finished = *done == range.blocks;
                if let Some(buffer) = completion.buffer {
                    cx.memory.give_back(&mut queue.share, buffer);
                }
                if finished { self.complete(index, 0, cx) } else { Step::Later }
            }
            Work::Zero { range, done, .. } => {
                *done += chunk(cx, range.namespace, ZERO_STEP, range.blocks - *done);
                if *done == range.blocks { self.complete(index, 0, cx) } else { Step::Later }
            }
            Work::Deallocate { .. } => Step::Later,
            _ => self.complete(index, 0, cx),
        }
    }

    /// Answers the command in `index` and frees its slot.
    pub(super) fn complete(&mut self, index: u16, result: u64, cx: &mut Cx) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Gone };
        let slot = queue.slots.get(index);
        if slot.internal {
            let flushed = slot.status.is_success();
            self.end_slot(index, cx);
            self.on_internal_done(flushed);
            return Step::Gone;
        }
        let mut cqe = Cqe::new(slot.cid, slot.status, result);
        if queue.flow_control {
            cqe.sqhd = U16::new(queue.sqhd);
        }
        let to_host =
            matches!(slot.work, Work::Read(_) | Work::Admin(_) | Work::Utilization(_)) && slot.status.is_success();
        let mut arrived_ns = slot.arrived_ns;
        match &slot.work {
            Work::Read(_) => cx.counters.add_read(u64::from(slot.len)),
            Work::Write { .. } => cx.counters.add_write(u64::from(slot.len)),
            _ => arrived_ns = 0,
        }
        match slot.buffer.take() {
            Some(buffer) if to_host && slot.asked == slot.len && slot.len > 0 => {
                let success = (!queue.flow_control && result == 0).then_some(());
                let cqe = if success.is_some() { None } else { Some(cqe) };
                self.tx.data(slot.cid, buffer, slot.len, cqe, cx.now_ns);
            }
            other => {
                slot.buffer = other;
                self.tx.response(cqe);
            }
        }
        self.tx.note_arrival(arrived_ns);
        self.end_slot(index, cx);
        Step::Gone
    }

    /// Stops command `cid` if no backend has it: answers it as aborted. Its answer is queued before this returns.
    pub fn abort(&mut self, cid: u16, cx: &mut Cx) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        let Some(index) = queue.slots.find(cid) else { return false };
        let slot = queue.slots.get(index);
        if !matches!(slot.state, State::Waiting | State::Receiving | State::Parked)
            || matches!(slot.work, Work::AwaitAbort)
        {
            return false;
        }
        slot.fail(Status::ABORT_REQUESTED);
        queue.ready.retain(|&waiting| waiting != index);
        queue.waiting.retain(|&waiting| waiting != index);
        if self.body.is_some_and(|body| body.slot == index) {
            // The rest of this PDU's data still comes; it is thrown away.
            self.detach_body(cx);
        }
        self.complete(index, 0, cx);
        true
    }
}

/// Whether a command needs a buffer, or answers to leave, before it can go on.
fn needs_room(slot: &Slot) -> bool {
    let work_does = matches!(slot.work, Work::Read(_) | Work::Verify { .. } | Work::Admin(_) | Work::Utilization(_));
    slot.status.is_success() && (work_does || slot.asked < slot.len)
}

/// Blocks of a step of at most `bytes` bytes, of `left` blocks.
fn chunk(cx: &Cx, namespace: u32, bytes: u64, left: u32) -> u32 {
    let block_size = u64::from(cx.namespaces.geometry(namespace).block_size);
    u64::from(left).min(bytes / block_size) as u32
}

fn dsm_range(table: &[u8], index: u32) -> DsmRange {
    let at = index as usize * size_of::<DsmRange>();
    DsmRange::read_from_bytes(&table[at..at + size_of::<DsmRange>()]).unwrap_or_default()
}

fn ranges_fit(table: &[u8], ranges: u32, blocks: u64) -> bool {
    (0..ranges).map(|index| dsm_range(table, index)).all(|range| {
        let end = range.slba.get().checked_add(u64::from(range.blocks.get()));
        end.is_some_and(|end| end <= blocks)
    })
}

/// The status for what a backend said (NVM 3.2).
fn status_of(error: IoError, work: &Work) -> Status {
    match error {
        IoError::OutOfRange => Status::LBA_OUT_OF_RANGE.dnr(),
        IoError::NoSpace => Status::CAPACITY_EXCEEDED.dnr(),
        IoError::ReadOnly => Status::WRITE_PROTECTED.dnr(),
        IoError::Unsupported => Status::INVALID_OPCODE.dnr(),
        IoError::Medium(_) => match work {
            Work::Read(_) | Work::Compare(_) | Work::Verify { .. } => Status::UNRECOVERED_READ,
            Work::Write { .. } | Work::Zero { .. } => Status::WRITE_FAULT,
            _ => Status::INTERNAL,
        },
    }
}

/// The tag of a request: connection, slot, generation.
fn tag(connection: u32, slot: u16, generation: u8) -> Tag {
    u64::from(connection) << 32 | u64::from(slot) << 8 | u64::from(generation)
}

/// The index of the connection that a request belongs to.
#[must_use]
pub fn connection_of(tag: Tag) -> u32 {
    untag(tag).0
}

/// What [`tag`] put together: connection, slot, generation.
fn untag(tag: Tag) -> (u32, u16, u8) {
    ((tag >> 32) as u32, (tag >> 8) as u16, tag as u8)
}
