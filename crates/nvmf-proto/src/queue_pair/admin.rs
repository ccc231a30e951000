//! The admin queue: a controller and its I/O queues.
//!
//! The controller ([`crate::controller`]) is a pure state machine. This file executes its decisions: data goes into buffers,
//! parked commands keep their slots, I/O queues on other I/O threads get messages.

use std::sync::Arc;

use pilotlight_nvme::command::opcode;
use pilotlight_nvme::fabrics::{ConnectCmd, PropertyCmd, fctype};
use pilotlight_nvme::{Sqe, Status};

use super::io::{Step, TX_BUDGET};
use super::slots::{Slot, State};
use super::{Cx, InCapsule, Phase, QueuePair, Role, Transport};
use crate::association::Association;
use crate::command::{Direction, Plan, Work};
use crate::controller::{AdminEnv, Controller, ControllerKind, ControllerParams, Effect, Outcome, reports_utilization};
use crate::ids::{ConnAddr, DISCOVERY, HostKey};
use crate::queue_pair::message::ConnectRefusal;
use crate::queue_pair::message::QueueMessage;
use crate::services::{AssociationRegister, NamespaceTable, Services, UtilizationRequest};
use crate::subsystems::views::ChangedNamespace;

/// Refusal of an I/O queue whose controller has ended.
pub const CONTROLLER_ENDED: ConnectRefusal =
    ConnectRefusal::status(Status::CONNECT_INVALID_PARAMETERS.dnr(), "CNTLID: the controller has just ended");

/// State of an admin queue.
pub(super) struct AdminQueue {
    pub(super) association: Arc<Association>,
    pub(super) controller: Controller,
    /// Connections of the I/O queues, indexed by queue identifier minus one.
    queues: Vec<Option<ConnAddr>>,
    /// The step after the last I/O queue has ended.
    after_queues: AfterQueues,
    /// The flush of a shutdown is in progress.
    is_flushing: bool,
    /// When the next command that waits for its host's rate may continue, in nanoseconds; `u64::MAX` for none.
    pub(super) delayed_until_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterQueues {
    Nothing,
    ResetDone,
    Flush,
}

impl AdminQueue {
    pub(super) fn new<S: Services>(association: Arc<Association>, cmd: &ConnectCmd, cx: &Cx<S>) -> Self {
        let limits = cx.services.limits();
        let subsystem = cx.namespaces.directory().subsystem(association.host.subsystem);
        let path_changes = cx.namespaces.directory().path_changes(association.origin.port).unwrap_or(0);
        let controller = Controller::new(ControllerParams {
            path_changes,
            power_states: subsystem.is_some() && cx.services.has_power_states(),
            cntlid: association.cntlid,
            kind: subsystem.map_or(ControllerKind::Discovery, |one| ControllerKind::Io(Arc::clone(one))),
            hostid: association.host.hostid,
            hostnqn: association.host.hostnqn.clone(),
            kato_ms: cmd.kato_ms,
            max_io_queues: limits.max_io_queues,
            max_queue_depth: limits.max_queue_depth,
            now_ns: cx.now_ns,
        });
        association.note_power_state(controller.power_state());
        let queues = Vec::with_capacity(usize::from(limits.max_io_queues));
        Self {
            association,
            controller,
            queues,
            after_queues: AfterQueues::Nothing,
            is_flushing: false,
            delayed_until_ns: u64::MAX,
        }
    }

    /// Maximum additional memory of an admin queue with `max_io_queues` I/O queues.
    pub(super) const fn bytes(max_io_queues: u16) -> usize {
        let per_queue = size_of::<Option<ConnAddr>>() + 2 * size_of::<ConnAddr>(); // the association's list doubles as it grows
        size_of::<Self>() + max_io_queues as usize * per_queue + Controller::HEAP_BYTES
    }

    pub(super) fn is_alone(&self) -> bool {
        self.queues.iter().all(Option::is_none)
    }

    /// The host is authenticated: its keep-alive timeout begins.
    pub(super) fn note_authentication(&mut self, now_ns: u64) {
        self.controller.traffic(now_ns);
    }

    /// Reports traffic on I/O queues to the controller.
    fn report_traffic(&mut self, now_ns: u64) {
        if self.association.take_traffic() {
            self.controller.io_traffic(now_ns);
        }
    }

    fn terminate_queues<S: Services>(&self, cx: &mut Cx<S>) {
        for &queue in self.queues.iter().flatten() {
            cx.out.send(queue.thread, QueueMessage::Terminate(queue));
        }
    }
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// The host of this connection's association.
    #[must_use]
    pub fn host(&self) -> Option<&HostKey> {
        match &self.role {
            Role::Io(association) => Some(&association.host),
            Role::Admin(admin) => Some(&admin.association.host),
            Role::None => None,
        }
    }

    /// Whether this connection belongs to one of these associations.
    #[must_use]
    pub fn is_of(&self, associations: &[Arc<Association>]) -> bool {
        let of = match &self.role {
            Role::Io(association) => association,
            Role::Admin(admin) => &admin.association,
            Role::None => return false,
        };
        associations.iter().any(|association| Arc::ptr_eq(association, of))
    }

    /// Accepts a command of the admin queue.
    pub(super) fn admin_command(&mut self, sqe: &Sqe, capsule: InCapsule, cx: &mut Cx<S>) {
        let Role::Admin(admin) = &mut self.role else { return };
        admin.controller.traffic(cx.now_ns);
        if sqe.opcode == opcode::FABRICS {
            self.fabrics_on_admin_queue(sqe, capsule, cx);
            return;
        }
        let plan = admin_plan(&admin.controller, sqe);
        self.accept(sqe, plan, capsule, cx);
    }

    fn fabrics_on_admin_queue(&mut self, sqe: &Sqe, capsule: InCapsule, cx: &mut Cx<S>) {
        let cid = sqe.cid.get();
        let Role::Admin(admin) = &mut self.role else { return };
        let property = PropertyCmd::decode(sqe);
        let (status, result) = match sqe.fctype() {
            fctype::PROPERTY_GET => match admin.controller.property_get(&property) {
                Ok(value) => (Status::SUCCESS, value),
                Err(status) => (status, 0),
            },
            fctype::PROPERTY_SET => match admin.controller.property_set(&property, cx.now_ns) {
                Ok(effect) => {
                    self.refuse(cid, Status::SUCCESS, 0);
                    return self.on_effect(effect, cx);
                }
                Err(status) => (status, 0),
            },
            fctype::AUTHENTICATION_SEND | fctype::AUTHENTICATION_RECEIVE => {
                return self.authentication_command(sqe, capsule, cx); // again
            }
            fctype::CONNECT => (Status::COMMAND_SEQUENCE.dnr(), 0),
            fctype::DISCONNECT => (Status::DISCONNECT_QUEUE_TYPE.dnr(), 0), // only for I/O queues
            _ => (Status::INVALID_FIELD.dnr(), 0),
        };
        self.refuse(cid, status, result);
    }

    fn on_effect(&mut self, effect: Effect, cx: &mut Cx<S>) {
        let Role::Admin(admin) = &mut self.role else { return };
        admin.after_queues = match effect {
            Effect::None | Effect::Enabled => return,
            Effect::Reset => AfterQueues::ResetDone,
            Effect::Shutdown { .. } => AfterQueues::Flush,
        };
        if effect == Effect::Reset {
            // After a shutdown the host closes the queues itself.
            admin.terminate_queues(cx);
            self.abort_parked(cx);
        }
        self.queues_changed(cx);
    }

    /// Ends parked Async Event Requests, and commands that wait for their host's rate, without a completion: the controller has been reset.
    fn abort_parked(&mut self, cx: &mut Cx<S>) {
        let Some(queue) = &mut self.queue else { return };
        let parked = |work: &Work| matches!(work, Work::AwaitEvent | Work::AwaitRate(_));
        let slots: Vec<u16> = queue.slots.iter_mut().filter(|(_, s)| parked(&s.work)).map(|(index, _)| index).collect();
        for index in slots {
            self.end_slot(index, cx);
        }
    }

    /// Continues a reset or a shutdown when its condition is met.
    fn queues_changed(&mut self, cx: &mut Cx<S>) {
        let Role::Admin(admin) = &mut self.role else { return };
        match admin.after_queues {
            AfterQueues::ResetDone if admin.is_alone() => {
                admin.after_queues = AfterQueues::Nothing;
                admin.controller.reset_done();
            }
            AfterQueues::Flush if !admin.is_flushing => {
                admin.after_queues = AfterQueues::Nothing;
                admin.is_flushing = true;
                self.flush_for_shutdown(cx);
            }
            _ => {}
        }
    }

    /// Flushes every namespace, then reports the result to the controller.
    fn flush_for_shutdown(&mut self, cx: &mut Cx<S>) {
        let Some(queue) = &mut self.queue else { return };
        let Some(index) = queue.slots.take_internal() else {
            unreachable!("one flush at a time, for which there is a slot")
        };
        let slot = queue.slots.get(index);
        slot.work = Work::FlushAll { next: 0, failed: Status::SUCCESS };
        slot.len = 0;
        self.drive(index, cx);
    }

    /// Handles the end of [`QueuePair::flush_for_shutdown`].
    pub(super) fn on_internal_done(&mut self, flushed: bool, cx: &mut Cx<S>) {
        let Role::Admin(admin) = &mut self.role else { return };
        admin.is_flushing = false;
        if admin.after_queues == AfterQueues::Flush {
            return self.queues_changed(cx); // the host has requested another shutdown
        }
        if flushed {
            return admin.controller.shutdown_done();
        }
        let host = &admin.association.host.hostnqn;
        tracing::warn!(host, "flush failed at this host's shutdown; the controller reports a fatal status");
        admin.controller.shutdown_failed();
    }

    /// Executes or retries the admin command in `index`.
    pub(super) fn counted_step(&mut self, index: u16, sqe: &Sqe, cx: &mut Cx<S>) -> Step {
        if self.awaits_utilization(index, sqe, cx) { Step::Handled } else { self.execute_admin(index, sqe, cx) }
    }

    /// Parks the command in `index` if it reads the utilization of a medium, which may block: another OS thread does that, and
    /// [`QueuePair::on_utilization`] resumes.
    fn awaits_utilization(&mut self, index: u16, sqe: &Sqe, cx: &Cx<S>) -> bool {
        let (Some(queue), Role::Admin(admin)) = (&mut self.queue, &self.role) else { return false };
        let subsystem = admin.association.host.subsystem;
        let Some(nsid) = reports_utilization(sqe).filter(|_| admin.controller.is_ready()) else { return false };
        if cx.namespaces.listed(admin.association.view()).find(nsid).is_none() {
            return false;
        }
        let slot = queue.slots.get(index);
        let request = UtilizationRequest { subsystem, nsid, admin: cx.me, slot: index, generation: slot.generation };
        if !cx.services.request_utilization(request) {
            return false; // report the last value
        }
        slot.work = Work::Utilization(*sqe);
        slot.state = State::Parked;
        true
    }

    /// Resumes the Identify command in `slot`.
    pub fn on_utilization(&mut self, slot: u16, generation: u8, cx: &mut Cx<S>) {
        let Some(queue) = self.queue.as_mut().filter(|_| matches!(self.phase, Phase::Ready)) else { return };
        let parked = |slot: &&mut Slot| slot.state == State::Parked && matches!(slot.work, Work::Utilization(_));
        if queue.slots.get_if(slot, generation).filter(parked).is_some() {
            self.drive(slot, cx);
        }
    }

    /// Executes the admin command in `index`.
    pub(super) fn execute_admin(&mut self, index: u16, sqe: &Sqe, cx: &mut Cx<S>) -> Step {
        let (Some(queue), Role::Admin(admin)) = (&mut self.queue, &mut self.role) else { return Step::Handled };
        let slot = queue.slots.get(index);
        let from_host = slot.buffer.take();
        let to_host = if from_host.is_none() && slot.len > 0 {
            let len = slot.len as usize;
            let room = self.transport.unsent_bytes() < TX_BUDGET;
            let buffer = if room { cx.memory.take(&mut queue.quota, len) } else { None };
            let Some(mut buffer) = buffer else { return Step::Blocked };
            buffer.fill(0);
            Some(buffer)
        } else {
            None
        };
        let mut to_host = to_host;
        let data = from_host.as_deref().unwrap_or(&[]);
        let out = to_host.as_deref_mut().unwrap_or(&mut []);
        admin.report_traffic(cx.now_ns);
        let namespaces = cx.namespaces.listed(admin.association.view());
        let env = AdminEnv {
            namespaces,
            counters: &cx.services.totals(),
            power_on: cx.services.power_on(),
            directory: cx.namespaces.directory(),
            port: admin.association.origin.port,
            local: self.local,
        };
        let outcome = admin.controller.execute(sqe, data, out, cx.now_ns, &env);
        admin.association.note_power_state(admin.controller.power_state());
        if let Some(buffer) = from_host {
            cx.memory.free(&mut queue.quota, buffer);
            slot.len = 0;
        }
        slot.buffer = to_host;
        match outcome {
            Outcome::Complete { status, result } => {
                slot.fail(status);
                let step = self.complete(index, result, cx);
                self.renew_keep_alive(cx);
                self.deliver_events(cx);
                step
            }
            Outcome::Parked => {
                slot.work = Work::AwaitEvent;
                slot.state = State::Parked;
                self.deliver_events(cx);
                Step::Handled
            }
            Outcome::Persist { persists } => self.execute_persist(index, sqe.nsid.get(), persists, cx),
            Outcome::Abort { sqid, cid } => self.execute_abort(index, sqid, cid, cx),
        }
    }

    /// Abort: of a command on this queue at once, of another queue's by message. The result's bit 0 is clear if the command was
    /// aborted; its completion is sent before the Abort's (Base 5.1).
    fn execute_abort(&mut self, index: u16, sqid: u16, cid: u16, cx: &mut Cx<S>) -> Step {
        if sqid == 0 {
            let own = self.queue.as_mut().map(|queue| queue.slots.get(index).cid);
            let stopped = own != Some(cid) && self.abort(cid, cx);
            if let (true, Role::Admin(admin)) = (stopped, &mut self.role) {
                admin.controller.forget_parked(cid);
            }
            return self.complete(index, u64::from(!stopped), cx);
        }
        let Role::Admin(admin) = &self.role else { return Step::Handled };
        let Some(queue) = admin.queues.get(usize::from(sqid) - 1).copied().flatten() else {
            return self.complete(index, 1, cx);
        };
        cx.out.send(queue.thread, QueueMessage::Abort { queue, cid, admin: cx.me, slot: index });
        if let Some(own) = &mut self.queue {
            let slot = own.slots.get(index);
            slot.work = Work::AwaitAbort;
            slot.state = State::Parked;
        }
        Step::Handled
    }

    /// Handles the reply of the other queue's I/O thread.
    pub fn on_aborted(&mut self, slot: u16, stopped: bool, cx: &mut Cx<S>) {
        let awaited = self.queue.as_mut().is_some_and(|queue| matches!(queue.slots.get(slot).work, Work::AwaitAbort));
        if awaited && matches!(self.phase, Phase::Ready) {
            self.complete(slot, u64::from(!stopped), cx);
        }
    }

    /// Completes parked Async Event Requests with pending events.
    pub(super) fn deliver_events(&mut self, cx: &mut Cx<S>) {
        loop {
            let Role::Admin(admin) = &mut self.role else { return };
            let Some((cid, result)) = admin.controller.take_event_completion() else { return };
            let index = self.queue.as_ref().and_then(|queue| queue.slots.find(cid));
            let Some(index) = index else { continue };
            self.complete(index, u64::from(result), cx);
        }
    }

    /// Handles an I/O queue's request to join.
    pub fn on_attach(&mut self, qid: u16, queue: ConnAddr, cx: &Cx<S>) -> Result<(), ConnectRefusal> {
        let Role::Admin(admin) = &mut self.role else { return Err(CONTROLLER_ENDED) };
        if !matches!(self.phase, Phase::Ready) {
            return Err(CONTROLLER_ENDED);
        }
        if !admin.controller.is_ready() || admin.after_queues == AfterQueues::ResetDone {
            let reason = "the controller is not enabled, or is being reset";
            return Err(ConnectRefusal::status(Status::COMMAND_SEQUENCE.dnr(), reason));
        }
        if qid == 0 || qid > admin.controller.granted_io_queues() {
            return Err(ConnectRefusal::QID);
        }
        let at = usize::from(qid) - 1;
        if admin.queues.len() <= at {
            admin.queues.resize(at + 1, None);
        }
        if admin.queues[at].is_some() {
            return Err(ConnectRefusal::status(Status::COMMAND_SEQUENCE, "QID: this queue is already connected"));
        }
        if !cx.services.associations().attach(&admin.association, queue) {
            return Err(CONTROLLER_ENDED);
        }
        admin.queues[at] = Some(queue);
        admin.controller.io_queue_connected();
        Ok(())
    }

    /// Removes an I/O queue with nothing in flight.
    pub fn on_detached(&mut self, qid: u16, queue: ConnAddr, cx: &mut Cx<S>) {
        let Role::Admin(admin) = &mut self.role else { return };
        if let Some(slot) = admin.queues.get_mut(usize::from(qid).wrapping_sub(1)).filter(|slot| **slot == Some(queue))
        {
            *slot = None;
            cx.services.associations().queue_stopped(&admin.association, queue); // it may never have become one
        }
        self.queues_changed(cx);
    }

    /// Ends the association with the connection of its admin queue.
    pub(super) fn end_association(&mut self, cx: &mut Cx<S>) {
        let Role::Admin(admin) = &self.role else { return };
        if !admin.association.has_ended() {
            cx.services.associations().terminate(&admin.association);
            admin.terminate_queues(cx);
        }
    }

    /// Reports a changed namespace to hosts that see it, or that see it no longer.
    pub fn on_namespace_changed(&mut self, changed: &ChangedNamespace, cx: &mut Cx<S>) {
        let Role::Admin(admin) = &mut self.role else { return };
        let is_affected = admin.association.host.subsystem == changed.subsystem
            && changed.affects(admin.association.view(), cx.namespaces.list().views());
        if is_affected && matches!(self.phase, Phase::Ready) {
            admin.controller.namespace_changed(changed.nsid);
            self.deliver_events(cx);
        }
    }

    /// Reports a change of the discovery log, or of the states of paths, if it is visible to the host.
    pub fn on_directory_changed(&mut self, cx: &mut Cx<S>) {
        let Role::Admin(admin) = &mut self.role else { return };
        let changes = cx.namespaces.directory().path_changes(admin.association.origin.port);
        let is_new = changes.is_some_and(|changes| admin.controller.note_path_changes(changes));
        if is_new && matches!(self.phase, Phase::Ready) {
            return self.deliver_events(cx);
        }
        let HostKey { subsystem, hostnqn, .. } = &admin.association.host;
        let is_visible = || cx.namespaces.directory().log().has_changed_for(hostnqn);
        if *subsystem == DISCOVERY && matches!(self.phase, Phase::Ready) && is_visible() {
            admin.controller.discovery_changed();
            self.deliver_events(cx);
        }
    }

    /// Checks the keep-alive timeout and sets the next deadline.
    pub(super) fn check_keep_alive(&mut self, cx: &mut Cx<S>) {
        if !matches!(self.phase, Phase::Ready) {
            return; // it is closing, and has a deadline for that
        }
        self.resume_delayed_commands(cx);
        self.deadline_ns = self.other_due_ns();
        let Role::Admin(admin) = &mut self.role else { return };
        admin.report_traffic(cx.now_ns);
        if admin.controller.expired(cx.now_ns) {
            let host = admin.association.host.hostnqn.as_str();
            tracing::warn!(host, peer = %self.peer, reason = "keep-alive timeout", "association ended");
            return self.lost(cx);
        }
        self.renew_keep_alive(cx);
    }

    /// Advances the deadline after a possible change of the keep-alive timeout.
    pub(super) fn renew_keep_alive(&mut self, cx: &Cx<S>) {
        self.deadline_ns = self.deadline_ns.min(self.other_due_ns());
        let Role::Admin(admin) = &self.role else { return };
        if let Some(kato_ns) = admin.controller.kato_ns().filter(|_| matches!(self.phase, Phase::Ready)) {
            self.deadline_ns = self.deadline_ns.min(cx.now_ns + (kato_ns / 4).max(1_000_000));
        }
    }
}

fn admin_plan(controller: &Controller, sqe: &Sqe) -> Result<Plan, Status> {
    let from_host = controller.host_data_len(sqe)?;
    let work = Work::Admin(*sqe);
    if from_host > 0 {
        return Ok(Plan { work, len: from_host, direction: Direction::FromHost });
    }
    let len = controller.controller_data_len(sqe)?;
    let direction = if len > 0 { Direction::ToHost } else { Direction::None };
    Ok(Plan { work, len, direction })
}
