//! The next step of a command: fetch its data, or one backend request.

use pilotlight_nvme::Status;
use pilotlight_nvme::command::DsmRange;
use pilotlight_storage::Op;
use pilotlight_storage::buffer::MAX_BUFFER;
use zerocopy::FromBytes;

use super::io::{Step, TX_BUDGET, path_open};
use super::slots::{Kind, State};
use super::{Cx, Hold, QueuePair, Role, Transport};
use crate::command::{Range, Work};
use crate::operation::Operation;
use crate::reservation::access::Group;
use crate::services::{NamespaceTable, Services};
use crate::subsystems::views::ViewId;

/// Bytes per step of Write Zeroes, which bounds the time of a poll.
pub(super) const ZERO_STEP: u64 = 1 << 20;
/// Bytes per step of a deallocation; backends divide it further.
const DEALLOCATE_STEP: u64 = 1 << 30;

impl<T: Transport, S: Services> QueuePair<T, S> {
    pub(super) fn step(&mut self, index: u16, cx: &mut Cx<S>) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Handled };
        let slot = queue.slots.get(index);
        if !slot.status.is_success() {
            return self.complete(index, 0, cx);
        }
        if slot.missing {
            return self.fetch(index, cx);
        }
        match slot.work {
            Work::Read(range) => {
                if self.transport.unsent_bytes() >= TX_BUDGET {
                    return Step::Blocked;
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
            Work::FusedCompare { .. } | Work::FusedWrite { .. } => self.fused_step(index, cx),
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
            Work::Reservation(sqe) => self.reservation_step(index, &sqe, cx),
            Work::Admin(sqe) => self.admin_step(index, &sqe, cx),
            Work::Counted(sqe) => self.counted_step(index, &sqe, cx),
            Work::Utilization(sqe) => self.execute_admin(index, &sqe, cx),
            Work::Authenticate(sqe) => self.authentication_step(index, &sqe, cx),
            Work::None
            | Work::FirstHalf(_)
            | Work::AwaitAuthentication
            | Work::AwaitAbort
            | Work::AwaitEvent
            | Work::AwaitRate(_)
            | Work::AwaitReservation => self.complete(index, 0, cx),
        }
    }

    /// Fetches a command's data.
    fn fetch(&mut self, index: u16, cx: &mut Cx<S>) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Handled };
        let slot = queue.slots.get(index);
        if let Some(((namespace, _), group)) = slot.work.target().zip(slot.work.group()) {
            match self.role.hold(cx.namespaces, namespace, group) {
                Hold::Earlier => return self.hold_back(index), // without a buffer
                Hold::Reserved => return self.refuse_reserved(index, cx),
                Hold::None | Hold::Ended => {}
            }
        }
        if slot.kind == Kind::Fused {
            if !self.take_buffers(index, cx) {
                return Step::Blocked;
            }
        } else if slot.buffer.is_none() {
            let len = slot.len as usize;
            let Some(buffer) = cx.memory.take(&mut queue.quota, len) else { return Step::Blocked };
            if let Work::Compare(_) = slot.work {
                // Both or none: holding one while waiting for the other could deadlock.
                slot.aux = cx.memory.take(&mut queue.quota, len);
                if slot.aux.is_none() {
                    cx.memory.free(&mut queue.quota, buffer);
                    return Step::Blocked;
                }
            }
            slot.buffer = Some(buffer);
            slot.fetching_ns = cx.now_ns;
        }
        let Some(queue) = &mut self.queue else { return Step::Handled };
        let slot = queue.slots.get(index);
        if !self.transport.fetch(index, slot.cid, slot.len) {
            return Step::Blocked;
        }
        slot.state = State::Receiving;
        Step::Handled
    }

    fn read_step(&mut self, index: u16, range: Range, cx: &mut Cx<S>) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Handled };
        let len = queue.slots.get(index).len as usize;
        let Some(buffer) = cx.memory.take(&mut queue.quota, len) else { return Step::Blocked };
        if self.role.hold(cx.namespaces, range.namespace, Group::Read) == Hold::None
            && let Some(loan) = cx.namespaces.borrow(range.namespace, range.lba, range.blocks)
        {
            let slot = queue.slots.get(index);
            (slot.buffer, slot.loan) = (Some(buffer), Some(loan));
            return self.complete(index, 0, cx);
        }
        self.submit(index, Op::Read, range, Some(buffer), cx)
    }

    fn verify_step(&mut self, index: u16, range: Range, done: u32, cx: &mut Cx<S>) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Handled };
        let blocks = chunk(cx, range.namespace, MAX_BUFFER as u64, range.blocks - done);
        let len = blocks as usize * cx.namespaces.geometry(range.namespace).block_size as usize;
        let Some(buffer) = cx.memory.take(&mut queue.quota, len) else { return Step::Blocked };
        let part = Range { lba: range.lba + u64::from(done), blocks, ..range };
        self.submit(index, Op::Read, part, Some(buffer), cx)
    }

    /// Flushes the next namespace; after the last one completes with the first failure.
    fn flush_all_step(&mut self, index: u16, next: u32, failed: Status, cx: &mut Cx<S>) -> Step {
        let view = match &self.role {
            Role::Io(association) => association.view(),
            // at a shutdown also namespaces that are no longer visible to its host, which may have written to them
            Role::Admin(admin) => ViewId::whole(admin.association.host.subsystem),
            Role::None => return Step::Handled,
        };
        let Some(queue) = &mut self.queue else { return Step::Handled };
        let slot = queue.slots.get(index);
        if let Role::Io(association) = &self.role
            && association.has_closed_paths()
            && let Err(status) = path_open(u32::MAX, association, cx.namespaces)
        {
            slot.fail(status);
            return self.complete(index, 0, cx);
        }
        let Some(namespace) = cx.namespaces.next_of(view, next) else {
            slot.fail(failed);
            return self.complete(index, 0, cx);
        };
        if let (Role::Admin(admin), Some(lease)) = (&self.role, cx.namespaces.lease(namespace))
            && admin.association.awaits(lease)
        {
            // It has written nothing there, and a flush might end as late as what it waits for.
            let failed = if failed.is_success() { Status::INTERNAL } else { failed };
            slot.work = Work::FlushAll { next: namespace + 1, failed };
            return Step::Yield;
        }
        if self.role.hold(cx.namespaces, namespace, Group::Write) == Hold::Reserved {
            let failed = if failed.is_success() { Status::RESERVATION_CONFLICT.dnr() } else { failed };
            slot.work = Work::FlushAll { next: namespace + 1, failed };
            return Step::Yield;
        }
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
        cx: &mut Cx<S>,
    ) -> Step {
        if ranges == 0 && self.role.hold(cx.namespaces, namespace, Group::Write) == Hold::Reserved {
            return self.refuse_reserved(index, cx); // hints reach no backend
        }
        let Some(queue) = &mut self.queue else { return Step::Handled };
        let slot = queue.slots.get(index);
        let blocks = cx.namespaces.geometry(namespace).blocks;
        let Some(table) = slot.buffer.as_deref() else { return self.complete(index, 0, cx) };
        if done == 0 && offset == 0 && !ranges_fit(table, ranges, blocks) {
            slot.fail(Status::LBA_OUT_OF_RANGE.dnr());
            cx.note_failure(Some(Operation::Deallocate), (namespace, None), Status::LBA_OUT_OF_RANGE, false);
            return self.complete(index, 0, cx);
        }
        if done == ranges {
            return self.complete(index, 0, cx);
        }
        let range = dsm_range(table, done);
        if range.blocks.get() == offset {
            slot.work = Work::Deallocate { namespace, ranges, done: done + 1, offset: 0 };
            return Step::Yield;
        }
        let part = Range {
            namespace,
            lba: range.slba.get() + u64::from(offset),
            blocks: chunk(cx, namespace, DEALLOCATE_STEP, range.blocks.get() - offset),
        };
        slot.work = Work::Deallocate { namespace, ranges, done, offset: offset + part.blocks };
        let step = self.submit(index, Op::Deallocate, part, None, cx);
        if let Some(queue) = &mut self.queue
            && (step == Step::Busy || queue.slots.get(index).state == State::Held)
        {
            // retry the same part
            queue.slots.get(index).work = Work::Deallocate { namespace, ranges, done, offset };
        }
        step
    }
}

/// Blocks of a step of at most `bytes` bytes out of `left` blocks.
pub(super) fn chunk<S: Services>(cx: &Cx<S>, namespace: u32, bytes: u64, left: u32) -> u32 {
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
