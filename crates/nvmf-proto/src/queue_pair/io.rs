//! Life of a command: accepted, waiting, completed.
//!
//! [`QueuePair::drive`] advances a command as far as possible. A command that cannot continue is appended to one of two
//! lists, which every poll retries from the front: *ready* for commands that only need a backend, *waiting* for those that
//! need a buffer or space to send. So a command with its data never waits behind one that waits for the host, and frees its
//! memory independently of the host. A command of many steps yields after each.

use std::collections::VecDeque;

use pilotlight_nvme::command::{fuse, opcode};
use pilotlight_nvme::fabrics::fctype;
use pilotlight_nvme::{Cqe, Sqe, Status};
use zerocopy::little_endian::U16;

use super::slots::{Kind, Slot, State};
use super::transport::{Data, InCapsule};
use super::{Cx, Phase, Queue, QueuePair, Role, Transport};
use crate::arrival::Arrival;
use crate::association::Association;
use crate::command::{DataLocation, Direction, Plan, Work, check_sgl, decode_io, operation_of};
use crate::operation::Operation;
use crate::payload::Payload;
use crate::sample::Sample;
use crate::services::{Account, Accounting, NamespaceTable, Services};
use crate::subsystems::paths;

/// Unsent bytes above which no read is started. More bytes per call are faster (128 KiB reads, depth 16, one connection: 22 k
/// with 256 KiB, 34 k with 512 KiB, 37 k with 768 KiB and with 1 MiB) but delay other work of the core.
pub(super) const TX_BUDGET: usize = 768 * 1024;

/// Whether the namespace of a command can be accessed by the port of its association; for all namespaces, each of them.
#[cold]
pub(super) fn path_open(
    sqe_nsid: u32,
    association: &Association,
    namespaces: &impl NamespaceTable,
) -> Result<(), Status> {
    let listed = namespaces.listed(association.view());
    let refusal = |group| paths::refusal(namespaces.directory().ana_state(association.origin.port, group));
    let is_meant = |nsid: u32| sqe_nsid == nsid || sqe_nsid == u32::MAX;
    let mut meant = listed.iter().filter(|(nsid, _)| is_meant(*nsid));
    meant.find_map(|(_, info)| refusal(info.ana_group)).map_or(Ok(()), Err)
}

/// Counts a refused command, or accepts it after all: where some paths are closed, no command is accepted without this look.
#[cold]
pub(super) fn refused<S: Services>(
    sqe: &Sqe,
    association: &Association,
    status: Status,
    cx: &Cx<S>,
) -> Result<Plan, Status> {
    let (view, nsid) = (association.view(), sqe.nsid.get());
    let plan = if association.has_closed_paths() {
        path_open(nsid, association, cx.namespaces)?; // no failure of the namespace
        decode_io(sqe, view, cx.namespaces)
    } else {
        Err(status)
    };
    if let (Err(status), Some(namespace)) = (plan, cx.namespaces.index_of(view, nsid)) {
        cx.note_failure(operation_of(sqe), (namespace, Some(sqe.slba())), status, false);
    }
    plan
}

/// Result of a step of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is completed, in a backend, or waits for the host.
    Handled,
    /// It needs memory, or space to send.
    Blocked,
    /// The backend is busy.
    Busy,
    /// It can continue after other commands.
    Yield,
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Accepts a command of an I/O queue.
    pub(super) fn io_command(&mut self, sqe: &Sqe, capsule: InCapsule, cx: &mut Cx<S>) {
        let Role::Io(association) = &self.role else { return };
        if sqe.opcode == opcode::FABRICS {
            return self.fabrics_on_io_queue(sqe, capsule, cx);
        }
        let mut plan = decode_io(sqe, association.request_view(), cx.namespaces);
        if let Err(status) = plan {
            if sqe.fuse() != fuse::NONE {
                return self.fused_command(sqe, capsule, cx);
            }
            plan = refused(sqe, association, status, cx);
        }
        self.accept(sqe, plan, capsule, cx);
    }

    #[cold]
    pub(super) fn fabrics_on_io_queue(&mut self, sqe: &Sqe, capsule: InCapsule, cx: &mut Cx<S>) {
        let cid = sqe.cid.get();
        match sqe.fctype() {
            fctype::DISCONNECT => {
                let idle = self.queue.as_ref().is_some_and(|queue| queue.slots.in_use() == 0);
                if !idle {
                    self.refuse(cid, Status::COMMAND_SEQUENCE.dnr(), 0);
                    return;
                }
                self.refuse(cid, Status::SUCCESS, 0);
                self.close_after_response(cx);
            }
            fctype::CONNECT => self.refuse(cid, Status::COMMAND_SEQUENCE.dnr(), 0),
            fctype::AUTHENTICATION_SEND | fctype::AUTHENTICATION_RECEIVE => {
                self.authentication_command(sqe, capsule, cx); // again
            }
            _ => self.refuse(cid, Status::INVALID_FIELD.dnr(), 0),
        }
    }

    /// Assigns a slot to a command, or refuses it. Inlined, because a call costs a 4 KiB write about 30 instructions.
    #[inline]
    pub(super) fn accept(&mut self, sqe: &Sqe, plan: Result<Plan, Status>, capsule: InCapsule, cx: &mut Cx<S>) {
        let cid = sqe.cid.get();
        let Some(queue) = &mut self.queue else { return };
        let index = match queue.slots.take(cid) {
            Ok(index) => index,
            Err(no_slot) => return self.refuse(cid, no_slot.status(), 0),
        };
        let checked = plan.and_then(|plan| Ok((plan, check_sgl(sqe, &plan, capsule.bytes.len())?)));
        let slot = queue.slots.get(index);
        slot.begin(sqe.nsid.get(), (cx.now_ns, cx.sample));
        match checked {
            Err(status) => slot.fail(status),
            Ok(_) if !capsule.intact => slot.fail(Status::TRANSIENT_TRANSPORT),
            Ok((plan, location)) => {
                slot.work = plan.work;
                slot.len = plan.len;
                slot.missing =
                    plan.direction == Direction::FromHost && plan.len > 0 && location != DataLocation::InCapsule;
                if cx.services.are_caps_in_use() && self.is_throttled(index, cx) {
                    if location == DataLocation::InCapsule {
                        self.keep_data(index, capsule.bytes, cx);
                    }
                    return;
                }
                if location == DataLocation::InCapsule {
                    if self.write_now(index, capsule.bytes, cx) {
                        return;
                    }
                    self.keep_data(index, capsule.bytes, cx);
                }
            }
        }
        self.make_wait(index, false);
    }

    /// Copies in-capsule data of the command in `index` to a buffer.
    pub(super) fn keep_data(&mut self, index: u16, data: &[u8], cx: &mut Cx<S>) {
        let Some(queue) = &mut self.queue else { return };
        let slot = queue.slots.get(index);
        slot.buffer = cx.memory.take_in_capsule(&mut queue.quota, data.len());
        if let Work::Compare(_) = slot.work {
            slot.aux = cx.memory.take_in_capsule(&mut queue.quota, data.len());
        }
        match &mut slot.buffer {
            Some(buffer) if slot.aux.is_some() || !matches!(slot.work, Work::Compare(_)) => {
                buffer.copy_from_slice(data)
            }
            // the memory for in-capsule data is exhausted: the host may retry
            _ => slot.fail(Status::INTERNAL),
        }
    }

    /// Advances the command in `index` as far as possible.
    pub(super) fn drive(&mut self, index: u16, cx: &mut Cx<S>) {
        if self.step(index, cx) != Step::Handled {
            self.make_wait(index, false);
        }
    }

    pub(super) fn make_wait(&mut self, index: u16, first: bool) {
        if let Some(queue) = &mut self.queue {
            queue.make_wait(index, first);
        }
    }

    /// Retries waiting commands, alternating between both lists until the first of each is blocked, then those behind commands
    /// of busy namespaces. Returns whether any advanced.
    pub fn run_waiting(&mut self, cx: &mut Cx<S>) -> bool {
        if matches!(self.phase, Phase::Connecting(_)) {
            return self.poll_connecting(cx);
        }
        let budget = self.budget;
        self.was_busy = false;
        if self.held_until_ns.is_some_and(|until_ns| cx.now_ns >= until_ns) {
            self.release_held(cx);
        }
        self.prefetch_reads(cx);
        let Some(queue) = &self.queue else { return false };
        let (mut ready, mut waiting) = (queue.ready.len(), queue.waiting.len());
        while self.budget > 0 && ready + waiting > 0 {
            ready = self.try_next(ready, |queue| &mut queue.ready, cx);
            waiting = self.try_next(waiting, |queue| &mut queue.waiting, cx);
        }
        if self.was_busy {
            self.retry_behind_busy(cx);
        }
        self.budget < budget
    }

    /// Retries the first command of a list; returns how many of `left` remain.
    fn try_next(&mut self, left: usize, list: fn(&mut Queue<S>) -> &mut VecDeque<u16>, cx: &mut Cx<S>) -> usize {
        if left == 0 || self.budget == 0 {
            return left;
        }
        let Some(index) = self.queue.as_mut().and_then(|queue| list(queue).pop_front()) else { return 0 };
        let step = self.step(index, cx);
        self.budget -= u32::from(matches!(step, Step::Handled | Step::Yield));
        match step {
            Step::Handled => left - 1,
            Step::Yield => {
                self.make_wait(index, false);
                left - 1
            }
            Step::Blocked | Step::Busy => {
                self.was_busy |= step == Step::Busy;
                self.make_wait(index, true);
                0
            }
        }
    }

    /// Completes the command in `index` and frees its slot.
    pub(super) fn complete(&mut self, index: u16, result: u64, cx: &mut Cx<S>) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Handled };
        let slot = queue.slots.get(index);
        if slot.kind != Kind::Command {
            return self.complete_special(index, cx);
        }
        let mut cqe = Cqe::new(slot.cid, slot.status, result);
        if queue.flow_control {
            cqe.sqhd = U16::new(queue.sqhd);
        }
        let to_host = matches!(
            slot.work,
            Work::Read(_)
                | Work::Admin(_)
                | Work::Counted(_)
                | Work::AwaitRate(_)
                | Work::Utilization(_)
                | Work::Authenticate(_)
                | Work::AwaitReservation
        ) && slot.status.is_success();
        let mut arrival = Arrival { poll_ns: slot.arrived_ns, sample: Sample::NONE };
        match &slot.work {
            Work::Read(_) => {
                cx.accounting.add_read(u64::from(slot.len));
                arrival.sample = queue.usage.count(slot, Operation::Read);
            }
            Work::Write { .. } => {
                cx.accounting.add_write(u64::from(slot.len));
                arrival.sample = queue.usage.count(slot, Operation::Write);
            }
            work => {
                arrival = Arrival::NONE;
                if let Some(operation) = work.operation() {
                    queue.usage.account.count_other(slot.nsid, operation);
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
        Step::Handled
    }

    /// Completes internal work, or a fused operation.
    #[cold]
    fn complete_special(&mut self, index: u16, cx: &mut Cx<S>) -> Step {
        let Some(queue) = &mut self.queue else { return Step::Handled };
        let slot = queue.slots.get(index);
        if slot.kind == Kind::Fused {
            return self.complete_fused(index, cx);
        }
        let flushed = slot.status.is_success();
        self.end_slot(index, cx);
        self.on_internal_done(flushed, cx);
        Step::Handled
    }

    /// The buffer for the fetched data of the command in `slot`.
    pub fn data_buffer(&mut self, slot: u16) -> Option<&mut [u8]> {
        self.queue.as_mut()?.slots.get(slot).buffer.as_deref_mut()
    }

    /// Continues the command in `slot` after all of its data has arrived; `intact`: its digests match.
    pub fn on_data(&mut self, slot: u16, intact: bool, cx: &mut Cx<S>) {
        let Some(queue) = &mut self.queue else { return };
        let command = queue.slots.get(slot);
        command.missing = false;
        if !intact {
            command.fail(Status::TRANSIENT_TRANSPORT);
            self.return_charge(slot, cx);
        }
        self.drive(slot, cx);
    }

    /// Retries the command in `slot` later: the rest of its data cannot be requested now.
    pub fn on_fetch_blocked(&mut self, slot: u16) {
        self.make_wait(slot, false);
    }

    /// Aborts command `cid` unless it is in a backend. Its completion is queued before this returns.
    pub fn abort(&mut self, cid: u16, cx: &mut Cx<S>) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        let Some(index) = queue.slots.find(cid) else { return false };
        let slot = queue.slots.get(index);
        if !matches!(slot.state, State::Waiting | State::Throttled | State::Held | State::Receiving | State::Parked)
            || matches!(slot.work, Work::AwaitAbort | Work::AwaitReservation)
        {
            return false;
        }
        slot.fail(Status::ABORT_REQUESTED);
        queue.ready.retain(|&waiting| waiting != index);
        queue.waiting.retain(|&waiting| waiting != index);
        self.return_charge(index, cx);
        self.complete(index, 0, cx);
        true
    }
}

impl<S: Services> Queue<S> {
    /// Adds the command in `index` to its list.
    #[inline]
    pub(super) fn make_wait(&mut self, index: u16, first: bool) {
        let slot = self.slots.get(index);
        slot.state = State::Waiting;
        let list = if needs_memory(slot) { &mut self.waiting } else { &mut self.ready };
        if first {
            list.push_front(index);
        } else {
            list.push_back(index);
        }
    }
}

/// Whether a command needs a buffer or space to send.
#[inline]
pub(super) fn needs_memory(slot: &Slot) -> bool {
    let is_read = matches!(
        slot.work,
        Work::Read(_)
            | Work::Verify { .. }
            | Work::Admin(_)
            | Work::Counted(_)
            | Work::AwaitRate(_)
            | Work::Utilization(_)
            | Work::Authenticate(_)
            | Work::Reservation(_)
    );
    slot.status.is_success() && (is_read || slot.missing)
}
