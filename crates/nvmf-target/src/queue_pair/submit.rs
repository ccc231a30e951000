//! Requests to the backends, and what comes back.

use pilotlight_nvme::Status;

use super::io::Step;
use super::slots::State;
use super::step::{ZERO_STEP, chunk};
use super::{Cx, Phase, QueuePair, Transport};
use crate::backend::{Completion, IoError, Op, Request, Submitted, Tag};
use crate::buffer::{Buffer, MAX_BUFFER};
use crate::command::{Range, Work};
use crate::usage::Operation;

impl<T: Transport> QueuePair<T> {
    /// Hands a request to the backend. Nothing is submitted for an association that has ended.
    pub(super) fn submit(&mut self, index: u16, op: Op, range: Range, buffer: Option<Buffer>, cx: &mut Cx) -> Step {
        let ended = self.role.has_ended();
        let Some(queue) = &mut self.queue else { return Step::Gone };
        let tag = tag(cx.me.index, index, queue.slots.get(index).generation);
        let refusal = if ended { Status::ABORTED_SQ_DELETION } else { Status::INVALID_NAMESPACE.dnr() };
        let Some(channel) = cx.namespaces.channel(range.namespace).filter(|_| !ended) else {
            let slot = queue.slots.get(index);
            slot.fail(refusal);
            if let Some(buffer) = buffer {
                cx.memory.give_back(&mut queue.share, buffer);
            }
            self.give_up_charge(index, cx);
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

    /// Writes data from where it came, if the command in `index` is a write that the backend can take at once; returns
    /// whether it is answered.
    pub(super) fn write_now(&mut self, index: u16, data: &[u8], cx: &mut Cx) -> bool {
        let Some(queue) = self.queue.as_mut().filter(|_| self.budget > 0 && !self.role.has_ended()) else {
            return false;
        };
        let slot = queue.slots.get(index);
        let Work::Write { range, fua } = slot.work else { return false };
        let Some(channel) = cx.namespaces.channel(range.namespace) else { return false };
        let Some(result) = channel.write_now(range.lba, range.blocks, fua, data) else { return false };
        self.budget -= 1;
        let tag = tag(cx.me.index, index, slot.generation);
        self.returned(index, Completion { tag, result, buffer: None }, cx) == Step::Gone
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
                cx.note_failure(Some(Operation::Flush), (next, None), status, false);
            }
            let failed = if failed.is_success() { status } else { failed };
            slot.work = Work::FlushAll { next: next + 1, failed };
            return Step::Later;
        }
        if let Err(error) = completion.result {
            let status = status_of(error, &slot.work);
            slot.fail(status);
            if let Some(place) = slot.work.place() {
                cx.note_failure(slot.work.operation(), place, status, error == IoError::OutOfRange);
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
}

/// The status for what a backend said (NVM 3.2).
fn status_of(error: IoError, work: &Work) -> Status {
    match error {
        IoError::OutOfRange => Status::LBA_OUT_OF_RANGE.dnr(),
        IoError::NoSpace => Status::CAPACITY_EXCEEDED.dnr(),
        IoError::ReadOnly => Status::WRITE_PROTECTED.dnr(),
        IoError::Unsupported => Status::INVALID_OPCODE.dnr(),
        IoError::Checksum => Status::UNRECOVERED_READ,
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
