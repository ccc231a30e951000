//! Fused Compare and Write (Base 3.4.2): two adjacent commands of a queue that take effect as one.
//!
//! The first command waits undecoded for the second, which must be the next of the queue. Then both fetch their data, and the write executes
//! both as one backend request ([`Op::CompareAndWrite`]), whose buffer has the data to compare before the data to write. The size is one
//! block (ACWU).
//!
//! Properties:
//! - both commands are completed together, the first one first; if one of them fails before the request, the other ends with Command
//!   Aborted due to Failed Fused Command;
//! - a command without the other one ends with Command Aborted due to Missing Fused Command;
//! - memory is taken for both or for none, because holding one buffer while waiting for the other could deadlock.

use pilotlight_nvme::command::{Sgl, fuse, opcode};
use pilotlight_nvme::{Cqe, Sqe, Status};
use pilotlight_storage::buffer::Buffer;
use pilotlight_storage::{IoError, Op};
use zerocopy::little_endian::U16;

use super::io::{Step, refused};
use super::slots::{Kind, State};
use super::submit::status_of;
use super::transport::InCapsule;
use super::{Cx, Gate, Overrun, QueuePair, Role, Transport};
use crate::arrival::Arrival;
use crate::command::{DataLocation, Plan, Range, Work, check_sgl, decode_io};
use crate::operation::Operation;
use crate::services::{Account, Accounting, Services};

/// A fused operation whose commands are valid.
struct Pair {
    range: Range,
    fua: bool,
    len: u32,
    /// Where the data of each command is.
    data: [DataLocation; 2],
}

/// A command of an invalid fused operation, and its status.
enum Invalid {
    First(Status),
    Second(Status),
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Accepts a command of an I/O queue that says that it is part of a fused operation. Its queue entry is taken.
    #[cold]
    pub(super) fn fused_command(&mut self, sqe: &Sqe, capsule: InCapsule, cx: &mut Cx<S>) {
        match sqe.fuse() {
            fuse::FIRST => self.accept_first(sqe, capsule, cx),
            fuse::SECOND => self.refuse(sqe.cid.get(), Status::MISSING_FUSED, 0),
            _ => self.refuse(sqe.cid.get(), Status::INVALID_FIELD.dnr(), 0),
        }
    }

    fn take_slot(&mut self, sqe: &Sqe, cx: &Cx<S>) -> Option<u16> {
        let queue = self.queue.as_mut()?;
        match queue.slots.take(sqe.cid.get()) {
            Ok(index) => {
                queue.slots.get(index).begin(sqe.nsid.get(), (cx.now_ns, cx.sample));
                Some(index)
            }
            Err(no_slot) => {
                self.refuse(sqe.cid.get(), no_slot.status(), 0);
                None
            }
        }
    }

    fn accept_first(&mut self, sqe: &Sqe, capsule: InCapsule, cx: &mut Cx<S>) {
        let Some(index) = self.take_slot(sqe, cx) else { return };
        let Some(queue) = &mut self.queue else { return };
        let slot = queue.slots.get(index);
        (slot.kind, slot.work, slot.state) = (Kind::Fused, Work::FirstHalf(*sqe), State::Parked);
        if sqe.sgl.identifier == Sgl::IN_CAPSULE && !capsule.bytes.is_empty() {
            // with room for the data to write
            slot.buffer = cx.memory.take_in_capsule(&mut queue.quota, 2 * capsule.bytes.len());
            slot.len = capsule.bytes.len() as u32;
            match &mut slot.buffer {
                Some(buffer) => buffer[..capsule.bytes.len()].copy_from_slice(capsule.bytes),
                None => slot.fail(Status::INTERNAL), // as for any in-capsule data
            }
        }
        if !capsule.intact {
            slot.fail(Status::TRANSIENT_TRANSPORT);
        }
        self.gate = Gate::Pair(index);
    }

    /// Handles the command after the first of a fused operation, which waits in slot `first`; `None` if it is not the second one.
    pub(super) fn after_first(
        &mut self,
        first: u16,
        sqe: &Sqe,
        data: InCapsule,
        cx: &mut Cx<S>,
    ) -> Option<Result<(), Overrun>> {
        self.gate = Gate::Open;
        let unsent = self.transport.unsent_responses();
        let Some(queue) = &mut self.queue else { return Some(Ok(())) };
        if sqe.opcode == opcode::FABRICS || sqe.fuse() != fuse::SECOND {
            queue.slots.get(first).fail(Status::MISSING_FUSED);
            self.complete(first, 0, cx);
            return None;
        }
        if let Err(overrun) = queue.take_entry(unsent) {
            return Some(Err(overrun));
        }
        if let Role::Io(association) = &self.role {
            self.requests += 1;
            association.note_traffic();
        }
        self.accept_second(first, sqe, data, cx);
        Some(Ok(()))
    }

    fn accept_second(&mut self, first: u16, sqe: &Sqe, capsule: InCapsule, cx: &mut Cx<S>) {
        let second = self.take_slot(sqe, cx);
        let Some(queue) = &mut self.queue else { return };
        let Some(second) = second else {
            queue.slots.get(first).fail(Status::FAILED_FUSED);
            self.complete(first, 0, cx);
            return;
        };
        let first_slot = queue.slots.get(first);
        let Work::FirstHalf(first_sqe) = first_slot.work else { return };
        let first_len = first_slot.len as usize;
        let pair = self.pair_of((&first_sqe, first_len), (sqe, capsule.bytes.len()), cx);
        let Some(queue) = &mut self.queue else { return };
        let pair = match pair {
            Ok(pair) => pair,
            Err(invalid) => {
                let (failed, other, status) = match invalid {
                    Invalid::First(status) => (first, second, status),
                    Invalid::Second(status) => (second, first, status),
                };
                queue.slots.get(failed).fail(status);
                queue.slots.get(other).fail(Status::FAILED_FUSED);
                self.finish_pair(first, second, cx);
                return;
            }
        };
        let Pair { range, fua, len, data } = pair;
        let missing = data.map(|location| location == DataLocation::Transport);
        let slot = queue.slots.get(first);
        (slot.work, slot.len, slot.missing) = (Work::FusedCompare { write: second }, len, missing[0]);
        let slot = queue.slots.get(second);
        slot.kind = Kind::Fused;
        (slot.work, slot.len, slot.missing) = (Work::FusedWrite { range, fua, compare: first }, len, missing[1]);
        if !capsule.intact {
            slot.fail(Status::TRANSIENT_TRANSPORT);
        } else if !missing[1] {
            self.keep_data(second, capsule.bytes, cx);
        }
        if !(cx.services.are_caps_in_use() && self.is_throttled(second, cx)) {
            self.make_wait(second, false);
        }
    }

    /// Checks both commands, each with the length of its in-capsule data.
    fn pair_of(&self, first: (&Sqe, usize), second: (&Sqe, usize), cx: &Cx<S>) -> Result<Pair, Invalid> {
        let invalid = Status::INVALID_FIELD.dnr();
        let compare = self.plan_of(first.0, cx).map_err(Invalid::First)?;
        let write = self.plan_of(second.0, cx).map_err(Invalid::Second)?;
        let Work::Compare(range) = compare.work else { return Err(Invalid::First(invalid)) };
        let Work::Write { range: written, fua } = write.work else { return Err(Invalid::Second(invalid)) };
        if range.blocks != 1 {
            return Err(Invalid::First(invalid)); // over ACWU
        }
        if written != range {
            return Err(Invalid::Second(invalid));
        }
        let data = [
            check_sgl(first.0, &compare, first.1).map_err(Invalid::First)?,
            check_sgl(second.0, &write, second.1).map_err(Invalid::Second)?,
        ];
        Ok(Pair { range, fua, len: compare.len, data })
    }

    /// Decodes a command of a fused operation as one of its own.
    fn plan_of(&self, sqe: &Sqe, cx: &Cx<S>) -> Result<Plan, Status> {
        let Role::Io(association) = &self.role else { return Err(Status::INVALID_FIELD.dnr()) };
        let sqe = Sqe { flags: sqe.flags & !fuse::MASK, ..*sqe };
        decode_io(&sqe, association.request_view(), cx.namespaces)
            .or_else(|status| refused(&sqe, association, status, cx))
    }

    /// Continues a command of a fused operation that has its data.
    pub(super) fn fused_step(&mut self, index: u16, cx: &mut Cx<S>) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Handled };
        match queue.slots.get(index).work {
            Work::FusedCompare { write } => {
                queue.slots.get(index).state = State::Parked;
                if queue.slots.get(write).state == State::Parked {
                    self.drive(write, cx); // it waited for this data
                }
                Step::Handled
            }
            Work::FusedWrite { range, fua, compare } => self.write_step(index, (range, fua), compare, cx),
            _ => self.complete(index, 0, cx),
        }
    }

    fn write_step(&mut self, write: u16, (range, fua): (Range, bool), compare: u16, cx: &mut Cx<S>) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Handled };
        let first = queue.slots.get(compare);
        if !first.status.is_success() {
            return self.complete(compare, 0, cx);
        }
        if first.missing {
            let is_started = first.state != State::Parked;
            queue.slots.get(write).state = State::Parked;
            if !is_started {
                self.drive(compare, cx);
            }
            return Step::Handled;
        }
        if let Some(mut both) = first.buffer.take() {
            let slot = queue.slots.get(write);
            let len = slot.len as usize;
            if let Some(own) = slot.buffer.take() {
                both[len..2 * len].copy_from_slice(&own[..len]);
                cx.memory.free(&mut queue.quota, own);
            }
            slot.buffer = Some(both);
        }
        let buffer = queue.slots.get(write).buffer.take();
        let step = self.submit(write, Op::CompareAndWrite { fua }, range, buffer, cx);
        if let Some(queue) = &mut self.queue
            && queue.slots.get(write).state == State::Device
        {
            queue.slots.get(compare).state = State::Device;
        }
        step
    }

    /// Takes buffers for the data of both commands, of which the one in `index` fetches its own. Returns whether it has them.
    #[cold]
    pub(super) fn take_buffers(&mut self, index: u16, cx: &mut Cx<S>) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        let (compare, write) = match queue.slots.get(index).work {
            Work::FusedCompare { write } => (index, write),
            Work::FusedWrite { compare, .. } => (compare, index),
            _ => return false,
        };
        // The buffer of the data to compare has room for the data to write.
        let mut taken: [Option<Buffer>; 2] = [None, None];
        for (at, (command, parts)) in [(compare, 2), (write, 1)].into_iter().enumerate() {
            let slot = queue.slots.get(command);
            if !slot.missing || slot.buffer.is_some() {
                continue;
            }
            let Some(buffer) = cx.memory.take(&mut queue.quota, parts * slot.len as usize) else {
                taken.into_iter().flatten().for_each(|buffer| cx.memory.free(&mut queue.quota, buffer));
                return false;
            };
            taken[at] = Some(buffer);
        }
        for (command, buffer) in [compare, write].into_iter().zip(taken) {
            let slot = queue.slots.get(command);
            if buffer.is_some() {
                (slot.buffer, slot.fetching_ns) = (buffer, cx.now_ns);
            }
        }
        let first = queue.slots.get(compare);
        if index == write && first.missing && first.state == State::Parked {
            self.drive(compare, cx);
        }
        true
    }

    /// Completes the operation whose request, that of the write in `index`, has failed.
    #[cold]
    pub(super) fn fused_failed(&mut self, index: u16, error: IoError, buffer: Option<Buffer>, cx: &mut Cx<S>) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Handled };
        if let Some(buffer) = buffer {
            cx.memory.free(&mut queue.quota, buffer);
        }
        let work = queue.slots.get(index).work;
        let (Work::FusedWrite { compare, .. }, Some(target)) = (work, work.target()) else { return Step::Handled };
        let status = status_of(error, &work);
        let fails_compare = !matches!(error, IoError::Medium(_) | IoError::NoSpace);
        let operation = if fails_compare { Operation::Compare } else { Operation::Write };
        if error != IoError::Miscompare {
            cx.note_failure(Some(operation), target, status, error == IoError::OutOfRange);
        }
        if fails_compare {
            queue.slots.get(compare).fail(status);
            queue.slots.get(index).fail(Status::FAILED_FUSED);
        } else {
            queue.slots.get(index).fail(status); // the blocks were equal
        }
        self.finish_pair(compare, index, cx);
        Step::Handled
    }

    /// Completes the operation of the command in `index`, or that command if it is without the other one.
    pub(super) fn complete_fused(&mut self, index: u16, cx: &mut Cx<S>) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Handled };
        let slot = queue.slots.get(index);
        let has_failed = !slot.status.is_success();
        let (compare, write) = match slot.work {
            Work::FusedCompare { write } => (index, write),
            Work::FusedWrite { compare, .. } => (compare, index),
            _ => {
                if self.gate == Gate::Pair(index) {
                    self.gate = Gate::Open;
                }
                self.respond_fused(index, cx);
                self.end_slot(index, cx);
                return Step::Handled;
            }
        };
        if has_failed {
            let other = if index == compare { write } else { compare };
            queue.slots.get(other).fail(Status::FAILED_FUSED);
            if other == write {
                self.return_charge(write, cx);
            }
        }
        self.finish_pair(compare, write, cx);
        Step::Handled
    }

    /// Completes both commands and frees their slots.
    fn finish_pair(&mut self, first: u16, second: u16, cx: &mut Cx<S>) {
        let Some(queue) = &mut self.queue else { return };
        queue.ready.retain(|&index| index != first && index != second);
        queue.waiting.retain(|&index| index != first && index != second);
        for index in [first, second] {
            self.respond_fused(index, cx);
        }
        for index in [first, second] {
            self.end_slot(index, cx);
        }
    }

    fn respond_fused(&mut self, index: u16, cx: &mut Cx<S>) {
        let Some(queue) = &mut self.queue else { return };
        let slot = queue.slots.get(index);
        let mut cqe = Cqe::new(slot.cid, slot.status, 0);
        if queue.flow_control {
            cqe.sqhd = U16::new(queue.sqhd);
        }
        let mut arrival = Arrival::NONE;
        match slot.work {
            Work::FusedWrite { .. } if slot.status.is_success() => {
                cx.accounting.add_write(u64::from(slot.len));
                arrival = Arrival { poll_ns: slot.arrived_ns, sample: queue.usage.count(slot, Operation::Write) };
            }
            Work::FusedCompare { .. } => queue.usage.account.count_other(slot.nsid, Operation::Compare),
            _ => {}
        }
        self.transport.respond(cqe, arrival);
    }
}
