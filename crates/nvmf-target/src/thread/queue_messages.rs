//! Messages of queue pairs of other I/O threads.

use pilotlight_nvmf_proto::ids::{ConnAddr, HostKey};
use pilotlight_nvmf_proto::queue_pair::message::{Outbox as _, QueueMessage};
use pilotlight_nvmf_proto::queue_pair::{CONTROLLER_ENDED, Cx};

use super::TargetThread;
use super::socket::Socket;
use crate::shared::Shared;

impl TargetThread {
    pub(super) fn on_queue_message(&mut self, message: QueueMessage, now_ns: u64) {
        match message {
            QueueMessage::Attach { admin, qid, queue } => {
                let known = self.with(admin, now_ns, |socket, cx| socket.conn.pair.on_attach(qid, queue, cx));
                let result = known.unwrap_or(Err(CONTROLLER_ENDED));
                self.resources.out.send(queue.thread, QueueMessage::Attached { admin, qid, queue, result });
            }
            QueueMessage::Attached { admin, qid, queue, result } => {
                let waited =
                    self.with(queue, now_ns, |socket, cx| socket.conn.pair.on_attached(admin, qid, result, cx));
                if waited != Some(true) && result.is_ok() {
                    // It has been closed, or has timed out: undo the join.
                    self.resources.out.send(admin.thread, QueueMessage::Detached { admin, qid, queue });
                }
            }
            QueueMessage::Detached { admin, qid, queue } => {
                self.with(admin, now_ns, |socket, cx| socket.conn.pair.on_detached(qid, queue, cx));
            }
            QueueMessage::Terminate(queue) => {
                self.with(queue, now_ns, |socket, cx| socket.conn.pair.lost(cx));
            }
            QueueMessage::Abort { queue, cid, admin, slot } => {
                let stopped = self.with(queue, now_ns, |socket, cx| socket.conn.pair.abort(cid, cx)).unwrap_or(false);
                // The aborted command's completion is sent before the Abort command's.
                self.settle(queue.index, now_ns);
                self.resources.out.send(admin.thread, QueueMessage::Aborted { admin, slot, stopped });
            }
            QueueMessage::Aborted { admin, slot, stopped } => {
                self.with(admin, now_ns, |socket, cx| socket.conn.pair.on_aborted(slot, stopped, cx));
            }
            QueueMessage::Barrier { host, requester } => self.on_barrier(&host, requester, now_ns),
            QueueMessage::Reservation { admin, nsid, kind } => {
                let report = |socket: &mut Socket, cx: &mut Cx<Shared>| {
                    socket.conn.pair.on_reservation_notification(nsid, kind, cx);
                };
                self.with(admin, now_ns, report);
            }
            QueueMessage::BarrierPassed(requester) => {
                self.with(requester, now_ns, |socket, _| socket.conn.pair.on_barrier_passed());
            }
        }
    }

    /// Ends connections closed by `host`; connections of other hosts are not checked.
    fn on_barrier(&mut self, host: &HostKey, requester: ConnAddr, now_ns: u64) {
        let queues = self.resources.shared.hosts.associations.queues_on(host, self.id);
        for queue in queues.into_iter().filter(|queue| *queue != requester) {
            #[cfg(feature = "testing")]
            {
                self.barrier_checks += 1;
            }
            self.with(queue, now_ns, |socket, cx| {
                if socket.is_hung_up() {
                    socket.conn.pair.lost(cx);
                }
            });
        }
        self.resources.out.send(requester.thread, QueueMessage::BarrierPassed(requester));
    }
}
