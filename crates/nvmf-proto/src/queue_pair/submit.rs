//! Backend requests and their completions.

use pilotlight_nvme::Status;
use pilotlight_storage::buffer::{Buffer, MAX_BUFFER};
use pilotlight_storage::{Completion, IoError, Op, Request, Submitted, Tag};

use super::io::Step;
use super::slots::{Kind, State};
use super::step::{ZERO_STEP, chunk};
use super::{Cx, Hold, Phase, QueuePair, Transport};
use crate::command::{Range, Work};
use crate::operation::Operation;
use crate::reservation::access::Group;
use crate::services::{NamespaceTable, Services};

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Submits a request to the backend, unless the association has ended.
    pub(super) fn submit(&mut self, index: u16, op: Op, range: Range, buffer: Option<Buffer>, cx: &mut Cx<S>) -> Step {
        let hold = self.role.hold(cx.namespaces, range.namespace, Group::from_op(op));
        if hold == Hold::Earlier {
            self.keep_waiting(index, buffer, cx);
            return self.hold_back(index);
        }
        let Some(queue) = &mut self.queue else { return Step::Handled };
        let tag = tag(cx.me.index, index, queue.slots.get(index).generation);
        let refusal = match hold {
            Hold::Ended => Status::ABORTED_SQ_DELETION,
            Hold::Reserved => Status::RESERVATION_CONFLICT.dnr(),
            Hold::None | Hold::Earlier => Status::INVALID_NAMESPACE.dnr(),
        };
        let Some(channel) = cx.namespaces.channel(range.namespace).filter(|_| hold == Hold::None) else {
            let slot = queue.slots.get(index);
            slot.fail(refusal);
            if let Some(buffer) = buffer {
                cx.memory.free(&mut queue.quota, buffer);
            }
            self.return_charge(index, cx);
            return self.complete(index, 0, cx);
        };
        let request = Request { tag, op, lba: range.lba, blocks: range.blocks, buffer };
        match channel.submit(request, cx.now_ns) {
            Submitted::Done(completion) => self.on_result(index, completion, cx),
            Submitted::Pending => {
                queue.slots.get(index).state = State::Device;
                queue.in_device += 1;
                Step::Handled
            }
            Submitted::Busy(request) => self.keep_waiting(index, request.buffer, cx),
        }
    }

    /// The request of the command in `index` cannot be submitted now.
    fn keep_waiting(&mut self, index: u16, buffer: Option<Buffer>, cx: &mut Cx<S>) -> Step {
        if let (Some(queue), Some(buffer)) = (&mut self.queue, buffer) {
            let slot = queue.slots.get(index);
            match slot.work {
                Work::Write { .. } | Work::FusedWrite { .. } => slot.buffer = Some(buffer),
                Work::Compare(_) => slot.aux = Some(buffer),
                _ => cx.memory.free(&mut queue.quota, buffer),
            }
        }
        Step::Busy
    }

    /// Writes data without a buffer, if the command in `index` is a write and the backend can do that now. Returns whether it
    /// is completed.
    pub(super) fn write_now(&mut self, index: u16, data: &[u8], cx: &mut Cx<S>) -> bool {
        let Some(queue) = self.queue.as_mut().filter(|_| self.budget > 0) else { return false };
        let slot = queue.slots.get(index);
        let Work::Write { range, fua } = slot.work else { return false };
        if self.role.hold(cx.namespaces, range.namespace, Group::Write) != Hold::None {
            return false;
        }
        let Some(channel) = cx.namespaces.channel(range.namespace) else { return false };
        let Some(result) = channel.write_now(range.lba, range.blocks, fua, data) else { return false };
        self.budget -= 1;
        let tag = tag(cx.me.index, index, slot.generation);
        self.on_result(index, Completion { tag, result, buffer: None }, cx) == Step::Handled
    }

    /// Handles the completion of a pending request.
    pub fn on_completion(&mut self, completion: Completion, cx: &mut Cx<S>) {
        let (_, index, generation) = untag(completion.tag);
        let Some(queue) = &mut self.queue else {
            unreachable!("a backend completed a request of a connection that has no queue")
        };
        queue.in_device -= 1;
        debug_assert!(queue.slots.get_if(index, generation).is_some(), "a backend completed a request twice");
        if matches!(self.phase, Phase::Ended | Phase::Closing) {
            if let Some(buffer) = completion.buffer {
                cx.memory.free(&mut queue.quota, buffer);
            }
            let work = queue.slots.get(index).work;
            self.end_slot(index, cx);
            if let Work::FusedWrite { compare, .. } = work {
                self.end_slot(compare, cx);
            }
            self.note_finished(&work, cx);
            return;
        }
        match self.on_result(index, completion, cx) {
            Step::Handled => {}
            Step::Yield | Step::Blocked | Step::Busy => self.make_wait(index, false),
        }
    }

    /// Continues a command after its backend request.
    fn on_result(&mut self, index: u16, completion: Completion, cx: &mut Cx<S>) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Handled };
        let slot = queue.slots.get(index);
        if let Work::FlushAll { next, failed } = slot.work {
            let status = completion.result.err().map_or(Status::SUCCESS, |error| status_of(error, &slot.work));
            if !status.is_success() {
                cx.note_failure(Some(Operation::Flush), (next, None), status, false);
            }
            let failed = if failed.is_success() { status } else { failed };
            slot.work = Work::FlushAll { next: next + 1, failed };
            return Step::Yield;
        }
        if let Err(error) = completion.result {
            if slot.kind == Kind::Fused {
                return self.fused_failed(index, error, completion.buffer, cx);
            }
            let status = status_of(error, &slot.work);
            slot.fail(status);
            if let Some(target) = slot.work.target() {
                cx.note_failure(slot.work.operation(), target, status, error == IoError::OutOfRange);
            }
            if let Some(buffer) = completion.buffer {
                cx.memory.free(&mut queue.quota, buffer);
            }
            return self.complete(index, 0, cx);
        }
        match &mut slot.work {
            Work::Read(_) | Work::Write { .. } | Work::FusedWrite { .. } => {
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
                    cx.memory.free(&mut queue.quota, buffer);
                }
                if finished { self.complete(index, 0, cx) } else { Step::Yield }
            }
            Work::Zero { range, done, .. } => {
                *done += chunk(cx, range.namespace, ZERO_STEP, range.blocks - *done);
                if *done == range.blocks { self.complete(index, 0, cx) } else { Step::Yield }
            }
            Work::Deallocate { .. } => Step::Yield,
            _ => self.complete(index, 0, cx),
        }
    }
}

/// The status for a backend's error (NVM 3.2).
pub(super) fn status_of(error: IoError, work: &Work) -> Status {
    match error {
        IoError::OutOfRange => Status::LBA_OUT_OF_RANGE.dnr(),
        IoError::NoSpace => Status::CAPACITY_EXCEEDED.dnr(),
        IoError::ReadOnly => Status::WRITE_PROTECTED.dnr(),
        IoError::Unsupported => Status::INVALID_OPCODE.dnr(),
        IoError::Checksum | IoError::UnreadMedium(_) => Status::UNRECOVERED_READ,
        IoError::Miscompare => Status::COMPARE_FAILURE.dnr(),
        IoError::Medium(_) => match work {
            Work::Read(_) | Work::Compare(_) | Work::Verify { .. } => Status::UNRECOVERED_READ,
            Work::Write { .. } | Work::FusedWrite { .. } | Work::Zero { .. } => Status::WRITE_FAULT,
            _ => Status::INTERNAL,
        },
    }
}

/// The tag of a request: connection, slot, generation.
#[inline]
fn tag(connection: u32, slot: u16, generation: u8) -> Tag {
    u64::from(connection) << 32 | u64::from(slot) << 8 | u64::from(generation)
}

/// The index of the connection of a request.
#[inline]
#[must_use]
pub fn connection_of(tag: Tag) -> u32 {
    untag(tag).0
}

/// Inverse of [`tag`]: connection, slot, generation.
#[inline]
fn untag(tag: Tag) -> (u32, u16, u8) {
    ((tag >> 32) as u32, (tag >> 8) as u16, tag as u8)
}
