//! Reservation commands: another thread executes them, as they may wait for a medium and concern other hosts.
//!
//! The command is parked in its slot meanwhile, a Report with the buffer for its data.

use pilotlight_nvme::reservation::Notification;
use pilotlight_nvme::{Sqe, Status};

use super::io::{Step, TX_BUDGET};
use super::slots::{Slot, State};
use super::{Cx, Phase, QueuePair, Role, Transport};
use crate::command::Work;
use crate::reservation::Command;
use crate::services::{NamespaceTable, ReservationRequest, Services};

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Has the reservation command in `index` executed.
    #[cold]
    pub(super) fn reservation_step(&mut self, index: u16, sqe: &Sqe, cx: &mut Cx<S>) -> Step {
        let (Some(queue), Role::Io(association)) = (&mut self.queue, &self.role) else { return Step::Handled };
        let slot = queue.slots.get(index);
        let command = match Command::decode(sqe, slot.buffer.as_deref().unwrap_or_default()) {
            Ok(command) => command,
            Err(status) => return self.fail_reservation(index, status, cx),
        };
        let namespace = cx.namespaces.index_of(association.view(), sqe.nsid.get());
        let parts = namespace.and_then(|at| Some((cx.namespaces.reservation(at)?, cx.namespaces.lease(at)?)));
        let Some((reservation, lease)) = parts else {
            return self.fail_reservation(index, Status::INVALID_NAMESPACE.dnr(), cx);
        };
        let request = ReservationRequest {
            namespaces: vec![(sqe.nsid.get(), reservation.clone())],
            storage: Some(lease.storage()),
            host: association.host.clone(),
            command,
            queue: cx.me,
            slot: (index, slot.generation),
        };
        if command == Command::Report {
            let room = self.transport.unsent_bytes() < TX_BUDGET;
            let buffer = if room { cx.memory.take(&mut queue.quota, slot.len as usize) } else { None };
            let Some(mut buffer) = buffer else { return Step::Blocked };
            buffer.fill(0);
            slot.buffer = Some(buffer);
        } else {
            slot.len = 0;
            if let Some(buffer) = slot.buffer.take() {
                cx.memory.free(&mut queue.quota, buffer);
            }
        }
        if cx.services.request_reservation(request) {
            (slot.work, slot.state) = (Work::AwaitReservation, State::Parked);
            return Step::Handled;
        }
        self.fail_reservation(index, Status::INTERNAL, cx) // too many wait: the host may retry
    }

    fn fail_reservation(&mut self, index: u16, status: Status, cx: &mut Cx<S>) -> Step {
        if let Some(queue) = &mut self.queue {
            queue.slots.get(index).fail(status);
        }
        self.complete(index, 0, cx)
    }

    /// Has Set Features for the persistence of reservations executed for the command in `index` of the admin queue.
    #[cold]
    pub(super) fn execute_persist(&mut self, index: u16, nsid: u32, persists: bool, cx: &mut Cx<S>) -> Step {
        let (Some(queue), Role::Admin(admin)) = (&mut self.queue, &self.role) else { return Step::Handled };
        let slot = queue.slots.get(index);
        let listed = cx.namespaces.listed(admin.association.view());
        let selected = listed.iter().filter(|(of, _)| nsid == u32::MAX || *of == nsid);
        let request = ReservationRequest {
            namespaces: selected.map(|(of, info)| (*of, info.reservation.clone())).collect(),
            storage: None,
            host: admin.association.host.clone(),
            command: Command::Persist(persists),
            queue: cx.me,
            slot: (index, slot.generation),
        };
        if cx.services.request_reservation(request) {
            (slot.work, slot.state) = (Work::AwaitReservation, State::Parked);
            return Step::Handled;
        }
        self.fail_reservation(index, Status::INTERNAL, cx)
    }

    /// Reports a notification of the reservation of namespace `nsid`, if the host sees that.
    pub fn on_reservation_notification(&mut self, nsid: u32, kind: Notification, cx: &mut Cx<S>) {
        let Role::Admin(admin) = &mut self.role else { return };
        let is_visible = cx.namespaces.listed(admin.association.view()).find(nsid).is_some();
        if is_visible && matches!(self.phase, Phase::Ready) && admin.controller.is_ready() {
            admin.controller.reservation_notified(nsid, kind);
            self.deliver_events(cx);
        }
    }

    /// Completes the command in `slot` with its status, and with `data` if it is a Report.
    pub fn on_reservation(&mut self, (slot, generation): (u16, u8), status: Status, data: &[u8], cx: &mut Cx<S>) {
        let Some(queue) = self.queue.as_mut().filter(|_| matches!(self.phase, Phase::Ready)) else { return };
        let parked = |slot: &&mut Slot| slot.state == State::Parked && matches!(slot.work, Work::AwaitReservation);
        let Some(command) = queue.slots.get_if(slot, generation).filter(parked) else { return };
        if !status.is_success() {
            command.fail(status);
        }
        if let Some(buffer) = &mut command.buffer {
            let len = data.len().min(buffer.len());
            buffer[..len].copy_from_slice(&data[..len]);
        }
        self.complete(slot, 0, cx);
    }
}
