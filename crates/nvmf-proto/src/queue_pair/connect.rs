//! The Connect command (Base 6.3).
//!
//! A queue is admitted first: its memory is charged and it is counted for its host ([`Admission`]).
//!
//! Connect on an admin queue begins an association. If the host has other queues, lost ones must have stopped first: every
//! I/O thread with such queues checks which of them the host has closed, and then the queues of ended associations are waited
//! for. Requests that they have in the backends delay only commands to the same namespaces ([`crate::unfinished`]).
//!
//! Connect on an I/O queue requests to join from the I/O thread of the admin queue.

use std::collections::VecDeque;
use std::sync::Arc;

use pilotlight_nvme::command::{Sgl, opcode};
use pilotlight_nvme::fabrics::{CNTLID_DYNAMIC, ConnectCmd, ConnectData, DISCOVERY_NQN, fctype, nqn_from_field};
use pilotlight_nvme::{Cqe, Sqe, Status};
use pilotlight_storage::lease::Lease;
use pilotlight_storage::wait::Wait;
use zerocopy::FromBytes;
use zerocopy::little_endian::U16;

use super::admin::AdminQueue;
use super::refusal::hostnqn_from_field;
use super::slots::{Slots, State};
use super::throttle::Throttled;
use super::{Cx, InCapsule, Phase, Queue, QueuePair, Role, Transport};
use crate::arrival::Arrival;
use crate::association::{Association, Origin};
use crate::command::Work;
use crate::ids::{ConnAddr, DISCOVERY, HostKey, PortId};
use crate::memory::QueueQuota;
use crate::queue_pair::message::ConnectRefusal;
use crate::queue_pair::message::QueueMessage;
use crate::services::{Admission, AssociationRegister, NamespaceTable, Services};
use crate::subsystems::discovery::ADMIN_QUEUE_ENTRIES;
use crate::unfinished::Unfinished;

/// A waiting Connect command.
pub(super) struct Connecting<S: Services> {
    cid: u16,
    cmd: ConnectCmd,
    admission: S::Admission,
    step: ConnectStep,
}

enum ConnectStep {
    /// Waits for this many I/O threads to check for connections closed by the host.
    Barrier(u16),
    /// Waits until the queues of the host's ended associations have stopped.
    Drain,
    /// Waits for the admin queue's I/O thread.
    Attach(Arc<Association>),
}

/// Polling interval for the end of what a host's lost queues do on other I/O threads, in nanoseconds.
pub(super) const DRAIN_POLL_NS: u64 = 1_000_000;

impl<S: Services> Connecting<S> {
    /// The event that it waits for.
    pub(super) fn wait(&self, now_ns: u64) -> Wait {
        match self.step {
            ConnectStep::Drain => Wait::Until(now_ns + DRAIN_POLL_NS),
            ConnectStep::Barrier(_) | ConnectStep::Attach(_) => Wait::Event,
        }
    }

    /// Whether it must be polled: no message ends the wait.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self.step, ConnectStep::Drain)
    }
}

/// Bytes that [`QueuePair::connected`] allocates for a queue of `size` entries above a transport `T`, and its end if it is lost.
fn queue_bytes<T: Transport>(size: u16) -> usize {
    let lists = 4 * Slots::count(size) * size_of::<u16>();
    Slots::bytes(size) + lists + Slots::count(size) * Unfinished::BYTES + T::bytes(size, Slots::count(size))
}

/// The data of the first command, which must be Connect.
fn connect_data(sqe: &Sqe, capsule: &InCapsule) -> Result<ConnectData, ConnectRefusal> {
    if sqe.opcode != opcode::FABRICS || sqe.fctype() != fctype::CONNECT {
        return Err(ConnectRefusal::OTHER_COMMAND);
    }
    if sqe.sgl.identifier != Sgl::IN_CAPSULE {
        return Err(ConnectRefusal::SGL);
    }
    let data = ConnectData::read_from_bytes(capsule.bytes).map_err(|_| ConnectRefusal::LENGTH)?;
    if capsule.intact { Ok(data) } else { Err(ConnectRefusal::DATA_DIGEST) }
}

/// The index of the subsystem named `nqn`; [`DISCOVERY`] for the discovery service.
pub(super) fn find_subsystem<S: Services>(nqn: &str, cx: &Cx<S>) -> Option<usize> {
    if nqn == DISCOVERY_NQN { Some(DISCOVERY) } else { cx.namespaces.directory().find(nqn) }
}

/// Whether the host may connect to the subsystem on this port.
fn admit<S: Services>((subsystem, port): (usize, PortId), hostnqn: &str, cx: &Cx<S>) -> Result<(), ConnectRefusal> {
    let directory = cx.namespaces.directory();
    if !directory.exists(subsystem) {
        return Err(ConnectRefusal::SUBNQN);
    }
    if !directory.allows(subsystem, hostnqn) {
        return Err(ConnectRefusal::HOST_NOT_ALLOWED);
    }
    if directory.is_offered(subsystem, port) { Ok(()) } else { Err(ConnectRefusal::OTHER_PORT) }
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Handles the first command.
    pub(super) fn first_command(&mut self, sqe: &Sqe, capsule: InCapsule, cx: &mut Cx<S>) {
        let cid = sqe.cid.get();
        let data = match connect_data(sqe, &capsule) {
            Ok(data) => data,
            Err(refusal) => return self.refuse_connect(cid, refusal, ("", None), cx),
        };
        if self.hands_over(sqe, &data, cx) {
            return;
        }
        self.handle_connect(sqe, &data, cx);
    }

    pub(super) fn handle_connect(&mut self, sqe: &Sqe, data: &ConnectData, cx: &mut Cx<S>) {
        let cid = sqe.cid.get();
        let cmd = ConnectCmd::decode(sqe);
        if let Err(refusal) = self.connect(cid, cmd, data, cx) {
            let host = nqn_from_field(&data.hostnqn).unwrap_or_default();
            self.refuse_connect(cid, refusal, (host, nqn_from_field(&data.subnqn)), cx);
        }
    }

    fn connect(&mut self, cid: u16, cmd: ConnectCmd, data: &ConnectData, cx: &mut Cx<S>) -> Result<(), ConnectRefusal> {
        if cmd.recfmt != 0 {
            return Err(ConnectRefusal::RECFMT);
        }
        let most = cx.services.limits().max_queue_depth;
        let most = if cmd.qid == 0 { most.min(ADMIN_QUEUE_ENTRIES) } else { most };
        if cmd.sqsize == 0 || cmd.sqsize >= most {
            return Err(ConnectRefusal::SQSIZE);
        }
        let subnqn = nqn_from_field(&data.subnqn).ok_or(ConnectRefusal::SUBNQN)?;
        let hostnqn = hostnqn_from_field(&data.hostnqn).ok_or(ConnectRefusal::HOSTNQN)?;
        let subsystem = find_subsystem(subnqn, cx).ok_or(ConnectRefusal::SUBNQN)?;
        admit((subsystem, self.login.port), hostnqn, cx)?;
        let host = HostKey { subsystem, hostid: data.hostid, hostnqn: hostnqn.to_owned() };
        self.check_tls(&host, subnqn, cx)?;
        self.check_concatenation(cmd.qid, &host, cx)?;
        if cmd.qid == 0 {
            self.connect_admin(cid, cmd, host, data.cntlid.get(), cx)
        } else {
            self.connect_io(cid, cmd, host, data.cntlid.get(), cx)
        }
    }

    fn connect_admin(
        &mut self,
        cid: u16,
        cmd: ConnectCmd,
        host: HostKey,
        cntlid: u16,
        cx: &mut Cx<S>,
    ) -> Result<(), ConnectRefusal> {
        if cntlid != CNTLID_DYNAMIC {
            return Err(ConnectRefusal::CNTLID_STATIC);
        }
        let bytes = queue_bytes::<T>(cmd.sqsize + 1) + AdminQueue::bytes(cx.services.limits().max_io_queues);
        let admission = self.admission(host, bytes, cx)?;
        let threads = cx.services.associations().threads_of(admission.host(), cx.me);
        for &thread in &threads {
            cx.out.send(thread, QueueMessage::Barrier { host: admission.host().clone(), requester: cx.me });
        }
        let step = if threads.is_empty() { ConnectStep::Drain } else { ConnectStep::Barrier(threads.len() as u16) };
        self.await_others(Connecting { cid, cmd, admission, step });
        self.poll_connecting(cx);
        Ok(())
    }

    fn connect_io(
        &mut self,
        cid: u16,
        cmd: ConnectCmd,
        host: HostKey,
        cntlid: u16,
        cx: &mut Cx<S>,
    ) -> Result<(), ConnectRefusal> {
        let Some(association) = cx.services.associations().get(cntlid).filter(|a| !a.has_ended()) else {
            return Err(ConnectRefusal::CNTLID_UNKNOWN);
        };
        if association.host.subsystem != host.subsystem {
            return Err(ConnectRefusal::SUBNQN_OTHER);
        }
        if association.host.hostnqn != host.hostnqn {
            return Err(ConnectRefusal::HOSTNQN_OTHER);
        }
        if association.host.hostid != host.hostid {
            return Err(ConnectRefusal::HOSTID_OTHER);
        }
        let admission = self.admission(host, queue_bytes::<T>(cmd.sqsize + 1), cx)?;
        let admin = association.admin;
        cx.out.send(admin.thread, QueueMessage::Attach { admin, qid: cmd.qid, queue: cx.me });
        self.await_others(Connecting { cid, cmd, admission, step: ConnectStep::Attach(association) });
        Ok(())
    }

    fn await_others(&mut self, connecting: Connecting<S>) {
        self.phase = Phase::Connecting(Box::new(connecting));
        self.deadline_ns = self.login.deadline_ns;
    }

    /// Handles the reply of one I/O thread to the barrier.
    pub fn on_barrier_passed(&mut self) {
        let Phase::Connecting(connecting) = &mut self.phase else { return };
        if let ConnectStep::Barrier(left) = &mut connecting.step {
            *left -= 1;
            if *left == 0 {
                connecting.step = ConnectStep::Drain;
            }
        }
    }

    /// Continues a waiting Connect if possible; returns whether it did.
    pub(super) fn poll_connecting(&mut self, cx: &mut Cx<S>) -> bool {
        let Phase::Connecting(connecting) = &self.phase else { return false };
        if !connecting.is_draining() || cx.services.associations().is_draining(connecting.admission.host()) {
            return false;
        }
        let Connecting { cid, cmd, admission, .. } = *self.take_connecting();
        self.begin_association(cid, cmd, admission, cx);
        true
    }

    fn take_connecting(&mut self) -> Box<Connecting<S>> {
        match std::mem::replace(&mut self.phase, Phase::AwaitConnect) {
            Phase::Connecting(connecting) => connecting,
            _ => unreachable!("the connection waits in Connect"),
        }
    }

    /// Begins the association, after a second check: subsystems and secrets may have changed meanwhile.
    fn begin_association(&mut self, cid: u16, cmd: ConnectCmd, admission: S::Admission, cx: &mut Cx<S>) {
        let host = admission.host();
        let place = (host.subsystem, self.login.port);
        let checked = admit(place, &host.hostnqn, cx).and_then(|()| self.check_concatenation(0, host, cx));
        if let Err(refusal) = checked {
            return self.refuse_connect(cid, refusal, (&admission.host().hostnqn, None), cx);
        }
        let origin = Origin { peer: self.peer, port: self.login.port, began_ns: cx.now_ns };
        let ids = cx.namespaces.directory().subsystem(admission.host().subsystem).and_then(|one| one.controller_ids());
        let Some(association) = cx.services.associations().begin(admission.host().clone(), cx.me, origin, ids) else {
            return self.refuse_connect(cid, ConnectRefusal::NO_CNTLID_LEFT, (&admission.host().hostnqn, None), cx);
        };
        let cntlid = association.cntlid;
        if cx.namespaces.directory().has_closed_paths(self.login.port) {
            association.set_closed_paths(true);
        }
        self.role = Role::Admin(Box::new(AdminQueue::new(association, &cmd, cx)));
        self.connected(cid, &cmd, cntlid, admission, cx);
        if !self.check_authentication(cx) {
            self.check_keep_alive(cx);
        }
    }

    /// Handles the reply of the I/O thread of the admin queue `admin` for queue `qid`. Returns whether the connection still
    /// waited for it.
    pub fn on_attached(
        &mut self,
        admin: ConnAddr,
        qid: u16,
        result: Result<(), ConnectRefusal>,
        cx: &mut Cx<S>,
    ) -> bool {
        let waits =
            |c: &Connecting<S>| matches!(&c.step, ConnectStep::Attach(to) if to.admin == admin) && c.cmd.qid == qid;
        if !matches!(&self.phase, Phase::Connecting(connecting) if waits(connecting)) {
            return false;
        }
        let Connecting { cid, cmd, step, admission } = *self.take_connecting();
        let ConnectStep::Attach(association) = step else { return false };
        let host = admission.host();
        let checked = self.check_concatenation(cmd.qid, host, cx); // secrets may have changed meanwhile
        if result.is_ok() && checked.is_err() {
            cx.out.send(admin.thread, QueueMessage::Detached { admin, qid, queue: cx.me });
        }
        let result = result.and(checked);
        match result {
            Ok(()) => {
                let cntlid = association.cntlid;
                self.role = Role::Io(association);
                self.deadline_ns = u64::MAX;
                self.connected(cid, &cmd, cntlid, admission, cx);
                self.check_authentication(cx);
            }
            Err(refusal) => {
                self.deadline_ns = self.login.deadline_ns;
                self.refuse_connect(cid, refusal, (&admission.host().hostnqn, None), cx);
            }
        }
        true
    }

    /// Completes the Connect and creates the queue.
    fn connected(&mut self, cid: u16, cmd: &ConnectCmd, cntlid: u16, admission: S::Admission, cx: &mut Cx<S>) {
        let size = cmd.sqsize + 1;
        let authreq = self.require_authentication(cmd.qid, admission.host(), cx);
        let flow_control = cmd.cattr & ConnectCmd::DISABLE_SQ_FLOW == 0;
        self.queue = Some(Queue {
            qid: cmd.qid,
            size,
            slots: Slots::new(size),
            ready: VecDeque::with_capacity(Slots::count(size)),
            waiting: VecDeque::with_capacity(Slots::count(size)),
            throttled: Throttled::new(Slots::count(size)),
            sqhd: 1 % size,
            flow_control,
            quota: QueueQuota::default(),
            in_device: 0,
            unfinished: None,
            usage: self.new_usage(admission.host(), cx),
            admission,
        });
        self.transport.reserve(size, Slots::count(size));
        self.phase = Phase::Ready;
        let mut cqe = Cqe::new(cid, Status::SUCCESS, u64::from(cntlid) | u64::from(authreq));
        cqe.sqhd = U16::new(if flow_control { 1 % size } else { 0xffff });
        self.transport.respond(cqe, Arrival::NONE);
        if authreq == 0 {
            self.admit(cx);
        }
        tracing::debug!(qid = cmd.qid, size, cntlid, thread = cx.me.thread, "queue connected");
    }

    /// Leaves the controller of this I/O queue.
    pub(super) fn detach(&self, association: &Association, cx: &mut Cx<S>) {
        let Some(queue) = &self.queue else { return };
        let admin = association.admin;
        cx.out.send(admin.thread, QueueMessage::Detached { admin, qid: queue.qid, queue: cx.me });
    }

    /// Registers the requests that the lost queue has in the backends, which commands of its host's next association wait for; then that
    /// it submits nothing more, which a Connect waits for.
    pub(super) fn note_unfinished(&mut self, cx: &Cx<S>) {
        let Some(queue) = &mut self.queue else { return };
        if queue.in_device > 0 && queue.unfinished.is_none() {
            let in_device = queue.slots.iter_mut().filter(|(_, slot)| slot.state == State::Device);
            let leases = in_device.filter_map(|(_, slot)| lease_of(&slot.work, cx.namespaces));
            let unfinished = Unfinished::new(leases, queue.in_device);
            let unfinished = queue.unfinished.insert(Arc::new(unfinished));
            cx.services.associations().queue_lost(queue.admission.host(), Arc::clone(unfinished));
        }
        if let Role::Io(association) = &self.role {
            cx.services.associations().queue_stopped(association, cx.me);
        }
    }

    /// Registers that such a request has completed.
    pub(super) fn note_finished(&mut self, work: &Work, cx: &Cx<S>) {
        let Some(queue) = &mut self.queue else { return };
        let Some(unfinished) = &queue.unfinished else { return };
        lease_of(work, cx.namespaces).into_iter().for_each(|lease| unfinished.end_one(lease));
        if queue.in_device == 0 {
            cx.services.associations().queue_drained(queue.admission.host(), unfinished);
            queue.unfinished = None;
        }
    }

    /// Refuses a Connect that waited too long.
    pub(super) fn connect_timed_out(&mut self, cx: &mut Cx<S>) {
        let Connecting { cid, admission, step, .. } = *self.take_connecting();
        let refusal = match step {
            ConnectStep::Drain => ConnectRefusal::NOT_DRAINED,
            ConnectStep::Barrier(_) | ConnectStep::Attach(_) => ConnectRefusal::NO_ANSWER,
        };
        self.refuse_connect(cid, refusal, (&admission.host().hostnqn, None), cx);
        self.close_after_response(cx);
    }
}

/// The lease of the storage that has the request of a command.
fn lease_of<'a>(work: &Work, namespaces: &'a impl NamespaceTable) -> Option<&'a Lease> {
    let namespace = match work {
        Work::FlushAll { next, .. } => *next,
        work => work.target()?.0,
    };
    namespaces.lease(namespace)
}
